//! The run of an experiment: check, measure, and keep every finished cell on disk.

use super::store::{check_experiment, Shards, Store};
use super::{cells_of, Cell, Experiment, Outputs, Pace, Setup, Shard};
use crate::bail_usage;
use crate::manifest::Manifest;
use crate::measure::{Measure, MeasureName};
use crate::memory::give_back_everywhere;
use crate::model::Flops;
use crate::record::{self, Record};
use crate::runfolder::{results, RunFolder, MANIFEST};
use anyhow::{bail, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Work of a few seconds on one core: less is not worth a prompt to time first.
const WORTH_PACING_FLOP: f64 = 1e12;

/// The part of a run's operations that may go to finding out how long it will take.
const PACING_SHARE: f64 = 0.2;

/// Where a run begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// With nothing, in this folder or in one that is named after the experiment and the time.
    New(Option<PathBuf>),
    /// Where the run in this folder ended.
    Resume(PathBuf),
    /// With all that these shards have measured, in a new folder as above.
    Merge(Vec<PathBuf>, Option<PathBuf>),
}

/// Which part of an experiment is run, and where it begins.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it begins.
    pub start: Start,
    /// Its cells; nothing for all of them.
    pub shard: Option<Shard>,
}

/// A run that is about to begin: what it will take.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Cells of this part, the finished ones included.
    pub cells: usize,
    /// Cells that were finished before.
    pub resumed: usize,
    /// The most memory that the process will hold, in bytes.
    pub memory_bytes: u64,
    /// How long the rest will take; nothing if nobody asked, or it is shorter than finding out is worth.
    pub seconds: Option<f64>,
    /// Where the results go.
    pub folder: &'a Path,
}

/// Who looks on while an experiment runs.
pub trait Watch {
    /// Whether it wants to know how long the run will take, which is found by running a few prompts first.
    fn wants_seconds(&self) -> bool {
        false
    }

    /// Everything is checked, and a few prompts are about to run to find that out.
    fn paces(&mut self) {}

