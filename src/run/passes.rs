//! The passes over one prompt: every model reads it under every condition, observed by the measures.

use super::hidden::hidden_scores;
use super::identity::identity;
use super::patching::{paired, Corrupted, PairedPasses};
use super::reference::resolver;
use super::starts::{batches, most_at_once, LastResiduals, PassStart};
use super::Setup;
use crate::measures::{
    HiddenScores, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey, ResidualCollector, SinkCollector,
    SinkProbe,
};
use crate::results::record::{Identity, Measurement, Record};
use crate::treatments::{Condition, PairedPrompt, PromptFindings};
use anyhow::Result;
use engine::attention::{Prefix, ProbeResult, ResolvedTreatment, RowProbe, Stream};
use engine::model::generate::{generate, Generation, StopConditions};
use engine::model::gradient::{HeadAttributions, LastPass};
use engine::model::open::Model;
use engine::model::pass::{continued_passes, first_observed_row, first_row, pass, PassResult, SharedStart};
use engine::model::Transformer;
use names::metric::CELL;
use names::{HeadPlace, LayersAndHeads};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use text::{PlannedPrompt, Prompt};

/// Runs all passes over prompts that begin alike: every model under every condition.
pub(super) fn results(setup: &Setup, prompts: &[PlannedPrompt], measures: &[&dyn Measure]) -> Vec<PromptResult> {
    let mut results: Vec<PromptResult> = prompts.iter().map(|_| PromptResult::default()).collect();
    for (model_index, model) in setup.models.iter().enumerate() {
        let mut prefix = None;
        for (planned, result) in prompts.iter().zip(&mut results) {
            let done = planned
                .build(setup.grid.seed(), &setup.sources, model.tokenizer())
                .and_then(|prompt| passes(setup, planned, model_index, &prompt, measures, &mut prefix, result));
            if let Err(error) = done {
                let identity = Arc::new(identity(setup, planned, model, &setup.conditions[0]));
                let error = Some(format!("{error:#}"));
                let measure = Measurement { metric: CELL.name.into(), error, ..Measurement::default() };
                result.records.push(Record { identity, measure });
            }
        }
    }
    results
}

/// Runs the passes over the prompt, one for each condition. The untreated pass comes first; the others start at the
/// first row that differs from it, and those that start at the same row run together. `prefix` has the keys and
/// values of an untreated pass over a prompt that begins alike, if there was one, and then those of this one.
fn passes(
    setup: &Setup,
    planned: &PlannedPrompt,
    model_index: usize,
    prompt: &Prompt,
    measures: &[&dyn Measure],
    prefix: &mut Option<Prefix>,
    result: &mut PromptResult,
) -> Result<()> {
    let model = &setup.models[model_index];
    result.ids.push(prompt.ids.clone());
    let sinks = exempt_sinks(setup, &model.transformer, prompt)?;
    let resolver = resolver(model);
    let reference = &setup.references()?[model_index];
    let seed = planned.seed(setup.grid.seed());
    let PairedPasses { outputs, corrupted, clean } = paired(setup, model, prompt, seed)?;
    *prefix = prefix.take().or(clean);
    let findings = PromptFindings { sinks, outputs };
    let treated = |condition: usize, generating: bool| {
        let condition = &setup.conditions[condition];
        (!condition.is_untreated()).then(|| resolver.resolve(condition, reference, &findings, prompt, seed, generating))
    };
    let treatments: Vec<Option<ResolvedTreatment>> =
        (0..setup.conditions.len()).map(|index| treated(index, false)).collect();
    let mut passes = PromptPasses::new(setup, model_index, planned, prompt, &setup.plan.select, measures);
    let starts = passes.starts(&treatments, prefix.as_ref());
    let generates = measures.iter().any(|measure| measure.wants_generation());
    let shares = setup.shares_prefixes() && (generates || starts.iter().any(|start| start.row > 0));
    if treatments[0].is_none() {
        passes.hides = setup.hides(model, prompt.ids.len());
        passes.head_means = reference.answer_means().filter(|_| setup.attributes_heads(model, prompt.ids.len()));
    }
    let mut last = LastResiduals::default();
    for batch in batches(&starts, shares, |row| most_at_once(prompt.ids.len(), row)) {
        let of_batch = &treatments[batch.clone()];
        let start = starts[batch.start];
        let (prompt, known) = match &corrupted {
            Some(Corrupted { prompt, prefix }) if start.prompt == PairedPrompt::Corrupted => (prompt, prefix.as_ref()),
            _ => (prompt, prefix.as_ref()),
        };
        let shared = last.start(&model.transformer, prompt, known, start)?;
        let derives = batch.start == 0;
        let keeping = derives && (passes.needs_prefix() || (shares && shared.is_none()));
        let observed = passes.observe(prompt, of_batch, shared, keeping)?;
        for (index, mut observed) in batch.zip(observed) {
            let kept = observed.passed.prefix.take();
            if derives {
                passes.derive(&mut observed, kept.as_ref())?;
            }
            if shares {
                *prefix = kept.or(prefix.take());
            }
            let generation = if generates {
                generation(setup, model, prompt, treated(index, true).as_ref(), prefix.as_ref())?
            } else {
                None
            };
            passes.conclude(index, prompt, observed, generation.as_ref(), result)?;
        }
    }
    Ok(())
}

