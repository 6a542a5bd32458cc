//! Prompts with known positions of their answers, and training documents: pure functions of a spec and a seed.
//!
//! A prompt is text with regions. Regions are recorded in bytes while the text is written, and become token ranges
//! through the tokenizer's offsets, so nothing is searched for. White space belongs to the word after it, so that a
//! token such as " The" belongs to the region of the word: a token is in the region of its first visible byte, or of
//! its first byte if it is only white space.
//!
//! It knows names, files and random numbers, and nothing of models.
//!
//! ```
//! use text::{needle, Haystack, NeedleSpec, Tokenizer};
//!
//! let tokenizer = Tokenizer::embedded();
//! let spec = NeedleSpec { ctx_tok: 256, ..NeedleSpec::default() };
//! let prompt = needle::build(&spec, 7, tokenizer, &Haystack::Embedded)?;
//!
//! // The prompt knows where its answer is.
//! let needle = &prompt.needles[0];
//! assert!(tokenizer.decode(&prompt.ids[needle.answer.clone()])?.contains(&needle.value));
//! # anyhow::Ok(())
//! ```

use names::Region;
use std::collections::BTreeSet;
use std::ops::Range;

mod chat;
pub mod context;
pub mod document;
mod grid;
pub mod haystack;
mod ids;
pub mod needle;
mod segment;
pub mod shots;
pub mod text;
pub mod tokenizer;
mod unwrap;
mod windows;

pub use chat::sandbox;
pub use chat::{Around, ChatTemplate, TemplateArg, Wrapping};
pub use context::{Context, ContextPrompts, Kept, Segment, Split};
pub use document::{document, Document, DocumentSpec};
pub use grid::{ContextSpec, Grid, PlannedPrompt, PromptSpec, Sources};
pub use haystack::Haystack;
pub use ids::TokenIds;
pub use needle::facts::CitySet;
pub use needle::file::NeedlesFile;
pub use needle::flags::{ContextShare, NeedlePrompts, PromptDefaults};
pub use needle::form::{NeedleCounts, NeedleForm, FILE, QUESTION, RULER};
pub use needle::plan::DEPTH_TOLERANCE_PCT;
pub use needle::question::{OwnText, Question, OWN_TEXT};
pub use needle::NeedleSpec;
pub use segment::Sentence;
pub use segment::{folded, is_inside_word};
pub use shots::{Order, ShotsPrompts, ShotsSpec};
pub use text::Text;
pub use tokenizer::bos::{BosChoice, BosPolicy, BosSource};
pub use tokenizer::{Encoded, SpecialTokens, Tokenizer, TokenizerOptions};
pub use windows::{Length, TextWindows, Windows};

/// A needle of a prompt: a sentence that gives a value to a name, by default a number to a city. Ranges count tokens
/// from the start of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needle {
    /// What the value is of.
    pub name: String,
    /// The value; empty for a distractor of a file, which answers no question.
    pub value: String,
    /// The tokens of the whole sentence.
    pub span: Range<usize>,
    /// The tokens of the value inside it.
    pub answer: Range<usize>,
}

/// A question of a prompt, with the position of its answer. Ranges count tokens from the start of the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What is asked about, the name of the needle: by default a city; of a file, the question.
    pub name: String,
    /// The expected answer.
    pub value: String,
    /// The tokens of the whole needle in the haystack, the last if there are several; empty if the text does not hold
    /// the answer.
    pub needle: Range<usize>,
    /// The tokens of the value inside the needle; empty likewise.
    pub answer: Range<usize>,
    /// The tokens of the value after the question (teacher-forced), which the model has to predict.
    pub predicted: Range<usize>,
    /// `true` if the spec set the depth of this needle. Other needles are at random depths.
    pub controlled: bool,
    /// Requested depth, in percent of the filler's tokens; the actual depth if it was random.
    pub depth_req_pct: f64,
    /// Actual depth of the needle, in percent of the filler's tokens.
    pub depth_real_pct: f64,
}

impl Query {
    /// Returns `true` if the text holds the answer. If not, the value is a random number.
    pub fn is_answerable(&self) -> bool {
        !self.needle.is_empty()
    }

    /// Rows of the attention map that predict the answer's tokens: one before each.
    pub fn rows(&self) -> Range<usize> {
        self.predicted.start - 1..self.predicted.end - 1
    }
}

/// A prompt with teacher-forced answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The text, without a begin-of-sequence token unless a chat template writes it.
    pub text: String,
    /// Token ids; the first is the begin-of-sequence token, if prompts have one.
    pub ids: Vec<u32>,
    /// For each token, its byte range in the text (empty for the begin-of-sequence token).
    pub offsets: Vec<(usize, usize)>,
    /// The questions, in the order asked.
    pub queries: Vec<Query>,
    /// All needles in the order of the text, including those not asked for.
    pub needles: Vec<Needle>,
    /// The tokens of each segment that can be left out; empty of those that are. None in other prompts than contexts.
    pub segments: Vec<Range<usize>>,
    /// Tokens of the haystack: prose and needles.
    pub haystack: Range<usize>,
    /// `true` if the first token is the begin-of-sequence token.
    pub has_bos: bool,
    /// Position of the prompt in a text of several windows; the beginning for other prompts.
    pub window: Window,
}

