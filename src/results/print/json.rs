//! Tables as JSON.

use super::super::view::{sheets, Sheet, SheetCell};
use super::super::Frame;
use serde_json::{json, Map, Value};

/// All tables of a run by their names: a list of rows each. Numbers are in the units of `results.csv`, those with an interval
/// objects of `value`, `lo` and `hi`; a missing one is null.
pub fn json(frame: &Frame) -> Value {
    sheets(frame).iter().map(|sheet| (sheet.id.to_owned(), sheet_json(sheet))).collect::<Map<_, _>>().into()
}

/// The rows of a table.
fn sheet_json(sheet: &Sheet) -> Value {
    let row = |row: &Vec<SheetCell>| -> Value {
        let fields = sheet.columns.iter().zip(row).map(|(column, cell)| (column.name.clone(), value(cell)));
        fields.collect::<Map<_, _>>().into()
    };
    sheet.rows.iter().map(row).collect()
}

fn value(cell: &SheetCell) -> Value {
    match (cell.exact, cell.interval) {
        _ if cell.is_none() => Value::Null,
        (Some(x), Some(interval)) => json!({ "value": x, "lo": interval.lo, "hi": interval.hi }),
        (Some(x), None) if x.fract() == 0.0 && x.abs() < 9e15 => json!(x as i64),
        (Some(x), None) => json!(x),
        (None, _) => json!(cell.text),
    }
}
