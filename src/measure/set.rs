//! Measures by name, for experiment files.

use super::{
    AnswerMeasure, FidelityMeasure, GenerationMeasure, Measure, NllMeasure, OutlierMeasure, RolesMeasure, ShapeMeasure,
};
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

/// The measures of an experiment.
#[derive(Default)]
pub struct Measures {
    answer: Option<AnswerMeasure>,
    shape: Option<ShapeMeasure>,
    roles: Option<RolesMeasure>,
    fidelity: Option<FidelityMeasure>,
    /// What it pooled is shown as tables of their own.
    pub outliers: Option<OutlierMeasure>,
    /// What it pooled is written token by token.
    pub nll: Option<NllMeasure>,
    /// What it pooled is written as JSON lines.
    pub generation: Option<GenerationMeasure>,
}

impl Measures {
    /// Measures of these names; a name twice is one measure.
    pub fn new(names: &[MeasureName]) -> Self {
        let has = |name| names.contains(&name);
        let by_head = has(MeasureName::AnswerByHead);
        Self {
            answer: (by_head || has(MeasureName::Answer)).then_some(AnswerMeasure { by_head }),
            shape: has(MeasureName::Shape).then_some(ShapeMeasure),
            roles: has(MeasureName::Roles).then_some(RolesMeasure),
            fidelity: has(MeasureName::Fidelity).then_some(FidelityMeasure),
            outliers: has(MeasureName::Outliers).then(OutlierMeasure::default),
            nll: has(MeasureName::Nll).then(NllMeasure::default),
            generation: has(MeasureName::Generation).then(GenerationMeasure::default),
        }
    }

    /// All of them, always in the same order.
    pub fn list(&mut self) -> Vec<&mut dyn Measure> {
        let mut list: Vec<&mut dyn Measure> = Vec::new();
        list.extend(self.answer.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.shape.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.roles.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.fidelity.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.outliers.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.nll.as_mut().map(|measure| measure as &mut dyn Measure));
        list.extend(self.generation.as_mut().map(|measure| measure as &mut dyn Measure));
        list
    }
}
