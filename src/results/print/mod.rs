//! Printers: tables as text for terminals, JSON, CSV, Markdown and LaTeX.

mod csv;
mod latex;
mod layout;
mod markdown;
mod text;

pub(crate) use csv::{write_rows, write_table};
pub(crate) use latex::latex_table;
pub(crate) use layout::TextTable;
pub(crate) use markdown::{escaped as escaped_markdown, markdown_table, markdown_with_caption};
pub use text::Tables;
pub(crate) use text::{chosen_text, screen_text};

use super::table::{Cell, Table};
use serde_json::{json, Map, Value};

/// Tables by their names: a list of rows each. Numbers are in the units of `results.csv`, estimates objects of `value`,
/// `lo` and `hi`, which are null where there are too few prompts for an interval; a missing number is null.
pub(crate) fn json_of(tables: &[Table]) -> Value {
    tables.iter().map(|table| (table.id.to_owned(), rows_json(table))).collect::<Map<_, _>>().into()
}

fn rows_json(table: &Table) -> Value {
    let mut rows = Vec::new();
    for row in &table.rows {
        let fields = table.columns.iter().zip(row).map(|(column, cell)| (column.name.clone(), value(cell)));
        rows.push(Value::Object(fields.collect()));
    }
    rows.into()
}

fn value(cell: &Cell) -> Value {
    match (cell.exact, cell.interval) {
        _ if cell.is_none() => Value::Null,
        (Some(x), interval) if cell.estimated => {
            json!({ "value": x, "lo": interval.map(|interval| interval.lo), "hi": interval.map(|interval| interval.hi) })
        }
        (Some(x), _) if x.fract() == 0.0 && x.abs() < 9e15 => json!(x as i64),
        (Some(x), _) => json!(x),
        (None, _) => json!(cell.text),
    }
}
