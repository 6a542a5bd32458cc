//! The passes of one cell: every model reads the prompt under every condition, observed by the measures.

use super::{Cell, CellSpec, Setup};
use crate::attention::{LayersAndHeads, ProbeResult, ResidualProbe, ResolvedTreatment, RowProbe, Stream};
use crate::generate::{generate, Generation, StopConditions};
use crate::measure::{Measure, MeasureData, MeasureOutput, ObservedPass, PassKey, ResidualSink};
use crate::metric::CELL;
use crate::model::Transformer;
use crate::models::Model;
use crate::pass::{pass, PassResult};
use crate::probe::{ReceivedSink, SinkProbe};
use crate::prompt::{CitySet, Prompt};
use crate::record::{Identity, Measurement, Record};
use crate::treatment::Condition;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Setup {
    /// Runs all passes of a cell: every model under every condition.
    pub(super) fn cell(&self, cell: &Cell, measures: &[&dyn Measure]) -> CellResult {
        let mut result = CellResult::default();
        for (model_index, model) in self.models.iter().enumerate() {
            let done = cell
                .prompt(self.grid.seed(), &self.sources, model.tokenizer())
                .and_then(|prompt| self.passes(cell, model_index, &prompt, measures, &mut result));
            if let Err(error) = done {
                let identity = Arc::new(self.identity(cell, model, &self.conditions[0]));
                let error = Some(format!("{error:#}"));
                let measure = Measurement { metric: CELL.name.into(), error, ..Measurement::default() };
                result.records.push(Record { identity, measure });
            }
        }
        result
    }

    /// Runs one pass over the prompt for each condition.
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
        let mut baseline: Vec<Option<MeasureData>> = measures.iter().map(|_| None).collect();
        let (resolver, reference) = (self.resolver(model), &self.references()?[model_index]);
        let seed = cell.seed(self.grid.seed());
        let generates = measures.iter().any(|measure| measure.wants_generation());
        for (index, condition) in self.conditions.iter().enumerate() {
            let key = PassKey { model: model_index, condition: index };
            let treated = |generating: bool| {
                let treated = || resolver.resolve(condition, reference, &sinks, (prompt, seed, generating));
                (!condition.is_untreated()).then(treated)
            };
            let generation = if generates { self.generation(model, prompt, treated(true).as_ref())? } else { None };
            let treated = treated(false);
            let (only, treated) = (&self.experiment.select, treated.as_ref());
            let pass = OnePass { key, only, prompt, treated, generation: generation.as_ref() };
            self.measure_pass(cell, pass, measures, &mut baseline, result)?;
        }
        Ok(())
    }

    /// Returns the records of measures on one untreated pass, for these layers and heads.
    pub(super) fn untreated_records(
        &self,
        model: usize,
        only: &LayersAndHeads,
        (cell, prompt): (&Cell, &Prompt),
        measures: &[&dyn Measure],
    ) -> Result<Vec<Record>> {
        let mut found = CellResult::default();
        let pass = OnePass { key: PassKey { model, condition: 0 }, only, prompt, treated: None, generation: None };
        let mut baseline: Vec<Option<MeasureData>> = measures.iter().map(|_| None).collect();
        self.measure_pass(cell, pass, measures, &mut baseline, &mut found)?;
        Ok(found.records)
    }

    /// Runs one pass and concludes its measures. The data that measures keep from the first condition become the
    /// `baseline` of the other conditions.
    fn measure_pass(
        &self,
        cell: &Cell,
        pass: OnePass<'_>,
        measures: &[&dyn Measure],
        baseline: &mut [Option<MeasureData>],
        result: &mut CellResult,
    ) -> Result<()> {
        let OnePass { key, prompt, .. } = pass;
        let model = &self.models[key.model];
        let PassObservations { passed, probe_results, residual } = self.observe(&pass, measures)?;
        let identity = self.identity(cell, model, &self.conditions[key.condition]);
        for (i, (probe_results, residual)) in probe_results.into_iter().zip(residual).enumerate() {
            let mut output = MeasureOutput::default();
            let observed = ObservedPass {
                key,
                sample: cell.sample,
                identity: &identity,
                model: &model.transformer,
                prompt,
                tokenizer: model.tokenizer().ok(),
                queries: &passed.queries,
                predictions: passed.predictions.as_ref(),
                generation: pass.generation,
                trace: passed.trace.as_ref(),
                probe_results,
                residual: residual.map(|sink| sink as Box<dyn std::any::Any + Send>),
                baseline: baseline[i].as_ref(),
            };
            measures[i].conclude(observed, &mut output)?;
            result.add(&identity, prompt, output.records);
            result.pooled.extend(output.pooled.map(|pooled| (i, key, pooled)));
            if key.condition == 0 {
                baseline[i] = output.kept;
            }
        }
        Ok(())
    }

    /// Generates text from where the first answer of the prompt begins. `None` if the experiment does not generate.
    fn generation(
        &self,
        model: &Model,
        prompt: &Prompt,
        treated: Option<&ResolvedTreatment>,
    ) -> Result<Option<Generation>> {
        let Some(max_new) = self.experiment.max_new() else { return Ok(None) };
        let until = StopConditions {
            max_new,
            eos: model.eos_ids(),
            numbers: prompt.queries.len(),
            digits: prompt.queries.iter().map(|query| query.value.len()).min().unwrap_or(0),
        };
        generate(&model.transformer, model.tokenizer()?, prompt.tokens_before_answer(), &until, treated).map(Some)
    }

    /// Runs a pass with the probes of all measures and returns their results by measure.
    fn observe(&self, one: &OnePass<'_>, measures: &[&dyn Measure]) -> Result<PassObservations> {
        let OnePass { key, only, prompt, treated, .. } = *one;
        let probes: Vec<Vec<Box<dyn RowProbe>>> =
            measures.iter().map(|measure| measure.row_probes(key.model, prompt)).collect();
        // Measure, and index among that measure's probes, of every probe in the stream's flat list.
        let owners: Vec<(usize, usize)> =
            probes.iter().enumerate().flat_map(|(i, own)| (0..own.len()).map(move |j| (i, j))).collect();
        let flat: Vec<&dyn RowProbe> = probes.iter().flatten().map(|probe| &**probe).collect();
        let mut residual = ResidualSinks(measures.iter().map(|measure| measure.residual_probe()).collect());
        let mut stream = Stream::new(&flat).only(only).treated(treated);
        if measures.iter().any(|measure| measure.wants_trace()) {
            stream = stream.tracing(prompt.target_rows());
        }
        if residual.0.iter().any(Option::is_some) {
            stream = stream.with_residual(&mut residual);
        }
        let all_tokens = measures.iter().any(|measure| measure.wants_predictions());
        let mut passed = pass(&self.models[key.model].transformer, prompt, stream, all_tokens)?;
        let mut probe_results: Vec<Vec<ProbeResult>> = measures.iter().map(|_| Vec::new()).collect();
        for result in std::mem::take(&mut passed.probe_results) {
            let (measure, own) = owners[result.probe];
            probe_results[measure].push(ProbeResult { probe: own, ..result });
        }
        Ok(PassObservations { passed, probe_results, residual: residual.0 })
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

    /// Makes the record of a measurement that was pooled over all prompts: the identity of the first cell without the
    /// fields in which cells differ.
    pub(super) fn pooled_record(&self, first: &Cell, (key, measure): (PassKey, Measurement)) -> Record {
        let (model, condition) = (&self.models[key.model], &self.conditions[key.condition]);
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

/// The settings of one pass.
#[derive(Clone, Copy)]
struct OnePass<'a> {
    key: PassKey,
    /// The layers and heads that are measured.
    only: &'a LayersAndHeads,
    prompt: &'a Prompt,
    treated: Option<&'a ResolvedTreatment>,
    /// Text that the model generated under the same condition.
    generation: Option<&'a Generation>,
}

/// The results of one pass, with those of the probes by measure.
struct PassObservations {
    passed: PassResult,
    probe_results: Vec<Vec<ProbeResult>>,
    residual: Vec<Option<Box<dyn ResidualSink>>>,
}

/// Passes the residual stream on to every measure that has a residual probe.
struct ResidualSinks(Vec<Option<Box<dyn ResidualSink>>>);

impl ResidualProbe for ResidualSinks {
    fn observe(&mut self, site: usize, values: &[f32], width: usize) {
        self.0.iter_mut().flatten().for_each(|sink| sink.observe(site, values, width));
    }
}

/// The records and pooled data of a cell.
#[derive(Default)]
pub(super) struct CellResult {
    pub(super) records: Vec<Record>,
    /// Token ids of its prompts, one for each model.
    pub(super) prompts: Vec<Vec<u32>>,
    /// Data that measures pool: (index of the measure, model and condition, data).
    pub(super) pooled: Vec<(usize, PassKey, MeasureData)>,
}

impl CellResult {
    /// Adds records of a prompt: (question, or `None` for the whole prompt; rows; measurement).
    fn add(&mut self, identity: &Identity, prompt: &Prompt, records: Vec<(Option<usize>, &'static str, Measurement)>) {
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

    /// Adds a record; consecutive records with equal identities share one.
    fn push(&mut self, mut record: Record) {
        if let Some(last) = self.records.last().filter(|last| last.identity == record.identity) {
            record.identity = last.identity.clone();
        }
        self.records.push(record);
    }
}

/// Detects the attention sinks of every (layer, head) in an extra pass over the prompt.
fn sinks(model: &Transformer, prompt: &Prompt) -> Result<BTreeMap<(usize, usize), Vec<usize>>> {
    let probe = SinkProbe::new(prompt.ids.len(), Vec::new());
    let passed = pass(model, prompt, Stream::new(&[&probe]), false)?;
    let found = passed.probe_results.into_iter().map(|result| {
        let sink = result.sink.into_sink::<ReceivedSink>();
        ((result.layer, result.head), sink.sinks())
    });
    Ok(found.collect())
}
