//! Tables as text for terminals.

use super::super::view::{main_differences, main_table, next, sheets, training, Sheet, SheetCell, SheetColumn};
use super::super::Frame;
use crate::bail_usage;
use crate::base::names::ShortNames;
use crate::base::terminal::wrapped;
use crate::results::table::{left, right, ColumnRole, Table};
use crate::train::Study;
use anyhow::Result;
use std::fmt::Write as _;
use std::str::FromStr;

/// Rows of the default tables together: with captions and headings they take 40 lines at most.
const MOST_ROWS: usize = 28;
/// Rows of the main table that are shown by default.
const MOST_MAIN_ROWS: usize = 16;

/// The tables to print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// The main table and its differences.
    #[default]
    Main,
    /// All of them.
    All,
    /// Those of these names, in this order.
    Named(Vec<String>),
}

impl FromStr for Tables {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.as_slice() {
            [all] if all == "all" => Ok(Self::All),
            names if names.iter().any(String::is_empty) => Err("names of tables are separated by commas".to_owned()),
            _ => Ok(Self::Named(names)),
        }
    }
}

/// Formats the tables of a run.
///
/// # Errors
/// A usage error if a table is named that the run does not have.
pub fn text(frame: &Frame, tables: &Tables) -> Result<String> {
    let names = frame.short_names();
    match tables {
        Tables::Main => Ok(main_text(main_table(frame), main_differences(frame), next(frame), names)),
        other => chosen_text(&sheets(frame), other, names),
    }
}

/// Formats the tables of a training study.
///
/// # Errors
/// A usage error if a table is named that the study does not have.
pub(crate) fn study_text(study: &Study, tables: &Tables) -> Result<String> {
    let names = ShortNames::default();
    match tables {
        Tables::Main => {
            let differences = training::differences(study).into_iter().collect();
            Ok(main_text(Some(training::main_table(study)), differences, training::NEXT, &names))
        }
        other => chosen_text(&training::sheets(study), other, &names),
    }
}

/// All tables, or those that are named.
fn chosen_text(sheets: &[Sheet], tables: &Tables, names: &ShortNames) -> Result<String> {
    let mut chosen: Vec<&Sheet> = sheets.iter().collect();
    if let Tables::Named(wanted) = tables {
        chosen.clear();
        for name in wanted {
            let Some(sheet) = sheets.iter().find(|sheet| sheet.id == *name) else {
                let known: Vec<&str> = sheets.iter().map(|sheet| sheet.id).collect();
                bail_usage!("--tables {name}: there is no such table here; there are {}", known.join(", "));
            };
            chosen.push(sheet);
        }
    }
    Ok(texts(&chosen, names).trim_end().to_owned() + "\n")
}

/// The main table, those beside it, and what to look at next.
fn main_text(main: Option<Sheet>, beside: Vec<Sheet>, next: &str, names: &ShortNames) -> String {
    let Some(main) = main else { return "The results hold no numbers.\n".to_owned() };
    let main = shortened(main, MOST_MAIN_ROWS);
    let rows = MOST_ROWS.saturating_sub(main.rows.len()).max(MOST_ROWS / 3);
    let beside: Vec<Sheet> = beside.into_iter().map(|sheet| shortened(sheet, rows)).collect();
    let sheets: Vec<&Sheet> = [&main].into_iter().chain(&beside).collect();
    texts(&sheets, names) + &wrapped(&format!("{next} More: --tables all."), "") + "\n"
}

/// Cuts a table to its first rows, and says how many more there are.
fn shortened(mut sheet: Sheet, most: usize) -> Sheet {
    let more = sheet.rows.len().saturating_sub(most);
    if more > 0 {
        sheet.rows.truncate(most);
        sheet.note += &format!(" {more} more rows: --tables {}.", sheet.id);
    }
    sheet
}

fn texts(sheets: &[&Sheet], names: &ShortNames) -> String {
    let mut text = String::new();
    for &sheet in sheets {
        let sheet = sheet.clone().with_names(names);
        let (shared, sheet) = hoisted(sheet);
        let shared = if shared.is_empty() { String::new() } else { format!(": {shared}") };
        let note = if sheet.note.is_empty() { String::new() } else { format!(" {}", sheet.note) };
        let heading = wrapped(&format!("{}{shared}.{note}", sheet.title), "");
        let _ = write!(text, "{heading}\n\n{}\n\n", text_table(&sheet));
    }
    text
}

/// Takes the keys that all rows share out of a table: `4096 tokens, 40 prompts`.
fn hoisted(mut sheet: Sheet) -> (String, Sheet) {
    let is_shared = |at: usize| {
        let is_key = sheet.columns[at].role != ColumnRole::Result;
        at > 0 && is_key && sheet.rows.len() > 1 && sheet.rows.iter().all(|row| row[at] == sheet.rows[0][at])
    };
    let shared: Vec<usize> = (0..sheet.columns.len()).filter(|&at| is_shared(at)).collect();
    let words: Vec<String> = shared.iter().map(|&at| sheet.key_words(at, &sheet.rows[0])).collect();
    let keep: Vec<bool> = (0..sheet.columns.len()).map(|at| !shared.contains(&at)).collect();
    sheet.keep_columns(&keep);
    (words.join(", "), sheet)
}

/// Lays a table out for the terminal.
pub(crate) fn text_table(sheet: &Sheet) -> Table {
    let heading = |column: &SheetColumn| {
        let heading = column.heading.clone();
        if column.number { right(heading) } else { left(heading) }.with(column.role)
    };
    let mut table = Table::new(&sheet.columns.iter().map(heading).collect::<Vec<_>>());
    for row in &sheet.rows {
        table.row(row.iter().map(SheetCell::line));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::super::view::{numbers, words};
    use super::*;

    #[test]
    fn tables_are_chosen_by_name() {
        assert_eq!("all".parse(), Ok(Tables::All));
        assert_eq!("depth, shape".parse(), Ok(Tables::Named(vec!["depth".into(), "shape".into()])));
        assert!("depth,,".parse::<Tables>().is_err());
    }

    #[test]
    fn keys_that_all_rows_share_are_said_once_above_the_table() {
        let columns = vec![words("model").key(), numbers("tokens").key(), numbers("N").key(), numbers("accuracy %")];
        let row = |model: &str, n: usize| {
            vec![
                SheetCell::words(model),
                SheetCell::count(Some(512)),
                SheetCell::count(Some(n)),
                SheetCell::count(Some(9)),
            ]
        };
        let sheet = Sheet::new("x", "X", String::new(), columns, vec![row("a", 1), row("b", 2)]);
        let (shared, rest) = hoisted(sheet);
        assert_eq!(shared, "512 tokens");
        assert_eq!(
            rest.columns.iter().map(|column| column.heading.as_str()).collect::<Vec<_>>(),
            ["model", "N", "accuracy %"]
        );
    }

    #[test]
    fn long_tables_end_with_the_number_of_rows_that_are_left_out() {
        let rows = (0..5).map(|i| vec![SheetCell::count(Some(i))]).collect();
        let sheet = shortened(Sheet::new("x", "X", "Note.".into(), vec![numbers("n")], rows), 3);
        assert_eq!((sheet.rows.len(), sheet.note.as_str()), (3, "Note. 2 more rows: --tables x."));
    }
}
