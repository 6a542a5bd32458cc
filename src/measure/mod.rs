//! Measures: one question each, from what it watches while a prompt passes to the records it makes of it.
//!
//! An experiment runs any number of measures over the same passes. A measure says which [probes](crate::probe) it
//! needs, is handed back what they saw, and answers with [`Found`](crate::record::Found)s; what it has to add up over
//! many prompts it pools, in the order of the prompts.

mod answer;
mod contribution;
mod fidelity;
mod generation;
mod map;
mod name;
mod nll;
mod outliers;
mod roles;
mod shape;
mod span;
#[cfg(test)]
mod testing;

pub use answer::AnswerMeasure;
pub use contribution::{readouts, Written};
pub use fidelity::FidelityMeasure;
pub use generation::{Generated, GenerationMeasure};
pub use map::{DrawnHead, MapMeasure, MapSpec, Maps};
pub use name::MeasureName;
pub use nll::{
    ar_hits, bin_of, bins, comparable, cumulative, difference, estimate, frequent, groups, usual_skip, Bigrams, Bin,
    Estimate, NllMeasure, ScoredToken, ScoredWindow, AR_MAX_COUNT, BLOCK_TOK,
};
pub use outliers::{MassiveAt, OutlierMeasure, Outliers, RANKS};
pub use roles::RolesMeasure;
pub use shape::ShapeMeasure;
pub use span::TokenSpan;

use crate::attention::{ProbeResult, ResidualProbe, RowProbe, Trace};
use crate::generate::Generation;
use crate::model::{ModelConfig, Transformer};
use crate::pass::{Predictions, QueryScore};
use crate::prompt::{Prompt, Tokenizer};
use crate::record::{Found, Identity};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::Any;

/// What a measure needs to keep or to pool: its own type, boxed.
pub type Kept = Box<dyn Any + Send + Sync>;

/// One measurement of an experiment.
pub trait Measure: Send + Sync {
    /// Probes that watch the rows of one pass over `prompt` through a model, given by its place.
    fn row_probes(&self, model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>>;

    /// A probe that watches the residual stream of one pass.
    fn residual_probe(&self) -> Option<Box<dyn ResidualSink>> {
        None
    }

    /// Whether it needs to know what else passes at the rows of the prompt's targets.
    fn wants_trace(&self) -> bool {
        false
    }

    /// Whether it needs to know how every token is predicted.
    fn wants_predictions(&self) -> bool {
        false
    }

    /// Whether it needs to know what the model says by itself.
    fn wants_generation(&self) -> bool {
        false
    }

    /// About the memory that it takes until a pass over this much has been concluded, in bytes, beside the pass itself.
    fn memory_bytes(&self, _extent: &Extent) -> u64 {
        0
    }

    /// Memory that it takes to show what was found, when all passes are made, in bytes.
    fn showing_bytes(&self) -> u64 {
        0
    }

    /// About how many records it makes of every head in a pass over a prompt.
    fn head_records(&self) -> u64 {
        0
    }

    /// Turns what was seen in one pass into records.
    ///
    /// # Errors
    /// If what was seen cannot be measured.
    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()>;

    /// Takes in what [`Measure::conclude`] pooled of one prompt, in the order of the prompts.
    fn absorb(&mut self, _place: Place, _pooled: Kept) {}

    /// What was pooled of one prompt as bytes, for a run that is continued later; nothing if it cannot be.
    ///
    /// # Errors
    /// If it cannot be written.
    fn encode(&self, _pooled: &Kept) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// What was encoded.
    ///
    /// # Errors
    /// If the bytes are not those of [`Measure::encode`].
    fn decode(&self, _bytes: &[u8]) -> Result<Kept> {
        anyhow::bail!("this measure pools nothing that can be read back")
    }

    /// Records of what was pooled, after the last prompt.
    fn finish(&mut self) -> Vec<(Place, Found)> {
        Vec::new()
    }
}

/// What of a model is watched in one pass, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The model's place.
    pub model: usize,
    /// Layers.
    pub layers: usize,
    /// Output heads of each.
    pub heads: usize,
    /// Softmax maps of each head.
    pub maps: usize,
    /// Channels of a value of one head.
    pub value_width: usize,
    /// Tokens of the prompt.
    pub ctx_tok: usize,
    /// Rows of the prompt's targets, at most.
    pub rows: usize,
}

