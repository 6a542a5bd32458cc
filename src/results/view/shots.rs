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
    let cases = frame.cases();
    let places: Vec<_> = cases.iter().flat_map(|case| frame.cities().iter().map(move |order| (case, order))).collect();
    let rows = places.par_iter().filter_map(|(case, order)| row(frame, &keys, case, order)).collect();
    let note = "N examples and a question [95 % interval]. Best - worst: of the arrangements of the same examples; by chance: its \
                mean and middle 95 % if the arrangement did not matter.";
    Table::new("shots", "Many shots", note.to_owned(), columns, rows).trimmed()
}

/// Returns the row of an order of examples; `None` if it was not measured in a case.
fn row(frame: &Frame, keys: &CaseKeys, case: &Case, order: &str) -> Option<Vec<Cell>> {
    let accuracy = frame.estimate(case.pick(&EXACT, None).cities(order))?;
    let log_prob = frame.estimate(case.pick(&ANSWER_LOG_PROB, None).cities(order));
    let robustness = robustness(frame, case, order);
    let mut cells = keys.cells(case);
    cells.extend([
        Cell::words(order),
        Cell::count(accuracy.prompts),
        Cell::estimate(Kind::Hit, accuracy),
        log_prob.map_or_else(Cell::none, |log_prob| Cell::estimate(Kind::Number, log_prob)),
        Cell::number(robustness.map(|effect| effect.best_less_worst), points),
        robustness.map_or_else(Cell::none, |effect| Cell::number_in(effect.by_chance, Some(effect.chance), points)),
    ]);
    Some(cells)
}

fn points(x: f64) -> String {
    format!("{:+.0}", 100.0 * x)
}

/// Returns the effect of the arrangement of the examples in a case.
pub(crate) fn robustness(frame: &Frame, case: &Case, order: &str) -> Option<Robustness> {
    let table = frame.arrangements(case.pick(&EXACT, None).cities(order));
    Robustness::new(&table, RESAMPLES / 5, frame.about.seed)
}
