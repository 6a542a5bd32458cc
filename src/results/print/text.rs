//! Tables as text for terminals.

use super::super::table::{plural, ColumnRole, Table, MODEL, TABLES};
use super::super::view::{main_differences, main_table, next, tables};
use super::super::Frame;
use super::layout::TextTable;
use crate::base::names::{hint, ShortNames};
use crate::base::terminal::wrapped;
use std::str::FromStr;

/// Rows of the default tables together: with captions and headings they take about 45 lines.
const MOST_ROWS: usize = 36;
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
        if text == "all" {
            return Ok(Self::All);
        }
        text.split(',')
            .map(|typed| table_name(typed.trim()).map(str::to_owned))
            .collect::<Result<_, _>>()
            .map(Self::Named)
    }
}

/// Returns the name of a table, given it or a title that the table is printed under.
fn table_name(typed: &str) -> Result<&'static str, String> {
    let by_title = TABLES.iter().find(|(_, titles)| titles.iter().any(|title| title.eq_ignore_ascii_case(typed)));
    let found = by_title.or_else(|| TABLES.iter().find(|(name, _)| *name == typed));
    found.map(|(name, _)| *name).ok_or_else(|| {
        let known = TABLES.map(|(name, _)| name);
        format!("there is no table `{typed}`{}; there are {}", hint(typed, known), known.join(", "))
    })
}

/// Formats the tables of a run.
pub fn text(frame: &Frame, wanted: &Tables) -> String {
    let names = &frame.short_names;
    match wanted {
        Tables::Main => main_text(main_table(frame), main_differences(frame), next(frame), names),
        other => chosen_text(&tables(frame), other, names),
    }
}

/// Formats all tables, or those that are named. A name without a table here is answered with the names of those that are there.
pub(crate) fn chosen_text(tables: &[Table], wanted: &Tables, names: &ShortNames) -> String {
    let all: Vec<&str> = tables.iter().map(|table| table.id).collect();
    let wanted = match wanted {
        Tables::Named(wanted) => wanted.iter().map(String::as_str).collect(),
        _ => all.clone(),
    };
    let mut text = String::new();
    for name in wanted {
        text += &match tables.iter().find(|table| table.id == name) {
            Some(table) => {
                let (shared, table) = prepared(table.clone(), names);
                headed(&shared, &table)
            }
            None => wrapped(&format!("There is no table `{name}` here; there are {}.", all.join(", ")), "") + "\n\n",
        };
    }
    text.trim_end().to_owned() + "\n"
}

/// Formats the main table, those beside it, and what to look at next.
pub(crate) fn main_text(main: Option<Table>, beside: Vec<Table>, next: &str, names: &ShortNames) -> String {
    let mut tables = main.into_iter().chain(beside).map(|table| prepared(table, names));
    let Some((shared, main)) = tables.next() else { return "The results hold no numbers.\n".to_owned() };
    let main = shortened(main, MOST_MAIN_ROWS);
    let rows = MOST_ROWS.saturating_sub(main.rows.len()).max(MOST_ROWS / 3);
    let mut text = headed(&shared, &main);
    tables.for_each(|(shared, table)| text += &headed(&shared, &shortened(table, rows)));
    text + &wrapped(&format!("{next} More: --tables all."), "") + "\n"
}

/// Cuts a table, or each of its parts, to its first rows, and says how many more there are.
fn shortened(mut table: Table, most: usize) -> Table {
    let part = match table.columns[0].role {
        ColumnRole::Part => table.rows.iter().filter(|row| row[0] == table.rows[0][0]).count(),
        _ => table.rows.len(),
    };
    let more = part.saturating_sub(most);
    if more > 0 {
        table.rows = table.rows.chunks(part).flat_map(|part| part[..most].to_vec()).collect();
        table.note += &format!(" {}: --tables {}.", plural(more, "more row"), table.id);
    }
    table
}

/// A table under its heading, with what all its rows share.
fn headed(shared: &str, table: &Table) -> String {
    let shared = if shared.is_empty() { String::new() } else { format!(": {shared}") };
    let note = if table.note.is_empty() { String::new() } else { format!(" {}", table.note) };
    let heading = wrapped(&format!("{}{shared}.{note}", table.title), "");
    format!("{heading}\n\n{}\n\n", TextTable::new(table))
}

