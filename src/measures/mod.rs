//! Measures: each answers one question, from the probes of a pass to the records made of them.
//!
//! An experiment runs any number of measures over the same passes. A measure names the [probes](crate::measures::probe) that it
//! needs, gets their results after each pass, and returns [`Measurement`]s. Data that must be added up over many
//! prompts are pooled, in the order of the prompts.

mod answer;
mod contribution;
mod fidelity;
mod generation;
mod layer_output;
mod map;
mod nll;
mod outliers;
pub mod probe;
mod roles;
mod shape;
mod sink_rate;
mod span;

pub use answer::AnswerMeasure;
pub use contribution::{readouts, RegionOutputs};
pub use fidelity::FidelityMeasure;
pub use generation::{Generated, GenerationMeasure};
pub use layer_output::{mean_over_layers, LayerOutput, LayerSums};
pub use map::{MapMeasure, MapSpec, Maps};
pub use nll::{ar_hits, frequent, Bigrams, NllMeasure};
pub use outliers::{OutlierMeasure, Outliers, RANKS};
pub use roles::RolesMeasure;
pub use shape::ShapeMeasure;
pub use sink_rate::SinkRateMeasure;
pub use span::TokenSpan;

use crate::attention::{ProbeResult, ResidualProbe, RowProbe, Trace};
use crate::model::generate::Generation;
use crate::model::pass::{Predictions, QueryScore};
use crate::model::Transformer;
use crate::prompts::{Prompt, Region, Tokenizer};
use crate::results::metric::Metric;
use crate::results::record::{widen, Identity, Measurement};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::Any;

/// Data of a measure's own type, which it keeps for other conditions or pools over prompts.
pub type MeasureData = Box<dyn Any + Send + Sync>;

/// The name of a measure in experiment files.
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

/// One measurement of an experiment.
pub trait Measure: Send + Sync {
    /// Returns the probes for the attention rows of one pass over `prompt` through the model with this index.
    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>>;

    /// Returns a probe for the residual stream of one pass.
    fn residual_probe(&self) -> Option<Box<dyn ResidualSink>> {
        None
    }

    /// Returns whether it needs a [`Trace`] of the target rows.
    fn wants_trace(&self) -> bool {
        false
    }

    /// Returns whether it needs the prediction of every token.
    fn wants_predictions(&self) -> bool {
        false
    }

    /// Returns whether it needs generated text.
    fn wants_generation(&self) -> bool {
        false
    }

    /// Turns one observed pass into records.
    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()>;

    /// Adds the pooled data of one prompt from [`Measure::conclude`]. Called in the order of the prompts.
    fn absorb(&mut self, _place: PassKey, _pooled: MeasureData) {}

    /// Encodes the pooled data of one prompt, for a run that is resumed later; `None` if they cannot be stored.
    fn encode(&self, _pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Decodes the bytes of [`Measure::encode`].
    fn decode(&self, _bytes: &[u8]) -> Result<MeasureData> {
        anyhow::bail!("this measure pools nothing that can be read back")
    }

    /// Returns the records of the pooled data, after the last prompt.
    fn finish(&mut self) -> Vec<(PassKey, Measurement)> {
        Vec::new()
    }
}

/// A residual probe that is itself its result.
pub trait ResidualSink: ResidualProbe + Any + Send {}

/// A model and a condition of the experiment, as indices into its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PassKey {
    /// Index of the model.
    pub model: usize,
    /// Index of the condition; 0 is the baseline.
    pub condition: usize,
}

/// One pass as a measure sees it.
pub struct ObservedPass<'a> {
    /// Model and condition.
    pub key: PassKey,
    /// Index of the prompt among those of the same spec.
    pub sample: u64,
    /// The fields that all records of this pass share.
    pub identity: &'a Identity,
    /// The model, for computations after attention.
    pub model: &'a Transformer,
    /// The prompt.
    pub prompt: &'a Prompt,
    /// The tokenizer; `None` if the prompt was given as token ids.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Scores of the prompt's questions.
    pub queries: &'a [QueryScore],
    /// The prediction of every token, if the measure wants it.
    pub predictions: Option<&'a Predictions>,
    /// Text generated under the same condition, if a measure wants it.
    pub generation: Option<&'a Generation>,
    /// The trace of the target rows, if a measure wants it.
    pub trace: Option<&'a Trace>,
    /// Results of its row probes, in (layer, head, probe) order; [`ProbeResult::probe`] is the index among the
    /// measure's own probes.
    pub probe_results: Vec<ProbeResult>,
    /// Its residual probe.
    pub residual: Option<Box<dyn Any + Send>>,
    /// The data that it kept from the baseline pass over this prompt; `None` in the baseline pass itself.
    pub baseline: Option<&'a MeasureData>,
}

/// The results of a measure for one pass.
#[derive(Default)]
pub struct MeasureOutput {
    /// Measurements: (question, or `None` for the whole prompt; rows; measurement).
    pub records: Vec<(Option<usize>, &'static str, Measurement)>,
    /// Data for the passes over the same prompt under other conditions.
    pub kept: Option<MeasureData>,
    /// Data for [`Measure::absorb`].
    pub pooled: Option<MeasureData>,
}

impl MeasureOutput {
    /// Adds a measurement of a question, or of the whole prompt, on `rows`.
    pub fn push(&mut self, query: Option<usize>, rows: &'static str, found: Measurement) {
        self.records.push((query, rows, found));
    }
}

/// Encodes pooled data of type `T`, for [`Measure::encode`].
fn encoded<T: Serialize + 'static>(pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
    let pooled = pooled.downcast_ref::<T>().expect("a measure pools one type");
    postcard::to_stdvec(pooled).map(Some).context("what was pooled cannot be written")
}

/// Decodes a `T`, for [`Measure::decode`].
fn decoded<T: DeserializeOwned + Send + Sync + 'static>(bytes: &[u8]) -> Result<MeasureData> {
    Ok(Box::new(postcard::from_bytes::<T>(bytes).context("what was pooled cannot be read")?))
}

/// Returns a measurement with the mean of `n` numbers; its value is missing if `value` is not finite.
fn number(metric: &Metric, value: f64, n: usize) -> Measurement {
    Measurement {
        metric: metric.name.into(),
        value: value.is_finite().then_some(value),
        unit: metric.unit.map(Into::into),
        n: Some(n as u64),
        ..Measurement::default()
    }
}

/// Returns a measurement of a region, rounded to the precision of `f32`, in which weights and outputs are added up.
fn rounded(metric: &Metric, region: Option<Region>, value: f64, n: usize) -> Measurement {
    Measurement { region: region.map(|region| region.name().into()), ..number(metric, widen(value as f32), n) }
}

/// Returns the text of a token, or `#id` without a tokenizer.
pub(crate) fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> Result<String> {
    tokenizer.map_or_else(|| Ok(format!("#{id}")), |tokenizer| tokenizer.decode(&[id]))
}
