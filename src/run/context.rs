//! What segments of a text give the answer: passes over the text without them. Each begins at its segment, with the keys and values of
//! the pass over the whole text before.

use super::prompt::PromptRun;
use super::starts::most_at_once;
use super::Setup;
use crate::measures::{AnswerScore, ContextScores, GroupScores, SegmentScores, NOTABLE_NATS};
use anyhow::{ensure, Result};
use engine::attention::{KeyRemoval, Prefix, ResolvedTreatment, Stream};
use engine::model::generate::{generate, StopConditions};
use engine::model::open::Model;
use engine::model::pass::{continued_passes, first_observed_row, first_row, pass, PassResult, QueryScore, SharedStart};
use names::condition::Removal;
use names::{LayersAndHeads, SegmentKind};
use stats::Rng;
use std::ops::Range;
use text::{Context, ContextSpec, Grid, Haystack, Kept, PlannedPrompt, Prompt, PromptSpec, Segment, Tokenizer};

/// Segments up to which each is taken out; of more, groups first.
const MOST_SEGMENTS: usize = 60;

/// Groups that are opened because the answer is likeliest behind them alone.
const LARGEST_ALONE: usize = 3;

/// Sentences that say nothing of the answer, put at as many places.
const INSERTED: usize = 6;

/// Most tokens of an answer of the model's own.
const MOST_ANSWER_TOK: usize = 32;

/// The context that a prompt is of.
fn context_of<'a>(setup: &'a Setup, planned: &PlannedPrompt) -> Option<(&'a Context, ContextSpec)> {
    match planned.spec {
        PromptSpec::Context(spec) => Some((&setup.sources.contexts[spec.index], spec)),
        _ => None,
    }
}

/// The prompt as a model is scored on it: where nobody gave an answer to a context, with the model's own.
///
/// # Errors
/// If the model answers nothing.
pub(super) fn with_answer(setup: &Setup, model: &Model, planned: &PlannedPrompt, prompt: Prompt) -> Result<Prompt> {
    let Some((context, _)) = context_of(setup, planned).filter(|(context, _)| context.answers.is_empty()) else {
        return Ok(prompt);
    };
    let said = own_answer(model, &prompt, None)?;
    ensure!(!said.is_empty(), "{}: the model answers nothing; give the right answer", context.id);
    let all: Vec<usize> = (0..context.segments.len()).collect();
    context.prompt(Kept { segments: &all, answer: &said }, model.tokenizer()?)
}

/// The most likely text behind the question, up to the end of its line.
fn own_answer(model: &Model, prompt: &Prompt, prefix: Option<&Prefix>) -> Result<String> {
    let until =
        StopConditions { max_new: MOST_ANSWER_TOK, eos: model.eos_ids(), numbers: 0, digits: 0, one_line: true };
    let before = prompt.tokens_before_answer();
    let said = generate(&model.transformer, model.tokenizer()?, before, &until, None, prefix)?.text;
    Ok(said.trim_start().lines().next().unwrap_or_default().trim().to_owned())
}

/// Scores answers behind parts of a text.
struct Scorer<'a> {
    model: &'a Model,
    tokenizer: &'a Tokenizer,
    context: &'a Context,
    /// The right answers.
    answers: Vec<&'a str>,
    /// `true` if passes share keys and values.
    shares: bool,
}

impl<'a> Scorer<'a> {
    /// Scores the answers behind some segments. `known` has the keys and values of a pass over a text that begins alike. Returns also
    /// those of this text, if they are to be kept.
    fn score(&self, kept: &[usize], known: Option<&Prefix>, keeping: bool) -> Result<(AnswerScore, Option<Prefix>)> {
        let targets = self.targets();
        let mut own: Option<Prefix> = None;
        let mut scores = Vec::new();
        for (place, &answer) in targets.iter().enumerate() {
            let prompt = self.context.prompt(Kept { segments: kept, answer }, self.tokenizer)?;
            let keeps = place == 0 && (keeping || targets.len() > 1);
            let mut passed = self.passed(&prompt, own.as_ref().or(known), keeps)?;
            own = passed.prefix.take().or(own);
            scores.push(passed.queries.remove(0));
        }
        Ok((self.joined(&scores), own.filter(|_| keeping)))
    }

