//! Tables for the terminal, and the same as JSON.

use super::{of_preset, paper, sheets, Cell, Sheet};
use crate::frame::Frame;
use crate::names::shared_folder;
use crate::table::{left, right, Table};
use crate::terminal::{escaped, wrapped};
use serde_json::{json, Map, Value};
use std::cmp::Reverse;
use std::fmt::Write as _;

/// What a run prints: the tables for the first look, those that its preset is about, and what the paper has. Folders that all
/// models lie in are said once: a page has no room for them in every row.
pub fn text(frame: &Frame) -> String {
    let show = frame.config_text("show");
    let folder = shared_folder(frame.models());
    let mut text = String::new();
    let shown = |sheet: &Sheet| !sheet.detail || of_preset(show).contains(&sheet.id);
    for mut sheet in sheets(frame).into_iter().filter(shown) {
        if !folder.is_empty() {
            let texts = sheet.rows.iter_mut().flatten().map(|cell| &mut cell.text);
            texts.for_each(|text| *text = shortened(text, frame.models(), folder));
        }
        let stop = if sheet.title.ends_with('?') { "" } else { "." };
        let note = if sheet.note.is_empty() { String::new() } else { format!("{stop} {}", sheet.note) };
        let heading = wrapped(&format!("{}{note}", sheet.title), "");
        let _ = match sheet.columns.as_slice() {
            [_] => write!(text, "{heading}\n\n{}\n\n", sentences(&sheet)),
            _ => write!(text, "{heading}\n\n{}\n\n", table(&sheet)),
        };
    }
    if text.is_empty() {
        text.push_str("The results hold no numbers.\n\n");
    } else if !folder.is_empty() {
        text.insert_str(0, &wrapped(&format!("Names of models leave out `{}`.\n\n", escaped(folder)), ""));
    }
    paper(frame).iter().for_each(|paper| {
        let _ = write!(text, "{paper}\n\n");
    });
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A text with the names of models in it, without the folder that all of them lie in. Where one name begins, the longest is
/// meant, and what is left of it is no name again.
fn shortened(mut text: &str, models: &[String], folder: &str) -> String {
    let mut short = String::new();
    let first = |text: &str| {
        let found = models.iter().filter_map(|name| text.find(name).map(|at| (at, name.len())));
        found.min_by_key(|&(at, length)| (at, Reverse(length)))
    };
    while let Some((at, length)) = first(text) {
        short.push_str(&text[..at]);
        short.push_str(&text[at + folder.len()..at + length]);
        text = &text[at + length..];
    }
    short + text
}

/// A table of nothing but words.
fn sentences(sheet: &Sheet) -> String {
    let lines = sheet.rows.iter().map(|row| wrapped(&format!("- {}", escaped(&row[0].text)), "  "));
    lines.collect::<Vec<_>>().join("\n")
}

/// A table of results as it stands in a terminal.
pub(crate) fn table(sheet: &Sheet) -> Table {
    let heading = |column: &super::Column| {
        let heading = column.heading.clone();
        if column.number { right(heading) } else { left(heading) }.with(column.role)
    };
    let mut table = Table::new(&sheet.columns.iter().map(heading).collect::<Vec<_>>());
    for row in &sheet.rows {
        table.row(row.iter().map(Cell::line));
    }
    table
}

/// All tables of a run by their names: a list of rows each. Numbers are in the units of `results.csv`, those with an interval
/// objects of `value`, `lo` and `hi`; a missing one is null.
pub fn json(frame: &Frame) -> Value {
    let row = |sheet: &Sheet, row: &[Cell]| -> Value {
        sheet
            .columns
            .iter()
            .zip(row)
            .map(|(column, cell)| (column.name.clone(), value(cell)))
            .collect::<Map<_, _>>()
            .into()
    };
    let rows = |sheet: &Sheet| sheet.rows.iter().map(|cells| row(sheet, cells)).collect::<Value>();
    sheets(frame).iter().map(|sheet| (sheet.id.to_owned(), rows(sheet))).collect::<Map<_, _>>().into()
}

fn value(cell: &Cell) -> Value {
    match (cell.exact, cell.interval) {
        _ if cell.is_none() => Value::Null,
        (Some(x), Some(interval)) => json!({ "value": x, "lo": interval.lo, "hi": interval.hi }),
        (Some(x), None) if x.fract() == 0.0 && x.abs() < 9e15 => json!(x as i64),
        (Some(x), None) => json!(x),
        (None, _) => json!(cell.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_once_and_whole_whatever_lies_in_them() {
        let models = ["a/diff", "a/diff-v2", "a/a/diff"].map(str::to_owned);
        let short = |text: &str| shortened(text, &models, shared_folder(&models));
        assert_eq!(short("a/diff-v2 - a/diff"), "diff-v2 - diff");
        assert_eq!(short("a/a/diff mask(noise)"), "a/diff mask(noise)", "not what another model is called");
        assert_eq!(short("a/b, 1/2"), "a/b, 1/2", "no name");
    }
}
