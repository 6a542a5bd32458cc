//! Scores that classify heads by function.
//!
//! | score | rows | definition |
//! |---|---|---|
//! | retrieval | that predict the answer | how often the key with the largest weight is the needle's token that is copied (Wu et al. 2024) |
//! | query | of the question | mean share of the asked needle ("QRscore", 2025) |
//! | previous token | of repeated random tokens | mean share of the token before |
//! | duplicate token | of their second half | mean share of the same token before |
//! | induction | of their second half | mean share of the token after that (prefix matching, Olsson et al. 2022) |
//!
//! Shares are of the weights' magnitudes, because a head norm does not depend on their sign.

use crate::attention::{AttentionRow, RowCollector, RowProbe};
use crate::stats::simd::sum_magnitudes;
use std::ops::Range;
use std::sync::Arc;

/// A sum of scores with their number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    sum: f64,
    /// Number of scored rows.
    pub rows: usize,
}

impl Score {
    /// The mean, or `None` without rows.
    pub fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }

    /// Adds the score of a row. Rows without weight have none.
    pub(super) fn add(&mut self, score: Option<f64>) {
        self.sum += score.unwrap_or(0.0);
        self.rows += usize::from(score.is_some());
    }

    pub(super) fn merge(&mut self, later: Self) {
        self.sum += later.sum;
        self.rows += later.rows;
    }
}

/// Share of `keys` in the magnitude of a row, or `None` for a row without weight.
pub(super) fn share(weights: &[f32], keys: Range<usize>) -> Option<f64> {
    let total = sum_magnitudes(weights);
    let visible = keys.start.min(weights.len())..keys.end.min(weights.len());
    (total > 0.0 && total.is_finite()).then(|| sum_magnitudes(&weights[visible]) / total)
}

/// The key of largest magnitude, the first of equals.
fn largest_key(weights: &[f32]) -> Option<usize> {
    let larger = |best: Option<(usize, f32)>, (key, weight): (usize, &f32)| match best {
        Some((_, most)) if weight.abs() <= most => best,
        _ => Some((key, weight.abs())),
    };
    weights.iter().enumerate().fold(None, larger).map(|(key, _)| key)
}

/// One question, with the positions of its answer and the rows that ask and predict it.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionSpans {
    /// The needle's sentence.
    pub needle: Range<usize>,
    /// Rows of the question.
    pub question: Range<usize>,
    /// Rows that predict the answer.
    pub answer: Range<usize>,
}

/// Observes the rows that ask and answer the questions of a prompt.
pub struct RetrievalProbe {
    plan: Arc<(Vec<u32>, Vec<QuestionSpans>)>,
}

impl RetrievalProbe {
    /// Creates a probe for the token ids of a prompt and its questions.
    pub fn new(ids: Vec<u32>, asked: Vec<QuestionSpans>) -> Self {
        Self { plan: Arc::new((ids, asked)) }
    }
}

impl RowProbe for RetrievalProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.plan.1.iter().any(|asked| asked.question.contains(&query) || asked.answer.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(RetrievalCollector {
            plan: Arc::clone(&self.plan),
            found: vec![Default::default(); self.plan.1.len()],
        })
    }
}

/// State of the probe for one head.
pub struct RetrievalCollector {
    plan: Arc<(Vec<u32>, Vec<QuestionSpans>)>,
    /// Retrieval and query scores of each question.
    pub found: Vec<[Score; 2]>,
}

impl RowCollector for RetrievalCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let (ids, asked) = &*self.plan;
        for (asked, [retrieval, query]) in asked.iter().zip(&mut self.found) {
            if asked.answer.contains(&row.query) {
                let copies = |key: usize| asked.needle.contains(&key) && ids.get(row.query + 1) == Some(&ids[key]);
                retrieval.add(largest_key(row.effective).map(|key| f64::from(u8::from(copies(key)))));
            }
            if asked.question.contains(&row.query) {
                query.add(share(row.effective, asked.needle.clone()));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        let pairs = self.found.iter_mut().flatten().zip(later.found.into_iter().flatten());
        pairs.for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

/// Observes repeated tokens: any `first` tokens, then `period` tokens, then the same `period` tokens again.
#[derive(Clone, Copy, Debug)]
pub struct RepeatProbe {
    /// Tokens before the first copy.
    pub first: usize,
    /// Number of tokens in a copy.
    pub period: usize,
}

impl RowProbe for RepeatProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        query >= self.first.max(1) && query < self.first + 2 * self.period
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(RepeatCollector { probe: *self, found: Default::default() })
    }
}

