//! The measures by name, and those of one run.

use super::answer::{AnswerMeasure, ANSWERS, ATTENTION, DEPTH, HIDDEN, REGIONS};
use super::context::{ContextMeasure, CONTEXTS};
use super::fidelity::{FidelityMeasure, FIDELITY};
use super::generation::{GenerationMeasure, UNANSWERABLE};
use super::lambda::CANCELLING;
use super::nll::{NllMeasure, NLL_DIFFERENCES, NLL_POSITIONS, PREDICTION};
use super::outliers::{OutlierMeasure, CHANNELS, OUTLIERS};
use super::premise::{PremiseMeasure, PREMISE};
use super::roles::{RolesMeasure, ANSWER_HEADS};
use super::shape::{ShapeMeasure, SHAPE};
use super::sink_rate::{SinkRateMeasure, SINK_RATES};
use super::Measure;
use crate::results::run_table::RunTable;
use names::metric::{
    Metric, ACCURACY, ALONE, ANSWER_FLIPS, ANSWER_LOG_PROB, AR_HIT_SHARE, CANCELLED, CANCELLED_CHANCE, CONTEXT_FLOOR,
    DUPLICATE_TOKEN, ENTROPY, ERROR_CANCELLED, GENERATED_ACCURACY, GENERATED_CONTAINS, GIVES, GIVES_LOG_ODDS,
    GIVES_SPREAD, GIVES_TOGETHER, GIVES_WORST, HARMS, HEAD_ATTRIBUTION, HIDDEN_ACCURACY, HIDDEN_LOG_PROB, INDUCTION,
    INF_NORM_MAX, KL, KURTOSIS, LAMBDA, LARGEST, LOG_PROB_WITHOUT, MAP_COSINE, MAP_COSINE_CHANCE, MAP_COSINE_STRANGERS,
    MASSIVE, MEDIAN, NLL, NLL_AR_HIT, NLL_LATE, NLL_OTHER, NLL_POS, NOISE_ABS, NOISE_OUT, NOISE_OUT_NO_SINKS,
    NOISE_SIGNED, OUTPUT_COSINE, PREVIOUS_TOKEN, QUERY_SCORE, RETRIEVAL_SCORE, ROW_ERROR, SAID_NUMBER,
    SAID_OTHER_NEEDLE, SEGMENT_SHARE, SHARE_ABS, SHARE_AGREES, SHARE_BEYOND_6_SIGMA, SHARE_OUT, SHARE_SIGNED,
    SINK_RATE, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, THROUGH_OTHERS, THROUGH_SHARE, TOP_1_OVER_MEDIAN, TOP_K,
    TOP_TOKEN_FLIPS, TOTAL_VARIATION, VALUE_NORM_FIRST,
};
use serde::{Deserialize, Serialize};
use std::any::Any;
use strum::VariantArray;

/// The name of a measure in a plan. The measures of a run are in the order of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
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
    /// Agreement of both maps of differential heads by region, beside what it is by chance.
    Premise,
    /// Divergence of attention rows and predictions from the baseline.
    Fidelity,
    /// Share of heads with an attention sink on the first token, of texts, random tokens and one token repeated.
    SinkRate,
    /// Largest logits and hidden states, pooled over all prompts.
    Outliers,
    /// Negative log-likelihood of prose by position, of AR hits and of other tokens.
    Nll,
    /// Answers in freely generated text.
    Generation,
    /// What segments of a text give the answer.
    Context,
}

