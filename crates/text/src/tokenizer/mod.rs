//! The tokenizer: text to token ids with byte offsets, and back.
//!
//! The embedded one (`assets/tokenizer.json`) is a byte-level BPE that `train` made from the embedded corpus: digits
//! stand alone, and the space before a word belongs to the word. Anybody else's `tokenizer.json` works too.

pub(super) mod bos;
pub(super) mod config;
#[cfg(test)]
pub(super) mod tests;
mod vocab_merges;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::LazyLock;

use anyhow::{anyhow, ensure, Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokenizers::models::bpe::BPE;

use super::{ChatTemplate, TemplateArg, Wrapping};
use base::bail_usage;
use base::error::guarded;
use base::files;
use base::hash::sha256;
use base::model_files::TOKENIZER;
use bos::{BosChoice, BosPolicy};
use config::TokenizerConfig;

const EMBEDDED: &str = include_str!("../../assets/tokenizer.json");

/// Text as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids, without a begin-of-sequence token.
    pub ids: Vec<u32>,
    /// For each token the bytes of the text it stands for; a word's token includes the space before it.
    pub offsets: Vec<(usize, usize)>,
}

impl Encoded {
    /// Checks that every token lies in the text it is of. The error names the first that does not.
    pub(super) fn check(&self, text: &str) -> Result<()> {
        for &(start, end) in &self.offsets {
            ensure!(
                start <= end && end <= text.len(),
                "a token is of bytes {start} to {end} of a text that has {}: offsets cannot be trusted",
                text.len()
            );
        }
        Ok(())
    }
}

/// Options that decide on the tokens around a prompt's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerOptions {
    /// Put needle prompts into the model's chat template.
    pub chat: bool,
    /// Variables of the chat template.
    pub template_args: Vec<TemplateArg>,
    /// The choice about the begin-of-sequence token.
    pub bos: BosChoice,
    /// What special tokens in texts are.
    pub special: SpecialTokens,
}

/// What special tokens in a text are, such as `<eos>` between documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecialTokens {
    /// Letters, as in llama.cpp
    #[default]
    Text,
    /// Special tokens, as in transformers
    Parse,
}

/// A tokenizer and the JSON it came from.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Where it was read, for messages.
    pub name: String,
    /// The tokenizer as JSON, to be written beside a model.
    pub json: String,
    /// SHA-256 of the JSON, in hexadecimal.
    pub sha256: String,
    /// The beginning of plain text, and its source.
    pub text_bos: BosPolicy,
    chat: Option<Chat>,
    special: Vec<String>,
    /// The characters that special tokens begin with, which are rare in texts.
    special_begins: Vec<char>,
    /// `true` once the user knows that a text has special tokens, which are cut into letters.
    noted: AtomicBool,
    /// Tokens that the model knows, which may be fewer.
    model_vocab: usize,
}

/// The wrapping of needle prompts in a chat template.
struct Chat {
    wrapping: Wrapping,
    /// Their beginning.
    bos: BosPolicy,
    /// The token that is put before the template, which does not write it itself.
    added_id: Option<u32>,
}

