//! A run with everything loaded that it needs: models, texts, prompts and conditions.

use super::reference::references;
use super::{MapsOfOnePrompt, Plan};
use crate::measures::{ContextMeasure, MeasureName, Measures, NllMeasure, OutlierMeasure};
use crate::results::record::no_formula;
use crate::results::table::plural;
use crate::results::{AskedContext, LeftOut, MassiveAt, Said, Scored, SegmentText, Tokens};
use crate::treatments::Reference;
use anyhow::Result;
use base::error::{is_of_machine, is_usage, Usage};
use engine::model::open::{Model, OpenedModel};
use names::condition::{Condition, PairedPrompt, RowSelection};
use names::distinct;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use text::{Grid, PlannedPrompt, Segment, Sources, Text};

/// A plan with its models and texts loaded.
#[derive(Clone)]
pub struct Setup {
    /// The plan.
    pub plan: Plan,
    /// The models, all measured on the same prompts.
    pub models: Vec<Model>,
    /// The prompts; windows of text are limited to the length of the text.
    pub grid: Grid,
    /// The texts that prompts are made from.
    pub sources: Sources,
    /// The conditions; the first one is the baseline of the others.
    pub conditions: Vec<Condition>,
    /// Computes all rows in every pass, as a reference for passes that share rows. `false` by default.
    pub whole_passes: bool,
    /// Mean outputs and rankings of each model's heads, computed once.
    pub(super) references: OnceLock<Vec<Reference>>,
}

/// The measurement of heads before the run, in words.
const OF_HEADS: &str = "measuring heads on prompts of their own";

/// The setups of all series of a run.
pub struct Setups {
    pub each: Vec<Setup>,
    /// The series that cannot be measured.
    pub left_out: Vec<LeftOut>,
}

impl Setups {
    /// Loads the models and the texts of plans. Of several, those are left out that the models do not allow.
    ///
    /// # Errors
    /// If a file cannot be read; a usage error if the only plan cannot be measured, before weights are read.
    pub fn load(plans: Vec<Plan>, opened: Vec<OpenedModel>) -> Result<Self> {
        let is_only = plans.len() == 1;
        let mut left_out = Vec::new();
        let mut possible = Vec::new();
        for plan in plans {
            let series = plan.series;
            if keep_possible(series, is_only, plan.check(), &mut left_out)?.is_none() {
                continue;
            }
            // A file that cannot be read ends the run, as it is of no model.
            let sources = Sources::read(&plan.grid)?;
            let texts = Texts::of(plan, sources, &opened);
            possible.extend(keep_possible(series, is_only, texts, &mut left_out)?);
        }
        if possible.is_empty() {
            return Err(nothing_possible(&left_out));
        }
        let models = opened.into_iter().map(OpenedModel::load).collect::<Result<Vec<_>>>()?;
        let each = possible.into_iter().map(|texts| texts.with(models.clone())).collect();
        Ok(Self { each, left_out })
    }
}

