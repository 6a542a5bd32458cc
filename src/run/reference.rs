//! Reference prompts: mean outputs and rankings of heads, which treatments use.
//!
//! They are prompts of the grid's kinds with other seeds, so that heads are not chosen on the prompts on which they are
//! then measured.

use super::head_costs::CostPrompts;
use super::prompt::PromptRun;
use super::Setup;
use crate::measures::{AnswerMeasure, Measure, RolesMeasure};
use crate::results::RankedHead;
use crate::treatments::{rows_of, Reference};
use anyhow::{Context, Result};
use base::bail_usage;
use engine::attention::{HeadOutputSums, Stream};
use engine::model::open::Model;
use names::condition::{Ranking, RowSelection};
use names::{HeadPlace, LayersAndHeads};
use stats::Rng;
use stats::{mean, pearson};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use strum::VariantArray as _;
use text::{PlannedPrompt, Prompt, PromptSpec};

/// Prompts on which heads are ranked of which a picture shows the best.
const OF_PICTURES: usize = 2;

/// Largest number of reference prompts.
const PROMPTS: usize = 10;

/// The mean outputs and rankings of every model's heads on the reference prompts; empty if no condition needs
/// them.
///
/// # Errors
/// If a prompt cannot be built or its pass fails; a usage error for rankings that a model does not have.
pub(super) fn references(setup: &Setup) -> Result<Vec<Reference>> {
    let mut references = Vec::new();
    for (index, model) in setup.models.iter().enumerate() {
        let needed = setup.needs_reference(model);
        references.push(if needed { reference(setup, index)? } else { Reference::default() });
    }
    for (model, reference) in setup.models.iter().zip(&references) {
        check_rankings(setup, model, reference)?;
    }
    Ok(references)
}

/// All heads of every model, best first, for each ranking that a condition names.
///
/// # Errors
/// Those of [`Setup::references`].
pub(super) fn ranked_heads(setup: &Setup) -> Result<Vec<RankedHead>> {
    let used: BTreeSet<_> = setup.conditions.iter().flat_map(|condition| condition.rankings()).collect();
    if used.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranked = Vec::new();
    for (model, reference) in setup.models.iter().zip(setup.references()?) {
        for (by, heads) in reference.rankings.iter().filter(|(by, _)| used.contains(by)) {
            let agreement = reference.agreements.get(by).copied().flatten();
            for (i, &(HeadPlace { layer, head }, score)) in heads.iter().enumerate() {
                let model = model.name.clone();
                let ranking = by.name().to_owned();
                ranked.push(RankedHead { model, ranking, rank: i + 1, layer, head, score, agreement });
            }
        }
    }
    Ok(ranked)
}

fn check_rankings(setup: &Setup, model: &Model, reference: &Reference) -> Result<()> {
    for condition in &setup.conditions {
        if let Some(by) = condition.rankings().find(|by| !reference.rankings.contains_key(by)) {
            let known: Vec<&str> = reference.rankings.keys().map(|ranking| ranking.name()).collect();
            let only = match by {
                Ranking::Attribution if !setup.plan.passes.reading.has_kernels() => {
                    "; attribution is measured on the CPU in f32: leave --device and --dtype out"
                }
                _ => "",
            };
            let by = by.name();
            let known = known.join(", ");
            let name = &model.name;
            bail_usage!("the condition {condition}: heads of {name} cannot be ranked by {by}, but by {known}{only}");
        }
    }
    Ok(())
}

fn reference(setup: &Setup, index: usize) -> Result<Reference> {
    let model = &setup.models[index];
    let prompts = reference_prompts(setup, model)?;
    let mut means = WrittenMeans::default();
    prompts.iter().try_for_each(|(_, prompt)| means.add(model, prompt))?;
    let mut reference = Reference { written: means.finish(), ..Reference::default() };
    let wanted: BTreeSet<Ranking> = setup.conditions.iter().flat_map(|condition| condition.rankings()).collect();
    if wanted.is_empty() {
        return Ok(reference);
    }
    let mut scores = Scores::new();
    for (planned, prompt) in prompts.iter().filter(|(planned, _)| matches!(planned.spec, PromptSpec::Needle(_))) {
        score_heads(setup, index, planned, prompt, reference.answer_means(), &mut scores)?;
    }
    if wanted.contains(&Ranking::Cost) {
        scores.insert(Ranking::Cost, CostPrompts::of(setup, index, usize::MAX).measure(&reference)?);
    }
    scores.retain(|_, heads| !heads.is_empty());
    reference.agreements = scores.iter().map(|(&by, heads)| (by, agreement(heads))).collect();
    reference.rankings = scores.iter().map(|(&by, heads)| (by, ranked(heads))).collect();
    Ok(reference)
}

/// Builds the reference prompts, spread evenly over those of the grid.
fn reference_prompts(setup: &Setup, model: &Model) -> Result<Vec<(PlannedPrompt, Prompt)>> {
    let grid = setup.grid.prompts();
    let n = PROMPTS.min(grid.len());
    // Half of the range, because an index is added to it.
    let seed = Rng::new(setup.grid.seed(), "reference prompts").bits() >> 1;
    let mut prompts = Vec::new();
    for i in 0..n {
        let planned = grid[i * grid.len() / n].clone();
        let prompt = planned.build(seed, &setup.sources, model.tokenizer()).context("a reference prompt")?;
        prompts.push((planned, prompt));
    }
    Ok(prompts)
}

