//! The plan of a run.

use super::{MapFlags, RunShard};
use crate::measures::MeasureName;
use anyhow::Result;
use base::bail_usage;
use base::terminal::quoted_path;
use engine::model::open::LoadOptions;
use names::condition::Condition;
use names::{repeated, LayersAndHeads};
use std::path::Path;
use text::Grid;

/// The plan of a series of a run: what is asked, and in which passes. Commands make it of their flags.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the series among those of its run; empty of the only one.
    pub series: &'static str,
    /// What the run is of, which commands need not fill in.
    pub origin: Origin,
    /// The prompts.
    pub grid: Grid,
    /// The measures.
    pub measures: Vec<MeasureName>,
    /// The passes over each prompt.
    pub passes: PassOptions,
    /// Tokens at the beginning of every window that the mean negative log-likelihood excludes.
    pub skip: usize,
    /// The maps to keep, for the commands on one prompt.
    pub maps: Option<MapsOfOnePrompt>,
}

/// What a run is of, for its folder; the same in all of its series.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Name of the command.
    pub command: &'static str,
    /// The experiment as a file, from which the command would make the plans again.
    pub experiment: String,
    /// The question, in words.
    pub question: String,
    /// How to read the answer, in words.
    pub analysis: String,
    /// Flags of the command that its tables need of the manifest.
    pub own: serde_json::Value,
    /// Conditions on the results that fail the command, for the manifest.
    pub fail_if: Vec<String>,
}

/// The passes over each prompt, and what of them is measured.
#[derive(Clone, Debug, Default)]
pub struct PassOptions {
    /// Options for loading the models.
    pub reading: LoadOptions,
    /// Layers and heads to measure.
    pub select: LayersAndHeads,
    /// Treated passes, besides the untreated one.
    pub conditions: Vec<Condition>,
    /// Scores answers of untreated passes also with noise, and with its parts, hidden from their rows.
    pub hides: bool,
    /// Scores treated passes without measuring them: measures observe untreated passes alone.
    pub only_score_treated: bool,
    /// Largest number of tokens of a generated answer; `None` without generation.
    pub max_new: Option<usize>,
}

/// The maps that are kept of a run on one prompt. They are not records, so such a run cannot be resumed or sharded.
#[derive(Clone, Debug, PartialEq)]
pub enum MapsOfOnePrompt {
    /// Those that `heatmap` draws.
    Heatmap(MapFlags),
    /// Those of an interactive page.
    Explorer,
}

impl Plan {
    /// Measures prompts in untreated passes.
    pub fn new(grid: Grid, measures: Vec<MeasureName>) -> Self {
        let origin = Origin::default();
        Self { series: "", origin, grid, measures, passes: PassOptions::default(), skip: 0, maps: None }
    }

    /// The untreated condition, and the others.
    ///
    /// # Errors
    /// A usage error for conditions that are named twice.
    pub fn all_conditions(&self) -> Result<Vec<Condition>> {
        let mut conditions = vec![Condition::default()];
        conditions.extend(self.passes.conditions.iter().filter(|condition| !condition.is_untreated()).cloned());
        if let Some(condition) = repeated(&conditions) {
            bail_usage!("the condition {condition} is named twice");
        }
        Ok(conditions)
    }

    /// Says how a run in a folder that was interrupted goes on.
    pub fn way_on(&self, folder: &Path, shard: Option<RunShard>) -> String {
        let folder = quoted_path(folder);
        let shard = shard.map_or_else(String::new, |shard| format!(" --shard {shard}"));
        match self.maps {
            Some(_) => format!("remove {folder} and give the command again"),
            None => format!("`difftool run --resume {folder}{shard}` continues it"),
        }
    }

    /// Checks what does not depend on the models.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn check(&self) -> Result<()> {
        self.grid.check()?;
        if let (Grid::Text(windows), true) = (&self.grid, self.skip > 0) {
            if let Some(shortest) = windows.ctx_tok.iter().min().filter(|&&ctx_tok| self.skip >= ctx_tok) {
                bail_usage!("--skip {} leaves nothing of windows of {shortest} tokens", self.skip);
            }
        }
        if let Some(MapsOfOnePrompt::Heatmap(heatmap)) = &self.maps {
            // The length of a text with a question is not known yet.
            heatmap.check(self.grid.ctx_tok().first().copied().unwrap_or(usize::MAX), &self.passes.select)?;
        }
        Ok(())
    }
}
