//! Distribution of a head's logits: largest values, histogram and moments.

use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::stats::Tally;

/// Observes all visible logits of all maps in every row.
pub struct LogitProbe;

impl RowProbe for LogitProbe {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(LogitCollector::default())
    }
}

/// State of the probe for one head. Tallies can be merged over heads, layers and prompts.
#[derive(Default)]
pub struct LogitCollector {
    /// Tally of the logits of all maps.
    pub tally: Tally,
}

impl RowCollector for LogitCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for logits in row.logits {
            // The -inf of masked keys is not a logit of the model.
            let visible = logits[row.first_visible..].split(|&logit| logit == f32::NEG_INFINITY);
            visible.for_each(|run| self.tally.add(run));
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.tally.merge(&later.tally);
    }
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
    fn logits_of_every_map_and_row_are_tallied() {
        let rows = [row(&[&[1.0], &[-2.0]]), row(&[&[3.0, -9.0], &[0.0, 9.0]])];
        let probe = LogitProbe;
        assert!(probe.wants_logits() && probe.wants(3, 4, 5));
        let tally = watch::<LogitCollector>(&probe, &rows, 1).tally;
        assert_eq!(
            [1, 2, 3, 6, 7].map(|rank| tally.top.magnitude(rank)),
            [Some(9.0), Some(9.0), Some(3.0), Some(0.0), None]
        );
        assert!(tally.moments.n() == 6 && (tally.moments.mean().unwrap() - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!((tally.histogram.n(), tally.histogram.zeros(), tally.max()), (6, 1, Some(9.0)));
        // Magnitudes 0, 1, 2, 3, 9, 9.
        assert!((tally.median().unwrap() - 2.5).abs() < 2.5 / 256.0);
    }

    #[test]
    fn masked_keys_are_skipped() {
        let rows = [row(&[&[f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY, f32::NEG_INFINITY, -5.0]])];
        let tally = watch::<LogitCollector>(&LogitProbe, &rows, 1).tally;
        assert_eq!([1, 2, 3].map(|rank| tally.top.magnitude(rank)), [Some(5.0), Some(3.0), None]);
        assert_eq!((tally.histogram.n(), tally.moments.n(), tally.moments.mean()), (2, 2, Some(-1.0)));
    }

    proptest! {
        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 1_usize..60, block in 1_usize..60, seed: u64) {
            let (rows, probe) = (random_rows(tokens, seed), LogitProbe);
            let whole = watch::<LogitCollector>(&probe, &rows, tokens).tally;
            let merged = watch::<LogitCollector>(&probe, &rows, block).tally;
            prop_assert_eq!(&whole.top, &merged.top);
            prop_assert_eq!(&whole.histogram, &merged.histogram);
            prop_assert_eq!(whole.moments.n(), (tokens * (tokens + 1)) as u64);
            prop_assert!((whole.moments.std().unwrap() - merged.moments.std().unwrap()).abs() < 1e-9);
        }
    }
}