    /// Everything is checked, and the first cell is about to run.
    fn begins(&mut self, _plan: &Plan<'_>) {}

    /// A record was written, or found by a run that goes on: all of them, in order.
    fn record(&mut self, _record: &Record) {}

    /// All records of a cell are on disk.
    fn cell(&mut self) {}
}

/// What a run came to.
pub struct Finished {
    /// Its folder, to which files can be added before the manifest is written.
    pub outputs: Outputs,
    /// Cells of this part.
    pub cells: usize,
    /// Cells that are on disk: fewer, if it was stopped.
    pub finished: usize,
    /// Records that hold an error instead of a number.
    pub failures: usize,
    /// The first of these errors.
    pub first_error: Option<String>,
}

impl Finished {
    /// Whether every cell was measured, or failed.
    pub fn is_complete(&self) -> bool {
        self.finished == self.cells
    }
}

/// Runs an experiment, or goes on with it: `measures` look at every cell of the part, every record goes to `watch` and to
/// disk, and `stop` ends the run after the cells in flight. The records of a run that is stopped, killed or cut into shards
/// and continued are the bytes of one run.
///
/// # Errors
/// Usage errors, before anything runs, for what cannot be run and for folders that hold another experiment; afterwards only
/// what cannot be written. Cells that fail are records.
pub fn run(
    setup: &Setup,
    part: &Part,
    measures: &mut [&mut dyn Measure],
    watch: &mut dyn Watch,
    stop: &AtomicBool,
) -> Result<Finished> {
    check_part(&setup.experiment, part)?;
    let cells = cells_of(setup.grid.cells(), part.shard);
    let memory_bytes = setup.check(&cells, measures)?;
    let names = setup.experiment.measure_names();
    let ar_max_count = names.contains(&MeasureName::Nll).then(|| setup.ar_max_count());
    let keys = setup.keys(&cells, &names, ar_max_count);
    setup.references()?;
    give_back_everywhere(); // and what passes took that found out which heads are meant
    let (folder, mut store) = open(setup, part, &keys)?;
    let resumed = store.finished.len();
    let todo = &cells[resumed..];
    let seconds = if watch.wants_seconds() { seconds(setup, todo, watch)? } else { None };
    watch.begins(&Plan { cells: cells.len(), resumed, memory_bytes, seconds, folder: folder.path() });
    let (mut failures, mut first_error) = (0, None);
    let mut see = |watch: &mut dyn Watch, record: &Record| {
        if let Some(error) = &record.measure.error {
            failures += 1;
            first_error.get_or_insert_with(|| error.clone());
        }
        watch.record(record);
    };
    store.replay(measures, &mut |record| see(watch, record))?;
    setup.run(todo, measures, stop, &mut |cell, finding| {
        let (_, key) = &keys[store.finished.len()];
        store.add(cell, key.clone(), finding)?;
        finding.records.iter().for_each(|record| see(watch, record));
        watch.cell();
        Ok(())
    })?;
    if store.finished.len() == cells.len() && part.shard.is_none() {
        let pooled = setup.pooled(measures);
        pooled.iter().for_each(|record| see(watch, record));
        store.conclude(&pooled)?;
    }
    give_back_everywhere(); // what passes took and freed is there for tables and figures
    let outputs = Outputs::new(folder, part, store.rows(), resumed as u64, store.prompts_sha256());
    Ok(Finished { outputs, cells: cells.len(), finished: store.finished.len(), failures, first_error })
}

/// The folder and the files to go on with.
fn open(setup: &Setup, part: &Part, keys: &[(u64, String)]) -> Result<(RunFolder, Store)> {
    let name = setup.experiment.show.name();
    match &part.start {
        Start::New(out) => {
            let folder = RunFolder::create(out.as_deref(), name)?;
            let store = Store::create(folder.path(), &setup.experiment.to_toml()?)?;
            Ok((folder, store))
        }
        Start::Resume(path) => {
            check_experiment(path, &setup.experiment.to_toml()?)?;
            Ok((RunFolder::reopen(path)?, Store::resume(path, keys)?))
        }
        Start::Merge(shards, out) => {
            let experiment = setup.experiment.to_toml()?;
            let shards = Shards::check(shards, &experiment, keys)?;
            let folder = RunFolder::create(out.as_deref(), name)?;
            shards.merge(folder.path(), &experiment)?;
            let store = Store::resume(folder.path(), keys)?;
            Ok((folder, store))
        }
    }
}

/// Whether the experiment can be run in this part: maps of one prompt are there or not.
fn check_part(experiment: &Experiment, part: &Part) -> Result<()> {
    let is_whole = matches!(part.start, Start::New(_)) && part.shard.is_none();
    if experiment.show.is_of_maps() && !is_whole {
        let show = experiment.show.name();
        bail_usage!(
            "show = \"{show}\" looks at one prompt: there is nothing to resume, to cut or to merge; run it anew"
        );
    }
    Ok(())
}

/// How long these cells will take; nothing if finding out is not worth it: they take next to no time, or are so few that it would take
/// a good part of theirs.
fn seconds(setup: &Setup, cells: &[Cell], watch: &mut dyn Watch) -> Result<Option<f64>> {
    let flops = cells.iter().fold(Flops::default(), |sum, cell| sum + setup.flops(cell.spec.ctx_tok()));
    if flops.sum() < WORTH_PACING_FLOP || setup.experiment.show.is_of_maps() {
        return Ok(None);
    }
    watch.paces();
    let pace = Pace::measure(setup, cells, PACING_SHARE * flops.sum())?;
    Ok(pace.map(|pace| pace.seconds(flops)))
}

/// The records of a run that needs not be continued, because it is finished; nothing if it is not.
///
/// # Errors
/// Usage errors if the folder holds another experiment or another shard of it; if prompts of it failed, or its files are not
/// what was written.
pub fn finished(experiment: &Experiment, part: &Part) -> Result<Option<Vec<Record>>> {
    check_part(experiment, part)?;
    let Start::Resume(folder) = &part.start else { return Ok(None) };
    check_experiment(folder, &experiment.to_toml()?)?;
    if !folder.join(MANIFEST).exists() {
        return Ok(None);
    }
    let manifest = Manifest::read(&folder.join(MANIFEST))?;
    let shard = part.shard.map(|shard| shard.to_string());
    if manifest.shard != shard {
        let asked = shard.map_or("all of it is".to_owned(), |shard| format!("shard {shard} is"));
        match manifest.shard {
            Some(held) => bail_usage!("{} holds shard {held}, {asked} asked for: add --shard {held}", folder.display()),
            None => bail_usage!("{} holds all of the run, {asked} asked for: leave --shard out", folder.display()),
        }
    }
    manifest.check_outputs(folder)?;
    let records = record::read(&results(folder))?;
    if let Some(error) = records.iter().find_map(|record| record.measure.error.as_deref()) {
        bail!("prompts of the run in {} failed ({error}); run it anew", folder.display());
    }
    Ok(Some(records))
}
