//! A prompt that a model reads, and what comes of it.

use super::Setup;
use crate::measures::{Measure, MeasureData, PassKey};
use crate::results::record::{Identity, Measurement, Record};
use engine::model::open::Model;
use names::LayersAndHeads;
use std::sync::Arc;
use text::{PlannedPrompt, Prompt};

/// A model that reads a prompt, and the measures that watch.
pub(super) struct PromptRun<'a> {
    pub(super) setup: &'a Setup,
    /// Index of the model.
    pub(super) model: usize,
    pub(super) planned: &'a PlannedPrompt,
    pub(super) prompt: &'a Prompt,
    /// The layers and heads that are measured.
    pub(super) only: &'a LayersAndHeads,
    pub(super) measures: &'a [&'a dyn Measure],
}

impl<'a> PromptRun<'a> {
    /// The model.
    pub(super) fn opened(&self) -> &'a Model {
        &self.setup.models[self.model]
    }
}

/// The records and pooled data of a prompt.
#[derive(Default)]
pub(super) struct PromptResult {
    pub(super) records: Vec<Record>,
    /// Its token ids, model by model.
    pub(super) ids: Vec<Vec<u32>>,
    /// Data that measures pool: (index of the measure, model and condition, data).
    pub(super) pooled: Vec<(usize, PassKey, MeasureData)>,
}

impl PromptResult {
    /// Adds records of a prompt: (question, or `None` for the whole prompt; rows; measurement).
    pub(super) fn add(
        &mut self,
        identity: &Identity,
        prompt: &Prompt,
        records: Vec<(Option<usize>, &'static str, Measurement)>,
    ) {
        for (query, rows, measure) in records {
            let identity = Identity {
                depth_real_pct: query.map(|query| prompt.queries[query].depth_real_pct),
                query,
                placed: query.map(|query| prompt.queries[query].controlled),
                rows: Some(rows.into()),
                ..identity.clone()
            };
            self.push(Record { identity: Arc::new(identity), measure });
        }
    }

    /// Adds a record; consecutive records with equal identities share one.
    fn push(&mut self, mut record: Record) {
        if let Some(last) = self.records.last().filter(|last| last.identity == record.identity) {
            record.identity = last.identity.clone();
        }
        self.records.push(record);
    }
}