/// State of the probe for one head.
pub struct RepeatCollector {
    probe: RepeatProbe,
    /// Previous token, duplicate token, induction.
    pub found: [Score; 3],
}

impl RowCollector for RepeatCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let RepeatProbe { first, period } = self.probe;
        let [previous, duplicate, induction] = &mut self.found;
        previous.add(share(row.effective, row.query - 1..row.query));
        if row.query >= first + period {
            let earlier = row.query - period;
            duplicate.add(share(row.effective, earlier..earlier + 1));
            induction.add(share(row.effective, earlier + 1..earlier + 2));
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.found.iter_mut().zip(later.found).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    /// A row of `keys` keys with all its weight on one.
    fn pointing(keys: usize, at: usize) -> TestRow {
        TestRow::one(&(0..keys).map(|key| f32::from(u8::from(key == at))).collect::<Vec<_>>())
    }

    #[test]
    fn only_heads_that_copy_the_needle_score_retrieval() {
        // Tokens 0..8: the needle has values 5 6 at 2 and 3; the answer repeats them at 6 and 7, so rows 5 and 6
        // predict it.
        let ids = vec![0, 9, 5, 6, 1, 2, 5, 6];
        let asked = QuestionSpans { needle: 1..4, question: 4..5, answer: 5..7 };
        let score = |targets: [usize; 8]| {
            let rows: Vec<TestRow> = targets.iter().enumerate().map(|(query, &at)| pointing(query + 1, at)).collect();
            let probe = RetrievalProbe::new(ids.clone(), vec![asked.clone()]);
            watch::<RetrievalCollector>(&probe, &rows, 3).found[0].map(|score| score.mean())
        };
        assert_eq!(score([0, 0, 0, 0, 1, 2, 3, 0]), [Some(1.0), Some(1.0)]);
        assert_eq!(score([0, 0, 0, 0, 0, 2, 2, 0]), [Some(0.5), Some(0.0)], "row 6 predicts the token of key 3");
        assert_eq!(score([0, 0, 0, 0, 0, 5, 6, 0]), [Some(0.0), Some(0.0)]);
    }

    #[test]
    fn heads_score_only_for_their_own_function() {
        let probe = RepeatProbe { first: 1, period: 4 };
        let score = |look: fn(usize) -> usize| {
            let rows: Vec<TestRow> = (0..9).map(|query| pointing(query + 1, look(query))).collect();
            watch::<RepeatCollector>(&probe, &rows, 2).found.map(|score| score.mean().unwrap())
        };
        assert_eq!(score(|query| query.saturating_sub(1)), [1.0, 0.0, 0.0]);
        // In row 1, the token before is the only other key.
        assert_eq!(score(|query| query.saturating_sub(4)), [0.125, 1.0, 0.0], "the same token");
        assert_eq!(score(|query| query.saturating_sub(3)), [0.125, 0.0, 1.0], "the one after it");
    }

    proptest! {
        #[test]
        fn scores_are_shares_and_do_not_depend_on_blocks(tokens in 4_usize..40, block in 1_usize..40, seed: u64) {
            let rows = random_rows(tokens, seed);
            let probe = RepeatProbe { first: 0, period: tokens / 2 };
            let whole = watch::<RepeatCollector>(&probe, &rows, tokens).found;
            let merged = watch::<RepeatCollector>(&probe, &rows, block).found;
            for (a, b) in whole.iter().zip(&merged) {
                prop_assert_eq!(a.rows, b.rows);
                let (a, b) = (a.mean().unwrap(), b.mean().unwrap());
                prop_assert!((a - b).abs() < 1e-9 && (0.0..=1.0 + 1e-6).contains(&a));
            }
        }
    }
}
