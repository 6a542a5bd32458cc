//! `difftool heatmap`: pictures of attention maps.

mod draw;
mod matrices;

use super::measuring::{Measuring, OpenedModels};
use super::session::{RunResults, Session};
use super::shared::{Examples, OnePrompt, RunFlags};
use crate::bail_usage;
use crate::base::files::{check_writable, folder_of};
use crate::measures::{MapMeasure, MeasureName};
use crate::results::screen::{Screen, ScreenTable};
use crate::results::view::drawn_maps;
use crate::results::{CommandName, Frame};
use crate::run::{MapFlags, MapsOfOnePrompt, Plan};
use anyhow::{Context, Result};
use clap::Args;
use draw::Picture;
use matrices::{taken, write_matrices};
use serde::{Deserialize, Serialize};

pub(super) const EXAMPLES: Examples = &[
    ("Effective maps of the built-in models", "difftool heatmap"),
    ("Every layer and head of one model", "difftool heatmap --model diff --grid --map effective"),
    (
        "One head and a range of queries, with the matrix",
        "difftool heatmap --layer 1 --head 3 --query 4000.. --data map.npy",
    ),
];

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HeatmapFlags {
    #[command(flatten)]
    pub maps: MapFlags,
    #[command(flatten)]
    pub prompt: OnePrompt,
}

/// What `difftool heatmap` and `difftool explore` print.
pub(super) fn screen(frame: &Frame) -> Screen {
    let rows = if frame.asks() { "the rows that predict the answer" } else { "the last 32 rows" };
    let heads = match frame.command() {
        Some(CommandName::Heatmap) => "Drawn heads",
        _ => "Heads that explore.html has token by token",
    };
    let title = format!("{heads}, % of their output by region in {rows}");
    let next = match frame.command() {
        Some(CommandName::Heatmap) => "difftool explore, a page of every head's map",
        _ => "difftool heads, the role of each head",
    };
    Screen {
        tables: drawn_maps(frame).map(|table| ScreenTable::of_run(&title, frame, table)).into_iter().collect(),
        notes: Vec::new(),
        next,
    }
}

impl Measuring for HeatmapFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompt.fill(models, "heatmap measures one prompt")
    }

    fn plan(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Plan> {
        Ok(Plan {
            grid: self.prompt.grid(),
            measures: vec![MeasureName::AnswerByHead],
            maps: Some(MapsOfOnePrompt::Heatmap(self.maps.clone())),
            ..Plan::default()
        })
    }

    fn check_output(&self) -> Result<()> {
        let Some(path) = &self.maps.data else { return Ok(()) };
        let folder = folder_of(path);
        if !folder.is_dir() {
            bail_usage!("--data {}: there is no folder {}", path.display(), folder.display());
        }
        if let Some(existing) = taken(path) {
            let shown = path.display();
            bail_usage!("--data {shown}: {} exists already; results are never overwritten", existing.display());
        }
        check_writable(folder).with_context(|| format!("--data {}: cannot write there", path.display()))
    }

    /// Draws the figures, and writes the matrices if they are asked for.
    fn draw(&self, session: &mut Session, results: &RunResults) -> Result<()> {
        let Some(measure) = results.measures.of_type::<MapMeasure>().find(|measure| !measure.maps.is_empty()) else {
            return Ok(()); // nothing but failures
        };
        let spec = &self.maps;
        Picture { spec, drawn: &measure.heads, frame: &results.frame, maps: &measure.maps }.draw(session)?;
        if let Some(path) = &spec.data {
            let whole = results.measures.of_type::<MapMeasure>().find(|measure| measure.bins.is_none());
            write_matrices(path, whole.unwrap_or(measure), spec, &session.setup)?;
        }
        Ok(())
    }
}
