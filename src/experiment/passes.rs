//! The passes of one cell: each model reads its prompt under each condition, watched by measures.

use super::{Cell, CellSpec, Setup};
use crate::attention::{ProbeResult, ResidualProbe, ResolvedTreatment, RowProbe, Selection, Stream};
use crate::generate::{generate, Generation, StopConditions};
use crate::measure::{Findings, Kept, Measure, Place, ResidualSink, Seen};
use crate::model::Transformer;
use crate::models::Model;
use crate::pass::{pass, PassResult};
use crate::probe::{ReceivedSink, SinkProbe};
use crate::prompt::{CitySet, Prompt};
use crate::record::{Found, Identity, Record};
use crate::treatment::Condition;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Setup {
    /// All passes of a cell, of each model under each condition.
    pub(super) fn cell(&self, cell: &Cell, measures: &[&dyn Measure]) -> CellResult {
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
            let (only, treated) = (&self.experiment.select, treated.as_ref());
            let pass = OnePass { place, only, prompt, treated, generation: generation.as_ref() };
            self.pass_under(cell, pass, measures, &mut baseline, result)?;
        }
        Ok(())
    }

    /// What measures find of one prompt as it is, in these layers and heads.
    pub(super) fn untreated(
        &self,
        model: usize,
        only: &Selection,
        (cell, prompt): (&Cell, &Prompt),
        measures: &[&dyn Measure],
    ) -> Result<Vec<Record>> {
        let mut found = CellResult::default();
        let pass = OnePass { place: Place { model, condition: 0 }, only, prompt, treated: None, generation: None };
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
        let Watched { passed, probe_results, residual } = self.watch(&pass, measures)?;
        let identity = self.identity(cell, model, &self.conditions[place.condition]);
        for (i, (probe_results, residual)) in probe_results.into_iter().zip(residual).enumerate() {
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
                probe_results,
                residual: residual.map(|sink| sink as Box<dyn std::any::Any + Send>),
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
        generate(&model.transformer, model.tokenizer()?, prompt.unanswered(), &until, treated).map(Some)
    }

    /// A pass with the probes of all measures; deals out what they saw.
    fn watch(&self, one: &OnePass<'_>, measures: &[&dyn Measure]) -> Result<Watched> {
        let OnePass { place, only, prompt, treated, .. } = *one;
        let probes: Vec<Vec<Box<dyn RowProbe>>> =
            measures.iter().map(|measure| measure.row_probes(place.model, prompt)).collect();
        // The measure and its own index of every probe in the flat list that the stream knows.
        let owners: Vec<(usize, usize)> =
            probes.iter().enumerate().flat_map(|(i, own)| (0..own.len()).map(move |j| (i, j))).collect();
        let flat: Vec<&dyn RowProbe> = probes.iter().flatten().map(|probe| &**probe).collect();
        let mut residual = Residual(measures.iter().map(|measure| measure.residual_probe()).collect());
        let mut stream = Stream::new(&flat).only(only).treated(treated);
        if measures.iter().any(|measure| measure.wants_trace()) {
            stream = stream.tracing(prompt.target_rows());
        }
        if residual.0.iter().any(Option::is_some) {
            stream = stream.with_residual(&mut residual);
        }
        let all_tokens = measures.iter().any(|measure| measure.wants_predictions());
        let mut passed = pass(&self.models[place.model].transformer, prompt, stream, all_tokens)?;
        let mut probe_results: Vec<Vec<ProbeResult>> = measures.iter().map(|_| Vec::new()).collect();
        for result in std::mem::take(&mut passed.probe_results) {
            let (measure, own) = owners[result.probe];
            probe_results[measure].push(ProbeResult { probe: own, ..result });
        }
        Ok(Watched { passed, probe_results, residual: residual.0 })
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

    /// A record of what a measure pooled over all prompts: like those of the first cell, but for what differs between cells.
    pub(super) fn pooled_record(&self, first: &Cell, (place, measure): (Place, Found)) -> Record {
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
    /// The layers and heads that are measured.
    only: &'a Selection,
    prompt: &'a Prompt,
    treated: Option<&'a ResolvedTreatment>,
    /// What the model said by itself.
    generation: Option<&'a Generation>,
}

/// What one pass showed, by measure.
struct Watched {
    passed: PassResult,
    probe_results: Vec<Vec<ProbeResult>>,
    residual: Vec<Option<Box<dyn ResidualSink>>>,
}

/// Shows the residual stream to every measure that wants it.
struct Residual(Vec<Option<Box<dyn ResidualSink>>>);

impl ResidualProbe for Residual {
    fn observe(&mut self, site: usize, values: &[f32], width: usize) {
        self.0.iter_mut().flatten().for_each(|sink| sink.observe(site, values, width));
    }
}

/// What was found of a cell.
#[derive(Default)]
pub(super) struct CellResult {
    pub(super) records: Vec<Record>,
    /// Token ids of its prompts, one for each model.
    pub(super) prompts: Vec<Vec<u32>>,
    /// Measure, place and what it pooled.
    pub(super) pooled: Vec<(usize, Place, Kept)>,
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
    let found = passed.probe_results.into_iter().map(|result| {
        let sink = result.sink.into_sink::<ReceivedSink>();
        ((result.layer, result.head), sink.sinks())
    });
    Ok(found.collect())
}
