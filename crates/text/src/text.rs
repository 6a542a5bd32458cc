//! Plain text as a prompt: only filler, without needles or questions.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{ensure, Context, Result};

use super::{Encoded, Haystack, Length, Prompt, Sentence, TokenIds, Tokenizer, Window, Windows};
use base::bail_usage;
use base::files;
use stats::Rng;

/// Source of plain text.
#[derive(Clone, Debug)]
pub enum Text {
    /// Prose of the embedded haystack, different for every seed. Its stream of random numbers differs from those of
    /// training documents and needle prompts. All use the same templates and words, so single sentences can coincide.
    Prose,
    /// The user's own file, from its beginning.
    Own {
        /// Its path.
        path: PathBuf,
        /// Its contents.
        text: String,
        /// Its tokens, computed on first use.
        tokens: TokenCache,
    },
    /// The user's own token ids, from their beginning, without a begin-of-sequence token.
    Ids(TokenIds),
}

impl Text {
    /// Reads a UTF-8 file.
    ///
    /// # Errors
    /// If it cannot be read, is not UTF-8, or is empty.
    pub fn from_path(path: &Path) -> Result<Self> {
        let bytes = files::input(path, files::TEXT_MAX).context("the text")?;
        let Ok(text) = String::from_utf8(bytes) else {
            anyhow::bail!("the text {} is not UTF-8", path.display());
        };
        let text = files::without_byte_order_mark(text);
        if files::looks_like_utf16(&text) {
            bail_usage!("the text {} is UTF-16: save it as UTF-8", path.display());
        }
        Self::own(path.to_owned(), text)
    }

    /// The user's text, with a name for messages.
    ///
    /// # Errors
    /// A usage error if it is empty.
    pub fn own(path: PathBuf, text: String) -> Result<Self> {
        if text.trim().is_empty() {
            bail_usage!("the text {} has no tokens", path.display());
        }
        Ok(Self::Own { path, text, tokens: TokenCache::default() })
    }

    /// SHA-256 of the user's text or ids, in hexadecimal. `None` for prose, which the haystack's hash covers.
    pub fn sha256(&self) -> Option<String> {
        match self {
            Self::Prose => None,
            Self::Own { text, .. } => Some(base::hash::sha256(text.as_bytes())),
            Self::Ids(ids) => Some(ids.sha256()),
        }
    }

    /// Name in messages.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Prose => "prose of the embedded haystack".into(),
            Self::Own { path, .. } => path.display().to_string().into(),
            Self::Ids(ids) => ids.path.display().to_string().into(),
        }
    }

    /// Length of the user's text, or `None` for prose, which is endless. Uses the tokenizer only for text.
    ///
    /// # Errors
    /// If a tokenizer is needed and missing, or it fails.
    pub fn length(&self, tokenizer: Result<&Tokenizer>) -> Result<Option<Length>> {
        match self {
            Self::Prose => Ok(None),
            Self::Ids(ids) => Ok(Some(Length { tokens: ids.ids.len(), bos: 0 })),
            Self::Own { text, tokens, .. } => {
                let tokenizer = tokenizer?;
                Ok(Some(Length { tokens: tokens.get(text, tokenizer)?.ids.len(), bos: bos(tokenizer) }))
            }
        }
    }

    /// Window `index` of the text, or the prose of `seed`.
    ///
    /// # Errors
    /// If the text has no such window, or a tokenizer is needed and missing, or it fails.
    pub fn window(&self, index: usize, windows: Windows, seed: u64, tokenizer: Result<&Tokenizer>) -> Result<Prompt> {
        match self {
            Self::Prose => prose(windows.ctx_tok, seed, tokenizer?),
            Self::Own { text, tokens, .. } => {
                let tokenizer = tokenizer?;
                let encoded = tokens.get(text, tokenizer)?;
                let length = Length { tokens: encoded.ids.len(), bos: bos(tokenizer) };
                let (span, window) = windows.span(index, length).context(NO_WINDOW)?;
                Ok(prompt(text, &encoded, span, window, tokenizer))
            }
            Self::Ids(ids) => {
                let length = Length { tokens: ids.ids.len(), bos: 0 };
                let (span, window) = windows.span(index, length).context(NO_WINDOW)?;
                Ok(of_ids(ids.ids[span].to_vec(), window))
            }
        }
    }
}

