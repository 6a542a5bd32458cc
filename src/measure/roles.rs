//! What each head is for: retrieval and query scores on the prompt, and previous-token, duplicate-token and induction scores
//! on repeated random tokens, which pass through the model once more for every prompt.

use super::answer::fraction;
use super::{Findings, Measure, Seen};
use crate::attention::{ProbeResult, RowProbe, Stream};
use crate::probe::{QuestionSpans, RepeatProbe, RepeatSink, RetrievalProbe, RetrievalSink, Score, VIEWS};
use crate::prompt::Prompt;
use crate::record::Found;
use crate::rng::Rng;
use anyhow::Result;
use std::collections::BTreeSet;

/// Random tokens that are repeated once, at most: half of what the model takes.
const PERIOD: usize = 64;

/// The names of a score: of the mixture and, where there are two maps, of each.
type Names = [&'static str; VIEWS];

const ON_PROMPTS: [Names; 2] = [
    ["retrieval_score", "retrieval_score_a1", "retrieval_score_a2"],
    ["query_score", "query_score_a1", "query_score_a2"],
];

const ON_REPEATS: [Names; 3] = [
    ["previous_token", "previous_token_a1", "previous_token_a2"],
    ["duplicate_token", "duplicate_token_a1", "duplicate_token_a2"],
    ["induction", "induction_a1", "induction_a2"],
];

/// Scores of every head.
pub struct RolesMeasure;

impl Measure for RolesMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RetrievalProbe::new(prompt.ids.clone(), asked(prompt)))]
    }

    fn head_records(&self) -> u64 {
        15
    }

    fn conclude(&self, mut seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let probe_results = std::mem::take(&mut seen.probe_results);
        let heads: BTreeSet<_> = probe_results.iter().map(|s| (s.layer, s.head)).collect();
        for result in probe_results {
            let (layer, head) = (result.layer, result.head);
            let sink = result.sink.into_sink::<RetrievalSink>();
            for (query, scores) in sink.found.iter().enumerate() {
                let mut push = |found| findings.push(Some(query), seen.prompt.rows_name(), found);
                push_scores((layer, head), &ON_PROMPTS, scores, &mut push);
            }
        }
        // What is done to the prompt's attention is not done to this pass: it is the untreated model's.
        if seen.place.condition == 0 {
            for result in repeats(&seen)?.into_iter().filter(|s| heads.contains(&(s.layer, s.head))) {
                let at = (result.layer, result.head);
                let sink = result.sink.into_sink::<RepeatSink>();
                push_scores(at, &ON_REPEATS, &sink.found, |found| findings.push(None, "repeats", found));
            }
        }
        Ok(())
    }
}

/// The questions of a prompt; the rows that ask reach from the end of the haystack to where the first answer begins.
fn asked(prompt: &Prompt) -> Vec<QuestionSpans> {
    let Some(first) = prompt.queries.first() else { return Vec::new() };
    let question = prompt.haystack.end..first.rows().start;
    let of = |query: &crate::prompt::Query| QuestionSpans {
        needle: query.needle.clone(),
        question: question.clone(),
        answer: query.rows(),
    };
    prompt.queries.iter().filter(|query| query.is_answerable()).map(of).collect()
}

/// A pass over random tokens, repeated once, after the begin-of-sequence token if prompts have one.
fn repeats(seen: &Seen<'_>) -> Result<Vec<ProbeResult>> {
    let config = &seen.model.config;
    let first = usize::from(seen.prompt.has_bos);
    let period = PERIOD.min((config.max_ctx_tok - first) / 2);
    let mut rng = Rng::new(seen.identity.seed.unwrap_or(seen.sample), "repeated tokens");
    let block: Vec<u32> = (0..period).map(|_| rng.below(config.vocab) as u32).collect();
    let ids = [&seen.prompt.ids[..first], &block, &block].concat();
    let probe = RepeatProbe { first, period };
    let probes: [&dyn RowProbe; 1] = [&probe];
    let mut stream = Stream::new(&probes);
    seen.model.hidden(&[ids], &mut stream)?;
    Ok(stream.probe_results)
}

/// Scores by name and view; those of single maps are there if they have rows.
fn push_scores<const N: usize>(
    (layer, head): (usize, usize),
    names: &[Names; N],
    scores: &[[Score; N]; VIEWS],
    mut push: impl FnMut(Found),
) {
    for (i, names) in names.iter().enumerate() {
        for (name, scores) in names.iter().zip(scores) {
            if let Some(mean) = scores[i].mean() {
                push(Found { layer: Some(layer), head: Some(head), ..fraction(name, None, mean, scores[i].rows) });
            }
        }
    }
}
