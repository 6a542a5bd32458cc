//! Roles of heads: retrieval and query scores on the prompt, and previous-token, duplicate-token and induction scores
//! on repeated random tokens, in one more pass for every prompt.

use super::{rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::{ProbeResult, RowProbe, Stream};
use crate::base::rng::Rng;
use crate::measures::probe::{QuestionSpans, RepeatCollector, RepeatProbe, RetrievalCollector, RetrievalProbe, Score};
use crate::prompts::Prompt;
use crate::results::metric::{Metric, DUPLICATE_TOKEN, INDUCTION, PREVIOUS_TOKEN, QUERY_SCORE, RETRIEVAL_SCORE};
use crate::results::record::Measurement;
use anyhow::Result;
use std::collections::BTreeSet;

/// Number of random tokens that are repeated once; fewer if the model's context is shorter than twice that.
const PERIOD: usize = 64;

const ON_PROMPTS: [Metric; 2] = [RETRIEVAL_SCORE, QUERY_SCORE];

const ON_REPEATS: [Metric; 3] = [PREVIOUS_TOKEN, DUPLICATE_TOKEN, INDUCTION];

/// Role scores of every head.
pub struct RolesMeasure;

impl Measure for RolesMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RetrievalProbe::new(prompt.ids.clone(), asked(prompt)))]
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let probe_results = std::mem::take(&mut pass.probe_results);
        let heads: BTreeSet<_> = probe_results.iter().map(|s| (s.layer, s.head)).collect();
        for result in probe_results {
            let (layer, head) = (result.layer, result.head);
            let collector = result.collector.into_collector::<RetrievalCollector>();
            for (query, scores) in collector.found.iter().enumerate() {
                let mut push = |found| output.push(Some(query), pass.prompt.rows_name(), found);
                push_scores((layer, head), &ON_PROMPTS, scores, &mut push);
            }
        }
        // This pass is untreated, so it runs only for the baseline.
        if pass.key.condition == 0 {
            for result in repeats(&pass)?.into_iter().filter(|s| heads.contains(&(s.layer, s.head))) {
                let at = (result.layer, result.head);
                let collector = result.collector.into_collector::<RepeatCollector>();
                push_scores(at, &ON_REPEATS, &collector.found, |found| output.push(None, "repeats", found));
            }
        }
        Ok(())
    }
}

/// Returns the answerable questions of a prompt. The question's rows reach from the end of the haystack to the first
/// answer.
fn asked(prompt: &Prompt) -> Vec<QuestionSpans> {
    let Some(first) = prompt.queries.first() else { return Vec::new() };
    let question = prompt.haystack.end..first.rows().start;
    let of = |query: &crate::prompts::Query| QuestionSpans {
        needle: query.needle.clone(),
        question: question.clone(),
        answer: query.rows(),
    };
    prompt.queries.iter().filter(|query| query.is_answerable()).map(of).collect()
}

/// Runs a pass over random tokens, repeated once, after the begin-of-sequence token if prompts have one.
fn repeats(pass: &ObservedPass<'_>) -> Result<Vec<ProbeResult>> {
    let config = &pass.model.config;
    let first = usize::from(pass.prompt.has_bos);
    let period = PERIOD.min((config.max_ctx_tok - first) / 2);
    let mut rng = Rng::new(pass.identity.seed.unwrap_or(pass.sample), "repeated tokens");
    let block: Vec<u32> = (0..period).map(|_| rng.below(config.vocab) as u32).collect();
    let ids = [&pass.prompt.ids[..first], &block, &block].concat();
    let probe = RepeatProbe { first, period };
    let probes: [&dyn RowProbe; 1] = [&probe];
    let mut stream = Stream::new(&probes);
    pass.model.hidden(&[ids], &mut stream)?;
    Ok(stream.probe_results)
}

/// Pushes the scores that have rows.
fn push_scores<const N: usize>(
    (layer, head): (usize, usize),
    metrics: &[Metric; N],
    scores: &[Score; N],
    mut push: impl FnMut(Measurement),
) {
    for (metric, score) in metrics.iter().zip(scores) {
        if let Some(mean) = score.mean() {
            let found = rounded(metric, None, mean, score.rows);
            push(Measurement { layer: Some(layer), head: Some(head), ..found });
        }
    }
}
