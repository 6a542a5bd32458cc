//! `difftool heatmap`: pictures of attention maps.

mod draw;
mod drawn;
mod matrices;

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{without_parts, Measured, OnePrompt, RunFlags};
use crate::measures::{MapMeasure, MeasureName, PooledMap};
use crate::results::run_table::RunTable;
use crate::results::screen::{Screen, ScreenTable};
use crate::results::table::plural;
use crate::results::Frame;
use crate::run::{MapFlags, MapsOfOnePrompt, Plan, Run};
use anyhow::{Context, Result};
use base::bail_usage;
use base::files::{check_writable, folder_of};
use clap::Args;
use draw::Picture;
use drawn::rows_in_words;
pub(super) use drawn::{DRAWN_HEADS, DRAWN_LAYERS};
use matrices::{taken, write_matrices};
use names::metric::HEAD_ATTRIBUTION;
use plot::Bins;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(super) static HEATMAP: Command = Command {
    name: "heatmap",
    about: "Draw the attention maps of one prompt, by layer and head",
    examples: &[
        ("Effective maps of the built-in models", "difftool heatmap"),
        ("Every layer and head of one model", "difftool heatmap --model diff --grid --map effective"),
        (
            "One head and a range of queries, with the matrix",
            "difftool heatmap --layer 1 --head 3 --query 4000.. --data map.npy",
        ),
    ],
    defaults: None,
    flags: |command| without_parts(Measured::<HeatmapFlags>::augment_args(command)),
    action: Action::Measure(Measuring {
        typed: typed::<HeatmapFlags>,
        read: read::<HeatmapFlags>,
        screen,
        tables: &[&DRAWN_LAYERS],
        figures: &[],
        next: Next::measuring("explore", "a page of every head's map"),
    }),
};

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct HeatmapFlags {
    #[command(flatten)]
    pub maps: MapFlags,
    #[command(flatten)]
    pub prompt: OnePrompt,
}

/// What `difftool heatmap` prints.
fn screen(frame: &Frame) -> Screen {
    drawn_screen("Drawn heads", frame, &DRAWN_LAYERS)
}

/// Rows of a screen of drawn heads.
const MOST_ROWS: usize = 15;

/// A screen of the heads that were drawn: of each model as many, from the first on.
pub(super) fn drawn_screen(heads: &str, frame: &Frame, drawn: &RunTable) -> Screen {
    let Some(mut table) = drawn.filled(frame) else { return Screen::default() };
    let attribution = if table.place(HEAD_ATTRIBUTION.name).is_some() { ": attribution" } else { "" };
    let title = format!("{heads}{attribution}, % of their output by region in {}", rows_in_words(frame));
    let all = table.rows.len();
    let each = MOST_ROWS / frame.models.len().max(1);
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    table.rows.retain(|row| {
        let of_model = shown.entry(row[0].text.clone()).or_default();
        *of_model += 1;
        *of_model <= each.max(1)
    });
    let more = all - table.rows.len();
    let note = (more > 0).then(|| format!("{}: --tables drawn.", plural(more, "more row")));
    let tables = vec![ScreenTable::of_run(&title, frame, table)];
    Screen { tables, notes: note.into_iter().collect(), ..Screen::default() }
}

impl MeasuringFlags for HeatmapFlags {
    fn fill(&mut self, models: &OpenedModels) -> Result<()> {
        self.prompt.fill(models, None, "heatmap measures one prompt")
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        let maps = Some(MapsOfOnePrompt::Heatmap(self.maps.clone()));
        Ok(vec![Plan { maps, ..Plan::new(self.prompt.grid(), vec![MeasureName::AnswerByHead]) }])
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
    fn draw(&self, run: &Run) -> Result<()> {
        let Some(measure) = run.series[0].measures.of_type::<MapMeasure>().find(|measure| !measure.maps.is_empty())
        else {
            return Ok(()); // nothing but failures
        };
        let spec = &self.maps;
        Picture { spec, drawn: &measure.heads, frame: &run.frame, maps: &measure.maps }.draw(run)?;
        if let Some(path) = &spec.data {
            let whole = run.series[0].measures.of_type::<MapMeasure>().find(|measure| measure.bins.is_none());
            write_matrices(path, whole.unwrap_or(measure), spec, run)?;
        }
        Ok(())
    }
}

/// The bins of a map to draw.
pub(super) fn bins(map: &PooledMap) -> Bins {
    Bins { rows: map.rows, columns: map.columns, values: map.values.clone(), sink: map.sinks.clone() }
}
