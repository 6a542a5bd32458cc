//! Greedy decoding with cached keys and values.

use crate::attention::{Cached, Prefix, ResolvedTreatment};
use crate::model::pass::first_row;
use crate::model::Transformer;
use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;
use std::ops::Range;
use text::Tokenizer;

/// Default maximum number of new tokens.
pub const MAX_NEW: NonZeroUsize = NonZeroUsize::new(48).expect("it is not 0");

/// A model with the state of a partly processed text.
pub struct Decoder<'a> {
    model: &'a Transformer,
    memory: Cached<'a>,
    position: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder without a text.
    pub fn new(model: &'a Transformer) -> Self {
        Self { model, memory: Cached::new(model.config.layers.len()), position: 0 }
    }

    /// Applies a treatment to the prompt and to later tokens.
    pub fn treated(self, treated: Option<&'a ResolvedTreatment>) -> Self {
        Self { memory: self.memory.treated(treated), ..self }
    }

    /// Starts after the first `tokens` tokens of `prefix`: the prompt is what follows them.
    pub fn after(self, prefix: &'a Prefix, tokens: usize) -> Self {
        Self { memory: self.memory.after(prefix, tokens), position: tokens, ..self }
    }

    /// Processes the next tokens: first a whole prompt, then one token at a time. Returns the logits of the token that
    /// follows: (W).
    ///
    /// # Errors
    /// If an id is outside the vocabulary, or the text exceeds the model's context.
    pub fn read(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let hidden = self.model.hidden_from(&[ids.to_vec()], self.position, &mut self.memory)?; // 1,T,E
        self.position += ids.len();
        let last = hidden.narrow(1, ids.len() - 1, 1)?; // 1,1,E
        Ok(crate::kernels::numbers(&self.model.logits(&last)?)?)
    }
}

/// Conditions that end a generation.
#[derive(Clone, Copy, Debug)]
pub struct StopConditions<'a> {
    /// Maximum number of new tokens.
    pub max_new: usize,
    pub eos: &'a [u32],
    /// Number of values asked for. Generation ends at the first line break after that many.
    pub numbers: usize,
    /// Minimum number of digits of a value. Shorter numbers, such as list numbering, are ignored.
    pub digits: usize,
    /// Ends at the first line end behind a word.
    pub one_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// An end-of-sequence token.
    Eos,
    /// A line break after the requested numbers.
    LineBreak,
    /// The maximum number of new tokens.
    MaxNew,
    /// The end of the model's context.
    Context,
}

/// Generated text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Token ids, without an end-of-sequence token.
    pub ids: Vec<u32>,
    /// Decoded text, without special tokens.
    pub text: String,
    pub stop: StopReason,
}

/// Continues a prompt with the most likely token at each step (the first of ties), under one treatment. What the prompt
/// shares with an untreated pass is taken from its `prefix`, which changes no number.
///
/// # Errors
/// If the prompt does not fit the model, a logit is not finite, or tokens cannot be decoded.
pub fn generate(
    model: &Transformer,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    until: &StopConditions<'_>,
    treated: Option<&ResolvedTreatment>,
    prefix: Option<&Prefix>,
) -> Result<Generation> {
    let limit = model.config.max_ctx_tok;
    let mut decoder = Decoder::new(model).treated(treated);
    let last = prompt.len().saturating_sub(1);
    let start = prefix.map_or(0, |prefix| first_row(last, prefix.common_tokens(prompt), treated));
    if let Some(prefix) = prefix.filter(|_| start > 0) {
        decoder = decoder.after(prefix, start);
    }
    let mut next = most_likely(&decoder.read(&prompt[start..])?)?;
    let mut ids = Vec::new();
    let mut text = String::new();
    let stop = loop {
        if until.eos.contains(&next) {
            break StopReason::Eos;
        }
        ids.push(next);
        text = tokenizer.decode(&ids)?;
        if is_answered(&text, until) {
            break StopReason::LineBreak;
        }
        if ids.len() >= until.max_new {
            break StopReason::MaxNew;
        }
        // The last prediction may follow the last position.
        if decoder.position >= limit {
            break StopReason::Context;
        }
        next = most_likely(&decoder.read(&[next])?)?;
    };
    Ok(Generation { ids, text, stop })
}

/// The first of the largest logits.
fn most_likely(logits: &[f32]) -> Result<u32> {
    ensure!(logits.iter().all(|logit| logit.is_finite()), "the model's logits are not finite");
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    Ok(best as u32)
}

/// Returns `true` if a line break follows the requested numbers.
fn is_answered(text: &str, until: &StopConditions<'_>) -> bool {
    if until.one_line && text.trim_start().contains('\n') {
        return true;
    }
    let mut long = numbers(text).into_iter().filter(|number| number.len() >= until.digits);
    let last = until.numbers.checked_sub(1).and_then(|before| long.nth(before));
    last.is_some_and(|number| text[number.end..].contains('\n'))
}

/// Byte ranges of the numbers in a text: maximal runs of digits. Any other character ends a number, including thousands
/// separators.
pub fn numbers(text: &str) -> Vec<Range<usize>> {
    let mut numbers = Vec::new();
    let mut start = 0;
    for run in text.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        if run[0].is_ascii_digit() {
            numbers.push(start..start + run.len());
        }
        start += run.len();
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_runs_of_digits() {
        let found = |text: &str| numbers(text).into_iter().map(|at| text[at].to_owned()).collect::<Vec<_>>();
        assert_eq!(found("51234, 1,234 and 7."), ["51234", "1", "234", "7"]);
        assert_eq!(found("99"), ["99"]);
        assert!(found("none \u{e9}").is_empty() && found("").is_empty());
    }

    #[test]
    fn a_line_break_counts_after_the_numbers_that_were_asked_for() {
        let until = StopConditions { max_new: 9, eos: &[], numbers: 2, digits: 5, one_line: false };
        for (text, answered) in [
            ("12345\n", false),
            ("12345\n54321", false),
            ("12345\n54321.\n", true),
            ("1. Paris: 12345\n2. Rome: 5", false),
            ("1. Paris: 12345\n2. Rome: 54321\n", true),
        ] {
            assert_eq!(is_answered(text, &until), answered, "{text:?}");
        }
        assert!(!is_answered("\n", &StopConditions { numbers: 0, ..until }), "nothing was asked for");
    }

    #[test]
    fn the_first_of_equal_logits_is_taken_and_nan_is_an_error() {
        assert_eq!(most_likely(&[0.0, 2.0, 2.0, -1.0]).unwrap(), 1);
        assert!(most_likely(&[0.0, f32::NAN]).is_err());
    }
}
