//! Rendering of chat templates with Jinja as in `transformers`.

use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{context, AutoEscape, Environment, Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// A template with its inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TemplateJob {
    /// The template.
    pub(super) source: String,
    /// Special tokens by name.
    pub(super) tokens: Vec<(String, String)>,
    /// The messages of the conversation.
    pub(super) messages: Vec<serde_json::Value>,
    /// `true` if the assistant is about to speak.
    pub(super) add_generation_prompt: bool,
    /// Further variables by name.
    pub(super) variables: Vec<(String, serde_json::Value)>,
}

/// Reason why a template cannot be rendered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TemplateError {
    pub(super) line: Option<usize>,
    pub(super) what: String,
}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        Self { line: error.line(), what }
    }
}

/// Renders a template.
pub(super) fn render(job: &TemplateJob) -> Result<String, TemplateError> {
    // Jinja reads every line ending as `\n`.
    let source = without_generation_tags(&job.source.replace("\r\n", "\n").replace('\r', "\n"));
    let mut environment = environment();
    environment.add_template("chat", &source)?;
    let tokens = job.tokens.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str())));
    let others = job.variables.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value))));
    let variables = context! {
        messages => Serde(&job.messages),
        tools => (),
        documents => (),
        add_generation_prompt => job.add_generation_prompt,
        // Later pairs count.
        ..Value::from_pairs(tokens.chain(others))
    };
    Ok(environment.get_template("chat")?.render(variables)?)
}

/// The Jinja environment of `transformers`.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are Jinja's own"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    // To the library `none` is an empty list, to Jinja it is not.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("the template refuses: {message}")))
    });
    environment.add_function("strftime_now", strftime);
    environment
}

/// Date that templates receive as today, so that prompts do not depend on when they are made: 26 July 2024, the default
/// of Llama's templates.
const TODAY: [(&str, &str); 12] = [
    ("%d", "26"),
    ("%b", "Jul"),
    ("%B", "July"),
    ("%m", "07"),
    ("%Y", "2024"),
    ("%y", "24"),
    ("%a", "Fri"),
    ("%A", "Friday"),
    ("%j", "208"),
    ("%H", "00"),
    ("%M", "00"),
    ("%S", "00"),
];

/// Python's `strftime` on that day.
fn strftime(format: &str) -> Result<String, Error> {
    let text = TODAY.iter().fold(format.to_owned(), |text, (directive, part)| text.replace(directive, part));
    if text.contains('%') {
        let known = TODAY.map(|(directive, _)| directive).join(" ");
        let message = format!("strftime_now({format:?}): only {known} are known");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(text)
}

/// Replaces the tags with which `transformers` marks the assistant's text by tags without effect.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        let Some((inside, after)) = tag.split_once("%}") else { break };
        let word = inside.trim_matches(|c: char| c.is_whitespace() || "-+".contains(c));
        let inside = match word {
            "generation" => inside.replacen(word, "if true", 1),
            "endgeneration" => inside.replacen(word, "endif", 1),
            _ => inside.to_owned(),
        };
        text += &format!("{before}{{%{inside}%}}");
        rest = after;
    }
    text + rest
}

/// Python's `json.dumps(..., ensure_ascii=False)`, with its spaces and without escapes for HTML. Other options than `indent`
/// are errors.
fn to_json(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = indent.map_or_else(|| options.get("indent"), |indent| Ok(Some(indent)))?;
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: ensure_ascii=True is not supported"));
    }
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent.map(|indent| " ".repeat(indent)) {
        Some(indent) => {
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, pretty))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, SpacedFormatter)),
    };
    written.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    Ok(String::from_utf8(bytes).expect("JSON is UTF-8"))
}

/// JSON formatter with a space after `,` and `:`, on one line.
struct SpacedFormatter;

impl serde_json::ser::Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
