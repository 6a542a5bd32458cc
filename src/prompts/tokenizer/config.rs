//! Files next to a `tokenizer.json`: `tokenizer_config.json` and `special_tokens_map.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde_json::{Map, Value};

use crate::base::files;

/// The parts of the two files that prompts use.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenizerConfig {
    /// Path of `tokenizer_config.json`, also if it does not exist.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// `true` if every text begins with `bos_token`.
    pub(crate) add_bos_token: Option<bool>,
    /// Special tokens by name: `bos_token`, `eos_token` and so on.
    pub(crate) tokens: BTreeMap<String, String>,
    /// `tokenizer_class`.
    pub(crate) class: Option<String>,
    /// `true` if a space is put before every text.
    pub(crate) add_prefix_space: bool,
    /// A chat template, or a list of named ones.
    pub(crate) chat_template: Option<Value>,
}

impl TokenizerConfig {
    /// Reads the files of a folder, if they exist.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer_config.json");
        let config = object(&path)?;
        // Tokens missing in the first file may be in the second, written by older versions.
        let tokens = object(&folder.join("special_tokens_map.json"))?.unwrap_or_default();
        Self::of(path, config, tokens)
    }

    /// Creates the configuration from the files' contents; `path` is for messages.
    pub(crate) fn of(
        path: PathBuf,
        config: Option<Map<String, Value>>,
        mut tokens: Map<String, Value>,
    ) -> Result<Self> {
        let exists = config.is_some();
        let mut config = config.unwrap_or_default();
        let chat_template = config.remove("chat_template").filter(|template| !template.is_null());
        let class = config.get("tokenizer_class").and_then(Value::as_str).map(str::to_owned);
        let add_prefix_space = config.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(false);
        let add_bos_token = match config.get("add_bos_token") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(flag) => bail!("{}: add_bos_token is {flag}, expected true or false", path.display()),
        };
        tokens.extend(config);
        let tokens = tokens.into_iter().filter(|(name, _)| name.ends_with("_token"));
        let tokens = tokens.filter_map(|(name, token)| Some((name, text(&token)?))).collect();
        Ok(Self { path, exists, add_bos_token, tokens, class, add_prefix_space, chat_template })
    }

    /// The begin-of-sequence token.
    pub(crate) fn bos_token(&self) -> Option<&str> {
        self.tokens.get("bos_token").map(String::as_str)
    }
}

/// Text of a token, which is a string or an object with the text in `content`.
fn text(token: &Value) -> Option<String> {
    token.as_str().or_else(|| token.get("content")?.as_str()).map(str::to_owned)
}

/// The JSON object in a file, or `None` if the file does not exist.
pub(crate) fn object(path: &Path) -> Result<Option<Map<String, Value>>> {
    if !files::is_there(path) {
        return Ok(None);
    }
    let bytes = files::bytes(path, files::CONFIG_MAX)?;
    serde_json::from_slice(&bytes).map(Some).with_context(|| format!("{} is not a JSON object", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(files: &[(&str, &str)]) -> Result<TokenizerConfig> {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        TokenizerConfig::read(folder.path())
    }

    #[test]
    fn tokens_are_strings_or_objects_in_either_file() {
        let config = r#"{"bos_token": {"content": "<s>", "special": true}, "eos_token": null, "add_bos_token": true}"#;
        let map = r#"{"bos_token": "<other>", "eos_token": "</s>", "unk_token": "<unk>", "additional": ["<x>"]}"#;
        let read = read(&[("tokenizer_config.json", config), ("special_tokens_map.json", map)]).unwrap();
        assert_eq!((read.bos_token(), read.add_bos_token, read.exists), (Some("<s>"), Some(true), true));
        assert_eq!(
            read.tokens.into_iter().collect::<Vec<_>>(),
            [("bos_token".to_owned(), "<s>".to_owned()), ("unk_token".to_owned(), "<unk>".to_owned())]
        );
    }

    #[test]
    fn no_files_are_no_error_and_broken_ones_are_named() {
        let none = read(&[]).unwrap();
        assert!(!none.exists && none.bos_token().is_none() && none.add_bos_token.is_none());
        for file in ["tokenizer_config.json", "special_tokens_map.json"] {
            let error = format!("{:#}", read(&[(file, "[")]).unwrap_err());
            assert!(error.contains(file) && error.contains("not a JSON object"), "{error}");
        }
    }
}