impl Extent {
    /// That of a pass over `ctx_tok` tokens, of which `rows` rows are measured, through the model at this place.
    pub fn new(model: usize, config: &ModelConfig, ctx_tok: usize, rows: usize) -> Self {
        let wiring = config.wiring();
        let (layers, heads, maps) = (config.layers.len(), wiring.heads(), wiring.maps());
        Self { model, layers, heads, maps, value_width: config.layer_sizes().value_width, ctx_tok, rows }
    }
}

/// A residual probe that hands back what it saw: itself.
pub trait ResidualSink: ResidualProbe + Any + Send {}

/// A model and a condition of the experiment, by their places in its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Model.
    pub model: usize,
    /// Condition.
    pub condition: usize,
}

/// What one measure gets to see of one pass.
pub struct Seen<'a> {
    /// Model and condition.
    pub place: Place,
    /// Which prompt, among those of the same spec.
    pub sample: u64,
    /// What its records say about model, prompt and condition, as far as it is the same for all of them.
    pub identity: &'a Identity,
    /// The model, for what comes after attention.
    pub model: &'a Transformer,
    /// The prompt.
    pub prompt: &'a Prompt,
    /// What cut it into tokens; nothing if they were given as ids.
    pub tokenizer: Option<&'a Tokenizer>,
    /// How its questions were answered.
    pub queries: &'a [QueryScore],
    /// How every token was predicted, if the measure asked.
    pub predictions: Option<&'a Predictions>,
    /// What the model said by itself under the same condition, if a measure asked.
    pub generation: Option<&'a Generation>,
    /// What passed at the rows of the prompt's targets, if a measure asked.
    pub trace: Option<&'a Trace>,
    /// What its row probes saw, in (layer, head, probe) order; [`ProbeResult::probe`] counts the measure's own.
    pub probe_results: Vec<ProbeResult>,
    /// Its residual probe.
    pub residual: Option<Box<dyn Any + Send>>,
    /// What it kept of the baseline pass over this prompt; nothing in the baseline pass itself.
    pub baseline: Option<&'a Kept>,
}

/// What a measure found in one pass.
#[derive(Default)]
pub struct Findings {
    /// Records, each of a question of the prompt or of the whole prompt, with the rows it is about.
    pub records: Vec<(Option<usize>, &'static str, Found)>,
    /// For the passes over the same prompt under other conditions.
    pub kept: Option<Kept>,
    /// For [`Measure::absorb`].
    pub pooled: Option<Kept>,
}

impl Findings {
    /// Adds a record about `rows`.
    pub fn push(&mut self, query: Option<usize>, rows: &'static str, found: Found) {
        self.records.push((query, rows, found));
    }
}

/// What was pooled as a `T`, in bytes: for [`Measure::encode`].
fn encoded<T: Serialize + 'static>(pooled: &Kept) -> Result<Option<Vec<u8>>> {
    let pooled = pooled.downcast_ref::<T>().expect("a measure pools one type");
    postcard::to_stdvec(pooled).map(Some).context("what was pooled cannot be written")
}

/// A `T` from its bytes: for [`Measure::decode`].
fn decoded<T: DeserializeOwned + Send + Sync + 'static>(bytes: &[u8]) -> Result<Kept> {
    Ok(Box::new(postcard::from_bytes::<T>(bytes).context("what was pooled cannot be read")?))
}

/// A number that is the mean of `n`.
pub(crate) fn number(metric: &'static str, value: f64, unit: Option<&'static str>, n: usize) -> Found {
    Found {
        metric: metric.into(),
        value: value.is_finite().then_some(value),
        unit: unit.map(Into::into),
        n: Some(n as u64),
        ..Found::default()
    }
}

/// What a token says, or its number if nobody knows.
pub(crate) fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> Result<String> {
    tokenizer.map_or_else(|| Ok(format!("#{id}")), |tokenizer| tokenizer.decode(&[id]))
}
