//! The table of the maps of one prompt: the share of each region in the output of the drawn heads.

use crate::prompts::Region;
use crate::results::metric::{Kind, LAMBDA, SHARE_OUT};
use crate::results::table::short;
use crate::results::table::{numbers, words, Cell, Table};
use crate::results::CommandName;
use crate::results::Frame;
use crate::stats::mean;

/// The drawn heads of one layer, or a head alone.
struct Drawn<'a> {
    model: &'a str,
    layer: usize,
    heads: Vec<usize>,
}

/// The table of a run over one prompt: heat maps by layer, explorers by head.
pub(super) fn table(frame: &Frame) -> Option<Table> {
    let by_head = frame.command() == Some(CommandName::Explore);
    let has_conditions = frame.treated().iter().any(|treated| treated.condition.is_some());
    let mut columns = vec![words("model").key(), numbers("layer").key()];
    columns.push(if by_head { numbers("head").key() } else { words("heads").key() });
    columns.extend(has_conditions.then(|| words("condition").key()));
    columns.push(numbers(LAMBDA.heading(None)));
    columns.extend(Region::ALL.map(|region| numbers(region.name()).named(SHARE_OUT.name_of(Some(region.name())))));
    let mut rows = Vec::new();
    for of in &drawn(frame, by_head) {
        for treated in frame.treated() {
            let condition = treated.condition.as_deref();
            let heads = match of.heads.as_slice() {
                [head] if by_head => Cell::count(*head),
                [head] => Cell::words(format!("only {head}")),
                heads => Cell::words(heads.len().to_string()),
            };
            let mut row = vec![Cell::words(of.model), Cell::count(of.layer), heads];
            row.extend(has_conditions.then(|| Cell::words(treated.name())));
            let lambda = mean_over(frame, of, condition, LAMBDA.name, None);
            row.push(Cell::number(lambda, |x| short(Some(x))));
            row.extend(Region::ALL.map(|region| share(frame, of, condition, region)));
            rows.push(row);
        }
    }
    let what = if by_head { "Heads that the page (explore.html) has token by token" } else { "Drawn heads" };
    let rows_name = if frame.asks() { "the rows that predict the answer" } else { "the last 32 rows" };
    let note = format!("{what}: share of each region in their output in {rows_name}, in %.");
    Table::new("drawn", "Maps of one prompt", note, columns, rows).trimmed()
}

/// Returns the drawn heads, by layer in the order of the models, or one by one in the order of the list.
fn drawn(frame: &Frame, by_head: bool) -> Vec<Drawn<'_>> {
    let mut drawn: Vec<Drawn<'_>> = Vec::new();
    for at in &frame.drawn {
        let same_layer = drawn.iter_mut().find(|known| known.model == at.model && known.layer == at.layer);
        match same_layer.filter(|_| !by_head) {
            Some(known) => known.heads.push(at.head),
            None => drawn.push(Drawn { model: &at.model, layer: at.layer, heads: vec![at.head] }),
        }
    }
    drawn
}

/// Returns the share of a region; a dash where the prompt does not have it.
fn share(frame: &Frame, drawn: &Drawn<'_>, condition: Option<&str>, region: Region) -> Cell {
    let share = mean_over(frame, drawn, condition, SHARE_OUT.name, Some(region.name()));
    share.filter(|&x| x != 0.0).map_or_else(Cell::none, |x| Cell::value(Kind::Share, x, None))
}

/// Returns the mean of a metric over heads.
fn mean_over(
    frame: &Frame,
    drawn: &Drawn<'_>,
    condition: Option<&str>,
    metric: &str,
    region: Option<&str>,
) -> Option<f64> {
    let mut numbers = Vec::new();
    for ((layer, head), values) in frame.heads(drawn.model, condition, metric, region) {
        if layer == drawn.layer && drawn.heads.contains(&head) {
            numbers.extend(values);
        }
    }
    mean(&numbers)
}
