//! The experiment: a grid of prompts, passed through every model under every condition, watched by measures.
//!
//! Subcommands are presets of it. Cells are numbered through the whole grid and the seed of a prompt is a hash of
//! the base seed and that number, so a prompt does not depend on which cells ran before it.

mod drawn;
mod grid;
mod maps;
mod measures;
mod outputs;
mod pace;
mod reference;
mod run;
mod setup;
mod shard;
mod spec;
mod store;

pub use grid::{Cell, CellSpec, Grid, NeedleGrid, ShotsGrid, Sources, TextGrid};
pub use maps::{Explore, Heatmap, MapKind, SMALL_PX};
pub use measures::Measures;
pub use outputs::Outputs;
pub use pace::Pace;
pub use run::{finished, run, Finished, Part, Plan, Start, Watch};
pub use setup::Setup;
pub use shard::{cells_of, Shard};
pub use spec::{Expectation, Experiment, Generate, Outcome, Quantisation, Show};
pub use store::cells_on_disk;

use crate::attention::{ResidualProbe, RowProbe, Selection, Sighting, Stream, Treated};
use crate::bail_usage;
use crate::generate::{self, generate, Generation, Until};
use crate::hash::{hex, sha256};
use crate::machine;
use crate::measure::{Extent, Findings, Kept, Measure, MeasureName, Place, ResidualSink, Seen};
use crate::memory::{available_bytes, peak_rss_bytes};
use crate::model::{Flops, Transformer};
use crate::models::{Model, Reading};
use crate::pass::{pass, Passed};
use crate::probe::{ReceivedSink, SinkProbe};
use crate::prompt::{CitySet, Prompt, Text};
use crate::record::{Found, Identity, Record, SCHEMA};
use crate::treatment::Condition;
use anyhow::Result;
use rayon::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Memory of any run while prompts pass, however small, in bytes, as measured: code, and what the allocator holds.
const ANY_RUN: u64 = 14 << 20;

/// The same of each thread beside it.
const ANY_THREAD: u64 = 10 << 20;

/// Blocks of a pass, in bytes, that are small: when they are freed, the allocator lends them neither to another thread nor to
/// another pass, as measured.
const SMALL: u64 = 8 << 20;

/// Memory of a pass beside another for that of the same alone, as measured: other blocks are not lent at once.
const BESIDE: f64 = 1.2;

/// Memory of showing what was found, whatever it is, in bytes, as measured: tables, the font, and a figure.
const SHOWING: u64 = 20 << 20;

/// Memory of a number of a head until it is written, in bytes, as measured: a record, in a list that grows by doubling,
const HEAD_RECORD: u64 = 512;

/// and until the figures are drawn: it is in a map with a key of its own, but for the regions that no figure needs.
const HEAD_NUMBER: u64 = 24;

/// What was found of one cell.
pub struct Finding<'a> {
    /// Its records.
    pub records: &'a [Record],
    /// SHA-256 over the token ids of its prompts, one for each model.
    pub prompts_sha256: String,
    /// What its measures pooled, as far as it can be kept: measure, model and condition, bytes.
    pub pooled: &'a [(usize, Place, Vec<u8>)],
}

