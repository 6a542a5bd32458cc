//! Needles, questions and answers of a file: JSON objects, one after the other or in an array, or rows of a CSV.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::facts::Fact;
use super::plan::NeedlePlan;
use super::NeedleSpec;
use crate::bail_usage;
use crate::base::files;
use crate::base::rng::Rng;
use crate::prompts::text::without_byte_order_mark;

/// The needles of a file.
#[derive(Clone, Debug)]
pub struct NeedlesFile {
    path: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    needles: Vec<FileNeedle>,
}

/// A needle of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNeedle {
    /// The sentence in the haystack.
    needle: String,
    /// The question about it.
    question: String,
    /// The answer, a part of the needle.
    answer: String,
    /// The beginning of the reply, which the answer follows.
    #[serde(default)]
    lead: Option<String>,
    /// A sentence in the haystack that resembles the needle and does not answer the question.
    #[serde(default)]
    distractor: Option<String>,
}

impl NeedlesFile {
    /// Reads a file.
    ///
    /// # Errors
    /// With file and line, for what is no JSON object or CSV row of `needle`, `question`, `answer` and maybe `lead` and
    /// `distractor`, all texts, or whose answer is not in its needle.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::input(path, files::TEXT_MAX).context("the needles")?;
        let sha256 = crate::base::hash::sha256(&bytes);
        let Ok(text) = String::from_utf8(bytes) else { bail!("the needles {} are not UTF-8 text", path.display()) };
        let text = without_byte_order_mark(text);
        let needles = if text.trim_start().starts_with(['{', '[']) { of_json(&text) } else { of_csv(&text) };
        let needles = needles.with_context(|| format!("the needles {}", path.display()))?;
        ensure!(!needles.is_empty(), "the needles {}: the file has none", path.display());
        Ok(Self { path: path.to_owned(), sha256, needles })
    }

    /// The plan of a prompt: some lines drawn at random, the first of them asked for.
    ///
    /// # Errors
    /// A usage error if the file has fewer lines.
    pub(super) fn plan(&self, spec: &NeedleSpec, mut rng: Rng) -> Result<NeedlePlan> {
        if spec.needles > self.needles.len() {
            bail_usage!("{} has {} needles, not {}", self.path.display(), self.needles.len(), spec.needles);
        }
        let drawn = rng.sample(&self.needles, spec.needles);
        let mut needles: Vec<Fact> = drawn.iter().map(FileNeedle::fact).collect();
        if let Some(text) = &drawn[0].distractor {
            needles.push(Fact {
                name: text.clone(),
                value: String::new(),
                before: text.clone(),
                behind: String::new(),
            });
        }
        let mut plan = NeedlePlan::asking(spec.form, needles, 0, spec.depth_pct, rng);
        plan.lead.clone_from(&drawn[0].lead);
        Ok(plan)
    }
}

/// The objects of a JSON text, in arrays or not.
fn of_json(text: &str) -> Result<Vec<FileNeedle>> {
    let mut needles = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    loop {
        let rest = text[values.byte_offset()..].trim_start();
        match values.next().transpose()? {
            None => return Ok(needles),
            Some(Value::Array(entries)) => {
                for (i, entry) in entries.into_iter().enumerate() {
                    needles.push(FileNeedle::of_object(entry).with_context(|| format!("entry {}", i + 1))?);
                }
            }
            Some(value) => {
                needles.push(FileNeedle::of_object(value).with_context(|| format!("line {}", line_of(text, rest)))?);
            }
        }
    }
}

/// The line at which `rest`, the end of a text, begins.
fn line_of(text: &str, rest: &str) -> usize {
    text[..text.len() - rest.len()].matches('\n').count() + 1
}

/// The rows of a CSV.
fn of_csv(text: &str) -> Result<Vec<FileNeedle>> {
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let headers = rows.headers()?.clone();
    let mut columns = ["needle", "question", "answer"].into_iter();
    ensure!(
        text.trim().is_empty() || columns.all(|name| headers.iter().any(|header| header == name)),
        "expected JSON objects, or a CSV with the columns needle, question and answer and maybe lead and distractor"
    );
    let mut needles = Vec::new();
    for row in rows.deserialize::<FileNeedle>() {
        let row = row?;
        let said = row.answer.clone();
        needles.push(row.checked().with_context(|| format!("the row with the answer {said:?}"))?);
    }
    Ok(needles)
}

impl FileNeedle {
    fn of_object(value: Value) -> Result<Self> {
        ensure!(value.is_object(), "expected an object with `needle`, `question` and `answer`, not {value}");
        serde_json::from_value::<Self>(value)?.checked()
    }

    /// Makes runs of white space one space, and checks that no text is empty and the needle holds the answer.
    fn checked(mut self) -> Result<Self> {
        let texts = [&mut self.needle, &mut self.question, &mut self.answer];
        let texts = texts.into_iter().chain(&mut self.lead).chain(&mut self.distractor);
        for text in texts {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(!text.is_empty(), "a text is empty; leave `lead` and `distractor` out where there is none");
        }
        ensure!(
            self.needle.contains(&self.answer),
            "the answer {:?} is not in the needle {:?}",
            self.answer,
            self.needle
        );
        Ok(self)
    }

    fn fact(&self) -> Fact {
        let (before, behind) = self.needle.split_once(&self.answer).expect("the needle holds its answer");
        Fact {
            name: self.question.clone(),
            value: self.answer.clone(),
            before: before.to_owned(),
            behind: behind.to_owned(),
        }
    }
}
