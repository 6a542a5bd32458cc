//! Negative log-likelihood of a text: by position in the window, and of AR hits and other tokens.
//!
//! A token is an AR (associative recall) hit if it completes a bigram (the previous token and itself) that occurred
//! earlier in its window and is not frequent in general (Arora et al. 2023, "Zoology"). Zoology calls a bigram frequent if it
//! occurs more than 1,250 times in the training data. The training data of other models are not available, so frequencies
//! are counted, in tokens of the model, in what is like the text that is measured: the whole of a user's text, or a fixed
//! sample of the embedded prose.

mod tables;

pub(crate) use tables::{ar_hit_definition, positions_drawn, side_by_side, NLL_DIFFERENCES, NLL_POSITIONS, PREDICTION};

use super::{decoded, encoded, number, Measure, MeasureData, MeasureOutput, Needs, ObservedPass, PassKey};
use crate::results::record::Measurement;
use crate::results::{bins, ScoredToken, ScoredWindow};
use anyhow::{Context, Result};
use names::metric::{nll_of_positions, AR_HIT_SHARE, AR_MAX_COUNT, NLL, NLL_AR_HIT, NLL_LATE, NLL_OTHER};
use stats::mean;
use stats::Rng;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use text::{Haystack, Text, Tokenizer};

/// Number of sentences of the reference prose: 200 thousand tokens of the embedded tokenizer.
const REFERENCE_SENTENCES: usize = 13_400;

/// Tokens of a user's text for which [`AR_MAX_COUNT`] is meant; in longer ones it is more.
const COUNTED_TOK: usize = 200_000;

/// Negative log-likelihood, token by token.
#[derive(Default)]
pub(crate) struct NllMeasure {
    /// Number of tokens at the beginning of each window that means over all tokens, over AR hits and over other tokens
    /// leave out.
    pub(crate) skip: u32,
    /// Frequent bigrams, which are not AR hits, by model.
    frequent: Vec<Arc<Bigrams>>,
    /// The windows of each model and condition, in order.
    pub(crate) pooled: BTreeMap<PassKey, Vec<ScoredWindow>>,
}

impl NllMeasure {
    /// Excludes bigrams that are frequent in a text, or in the reference prose, from AR hits, for each model's tokenizer.
    pub(crate) fn exclude_frequent<'a>(
        &mut self,
        text: &Text,
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
    ) -> Result<()> {
        let mut known: BTreeMap<String, Arc<Bigrams>> = BTreeMap::new();
        for tokenizer in tokenizers {
            let name = tokenizer.as_ref().map_or_else(|_| String::new(), |tokenizer| tokenizer.sha256.clone());
            if !known.contains_key(&name) {
                known.insert(name.clone(), Arc::new(frequent(text, tokenizer)?));
            }
            self.frequent.push(known[&name].clone());
        }
        Ok(())
    }
}

