//! Runs an experiment: checks it, measures its cells, and writes every finished cell to disk.

use super::store::{check_experiment, holders, Store};
use super::{cells_of, Experiment, MissedDepth, Outputs, RunShard, Setup};
use crate::bail_usage;
use crate::measures::Measure;
use crate::results::folder::{RunFolder, MANIFEST, RESULTS};
use crate::results::manifest::Manifest;
use crate::results::record::{self, Record};
use anyhow::{bail, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Where a run starts from.
#[derive(Clone, Debug)]
pub enum RunStart {
    /// A new run, in this folder, or in one named after the experiment and the time.
    New(Option<PathBuf>),
    /// The unfinished run in this folder.
    Resume(RunFolder),
    /// The results of these shards, merged into a new folder as for [`RunStart::New`].
    Merge(Vec<PathBuf>, Option<PathBuf>),
}

/// The part of an experiment that is run, and where it starts from.
#[derive(Clone, Debug)]
pub struct RunPart {
    /// Where it starts from.
    pub start: RunStart,
    /// The shard that is run; `None` for the whole experiment.
    pub shard: Option<RunShard>,
}

/// Size of a run that is about to begin.
#[derive(Clone, Debug)]
pub struct RunPlan<'a> {
    /// Cells of this part, the finished ones included.
    pub cells: usize,
    /// Cells that were finished before.
    pub resumed: usize,
    /// Copy of the damaged journal of a resumed run, which has a copy of the records beside it.
    pub put_aside: Option<&'a Path>,
    /// Depths that the first prompts miss.
    pub missed_depths: &'a [MissedDepth],
    /// The run folder.
    pub folder: &'a Path,
}

