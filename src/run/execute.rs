//! One run of an experiment: prepared, then measured, with every prompt on disk before the next begins.

use super::begun::Begun;
use super::maps::drawn_heads;
use super::reference::ranked_heads;
use super::series::{measure_prompts, pooled_records, Series};
use super::store::{check_experiment, check_shards, Store};
use super::{MissedDepth, Origin, OutputStyle, Plan, RunShard, Setup};
use crate::measures::{Measure, PassKey};
use crate::results::folder::{RunFolder, MANIFEST, RESULTS};
use crate::results::manifest::Manifest;
use crate::results::record;
use crate::results::{About, Findings, Frame, FrameBuilder, LeftOut, RunConfig};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::hash::sha256;
use serde_json::{json, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use text::PlannedPrompt;

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

/// The numbers of models and of conditions that a measure sees.
#[derive(Clone, Copy)]
struct Passes {
    models: usize,
    conditions: usize,
}

impl Passes {
    fn has(self, key: PassKey) -> bool {
        key.model < self.models && key.condition < self.conditions
    }
}

/// A run of an experiment: what is measured, what came out, and the folder that holds it. The results of a run that was
/// stopped, killed or cut into shards, and then continued or merged, have the same bytes as those of an uninterrupted run.
pub struct Run {
    /// Its series, one after the other.
    pub series: Vec<Series>,
    /// The series that cannot be measured.
    pub left_out: Vec<LeftOut>,
    /// The part of the experiment.
    pub part: RunPart,
    /// The run folder.
    pub folder: RunFolder,
    /// How figures look, and what is said.
    pub style: OutputStyle,
    /// The records, for tables and figures: empty before [`Run::measure`] has returned.
    pub frame: Frame,
    gathered: FrameBuilder,
    /// Prompts that were finished before this process.
    pub resumed: usize,
    pub(super) store: Store,
    pub(super) begun: Begun,
    /// Names of the files besides the records, with the number of rows of those that have rows.
    pub(super) files: RefCell<Vec<(String, Option<u64>)>>,
}

impl Run {
    /// Opens the folder of an experiment whose series are checked: a new one, or that of the run to be continued.
    ///
    /// # Errors
    /// Usage errors for rankings of heads that a model does not have, and if the folder holds another experiment, or was measured with
    /// other models or texts.
    pub fn prepare(series: Vec<Series>, left_out: Vec<LeftOut>, part: RunPart, style: OutputStyle) -> Result<Self> {
        check_part(&series[0].setup.plan, &part)?;
        for series in &series {
            series.setup.references()?;
        }
        let (folder, store, begun) = open(&series, &left_out, &part)?;
        Ok(Self {
            frame: Frame::default(),
            gathered: FrameBuilder::new(about(folder.path(), &series, &left_out)?),
            resumed: store.finished(),
            files: RefCell::default(),
            series,
            left_out,
            part,
            folder,
            style,
            store,
            begun,
        })
    }

    /// Measures the prompts that are left. Every record goes to disk; `prompt_finished` is called when all records of a prompt
    /// are there. Setting `stop` ends the run after the prompts in progress.
    ///
    /// # Errors
    /// Only errors of writing. A prompt that fails is a record, not an error.
    pub fn measure(&mut self, stop: &AtomicBool, prompt_finished: &mut dyn FnMut()) -> Result<()> {
        self.replay()?;
        let measured = self.measure_series(stop, prompt_finished);
        // Also after an error: what was measured stays.
        let committed = self.store.commit();
        let written = measured.and(committed).and_then(|()| self.conclude());
        written.with_context(|| format!("stopped; {}", self.way_on()))?;
        self.frame = self.whole_frame()?;
        Ok(())
    }

    /// Reads what is on disk.
    fn replay(&mut self) -> Result<()> {
        let Self { series, gathered, store, .. } = self;
        let mut passes = Vec::new();
        for Series { setup, measures, .. } in series.iter_mut() {
            let of_series = Passes { models: setup.models.len(), conditions: setup.conditions.len() };
            passes.extend(measures.list().iter().map(|_| of_series));
        }
        let has_pass = |measure: usize, key: PassKey| passes.get(measure).is_some_and(|passes| passes.has(key));
        let mut measures: Vec<&mut dyn Measure> = series.iter_mut().flat_map(|series| series.measures.list()).collect();
        store.replay(&mut measures, has_pass, &mut |record| gathered.add(record))
    }

    fn measure_series(&mut self, stop: &AtomicBool, prompt_finished: &mut dyn FnMut()) -> Result<()> {
        let Self { series, gathered, store, begun, .. } = self;
        let begun = begun.key();
        let mut done = store.finished();
        let mut measures_before = 0;
        for Series { setup, measures, prompts, .. } in series {
            let todo = &prompts[done.min(prompts.len())..];
            done = done.saturating_sub(prompts.len());
            let mut keys = keys_of(setup, todo, &begun);
            let mut measures = measures.list();
            measure_prompts(setup, todo, &mut measures, stop, &mut |prompt, mut finding| {
                let (_, key) = keys.next().context("every prompt has a key")?;
                // In the journal, measures are numbered over all series.
                finding.pooled.iter_mut().for_each(|(measure, ..)| *measure += measures_before);
                store.add(prompt, key, &finding)?;
                finding.records.iter().for_each(|record| gathered.add(record));
                prompt_finished();
                Ok(())
            })?;
            measures_before += measures.len();
        }
        Ok(())
    }

    /// Adds the records that measures pooled, if every prompt of the run is finished.
    fn conclude(&mut self) -> Result<()> {
        if !self.is_complete() || self.part.shard.is_some() {
            return Ok(());
        }
        let mut pooled = Vec::new();
        for Series { setup, measures, .. } in &mut self.series {
            pooled.extend(pooled_records(setup, &mut measures.list()));
        }
        pooled.iter().for_each(|record| self.gathered.add(record));
        self.store.conclude(&pooled)
    }

    /// The records, with what measures pooled beside them.
    fn whole_frame(&mut self) -> Result<Frame> {
        let mut found = Findings::default();
        for Series { setup, measures, .. } in &self.series {
            found.tokens.0.extend(setup.tokens(measures).0);
            found.massive.extend(setup.massive(measures));
            found.drawn.extend(drawn_heads(setup, measures));
            found.ranked.extend(ranked_heads(setup)?);
            found.contexts.extend(setup.contexts(measures));
        }
        Ok(std::mem::take(&mut self.gathered).finish(found))
    }

    /// The setup of the first series, whose models and plan are those of all.
    pub fn setup(&self) -> &Setup {
        &self.series[0].setup
    }

    /// The subtitle of figures: of several series only what they share.
    pub fn caption(&self) -> String {
        match self.series.as_slice() {
            [series] => series.setup.caption(),
            several => {
                let lengths: BTreeSet<usize> = several.iter().flat_map(|series| series.setup.grid.ctx_tok()).collect();
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                format!("{} tokens · seed {}", lengths.join(", "), self.setup().grid.seed())
            }
        }
    }

    /// Depths that the first prompts miss.
    pub fn missed_depths(&self) -> impl Iterator<Item = &MissedDepth> {
        self.series.iter().flat_map(|series| &series.missed_depths)
    }

    /// Prompts of this part, the finished ones included.
    pub fn prompts(&self) -> usize {
        self.series.iter().map(Series::count).sum()
    }

    /// Prompts on disk; fewer than [`Run::prompts`] if the run was stopped.
    pub fn finished(&self) -> usize {
        self.store.finished()
    }

    /// Returns `true` if every prompt has run, with or without an error.
    pub fn is_complete(&self) -> bool {
        self.finished() == self.prompts()
    }

    /// Copy of the damaged journal of a resumed run, which has a copy of the records beside it.
    pub fn put_aside(&self) -> Option<&Path> {
        self.store.put_aside.as_deref()
    }

    /// The kinds of processors that measured, if they are several, as shards may have them.
    pub fn processors(&self) -> Option<Vec<String>> {
        Some(self.begun.kinds()).filter(|kinds| kinds.len() > 1)
    }

    /// Says how the run goes on if it was interrupted.
    pub fn way_on(&self) -> String {
        self.setup().plan.way_on(self.folder.path(), self.part.shard)
    }
}

/// The keys of the prompts of all series, in the order in which they run.
fn keys<'a>(series: &'a [Series], begun: &Begun) -> impl Iterator<Item = (u64, String)> + use<'a> {
    let begun = begun.key();
    series.iter().flat_map(move |series| keys_of(&series.setup, &series.prompts, &begun))
}

