//! Questions with passages in a file of JSON objects, with the names that data sets and tools of others use.

use super::split::split;
use super::{Context, Segment, Split};
use anyhow::{bail, ensure, Context as _, Result};
use base::files::{self, without_byte_order_mark};
use base::json_objects;
use names::SegmentKind;
use serde_json::{Map, Value};
use std::path::Path;

type Object = Map<String, Value>;

/// Names of the same in files of others, the most telling first: Liu et al.'s multi-document NQ, HotpotQA, MuSiQue, RGB, RAGAS, LlamaIndex,
/// LangChain, SQuAD, LongBench.
const QUESTION: [&str; 4] = ["question", "query", "user_input", "input"];
const ANSWERS: [&str; 6] = ["answers", "answer", "reference", "ground_truth", "ground_truths", "reference_answer"];
const MORE_ANSWERS: &str = "answer_aliases";
const WRONG: [&str; 2] = ["wrong", "fakeanswer"];
const PASSAGES: [&str; 8] = [
    "passages",
    "ctxs",
    "paragraphs",
    "retrieved_contexts",
    "contexts",
    "source_documents",
    "documents",
    "reference_contexts",
];
const TEXT: [&str; 7] = ["text", "paragraph_text", "page_content", "contents", "content", "sentences", "passage"];
const GOLD: [&str; 4] = ["gold", "isgold", "is_gold", "is_supporting"];
const ID: [&str; 4] = ["id", "_id", "qid", "question_id"];
const DOCUMENT: [&str; 3] = ["document", "document_id", "doc_id"];

/// Reads a file of questions with their passages. `by` cuts passages further; a text without passages is cut anyway.
///
/// # Errors
/// If the file cannot be read, or an object has no question or no passages; with its place.
pub fn read_questions(path: &Path, by: Option<Split>) -> Result<(Vec<Context>, String)> {
    let bytes = files::input(path, files::TEXT_MAX).context("the questions")?;
    let sha256 = base::hash::sha256(&bytes);
    let name = || format!("the questions {}", path.display());
    let Ok(text) = String::from_utf8(bytes) else { bail!("{} are not UTF-8 text", name()) };
    let mut contexts = Vec::new();
    json_objects::each(&without_byte_order_mark(text), |_, object| add(&mut contexts, &object, by))
        .with_context(name)?;
    ensure!(!contexts.is_empty(), "{}: the file has none", name());
    Ok((contexts, sha256))
}

/// Adds what an object of the file holds: one question, or the many of SQuAD and LlamaIndex.
fn add(contexts: &mut Vec<Context>, object: &Object, by: Option<Split>) -> Result<()> {
    if let Some(articles) = object.get("data").and_then(Value::as_array) {
        return articles.iter().try_for_each(|article| add_article(contexts, article, by));
    }
    if let Some(examples) = object.get("examples").and_then(Value::as_array) {
        for (number, example) in (1..).zip(examples) {
            let example = example.as_object().with_context(|| format!("examples, {number}: not an object"))?;
            add(contexts, example, by).with_context(|| format!("examples, {number}"))?;
        }
        return Ok(());
    }
    let number = contexts.len() + 1;
    contexts.push(context(object, number, by)?);
    Ok(())
}

/// Adds the questions of an article of SQuAD, whose paragraphs are one document.
fn add_article(contexts: &mut Vec<Context>, article: &Value, by: Option<Split>) -> Result<()> {
    let document = article["title"].as_str();
    for paragraph in article["paragraphs"].as_array().into_iter().flatten() {
        for question in paragraph["qas"].as_array().into_iter().flatten() {
            let mut object = question.as_object().context("qas: not objects")?.clone();
            object.insert("context".to_owned(), paragraph["context"].clone());
            let context = context(&object, contexts.len() + 1, by)?;
            contexts.push(Context { document: document.map(str::to_owned), ..context });
        }
    }
    Ok(())
}

