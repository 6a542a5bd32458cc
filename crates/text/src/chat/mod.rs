//! Chat templates: the Jinja templates of instruct models, rendered like Hugging Face's `apply_chat_template`.

mod jinja;
pub mod sandbox;
mod thinking;
mod wrapping;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{anyhow, bail, Context, Result};

use super::tokenizer::config::TokenizerConfig;
use base::bail_usage;
use base::files;
use base::hash::sha256;
use base::model_files::CHAT_TEMPLATE;
use jinja::{TemplateError, TemplateJob};
use names::serde_as_str;
use serde_json::{json, Value};
pub use wrapping::Wrapping;

/// Marker for the user's content. It has characters that a template could escape, trim, split or convert to another
/// case.
const MARK: &str = "Content of the USER's \"message\" <begin> & \\n\n\n  \u{e9} {{ end }}. ?";

/// Maximum size of a file with a template, in bytes; usual ones have some ten thousand.
const TEMPLATE_MAX: u64 = 1 << 20;

/// Variables that a user cannot set.
const OWN_VARIABLES: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A chat template, with the special tokens it may write.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// Place it was read from, for messages.
    name: String,
    /// The file it was read from.
    pub(super) path: PathBuf,
    source: String,
    tokens: Vec<(String, String)>,
    args: Vec<TemplateArg>,
}

/// A variable that a chat template is rendered with, as in `enable_thinking=false`.
///
/// The value is JSON, or else a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateArg {
    key: String,
    value: Value,
}

impl FromStr for TemplateArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
        if key.is_empty() || !key.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(format!("`{key}` is not the name of a variable"));
        }
        if OWN_VARIABLES.contains(&key) {
            return Err(format!("`{key}` is set by difftool"));
        }
        let value = match value {
            "True" => true.into(),
            "False" => false.into(),
            "None" => Value::Null,
            _ => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        };
        Ok(Self { key: key.to_owned(), value })
    }
}

serde_as_str!(TemplateArg);

impl fmt::Display for TemplateArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            // A string that would be read as something else keeps its quotes.
            Value::String(text) if serde_json::from_str::<Value>(text).is_err() => write!(f, "{}={text}", self.key),
            value => write!(f, "{}={value}", self.key),
        }
    }
}

/// The text that a chat template writes around the content of a user's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The text before.
    pub before: String,
    /// The text behind, up to where the assistant's answer begins.
    pub after: String,
    /// The part of the text behind that comes between the generation prompt and the answer; `None` for most templates.
    pub opening: Option<String>,
}

