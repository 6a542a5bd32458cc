//! Byte-level BPE tokenizers in the two files of older folders, `vocab.json` and `merges.txt`, converted to a `tokenizer.json`.

use super::config::TokenizerConfig;
use anyhow::{bail, Context, Result};
use base::files;
use base::model_files::{MERGES, TOKENIZER_PARTS, VOCAB};
use serde_json::{json, Map, Value};
use std::path::Path;

/// Returns `true` if a folder has both files.
pub(super) fn is_in(folder: &Path) -> bool {
    TOKENIZER_PARTS.iter().all(|file| files::is_there(&folder.join(file)))
}

/// Converts the two files of a `GPT2Tokenizer`, without its added tokens; other classes are an error.
pub(super) fn tokenizer_json(folder: &Path, config: &TokenizerConfig) -> Result<String> {
    if let Some(class) = config.class.as_deref().filter(|class| !class.starts_with("GPT2Tokenizer")) {
        bail!(
            "{}: {VOCAB} and {MERGES} of a {class} are not supported, only those of a GPT2Tokenizer; \
             `AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)` in Python writes a tokenizer.json",
            folder.display()
        );
    }
    let path = folder.join(VOCAB);
    let vocab: Map<String, Value> = serde_json::from_slice(&files::bytes(&path, files::TOKENIZER_MAX)?)
        .with_context(|| path.display().to_string())?;
    let merges = read_merges(&folder.join(MERGES))?;
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": config.add_prefix_space, "trim_offsets": false, "use_regex": true,
        },
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        },
    })
    .to_string())
}

/// Reads merges, one pair per line.
fn read_merges(path: &Path) -> Result<Vec<Value>> {
    let text = files::text(path, files::TOKENIZER_MAX)?;
    let mut merges = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.is_empty() || i == 0 && line.starts_with("#version") {
            continue;
        }
        let Some((left, right)) = line.split_once(' ') else {
            bail!("{}, line {}: {line:?} is no pair", path.display(), i + 1);
        };
        merges.push(json!([left, right]));
    }
    Ok(merges)
}

#[cfg(test)]
mod tests {
    use super::super::{Tokenizer, TokenizerOptions};
    use std::fs;

    /// The embedded vocabulary in two files, read.
    fn open(config: &str) -> anyhow::Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        let json: serde_json::Value = serde_json::from_str(&Tokenizer::embedded().json).unwrap();
        fs::write(folder.path().join("vocab.json"), json["model"]["vocab"].to_string()).unwrap();
        let merges = json["model"]["merges"].as_array().unwrap().iter();
        let merges = merges.map(|pair| format!("{} {}\n", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
        let merges = format!("#version: 0.2\n{}", merges.collect::<String>());
        fs::write(folder.path().join("merges.txt"), merges).unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        Tokenizer::open(folder.path(), &TokenizerOptions::default())
    }

    #[test]
    fn two_files_cut_a_text_as_one_does() {
        let tokenizer =
            open(r#"{"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<bos>"}"#).unwrap();
        assert_eq!(tokenizer.bos().to_string(), "<bos> (config)");
        let text = " The magic number of Paris is here, they say.";
        assert_eq!(tokenizer.encode(text).unwrap(), Tokenizer::embedded().encode(text).unwrap());
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap().ids).unwrap(), text);
    }

    #[test]
    fn another_class_is_refused_with_what_to_do() {
        let error = open(r#"{"tokenizer_class": "CLIPTokenizer"}"#).err().unwrap().to_string();
        assert!(error.contains("CLIPTokenizer") && error.contains("save_pretrained"), "{error}");
    }
}