    /// One pass over a prompt.
    fn passed(&self, prompt: &Prompt, known: Option<&Prefix>, keeping: bool) -> Result<PassResult> {
        let model = &self.model.transformer;
        let keeping = keeping && self.shares;
        let stream = if keeping { Stream::new(&[]).keeping() } else { Stream::new(&[]) };
        let observed = first_observed_row(model, prompt, &stream, false);
        let row = |known: &Prefix| first_row(observed, known.common_tokens(&prompt.ids), None);
        match known.map(|known| (known, row(known))).filter(|(_, row)| *row > 0) {
            Some((known, row)) => {
                Ok(continued_passes(model, prompt, vec![stream], SharedStart::at(known, row))?.remove(0))
            }
            None => pass(model, prompt, stream, false),
        }
    }

    /// The scores of all right answers, and of the wrong one behind them, as one.
    fn joined(&self, scores: &[QueryScore]) -> AnswerScore {
        let (right, wrong) = scores.split_at(self.answers.len());
        let log_prob_nats = log_sum(right.iter().map(|score| score.log_prob_nats));
        AnswerScore {
            log_prob_nats,
            contrast_nats: log_prob_nats - wrong.first().map_or(0.0, |wrong| wrong.log_prob_nats),
            hit: right.iter().any(|score| score.hit),
        }
    }

    /// What the answers lose if the rows of question and answer do not see a segment: for each of some segments, in nats.
    fn hidden(
        &self,
        segments: &[usize],
        all: &[usize],
        prefix: Option<&Prefix>,
        whole: AnswerScore,
    ) -> Result<Vec<f64>> {
        let mut scores: Vec<Vec<QueryScore>> = vec![Vec::new(); segments.len()];
        for answer in self.targets() {
            let prompt = self.context.prompt(Kept { segments: all, answer }, self.tokenizer)?;
            let start = prompt.haystack.end;
            let treated: Vec<ResolvedTreatment> =
                segments.iter().map(|&index| without_keys(prompt.segments[index].clone(), start)).collect();
            let known = prefix.map(|prefix| (prefix, start.min(prefix.common_tokens(&prompt.ids))));
            for (scores, score) in scores.iter_mut().zip(self.treated(&prompt, &treated, known)?) {
                scores.push(score);
            }
        }
        Ok(scores.iter().map(|scores| whole.contrast_nats - self.joined(scores).contrast_nats).collect())
    }

    /// One score for each treatment of a prompt, with the keys and values of the rows before one, or in whole passes.
    fn treated(
        &self,
        prompt: &Prompt,
        treated: &[ResolvedTreatment],
        known: Option<(&Prefix, usize)>,
    ) -> Result<Vec<QueryScore>> {
        let model = &self.model.transformer;
        let stream = |treated| Stream::new(&[]).treated(Some(treated));
        let mut passed = Vec::new();
        match known.filter(|(_, row)| self.shares && *row > 0) {
            Some((prefix, row)) => {
                for batch in treated.chunks(most_at_once(prompt.ids.len(), row)) {
                    let streams = batch.iter().map(stream).collect();
                    passed.extend(continued_passes(model, prompt, streams, SharedStart::at(prefix, row))?);
                }
            }
            None => {
                for treated in treated {
                    passed.push(pass(model, prompt, stream(treated), false)?);
                }
            }
        }
        Ok(passed.into_iter().map(|mut passed| passed.queries.remove(0)).collect())
    }

    /// The right answers, and the wrong one behind them.
    fn targets(&self) -> Vec<&'a str> {
        self.answers.iter().copied().chain(self.context.wrong.as_deref()).collect()
    }
}

/// Keys that no row sees from a row on.
fn without_keys(keys: Range<usize>, from: usize) -> ResolvedTreatment {
    let removal = KeyRemoval {
        how: Removal::Mask,
        of: LayersAndHeads::default(),
        rows: from..usize::MAX,
        keys: vec![keys.start.max(1)..keys.end],
    };
    ResolvedTreatment { removed: vec![removal], ..ResolvedTreatment::default() }
}

/// log Σ exp x.
fn log_sum(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = numbers.clone().fold(f64::NEG_INFINITY, f64::max);
    most + numbers.map(|x| (x - most).exp()).sum::<f64>().ln()
}

