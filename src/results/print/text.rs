//! Tables as text for terminals.

use super::super::table::{ColumnRole, Table};
use super::super::view::{main_differences, main_table, next, tables};
use super::super::Frame;
use super::layout::TextTable;
use crate::bail_usage;
use crate::base::names::ShortNames;
use crate::base::terminal::wrapped;
use anyhow::Result;
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
pub fn text(frame: &Frame, wanted: &Tables) -> Result<String> {
    let names = &frame.short_names;
    match wanted {
        Tables::Main => Ok(main_text(main_table(frame), main_differences(frame), next(frame), names)),
        other => chosen_text(&tables(frame), other, names),
    }
}

/// Formats all tables, or those that are named.
///
/// # Errors
/// A usage error if a table is named that is not there.
pub(crate) fn chosen_text(tables: &[Table], wanted: &Tables, names: &ShortNames) -> Result<String> {
    let mut chosen: Vec<&Table> = tables.iter().collect();
    if let Tables::Named(wanted) = wanted {
        chosen.clear();
        for name in wanted {
            let Some(table) = tables.iter().find(|table| table.id == *name) else {
                let known: Vec<&str> = tables.iter().map(|table| table.id).collect();
                bail_usage!("--tables {name}: there is no such table here; there are {}", known.join(", "));
            };
            chosen.push(table);
        }
    }
    Ok(texts(chosen, names).trim_end().to_owned() + "\n")
}

/// Formats the main table, those beside it, and what to look at next.
pub(crate) fn main_text(main: Option<Table>, beside: Vec<Table>, next: &str, names: &ShortNames) -> String {
    let Some(main) = main else { return "The results hold no numbers.\n".to_owned() };
    let main = shortened(main, MOST_MAIN_ROWS);
    let rows = MOST_ROWS.saturating_sub(main.rows.len()).max(MOST_ROWS / 3);
    let mut tables = vec![main];
    tables.extend(beside.into_iter().map(|table| shortened(table, rows)));
    texts(&tables, names) + &wrapped(&format!("{next} More: --tables all."), "") + "\n"
}

/// Cuts a table to its first rows, and says how many more there are.
fn shortened(mut table: Table, most: usize) -> Table {
    let more = table.rows.len().saturating_sub(most);
    if more > 0 {
        table.rows.truncate(most);
        table.note += &format!(" {more} more rows: --tables {}.", table.id);
    }
    table
}

fn texts<'a>(tables: impl IntoIterator<Item = &'a Table>, names: &ShortNames) -> String {
    let mut text = String::new();
    for table in tables {
        let (shared, table) = hoisted(table.clone().with_names(names));
        let shared = if shared.is_empty() { String::new() } else { format!(": {shared}") };
        let note = if table.note.is_empty() { String::new() } else { format!(" {}", table.note) };
        let heading = wrapped(&format!("{}{shared}.{note}", table.title), "");
        text += &format!("{heading}\n\n{}\n\n", TextTable::new(&table));
    }
    text
}

/// Takes the keys that all rows share out of a table: `4096 tokens, 40 prompts`.
fn hoisted(mut table: Table) -> (String, Table) {
    let mut shared = Vec::new();
    if let [first, _, ..] = table.rows.as_slice() {
        for (at, column) in table.columns.iter().enumerate().skip(1) {
            if column.role != ColumnRole::Result && table.rows.iter().all(|row| row[at] == first[at]) {
                shared.push(at);
            }
        }
    }
    let words: Vec<String> = shared.iter().map(|&at| table.key_words(at, &table.rows[0])).collect();
    table.keep_columns(|at| !shared.contains(&at));
    (words.join(", "), table)
}

#[cfg(test)]
mod tests {
    use super::super::super::table::{numbers, words, Cell};
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
        let row = |model: &str, n: usize| vec![Cell::words(model), Cell::count(512), Cell::count(n), Cell::count(9)];
        let table = Table::new("x", "X", String::new(), columns, vec![row("a", 1), row("b", 2)]);
        let (shared, rest) = hoisted(table);
        assert_eq!(shared, "512 tokens");
        assert_eq!(
            rest.columns.iter().map(|column| column.heading.as_str()).collect::<Vec<_>>(),
            ["model", "N", "accuracy %"]
        );
    }

    #[test]
    fn long_tables_end_with_the_number_of_rows_that_are_left_out() {
        let rows = (0..5).map(|i| vec![Cell::count(i)]).collect();
        let table = shortened(Table::new("x", "X", "Note.".into(), vec![numbers("n")], rows), 3);
        assert_eq!((table.rows.len(), table.note.as_str()), (3, "Note. 2 more rows: --tables x."));
    }
}
