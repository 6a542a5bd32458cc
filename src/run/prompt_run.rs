//! The passes of one model over one prompt, one for each condition, observed by the measures.

use super::context::context_scores;
use super::hidden::hidden_scores;
use super::identity::identity;
use super::patching::{paired, Corrupted, PairedPasses};
use super::prompt::{PromptResult, PromptRun};
use super::starts::{batches, most_at_once, LastResiduals, PassStart};
use crate::measures::{
    ContextScores, HiddenScores, MeasureData, MeasureName, MeasureOutput, Needs, ObservedPass, PassKey,
    ResidualCollector, SinkCollector, SinkProbe,
};
use crate::results::record::Record;
use crate::treatments::{PromptFindings, Reference, Resolver};
use anyhow::Result;
use engine::attention::{Prefix, ProbeResult, ResolvedTreatment, RowProbe, Stream};
use engine::model::generate::{generate, Generation, StopConditions};
use engine::model::gradient::{HeadAttributions, LastPass};
use engine::model::pass::{continued_passes, first_observed_row, first_row, pass, PassResult, SharedStart};
use engine::model::Transformer;
use names::condition::{Condition, PairedPrompt};
use names::HeadPlace;
use std::collections::BTreeMap;
use std::ops::Range;
use text::Prompt;

/// What is computed beside the first pass, from its keys and values.
#[derive(Clone, Copy, Default)]
struct Beside<'a> {
    /// Mean outputs of heads, by layer (H, value width), if heads are attributed with them.
    head_means: Option<&'a [Vec<f32>]>,
    /// `true` if answers are also scored with regions hidden.
    hides: bool,
    /// `true` if answers are also scored behind parts of the text.
    cuts: bool,
}

/// What the conditions of a prompt are resolved with.
struct Resolving<'a> {
    resolver: Resolver<'a>,
    reference: &'a Reference,
    findings: PromptFindings,
    seed: u64,
}

impl Resolving<'_> {
    /// What a condition does to a pass over a prompt; `None` for the untreated one.
    fn treatment(&self, condition: &Condition, prompt: &Prompt, generating: bool) -> Option<ResolvedTreatment> {
        let Self { resolver, reference, findings, seed } = self;
        (!condition.is_untreated()).then(|| resolver.resolve(condition, reference, findings, prompt, *seed, generating))
    }
}

impl<'a> PromptRun<'a> {
    /// Runs the pass under each condition, and adds what measures conclude of it. The untreated pass comes first; the others start
    /// at the first row that differs from it, and those that start at the same row run together. `prefix` has the keys and values
    /// of an untreated pass over a prompt that begins alike, if there was one, and then those of this one.
    ///
    /// # Errors
    /// If a pass or a measure fails.
    pub(super) fn under_each_condition(&self, prefix: &mut Option<Prefix>, result: &mut PromptResult) -> Result<()> {
        let Self { setup, prompt, .. } = *self;
        result.ids.push(prompt.ids.clone());
        let seed = self.planned.seed(setup.grid.seed());
        let sinks = self.exempt_sinks()?;
        let PairedPasses { outputs, corrupted, clean } = paired(setup, self.opened(), prompt, seed)?;
        *prefix = prefix.take().or(clean);
        let resolving = Resolving {
            resolver: Resolver::of(self.opened()),
            reference: &setup.references()?[self.model],
            findings: PromptFindings { sinks, outputs },
            seed,
        };
        let treatments: Vec<Option<ResolvedTreatment>> =
            setup.conditions.iter().map(|condition| resolving.treatment(condition, prompt, false)).collect();
        let beside = treatments[0].as_ref().map_or_else(|| self.beside(resolving.reference), |_| Beside::default());
        let starts = self.starts(&treatments, prefix.as_ref());
        let generates = self.needs().generation;
        let shares = setup.shares_prefixes() && (generates || starts.iter().any(|start| start.row > 0));
        let mut last = LastResiduals::default();
        let mut baseline = self.no_baseline();
        for batch in batches(&starts, shares, |row| most_at_once(prompt.ids.len(), row)) {
            let start = starts[batch.start];
            let (prompt, known) = match &corrupted {
                Some(Corrupted { prompt, prefix }) if start.prompt == PairedPrompt::Corrupted => {
                    (prompt, prefix.as_ref())
                }
                _ => (prompt, prefix.as_ref()),
            };
            let shared = last.start(self.transformer(), prompt, known, start)?;
            let is_first = batch.start == 0;
            let keeping = is_first && (self.needs_prefix(beside) || (shares && shared.is_none()));
            let observed = self.observe(prompt, &treatments[batch.clone()], shared, keeping)?;
            for (condition, mut observed) in batch.zip(observed) {
                let kept = observed.passed.prefix.take();
                if is_first {
                    self.add_beside(beside, &mut observed, kept.as_ref())?;
                }
                if shares {
                    *prefix = kept.or(prefix.take());
                }
                if generates {
                    let treated = resolving.treatment(&setup.conditions[condition], self.prompt, true);
                    observed.generation = self.generation(treated.as_ref(), prefix.as_ref())?;
                }
                self.conclude(condition, prompt, observed, &mut baseline, result)?;
            }
        }
        Ok(())
    }

