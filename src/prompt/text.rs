//! Plain text as a prompt: no needle, no question, all filler.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Encoded, Haystack, Prompt, Tokenizer};
use crate::bail_usage;
use crate::rng::Rng;

/// Where plain text comes from.
#[derive(Clone, Debug)]
pub enum Text {
    /// Prose of the embedded haystack, other for every seed; not that of training documents or needle prompts.
    Prose,
    /// The user's own file, from its beginning.
    Own {
        /// Where it was read.
        path: PathBuf,
        /// All of it.
        text: String,
    },
}

impl Text {
    /// A UTF-8 file.
    ///
    /// # Errors
    /// If it cannot be read, is not UTF-8, or is empty.
    pub fn from_path(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read the text {}", path.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            anyhow::bail!("the text {} is not UTF-8", path.display());
        };
        if text.trim().is_empty() {
            bail_usage!("the text {} holds no token", path.display());
        }
        Ok(Self::Own { path: path.to_owned(), text })
    }

    /// SHA-256 of the user's text, in hexadecimal; nothing for prose, which the haystack's hash covers.
    pub fn sha256(&self) -> Option<String> {
        match self {
            Self::Prose => None,
            Self::Own { text, .. } => Some(crate::hash::sha256(text.as_bytes())),
        }
    }

    /// What to call it in a message.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Prose => "prose of the embedded haystack".into(),
            Self::Own { path, .. } => path.display().to_string().into(),
        }
    }

    /// Tokens of the user's whole text, the begin-of-sequence token included; nothing for prose, which never ends.
    ///
    /// # Errors
    /// If it cannot be cut into tokens.
    pub fn tokens(&self, tokenizer: &Tokenizer) -> Result<Option<usize>> {
        match self {
            Self::Prose => Ok(None),
            Self::Own { text, .. } => Ok(Some(tokenizer.encode(text)?.ids.len() + 1 - room(1, tokenizer))),
        }
    }

    /// Windows of `ctx_tok` tokens (the begin-of-sequence token included) that the text has; prose never ends.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn windows(&self, ctx_tok: usize, tokenizer: &Tokenizer) -> Result<usize> {
        match self {
            Self::Prose => Ok(usize::MAX),
            Self::Own { text, .. } => Ok(tokenizer.encode(text)?.ids.len().div_ceil(room(ctx_tok, tokenizer))),
        }
    }

    /// Window `index` of the text, or the prose of `seed`.
    ///
    /// # Errors
    /// If the text has no such window or the tokenizer fails.
    pub fn window(&self, index: usize, ctx_tok: usize, seed: u64, tokenizer: &Tokenizer) -> Result<Prompt> {
        let room = room(ctx_tok, tokenizer);
        match self {
            Self::Prose => {
                let mut text = String::new();
                let mut n_tok = 0;
                for sentence in Haystack::embedded().sentences(Rng::new(seed, "text prose")) {
                    let separator = if text.is_empty() { "" } else { " " };
                    text.push_str(separator);
                    text.push_str(&sentence);
                    n_tok += tokenizer.encode(&format!("{separator}{sentence}"))?.ids.len();
                    if n_tok >= room + MARGIN_TOK {
                        break;
                    }
                }
                Ok(prompt(&text, tokenizer.encode(&text)?, 0, room, tokenizer))
            }
            Self::Own { text, path } => {
                let encoded = tokenizer.encode(text)?;
                let start = index * room;
                if start >= encoded.ids.len() {
                    let n_tok = encoded.ids.len();
                    bail_usage!("{} has {n_tok} tokens, no window {index} of {ctx_tok}", path.display());
                }
                Ok(prompt(text, encoded, start, room, tokenizer))
            }
        }
    }
}

/// Tokens of prose beyond the window, in case other tokenizers join sentences into fewer tokens.
const MARGIN_TOK: usize = 64;

/// Tokens of text in a window.
fn room(ctx_tok: usize, tokenizer: &Tokenizer) -> usize {
    (ctx_tok - usize::from(tokenizer.bos_id().is_some()).min(ctx_tok - 1)).max(1)
}

/// At most `room` tokens from `start` on, behind the begin-of-sequence token.
fn prompt(text: &str, encoded: Encoded, start: usize, room: usize, tokenizer: &Tokenizer) -> Prompt {
    let bos = tokenizer.bos_id();
    let end = (start + room).min(encoded.ids.len());
    let begin_byte = encoded.offsets[start].0;
    let end_byte = encoded.offsets[end - 1].1;
    let shifted = encoded.offsets[start..end].iter().map(|&(a, b)| (a - begin_byte, b.max(a) - begin_byte));
    let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids[start..end].iter().copied()).collect();
    let has_bos = bos.is_some();
    Prompt {
        text: text[begin_byte..end_byte].to_owned(),
        offsets: bos.iter().map(|_| (0, 0)).chain(shifted).collect(),
        queries: Vec::new(),
        needles: Vec::new(),
        haystack: usize::from(has_bos)..ids.len(),
        ids,
        has_bos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Text {
        Text::Own { path: "notes.txt".into(), text: text.into() }
    }

    #[test]
    fn the_windows_of_a_text_are_its_tokens_in_order() {
        let tokenizer = Tokenizer::embedded();
        let text = own("The river is wide here. A boat goes by, and nobody waves from it.");
        let all = tokenizer.encode("The river is wide here. A boat goes by, and nobody waves from it.").unwrap().ids;
        let n = text.windows(6, tokenizer).unwrap();
        assert_eq!(n, all.len().div_ceil(5));
        let mut joined = Vec::new();
        for index in 0..n {
            let prompt = text.window(index, 6, 0, tokenizer).unwrap();
            assert_eq!(prompt.ids[0], tokenizer.bos_id().unwrap());
            assert_eq!(tokenizer.decode(&prompt.ids[1..]).unwrap(), prompt.text);
            assert_eq!(prompt.ids.len(), prompt.offsets.len());
            joined.extend_from_slice(&prompt.ids[1..]);
        }
        assert_eq!(joined, all);
        assert!(text.window(n, 6, 0, tokenizer).is_err());
    }

    #[test]
    fn prose_fills_its_window_and_differs_between_seeds() {
        let window = |seed| Text::Prose.window(0, 300, seed, Tokenizer::embedded()).unwrap();
        assert_eq!(window(1).ids.len(), 300);
        assert_eq!(window(1), window(1));
        assert_ne!(window(1).ids, window(2).ids);
    }

    #[test]
    fn a_text_without_a_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.txt");
        std::fs::write(&path, " \n").unwrap();
        assert!(Text::from_path(&path).unwrap_err().to_string().contains("holds no token"));
    }
}
