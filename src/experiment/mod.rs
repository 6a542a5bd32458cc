//! The experiment: a grid of needle prompts, scored and probed on every model, one record per number.
//!
//! Subcommands are presets of this grid. Cells are numbered through the whole grid and the seed of a prompt is the base
//! seed plus that number, so a prompt does not depend on which cells ran before it.

use crate::bail_usage;
use crate::manifest::hex;
use crate::memory::available_bytes;
use crate::models::Model;
use crate::probe::{Allocation, AnswerProbe, AnswerSink};
use crate::prompt::{needle, CitySet, Haystack, NeedleSpec, Prompt, Region};
use crate::record::{widen, Identity, Measure, Record};
use crate::score::{score, QueryScore};
use anyhow::{ensure, Result};
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A grid of needle prompts.
#[derive(Clone, Debug, Serialize)]
pub struct NeedleGrid {
    /// Prompt lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Pairs (needles in the text, needles asked for): the paper's N and R.
    pub settings: Vec<(usize, usize)>,
    /// Depths of the controlled needle, in percent of the filler.
    pub depths_pct: Vec<f64>,
    /// Prompts per depth with training cities.
    pub samples: usize,
    /// Prompts per depth with cities held out of training.
    pub heldout_samples: usize,
    /// Base seed.
    pub seed: u64,
}

/// One prompt to be.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Global index: the prompt's seed is the base seed plus this.
    pub index: u64,
    /// Index among the prompts of the same spec.
    pub sample: u64,
    /// What the prompt holds.
    pub spec: NeedleSpec,
}

impl NeedleGrid {
    /// All cells, in the order they run.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &(needles, retrieve) in &self.settings {
            for &ctx_tok in &self.ctx_tok {
                for (cities, samples) in [(CitySet::Train, self.samples), (CitySet::HeldOut, self.heldout_samples)] {
                    for &depth_pct in &self.depths_pct {
                        let spec = NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities };
                        for sample in 0..samples as u64 {
                            cells.push(Cell { index: cells.len() as u64, sample, spec: spec.clone() });
                        }
                    }
                }
            }
        }
        cells
    }
}

/// Everything a run needs.
pub struct Run<'a> {
    /// The models, measured on the same prompts.
    pub models: &'a [Model],
    /// The grid.
    pub grid: &'a NeedleGrid,
    /// Where the filler comes from.
    pub haystack: &'a Haystack,
    /// Set to end the run after the cells in flight.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Cells that ran, of all.
    pub cells: usize,
    /// Records that hold an error instead of a number.
    pub failures: usize,
    /// SHA-256 over the token ids of all prompts, in order.
    pub prompts_sha256: String,
}

