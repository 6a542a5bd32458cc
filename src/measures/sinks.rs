//! Attention sinks of a head, found by the attention that each key receives rather than assumed at position 0.

use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::stats::simd::{add_magnitudes, sum_magnitudes};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of sampled rows, spread evenly over the text.
const SAMPLED_ROWS: usize = 512;

/// Distance in tokens from which a row counts for a key, since nearby keys always receive attention.
const GAP: usize = 16;

/// Mean share above which a key is a sink: the threshold of Gu et al. (2025), "When attention sink emerges in language
/// models".
const SINK_SHARE: f64 = 0.3;

/// Minimum number of rows to classify a key as a sink.
const SINK_ROWS: usize = 64;

/// Observes the attention that every key receives in sampled rows and in the rows that predict answers.
pub(crate) struct SinkProbe {
    plan: Arc<SinkPlan>,
}

struct SinkPlan {
    /// Distance between sampled rows.
    stride: usize,
    /// Ranges of queries.
    targets: Vec<Range<usize>>,
}

impl SinkPlan {
    fn samples(&self, query: usize) -> bool {
        query % self.stride == self.stride - 1
    }
}

impl SinkProbe {
    /// Creates a probe for a text of `tokens` tokens and the rows of its targets, if any.
    pub(crate) fn new(tokens: usize, targets: Vec<Range<usize>>) -> Self {
        let stride = tokens.div_ceil(SAMPLED_ROWS).max(1);
        Self { plan: Arc::new(SinkPlan { stride, targets }) }
    }
}

impl RowProbe for SinkProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.plan.samples(query) || self.plan.targets.iter().any(|rows| rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(SinkCollector {
            plan: Arc::clone(&self.plan),
            sampled: Vec::new(),
            received: Vec::new(),
            magnitudes: vec![Vec::new(); self.plan.targets.len()],
            value_norms: Vec::new(),
        })
    }
}

/// State of the probe for one head: attention received by its keys.
pub(crate) struct SinkCollector {
    plan: Arc<SinkPlan>,
    /// First visible key and query of each sampled row, both ascending.
    sampled: Vec<(usize, usize)>,
    /// Per key, the sum of its shares |a| / sum |a| in the sampled rows at least [`GAP`] tokens later.
    received: Vec<f32>,
    /// Per range of rows and key, the sum of |a| over those rows. Reaches to the last observed row; empty before the
    /// first.
    pub(super) magnitudes: Vec<Vec<f32>>,
    /// Norm of the value of every key visible to a row of the ranges.
    value_norms: Vec<f32>,
}

impl SinkCollector {
    /// Returns the number of sampled rows that count for a key: those that see it from at least [`GAP`] tokens later.
    fn rows(&self, key: usize) -> usize {
        let seeing = self.sampled.partition_point(|&(first, _)| first <= key);
        seeing.saturating_sub(self.sampled.partition_point(|&(_, query)| query < key + GAP))
    }

    /// Returns the mean share |a| / sum |a| of a key in the sampled rows that count for it; `None` without such rows.
    fn mean_share(&self, key: usize) -> Option<f64> {
        let rows = self.rows(key);
        (rows > 0).then(|| f64::from(self.received.get(key).copied().unwrap_or(0.0)) / rows as f64)
    }

    /// Returns the keys that are attention sinks of this head, in ascending order: those with a mean share above 0.3, the
    /// threshold of Gu et al. (2025), over at least 64 sampled rows. (They average over all later rows of an ordinary
    /// map. Here rows are sampled and start 16 tokens later, and shares are of the magnitudes of signed rows.)
    pub(crate) fn sinks(&self) -> Vec<usize> {
        (0..self.received.len()).filter(|&key| self.is_sink(key)).collect()
    }

    fn is_sink(&self, key: usize) -> bool {
        self.rows(key) >= SINK_ROWS && self.mean_share(key).is_some_and(|share| share > SINK_SHARE)
    }

    /// Returns the norm of the first token's value relative to the mean of all keys up to the last row of a range: near 0 for
    /// a null sink, which receives attention but adds nothing to the output (Kobayashi et al. 2020), unlike a sink that
    /// broadcasts information. `None` without rows.
    pub(super) fn first_value_norm(&self, range: usize) -> Option<f64> {
        let seen = self.magnitudes[range].len().min(self.value_norms.len());
        let norms: Vec<f64> = self.value_norms[..seen].iter().map(|&norm| f64::from(norm)).collect();
        Some(norms.first()? / crate::stats::mean(&norms).filter(|&mean| mean > 0.0)?)
    }

    fn sample(&mut self, row: &AttentionRow<'_>) {
        let total = sum_magnitudes(row.effective);
        if !total.is_finite() || total <= 0.0 {
            return;
        }
        self.sampled.push((row.first_visible, row.query));
        let keys = (row.query + 1).saturating_sub(GAP);
        self.received.resize(keys.max(self.received.len()), 0.0);
        add_magnitudes(&mut self.received[..keys], row.effective, (1.0 / total) as f32);
    }
}

