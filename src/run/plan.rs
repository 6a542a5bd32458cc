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
use text::{Grid, NeedlePrompts};

/// The plan of a series of a run: models × prompts × conditions, and the measures. Commands make it of their flags.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the command that makes the plan.
    pub command: &'static str,
    /// Name of the series among those of its run; empty of the only one.
    pub series: &'static str,
    /// The experiment as a file, from which the command would make this plan again.
    pub experiment: String,
    /// The question, in words.
    pub question: String,
    /// How to read the answer, in words.
    pub analysis: String,
    /// Flags of the command that its tables need of the manifest; the same in all series.
    pub own: serde_json::Value,
    /// Conditions on the results that fail the command, for the manifest.
    pub fail_if: Vec<String>,
    /// Options for loading the models.
    pub reading: LoadOptions,
    /// The prompts.
    pub grid: Grid,
    /// Layers and heads to measure.
    pub select: LayersAndHeads,
    /// The measures.
    pub measures: Vec<MeasureName>,
    /// Treated passes over every prompt, besides the untreated one.
    pub conditions: Vec<Condition>,
    /// Scores answers of untreated passes also with noise, and with its parts, hidden from their rows.
    pub hides: bool,
    /// Scores treated passes without measuring them: measures observe untreated passes alone.
    pub only_score_treated: bool,
    /// Largest number of tokens of a generated answer; `None` without generation.
    pub max_new: Option<usize>,
    /// Tokens at the beginning of every window that the mean negative log-likelihood excludes.
    pub skip: usize,
    /// The maps to keep, for the commands on one prompt.
    pub maps: Option<MapsOfOnePrompt>,
}

/// The maps that are kept of a run on one prompt. They are not records, so such a run cannot be resumed or sharded.
#[derive(Clone, Debug, PartialEq)]
pub enum MapsOfOnePrompt {
    /// Those that `heatmap` draws.
    Heatmap(MapFlags),
    /// Those of an interactive page.
    Explorer,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            command: "needle",
            series: "",
            experiment: String::new(),
            question: String::new(),
            analysis: String::new(),
            own: serde_json::Value::Null,
            fail_if: Vec::new(),
            reading: LoadOptions::default(),
            grid: Grid::Needle(NeedlePrompts::default()),
            select: LayersAndHeads::default(),
            measures: Vec::new(),
            conditions: Vec::new(),
            hides: false,
            only_score_treated: false,
            max_new: None,
            skip: 0,
            maps: None,
        }
    }
}

impl Plan {
    /// The untreated condition, and the others.
    ///
    /// # Errors
    /// A usage error for conditions that are named twice.
    pub fn all_conditions(&self) -> Result<Vec<Condition>> {
        let mut conditions = vec![Condition::default()];
        conditions.extend(self.conditions.iter().filter(|condition| !condition.is_untreated()).cloned());
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
            heatmap.check(self.grid.ctx_tok().first().copied().unwrap_or(usize::MAX), &self.select)?;
        }
        Ok(())
    }
}
