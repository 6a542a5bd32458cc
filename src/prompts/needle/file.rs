//! Needles, questions and answers of a file, one JSON object a line.

use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::Deserialize;

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
    sha256: String,
    lines: Vec<NeedleLine>,
}

/// A line of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedleLine {
    /// The sentence in the haystack.
    needle: String,
    /// The question about it.
    question: String,
    /// The answer, a part of the needle.
    answer: String,
    /// A sentence in the haystack that resembles the needle and does not answer the question.
    #[serde(default)]
    distractor: Option<String>,
}

impl NeedlesFile {
    /// Reads a file.
    ///
    /// # Errors
    /// With file and line, for a line that is empty, is no JSON object of `needle`, `question`, `answer` and maybe
    /// `distractor`, all texts, or whose answer is not in its needle.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::input(path, files::TEXT_MAX).context("the needles")?;
        let sha256 = crate::base::hash::sha256(&bytes);
        let Ok(text) = String::from_utf8(bytes) else { bail!("the needles {} are not UTF-8 text", path.display()) };
        let text = without_byte_order_mark(text);
        let mut lines = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let parsed = NeedleLine::parse(line);
            lines.push(parsed.with_context(|| format!("{}, line {}", path.display(), i + 1))?);
        }
        if lines.is_empty() {
            bail!("the needles {}: the file is empty", path.display());
        }
        Ok(Self { path: path.to_owned(), sha256, lines })
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The plan of a prompt: some lines drawn at random, the first of them asked for.
    ///
    /// # Errors
    /// A usage error if the file has fewer lines.
    pub(super) fn plan(&self, spec: &NeedleSpec, mut rng: Rng) -> Result<NeedlePlan> {
        if spec.needles > self.lines.len() {
            bail_usage!("{} has {} needles, not {}", self.path.display(), self.lines.len(), spec.needles);
        }
        let lines = rng.sample(&self.lines, spec.needles);
        let mut needles: Vec<Fact> = lines.iter().map(NeedleLine::fact).collect();
        needles.extend(lines[0].distractor.iter().map(|text| Fact {
            key: text.clone(),
            value: String::new(),
            before: text.clone(),
            behind: String::new(),
        }));
        Ok(NeedlePlan::asking(spec.form, needles, 0, spec.depth_pct, rng))
    }
}

impl NeedleLine {
    fn parse(line: &str) -> Result<Self> {
        if line.trim().is_empty() {
            bail!("the line is empty");
        }
        let mut parsed: Self = serde_json::from_str(line).map_err(without_place)?;
        let texts =
            [&mut parsed.needle, &mut parsed.question, &mut parsed.answer].into_iter().chain(&mut parsed.distractor);
        for (text, name) in texts.zip(["needle", "question", "answer", "distractor"]) {
            *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if text.is_empty() {
                bail!("`{name}` is empty");
            }
        }
        if !parsed.needle.contains(&parsed.answer) {
            bail!("the answer {:?} is not in the needle {:?}", parsed.answer, parsed.needle);
        }
        Ok(parsed)
    }

    fn fact(&self) -> Fact {
        let (before, behind) = self.needle.split_once(&self.answer).expect("the needle holds its answer");
        Fact {
            key: self.question.clone(),
            value: self.answer.clone(),
            before: before.to_owned(),
            behind: behind.to_owned(),
        }
    }
}

/// The message of an error without its line, which is always the first of a line, but with its column.
fn without_place(error: serde_json::Error) -> anyhow::Error {
    let (column, text) = (error.column(), error.to_string());
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    anyhow::anyhow!("column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::exit_code;

    const LINE: &str =
        r#"{"needle": "Yuki lives beside the opera.", "question": "Who lives there?", "answer": "Yuki"}"#;

    fn refusal(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("needles.jsonl");
        std::fs::write(&path, text).unwrap();
        let error = NeedlesFile::read(&path).unwrap_err();
        assert_eq!(exit_code(&error), 1);
        let message = format!("{error:#}");
        assert!(!message.contains('\n'), "{message}");
        message.replace(&path.display().to_string(), "F")
    }

    #[test]
    fn mistakes_name_file_line_and_what_is_wrong() {
        let after = |line: &str| refusal(&format!("{LINE}\n{line}\n{LINE}\n"));
        assert_eq!(after(""), "F, line 2: the line is empty");
        assert_eq!(
            after(&LINE.replace("\"Yuki\"", "\"Ann\"")),
            "F, line 2: the answer \"Ann\" is not in the needle \"Yuki lives beside the opera.\""
        );
        let number = after(&LINE.replace("\"Yuki\"", "7"));
        assert!(number.starts_with("F, line 2: column 86: invalid type: integer `7`, expected a string"), "{number}");
        assert!(after(&LINE.replace("\"answer\"", "\"reply\"")).contains("unknown field `reply`"));
        assert!(after(&LINE.replace(", \"answer\": \"Yuki\"", "")).contains("missing field `answer`"));
        assert_eq!(after(&LINE.replace("\"Yuki\"", "\" \"")), "F, line 2: `answer` is empty");
        assert!(after("[1]").starts_with("F, line 2: column "));
        assert_eq!(refusal(""), "the needles F: the file is empty");
    }
}
