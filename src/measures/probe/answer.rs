//! Attention by region in the rows that predict an answer.

use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::prompts::{Region, TargetRows};
use crate::stats::simd::sum;
use std::ops::Range;

const REGIONS: usize = Region::ALL.len();

/// Smallest |Σ a| relative to Σ|a| for which shares of the signed sum are reported. At this limit, such a share has ten
/// times the error of the mass.
const SMALL_SUM: f64 = 0.1;

/// Observes the target rows of one prompt: those that predict the answers.
pub struct AnswerProbe {
    targets: Vec<TargetRanges>,
}

/// The rows of one target, with the ranges of keys by region in order.
#[derive(Clone)]
pub(super) struct TargetRanges {
    pub(super) rows: Range<usize>,
    pub(super) runs: Vec<(Region, Range<usize>)>,
}

impl TargetRanges {
    pub(super) fn new(target: &TargetRows) -> Self {
        Self { rows: target.rows.clone(), runs: runs(&target.regions) }
    }
}

impl AnswerProbe {
    /// Creates a probe for the targets of a prompt.
    pub fn new(targets: &[TargetRows]) -> Self {
        Self { targets: targets.iter().map(TargetRanges::new).collect() }
    }
}

/// Merges neighbouring keys of the same region into ranges.
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

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(AnswerCollector {
            targets: self.targets.clone(),
            allocations: vec![Allocation::default(); self.targets.len()],
        })
    }
}

/// State of the probe for one head.
pub struct AnswerCollector {
    targets: Vec<TargetRanges>,
    /// One per target.
    pub allocations: Vec<Allocation>,
}

/// Sums of mixture weights by region, in the order of [`Region::ALL`], over the rows of one target of one head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Sum of the weights.
    pub signed: [f64; REGIONS],
    /// Sum of their magnitudes.
    pub magnitude: [f64; REGIONS],
    /// Sum of the weights of the maps before subtraction: Σ_j |mix_j| A_j.
    pub unmixed: [f64; REGIONS],
    /// The same three sums for the sink, which is not a key and has no value; `None` without sinks.
    pub sink: Option<SinkSums>,
    /// Sum of lambda over rows; 0 for standard attention.
    pub lambda: f64,
    /// Whether the rows are differences of two maps.
    pub differential: bool,
    /// Number of rows.
    pub rows: usize,
}

/// Sums of the weights of sinks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SinkSums {
    /// Sum of Σ_j mix_j s_j, where s_j is the weight of the sink in map j.
    pub signed: f64,
    /// Sum of its magnitude.
    pub magnitude: f64,
    /// Sum of Σ_j |mix_j| s_j.
    pub unmixed: f64,
}

impl SinkSums {
    fn add(&mut self, other: Self) {
        self.signed += other.signed;
        self.magnitude += other.magnitude;
        self.unmixed += other.unmixed;
    }

    /// Weights of one row, or `None` without sinks.
    fn of(row: &AttentionRow<'_>) -> Option<Self> {
        let weighed = |weigh: fn(f32) -> f32| -> f64 {
            row.sinks.iter().zip(row.mix).map(|(&sink, &mix)| f64::from(sink) * f64::from(weigh(mix))).sum()
        };
        let signed = weighed(|mix| mix);
        (!row.sinks.is_empty()).then(|| Self { signed, magnitude: signed.abs(), unmixed: weighed(f32::abs) })
    }
}

impl Allocation {
    /// Adds one row.
    fn add(&mut self, row: &AttentionRow<'_>, runs: &[(Region, Range<usize>)]) {
        for (region, keys) in runs {
            let visible = keys.start.min(row.effective.len())..keys.end.min(row.effective.len());
            let region = *region as usize;
            for &weight in &row.effective[visible.clone()] {
                self.signed[region] += f64::from(weight);
                self.magnitude[region] += f64::from(weight.abs());
            }
            for (map, mix) in row.maps.iter().zip(row.mix) {
                self.unmixed[region] += f64::from(mix.abs()) * sum(&map[visible.clone()]);
            }
        }
        if let Some(sink) = SinkSums::of(row) {
            self.sink.get_or_insert_default().add(sink);
        }
        self.differential = row.mix.len() > 1;
        self.lambda += row.mix.get(1).map_or(0.0, |&weight| -f64::from(weight));
        self.rows += 1;
    }

