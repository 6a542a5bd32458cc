//! Names of measures in experiment files.

use serde::{Deserialize, Serialize};

/// The name of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasureName {
    /// Accuracy and log-probability of the answer; attention by region, as means over heads.
    Answer,
    /// As [`MeasureName::Answer`], and attention by region for every head.
    AnswerByHead,
    /// Entropy and sinks of attention rows.
    Shape,
    /// Roles of heads: retrieval, query, previous-token, duplicate-token and induction scores.
    Roles,
    /// Divergence of attention rows and predictions from the baseline.
    Fidelity,
    /// Largest logits and hidden states, pooled over all prompts.
    Outliers,
    /// Share of heads with an attention sink on the first token, of texts, random tokens and one token repeated.
    SinkRate,
    /// Negative log-likelihood of prose by position, of AR hits and of other tokens.
    Nll,
    /// Answers in freely generated text.
    Generation,
}