impl Run<'_> {
    /// Checks that the run is possible: contexts fit the models, prompts fit the contexts, activations fit in memory.
    /// Returns an estimate of the memory it takes, in bytes.
    ///
    /// # Errors
    /// Usage errors with the numbers and what to change.
    pub fn check(&self) -> Result<u64> {
        let longest = self.grid.ctx_tok.iter().copied().max().unwrap_or(0);
        for model in self.models {
            let limit = model.transformer.config.max_ctx_tok;
            if longest > limit {
                bail_usage!("--ctx {longest}: {} was trained for at most {limit} tokens", model.name);
            }
        }
        let mut specs: Vec<NeedleSpec> = self.grid.cells().into_iter().map(|cell| cell.spec).collect();
        specs.dedup();
        if specs.is_empty() {
            bail_usage!("nothing to run: no prompts in the grid");
        }
        // The longest cities of a seed decide whether a short prompt fits; a few seeds find out.
        for spec in &specs {
            for model in self.models {
                needle::build(spec, self.grid.seed, model.tokenizer(), self.haystack)?;
            }
        }
        let per_pass = self.models.iter().map(|m| m.transformer.forward_bytes(longest)).max().unwrap_or(0);
        let needed = per_pass * rayon::current_num_threads() as u64;
        if let Some(available) = available_bytes().filter(|&available| needed > available) {
            let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
            bail_usage!(
                "--ctx {longest} needs about {:.1} GiB for {} passes at once, {:.1} GiB are free; lower --ctx or --threads",
                gib(needed),
                rayon::current_num_threads(),
                gib(available)
            );
        }
        Ok(needed)
    }

    /// Runs all cells and hands each cell's records to `write`, in order. `progress` is called after every batch of
    /// cells with the number done.
    ///
    /// A cell that fails becomes a record with an error; the run goes on.
    ///
    /// # Errors
    /// Only what `write` meets.
    pub fn run(&self, write: &mut dyn FnMut(&[Record]) -> Result<()>, progress: &dyn Fn(usize)) -> Result<Finished> {
        let cells = self.grid.cells();
        let mut finished = Finished { cells: 0, failures: 0, prompts_sha256: String::new() };
        let mut hash = Sha256::new();
        // Prompts run in parallel, and a pass uses idle threads itself; neither changes a bit of the results.
        for batch in cells.chunks(2 * rayon::current_num_threads()) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let results: Vec<CellResult> = batch.par_iter().map(|cell| self.cell(cell)).collect();
            for result in results {
                finished.failures += result.records.iter().filter(|r| r.measure.error.is_some()).count();
                result.prompts.iter().flatten().for_each(|id| hash.update(id.to_le_bytes()));
                write(&result.records)?;
            }
            finished.cells += batch.len();
            progress(finished.cells);
        }
        finished.prompts_sha256 = hex(&hash.finalize());
        Ok(finished)
    }

    fn cell(&self, cell: &Cell) -> CellResult {
        let mut result = CellResult { records: Vec::new(), prompts: Vec::new() };
        for model in self.models {
            match self.measure(cell, model, &mut result.prompts) {
                Ok(records) => result.records.extend(records),
                Err(error) => result.records.push(Record {
                    identity: Arc::new(self.identity(cell, model)),
                    measure: Measure {
                        metric: "exact".into(),
                        error: Some(format!("{error:#}")),
                        ..Measure::default()
                    },
                }),
            }
        }
        result
    }

    fn measure(&self, cell: &Cell, model: &Model, prompts: &mut Vec<Vec<u32>>) -> Result<Vec<Record>> {
        let prompt = needle::build(&cell.spec, self.grid.seed + cell.index, model.tokenizer(), self.haystack)?;
        prompts.push(prompt.ids.clone());
        let probe = AnswerProbe::new(&prompt);
        let scored = score(&model.transformer, &prompt, &[&probe])?;
        let sinks: Vec<HeadSink> = scored
            .sightings
            .into_iter()
            .map(|s| {
                let sink = s.sink.into_any().downcast::<AnswerSink>().expect("the answer probe makes answer sinks");
                HeadSink { layer: s.layer, head: s.head, allocations: sink.allocations }
            })
            .collect();
        let mut records = Vec::new();
        for (index, query) in scored.queries.iter().enumerate() {
            ensure!(query.log_prob_nats.is_finite(), "the model's logits are not finite");
            let identity = Arc::new(self.query_identity(cell, model, &prompt, index));
            let mut push = |measure| records.push(Record { identity: identity.clone(), measure });
            answer_measures(query, &mut push);
            attention_measures(&sinks, index, &mut push);
        }
        Ok(records)
    }

    fn identity(&self, cell: &Cell, model: &Model) -> Identity {
        Identity {
            model: model.name.clone(),
            variant: model.info.variant.clone(),
            task: "needle".into(),
            ctx_tok: cell.spec.ctx_tok,
            needles: Some(cell.spec.needles),
            retrieve: Some(cell.spec.retrieve),
            depth_req_pct: Some(cell.spec.depth_pct),
            cities: Some(match cell.spec.cities {
                CitySet::Train => "train".into(),
                CitySet::HeldOut => "heldout".into(),
            }),
            sample: Some(cell.sample),
            seed: Some(self.grid.seed + cell.index),
            ..Identity::default()
        }
    }

    fn query_identity(&self, cell: &Cell, model: &Model, prompt: &Prompt, index: usize) -> Identity {
        Identity {
            depth_real_pct: Some(prompt.queries[index].depth_real_pct),
            query: Some(index),
            rows: Some("answer".into()),
            ..self.identity(cell, model)
        }
    }
}

