//! SentencePiece as llama.cpp has it (Llama 2, Gemma): characters are merged two by two, always into the token of the largest
//! score, and what is no token then is spelt in bytes. That is a byte-pair encoding whose merges are all ways to put a token
//! together from two others, in the order of scores.

use super::{GgufVocabulary, ADDED, CONTROL, UNKNOWN};
use anyhow::{bail, ensure, Result};
use serde_json::{json, Map, Value};
use std::collections::HashMap;

/// An ordinary token.
const NORMAL: u64 = 1;

/// The symbol for a space.
const SPACE: char = '\u{2581}';

/// The tokenizer of these tokens.
///
/// # Errors
/// If lists do not fit together, or merges by scores are not defined by what is there.
pub(super) fn tokenizer_json(vocabulary: &GgufVocabulary) -> Result<Value> {
    let vocab = vocabulary.vocab()?;
    let merges = merges(vocabulary, &vocab)?;
    let space = SPACE.to_string();
    let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": space})];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": space}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if vocabulary.space_prefix.unwrap_or(true) {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": space}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": vocabulary.added_tokens(&[UNKNOWN, CONTROL, ADDED]),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges.iter().map(|(_, left, right)| json!([left, right])).collect::<Vec<_>>(),
        },
    }))
}

/// Every way to put a token together from two others: its score and both, the largest score first.
fn merges<'a>(vocabulary: &'a GgufVocabulary, vocab: &'a Map<String, Value>) -> Result<Vec<(f32, &'a str, &'a str)>> {
    let GgufVocabulary { tokens, types, scores, .. } = vocabulary;
    ensure!(scores.len() == tokens.len(), "tokenizer.ggml.scores is not as long as the tokens");
    let mut merges = Vec::new();
    let mut merged: Vec<(f32, &str)> = Vec::new();
    for (id, (token, &score)) in tokens.iter().zip(scores).enumerate() {
        let kind = types.get(id).copied().unwrap_or(NORMAL);
        if [UNKNOWN, CONTROL, ADDED].contains(&kind) {
            continue; // it is found before
        }
        let before = merges.len();
        merges.extend(parts(token, vocab).map(|(left, right)| (score, left, right)));
        if merges.len() > before && kind == NORMAL {
            merged.push((score, token));
        }
        // llama.cpp could put it together from characters that are no tokens; merges of tokens cannot.
        let is_spelt = token.chars().all(|c| vocab.contains_key(c.encode_utf8(&mut [0; 4])));
        ensure!(
            is_spelt || merges.len() > before || kind != NORMAL || token.chars().count() < 2,
            "tokenizer.ggml.tokens: {token:?} has characters that are no tokens"
        );
    }
    check_ties(&mut merged, vocab)?;
    // With equal scores the leftmost pair is merged first. For runs of one character, that is so if the longest comes first.
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| char_counts(b).cmp(&char_counts(a))));
    Ok(merges)
}

/// Characters of the token that a merge makes, and of its first part.
fn char_counts(&(_, left, right): &(f32, &str, &str)) -> (usize, usize) {
    let left = left.chars().count();
    (left + right.chars().count(), left)
}

/// All splits of a token into two other tokens.
fn parts<'a>(token: &'a str, vocab: &'a Map<String, Value>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let cuts = token.char_indices().skip(1).map(move |(at, _)| token.split_at(at));
    cuts.filter(|(left, right)| vocab.contains_key(*left) && vocab.contains_key(*right))
}

/// Checks that a fixed order of merges gives llama.cpp's result for tokens with equal scores, of which it merges the leftmost in
/// the text first. It does for runs of one character (Llama 2's spaces) and for tokens that cannot overlap.
fn check_ties(merged: &mut [(f32, &str)], vocab: &Map<String, Value>) -> Result<()> {
    merged.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    for tied in merged.chunk_by(|a, b| a.0 == b.0).filter(|tied| tied.len() > 1) {
        let first = tied[0].1.chars().next();
        if tied.iter().all(|(_, token)| token.chars().all(|c| Some(c) == first)) {
            continue;
        }
        let mut ends: HashMap<&str, Vec<&str>> = HashMap::new();
        for (_, token) in tied {
            parts(token, vocab).for_each(|(_, right)| ends.entry(right).or_default().push(token));
        }
        for (score, token) in tied {
            let with_end = parts(token, vocab).filter_map(|(left, _)| ends.get(left)).flatten();
            let met = with_end.copied().find(|other| other != token);
            if let Some(other) = met {
                bail!(
                    "tokenizer.ggml.scores: {other:?} and {token:?} overlap and have the same score {score}: the order of \
                     their merges depends on the text, which is not supported"
                );
            }
        }
    }
    Ok(())
}
