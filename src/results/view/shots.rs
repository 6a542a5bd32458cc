//! The table of many-shot prompts: accuracy by number of examples and their order, and the effect of their arrangement.

use super::case_columns;
use crate::results::metric::{Kind, ACCURACY, ANSWER_LOG_PROB};
use crate::results::run_table::{Content, RunTable};
use crate::results::table::{basis, numbers, words, Cell, Table, TableRows};
use crate::results::{Case, Estimate, Frame, Pick};
use crate::stats::{Robustness, RESAMPLES};
use rayon::prelude::*;

/// An order of examples in a case, and what was measured with it.
struct OrderRow<'a> {
    case: &'a Case,
    order: &'a str,
    accuracy: Estimate,
    log_prob: Option<Estimate>,
    robustness: Option<Robustness>,
}

pub(crate) const SHOTS: RunTable = RunTable {
    id: "shots",
    title: "Many shots",
    note: "N examples and a question [95 % interval]. Best - worst: of the arrangements of the same examples; by chance: its mean \
           and middle 95 % if the arrangement did not matter.",
    content: Content::Made(table),
};

/// A row for each model, number of examples and order.
fn table(frame: &Frame) -> Option<Table> {
    if !frame.is_of_shots() {
        return None;
    }
    let cases = frame.cases();
    let places: Vec<_> = cases.iter().flat_map(|case| frame.cities.iter().map(move |order| (case, order))).collect();
    let rows: Vec<OrderRow<'_>> = places.par_iter().filter_map(|(case, order)| row(frame, case, order)).collect();
    case_columns(frame, TableRows::of(&rows), |row| row.case)
        .column(words("order").key(), |row| Cell::words(row.order))
        .column(basis("prompts"), |row| Cell::count(row.accuracy.prompts))
        .column(numbers(ACCURACY.heading(None)).named(ACCURACY.name), |row| Cell::estimate(Kind::Hit, row.accuracy))
        .column(numbers(ANSWER_LOG_PROB.heading(None)).named(ANSWER_LOG_PROB.name), |row| {
            Cell::estimate(Kind::Number, row.log_prob)
        })
        .column(numbers("best - worst, points").named("best_less_worst"), |row| {
            Cell::number(row.robustness.map(|effect| effect.best_less_worst), points)
        })
        .column(numbers("by chance").named("best_less_worst_by_chance"), |row| {
            row.robustness
                .map_or_else(Cell::none, |effect| Cell::number_in(effect.by_chance, Some(effect.chance), points))
        })
        .noted("")
        .trimmed()
}

/// Returns the row of an order of examples; `None` if it was not measured in a case.
fn row<'a>(frame: &Frame, case: &'a Case, order: &'a str) -> Option<OrderRow<'a>> {
    let [accuracy, log_prob] = [&ACCURACY, &ANSWER_LOG_PROB]
        .map(|metric| frame.estimate(Pick { cities: Some(order), ..case.pick(metric, None) }));
    Some(OrderRow { case, order, accuracy: accuracy?, log_prob, robustness: robustness(frame, case, order) })
}

fn points(x: f64) -> String {
    format!("{:+.0}", 100.0 * x)
}

/// Returns the effect of the arrangement of the examples in a case.
pub(crate) fn robustness(frame: &Frame, case: &Case, order: &str) -> Option<Robustness> {
    let table = frame.arrangements(Pick { cities: Some(order), ..case.pick(&ACCURACY, None) });
    Robustness::new(&table, RESAMPLES / 5, frame.about.seed)
}
