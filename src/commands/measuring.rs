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

    /// Draws the figures of a finished run that are no views of its tables, and writes files of its own.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn draw(&self, _run: &Run) -> Result<()> {
        Ok(())
    }
}