impl Tokenizer {
    /// The tokenizer that comes with the tool.
    pub fn embedded() -> &'static Tokenizer {
        static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
            let name = "the embedded tokenizer".to_owned();
            let options = TokenizerOptions::default();
            Tokenizer::new(name, EMBEDDED.to_owned(), Path::new(""), &TokenizerConfig::default(), &options)
                .expect("the embedded tokenizer is tested")
        });
        &TOKENIZER
    }

    /// Returns `true` if a folder has one.
    pub fn is_in(folder: &Path) -> bool {
        files::is_there(&folder.join(TOKENIZER)) || vocab_merges::is_in(folder)
    }

    /// The tokenizer of a model's folder, with its chat template if that is wanted: a `tokenizer.json` in the format of
    /// Hugging Face, or `vocab.json` and `merges.txt`. The `tokenizer_config.json` beside it, if there is one, says how texts
    /// begin.
    ///
    /// # Errors
    /// If a file cannot be read or is not what it has to be. Those of [`ChatTemplate::text_around`]; a usage error if
    /// there is no chat template.
    pub fn open(folder: &Path, options: &TokenizerOptions) -> Result<Self> {
        let mut config = TokenizerConfig::read(folder)?;
        let path = folder.join(TOKENIZER);
        let name = path.display().to_string();
        if !files::is_there(&path) && vocab_merges::is_in(folder) {
            return Self::new(name, vocab_merges::tokenizer_json(folder, &config)?, folder, &config, options);
        }
        // As in transformers 5.24: `tokenizer.json` alone says how texts begin.
        let asks_for_bos = config.add_bos_token.take() == Some(true);
        let tokenizer = Self::new(name, files::text(&path, files::TOKENIZER_MAX)?, folder, &config, options)?;
        if asks_for_bos && tokenizer.text_bos.id.is_none() && options.bos == BosChoice::Auto {
            base::say!(
                "{}: add_bos_token is true, but tokenizer.json begins no text with a token, and transformers 5.24 follows it: \
                 texts begin without (--bos add begins them with it)",
                config.path.display()
            );
        }
        Ok(tokenizer)
    }

    /// From what a `tokenizer.json` and a `tokenizer_config.json` would hold, where one file has it all; `path` is that file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_parts(
        path: &Path,
        json: String,
        config: serde_json::Map<String, serde_json::Value>,
        options: &TokenizerOptions,
    ) -> Result<Self> {
        let config = TokenizerConfig::of(path.to_owned(), Some(config), serde_json::Map::new())?;
        Self::new(path.display().to_string(), json, path, &config, options)
    }

    fn new(
        name: String,
        json: String,
        folder: &Path,
        config: &TokenizerConfig,
        options: &TokenizerOptions,
    ) -> Result<Self> {
        let mut inner = parse(&json).with_context(|| format!("{name} is not a tokenizer"))?;
        let n_added = inner.get_added_tokens_decoder().len();
        config.add_tokens(&mut inner)?;
        let text_bos = BosPolicy::of_text(&inner, config, options.bos).with_context(|| name.clone())?;
        config.add_special_tokens(&mut inner)?;
        let added = inner.get_added_tokens_decoder();
        let json =
            if added.len() == n_added { json } else { inner.to_string(false).map_err(|error| anyhow!(error))? };
        let chat = if options.chat { Some(Chat::new(&inner, folder, config, options)?) } else { None };
        // A chat template's part of a prompt is told from the rest by the tokenizer as it was before.
        inner.set_encode_special_tokens(options.special == SpecialTokens::Text);
        let special: Vec<String> =
            added.into_values().filter(|token| token.special).map(|token| token.content).collect();
        let special_begins: BTreeSet<char> = special.iter().filter_map(|token| token.chars().next()).collect();
        let special_begins = special_begins.into_iter().collect();
        let sha256 = sha256(json.as_bytes());
        let noted = AtomicBool::new(false);
        Ok(Self { inner, name, json, sha256, text_bos, chat, special, special_begins, noted, model_vocab: usize::MAX })
    }

    /// Tells it how many tokens the model has. A tokenizer may have more, as long as no text is cut into them.
    ///
    /// # Errors
    /// If prompts would begin with one of them.
    pub fn limit_to_model(&mut self, vocab: usize) -> Result<()> {
        self.model_vocab = vocab;
        let bos = [Some(&self.text_bos), self.chat.as_ref().map(|chat| &chat.bos)];
        bos.into_iter().flatten().filter_map(|bos| bos.id).try_for_each(|id| self.check_id(id))
    }

    fn check_id(&self, id: u32) -> Result<()> {
        ensure!(
            (id as usize) < self.model_vocab,
            "{}: the token {:?} has id {id}, and the model has {} tokens",
            self.name,
            self.inner.id_to_token(id).unwrap_or_default(),
            self.model_vocab
        );
        Ok(())
    }

    /// The tokens of a needle prompt's text, in which special tokens count only inside `markup`, the chat template's
    /// part of it.
    ///
    /// # Errors
    /// If the tokenizer cannot encode the text.
    pub(super) fn encode_prompt(&self, text: &str, markup: &[Range<usize>]) -> Result<Encoded> {
        match &self.chat {
            Some(chat) if self.inner.get_encode_special_tokens() => {
                let mut start = 0;
                for range in markup {
                    self.note_special(&text[start..range.start]);
                    start = range.end;
                }
                self.note_special(&text[start..]);
                let encoded = chat.wrapping.encode(text, markup).with_context(|| self.cannot_encode())?;
                encoded.ids.iter().try_for_each(|&id| self.check_id(id))?;
                Ok(encoded)
            }
            _ => self.encode(text),
        }
    }

    /// Says once that a text has special tokens that are cut into letters.
    fn note_special(&self, text: &str) {
        if !self.inner.get_encode_special_tokens() || self.noted.load(Ordering::Relaxed) {
            return;
        }
        // Some tokenizers have thousands of them, and every prompt is looked through.
        if !text.contains(self.special_begins.as_slice()) {
            return;
        }
        if let Some(token) = self.special.iter().find(|token| text.contains(token.as_str())) {
            if !self.noted.swap(true, Ordering::Relaxed) {
                let name = &self.name;
                base::say!(
                    "{name}: the text has special tokens such as {token}, which are cut into letters; with --special-tokens \
                     parse they are special tokens"
                );
            }
        }
    }

    /// The tokens of `text`, without a begin-of-sequence token.
    ///
    /// # Errors
    /// If the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Encoded> {
        self.note_special(text);
        let encoding =
            guarded("tokenizers", || self.inner.encode(text, false)).with_context(|| self.cannot_encode())?;
        let encoded = Encoded { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().to_vec() };
        encoded.check(text).with_context(|| self.cannot_encode())?;
        encoded.ids.iter().try_for_each(|&id| self.check_id(id))?;
        Ok(encoded)
    }

    fn cannot_encode(&self) -> String {
        format!("{}: cannot cut a text into tokens", self.name)
    }

    /// The text of tokens; special tokens are left out.
    ///
    /// # Errors
    /// If the tokenizer cannot decode the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded("tokenizers", || self.inner.decode(ids, true))
            .with_context(|| format!("{}: cannot decode tokens", self.name))
    }

    /// The beginning of needle prompts, and its source; the same as for plain text unless there is a chat template.
    pub fn bos(&self) -> &BosPolicy {
        self.chat.as_ref().map_or(&self.text_bos, |chat| &chat.bos)
    }

    /// The token that is put before the text of a needle prompt: [`Self::bos`], unless the text has it already.
    pub(super) fn prompt_bos_id(&self) -> Option<u32> {
        self.chat.as_ref().map_or(self.text_bos.id, |chat| chat.added_id)
    }

    /// Tokens of a needle prompt whose text was cut into these.
    pub(super) fn prompt_tok(&self, encoded: &Encoded) -> usize {
        encoded.ids.len() + usize::from(self.prompt_bos_id().is_some())
    }

    /// The chat template around needle prompts.
    pub fn chat(&self) -> Option<&Wrapping> {
        self.chat.as_ref().map(|chat| &chat.wrapping)
    }

    /// Tokens in the vocabulary, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