/// The number of each prompt with a hash of everything that its records depend on besides the kind of processor: the experiment
/// as a file, what the run was begun with, as its key, and the prompt with its seed.
fn keys_of<'a>(
    setup: &Setup,
    prompts: &'a [PlannedPrompt],
    begun: &str,
) -> impl Iterator<Item = (u64, String)> + use<'a> {
    let common = json!([setup.plan.origin.experiment, begun]);
    prompts.iter().map(move |prompt| {
        let own = json!([prompt.spec, prompt.index, prompt.sample, prompt.seed_index]);
        (prompt.index, sha256(format!("{common}{own}").as_bytes()))
    })
}

/// What tables need to know of the run besides its records.
fn about(folder: &Path, series: &[Series], left_out: &[LeftOut]) -> Result<About> {
    let setup = &series[0].setup;
    Ok(About {
        config: RunConfig::of(&config(series, left_out))?,
        models: setup.models.iter().map(|model| model.info.clone()).collect(),
        seed: setup.grid.seed(),
        of_maps: setup.plan.maps.is_some(),
        folder: Some(folder.to_owned()),
    })
}

/// The settings of the run with defaults filled in, for the manifest. Of several series, each has its own.
pub(super) fn config(series: &[Series], left_out: &[LeftOut]) -> Value {
    let first = &series[0].setup;
    if first.plan.series.is_empty() {
        return first.config();
    }
    let Origin { command, question, analysis, own, .. } = &first.plan.origin;
    let configs: Vec<Value> = series.iter().map(|series| series.setup.config()).collect();
    json!({
        "command": command,
        "question": question,
        "analysis": analysis,
        "own": own,
        "series": configs,
        "left_out": left_out,
    })
}