struct CellResult {
    records: Vec<Record>,
    prompts: Vec<Vec<u32>>,
}

/// One head's allocations, one per query of the prompt.
struct HeadSink {
    layer: usize,
    head: usize,
    allocations: Vec<Allocation>,
}

fn answer_measures(query: &QueryScore, push: &mut dyn FnMut(Measure)) {
    let plain = |metric: &'static str, value: f64, unit: Option<&'static str>| Measure {
        metric: metric.into(),
        value: Some(value),
        unit: unit.map(Into::into),
        n: Some(1),
        ..Measure::default()
    };
    push(plain("exact", f64::from(u8::from(query.exact)), Some("fraction")));
    push(plain("answer_log_prob", query.log_prob_nats, Some("nats")));
    push(plain("answer_first_rank", query.first_rank as f64, None));
}

/// What counts as noise: everything before the question that is neither BOS nor the answer's needle.
const NOISE: [Region; 3] = [Region::Template, Region::Filler, Region::Distractor];

type Share = fn(&Allocation, Region) -> f64;

/// The conventions for signed rows; the first is the headline.
const CONVENTIONS: [(&str, &str, Share); 3] = [
    ("share_abs", "noise_abs", Allocation::share_abs),
    ("share_signed", "noise_signed", Allocation::share_signed),
    ("share_pos", "noise_pos", Allocation::share_pos),
];

/// Means over heads and layers in every convention, the best head, and the headline convention of every head.
fn attention_measures(sinks: &[HeadSink], query: usize, push: &mut dyn FnMut(Measure)) {
    let heads = sinks.len();
    let mean =
        |f: &dyn Fn(&Allocation) -> f64| sinks.iter().map(|s| f(&s.allocations[query])).sum::<f64>() / heads as f64;
    let measure = |metric: &'static str, region: Option<Region>, value: f64, n: usize| Measure {
        region: region.map(|r| r.name().into()),
        metric: metric.into(),
        // The sums are of f32 weights: digits beyond theirs would only fill the disk. A signed share of a row that sums
        // to 0 is missing.
        value: value.is_finite().then(|| widen(value as f32)),
        unit: Some("fraction".into()),
        n: Some(n as u64),
        ..Measure::default()
    };
    for (share_name, noise_name, share) in CONVENTIONS {
        for region in Region::ALL {
            push(measure(share_name, Some(region), mean(&|a| share(a, region)), heads));
        }
        push(measure(noise_name, None, mean(&|a| NOISE.iter().map(|&r| share(a, r)).sum()), heads));
    }
    for region in Region::ALL {
        push(measure("mass", Some(region), mean(&|a| a.mass(region)), heads));
    }
    push(measure("mass_neg", None, mean(&Allocation::mass_neg), heads));
    let differential = sinks.iter().any(|s| s.allocations[query].differential);
    if differential {
        push(measure("lambda", None, mean(&Allocation::mean_lambda), heads));
    }
    let best = sinks.iter().map(|s| s.allocations[query].share_abs(Region::Answer)).fold(0.0, f64::max);
    push(measure("share_abs_best_head", Some(Region::Answer), best, 1));
    for sink in sinks {
        let allocation = &sink.allocations[query];
        let mut push = |m: Measure| push(Measure { layer: Some(sink.layer), head: Some(sink.head), ..m });
        for region in Region::ALL {
            push(measure("share_abs", Some(region), allocation.share_abs(region), 1));
        }
        if differential {
            push(measure("mass_neg", None, allocation.mass_neg(), 1));
            push(measure("lambda", None, allocation.mean_lambda(), 1));
        }
    }
}
