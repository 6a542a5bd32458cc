//! Windows of a text: their lengths, and how many a text has.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::{OwnText, Text, Tokenizer, Window};
use base::bail_usage;

/// Windows of plain text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextWindows {
    /// Window lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Largest number of windows of each length; a text may be too short for as many.
    pub samples: usize,
    /// Tokens from the start of a window to that of the next, where windows overlap. Default: windows are side by side.
    pub stride: Option<usize>,
    /// Base seed.
    pub seed: u64,
    /// The text, in place of the embedded prose.
    #[serde(skip)]
    pub own: OwnText,
    /// File with token ids, in place of a text.
    #[serde(skip)]
    pub ids: Option<PathBuf>,
}

/// Windows of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Windows {
    /// Tokens of a window, including the begin-of-sequence token.
    pub ctx_tok: usize,
    /// Tokens between the beginnings of windows, less than `ctx_tok`; `None` for adjacent windows.
    pub stride: Option<usize>,
}

/// Length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Number of tokens, without a begin-of-sequence token.
    pub tokens: usize,
    /// Number of begin-of-sequence tokens in a window: 0 or 1.
    pub bos: usize,
}

impl Windows {
    /// Number of windows in a text.
    pub fn count(self, length: Length) -> usize {
        let rest = length.tokens.saturating_sub(self.text_tokens(length.bos));
        1 + rest.div_ceil(self.step(length.bos))
    }

    /// Number of full windows, at least 1.
    pub fn full_count(self, length: Length) -> usize {
        1 + length.tokens.saturating_sub(self.text_tokens(length.bos)) / self.step(length.bos)
    }

    /// Token range and position of a window, or `None` after the last.
    pub(super) fn span(self, index: usize, length: Length) -> Option<(Range<usize>, Window)> {
        let room = self.text_tokens(length.bos);
        let step = self.step(length.bos);
        let start = index.checked_mul(step).filter(|_| index < self.count(length))?;
        let overlap = if index == 0 { 0 } else { room - step };
        Some((start..(start + room).min(length.tokens), Window { start, overlap }))
    }

    /// Tokens of text in a window.
    pub(super) fn text_tokens(self, bos: usize) -> usize {
        self.ctx_tok.saturating_sub(bos).max(1)
    }

    fn step(self, bos: usize) -> usize {
        self.stride.unwrap_or(usize::MAX).clamp(1, self.text_tokens(bos))
    }
}

impl TextWindows {
    /// The windows of each length.
    pub(super) fn windows(&self) -> impl Iterator<Item = Windows> + '_ {
        self.ctx_tok.iter().map(|&ctx_tok| Windows { ctx_tok, stride: self.stride })
    }

    /// Limits the number and the length of the windows to what the text has with each of the tokenizers. Windows side by
    /// side are full; a shorter one at the end of the text counts only with `to_its_end`.
    ///
    /// # Errors
    /// Usage errors if lengths, strides or the text are too short; errors of the tokenizers.
    pub fn limit<'a>(
        &mut self,
        text: &Text,
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
        to_its_end: bool,
    ) -> Result<()> {
        self.check(text)?;
        let mut lengths: Vec<Length> = Vec::new();
        for tokenizer in tokenizers {
            lengths.extend(text.length(tokenizer)?);
        }
        for length in &lengths {
            if length.tokens < 2 {
                let name = text.name();
                bail_usage!("{name} has {} token; it takes 2 to predict one from another", length.tokens);
            }
            self.ctx_tok.iter_mut().for_each(|ctx_tok| *ctx_tok = (length.tokens + length.bos).min(*ctx_tok));
        }
        let mut seen = BTreeSet::new();
        self.ctx_tok.retain(|&ctx_tok| seen.insert(ctx_tok));
        let mut samples = self.samples;
        for length in lengths {
            for windows in self.windows() {
                let has_short = to_its_end || self.stride.is_some();
                let most = if has_short { windows.count(length) } else { windows.full_count(length) };
                samples = samples.min(most);
            }
        }
        self.samples = samples;
        Ok(())
    }

    /// Checks the lengths and the stride of the windows.
    fn check(&self, text: &Text) -> Result<()> {
        let shortest = self.ctx_tok.iter().copied().min().unwrap_or(0);
        if shortest < 2 {
            bail_usage!("--ctx {shortest}: a window of text needs at least 2 tokens");
        }
        let Some(stride) = self.stride else { return Ok(()) };
        if matches!(text, Text::Prose) {
            bail_usage!("--stride {stride}: only a text of yours can have overlapping windows, not the embedded prose");
        }
        if stride == 0 || stride >= shortest {
            bail_usage!("--stride {stride}: windows of {shortest} tokens can slide by 1 to {}", shortest - 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sliding_windows_score_every_token_once_with_enough_context(
            tokens in 2..300usize, ctx_tok in 2..100usize, stride in 1..100usize, bos in 0..2usize
        ) {
            prop_assume!(stride < ctx_tok);
            let cut = Windows { ctx_tok, stride: Some(stride) };
            let length = Length { tokens, bos };
            let mut scored = Vec::new();
            for index in 0..cut.count(length) {
                let (span, window) = cut.span(index, length).unwrap();
                prop_assert_eq!(span.start, index * stride);
                prop_assert!(bos + span.len() <= ctx_tok && !span.is_empty());
                let first = (window.overlap + bos).max(1) - bos;
                prop_assert!(index == 0 || first + bos >= ctx_tok - stride, "context");
                prop_assert!(first < span.len(), "a window that scores nothing");
                scored.extend(span.start + first..span.end);
            }
            prop_assert_eq!(cut.span(cut.count(length), length), None);
            // Without a begin-of-sequence token, the first token is not predicted.
            prop_assert_eq!(scored, (1 - bos..tokens).collect::<Vec<_>>());
        }
    }
}