fn context(object: &Object, number: usize, by: Option<Split>) -> Result<Context> {
    let (_, question) = first(object, &QUESTION).with_context(|| missing("question", &QUESTION, object))?;
    let mut given = match first(object, &ANSWERS) {
        Some((name, value)) => texts(value).with_context(|| name.to_owned())?,
        None => Vec::new(),
    };
    if let Some(more) = object.get(MORE_ANSWERS) {
        given.extend(texts(more).context(MORE_ANSWERS)?);
    }
    let mut answers = Vec::new();
    for answer in given {
        if !answer.trim().is_empty() && !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    let segments = segments(object, by)?;
    ensure!(!segments.is_empty(), "every passage is empty");
    Ok(Context {
        id: first(object, &ID).map_or_else(|| number.to_string(), |(_, id)| words(id)),
        document: first(object, &DOCUMENT).map(|(_, document)| words(document)),
        question: question.as_str().context("question: not a text")?.trim().to_owned(),
        answers,
        wrong: first(object, &WRONG)
            .map(|(name, wrong)| wrong.as_str().map(str::to_owned).with_context(|| format!("{name}: not a text")))
            .transpose()?,
        lead: object.get("lead").and_then(Value::as_str).map(str::to_owned),
        segments,
    })
}

/// The passages, which come in many forms.
fn segments(object: &Object, by: Option<Split>) -> Result<Vec<Segment>> {
    // RGB: lists by what they say.
    if let Some(right) = object.get("positive") {
        let mut all = Vec::new();
        for (name, kind) in [
            ("positive", SegmentKind::Right),
            ("positive_wrong", SegmentKind::Otherwise),
            ("negative", SegmentKind::Other),
        ] {
            let list = if name == "positive" { Some(right) } else { object.get(name) };
            for text in list.map(texts).transpose().context(name)?.into_iter().flatten() {
                all.extend(passage("", &text, kind, by));
            }
        }
        return Ok(joined(all));
    }
    if let Some((name, list)) = first(object, &PASSAGES) {
        let list = list.as_array().with_context(|| format!("{name}: not a list"))?;
        let knows =
            list.iter().any(|passage| passage.as_object().is_some_and(|passage| first(passage, &GOLD).is_some()));
        let mut all = Vec::new();
        for (number, value) in (1..).zip(list) {
            all.extend(of_value(value, knows, by).with_context(|| format!("{name}, {number}"))?);
        }
        return Ok(joined(all));
    }
    match object.get("context").or_else(|| object.get("text")) {
        Some(Value::String(text)) => Ok(split(text, by)),
        Some(context) => hotpot(context, object.get("supporting_facts"), by).map(joined),
        None => Err(missing("passages", &PASSAGES, object)),
    }
}

/// A passage: a text, or an object with one.
fn of_value(value: &Value, knows: bool, by: Option<Split>) -> Result<Vec<Segment>> {
    let unknown = if knows { SegmentKind::Other } else { SegmentKind::Unknown };
    match value {
        Value::String(text) => Ok(passage("", text, unknown, by)),
        Value::Object(object) => {
            let (name, text) = first(object, &TEXT).with_context(|| missing("text", &TEXT, object))?;
            let text = texts(text).with_context(|| name.to_owned())?.join(" ");
            let is_gold = match first(object, &GOLD) {
                Some((name, gold)) => gold.as_bool().with_context(|| format!("{name}: neither true nor false"))?,
                None => false,
            };
            let title = object.get("title").and_then(Value::as_str).unwrap_or_default();
            Ok(passage(title, &text, if is_gold { SegmentKind::Right } else { unknown }, by))
        }
        _ => bail!("neither a text nor an object with one"),
    }
}

/// The passages of HotpotQA, in a file or on the hub, of which those with supporting facts are right.
fn hotpot(context: &Value, facts: Option<&Value>, by: Option<Split>) -> Result<Vec<Segment>> {
    let pairs: Vec<(String, String)> = match context {
        Value::Array(list) if list.iter().all(Value::is_string) => {
            return Ok(texts(context)?.iter().flat_map(|text| passage("", text, SegmentKind::Unknown, by)).collect());
        }
        Value::Array(list) if list.iter().all(Value::is_object) => {
            let passages = list.iter().map(|value| of_value(value, false, by)).collect::<Result<Vec<_>>>()?;
            return Ok(passages.concat());
        }
        Value::Array(list) => list.iter().map(titled).collect::<Result<_>>()?,
        Value::Object(columns) => {
            let [titles, sentences] = ["title", "sentences"].map(|name| columns.get(name).and_then(Value::as_array));
            let (titles, sentences) = titles.zip(sentences).context("context: no title and sentences")?;
            let texts = sentences.iter().map(|list| Ok(texts(list)?.join(" "))).collect::<Result<Vec<_>>>()?;
            titles.iter().map(words).zip(texts).collect()
        }
        _ => bail!("context: neither a text nor passages"),
    };
    let right: Vec<String> = match facts {
        Some(Value::Array(list)) => list.iter().filter_map(|fact| fact[0].as_str()).map(str::to_owned).collect(),
        Some(Value::Object(columns)) => columns.get("title").map(texts).transpose()?.unwrap_or_default(),
        _ => Vec::new(),
    };
    let kind = |title: &String| match (right.is_empty(), right.contains(title)) {
        (true, _) => SegmentKind::Unknown,
        (false, true) => SegmentKind::Right,
        (false, false) => SegmentKind::Other,
    };
    Ok(pairs.iter().flat_map(|(title, text)| passage(title, text, kind(title), by)).collect())
}

/// A title with its sentences.
fn titled(pair: &Value) -> Result<(String, String)> {
    let title = pair[0].as_str().context("context: neither texts nor pairs of title and sentences")?;
    Ok((title.to_owned(), texts(&pair[1])?.join(" ")))
}

/// The segments of a passage: itself, or its parts. A passage without text has none.
fn passage(title: &str, text: &str, kind: SegmentKind, by: Option<Split>) -> Vec<Segment> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return Vec::new();
    }
    let whole = if title.trim().is_empty() { text } else { format!("{}: {text}", title.trim()) };
    match by {
        Some(Split::Sentences | Split::Lines | Split::Paragraphs) => {
            split(&whole, by).into_iter().map(|segment| Segment { kind, ..segment }).collect()
        }
        Some(Split::Passages | Split::Files) | None => vec![Segment { before: String::new(), text: whole, kind }],
    }
}