    /// Sums of the weights and of their magnitudes over all regions and the sink.
    fn totals(&self) -> (f64, f64) {
        let sink = self.sink.unwrap_or_default();
        (self.signed.iter().sum::<f64>() + sink.signed, self.magnitude.iter().sum::<f64>() + sink.magnitude)
    }

    /// Share of a region in the sum of magnitudes, regardless of signs and values. With a sink, the shares of the
    /// regions and the sink sum to 1.
    pub fn share_abs(&self, region: Region) -> f64 {
        self.magnitude[region as usize] / self.totals().1
    }

    /// The sink's shares as in [`Allocation::share_abs`] and [`Allocation::share_signed`]; `None` without sinks.
    pub fn of_sink(&self) -> Option<[f64; 2]> {
        let sink = self.sink?;
        let (signed, magnitude) = self.totals();
        Some([sink.magnitude / magnitude, sink.signed / signed])
    }

    /// Share of a region in the signed sum, which is 1 - lambda per row and can be close to zero: see
    /// [`Allocation::sum_is_small`].
    pub fn share_signed(&self, region: Region) -> f64 {
        self.signed[region as usize] / self.totals().0
    }

    /// Returns whether the weights nearly cancel, |Σ a| < 0.1 Σ|a|, so that shares of their sum are meaningless.
    pub fn sum_is_small(&self) -> bool {
        let (signed, magnitude) = self.totals();
        signed.abs() < SMALL_SUM * magnitude
    }

    /// Fraction of a region's attention that the subtraction removes: 1 - Σ|a| / Σ_j |mix_j| A_j. 0 for one map, 1
    /// where both maps agree after weighting.
    pub fn cancelled(&self, region: Region) -> f64 {
        1.0 - self.magnitude[region as usize] / self.unmixed[region as usize]
    }

    /// [`Allocation::cancelled`] of all regions together.
    pub fn cancelled_everywhere(&self) -> f64 {
        1.0 - self.magnitude.iter().sum::<f64>() / self.unmixed.iter().sum::<f64>()
    }

    /// Mean lambda.
    pub fn mean_lambda(&self) -> f64 {
        self.lambda / self.rows as f64
    }
}

