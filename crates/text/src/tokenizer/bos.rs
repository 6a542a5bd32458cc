//! The begin-of-sequence token of prompts.

use std::fmt;

use anyhow::{bail, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::config::TokenizerConfig;
use base::bail_usage;
use base::error::guarded;
use strum::IntoStaticStr;

/// Usual names of begin-of-sequence tokens, for tokenizers that do not add theirs and have no `tokenizer_config.json`,
/// such as the embedded one. They count only as special tokens: elsewhere `<s>` is an HTML tag.
const NAMES: [&str; 3] = ["<bos>", "<s>", "<|begin_of_text|>"];

/// Source of the decision on the begin-of-sequence token, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum BosSource {
    /// The user's choice.
    Asked,
    /// The chat template, which may write it.
    Template,
    /// The tokenizer's post-processor, which puts it before every text.
    PostProcessor,
    /// `add_bos_token` of `tokenizer_config.json` or a GGUF file, which counts without a `tokenizer.json` alone; no token if the
    /// field is missing.
    Config,
    /// A usual name in the vocabulary, without a `tokenizer_config.json`.
    Name,
    /// None: the vocabulary has no such token.
    Nothing,
}

impl BosSource {
    /// Name in files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The begin-of-sequence token of a tokenizer's prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BosPolicy {
    /// The token that prompts begin with, or `None`.
    pub id: Option<u32>,
    /// Name of the token in the vocabulary.
    pub token: Option<String>,
    /// Source of the decision.
    pub source: BosSource,
}

impl fmt::Display for BosPolicy {
    /// Formats as `<s> (config)` or `none (template)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.token.as_deref().unwrap_or("none"), self.source.name())
    }
}

/// The user's choice of begin-of-sequence token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BosChoice {
    /// As the model's files say
    #[default]
    Auto,
    /// Put it before every prompt
    Add,
    /// Put nothing before prompts; one in a chat template stays
    Omit,
}

impl BosPolicy {
    fn new(inner: &tokenizers::Tokenizer, id: Option<u32>, source: BosSource) -> Self {
        Self { id, token: id.and_then(|id| inner.id_to_token(id)), source }
    }

    /// The policy for plain text.
    ///
    /// # Errors
    /// If the configuration contradicts the tokenizer. A usage error if the user requests a token and the tokenizer has
    /// none.
    pub(super) fn of_text(inner: &tokenizers::Tokenizer, config: &TokenizerConfig, choice: BosChoice) -> Result<Self> {
        if choice == BosChoice::Omit {
            return Ok(Self::new(inner, None, BosSource::Asked));
        }
        let auto = Self::auto(inner, config)?;
        if choice == BosChoice::Auto {
            return Ok(auto);
        }
        match auto.id.or_else(|| known(inner, config, None)) {
            Some(id) => Ok(Self::new(inner, Some(id), BosSource::Asked)),
            None => bail_usage!(
                "--bos add: the tokenizer has no begin-of-sequence token: neither bos_token in {} nor a special token of \
                 the name {}",
                config.path.display(),
                NAMES.join(" or ")
            ),
        }
    }

    fn auto(inner: &tokenizers::Tokenizer, config: &TokenizerConfig) -> Result<Self> {
        if let Some(id) = first_special(inner)? {
            return Ok(Self::new(inner, Some(id), BosSource::PostProcessor));
        }
        if !config.exists {
            let id = well_known(inner);
            return Ok(Self::new(inner, id, if id.is_some() { BosSource::Name } else { BosSource::Nothing }));
        }
        if config.add_bos_token != Some(true) {
            return Ok(Self::new(inner, None, BosSource::Config));
        }
        let path = config.path.display();
        let Some(token) = config.bos_token() else {
            bail!("{path}: add_bos_token is true, but there is no bos_token");
        };
        match inner.token_to_id(token) {
            Some(id) => Ok(Self::new(inner, Some(id), BosSource::Config)),
            None => bail!("{path}: the bos_token {token:?} is not in the vocabulary of tokenizer.json"),
        }
    }

