//! Roles of heads: scores that classify them by function.
//!
//! | score | rows | definition |
//! |---|---|---|
//! | retrieval | that predict the answer | how often the key with the largest weight is the needle's token that is copied (Wu et al. 2024) |
//! | query | of the question | mean share of the asked needle ("QRscore", 2025) |
//! | previous token | of repeated random tokens | mean share of the token before |
//! | duplicate token | of their second half | mean share of the same token before |
//! | induction | of their second half | mean share of the token after that (prefix matching, Olsson et al. 2022) |
//!
//! Shares are of the weights' magnitudes, because a head norm does not depend on their sign. Repeated random tokens take one
//! more pass for every prompt.

mod tables;

pub(crate) use tables::{by_role, role_number, ANSWER_HEADS, EVERY_HEAD, ROLES, SINKS, STRONGEST};

use super::target::{share, RowMean};
use super::{of_head, rounded, Measure, MeasureOutput, ObservedPass};
use crate::results::record::Measurement;
use anyhow::Result;
use engine::attention::{AttentionRow, ProbeResult, RowCollector, RowProbe};
use names::metric::{Metric, DUPLICATE_TOKEN, INDUCTION, PREVIOUS_TOKEN, QUERY_SCORE, RETRIEVAL_SCORE};
use names::HeadPlace;
use stats::Rng;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use text::Prompt;

/// Number of random tokens that are repeated once; fewer if the model's context is shorter than twice that.
const PERIOD: usize = 64;

const ON_PROMPTS: [Metric; 2] = [RETRIEVAL_SCORE, QUERY_SCORE];

const ON_REPEATS: [Metric; 3] = [PREVIOUS_TOKEN, DUPLICATE_TOKEN, INDUCTION];

/// Role scores of every head.
pub(crate) struct RolesMeasure;

impl Measure for RolesMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RetrievalProbe::new(prompt.ids.clone(), answerable_questions(prompt)))]
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut heads = BTreeSet::new();
        for result in std::mem::take(&mut pass.probe_results) {
            let at = result.at;
            heads.insert(at);
            let collector = result.collector.into_collector::<RetrievalCollector>();
            for (query, scores) in collector.scores.iter().enumerate() {
                output.extend(Some(query), pass.prompt.rows_name(), records(at, &ON_PROMPTS, scores));
            }
        }
        // This pass is untreated, so it runs only for the baseline.
        if pass.key.condition == 0 {
            for result in repeats(&pass, &heads)? {
                let at = result.at;
                let scores = result.collector.into_collector::<RepeatCollector>().scores;
                output.extend(None, "repeats", records(at, &ON_REPEATS, &scores));
            }
        }
        Ok(())
    }
}

/// One question, with the positions of its answer and the rows that ask and predict it.
#[derive(Clone, Debug, PartialEq)]
struct QuestionSpans {
    /// The needle's sentence.
    needle: Range<usize>,
    /// Rows of the question.
    question: Range<usize>,
    /// Rows that predict the answer.
    answer: Range<usize>,
}

/// The answerable questions of a prompt. The question's rows reach from the end of the haystack to the first
/// answer.
fn answerable_questions(prompt: &Prompt) -> Vec<QuestionSpans> {
    let Some(first) = prompt.queries.first() else { return Vec::new() };
    let question = prompt.haystack.end..first.rows().start;
    let mut questions = Vec::new();
    for query in prompt.queries.iter().filter(|query| query.is_answerable()) {
        questions.push(QuestionSpans {
            needle: query.needle.clone(),
            question: question.clone(),
            answer: query.rows(),
        });
    }
    questions
}

/// Runs a pass over random tokens, repeated once, after the begin-of-sequence token if prompts have one.
fn repeats(pass: &ObservedPass<'_>, heads: &BTreeSet<HeadPlace>) -> Result<Vec<ProbeResult>> {
    let config = &pass.model.config;
    let first = usize::from(pass.prompt.has_bos);
    let period = PERIOD.min((config.max_ctx_tok - first) / 2);
    let mut rng = Rng::new(pass.identity.seed.unwrap_or(pass.sample), "repeated tokens");
    let block: Vec<u32> = (0..period).map(|_| rng.below(config.vocab) as u32).collect();
    let ids = [&pass.prompt.ids[..first], &block, &block].concat();
    pass.over_tokens(ids, &RepeatProbe { first, period }, heads)
}

/// The scores of a head that have rows.
fn records<const N: usize>(at: HeadPlace, metrics: &[Metric; N], scores: &[RowMean; N]) -> Vec<Measurement> {
    let mut records = Vec::new();
    for (metric, score) in metrics.iter().zip(scores) {
        records.extend(score.mean().map(|mean| of_head(at, rounded(metric, mean, score.rows))));
    }
    records
}

/// The key of largest magnitude, the first of equals.
fn largest_key(weights: &[f32]) -> Option<usize> {
    let mut largest: Option<(usize, f32)> = None;
    for (key, weight) in weights.iter().enumerate() {
        match largest {
            Some((_, most)) if weight.abs() <= most => {}
            _ => largest = Some((key, weight.abs())),
        }
    }
    largest.map(|(key, _)| key)
}

/// Observes the rows that ask and answer the questions of a prompt.
struct RetrievalProbe {
    /// Token ids, and the questions.
    plan: Arc<(Vec<u32>, Vec<QuestionSpans>)>,
}

