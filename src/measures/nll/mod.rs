//! Negative log-likelihood of a text: by position in the window, and by whether a token's bigram came before.

mod bigrams;

pub use bigrams::{ar_hits, frequent, Bigrams};

use super::{decoded, encoded, number, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey};
use crate::attention::RowProbe;
use crate::prompts::{Prompt, Tokenizer};
use crate::results::metric::{nll_of_positions, AR_HIT_SHARE, NLL, NLL_AR_HIT, NLL_OTHER};
use crate::results::record::Measurement;
use crate::results::{bins, ScoredToken, ScoredWindow};
use anyhow::{Context, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Negative log-likelihood, token by token.
#[derive(Default)]
pub struct NllMeasure {
    /// Number of tokens at the beginning of each window that means over all tokens, over AR hits and over other tokens
    /// leave out.
    pub skip: u32,
    /// Frequent bigrams, which are not AR hits, by model.
    frequent: Vec<Arc<Bigrams>>,
    /// The windows of each model and condition, in order.
    pub pooled: BTreeMap<PassKey, Vec<ScoredWindow>>,
}

impl NllMeasure {
    /// Excludes bigrams that are frequent in the reference prose from AR hits, for each model's tokenizer. Models without a
    /// tokenizer exclude none.
    pub fn exclude_frequent(&mut self, tokenizers: &[Option<&Tokenizer>]) -> Result<()> {
        let mut known: BTreeMap<&str, Arc<Bigrams>> = BTreeMap::new();
        for tokenizer in tokenizers {
            let Some(tokenizer) = tokenizer else {
                self.frequent.push(Arc::default());
                continue;
            };
            if !known.contains_key(tokenizer.sha256()) {
                known.insert(tokenizer.sha256(), Arc::new(frequent(tokenizer)?));
            }
            self.frequent.push(known[tokenizer.sha256()].clone());
        }
        Ok(())
    }
}

impl ScoredWindow {
    fn new(pass: &ObservedPass<'_>, frequent: &Bigrams) -> Result<Self> {
        let (prompt, predictions) = (pass.prompt, pass.predictions.context("predictions were asked for")?);
        let hits = ar_hits(&prompt.ids, frequent);
        let mut window = Self { sample: pass.sample, ..Self::default() };
        for i in prompt.scored_tokens() {
            window.tokens.push(ScoredToken {
                text_position: (prompt.window.start + i - usize::from(prompt.has_bos)) as u64,
                position: i as u32,
                id: prompt.ids[i],
                // From the end of the previous token, so that text between tokens is counted with one of them.
                bytes: prompt.offsets[i].1.saturating_sub(prompt.offsets[i - 1].1) as u64,
                nll_nats: predictions.nll_nats[i - 1],
                ar_hit: hits[i],
            });
        }
        Ok(window)
    }

    /// Returns its records: means beyond the first `skip` tokens over all tokens, AR hits and other tokens; and means
    /// by position over every token.
    fn records(&self, skip: u32) -> Vec<Measurement> {
        let counts = |token: &ScoredToken| token.position >= skip;
        let mut records = Vec::new();
        let mut push = |metric: Cow<'static, str>, keep: &dyn Fn(&ScoredToken) -> bool| {
            let kept: Vec<f64> =
                self.tokens.iter().filter(|token| keep(token)).map(|token| f64::from(token.nll_nats)).collect();
            if let Some(mean) = crate::stats::mean(&kept) {
                records.push(Measurement { metric, ..number(&NLL, mean, kept.len()) });
            }
        };
        push(NLL.name.into(), &counts);
        push(NLL_AR_HIT.name.into(), &|token| counts(token) && token.ar_hit);
        push(NLL_OTHER.name.into(), &|token| counts(token) && !token.ar_hit);
        for bin in bins(self.tokens.iter().map(|token| token.position)) {
            push(nll_of_positions(bin.first, bin.last).into(), &|token| bin.holds(token.position));
        }
        let counted = || self.tokens.iter().filter(|token| counts(token));
        let (hits, n) = (counted().filter(|token| token.ar_hit).count(), counted().count());
        if n > 0 {
            records.push(number(&AR_HIT_SHARE, hits as f64 / n as f64, n));
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

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let none = Arc::default();
        let window = ScoredWindow::new(&pass, self.frequent.get(pass.key.model).unwrap_or(&none))?;
        window.records(self.skip).into_iter().for_each(|found| output.push(None, "scored", found));
        output.pooled = Some(Box::new(window));
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let window = pooled.downcast::<ScoredWindow>().expect("this measure pools windows");
        self.pooled.entry(key).or_default().push(*window);
    }

    fn encode(&self, pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        encoded::<ScoredWindow>(pooled)
    }

    fn decode(&self, bytes: &[u8]) -> Result<MeasureData> {
        decoded::<ScoredWindow>(bytes)
    }
}
