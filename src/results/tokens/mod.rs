//! Scored tokens: what `tokens.csv` holds, and means over tokens by kind and position.

mod estimate;

pub(crate) use estimate::{bins, cumulative, Bin};

use super::Estimate;
use anyhow::Result;
use base::files;
use estimate::{comparable, groups, mean_difference, mean_nll, BLOCK_TOK};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The scored tokens of one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoredWindow {
    pub sample: u64,
    pub tokens: Vec<ScoredToken>,
}

/// The negative log-likelihood of one token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredToken {
    /// Position in the text, from 0, without begin-of-sequence tokens.
    pub text_position: u64,
    /// Position in the window, from 0: the number of tokens that it is predicted from.
    pub position: u32,
    pub id: u32,
    /// Bytes of its text; 0 if the text was given as token ids.
    pub bytes: u64,
    /// Its negative log-likelihood, in nats.
    pub nll_nats: f32,
    /// `true` if it completes a bigram that came before in the window and is not frequent.
    pub ar_hit: bool,
}

/// The scored tokens of one model under one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub model: String,
    /// Nothing for the untreated passes.
    pub condition: Option<String>,
    /// Of its condition.
    pub bits: Option<u32>,
    pub windows: Vec<ScoredWindow>,
}

/// The tokens that a number is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    All,
    /// Those that complete a bigram seen earlier in the window.
    ArHit,
    Other,
}

impl TokenKind {
    pub const EACH: [Self; 3] = [Self::All, Self::ArHit, Self::Other];

    /// Returns `true` if a token is of the kind.
    pub fn holds(self, token: &ScoredToken) -> bool {
        match self {
            Self::All => true,
            Self::ArHit => token.ar_hit,
            Self::Other => !token.ar_hit,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all tokens",
            Self::ArHit => "AR hits",
            Self::Other => "others",
        }
    }
}

impl Scored {
    /// `diff`, or `diff quantise(4, tensor)`.
    pub fn label(&self) -> String {
        self.condition.as_ref().map_or(self.model.clone(), |condition| format!("{} {condition}", self.model))
    }

    /// Its tokens, in order.
    pub fn tokens(&self) -> impl Iterator<Item = &ScoredToken> {
        self.windows.iter().flat_map(|window| &window.tokens)
    }

    /// The mean NLL of the tokens that `keep` keeps.
    pub(crate) fn estimate(&self, keep: impl Fn(&ScoredToken) -> bool) -> Option<Estimate> {
        mean_nll(&groups(&self.windows), keep)
    }
}

/// All that was scored in a run: the first is the baseline of the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens(pub Vec<Scored>);

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct TokenLine {
    model: String,
    condition: Option<String>,
    bits: Option<u32>,
    sample: u64,
    text_position: u64,
    position: u32,
    token_id: u32,
    /// Bytes of text that it stands for.
    bytes: u64,
    nll_nats: f32,
    ar_hit: u8,
}

impl TokenLine {
    fn of(scored: &Scored, window: &ScoredWindow, token: &ScoredToken) -> Self {
        Self {
            model: scored.model.clone(),
            condition: scored.condition.clone(),
            bits: scored.bits,
            sample: window.sample,
            text_position: token.text_position,
            position: token.position,
            token_id: token.id,
            bytes: token.bytes,
            nll_nats: token.nll_nats,
            ar_hit: token.ar_hit.into(),
        }
    }
}

impl Tokens {
    /// The first, and the others if they were scored on the same tokens.
    pub fn others(&self) -> impl Iterator<Item = (&Scored, &Scored)> {
        let first = self.0.first();
        let others = self.0.iter().skip(1);
        others.filter_map(move |other| Some((first?, other))).filter(|(a, b)| comparable(&a.windows, &b.windows))
    }

    /// The difference between `other` and `self` over the tokens that `keep` accepts.
    pub(crate) fn to_first(&self, other: &Scored, keep: impl Fn(&ScoredToken) -> bool) -> Option<Estimate> {
        let (first, other) = self.others().find(|(_, known)| std::ptr::eq(*known, other))?;
        mean_difference(&groups(&first.windows), &groups(&other.windows), keep)
    }

    /// The units that count as independent in intervals.
    pub fn drawn_from(&self) -> String {
        if self.0.iter().any(|scored| groups(&scored.windows).len() != scored.windows.len()) {
            format!("blocks of {BLOCK_TOK} tokens")
        } else {
            "windows".to_owned()
        }
    }

    pub fn count(&self) -> usize {
        self.0.iter().flat_map(Scored::tokens).count()
    }

    /// Writes them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let lines = self.0.iter().flat_map(|scored| {
            let windows = scored.windows.iter();
            windows.flat_map(move |window| window.tokens.iter().map(move |token| TokenLine::of(scored, window, token)))
        });
        files::replace_csv(path, lines)
    }

    /// Reads what was written.
    ///
    /// # Errors
    /// If the file is not one of these.
    pub fn read(path: &Path) -> Result<Self> {
        let mut tokens: Vec<Scored> = Vec::new();
        for line in files::csv_lines(path)? {
            let TokenLine {
                model,
                condition,
                bits,
                sample,
                text_position,
                position,
                token_id,
                bytes,
                nll_nats,
                ar_hit,
            } = line?;
            if tokens.last().is_none_or(|last| (&last.model, &last.condition) != (&model, &condition)) {
                tokens.push(Scored { model, condition, bits, windows: Vec::new() });
            }
            let windows = &mut tokens.last_mut().expect("there is one now").windows;
            if windows.last().is_none_or(|last| last.sample != sample) {
                windows.push(ScoredWindow { sample, tokens: Vec::new() });
            }
            let ar_hit = ar_hit != 0;
            let token = ScoredToken { text_position, position, id: token_id, bytes, nll_nats, ar_hit };
            windows.last_mut().expect("there is one now").tokens.push(token);
        }
        Ok(Self(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_as_they_were_written() {
        let token = |i: u32| ScoredToken {
            text_position: u64::from(i) + 7,
            position: i,
            id: 3 * i,
            bytes: 5,
            nll_nats: 0.1 + i as f32,
            ar_hit: i % 2 == 1,
        };
        let window = |sample, n| ScoredWindow { sample, tokens: (0..n).map(token).collect() };
        let scored = |model: &str, condition: Option<&str>| Scored {
            model: model.into(),
            condition: condition.map(Into::into),
            bits: condition.map(|_| 4),
            windows: vec![window(0, 3), window(1, 2)],
        };
        let tokens =
            Tokens(vec![scored("a, \"b\"", None), scored("a, \"b\"", Some("quantise(4, row)")), scored("c", None)]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.csv");
        tokens.write(&path).unwrap();
        assert_eq!(Tokens::read(&path).unwrap(), tokens);
        assert_eq!(tokens.count(), 15);
    }
}
