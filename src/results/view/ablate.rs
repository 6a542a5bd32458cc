//! Costs of noise and heads: conditions against the untreated passes, on the same prompts.

use super::place_columns;
use crate::attention::Removal;
use crate::results::difference::correct;
use crate::results::metric::{Kind, Metric, ACCURACY, ANSWER_LOG_PROB, ATTRIBUTION};
use crate::results::pair::{on_shared_prompts, PromptNumbers};
use crate::results::record::UNTREATED;
use crate::results::table::{basis, numbers, words, Cell, Table, TableRows};
use crate::results::{ConditionFacts, Difference, Estimate, Frame, Pick, Purpose, Setting, Verdict};
use crate::stats::{
    correlation_of_points, pearson, spearman, test_ratio, Correlation, Interval, CORRELATION_RESAMPLES,
};

/// The change under a condition, or under several of one kind, in one model and setting.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) model: &'a str,
    pub(crate) setting: Setting,
    /// The condition; of draws of random heads, the first.
    pub(crate) condition: &'a ConditionFacts,
    /// Number of conditions that are averaged: the draws of random heads.
    pub(crate) draws: usize,
    /// Change of the accuracy, as a fraction.
    pub(crate) exact: Difference,
    /// Change of the answer's log-probability, in nats.
    pub(crate) log_prob_nats: Difference,
    /// The change that attribution to the removed regions expects, in nats.
    expected_nats: Option<Estimate>,
}

/// A number of heads taken out: the best, and others of the same layers.
#[derive(Clone, Debug)]
pub(crate) struct HeadsOut<'a> {
    pub(crate) n: usize,
    pub(crate) by: &'static str,
    pub(crate) best: Change<'a>,
    /// `None` without draws.
    pub(crate) random: Option<Change<'a>>,
    /// Log-probability without the best heads less that without random ones, in nats.
    pub(crate) best_less_random: Option<Difference>,
}

/// Returns the changes under conditions that are no rankings of heads, setting by setting and model by model.
pub(crate) fn condition_changes(frame: &Frame) -> Vec<Change<'_>> {
    let plain = frame.conditions.plain();
    let mut changes = Vec::new();
    for place in places(frame) {
        for condition in &plain {
            let expected = expected_changes(frame, place, condition);
            let expected_nats = Estimate::of_means(&expected.values(), expected.len(), Kind::Number);
            let change = change(frame, place, std::slice::from_ref(condition));
            changes.extend(change.map(|change| Change { expected_nats, ..change }));
        }
    }
    changes
}

/// Returns the changes without the best heads of rankings, setting by setting and model by model.
pub(crate) fn heads_out_changes(frame: &Frame) -> Vec<HeadsOut<'_>> {
    let mut changes = Vec::new();
    for place in places(frame) {
        changes.extend(frame.conditions.0.iter().filter_map(|condition| heads_out_of(frame, place, condition)));
    }
    changes
}

fn places(frame: &Frame) -> impl Iterator<Item = (Setting, &str)> {
    frame.settings.iter().flat_map(|&setting| frame.models.iter().map(move |model| (setting, model.as_str())))
}

fn pick<'a>((setting, model): (Setting, &'a str), condition: Option<&'a str>, metric: &'static Metric) -> Pick<'a> {
    Pick { setting: Some(setting), condition, ..Pick::of(model, metric) }
}

