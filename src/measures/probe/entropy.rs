//! Entropy of the rows that predict an answer, regardless of the regions they attend to.

use super::roles::Score;
use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::stats::simd::sum_magnitudes;
use std::ops::Range;
use std::sync::Arc;

/// Observes the mixture rows of ranges of queries.
pub struct EntropyProbe {
    targets: Arc<[Range<usize>]>,
}

impl EntropyProbe {
    /// Creates a probe for ranges of query positions: the [`rows`](crate::prompts::Target::rows) of a prompt's targets.
    pub fn new(targets: Vec<Range<usize>>) -> Self {
        Self { targets: targets.into() }
    }
}

impl RowProbe for EntropyProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|rows| rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(EntropyCollector {
            targets: Arc::clone(&self.targets),
            sums: vec![Score::default(); self.targets.len()],
        })
    }
}

/// State of the probe for one head.
pub struct EntropyCollector {
    targets: Arc<[Range<usize>]>,
    /// Entropies of each range of rows, in nats.
    pub sums: Vec<Score>,
}

/// Shannon entropy -sum p ln p of p = |a| / sum |a|, in nats: ln n for n equal weights. `None` without a positive, finite sum
/// of magnitudes.
fn entropy_nats(weights: &[f32]) -> Option<f64> {
    let total = sum_magnitudes(weights);
    if !total.is_finite() || total <= 0.0 {
        return None;
    }
    let surprise = |weight: &f32| {
        let p = f64::from(weight.abs()) / total;
        if p > 0.0 {
            -p * p.ln()
        } else {
            0.0
        }
    };
    Some(weights.iter().map(surprise).sum::<f64>())
}

impl RowCollector for EntropyCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (rows, sum) in self.targets.iter().zip(&mut self.sums) {
            if rows.contains(&row.query) {
                sum.add(entropy_nats(row.effective));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.sums.iter_mut().zip(later.sums).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    fn entropy(weights: &[f32]) -> f64 {
        entropy_nats(weights).unwrap()
    }

    #[test]
    fn weights_of_either_sign_have_the_known_entropy() {
        let equal: Vec<f32> = (0..100).map(|i| if i % 3 == 0 { -0.1 } else { 0.1 }).collect();
        assert!((entropy(&equal) - 100.0_f64.ln()).abs() < 1e-9);
        assert_eq!(entropy(&[0.0, -0.75, 0.0, 0.0]), 0.0);
        assert!((entropy(&[0.125, 0.5, 0.125, -0.25]) - 1.75 * 2.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn rows_of_a_query_are_averaged_and_others_left_out() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[0.0, 1.0, 0.0], &[0.25; 4]].map(TestRow::one);
        let probe = EntropyProbe::new(vec![1..3, 3..4, 7..9]);
        assert!(!probe.wants(0, 0, 0));
        let found = watch::<EntropyCollector>(&probe, &rows, 2);
        assert!((found.sums[0].mean().unwrap() - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!((found.sums[0].rows, found.sums[1].rows), (2, 1));
        assert_eq!(found.sums[2].mean(), None);
    }

    #[test]
    fn rows_without_weight_have_no_entropy() {
        assert_eq!([entropy_nats(&[0.0, 0.0]), entropy_nats(&[f32::NAN, 1.0])], [None, None]);
    }

    proptest! {
        #[test]
        fn entropy_lies_between_zero_and_that_of_equal_weights(
            weights in prop::collection::vec(-1.0_f32..1.0, 1..100)
        ) {
            prop_assume!(weights.iter().any(|&x| x != 0.0));
            prop_assert!((-1e-12..=(weights.len() as f64).ln() + 1e-12).contains(&entropy(&weights)));
        }

        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 2_usize..40, block in 1_usize..40, seed: u64) {
            let (rows, probe) = (random_rows(tokens, seed), EntropyProbe::new(vec![0..tokens, 1..2]));
            let (whole, merged) = (watch::<EntropyCollector>(&probe, &rows, tokens), watch::<EntropyCollector>(&probe, &rows, block));
            for (a, b) in whole.sums.iter().zip(&merged.sums) {
                prop_assert_eq!(a.rows, b.rows);
                prop_assert!((a.mean().unwrap_or(0.0) - b.mean().unwrap_or(0.0)).abs() < 1e-11);
            }
        }
    }
}
