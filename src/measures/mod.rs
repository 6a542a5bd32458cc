//! Measures: each answers one question about a model, from the rows of a pass to records, in a file of its own.
//!
//! A run has any number of measures over the same passes. A measure names the probes that it needs, gets what these collected
//! after each pass, and returns [`Measurement`]s. Data that must be added up over many prompts are pooled, in the order of
//! the prompts. Probes depend on rows, regions and numbers, but not on models.
//!
//! | file | measured | rows observed |
//! |---|---|---|
//! | `answer` | accuracy; attention by region | those that predict an answer |
//! | `output` | what regions write through heads and layers, for `answer` | those that predict an answer |
//! | `shape` | entropy of rows, and sinks | those that predict an answer |
//! | `sinks` | attention received by each key, for `answer`, `shape`, `outliers` and treatments | about 512 over the text, and the answer's |
//! | `fidelity` | divergence from the baseline | those that predict an answer |
//! | `roles` | retrieval, query, previous-token, duplicate-token and induction scores of heads | those of the question and the answer; all of repeated tokens |
//! | `sink_rate` | heads with a sink on the first token | the first 64 |
//! | `outliers` | largest logits and hidden states | all |
//! | `nll` | negative log-likelihood of prose | none |
//! | `generation` | answers in generated text | none |
//! | `map` | maps of one prompt, from the bins of `pooled_map` | a range |
//! | `lambda` | weight of the second map; a probe only | all |
//! | `premise` | agreement of both maps by region, and by chance | those that predict an answer |
//!
//! `target` has the probe of the rows that predict an answer, with a summary of each answer's; `list` names the measures.

mod answer;
mod context;
mod fidelity;
mod generation;
mod key_weights;
mod lambda;
mod list;
mod map;
mod nll;
mod outliers;
mod output;
mod pooled_map;
mod premise;
mod roles;
mod shape;
mod sink_rate;
mod sinks;
mod strangers;
mod target;
#[cfg(test)]
pub(crate) mod testing;

pub use answer::Allocation;
pub(crate) use answer::AnswerMeasure;
pub use context::{AnswerScore, ContextScores, GroupScores, SegmentScores};
pub(crate) use context::{ContextMeasure, HALF_ODDS, NOTABLE_NATS, SUMMARY};
pub(crate) use generation::GenerationMeasure;
pub(crate) use lambda::{LambdaCollector, LambdaProbe};
pub use list::{MeasureName, Measures};
pub use map::TokenSpan;
pub(crate) use map::{MapMeasure, Maps};
pub(crate) use nll::{ar_hit_definition, positions_drawn, side_by_side as nll_side_by_side, NllMeasure};
pub use outliers::ResidualCollector;
pub(crate) use outliers::{side_by_side as outliers_side_by_side, OutlierMeasure, Outliers, CHANNELS};
pub use output::{mean_over_layers, Contribution, Contributions, LayerOutput, LayerSums};
pub use pooled_map::{PooledMap, PooledMapCollector, PooledMapProbe, PooledMapSpec, Pooling, RowQuantity};
pub use premise::Agreement;
pub(crate) use roles::{by_role, role_number, RolesMeasure, EVERY_HEAD, ROLES, SINKS, STRONGEST};
pub(crate) use shape::ShapeMeasure;
pub(crate) use sinks::{SinkCollector, SinkProbe};
pub use strangers::{of_strangers, NoiseRows};
pub(crate) use target::region_ranges;
pub use target::{TargetCollector, TargetProbe, TargetSummary};

use crate::results::record::{widen, Identity, Measurement};
use anyhow::{Context, Result};
use engine::attention::{ProbeResult, RowProbe, Stream, Trace};
use engine::model::generate::Generation;
use engine::model::gradient::HeadAttributions;
use engine::model::pass::{Predictions, QueryScore};
use engine::model::Transformer;
use names::metric::Metric;
use names::{HeadPlace, Region};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeSet;
use text::{Prompt, Tokenizer};

/// Data of a measure's own type, which it keeps for other conditions or pools over prompts.
pub type MeasureData = Box<dyn Any + Send + Sync>;