impl Measure for NllMeasure {
    fn needs(&self) -> Needs {
        Needs { predictions: true, ..Needs::default() }
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let none = Arc::default();
        let window = scored_window(&pass, self.frequent.get(pass.key.model).unwrap_or(&none))?;
        output.extend(None, "scored", window_records(&window, self.skip));
        output.extend(None, "scored", late_record(&window, pass.prompt.ids.len()).into_iter().collect());
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

/// The scored tokens of a pass.
fn scored_window(pass: &ObservedPass<'_>, frequent: &Bigrams) -> Result<ScoredWindow> {
    let prompt = pass.prompt;
    let predictions = pass.predictions.context("predictions were asked for")?;
    let hits = ar_hits(&prompt.ids, frequent);
    let mut window = ScoredWindow { sample: pass.sample, ..ScoredWindow::default() };
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

/// The records of a window: means beyond the first `skip` tokens over all tokens, AR hits and other tokens; and
/// means by position over every token.
fn window_records(window: &ScoredWindow, skip: u32) -> Vec<Measurement> {
    let counted: Vec<&ScoredToken> = window.tokens.iter().filter(|token| token.position >= skip).collect();
    let (hits, others): (Vec<_>, Vec<_>) = counted.iter().copied().partition(|token| token.ar_hit);
    let mut records = Vec::new();
    for (metric, tokens) in [(NLL, &counted), (NLL_AR_HIT, &hits), (NLL_OTHER, &others)] {
        records.extend(mean_nll(metric.name.into(), tokens));
    }
    for bin in bins(window.tokens.iter().map(|token| token.position)) {
        let in_bin: Vec<_> = window.tokens.iter().filter(|token| bin.holds(token.position)).collect();
        records.extend(mean_nll(nll_of_positions(bin.first, bin.last).into(), &in_bin));
    }
    if !counted.is_empty() {
        let n = counted.len();
        records.push(number(&AR_HIT_SHARE, hits.len() as f64 / n as f64, n));
    }
    records
}

/// The record of the second half of a window of `ctx_tok` tokens.
fn late_record(window: &ScoredWindow, ctx_tok: usize) -> Option<Measurement> {
    let late: Vec<&ScoredToken> = window.tokens.iter().filter(|token| token.position as usize >= ctx_tok / 2).collect();
    mean_nll(NLL_LATE.name.into(), &late)
}

fn mean_nll(metric: Cow<'static, str>, tokens: &[&ScoredToken]) -> Option<Measurement> {
    let nll_nats: Vec<f64> = tokens.iter().map(|token| f64::from(token.nll_nats)).collect();
    Some(Measurement { metric, ..number(&NLL, mean(&nll_nats)?, tokens.len()) })
}

/// A set of bigrams: pairs of consecutive token ids.
type Bigrams = HashSet<(u32, u32)>;

/// The bigrams that occur more than [`AR_MAX_COUNT`] times in the user's text, or in [`COUNTED_TOK`] of its tokens
/// if it has more; without such a text, in the reference prose.
fn frequent(text: &Text, tokenizer: Result<&Tokenizer>) -> Result<Bigrams> {
    let ids = match text {
        Text::Prose => tokenizer?.encode(&reference())?.ids,
        Text::Own { text, tokens, .. } => tokens.get(text, tokenizer?)?.ids.clone(),
        Text::Ids(ids) => ids.ids.clone(),
    };
    let most = AR_MAX_COUNT * (ids.len() / COUNTED_TOK).max(1);
    let mut counts: HashMap<(u32, u32), usize> = HashMap::new();
    for pair in ids.windows(2) {
        *counts.entry((pair[0], pair[1])).or_default() += 1;
    }
    Ok(counts.into_iter().filter(|&(_, count)| count > most).map(|(bigram, _)| bigram).collect())
}

/// The reference prose, which must never change.
fn reference() -> String {
    let haystack = Haystack::Embedded;
    let sentences = haystack.sentences(Rng::new(0, "reference prose")).take(REFERENCE_SENTENCES);
    sentences.map(|sentence| sentence.text).collect::<Vec<_>>().join(" ")
}

/// Returns, for each token, `true` if it is an AR hit.
fn ar_hits(ids: &[u32], frequent: &Bigrams) -> Vec<bool> {
    let mut seen = Bigrams::new();
    let mut hits = vec![false; ids.len().min(1)]; // the first token has no previous token
    for pair in ids.windows(2) {
        let bigram = (pair[0], pair[1]);
        let is_new = seen.insert(bigram);
        hits.push(!is_new && !frequent.contains(&bigram));
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::TokenIds;

    #[test]
    fn a_token_that_completes_a_bigram_seen_before_is_a_hit() {
        //             a  b  c  a  b  d  a  c  a  b
        let ids = [1, 2, 3, 1, 2, 4, 1, 3, 1, 2];
        let hits = |frequent: &Bigrams| {
            let hits = ar_hits(&ids, frequent);
            (0..ids.len()).filter(|&i| hits[i]).collect::<Vec<_>>()
        };
        // "a b" twice again, "c a" once again.
        assert_eq!(hits(&Bigrams::new()), [4, 8, 9]);
        assert_eq!(hits(&Bigrams::from([(1, 2)])), [8]);
        assert_eq!(ar_hits(&[7, 7, 7], &Bigrams::new()), [false, false, true]);
        assert_eq!(ar_hits(&[], &Bigrams::new()), [] as [bool; 0]);
        assert_eq!(ar_hits(&[7], &Bigrams::new()), [false]);
    }

    #[test]
    fn what_is_frequent_is_counted_in_the_text_that_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let counted = |repeats: usize| {
            let mut ids = [1, 2, 3].repeat(repeats);
            ids.extend(10..10 + (COUNTED_TOK + 7) as u32);
            let path = folder.path().join("ids");
            std::fs::write(&path, ids.iter().map(|id| format!("{id} ")).collect::<String>()).unwrap();
            frequent(&Text::Ids(TokenIds::read(&path).unwrap()), Err(anyhow::anyhow!("ids need no tokenizer"))).unwrap()
        };
        // The last "3 1" is missing. Behind as many other tokens, 50 times is still rare.
        assert_eq!(counted(50), Bigrams::new());
        assert_eq!(counted(51), Bigrams::from([(1, 2), (2, 3)]));
        let own = Text::Own { path: "own".into(), text: "to be or not to be ".repeat(60), tokens: Default::default() };
        let tokenizer = Tokenizer::embedded();
        assert!(!frequent(&own, Ok(tokenizer)).unwrap().is_subset(&frequent(&Text::Prose, Ok(tokenizer)).unwrap()));
    }

    #[test]
    fn the_reference_prose_has_200_thousand_tokens() {
        let tokens = Tokenizer::embedded().encode(&reference()).unwrap().ids.len();
        assert!((199_000..201_000).contains(&tokens), "{tokens} tokens");
    }

    #[test]
    fn bigrams_of_usual_words_are_frequent() {
        let tokenizer = Tokenizer::embedded();
        let ids = tokenizer.encode("at the end of the").unwrap().ids;
        let of_the = (ids[ids.len() - 2], ids[ids.len() - 1]);
        assert!(frequent(&Text::Prose, Ok(tokenizer)).unwrap().contains(&of_the));
    }
}
