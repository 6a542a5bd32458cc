//! Costs of noise and heads: conditions against the untreated passes, on the same prompts.

use crate::results::difference::correct;
use crate::results::pair::on_shared_prompts;
use crate::results::run_table::RunTable;
use crate::results::table::{basis, key_column, numbers, numbers_in, numbers_of, words, Cell, Table, TableRows};
use crate::results::{of_model, under, Difference, Frame, Setting, Sides, Verdict};
use names::condition::{ConditionFacts, Purpose, UNTREATED};
use names::metric::{Kind, ACCURACY, ANSWER_LOG_PROB};
use names::{Column, Cut, Number};
use stats::{test_ratio, Interval};

pub(super) const CONDITIONS: RunTable = RunTable::made("conditions", "Costs of conditions", conditions);
pub(super) const HEADS_OUT: RunTable = RunTable::made("heads-out", "Heads taken out", heads_out);
pub(super) const CONTRASTS: RunTable = RunTable::made("contrasts", "Contrasts of models", contrasts);

const EXACT: Number<'static> = ACCURACY.overall();
const LOG_PROB: Number<'static> = ANSWER_LOG_PROB.overall();

/// A model in one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place<'a> {
    pub(super) model: &'a str,
    pub(super) setting: Setting,
}

impl<'a> Place<'a> {
    /// All places of a run, setting by setting.
    fn all(frame: &'a Frame) -> Vec<Self> {
        let mut places = Vec::new();
        for &setting in &frame.settings {
            places.extend(frame.models.iter().map(|model| Self { model, setting }));
        }
        places
    }

    /// The values that its records under a condition have; `None` for the untreated passes.
    fn only(&self, condition: Option<&'a str>) -> Vec<Cut<'a>> {
        [&self.setting.cuts()[..], &[of_model(self.model), under(condition)]].concat()
    }

    /// A condition against what it is compared with.
    fn sides(&self, condition: &'a ConditionFacts) -> Sides<'a> {
        Sides { baseline: self.only(condition.baseline.as_deref()), other: self.only(Some(&condition.name)) }
    }
}

/// The change under a condition, or under several of one kind, in one model and setting.
#[derive(Clone, Debug)]
pub(super) struct Change<'a> {
    pub(super) place: Place<'a>,
    /// The condition; of draws of random heads, the first.
    pub(super) condition: &'a ConditionFacts,
    /// Number of conditions that are averaged: the draws of random heads.
    pub(super) draws: usize,
    /// Change of the accuracy, as a fraction.
    pub(super) exact: Difference,
    /// Change of the answer's log-probability, in nats.
    pub(super) log_prob_nats: Difference,
}

/// A number of heads taken out: the best, and others of the same layers.
#[derive(Clone, Debug)]
pub(super) struct HeadsOut<'a> {
    pub(super) n: usize,
    pub(super) by: &'static str,
    pub(super) best: Change<'a>,
    /// `None` without draws.
    pub(super) random: Option<Change<'a>>,
    /// Log-probability without the best heads less that without random ones, in nats.
    pub(super) best_less_random: Option<Difference>,
}

/// The changes under conditions that are no rankings of heads, setting by setting and model by model.
pub(super) fn condition_changes(frame: &Frame) -> Vec<Change<'_>> {
    let plain = frame.conditions.plain();
    let mut changes = Vec::new();
    for place in Place::all(frame) {
        for condition in &plain {
            changes.extend(change(frame, place, std::slice::from_ref(condition)));
        }
    }
    changes
}

/// The changes without the best heads of rankings, setting by setting and model by model.
pub(super) fn heads_out_changes(frame: &Frame) -> Vec<HeadsOut<'_>> {
    let mut changes = Vec::new();
    for place in Place::all(frame) {
        changes.extend(frame.conditions.0.iter().filter_map(|condition| heads_out_of(frame, place, condition)));
    }
    changes
}

