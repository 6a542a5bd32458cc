//! One run of an experiment: prepared, then measured, with every prompt on disk before the next begins.

use super::identity::pooled_record;
use super::maps::drawn_heads;
use super::passes::results;
use super::store::{check_experiment, holders, Store};
use super::{check, prompts_of, MissedDepth, OutputStyle, Plan, RunShard, Setup};
use crate::bail_usage;
use crate::base::hash::{hex, sha256};
use crate::base::machine;
use crate::measures::{Measure, Measures, PassKey};
use crate::prompts::{PlannedPrompt, Sources};
use crate::results::folder::{RunFolder, MANIFEST, RESULTS};
use crate::results::manifest::{Manifest, ModelInfo};
use crate::results::record::{self, Record, SCHEMA};
use crate::results::{About, Frame};
use crate::treatments::condition_facts;
use anyhow::{bail, Context, Result};
use rayon::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A run of an experiment: what is measured, what came out, and the folder that holds it. The results of a run that was
/// stopped, killed or cut into shards, and then continued or merged, have the same bytes as those of an uninterrupted run.
pub struct Run {
    /// Models, texts, prompts and conditions.
    pub setup: Setup,
    /// The measures, with what they pooled.
    pub measures: Measures,
    /// The part of the experiment.
    pub part: RunPart,
    /// The run folder.
    pub folder: RunFolder,
    /// How figures look, and what is said.
    pub style: OutputStyle,
    /// The records, for tables and figures. Nothing can be looked up before [`Run::measure`] has returned.
    pub frame: Frame,
    /// Depths that the first prompts miss.
    pub missed_depths: Vec<MissedDepth>,
    /// Prompts that were finished before this process.
    pub resumed: usize,
    pub(super) prompts: Vec<PlannedPrompt>,
    pub(super) store: Store,
    /// Names of the files besides the records, with the number of rows of those that have rows.
    pub(super) files: RefCell<Vec<(String, Option<u64>)>>,
}

impl Run {
    /// Checks an experiment, and opens its folder: a new one, or that of the run to be continued.
    ///
    /// # Errors
    /// Usage errors if the experiment cannot run or the folder holds another one.
    pub fn prepare(setup: Setup, measures: Measures, part: RunPart, style: OutputStyle) -> Result<Self> {
        check_part(&setup.plan, &part)?;
        let prompts = prompts_of(setup.grid.prompts(), part.shard);
        let missed_depths = check(&setup, &prompts)?;
        setup.references()?;
        let (folder, store) = open(&setup.plan, &part, keys(&setup, &prompts))?;
        Ok(Self {
            frame: Frame::new(setup.about()),
            resumed: store.finished(),
            files: RefCell::default(),
            setup,
            measures,
            part,
            folder,
            style,
            missed_depths,
            prompts,
            store,
        })
    }

    /// Measures the prompts that are left. Every record goes to disk; `prompt_finished` is called when all records of a prompt
    /// are there. Setting `stop` ends the run after the prompts in progress.
    ///
    /// # Errors
    /// Only errors of writing. A prompt that fails is a record, not an error.
    pub fn measure(&mut self, stop: &AtomicBool, prompt_finished: &mut dyn FnMut()) -> Result<()> {
        let Self { setup, measures, frame, store, .. } = self;
        store.replay(&mut measures.list(), &mut |record| frame.add(record))?;
        let todo = &self.prompts[self.resumed..];
        let ran = {
            let mut keys = keys(setup, todo);
            measure_prompts(setup, todo, &mut measures.list(), stop, &mut |prompt, finding| {
                let (_, key) = keys.next().context("every prompt has a key")?;
                store.add(prompt, key, finding)?;
                finding.records.iter().for_each(|record| frame.add(record));
                prompt_finished();
                Ok(())
            })
        };
        // Also after an error: what was measured stays.
        let committed = store.commit();
        let mut written = ran.and(committed);
        if written.is_ok() && store.finished() == self.prompts.len() && self.part.shard.is_none() {
            let pooled = pooled_records(setup, &mut measures.list());
            pooled.iter().for_each(|record| frame.add(record));
            written = store.conclude(&pooled);
        }
        written.with_context(|| format!("stopped; {}", self.way_on()))?;
        self.frame = self.whole_frame();
        Ok(())
    }

    /// The records, with what measures pooled beside them.
    fn whole_frame(&mut self) -> Frame {
        let Self { setup, measures, frame, .. } = self;
        let mut frame = std::mem::take(frame).finish();
        frame.conditions = condition_facts(frame.condition_names());
        frame.tokens = setup.tokens(measures);
        frame.massive = setup.massive(measures);
        frame.drawn = drawn_heads(setup, measures);
        frame
    }

    /// Prompts of this part, the finished ones included.
    pub fn prompts(&self) -> usize {
        self.prompts.len()
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

    /// Says how the run goes on if it was interrupted.
    pub fn way_on(&self) -> String {
        self.setup.plan.way_on(self.folder.path(), self.part.shard)
    }
}

/// A prompt that has run.
pub struct FinishedPrompt<'a> {
    /// Its records.
    pub records: &'a [Record],
    /// SHA-256 over its token ids, model by model.
    pub prompts_sha256: String,
    /// Encoded data that its measures pool over all prompts: (index of the measure, model and condition, bytes).
    pub pooled: &'a [(usize, PassKey, Vec<u8>)],
}

