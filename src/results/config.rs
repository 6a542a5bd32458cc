//! The configuration of a run, as far as tables and reports read it.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A series that cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Name of the series.
    pub series: String,
    /// The reason.
    pub why: String,
}

/// The part of a manifest's configuration that tables and reports read. What a run does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunConfig {
    /// Name of the command.
    pub command: String,
    /// The question of the run, in words.
    pub question: String,
    /// How to read its answer, in words; paragraphs are separated by empty lines.
    pub analysis: String,
    /// Tokens at the beginning of windows that count by position only.
    pub skip: u32,
    /// `true` if a text of the user was scored.
    pub own_text: bool,
    /// The flags of the command, where its tables need them.
    pub own: Option<Json>,
    /// The series that were left out.
    pub left_out: Vec<LeftOut>,
}

impl RunConfig {
    /// Reads the configuration of a manifest; a manifest without one says nothing.
    ///
    /// # Errors
    /// If a key has another kind of value.
    pub fn of(config: &Json) -> Result<Self> {
        if config.is_null() {
            return Ok(Self::default());
        }
        Self::deserialize(config).context("the configuration is not that of a run")
    }

    /// The flags of the command, as its type of flags; `None` where tables do not need them, or they are not of it.
    pub(crate) fn own<T: for<'de> Deserialize<'de>>(&self) -> Option<T> {
        self.own.as_ref().and_then(|flags| T::deserialize(flags).ok())
    }

    /// Why a series was left out, if it was.
    pub(crate) fn left_out(&self, series: &str) -> Option<&str> {
        self.left_out.iter().find(|left_out| left_out.series == series).map(|left_out| left_out.why.as_str())
    }
}