impl ChatTemplate {
    /// Reads the template of a model's folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`,
    /// from a list the one named `default`. `None` if there is no template.
    ///
    /// # Errors
    /// If a file exists but cannot be read or parsed.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        Self::read_with(folder, &TokenizerConfig::read(folder)?)
    }

    pub(super) fn read_with(folder: &Path, config: &TokenizerConfig) -> Result<Option<Self>> {
        let tokens = config.tokens.clone().into_iter().collect();
        let path = folder.join(CHAT_TEMPLATE);
        if files::is_there(&path) {
            let source = files::text(&path, TEMPLATE_MAX)?;
            return Ok(Some(Self { name: path.display().to_string(), path, source, tokens, args: Vec::new() }));
        }
        let name = format!("{}, chat_template", config.path.display());
        let source = match &config.chat_template {
            None => return Ok(None),
            Some(Value::String(source)) => source.clone(),
            Some(list) => default_of(list).with_context(|| name.clone())?,
        };
        Ok(Some(Self { name, path: config.path.clone(), source, tokens, args: Vec::new() }))
    }

    /// The template with further variables.
    ///
    /// # Errors
    /// A usage error for a variable that the template does not mention.
    pub fn with_args(self, args: &[TemplateArg]) -> Result<Self> {
        if let Some(arg) = args.iter().find(|arg| !self.source.contains(&arg.key)) {
            bail_usage!("--template-arg {arg}: {} does not read `{}`", self.name, arg.key);
        }
        Ok(Self { args: args.to_vec(), ..self })
    }

    /// The text before and after the content of one user message. It is found by rendering a message with a marker as its
    /// content.
    ///
    /// The generation prompt of some models opens a thinking block, or ends before the channel of the answer. An answer
    /// directly behind it would stand where the model thinks. The text that the template itself writes between the
    /// generation prompt and an answer is therefore added.
    ///
    /// # Errors
    /// If the template is invalid, raises an exception, or does not write the content exactly once and unchanged.
    pub fn text_around(&self) -> Result<Around> {
        let text =
            self.rendered(&[message("user", MARK)], true, &[])?.map_err(|refused| self.with_location(&refused))?;
        let Some((before, after)) = text.split_once(MARK) else {
            bail!("{}: the template changes or drops the content of a user message", self.name);
        };
        if after.contains(MARK) {
            bail!("{}: the template writes the content of a user message more than once", self.name);
        }
        let opening = thinking::opening(self, after)?;
        let after = format!("{after}{}", opening.as_deref().unwrap_or_default());
        Ok(Around { before: before.to_owned(), after, opening })
    }

    /// The text behind a user's message, with this reply of the assistant or with none.
    pub(super) fn behind_user(&self, reply: Option<Value>, args: &[(&str, Value)]) -> Result<Option<String>> {
        let add_generation_prompt = reply.is_none();
        let messages: Vec<Value> = std::iter::once(message("user", MARK)).chain(reply).collect();
        let text = self.rendered(&messages, add_generation_prompt, args)?.ok();
        Ok(text.and_then(|text| Some(text.split_once(MARK)?.1.to_owned())))
    }

    /// Renders messages. The inner error is the template's own.
    fn rendered(
        &self,
        messages: &[Value],
        add_generation_prompt: bool,
        args: &[(&str, Value)],
    ) -> Result<Result<String, TemplateError>> {
        let own = self.args.iter().map(|arg| (arg.key.clone(), arg.value.clone()));
        let job = TemplateJob {
            source: self.source.clone(),
            tokens: self.tokens.clone(),
            messages: messages.to_vec(),
            add_generation_prompt,
            variables: own.chain(args.iter().map(|(key, value)| ((*key).to_owned(), value.clone()))).collect(),
        };
        sandbox::render_bounded(&job).with_context(|| self.name.clone())
    }

    /// SHA-256 of the template, in hexadecimal.
    pub fn sha256(&self) -> String {
        sha256(self.source.as_bytes())
    }

    /// An error of the template, with its file and line.
    fn with_location(&self, refused: &TemplateError) -> anyhow::Error {
        let line = refused.line.map(|line| format!(", line {line}")).unwrap_or_default();
        anyhow!("{}{line}: {}", self.name, refused.what)
    }
}

