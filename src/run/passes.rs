//! All passes over a few prompts: every model reads each of them under every condition.

use super::context::with_answer;
use super::identity::identity;
use super::prompt::{PromptResult, PromptRun};
use super::Setup;
use crate::measures::Measure;
use crate::results::record::{Measurement, Record};
use engine::attention::Prefix;
use names::metric::CELL;
use std::sync::Arc;
use text::PlannedPrompt;

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
