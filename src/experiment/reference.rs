//! Reference prompts: what heads write on average, and how they rank, before a treatment silences some of them.
//!
//! They are prompts of the grid's kinds under seeds of their own, so that heads are never chosen by the prompts that then
//! judge the choice.

use super::{Cell, CellSpec, Setup};
use crate::attention::{HeadOutputSums, Selection, Stream};
use crate::bail_usage;
use crate::measure::{AnswerMeasure, Measure, RolesMeasure};
use crate::models::Model;
use crate::prompt::Prompt;
use crate::rng::Rng;
use crate::treatment::{Ranking, Reference, Resolver, RowSelection};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use strum::VariantArray as _;

/// A head in the order of a ranking.
#[derive(Debug, Serialize)]
pub struct RankedHead<'a> {
    model: &'a str,
    ranking: &'static str,
    /// From 1, the best.
    rank: usize,
    layer: usize,
    head: usize,
    /// Mean over the reference prompts.
    score: f64,
}

/// Reference prompts of a run, at most.
const PROMPTS: usize = 10;

impl Setup {
    /// What conditions of a model are resolved with.
    pub(super) fn resolver<'a>(&self, model: &'a Model) -> Resolver<'a> {
        let config = &model.transformer.config;
        Resolver { model: &model.name, layers: config.layers.len(), heads: config.wiring().heads() }
    }

    /// What is known of every model's heads from reference prompts; nothing where no condition needs it. It is found once.
    ///
    /// # Errors
    /// If a prompt cannot be made or passed through a model; usage errors for rankings that a model does not have.
    pub fn references(&self) -> Result<&[Reference]> {
        if let Some(found) = self.references.get() {
            return Ok(found);
        }
        let needed = self.conditions.iter().any(|condition| condition.needs_reference());
        let of = |index| if needed { self.reference(index) } else { Ok(Reference::default()) };
        let found: Vec<Reference> = (0..self.models.len()).map(of).collect::<Result<_>>()?;
        for (model, reference) in self.models.iter().zip(&found) {
            self.check_rankings(model, reference)?;
        }
        Ok(self.references.get_or_init(|| found))
    }

    /// All heads of every model by the rankings that conditions name, best first; none where no condition names one.
    ///
    /// # Errors
    /// As [`Setup::references`].
    pub fn ranked_heads(&self) -> Result<Vec<RankedHead<'_>>> {
        let used: BTreeSet<_> = self.conditions.iter().flat_map(|condition| condition.rankings()).collect();
        if used.is_empty() {
            return Ok(Vec::new());
        }
        let mut ranked = Vec::new();
        for (model, reference) in self.models.iter().zip(self.references()?) {
            for (by, heads) in reference.rankings.iter().filter(|(by, _)| used.contains(by)) {
                let head = |(i, &((layer, head), score)): (usize, &((usize, usize), f64))| RankedHead {
                    model: &model.name,
                    ranking: by.name(),
                    rank: i + 1,
                    layer,
                    head,
                    score,
                };
                ranked.extend(heads.iter().enumerate().map(head));
            }
        }
        Ok(ranked)
    }

    fn check_rankings(&self, model: &Model, reference: &Reference) -> Result<()> {
        for condition in &self.conditions {
            if let Some(by) = condition.rankings().find(|by| !reference.rankings.contains_key(by)) {
                let known: Vec<&str> = reference.rankings.keys().map(|ranking| ranking.name()).collect();
                let (by, known) = (by.name(), known.join(", "));
                bail_usage!(
                    "the condition {condition}: heads of {} cannot be ranked by {by}, but by {known}",
                    model.name
                );
            }
        }
        Ok(())
    }

    fn reference(&self, index: usize) -> Result<Reference> {
        let model = &self.models[index];
        let (mut means, mut scores) = (Means::default(), BTreeMap::new());
        for prompt in self.reference_prompts(model)? {
            let (cell, prompt) = prompt;
            means.add(model, &prompt)?;
            if matches!(cell.spec, CellSpec::Needle(_)) {
                self.score_heads(index, &cell, &prompt, &mut scores)?;
            }
        }
        Ok(Reference { written: means.finish(), rankings: rankings(&scores) })
    }

    /// Prompts of all kinds of the grid in turn.
    fn reference_prompts(&self, model: &Model) -> Result<Vec<(Cell, Prompt)>> {
        let cells = self.grid.cells();
        let n = PROMPTS.min(cells.len());
        // An index is added to it.
        let seed = Rng::new(self.grid.seed(), "reference prompts").bits() >> 1;
        let prompt = |i: usize| {
            let cell = cells[i * cells.len() / n].clone();
            let prompt = cell.prompt(seed, &self.sources, model.tokenizer()).context("a reference prompt")?;
            Ok((cell, prompt))
        };
        (0..n).map(prompt).collect()
    }

    /// Adds to the scores of each head what rankings read of one prompt.
    fn score_heads(&self, model: usize, cell: &Cell, prompt: &Prompt, scores: &mut Scores) -> Result<()> {
        // Of all heads, whichever are measured: the best are the same in every run.
        let (all, measures) = (Selection::default(), [&AnswerMeasure { by_head: true } as &dyn Measure, &RolesMeasure]);
        for record in self.untreated(model, &all, (cell, prompt), &measures)? {
            let measure = &record.measure;
            let (Some(layer), Some(head), Some(value)) = (measure.layer, measure.head, measure.value) else { continue };
            let of = |ranking: &&Ranking| ranking.metric() == (&*measure.metric, measure.region.as_deref());
            for ranking in Ranking::VARIANTS.iter().filter(of) {
                let (sum, n) = scores.entry(*ranking).or_default().entry((layer, head)).or_default();
                (*sum, *n) = (*sum + value, *n + 1);
            }
        }
        Ok(())
    }
}

/// Sums and counts of each head, by ranking.
type Scores = BTreeMap<Ranking, BTreeMap<(usize, usize), (f64, usize)>>;

/// Heads as (layer, head), each with its mean, the best first.
type Ranked = Vec<((usize, usize), f64)>;

/// Heads from the largest mean to the smallest, the first of equals first.
fn rankings(scores: &Scores) -> BTreeMap<Ranking, Ranked> {
    let ranked = |heads: &BTreeMap<(usize, usize), (f64, usize)>| {
        let mut ranked: Vec<_> = heads.iter().map(|(&head, &(sum, n))| (head, sum / n as f64)).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    };
    scores.iter().map(|(&ranking, heads)| (ranking, ranked(heads))).collect()
}

/// What heads write, added up over prompts.
#[derive(Default)]
struct Means {
    /// By rows and layer.
    sums: BTreeMap<RowSelection, Vec<Vec<f64>>>,
    counts: BTreeMap<RowSelection, usize>,
}

impl Means {
    fn add(&mut self, model: &Model, prompt: &Prompt) -> Result<()> {
        let sets: Vec<Vec<Range<usize>>> = RowSelection::VARIANTS.iter().map(|rows| rows.of(prompt)).collect();
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
        let mean = |(rows, layers): (RowSelection, Vec<Vec<f64>>)| {
            let n = self.counts[&rows].max(1) as f64;
            let of_layer = |sum: Vec<f64>| sum.into_iter().map(|sum| (sum / n) as f32).collect();
            (rows, layers.into_iter().map(of_layer).collect())
        };
        self.sums.into_iter().map(mean).collect()
    }
}
