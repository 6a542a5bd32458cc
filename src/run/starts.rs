//! Where passes start, and which of them run together.

use anyhow::Result;
use candle_core::Tensor;
use engine::attention::Prefix;
use engine::model::pass::{residuals, SharedStart};
use engine::model::Transformer;
use names::condition::PairedPrompt;
use std::ops::Range;
use text::Prompt;

/// Where a pass starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PassStart {
    /// The prompt that it reads.
    pub(super) prompt: PairedPrompt,
    /// The first row that it computes.
    pub(super) row: usize,
    /// The first layer that it computes.
    pub(super) layer: usize,
}

/// Conditions, by index, whose passes run together, in order: the first alone, then those with the same start at a row > 0, at most
/// `most(row)` of them.
pub(super) fn batches(starts: &[PassStart], shares: bool, most: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    for (i, start) in starts.iter().enumerate() {
        let alike = batches.last_mut().filter(|last| last.start > 0 && start.row > 0 && starts[last.start] == *start);
        match alike.filter(|last| shares && last.len() < most(start.row)) {
            Some(last) => last.end = i + 1,
            None => batches.push(i..i + 1),
        }
    }
    batches
}

/// Rows of passes that run together, at most, unless one has more: linear layers are then as fast as they get.
const ROWS_AT_ONCE: usize = 512;

/// Number of passes from the row `start` over prompts of `tokens` tokens that run together. Together they have no more rows
/// than a whole pass.
pub(super) fn most_at_once(tokens: usize, start: usize) -> usize {
    (ROWS_AT_ONCE.min(tokens) / (tokens - start)).max(1)
}

/// The residual stream of the last untreated rows that were needed, from which passes start that change nothing before a layer.
#[derive(Default)]
pub(super) struct LastResiduals {
    /// The rows and the prompt; any layer.
    of: Option<PassStart>,
    /// Before each layer and after the last: (1, rows, E).
    sites: Vec<Tensor>,
}

impl LastResiduals {
    /// Where a pass starts with the keys and values of `prefix`; `None` if it is whole. The residual stream is computed unless it is
    /// known, or the pass has all layers.
    pub(super) fn start<'s>(
        &'s mut self,
        model: &Transformer,
        prompt: &Prompt,
        prefix: Option<&'s Prefix>,
        start: PassStart,
    ) -> Result<Option<SharedStart<'s>>> {
        let Some(prefix) = prefix.filter(|_| start.row > 0) else { return Ok(None) };
        let rows = PassStart { layer: 0, ..start };
        if start.layer > 0 && self.of != Some(rows) {
            self.sites = residuals(model, prompt, prefix, start.row)?;
            self.of = Some(rows);
        }
        Ok(Some(SharedStart { prefix, row: start.row, layer: start.layer, residuals: &self.sites }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_start_at_the_same_row_run_together_after_the_first() {
        let starts = [90, 90, 90, 90, 0, 0, 80, 90].map(|row| PassStart { prompt: PairedPrompt::Clean, row, layer: 0 });
        assert_eq!(batches(&starts, true, |_| 2), [0..1, 1..3, 3..4, 4..5, 5..6, 6..7, 7..8]);
        let mut others = starts;
        others[2].prompt = PairedPrompt::Corrupted;
        others[3].layer = 5;
        assert_eq!(batches(&others[..4], true, |_| 9), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(batches(&starts[..4], true, |start| start), [0..1, 1..4]);
        assert_eq!(batches(&starts[..3], false, |_| 9), [0..1, 1..2, 2..3]);
    }
}
