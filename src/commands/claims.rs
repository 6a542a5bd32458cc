//! `difftool claims`: does a differential model do what the paper says, compared with a standard one?

#[cfg(test)]
mod calibration;
mod difficulty;
mod figures;
mod judge;
mod list;
mod series;
mod tables;

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::outliers;
use super::shared::{Measured, RunFlags};
use crate::run::{Plan, Run};
use anyhow::Result;
use base::bail_usage;
use base::spec_file::flag_defaults;
use clap::{Args, ValueEnum};
use engine::model::open;
use figures::FIGURES;
use list::{Claim, CLAIMS};
use names::values::TokenRange;
use names::{distinct, Replicates, SEED_FOLDERS};
use serde::{Deserialize, Serialize};
use series::Difficulty;
use tables::{screen, CLAIMS_TABLE, READINGS};

/// Usual length of prompts and windows, in tokens.
const CTX_TOK: usize = 1024;

/// Most claims that may be primary.
const MOST_PRIMARY: usize = 3;

/// All claims, in their readings.
pub(super) fn all_claims() -> &'static [Claim] {
    &CLAIMS
}

pub(super) static CLAIMS_COMMAND: Command = Command {
    name: "claims",
    about: "Every claim of the Differential Transformer paper, on a differential model and a standard one",
    examples: &[
        ("The built-in models", "difftool claims"),
        ("A pair of your own", "difftool claims --model ./diff-1b --baseline ./llama-1b"),
        (
            "Checkpoints in folders of the Hub",
            "difftool claims --model hf:org/name/diff --baseline hf:org/name/vanilla",
        ),
        ("Some claims, on longer prompts", "difftool claims --only T2,F8 --ctx 4k"),
        (
            "Pairs trained from several seeds by `difftool train`",
            "difftool claims --model runs/a/diff --baseline runs/a/transformer --replicates",
        ),
    ],
    defaults: None,
    flags: |command| without_treatment(Measured::<ClaimsFlags>::augment_args(command)),
    action: Action::Measure(Measuring {
        typed: typed::<ClaimsFlags>,
        read: read::<ClaimsFlags>,
        screen,
        tables: &[&CLAIMS_TABLE, &READINGS],
        figures: &FIGURES,
        next: Next::of_run("report", "-o x.html", ""),
    }),
};

#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Claims")]
pub(super) struct ClaimsFlags {
    /// The standard model that --model is compared with, or its folder of seeds [default: the first of several --model]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NAME|PATH")]
    pub baseline: Option<String>,
    /// Claims by their tables and figures, as in `T2,F8`; P is the premise [default: all]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_delimiter = ',', value_name = "CLAIMS", value_parser = claim_name)]
    pub only: Vec<String>,
    /// Claims that decide, named before their numbers are seen, at most three: their p-values are corrected among themselves, and
    /// all others are exploratory. T3 is that on noise in signed weights
    #[arg(long, value_delimiter = ',', value_name = "CLAIMS", value_parser = claim_name, default_value = "T2,T3,F3")]
    pub primary: Vec<String>,
    /// Needles in the text [default: of 1, 2, 4, 6, 12, 24 and 40, then 2 in a haystack of needles, those at which the standard
    /// model's answers to other prompts are nearest to 55 %]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", value_parser = needle_count)]
    pub needles: Option<usize>,
    /// Haystack of the needles: prose, or only other needles
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, value_name = "HAYSTACK", requires = "needles", hide_short_help = true)]
    pub haystack: Option<ClaimsHaystack>,
    /// Length of prompts and windows in tokens [default: 1k, or the shortest context of the models if that is less]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Prompts at each of five depths; other measurements grow with it
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub samples: usize,
    /// Base seed of the prompts
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
    /// Compare recipes, seed by seed: models whose names differ only by the training seed, which is `*` in PATTERN. Intervals
    /// are over seeds and prompts, and need 3 seeds
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = SEED_FOLDERS)]
    pub replicates: Option<Replicates>,
}

/// The haystack of the needles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClaimsHaystack {
    Prose,
    Needles,
}

impl Default for ClaimsFlags {
    fn default() -> Self {
        flag_defaults()
    }
}

/// Hides the flags that claims refuse: they are about models without treatment, and have verdicts of their own.
fn without_treatment(command: clap::Command) -> clap::Command {
    command.mut_arg("condition", |arg| arg.hide(true)).mut_arg("fail_if", |arg| arg.hide(true))
}

/// Parses the number of needles.
fn needle_count(typed: &str) -> Result<usize, String> {
    let count = typed.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| format!("`{typed}` is not a number of needles from 1 on"))
}

/// Parses the name of a claim.
fn claim_name(typed: &str) -> Result<String, String> {
    let known = distinct(CLAIMS.iter().map(|claim| claim.id));
    match known.iter().find(|id| id.eq_ignore_ascii_case(typed)) {
        Some(id) => Ok(id.clone()),
        None => Err(format!("there is no claim `{typed}`; there are {}", known.join(", "))),
    }
}

