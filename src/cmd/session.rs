//! What every measuring command does around its measures: load, check, run, write, say where it went.

use super::{progress_bar, stop_on_ctrl_c};
use crate::attention::Selection;
use crate::bail_usage;
use crate::cli::{PromptArgs, RunArgs};
use crate::experiment::{Condition, Finished, Grid, NeedleGrid, Run, Sources, TextGrid};
use crate::manifest::{Manifest, Output};
use crate::measure::Measure;
use crate::memory::peak_rss_bytes;
use crate::models::{self, Model};
use crate::plot::Figure;
use crate::prompt::{Haystack, Text};
use crate::record::{Record, Writer};
use crate::runfolder::RunFolder;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// The records of a run folder.
const RESULTS: &str = "results.csv";

/// A measuring command under way.
pub(super) struct Session<'a> {
    pub(super) models: Vec<Model>,
    pub(super) grid: Grid,
    sources: Sources,
    conditions: Vec<Condition>,
    selection: Selection,
    args: &'a RunArgs,
    stop: Arc<AtomicBool>,
    /// Nothing until the checks have passed.
    folder: Option<RunFolder>,
    command: &'static str,
    files: Vec<(String, Option<u64>)>,
    finished: Option<Finished>,
}

impl<'a> Session<'a> {
    /// Loads the models and the texts. `conditions` start with the baseline.
    pub(super) fn open(
        command: &'static str,
        args: &'a RunArgs,
        haystack: Option<&Path>,
        text: Option<&Path>,
        grid: Grid,
    ) -> Result<Self> {
        if let Some(threads) = args.threads {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads.get())
                .build_global()
                .context("cannot start the threads")?;
        }
        let models = models::load_all(&args.model)?;
        let sources = Sources {
            haystack: haystack.map_or_else(|| Ok(Haystack::embedded()), Haystack::from_path)?,
            text: text.map_or_else(|| Ok(Text::Prose), Text::from_path)?,
        };
        let grid = match grid {
            Grid::Text(grid) => Grid::Text(grid.within(&sources.text, models.iter().map(Model::tokenizer))?),
            grid => grid,
        };
        Ok(Self {
            models,
            grid,
            sources,
            conditions: vec![Condition::default()],
            selection: Selection { layers: args.layers.clone(), heads: args.heads.clone() },
            args,
            stop: stop_on_ctrl_c()?,
            folder: None,
            command,
            files: Vec::new(),
            finished: None,
        })
    }

    /// Measures under these conditions, the first being the baseline.
    pub(super) fn with_conditions(self, conditions: Vec<Condition>) -> Self {
        Self { conditions, ..self }
    }

    fn run_of(&self) -> Run<'_> {
        Run {
            models: &self.models,
            grid: &self.grid,
            sources: &self.sources,
            conditions: &self.conditions,
            selection: &self.selection,
            stop: &self.stop,
        }
    }

    /// Runs the measures without writing anything: to find out what to look at.
    pub(super) fn look(&self, measures: &mut [&mut dyn Measure], see: &mut dyn FnMut(&Record)) -> Result<Finished> {
        let run = self.run_of();
        run.check()?;
        let mut write = |records: &[Record]| {
            records.iter().for_each(&mut *see);
            Ok(())
        };
        run.run(measures, &mut write, &|_| {})
    }

    /// Runs the measures, writes their records and shows them to `see`.
    pub(super) fn measure(&mut self, measures: &mut [&mut dyn Measure], see: &mut dyn FnMut(&Record)) -> Result<()> {
        let run = self.run_of();
        let memory = run.check()?;
        let folder = RunFolder::create(self.args.out.as_deref(), self.command)?;
        let mut writer = Writer::create(folder.join(RESULTS))?;
        let cells = self.grid.cells().len();
        if !self.args.quiet {
            let names: Vec<&str> = self.models.iter().map(|m| m.name.as_str()).collect();
            let prompts = if cells == 1 { "prompt" } else { "prompts" };
            let mib = memory / (1 << 20);
            eprintln!(
                "{cells} {prompts} on {}, about {mib} MiB of activations -> {}",
                names.join(", "),
                folder.path().display()
            );
        }
        let bar = progress_bar(cells, self.args.quiet);
        let mut write = |records: &[Record]| {
            records.iter().for_each(&mut *see);
            writer.write_all(records)
        };
        let finished = run.run(measures, &mut write, &|done| bar.set_position(done as u64))?;
        bar.finish_and_clear();
        self.files.push((RESULTS.to_owned(), Some(writer.rows())));
        self.finished = Some(finished);
        self.folder = Some(folder);
        Ok(())
    }

    fn folder(&self) -> &RunFolder {
        self.folder.as_ref().expect("files are saved after measuring")
    }

    /// Saves a figure with its recipe.
    pub(super) fn save(&mut self, figure: &Figure, file: &str, pooling: &str) -> Result<()> {
        figure.save(&self.folder().join(file), &self.recipe(pooling))?;
        self.files.push((file.to_owned(), None));
        Ok(())
    }

    /// Saves a figure as SVG with its recipe.
    pub(super) fn save_svg(&mut self, figure: &Figure, file: &str, pooling: &str) -> Result<()> {
        figure.save_svg(&self.folder().join(file), &self.recipe(pooling))?;
        self.files.push((file.to_owned(), None));
        Ok(())
    }

    /// Saves rows as a CSV file of their own layout.
    pub(super) fn save_table<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.folder().join(file);
        let cannot = || format!("cannot write {}", path.display());
        let mut csv = csv::Writer::from_path(&path).with_context(cannot)?;
        for row in rows {
            csv.serialize(row).with_context(cannot)?;
        }
        csv.flush().with_context(cannot)?;
        self.files.push((file.to_owned(), Some(rows.len() as u64)));
        Ok(())
    }

    fn recipe(&self, pooling: &str) -> Vec<(String, String)> {
        let mut recipe = vec![
            ("Software".to_owned(), format!("difftool {}", env!("CARGO_PKG_VERSION"))),
            ("command".to_owned(), std::env::args().collect::<Vec<_>>().join(" ")),
            ("seed".to_owned(), self.grid.seed().to_string()),
            ("pooling".to_owned(), pooling.to_owned()),
        ];
        let hash = |m: &Model| (format!("model {}", m.name), format!("sha256 {}", m.info.weights_sha256));
        recipe.extend(self.models.iter().map(hash));
        recipe
    }

    /// `15 prompts per cell · seed 0`, for the subtitles of figures.
    pub(super) fn caption(&self) -> String {
        let tokens: Vec<String> = self.grid.ctx_tok().iter().map(ToString::to_string).collect();
        let what = match &self.grid {
            Grid::Needle(grid) if grid.samples * grid.depths_pct.len() == 1 => {
                format!("1 prompt, answer at {} %", grid.depths_pct[0])
            }
            Grid::Needle(grid) if grid.samples == 1 => "1 prompt per depth".to_owned(),
            Grid::Needle(grid) => format!("{} prompts per depth", grid.samples),
            Grid::Text(grid) => format!("{} of {}", plural(grid.samples, "window"), self.sources.text.name()),
        };
        format!("{} tokens · {what} · seed {}", tokens.join(", "), self.grid.seed())
    }

    /// Writes the manifest.
    pub(super) fn manifest(&self) -> Result<()> {
        let folder = self.folder();
        let outputs = self.files.iter().map(|(file, rows)| Output::describe(folder.path(), file, *rows));
        let config = json!({
            "grid": self.grid,
            "conditions": self.conditions,
            "selection": self.selection,
        });
        let seed = self.grid.seed();
        let manifest = Manifest {
            argv: std::env::args().collect(),
            config,
            models: self.models.iter().map(|m| m.info.clone()).collect(),
            haystack_sha256: Some(self.sources.haystack.sha256()),
            text_sha256: self.sources.text.sha256(),
            prompts_sha256: self.finished.as_ref().map(|finished| finished.prompts_sha256.clone()),
            dtype: "f32".into(),
            device: "cpu".into(),
            threads: rayon::current_num_threads(),
            seeds: [("prompts".to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: folder.started_utc(),
            wall_s: folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs: outputs.collect::<Result<_>>()?,
            ..Manifest::default()
        };
        manifest.write(&folder.join("manifest.json"))
    }

    /// Says where the results are, and fails if some are missing.
    pub(super) fn conclude(&self) -> Result<()> {
        let (folder, cells) = (self.folder(), self.grid.cells().len());
        let path = folder.path().display();
        let finished = self.finished.as_ref().expect("a run is concluded after measuring");
        if finished.cells < cells {
            anyhow::bail!("stopped after {} of {cells} prompts; what was measured is in {path}", finished.cells);
        }
        if finished.failures > 0 {
            anyhow::bail!(
                "{} failed ({}); see the error column of {}",
                plural(finished.failures, "prompt"),
                finished.first_error.as_deref().unwrap_or("no reason given"),
                folder.join(RESULTS).display()
            );
        }
        if !self.args.quiet {
            eprintln!("results, manifest and figures in {path} ({:.0} s)", folder.elapsed_s());
        }
        Ok(())
    }
}

/// `1 window`, `2 windows`.
fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What a command fills in where a flag was not given.
pub(super) struct Defaults {
    /// Needles in the text and asked for.
    pub(super) settings: &'static [(usize, usize)],
    /// Prompts per depth.
    pub(super) samples: usize,
    /// Prompts per depth with held-out cities, from those with training cities.
    pub(super) heldout: fn(usize) -> usize,
}

/// The grid of needle prompts, or of text if there is one, that flags ask for.
pub(super) fn grid(args: &PromptArgs, text: Option<&Path>, defaults: &Defaults) -> Result<Grid> {
    let ctx_tok = args.ctx.iter().flat_map(|range| range.0.clone()).collect();
    let samples = args.samples.unwrap_or(defaults.samples);
    if text.is_some() {
        return Ok(Grid::Text(TextGrid { ctx_tok, samples, seed: args.seed }));
    }
    Ok(Grid::Needle(NeedleGrid {
        ctx_tok,
        settings: settings(&args.needles, &args.retrieve, defaults.settings)?,
        depths_pct: args.depths.clone(),
        samples,
        heldout_samples: args.heldout.unwrap_or((defaults.heldout)(samples)),
        seed: args.seed,
    }))
}

/// Pairs of needles and questions.
fn settings(needles: &[usize], retrieve: &[usize], default: &[(usize, usize)]) -> Result<Vec<(usize, usize)>> {
    Ok(match (needles, retrieve) {
        ([], []) => default.to_vec(),
        (needles, []) => needles.iter().map(|&n| (n, n.min(2))).collect(),
        ([], _) => bail_usage!("--retrieve needs --needles"),
        (needles, [retrieve]) => needles.iter().map(|&n| (n, *retrieve)).collect(),
        (needles, retrieve) if needles.len() == retrieve.len() => {
            needles.iter().copied().zip(retrieve.iter().copied()).collect()
        }
        (needles, retrieve) => {
            bail_usage!("--needles has {} values and --retrieve {}; they go in pairs", needles.len(), retrieve.len())
        }
    })
}

/// `N=4 R=2`.
pub(super) fn setting_name(needles: usize, retrieve: usize) -> String {
    format!("N={needles} R={retrieve}")
}