/// Notes that a series cannot be measured, if another may be: its usage error becomes the reason.
///
/// # Errors
/// Those of the only series, errors that are not of usage, and those of the machine: what is measured does not depend on how much
/// memory is free.
pub(super) fn keep_possible<T>(
    series: &str,
    is_only: bool,
    made: Result<T>,
    left_out: &mut Vec<LeftOut>,
) -> Result<Option<T>> {
    match made {
        Err(error) if !is_only && is_usage(&error) && !is_of_machine(&error) => {
            left_out.push(LeftOut { series: series.to_owned(), why: format!("{error:#}") });
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// The error of a run that has nothing to measure.
pub(super) fn nothing_possible(left_out: &[LeftOut]) -> anyhow::Error {
    let reasons = distinct(left_out.iter().map(|series| series.why.clone()));
    Usage(format!("nothing can be measured: {}", reasons.join("; "))).into()
}

/// A plan with its texts, before weights are read.
struct Texts {
    plan: Plan,
    grid: Grid,
    sources: Sources,
    conditions: Vec<Condition>,
}

impl Texts {
    /// Limits the prompts of a plan to its texts, and checks that the models allow it.
    fn of(plan: Plan, sources: Sources, opened: &[OpenedModel]) -> Result<Self> {
        let conditions = plan.all_conditions()?;
        let mut grid = plan.grid.clone();
        let tokenizers = opened.iter().map(OpenedModel::tokenizer);
        match &mut grid {
            Grid::Text(windows) => {
                // Measures per token also use the last, shorter window; in a mean over windows it would count too much.
                let to_its_end =
                    [MeasureName::Nll, MeasureName::Outliers].iter().any(|name| plan.measures.contains(name));
                windows.limit(&sources.text, tokenizers, to_its_end)?;
            }
            Grid::Needle(needles) => needles.measure_own_text(&sources, tokenizers)?,
            Grid::Context(contexts) => contexts.measure(&sources.contexts, tokenizers)?,
            Grid::Shots(_) => {}
        }
        grid.check_count()?;
        let longest = longest(&grid.prompts());
        opened.iter().try_for_each(|model| plan.check_model(&model.name, &model.config, longest))?;
        Ok(Self { plan, grid, sources, conditions })
    }

    fn with(self, models: Vec<Model>) -> Setup {
        let Self { plan, grid, sources, conditions } = self;
        Setup { conditions, models, grid, sources, plan, whole_passes: false, references: OnceLock::new() }
    }
}

/// Tokens of the longest prompt.
pub(super) fn longest(prompts: &[PlannedPrompt]) -> usize {
    prompts.iter().map(|prompt| prompt.spec.ctx_tok()).max().unwrap_or(0)
}

impl Setup {
    /// Number of prompts that run in parallel: only one if weights are streamed or candle's ops compute.
    pub(super) fn parallel_prompts(&self) -> usize {
        let streamed = self.models.iter().any(|model| model.transformer.is_streamed());
        if streamed || !self.plan.passes.reading.has_kernels() {
            1
        } else {
            rayon::current_num_threads()
        }
    }

    /// Returns `true` if any model has a second attention map.
    pub fn has_second_map(&self) -> bool {
        self.models.iter().any(|model| model.transformer.config.wiring().maps() > 1)
    }

    /// Returns `true` if passes over texts that begin alike share keys and values.
    pub(super) fn shares_prefixes(&self) -> bool {
        self.plan.passes.reading.has_kernels() && !self.whole_passes
    }

    /// Returns `true` if regions are hidden in passes of their own, beside the untreated one over a prompt.
    pub(super) fn hides(&self, model: &Model, tokens: usize) -> bool {
        self.plan.passes.hides
            && !matches!(self.grid, Grid::Text(_))
            && (!self.shares_prefixes() || model.transformer.config.keeps_prefix(tokens))
    }

    /// Returns `true` if it is measured what heads write in the rows of answers.
    pub(super) fn measures_answers(&self) -> bool {
        let measured = [MeasureName::Answer, MeasureName::AnswerByHead];
        self.plan.measures.iter().any(|name| measured.contains(name))
    }

    /// Returns `true` if gradients of answers can be computed in the untreated pass over a prompt, for heads to be attributed. Plain
    /// text has no answers, and only the kernels keep the keys and values that this takes.
    pub(super) fn differentiates(&self, model: &Model, tokens: usize) -> bool {
        self.measures_answers()
            && !matches!(self.grid, Grid::Text(_))
            && self.plan.passes.reading.has_kernels()
            && model.transformer.config.differentiates(tokens)
    }

    /// Returns `true` if heads are attributed with their mean outputs: in runs about heads and their roles, as far as answers are
    /// differentiated at all.
    pub(super) fn attributes_heads(&self, model: &Model, tokens: usize) -> bool {
        let of_heads = [MeasureName::AnswerByHead, MeasureName::Roles];
        of_heads.iter().all(|name| self.plan.measures.contains(name)) && self.differentiates(model, tokens)
    }

    /// The measurement before the run, in words; `None` without one. It gives mean outputs and rankings of heads, or chooses the heads of
    /// a picture.
    pub fn measured_first(&self) -> Option<&'static str> {
        match &self.plan.maps {
            Some(MapsOfOnePrompt::Heatmap(spec)) if spec.chooses_layers() => Some("choosing the layers to draw"),
            Some(MapsOfOnePrompt::Explorer) => Some(OF_HEADS),
            _ => self.models.iter().any(|model| self.needs_reference(model)).then_some(OF_HEADS),
        }
    }

    /// Returns `true` if mean outputs or rankings of a model's heads are needed.
    pub(super) fn needs_reference(&self, model: &Model) -> bool {
        self.conditions.iter().any(Condition::needs_reference) || self.attributes_heads(model, self.shortest_tok())
    }

    /// The length of the shortest prompts, in tokens.
    pub(super) fn shortest_tok(&self) -> usize {
        self.grid.ctx_tok().into_iter().min().unwrap_or(0)
    }

    /// Returns `true` if conditions take outputs of heads from another prompt.
    pub(super) fn patches(&self) -> bool {
        !self.patched_rows().is_empty()
    }

    /// The rows in which conditions take outputs of heads, by the prompt that they are taken from.
    pub(super) fn patched_rows(&self) -> BTreeSet<(PairedPrompt, RowSelection)> {
        self.conditions.iter().flat_map(|condition| condition.patched_rows()).collect()
    }

    /// The mean outputs and rankings of every model's heads on the reference prompts, computed once; empty if no
    /// condition needs them.
    ///
    /// # Errors
    /// If a prompt cannot be built or its pass fails; a usage error for rankings that a model does not have.
    pub fn references(&self) -> Result<&[Reference]> {
        if let Some(references) = self.references.get() {
            return Ok(references);
        }
        let references = references(self)?;
        Ok(self.references.get_or_init(|| references))
    }

    /// The subtitle of figures, such as `4096 tokens · 15 prompts per depth · seed 0`.
    pub fn caption(&self) -> String {
        self.caption_of(&self.grid.ctx_tok())
    }

    /// The subtitle for prompts of these lengths only.
    pub fn caption_of(&self, ctx_tok: &[usize]) -> String {
        let tokens: Vec<String> = ctx_tok.iter().map(ToString::to_string).collect();
        let what = match &self.grid {
            Grid::Needle(grid) => {
                let samples = grid.samples() * if grid.unanswerable { 2 } else { 1 };
                match grid.depths.as_slice() {
                    [depth_pct] if samples == 1 => format!("1 prompt, answer at {depth_pct} %"),
                    _ => format!("{} per depth", plural(samples, "prompt")),
                }
            }
            Grid::Shots(grid) => {
                format!("{} in {}", plural(grid.samples, "prompt"), plural(grid.arrangements, "arrangement"))
            }
            Grid::Context(grid) => {
                let orders = grid.orders();
                let in_orders = if orders > 1 { format!(" in {}", plural(orders, "order")) } else { String::new() };
                format!("{}{in_orders}", plural(self.sources.contexts.len(), "question"))
            }
            Grid::Text(grid) => {
                let stride = grid.stride.filter(|_| grid.samples > 1);
                let stride = stride.map_or(String::new(), |stride| format!(" {stride} tokens apart"));
                format!("{}{stride} of {}", plural(grid.samples, "window"), self.sources.text.name())
            }
        };
        format!("{} tokens · {what} · seed {}", tokens.join(", "), self.grid.seed())
    }

    /// The negative log-likelihoods token by token.
    pub fn tokens(&self, measures: &Measures) -> Tokens {
        let mut scored = Vec::new();
        for (key, windows) in measures.of_type::<NllMeasure>().flat_map(|nll| &nll.pooled) {
            let condition = &self.conditions[key.condition];
            scored.push(Scored {
                model: self.models[key.model].name.clone(),
                condition: condition.column(),
                bits: condition.bits(),
                windows: windows.iter().filter(|window| !window.tokens.is_empty()).cloned().collect(),
            });
        }
        Tokens(scored)
    }

    /// The massive activations of the untreated passes, with token texts made safe for spreadsheets by
    /// [`no_formula`].
    pub fn massive(&self, measures: &Measures) -> Vec<MassiveAt> {
        let mut massive = Vec::new();
        let pooled = measures.of_type::<OutlierMeasure>().flat_map(|outliers| &outliers.pooled);
        for (key, outliers) in pooled.filter(|(key, _)| key.condition == 0) {
            massive.extend(outliers.massive.iter().map(|at| MassiveAt {
                model: self.models[key.model].name.clone(),
                token: no_formula(&at.token).into_owned(),
                large_share: Some(outliers.large_share(at.layer, at.channel)),
                ..at.clone()
            }));
        }
        massive
    }

    /// The texts with questions about them, and what models say to these.
    pub fn contexts(&self, measures: &Measures) -> Vec<AskedContext> {
        let said: Vec<&Said> = measures.of_type::<ContextMeasure>().flat_map(|measure| &measure.said).collect();
        let mut asked = Vec::new();
        for (sample, context) in (0..).zip(self.sources.contexts.iter()) {
            let segments = context.segments.iter().map(|Segment { before, text, kind }| SegmentText {
                kind: *kind,
                before: before.clone(),
                text: text.clone(),
            });
            asked.push(AskedContext {
                sample,
                id: context.id.clone(),
                document: context.document.clone(),
                question: context.question.clone(),
                answers: context.answers.clone(),
                wrong: context.wrong.clone(),
                segments: segments.collect(),
                said: said.iter().filter(|said| said.sample == sample).map(|said| (*said).clone()).collect(),
            });
        }
        asked
    }

    /// The settings of the run with defaults filled in, for the manifest.
    pub(super) fn config(&self) -> Value {
        let plan = &self.plan;
        let mut config = json!({
            "question": plan.origin.question,
            "analysis": plan.origin.analysis,
            "command": plan.origin.command,
            "measures": plan.measures,
            "grid": self.grid,
            "conditions": self.conditions,
            "selection": plan.passes.select,
            "fail_if": plan.origin.fail_if,
        });
        if plan.passes.only_score_treated {
            config["only_score_treated"] = true.into();
        }
        if plan.measures.contains(&MeasureName::Nll) {
            config["skip"] = plan.skip.into();
            if !matches!(self.sources.text, Text::Prose) {
                config["own_text"] = true.into();
            }
        }
        if let Some(max_new) = plan.passes.max_new {
            config["max_new"] = json!(max_new);
        }
        config
    }
}
