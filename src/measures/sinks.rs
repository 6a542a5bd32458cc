//! Attention sinks of a head, found by the attention that each key receives rather than assumed at position 0.

use engine::attention::{AttentionRow, RowCollector, RowProbe};
use stats::simd::{add_magnitudes, sum_magnitudes};

/// Maximum number of sampled rows, spread evenly over the text.
const SAMPLED_ROWS: usize = 512;

/// Distance in tokens from which a row counts for a key, since nearby keys always receive attention.
const GAP: usize = 16;

/// Mean share above which a key is a sink: the threshold of Gu et al. (2025), "When attention sink emerges in language
/// models".
const SINK_SHARE: f64 = 0.3;

/// Minimum number of rows to classify a key as a sink.
const SINK_ROWS: usize = 64;

/// Observes the attention that every key receives in sampled rows.
pub(crate) struct SinkProbe {
    /// Distance between sampled rows.
    stride: usize,
}

impl SinkProbe {
    /// Creates a probe for a text of `tokens` tokens.
    pub(crate) fn new(tokens: usize) -> Self {
        Self { stride: tokens.div_ceil(SAMPLED_ROWS).max(1) }
    }
}

impl RowProbe for SinkProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        query % self.stride == self.stride - 1
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(SinkCollector { sampled: Vec::new(), received: Vec::new() })
    }
}

/// State of the probe for one head: attention received by its keys.
pub(crate) struct SinkCollector {
    /// First visible key and query of each sampled row, both ascending.
    sampled: Vec<(usize, usize)>,
    /// Per key, the sum of its shares |a| / sum |a| in the sampled rows at least [`GAP`] tokens later.
    received: Vec<f32>,
}

impl SinkCollector {
    /// The number of sampled rows that count for a key: those that see it from at least [`GAP`] tokens later.
    fn rows(&self, key: usize) -> usize {
        let seeing = self.sampled.partition_point(|&(first, _)| first <= key);
        seeing.saturating_sub(self.sampled.partition_point(|&(_, query)| query < key + GAP))
    }

    /// The mean share |a| / sum |a| of a key in the sampled rows that count for it; `None` without such rows.
    fn mean_share(&self, key: usize) -> Option<f64> {
        let rows = self.rows(key);
        (rows > 0).then(|| f64::from(self.received.get(key).copied().unwrap_or(0.0)) / rows as f64)
    }

    /// The keys that are attention sinks of this head, in ascending order: those with a mean share above 0.3, the
    /// threshold of Gu et al. (2025), over at least 64 sampled rows. (They average over all later rows of an ordinary
    /// map. Here rows are sampled and start 16 tokens later, and shares are of the magnitudes of signed rows.)
    pub(crate) fn sinks(&self) -> Vec<usize> {
        (0..self.received.len()).filter(|&key| self.is_sink(key)).collect()
    }

    fn is_sink(&self, key: usize) -> bool {
        self.rows(key) >= SINK_ROWS && self.mean_share(key).is_some_and(|share| share > SINK_SHARE)
    }
}

impl RowCollector for SinkCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let total = sum_magnitudes(row.effective);
        if !total.is_finite() || total <= 0.0 {
            return;
        }
        self.sampled.push((row.first_visible, row.query));
        let keys = (row.query + 1).saturating_sub(GAP);
        self.received.resize(keys.max(self.received.len()), 0.0);
        add_magnitudes(&mut self.received[..keys], row.effective, (1.0 / total) as f32);
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.sampled.extend(&later.sampled);
        add_longer(&mut self.received, &later.received);
    }
}

/// Adds `other` to `sum`, after extending it to the same length.
pub(super) fn add_longer(sum: &mut Vec<f32>, other: &[f32]) {
    sum.resize(sum.len().max(other.len()), 0.0);
    sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    /// Rows that give `sink` a share of `share` with negative weight, and the rest to themselves.
    fn rows_with_sink(tokens: usize, sink: usize, share: f32) -> Vec<TestRow> {
        let mut rows = Vec::new();
        for query in 0..tokens {
            let mut weights = vec![0.0; query + 1];
            weights[query] = 0.5 * (1.0 - share);
            if query > sink {
                weights[sink] = -0.5 * share;
            }
            rows.push(TestRow::one(&weights));
        }
        rows
    }

    fn received(rows: &[TestRow], block: usize) -> Box<SinkCollector> {
        watch(&SinkProbe::new(rows.len()), rows, block)
    }

    #[test]
    fn a_sink_is_found_and_self_attention_is_not_one() {
        let collector = received(&rows_with_sink(120, 7, 0.4), 32);
        assert_eq!(collector.sinks(), [7]);
        assert!((collector.mean_share(7).unwrap() - 0.4).abs() < 1e-6);
        assert_eq!((collector.rows(7), collector.mean_share(50)), (120 - 7 - GAP, Some(0.0)));
        assert_eq!(collector.mean_share(110), None, "no row comes long enough after it");
        assert_eq!(received(&rows_with_sink(120, 7, 0.29), 32).sinks(), Vec::<usize>::new());
    }

    #[test]
    fn a_key_with_few_later_rows_is_not_a_sink() {
        let last = 120 - GAP - SINK_ROWS;
        assert_eq!(received(&rows_with_sink(120, last, 0.9), 50).sinks(), [last]);
        assert_eq!(received(&rows_with_sink(120, last + 1, 0.9), 50).sinks(), Vec::<usize>::new());
    }

    #[test]
    fn rows_are_sampled_evenly_over_a_long_text() {
        let probe = SinkProbe::new(65_536);
        let sampled: Vec<usize> = (0..65_536).filter(|&query| probe.wants(0, 0, query)).collect();
        assert_eq!((sampled.len(), sampled[0], sampled[511]), (512, 127, 65_535));
        assert!(SinkProbe::new(0).wants(0, 0, 0));
    }

    #[test]
    fn rows_without_weight_are_not_counted() {
        let mut rows = rows_with_sink(100, 0, 0.5);
        rows[40] = TestRow::one(&[0.0; 41]);
        rows[41] = TestRow::one(&[f32::NAN; 42]);
        let collector = received(&rows, 32);
        assert_eq!(collector.rows(0), 100 - GAP - 2);
        assert!((collector.mean_share(0).unwrap() - 0.5).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 1_usize..80, block in 1_usize..80, seed: u64) {
            let rows = random_rows(tokens, seed);
            let whole = received(&rows, tokens);
            let merged = received(&rows, block);
            prop_assert_eq!(&whole.sampled, &merged.sampled);
            prop_assert_eq!(whole.received.len(), merged.received.len());
            for (a, b) in whole.received.iter().zip(&merged.received) {
                prop_assert!((a - b).abs() < 1e-5 * (1.0 + a.abs()));
            }
        }
    }
}