/// What a prompt is measured with besides its pass, if it is one of a context: `prefix` has its keys and values.
///
/// # Errors
/// If a pass fails.
pub(super) fn context_scores(run: &PromptRun<'_>, prefix: Option<&Prefix>) -> Result<Option<ContextScores>> {
    let Some((context, spec)) = context_of(run.setup, run.planned) else { return Ok(None) };
    let model = &run.setup.models[run.model];
    let own = run.prompt.queries[0].value.as_str();
    let answers =
        if context.answers.is_empty() { vec![own] } else { context.answers.iter().map(String::as_str).collect() };
    let shares = run.setup.shares_prefixes();
    let scorer = Scorer { model, tokenizer: model.tokenizer()?, context, answers, shares };
    let Grid::Context(flags) = &run.setup.grid else { return Ok(None) };
    let all: Vec<usize> = (0..context.segments.len()).collect();
    let is_one = run.setup.sources.contexts.len() == 1;
    let seed = run.planned.seed(run.setup.grid.seed());
    let (whole, kept) = scorer.score(&all, prefix, prefix.is_none())?;
    let prefix = prefix.or(kept.as_ref());
    let (nothing, head) = scorer.score(&[], prefix, true)?;
    let ends = Ends { whole, prefix, nothing, head: head.as_ref() };
    let taken = if all.len() <= MOST_SEGMENTS || flags.exhaustive {
        Taken { segments: all.clone(), groups: Vec::new() }
    } else {
        opened(&scorer, &all, &ends, seed)?
    };
    let asked = Asked { all, taken, orders: spec.orders, seed, inserts: is_one };
    let scores = measured(&scorer, &asked, &ends)?;
    let said = if context.answers.is_empty() { own.to_owned() } else { own_answer(model, run.prompt, prefix)? };
    Ok(Some(ContextScores { said, ..scores }))
}

/// The text with all of its segments and with none, and the keys and values of both.
struct Ends<'a> {
    whole: AnswerScore,
    prefix: Option<&'a Prefix>,
    nothing: AnswerScore,
    head: Option<&'a Prefix>,
}

/// The segments that are taken out one by one, and the groups that they were chosen from.
struct Taken {
    segments: Vec<usize>,
    groups: Vec<GroupScores>,
}

/// What is asked of a context.
struct Asked {
    all: Vec<usize>,
    taken: Taken,
    orders: usize,
    seed: u64,
    /// `true` if other sentences are inserted.
    inserts: bool,
}

/// Takes out groups of segments, and opens those that move the answer or are largest alone, and one other as a check.
fn opened(scorer: &Scorer<'_>, all: &[usize], ends: &Ends<'_>, seed: u64) -> Result<Taken> {
    let Ends { whole, prefix, nothing, head } = *ends;
    let size = (all.len() as f64).sqrt().ceil() as usize;
    let mut groups = Vec::new();
    let mut alone = Vec::new();
    for group in all.chunks(size) {
        let rest: Vec<usize> = all.iter().copied().filter(|index| !group.contains(index)).collect();
        let without = scorer.score(&rest, prefix, false)?.0;
        let only = scorer.score(group, head, false)?.0;
        groups.push(GroupScores {
            segments: group[0]..group[group.len() - 1] + 1,
            gives_nats: whole.contrast_nats - without.contrast_nats,
        });
        alone.push(only.contrast_nats - nothing.contrast_nats);
    }
    let mut largest: Vec<usize> = (0..groups.len()).collect();
    largest.sort_by(|&a, &b| alone[b].total_cmp(&alone[a]));
    largest.truncate(LARGEST_ALONE);
    let is_opened = |i: usize| groups[i].gives_nats.abs() >= NOTABLE_NATS || largest.contains(&i);
    let (mut open, rest): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(|&i| is_opened(i));
    open.extend(Rng::new(seed, "a group to check").sample(&rest, 1.min(rest.len())));
    open.sort_unstable();
    let segments = open.iter().flat_map(|&i| groups[i].segments.clone()).collect();
    Ok(Taken { segments, groups })
}

