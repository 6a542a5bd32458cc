//! Tokenizers of GGUF files, converted to a `tokenizer.json`. Names, patterns and defaults follow llama.cpp's
//! `llama-vocab.cpp`.

mod pre;
mod sentencepiece;

use super::Gguf;
use anyhow::{ensure, Context, Result};
use pre::Pre;
use serde_json::{json, Map, Value};
use std::path::Path;
use text::{Tokenizer, TokenizerOptions};

/// llama.cpp's numbers for kinds of tokens: what stands for an unknown one, those that control, those that were added.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const ADDED: u64 = 4;

/// Values of `tokenizer.ggml.model` for SentencePiece with merges by score, and for byte-level BPE.
const SPM: &str = "llama";
const BPE: &str = "gpt2";

/// Control or added tokens that end an answer even if no field names them.
const ENDS: [&str; 16] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Tokenizer fields of a GGUF file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `gpt2` for byte-level BPE, `llama` for SentencePiece.
    pub model: String,
    /// Name of the pre-tokenizer.
    pub pre: String,
    /// Every token by its id.
    pub tokens: Vec<String>,
    /// Type of each token: 3 is a control token, 4 an added one.
    pub types: Vec<u64>,
    /// Merges, each two tokens separated by a space; `None` if the list is missing.
    pub merges: Option<Vec<String>>,
    /// SentencePiece scores; the largest is merged first.
    pub scores: Vec<f32>,
    /// For SentencePiece: `true` if a space is put before the text.
    pub space_prefix: Option<bool>,
    pub bos: Option<usize>,
    pub eos: Option<usize>,
    /// Ids of the end-of-turn and end-of-message tokens.
    pub ends: Vec<usize>,
    /// `true` if every text begins with the begin-of-sequence token.
    pub add_bos: Option<bool>,
    /// `true` if white space after special tokens is removed (Phi-3).
    pub strips: bool,
    pub template: Option<String>,
}

impl Gguf {
    /// The tokenizer fields; `None` if the file has no tokenizer.
    ///
    /// # Errors
    /// If a field has the wrong type.
    pub fn vocabulary(&self) -> Result<Option<GgufVocabulary>> {
        let model = self.text("tokenizer.ggml.model")?.filter(|model| !matches!(*model, "none" | "no_vocab"));
        let Some(model) = model else { return Ok(None) };
        let types = self.numbers("tokenizer.ggml.token_type")?.into_iter().flatten();
        let scores = self.numbers("tokenizer.ggml.scores")?.into_iter().flatten();
        let pre = self.text("tokenizer.ggml.pre")?.filter(|pre| !pre.is_empty());
        let name = self.text("general.name")?.unwrap_or_default().to_lowercase();
        let turn = self.token_id("eot_token_id")?;
        let message = self.token_id("eom_token_id")?;
        Ok(Some(GgufVocabulary {
            model: model.to_owned(),
            pre: pre.unwrap_or("default").to_owned(),
            tokens: self.texts("tokenizer.ggml.tokens")?.cloned().unwrap_or_default(),
            types: types.map(|&kind| kind as u64).collect(),
            merges: self.texts("tokenizer.ggml.merges")?.cloned(),
            scores: scores.map(|&score| score as f32).collect(),
            space_prefix: self.flag("tokenizer.ggml.add_space_prefix")?,
            bos: self.token_id("bos_token_id")?,
            eos: self.token_id("eos_token_id")?,
            ends: turn.into_iter().chain(message).collect(),
            add_bos: self.flag("tokenizer.ggml.add_bos_token")?,
            strips: name.contains("phi-3") || name.contains("phi3"),
            template: self.text("tokenizer.chat_template")?.map(str::to_owned),
        }))
    }

    fn token_id(&self, field: &str) -> Result<Option<usize>> {
        Ok(self.whole(&format!("tokenizer.ggml.{field}"))?.map(|id| id as usize))
    }
}

impl GgufVocabulary {
    /// The tokenizer of the model in `path`.
    ///
    /// # Errors
    /// If the kind is not supported, or the lists are inconsistent. Names the field.
    pub fn tokenizer(&self, path: &Path, options: &TokenizerOptions) -> Result<Tokenizer> {
        let spm = self.model == SPM;
        let json = if spm { sentencepiece::tokenizer_json(self) } else { self.byte_level_json() };
        // As text: the value takes several times the memory, and reading it takes as much again.
        let json = json.with_context(|| path.display().to_string())?.to_string();
        let bos = self.bos.or_else(|| self.default_bos());
        // The default only applies if there is such a token.
        let adds_bos = bos.is_some() && (spm || Pre::named(&self.pre).is_some_and(|pre| pre.adds_bos));
        let mut config = Map::new();
        config.insert("bos_token".into(), json!(bos.and_then(|id| self.tokens.get(id))));
        config.insert("eos_token".into(), json!(self.eos_or_default().and_then(|id| self.tokens.get(id))));
        config.insert("add_bos_token".into(), json!(self.add_bos.unwrap_or(adds_bos)));
        config.insert("chat_template".into(), json!(self.template));
        Tokenizer::from_parts(path, json, config, options)
    }

