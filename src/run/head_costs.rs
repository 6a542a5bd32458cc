//! What each head costs: the change of the answer's log-probability with the head's mean output in the rows of answers, exactly, on
//! prompts on which nothing else is measured.

use super::passes::results;
use super::prompt::PromptResult;
use super::{PassOptions, Plan, Setup};
use crate::measures::AnswerMeasure;
use crate::results::record::Record;
use crate::treatments::Reference;
use anyhow::{anyhow, Result};
use names::condition::{Condition, HeadSelection, Replacement, RowSelection, Treatment};
use names::metric::{ANSWER_LOG_PROB, CELL};
use names::HeadPlace;
use rayon::prelude::*;
use stats::Rng;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use text::{PlannedPrompt, Prompt, PromptSpec};

/// Largest and least number of prompts, and the passes that they may take in all: models with many heads have fewer.
const MOST_PROMPTS: usize = 10;
const LEAST_PROMPTS: usize = 2;
const PASSES: usize = 2000;

/// The prompts on which costs are measured: a setup with one model and other seeds, and its prompts.
pub(super) struct CostPrompts {
    setup: Setup,
    prompts: Vec<PlannedPrompt>,
    heads: Vec<HeadPlace>,
}

/// What the answer loses without a head on each prompt, in nats, by head.
pub(super) type HeadCosts = BTreeMap<HeadPlace, Vec<f64>>;

impl CostPrompts {
    /// Those of a model of a run: needle prompts as the run has them, at most so many. None for plain text.
    pub(super) fn of(setup: &Setup, index: usize, most: usize) -> Self {
        let model = &setup.models[index];
        let config = &model.transformer.config;
        let heads: Vec<HeadPlace> = HeadPlace::all(config.layers.len(), config.wiring().heads()).collect();
        let prompts =
            spread(&setup.grid.prompts(), (PASSES / heads.len()).clamp(LEAST_PROMPTS, MOST_PROMPTS).min(most));
        let mut grid = setup.grid.clone();
        // Half of the range, because an index is added to it.
        *grid.seed_mut() = Rng::new(setup.grid.seed(), "prompts of head costs").bits() >> 1;
        let mut conditions = vec![Condition::default()];
        conditions.extend(heads.iter().map(|&at| without(at)));
        let passes = PassOptions { only_score_treated: true, hides: false, max_new: None, ..setup.plan.passes.clone() };
        let setup = Setup {
            plan: Plan { passes, maps: None, ..setup.plan.clone() },
            models: vec![model.clone()],
            grid,
            sources: setup.sources.clone(),
            conditions,
            whole_passes: false,
            references: OnceLock::new(),
        };
        Self { setup, prompts, heads }
    }

    /// The prompts themselves.
    ///
    /// # Errors
    /// If one cannot be built.
    pub(super) fn built(&self) -> Result<Vec<(&PlannedPrompt, Prompt)>> {
        let Setup { grid, sources, models, .. } = &self.setup;
        let mut built = Vec::new();
        for planned in &self.prompts {
            built.push((planned, planned.build(grid.seed(), sources, models[0].tokenizer())?));
        }
        Ok(built)
    }

    /// Measures the cost of every head, given mean outputs.
    ///
    /// # Errors
    /// If a prompt cannot be built or its pass fails.
    pub(super) fn measure(mut self, means: &Reference) -> Result<HeadCosts> {
        self.setup.references = vec![means.clone()].into();
        let names = self.setup.conditions[1..].iter().map(Condition::column);
        let names: BTreeMap<Option<String>, HeadPlace> = names.zip(self.heads).collect();
        let measure = AnswerMeasure { by_head: false, sinks: false };
        let passed: Vec<PromptResult> = self
            .prompts
            .par_iter()
            .with_max_len(1)
            .flat_map_iter(|prompt| results(&self.setup, std::slice::from_ref(prompt), &[&measure]))
            .collect();
        let mut costs = HeadCosts::new();
        for PromptResult { records, .. } in passed {
            add_costs(&records, &names, &mut costs)?;
        }
        Ok(costs)
    }
}

/// The mean output of one head in the rows of answers.
fn without(at: HeadPlace) -> Condition {
    Treatment::replace(HeadSelection::Named(vec![at]), RowSelection::Answer, Replacement::Mean).into()
}

/// As many needle prompts as are wanted, spread evenly over those of a grid, without twins; each has a seed of its own.
fn spread(grid: &[PlannedPrompt], wanted: usize) -> Vec<PlannedPrompt> {
    let needles: Vec<&PlannedPrompt> =
        grid.iter().filter(|prompt| prompt.twin.is_none() && matches!(prompt.spec, PromptSpec::Needle(_))).collect();
    if needles.is_empty() {
        return Vec::new();
    }
    let mut prompts = Vec::new();
    for i in 0..wanted {
        let planned = needles[i * needles.len() / wanted];
        prompts.push(PlannedPrompt { index: i as u64, seed_index: i as u64, ..planned.clone() });
    }
    prompts
}

/// Adds what the mean over questions of a prompt loses under each condition.
fn add_costs(records: &[Record], heads: &BTreeMap<Option<String>, HeadPlace>, costs: &mut HeadCosts) -> Result<()> {
    let mut sums: BTreeMap<Option<String>, Vec<f64>> = BTreeMap::new();
    for record in records {
        if record.measure.metric == CELL.name {
            return Err(anyhow!("{}", record.measure.error.as_deref().unwrap_or("a pass failed")));
        }
        if let Some(value) = record.measure.value.filter(|_| record.measure.metric == ANSWER_LOG_PROB.name) {
            let condition = record.identity.condition.as_ref().map(ToString::to_string);
            sums.entry(condition).or_default().push(value);
        }
    }
    let mean = |condition: &Option<String>| sums.get(condition).and_then(|values| stats::mean(values));
    let Some(untreated) = mean(&None) else { return Ok(()) };
    for (condition, &at) in heads {
        costs.entry(at).or_default().extend(mean(condition).map(|value| untreated - value));
    }
    Ok(())
}
