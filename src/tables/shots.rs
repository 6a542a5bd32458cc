//! Tables of many-shot prompts: accuracy by number of examples and their order, and what the arrangement changes.

use super::means::{ACCURACY, LOG_PROB};
use super::sheet::{numbers, words, Cell, Kind, Sheet};
use super::{estimate, Names, Prompts};
use crate::frame::{Case, Frame};
use crate::stats::{Robustness, RESAMPLES};
use rayon::prelude::*;

/// A row for each model, number of examples and order.
pub(super) fn sheet(frame: &Frame) -> Option<Sheet> {
    let names = Names::new(frame);
    let mut columns = names.columns();
    columns.push(words("order").key());
    columns.push(numbers("prompts"));
    columns.extend([ACCURACY, LOG_PROB].iter().map(|shown| numbers(shown.heading).named(shown.name())));
    columns.push(numbers("best - worst, points").named("best_less_worst"));
    columns.push(numbers("by chance").named("best_less_worst_by_chance"));
    let row = |(case, order): &(Case, &String)| {
        let of = Prompts { cities: Some(order), depth_pct: None };
        let measured = [ACCURACY, LOG_PROB].map(|shown| estimate(frame, case, shown, of));
        let robustness = robustness(frame, case, order);
        let spread = robustness
            .map_or_else(Cell::none, |found| Cell::difference(Kind::Hits, found.best_less_worst, Some(found.interval)));
        let by_chance = robustness.map_or_else(Cell::none, |found| Cell::difference(Kind::Hits, found.by_chance, None));
        let known = measured.iter().any(|cell| !cell.is_none());
        let place = [names.cells(case), vec![Cell::words(order.as_str()), of.count(frame, case)]].concat();
        known.then(|| [place, measured.into(), vec![spread, by_chance]].concat())
    };
    let rows: Vec<(Case, &String)> = frame
        .cases()
        .into_iter()
        .flat_map(|case| frame.cities().iter().map(move |order| (case.clone(), order)))
        .collect();
    let rows = rows.par_iter().filter_map(row).collect();
    let note = "N examples of words and labels, and a question for one of the words. Accuracy: exact matches of the label \
        [95 % Wilson interval]; best - worst: of the arrangements of the same examples, with the 95 % bootstrap interval over \
        prompts; by chance: what it would be if the arrangement did not matter."
        .to_owned();
    Sheet::new("shots", "Many shots", note, columns, rows).trimmed()
}

/// What the arrangement of the examples changes in a case.
pub(crate) fn robustness(frame: &Frame, case: &Case, order: &str) -> Option<Robustness> {
    let table = frame.arrangements(case.pick(ACCURACY.quantity()).cities(order));
    Robustness::new(&table, RESAMPLES / 5, frame.about.seed)
}
