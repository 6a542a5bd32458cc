//! Filler between needles, with its number of tokens.

use anyhow::Result;

use super::facts::Fact;
use crate::{Sentence, Tokenizer};

/// A sentence of filler, with its number of tokens.
#[derive(Clone)]
pub(crate) struct Filler {
    pub(super) sentence: Sentence,
    pub(super) n_tok: usize,
    /// The distractor that the sentence is, if it is one.
    pub(super) fact: Option<Fact>,
}

/// Text before a sentence of prose.
pub(super) const SPACE: &str = " ";

impl Filler {
    /// Counts the tokens of a sentence behind a separator.
    pub(super) fn new(sentence: Sentence, separator: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let n_tok = tokenizer.encode(&sentence.in_context(separator))?.ids.len();
        Ok(Self { sentence, n_tok, fact: None })
    }

    /// Counts the tokens of a distractor behind a separator.
    pub(super) fn distractor(fact: Fact, separator: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let sentence = Sentence { text: fact.sentence(), joined: false };
        Ok(Self { fact: Some(fact), ..Self::new(sentence, separator, tokenizer)? })
    }

    /// The bytes at which the sentence can be cut, with the number of tokens before. None of a distractor.
    fn cuts(&self, tokenizer: &Tokenizer) -> Result<Vec<(usize, usize)>> {
        if self.fact.is_some() {
            return Ok(Vec::new());
        }
        let text = self.sentence.in_context(SPACE);
        let before = text.len() - self.sentence.text.len();
        let offsets = tokenizer.encode(&text)?.offsets;
        let mut cuts = Vec::new();
        for byte in self.sentence.cuts() {
            cuts.push((byte, offsets.iter().filter(|&&(_, end)| end <= byte + before).count()));
        }
        Ok(cuts)
    }

    /// The longest beginning of at most `most_tok` tokens, or `None` if the first word is longer.
    pub(super) fn beginning(&self, most_tok: usize, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let cuts = self.cuts(tokenizer)?;
        let Some((byte, _)) = cuts.into_iter().rev().find(|&(_, n_tok)| n_tok <= most_tok) else { return Ok(None) };
        let [beginning, _] = self.sentence.split_at(byte);
        Ok(Some(Self::new(beginning, SPACE, tokenizer)?).filter(|beginning| beginning.n_tok <= most_tok))
    }

    /// Two parts, the first as close to `wanted_tok` tokens as possible, or `None` for a single word.
    pub(super) fn halves(&self, wanted_tok: f64, tokenizer: &Tokenizer) -> Result<Option<[Self; 2]>> {
        let mut nearest: Option<(f64, usize)> = None;
        for (byte, n_tok) in self.cuts(tokenizer)? {
            let distance = (n_tok as f64 - wanted_tok).abs();
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, byte));
            }
        }
        let Some((_, byte)) = nearest else { return Ok(None) };
        let [left, right] = self.sentence.split_at(byte);
        Ok(Some([Self::new(left, SPACE, tokenizer)?, Self::new(right, SPACE, tokenizer)?]))
    }
}

/// Tokens of several sentences.
pub(super) fn total_tok(filler: &[Filler]) -> usize {
    filler.iter().map(|filler| filler.n_tok).sum()
}