/// Cached tokens of a text, by the hash of the tokenizer.
#[derive(Clone, Debug, Default)]
pub struct TokenCache(Arc<Mutex<EncodedTexts>>);

/// Encoded texts with the hashes of their tokenizers.
type EncodedTexts = Vec<(String, Arc<Encoded>)>;

impl TokenCache {
    pub fn get(&self, text: &str, tokenizer: &Tokenizer) -> Result<Arc<Encoded>> {
        let mut known = self.0.lock().expect("no panic holds this lock");
        if let Some((_, encoded)) = known.iter().find(|(sha256, _)| *sha256 == tokenizer.sha256) {
            return Ok(encoded.clone());
        }
        let encoded = Arc::new(tokenizer.encode(text)?);
        known.push((tokenizer.sha256.clone(), encoded.clone()));
        Ok(encoded)
    }
}

/// The error of a window beyond the text, to which the windows of a run are limited.
const NO_WINDOW: &str = "the text has no such window";

/// Number of sentences without any token after which prose is abandoned: a tokenizer may have an empty vocabulary.
pub(super) const TOKENLESS_MAX: usize = 100;

/// Extra tokens of prose, because some tokenizers join sentences into fewer tokens.
const MARGIN_TOK: usize = 64;

fn bos(tokenizer: &Tokenizer) -> usize {
    usize::from(tokenizer.text_bos.id.is_some())
}

/// Creates the prose of a seed.
fn prose(ctx_tok: usize, seed: u64, tokenizer: &Tokenizer) -> Result<Prompt> {
    let windows = Windows { ctx_tok, stride: None };
    let room = windows.text_tokens(bos(tokenizer));
    let mut text = String::new();
    let mut n_tok = 0;
    let mut sentences = 0;
    for Sentence { text: sentence, .. } in Haystack::Embedded.sentences(Rng::new(seed, "text prose")) {
        let separator = if text.is_empty() { "" } else { " " };
        text.push_str(separator);
        text.push_str(&sentence);
        n_tok += tokenizer.encode(&format!("{separator}{sentence}"))?.ids.len();
        sentences += 1;
        ensure!(
            n_tok > 0 || sentences < TOKENLESS_MAX,
            "{}: the tokenizer returned no tokens for {sentences} sentences",
            tokenizer.name
        );
        if n_tok >= room + MARGIN_TOK {
            break;
        }
    }
    let encoded = tokenizer.encode(&text)?;
    let end = room.min(encoded.ids.len());
    Ok(prompt(&text, &encoded, 0..end, Window::default(), tokenizer))
}

/// Prompt of a token span, with the begin-of-sequence token before it.
fn prompt(text: &str, encoded: &Encoded, span: Range<usize>, window: Window, tokenizer: &Tokenizer) -> Prompt {
    let bos = tokenizer.text_bos.id;
    // Offsets are within the text, but may be unordered or inside characters.
    let of_span = &encoded.offsets[span.clone()];
    let begin_byte = floor(text, of_span.iter().map(|offsets| offsets.0).min().unwrap_or(0));
    let end_byte = ceil(text, of_span.iter().map(|offsets| offsets.1).max().unwrap_or(0));
    let shifted = of_span.iter().map(|&(a, b)| (a - begin_byte, b - begin_byte)).collect::<Vec<_>>();
    let ids: Vec<u32> = bos.iter().copied().chain(encoded.ids[span].iter().copied()).collect();
    Prompt {
        text: text[begin_byte..end_byte].to_owned(),
        offsets: bos.iter().map(|_| (0, 0)).chain(shifted).collect(),
        haystack: usize::from(bos.is_some())..ids.len(),
        has_bos: bos.is_some(),
        ..of_ids(ids, window)
    }
}

/// The beginning of the character at byte `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The end of the character at byte `at`, or `at` if it is a boundary.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

