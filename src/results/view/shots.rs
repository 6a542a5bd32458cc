//! The table of many-shot prompts: accuracy by number of examples and their order, and the effect of their arrangement.

use super::cases::CaseKeys;
use crate::results::metric::{Kind, ANSWER_LOG_PROB, EXACT};
use crate::results::table::{basis, numbers, words, Cell, Table};
use crate::results::{Case, Frame};
use crate::stats::{Robustness, RESAMPLES};
use rayon::prelude::*;

/// A row for each model, number of examples and order.
pub(super) fn table(frame: &Frame) -> Option<Table> {
    let keys = CaseKeys::new(frame);
    let mut columns = keys.columns();
    columns.push(words("order").key());
    columns.push(basis("prompts"));
    columns.extend([&EXACT, &ANSWER_LOG_PROB].map(|metric| numbers(metric.heading(None)).named(metric.name)));
    columns.push(numbers("best - worst, points").named("best_less_worst"));
    columns.push(numbers("by chance").named("best_less_worst_by_chance"));
    let row = |(case, order): &(Case, &String)| {
        let of = |metric| frame.estimate(case.pick(metric, None).cities(order));
        let (exact, log_prob) = (of(&EXACT)?, of(&ANSWER_LOG_PROB));
        let robustness = robustness(frame, case, order);
        let points = |x: f64| format!("{:+.0}", 100.0 * x);
        let spread = Cell::number(robustness.map(|found| found.best_less_worst), points);
        let by_chance =
            robustness.map_or_else(Cell::none, |found| Cell::number_in(found.by_chance, Some(found.chance), points));
        let cells = vec![
            Cell::words(order.as_str()),
            Cell::count(Some(exact.prompts)),
            Cell::estimate(Kind::Hit, exact),
            log_prob.map_or_else(Cell::none, |found| Cell::estimate(Kind::Number, found)),
            spread,
            by_chance,
        ];
        Some([keys.cells(case), cells].concat())
    };
    let cases = frame.cases().into_iter();
    let places: Vec<(Case, &String)> =
        cases.flat_map(|case| frame.cities().iter().map(move |order| (case.clone(), order))).collect();
    let rows = places.par_iter().filter_map(row).collect();
    let note = "N examples and a question [95 % interval]. Best - worst: of the arrangements of the same examples; by chance: its \
                mean and middle 95 % if the arrangement did not matter.";
    Table::new("shots", "Many shots", note.to_owned(), columns, rows).trimmed()
}

/// Returns the effect of the arrangement of the examples in a case.
pub(crate) fn robustness(frame: &Frame, case: &Case, order: &str) -> Option<Robustness> {
    let table = frame.arrangements(case.pick(&EXACT, None).cities(order));
    Robustness::new(&table, RESAMPLES / 5, frame.about.seed)
}