/// The mean change over conditions of one kind from what the first is compared with.
fn change<'a>(frame: &Frame, place: (Setting, &'a str), conditions: &[&'a ConditionFacts]) -> Option<Change<'a>> {
    let condition = *conditions.first()?;
    let [exact, log_prob_nats] = [&ACCURACY, &ANSWER_LOG_PROB].map(|metric| {
        let baseline = pick(place, condition.baseline.as_deref(), metric);
        let draws: Vec<_> = conditions.iter().map(|draw| (baseline, pick(place, Some(&draw.name), metric))).collect();
        frame.difference_of_draws(&draws)
    });
    Some(Change {
        model: place.1,
        setting: place.0,
        condition,
        draws: conditions.len(),
        exact: exact?,
        log_prob_nats: log_prob_nats?,
        expected_nats: None,
    })
}

/// The change of the answer's log-probability, by prompt, that attribution expects without the regions that a condition removes from
/// the rows of the answer; empty without attribution, or if it does anything else.
fn expected_changes(frame: &Frame, place: (Setting, &str), condition: &ConditionFacts) -> PromptNumbers {
    let mut changes = PromptNumbers::default();
    if let Purpose::Removed { regions, layers: None, answer_rows: true, .. } = &condition.purpose {
        for region in regions {
            let attribution = Pick { region: Some(region.name()), ..pick(place, None, &ATTRIBUTION) };
            changes.subtract(&frame.by_prompt(attribution));
        }
    }
    changes
}

/// Returns where the answer's log-probability in patched passes lies between the corrupted prompt, 0, and the clean one, 1: a ratio
/// of means over prompts, with its interval.
pub(crate) fn recovered(frame: &Frame, change: &Change) -> Option<(f64, Option<Interval>)> {
    let corrupted = frame.conditions.corrupted().filter(|corrupted| *corrupted != change.condition.name)?;
    let baseline = pick((change.setting, change.model), Some(corrupted), &ANSWER_LOG_PROB);
    let sides = [Some(change.condition.name.as_str()), None]
        .map(|condition| frame.differences_by_prompt(baseline, Pick { condition, ..baseline }));
    if sides[0].len() != sides[1].len() {
        return None; // a prompt failed under one of the conditions
    }
    let [treated, clean] = <[Vec<f64>; 2]>::try_from(on_shared_prompts(&sides)).ok()?;
    let whole: f64 = clean.iter().sum();
    if whole == 0.0 {
        return None;
    }
    let value = treated.iter().sum::<f64>() / whole;
    // A ratio has an interval if every prompt has something to recover.
    let is_whole = clean.iter().all(|difference| *difference > 0.0);
    let test = test_ratio(&treated.into_iter().zip(clean).collect::<Vec<_>>()).filter(|_| is_whole);
    Some((value, test.map(|test| test.interval)))
}

fn heads_out_of<'a>(frame: &'a Frame, place: (Setting, &'a str), best: &'a ConditionFacts) -> Option<HeadsOut<'a>> {
    let Purpose::HeadsOut { n, by } = best.purpose else { return None };
    let random = frame.conditions.controls_of(&best.name);
    let best_pick = pick(place, Some(&best.name), &ANSWER_LOG_PROB);
    let draws: Vec<_> =
        random.iter().map(|draw| (pick(place, Some(&draw.name), &ANSWER_LOG_PROB), best_pick)).collect();
    Some(HeadsOut {
        n,
        by,
        best: change(frame, place, &[best])?,
        random: change(frame, place, &random),
        best_less_random: frame.difference_of_draws(&draws),
    })
}

