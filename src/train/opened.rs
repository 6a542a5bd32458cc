//! A spec with the files that it names.

use super::corpus::Corpora;
use super::data;
use super::spec::{Stage, TrainSpec};
use super::start::StartModel;
use anyhow::Result;
use engine::model::ModelConfig;
use text::Tokenizer;

/// A spec whose start model and texts have been opened.
pub struct OpenedSpec<'a> {
    pub(super) spec: &'a TrainSpec,
    pub(super) start: Option<StartModel>,
    /// Of each variant.
    pub(super) configs: Vec<ModelConfig>,
    pub(super) corpora: Corpora,
}

impl TrainSpec {
    /// The configurations of all variants, in the shapes of the start model if there is one.
    ///
    /// # Errors
    /// Those of [`Self::configs_of`] and of [`StartModel`].
    pub fn configs(&self) -> Result<Vec<ModelConfig>> {
        self.configs_with(StartModel::of(self)?.as_ref())
    }

    /// [`Self::configs`] with the start model, which has been opened.
    fn configs_with(&self, start: Option<&StartModel>) -> Result<Vec<ModelConfig>> {
        match start {
            Some(start) => start.configs(self),
            None => self.configs_of(Tokenizer::embedded().vocab_size()),
        }
    }

    /// Opens the start model and reads the texts, if there are any, and checks that they fit the rest of the spec.
    ///
    /// # Errors
    /// Those of [`TrainSpec::configs`]. Usage errors if a text cannot be read or is too short, or the tokenizer of the start
    /// model cannot state facts.
    pub fn open(&self) -> Result<OpenedSpec<'_>> {
        let start = StartModel::of(self)?;
        let configs = self.configs_with(start.as_ref())?;
        let opened = OpenedSpec { spec: self, start, configs, corpora: Corpora::default() };
        let tokenizer = opened.tokenizer()?;
        if self.stages.iter().any(Stage::has_facts) {
            data::digits(tokenizer)?;
        }
        Ok(OpenedSpec { corpora: Corpora::read(self, tokenizer)?, ..opened })
    }
}

impl OpenedSpec<'_> {
    /// The spec.
    pub fn spec(&self) -> &TrainSpec {
        self.spec
    }

    /// The tokenizer of the start model, or the embedded one.
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        self.start.as_ref().map_or_else(|| Ok(Tokenizer::embedded()), StartModel::tokenizer)
    }
}