/// Adds the scores of each head on one prompt, for every ranking.
fn score_heads(
    setup: &Setup,
    model: usize,
    planned: &PlannedPrompt,
    prompt: &Prompt,
    means: Option<&[Vec<f32>]>,
    scores: &mut Scores,
) -> Result<()> {
    // All heads, not only the measured ones, so that rankings are the same in every run.
    let all = LayersAndHeads::default();
    let measures = [&AnswerMeasure { by_head: true, sinks: false } as &dyn Measure, &RolesMeasure];
    let run = PromptRun { setup, model, planned, prompt, only: &all, measures: &measures };
    for record in run.untreated(means)? {
        let measure = &record.measure;
        let (Some(layer), Some(head), Some(value)) = (measure.layer, measure.head, measure.value) else { continue };
        for &ranking in Ranking::VARIANTS {
            let Some((metric, region)) = ranking.metric() else { continue };
            if measure.metric == metric.name && measure.region.as_deref() == region {
                scores.entry(ranking).or_default().entry(HeadPlace { layer, head }).or_default().push(value);
            }
        }
    }
    Ok(())
}

/// How much each head of a model brings the answer, on prompts of its own: what the answer loses without the head, in nats, times
/// the share of the answer in its output, of both what is above 0. Heads that only read the question have little of the latter. Empty where
/// costs are not measured.
///
/// # Errors
/// If a prompt cannot be built or its pass fails.
pub(super) fn bringers(setup: &Setup, index: usize) -> Result<BTreeMap<HeadPlace, f64>> {
    let model = &setup.models[index];
    if !setup.differentiates(model, setup.shortest_tok()) {
        return Ok(BTreeMap::new());
    }
    let prompts = CostPrompts::of(setup, index, OF_PICTURES);
    let mut means = WrittenMeans::default();
    let mut scores = Scores::new();
    for (planned, prompt) in prompts.built()? {
        means.add(model, &prompt)?;
        score_heads(setup, index, planned, &prompt, None, &mut scores)?;
    }
    let reference = Reference { written: means.finish(), ..Reference::default() };
    let shares: BTreeMap<HeadPlace, f64> =
        scores.remove(&Ranking::ShareOut).map_or_else(BTreeMap::new, |shares| ranked(&shares).into_iter().collect());
    let costs = ranked(&prompts.measure(&reference)?).into_iter();
    Ok(costs.map(|(at, cost)| (at, cost.max(0.0) * shares.get(&at).map_or(0.0, |share| share.max(0.0)))).collect())
}

/// The scores of each head on one prompt after the other, by ranking.
type Scores = BTreeMap<Ranking, HeadScores>;
type HeadScores = BTreeMap<HeadPlace, Vec<f64>>;

/// Heads with their mean scores, best first.
type Ranked = Vec<(HeadPlace, f64)>;

/// Sorts heads from the largest mean to the smallest; equal heads keep their order.
fn ranked(heads: &HeadScores) -> Ranked {
    let means = heads.iter().map(|(&head, scores)| (head, scores.iter().sum::<f64>() / scores.len() as f64));
    let mut ranked: Ranked = means.collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked
}

/// Pearson's correlation over heads between the scores on every second prompt and those on the others: heads with large scores count, and
/// the order of the many without any does not.
fn agreement(heads: &HeadScores) -> Option<f64> {
    let half = |first: usize| {
        let halves = heads.values().map(|scores| scores.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
        halves.map(|scores| mean(&scores)).collect::<Option<Vec<f64>>>()
    };
    pearson(&half(0)?, &half(1)?)
}

/// Sums of the heads' outputs over prompts.
#[derive(Default)]
struct WrittenMeans {
    /// By rows and layer.
    sums: BTreeMap<RowSelection, Vec<Vec<f64>>>,
    counts: BTreeMap<RowSelection, usize>,
}

impl WrittenMeans {
    /// Adds the outputs on one prompt.
    fn add(&mut self, model: &Model, prompt: &Prompt) -> Result<()> {
        let sets: Vec<Vec<Range<usize>>> = RowSelection::VARIANTS.iter().map(|rows| rows_of(*rows, prompt)).collect();
        let mut attend = HeadOutputSums::new(Stream::new(&[]), sets);
        model.transformer.hidden(std::slice::from_ref(&prompt.ids), &mut attend)?;
        for ((rows, layers), count) in RowSelection::VARIANTS.iter().zip(attend.sums).zip(attend.counts) {
            let sums = self.sums.entry(*rows).or_insert_with(|| vec![Vec::new(); layers.len()]);
            for (sum, more) in sums.iter_mut().zip(layers) {
                sum.resize(more.len(), 0.0);
                sum.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
            }
            *self.counts.entry(*rows).or_default() += count;
        }
        Ok(())
    }

    fn finish(self) -> BTreeMap<RowSelection, Vec<Vec<f32>>> {
        let mut means = BTreeMap::new();
        for (rows, layers) in self.sums {
            let n = self.counts[&rows].max(1) as f64;
            let layers: Vec<Vec<f32>> =
                layers.into_iter().map(|sums| sums.into_iter().map(|sum| (sum / n) as f32).collect()).collect();
            means.insert(rows, layers);
        }
        means
    }
}