/// Passages with an empty line between two.
fn joined(mut passages: Vec<Segment>) -> Vec<Segment> {
    for segment in passages.iter_mut().skip(1).filter(|segment| segment.before.is_empty()) {
        segment.before = "\n\n".to_owned();
    }
    passages
}

/// The value of the first of these keys that an object has.
fn first<'a>(object: &'a Object, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    names.iter().find_map(|name| Some((*name, object.get(*name).filter(|value| !value.is_null())?)))
}

/// The texts of a value: one, a list of them or of lists, or `{text: …}`.
fn texts(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Number(number) => Ok(vec![number.to_string()]),
        Value::Array(list) => Ok(list.iter().map(texts).collect::<Result<Vec<_>>>()?.concat()),
        Value::Object(object) => texts(object.get("text").context("an object without `text`")?),
        Value::Null | Value::Bool(_) => bail!("not a text"),
    }
}

/// A name or a number as a text.
fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn missing(what: &str, names: &[&str], object: &Object) -> anyhow::Error {
    let there: Vec<&str> = object.keys().map(String::as_str).collect();
    anyhow::anyhow!("no {what} ({}); its keys are {}", names.join(", "), there.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(json: &str) -> Result<Vec<Context>> {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("questions.jsonl");
        fs::write(&path, json).unwrap();
        Ok(read_questions(&path, None)?.0)
    }

    /// The question, its answers, and the passages with their kinds.
    fn shown(context: &Context) -> String {
        let passages: Vec<String> =
            context.segments.iter().map(|segment| format!("{} {}", segment.kind.name(), segment.text)).collect();
        format!("{}: {} | {}", context.question, context.answers.join(", "), passages.join(" | "))
    }

    #[test]
    fn files_of_others_are_read_as_they_are() {
        const GOLD: &str = "Q?: a | right T: Right one. | other U: Other.";
        for (what, json, wanted) in [
            (
                "our own",
                r#"{"question": "Q?", "answers": ["a"], "passages": [{"title": "T", "text": "Right one.", "gold": true}, {"title": "U", "text": "Other."}]}"#,
                GOLD,
            ),
            (
                "texts alone",
                r#"{"question": "Q?", "passages": ["Right one.", "Other."]}"#,
                "Q?:  | unknown Right one. | unknown Other.",
            ),
            (
                "Liu et al.",
                r#"{"question": "Q?", "answers": ["a"], "ctxs": [{"id": "1", "title": "T", "text": "Right one.", "isgold": true, "hasanswer": true}, {"title": "U", "text": "Other.", "isgold": false}]}"#,
                GOLD,
            ),
            (
                "HotpotQA",
                r#"{"_id": "x", "question": "Q?", "answer": "a", "supporting_facts": [["T", 0]], "context": [["T", ["Right", " one."]], ["U", ["Other."]]]}"#,
                GOLD,
            ),
            (
                "HotpotQA on the hub",
                r#"{"id": "x", "question": "Q?", "answer": "a", "supporting_facts": {"title": ["T"], "sent_id": [0]}, "context": {"title": ["T", "U"], "sentences": [["Right one."], ["Other."]]}}"#,
                GOLD,
            ),
            (
                "MuSiQue",
                r#"{"id": "m", "question": "Q?", "answer": "a", "answer_aliases": ["a", "b"], "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Right one.", "is_supporting": true}, {"title": "U", "paragraph_text": "Other.", "is_supporting": false}]}"#,
                "Q?: a, b | right T: Right one. | other U: Other.",
            ),
            (
                "RGB",
                r#"{"id": 0, "query": "Q?", "answer": [["a", "b"]], "positive": ["Right one."], "positive_wrong": ["Not so."], "negative": ["Other."], "fakeanswer": "c"}"#,
                "Q?: a, b | right Right one. | otherwise Not so. | other Other.",
            ),
            (
                "RAGAS",
                r#"{"user_input": "Q?", "retrieved_contexts": ["One.", "Two."], "response": "r", "reference": "a"}"#,
                "Q?: a | unknown One. | unknown Two.",
            ),
            (
                "RAGAS before",
                r#"{"question": "Q?", "contexts": ["One."], "answer": "a", "ground_truth": "b"}"#,
                "Q?: a | unknown One.",
            ),
            (
                "LlamaIndex",
                r#"{"examples": [{"query": "Q?", "reference_contexts": ["One."], "reference_answer": "a"}]}"#,
                "Q?: a | unknown One.",
            ),
            (
                "LangChain",
                r#"{"query": "Q?", "result": "r", "source_documents": [{"page_content": "One.", "metadata": {}}]}"#,
                "Q?:  | unknown One.",
            ),
            (
                "SQuAD",
                r#"{"data": [{"title": "D", "paragraphs": [{"context": "One. Two.", "qas": [{"id": "q", "question": "Q?", "answers": [{"text": "a", "answer_start": 0}]}]}]}]}"#,
                "Q?: a | unknown One. | unknown Two.",
            ),
            (
                "SQuAD on the hub",
                r#"{"id": "q", "title": "D", "context": "One. Two.", "question": "Q?", "answers": {"text": ["a"], "answer_start": [0]}}"#,
                "Q?: a | unknown One. | unknown Two.",
            ),
            (
                "LongBench",
                r#"{"input": "Q?", "context": "One.", "answers": ["a"], "length": 1, "_id": "l"}"#,
                "Q?: a | unknown One.",
            ),
        ] {
            assert_eq!(
                read(json).map(|contexts| shown(&contexts[0])).unwrap_or_else(|error| format!("{error:#}")),
                wanted,
                "{what}"
            );
        }
        let contexts = read(
            "{\"question\": \"Q?\", \"passages\": [\"a\", \" \", \"河很宽。\", \"هل ترى القارب؟\"], \"document\": 7}",
        )
        .unwrap();
        assert_eq!(
            (contexts[0].segments.len(), contexts[0].document.as_deref()),
            (3, Some("7")),
            "an empty passage says nothing"
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_place() {
        for (json, wanted) in [
            (r#"{"passages": ["a"]}"#, "line 1: no question"),
            (
                "{\"question\": \"Q?\", \"passages\": [\"a\"]}\n{\"question\": \"Q?\"}",
                "line 2: no passages (passages, ctxs",
            ),
            (r#"[{"question": "Q?", "passages": [7]}]"#, "entry 1: passages, 1: neither a text"),
            (r#"{"question": "Q?", "passages": [{"title": "a"}]}"#, "no text (text, paragraph_text"),
            (r#"{"question": "Q?", "passages": [{"text": "a", "gold": 1}]}"#, "gold: neither true nor false"),
            (r#"{"question": "Q?", "passages": [" "]}"#, "every passage is empty"),
            ("", "the file has none"),
        ] {
            let error = format!("{:#}", read(json).unwrap_err());
            assert!(error.contains(wanted), "{json}: {error}");
        }
    }
}
