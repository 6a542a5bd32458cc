//! Measuring commands: the trait that makes a plan of their flags, and the models that both need.

use super::session::{RunResults, Session};
use super::shared::RunFlags;
use crate::bail_usage;
use crate::base::values::TokenRange;
use crate::model::open::{self, LoadOptions, OpenedModel};
use crate::prompts::{NeedlePrompts, PromptDefaults};
use crate::run::Plan;
use anyhow::Result;
use serde::Serialize;
use std::cell::OnceCell;
use std::fmt::Debug;

/// Flags that can be written as the keys of an experiment file.
pub(super) trait Keys {
    fn to_toml(&self) -> Result<toml::Table, toml::ser::Error>;
}

impl<F: Serialize> Keys for F {
    fn to_toml(&self) -> Result<toml::Table, toml::ser::Error> {
        toml::Table::try_from(self)
    }
}

/// The flags of a measuring command: made into a plan before the run, and into figures after it.
pub(super) trait MeasuringFlags: Keys + Debug {
    /// Fills in what was not given and depends on other flags, or on the models.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together; models that cannot be read.
    fn fill(&mut self, models: &OpenedModels) -> Result<()>;

    /// Makes the plan of the run.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together; models that cannot be read.
    fn plan(&self, run: &RunFlags, models: &OpenedModels) -> Result<Plan>;

    /// Checks that files which are written besides the run can be, before anything is measured.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    fn check_output(&self) -> Result<()> {
        Ok(())
    }

    /// Draws the figures of a finished run.
    fn draw(&self, session: &mut Session, results: &RunResults) -> Result<()>;
}

/// The models of a run, opened when they are first needed.
pub struct OpenedModels {
    /// Names, or paths.
    pub names: Vec<String>,
    reading: LoadOptions,
    opened: OnceCell<Vec<OpenedModel>>,
}

impl OpenedModels {
    /// Expands the names, in the flags too.
    ///
    /// # Errors
    /// A usage error if a model is named twice.
    pub(super) fn new(run: &mut RunFlags) -> Result<Self> {
        run.model = open::resolve(&run.model)?;
        Ok(Self::of(run.model.clone(), &run.reading))
    }

    /// The models of these names.
    pub(super) fn of(names: Vec<String>, reading: &LoadOptions) -> Self {
        Self { names, reading: reading.clone(), opened: OnceCell::new() }
    }

    /// The models.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(super) fn get(&self) -> Result<&[OpenedModel]> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.names.iter().map(|name| open::open(name, self.reading.clone())).collect::<Result<_>>()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// The models, to load their weights.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn into_opened(self) -> Result<Vec<OpenedModel>> {
        self.get()?;
        Ok(self.opened.into_inner().unwrap_or_default())
    }

    /// Smaller of a usual length and the shortest context of the models, in tokens.
    pub(super) fn ctx_tok(&self, usual: usize) -> Result<TokenRange> {
        let shortest = self.get()?.iter().map(|model| model.config.max_ctx_tok).min();
        Ok(shortest.map_or(usual, |shortest| shortest.min(usual)).into())
    }

    /// Fills in needle prompts that were not given.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together.
    pub(super) fn fill(&self, prompts: &mut NeedlePrompts, defaults: &PromptDefaults) -> Result<()> {
        // A text with a question is as long as it is.
        if prompts.ctx.is_empty() && !prompts.own.is_asked() {
            prompts.ctx = vec![self.ctx_tok(defaults.ctx_tok)?];
        }
        prompts.fill(defaults)
    }

    /// The single length of a command; the [usual](Self::ctx_tok) one if none is given.
    ///
    /// # Errors
    /// A usage error that says `why` if there are several.
    pub(super) fn one_ctx_tok(&self, given: Option<TokenRange>, why: &str) -> Result<TokenRange> {
        match given {
            None => self.ctx_tok(CTX_TOK),
            Some(range) if range.single().is_some() => Ok(range),
            Some(_) => bail_usage!("--ctx: {why}; give one length"),
        }
    }
}

/// Default length of a prompt or window, in tokens.
pub(super) const CTX_TOK: usize = 4096;
