//! Files next to a `tokenizer.json`: `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use base::error::guarded;
use base::files;
use base::model_files::{ADDED_TOKENS, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG};

/// The special tokens with names, in the order in which `transformers` adds them.
const NAMED: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Further special tokens.
const LISTED: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// The parts of the files that prompts use.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenizerConfig {
    /// Path of `tokenizer_config.json`, also if it does not exist.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// `true` if every text begins with `bos_token`. Where there is a `tokenizer.json`, it decides instead.
    pub(crate) add_bos_token: Option<bool>,
    /// Special tokens by name: `bos_token`, `eos_token` and so on.
    pub(crate) tokens: BTreeMap<String, String>,
    /// `tokenizer_class`.
    pub(crate) class: Option<String>,
    /// `true` if a space is put before every text.
    pub(crate) add_prefix_space: bool,
    /// A chat template, or a list of named ones.
    pub(crate) chat_template: Option<Value>,
    /// The tokens of `added_tokens_decoder`, or else of `added_tokens.json`, by id.
    added: BTreeMap<u32, AddedToken>,
    /// Where they stand, for messages.
    added_in: String,
    /// Special tokens, which need not be in the vocabulary.
    special: Vec<AddedToken>,
}

impl TokenizerConfig {
    /// Reads the files of a folder, if they exist.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(TOKENIZER_CONFIG);
        let config = object(&path)?;
        // Tokens missing in the first file may be in the others, written by older versions.
        let tokens = object(&folder.join(SPECIAL_TOKENS_MAP))?.unwrap_or_default();
        let special = special_tokens(&[config.as_ref().unwrap_or(&Map::new()), &tokens]);
        let mut config = Self { special, ..Self::of(path, config, tokens)? };
        let added = folder.join(ADDED_TOKENS);
        if config.added.is_empty() {
            for (content, id) in object(&added)?.unwrap_or_default() {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                let id = id.with_context(|| format!("{}: the id of {content:?} is no number", added.display()))?;
                let special = config.special.iter().any(|token| token.content == content);
                config.added.insert(id, AddedToken::from(content, special));
            }
            config.added_in = added.display().to_string();
        }
        Ok(config)
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
        let added_in = format!("{}, added_tokens_decoder", path.display());
        let mut added = BTreeMap::new();
        for (id, token) in config.get("added_tokens_decoder").and_then(Value::as_object).into_iter().flatten() {
            let entry = id.parse().ok().zip(added_token(token, false));
            let (id, token) = entry.with_context(|| format!("{added_in}: {id:?} is no token with an id"))?;
            added.insert(id, token);
        }
        tokens.extend(config);
        let tokens = tokens.into_iter().filter(|(name, _)| name.ends_with("_token"));
        let tokens = tokens.filter_map(|(name, token)| Some((name, text(&token)?))).collect();
        let special = Vec::new();
        Ok(Self {
            path,
            exists,
            add_bos_token,
            tokens,
            class,
            add_prefix_space,
            chat_template,
            added,
            added_in,
            special,
        })
    }

    /// Adds the tokens that have ids in these files to a tokenizer that lacks them.
    ///
    /// # Errors
    /// If they would have other ids there.
    pub(crate) fn add_tokens(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        add(inner, self.added.values())?;
        for (id, AddedToken { content, .. }) in &self.added {
            let actual = inner.token_to_id(content);
            ensure!(
                actual == Some(*id),
                "{}: {content:?} has id {id}, but behind the tokens of tokenizer.json it has {}",
                self.added_in,
                actual.map_or_else(|| "none".to_owned(), |id| id.to_string())
            );
        }
        Ok(())
    }

    /// Adds the special tokens of these files to a tokenizer that lacks them.
    pub(crate) fn add_special_tokens(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        add(inner, self.special.iter())
    }

    /// The begin-of-sequence token.
    pub(crate) fn bos_token(&self) -> Option<&str> {
        self.tokens.get("bos_token").map(String::as_str)
    }
}

/// Adds those of the tokens that a tokenizer does not match before it splits a text.
fn add<'a>(inner: &mut tokenizers::Tokenizer, tokens: impl Iterator<Item = &'a AddedToken>) -> Result<()> {
    let known: HashSet<String> = inner.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
    let missing: Vec<AddedToken> = tokens.filter(|token| !known.contains(&token.content)).cloned().collect();
    guarded("tokenizers", || inner.add_tokens(missing))?;
    Ok(())
}

/// The special tokens of these files, in the order in which `transformers` adds them.
fn special_tokens(files: &[&Map<String, Value>]) -> Vec<AddedToken> {
    let mut special = Vec::new();
    let others = files.iter().flat_map(|file| file.keys()).map(String::as_str);
    let others = others.filter(|name| name.ends_with("_token") && !NAMED.contains(name));
    for name in NAMED.into_iter().chain(others) {
        special.extend(files.iter().find_map(|file| added_token(file.get(name)?, true)));
    }
    for list in LISTED.iter().flat_map(|name| files.iter().filter_map(move |file| file.get(*name))) {
        match list {
            Value::Array(tokens) => special.extend(tokens.iter().filter_map(|token| added_token(token, true))),
            Value::Object(tokens) => special.extend(tokens.values().filter_map(|token| added_token(token, true))),
            _ => {}
        }
    }
    special
}

/// A token that is a string, or an object with its text in `content` and how it is matched.
fn added_token(token: &Value, is_special: bool) -> Option<AddedToken> {
    let flag = |name: &str, default| token.get(name).and_then(Value::as_bool).unwrap_or(default);
    let special = is_special || flag("special", false);
    Some(AddedToken {
        content: text(token)?,
        single_word: flag("single_word", false),
        lstrip: flag("lstrip", false),
        rstrip: flag("rstrip", false),
        normalized: flag("normalized", !special),
        special,
    })
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
    files::json(&bytes)
        .and_then(serde_json::from_value)
        .map(Some)
        .with_context(|| format!("{} is not a JSON object", path.display()))
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