/// The table of conditions: accuracy, and its change and that of the log-probability from the untreated passes.
pub(super) fn conditions(frame: &Frame) -> Option<Table> {
    let mut changes = condition_changes(frame);
    correct(changes.iter_mut().map(|change| &mut change.log_prob_nats));
    // Before those of a model and setting, the untreated passes over the same prompts.
    let mut rows: Vec<(&Change, bool)> = Vec::new();
    for group in changes.chunk_by(|a, b| (a.model, a.setting) == (b.model, b.setting)) {
        rows.push((&group[0], true));
        rows.extend(group.iter().map(|change| (change, false)));
    }
    let mut note =
        "The same prompts under each condition: accuracy, and change of the answer's log-probability from the \
                untreated passes, beside the change that attribution to the removed regions expects [95 % interval]. "
            .to_owned()
            + Verdict::RULE;
    if let Some(corrupted) = frame.conditions.corrupted() {
        note += &format!(" With from=clean, they are passes over the prompt with another answer: {corrupted}.");
    }
    place_columns(TableRows::of(&rows), words("model"), true, |(change, _)| (change.model.to_owned(), change.setting))
        .column(words("condition").key(), |(change, untreated)| {
            Cell::words(if *untreated { UNTREATED } else { &change.condition.name })
        })
        .column(basis("prompts"), |(change, _)| Cell::count(change.exact.n))
        .column(numbers("accuracy %").named(ACCURACY.name), |(change, untreated)| {
            let condition = (!untreated).then_some(change.condition.name.as_str());
            let accuracy = frame.estimate(pick((change.setting, change.model), condition, &ACCURACY));
            Cell { aside: String::new(), ..Cell::estimate(Kind::Hit, accuracy) }
        })
        .column(numbers("change, nats").named("answer_log_prob_change"), |(change, untreated)| {
            Cell::difference(Kind::Number, (!untreated).then_some(&change.log_prob_nats))
        })
        .column(numbers("expected, nats").named("expected_log_prob_change"), |(change, untreated)| {
            Cell::estimate(Kind::Number, change.expected_nats.filter(|_| !untreated))
        })
        .column(words("verdict"), |(change, untreated)| {
            Cell::optional_words((!untreated).then(|| change.log_prob_nats.verdict().name()))
        })
        .noted(note)
        .trimmed()
}

/// The changes that attribution expects and those that are measured, of the conditions of one kind in one model and setting.
struct Expectations<'a> {
    place: (Setting, &'a str),
    how: Removal,
    conditions: usize,
    prompts: usize,
    /// Pearson's and Spearman's correlation over conditions and prompts.
    correlations: [(f64, Option<Interval>); 2],
}

fn expectations<'a>(frame: &Frame, place: (Setting, &'a str), how: Removal) -> Option<Expectations<'a>> {
    let mut expected = Vec::new();
    let mut measured = Vec::new();
    for condition in &frame.conditions.0 {
        let changes = expected_changes(frame, place, condition);
        let is_of_kind = matches!(condition.purpose, Purpose::Removed { how: its, .. } if its == how);
        if is_of_kind && !changes.is_empty() {
            let baseline = pick(place, None, &ANSWER_LOG_PROB);
            measured.push(frame.differences_by_prompt(baseline, Pick { condition: Some(&condition.name), ..baseline }));
            expected.push(changes);
        }
    }
    let mut expected = on_shared_prompts(&[expected, measured].concat());
    let measured = expected.split_off(expected.len() / 2);
    let seed = frame.about.seed;
    let of = |r: Correlation| correlation_of_points(r, &expected, &measured, CORRELATION_RESAMPLES, seed);
    let correlations = [of(pearson)?, of(spearman)?];
    Some(Expectations { place, how, conditions: expected.len(), prompts: expected[0].len(), correlations })
}

/// How well attribution to regions expects what it costs to remove them.
pub(super) fn attribution(frame: &Frame) -> Option<Table> {
    let kinds = places(frame).flat_map(|place| [Removal::Mask, Removal::Silence].map(|how| (place, how)));
    let rows: Vec<_> = kinds.filter_map(|(place, how)| expectations(frame, place, how)).collect();
    let note = "Correlation of the change that attribution to the removed regions expects with the measured change, over conditions \
                and prompts [95 % interval over prompts].";
    place_columns(TableRows::of(&rows), words("model"), true, |row| (row.place.1.to_owned(), row.place.0))
        .column(words("removal").key(), |row| Cell::words(row.how.name()))
        .column(basis("conditions"), |row| Cell::count(row.conditions))
        .column(basis("prompts"), |row| Cell::count(row.prompts))
        .column(numbers("correlation"), |row| Cell::value(Kind::Number, row.correlations[0].0, row.correlations[0].1))
        .column(numbers("rank correlation").named("rank_correlation"), |row| {
            Cell::value(Kind::Number, row.correlations[1].0, row.correlations[1].1)
        })
        .noted(note)
        .trimmed()
}

