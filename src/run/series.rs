//! The series of a run: prompts that are measured under the same conditions by the same measures. Most commands have one.

use super::identity::pooled_record;
use super::maps::add_maps;
use super::passes::results;
use super::setup::{keep_possible, nothing_possible, Setups};
use super::{check, prompts_of, Checked, MissedDepth, RunShard, Setup};
use crate::measures::{Measure, Measures, NllMeasure, PassKey};
use crate::results::record::Record;
use crate::results::LeftOut;
use anyhow::Result;
use base::hash::hex;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};
use text::PlannedPrompt;

/// A series of prompts with what measures them.
pub struct Series {
    /// Models, texts, prompts and conditions.
    pub setup: Setup,
    /// The measures, with what they pooled.
    pub measures: Measures,
    /// Depths that the first prompts miss.
    pub missed_depths: Vec<MissedDepth>,
    /// A bound on the memory that its passes take besides the weights, in bytes.
    pub pass_bytes: u64,
    /// The prompts of the run's shard, numbered over all series of the run.
    pub(super) prompts: Vec<PlannedPrompt>,
}

impl Series {
    /// A series whose first prompt is number `first` of its run, with the prompts of a shard, which are checked.
    ///
    /// # Errors
    /// Usage errors if its prompts cannot run.
    pub fn of(setup: Setup, measures: Measures, first: u64, shard: Option<RunShard>) -> Result<Self> {
        let mut prompts = setup.grid.prompts();
        for prompt in &mut prompts {
            prompt.index += first;
            prompt.twin = prompt.twin.map(|twin| twin + first);
        }
        let prompts = prompts_of(prompts, shard);
        let Checked { missed_depths, pass_bytes } = check(&setup, &prompts)?;
        Ok(Self { setup, measures, missed_depths, pass_bytes, prompts })
    }

    /// Number of its prompts in the run's shard.
    pub fn count(&self) -> usize {
        self.prompts.len()
    }

    /// The tokens of all passes over each prompt, in the order in which they are measured: about what it takes.
    pub fn work(&self) -> impl Iterator<Item = u64> + '_ {
        let passes = self.setup.models.len() * self.setup.conditions.len();
        self.prompts.iter().map(move |prompt| (passes * prompt.spec.ctx_tok()) as u64)
    }
}

/// Makes the prompts of a shard of all series, and checks that they can run. Of several series, those are left out that the models do not
/// allow: which ones depends on models and flags alone, so that all shards agree.
///
/// # Errors
/// Usage errors if nothing can run; errors of files and of the machine.
pub fn possible_series(setups: Setups, shard: Option<RunShard>) -> Result<(Vec<Series>, Vec<LeftOut>)> {
    let Setups { each, mut left_out } = setups;
    let is_only = each.len() + left_out.len() == 1;
    let mut possible = Vec::new();
    let mut first = 0;
    for setup in each {
        let measures = setup.measures()?;
        let name = setup.plan.series;
        let all = setup.grid.count().unwrap_or(0) as u64;
        let series = Series::of(setup, measures, first, shard);
        if let Some(series) = keep_possible(name, is_only, series, &mut left_out)? {
            first += all;
            possible.push(series);
        }
    }
    if possible.is_empty() {
        return Err(nothing_possible(&left_out));
    }
    Ok((possible, left_out))
}

/// A prompt that has run.
pub struct FinishedPrompt<'a> {
    /// Its records.
    pub records: &'a [Record],
    /// SHA-256 over its token ids, model by model.
    pub prompts_sha256: String,
    /// Encoded data that its measures pool over all prompts: (index of the measure, model and condition, bytes).
    pub pooled: Vec<(usize, PassKey, Vec<u8>)>,
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
    done: &mut dyn FnMut(&PlannedPrompt, FinishedPrompt<'_>) -> Result<()>,
) -> Result<usize> {
    let mut ran = 0;
    // A prompt and its twin share a pass. Prompts run in parallel, and a pass uses idle threads. None of this changes
    // any bit of the results.
    let groups: Vec<&[PlannedPrompt]> = prompts.chunk_by(|a, b| b.twin == Some(a.index)).collect();
    for batch in groups.chunks(setup.parallel_prompts()) {
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
            done(prompt, FinishedPrompt { records: &result.records, prompts_sha256, pooled })?;
        }
    }
    Ok(ran)
}

impl Setup {
    /// Creates the measures of the plan.
    ///
    /// # Errors
    /// If a tokenizer fails on the text in which frequent bigrams are counted; a usage error for maps that the models do not have or that do not
    /// fit.
    pub fn measures(&self) -> Result<Measures> {
        let mut measures = Measures::new(&self.plan.measures);
        if let Some(nll) = measures.get_mut::<NllMeasure>() {
            nll.exclude_frequent(&self.sources.text, self.models.iter().map(|model| model.tokenizer()))?;
            nll.skip = u32::try_from(self.plan.skip).unwrap_or(u32::MAX);
        }
        add_maps(self, &mut measures)?;
        Ok(measures)
    }
}

/// The records of the measures that pool over all prompts, after the last one.
pub fn pooled_records(setup: &Setup, measures: &mut [&mut dyn Measure]) -> Vec<Record> {
    let Some(first) = setup.grid.prompts().into_iter().next() else { return Vec::new() };
    let mut records = Vec::new();
    for measure in measures {
        let found = measure.finish().into_iter();
        records.extend(found.map(|(key, measurement)| pooled_record(setup, &first, key, measurement)));
    }
    records
}