/// A message of a conversation.
fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// The template named `default` in a list of `{name, template}`.
fn default_of(list: &Value) -> Result<String> {
    let Some(list) = list.as_array() else {
        bail!("expected a template or a list of named templates");
    };
    let mut names = Vec::new();
    for entry in list {
        match (entry["name"].as_str(), entry["template"].as_str()) {
            (Some("default"), Some(source)) => return Ok(source.to_owned()),
            (name, _) => names.extend(name),
        }
    }
    bail!("none of the templates is named \"default\": {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// ChatML with a default system message, as Qwen has it.
    const CHATML: &str = "\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

    /// Llama 3: BOS, headers, a date.
    const LLAMA: &str = "\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now('%d %b %Y') %}
    {%- else %}
        {%- set date_string = '1 Jan 1970' %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'].strip() %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}
    {{- tools | tojson(indent=4) }}
{%- endif %}
{{- 'Today Date: ' + date_string + '\\n\\n' }}
{{- system_message }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";

    /// Gemma: BOS, no system role, alternating roles, trimmed blocks.
    const GEMMA: &str = "\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}\
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}";

    /// Mistral: BOS, a namespace, no generation prompt.
    const MISTRAL: &str = "\
{%- set ns = namespace(index=0) %}
{{- bos_token }}
{%- for message in messages | selectattr('role', 'ne', 'system') %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] + '[/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- generation %}{{- ' ' + message['content'] + eos_token }}{%- endgeneration %}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
";

    const TOKENS: &str = r#""bos_token": "<s>", "eos_token": {"content": "</s>"}"#;

    /// The template of a folder with these files.
    fn read(files: &[(&str, &str)]) -> Result<Option<ChatTemplate>> {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        ChatTemplate::read(folder.path())
    }

    fn template(source: &str) -> ChatTemplate {
        let config = format!("{{{TOKENS}}}");
        read(&[("chat_template.jinja", source), ("tokenizer_config.json", &config)]).unwrap().unwrap()
    }

    fn text_around(source: &str) -> Result<(String, String)> {
        template(source).text_around().map(|around| (around.before, around.after))
    }

    #[test]
    fn templates_of_the_known_families_are_rendered_as_transformers_does() {
        // Expected output of jinja2 3.1 with the options of transformers.
        for (template, before, after) in [
            (
                CHATML,
                "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
                "<|im_end|>\n<|im_start|>assistant\n",
            ),
            (
                LLAMA,
                "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n<|eot_id|>\
                 <|start_header_id|>user<|end_header_id|>\n\n",
                "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (GEMMA, "<s><start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"),
            (MISTRAL, "<s>[INST] ", "[/INST]"),
        ] {
            let expected = (before.to_owned(), after.to_owned());
            assert_eq!(text_around(template).unwrap(), expected, "{template}");
            assert_eq!(text_around(&template.replace('\n', "\r\n")).unwrap(), expected, "{template}");
        }
    }

    /// Templates that `tests/real_models.sh` gets, against Jinja2 (`tests/fixtures/export_templates.py`).
    #[test]
    fn templates_of_llama_cpp_are_rendered_as_jinja_renders_them() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = root.join("target/real-models/templates");
        if !folder.exists() {
            eprintln!("not tested: {} is not there; tests/real_models.sh gets it", folder.display());
            return;
        }
        let stored = fs::read(root.join("tests/fixtures/templates.json")).unwrap();
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        let tokens = serde_json::from_value::<std::collections::BTreeMap<String, String>>(stored["tokens"].clone());
        let tokens: Vec<(String, String)> = tokens.unwrap().into_iter().collect();
        let conversations: Vec<Vec<Value>> = serde_json::from_value(stored["conversations"].clone()).unwrap();
        let mut differ = Vec::new();
        for (name, texts) in stored["templates"].as_object().unwrap() {
            let path = folder.join(format!("{name}.jinja"));
            let source = files::text(&path, TEMPLATE_MAX).unwrap();
            let template = ChatTemplate { name: name.clone(), path, source, tokens: tokens.clone(), args: Vec::new() };
            for (i, (messages, want)) in conversations.iter().zip(texts.as_array().unwrap()).enumerate() {
                let got = template.rendered(messages, true, &[]).unwrap();
                match (got, want.as_str()) {
                    (Ok(text), Some(want)) if sha256(text.as_bytes())[..16] == *want => {}
                    (got, Some(_)) => differ.push(format!("{name}, conversation {i}: {got:?}")),
                    // Refused there: tool templates that read a list of no tools, which is empty here.
                    (_, None) => {}
                }
            }
        }
        assert!(differ.is_empty(), "{}:\n{}", differ.len(), differ.join("\n"));
    }

    #[test]
    fn the_template_is_found_in_either_file_and_the_jinja_file_wins() {
        let source = |files: &[(&str, &str)]| read(files).unwrap().map(|template| template.source);
        let one = (r#"{"chat_template": "one"}"#, "one");
        let list =
            r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        assert_eq!(source(&[]), None);
        assert_eq!(source(&[("tokenizer_config.json", r#"{"chat_template": null}"#)]), None);
        assert_eq!(source(&[("tokenizer_config.json", one.0)]).as_deref(), Some(one.1));
        assert_eq!(source(&[("tokenizer_config.json", list)]).as_deref(), Some("d"));
        assert_eq!(source(&[("chat_template.jinja", "j"), ("tokenizer_config.json", one.0)]).as_deref(), Some("j"));
        let list = r#"{"chat_template": [{"name": "rag", "template": "t"}]}"#;
        let error = format!("{:#}", read(&[("tokenizer_config.json", list)]).unwrap_err());
        assert!(
            error.contains("tokenizer_config.json") && error.contains("default") && error.ends_with("rag"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        for (template, words) in [
            ("a\n{% if %}", ["chat_template.jinja, line 2: ", "end of block"]),
            ("a\nb\n{{ raise_exception('no users') }}", ["chat_template.jinja, line 3: ", "refuses: no users"]),
            ("{{ messages[0].content.nope() }}", ["chat_template.jinja, line 1: ", "nope"]),
            ("\n{{ strftime_now('%U') }}", ["chat_template.jinja, line 2: ", "only %d"]),
        ] {
            let error = text_around(template).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        let template = read(&[("tokenizer_config.json", "{\"chat_template\": \"\\n{{ x.y.z }}\"}")]).unwrap().unwrap();
        let error = template.text_around().unwrap_err().to_string();
        assert!(error.contains("tokenizer_config.json, chat_template, line 2: "), "{error}");
    }

    #[test]
    fn a_template_that_does_not_keep_the_content_is_refused() {
        for (template, words) in [
            ("hello", "changes or drops"),
            ("{{ messages[0].content | upper }}", "changes or drops"),
            ("{{ messages[0].content | tojson }}", "changes or drops"),
            ("{{ messages[0].content.split('\\n')[0] }}", "changes or drops"),
            ("{{ messages[0].content }}{{ messages[0].content }}", "more than once"),
        ] {
            let error = text_around(template).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("chat_template.jinja"), "{template}: {error}");
        }
        assert!(text_around("{{ messages[0].content | trim }}").is_ok());
    }

    #[test]
    fn json_is_written_as_python_does() {
        let json = |template: &str| text_around(&format!("{template}{{{{ messages[0].content }}}}")).unwrap().0;
        assert_eq!(json("{{ {'a': [1, '<é>'], 'b': none} | tojson }}"), r#"{"a": [1, "<é>"], "b": null}"#);
        assert_eq!(json("{{ {'a': '<'} | tojson(ensure_ascii=False) }}"), r#"{"a": "<"}"#);
        let error = text_around("{{ 'a' | tojson(sort_keys=true) }}{{ messages[0].content }}").unwrap_err().to_string();
        assert!(error.contains("sort_keys"), "{error}");
        assert_eq!(json("{{ {'a': [1]} | tojson(2) }}"), json("{{ {'a': [1]} | tojson(indent=2) }}"));
        assert_eq!(json("{{ {'a': [1]} | tojson(indent=2) }}"), "{\n  \"a\": [\n    1\n  ]\n}");
    }

    #[test]
    fn the_date_is_always_the_same() {
        let date =
            |format: &str| text_around(&format!("{{{{ strftime_now('{format}') }}}}{{{{ messages[0].content }}}}"));
        assert_eq!(date("%A, %d %B %Y %H:%M").unwrap().0, "Friday, 26 July 2024 00:00");
    }

    #[test]
    fn variables_are_given_to_the_template_as_python_has_them() {
        let source = "{{ a is true }} {{ b }} {{ c + 1 }} {{ d is none }} {{ e }}{{ messages[0].content }}";
        let args = ["a=true", "b=high", "c=2", "d=None", "e=\"5\""].map(|text| text.parse::<TemplateArg>().unwrap());
        let before = template(source).with_args(&args).unwrap().text_around().unwrap().before;
        assert_eq!(before, "True high 3 True 5");
        for arg in args {
            assert_eq!(arg.to_string().parse::<TemplateArg>().unwrap(), arg);
        }
        for bad in ["x", "=1", "a b=1", "messages=[]"] {
            assert!(bad.parse::<TemplateArg>().is_err(), "{bad}");
        }
        let error = template(source).with_args(&["thinking=true".parse().unwrap()]).unwrap_err();
        assert!(error.to_string().contains("does not read `thinking`"), "{error}");
        assert_eq!(base::error::exit_code(&error), 2);
    }

    #[test]
    fn none_is_not_iterable_and_what_is_not_defined_is() {
        // As jinja2 3.1 has it.
        let source = "{{ none is iterable }} {{ nothing is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }}{{ messages[0].content }}";
        assert_eq!(text_around(source).unwrap().0, "False True True False");
    }
}