impl Setup {
    /// Checks that it is possible to run these cells of the grid: contexts fit the models, prompts fit the contexts, the selection selects
    /// something, activations fit in memory. Returns an estimate of the most memory the process will hold, in bytes.
    ///
    /// # Errors
    /// Usage errors with the numbers and what to change.
    pub fn check(&self, cells: &[Cell], measures: &[&mut dyn Measure]) -> Result<u64> {
        let longest = cells.iter().map(|cell| cell.spec.ctx_tok()).max().unwrap_or(0);
        for model in &self.models {
            let limit = model.transformer.config.max_ctx_tok;
            if longest > limit {
                bail_usage!("`ctx_tok` {longest}: {} was trained for at most {limit} tokens", model.name);
            }
            check_selection(&self.experiment.select, model)?;
            self.check_conditions(model)?;
            if matches!(self.grid, Grid::Text(_)) && model.info.chat_template_sha256.is_some() {
                bail_usage!("`chat_template`: it is for needle prompts, and plain text is not put into it");
            }
            if let Text::Ids(ids) = &self.sources.text {
                ids.check(&model.name, model.transformer.config.vocab)?;
            }
        }
        if self.grid.count() == Some(0) {
            bail_usage!("nothing to run: `samples` is 0, or a list of the grid is empty");
        }
        let passes = self.at_once().min(cells.len());
        let needed = self.needed_bytes(longest, cells.len(), passes, measures);
        if let Some(available) = available_bytes().filter(|&available| needed > available) {
            let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
            bail_usage!(
                "`ctx_tok` {longest} needs about {:.1} GiB for {}, {:.1} GiB are free; lower `ctx_tok` or `threads`",
                gib(needed),
                if passes == 1 { "a pass".to_owned() } else { format!("{passes} passes at once") },
                gib(available)
            );
        }
        // The longest cities of a seed decide whether a short prompt fits; a few seeds find out.
        for cell in cells.chunk_by(|a, b| a.spec == b.spec).map(|alike| &alike[0]) {
            for model in &self.models {
                Cell { seed_index: 0, ..cell.clone() }.prompt(self.grid.seed(), &self.sources, model.tokenizer())?;
            }
        }
        // Reading a text may have taken more than running it will, and a look at the prompt as much.
        Ok(peak_rss_bytes().unwrap_or(0).max(self.loaded_bytes + needed))
    }

    /// Prompts that pass side by side: of a model whose weights are read from disk, and where candle's own ops compute, only one.
    fn at_once(&self) -> usize {
        let on_disk = self.models.iter().any(|model| model.transformer.is_on_disk());
        if on_disk || !self.experiment.reading.has_kernels() {
            1
        } else {
            rayon::current_num_threads()
        }
    }

    /// Memory that a run takes beside what is loaded, in bytes: while prompts pass, or when what was found of them is shown.
    fn needed_bytes(&self, ctx_tok: usize, cells: usize, passes: usize, measures: &[&mut dyn Measure]) -> u64 {
        let tiles = |model: &Model| model.transformer.config.tile_bytes(ctx_tok);
        let models = if self.experiment.reading.has_kernels() { self.models.as_slice() } else { &[] };
        let alone = self.cell_bytes(ctx_tok);
        let small = alone.min(SMALL);
        let thread = ANY_THREAD + small + models.iter().map(tiles).max().unwrap_or(0);
        let threads = thread * rayon::current_num_threads() as u64;
        let beside = if passes > 1 { (BESIDE * alone as f64) as u64 + small } else { alone };
        let per_head: u64 = measures.iter().map(|measure| measure.head_records()).sum();
        let heads = |model: &Model| {
            let config = &model.transformer.config;
            (config.layers.len() * config.wiring().heads()) as u64
        };
        let records = per_head * self.models.iter().map(heads).sum::<u64>();
        let pass = beside + self.measures_bytes(ctx_tok, measures) + HEAD_RECORD * records;
        let showing = measures.iter().map(|measure| measure.showing_bytes()).max().unwrap_or(0);
        let on_disk = self.models.iter().filter(|model| model.transformer.is_on_disk());
        let streamed = on_disk.map(|model| self.experiment.reading.weights_bytes(&model.transformer.config));
        let streamed = streamed.max().unwrap_or(0);
        HEAD_NUMBER * records * cells as u64
            + streamed
            + (ANY_RUN + pass * passes as u64 + threads).max(SHOWING + showing)
    }

    /// Work of a prompt of `ctx_tok` tokens: a pass for every model and condition.
    pub fn flops(&self, ctx_tok: usize) -> Flops {
        let passes = self.models.iter().map(|model| model.transformer.config.forward_flops(ctx_tok));
        let once = passes.fold(Flops::default(), |sum, flops| sum + flops);
        self.conditions.iter().fold(Flops::default(), |sum, _| sum + once)
    }