    /// The records of one untreated pass. With the mean outputs of heads, they are attributed.
    ///
    /// # Errors
    /// If the pass or a measure fails.
    pub(super) fn untreated(&self, head_means: Option<&[Vec<f32>]>) -> Result<Vec<Record>> {
        let differentiates = self.setup.differentiates(self.opened(), self.prompt.ids.len());
        let beside = Beside { head_means: head_means.filter(|_| differentiates), ..Beside::default() };
        let mut result = PromptResult::default();
        for mut observed in self.observe(self.prompt, &[None], None, beside.head_means.is_some())? {
            let kept = observed.passed.prefix.take();
            self.add_beside(beside, &mut observed, kept.as_ref())?;
            self.conclude(0, self.prompt, observed, &mut self.no_baseline(), &mut result)?;
        }
        Ok(result.records)
    }

    fn transformer(&self) -> &'a Transformer {
        &self.opened().transformer
    }

    /// What the measures need of passes.
    fn needs(&self) -> Needs {
        Needs::of(self.measures)
    }

    /// What they need of a pass; nothing if it is only scored.
    fn needs_of(&self, observed: bool) -> Needs {
        if observed {
            self.needs()
        } else {
            Needs::default()
        }
    }

    /// Returns `true` if measures observe the pass, `false` if only its answers are scored.
    fn observes(&self, treated: bool) -> bool {
        !(treated && self.setup.plan.passes.only_score_treated)
    }

    /// Before the first condition, no measure keeps anything.
    fn no_baseline(&self) -> Vec<Option<MeasureData>> {
        self.measures.iter().map(|_| None).collect()
    }

    /// What is computed beside an untreated first pass.
    fn beside(&self, reference: &'a Reference) -> Beside<'a> {
        let model = self.opened();
        let tokens = self.prompt.ids.len();
        Beside {
            head_means: reference.answer_means().filter(|_| self.setup.attributes_heads(model, tokens)),
            hides: self.setup.hides(model, tokens),
            cuts: self.setup.plan.measures.contains(&MeasureName::Context) && !self.prompt.segments.is_empty(),
        }
    }

    /// Returns `true` if what is computed beside the first pass takes its keys and values.
    fn needs_prefix(&self, beside: Beside<'_>) -> bool {
        beside.head_means.is_some() || ((beside.hides || beside.cuts) && self.setup.shares_prefixes())
    }

    /// Adds to the first pass what it loses without heads and its scores with regions hidden, from the keys and values that it kept.
    fn add_beside(&self, beside: Beside<'_>, observed: &mut PassObservations, kept: Option<&Prefix>) -> Result<()> {
        if let Some((means, kept)) = beside.head_means.zip(kept) {
            observed.attributions = self.attributions(means, kept)?;
        }
        if beside.hides {
            let shared = kept.filter(|_| self.setup.shares_prefixes());
            observed.hidden = hidden_scores(self.opened(), self.prompt, shared)?;
        }
        if beside.cuts {
            observed.context = context_scores(self, kept)?;
        }
        Ok(())
    }

    /// Attributes the log-probability of each answer of the prompt to heads, from the keys and values of an untreated pass.
    fn attributions(&self, means: &[Vec<f32>], prefix: &Prefix) -> Result<Vec<HeadAttributions>> {
        let answers: Vec<Range<usize>> = self.prompt.queries.iter().map(|query| query.rows()).collect();
        let Some(first) = answers.iter().map(|rows| rows.start).min() else { return Ok(Vec::new()) };
        LastPass::new(self.transformer(), &self.prompt.ids, prefix, first)?.attributions(&answers, means)
    }

    /// Generates text from where the first answer of the prompt begins. `None` if the experiment does not generate.
    fn generation(&self, treated: Option<&ResolvedTreatment>, prefix: Option<&Prefix>) -> Result<Option<Generation>> {
        let Some(max_new) = self.setup.plan.passes.max_new else { return Ok(None) };
        let Self { prompt, .. } = *self;
        let model = self.opened();
        let until = StopConditions {
            max_new,
            eos: model.eos_ids(),
            // A line may end before other values than numbers are complete.
            numbers: if prompt.asks_for_numbers() { prompt.queries.len() } else { 0 },
            digits: prompt.queries.iter().map(|query| query.value.len()).min().unwrap_or(0),
            one_line: false,
        };
        let before = prompt.tokens_before_answer();
        generate(&model.transformer, model.tokenizer()?, before, &until, treated, prefix).map(Some)
    }

    /// The attention sinks of every head, from an extra pass over the prompt; none if no condition exempts them.
    fn exempt_sinks(&self) -> Result<BTreeMap<HeadPlace, Vec<usize>>> {
        if !self.setup.conditions.iter().any(Condition::exempts_sinks) {
            return Ok(BTreeMap::new());
        }
        let probe = SinkProbe::new(self.prompt.ids.len());
        let passed = pass(self.transformer(), self.prompt, Stream::new(&[&probe]), false)?;
        let found = passed.probe_results.into_iter().map(|result| {
            let collector = result.collector.into_collector::<SinkCollector>();
            (result.at, collector.sinks())
        });
        Ok(found.collect())
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

    /// The stream of one pass.
    fn stream<'s>(
        &self,
        probes: &'s [&'s dyn RowProbe],
        treated: Option<&'s ResolvedTreatment>,
        residual: &'s mut Option<ResidualCollector>,
        needs: Needs,
    ) -> Stream<'s> {
        let mut stream = Stream::new(probes).only(self.only).treated(treated);
        if needs.trace {
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
        let needs = self.needs_of(observed);
        let probes = self.row_probes(observed);
        let mut residual = needs.residual.then(ResidualCollector::default);
        let probes = probes.all();
        let stream = self.stream(&probes, None, &mut residual, needs);
        first_observed_row(self.transformer(), self.prompt, &stream, needs.predictions)
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
        let needs = self.needs_of(observed);
        let probes = self.row_probes(observed);
        let all = probes.all();
        let mut residual: Vec<Option<ResidualCollector>> =
            treated.iter().map(|_| needs.residual.then(ResidualCollector::default)).collect();
        let mut streams = Vec::new();
        for (treated, residual) in treated.iter().zip(&mut residual) {
            let stream = self.stream(&all, treated.as_ref(), residual, needs);
            streams.push(if keeping { stream.keeping() } else { stream });
        }
        let passed = match shared {
            Some(start) => continued_passes(self.transformer(), prompt, streams, start)?,
            None => {
                let passed =
                    streams.into_iter().map(|stream| pass(self.transformer(), prompt, stream, needs.predictions));
                passed.collect::<Result<_>>()?
            }
        };
        Ok(passed.into_iter().zip(residual).map(|(passed, residual)| probes.by_measure(passed, residual)).collect())
    }

    /// Concludes the measures of a pass over a prompt, itself or the corrupted one. The data that measures keep from the first
    /// condition become the baseline of the others.
    fn conclude(
        &self,
        condition: usize,
        prompt: &Prompt,
        observed: PassObservations,
        baseline: &mut [Option<MeasureData>],
        result: &mut PromptResult,
    ) -> Result<()> {
        let key = PassKey { model: self.model, condition };
        let model = self.opened();
        let PassObservations { passed, probe_results, residual, hidden, context, attributions, generation } = observed;
        let identity = identity(self.setup, self.planned, model, &self.setup.conditions[condition]);
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
                generation: generation.as_ref(),
                trace: passed.trace.as_ref(),
                hidden: &hidden,
                context: context.as_ref(),
                attributions: &attributions,
                probe_results,
                residual: residual.as_ref(),
                baseline: baseline[i].as_ref(),
            };
            self.measures[i].conclude(observed, &mut output)?;
            result.add(&identity, prompt, output.records);
            result.pooled.extend(output.pooled.map(|pooled| (i, key, pooled)));
            if condition == 0 {
                baseline[i] = output.kept;
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
        PassObservations {
            passed,
            probe_results,
            residual,
            hidden: Vec::new(),
            context: None,
            attributions: Vec::new(),
            generation: None,
        }
    }
}

/// The results of one pass, with those of the probes by measure.
struct PassObservations {
    passed: PassResult,
    probe_results: Vec<Vec<ProbeResult>>,
    residual: Option<ResidualCollector>,
    /// Scores with regions hidden; empty unless they are measured.
    hidden: Vec<HiddenScores>,
    /// What segments of the text give, in the untreated pass over a context.
    context: Option<ContextScores>,
    /// What each answer loses without a head; empty if heads are not attributed.
    attributions: Vec<HeadAttributions>,
    /// Text that follows the question under the same condition, if the experiment generates.
    generation: Option<Generation>,
}
