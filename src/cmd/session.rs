//! What every measuring command does around its measures: load, check, run, write, say where it went.

use super::{progress_bar, stop_on_ctrl_c};
use crate::bail_usage;
use crate::cli::{OutputArgs, PartArgs};
use crate::experiment::{
    cells_of, Cell, Condition, Experiment, Grid, Pace, Run, Shard, Shards, Show, Sources, Store, EXPERIMENT, MANIFEST,
    RESULTS,
};
use crate::manifest::{Manifest, Output};
use crate::measure::{Measure, MeasureName, Measures, AR_MAX_COUNT};
use crate::memory::peak_rss_bytes;
use crate::model::Flops;
use crate::models::{self, Model};
use crate::plot::Figure;
use crate::prompt::{Haystack, Text, TokenIds};
use crate::record::Record;
use crate::runfolder::RunFolder;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// More prompts than anybody has the time for; each takes some memory before the run begins.
const MOST_PROMPTS: usize = 10_000_000;

/// Work of a few seconds on one core: less is not worth a prompt to time first.
const WORTH_PACING_FLOP: f64 = 1e12;

/// More threads than any machine has.
const MOST_THREADS: usize = 4096;

/// Where an experiment begins.
#[derive(Clone, Debug, Default)]
pub(super) enum Start {
    /// With nothing.
    #[default]
    New,
    /// Where the run in this folder ended.
    Resume(PathBuf),
    /// With all that these shards have measured.
    Shards(Vec<PathBuf>),
}

/// How an experiment is run.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) output: OutputArgs,
    pub(super) start: Start,
    pub(super) shard: Option<Shard>,
}

impl How {
    /// From the beginning, all of it.
    pub(super) fn whole(output: &OutputArgs) -> Self {
        Self { output: output.clone(), start: Start::New, shard: None }
    }

    /// As flags say.
    pub(super) fn new(output: &OutputArgs, part: &PartArgs) -> Self {
        let start = part.resume.clone().map_or(Start::New, Start::Resume);
        Self { output: output.clone(), start, shard: part.shard }
    }
}

/// A measuring command under way.
pub(super) struct Session {
    pub(super) models: Vec<Model>,
    pub(super) grid: Grid,
    pub(super) experiment: Experiment,
    pub(super) how: How,
    sources: Sources,
    pub(super) conditions: Vec<Condition>,
    stop: Arc<AtomicBool>,
    /// Nothing until the checks have passed.
    folder: Option<RunFolder>,
    files: Vec<(String, Option<u64>)>,
    progress: Progress,
}

/// How far a run came.
#[derive(Default)]
struct Progress {
    /// Cells to run, the finished ones included.
    cells: usize,
    finished: usize,
    resumed: usize,
    prompts_sha256: String,
    /// Records that hold an error instead of a number.
    failures: usize,
    first_error: Option<String>,
    /// Numbers asked for, and of them those that were found, by model; unquantised.
    found: Vec<(String, usize, usize)>,
}

impl Progress {
    fn see(&mut self, record: &Record) {
        if let Some(error) = &record.measure.error {
            self.failures += 1;
            self.first_error.get_or_insert_with(|| error.clone());
        }
        if let (Some(value), "exact", None) = (record.measure.value, &*record.measure.metric, record.identity.bits) {
            let model = &record.identity.model;
            let hit = usize::from(value == 1.0);
            match self.found.iter_mut().find(|(name, ..)| name == model) {
                Some((_, asked, found)) => (*asked, *found) = (*asked + 1, *found + hit),
                None => self.found.push((model.clone(), 1, hit)),
            }
        }
    }

    /// What has been found so far, for the progress bar: `; found so far: transformer 92 %, diff 97 %`.
    fn so_far(&self) -> String {
        let share = |(model, asked, found): &(String, usize, usize)| format!("{model} {} %", 100 * found / asked);
        let shares: Vec<String> = self.found.iter().map(share).collect();
        if shares.is_empty() {
            return String::new();
        }
        format!("; found so far: {}", shares.join(", "))
    }
}