/// An observer of a running experiment.
pub trait RunObserver {
    /// Called when all checks have passed and before the first cell runs.
    fn run_begins(&mut self, _plan: &RunPlan<'_>) {}

    /// Called with every record, in order: those of a resumed run first, then each one that is written.
    fn record(&mut self, _record: &Record) {}

    /// Called when all records of a cell are on disk.
    fn cell_finished(&mut self) {}
}

/// The end of a run, complete or stopped.
pub struct RunOutcome {
    /// The run folder, to which files can be added before the manifest is written.
    pub outputs: Outputs,
    /// Cells of this part.
    pub cells: usize,
    /// Cells on disk; fewer than `cells` if the run was stopped.
    pub finished: usize,
    /// Number of records with an error instead of a value.
    pub failures: usize,
    /// The first of these errors.
    pub first_error: Option<String>,
}

impl RunOutcome {
    /// Returns `true` if every cell has run, with or without an error.
    pub fn is_complete(&self) -> bool {
        self.finished == self.cells
    }
}

/// Runs an experiment, or continues one. Every record goes to disk and to `observer`; setting `stop` ends the run after
/// the cells in flight. The results of a run that was stopped, killed or cut into shards, and then continued or merged,
/// have the same bytes as those of an uninterrupted run.
///
/// # Errors
/// Usage errors before anything runs, if the experiment cannot run or the folder holds another one; afterwards only
/// errors of writing. A cell that fails is a record, not an error.
pub fn run(
    setup: &Setup,
    part: &RunPart,
    measures: &mut [&mut dyn Measure],
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<RunOutcome> {
    check_part(&setup.experiment, part)?;
    let cells = cells_of(setup.grid.cells(), part.shard);
    let missed_depths = setup.check(&cells)?;
    let experiment = setup.experiment.to_toml()?;
    let keys = setup.keys(&cells, &experiment);
    setup.references()?;
    let (folder, mut store) = open(setup.experiment.show.name(), part, &experiment, &keys)?;
    let resumed = store.finished();
    let todo = &cells[resumed..];
    observer.run_begins(&RunPlan {
        cells: cells.len(),
        resumed,
        put_aside: store.put_aside.as_deref(),
        missed_depths: &missed_depths,
        folder: folder.path(),
    });
    let (mut failures, mut first_error) = (0, None);
    let mut see = |observer: &mut dyn RunObserver, record: &Record| {
        if let Some(error) = &record.measure.error {
            failures += 1;
            first_error.get_or_insert_with(|| error.clone());
        }
        observer.record(record);
    };
    store.replay(measures, &mut |record| see(observer, record))?;
    let ran = setup.run(todo, measures, stop, &mut |cell, finding| {
        let (_, key) = &keys[store.finished()];
        store.add(cell, key.clone(), finding)?;
        finding.records.iter().for_each(|record| see(observer, record));
        observer.cell_finished();
        Ok(())
    });
    // Also after an error: what was measured stays.
    let committed = store.commit();
    ran?;
    committed?;
    if store.finished() == cells.len() && part.shard.is_none() {
        let pooled = setup.pooled(measures);
        pooled.iter().for_each(|record| see(observer, record));
        store.conclude(&pooled)?;
    }
    let outputs = Outputs::new(folder, part, store.rows(), resumed as u64, store.prompts_sha256());
    Ok(RunOutcome { outputs, cells: cells.len(), finished: store.finished(), failures, first_error })
}

/// Opens the run folder and its store.
fn open(name: &str, part: &RunPart, experiment: &str, keys: &[(u64, String)]) -> Result<(RunFolder, Store)> {
    let (mut folder, store);
    match &part.start {
        RunStart::New(out) => {
            folder = RunFolder::create(out.as_deref(), name)?;
            store = Store::create(&mut folder, experiment)?;
        }
        RunStart::Resume(begun) => {
            folder = begun.clone();
            check_experiment(folder.path(), experiment)?;
            store = Store::resume(&mut folder, keys)?;
        }
        RunStart::Merge(shards, out) => {
            let holders = holders(shards, experiment, keys)?;
            folder = RunFolder::create(out.as_deref(), name)?;
            store = Store::merge(&mut folder, experiment, shards, &holders)?;
        }
    }
    Ok((folder, store))
}

/// Checks that the experiment can run in parts; an experiment on one prompt cannot.
fn check_part(experiment: &Experiment, part: &RunPart) -> Result<()> {
    let is_whole = matches!(part.start, RunStart::New(_)) && part.shard.is_none();
    if experiment.show.is_of_maps() && !is_whole {
        let show = experiment.show.name();
        bail_usage!(
            "show = \"{show}\" measures one prompt: it cannot be resumed, cut into shards or merged; start a new run"
        );
    }
    Ok(())
}

/// Returns the records of the run to be resumed if it is already finished; `None` if the run is new or unfinished. The folder
/// of an unfinished run is locked. A run is unfinished as long as one of its files is missing.
///
/// # Errors
/// A usage error if the folder holds another experiment or another shard; an error if prompts of the run failed, its files
/// have changed, or another process is writing into the folder.
pub fn finished_records(experiment: &Experiment, part: &mut RunPart) -> Result<Option<Vec<Record>>> {
    check_part(experiment, part)?;
    let RunStart::Resume(folder) = &mut part.start else { return Ok(None) };
    check_experiment(folder.path(), &experiment.to_toml()?)?;
    let path = folder.join(MANIFEST);
    if !path.exists() {
        folder.journal()?;
        // Another process may have finished it just before it released the lock.
        if !path.exists() {
            return Ok(None);
        }
    }
    let manifest = Manifest::read(&path)?;
    check_shard(&manifest, part.shard, folder.path())?;
    if !manifest.check_outputs(folder.path())? {
        folder.journal()?;
        return Ok(None);
    }
    let records = record::read(&folder.join(RESULTS))?;
    if let Some(error) = records.iter().find_map(|record| record.measure.error.as_deref()) {
        bail!("prompts of the run in {} failed ({error}); start a new run", folder.path().display());
    }
    Ok(Some(records))
}

fn check_shard(manifest: &Manifest, shard: Option<RunShard>, folder: &Path) -> Result<()> {
    let shard = shard.map(|shard| shard.to_string());
    if manifest.shard == shard {
        return Ok(());
    }
    let asked = shard.map_or("all of it is".to_owned(), |shard| format!("shard {shard} is"));
    match &manifest.shard {
        Some(held) => bail_usage!("{} holds shard {held}, {asked} asked for: add --shard {held}", folder.display()),
        None => bail_usage!("{} holds all of the run, {asked} asked for: leave --shard out", folder.display()),
    }
}
