//! What a run found besides its records: the rows of the files beside `results.csv`.

use super::tokens::Tokens;
use names::{HeadPlace, SegmentKind};
use serde::{Deserialize, Serialize};

/// What a run found besides its records.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Tokens that were scored one by one; empty if none were.
    pub tokens: Tokens,
    /// Massive activations, as `massive.csv` lists them.
    pub massive: Vec<MassiveAt>,
    /// Heads of rankings, as `rankings.csv` lists them.
    pub ranked: Vec<RankedHead>,
    /// Heads that were drawn, or kept token by token, as `drawn.csv` lists them.
    pub drawn: Vec<DrawnHead>,
    /// Texts with questions about them, as `contexts.jsonl` lists them.
    pub contexts: Vec<AskedContext>,
}

/// A massive activation; a row of `massive.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MassiveAt {
    /// Name of the model; filled in when the row is written.
    pub model: String,
    /// Index of the prompt.
    pub sample: usize,
    /// 0-based layer, at whose output it is.
    pub layer: usize,
    /// Position of its token.
    pub position: usize,
    pub token: String,
    /// 0-based channel of the residual stream.
    pub channel: usize,
    pub value: f32,
    /// Its magnitude over the median magnitude of its layer's output for the prompt.
    pub ratio: Option<f64>,
    /// Share of all tokens on which the channel is large at this layer, at least 1000 times the layer's median; `None` before
    /// all prompts are measured.
    pub large_share: Option<f64>,
    /// `true` if the token is an attention sink of some head in some layer.
    pub sink: bool,
}

/// A head of a ranking, made on prompts on which nothing else is measured; a row of `rankings.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankedHead {
    pub model: String,
    /// Name of the ranking.
    pub ranking: String,
    /// Rank; the best head has 1.
    pub rank: usize,
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
    /// Mean score over the prompts.
    pub score: f64,
    /// Pearson's correlation over all heads between the scores on two halves of the prompts.
    pub agreement: Option<f64>,
}

/// A head that is drawn or stored token by token; a row of `drawn.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnHead {
    pub model: String,
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
}

impl DrawnHead {
    /// A head of a model.
    pub(crate) fn new(model: &str, at: HeadPlace) -> Self {
        Self { model: model.to_owned(), layer: at.layer, head: at.head }
    }
}

/// A text with a question about it; a line of `contexts.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedContext {
    /// Index among those of the run.
    pub sample: u64,
    pub id: String,
    pub document: Option<String>,
    pub question: String,
    /// The right answers; empty if models were scored on what they say themselves.
    pub answers: Vec<String>,
    pub wrong: Option<String>,
    pub segments: Vec<SegmentText>,
    /// What each model says.
    pub said: Vec<Said>,
}

/// A segment of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentText {
    pub kind: SegmentKind,
    /// White space before it.
    pub before: String,
    pub text: String,
}

/// What a model says to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub model: String,
    /// Index of the question.
    pub sample: u64,
    /// The most likely answer, up to the end of its line.
    pub text: String,
}

impl AskedContext {
    /// The answer that a model was scored on.
    pub(crate) fn scored(&self, model: &str) -> &str {
        let own = self.said.iter().find(|said| said.model == model).map_or("", |said| said.text.as_str());
        self.answers.first().map_or(own, String::as_str)
    }
}