/// Runs prompts and passes what each of them gave to `done`, in order. Writes nothing. A prompt that fails gives a
/// record with an error, and the others still run. Setting `stop` ends the run after the prompts in progress. Returns
/// the number of prompts that ran.
///
/// # Errors
/// Only those of `done`.
pub fn measure_prompts(
    setup: &Setup,
    prompts: &[PlannedPrompt],
    measures: &mut [&mut dyn Measure],
    stop: &AtomicBool,
    done: &mut dyn FnMut(&PlannedPrompt, &FinishedPrompt<'_>) -> Result<()>,
) -> Result<usize> {
    let mut ran = 0;
    // A prompt and its twin share a pass. Prompts run in parallel, and a pass uses idle threads. None of this changes
    // any bit of the results.
    let groups: Vec<&[PlannedPrompt]> = prompts.chunk_by(|a, b| b.twin == Some(a.index)).collect();
    for batch in groups.chunks(parallel_prompts(setup)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let results = {
            let measures: Vec<&dyn Measure> = measures.iter().map(|measure| &**measure).collect();
            batch.par_iter().with_max_len(1).flat_map_iter(|group| results(setup, group, &measures)).collect::<Vec<_>>()
        };
        for (prompt, result) in batch.iter().copied().flatten().zip(results) {
            ran += 1;
            let mut hash = Sha256::new();
            result.ids.iter().flatten().for_each(|id| hash.update(id.to_le_bytes()));
            let mut pooled = Vec::new();
            for (measure, key, kept) in result.pooled {
                pooled.extend(measures[measure].encode(&kept)?.map(|bytes| (measure, key, bytes)));
                measures[measure].absorb(key, kept);
            }
            let prompts_sha256 = hex(&hash.finalize());
            done(prompt, &FinishedPrompt { records: &result.records, prompts_sha256, pooled: &pooled })?;
        }
    }
    Ok(ran)
}

/// Number of prompts that run in parallel: only one if weights are streamed or candle's ops compute.
pub(super) fn parallel_prompts(setup: &Setup) -> usize {
    let streamed = setup.models.iter().any(|model| model.transformer.is_streamed());
    if streamed || !setup.plan.reading.has_kernels() {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Returns the records of the measures that pool over all prompts, after the last one.
pub fn pooled_records(setup: &Setup, measures: &mut [&mut dyn Measure]) -> Vec<Record> {
    let Some(first) = setup.grid.prompts().into_iter().next() else { return Vec::new() };
    let mut records = Vec::new();
    for measure in measures {
        let found = measure.finish().into_iter();
        records.extend(found.map(|(key, measurement)| pooled_record(setup, &first, key, measurement)));
    }
    records
}
/// Returns the number of each prompt with a hash of everything that its records depend on: the experiment as a file, weights,
/// tokenizers, corpus, prompt, seed, schema of the records, this build, and the kind of processor.
fn keys<'a>(setup: &Setup, prompts: &'a [PlannedPrompt]) -> impl Iterator<Item = (u64, String)> + use<'a> {
    let mut models = Vec::new();
    for model in &setup.models {
        let ModelInfo { weights_sha256, config_sha256, tokenizer_sha256, .. } = &model.info;
        let ModelInfo { layout, bos, chat_template_sha256, answer_opening, .. } = &model.info;
        let read_as = json!([layout, bos, chat_template_sha256, answer_opening, model.eos_ids()]);
        models.push(json!([weights_sha256, config_sha256, tokenizer_sha256, read_as]));
    }
    let Sources { haystack, text, needles, .. } = &setup.sources;
    let sources = json!([haystack.sha256(), text.sha256(), needles.as_ref().map(|file| &file.sha256)]);
    let common = json!([SCHEMA, machine::key(), setup.plan.experiment, models, sources]);
    prompts.iter().map(move |prompt| {
        let own = json!([prompt.spec, prompt.index, prompt.sample, prompt.seed_index]);
        (prompt.index, sha256(format!("{common}{own}").as_bytes()))
    })
}

/// Opens the run folder and its store.
fn open(plan: &Plan, part: &RunPart, keys: impl Iterator<Item = (u64, String)>) -> Result<(RunFolder, Store)> {
    let Plan { command: name, experiment, .. } = plan;
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

/// Checks that the run can be done in parts; one on a single prompt cannot.
fn check_part(plan: &Plan, part: &RunPart) -> Result<()> {
    let is_whole = matches!(part.start, RunStart::New(_)) && part.shard.is_none();
    if plan.maps.is_some() && !is_whole {
        bail_usage!(
            "{} measures one prompt: it cannot be resumed, cut into shards or merged; start a new run",
            plan.command
        );
    }
    Ok(())
}

/// Returns folder and numbers of the run to be resumed if it is already finished; `None` if the run is new or unfinished. The folder
/// of an unfinished run is locked. A run is unfinished as long as one of its files is missing.
///
/// # Errors
/// A usage error if the folder holds another experiment or another shard; an error if prompts of the run failed, its files
/// have changed, or another process is writing into the folder.
pub fn finished_frame(plan: &Plan, part: &mut RunPart) -> Result<Option<(PathBuf, Frame)>> {
    check_part(plan, part)?;
    let RunStart::Resume(folder) = &mut part.start else { return Ok(None) };
    check_experiment(folder.path(), &plan.experiment)?;
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
    let mut frame = Frame::new(About::default());
    record::read_each(&folder.join(RESULTS), |record| frame.add(record))?;
    if let Some(error) = frame.records.failures.iter().find_map(|record| record.measure.error.as_deref()) {
        bail!("prompts of the run in {} failed ({error}); start a new run", folder.path().display());
    }
    Ok(Some((folder.path().to_owned(), frame.finish())))
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