/// Prompt of token ids without text.
fn of_ids(ids: Vec<u32>, window: Window) -> Prompt {
    Prompt {
        text: String::new(),
        offsets: vec![(0, 0); ids.len()],
        queries: Vec::new(),
        needles: Vec::new(),
        segments: Vec::new(),
        haystack: 0..ids.len(),
        ids,
        has_bos: false,
        window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIVER: &str = "The river is wide here. A boat goes by, and nobody waves from it.";

    fn own(text: &str) -> Text {
        Text::Own { path: "notes.txt".into(), text: text.into(), tokens: TokenCache::default() }
    }

    fn windows(ctx_tok: usize, stride: Option<usize>) -> Windows {
        Windows { ctx_tok, stride }
    }

    #[test]
    fn a_text_is_cut_into_tokens_once_and_not_for_every_window() {
        let tokens = TokenCache::default();
        let tokenizer = Tokenizer::embedded();
        let [first, again] = [(); 2].map(|()| tokens.get(RIVER, tokenizer).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        let copy = tokens.clone(); // as every clone of the text has it
        assert!(Arc::ptr_eq(&first, &copy.get(RIVER, tokenizer).unwrap()));
    }

    #[test]
    fn the_windows_of_a_text_are_its_tokens_in_order() {
        let tokenizer = Tokenizer::embedded();
        let text = own(RIVER);
        let all = tokenizer.encode(RIVER).unwrap().ids;
        let cut = windows(6, None);
        let n = cut.count(text.length(Ok(tokenizer)).unwrap().unwrap());
        assert_eq!(n, all.len().div_ceil(5));
        let mut joined = Vec::new();
        for index in 0..n {
            let prompt = text.window(index, cut, 0, Ok(tokenizer)).unwrap();
            assert_eq!(prompt.ids[0], tokenizer.text_bos.id.unwrap());
            assert_eq!(tokenizer.decode(&prompt.ids[1..]).unwrap(), prompt.text);
            assert_eq!(prompt.ids.len(), prompt.offsets.len());
            joined.extend_from_slice(&prompt.ids[1..]);
        }
        assert_eq!(joined, all);
        assert!(text.window(n, cut, 0, Ok(tokenizer)).is_err());
    }

    #[test]
    fn the_first_sliding_window_equals_the_single_window() {
        let text = own(RIVER);
        let tokenizer = Tokenizer::embedded();
        let first = |stride| text.window(0, windows(8, stride), 0, Ok(tokenizer)).unwrap();
        assert_eq!(first(Some(3)), first(None));
    }

    #[test]
    fn a_prompt_of_ids_has_exactly_these_ids() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.txt");
        std::fs::write(&path, "5 6 7 8 9 10 11").unwrap();
        let text = Text::Ids(TokenIds::read(&path).unwrap());
        let no_tokenizer = || Err(anyhow::anyhow!("not to be asked for"));
        assert_eq!(text.length(no_tokenizer()).unwrap(), Some(Length { tokens: 7, bos: 0 }));
        let second = text.window(1, windows(4, Some(2)), 0, no_tokenizer()).unwrap();
        assert_eq!((&second.ids[..], second.scored_tokens()), (&[7, 8, 9, 10][..], vec![2, 3]));
        let first = text.window(0, windows(4, Some(2)), 0, no_tokenizer()).unwrap();
        assert_eq!((&first.ids[..], first.scored_tokens()), (&[5, 6, 7, 8][..], vec![1, 2, 3]));
        assert!(own(RIVER).window(0, windows(4, None), 0, no_tokenizer()).is_err());
    }

    #[test]
    fn prose_fills_its_window_and_differs_between_seeds() {
        let window = |seed| Text::Prose.window(0, windows(300, None), seed, Ok(Tokenizer::embedded())).unwrap();
        assert_eq!(window(1).ids.len(), 300);
        assert_eq!(window(1), window(1));
        assert_ne!(window(1).ids, window(2).ids);
    }

    #[test]
    fn a_text_without_a_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.txt");
        std::fs::write(&path, " \n").unwrap();
        assert!(Text::from_path(&path).unwrap_err().to_string().contains("has no tokens"));
    }
}
