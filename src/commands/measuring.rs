//! The flags of measuring commands: made into a plan before the run, and into figures after it.

use super::models::OpenedModels;
use super::shared::RunFlags;
use crate::run::{Plan, Run};
use anyhow::Result;
use serde::Serialize;
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
    /// The models of the run, given those of `--model`.
    ///
    /// # Errors
    /// Usage errors for models that do not go together.
    fn models(&self, named: &[String]) -> Result<Vec<String>> {
        Ok(named.to_vec())
    }

    /// The measurement that [`fill`](Self::fill) makes, in words; `None` without one.
    fn measured_first(&self) -> Option<&'static str> {
        None
    }

    /// Fills in what was not given and depends on other flags, or on the models.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together; models that cannot be read.
    fn fill(&mut self, models: &OpenedModels) -> Result<()>;

    /// Makes the plans of the run: one, or one for each of its series.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together; models that cannot be read.
    fn plans(&self, run: &RunFlags, models: &OpenedModels) -> Result<Vec<Plan>>;

    /// The flags that tables need of the manifest, as JSON; null for none.
    ///
    /// # Errors
    /// If they cannot be written as JSON.
    fn for_tables(&self) -> Result<serde_json::Value> {
        Ok(serde_json::Value::Null)
    }

    /// Checks that files which are written besides the run can be, before anything is measured.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    fn check_output(&self) -> Result<()> {
        Ok(())
    }

    /// Draws the figures of a finished run that are no views of its tables, and writes files of its own.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn draw(&self, _run: &Run) -> Result<()> {
        Ok(())
    }
}
