//! Attention to the first token of a short text: the importance score of Gu et al. (2025), "When attention sink emerges in
//! language models".

use super::roles::{share, Score};
use crate::attention::{AttentionRow, RowCollector, RowProbe};

/// Observes the first rows of a text.
pub struct FirstTokenProbe {
    /// Number of rows.
    pub tokens: usize,
}

impl RowProbe for FirstTokenProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        query < self.tokens
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(FirstTokenCollector::default())
    }
}

/// State of the probe for one head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirstTokenCollector {
    /// Shares |a| / sum |a| of the first token.
    shares: Score,
}

impl FirstTokenCollector {
    /// Mean share of the first token over the rows, its own included; `None` without rows. (Gu et al. average over the same
    /// rows of an ordinary map, whose weights sum to 1.)
    pub fn share(&self) -> Option<f64> {
        self.shares.mean()
    }
}

impl RowCollector for FirstTokenCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        self.shares.add(share(row.effective, 0..1));
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.shares.merge(later.shares);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{watch, TestRow};
    use super::*;

    #[test]
    fn the_mean_is_over_all_rows_with_the_first_token_s_own() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[-0.25, 0.5, 0.25], &[0.0, 0.0, 0.0, 1.0]].map(TestRow::one);
        let found = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: 3 }, &rows, 2);
        assert_eq!(found.share(), Some((1.0 + 0.5 + 0.25) / 3.0));
    }

    #[test]
    fn of_two_maps_it_is_the_share_of_their_difference() {
        let rows = [TestRow::two(&[1.0], &[1.0], 0.5), TestRow::two(&[0.5, 0.5], &[0.25, 0.75], 1.0)];
        let found = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: 64 }, &rows, 1);
        assert_eq!(found.share(), Some(0.75));
        assert_eq!(FirstTokenCollector::default().share(), None);
    }
}