    /// The reason why the tokenizer is not supported; `None` if it is.
    pub fn unsupported(&self) -> Option<String> {
        let Self { model, pre, .. } = self;
        if model == SPM || (model == BPE && Pre::named(pre).is_some()) {
            return None;
        }
        Some(format!("its tokenizer (tokenizer.ggml.model \"{model}\", pre \"{pre}\") is not supported"))
    }

    /// Ids of the tokens that end an answer.
    pub fn end_ids(&self) -> Vec<u64> {
        let harmony = ["<|return|>", "<|call|>"].iter().all(|name| self.tokens.iter().any(|token| token == name));
        let mut ids: Vec<usize> = self.eos_or_default().into_iter().chain(self.ends.iter().copied()).collect();
        for (id, (token, kind)) in self.tokens.iter().zip(&self.types).enumerate() {
            // In gpt-oss, `<|end|>` ends a message, after which others may follow.
            let is_end = ENDS.contains(&token.as_str()) && !(harmony && token == "<|end|>");
            if is_end && matches!(*kind, CONTROL | ADDED) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| id as u64).collect()
    }

    /// llama.cpp's default for the begin-of-sequence token, if it is a control token.
    fn default_bos(&self) -> Option<usize> {
        let id = if self.model == SPM { 1 } else { 11 };
        let has_default = !matches!(self.pre.as_str(), "glm4" | "glm5" | "chatglm-bpe");
        (has_default && self.types.get(id) == Some(&CONTROL)).then_some(id)
    }

    /// The end-of-sequence token: the one that is named, or else llama.cpp's default if that is a control token.
    fn eos_or_default(&self) -> Option<usize> {
        let default = if self.model == SPM { 2 } else { 11 };
        self.eos.or_else(|| (self.types.get(default) == Some(&CONTROL)).then_some(default))
    }

    fn byte_level_json(&self) -> Result<Value> {
        let pre = Pre::named(&self.pre).filter(|_| self.model == BPE);
        let pre = pre.with_context(|| self.unsupported().unwrap_or_default())?;
        let vocab = self.vocab()?;
        let mut merges = Vec::new();
        for merge in self.merges.as_ref().context("tokenizer.ggml.merges is missing")? {
            // The first part may be a space.
            let cut = merge.char_indices().skip(1).find(|(_, c)| *c == ' ');
            let (at, _) = cut.with_context(|| format!("tokenizer.ggml.merges: {merge:?} is no pair"))?;
            merges.push(json!([merge[..at], merge[at + 1..]]));
        }
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": self.added_tokens(&[CONTROL, ADDED]),
            "normalizer": if pre.composes { json!({"type": "NFC"}) } else { Value::Null },
            "pre_tokenizer": pre.json(),
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": pre.ignores_merges, "vocab": vocab, "merges": merges,
            },
        }))
    }

    /// Tokens and their ids.
    fn vocab(&self) -> Result<Map<String, Value>> {
        let Self { tokens, types, .. } = self;
        ensure!(!tokens.is_empty(), "tokenizer.ggml.tokens is missing");
        ensure!(
            types.is_empty() || types.len() == tokens.len(),
            "tokenizer.ggml.token_type is not as long as the tokens"
        );
        let mut vocab = Map::new();
        for (id, token) in tokens.iter().enumerate() {
            // llama.cpp's placeholder, which no text contains.
            let token = if token.is_empty() { format!("[EMPTY_{id}]") } else { token.clone() };
            ensure!(!vocab.contains_key(&token), "tokenizer.ggml.tokens: {token:?} is there twice");
            vocab.insert(token, json!(id));
        }
        Ok(vocab)
    }

    /// Tokens of these types, which are matched before the text is split.
    fn added_tokens(&self, kinds: &[u64]) -> Vec<Value> {
        let mut added = Vec::new();
        for (id, (kind, token)) in self.types.iter().zip(&self.tokens).enumerate() {
            if kinds.contains(kind) && !token.is_empty() {
                let strips = self.strips && !matches!(token.as_str(), "<unk>" | "<s>" | "<|endoftext|>");
                added.push(json!({"id": id, "content": token, "special": *kind != ADDED, "normalized": false,
                    "single_word": false, "lstrip": false, "rstrip": strips}));
            }
        }
        added
    }
}