/// Opens the run folder and its store. Returns also what the run was begun with.
fn open(series: &[Series], left_out: &[LeftOut], part: &RunPart) -> Result<(RunFolder, Store, Begun)> {
    let Origin { command: name, experiment, .. } = &series[0].setup.plan.origin;
    let mut begun = Begun::here(series.iter().map(|series| &series.setup), left_out);
    let keys = keys(series, &begun);
    let (mut folder, store);
    match &part.start {
        RunStart::New(out) => {
            folder = RunFolder::create(out.as_deref(), name)?;
            store = Store::create(&mut folder, experiment, &begun)?;
        }
        RunStart::Resume(unfinished) => {
            folder = unfinished.clone();
            check_experiment(folder.path(), experiment)?;
            let there = Begun::read(folder.path())?;
            if let Some(there) = &there {
                there.check_same(&begun, folder.path())?;
            }
            store = Store::resume(&mut folder, keys)?;
            let prompts: usize = series.iter().map(Series::count).sum();
            match there {
                Some(there) => {
                    if store.finished() < prompts {
                        there.check_machine(folder.path())?;
                    }
                    begun = there;
                }
                None => begun.write(folder.path())?,
            }
        }
        RunStart::Merge(shards, out) => {
            let shards = check_shards(shards, experiment, &mut begun, keys)?;
            folder = RunFolder::create(out.as_deref(), name)?;
            store = Store::merge(&mut folder, experiment, &begun, shards)?;
        }
    }
    Ok((folder, store, begun))
}

/// Checks that the run can be done in parts; one on a single prompt cannot.
fn check_part(plan: &Plan, part: &RunPart) -> Result<()> {
    let is_whole = matches!(part.start, RunStart::New(_)) && part.shard.is_none();
    if plan.maps.is_some() && !is_whole {
        bail_usage!(
            "{} measures one prompt: it cannot be resumed, cut into shards or merged; start a new run",
            plan.origin.command
        );
    }
    Ok(())
}

/// Folder and numbers of the run to be resumed if it is already finished; `None` if the run is new or unfinished. The folder
/// of an unfinished run is locked. A run is unfinished as long as one of its files is missing.
///
/// # Errors
/// A usage error if the folder holds another experiment or another shard; an error if prompts of the run failed, its files
/// have changed, or another process is writing into the folder.
pub fn finished_frame(plan: &Plan, part: &mut RunPart) -> Result<Option<(PathBuf, Frame)>> {
    check_part(plan, part)?;
    let RunStart::Resume(folder) = &mut part.start else { return Ok(None) };
    check_experiment(folder.path(), &plan.origin.experiment)?;
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
    let mut gathered = FrameBuilder::new(About::default());
    record::read_each(&folder.join(RESULTS), |record| gathered.add(record))?;
    let frame = gathered.finish(Findings::default());
    if let Some(error) = frame.records.failures.iter().find_map(|record| record.measure.error.as_deref()) {
        bail!("prompts of the run in {} failed ({error}); start a new run", folder.path().display());
    }
    Ok(Some((folder.path().to_owned(), frame)))
}

fn check_shard(manifest: &Manifest, shard: Option<RunShard>, folder: &Path) -> Result<()> {
    let shard = shard.map(|shard| shard.to_string());
    if manifest.shard == shard {
        return Ok(());
    }
    let asked = shard.map_or("all of it is".to_owned(), |shard| format!("shard {shard} is"));
    match &manifest.shard {
        Some(held) => {
            bail_usage!("{} holds shard {held}, but {asked} asked for: give --shard {held}", folder.display())
        }
        None => bail_usage!("{} holds all of the run, {asked} asked for: leave --shard out", folder.display()),
    }
}
