//! Experiments: a grid of prompts, passed through every model under every condition and observed by measures.
//!
//! The subcommands are presets of an experiment. A cell is one prompt of the grid. Cells are numbered over the whole
//! grid, and the seed of a prompt is a hash of the base seed and that number, so a prompt does not depend on which
//! cells ran before it.

mod drawn;
mod execute;
mod expect;
mod grid;
mod maps;
mod measures;
mod needs;
mod outputs;
mod passes;
mod patching;
mod quantisation;
mod reference;
mod setup;
mod shard;
mod spec;
mod store;

pub use execute::{finished_records, run, RunObserver, RunOutcome, RunPart, RunPlan, RunStart};
pub use expect::{Expectation, Outcome};
pub use grid::{Cell, CellSpec, Grid, NeedleGrid, ShotsGrid, Sources, TextGrid};
pub use maps::{page_budget, Heatmap, MapKind, MAP_PX, SMALL_PX};
pub use measures::Measures;
pub use outputs::Outputs;
pub use quantisation::Quantisation;
pub use setup::Setup;
pub use shard::{cells_of, RunShard};
pub use spec::{Experiment, Generate, Show};

use crate::bail_usage;
use crate::base::hash::{hex, sha256};
use crate::base::machine;
use crate::measures::{Measure, PassKey};
use crate::model::open::Model;
use crate::prompts::{NeedlesFile, Prompt, Text, DEPTH_TOLERANCE_PCT};
use crate::results::manifest::ModelInfo;
use crate::results::record::{Record, SCHEMA};
use anyhow::Result;
use rayon::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};

/// A cell that has run.
pub struct FinishedCell<'a> {
    /// Its records.
    pub records: &'a [Record],
    /// SHA-256 over the token ids of its prompts, one for each model.
    pub prompts_sha256: String,
    /// Encoded data that its measures pool over all cells: (index of the measure, model and condition, bytes).
    pub pooled: &'a [(usize, PassKey, Vec<u8>)],
}

/// A requested depth that the needle of a prompt misses.
#[derive(Clone, Debug, PartialEq)]
pub struct MissedDepth {
    /// Name of the model whose tokenizer is used.
    pub model: String,
    /// Length of the prompt, in tokens.
    pub ctx_tok: usize,
    /// The requested depth, in percent of the filler.
    pub asked_pct: f64,
    /// The depth of the needle in the first prompt.
    pub real_pct: f64,
}

impl Setup {
    /// Checks that these cells can run: the context lengths fit the models, the prompts fit the context lengths, the selected
    /// layers and heads exist, and the passes fit into memory. Returns the depths that the first prompt of each kind misses
    /// by more than [`DEPTH_TOLERANCE_PCT`].
    ///
    /// # Errors
    /// A usage error with the numbers and what to change.
    pub fn check(&self, cells: &[Cell]) -> Result<Vec<MissedDepth>> {
        let longest = cells.iter().map(|cell| cell.spec.ctx_tok()).max().unwrap_or(0);
        for model in &self.models {
            let limit = model.transformer.config.max_ctx_tok;
            if longest > limit {
                bail_usage!("--ctx {longest}: {} was trained for at most {limit} tokens", model.name);
            }
            check_selection(&self.experiment, model)?;
            self.check_conditions(model)?;
            if matches!(self.grid, Grid::Text(_)) && model.info.chat_template_sha256.is_some() {
                bail_usage!("--chat-template: it is for needle prompts, and plain text is not put into it");
            }
            if let Text::Ids(ids) = &self.sources.text {
                ids.check(&model.name, model.transformer.config.vocab)?;
            }
        }
        if self.grid.count() == Some(0) {
            bail_usage!("nothing to run: --samples is 0, or a list of the grid is empty");
        }
        self.check_memory(cells)?;
        // Whether a short prompt fits depends on the cities that its seed draws; one prompt of each kind is tried.
        let mut missed_depths = Vec::new();
        // They run one of each kind after the other; by index, those of a kind follow each other.
        let mut by_kind: Vec<&Cell> = cells.iter().collect();
        by_kind.sort_by_key(|cell| cell.index);
        for cell in by_kind.chunk_by(|a, b| a.spec == b.spec).map(|alike| alike[0]) {
            for model in &self.models {
                let cell = Cell { seed_index: 0, ..cell.clone() };
                let prompt = cell.prompt(self.grid.seed(), &self.sources, model.tokenizer())?;
                missed_depths.extend(missed_depth(&prompt, &model.name, cell.spec.ctx_tok()));
                if self.patches() {
                    prompt.corrupted(0, model.tokenizer()?)?;
                }
            }
        }
        // Prompts that differ only in the number of needles are reported once.
        missed_depths.dedup_by(|a, b| (&a.model, a.ctx_tok, a.asked_pct) == (&b.model, b.ctx_tok, b.asked_pct));
        Ok(missed_depths)
    }

