//! Paired differences: two models, or two conditions of one, on the same prompts.

use super::means::{
    ACCURACY, ANSWER, ANSWER_ABS, ANSWER_NO_SINKS, ENTROPY, GENERATED, KEYS_90, LOG_PROB, NLL, NOISE, NOISE_ABS,
    NOISE_NO_SINKS,
};
use super::sheet::{numbers, words, Cell, Column, Kind, Sheet};
use super::{Shown, Spoken};
use crate::frame::{Case, ConditionKey, Frame, Setting};
use crate::stats::Interval;
use rayon::prelude::*;

const COMPARED: [Shown<'static>; 12] = [
    ACCURACY,
    GENERATED,
    LOG_PROB,
    ANSWER,
    NOISE,
    ANSWER_ABS,
    NOISE_ABS,
    NLL,
    ANSWER_NO_SINKS,
    NOISE_NO_SINKS,
    ENTROPY,
    KEYS_90,
];

/// Every quantised condition against none, every model against the first under the same condition, and every model with
/// 4 bits against the first with 6 (the paper's claim).
pub(super) fn sheet(frame: &Frame) -> Option<Sheet> {
    let needles = frame.asks();
    let mut columns = vec![words("difference"), numbers("tokens")];
    columns.extend(needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
    columns.push(numbers("prompts"));
    let mut columns: Vec<Column> = columns.into_iter().map(Column::key).collect();
    columns.extend(COMPARED.iter().map(|shown| numbers(heading(shown)).named(shown.name())));
    let row = |(a, b): &(Case, Case)| {
        let compared: Vec<Option<(usize, Cell)>> =
            COMPARED.iter().map(|&shown| difference(frame, a, b, shown)).collect();
        let prompts = compared.iter().flatten().map(|(n, _)| *n).max()?;
        let (tokens, n, r) = a.setting;
        let mut cells =
            vec![Cell::words(format!("{} - {}", name(frame, b), name(frame, a))), Cell::count(Some(tokens))];
        cells.extend(needles.then(|| [Cell::count(Some(n)), Cell::count(Some(r))]).into_iter().flatten());
        cells.push(Cell::count(Some(prompts)));
        cells.extend(compared.into_iter().map(|found| match found {
            None => Cell::none(),
            Some((n, cell)) if n == prompts => cell,
            Some((n, cell)) => Cell { aside: format!("{} n={n}", cell.aside), ..cell },
        }));
        Some(cells)
    };
    let rows = pairs(frame).par_iter().filter_map(row).collect();
    let note =
        "Paired differences on the same prompts [95 % bootstrap interval]; accuracy and shares in percentage points.";
    Sheet::new("differences", "Differences", note.to_owned(), columns, rows).trimmed()
}

/// What a report begins with.
const HEADLINES: [Shown<'static>; 6] = [ACCURACY, LOG_PROB, ANSWER, NOISE, ANSWER_ABS, NLL];

/// A paired difference of two cases in a headline quantity.
pub(crate) struct Headline {
    pub(crate) quantity: Spoken,
    /// The other less the baseline, in the unit of the records.
    pub(crate) difference: f64,
    pub(crate) interval: Option<Interval>,
}

/// Two cases and how they differ.
pub(crate) struct Versus {
    /// The baseline.
    pub(crate) of: Case,
    pub(crate) name: String,
    pub(crate) baseline: String,
    pub(crate) prompts: usize,
    pub(crate) headlines: Vec<Headline>,
}

/// The headline differences of all pairs of cases, in the order of the table. Where heads' outputs were measured, shares of
/// weights are left to the tables.
pub(crate) fn headlines(frame: &Frame) -> Vec<Versus> {
    let written = frame.headline() == ANSWER.metric;
    let versus = |(a, b): &(Case, Case)| {
        let mut prompts = 0;
        let shown = HEADLINES.iter().filter(|shown| !(written && **shown == ANSWER_ABS));
        let headline = |shown: &Shown<'static>| {
            let (n, cell) = difference(frame, a, b, *shown)?;
            prompts = prompts.max(n);
            let quantity = Spoken::of(shown.metric, shown.region, None);
            Some(Headline { quantity, difference: cell.exact?, interval: cell.interval })
        };
        let headlines: Vec<Headline> = shown.filter_map(headline).collect();
        Versus { of: a.clone(), name: name(frame, b), baseline: name(frame, a), prompts, headlines }
    };
    let all: Vec<Versus> = pairs(frame).par_iter().map(versus).collect();
    all.into_iter().filter(|versus| !versus.headlines.is_empty()).collect()
}

/// Differences of percentages are percentage points.
fn heading(quantity: &Shown<'_>) -> String {
    match quantity.kind {
        Kind::Number => quantity.heading.to_owned(),
        Kind::Hits | Kind::Share => quantity.heading.replace(" %", " points"),
    }
}

fn difference(frame: &Frame, a: &Case, b: &Case, shown: Shown<'_>) -> Option<(usize, Cell)> {
    if shown.is_of_tokens() && !frame.tokens.0.is_empty() {
        return None;
    }
    let paired = frame.difference(a, b, shown.quantity())?;
    // Of one prompt the bootstrap knows nothing: it would show an interval without width.
    let interval = (paired.n > 1).then(|| paired.interval());
    Some((paired.n, Cell::difference(shown.kind, paired.diff, interval)))
}

/// The pairs, baseline first.
fn pairs(frame: &Frame) -> Vec<(Case, Case)> {
    let known = frame.cases();
    let conditions = frame.treated();
    let mut pairs = Vec::new();
    let mut push = |setting: Setting, a: (&String, &ConditionKey), b: (&String, &ConditionKey)| {
        let case = |(model, condition): (&String, &ConditionKey)| {
            let case = Case { setting, model: model.clone(), treated: condition.clone() };
            known.contains(&case).then_some(case)
        };
        pairs.extend(case(a).zip(case(b)));
    };
    for &setting in frame.settings() {
        for model in frame.models() {
            for condition in conditions.iter().filter(|condition| condition.condition.is_some()) {
                push(setting, (model, &ConditionKey::default()), (model, condition));
            }
        }
        let Some((first, others)) = frame.models().split_first() else { continue };
        for model in others {
            for condition in conditions {
                push(setting, (first, condition), (model, condition));
            }
            for four in conditions.iter().filter(|condition| condition.bits == Some(4)) {
                let of_six = |c: &&ConditionKey| c.bits == Some(6) && c.scope == four.scope;
                conditions.iter().filter(of_six).for_each(|six| push(setting, (first, six), (model, four)));
            }
        }
    }
    pairs
}

/// The model, with its condition where conditions differ.
fn name(frame: &Frame, case: &Case) -> String {
    if frame.treated().len() < 2 {
        return case.model.clone();
    }
    format!("{} {}", case.model, case.treated.name())
}
