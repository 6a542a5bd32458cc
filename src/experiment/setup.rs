//! Everything an experiment needs before it can run: its models, its texts, its prompts and its conditions.

use super::{Experiment, Grid, Measures, Sources};
use crate::attention::Selection;
use crate::bail_usage;
use crate::frame::{About, Scored, Tokens};
use crate::measure::{usual_skip, MassiveAt, MeasureName, Place, ScoredWindow, AR_MAX_COUNT};
use crate::memory::{give_back, rss_bytes};
use crate::models::{self, Model};
use crate::prompt::{Haystack, Text, TokenIds};
use crate::record::no_formula;
use crate::table::plural;
use crate::treatment::{Condition, Reference};
use anyhow::Result;
use serde_json::{json, Value};
use std::sync::OnceLock;

/// More prompts than anybody has the time for; each takes some memory before the run begins.
const MOST_PROMPTS: usize = 10_000_000;

/// An experiment with all that it names, loaded.
#[derive(Clone)]
pub struct Setup {
    /// What was asked for.
    pub experiment: Experiment,
    /// The models, measured on the same prompts.
    pub models: Vec<Model>,
    /// The prompts: no more and no longer windows than a text has.
    pub grid: Grid,
    /// Where their words come from.
    pub sources: Sources,
    /// What is done to the attention; the first is the baseline of the others.
    pub conditions: Vec<Condition>,
    /// What is known of each model's heads, once it is.
    pub(super) references: OnceLock<Vec<Reference>>,
    /// The heads that maps are drawn of, of each model, once they are chosen.
    pub(super) drawn: OnceLock<Vec<Selection>>,
    /// Memory that the process held when all of this was loaded, in bytes.
    pub(super) loaded_bytes: u64,
}

impl Setup {
    /// Loads the models and the texts.
    ///
    /// # Errors
    /// If one cannot be read; usage errors for grids that are too large and conditions that cannot be.
    pub fn load(experiment: Experiment) -> Result<Self> {
        let models =
            experiment.models.iter().map(|name| models::load(name, experiment.reading)).collect::<Result<Vec<_>>>()?;
        let sources = Sources {
            haystack: experiment.haystack.as_deref().map_or_else(|| Ok(Haystack::embedded()), Haystack::from_path)?,
            text: match (&experiment.text, &experiment.ids) {
                (Some(path), _) => Text::from_path(path)?,
                (None, Some(path)) => Text::Ids(TokenIds::read(path)?),
                (None, None) => Text::Prose,
            },
        };
        let grid = match experiment.grid.clone() {
            Grid::Text(grid) => {
                // What is counted by token takes the last, shorter window too; in a mean over windows it would weigh too much.
                let by_token = |measure| matches!(measure, MeasureName::Nll | MeasureName::Outliers);
                let to_its_end = experiment.measure_names().into_iter().any(by_token);
                Grid::Text(grid.within(&sources.text, models.iter().map(Model::tokenizer), to_its_end)?)
            }
            grid => grid,
        };
        if grid.count().is_none_or(|count| count > MOST_PROMPTS) {
            bail_usage!("more than {MOST_PROMPTS} prompts: lower `samples`, or cut `ctx_tok` into several runs");
        }
        give_back(); // what reading a text has taken and freed is there for the passes
        let loaded_bytes = rss_bytes().unwrap_or(0);
        let conditions = experiment.conditions()?;
        Ok(Self {
            conditions,
            models,
            grid,
            sources,
            experiment,
            references: OnceLock::new(),
            drawn: OnceLock::new(),
            loaded_bytes,
        })
    }

    /// The measures that are asked for, ready to run.
    ///
    /// # Errors
    /// If a tokenizer fails on the reference prose; usage errors for maps that the models do not have, or that do not fit.
    pub fn measures(&self) -> Result<Measures> {
        let mut measures = Measures::new(&self.experiment.measure_names());
        if let Some(nll) = &mut measures.nll {
            let tokenizers: Vec<_> = self.models.iter().map(|model| model.tokenizer().ok()).collect();
            nll.leave_out_frequent(&tokenizers, self.ar_max_count())?;
            nll.skip = u32::try_from(self.skip()).unwrap_or(u32::MAX);
        }
        self.add_maps(&mut measures)?;
        Ok(measures)
    }

    /// The same with the first eighth of every model's layers, to time; nothing where conditions are about heads and layers that
    /// would not be there.
    pub(super) fn shallow(&self) -> Option<Self> {
        let mut shallow = self.clone();
        for model in &mut shallow.models {
            let layers = model.transformer.config.layers.len().div_ceil(8);
            model.transformer = model.transformer.with_layers(layers);
        }
        let is_whole = self.conditions.iter().all(|condition| !condition.needs_reference())
            && shallow.models.iter().all(|model| shallow.check_conditions(model).is_ok());
        is_whole.then_some(shallow)
    }