impl MeasureName {
    /// The tables of its numbers.
    pub(crate) fn tables(self) -> &'static [&'static RunTable] {
        match self {
            Self::Answer => &[&ANSWERS, &HIDDEN, &ATTENTION, &REGIONS, &DEPTH, &CANCELLING],
            Self::AnswerByHead => &[&ANSWER_HEADS],
            Self::Shape => &[&SHAPE],
            Self::Roles => &[],
            Self::Premise => &[&PREMISE],
            Self::Fidelity => &[&FIDELITY],
            Self::SinkRate => &[&SINK_RATES],
            Self::Outliers => &[&OUTLIERS, &CHANNELS],
            Self::Nll => &[&PREDICTION, &NLL_DIFFERENCES, &NLL_POSITIONS],
            Self::Generation => &[&UNANSWERABLE],
            Self::Context => &[&CONTEXTS],
        }
    }

    /// The metrics that it may have numbers of.
    pub(crate) fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Answer | Self::AnswerByHead => &[
                ACCURACY,
                ANSWER_LOG_PROB,
                HIDDEN_LOG_PROB,
                HIDDEN_ACCURACY,
                SHARE_OUT,
                SHARE_ABS,
                SHARE_SIGNED,
                NOISE_OUT,
                NOISE_OUT_NO_SINKS,
                NOISE_ABS,
                NOISE_SIGNED,
                HEAD_ATTRIBUTION,
                LAMBDA,
                CANCELLED,
            ],
            Self::Shape => &[ENTROPY, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, VALUE_NORM_FIRST],
            Self::Roles => &[RETRIEVAL_SCORE, QUERY_SCORE, PREVIOUS_TOKEN, DUPLICATE_TOKEN, INDUCTION],
            Self::Premise => &[MAP_COSINE, MAP_COSINE_CHANCE, MAP_COSINE_STRANGERS, CANCELLED, CANCELLED_CHANCE],
            Self::Fidelity => {
                &[TOTAL_VARIATION, KL, ROW_ERROR, ERROR_CANCELLED, OUTPUT_COSINE, TOP_TOKEN_FLIPS, ANSWER_FLIPS, NLL]
            }
            Self::SinkRate => &[SINK_RATE],
            Self::Outliers => {
                &[TOP_1_OVER_MEDIAN, LARGEST, KURTOSIS, TOP_K, MEDIAN, SHARE_BEYOND_6_SIGMA, INF_NORM_MAX, MASSIVE]
            }
            Self::Nll => &[NLL, NLL_LATE, NLL_AR_HIT, NLL_OTHER, NLL_POS, AR_HIT_SHARE],
            Self::Generation => &[GENERATED_ACCURACY, GENERATED_CONTAINS, SAID_NUMBER, SAID_OTHER_NEEDLE],
            Self::Context => &[
                ACCURACY,
                ANSWER_LOG_PROB,
                GIVES,
                GIVES_TOGETHER,
                GIVES_WORST,
                HARMS,
                GIVES_LOG_ODDS,
                GIVES_SPREAD,
                ALONE,
                THROUGH_OTHERS,
                SEGMENT_SHARE,
                LOG_PROB_WITHOUT,
                THROUGH_SHARE,
                SHARE_AGREES,
                CONTEXT_FLOOR,
            ],
        }
    }

    /// Creates the measure, to run beside the others of `names`; `None` if one of these includes it.
    fn measure(self, names: &[Self]) -> Option<Box<dyn Measure>> {
        let sinks = names.contains(&Self::Shape);
        Some(match self {
            Self::Answer if names.contains(&Self::AnswerByHead) => return None,
            Self::Answer => Box::new(AnswerMeasure { by_head: false, sinks }),
            Self::AnswerByHead => Box::new(AnswerMeasure { by_head: true, sinks }),
            Self::Shape => Box::new(ShapeMeasure),
            Self::Roles => Box::new(RolesMeasure),
            Self::Premise => Box::new(PremiseMeasure),
            Self::Fidelity => Box::new(FidelityMeasure),
            Self::SinkRate => Box::new(SinkRateMeasure),
            Self::Outliers => Box::new(OutlierMeasure::default()),
            Self::Nll => Box::new(NllMeasure::default()),
            Self::Generation => Box::new(GenerationMeasure::default()),
            Self::Context => Box::new(ContextMeasure::default()),
        })
    }
}

/// The measures of a run, always in the same order.
#[derive(Default)]
pub struct Measures(Vec<Box<dyn Measure>>);

impl Measures {
    /// Creates the measures with these names; repeated names count once.
    pub(crate) fn new(names: &[MeasureName]) -> Self {
        let asked = MeasureName::VARIANTS.iter().filter(|name| names.contains(name));
        Self(asked.filter_map(|name| name.measure(names)).collect())
    }

    /// Adds a measure behind the others.
    pub fn push(&mut self, measure: impl Measure) {
        self.0.push(Box::new(measure));
    }

    /// All measures.
    pub fn list(&mut self) -> Vec<&mut dyn Measure> {
        self.0.iter_mut().map(|measure| &mut **measure).collect()
    }

    /// The measures of one type.
    pub(crate) fn of_type<M: Measure>(&self) -> impl Iterator<Item = &M> {
        self.0.iter().filter_map(|measure| (&**measure as &dyn Any).downcast_ref())
    }

    /// The first measure of one type, to change it.
    pub(crate) fn get_mut<M: Measure>(&mut self) -> Option<&mut M> {
        self.0.iter_mut().find_map(|measure| (&mut **measure as &mut dyn Any).downcast_mut())
    }
}
