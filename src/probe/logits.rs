//! Distribution of a head's logits: largest values, histogram and moments.

use crate::attention::{AttentionRow, RowProbe, RowSink};
use crate::stats::Tally;

/// Observes all visible logits of all maps in every row.
pub struct LogitProbe;

/// Position of a logit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogitPosition {
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
    /// Map j = 0, 1.
    pub map: usize,
    /// Token position of the query.
    pub query: usize,
    /// Token position of the key.
    pub key: usize,
}

impl RowProbe for LogitProbe {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, layer: usize, head: usize) -> Box<dyn RowSink> {
        Box::new(LogitSink { layer, head, tally: Tally::default() })
    }
}

/// State of the probe for one head. Tallies can be merged over heads, layers and prompts.
pub struct LogitSink {
    layer: usize,
    head: usize,
    /// Tally of the logits of all maps, in the order of queries, maps and keys.
    pub tally: Tally<LogitPosition>,
}

impl RowSink for LogitSink {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let (layer, head, query) = (self.layer, self.head, row.query);
        for (map, logits) in row.logits.iter().enumerate() {
            let mut first = row.first_visible;
            // The -inf of masked keys is not a logit of the model.
            for run in logits[first..].chunk_by(|a, b| is_masked(*a) == is_masked(*b)) {
                if !is_masked(run[0]) {
                    self.tally.add(run, |i| LogitPosition { layer, head, map, query, key: first + i });
                }
                first += run.len();
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowSink>) {
        let later = later.into_sink::<Self>();
        self.tally.merge(&later.tally);
    }
}

fn is_masked(logit: f32) -> bool {
    logit == f32::NEG_INFINITY
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    fn row(logits: &[&[f32]]) -> TestRow {
        let mut row = TestRow::two(logits[0], logits[0], 0.5);
        row.logits = logits.iter().map(|logits| logits.to_vec()).collect();
        row
    }

    #[test]
    fn logits_of_every_map_and_row_are_tallied_with_their_places() {
        let rows = [row(&[&[1.0], &[-2.0]]), row(&[&[3.0, -9.0], &[0.0, 9.0]])];
        let probe = LogitProbe;
        assert!(probe.wants_logits() && probe.wants(3, 4, 5));
        let tally = watch::<LogitSink>(&probe, &rows, 1).tally;
        let at = |map, query, key| LogitPosition { layer: 0, head: 0, map, query, key };
        let found: Vec<_> = tally.top.entries().iter().map(|entry| (entry.value, entry.place)).collect();
        assert_eq!(found[..3], [(-9.0, at(0, 1, 1)), (9.0, at(1, 1, 1)), (3.0, at(0, 1, 0))]);
        assert!(tally.moments.n() == 6 && (tally.moments.mean().unwrap() - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!((tally.histogram.n(), tally.histogram.zeros(), tally.max()), (6, 1, Some(9.0)));
        // Magnitudes 0, 1, 2, 3, 9, 9.
        assert!((tally.median().unwrap() - 2.5).abs() < 2.5 / 256.0);
    }

    #[test]
    fn masked_keys_are_skipped_without_shifting_positions() {
        let rows = [row(&[&[f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY, f32::NEG_INFINITY, -5.0]])];
        let tally = watch::<LogitSink>(&LogitProbe, &rows, 1).tally;
        let found: Vec<_> = tally.top.entries().iter().map(|entry| (entry.value, entry.place.key)).collect();
        assert_eq!(found, [(-5.0, 4), (3.0, 1)]);
        assert_eq!((tally.histogram.n(), tally.moments.n(), tally.moments.mean()), (2, 2, Some(-1.0)));
    }

    #[test]
    fn positions_name_layer_and_head() {
        let mut sink = LogitProbe.start(3, 4);
        row(&[&[1.0]]).show(sink.as_mut());
        let tally = sink.into_sink::<LogitSink>().tally;
        assert_eq!(tally.top.entries()[0].place, LogitPosition { layer: 3, head: 4, map: 0, query: 0, key: 0 });
    }

    proptest! {
        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 1_usize..60, block in 1_usize..60, seed: u64) {
            let (rows, probe) = (random_rows(tokens, seed), LogitProbe);
            let whole = watch::<LogitSink>(&probe, &rows, tokens).tally;
            let merged = watch::<LogitSink>(&probe, &rows, block).tally;
            prop_assert_eq!(&whole.top, &merged.top);
            prop_assert_eq!(&whole.histogram, &merged.histogram);
            prop_assert_eq!(whole.moments.n(), (tokens * (tokens + 1)) as u64);
            prop_assert!((whole.moments.std().unwrap() - merged.moments.std().unwrap()).abs() < 1e-9);
        }
    }
}
