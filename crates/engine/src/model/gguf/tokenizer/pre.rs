//! Pre-tokenizers of byte-level BPE by llama.cpp's names in `tokenizer.ggml.pre`; `pre.toml` lists them.

use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::OnceLock;

/// A pre-tokenizer and its defaults.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Pre {
    names: Vec<String>,
    /// Patterns that split the text one after the other.
    patterns: Vec<String>,
    /// `true` if a word that is a token is used without merging.
    #[serde(default)]
    pub(super) ignores_merges: bool,
    /// `true` if texts begin with the begin-of-sequence token by default.
    #[serde(default)]
    pub(super) adds_bos: bool,
    /// `true` if text is normalized to NFC first.
    #[serde(default)]
    pub(super) composes: bool,
}

#[derive(Deserialize)]
struct File {
    pre: Vec<Pre>,
}

impl Pre {
    fn all() -> &'static [Self] {
        static ALL: OnceLock<File> = OnceLock::new();
        &ALL.get_or_init(|| toml::from_str(include_str!("pre.toml")).expect("pre.toml is tested")).pre
    }

    /// The pre-tokenizer of this name; `None` if it is unknown or not byte-level.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|pre| pre.names.iter().any(|known| known == name))
    }

    /// The `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn json(&self) -> Value {
        let mut splits = Vec::new();
        for pattern in &self.patterns {
            splits
                .push(json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}));
        }
        splits.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}));
        json!({"type": "Sequence", "pretokenizers": splits})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a text.
    fn words(pre: &str, text: &str) -> Vec<String> {
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};
        let json = Pre::named(pre).unwrap().json();
        let cut: tokenizers::PreTokenizerWrapper = serde_json::from_value(json).unwrap();
        let mut string = PreTokenizedString::from(text);
        cut.pre_tokenize(&mut string).unwrap();
        let splits = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (start, end), _)| text[start..end].to_owned()).collect()
    }

    #[test]
    fn names_of_one_pattern_cut_alike_and_others_as_their_models_do() {
        let text = "They'LL pay 12345 $ for\n\n  HTMLpages, 東京!";
        let cut = |pre: &str| words(pre, text).join("|");
        assert_eq!(cut("qwen2"), "They|'LL| pay| |1|2|3|4|5| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("deepseek-r1-qwen"), cut("qwen2"));
        assert_eq!(cut("llama-bpe"), "They|'LL| pay| |123|45| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("gpt-4o"), "They'LL| pay| |123|45| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("gpt-2"), "They|'|LL| pay| 12345| $| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(cut("smollm"), "They|'|LL| pay| |1|2|3|4|5| $| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(cut("falcon"), "They|'|LL| pay| |123|45| |$| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(words("superbpe", "12345"), ["12", "345"]);
        assert_eq!(words("afmoe", "12345"), ["12", "345"]);
        assert_eq!(words("tiny_aya", "12345"), ["12", "345"]);
    }

    #[test]
    fn every_pattern_can_be_read() {
        for pre in Pre::all() {
            for name in &pre.names {
                assert!(!words(name, "a 1\n").is_empty(), "{name}");
                assert_eq!(Pre::named(name), Some(pre), "{name} is there twice");
            }
        }
        assert_eq!(Pre::named("kimi-k2"), None);
    }
}
