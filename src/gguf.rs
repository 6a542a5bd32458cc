//! The tokenizer in a GGUF file, in the form of a `tokenizer.json`.

use crate::model::GgufVocabulary;
use crate::prompt::{Tokenizer, TokenizerOptions};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Map, Value};
use std::path::Path;

/// llama.cpp's numbers for control tokens and for those that were added.
const CONTROL: u64 = 3;
const ADDED: u64 = 4;

/// Words as GPT-4's cl100k cuts them, with one digit (Qwen 2) or up to three (Llama 3) together.
const WORDS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What cuts the text of a model in `path`.
///
/// # Errors
/// If it is of a kind that is not supported, or its lists do not fit together; the field is named.
pub fn tokenizer(path: &Path, vocabulary: &GgufVocabulary, options: &TokenizerOptions) -> Result<Tokenizer> {
    let json = tokenizer_json(vocabulary).with_context(|| path.display().to_string())?;
    let token =
        |id: Option<usize>| id.and_then(|id| vocabulary.tokens.get(id)).map_or(Value::Null, |token| json!(token));
    let mut config = Map::new();
    config.insert("bos_token".into(), token(vocabulary.bos));
    config.insert("eos_token".into(), token(vocabulary.eos));
    config.insert("add_bos_token".into(), json!(vocabulary.add_bos));
    config.insert("chat_template".into(), json!(vocabulary.template));
    Tokenizer::from_parts(path, &json, config, options)
}

/// Whether there is a way to make it: SentencePiece has scores instead of merges.
pub fn is_supported(vocabulary: &GgufVocabulary) -> bool {
    vocabulary.model == "gpt2" && pre_tokenizer(&vocabulary.pre).is_ok()
}

fn tokenizer_json(vocabulary: &GgufVocabulary) -> Result<Value> {
    let GgufVocabulary { model, pre, tokens, types, merges, .. } = vocabulary;
    ensure!(model == "gpt2", "tokenizer.ggml.model \"{model}\" is not supported; gpt2 is");
    ensure!(types.is_empty() || types.len() == tokens.len(), "tokenizer.ggml.token_type is not as long as the tokens");
    let mut vocab = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        ensure!(vocab.insert(token.clone(), json!(id)).is_none(), "tokenizer.ggml.tokens: {token:?} is there twice");
    }
    let merge = |merge: &String| match merge.split_once(' ') {
        Some((a, b)) => Ok(json!([a, b])),
        None => bail!("tokenizer.ggml.merges: {merge:?} is no pair"),
    };
    let merges: Vec<Value> = merges.iter().map(merge).collect::<Result<_>>()?;
    let added = types.iter().zip(tokens).enumerate().filter(|(_, (kind, _))| matches!(**kind, CONTROL | ADDED));
    let added = added.map(|(id, (kind, token))| {
        json!({"id": id, "content": token, "special": *kind == CONTROL, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false})
    });
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": if pre == "qwen2" { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": pre_tokenizer(pre)?,
        "post_processor": null,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": pre == "llama-bpe", "vocab": vocab, "merges": merges,
        },
    }))
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": use_regex})
}

/// How text is cut into words.
fn pre_tokenizer(pre: &str) -> Result<Value> {
    let digits = match pre {
        "gpt-2" => return Ok(byte_level(true)),
        "llama-bpe" => "{1,3}",
        "qwen2" => "",
        other => bail!("tokenizer.ggml.pre \"{other}\" is not supported; gpt-2, llama-bpe and qwen2 are"),
    };
    let pattern = WORDS.replace("DIGITS", digits);
    let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    Ok(json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]}))
}