    /// Memory that one prompt of `ctx_tok` tokens takes beside the weights, in bytes.
    pub fn cell_bytes(&self, ctx_tok: usize) -> u64 {
        let remembered = |model: &Model| {
            let config = &model.transformer.config;
            let most = |max_new| config.max_ctx_tok.min(ctx_tok.saturating_add(max_new));
            self.experiment.max_new().map_or(0, |max_new| generate::memory_bytes(config, most(max_new)))
        };
        let pass = |model: &Model| self.experiment.reading.pass_bytes(&model.transformer.config, ctx_tok);
        let bytes = |model: &Model| pass(model) + remembered(model);
        self.models.iter().map(bytes).max().unwrap_or(0)
    }

    /// Memory that measures take until a pass over `ctx_tok` tokens is concluded, in bytes.
    fn measures_bytes(&self, ctx_tok: usize, measures: &[&mut dyn Measure]) -> u64 {
        let of_model = |(model, own): (usize, &Model)| {
            let config = &own.transformer.config;
            let wiring = config.wiring();
            let (layers, heads, maps) = (config.layers.len(), wiring.heads(), wiring.maps());
            let extent = Extent { model, layers, heads, maps, ctx_tok };
            measures.iter().map(|measure| measure.memory_bytes(&extent)).sum::<u64>()
        };
        self.models.iter().enumerate().map(of_model).max().unwrap_or(0)
    }

    /// The number of each cell, and a hash of all that its records depend on: weights, tokenizers, corpus, conditions, selection,
    /// measures with their settings, prompt, seed, the schema of the records, this build, the kind of processor, and another
    /// device or number type than usual.
    pub fn keys(&self, cells: &[Cell], measures: &[MeasureName], ar_max_count: Option<u64>) -> Vec<(u64, String)> {
        let model = |Model { name, info, .. }: &Model| {
            let read_as = json!([info.layout, info.bos, info.chat_template_sha256]);
            json!([name, info.weights_sha256, info.config_sha256, info.tokenizer_sha256, read_as])
        };
        let models: Vec<_> = self.models.iter().map(model).collect();
        let sources = [Some(self.sources.haystack.sha256()), self.sources.text.sha256()];
        let mut common =
            json!([SCHEMA, machine::key(), models, sources, self.conditions, self.experiment.select, measures])
                .to_string();
        let Reading { device, dtype, .. } = self.experiment.reading;
        if !self.experiment.reading.has_kernels() {
            common += &json!({ "device": device, "dtype": dtype }).to_string();
        }
        common.extend(ar_max_count.map(|count| format!("ar_max_count {count}, skip {}", self.skip())));
        if let Some(max_new) = self.experiment.max_new() {
            let eos: Vec<_> = self.models.iter().map(Model::eos_ids).collect();
            common += &json!({ "max_new": max_new, "eos": eos }).to_string();
        }
        let key = |cell: &Cell| {
            let own = json!([cell.spec, cell.index, cell.sample, self.grid.seed()]);
            let twin =
                if cell.seed_index == cell.index { String::new() } else { format!("seed of {}", cell.seed_index) };
            (cell.index, sha256(format!("{common}{own}{twin}").as_bytes()))
        };
        cells.iter().map(key).collect()
    }