fn measured(scorer: &Scorer<'_>, asked: &Asked, ends: &Ends<'_>) -> Result<ContextScores> {
    let Ends { whole, prefix, nothing, head } = *ends;
    let Asked { all, taken, seed, inserts, .. } = asked;
    let context = scorer.context;
    let mut segments: Vec<Option<SegmentScores>> = vec![None; all.len()];
    // Without the segment that gives least in the text as it stands.
    let mut least: Option<(f64, AnswerScore)> = None;
    for &index in &taken.segments {
        let without = scorer.score(&but(all, index), prefix, false)?.0;
        let gives = whole.contrast_nats - without.contrast_nats;
        if gives < least.map_or(0.0, |(least, _)| least) {
            least = Some((gives, without));
        }
        let alone = scorer.score(&[index], head, false)?.0;
        segments[index] = Some(SegmentScores {
            gives_nats: vec![gives],
            gives_log_odds: whole.log_odds() - without.log_odds(),
            alone_nats: alone.contrast_nats - nothing.contrast_nats,
            hidden_nats: None,
        });
    }
    add_orders(scorer, asked, &mut segments, head)?;
    let hidden = scorer.hidden(&taken.segments, all, prefix, whole)?;
    for (&index, hidden) in taken.segments.iter().zip(hidden) {
        if let Some(segment) = &mut segments[index] {
            segment.hidden_nats = Some(hidden);
        }
    }
    let harmful: Vec<usize> = (0..all.len())
        .filter(|&index| segments[index].as_ref().is_some_and(|segment| segment.gives() <= -NOTABLE_NATS))
        .collect();
    let rest: Vec<usize> = all.iter().copied().filter(|index| !harmful.contains(index)).collect();
    let score = |kept: &[usize]| scorer.score(kept, prefix, false).map(|(score, _)| score);
    let right = context.of_kind(SegmentKind::Right);
    Ok(ContextScores {
        kinds: context.segments.iter().map(|segment| segment.kind).collect(),
        without_worst: least.map(|(_, without)| without),
        without_harmful: (!harmful.is_empty()).then(|| score(&rest)).transpose()?,
        only_right: (!right.is_empty() && right.len() < all.len()).then(|| score(&right)).transpose()?,
        inserted_nats: if *inserts { inserted(scorer, all, prefix, whole, *seed)? } else { Vec::new() },
        groups: taken.groups.clone(),
        segments,
        whole,
        nothing,
        said: String::new(),
    })
}

/// All but one.
fn but(all: &[usize], index: usize) -> Vec<usize> {
    all.iter().copied().filter(|&other| other != index).collect()
}

/// Takes segments out of the text in further orders, drawn at random.
fn add_orders(
    scorer: &Scorer<'_>,
    asked: &Asked,
    segments: &mut [Option<SegmentScores>],
    head: Option<&Prefix>,
) -> Result<()> {
    let Asked { all, taken, orders, seed, .. } = asked;
    let mut rng = Rng::new(*seed, "orders of passages");
    for _ in 1..*orders {
        let mut order = all.clone();
        rng.shuffle(&mut order);
        let (whole, prefix) = scorer.score(&order, head, true)?;
        for &index in &taken.segments {
            let without = scorer.score(&but(&order, index), prefix.as_ref(), false)?.0;
            if let Some(segment) = &mut segments[index] {
                segment.gives_nats.push(whole.contrast_nats - without.contrast_nats);
                segment.gives_log_odds += whole.log_odds() - without.log_odds();
            }
        }
    }
    for segment in segments.iter_mut().flatten() {
        segment.gives_log_odds /= *orders as f64;
    }
    Ok(())
}

/// What sentences of other prose change, put at places spread over the text.
fn inserted(
    scorer: &Scorer<'_>,
    all: &[usize],
    prefix: Option<&Prefix>,
    whole: AnswerScore,
    seed: u64,
) -> Result<Vec<f64>> {
    let mut changes = Vec::new();
    let sentences = Haystack::Embedded.sentences(Rng::new(seed, "inserted sentences"));
    for (number, sentence) in sentences.take(INSERTED).enumerate() {
        let mut context = scorer.context.clone();
        let own = context.segments.len();
        context.segments.push(Segment { before: " ".to_owned(), text: sentence.text, kind: SegmentKind::Unknown });
        let mut order = all.to_vec();
        order.insert((number + 1) * all.len() / (INSERTED + 1), own);
        let scorer = Scorer { context: &context, answers: scorer.answers.clone(), ..*scorer };
        let with = scorer.score(&order, prefix, false)?.0;
        changes.push(with.contrast_nats - whole.contrast_nats);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_answers_are_as_likely_as_their_probabilities_together() {
        let logs = [0.2_f64.ln(), 0.3_f64.ln()];
        assert!((log_sum(logs.into_iter()) - 0.5_f64.ln()).abs() < 1e-12);
        assert_eq!(log_sum([-3.0].into_iter()), -3.0);
        assert!(log_sum([-1000.0, -1001.0].into_iter()).is_finite());
    }

    #[test]
    fn no_row_sees_hidden_keys_and_the_first_token_is_never_one() {
        let treated = without_keys(0..5, 9);
        assert_eq!((&treated.removed[0].keys[..], treated.removed[0].rows.start), (&[1..5][..], 9));
    }
}
