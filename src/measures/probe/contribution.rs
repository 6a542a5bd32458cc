//! Contribution of each region to a head's output: the part of the weighted values that comes from its keys.
//!
//! In row t of a head with mixture weights a and values v, region R contributes c_R = Σ_{s in R} a[t,s] v[s], and the
//! head's mixture is o = Σ_R c_R. This is the decomposition of Kobayashi et al. (2020, "Attention is not only a
//! weight"), summed by region.
//!
//! Sinks are known only after all rows of a head, when values are gone. To tell their part, a probe can keep the
//! contributions of single keys of noise that have at least 1/32 of a row's |a|, of which there are at most 32.

use super::answer::TargetRanges;
use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::prompts::{Region, TargetRows};
use crate::stats::simd::sum_magnitudes;
use std::ops::Range;
use std::sync::Arc;

const REGIONS: usize = Region::ALL.len();

/// Largest number of keys of a row that are kept one by one: those with at least this part of its |a|.
const STRONG_KEYS: usize = 32;

/// Observes the target rows of one prompt with the values that they weight.
pub struct ContributionProbe {
    targets: Arc<[TargetRanges]>,
    strong_keys: bool,
}

impl ContributionProbe {
    /// Creates a probe for the targets of a prompt.
    pub fn new(targets: &[TargetRows]) -> Self {
        Self { targets: targets.iter().map(TargetRanges::new).collect(), strong_keys: false }
    }

    /// Keeps also the contributions of single keys of noise with much weight: [`Contribution::strong_keys`].
    pub fn with_strong_keys(self, strong_keys: bool) -> Self {
        Self { strong_keys, ..self }
    }
}

impl RowProbe for ContributionProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|target| target.rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(ContributionCollector {
            targets: Arc::clone(&self.targets),
            strong_keys: self.strong_keys,
            rows: vec![Vec::new(); self.targets.len()],
        })
    }
}

/// State of the probe for one head.
pub struct ContributionCollector {
    targets: Arc<[TargetRanges]>,
    strong_keys: bool,
    /// Rows of each target, in the order of queries.
    pub rows: Vec<Vec<Contribution>>,
}

/// Contributions of the regions to one row of one head.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// Position of the query token.
    pub query: usize,
    /// c_R of each region in the order of [`Region::ALL`]: (regions, value width).
    parts: Vec<f64>,
    /// Keys of noise with at least 1/32 of the row's |a|, ascending. Empty unless the probe was asked for them.
    pub strong_keys: Vec<StrongKey>,
}

/// A key with much weight in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct StrongKey {
    /// Its position.
    pub key: usize,
    /// Its contribution a\[t,s\] v\[s\]: (value width).
    pub part: Vec<f64>,
}

/// The keys of a range that a row sees.
fn visible(row: &AttentionRow<'_>, keys: &Range<usize>) -> Range<usize> {
    keys.start.max(row.first_visible)..keys.end.min(row.effective.len())
}

/// The strong keys of noise of a row.
fn strong_keys(row: &AttentionRow<'_>, target: &TargetRanges) -> Vec<StrongKey> {
    let least = (sum_magnitudes(row.effective) / STRONG_KEYS as f64) as f32;
    let runs = target.runs.iter().filter(|(region, _)| Region::NOISE.contains(region));
    let keys = runs.flat_map(|(_, keys)| visible(row, keys));
    let strong = keys.filter(|&key| row.effective[key] != 0.0 && row.effective[key].abs() >= least);
    let contribution = |key: usize| {
        let mut part = vec![0.0; row.values.width()];
        row.values.weigh(key, &row.effective[key..=key], &mut part);
        StrongKey { key, part }
    };
    strong.map(contribution).collect()
}

impl Contribution {
    fn of(row: &AttentionRow<'_>, target: &TargetRanges, with_strong_keys: bool) -> Self {
        let width = row.values.width();
        let mut parts = vec![0.0; REGIONS * width];
        for (region, keys) in &target.runs {
            let visible = visible(row, keys);
            if !visible.is_empty() {
                let sum = &mut parts[*region as usize * width..][..width];
                row.values.weigh(visible.start, &row.effective[visible], sum);
            }
        }
        let strong_keys = if with_strong_keys { strong_keys(row, target) } else { Vec::new() };
        Self { query: row.query, parts, strong_keys }
    }

