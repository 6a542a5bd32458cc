//! Where the attention of the rows that predict an answer goes, by region.

use crate::attention::{Row, RowProbe, RowSink};
use crate::prompt::{Region, Target};
use std::any::Any;
use std::ops::Range;

const REGIONS: usize = Region::ALL.len();

/// Watches the target rows of one prompt: those that predict the answers.
pub struct AnswerProbe {
    targets: Vec<TargetRuns>,
}

/// The rows of one target and the runs of keys of one region, in order.
#[derive(Clone)]
struct TargetRuns {
    rows: Range<usize>,
    runs: Vec<(Region, Range<usize>)>,
}

impl AnswerProbe {
    /// A probe for the targets of a prompt.
    pub fn new(targets: &[Target]) -> Self {
        let runs_of = |t: &Target| TargetRuns { rows: t.rows.clone(), runs: runs(&t.regions) };
        Self { targets: targets.iter().map(runs_of).collect() }
    }
}

/// Neighbouring keys of one region, together.
pub fn runs(regions: &[Region]) -> Vec<(Region, Range<usize>)> {
    let mut runs: Vec<(Region, Range<usize>)> = Vec::new();
    for (key, &region) in regions.iter().enumerate() {
        match runs.last_mut() {
            Some((last, range)) if *last == region => range.end = key + 1,
            _ => runs.push((region, key..key + 1)),
        }
    }
    runs
}

impl RowProbe for AnswerProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|target| target.rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowSink> {
        Box::new(AnswerSink {
            targets: self.targets.clone(),
            allocations: vec![Allocation::default(); self.targets.len()],
        })
    }
}

/// What the probe knows of one head.
pub struct AnswerSink {
    targets: Vec<TargetRuns>,
    /// One per target.
    pub allocations: Vec<Allocation>,
}

/// Sums of effective weights by region, in the order of [`Region::ALL`], over the rows of one target of one head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Sum of the weights.
    pub signed: [f64; REGIONS],
    /// Sum of their magnitudes.
    pub magnitude: [f64; REGIONS],
    /// Sum of lambda over rows; 0 for standard attention.
    pub lambda: f64,
    /// Whether the rows are differences of two maps.
    pub differential: bool,
    /// Rows seen.
    pub rows: usize,
}

impl Allocation {
    /// Adds one row.
    fn add(&mut self, row: &Row<'_>, runs: &[(Region, Range<usize>)]) {
        for (region, keys) in runs {
            let visible = keys.start.min(row.effective.len())..keys.end.min(row.effective.len());
            for &weight in &row.effective[visible] {
                self.signed[*region as usize] += f64::from(weight);
                self.magnitude[*region as usize] += f64::from(weight.abs());
            }
        }
        self.differential = row.mix.len() > 1;
        self.lambda += row.mix.get(1).map_or(0.0, |&weight| -f64::from(weight));
        self.rows += 1;
    }

    /// Share of a region in the sum of magnitudes: the headline convention.
    pub fn share_abs(&self, region: Region) -> f64 {
        self.magnitude[region as usize] / self.magnitude.iter().sum::<f64>()
    }

    /// Share of a region in the signed sum, which is 1 - lambda per row and may be close to zero.
    pub fn share_signed(&self, region: Region) -> f64 {
        self.signed[region as usize] / self.signed.iter().sum::<f64>()
    }

    /// Share of a region in the sum of positive weights.
    pub fn share_pos(&self, region: Region) -> f64 {
        let positive = |i: usize| 0.5 * (self.magnitude[i] + self.signed[i]);
        positive(region as usize) / (0..REGIONS).map(positive).sum::<f64>()
    }

    /// Mean mass (sum of weights) of a region per row.
    pub fn mass(&self, region: Region) -> f64 {
        self.signed[region as usize] / self.rows as f64
    }