impl RetrievalProbe {
    /// Creates a probe for the token ids of a prompt and its questions.
    fn new(ids: Vec<u32>, questions: Vec<QuestionSpans>) -> Self {
        Self { plan: Arc::new((ids, questions)) }
    }
}

impl RowProbe for RetrievalProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.plan.1.iter().any(|spans| spans.question.contains(&query) || spans.answer.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(RetrievalCollector {
            plan: Arc::clone(&self.plan),
            scores: vec![Default::default(); self.plan.1.len()],
        })
    }
}

/// State of the probe for one head.
struct RetrievalCollector {
    plan: Arc<(Vec<u32>, Vec<QuestionSpans>)>,
    /// Retrieval and query scores of each question.
    scores: Vec<[RowMean; 2]>,
}

impl RowCollector for RetrievalCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let (ids, questions) = &*self.plan;
        for (spans, [retrieval, query]) in questions.iter().zip(&mut self.scores) {
            if spans.answer.contains(&row.query) {
                retrieval.add(largest_key(row.effective).map(|key| {
                    let copies = spans.needle.contains(&key) && ids.get(row.query + 1) == Some(&ids[key]);
                    f64::from(u8::from(copies))
                }));
            }
            if spans.question.contains(&row.query) {
                query.add(share(row.effective, spans.needle.clone()));
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        let pairs = self.scores.iter_mut().flatten().zip(later.scores.into_iter().flatten());
        pairs.for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

/// Observes repeated tokens: any `first` tokens, then `period` tokens, then the same `period` tokens again.
#[derive(Clone, Copy, Debug)]
struct RepeatProbe {
    /// Tokens before the first copy.
    first: usize,
    /// Number of tokens in a copy.
    period: usize,
}

impl RowProbe for RepeatProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        query >= self.first.max(1) && query < self.first + 2 * self.period
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(RepeatCollector { probe: *self, scores: Default::default() })
    }
}

/// State of the probe for one head.
struct RepeatCollector {
    probe: RepeatProbe,
    /// Previous token, duplicate token, induction.
    scores: [RowMean; 3],
}

impl RowCollector for RepeatCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let RepeatProbe { first, period } = self.probe;
        let [previous, duplicate, induction] = &mut self.scores;
        previous.add(share(row.effective, row.query - 1..row.query));
        if row.query >= first + period {
            let earlier = row.query - period;
            duplicate.add(share(row.effective, earlier..earlier + 1));
            induction.add(share(row.effective, earlier + 1..earlier + 2));
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.scores.iter_mut().zip(later.scores).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    /// A row of `keys` keys with all its weight on one.
    fn pointing(keys: usize, at: usize) -> TestRow {
        TestRow::one(&(0..keys).map(|key| f32::from(u8::from(key == at))).collect::<Vec<_>>())
    }

    #[test]
    fn only_heads_that_copy_the_needle_score_retrieval() {
        // Tokens 0..8: the needle has values 5 6 at 2 and 3; the answer repeats them at 6 and 7, so rows 5 and 6
        // predict it.
        let ids = vec![0, 9, 5, 6, 1, 2, 5, 6];
        let asked = QuestionSpans { needle: 1..4, question: 4..5, answer: 5..7 };
        let score = |targets: [usize; 8]| {
            let rows: Vec<TestRow> = targets.iter().enumerate().map(|(query, &at)| pointing(query + 1, at)).collect();
            let probe = RetrievalProbe::new(ids.clone(), vec![asked.clone()]);
            watch::<RetrievalCollector>(&probe, &rows, 3).scores[0].map(|score| score.mean())
        };
        assert_eq!(score([0, 0, 0, 0, 1, 2, 3, 0]), [Some(1.0), Some(1.0)]);
        assert_eq!(score([0, 0, 0, 0, 0, 2, 2, 0]), [Some(0.5), Some(0.0)], "row 6 predicts the token of key 3");
        assert_eq!(score([0, 0, 0, 0, 0, 5, 6, 0]), [Some(0.0), Some(0.0)]);
    }

    #[test]
    fn heads_score_only_for_their_own_function() {
        let probe = RepeatProbe { first: 1, period: 4 };
        let score = |look: fn(usize) -> usize| {
            let rows: Vec<TestRow> = (0..9).map(|query| pointing(query + 1, look(query))).collect();
            watch::<RepeatCollector>(&probe, &rows, 2).scores.map(|score| score.mean().unwrap())
        };
        assert_eq!(score(|query| query.saturating_sub(1)), [1.0, 0.0, 0.0]);
        // In row 1, the token before is the only other key.
        assert_eq!(score(|query| query.saturating_sub(4)), [0.125, 1.0, 0.0], "the same token");
        assert_eq!(score(|query| query.saturating_sub(3)), [0.125, 0.0, 1.0], "the one after it");
    }

    proptest! {
        #[test]
        fn scores_are_shares_and_do_not_depend_on_blocks(tokens in 4_usize..40, block in 1_usize..40, seed: u64) {
            let rows = random_rows(tokens, seed);
            let probe = RepeatProbe { first: 0, period: tokens / 2 };
            let whole = watch::<RepeatCollector>(&probe, &rows, tokens).scores;
            let merged = watch::<RepeatCollector>(&probe, &rows, block).scores;
            for (a, b) in whole.iter().zip(&merged) {
                prop_assert_eq!(a.rows, b.rows);
                let a = a.mean().unwrap();
                let b = b.mean().unwrap();
                prop_assert!((a - b).abs() < 1e-9 && (0.0..=1.0 + 1e-6).contains(&a));
            }
        }
    }
}
