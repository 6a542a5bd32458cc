//! The models of a command, opened when they are first needed.

use anyhow::Result;
use base::bail_usage;
use engine::model::open::{self, LoadOptions, OpenedModel};
use names::values::TokenRange;
use std::cell::OnceCell;
use text::{NeedlePrompts, PromptDefaults};

/// The models of a run, opened when they are first needed.
pub struct OpenedModels {
    /// Names, or paths.
    pub names: Vec<String>,
    reading: LoadOptions,
    opened: OnceCell<Vec<OpenedModel>>,
}

impl OpenedModels {
    /// The models of these names.
    pub(super) fn of(names: Vec<String>, reading: &LoadOptions) -> Self {
        Self { names, reading: reading.clone(), opened: OnceCell::new() }
    }

    /// Some of the models, opened by themselves.
    pub(super) fn some(&self, names: &[String]) -> Self {
        Self::of(names.to_vec(), &self.reading)
    }

    /// How they are read.
    pub(super) fn reading(&self) -> &LoadOptions {
        &self.reading
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
        prompts.fill(defaults, self.are_built_in())
    }

    /// The number of needles of one prompt of this length: as many as the commands on many prompts have.
    pub(super) fn needles(&self, defaults: &PromptDefaults, ctx: TokenRange) -> usize {
        let settings = defaults.settings(self.are_built_in(), ctx.single().unwrap_or(defaults.ctx_tok));
        settings.last().map_or(1, |counts| counts.needles)
    }

    fn are_built_in(&self) -> bool {
        let built_in = open::built_in_names();
        self.names.iter().all(|name| built_in.contains(&name.strip_prefix(BUILT_IN).unwrap_or(name)))
    }

    /// The single length of a command; the [usual](Self::ctx_tok) one if none is given.
    ///
    /// # Errors
    /// A usage error that says `why` if there are several.
    pub(super) fn one_ctx_tok(&self, given: Option<TokenRange>, usual: usize, why: &str) -> Result<TokenRange> {
        match given {
            None => self.ctx_tok(usual),
            Some(range) if range.single().is_some() => Ok(range),
            Some(_) => bail_usage!("--ctx: {why}; give one length"),
        }
    }
}

/// Optional prefix of the names of built-in models.
const BUILT_IN: &str = "built-in:";

/// Default length of a prompt or window, in tokens.
pub(super) const CTX_TOK: usize = 4096;

/// The prompts of all commands about attention, so that what they measure is one number in all of them.
pub(super) const PROMPTS: PromptDefaults = PromptDefaults { ctx_tok: 1024, samples: 8, each: false };
