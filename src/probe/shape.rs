//! Spread of the rows that predict an answer, regardless of the regions they attend to.

use crate::attention::{AttentionRow, RowProbe, RowSink};
use crate::stats::simd::{max_magnitude, sum_magnitudes};
use std::ops::Range;
use std::sync::Arc;

/// Relative difference up to which two sums are equal, because they may be rounded in different orders.
const ROUNDING: f64 = 1e-6;

/// Mean spread of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowShape {
    /// Shannon entropy -sum p ln p of p = |a| / sum |a|, in nats: ln n for n equal weights.
    pub entropy_nats: f64,
    /// exp of the entropy.
    pub effective_keys: f64,
    /// Distance from the query to the keys, weighted with p, in tokens.
    pub distance: f64,
    /// The fewest keys that hold 90 % of sum |a|.
    pub keys_90: f64,
    /// The fewest keys that hold 99 % of sum |a|.
    pub keys_99: f64,
    /// The largest |a|.
    pub largest: f64,
    /// Ranges of keys visible to the last row, as in [`AttentionRow::visible`].
    pub visible: Vec<Range<usize>>,
}

/// Observes the mixture rows of ranges of queries.
pub struct ShapeProbe {
    targets: Arc<[Range<usize>]>,
}

impl ShapeProbe {
    /// Creates a probe for ranges of query positions: the [`rows`](crate::prompt::Target::rows) of a prompt's targets.
    pub fn new(targets: Vec<Range<usize>>) -> Self {
        Self { targets: targets.into() }
    }
}

impl RowProbe for ShapeProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|rows| rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowSink> {
        Box::new(ShapeSink { targets: Arc::clone(&self.targets), sums: vec![ShapeSum::default(); self.targets.len()] })
    }
}

/// State of the probe for one head.
pub struct ShapeSink {
    targets: Arc<[Range<usize>]>,
    /// One sum per range of rows.
    pub sums: Vec<ShapeSum>,
}

/// Sums of the spread of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapeSum {
    entropy_nats: f64,
    effective_keys: f64,
    distance: f64,
    keys_90: usize,
    keys_99: usize,
    largest: f64,
    visible: Vec<Range<usize>>,
    /// Number of rows. Rows without a positive, finite sum of magnitudes do not count.
    pub rows: usize,
}

impl ShapeSum {
    /// The mean over rows, or `None` without rows.
    pub fn mean(&self) -> Option<RowShape> {
        let rows = self.rows as f64;
        (self.rows > 0).then(|| RowShape {
            entropy_nats: self.entropy_nats / rows,
            effective_keys: self.effective_keys / rows,
            distance: self.distance / rows,
            keys_90: self.keys_90 as f64 / rows,
            keys_99: self.keys_99 as f64 / rows,
            largest: self.largest / rows,
            visible: self.visible.clone(),
        })
    }

    fn add(&mut self, weights: &[f32]) {
        let total = sum_magnitudes(weights);
        if !total.is_finite() || total <= 0.0 {
            return;
        }
        let surprise = |weight: &f32| {
            let p = f64::from(weight.abs()) / total;
            if p > 0.0 {
                -p * p.ln()
            } else {
                0.0
            }
        };
        let entropy_nats = weights.iter().map(surprise).sum::<f64>();
        self.entropy_nats += entropy_nats;
        self.effective_keys += entropy_nats.exp();
        // The last key is the query's own.
        let distances = weights.iter().rev().enumerate();
        self.distance += distances.map(|(distance, x)| distance as f64 * f64::from(x.abs())).sum::<f64>() / total;
        let mut magnitudes: Vec<f32> = weights.iter().map(|weight| weight.abs()).collect();
        self.keys_90 += fewest_that_hold(&mut magnitudes, 0.9 * total);
        self.keys_99 += fewest_that_hold(&mut magnitudes, 0.99 * total);
        self.largest += f64::from(max_magnitude(weights));
        self.rows += 1;
    }

    /// Replaces the visible keys if this row is later. Every row sees its own key.
    fn observe(&mut self, visible: Vec<Range<usize>>) {
        let end = |runs: &[Range<usize>]| runs.last().map(|run| run.end);
        if end(&visible) > end(&self.visible) {
            self.visible = visible;
        }
    }

    fn merge(&mut self, later: &Self) {
        self.entropy_nats += later.entropy_nats;
        self.effective_keys += later.effective_keys;
        self.distance += later.distance;
        self.keys_90 += later.keys_90;
        self.keys_99 += later.keys_99;
        self.largest += later.largest;
        self.observe(later.visible.clone());
        self.rows += later.rows;
    }
}

/// The smallest number of magnitudes whose sum reaches `target`, up to rounding; all of them if none does. Halves the
/// candidates at their median, in linear time. Reorders `magnitudes`.
fn fewest_that_hold(mut magnitudes: &mut [f32], target: f64) -> usize {
    let (mut taken, mut missing) = (0, target - ROUNDING * target);
    while magnitudes.len() > 1 {
        let half = magnitudes.len() / 2;
        magnitudes.select_nth_unstable_by(half, |a, b| b.total_cmp(a));
        let (large, small) = magnitudes.split_at_mut(half);
        let held = sum_magnitudes(large);
        if held >= missing {
            magnitudes = large;
        } else {
            (taken, missing, magnitudes) = (taken + half, missing - held, small);
        }
    }
    taken + usize::from(missing > 0.0 && !magnitudes.is_empty())
}

