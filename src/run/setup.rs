//! An experiment with everything loaded that it needs: models, texts, prompts and conditions.

use super::{Experiment, Grid, Measures, Sources};
use crate::bail_usage;
use crate::measures::{MeasureName, PassKey};
use crate::model::open::{self, Model, OpenedModel};
use crate::prompts::NeedleForm;
use crate::results::record::no_formula;
use crate::results::table::plural;
use crate::results::{About, MassiveAt, Scored, ScoredWindow, Tokens};
use crate::treatments::{Condition, Reference};
use anyhow::Result;
use serde_json::{json, Value};
use std::sync::OnceLock;

/// Most prompts of a run; each takes some memory before the run begins.
const MOST_PROMPTS: usize = 10_000_000;

/// An experiment with its models and texts loaded.
#[derive(Clone)]
pub struct Setup {
    /// The experiment.
    pub experiment: Experiment,
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

impl Setup {
    /// Loads the models and the texts of an experiment.
    ///
    /// # Errors
    /// If a file cannot be read; a usage error if the grid is too large or a condition is invalid.
    pub fn load(experiment: Experiment) -> Result<Self> {
        let opened = experiment
            .models
            .iter()
            .map(|name| open::open(name, experiment.reading.clone()))
            .collect::<Result<Vec<_>>>()?;
        let Experiment { haystack, text, ids, .. } = &experiment;
        let sources = Sources::read(&experiment.grid, haystack.as_deref(), text.as_deref(), ids.as_deref())?;
        let mut grid = experiment.grid.clone();
        if let Grid::Text(windows) = &mut grid {
            // Measures per token also use the last, shorter window; in a mean over windows it would count too much.
            let by_token = |measure| matches!(measure, MeasureName::Nll | MeasureName::Outliers);
            let to_its_end = experiment.measure_names().into_iter().any(by_token);
            windows.limit(&sources.text, opened.iter().map(OpenedModel::tokenizer), to_its_end)?;
        }
        if grid.count().is_none_or(|count| count > MOST_PROMPTS) {
            bail_usage!("more than {MOST_PROMPTS} prompts: lower --samples, or cut --ctx into several runs");
        }
        let conditions = experiment.conditions()?;
        let models = opened.into_iter().map(OpenedModel::load).collect::<Result<Vec<_>>>()?;
        Ok(Self { conditions, models, grid, sources, experiment, whole_passes: false, references: OnceLock::new() })
    }

    /// Creates the measures of the experiment.
    ///
    /// # Errors
    /// If a tokenizer fails on the reference prose; a usage error for maps that the models do not have or that do not
    /// fit.
    pub fn measures(&self) -> Result<Measures> {
        let mut measures = Measures::new(&self.experiment.measure_names());
        if let Some(nll) = &mut measures.nll {
            let tokenizers: Vec<_> = self.models.iter().map(|model| model.tokenizer().ok()).collect();
            nll.exclude_frequent(&tokenizers)?;
            nll.skip = u32::try_from(self.experiment.skip).unwrap_or(u32::MAX);
        }
        self.add_maps(&mut measures)?;
        Ok(measures)
    }

    /// Checks that a model has the layers and heads that the conditions name.
    pub(super) fn check_conditions(&self, model: &Model) -> Result<()> {
        let is_text = matches!(self.grid, Grid::Text(_));
        if let Some(patch) = self.conditions.iter().find(|condition| condition.patched_rows().next().is_some()) {
            let why = match &self.grid {
                Grid::Needle(grid) if grid.absent_samples > 0 => {
                    Some("a question without an answer has none to change")
                }
                Grid::Needle(grid) if !grid.forms().iter().all(NeedleForm::has_cities) => {
                    Some("only needles that give cities numbers of five digits can be changed")
                }
                Grid::Needle(_) => {
                    self.experiment.max_new().map(|_| "generated tokens have no counterpart in the other prompt")
                }
                _ => Some("only the answers of needle prompts can be changed"),
            };
            if let Some(why) = why {
                bail_usage!("the condition {patch}: {why}");
            }
        }
        self.conditions.iter().try_for_each(|condition| self.resolver(model).check(condition, is_text))
    }