    /// The policy for prompts in a chat template, given the tokens that the template begins with. As in
    /// `apply_chat_template`, the template decides unless the user does. Also returns the token to put before the
    /// template.
    pub(super) fn of_chat(
        inner: &tokenizers::Tokenizer,
        config: &TokenizerConfig,
        choice: BosChoice,
        template: &[u32],
    ) -> Result<(Self, Option<u32>)> {
        let text = Self::of_text(inner, config, choice)?;
        let added = text.id.filter(|_| choice == BosChoice::Add);
        let Some(bos) = added.or_else(|| known(inner, config, text.id)) else {
            return Ok((Self::new(inner, None, BosSource::Template), None));
        };
        let source = if added.is_some() { BosSource::Asked } else { BosSource::Template };
        let first = added.or_else(|| template.first().copied());
        Ok((Self::new(inner, Some(bos).filter(|&bos| first == Some(bos)), source), added))
    }
}

/// The begin-of-sequence token, whether or not prompts begin with it: from the configuration, the beginning of text, or
/// a usual name.
fn known(inner: &tokenizers::Tokenizer, config: &TokenizerConfig, of_text: Option<u32>) -> Option<u32> {
    let configured = config.bos_token().and_then(|token| inner.token_to_id(token));
    configured.or(of_text).or_else(|| well_known(inner))
}

/// The first special token of a well-known name.
fn well_known(inner: &tokenizers::Tokenizer) -> Option<u32> {
    let added = inner.get_added_tokens_decoder();
    let mut ids = NAMES.iter().filter_map(|name| inner.token_to_id(name));
    ids.find(|id| added.get(id).is_some_and(|token| token.special))
}