    /// Runs cells and hands what was found of each to `done`, in order; writes nothing. A cell that fails is found as a record
    /// with an error, and the others go on. Returns the number of cells that ran, which is less than asked for only if `stop`
    /// was set, which ends the run after the cells in flight.
    ///
    /// # Errors
    /// Only what `done` meets.
    pub fn run(
        &self,
        cells: &[Cell],
        measures: &mut [&mut dyn Measure],
        stop: &AtomicBool,
        done: &mut dyn FnMut(&Cell, &Finding<'_>) -> Result<()>,
    ) -> Result<usize> {
        let mut ran = 0;
        // Prompts run in parallel, and a pass uses idle threads itself; neither changes a bit of the results.
        for batch in cells.chunks(self.at_once()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let results: Vec<CellResult> = {
                let measures: Vec<&dyn Measure> = measures.iter().map(|measure| &**measure).collect();
                batch.par_iter().map(|cell| self.cell(cell, &measures)).collect()
            };
            for (cell, result) in batch.iter().zip(results) {
                let mut hash = Sha256::new();
                result.prompts.iter().flatten().for_each(|id| hash.update(id.to_le_bytes()));
                let mut pooled = Vec::new();
                for (measure, place, kept) in result.pooled {
                    pooled.extend(measures[measure].encode(&kept)?.map(|bytes| (measure, place, bytes)));
                    measures[measure].absorb(place, kept);
                }
                let prompts_sha256 = hex(&hash.finalize());
                done(cell, &Finding { records: &result.records, prompts_sha256, pooled: &pooled })?;
            }
            ran += batch.len();
        }
        Ok(ran)
    }

    /// The records of what measures pooled over all cells, after the last.
    pub fn pooled(&self, measures: &mut [&mut dyn Measure]) -> Vec<Record> {
        let Some(first) = self.grid.cells().into_iter().next() else { return Vec::new() };
        let found = measures.iter_mut().flat_map(|measure| measure.finish());
        found.map(|found| self.pooled_record(&first, found)).collect()
    }

    fn cell(&self, cell: &Cell, measures: &[&dyn Measure]) -> CellResult {
        let mut result = CellResult::default();
        for (model_index, model) in self.models.iter().enumerate() {
            let done = cell
                .prompt(self.grid.seed(), &self.sources, model.tokenizer())
                .and_then(|prompt| self.passes(cell, model_index, &prompt, measures, &mut result));
            if let Err(error) = done {
                let identity = Arc::new(self.identity(cell, model, &self.conditions[0]));
                let error = Some(format!("{error:#}"));
                let measure = Found { metric: "cell".into(), error, ..Found::default() };
                result.records.push(Record { identity, measure });
            }
        }
        result
    }

    /// One pass over the prompt for each condition.
    fn passes(
        &self,
        cell: &Cell,
        model_index: usize,
        prompt: &Prompt,
        measures: &[&dyn Measure],
        result: &mut CellResult,
    ) -> Result<()> {
        let model = &self.models[model_index];
        result.prompts.push(prompt.ids.clone());
        let exempting = self.conditions.iter().any(|c| c.quantiser().is_some_and(|(_, exempt_sinks)| exempt_sinks));
        let sinks = if exempting { sinks(&model.transformer, prompt)? } else { BTreeMap::new() };
        let mut baseline: Vec<Option<Kept>> = measures.iter().map(|_| None).collect();
        let (resolver, reference) = (self.resolver(model), &self.references()?[model_index]);
        let seed = cell.seed(self.grid.seed());
        let generates = measures.iter().any(|measure| measure.wants_generation());
        for (index, condition) in self.conditions.iter().enumerate() {
            let place = Place { model: model_index, condition: index };
            let treated = |generating: bool| {
                let treated = || resolver.resolve(condition, reference, &sinks, (prompt, seed, generating));
                (!condition.is_untreated()).then(treated)
            };
            let generation = if generates { self.generation(model, prompt, treated(true).as_ref())? } else { None };
            let treated = treated(false);
            let pass = OnePass { place, prompt, treated: treated.as_ref(), generation: generation.as_ref() };
            self.pass_under(cell, pass, measures, &mut baseline, result)?;
        }
        Ok(())
    }

    /// What measures find of one prompt as it is.
    fn untreated(&self, model: usize, cell: &Cell, prompt: &Prompt, measures: &[&dyn Measure]) -> Result<Vec<Record>> {
        let mut found = CellResult::default();
        let pass = OnePass { place: Place { model, condition: 0 }, prompt, treated: None, generation: None };
        let mut baseline: Vec<Option<Kept>> = measures.iter().map(|_| None).collect();
        self.pass_under(cell, pass, measures, &mut baseline, &mut found)?;
        Ok(found.records)
    }

    /// One pass, watched and concluded. What measures keep of the first condition becomes the `baseline` of the others.
    fn pass_under(
        &self,
        cell: &Cell,
        pass: OnePass<'_>,
        measures: &[&dyn Measure],
        baseline: &mut [Option<Kept>],
        result: &mut CellResult,
    ) -> Result<()> {
        let OnePass { place, prompt, .. } = pass;
        let model = &self.models[place.model];
        let Watched { passed, sightings, residual } = self.watch(&pass, measures)?;
        let identity = self.identity(cell, model, &self.conditions[place.condition]);
        for (i, (sightings, residual)) in sightings.into_iter().zip(residual).enumerate() {
            let mut findings = Findings::default();
            let seen = Seen {
                place,
                sample: cell.sample,
                identity: &identity,
                model: &model.transformer,
                prompt,
                tokenizer: model.tokenizer().ok(),
                queries: &passed.queries,
                predictions: passed.predictions.as_ref(),
                generation: pass.generation,
                trace: passed.trace.as_ref(),
                sightings,
                residual: residual.map(ResidualSink::into_any),
                baseline: baseline[i].as_ref(),
            };
            measures[i].conclude(seen, &mut findings)?;
            result.add(&identity, prompt, findings.records);
            result.pooled.extend(findings.pooled.map(|pooled| (i, place, pooled)));
            if place.condition == 0 {
                baseline[i] = findings.kept;
            }
        }
        Ok(())
    }

    /// What the model says by itself where the first answer of the prompt begins.
    fn generation(&self, model: &Model, prompt: &Prompt, treated: Option<&Treated>) -> Result<Option<Generation>> {
        let Some(max_new) = self.experiment.max_new() else { return Ok(None) };
        let until = Until {
            max_new,
            eos: model.eos_ids(),
            numbers: prompt.queries.len(),
            digits: prompt.queries.iter().map(|query| query.value.len()).min().unwrap_or(0),
        };
        generate(&model.transformer, model.tokenizer()?, prompt.unanswered(), &until, treated).map(Some)
    }

    /// A pass with the probes of all measures; deals out what they saw.
    fn watch(&self, one: &OnePass<'_>, measures: &[&dyn Measure]) -> Result<Watched> {
        let OnePass { place, prompt, treated, .. } = *one;
        let probes: Vec<Vec<Box<dyn RowProbe>>> =
            measures.iter().map(|measure| measure.row_probes(place.model, prompt)).collect();
        // The measure and its own index of every probe in the flat list that the stream knows.
        let owners: Vec<(usize, usize)> =
            probes.iter().enumerate().flat_map(|(i, own)| (0..own.len()).map(move |j| (i, j))).collect();
        let flat: Vec<&dyn RowProbe> = probes.iter().flatten().map(|probe| &**probe).collect();
        let mut residual = Residual(measures.iter().map(|measure| measure.residual_probe()).collect());
        let mut stream = Stream::new(&flat).only(&self.experiment.select).treated(treated);
        if measures.iter().any(|measure| measure.wants_trace()) {
            stream = stream.tracing(prompt.target_rows());
        }
        if residual.0.iter().any(Option::is_some) {
            stream = stream.with_residual(&mut residual);
        }
        let all_tokens = measures.iter().any(|measure| measure.wants_predictions());
        let mut passed = pass(&self.models[place.model].transformer, prompt, stream, all_tokens)?;
        let mut sightings: Vec<Vec<Sighting>> = measures.iter().map(|_| Vec::new()).collect();
        for sighting in std::mem::take(&mut passed.sightings) {
            let (measure, own) = owners[sighting.probe];
            sightings[measure].push(Sighting { probe: own, ..sighting });
        }
        Ok(Watched { passed, sightings, residual: residual.0 })
    }

    fn identity(&self, cell: &Cell, model: &Model, condition: &Condition) -> Identity {
        let identity = Identity {
            model: model.name.clone(),
            variant: model.info.variant.clone(),
            sample: Some(cell.sample),
            seed: Some(cell.seed(self.grid.seed())),
            condition: condition.column().map(Into::into),
            bits: condition.bits(),
            scope: condition.scope().map(Into::into),
            ..Identity::default()
        };
        match &cell.spec {
            CellSpec::Text(windows) => Identity { task: "text".into(), ctx_tok: windows.ctx_tok, ..identity },
            CellSpec::Shots(spec) => Identity {
                task: spec.task(),
                ctx_tok: spec.ctx_tok,
                needles: Some(spec.shots),
                retrieve: Some(1),
                cities: Some(CitySet::Train.name().into()),
                ..identity
            },
            CellSpec::Needle(spec) => Identity {
                task: "needle".into(),
                ctx_tok: spec.ctx_tok,
                needles: Some(spec.needles),
                retrieve: Some(spec.retrieve),
                depth_req_pct: Some(spec.depth_pct),
                cities: Some(spec.cities.name().into()),
                ..identity
            },
        }
    }

    /// A record of what a measure pooled over all prompts.
    /// A record of all cells: like those of the `first`, but for what differs between them.
    fn pooled_record(&self, first: &Cell, (place, measure): (Place, Found)) -> Record {
        let (model, condition) = (&self.models[place.model], &self.conditions[place.condition]);
        let identity = Identity {
            sample: None,
            seed: None,
            depth_req_pct: None,
            cities: None,
            rows: Some("all".into()),
            ..self.identity(first, model, condition)
        };
        Record { identity: Arc::new(identity), measure }
    }
}

/// A pass to be made.
#[derive(Clone, Copy)]
struct OnePass<'a> {
    place: Place,
    prompt: &'a Prompt,
    treated: Option<&'a Treated>,
    /// What the model said by itself.
    generation: Option<&'a Generation>,
}