/// Position of a window in its text, in tokens of text, without the begin-of-sequence token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Position of the window's first token.
    pub start: usize,
    /// Number of leading tokens shared with the previous window. They are context here and were scored there.
    pub overlap: usize,
}

/// The measured rows of a prompt, with the regions of its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRows {
    /// The question whose answer the rows predict; `None` for plain text.
    pub query: Option<usize>,
    /// Query rows.
    pub rows: Range<usize>,
    /// The region of every token.
    pub regions: Vec<Region>,
}

/// Number of measured rows of plain text of so many tokens: the last ones, which see the most keys.
pub fn text_rows(tokens: usize) -> usize {
    tokens.min(32)
}

impl Prompt {
    /// The rows from the first that predicts a token of an answer to the last; empty without questions.
    pub fn answer_rows(&self) -> Range<usize> {
        let rows = self.queries.iter().map(Query::rows);
        let start = rows.clone().map(|rows| rows.start).min().unwrap_or(0);
        start..rows.map(|rows| rows.end).max().unwrap_or(0)
    }

    /// The measured rows: those that predict each answer, or the last 32 rows of plain text.
    pub fn targets(&self) -> Vec<TargetRows> {
        if self.queries.is_empty() {
            let n_tok = self.ids.len();
            let rows = n_tok - text_rows(n_tok)..n_tok;
            return vec![TargetRows { query: None, rows, regions: self.regions(None) }];
        }
        let mut targets = Vec::new();
        for (i, query) in self.queries.iter().enumerate() {
            targets.push(TargetRows { query: Some(i), rows: query.rows(), regions: self.regions(Some(i)) });
        }
        targets
    }

    /// The targets that have an answer. Rows of an unanswerable question predict a random number. Plain text keeps its
    /// target.
    pub fn answerable_targets(&self) -> Vec<TargetRows> {
        let mut targets = self.targets();
        targets.retain(|target| target.query.is_none_or(|query| self.queries[query].is_answerable()));
        targets
    }

    /// The rows of all targets, ascending.
    pub fn target_rows(&self) -> Vec<usize> {
        let rows: BTreeSet<usize> = self.targets().into_iter().flat_map(|target| target.rows).collect();
        rows.into_iter().collect()
    }

    /// The tokens before the first answer, for generation. Separate space tokens before the answer are left out, since
    /// words begin with their space and only digits could follow.
    pub fn tokens_before_answer(&self) -> &[u32] {
        let Some(query) = self.queries.first() else { return &self.ids };
        let mut end = query.predicted.start;
        while end > 0 {
            let (from, to) = self.offsets[end - 1];
            let token = &self.text.as_bytes()[from..to];
            if token.is_empty() || token.iter().any(|&byte| byte != b' ') {
                break;
            }
            end -= 1;
        }
        &self.ids[..end]
    }

    /// Returns `true` if there are questions, and all their answers are numbers.
    pub fn asks_for_numbers(&self) -> bool {
        let mut values = self.queries.iter().map(|query| &query.value);
        !self.queries.is_empty() && values.all(|value| value.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Name of the rows of [`Prompt::targets`] in records.
    pub fn rows_name(&self) -> &'static str {
        if self.queries.is_empty() {
            "last32"
        } else {
            "answer"
        }
    }

    /// The tokens that are scored as prose, ascending: filler with a token before it, except those scored in the
    /// previous window.
    pub fn scored_tokens(&self) -> Vec<usize> {
        let regions = self.regions(None);
        let first = (usize::from(self.has_bos) + self.window.overlap).max(1);
        (first..self.ids.len()).filter(|&i| regions[i] == Region::Filler).collect()
    }

    /// The region of every token with respect to one query. Other needles are distractors, those with other values of the
    /// same name too; without a query, all needles are.
    ///
    /// # Panics
    /// If there is no query of this index.
    pub fn regions(&self, query: Option<usize>) -> Vec<Region> {
        let mut regions = vec![Region::Question; self.ids.len()];
        regions[..self.haystack.start].fill(Region::Template);
        regions[self.haystack.clone()].fill(Region::Filler);
        for needle in &self.needles {
            regions[needle.span.clone()].fill(Region::Distractor);
        }
        if let Some(query) = query.map(|i| &self.queries[i]) {
            // A corrupted prompt has another value at the places of the answer.
            let placed = self.needles.iter().find(|needle| needle.span == query.needle);
            let value = placed.map_or(&query.value, |needle| &needle.value);
            for needle in &self.needles {
                // One needle, or every example of the word; none if the text does not hold the answer.
                if needle.name == query.name && needle.value == *value {
                    regions[needle.span.clone()].fill(Region::Needle);
                    regions[needle.answer.clone()].fill(Region::Answer);
                }
            }
        }
        let first = if self.has_bos { Region::Bos } else { Region::First };
        regions.first_mut().into_iter().for_each(|region| *region = first);
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_names_equal_their_serialized_names() {
        for region in Region::ALL {
            assert_eq!(serde_json::to_string(&region).unwrap(), format!("\"{}\"", region.name()));
        }
    }
}
