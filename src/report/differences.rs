//! Paired differences: two models, or two conditions of one, on the same prompts.

use super::data::{Case, Condition, Data, Prompts, Quantity};
use super::means::{ACCURACY, ANSWER, ANSWER_ABS, ENTROPY, KEYS_90, LOG_PROB, NLL, NOISE, NOISE_ABS};
use super::sheet::{numbers, words, Cell, Kind, Sheet};
use crate::summary::Setting;
use rayon::prelude::*;

const COMPARED: [Quantity<'static>; 9] =
    [ACCURACY, LOG_PROB, ANSWER, NOISE, ANSWER_ABS, NOISE_ABS, NLL, ENTROPY, KEYS_90];

/// Every quantised condition against none, every model against the first under the same condition, and every model with
/// 4 bits against the first with 6 (the paper's claim).
pub(super) fn sheet(data: &Data<'_>) -> Option<Sheet> {
    let needles = data.settings.iter().any(|setting| setting.1 > 0);
    let mut columns = vec![words("difference"), numbers("tokens")];
    columns.extend(needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
    columns.push(numbers("prompts"));
    columns.extend(COMPARED.iter().map(|quantity| numbers(heading(quantity))));
    let row = |(a, b): &(Case, Case)| {
        let compared: Vec<Option<(usize, Cell)>> =
            COMPARED.iter().map(|&quantity| difference(data, a, b, quantity)).collect();
        let prompts = compared.iter().flatten().map(|(n, _)| *n).max()?;
        let (tokens, n, r) = a.setting;
        let mut cells = vec![Cell::words(format!("{} - {}", name(data, b), name(data, a))), Cell::count(Some(tokens))];
        cells.extend(needles.then(|| [Cell::count(Some(n)), Cell::count(Some(r))]).into_iter().flatten());
        cells.push(Cell::count(Some(prompts)));
        cells.extend(compared.into_iter().map(|found| match found {
            None => Cell::none(),
            Some((n, cell)) if n == prompts => cell,
            Some((n, cell)) => Cell { aside: format!("{} n={n}", cell.aside), ..cell },
        }));
        Some(cells)
    };
    let rows = pairs(data).par_iter().map(row).collect::<Vec<_>>().into_iter().flatten().collect();
    let note =
        "Paired differences on the same prompts [95 % bootstrap interval]; accuracy and shares in percentage points.";
    Sheet { id: "differences", title: "Differences", note: note.to_owned(), columns, rows, detail: false }.trimmed()
}

/// Differences of percentages are percentage points.
fn heading(quantity: &Quantity<'_>) -> String {
    match quantity.kind {
        Kind::Number => quantity.heading.to_owned(),
        Kind::Hits | Kind::Share => quantity.heading.replace(" %", " points"),
    }
}

fn difference(data: &Data<'_>, a: &Case, b: &Case, quantity: Quantity<'_>) -> Option<(usize, Cell)> {
    if !Data::applies(a.setting, quantity) {
        return None;
    }
    let pick = |case| Data::pick(case, quantity, Prompts::default());
    let paired = data.summary.paired(pick(a), pick(b), data.seed)?;
    let cell = Cell::difference(quantity.kind, paired.diff, paired.interval());
    // Of one prompt the bootstrap knows nothing: it would show an interval without width.
    Some((paired.n, if paired.n > 1 { cell } else { Cell { aside: String::new(), ..cell } }))
}

/// The pairs, baseline first.
fn pairs(data: &Data<'_>) -> Vec<(Case, Case)> {
    let known = data.cases();
    let mut pairs = Vec::new();
    let mut push = |setting: Setting, a: (&String, &Condition), b: (&String, &Condition)| {
        let case = |(model, condition): (&String, &Condition)| {
            let case = Case { setting, model: model.clone(), condition: condition.clone() };
            known.contains(&case).then_some(case)
        };
        pairs.extend(case(a).zip(case(b)));
    };
    for &setting in &data.settings {
        for model in &data.models {
            for condition in data.conditions.iter().filter(|condition| condition.name.is_some()) {
                push(setting, (model, &Condition::default()), (model, condition));
            }
        }
        let Some((first, others)) = data.models.split_first() else { continue };
        for model in others {
            for condition in &data.conditions {
                push(setting, (first, condition), (model, condition));
            }
            for four in data.conditions.iter().filter(|condition| condition.bits == Some(4)) {
                let of_six = |c: &&Condition| c.bits == Some(6) && c.scope == four.scope;
                data.conditions.iter().filter(of_six).for_each(|six| push(setting, (first, six), (model, four)));
            }
        }
    }
    pairs
}

/// The model, with its condition where conditions differ.
fn name(data: &Data<'_>, case: &Case) -> String {
    if data.conditions.len() < 2 {
        return case.model.clone();
    }
    format!("{} {}", case.model, case.condition.name())
}
