//! All passes over a few prompts: every model reads each of them under every condition.

use super::context::with_answer;
use super::identity::identity;
use super::prompt_run::PromptRun;
use super::Setup;
use crate::measures::{Measure, MeasureData, PassKey};
use crate::results::record::{Identity, Measurement, Record};
use engine::attention::Prefix;
use names::metric::CELL;
use std::sync::Arc;
use text::{PlannedPrompt, Prompt};

/// Runs all passes over prompts that begin alike: every model under every condition.
pub(super) fn results(setup: &Setup, prompts: &[PlannedPrompt], measures: &[&dyn Measure]) -> Vec<PromptResult> {
    let mut results: Vec<PromptResult> = prompts.iter().map(|_| PromptResult::default()).collect();
    for (model, opened) in setup.models.iter().enumerate() {
        let mut prefix: Option<Prefix> = None;
        for (planned, result) in prompts.iter().zip(&mut results) {
            let built = planned.build(setup.grid.seed(), &setup.sources, opened.tokenizer());
            let done = built.and_then(|prompt| {
                let prompt = with_answer(setup, opened, planned, prompt)?;
                PromptRun { setup, model, planned, prompt: &prompt, only: &setup.plan.passes.select, measures }
                    .under_each_condition(&mut prefix, result)
            });
            if let Err(error) = done {
                let identity = Arc::new(identity(setup, planned, opened, &setup.conditions[0]));
                let error = Some(format!("{error:#}"));
                let measure = Measurement { metric: CELL.name.into(), error, ..Measurement::default() };
                result.records.push(Record { identity, measure });
            }
        }
    }
    results
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
