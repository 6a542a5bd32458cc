//! Costs of noise and heads: conditions against the untreated passes, on the same prompts.

use crate::results::metric::{Kind, Metric, ANSWER_LOG_PROB, EXACT};
use crate::results::record::UNTREATED;
use crate::results::table::{basis, numbers, words, Cell, Table, TableColumn};
use crate::results::{Difference, Estimate, Frame, HeadsCondition, Pick, Setting};

/// Name of the table of differences between models.
pub(super) const CONTRASTS: &str = "contrasts";

/// The change under a condition, or under several of one kind, in one model and setting.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) model: String,
    pub(crate) setting: Setting,
    /// The condition; of draws of random heads, the first.
    pub(crate) condition: String,
    /// Number of conditions that are averaged: the draws of random heads.
    pub(crate) draws: usize,
    accuracy: Option<Estimate>,
    /// Change of the accuracy, as a fraction.
    pub(crate) exact: Difference,
    /// Change of the answer's log-probability, in nats.
    pub(crate) log_prob_nats: Difference,
}

/// A number of heads taken out: the best, and others of the same layers.
#[derive(Clone, Debug)]
pub(crate) struct HeadsOut {
    pub(crate) n: usize,
    pub(crate) by: &'static str,
    pub(crate) best: Change,
    /// `None` without draws.
    pub(crate) random: Option<Change>,
    /// Log-probability without the best heads less that without random ones, in nats.
    best_less_random: Option<Difference>,
}

/// Returns the changes under conditions that are no rankings of heads, setting by setting and model by model.
pub(crate) fn condition_changes(frame: &Frame) -> Vec<Change> {
    let mut changes = Vec::new();
    for (setting, model) in places(frame) {
        for plain in &frame.purposes.plain {
            let conditions = std::slice::from_ref(&plain.name);
            changes.extend(change(frame, (setting, model), plain.from.as_deref(), conditions));
        }
    }
    changes
}

/// Returns the changes without the best heads of rankings, setting by setting and model by model.
pub(crate) fn heads_out_changes(frame: &Frame) -> Vec<HeadsOut> {
    let mut changes = Vec::new();
    for (setting, model) in places(frame) {
        changes.extend(frame.purposes.heads.iter().filter_map(|heads| heads_out_of(frame, setting, model, heads)));
    }
    changes
}

fn places(frame: &Frame) -> impl Iterator<Item = (Setting, &str)> {
    frame.settings().iter().flat_map(|&setting| frame.models().iter().map(move |model| (setting, model.as_str())))
}

fn pick<'a>((setting, model): (Setting, &'a str), condition: Option<&'a str>, metric: &'static Metric) -> Pick<'a> {
    Pick::of(model, metric.name).setting(setting).condition(condition)
}

/// The mean change over conditions, from another one.
fn change(frame: &Frame, place: (Setting, &str), from: Option<&str>, conditions: &[String]) -> Option<Change> {
    let [exact, log_prob_nats] = [&EXACT, &ANSWER_LOG_PROB].map(|metric| {
        let baseline = pick(place, from, metric);
        let draws: Vec<_> = conditions.iter().map(|name| (baseline, pick(place, Some(name), metric))).collect();
        frame.difference_of_draws(&draws)
    });
    let first = conditions.first()?;
    Some(Change {
        model: place.1.to_owned(),
        setting: place.0,
        condition: first.clone(),
        draws: conditions.len(),
        accuracy: frame.estimate(pick(place, Some(first), &EXACT)),
        exact: exact?,
        log_prob_nats: log_prob_nats?,
    })
}

fn heads_out_of(frame: &Frame, setting: Setting, model: &str, heads: &HeadsCondition) -> Option<HeadsOut> {
    let place = (setting, model);
    let best = pick(place, Some(&heads.best), &ANSWER_LOG_PROB);
    let draws: Vec<_> = heads.random.iter().map(|name| (pick(place, Some(name), &ANSWER_LOG_PROB), best)).collect();
    Some(HeadsOut {
        n: heads.n,
        by: heads.by,
        best: change(frame, place, None, std::slice::from_ref(&heads.best))?,
        random: change(frame, place, None, &heads.random),
        best_less_random: frame.difference_of_draws(&draws),
    })
}

fn place_cells(model: &str, (tokens, needles, retrieve): Setting) -> Vec<Cell> {
    let numbers = [tokens, needles, retrieve].map(Cell::count);
    [vec![Cell::words(model)], numbers.into()].concat()
}

fn place_columns(heading: &str) -> Vec<TableColumn> {
    [words(heading), numbers("tokens"), numbers("N"), numbers("R")].map(TableColumn::key).into()
}

/// The table of conditions: accuracy, and its change and that of the log-probability from the untreated passes.
pub(super) fn conditions(frame: &Frame) -> Option<Table> {
    let columns = [
        place_columns("model"),
        vec![words("condition").key(), basis("prompts")],
        vec![
            numbers("accuracy %").named(EXACT.name),
            numbers("change, nats").named("answer_log_prob_change"),
            words("verdict"),
        ],
    ]
    .concat();
    let mut rows = Vec::new();
    for group in condition_changes(frame).chunk_by(|a, b| (&a.model, a.setting) == (&b.model, b.setting)) {
        rows.push(untreated_row(frame, &group[0]));
        rows.extend(group.iter().map(condition_row));
    }
    let mut note =
        "The same prompts under each condition: accuracy, and change of the answer's log-probability from the \
                untreated passes [95 % interval]."
            .to_owned();
    if let Some(corrupted) = &frame.purposes.corrupted {
        note += &format!(" With from=clean, they are passes over the prompt with another answer: {corrupted}.");
    }
    Table::new("conditions", "Costs of conditions", note, columns, rows).trimmed()
}