/// One measurement of a run.
pub trait Measure: Any + Send + Sync {
    /// The probes for the attention rows of one pass over `prompt` through the model with this index.
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        Vec::new()
    }

    /// What it needs of a pass besides rows.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Turns one observed pass into records.
    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()>;

    /// Adds the pooled data of one prompt from [`Measure::conclude`]. Called in the order of the prompts.
    fn absorb(&mut self, _key: PassKey, _pooled: MeasureData) {}

    /// Encodes the pooled data of one prompt, for a run that is resumed later; `None` if they cannot be stored.
    fn encode(&self, _pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Decodes the bytes of [`Measure::encode`].
    fn decode(&self, _bytes: &[u8]) -> Result<MeasureData> {
        anyhow::bail!("this measure pools nothing that can be read back")
    }

    /// The records of the pooled data, after the last prompt.
    fn finish(&mut self) -> Vec<(PassKey, Measurement)> {
        Vec::new()
    }
}

/// What measures need of a pass besides attention rows. What nobody needs is not computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Statistics of the residual stream.
    pub residual: bool,
    /// A [`Trace`] of the target rows.
    pub trace: bool,
    /// The prediction of every token.
    pub predictions: bool,
    /// Generated text.
    pub generation: bool,
}

impl Needs {
    /// All that some measures need.
    pub(crate) fn of(measures: &[&dyn Measure]) -> Self {
        let mut all = Self::default();
        for needs in measures.iter().map(|measure| measure.needs()) {
            all.residual |= needs.residual;
            all.trace |= needs.trace;
            all.predictions |= needs.predictions;
            all.generation |= needs.generation;
        }
        all
    }
}

/// A model and a condition of the run, as indices into its lists.
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
    /// What the answers score if their rows do not see a region; empty where it is not measured, as in treated passes.
    pub hidden: &'a [HiddenScores],
    /// What segments of the text give the answer, in the untreated pass over a context.
    pub context: Option<&'a ContextScores>,
    /// What each answer loses without a head, to first order; empty where heads are not attributed, as in treated passes.
    pub attributions: &'a [HeadAttributions],
    /// Results of its row probes, in (layer, head, probe) order; [`ProbeResult::probe`] is the index among the
    /// measure's own probes.
    pub probe_results: Vec<ProbeResult>,
    /// Statistics of the residual stream, if a measure wants them.
    pub residual: Option<&'a ResidualCollector>,
    /// The data that it kept from the baseline pass over this prompt; `None` in the baseline pass itself.
    pub baseline: Option<&'a MeasureData>,
}

/// Scores of the prompt's questions in a pass in which the rows that predict an answer do not see a region.
pub struct HiddenScores {
    /// Name of the region, or of several.
    pub region: String,
    pub queries: Vec<QueryScore>,
}

impl ObservedPass<'_> {
    /// Runs an untreated pass over other tokens. Returns the results of a probe for these layers and heads.
    fn over_tokens(
        &self,
        ids: Vec<u32>,
        probe: &dyn RowProbe,
        heads: &BTreeSet<HeadPlace>,
    ) -> Result<Vec<ProbeResult>> {
        let probes = [probe];
        let mut stream = Stream::new(&probes);
        self.model.hidden(&[ids], &mut stream)?;
        let mut probe_results = stream.probe_results;
        probe_results.retain(|result| heads.contains(&result.at));
        Ok(probe_results)
    }
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
    pub fn push(&mut self, query: Option<usize>, rows: &'static str, measurement: Measurement) {
        self.records.push((query, rows, measurement));
    }

    /// Adds measurements of a question, or of the whole prompt, on `rows`.
    fn extend(&mut self, query: Option<usize>, rows: &'static str, measurements: Vec<Measurement>) {
        self.records.extend(measurements.into_iter().map(|measurement| (query, rows, measurement)));
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

/// A measurement with the mean of `n` numbers; its value is missing if `value` is not finite.
fn number(metric: &Metric, value: f64, n: usize) -> Measurement {
    Measurement {
        metric: metric.name.into(),
        value: value.is_finite().then_some(value),
        unit: metric.unit.map(Into::into),
        n: Some(n as u64),
        ..Measurement::default()
    }
}

/// A measurement rounded to the precision of `f32`, in which weights and outputs are added up.
fn rounded(metric: &Metric, value: f64, n: usize) -> Measurement {
    number(metric, widen(value as f32), n)
}

fn of_region(region: Region, measurement: Measurement) -> Measurement {
    Measurement { region: Some(region.name().into()), ..measurement }
}

/// A measurement as that of one head.
fn of_head(at: HeadPlace, measurement: Measurement) -> Measurement {
    Measurement { layer: Some(at.layer), head: Some(at.head), ..measurement }
}

/// The text of a token, or `#id` without a tokenizer.
pub(crate) fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> Result<String> {
    tokenizer.map_or_else(|| Ok(format!("#{id}")), |tokenizer| tokenizer.decode(&[id]))
}
