//! Where the answer travels: what it costs to silence the keys of one region in the rows of one region.

use super::changes::{condition_changes, place_columns, Change, Place, CONDITIONS};
use crate::results::difference::correct;
use crate::results::run_table::RunTable;
use crate::results::table::{key_column, numbers, Cell, ColumnRole, Table};
use crate::results::{Difference, Frame};
use names::condition::{ConditionFacts, KeySelection, Purpose, Removal, RowSelection, Treatment};
use names::metric::Kind;
use names::{Column, Region};

pub(super) const FLOW: RunTable = RunTable::made("flow", "Where the answer travels", flow);

const CAPTION: &str = "Change of the answer's log-probability, in nats, where the keys of a column have no weight in rows of the answer's \
                       needle, of its value, of the rest of the context, of the question (asking), and in those that predict the \
                       answer [95 % interval].";

/// The first token, whichever it is.
const FIRST: &[Region] = &[Region::Bos, Region::First];

/// The keys that are silenced in each selection of rows, as far as these see them.
const SILENCED: [(RowSelection, &[&[Region]]); 5] = [
    (RowSelection::Needle, &[FIRST, &[Region::Filler], &[Region::Distractor]]),
    (RowSelection::Value, &[FIRST, &[Region::Filler], &[Region::Distractor], &[Region::Needle]]),
    (RowSelection::Context, &[&[Region::Needle], &[Region::Answer]]),
    (RowSelection::Asking, &[FIRST, &[Region::Filler], &[Region::Distractor], &[Region::Needle], &[Region::Answer]]),
    (
        RowSelection::Answer,
        &[FIRST, &[Region::Filler], &[Region::Distractor], &[Region::Needle], &[Region::Answer], &[Region::Question]],
    ),
];

/// The treatments of `--parts flow`, each a condition.
pub(super) fn silenced_cells() -> impl Iterator<Item = Treatment> {
    SILENCED.iter().flat_map(|&(rows, all)| {
        all.iter().map(move |keys| Treatment::remove(Removal::Silence, KeySelection::Regions(keys.to_vec()), rows))
    })
}

/// The rows and the regions of the keys that a condition silences in all layers, if it does nothing else.
fn cell(condition: &ConditionFacts) -> Option<(&'static str, &[Region])> {
    match &condition.purpose {
        Purpose::Removed { how: Removal::Silence, regions, layers: None, rows } => Some((rows, regions)),
        _ => None,
    }
}

/// Returns `true` if the table of a run has the condition: it silences regions, and others do so in other rows.
pub(super) fn is_in_flow(frame: &Frame, condition: &ConditionFacts) -> bool {
    let Some((rows, _)) = cell(condition) else { return false };
    frame.conditions.0.iter().filter_map(cell).any(|(others, _)| others != rows)
}

/// The table of conditions without those that the table of the flow has, for a figure beside that of the flow.
pub(super) fn conditions_beside_flow(frame: &Frame) -> Option<Table> {
    let mut table = CONDITIONS.filled(frame)?;
    let condition = table.place(Column::Condition.name())?;
    let in_flow = frame.conditions.0.iter().filter(|condition| is_in_flow(frame, condition));
    let names: Vec<&str> = in_flow.map(|condition| condition.name.as_str()).collect();
    table.rows.retain(|row| !names.contains(&row[condition].text.as_str()));
    table.with_rows()
}

/// A row of the table: the changes of a model in a setting, by rows that lose keys.
struct FlowRow<'a> {
    place: Place<'a>,
    rows: &'static str,
    changes: Vec<&'a Change<'a>>,
}

fn flow(frame: &Frame) -> Option<Table> {
    let mut changes = condition_changes(frame);
    changes.retain(|change| is_in_flow(frame, change.condition));
    correct(changes.iter_mut().map(|change| &mut change.log_prob_nats));
    let mut keys: Vec<&[Region]> = Vec::new();
    let mut rows: Vec<FlowRow<'_>> = Vec::new();
    for change in &changes {
        let (of, regions) = cell(change.condition)?;
        if !keys.contains(&regions) {
            keys.push(regions);
        }
        match rows.iter_mut().find(|row| row.place == change.place && row.rows == of) {
            Some(row) => row.changes.push(change),
            None => rows.push(FlowRow { place: change.place, rows: of, changes: vec![change] }),
        }
    }
    keys.sort();
    let mut table = place_columns(&rows, |row| row.place).column(key_column(Column::Rows), |row| Cell::words(row.rows));
    for regions in keys {
        let keys = KeySelection::Regions(regions.to_vec());
        table = table.column(numbers(keys.words()).named(keys.to_string()), |row| {
            let change = row.changes.iter().find(|change| cell(change.condition).is_some_and(|(_, of)| of == regions));
            let change = change.map(|change| &change.log_prob_nats);
            Cell { decided: change.is_some_and(Difference::is_decided), ..Cell::difference(Kind::Number, change) }
        });
    }
    let mut table = table.noted(CAPTION);
    table.columns[0].role = ColumnRole::Part; // each model has rows of its own, which are read together
    table.with_rows()
}