/// The token that the tokenizer puts before every text, if any.
fn first_special(tokenizer: &tokenizers::Tokenizer) -> Result<Option<u32>> {
    let with = guarded("tokenizers", || tokenizer.encode("a", true))?;
    let without = guarded("tokenizers", || tokenizer.encode("a", false))?;
    let first = with.get_ids().first();
    Ok(first.filter(|_| first != without.get_ids().first()).copied())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Tokenizer, TokenizerOptions};
    use super::*;
    use base::error::exit_code;

    #[test]
    fn an_ordinary_token_of_a_well_known_name_begins_no_prompt() {
        let mut json: serde_json::Value = serde_json::from_str(&Tokenizer::embedded().json).unwrap();
        json["added_tokens"] = serde_json::json!([]);
        let files = [("tokenizer.json", &*json.to_string())];
        assert_eq!(open(&files, TokenizerOptions::default()).unwrap().bos().to_string(), "none (nothing)");
        let add = TokenizerOptions { bos: BosChoice::Add, ..TokenizerOptions::default() };
        assert_eq!(exit_code(&open(&files, add).err().unwrap()), 2);
    }

    /// The embedded tokenizer in a folder with these files beside it.
    fn open(files: &[(&str, &str)], options: TokenizerOptions) -> Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), &Tokenizer::embedded().json).unwrap();
        for (file, text) in files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        Tokenizer::open(folder.path(), &options)
    }

    fn policy(config: &str, bos: BosChoice) -> Result<String> {
        let files = [("tokenizer_config.json", config)];
        let files = if config.is_empty() { &files[..0] } else { &files[..] };
        let tokenizer = open(files, TokenizerOptions { bos, ..TokenizerOptions::default() })?;
        assert_eq!(*tokenizer.bos(), tokenizer.text_bos);
        Ok(tokenizer.bos().to_string())
    }

    #[test]
    fn the_configuration_takes_precedence_over_a_usual_name() {
        for (config, expected) in [
            ("", "<bos> (name)"),
            ("{}", "none (config)"),
            (r#"{"bos_token": "<bos>"}"#, "none (config)"),
            (r#"{"bos_token": "<bos>", "add_bos_token": false}"#, "none (config)"),
            // transformers 5.24 leaves the flag out where there is a tokenizer.json.
            (r#"{"bos_token": "<bos>", "add_bos_token": true}"#, "none (config)"),
            (r#"{"add_bos_token": true}"#, "none (config)"),
        ] {
            assert_eq!(policy(config, BosChoice::Auto).unwrap(), expected, "{config}");
        }
    }

    /// The policy of a file that is tokenizer and configuration in one.
    fn policy_of_parts(config: &str) -> Result<String> {
        let json = Tokenizer::embedded().json.clone();
        let config = serde_json::from_str(config).unwrap();
        let tokenizer = Tokenizer::from_parts("a.gguf".as_ref(), json, config, &TokenizerOptions::default())?;
        Ok(tokenizer.bos().to_string())
    }

    #[test]
    fn without_a_tokenizer_json_the_configuration_says_how_texts_begin() {
        for (config, expected) in [
            (r#"{"bos_token": "<bos>", "add_bos_token": true}"#, "<bos> (config)"),
            (r#"{"bos_token": {"content": "<eos>"}, "add_bos_token": true}"#, "<eos> (config)"),
            (r#"{"bos_token": "<bos>", "add_bos_token": false}"#, "none (config)"),
        ] {
            assert_eq!(policy_of_parts(config).unwrap(), expected, "{config}");
        }
    }

    #[test]
    fn the_user_takes_precedence_over_the_configuration() {
        let other = r#"{"bos_token": "<eos>", "add_bos_token": false}"#;
        assert_eq!(policy(other, BosChoice::Add).unwrap(), "<eos> (asked)");
        assert_eq!(policy("", BosChoice::Add).unwrap(), "<bos> (asked)");
        assert_eq!(policy("", BosChoice::Omit).unwrap(), "none (asked)");
    }

    #[test]
    fn a_configuration_that_contradicts_the_tokenizer_is_an_error_that_names_it() {
        for (config, words) in [
            (r#"{"add_bos_token": true}"#, "no bos_token"),
            (r#"{"add_bos_token": true, "bos_token": "<begin>"}"#, "\"<begin>\" is not in the vocabulary"),
        ] {
            let error = format!("{:#}", policy_of_parts(config).unwrap_err());
            assert!(error.contains("a.gguf: ") && error.contains(words), "{error}");
        }
    }

    /// The policy of chat prompts, and the token before the template.
    fn chat(before: &str, bos: BosChoice) -> (String, Option<u32>) {
        let template = format!("{before}{{{{ messages[0].content }}}}");
        let config = r#"{"bos_token": "<bos>"}"#;
        let files = [("tokenizer_config.json", config), ("chat_template.jinja", &*template)];
        let tokenizer = open(&files, TokenizerOptions { chat: true, bos, ..Default::default() }).unwrap();
        (tokenizer.bos().to_string(), tokenizer.prompt_bos_id())
    }

    #[test]
    fn a_chat_template_alone_decides_unless_the_user_does() {
        let auto = |before| chat(before, BosChoice::Auto);
        assert_eq!(auto("{{ bos_token }}A: "), ("<bos> (template)".to_owned(), None));
        assert_eq!(auto("<bos>A: "), ("<bos> (template)".to_owned(), None));
        assert_eq!(auto("A: "), ("none (template)".to_owned(), None));
        assert_eq!(chat("A: ", BosChoice::Add), ("<bos> (asked)".to_owned(), Some(0)));
        assert_eq!(chat("{{ bos_token }}", BosChoice::Omit), ("<bos> (template)".to_owned(), None));
        assert_eq!(chat("{{ bos_token }}", BosChoice::Add), ("<bos> (asked)".to_owned(), Some(0)));
    }

    #[test]
    fn a_model_without_a_template_is_a_usage_error_that_names_the_folder() {
        let error = open(&[], TokenizerOptions { chat: true, ..TokenizerOptions::default() }).err().unwrap();
        assert!(error.to_string().starts_with("--chat-template: ") && exit_code(&error) == 2, "{error}");
    }
}
