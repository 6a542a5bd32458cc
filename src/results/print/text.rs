//! Tables as text for terminals.

use super::super::screen::{Screen, ScreenTable};
use super::super::table::{plural, ColumnRole, Table, MODEL};
use super::layout::TextTable;
use base::terminal::{escaped, wrapped};
use names::ShortNames;

/// The tables to print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// All of them.
    #[default]
    All,
    /// Those of these names, in this order.
    Named(Vec<String>),
}

/// Lines of a screen.
const SCREEN_LINES: usize = 24;

/// Formats a screen: its tables, cut so that all of it is on one screen, its notes, and what to look at next.
pub(crate) fn screen_text(screen: Screen, names: &ShortNames) -> String {
    let Screen { tables, notes, next, .. } = screen;
    let mut end = String::new();
    for note in &notes {
        end += &(wrapped(&escaped(note), "") + "\n");
    }
    let next = if next.is_empty() { String::new() } else { format!("Next: {}. ", escaped(&next)) };
    end += &(wrapped(&format!("{next}More: --tables all."), "") + "\n");
    let mut texts: Vec<ScreenText> = tables.into_iter().map(|table| ScreenText::new(table, names)).collect();
    if texts.is_empty() {
        return "The results hold no numbers.\n".to_owned();
    }
    loop {
        let text = texts.iter().map(ScreenText::text).collect::<String>() + &end;
        let longest = texts.iter_mut().max_by_key(|text| text.screen.table.rows.len());
        match longest.filter(|longest| text.lines().count() > SCREEN_LINES && longest.screen.table.rows.len() > 1) {
            Some(longest) => longest.cut(),
            None => return text,
        }
    }
}

/// A table of a screen, to be printed.
struct ScreenText {
    screen: ScreenTable,
    /// Rows that were cut.
    more: usize,
}

impl ScreenText {
    /// A table with short names of models, without intervals if it would be wider than the page with them.
    fn new(mut screen: ScreenTable, names: &ShortNames) -> Self {
        let (keys, mut table) = hoisted(screen.table.with_names(names));
        screen.shared.extend(Some(keys).filter(|keys| !keys.is_empty()));
        if !TextTable::new(&table).fits() {
            let intervals = table.rows.iter_mut().flatten().filter(|cell| cell.shows_interval());
            intervals.for_each(|cell| cell.aside = String::new());
        }
        Self { screen: ScreenTable { table, ..screen }, more: 0 }
    }

    fn cut(&mut self) {
        self.screen.table.rows.pop();
        self.more += 1;
    }

    fn text(&self) -> String {
        let heading = self.screen.heading();
        let table = &self.screen.table;
        let more = match self.more {
            0 => String::new(),
            more => format!("{}: --tables {}\n", plural(more, "more row"), table.id),
        };
        let heading = if heading.is_empty() {
            String::new()
        } else {
            wrapped(&escaped(&heading), "").replace('\u{a0}', " ") + "\n\n"
        };
        format!("{heading}{}\n{more}\n", TextTable::new(table))
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
                let (shared, table) = hoisted(table.clone().with_names(names));
                headed(&shared, &table)
            }
            None => wrapped(&format!("There is no table `{name}` here; there are {}.", all.join(", ")), "") + "\n\n",
        };
    }
    text.trim_end().to_owned() + "\n"
}

/// A table under its heading, with what all its rows share.
fn headed(shared: &str, table: &Table) -> String {
    let shared = if shared.is_empty() { String::new() } else { format!(": {shared}") };
    let note = if table.note.is_empty() { String::new() } else { format!(" {}", table.note) };
    let heading = wrapped(&format!("{}{shared}.{note}", table.title), "");
    format!("{heading}\n\n{}\n\n", TextTable::new(table))
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
    let words: Vec<String> = shared.iter().map(|&at| table.words(at, &first)).collect();
    table.keep_columns(|at| !shared.contains(&at));
    (words.join(", "), table)
}

#[cfg(test)]
mod tests {
    use super::super::super::table::{key_column, numbers, words, Cell};
    use super::*;
    use names::Column;

    #[test]
    fn keys_that_all_rows_share_are_said_once_above_the_table() {
        let columns = vec![
            key_column(Column::Model),
            key_column(Column::CtxTok),
            key_column(Column::Needles),
            numbers("accuracy %"),
        ];
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
    fn a_screen_has_24_lines_and_says_how_many_rows_are_left_out() {
        let rows = |n: usize| (0..n).map(|i| vec![Cell::words(format!("row {i}")), Cell::count(i)]).collect();
        let table = |n: usize| Table::new("depth", "", String::new(), vec![words("").key(), numbers("diff")], rows(n));
        let screen = |n: usize| Screen {
            tables: vec![
                ScreenTable { title: "Title".into(), shared: vec!["512 tokens".into()], table: table(n) },
                ScreenTable::below(table(2)),
            ],
            notes: vec!["A note.".into()],
            next: "difftool show, a table".into(),
            ..Screen::default()
        };
        let text = screen_text(screen(40), &ShortNames::default());
        assert_eq!(text.lines().count(), 24, "{text}");
        assert!(text.starts_with("Title: 512 tokens\n\n        diff\nrow 0      0\n"), "{text}");
        assert!(text.contains("27 more rows: --tables depth\n") && text.contains("row 1     1\n\nA note.\n"), "{text}");
        assert!(text.ends_with("Next: difftool show, a table. More: --tables all.\n"), "{text}");
        assert!(!screen_text(screen(3), &ShortNames::default()).contains("more"));
        assert_eq!(screen_text(Screen::default(), &ShortNames::default()), "The results hold no numbers.\n");
    }

    #[test]
    fn decided_changes_have_a_star_and_intervals_go_where_the_page_is_too_narrow() {
        let cell = Cell { aside: "[-5.5, -1.5]".into(), estimated: true, decided: true, ..Cell::words("-3.5") };
        let text = |models: usize| {
            let mut columns = vec![words("accuracy %").key()];
            columns.extend((0..models).map(|i| numbers(format!("model {i}"))));
            let row = [vec![Cell::words("noise hidden")], vec![cell.clone(); models]].concat();
            let table = Table::new("x", "", String::new(), columns, vec![row]);
            let table = ScreenTable { title: "Answers".into(), shared: Vec::new(), table };
            screen_text(Screen { tables: vec![table], ..Screen::default() }, &ShortNames::default())
        };
        let expected = "\
Answers [95 %]; * decided

accuracy %    model 0             model 1
noise hidden  -3.5 [-5.5, -1.5]*  -3.5 [-5.5, -1.5]*
";
        assert!(text(2).starts_with(expected), "{}", text(2));
        assert!(text(6).starts_with("Answers; * decided\n\naccuracy %    model 0"), "{}", text(6));
    }
}
