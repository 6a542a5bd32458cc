//! Tables of runs that are no means of records, each as a value.

pub(crate) mod ablate;
pub(crate) mod differences;
pub(crate) mod each_head;
mod heads;
mod maps;
pub(crate) mod nll;
mod outliers;
mod shots;

pub(crate) use differences::{difference_cell, differences, group_value, Detail, DIFFERENCES};
pub(crate) use heads::{by_role, ANSWER_HEADS, HEAD_ROLES, ROLES, SINKS, STRONGEST};
pub(crate) use maps::{DRAWN_HEADS, DRAWN_LAYERS};
pub(crate) use outliers::{side_by_side as outliers_side_by_side, CHANNELS, OUTLIERS};
pub(crate) use shots::{robustness, SHOTS};

use super::run_table::{Content, RunTable};
use super::table::{numbers, words, Cell, TableColumn, TableRows};
use super::{Case, Frame, Setting};

const fn made(id: &'static str, title: &'static str, fill: fn(&Frame) -> Option<super::table::Table>) -> RunTable {
    RunTable { id, title, note: "", content: Content::Made(fill) }
}

pub(crate) const CONDITIONS: RunTable = made("conditions", "Costs of conditions", ablate::conditions);
pub(crate) const EXPECTED: RunTable = made("expected", "Attribution and measured change", ablate::attribution);
pub(crate) const HEADS_OUT: RunTable = made("heads-out", "Heads taken out", ablate::heads_out);
pub(crate) const EACH_HEAD: RunTable = made("each-head", "Cost of each head", each_head::strongest);
pub(crate) const PREDICTORS: RunTable = made("predictors", "Prediction of the cost of heads", each_head::predictors);
pub(crate) const CONTRASTS: RunTable = made("contrasts", "Contrasts of models", ablate::contrasts);

/// Adds the columns of a model and of a setting, which has needles where prompts ask for any.
pub(super) fn place_columns<'a, T>(
    rows: TableRows<'a, T>,
    first: TableColumn,
    asks: bool,
    place: impl Fn(&T) -> (String, Setting),
) -> TableRows<'a, T> {
    rows.column(first.key(), |item| Cell::words(place(item).0))
        .column(numbers("tokens").key(), |item| Cell::count(place(item).1.ctx_tok))
        .column_if(asks, numbers("N").key(), |item| Cell::count(place(item).1.needles))
        .column_if(asks, numbers("R").key(), |item| Cell::count(place(item).1.asked))
}

/// Adds the columns that identify a case, as far as the cases of a run differ.
pub(super) fn case_columns<'a, T>(
    frame: &Frame,
    rows: TableRows<'a, T>,
    case: impl Fn(&T) -> &Case,
) -> TableRows<'a, T> {
    place_columns(rows, words("model"), frame.asks(), |item| (case(item).model.clone(), case(item).setting)).column_if(
        frame.has_conditions(),
        words("condition").key(),
        |item| Cell::words(case(item).treated.name()),
    )
}