impl Session {
    /// Loads the models and the texts.
    pub(super) fn open(experiment: Experiment, how: How) -> Result<Self> {
        if let Some(threads) = how.output.threads {
            if threads.get() > MOST_THREADS {
                bail_usage!("--threads {threads}: at most {MOST_THREADS}");
            }
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads.get())
                .build_global()
                .context("cannot start the threads")?;
        }
        let models =
            experiment.models.iter().map(|name| models::load(name, experiment.reading)).collect::<Result<Vec<_>>>()?;
        let sources = Sources {
            haystack: experiment.haystack.as_deref().map_or_else(|| Ok(Haystack::embedded()), Haystack::from_path)?,
            text: match (&experiment.text, &experiment.ids) {
                (Some(path), _) => Text::from_path(path)?,
                (None, Some(path)) => Text::Ids(TokenIds::read(path)?),
                (None, None) => Text::Prose,
            },
        };
        let grid = match experiment.grid.clone() {
            Grid::Text(grid) => {
                // What is counted by token takes the last, shorter window too; in a mean over windows it would weigh too much.
                let by_token = |measure| matches!(measure, MeasureName::Nll | MeasureName::Outliers);
                let to_its_end = experiment.measure_names().into_iter().any(by_token);
                Grid::Text(grid.within(&sources.text, models.iter().map(Model::tokenizer), to_its_end)?)
            }
            grid => grid,
        };
        if grid.count().is_none_or(|count| count > MOST_PROMPTS) {
            bail_usage!("more than {MOST_PROMPTS} prompts: lower --samples, or cut --ctx into several runs");
        }
        Ok(Self {
            models,
            grid,
            sources,
            conditions: experiment.conditions()?,
            experiment,
            how,
            stop: stop_on_ctrl_c()?,
            folder: None,
            files: Vec::new(),
            progress: Progress::default(),
        })
    }

    /// The run of it.
    pub(super) fn run(&self) -> Run<'_> {
        Run {
            models: &self.models,
            grid: &self.grid,
            sources: &self.sources,
            conditions: &self.conditions,
            selection: &self.experiment.select,
            max_new: self.experiment.max_new(),
            stop: &self.stop,
        }
    }

    /// The measures, ready to run.
    pub(super) fn measures(&self) -> Result<Measures> {
        let mut measures = Measures::new(&self.experiment.measure_names());
        if let Some(nll) = &mut measures.nll {
            let tokenizers: Vec<_> = self.models.iter().map(|model| model.tokenizer().ok()).collect();
            nll.leave_out_frequent(&tokenizers, self.ar_max_count())?;
        }
        Ok(measures)
    }

    /// How often a bigram may occur in the reference prose and still make AR hits.
    pub(super) fn ar_max_count(&self) -> u64 {
        self.experiment.ar_max_count.unwrap_or(AR_MAX_COUNT)
    }

    /// Runs the measures without writing anything: to find out what to look at.
    pub(super) fn look(&self, measures: &mut [&mut dyn Measure], see: &mut dyn FnMut(&Record)) -> Result<()> {
        let (run, cells) = (self.run(), self.grid.cells());
        run.check(&cells)?;
        let mut done = |_: &_, finding: &crate::experiment::Finding<'_>| {
            finding.records.iter().for_each(&mut *see);
            Ok(())
        };
        run.run(&cells, measures, &mut done).map(|_| ())
    }

    /// Runs the measures, or goes on with them, writes their records and shows them to `see`.
    pub(super) fn measure(&mut self, measures: &mut [&mut dyn Measure], see: &mut dyn FnMut(&Record)) -> Result<()> {
        let run = self.run();
        let cells = cells_of(self.grid.cells(), self.how.shard);
        let memory = run.check(&cells)?;
        let names = self.experiment.measure_names();
        let ar_max_count = names.contains(&MeasureName::Nll).then(|| self.ar_max_count());
        let keys = run.keys(&cells, &names, ar_max_count);
        let (folder, mut store) = self.store(&keys)?;
        let mut progress = Progress { cells: cells.len(), resumed: store.finished.len(), ..Progress::default() };
        if !self.how.output.quiet {
            let seconds = self.seconds(&cells[store.finished.len()..])?;
            self.announce(&progress, seconds, memory, &folder);
        }
        store.replay(measures, &mut |record| {
            progress.see(record);
            see(record);
        })?;
        let bar = progress_bar(cells.len(), self.how.output.quiet);
        bar.set_position(store.finished.len() as u64);
        bar.reset_eta();
        let todo = &cells[store.finished.len()..];
        run.run(todo, measures, &mut |cell, finding| {
            let (_, key) = &keys[store.finished.len()];
            store.add(cell, key.clone(), finding)?;
            finding.records.iter().for_each(|record| {
                progress.see(record);
                see(record);
            });
            bar.inc(1);
            bar.set_message(progress.so_far());
            Ok(())
        })?;
        bar.finish_and_clear();
        if store.finished.len() == cells.len() && self.how.shard.is_none() {
            let pooled = run.pooled(measures);
            pooled.iter().for_each(&mut *see);
            store.conclude(&pooled)?;
        }
        progress.finished = store.finished.len();
        progress.prompts_sha256 = store.prompts_sha256();
        self.files.push((RESULTS.to_owned(), Some(store.rows())));
        self.progress = progress;
        self.folder = Some(folder);
        Ok(())
    }

    /// The folder and the files to go on with.
    fn store(&self, keys: &[(u64, String)]) -> Result<(RunFolder, Store)> {
        let name = self.experiment.show.name();
        let out = self.how.output.out.as_deref();
        match &self.how.start {
            Start::New => {
                let folder = RunFolder::create(out, name)?;
                // Maps are no experiment that a file could repeat.
                let experiment =
                    (self.experiment.show != Show::Heatmap).then(|| self.experiment.to_toml()).transpose()?;
                let store = Store::create(folder.path(), experiment.as_deref())?;
                Ok((folder, store))
            }
            Start::Resume(path) => Ok((RunFolder::reopen(path)?, Store::resume(path, keys)?)),
            Start::Shards(shards) => {
                let experiment = self.experiment.to_toml()?;
                let shards = Shards::check(shards, &experiment, keys)?;
                let folder = RunFolder::create(out, name)?;
                shards.merge(folder.path(), &experiment)?;
                let store = Store::resume(folder.path(), keys)?;
                Ok((folder, store))
            }
        }
    }

    /// How long these cells will take; nothing if that is shorter than finding out is worth.
    fn seconds(&self, cells: &[Cell]) -> Result<Option<f64>> {
        let run = self.run();
        let flops = cells.iter().fold(Flops::default(), |sum, cell| sum + run.flops(cell.spec.ctx_tok()));
        if flops.linear + flops.attention < WORTH_PACING_FLOP || self.experiment.show == Show::Heatmap {
            return Ok(None);
        }
        let pace = Pace::measure(&run, cells, &mut self.measures()?.list())?;
        Ok(pace.map(|pace| pace.seconds(flops)))
    }

    fn announce(&self, progress: &Progress, seconds: Option<f64>, memory: u64, folder: &RunFolder) {
        let names: Vec<&str> = self.models.iter().map(|m| m.name.as_str()).collect();
        let shard = self.how.shard.map_or(String::new(), |shard| format!(" (shard {shard})"));
        let resumed = if progress.resumed > 0 { format!(", {} of them done", progress.resumed) } else { String::new() };
        eprintln!(
            "{}{shard} on {}{resumed}: {}about {} MiB of memory -> {}",
            plural(progress.cells, "prompt"),
            names.join(", "),
            seconds.map_or(String::new(), |seconds| format!("about {seconds:.0} s, ")),
            memory / (1 << 20),
            folder.path().display()
        );
        for info in self.models.iter().map(|model| &model.info).filter(|info| info.path.is_some()) {
            if let Some(bos) = &info.bos {
                let chat = if info.chat_template_sha256.is_some() { ", in its chat template" } else { "" };
                eprintln!("{}: {}; prompts begin with {bos}{chat}", info.name, info.layout);
            }
        }
    }

    /// Whether every prompt was measured, or failed.
    pub(super) fn is_complete(&self) -> bool {
        self.progress.finished == self.progress.cells
    }

    fn folder(&self) -> &RunFolder {
        self.folder.as_ref().expect("files are saved after measuring")
    }

    /// The path of a new file of the run. A run that is continued may have been killed while it wrote its figures.
    fn place(&self, file: &str) -> PathBuf {
        let path = self.folder().join(file);
        if matches!(self.how.start, Start::Resume(_)) {
            let _ = std::fs::remove_file(&path);
        }
        path
    }

    /// Saves a figure with its recipe.
    pub(super) fn save(&mut self, figure: &Figure, file: &str, pooling: &str) -> Result<()> {
        figure.save(&self.place(file), &self.recipe(pooling))?;
        self.files.push((file.to_owned(), None));
        Ok(())
    }

    /// Saves a figure as SVG with its recipe.
    pub(super) fn save_svg(&mut self, figure: &Figure, file: &str, pooling: &str) -> Result<()> {
        figure.save_svg(&self.place(file), &self.recipe(pooling))?;
        self.files.push((file.to_owned(), None));
        Ok(())
    }

    /// Saves rows as a CSV file of their own layout.
    pub(super) fn save_table<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.place(file);
        let cannot = || format!("cannot write {}", path.display());
        let mut csv = csv::Writer::from_path(&path).with_context(cannot)?;
        for row in rows {
            csv.serialize(row).with_context(cannot)?;
        }
        csv.flush().with_context(cannot)?;
        self.files.push((file.to_owned(), Some(rows.len() as u64)));
        Ok(())
    }

    /// Saves rows as JSON, one on each line.
    pub(super) fn save_lines<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.place(file);
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row)?;
            lines.push(b'\n');
        }
        std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
        self.files.push((file.to_owned(), Some(rows.len() as u64)));
        Ok(())
    }

    fn recipe(&self, pooling: &str) -> Vec<(String, String)> {
        let mut recipe = super::recipe(self.grid.seed(), pooling);
        let hash = |m: &Model| (format!("model {}", m.name), format!("sha256 {}", m.info.weights_sha256));
        recipe.extend(self.models.iter().map(hash));
        recipe
    }

    /// `4096 tokens · 15 prompts per depth · seed 0`, for the subtitles of figures.
    pub(super) fn caption(&self) -> String {
        self.caption_of(self.grid.ctx_tok())
    }

    /// The same of prompts of these lengths alone.
    pub(super) fn caption_of(&self, ctx_tok: &[usize]) -> String {
        let tokens: Vec<String> = ctx_tok.iter().map(ToString::to_string).collect();
        let what = match &self.grid {
            Grid::Needle(grid) if grid.samples * grid.depths_pct.len() == 1 => {
                format!("1 prompt, answer at {} %", grid.depths_pct[0])
            }
            Grid::Needle(grid) if grid.samples == 1 => "1 prompt per depth".to_owned(),
            Grid::Needle(grid) => format!("{} prompts per depth", grid.samples),
            Grid::Text(grid) => {
                let stride = grid.stride.filter(|_| grid.samples > 1);
                let stride = stride.map_or(String::new(), |stride| format!(" {stride} tokens apart"));
                format!("{}{stride} of {}", plural(grid.samples, "window"), self.sources.text.name())
            }
        };
        format!("{} tokens · {what} · seed {}", tokens.join(", "), self.grid.seed())
    }

    /// Writes the manifest.
    pub(super) fn manifest(&self) -> Result<()> {
        let folder = self.folder();
        let outputs = self.files.iter().map(|(file, rows)| Output::describe(folder.path(), file, *rows));
        let experiment = &self.experiment;
        let mut config = json!({
            "question": experiment.question,
            "analysis": experiment.analysis,
            "show": experiment.show,
            "measures": experiment.measure_names(),
            "grid": self.grid,
            "conditions": self.conditions,
            "selection": experiment.select,
            "expect": experiment.expect,
        });
        if let Some(count) = experiment.ar_max_count {
            config["ar_max_count"] = count.into();
        }
        if let Some(max_new) = experiment.max_new() {
            config["max_new"] = json!(max_new);
        }
        let seed = self.grid.seed();
        let manifest = Manifest {
            argv: std::env::args().collect(),
            config,
            models: self.models.iter().map(|m| m.info.clone()).collect(),
            haystack_sha256: Some(self.sources.haystack.sha256()),
            text_sha256: self.sources.text.sha256(),
            prompts_sha256: Some(self.progress.prompts_sha256.clone()),
            dtype: "f32".into(),
            device: "cpu".into(),
            shard: self.how.shard.map(|shard| shard.to_string()),
            resumed_cells: self.progress.resumed as u64,
            threads: rayon::current_num_threads(),
            seeds: [("prompts".to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: folder.started_utc(),
            wall_s: folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs: outputs.collect::<Result<_>>()?,
            ..Manifest::default()
        };
        manifest.write(&folder.join(MANIFEST))
    }

    /// Says where the results are, and fails if some are missing.
    pub(super) fn conclude(&self) -> Result<()> {
        let (folder, progress) = (self.folder(), &self.progress);
        let path = folder.path().display();
        if !self.is_complete() {
            let resume = if folder.join(EXPERIMENT).exists() {
                format!("; the same command with --resume {path} goes on, instead of --out")
            } else {
                String::new()
            };
            let (finished, cells) = (progress.finished, progress.cells);
            anyhow::bail!("stopped after {finished} of {cells} prompts; what was measured is in {path}{resume}");
        }
        if progress.failures > 0 {
            anyhow::bail!(
                "{} failed ({}); see the error column of {}",
                plural(progress.failures, "prompt"),
                progress.first_error.as_deref().unwrap_or("no reason given"),
                folder.join(RESULTS).display()
            );
        }
        if !self.how.output.quiet {
            let seconds = folder.elapsed_s();
            match self.how.shard {
                Some(shard) => {
                    eprintln!("shard {shard} is in {path} ({seconds:.0} s); `difftool merge` needs all of them")
                }
                None => eprintln!("results, manifest and figures in {path} ({seconds:.0} s)"),
            }
        }
        Ok(())
    }
}

/// `1 window`, `2 windows`.
fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