/// What one pass showed, by measure.
struct Watched {
    passed: Passed,
    sightings: Vec<Vec<Sighting>>,
    residual: Vec<Option<Box<dyn ResidualSink>>>,
}

/// Shows the residual stream to every measure that wants it.
struct Residual(Vec<Option<Box<dyn ResidualSink>>>);

impl ResidualProbe for Residual {
    fn see(&mut self, site: usize, values: &[f32], width: usize) {
        self.0.iter_mut().flatten().for_each(|sink| sink.see(site, values, width));
    }
}

#[derive(Default)]
struct CellResult {
    records: Vec<Record>,
    prompts: Vec<Vec<u32>>,
    /// Measure, place and what it pooled.
    pooled: Vec<(usize, Place, Kept)>,
}

impl CellResult {
    /// Adds records of a prompt, each of a question or of the whole prompt, with the rows it is about.
    fn add(&mut self, identity: &Identity, prompt: &Prompt, records: Vec<(Option<usize>, &'static str, Found)>) {
        for (query, rows, measure) in records {
            let identity = Identity {
                depth_real_pct: query.map(|query| prompt.queries[query].depth_real_pct),
                query,
                placed: query.map(|query| prompt.queries[query].controlled),
                rows: Some(rows.into()),
                ..identity.clone()
            };
            self.push(Record { identity: Arc::new(identity), measure });
        }
    }

    /// Adds a record; neighbours with the same identity share it.
    fn push(&mut self, mut record: Record) {
        if let Some(last) = self.records.last().filter(|last| last.identity == record.identity) {
            record.identity = last.identity.clone();
        }
        self.records.push(record);
    }
}

/// The sinks of every head, from a pass of its own over the prompt.
fn sinks(model: &Transformer, prompt: &Prompt) -> Result<BTreeMap<(usize, usize), Vec<usize>>> {
    let probe = SinkProbe::new(prompt.ids.len(), Vec::new());
    let passed = pass(model, prompt, Stream::new(&[&probe]), false)?;
    let found = passed.sightings.into_iter().map(|sighting| {
        let sink = sighting.sink.into_any().downcast::<ReceivedSink>().expect("the sink probe makes received sinks");
        ((sighting.layer, sighting.head), sink.sinks())
    });
    Ok(found.collect())
}

/// A filter that leaves nothing of a model is an error that says what there is.
fn check_selection(selection: &Selection, model: &Model) -> Result<()> {
    let config = &model.transformer.config;
    let heads = config.wiring().heads();
    for (field, wanted, have) in
        [("layers", &selection.layers, config.layers.len()), ("heads", &selection.heads, heads)]
    {
        let wanted = wanted.as_deref().unwrap_or(&[0]);
        if wanted.is_empty() {
            bail_usage!("`{field}` names nothing");
        }
        if let Some(index) = wanted.iter().find(|&&index| index >= have) {
            bail_usage!("`{field}` {index}: {} has {field} 0 to {}", model.name, have - 1);
        }
    }
    Ok(())
}