    /// Mean sum of negative weights per row, as a positive number.
    pub fn mass_neg(&self) -> f64 {
        0.5 * (self.magnitude.iter().sum::<f64>() - self.signed.iter().sum::<f64>()) / self.rows as f64
    }

    /// Mean lambda.
    pub fn mean_lambda(&self) -> f64 {
        self.lambda / self.rows as f64
    }
}

impl RowSink for AnswerSink {
    fn see(&mut self, row: &Row<'_>) {
        for (target, allocation) in self.targets.iter().zip(&mut self.allocations) {
            if target.rows.contains(&row.query) {
                allocation.add(row, &target.runs);
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowSink>) {
        let later = later.into_any().downcast::<AnswerSink>().expect("states of one probe are merged");
        for (mine, theirs) in self.allocations.iter_mut().zip(&later.allocations) {
            for i in 0..REGIONS {
                mine.signed[i] += theirs.signed[i];
                mine.magnitude[i] += theirs.magnitude[i];
            }
            mine.lambda += theirs.lambda;
            mine.differential |= theirs.differential;
            mine.rows += theirs.rows;
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys 0..6: bos, filler, filler, answer, filler, question.
    fn sink() -> AnswerSink {
        use Region::*;
        let runs = runs(&[Bos, Filler, Filler, Answer, Filler, Question]);
        assert_eq!(runs.len(), 5);
        AnswerSink { targets: vec![TargetRuns { rows: 4..6, runs }], allocations: vec![Allocation::default()] }
    }

    fn see(sink: &mut AnswerSink, query: usize, effective: &[f32], lambda: f32) {
        sink.see(&Row { query, first_visible: 0, logits: &[], maps: &[], mix: &[1.0, -lambda], effective });
    }

    #[test]
    fn regions_of_a_signed_row_sum_to_the_row_in_every_convention() {
        let mut sink = sink();
        see(&mut sink, 5, &[0.2, -0.1, 0.0, 0.5, -0.2, 0.1], 0.5);
        let a = &sink.allocations[0];
        for share in [Allocation::share_abs, Allocation::share_signed, Allocation::share_pos] {
            let total: f64 = Region::ALL.iter().map(|&region| share(a, region)).sum();
            assert!((total - 1.0).abs() < 1e-12);
        }
        assert!((Region::ALL.iter().map(|&r| a.mass(r)).sum::<f64>() - 0.5).abs() < 1e-7, "mass is 1 - lambda");
        assert!((a.share_abs(Region::Answer) - 0.5 / 1.1).abs() < 1e-7);
        assert!((a.share_signed(Region::Answer) - 1.0).abs() < 1e-6);
        assert!((a.share_pos(Region::Answer) - 0.5 / 0.8).abs() < 1e-7);
        assert!((a.mass_neg() - 0.3).abs() < 1e-7);
    }

    #[test]
    fn the_three_conventions_coincide_without_negative_weights() {
        let mut sink = sink();
        see(&mut sink, 4, &[0.1, 0.2, 0.3, 0.15, 0.25], 0.0);
        let a = &sink.allocations[0];
        for region in Region::ALL {
            assert!((a.share_abs(region) - a.share_signed(region)).abs() < 1e-12);
            assert!((a.share_abs(region) - a.share_pos(region)).abs() < 1e-12);
        }
    }

    #[test]
    fn merging_blocks_equals_seeing_all_rows() {
        let rows: [&[f32]; 2] = [&[0.1, 0.2, 0.3, 0.2, 0.2], &[0.3, -0.1, 0.1, 0.4, 0.2, 0.1]];
        let (mut whole, mut first, mut second) = (sink(), sink(), sink());
        see(&mut whole, 4, rows[0], 0.0);
        see(&mut whole, 5, rows[1], 0.0);
        see(&mut first, 4, rows[0], 0.0);
        see(&mut second, 5, rows[1], 0.0);
        first.merge(Box::new(second));
        assert_eq!(first.allocations, whole.allocations);
    }
}