/// The mean change over conditions of one kind from what the first is compared with.
fn change<'a>(frame: &Frame, place: Place<'a>, conditions: &[&'a ConditionFacts]) -> Option<Change<'a>> {
    let condition = *conditions.first()?;
    let baseline = place.only(condition.baseline.as_deref());
    let draws: Vec<Sides<'_>> = conditions
        .iter()
        .map(|draw| Sides { baseline: baseline.clone(), other: place.only(Some(&draw.name)) })
        .collect();
    Some(Change {
        place,
        condition,
        draws: conditions.len(),
        exact: frame.difference_of_draws(EXACT, &draws)?,
        log_prob_nats: frame.difference_of_draws(LOG_PROB, &draws)?,
    })
}

/// Where the answer's log-probability in patched passes lies between the corrupted prompt, 0, and the clean one, 1: a ratio
/// of means over prompts, with its interval.
pub(super) fn recovered(frame: &Frame, change: &Change) -> Option<(f64, Option<Interval>)> {
    let corrupted = frame.conditions.corrupted().filter(|corrupted| *corrupted != change.condition.name)?;
    if change.condition.purpose != Purpose::Patch {
        return None;
    }
    let baseline = change.place.only(Some(corrupted));
    let sides = [Some(change.condition.name.as_str()), None].map(|condition| {
        let sides = Sides { baseline: baseline.clone(), other: change.place.only(condition) };
        frame.differences_by_prompt(LOG_PROB, &sides)
    });
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

fn heads_out_of<'a>(frame: &'a Frame, place: Place<'a>, best: &'a ConditionFacts) -> Option<HeadsOut<'a>> {
    let Purpose::HeadsOut { n, by } = best.purpose else { return None };
    let random = frame.conditions.controls_of(&best.name);
    let draws: Vec<Sides<'_>> = random
        .iter()
        .map(|draw| Sides { baseline: place.only(Some(&draw.name)), other: place.only(Some(&best.name)) })
        .collect();
    Some(HeadsOut {
        n,
        by,
        best: change(frame, place, &[best])?,
        random: change(frame, place, &random),
        best_less_random: frame.difference_of_draws(LOG_PROB, &draws),
    })
}

/// The table of conditions: accuracy, and its change and that of the log-probability from the untreated passes.
fn conditions(frame: &Frame) -> Option<Table> {
    let mut changes = condition_changes(frame);
    correct(changes.iter_mut().map(|change| &mut change.log_prob_nats));
    // Before those of a model and setting, the untreated passes over the same prompts.
    let mut rows: Vec<(&Change, bool)> = Vec::new();
    for group in changes.chunk_by(|a, b| a.place == b.place) {
        rows.push((&group[0], true));
        rows.extend(group.iter().map(|change| (change, false)));
    }
    let mut note =
        "The same prompts under each condition: accuracy, and change of the answer's log-probability from the \
                untreated passes [95 % interval]. "
            .to_owned()
            + Verdict::RULE;
    if let Some(corrupted) = frame.conditions.corrupted() {
        note += &format!(" With from=clean, they are passes over the prompt with another answer: {corrupted}.");
    }
    place_columns(&rows, |(change, _)| change.place)
        .column(key_column(Column::Condition), |(change, untreated)| {
            Cell::words(if *untreated { UNTREATED } else { &change.condition.name })
        })
        .column(basis("prompt"), |(change, _)| Cell::count(change.exact.n))
        .column(numbers_of(EXACT.label()).named(ACCURACY.name), |(change, untreated)| {
            let condition = (!untreated).then_some(change.condition.name.as_str());
            let accuracy = frame.estimate(EXACT, &change.place.only(condition));
            Cell { aside: String::new(), ..Cell::estimate(Kind::Hit, accuracy) }
        })
        .column(numbers_in("change", "points").named("accuracy_change"), |(change, untreated)| {
            Cell::difference(Kind::Hit, (!untreated).then_some(&change.exact))
        })
        .column(numbers_in("change", "nats").named("answer_log_prob_change"), |(change, untreated)| {
            Cell::difference(Kind::Number, (!untreated).then_some(&change.log_prob_nats))
        })
        .column(numbers("recovered"), |(change, untreated)| {
            let recovered = recovered(frame, change).filter(|_| !untreated);
            recovered
                .map_or_else(Cell::none, |(share, interval)| Cell::value(Kind::Number, share, interval).into_estimate())
        })
        .column(words("verdict"), |(change, untreated)| {
            Cell::optional_words((!untreated).then(|| change.log_prob_nats.verdict().name()))
        })
        .noted(note)
        .trimmed()
}

