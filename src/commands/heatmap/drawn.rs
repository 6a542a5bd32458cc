//! The table of the maps of one prompt: the share of each region in the output of the drawn heads.

use crate::results::run_table::{Content, RunTable};
use crate::results::table::{fixed, key_column, numbers, short, words, Cell, Table, TableRows};
use crate::results::{of_model, under, DrawnHead, Frame};
use names::condition::UNTREATED;
use names::metric::{Kind, HEAD_ATTRIBUTION, LAMBDA, SHARE_OUT};
use names::{Column, HeadPlace, Number, Region};
use stats::mean;
use text::text_rows;

/// The drawn heads of one layer, or a head alone, under a condition.
struct Drawn<'a> {
    model: &'a str,
    layer: usize,
    heads: Vec<usize>,
    condition: Option<&'a str>,
}

/// Heads that were drawn, layer by layer.
pub(crate) const DRAWN_LAYERS: RunTable = drawn_maps(|frame| table(frame, false));

/// Heads that were drawn, one by one.
pub(crate) const DRAWN_HEADS: RunTable = drawn_maps(|frame| table(frame, true));

const fn drawn_maps(fill: fn(&Frame) -> Option<Table>) -> RunTable {
    RunTable { id: "drawn", title: "Maps of one prompt", note: "", content: Content::Made(fill) }
}

fn table(frame: &Frame, by_head: bool) -> Option<Table> {
    let what = if by_head { "Heads that the page (explore.html) has token by token" } else { "Drawn heads" };
    let rows = drawn(frame, by_head);
    let mut table = TableRows::of(&rows)
        .column(key_column(Column::Model), |drawn| Cell::words(drawn.model))
        .column_if(by_head, words("head").key(), |drawn| {
            Cell::optional_words(drawn.heads.first().map(|&head| HeadPlace { layer: drawn.layer, head }.to_string()))
        })
        .column_if(!by_head, key_column(Column::Layer), |drawn| Cell::count(drawn.layer))
        .column_if(!by_head, words("heads").key(), |drawn| match drawn.heads[..] {
            [head] => Cell::words(format!("only {head}")),
            _ => Cell::words(drawn.heads.len().to_string()),
        })
        .column_if(frame.has_conditions(), key_column(Column::Condition), |drawn| {
            Cell::words(drawn.condition.unwrap_or(UNTREATED))
        })
        .column(numbers(LAMBDA.heading(None)), |drawn| {
            Cell::number(mean_over(frame, drawn, LAMBDA.overall()), |x| short(Some(x)))
        })
        .column_if(by_head, numbers("nats").named(HEAD_ATTRIBUTION.name), |drawn| {
            Cell::number(mean_over(frame, drawn, HEAD_ATTRIBUTION.overall()), |x| fixed(x, 2))
        });
    for region in Region::ALL {
        let column = numbers(region.name()).named(SHARE_OUT.name_of(Some(region.name())));
        table = table.column(column, |drawn| {
            // The prompt does not have a region whose share is zero.
            let share = mean_over(frame, drawn, SHARE_OUT.of(region.name())).filter(|&share| share != 0.0);
            Cell::value(Kind::Share, share, None)
        });
    }
    let attribution = if by_head { "head attribution in nats, and " } else { "" };
    let note = format!("{what}: {attribution}share of each region in their output in {}, in %.", rows_in_words(frame));
    table.noted(note).trimmed()
}

/// The rows in which shares are measured.
pub(super) fn rows_in_words(frame: &Frame) -> String {
    match frame.settings.first().filter(|_| !frame.asks()) {
        Some(setting) => format!("the last {} rows", text_rows(setting.ctx_tok)),
        None => "the rows that predict the answer".to_owned(),
    }
}

/// The drawn heads, by layer in the order of the models, or one by one in the order of the list.
fn drawn(frame: &Frame, by_head: bool) -> Vec<Drawn<'_>> {
    let mut drawn: Vec<(&DrawnHead, Vec<usize>)> = Vec::new();
    for at in &frame.found.drawn {
        let same_layer = drawn.iter_mut().find(|(first, _)| (&first.model, first.layer) == (&at.model, at.layer));
        match same_layer.filter(|_| !by_head) {
            Some((_, heads)) => heads.push(at.head),
            None => drawn.push((at, vec![at.head])),
        }
    }
    let mut rows = Vec::new();
    for (DrawnHead { model, layer, .. }, heads) in &drawn {
        let conditions = frame.treated.iter().map(Option::as_deref);
        rows.extend(conditions.map(|condition| Drawn { model, layer: *layer, heads: heads.clone(), condition }));
    }
    rows
}

/// The mean of a metric over heads.
fn mean_over(frame: &Frame, drawn: &Drawn<'_>, number: Number<'_>) -> Option<f64> {
    let mut numbers = Vec::new();
    for (at, values) in frame.heads(number, &[of_model(drawn.model), under(drawn.condition)]) {
        if at.layer == drawn.layer && drawn.heads.contains(&at.head) {
            numbers.extend(values.values());
        }
    }
    mean(&numbers)
}