/// Splits a table into the words that all its rows share and a table of the rest, with short names of models. Models stand side by
/// side where that takes fewer lines, or where the last ones would be cut off.
fn prepared(table: Table, names: &ShortNames) -> (String, Table) {
    let (shared, table) = hoisted(table.with_names(names));
    match table.by_model() {
        Some(by_model) if reads_better(&by_model, &table) => (shared, by_model),
        _ => (shared, table),
    }
}

/// Returns `true` if a table with the models side by side reads better than the one with a row for each.
fn reads_better(by_model: &Table, by_row: &Table) -> bool {
    let is_of_parts = by_model.columns[0].role == ColumnRole::Part;
    if is_of_parts && by_row.rows.len() > MOST_MAIN_ROWS {
        return true;
    }
    let [columns, rows] = [by_model, by_row].map(TextTable::new);
    (is_of_parts || !rows.fits()) && columns.to_string().lines().count() < rows.to_string().lines().count()
}

/// Takes the keys that all rows share out of a table: `4096 tokens, 40 prompts`. The first column stays, unless it is a model's
/// and there are other keys.
fn hoisted(mut table: Table) -> (String, Table) {
    let Some(first) = table.rows.first().cloned() else { return (String::new(), table) };
    let mut shared = Vec::new();
    for (at, column) in table.columns.iter().enumerate() {
        let is_same = table.rows.iter().all(|row| row[at] == first[at]);
        if is_same && column.role != ColumnRole::Result && (at > 0 || (column.name == MODEL && table.rows.len() > 1)) {
            shared.push(at);
        }
    }
    let words: Vec<String> = shared.iter().map(|&at| table.key_words(at, &first)).collect();
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
        assert_eq!(
            "Costs of conditions,Answers".parse(),
            Ok(Tables::Named(vec!["conditions".into(), "summary".into()]))
        );
        assert!("dephts".parse::<Tables>().unwrap_err().contains("`depth`") && "depth,,".parse::<Tables>().is_err());
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
    fn models_that_are_compared_row_by_row_stand_side_by_side_where_that_is_shorter() {
        let columns = vec![words("model").key(), words("condition").key(), numbers("accuracy %"), numbers("nats")];
        let mut rows = Vec::new();
        for model in ["/a/standard-model-of-a-long-name.gguf", "/a/differential-model-of-a-long-name.gguf"] {
            for condition in ["none", "mask(noise)", "silence(noise)"] {
                rows.push([model, condition, "100", "-1.25 [-2.5, -0.5]"].map(Cell::words).to_vec());
            }
        }
        let names = ShortNames::of(&rows.iter().map(|row| row[0].text.clone()).collect::<Vec<_>>());
        let table = |rows: &[Vec<Cell>]| Table::new("x", "X", String::new(), columns.clone(), rows.to_vec());
        let text = |rows: &[Vec<Cell>]| main_text(Some(table(rows)), Vec::new(), "", &names);
        let side_by_side = "\
accuracy %
condition       standard-model-of-a-long-name  differential-model-of-a-long-name
none                                      100                                100
";
        assert!(text(&rows).contains(side_by_side), "{}", text(&rows));
        let one = text(&rows[..3]);
        assert!(one.starts_with("X: standard-model-of-a-long-name.\n\ncondition       accuracy %"), "{one}");
        let (_, by_model) = prepared(table(&rows), &names);
        let cut = shortened(by_model, 2);
        assert_eq!((cut.rows.len(), cut.note.as_str()), (4, " 1 more row: --tables x."), "of each part");
        rows[3][1] = Cell::words("keep(0.1)");
        assert_eq!(table(&rows).by_model(), None, "other conditions");
    }

    #[test]
    fn long_tables_end_with_the_number_of_rows_that_are_left_out() {
        let rows = (0..5).map(|i| vec![Cell::count(i)]).collect();
        let table = shortened(Table::new("x", "X", "Note.".into(), vec![numbers("n")], rows), 3);
        assert_eq!((table.rows.len(), table.note.as_str()), (3, "Note. 2 more rows: --tables x."));
    }
}