/// The table of heads taken out: the best of a ranking beside random ones of the same layers.
pub(super) fn heads_out(frame: &Frame) -> Option<Table> {
    let mut rows = heads_out_changes(frame);
    correct(rows.iter_mut().filter_map(|out| out.best_less_random.as_mut()));
    let note = format!(
        "Without the best heads of a ranking, made on prompts of its own, and without as many random ones of the same \
         layers: changes from the untreated passes [95 % interval, of random heads over draws and prompts]. {}",
        Verdict::RULE
    );
    place_columns(TableRows::of(&rows), words("model"), true, |out| (out.best.model.to_owned(), out.best.setting))
        .column(numbers("heads out").named("n").key(), |out| Cell::count(out.n))
        .column(words("by").key(), |out| Cell::words(out.by))
        .column(basis("draws"), |out| Cell::optional(out.random.as_ref().map(|random| random.draws)))
        .column(basis("prompts"), |out| Cell::count(out.best.exact.n))
        .column(numbers("best, points").named("best_accuracy_change"), |out| {
            Cell::difference(Kind::Hit, &out.best.exact)
        })
        .column(numbers("random, points").named("random_accuracy_change"), |out| {
            Cell::difference(Kind::Hit, out.random.as_ref().map(|random| &random.exact))
        })
        .column(numbers("best, nats").named("best_log_prob_change"), |out| {
            Cell::difference(Kind::Number, &out.best.log_prob_nats)
        })
        .column(numbers("random, nats").named("random_log_prob_change"), |out| {
            Cell::difference(Kind::Number, out.random.as_ref().map(|random| &random.log_prob_nats))
        })
        .column(numbers("best - random, nats").named("best_less_random_log_prob"), |out| {
            Cell::difference(Kind::Number, out.best_less_random.as_ref())
        })
        .column(words("verdict"), |out| {
            Cell::optional_words(out.best_less_random.as_ref().map(|less| less.verdict().name()))
        })
        .noted(note)
        .trimmed()
}

/// The table of contrasts: the change in one model less the change in the first, prompt by prompt.
pub(super) fn contrasts(frame: &Frame) -> Option<Table> {
    let (first, others) = frame.models.split_first()?;
    let plain = frame.conditions.plain();
    let mut rows: Vec<(String, Setting, &str, [Difference; 2])> = Vec::new();
    for &setting in &frame.settings {
        for (model, condition) in others.iter().flat_map(|model| plain.iter().map(move |condition| (model, condition)))
        {
            let [exact, log_prob] = [&ACCURACY, &ANSWER_LOG_PROB].map(|metric| {
                let [first, other] = [first, model].map(|model| {
                    let place = (setting, model.as_str());
                    let baseline = pick(place, condition.baseline.as_deref(), metric);
                    (baseline, Pick { condition: Some(&condition.name), ..baseline })
                });
                frame.contrast(first, other)
            });
            let contrast = exact.zip(log_prob).map(<[_; 2]>::from);
            let models = format!("{model} - {first}");
            rows.extend(contrast.map(|contrast| (models, setting, condition.name.as_str(), contrast)));
        }
    }
    correct(rows.iter_mut().map(|(.., [_, log_prob])| log_prob));
    let note = format!(
        "The change under a condition in one model less that in the first, prompt by prompt [95 % interval]. {} It is on the \
         log-probability.",
        Verdict::RULE
    );
    place_columns(TableRows::of(&rows), words("difference"), true, |(models, setting, ..)| (models.clone(), *setting))
        .column(words("condition").key(), |(_, _, condition, _)| Cell::words(*condition))
        .column(basis("prompts"), |(.., [exact, _])| Cell::count(exact.n))
        .column(numbers("points").named("accuracy_change"), |(.., [exact, _])| Cell::difference(Kind::Hit, exact))
        .column(numbers("nats").named("answer_log_prob_change"), |(.., [_, log_prob])| {
            Cell::difference(Kind::Number, log_prob)
        })
        .column(words("verdict"), |(.., [_, log_prob])| Cell::words(log_prob.verdict().name()))
        .noted(note)
        .trimmed()
}
