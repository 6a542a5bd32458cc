//! Selection of the (query, key) pairs that are stored individually.

use super::codes::RUN;
use names::Region;
use serde::Serialize;
use std::ops::Range;
use text::Prompt;

/// Longest prompt whose pairs are all stored, in tokens.
pub(crate) const COMPLETE_TOK: usize = 4096;

/// Width of the band of stored keys before each query of longer prompts, in tokens.
pub(crate) const BAND_TOK: usize = 128;

/// The stored pairs, in runs of [`RUN`] keys from key 0 on. Prompts of at most [`COMPLETE_TOK`] tokens store all.
/// Longer ones store a band along the diagonal, all keys of the rows from the question on, and for every query the keys
/// of the needles and of the first run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StoredPairs {
    /// Tokens of the prompt.
    pub(crate) tokens: usize,
    /// `true` if all pairs are stored.
    pub(crate) complete: bool,
    /// Distance before the query within which keys are stored.
    pub(crate) band: usize,
    /// First query with all keys stored.
    pub(crate) rows_from: usize,
    /// Runs stored for every query, ascending.
    pub(crate) columns: Vec<usize>,
    /// Rows that predict an answer, which are also stored at higher precision.
    pub(crate) answer_rows: Vec<Range<usize>>,
    /// First query with contributions.
    pub(crate) contributions_from: usize,
}

impl StoredPairs {
    pub(crate) fn new(prompt: &Prompt) -> Self {
        let tokens = prompt.ids.len();
        let answer_rows: Vec<Range<usize>> = prompt.targets().into_iter().map(|target| target.rows).collect();
        let question = prompt.regions(None).iter().position(|&region| region == Region::Question);
        let first_answer_row = answer_rows.iter().map(|rows| rows.start).min().unwrap_or(tokens);
        let rows_from = question.unwrap_or(tokens).min(first_answer_row);
        let mut columns = vec![0];
        columns.extend(prompt.needles.iter().flat_map(|needle| needle.span.start / RUN..needle.span.end.div_ceil(RUN)));
        columns.sort_unstable();
        columns.dedup();
        let complete = tokens <= COMPLETE_TOK;
        // Contributions cost as much again as the pass itself.
        let contributions_from = if complete { 0 } else { rows_from };
        Self { tokens, complete, band: BAND_TOK, rows_from, columns, answer_rows, contributions_from }
    }

    /// The stored runs of a query, ascending, without those before `first_visible`.
    pub(crate) fn runs(&self, query: usize, first_visible: usize) -> Vec<usize> {
        let first = first_visible / RUN;
        let last = query / RUN;
        if self.complete || query >= self.rows_from {
            return (first..=last).collect();
        }
        let near = first.max(query.saturating_sub(self.band) / RUN);
        let columns = self.columns.iter().copied().filter(|run| (first..near).contains(run));
        columns.chain(near..=last).collect()
    }

    /// Returns `true` if the row of a query predicts an answer.
    pub(crate) fn answers(&self, query: usize) -> bool {
        self.answer_rows.iter().any(|rows| rows.contains(&query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(complete: bool) -> StoredPairs {
        let columns = vec![0, 5];
        let answer_rows = vec![960..965];
        StoredPairs { tokens: 1000, complete, band: 128, rows_from: 950, columns, answer_rows, contributions_from: 0 }
    }

    #[test]
    fn near_pairs_rows_of_the_question_and_columns_of_needles_are_kept() {
        let keep = keep(false);
        assert_eq!(keep.runs(70, 0), [0, 1]);
        assert_eq!(keep.runs(700, 0), [0, 5, 8, 9, 10]);
        assert_eq!(keep.runs(400, 0), [0, 4, 5, 6]);
        assert_eq!(keep.runs(950, 0).len(), 15);
        assert!(keep.answers(964) && !keep.answers(965));
    }

    #[test]
    fn keys_outside_the_window_are_not_stored() {
        assert_eq!(keep(true).runs(700, 600), [9, 10]);
        assert_eq!(keep(false).runs(700, 300), [5, 8, 9, 10]);
    }
}
