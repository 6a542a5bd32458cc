//! How well is every token of a text predicted: by its position in the window, and by whether its bigram came before?

mod bigrams;
mod estimate;

pub use bigrams::{ar_hits, frequent, Bigrams, AR_MAX_COUNT};
pub use estimate::{bin_of, bins, comparable, cumulative, difference, estimate, groups, Bin, Estimate, BLOCK_TOK};

use super::{decoded, encoded, number, Findings, Kept, Measure, Place, Seen};
use crate::attention::RowProbe;
use crate::prompt::{Prompt, Tokenizer};
use crate::record::Found;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tokens at the beginning of a window that are left out, if nobody says how many, of windows that are long enough.
const SKIP: usize = 64;
/// Windows that are.
const LONG: usize = 512;

/// How many tokens at the beginning of windows of a length are left out if nobody says how many.
pub fn usual_skip(ctx_tok: usize) -> usize {
    if ctx_tok >= LONG {
        SKIP
    } else {
        0
    }
}

/// Negative log-likelihood of prose, token by token.
#[derive(Default)]
pub struct NllMeasure {
    /// Tokens that are predicted from fewer than this many are left out of means over all, AR hits and others: a window's
    /// beginning says how it begins, and little of the text.
    pub skip: u32,
    /// Bigrams that make no AR hits, by model.
    frequent: Vec<Arc<Bigrams>>,
    /// The windows of each model and condition, in order.
    pub pooled: BTreeMap<Place, Vec<ScoredWindow>>,
}

/// The tokens of one window that were scored in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoredWindow {
    /// Which window.
    pub sample: u64,
    /// In order.
    pub tokens: Vec<ScoredToken>,
}

/// How well one token was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredToken {
    /// Place in the text, from 0, without begin-of-sequence tokens.
    pub text_position: u64,
    /// Place in the window, from 0: the number of tokens that it is predicted from.
    pub position: u32,
    /// The token.
    pub id: u32,
    /// Bytes of text that it stands for; 0 for token ids, of which nobody knows the text.
    pub bytes: u64,
    /// Its negative log-likelihood, in nats.
    pub nll_nats: f32,
    /// Whether it completes a bigram that came before in the window and is not frequent.
    pub ar_hit: bool,
}

impl NllMeasure {
    /// Leaves bigrams out that occur more than `max_count` times in the reference prose, as each model's tokenizer cuts
    /// it; models without a tokenizer have no frequent bigrams, nor has anybody with a `max_count` of 0.
    ///
    /// # Errors
    /// If a tokenizer fails.
    pub fn leave_out_frequent(&mut self, tokenizers: &[Option<&Tokenizer>], max_count: u64) -> Result<()> {
        let mut known: BTreeMap<&str, Arc<Bigrams>> = BTreeMap::new();
        for tokenizer in tokenizers {
            let Some(tokenizer) = tokenizer else {
                self.frequent.push(Arc::default());
                continue;
            };
            if !known.contains_key(tokenizer.sha256()) {
                known.insert(tokenizer.sha256(), Arc::new(frequent(tokenizer, max_count)?));
            }
            self.frequent.push(known[tokenizer.sha256()].clone());
        }
        Ok(())
    }
}

impl ScoredWindow {
    fn new(seen: &Seen<'_>, frequent: &Bigrams) -> Result<Self> {
        let (prompt, predictions) = (seen.prompt, seen.predictions.context("predictions were asked for")?);
        let hits = ar_hits(&prompt.ids, frequent);
        let mut window = Self { sample: seen.sample, ..Self::default() };
        for i in prompt.scored() {
            window.tokens.push(ScoredToken {
                text_position: (prompt.window.start + i - usize::from(prompt.has_bos)) as u64,
                position: i as u32,
                id: prompt.ids[i],
                // From the end of the token before: what tokenizers leave between tokens belongs to one of them.
                bytes: prompt.offsets[i].1.saturating_sub(prompt.offsets[i - 1].1) as u64,
                nll_nats: predictions.nll_nats[i - 1],
                ar_hit: hits[i],
            });
        }
        Ok(window)
    }

    /// Its records: means over all tokens, AR hits and others beyond the first `skip`, and by position over every token.
    fn records(&self, skip: u32) -> Vec<Found> {
        let counts = |token: &ScoredToken| token.position >= skip;
        let mut records = Vec::new();
        let mut push = |metric: String, keep: &dyn Fn(&ScoredToken) -> bool| {
            let kept: Vec<f64> =
                self.tokens.iter().filter(|token| keep(token)).map(|token| f64::from(token.nll_nats)).collect();
            if let Some(mean) = crate::stats::mean(&kept) {
                records.push(Found { metric: metric.into(), ..number("nll", mean, Some("nats"), kept.len()) });
            }
        };
        push("nll".into(), &counts);
        push("nll_ar_hit".into(), &|token| counts(token) && token.ar_hit);
        push("nll_other".into(), &|token| counts(token) && !token.ar_hit);
        for bin in bins(self.tokens.iter().map(|token| token.position)) {
            push(format!("nll_pos_{}_{}", bin.first, bin.last), &|token| bin.holds(token.position));
        }
        let counted = || self.tokens.iter().filter(|token| counts(token));
        let (hits, n) = (counted().filter(|token| token.ar_hit).count(), counted().count());
        if n > 0 {
            records.push(number("ar_hit_share", hits as f64 / n as f64, Some("fraction"), n));
        }
        records
    }
}

impl Measure for NllMeasure {
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        Vec::new()
    }

    fn wants_predictions(&self) -> bool {
        true
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let none = Arc::default();
        let window = ScoredWindow::new(&seen, self.frequent.get(seen.place.model).unwrap_or(&none))?;
        window.records(self.skip).into_iter().for_each(|found| findings.push(None, "scored", found));
        findings.pooled = Some(Box::new(window));
        Ok(())
    }

    fn absorb(&mut self, place: Place, pooled: Kept) {
        let window = pooled.downcast::<ScoredWindow>().expect("this measure pools windows");
        self.pooled.entry(place).or_default().push(*window);
    }

    fn encode(&self, pooled: &Kept) -> Result<Option<Vec<u8>>> {
        encoded::<ScoredWindow>(pooled)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Kept> {
        decoded::<ScoredWindow>(bytes)
    }
}