    /// Returns the number of each cell with a hash of everything that its records depend on: the `experiment` as a file,
    /// weights, tokenizers, corpus, prompt, seed, schema of the records, this build, and the kind of processor.
    pub(crate) fn keys(&self, cells: &[Cell], experiment: &str) -> Vec<(u64, String)> {
        let model = |model: &Model| {
            let ModelInfo { weights_sha256, config_sha256, tokenizer_sha256, .. } = &model.info;
            let ModelInfo { layout, bos, chat_template_sha256, answer_opening, .. } = &model.info;
            let read_as = json!([layout, bos, chat_template_sha256, answer_opening, model.eos_ids()]);
            json!([weights_sha256, config_sha256, tokenizer_sha256, read_as])
        };
        let models: Vec<_> = self.models.iter().map(model).collect();
        let Sources { haystack, text, needles } = &self.sources;
        let sources = json!([haystack.sha256(), text.sha256(), needles.as_ref().map(NeedlesFile::sha256)]);
        let common = json!([SCHEMA, machine::key(), experiment, models, sources]);
        let key = |cell: &Cell| {
            let own = json!([cell.spec, cell.index, cell.sample, cell.seed_index]);
            (cell.index, sha256(format!("{common}{own}").as_bytes()))
        };
        cells.iter().map(key).collect()
    }

    /// Runs cells and passes each of them to `done`, in order. Writes nothing. A cell that fails gives a record with an
    /// error, and the other cells still run. Setting `stop` ends the run after the cells in flight. Returns the number
    /// of cells that ran.
    ///
    /// # Errors
    /// Only those of `done`.
    pub fn run(
        &self,
        cells: &[Cell],
        measures: &mut [&mut dyn Measure],
        stop: &AtomicBool,
        done: &mut dyn FnMut(&Cell, &FinishedCell<'_>) -> Result<()>,
    ) -> Result<usize> {
        let mut ran = 0;
        // A prompt and its twin share a pass. Prompts run in parallel, and a pass uses idle threads. None of this changes
        // any bit of the results.
        let groups: Vec<&[Cell]> = cells.chunk_by(|a, b| b.twin == Some(a.index)).collect();
        for batch in groups.chunks(self.parallel_prompts()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let results = {
                let measures: Vec<&dyn Measure> = measures.iter().map(|measure| &**measure).collect();
                batch.par_iter().with_max_len(1).flat_map_iter(|group| self.cells(group, &measures)).collect::<Vec<_>>()
            };
            for (cell, result) in batch.iter().copied().flatten().zip(results) {
                ran += 1;
                let mut hash = Sha256::new();
                result.prompts.iter().flatten().for_each(|id| hash.update(id.to_le_bytes()));
                let mut pooled = Vec::new();
                for (measure, key, kept) in result.pooled {
                    pooled.extend(measures[measure].encode(&kept)?.map(|bytes| (measure, key, bytes)));
                    measures[measure].absorb(key, kept);
                }
                let prompts_sha256 = hex(&hash.finalize());
                done(cell, &FinishedCell { records: &result.records, prompts_sha256, pooled: &pooled })?;
            }
        }
        Ok(ran)
    }

    /// Returns the records of the measures that pool over all cells, after the last cell.
    pub fn pooled(&self, measures: &mut [&mut dyn Measure]) -> Vec<Record> {
        let Some(first) = self.grid.cells().into_iter().next() else { return Vec::new() };
        let found = measures.iter_mut().flat_map(|measure| measure.finish());
        found.map(|found| self.pooled_record(&first, found)).collect()
    }
}

/// Returns the depth of the controlled needle if it misses the requested depth by more than [`DEPTH_TOLERANCE_PCT`].
fn missed_depth(prompt: &Prompt, model: &str, ctx_tok: usize) -> Option<MissedDepth> {
    let query = prompt.queries.iter().find(|query| query.controlled)?;
    let (asked_pct, real_pct) = (query.depth_req_pct, query.depth_real_pct);
    let is_off = (asked_pct - real_pct).abs() > DEPTH_TOLERANCE_PCT;
    is_off.then(|| MissedDepth { model: model.to_owned(), ctx_tok, asked_pct, real_pct })
}

/// Checks that a model has the layers and heads that are measured or drawn.
fn check_selection(experiment: &Experiment, model: &Model) -> Result<()> {
    let (config, select, heatmap) = (&model.transformer.config, &experiment.select, experiment.heatmap());
    let (layers, heads) = (config.layers.len(), config.wiring().heads());
    for (field, asked, what, have) in [
        ("layers", select.layers.clone(), "layers", layers),
        ("heads", select.heads.clone(), "heads", heads),
        ("layer", heatmap.layer.map(|layer| vec![layer]), "layers", layers),
        ("head", heatmap.head.map(|head| vec![head]), "heads", heads),
    ] {
        let asked = asked.unwrap_or_else(|| vec![0]);
        if asked.is_empty() {
            bail_usage!("--{field} is empty");
        }
        if let Some(index) = asked.iter().find(|&&index| index >= have) {
            bail_usage!("--{field} {index}: {} has {what} 0 to {}", model.name, have - 1);
        }
    }
    Ok(())
}