fn condition_row(change: &Change) -> Vec<Cell> {
    let numbers = vec![
        Cell::words(&change.condition),
        Cell::count(change.exact.n),
        accuracy_cell(change.accuracy),
        Cell::difference(Kind::Number, &change.log_prob_nats),
        Cell::words(change.log_prob_nats.verdict().name()),
    ];
    [place_cells(&change.model, change.setting), numbers].concat()
}

/// The row of the untreated passes, on the prompts of a change.
fn untreated_row(frame: &Frame, change: &Change) -> Vec<Cell> {
    let accuracy = frame.estimate(pick((change.setting, &change.model), None, &EXACT));
    let numbers =
        vec![Cell::words(UNTREATED), Cell::count(change.exact.n), accuracy_cell(accuracy), Cell::none(), Cell::none()];
    [place_cells(&change.model, change.setting), numbers].concat()
}

/// An accuracy without its interval.
fn accuracy_cell(accuracy: Option<Estimate>) -> Cell {
    let cell = accuracy.map_or_else(Cell::none, |accuracy| Cell::estimate(Kind::Hit, accuracy));
    Cell { aside: String::new(), ..cell }
}

/// The table of heads taken out: the best of a ranking beside random ones of the same layers.
pub(super) fn heads_out(frame: &Frame) -> Option<Table> {
    let columns = [
        place_columns("model"),
        vec![numbers("heads out").named("n").key(), words("by").key(), basis("draws"), basis("prompts")],
        vec![
            numbers("best, points").named("best_exact_change"),
            numbers("random, points").named("random_exact_change"),
            numbers("best, nats").named("best_log_prob_change"),
            numbers("random, nats").named("random_log_prob_change"),
            numbers("best - random, nats").named("best_less_random_log_prob"),
            words("verdict"),
        ],
    ]
    .concat();
    let note =
        "Without the best heads of a ranking, made on prompts of its own, and without as many random ones of the same \
                layers: changes from the untreated passes [95 % interval, of random heads over draws and prompts].";
    let rows = heads_out_changes(frame).iter().map(heads_out_row).collect();
    Table::new("heads-out", "Heads taken out", note.to_owned(), columns, rows).trimmed()
}

fn heads_out_row(out: &HeadsOut) -> Vec<Cell> {
    let (best, random, less) = (&out.best, out.random.as_ref(), out.best_less_random.as_ref());
    let numbers = vec![
        Cell::count(out.n),
        Cell::words(out.by),
        Cell::optional(random.map(|random| random.draws)),
        Cell::count(best.exact.n),
        Cell::difference(Kind::Hit, &best.exact),
        random.map_or_else(Cell::none, |random| Cell::difference(Kind::Hit, &random.exact)),
        Cell::difference(Kind::Number, &best.log_prob_nats),
        random.map_or_else(Cell::none, |random| Cell::difference(Kind::Number, &random.log_prob_nats)),
        less.map_or_else(Cell::none, |less| Cell::difference(Kind::Number, less)),
        less.map_or_else(Cell::none, |less| Cell::words(less.verdict().name())),
    ];
    [place_cells(&best.model, best.setting), numbers].concat()
}

/// The table of contrasts: the change in one model less the change in the first, prompt by prompt.
pub(super) fn contrasts(frame: &Frame) -> Option<Table> {
    let columns = [
        place_columns("difference"),
        vec![words("condition").key(), basis("prompts")],
        vec![
            numbers("points").named("exact_change"),
            numbers("nats").named("answer_log_prob_change"),
            words("verdict"),
        ],
    ]
    .concat();
    let (first, others) = frame.models().split_first()?;
    let mut rows = Vec::new();
    for &setting in frame.settings() {
        for (model, plain) in
            others.iter().flat_map(|model| frame.purposes.plain.iter().map(move |plain| (model, plain)))
        {
            let [exact, log_prob] = [&EXACT, &ANSWER_LOG_PROB].map(|metric| {
                let [first, other] = [first, model].map(|model| {
                    let place = (setting, model.as_str());
                    (pick(place, plain.from.as_deref(), metric), pick(place, Some(&plain.name), metric))
                });
                frame.contrast(first, other)
            });
            let (Some(exact), Some(log_prob)) = (exact, log_prob) else { continue };
            let numbers = vec![
                Cell::words(&plain.name),
                Cell::count(exact.n),
                Cell::difference(Kind::Hit, &exact),
                Cell::difference(Kind::Number, &log_prob),
                Cell::words(log_prob.verdict().name()),
            ];
            rows.push([place_cells(&format!("{model} - {first}"), setting), numbers].concat());
        }
    }
    let note = "The change under a condition in one model less that in the first, prompt by prompt [95 % interval]; the verdict \
                is on the log-probability.";
    Table::new(CONTRASTS, "Contrasts of models", note.to_owned(), columns, rows).trimmed()
}