impl ClaimsFlags {
    /// Returns `true` if the standard model is asked first, for the difficulty at which all are.
    fn chooses_difficulty(&self) -> bool {
        self.needles.is_none() && self.claims().iter().any(|claim| series::depends_on_difficulty(claim))
    }

    /// Length of prompts and windows, once it is filled in.
    fn ctx_tok(&self) -> usize {
        self.ctx.and_then(TokenRange::single).unwrap_or(CTX_TOK)
    }

    /// The difficulty, once it is filled in.
    fn difficulty(&self) -> Difficulty {
        Difficulty { needles: self.needles.unwrap_or(1), in_needles: self.haystack == Some(ClaimsHaystack::Needles) }
    }

    /// The same flags with the needles and the haystack of a difficulty.
    fn at(&self, difficulty: Difficulty) -> Self {
        let haystack = difficulty.in_needles.then_some(ClaimsHaystack::Needles);
        Self { needles: Some(difficulty.needles), haystack, ..self.clone() }
    }

    /// The standard models among those of a run: the first, or the replicates of its recipe.
    fn standard(&self, models: &[String]) -> Vec<String> {
        let recipe = |model: &String| self.replicates.as_ref()?.split(model).map(|(recipe, _)| recipe);
        let Some(first) = models.first() else { return Vec::new() };
        match recipe(first) {
            Some(of_first) => {
                models.iter().filter(|model| recipe(model).as_ref() == Some(&of_first)).cloned().collect()
            }
            None => vec![first.clone()],
        }
    }

    /// The claims that are asked for.
    fn claims(&self) -> Vec<&'static Claim> {
        CLAIMS.iter().filter(|claim| self.only.is_empty() || self.only.iter().any(|id| id == claim.id)).collect()
    }

    /// Returns `true` if a claim is a primary one: the first of an id that was named as such.
    fn is_primary(&self, claim: &Claim) -> bool {
        let first = CLAIMS.iter().find(|other| other.id == claim.id);
        self.primary.iter().any(|id| id == claim.id) && first.is_some_and(|first| std::ptr::eq(first, claim))
    }

    /// Checks that there are not so many primary claims that no few seeds decide one of them.
    fn check_primary(&self) -> Result<()> {
        if self.primary.len() > MOST_PRIMARY {
            bail_usage!("--primary: {} claims; name at most {MOST_PRIMARY}", self.primary.len());
        }
        Ok(())
    }

    /// Checks that there are models to compare.
    fn check_models(&self, models: &[String]) -> Result<()> {
        let Some(pattern) = &self.replicates else {
            if models.len() < 2 {
                bail_usage!(
                    "claims compares a model with a standard one: name both, as in --model diff --baseline transformer"
                );
            }
            return Ok(());
        };
        let mut recipes = Vec::new();
        for model in models {
            match pattern.split(model) {
                Some((recipe, _)) => recipes.push(recipe),
                None => bail_usage!("--replicates: the name of model {model} has no training seed (`{pattern}`)"),
            }
        }
        if distinct(recipes.into_iter()).len() < 2 {
            bail_usage!("--replicates: all models are of one recipe; name the standard one with --baseline");
        }
        Ok(())
    }
}

impl MeasuringFlags for ClaimsFlags {
    fn measured_first(&self) -> Option<&'static str> {
        self.chooses_difficulty().then_some("choosing among how many needles to ask, on the standard model")
    }

    /// The standard model first.
    fn models(&self, named: &[String]) -> Result<Vec<String>> {
        let Some(baseline) = &self.baseline else { return Ok(named.to_vec()) };
        if named.is_empty() {
            bail_usage!("--baseline {baseline}: name the model that is compared with it (--model)");
        }
        let baselines = open::resolve(std::slice::from_ref(baseline))?;
        if baselines.len() > 1 && self.replicates.is_none() {
            bail_usage!("--baseline {baseline} has {} seeds: add --replicates", baselines.len());
        }
        let mut models = baselines.clone();
        models.extend(open::resolve(named)?.into_iter().filter(|model| !baselines.contains(model)));
        Ok(models)
    }

    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        let ctx = match self.ctx {
            None => models.ctx_tok(CTX_TOK)?,
            Some(ctx) if ctx.single().is_some() => ctx,
            Some(_) => bail_usage!("--ctx: all claims are measured at one length; give one"),
        };
        self.ctx = Some(ctx);
        self.check_primary()?;
        self.check_models(&models.names)?;
        if self.chooses_difficulty() {
            *self = self.at(difficulty::choose(self, models)?);
        }
        Ok(())
    }

    fn plans(&self, run: &RunFlags, models: &OpenedModels) -> Result<Vec<Plan>> {
        if !run.condition.is_empty() {
            bail_usage!("--condition: claims are about models without treatment; use the command of a claim");
        }
        if !run.fail_if.is_empty() {
            bail_usage!(
                "--fail-if: claims measures the same numbers of several kinds of prompts; use the command of a claim"
            );
        }
        series::plans(&self.claims(), self, run, models)
    }

    fn for_tables(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// Draws the distributions of logits and hidden states.
    fn draw(&self, run: &Run) -> Result<()> {
        outliers::draw(run)
    }
}
