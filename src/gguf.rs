//! The tokenizer in a GGUF file, in the form of a `tokenizer.json`.

mod sentencepiece;

use crate::model::GgufVocabulary;
use crate::prompt::{Tokenizer, TokenizerOptions};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Map, Value};
use std::path::Path;

/// llama.cpp's numbers for kinds of tokens: what stands for an unknown one, those that control, those that were added.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const ADDED: u64 = 4;

/// Words as GPT-4's cl100k cuts them, with one digit (Qwen 2) or up to three (Llama 3) together.
const WORDS: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What cuts the text of a model in `path`.
///
/// # Errors
/// If it is of a kind that is not supported, or its lists do not fit together; the field is named.
pub fn tokenizer(path: &Path, vocabulary: &GgufVocabulary, options: &TokenizerOptions) -> Result<Tokenizer> {
    let spm = vocabulary.model == SPM;
    let json = if spm { sentencepiece::tokenizer_json(vocabulary) } else { tokenizer_json(vocabulary) };
    let json = json.with_context(|| path.display().to_string())?;
    let token =
        |id: Option<usize>| id.and_then(|id| vocabulary.tokens.get(id)).map_or(Value::Null, |token| json!(token));
    let mut config = Map::new();
    config.insert("bos_token".into(), token(vocabulary.bos.or(spm.then_some(1))));
    config.insert("eos_token".into(), token(vocabulary.eos.or(spm.then_some(2))));
    config.insert("add_bos_token".into(), json!(vocabulary.add_bos.or(spm.then_some(true))));
    config.insert("chat_template".into(), json!(vocabulary.template));
    Tokenizer::from_parts(path, &json, config, options)
}

/// What llama.cpp calls SentencePiece.
const SPM: &str = "llama";

/// Whether there is a way to make it.
pub fn is_supported(vocabulary: &GgufVocabulary) -> bool {
    vocabulary.model == SPM || (vocabulary.model == "gpt2" && pre_tokenizer(&vocabulary.pre).is_ok())
}

fn tokenizer_json(vocabulary: &GgufVocabulary) -> Result<Value> {
    let GgufVocabulary { model, pre, merges, .. } = vocabulary;
    ensure!(model == "gpt2", "tokenizer.ggml.model \"{model}\" is not supported; gpt2 and llama are");
    let vocab = vocab(vocabulary)?;
    let merge = |merge: &String| match merge.split_once(' ') {
        Some((a, b)) => Ok(json!([a, b])),
        None => bail!("tokenizer.ggml.merges: {merge:?} is no pair"),
    };
    let merges: Vec<Value> = merges.iter().map(merge).collect::<Result<_>>()?;
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_tokens(vocabulary, &[CONTROL, ADDED]),
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

/// Tokens and their ids.
fn vocab(vocabulary: &GgufVocabulary) -> Result<Map<String, Value>> {
    let GgufVocabulary { tokens, types, .. } = vocabulary;
    ensure!(types.is_empty() || types.len() == tokens.len(), "tokenizer.ggml.token_type is not as long as the tokens");
    let mut vocab = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        ensure!(vocab.insert(token.clone(), json!(id)).is_none(), "tokenizer.ggml.tokens: {token:?} is there twice");
    }
    Ok(vocab)
}

/// Tokens of these kinds, which are found in a text before it is cut.
fn added_tokens(vocabulary: &GgufVocabulary, kinds: &[u64]) -> Vec<Value> {
    let all = vocabulary.types.iter().zip(&vocabulary.tokens).enumerate();
    let added = all.filter(|(_, (kind, _))| kinds.contains(kind)).map(|(id, (kind, token))| {
        json!({"id": id, "content": token, "special": *kind != ADDED, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false})
    });
    added.collect()
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