    /// Whether a model has what the conditions name.
    pub(super) fn check_conditions(&self, model: &Model) -> Result<()> {
        let is_text = matches!(self.grid, Grid::Text(_));
        self.conditions.iter().try_for_each(|condition| self.resolver(model).check(condition, is_text))
    }

    /// How often a bigram may occur in the reference prose and still make AR hits.
    pub fn ar_max_count(&self) -> u64 {
        self.experiment.ar_max_count.unwrap_or(AR_MAX_COUNT)
    }

    /// Tokens at the beginning of windows that the mean negative log-likelihood leaves out.
    pub fn skip(&self) -> usize {
        let shortest = self.grid.ctx_tok().iter().copied().min().unwrap_or(0);
        self.experiment.skip.unwrap_or_else(|| usual_skip(shortest))
    }

    /// Whether prompts are made of our own texts, in their own form: others' published numbers are of prompts like these.
    pub fn has_own_prompts(&self) -> bool {
        let Experiment { haystack, text, ids, .. } = &self.experiment;
        let chats = self.models.iter().any(|model| model.info.chat_template_sha256.is_some());
        haystack.is_none() && text.is_none() && ids.is_none() && !chats
    }

    /// Whether any of the models has a second map.
    pub fn has_second_map(&self) -> bool {
        self.models.iter().any(|model| model.transformer.config.wiring().maps() > 1)
    }

    /// `4096 tokens · 15 prompts per depth · seed 0`, for the subtitles of figures.
    pub fn caption(&self) -> String {
        self.caption_of(self.grid.ctx_tok())
    }

    /// The same of prompts of these lengths alone.
    pub fn caption_of(&self, ctx_tok: &[usize]) -> String {
        let tokens: Vec<String> = ctx_tok.iter().map(ToString::to_string).collect();
        let what = match &self.grid {
            Grid::Needle(grid) if grid.samples * grid.depths_pct.len() == 1 => {
                format!("1 prompt, answer at {} %", grid.depths_pct[0])
            }
            Grid::Needle(grid) if grid.samples == 1 => "1 prompt per depth".to_owned(),
            Grid::Needle(grid) => format!("{} prompts per depth", grid.samples),
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

    /// What is known of the run besides its records.
    pub fn about(&self) -> About {
        let models = self.models.iter().map(|model| model.info.clone()).collect();
        About { config: self.config(), models, seed: self.grid.seed() }
    }

    /// The tokens that were scored one by one.
    pub fn tokens(&self, measures: &Measures) -> Tokens {
        let scored = |(place, windows): (&Place, &Vec<ScoredWindow>)| {
            let condition = &self.conditions[place.condition];
            let windows = windows.iter().filter(|window| !window.tokens.is_empty()).cloned().collect();
            let model = self.models[place.model].name.clone();
            Scored { model, condition: condition.column(), bits: condition.bits(), windows }
        };
        Tokens(measures.nll.iter().flat_map(|nll| &nll.pooled).map(scored).collect())
    }

    /// The massive activations of the untreated passes. Tokens are of somebody's text: see [`no_formula`].
    pub fn massive(&self, measures: &Measures) -> Vec<MassiveAt> {
        let pooled = measures.outliers.iter().flat_map(|outliers| &outliers.pooled);
        let untreated = pooled.filter(|(place, _)| place.condition == 0);
        let named = |at: &MassiveAt, model: usize| {
            let (model, token) = (self.models[model].name.clone(), no_formula(&at.token).into_owned());
            MassiveAt { model, token, ..at.clone() }
        };
        untreated.flat_map(|(place, found)| found.massive.iter().map(|at| named(at, place.model))).collect()
    }

    /// What was asked for with defaults filled in, for the manifest.
    pub(super) fn config(&self) -> Value {
        let experiment = &self.experiment;
        let mut config = json!({
            "question": experiment.question,
            "analysis": experiment.analysis,
            "show": experiment.show,
            "measures": experiment.measure_names(),
            "grid": self.grid,
            "conditions": self.conditions,
            "selection": experiment.select,
            "expect": experiment.expect,
        });
        if let Some(top) = experiment.top {
            config["top"] = top.into();
        }
        if let Some(count) = experiment.ar_max_count {
            config["ar_max_count"] = count.into();
        }
        if experiment.measure_names().contains(&MeasureName::Nll) {
            config["skip"] = self.skip().into();
        }
        if let Some(max_new) = experiment.max_new() {
            config["max_new"] = json!(max_new);
        }
        config["own_prompts"] = self.has_own_prompts().into();
        config
    }
}