/// Returns the records of measures on one untreated pass, for these layers and heads. With the mean outputs of heads, they
/// are attributed.
pub(super) fn untreated_records(
    setup: &Setup,
    model: usize,
    only: &LayersAndHeads,
    planned: &PlannedPrompt,
    prompt: &Prompt,
    measures: &[&dyn Measure],
    head_means: Option<&[Vec<f32>]>,
) -> Result<Vec<Record>> {
    let mut result = PromptResult::default();
    let mut passes = PromptPasses::new(setup, model, planned, prompt, only, measures);
    passes.head_means = head_means.filter(|_| setup.differentiates(&setup.models[model], prompt.ids.len()));
    let keeping = passes.head_means.is_some();
    for mut observed in passes.observe(prompt, &[None], None, keeping)? {
        let kept = observed.passed.prefix.take();
        passes.derive(&mut observed, kept.as_ref())?;
        passes.conclude(0, prompt, observed, None, &mut result)?;
    }
    Ok(result.records)
}

/// Generates text from where the first answer of the prompt begins. `None` if the experiment does not generate.
fn generation(
    setup: &Setup,
    model: &Model,
    prompt: &Prompt,
    treated: Option<&ResolvedTreatment>,
    prefix: Option<&Prefix>,
) -> Result<Option<Generation>> {
    let Some(max_new) = setup.plan.max_new else { return Ok(None) };
    let until = StopConditions {
        max_new,
        eos: model.eos_ids(),
        // A line may end before other values than numbers are complete.
        numbers: if prompt.asks_for_numbers() { prompt.queries.len() } else { 0 },
        digits: prompt.queries.iter().map(|query| query.value.len()).min().unwrap_or(0),
    };
    let before = prompt.tokens_before_answer();
    generate(&model.transformer, model.tokenizer()?, before, &until, treated, prefix).map(Some)
}

/// The passes of one model over one prompt, observed by measures.
struct PromptPasses<'a> {
    setup: &'a Setup,
    model: usize,
    planned: &'a PlannedPrompt,
    prompt: &'a Prompt,
    /// The layers and heads that are measured.
    only: &'a LayersAndHeads,
    measures: &'a [&'a dyn Measure],
    /// Mean outputs of heads, by layer (H, value width), if heads are attributed with them in the first pass.
    head_means: Option<&'a [Vec<f32>]>,
    /// `true` if answers of the first pass are also scored with regions hidden.
    hides: bool,
    /// Data of each measure from the first condition, for the others.
    baseline: Vec<Option<MeasureData>>,
}