impl RowSink for ShapeSink {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (rows, sum) in self.targets.iter().zip(&mut self.sums) {
            if rows.contains(&row.query) {
                sum.add(row.effective);
                sum.observe(row.visible());
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowSink>) {
        let later = later.into_sink::<Self>();
        self.sums.iter_mut().zip(&later.sums).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    fn shape(weights: &[f32]) -> RowShape {
        let mut sum = ShapeSum::default();
        sum.add(weights);
        sum.mean().unwrap()
    }

    #[test]
    fn equal_weights_of_either_sign_have_the_largest_spread() {
        let weights: Vec<f32> = (0..100).map(|i| if i % 3 == 0 { -0.1 } else { 0.1 }).collect();
        let found = shape(&weights);
        assert!((found.entropy_nats - 100.0_f64.ln()).abs() < 1e-9);
        assert!((found.effective_keys - 100.0).abs() < 1e-6 && (found.distance - 49.5).abs() < 1e-6);
        assert_eq!((found.keys_90, found.keys_99), (90.0, 99.0));
        assert!((found.largest - 0.1).abs() < 1e-8);
    }

    #[test]
    fn a_single_weight_has_no_entropy() {
        let found = shape(&[0.0, -0.75, 0.0, 0.0]);
        assert_eq!(
            found,
            RowShape {
                entropy_nats: 0.0,
                effective_keys: 1.0,
                distance: 2.0,
                keys_90: 1.0,
                keys_99: 1.0,
                largest: 0.75,
                visible: Vec::new()
            }
        );
    }

    #[test]
    fn halves_and_quarters_have_the_known_entropy() {
        let found = shape(&[0.125, 0.5, 0.125, -0.25]);
        assert!((found.entropy_nats - 1.75 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!((found.keys_90, found.keys_99, found.largest), (4.0, 4.0, 0.5));
        assert!((found.effective_keys - 2.0_f64.powf(1.75)).abs() < 1e-12);
        assert_eq!(found.distance, 3.0 * 0.125 + 2.0 * 0.5 + 0.125);
    }

    #[test]
    fn rows_of_a_query_are_averaged_and_others_left_out() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[0.0, 1.0, 0.0], &[0.25; 4]].map(TestRow::one);
        let probe = ShapeProbe::new(vec![1..3, 3..4, 7..9]);
        assert!(!probe.wants(0, 0, 0));
        let found = watch::<ShapeSink>(&probe, &rows, 2);
        let first = found.sums[0].mean().unwrap();
        assert!((first.entropy_nats - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!((first.keys_90, first.largest, found.sums[0].rows), (1.5, 0.75, 2));
        assert_eq!(found.sums[1].mean().unwrap().keys_99, 4.0);
        assert_eq!(found.sums[2].mean(), None);
    }

    #[test]
    fn rows_without_weight_have_no_shape() {
        let mut sum = ShapeSum::default();
        sum.add(&[0.0, 0.0]);
        sum.add(&[f32::NAN, 1.0]);
        assert_eq!(sum.mean(), None);
    }

    proptest! {
        #[test]
        fn the_fewest_keys_are_those_of_a_sorted_row(
            weights in prop::collection::vec(0.0_f32..1.0, 1..200), share in 0.05..0.999
        ) {
            let mut sorted: Vec<f64> = weights.iter().map(|&x| f64::from(x)).collect();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let total: f64 = sorted.iter().sum();
            let sums = sorted.iter().scan(0.0, |held, x| { *held += x; Some(*held) });
            let keys = 1 + sums.take_while(|held| *held < share * total * (1.0 - ROUNDING)).count();
            prop_assume!(total > 0.0);
            prop_assert_eq!(fewest_that_hold(&mut weights.clone(), share * total), keys);
        }

        #[test]
        fn entropy_lies_between_zero_and_that_of_equal_weights(
            weights in prop::collection::vec(-1.0_f32..1.0, 1..100)
        ) {
            prop_assume!(weights.iter().any(|&x| x != 0.0));
            let found = shape(&weights);
            prop_assert!((-1e-12..=(weights.len() as f64).ln() + 1e-12).contains(&found.entropy_nats));
            prop_assert!(found.keys_90 <= found.keys_99 && found.keys_99 <= weights.len() as f64);
        }

        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 2_usize..40, block in 1_usize..40, seed: u64) {
            let (rows, probe) = (random_rows(tokens, seed), ShapeProbe::new(vec![0..tokens, 1..2]));
            let (whole, merged) = (watch::<ShapeSink>(&probe, &rows, tokens), watch::<ShapeSink>(&probe, &rows, block));
            for (a, b) in whole.sums.iter().zip(&merged.sums) {
                prop_assert_eq!((a.keys_90, a.keys_99, a.rows), (b.keys_90, b.keys_99, b.rows));
                prop_assert!((a.entropy_nats - b.entropy_nats).abs() < 1e-9 && (a.largest - b.largest).abs() < 1e-9);
                prop_assert!((a.distance - b.distance).abs() < 1e-9 * (1.0 + a.distance));
                prop_assert!((a.effective_keys - b.effective_keys).abs() < 1e-9 * (1.0 + a.effective_keys));
            }
        }
    }
}