/// The table of heads taken out: the best of a ranking beside random ones of the same layers.
fn heads_out(frame: &Frame) -> Option<Table> {
    let mut rows = heads_out_changes(frame);
    correct(rows.iter_mut().filter_map(|out| out.best_less_random.as_mut()));
    let note = format!(
        "Without the best heads of a ranking, made on prompts of its own, and without as many random ones of the same \
         layers: changes from the untreated passes [95 % interval, of random heads over draws and prompts]. {}",
        Verdict::RULE
    );
    place_columns(&rows, |out| out.best.place)
        .column(numbers("heads out").named("n").key(), |out| Cell::count(out.n))
        .column(words("by").key(), |out| Cell::words(out.by))
        .column(basis("draw"), |out| Cell::optional(out.random.as_ref().map(|random| random.draws)))
        .column(basis("prompt"), |out| Cell::count(out.best.exact.n))
        .column(numbers_in("best", "points").named("best_accuracy_change"), |out| {
            Cell::difference(Kind::Hit, &out.best.exact)
        })
        .column(numbers_in("random", "points").named("random_accuracy_change"), |out| {
            Cell::difference(Kind::Hit, out.random.as_ref().map(|random| &random.exact))
        })
        .column(numbers_in("best", "nats").named("best_log_prob_change"), |out| {
            Cell::difference(Kind::Number, &out.best.log_prob_nats)
        })
        .column(numbers_in("random", "nats").named("random_log_prob_change"), |out| {
            Cell::difference(Kind::Number, out.random.as_ref().map(|random| &random.log_prob_nats))
        })
        .column(numbers_in("best - random", "nats").named("best_less_random_log_prob"), |out| {
            Cell::difference(Kind::Number, out.best_less_random.as_ref())
        })
        .column(words("verdict"), |out| {
            Cell::optional_words(out.best_less_random.as_ref().map(|less| less.verdict().name()))
        })
        .noted(note)
        .trimmed()
}

/// The change under a condition in one model less that in the first.
struct Contrast<'a> {
    place: Place<'a>,
    condition: &'a ConditionFacts,
    exact: Difference,
    log_prob_nats: Difference,
}

impl<'a> Contrast<'a> {
    fn of(frame: &Frame, first: &'a str, place: Place<'a>, condition: &'a ConditionFacts) -> Option<Self> {
        let first = Place { model: first, ..place }.sides(condition);
        let other = place.sides(condition);
        Some(Self {
            place,
            condition,
            exact: frame.contrast(EXACT, [&first, &other])?,
            log_prob_nats: frame.contrast(LOG_PROB, [&first, &other])?,
        })
    }
}

/// The table of contrasts: the change in one model less the change in the first, prompt by prompt.
fn contrasts(frame: &Frame) -> Option<Table> {
    let first = frame.models.first()?;
    let mut rows: Vec<Contrast<'_>> = Vec::new();
    for place in Place::all(frame).into_iter().filter(|place| place.model != first) {
        let plain = frame.conditions.plain().into_iter();
        rows.extend(plain.filter_map(|condition| Contrast::of(frame, first, place, condition)));
    }
    correct(rows.iter_mut().map(|contrast| &mut contrast.log_prob_nats));
    let note = format!(
        "The change under a condition in one model less that in the first, prompt by prompt [95 % interval]. {} It is on the \
         log-probability.",
        Verdict::RULE
    );
    let mut table = place_columns(&rows, |contrast| contrast.place)
        .column(key_column(Column::Condition), |contrast| Cell::words(&contrast.condition.name))
        .column(basis("prompt"), |contrast| Cell::count(contrast.exact.n))
        .column(numbers("points").named("accuracy_change"), |contrast| Cell::difference(Kind::Hit, &contrast.exact))
        .column(numbers("nats").named("answer_log_prob_change"), |contrast| {
            Cell::difference(Kind::Number, &contrast.log_prob_nats)
        })
        .column(words("verdict"), |contrast| Cell::words(contrast.log_prob_nats.verdict().name()))
        .noted(note);
    table.columns[0] = words("difference").key();
    table.rows.iter_mut().for_each(|row| row[0].text += &format!(" - {first}"));
    table.trimmed()
}

/// Begins a table with the columns of a model and a setting.
pub(super) fn place_columns<'a, T>(items: &'a [T], place: impl Fn(&T) -> Place<'_>) -> TableRows<'a, T> {
    TableRows::of(items)
        .column(key_column(Column::Model), |item| Cell::words(place(item).model))
        .column(key_column(Column::CtxTok), |item| Cell::count(place(item).setting.ctx_tok))
        .column(key_column(Column::Needles), |item| Cell::count(place(item).setting.needles))
        .column(key_column(Column::Retrieve), |item| Cell::count(place(item).setting.asked))
}