impl<'a> PromptPasses<'a> {
    fn new(
        setup: &'a Setup,
        model: usize,
        planned: &'a PlannedPrompt,
        prompt: &'a Prompt,
        only: &'a LayersAndHeads,
        measures: &'a [&'a dyn Measure],
    ) -> Self {
        let baseline = measures.iter().map(|_| None).collect();
        Self { setup, model, planned, prompt, only, measures, head_means: None, hides: false, baseline }
    }

    fn transformer(&self) -> &'a Transformer {
        &self.setup.models[self.model].transformer
    }

    /// Returns `true` if measures observe the pass, `false` if only its answers are scored.
    fn observes(&self, treated: bool) -> bool {
        !(treated && self.setup.plan.only_score_treated)
    }

    fn wants_predictions(&self, observed: bool) -> bool {
        observed && self.measures.iter().any(|measure| measure.wants_predictions())
    }

    /// Returns `true` if what is derived from the first pass takes its keys and values.
    fn needs_prefix(&self) -> bool {
        self.head_means.is_some() || (self.hides && self.setup.shares_prefixes())
    }

    /// Attributes the log-probability of each answer of the prompt to heads, from the keys and values of an untreated pass.
    fn attributions(&self, means: &[Vec<f32>], prefix: &Prefix) -> Result<Vec<HeadAttributions>> {
        let answers: Vec<Range<usize>> = self.prompt.queries.iter().map(|query| query.rows()).collect();
        let Some(first) = answers.iter().map(|rows| rows.start).min() else { return Ok(Vec::new()) };
        LastPass::new(self.transformer(), &self.prompt.ids, prefix, first)?.attributions(&answers, means)
    }

    /// Adds to the first pass what it loses without heads and its scores with regions hidden, from the keys and values that it kept.
    fn derive(&self, observed: &mut PassObservations, kept: Option<&Prefix>) -> Result<()> {
        if let Some((means, kept)) = self.head_means.zip(kept) {
            observed.attributions = self.attributions(means, kept)?;
        }
        if self.hides {
            let shared = kept.filter(|_| self.setup.shares_prefixes());
            observed.hidden = hidden_scores(&self.setup.models[self.model], self.prompt, shared)?;
        }
        Ok(())
    }

    /// The probes of each measure for the next passes; none if nothing is observed. A measure may choose them by what it
    /// found in the first pass.
    fn row_probes(&self, observed: bool) -> MeasureProbes {
        let mut probes = Vec::new();
        for measure in self.measures {
            probes.push(if observed { measure.row_probes(self.model, self.prompt) } else { Vec::new() });
        }
        MeasureProbes(probes)
    }

    /// The collector of the residual stream, if a measure wants it.
    fn residual_collector(&self, observed: bool) -> Option<ResidualCollector> {
        let wanted = observed && self.measures.iter().any(|measure| measure.wants_residual());
        wanted.then(ResidualCollector::default)
    }

    /// The stream of one pass.
    fn stream<'s>(
        &self,
        probes: &'s [&'s dyn RowProbe],
        treated: Option<&'s ResolvedTreatment>,
        residual: &'s mut Option<ResidualCollector>,
        observed: bool,
    ) -> Stream<'s> {
        let mut stream = Stream::new(probes).only(self.only).treated(treated);
        if observed && self.measures.iter().any(|measure| measure.wants_trace()) {
            stream = stream.tracing(self.prompt.target_rows());
        }
        if let Some(residual) = residual {
            stream = stream.with_residual(residual);
        }
        stream
    }

    /// The first row that the measures need of a pass.
    fn first_observed_row(&self, treated: bool) -> usize {
        let observed = self.observes(treated);
        let probes = self.row_probes(observed);
        let mut residual = self.residual_collector(observed);
        let probes = probes.all();
        let stream = self.stream(&probes, None, &mut residual, observed);
        first_observed_row(self.transformer(), self.prompt, &stream, self.wants_predictions(observed))
    }

    /// Where the pass under each condition starts, if keys and values of `prefix` are known. The first pass is whole without one: the
    /// others share its rows. If treated passes are not observed, they start at the first layer that they change.
    fn starts(&self, treatments: &[Option<ResolvedTreatment>], prefix: Option<&Prefix>) -> Vec<PassStart> {
        let ids = &self.prompt.ids;
        let observed = [false, true].map(|treated| self.first_observed_row(treated));
        let common = prefix.map_or(ids.len(), |prefix| prefix.common_tokens(ids));
        let mut starts = Vec::new();
        for (index, treated) in treatments.iter().enumerate() {
            let row = match (index, prefix) {
                (0, None) => 0,
                _ => first_row(observed[usize::from(index > 0)], common, treated.as_ref()),
            };
            let layer = match treated {
                Some(treated) if row > 0 && !self.observes(true) => {
                    treated.first_layer().min(self.transformer().last_layer())
                }
                _ => 0,
            };
            starts.push(PassStart { prompt: self.setup.conditions[index].prompt(), row, layer });
        }
        starts
    }

    /// Runs passes over the prompt, or over its corrupted form, with the probes of all measures: whole ones, or with the keys
    /// and values of another pass from a row on. With `keeping`, the keys and values of an untreated pass are kept.
    fn observe(
        &self,
        prompt: &Prompt,
        treated: &[Option<ResolvedTreatment>],
        shared: Option<SharedStart<'_>>,
        keeping: bool,
    ) -> Result<Vec<PassObservations>> {
        // All of a batch are treated, or none is.
        let observed = self.observes(treated.iter().all(Option::is_some));
        let probes = self.row_probes(observed);
        let all = probes.all();
        let mut residual: Vec<Option<ResidualCollector>> =
            treated.iter().map(|_| self.residual_collector(observed)).collect();
        let mut streams = Vec::new();
        for (treated, residual) in treated.iter().zip(&mut residual) {
            let stream = self.stream(&all, treated.as_ref(), residual, observed);
            streams.push(if keeping { stream.keeping() } else { stream });
        }
        let passed = match shared {
            Some(start) => continued_passes(self.transformer(), prompt, streams, start)?,
            None => {
                let wants = self.wants_predictions(observed);
                let passed = streams.into_iter().map(|stream| pass(self.transformer(), prompt, stream, wants));
                passed.collect::<Result<_>>()?
            }
        };
        Ok(passed.into_iter().zip(residual).map(|(passed, residual)| probes.by_measure(passed, residual)).collect())
    }

    /// Concludes the measures of a pass over a prompt, itself or the corrupted one. The data that measures keep from the first
    /// condition become the baseline of the others.
    fn conclude(
        &mut self,
        condition: usize,
        prompt: &Prompt,
        observed: PassObservations,
        generation: Option<&Generation>,
        result: &mut PromptResult,
    ) -> Result<()> {
        let key = PassKey { model: self.model, condition };
        let setup = self.setup;
        let model = &self.setup.models[self.model];
        let PassObservations { passed, probe_results, residual, hidden, attributions } = observed;
        let identity = identity(setup, self.planned, model, &setup.conditions[condition]);
        for (i, probe_results) in probe_results.into_iter().enumerate() {
            let mut output = MeasureOutput::default();
            let observed = ObservedPass {
                key,
                sample: self.planned.sample,
                identity: &identity,
                model: &model.transformer,
                prompt,
                tokenizer: model.tokenizer().ok(),
                queries: &passed.queries,
                predictions: passed.predictions.as_ref(),
                generation,
                trace: passed.trace.as_ref(),
                hidden: &hidden,
                attributions: &attributions,
                probe_results,
                residual: residual.as_ref(),
                baseline: self.baseline[i].as_ref(),
            };
            self.measures[i].conclude(observed, &mut output)?;
            result.add(&identity, prompt, output.records);
            result.pooled.extend(output.pooled.map(|pooled| (i, key, pooled)));
            if condition == 0 {
                self.baseline[i] = output.kept;
            }
        }
        Ok(())
    }
}