impl RowCollector for AnswerCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (target, allocation) in self.targets.iter().zip(&mut self.allocations) {
            if target.rows.contains(&row.query) {
                allocation.add(row, &target.runs);
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        for (mine, theirs) in self.allocations.iter_mut().zip(&later.allocations) {
            for i in 0..REGIONS {
                mine.signed[i] += theirs.signed[i];
                mine.magnitude[i] += theirs.magnitude[i];
                mine.unmixed[i] += theirs.unmixed[i];
            }
            if let Some(sink) = theirs.sink {
                mine.sink.get_or_insert_default().add(sink);
            }
            mine.lambda += theirs.lambda;
            mine.differential |= theirs.differential;
            mine.rows += theirs.rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestRow;
    use super::*;
    use crate::attention::Values;

    /// Regions of keys 0..6: bos, filler, filler, answer, filler, question.
    fn sink() -> AnswerCollector {
        use Region::*;
        let runs = runs(&[Bos, Filler, Filler, Answer, Filler, Question]);
        assert_eq!(runs.len(), 5);
        AnswerCollector { targets: vec![TargetRanges { rows: 4..6, runs }], allocations: vec![Allocation::default()] }
    }

    fn observe(sink: &mut AnswerCollector, query: usize, effective: &[f32], lambda: f32) {
        let values = Values::new(&[], &[], 0);
        sink.observe(&AttentionRow {
            query,
            first_visible: 0,
            logits: &[],
            maps: &[],
            mix: &[1.0, -lambda],
            sinks: &[],
            effective,
            values,
        });
    }

    #[test]
    fn regions_of_a_signed_row_sum_to_the_row_in_every_convention() {
        let mut sink = sink();
        observe(&mut sink, 5, &[0.2, -0.1, 0.0, 0.5, -0.2, 0.1], 0.5);
        let a = &sink.allocations[0];
        for share in [Allocation::share_abs, Allocation::share_signed] {
            let total: f64 = Region::ALL.iter().map(|&region| share(a, region)).sum();
            assert!((total - 1.0).abs() < 1e-12);
        }
        assert!((a.signed.iter().sum::<f64>() - 0.5).abs() < 1e-7, "rows sum to 1 - lambda");
        assert!((a.share_abs(Region::Answer) - 0.5 / 1.1).abs() < 1e-7);
        assert!((a.share_signed(Region::Answer) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn both_conventions_coincide_without_negative_weights() {
        let mut sink = sink();
        observe(&mut sink, 4, &[0.1, 0.2, 0.3, 0.15, 0.25], 0.0);
        let a = &sink.allocations[0];
        for region in Region::ALL {
            assert!((a.share_abs(region) - a.share_signed(region)).abs() < 1e-12);
        }
    }

    #[test]
    fn common_parts_of_two_maps_cancel() {
        let mut sink = sink();
        // Filler: 0.4 in both maps, half of it subtracted; answer: in the first map only; question: in the second only.
        TestRow::two(&[0.0, 0.4, 0.0, 0.6, 0.0, 0.0], &[0.0, 0.4, 0.0, 0.0, 0.0, 0.6], 0.5).show(&mut sink);
        let a = &sink.allocations[0];
        assert!((a.cancelled(Region::Filler) - (1.0 - 0.2 / 0.6)).abs() < 1e-6);
        assert!(a.cancelled(Region::Answer).abs() < 1e-6 && a.cancelled(Region::Question).abs() < 1e-6);
        assert!((a.cancelled_everywhere() - (1.0 - 1.1 / 1.5)).abs() < 1e-6);
        assert!(!a.sum_is_small());
    }

    #[test]
    fn one_map_cancels_nothing_and_small_sums_are_detected() {
        let (mut one, mut two) = (sink(), sink());
        TestRow::one(&[0.1, 0.2, 0.3, 0.15, 0.25]).show(&mut one);
        assert_eq!(one.allocations[0].cancelled_everywhere(), 0.0);
        TestRow::two(&[0.5, 0.5, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.5, 0.25, 0.25], 0.98).show(&mut two);
        assert!(two.allocations[0].sum_is_small());
    }

    #[test]
    fn a_sink_is_a_region_of_its_own_in_every_convention() {
        let mut with = sink();
        let mut row = TestRow::two(&[0.1, 0.1, 0.1, 0.2, 0.1], &[0.05, 0.2, 0.05, 0.1, 0.1], 0.5);
        row.sinks = vec![0.4, 0.5];
        row.show(&mut with);
        let a = &with.allocations[0];
        let [abs, signed] = a.of_sink().unwrap();
        for (share, of_sink) in
            [(Allocation::share_abs as fn(&Allocation, Region) -> f64, abs), (Allocation::share_signed, signed)]
        {
            let total: f64 = Region::ALL.iter().map(|&region| share(a, region)).sum();
            assert!((total + of_sink - 1.0).abs() < 1e-7);
        }
        assert!((signed - 0.15 / 0.5).abs() < 1e-6, "0.4 - 0.5 * 0.5 of rows and sink, which sum to 1 - lambda");
        assert_eq!(sink().allocations[0].of_sink(), None);
    }

    #[test]
    fn merging_blocks_equals_observing_all_rows() {
        let rows: [&[f32]; 2] = [&[0.1, 0.2, 0.3, 0.2, 0.2], &[0.3, -0.1, 0.1, 0.4, 0.2, 0.1]];
        let (mut whole, mut first, mut second) = (sink(), sink(), sink());
        observe(&mut whole, 4, rows[0], 0.0);
        observe(&mut whole, 5, rows[1], 0.0);
        observe(&mut first, 4, rows[0], 0.0);
        observe(&mut second, 5, rows[1], 0.0);
        first.merge(Box::new(second));
        assert_eq!(first.allocations, whole.allocations);
    }
}
