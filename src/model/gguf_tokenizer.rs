//! Tokenizers of GGUF files, converted to a `tokenizer.json`. Names, patterns and defaults follow llama.cpp's
//! `llama-vocab.cpp`.

mod pre;
mod sentencepiece;

use crate::model::GgufVocabulary;
use crate::prompts::{Tokenizer, TokenizerOptions};
use anyhow::{bail, ensure, Context, Result};
use pre::Pre;
use serde_json::{json, Map, Value};
use std::path::Path;

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

/// The tokenizer of the model in `path`.
///
/// # Errors
/// If the kind is not supported, or the lists are inconsistent. Names the field.
pub fn tokenizer(path: &Path, vocabulary: &GgufVocabulary, options: &TokenizerOptions) -> Result<Tokenizer> {
    let spm = vocabulary.model == SPM;
    let json = if spm { sentencepiece::tokenizer_json(vocabulary) } else { tokenizer_json(vocabulary) };
    // As text: the value takes several times the memory, and reading it takes as much again.
    let json = json.with_context(|| path.display().to_string())?.to_string();
    let bos = vocabulary.bos.or_else(|| default_bos(vocabulary));
    let adds_bos = spm || Pre::named(&vocabulary.pre).is_some_and(|pre| pre.adds_bos);
    // The default only applies if there is such a token.
    let adds_bos = vocabulary.add_bos.unwrap_or(adds_bos && bos.is_some());
    let token =
        |id: Option<usize>| id.and_then(|id| vocabulary.tokens.get(id)).map_or(Value::Null, |token| json!(token));
    let mut config = Map::new();
    config.insert("bos_token".into(), token(bos));
    config.insert("eos_token".into(), token(eos(vocabulary)));
    config.insert("add_bos_token".into(), json!(adds_bos));
    config.insert("chat_template".into(), json!(vocabulary.template));
    Tokenizer::from_parts(path, json, config, options)
}

/// The reason why a tokenizer is not supported; `None` if it is.
pub fn unsupported(vocabulary: &GgufVocabulary) -> Option<String> {
    let GgufVocabulary { model, pre, .. } = vocabulary;
    if model == SPM || (model == BPE && Pre::named(pre).is_some()) {
        return None;
    }
    Some(format!("its tokenizer (tokenizer.ggml.model \"{model}\", pre \"{pre}\") is not supported"))
}

/// Ids of the tokens that end an answer.
pub fn end_ids(vocabulary: &GgufVocabulary) -> Vec<usize> {
    let GgufVocabulary { tokens, types, .. } = vocabulary;
    let harmony = ["<|return|>", "<|call|>"].iter().all(|name| tokens.iter().any(|token| token == name));
    let named = tokens.iter().enumerate().filter(|(id, token)| {
        let special = matches!(types.get(*id).copied(), Some(CONTROL | ADDED));
        // In gpt-oss, `<|end|>` ends a message, after which others may follow.
        special && ENDS.contains(&token.as_str()) && !(harmony && *token == "<|end|>")
    });
    let mut ids: Vec<usize> =
        eos(vocabulary).into_iter().chain(vocabulary.ends.iter().copied()).chain(named.map(|(id, _)| id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// llama.cpp's default for the begin-of-sequence token, if it is a control token.
fn default_bos(vocabulary: &GgufVocabulary) -> Option<usize> {
    let id = if vocabulary.model == SPM { 1 } else { 11 };
    let named = !matches!(vocabulary.pre.as_str(), "glm4" | "glm5" | "chatglm-bpe");
    Some(id).filter(|_| named).filter(|&id| vocabulary.types.get(id) == Some(&CONTROL))
}

/// The end-of-sequence token: the one that is named, or else llama.cpp's default if that is a control token.
fn eos(vocabulary: &GgufVocabulary) -> Option<usize> {
    let default = if vocabulary.model == SPM { 2 } else { 11 };
    vocabulary.eos.or_else(|| Some(default).filter(|&id| vocabulary.types.get(id) == Some(&CONTROL)))
}

fn tokenizer_json(vocabulary: &GgufVocabulary) -> Result<Value> {
    let pre = Pre::named(&vocabulary.pre).filter(|_| vocabulary.model == BPE);
    let pre = pre.with_context(|| unsupported(vocabulary).unwrap_or_default())?;
    let vocab = vocab(vocabulary)?;
    let merge = |merge: &String| {
        // The first part may be a space.
        let cut = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        match cut {
            Some(at) => Ok(json!([merge[..at], merge[at + 1..]])),
            None => bail!("tokenizer.ggml.merges: {merge:?} is no pair"),
        }
    };
    let merges = vocabulary.merges.as_ref().context("tokenizer.ggml.merges is missing")?;
    let merges: Vec<Value> = merges.iter().map(merge).collect::<Result<_>>()?;
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_tokens(vocabulary, &[CONTROL, ADDED]),
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
fn vocab(vocabulary: &GgufVocabulary) -> Result<Map<String, Value>> {
    let GgufVocabulary { tokens, types, .. } = vocabulary;
    ensure!(!tokens.is_empty(), "tokenizer.ggml.tokens is missing");
    ensure!(types.is_empty() || types.len() == tokens.len(), "tokenizer.ggml.token_type is not as long as the tokens");
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
fn added_tokens(vocabulary: &GgufVocabulary, kinds: &[u64]) -> Vec<Value> {
    let all = vocabulary.types.iter().zip(&vocabulary.tokens).enumerate();
    let added = all.filter(|(_, (kind, token))| kinds.contains(kind) && !token.is_empty());
    let strips = |token: &str| vocabulary.strips && !matches!(token, "<unk>" | "<s>" | "<|endoftext|>");
    let added = added.map(|(id, (kind, token))| {
        json!({"id": id, "content": token, "special": *kind != ADDED, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": strips(token)})
    });
    added.collect()
}