/// Adds `other` to `sum`, after extending it to the same length.
fn add(sum: &mut Vec<f32>, other: &[f32]) {
    sum.resize(sum.len().max(other.len()), 0.0);
    sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
}

impl RowCollector for SinkCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        if self.plan.samples(row.query) {
            self.sample(row);
        }
        for (rows, sums) in self.plan.targets.iter().zip(&mut self.magnitudes) {
            if rows.contains(&row.query) {
                sums.resize(sums.len().max(row.effective.len()), 0.0);
                add_magnitudes(sums, row.effective, 1.0);
                let further = self.value_norms.len()..row.effective.len();
                self.value_norms.extend(further.map(|key| row.values.norm(key) as f32));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.sampled.extend(&later.sampled);
        add(&mut self.received, &later.received);
        let known = self.value_norms.len().min(later.value_norms.len());
        self.value_norms.extend(&later.value_norms[known..]);
        self.magnitudes.iter_mut().zip(&later.magnitudes).for_each(|(mine, theirs)| add(mine, theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    /// Rows that give `sink` a share of `share` with negative weight, and the rest to themselves.
    fn rows_with_sink(tokens: usize, sink: usize, share: f32) -> Vec<TestRow> {
        let row = |query: usize| {
            let mut weights = vec![0.0; query + 1];
            weights[query] = 0.5 * (1.0 - share);
            if query > sink {
                weights[sink] = -0.5 * share;
            }
            TestRow::one(&weights)
        };
        (0..tokens).map(row).collect()
    }

    fn received(rows: &[TestRow], targets: Vec<Range<usize>>, block: usize) -> Box<SinkCollector> {
        watch(&SinkProbe::new(rows.len(), targets), rows, block)
    }

    #[test]
    fn a_sink_is_found_and_self_attention_is_not_one() {
        let found = received(&rows_with_sink(120, 7, 0.4), vec![], 32);
        assert_eq!(found.sinks(), [7]);
        assert!((found.mean_share(7).unwrap() - 0.4).abs() < 1e-6);
        assert_eq!((found.rows(7), found.mean_share(50)), (120 - 7 - GAP, Some(0.0)));
        assert_eq!(found.mean_share(110), None, "no row comes long enough after it");
        assert_eq!(received(&rows_with_sink(120, 7, 0.29), vec![], 32).sinks(), Vec::<usize>::new());
    }

    #[test]
    fn a_key_with_few_later_rows_is_not_a_sink() {
        let last = 120 - GAP - SINK_ROWS;
        assert_eq!(received(&rows_with_sink(120, last, 0.9), vec![], 50).sinks(), [last]);
        assert_eq!(received(&rows_with_sink(120, last + 1, 0.9), vec![], 50).sinks(), Vec::<usize>::new());
    }

    #[test]
    fn rows_are_sampled_evenly_over_a_long_text() {
        let probe = SinkProbe::new(65_536, vec![]);
        let sampled: Vec<usize> = (0..65_536).filter(|&query| probe.wants(0, 0, query)).collect();
        assert_eq!((sampled.len(), sampled[0], sampled[511]), (512, 127, 65_535));
        assert!(SinkProbe::new(0, vec![]).wants(0, 0, 0));
    }

    #[test]
    fn rows_without_weight_are_not_counted() {
        let mut rows = rows_with_sink(100, 0, 0.5);
        rows[40] = TestRow::one(&[0.0; 41]);
        rows[41] = TestRow::one(&[f32::NAN; 42]);
        let found = received(&rows, vec![], 32);
        assert_eq!(found.rows(0), 100 - GAP - 2);
        assert!((found.mean_share(0).unwrap() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn magnitudes_are_summed_over_the_rows_of_a_range() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[0.5, -0.125, 0.375], &[0.5, 0.125, 0.25, -0.125]].map(TestRow::one);
        assert_eq!(received(&rows, vec![2..4, 9..12], 3).magnitudes, [vec![1.0, 0.25, 0.625, 0.125], vec![]]);
    }

    proptest! {
        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 1_usize..80, block in 1_usize..80, seed: u64) {
            let rows = random_rows(tokens, seed);
            let targets = vec![tokens / 2..tokens, 0..1];
            let (whole, merged) = (received(&rows, targets.clone(), tokens), received(&rows, targets, block));
            prop_assert_eq!(&whole.sampled, &merged.sampled);
            let close = |a: &[f32], b: &[f32]| {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + a.abs()))
            };
            prop_assert!(close(&whole.received, &merged.received));
            prop_assert!(whole.magnitudes.iter().zip(&merged.magnitudes).all(|(a, b)| close(a, b)));
        }
    }
}
