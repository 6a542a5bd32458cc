//! The flags of contexts.

use super::{read_questions, split, Context, Kept, Split};
use crate::{Text, Tokenizer};
use anyhow::{Context as _, Result};
use base::{bail_usage, FileName};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Questions about texts, and how these are cut.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Texts")]
pub struct ContextPrompts {
    /// UTF-8 text that the question is about, or a folder of them
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE|DIR", value_parser = FileName)]
    pub text: Option<PathBuf>,
    /// The text itself, as --text FILE reads it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "TEXT", conflicts_with = "text", hide_short_help = true)]
    pub prompt: Option<String>,
    /// Question about the text
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "QUESTION")]
    pub question: Option<String>,
    /// Right answer to --question; several, if any of them is right [default: what the model itself answers]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "ANSWER")]
    pub answer: Vec<String>,
    /// Answer that is not right: what is measured is then the log-probability of the right one less that of this one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "ANSWER", hide_short_help = true)]
    pub wrong: Option<String>,
    /// Beginning of the reply to --question, which the answer follows
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "WORDS", hide_short_help = true)]
    pub lead: Option<String>,
    /// Questions with their passages, JSON lines or an array of objects: question, passages, and maybe answers, wrong, lead, id,
    /// document; names of other data sets and tools are understood
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE", value_parser = FileName, conflicts_with_all = ["text", "prompt", "question", "answer", "wrong", "lead"])]
    pub questions_file: Option<PathBuf>,
    /// What is taken out: passages where the input has them, otherwise sentences, of a text with more than 60 paragraphs
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, hide_short_help = true)]
    pub split: Option<Split>,
    /// Questions of the file that are asked, from its beginning [default: all]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub samples: Option<usize>,
    /// Orders of the passages, the first as they are; numbers are means over them [default: 2 of several questions, where the
    /// passage that costs most is chosen in one and measured in the other; otherwise 1]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub orders: Option<usize>,
    /// Take out every segment, also of a text that has more than 60
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[arg(long, hide_short_help = true)]
    pub exhaustive: bool,
    /// Seed of the orders
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
    /// Length of the longest prompt, once the texts are read.
    #[serde(skip)]
    #[arg(skip)]
    pub ctx_tok: usize,
    /// For each question the number of the first one of its document, once the texts are read: they share a seed, and so count as one
    /// text.
    #[serde(skip)]
    #[arg(skip)]
    pub first_of_document: Vec<u64>,
}

impl ContextPrompts {
    /// Checks what does not depend on the texts.
    ///
    /// # Errors
    /// A usage error if there is no text or no question.
    pub fn check(&self) -> Result<()> {
        if self.questions_file.is_none() {
            let is_given = self.text.is_some() || self.prompt.is_some();
            match (is_given, self.question.as_deref().map_or("", str::trim)) {
                (false, _) => bail_usage!(
                    "nothing to ask about: give --text FILE with --question \"…\", or --questions-file FILE"
                ),
                (true, "") => bail_usage!("--question: what is to be asked about the text?"),
                _ => {}
            }
        }
        if self.answer.iter().chain(&self.wrong).any(|answer| answer.trim().is_empty()) {
            bail_usage!("--answer and --wrong: neither may be empty");
        }
        if self.samples == Some(0) || self.orders == Some(0) {
            bail_usage!("--samples and --orders: give them at least 1");
        }
        if self.wrong.is_some() && self.answer.is_empty() {
            bail_usage!("--wrong: give the right answer too (--answer)");
        }
        Ok(())
    }

    /// Reads the contexts, with the SHA-256 of their file or text.
    ///
    /// # Errors
    /// If a file cannot be read or has nothing to take out.
    pub fn read(&self) -> Result<(Vec<Context>, String)> {
        if let Some(path) = &self.questions_file {
            let (mut contexts, sha256) = read_questions(path, self.split)?;
            contexts.truncate(self.samples.unwrap_or(usize::MAX));
            return Ok((contexts, sha256));
        }
        let segments = match (&self.text, &self.prompt) {
            (Some(path), _) if path.is_dir() => files(path, self.split)?,
            (Some(path), _) => split::split(&whole(path)?, self.split),
            (None, text) => split::split(text.as_deref().unwrap_or_default(), self.split),
        };
        if segments.is_empty() {
            bail_usage!("--text: there is nothing to take out");
        }
        let whole: String =
            segments.iter().flat_map(|segment| [segment.before.as_str(), segment.text.as_str()]).collect();
        let answers = self.answer.iter().map(|answer| answer.trim().to_owned()).collect();
        Ok((
            vec![Context {
                id: "text".to_owned(),
                question: self.question.clone().unwrap_or_default().trim().to_owned(),
                answers,
                wrong: self.wrong.as_ref().map(|wrong| wrong.trim().to_owned()),
                lead: self.lead.clone(),
                document: None,
                segments,
            }],
            base::hash::sha256(whole.as_bytes()),
        ))
    }

    /// Takes the length of the prompts and the documents from the contexts.
    ///
    /// # Errors
    /// Those of the tokenizers.
    pub fn measure<'a>(
        &mut self,
        contexts: &[Context],
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
    ) -> Result<()> {
        let mut ctx_tok = 0;
        for tokenizer in tokenizers {
            let tokenizer = tokenizer?;
            for context in contexts {
                let all: Vec<usize> = (0..context.segments.len()).collect();
                let answer = context.answers.first().map_or(OWN_ANSWER, String::as_str);
                let prompt =
                    context.prompt(Kept { segments: &all, answer }, tokenizer).with_context(|| context.id.clone())?;
                ctx_tok = ctx_tok.max(prompt.ids.len());
            }
        }
        self.ctx_tok = ctx_tok;
        let first = |context: &Context, own: usize| {
            contexts
                .iter()
                .position(|other| other.document.is_some() && other.document == context.document)
                .unwrap_or(own)
        };
        self.first_of_document = contexts.iter().enumerate().map(|(own, context)| first(context, own) as u64).collect();
        Ok(())
    }

    /// Number of orders of the passages.
    pub fn orders(&self) -> usize {
        self.orders.unwrap_or(if self.first_of_document.len() > 1 { 2 } else { 1 })
    }
}

/// Stands for an answer that only the model can give.
pub(crate) const OWN_ANSWER: &str = "the answer that the model itself will give to it";

/// The whole text of a file.
fn whole(path: &Path) -> Result<String> {
    let Text::Own { text, .. } = Text::from_path(path)? else { return Ok(String::new()) };
    Ok(text)
}

/// The files of a folder in the order of their names, each a segment, or cut into some.
fn files(folder: &Path, by: Option<Split>) -> Result<Vec<super::Segment>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut segments = Vec::new();
    for path in paths {
        let text = whole(&path)?;
        let first = segments.len();
        match by {
            Some(Split::Files | Split::Passages) | None => {
                let text = text.trim().to_owned();
                segments.push(super::Segment { text, ..super::Segment::default() });
            }
            by => segments.extend(split::split(&text, by)),
        }
        if let Some(segment) = segments.get_mut(first).filter(|_| first > 0) {
            segment.before = "\n\n".to_owned();
        }
    }
    Ok(segments)
}
