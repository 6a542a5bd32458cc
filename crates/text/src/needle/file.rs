//! Needles, questions and answers of a file: JSON objects, one after the other or in an array, or rows of a CSV.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure, Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::facts::Fact;
use super::place::{led, place};
use super::plan::NeedlePlan;
use super::NeedleSpec;
use base::bail_usage;
use base::csv_table::CsvTable;
use base::files::without_byte_order_mark;
use base::{files, json_objects};
use stats::Rng;

/// The needles of a file.
#[derive(Clone, Debug)]
pub struct NeedlesFile {
    path: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    needles: Vec<FileNeedle>,
}

/// A needle of the file.
#[derive(Clone, Debug)]
struct FileNeedle {
    /// Its sentence. Its name is the question.
    fact: Fact,
    /// The beginning of the reply, with what separates it from the answer.
    lead: Option<String>,
    /// A sentence in the haystack that resembles the needle and does not answer the question.
    distractor: Option<String>,
}

/// The texts of a needle.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    /// The sentence in the haystack.
    needle: String,
    /// The question about it.
    question: String,
    /// The answer, a part of the needle.
    answer: String,
    /// The beginning of the reply, which the answer follows.
    #[serde(default)]
    lead: Option<String>,
    #[serde(default)]
    distractor: Option<String>,
}

impl NeedlesFile {
    /// Reads a file.
    ///
    /// # Errors
    /// With file and line, for what is no JSON object or CSV row of `needle`, `question`, `answer` and maybe `lead` and
    /// `distractor`, all texts, or whose answer is not in one place of its needle.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::input(path, files::TEXT_MAX).context("the needles")?;
        let sha256 = base::hash::sha256(&bytes);
        let Ok(text) = String::from_utf8(bytes) else { bail!("the needles {} are not UTF-8 text", path.display()) };
        let text = without_byte_order_mark(text);
        let needles = if json_objects::is_json(text.as_bytes()) {
            of_json(&text)
        } else if text.trim().is_empty() {
            Ok(Vec::new())
        } else {
            of_csv(path)
        };
        let needles = needles.with_context(|| format!("the needles {}", path.display()))?;
        ensure!(!needles.is_empty(), "the needles {}: the file has none", path.display());
        Ok(Self { path: path.to_owned(), sha256, needles })
    }

    /// `true` if every reply begins with a lead.
    pub(crate) fn has_leads(&self) -> bool {
        self.needles.iter().all(|needle| needle.lead.is_some())
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
        let mut needles: Vec<Fact> = drawn.iter().map(|needle| needle.fact.clone()).collect();
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
    json_objects::each(text, |_, object| {
        needles.push(FileNeedle::of_object(object)?);
        Ok(())
    })?;
    Ok(needles)
}

/// The rows of a CSV. Of a row, what is empty is not there.
fn of_csv(path: &Path) -> Result<Vec<FileNeedle>> {
    let table = CsvTable::open(path)?;
    ensure!(
        ["needle", "question", "answer"].iter().all(|name| table.place(name).is_some()),
        "expected JSON objects, or a CSV with the columns needle, question and answer and maybe lead and distractor; its \
         columns are {}",
        table.names()
    );
    let header = table.header.clone();
    for name in header.iter().filter(|name| !is_index(name)) {
        let count = header.iter().filter(|other| other.trim() == name.trim()).count();
        ensure!(count == 1, "there are {count} columns `{}`", name.trim());
    }
    let mut needles = Vec::new();
    for row in table {
        let (line, row) = row?;
        // The index of a data frame has no name.
        let fields = header.iter().zip(&row).filter(|(name, field)| !is_index(name) && !field.is_empty());
        let fields = fields.map(|(name, field)| (name.trim().to_owned(), field.into())).collect();
        needles.push(FileNeedle::of_object(fields).with_context(|| format!("line {line}"))?);
    }
    Ok(needles)
}

/// Returns `true` if a column is the index of a data frame.
fn is_index(name: &str) -> bool {
    let name = name.trim();
    name.is_empty() || name.starts_with("Unnamed: ")
}

impl FileNeedle {
    /// Reads an object. A number is its digits, as data frames write answers that are whole numbers.
    fn of_object(mut object: Map<String, Value>) -> Result<Self> {
        for value in object.values_mut().filter(|value| value.is_number()) {
            *value = value.to_string().into();
        }
        Self::new(serde_json::from_value(Value::Object(object))?)
    }

    /// Makes runs of white space one space, and finds the answer in the needle. Spaces that do not break stay as they are.
    fn new(mut texts: Texts) -> Result<Self> {
        let of_all = [&mut texts.needle, &mut texts.question, &mut texts.answer];
        for text in of_all.into_iter().chain(&mut texts.lead).chain(&mut texts.distractor) {
            *text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(!text.trim().is_empty(), "a text is empty; leave `lead` and `distractor` out where there is none");
        }
        let Texts { needle, question, answer, lead, distractor } = texts;
        let at = place(&needle, answer.trim()).map_err(|how| anyhow!("the needle {needle:?} {how}"))?;
        let before = needle[..at.start].to_owned();
        let behind = needle[at.end..].to_owned();
        let value = needle[at].to_owned();
        let lead = lead.map(|lead| led(&lead, &before, &value));
        Ok(Self { fact: Fact { name: question, value, before, behind }, lead, distractor })
    }
}