/// The probes of each measure.
struct MeasureProbes(Vec<Vec<Box<dyn RowProbe>>>);

impl MeasureProbes {
    /// All probes, in the order of the measures.
    fn all(&self) -> Vec<&dyn RowProbe> {
        self.0.iter().flatten().map(|probe| &**probe).collect()
    }

    /// Sorts the results of the probes by measure.
    fn by_measure(&self, mut passed: PassResult, residual: Option<ResidualCollector>) -> PassObservations {
        // Measure, and index among that measure's probes, of every probe in the stream's flat list.
        let owners: Vec<(usize, usize)> =
            self.0.iter().enumerate().flat_map(|(i, own)| (0..own.len()).map(move |j| (i, j))).collect();
        let mut probe_results: Vec<Vec<ProbeResult>> = self.0.iter().map(|_| Vec::new()).collect();
        for result in std::mem::take(&mut passed.probe_results) {
            let (measure, own) = owners[result.probe];
            probe_results[measure].push(ProbeResult { probe: own, ..result });
        }
        PassObservations { passed, probe_results, residual, hidden: Vec::new(), attributions: Vec::new() }
    }
}

/// The results of one pass, with those of the probes by measure.
struct PassObservations {
    passed: PassResult,
    probe_results: Vec<Vec<ProbeResult>>,
    residual: Option<ResidualCollector>,
    /// Scores with regions hidden; empty unless they are measured.
    hidden: Vec<HiddenScores>,
    /// What each answer loses without a head; empty if heads are not attributed.
    attributions: Vec<HeadAttributions>,
}

/// The records and pooled data of a prompt.
#[derive(Default)]
pub(super) struct PromptResult {
    pub(super) records: Vec<Record>,
    /// Its token ids, model by model.
    pub(super) ids: Vec<Vec<u32>>,
    /// Data that measures pool: (index of the measure, model and condition, data).
    pub(super) pooled: Vec<(usize, PassKey, MeasureData)>,
}

impl PromptResult {
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

/// Detects the attention sinks of every head in an extra pass over the prompt, if a condition exempts them.
fn exempt_sinks(setup: &Setup, model: &Transformer, prompt: &Prompt) -> Result<BTreeMap<HeadPlace, Vec<usize>>> {
    if !setup.conditions.iter().any(Condition::exempts_sinks) {
        return Ok(BTreeMap::new());
    }
    let probe = SinkProbe::new(prompt.ids.len());
    let passed = pass(model, prompt, Stream::new(&[&probe]), false)?;
    let found = passed.probe_results.into_iter().map(|result| {
        let collector = result.collector.into_collector::<SinkCollector>();
        (result.at, collector.sinks())
    });
    Ok(found.collect())
}