    /// Returns `true` if any model has a second attention map.
    pub fn has_second_map(&self) -> bool {
        self.models.iter().any(|model| model.transformer.config.wiring().maps() > 1)
    }

    /// Returns the subtitle of figures, such as `4096 tokens · 15 prompts per depth · seed 0`.
    pub fn caption(&self) -> String {
        self.caption_of(self.grid.ctx_tok())
    }

    /// Returns the subtitle for prompts of these lengths only.
    pub fn caption_of(&self, ctx_tok: &[usize]) -> String {
        let tokens: Vec<String> = ctx_tok.iter().map(ToString::to_string).collect();
        let what = match &self.grid {
            Grid::Needle(grid) => {
                let samples = grid.samples + grid.absent_samples;
                match grid.depths_pct.as_slice() {
                    [depth_pct] if samples == 1 => format!("1 prompt, answer at {depth_pct} %"),
                    _ => format!("{} per depth", plural(samples, "prompt")),
                }
            }
            Grid::Shots(grid) => {
                format!("{} in {}", plural(grid.samples, "prompt"), plural(grid.arrangements, "arrangement"))
            }
            Grid::Text(grid) => {
                let stride = grid.stride.filter(|_| grid.samples > 1);
                let stride = stride.map_or(String::new(), |stride| format!(" {stride} tokens apart"));
                format!("{}{stride} of {}", plural(grid.samples, "window"), self.sources.text.name())
            }
        };
        format!("{} tokens · {what} · seed {}", tokens.join(", "), self.grid.seed())
    }

    /// Returns what a frame needs to know of the run besides its records.
    pub fn about(&self) -> About {
        let models = self.models.iter().map(|model| model.info.clone()).collect();
        About { config: self.config(), models, seed: self.grid.seed() }
    }

    /// Returns the negative log-likelihoods token by token.
    pub fn tokens(&self, measures: &Measures) -> Tokens {
        let scored = |(key, windows): (&PassKey, &Vec<ScoredWindow>)| {
            let condition = &self.conditions[key.condition];
            let windows = windows.iter().filter(|window| !window.tokens.is_empty()).cloned().collect();
            let model = self.models[key.model].name.clone();
            Scored { model, condition: condition.column(), bits: condition.bits(), windows }
        };
        Tokens(measures.nll.iter().flat_map(|nll| &nll.pooled).map(scored).collect())
    }

    /// Returns the massive activations of the untreated passes, with token texts made safe for spreadsheets by
    /// [`no_formula`].
    pub fn massive(&self, measures: &Measures) -> Vec<MassiveAt> {
        let mut massive = Vec::new();
        let pooled = measures.outliers.iter().flat_map(|outliers| &outliers.pooled);
        for (key, found) in pooled.filter(|(key, _)| key.condition == 0) {
            massive.extend(found.massive.iter().map(|at| MassiveAt {
                model: self.models[key.model].name.clone(),
                token: no_formula(&at.token).into_owned(),
                large_share: Some(found.large_share(at.layer, at.channel)),
                ..at.clone()
            }));
        }
        massive
    }

    /// Returns the settings of the experiment with defaults filled in, for the manifest.
    pub(super) fn config(&self) -> Value {
        let experiment = &self.experiment;
        let mut config = json!({
            "question": experiment.question,
            "analysis": experiment.analysis,
            "show": experiment.show,
            "measures": experiment.measure_names(),
            "grid": self.grid.manifest(),
            "conditions": self.conditions,
            "selection": experiment.select,
            "expect": experiment.expect,
        });
        if experiment.only_score_treated {
            config["only_score_treated"] = true.into();
        }
        if experiment.measure_names().contains(&MeasureName::Nll) {
            config["skip"] = experiment.skip.into();
        }
        if let Some(max_new) = experiment.max_new() {
            config["max_new"] = json!(max_new);
        }
        config
    }
}