impl Chat {
    fn new(
        inner: &tokenizers::Tokenizer,
        folder: &Path,
        config: &TokenizerConfig,
        options: &TokenizerOptions,
    ) -> Result<Self> {
        let Some(template) = ChatTemplate::read_with(folder, config)? else {
            bail_usage!(
                "--chat-template: {} has none, neither chat_template.jinja nor chat_template in tokenizer_config.json: \
                 it is no instruct model",
                folder.display()
            )
        };
        let path = template.path.display().to_string();
        let wrapping = Wrapping::new(template.with_args(&options.template_args)?, inner)?;
        let begin = wrapping.encode_before()?.ids;
        let (bos, added_id) = BosPolicy::of_chat(inner, config, options.bos, &begin).with_context(|| path.clone())?;
        if bos.id.is_some_and(|id| added_id.into_iter().chain(begin).take(2).eq([id, id])) {
            let token = bos.token.as_deref().unwrap_or_default();
            base::say!("{path}: prompts begin with two begin-of-sequence tokens, {token}{token}");
        }
        Ok(Self { wrapping, bos, added_id })
    }
}

/// Reads a `tokenizer.json`.
fn parse(json: &str) -> Result<tokenizers::Tokenizer> {
    let mut inner = guarded("tokenizers", || json.parse::<tokenizers::Tokenizer>())?;
    if let tokenizers::ModelWrapper::BPE(BPE { dropout: Some(dropout), .. }) = inner.get_model() {
        // Merges that are left out by chance: a text would have other tokens every time.
        ensure!(*dropout == 0.0, "model.dropout is {dropout}, which is for training: set it to null");
    }
    // A text is text, unless the user says otherwise: "<eos>" in a haystack is five characters.
    inner.set_encode_special_tokens(true);
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|error| anyhow!(error))?;
    Ok(inner)
}
