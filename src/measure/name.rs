//! Measures by name, for experiment files.

use serde::{Deserialize, Serialize};

/// The name of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasureName {
    /// Accuracy, log-probability and rank of the answer; attention by region, as means over heads.
    Answer,
    /// The same, and attention by region of every head.
    AnswerByHead,
    /// Entropy, sparsity and sinks of the rows.
    Shape,
    /// What each head is for: retrieval, query, previous-token, duplicate-token and induction scores.
    Roles,
    /// How far rows and predictions are from those of the baseline.
    Fidelity,
    /// The largest logits and hidden states, pooled over all prompts.
    Outliers,
    /// Negative log-likelihood of prose by position, of AR hits and of other tokens.
    Nll,
    /// What the model answers when it is left to speak.
    Generation,
}