    /// c_R: (value width).
    pub fn part(&self, region: Region) -> &[f64] {
        let width = self.parts.len() / REGIONS;
        &self.parts[region as usize * width..][..width]
    }

    /// c_R of each region in the order of [`Region::ALL`]: (regions, value width).
    pub fn parts(&self) -> &[f64] {
        &self.parts
    }

    /// o, the sum over regions: (value width).
    pub fn total(&self) -> Vec<f64> {
        let width = self.parts.len() / REGIONS;
        (0..width).map(|channel| self.parts.iter().skip(channel).step_by(width).sum()).collect()
    }
}

impl RowCollector for ContributionCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (target, rows) in self.targets.iter().zip(&mut self.rows) {
            if target.rows.contains(&row.query) {
                rows.push(Contribution::of(row, target, self.strong_keys));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.rows.iter_mut().zip(later.rows).for_each(|(mine, theirs)| mine.extend(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    fn target(regions: &[Region]) -> TargetRows {
        TargetRows { query: None, rows: 0..regions.len(), regions: regions.to_vec() }
    }

    #[test]
    fn a_region_contributes_its_weights_times_its_values() {
        use Region::*;
        // Values of two channels; the rows weight them with 0.75 - 0.5 * 0.5 and 0.25 - 0.5 * 0.5.
        let row = TestRow::two(&[0.75, 0.25], &[0.5, 0.5], 0.5).with_values(&[&[2.0, 4.0], &[-8.0, 1.0]]);
        let rows = [TestRow::one(&[1.0]).with_values(&[&[2.0, 4.0]]), row];
        let found = watch::<ContributionCollector>(&ContributionProbe::new(&[target(&[Filler, Answer])]), &rows, 1);
        let [first, second] = found.rows[0].as_slice() else { panic!("two rows") };
        assert_eq!((first.part(Filler), first.part(Answer)), (&[2.0, 4.0][..], &[0.0, 0.0][..]));
        assert_eq!((second.part(Filler), second.part(Answer)), (&[1.0, 2.0][..], &[0.0, 0.0][..]));
        assert_eq!((second.query, second.total()), (1, vec![1.0, 2.0]));
    }

    #[test]
    fn strong_keys_are_those_of_noise_with_a_32nd_of_the_weight() {
        use Region::*;
        // Keys 1 and 2 have 1/64 and 1/32 of |a|; key 3 has more, but is the answer's.
        let row = TestRow::one(&[-0.5, 1.0 / 64.0, 1.0 / 32.0, 0.25, 0.203_125]);
        let row = row.with_values(&[&[2.0], &[1.0], &[-64.0], &[1.0], &[1.0]]);
        let target = TargetRows { rows: 4..5, ..target(&[Template, Filler, Distractor, Answer, Question]) };
        let rows =
            [TestRow::one(&[1.0]), TestRow::one(&[0.5; 2]), TestRow::one(&[0.25; 3]), TestRow::one(&[0.25; 4]), row];
        let probe = |strong| ContributionProbe::new(std::slice::from_ref(&target)).with_strong_keys(strong);
        let found = watch::<ContributionCollector>(&probe(true), &rows, 2);
        let strong = |key, part| StrongKey { key, part: vec![part] };
        assert_eq!(found.rows[0][0].strong_keys, [strong(0, -1.0), strong(2, -2.0)]);
        assert!(watch::<ContributionCollector>(&probe(false), &rows, 2).rows[0][0].strong_keys.is_empty());
    }

    proptest! {
        #[test]
        fn regions_sum_to_the_mixture_for_any_blocks(tokens in 2_usize..60, block in 1_usize..60, seed: u64) {
            let rows = random_rows(tokens, seed);
            let regions: Vec<Region> = (0..tokens).map(|key| Region::ALL[key * key % REGIONS]).collect();
            let probe = ContributionProbe::new(&[target(&regions)]);
            let found = watch::<ContributionCollector>(&probe, &rows, block);
            prop_assert_eq!(&found.rows, &watch::<ContributionCollector>(&probe, &rows, tokens).rows);
            for (row, found) in rows.iter().zip(&found.rows[0]) {
                for (channel, got) in found.total().iter().enumerate() {
                    let weighed = row.effective().iter().zip(&row.values).map(|(a, v)| a * v[channel]).sum::<f32>();
                    prop_assert!((got - f64::from(weighed)).abs() < 1e-5, "{got} instead of {weighed}");
                }
            }
        }
    }
}
