//! Layout of tables for the terminal: aligned columns, no lines; on a terminal, decided changes are bold, and coloured by their
//! sign. A table that is wider than the page says once what all its rows share, and is broken into parts and blocks of columns.

use super::super::table::{Cell, ColumnRole, Table, TableColumn};
use base::terminal::{self, escaped, wrapped};
use comfy_table::{presets, Attribute, CellAlignment, Color, ContentArrangement};
use std::borrow::Cow;
use std::fmt;
use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter};
use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// The colours of changes, which are told apart without red and green too.
const HIGHER: Color = Color::DarkCyan;
const LOWER: Color = Color::DarkYellow;

/// Least width of a heading that is broken into lines.
const NARROWEST: usize = 11;

/// A table laid out, printed with `{}`; the last line ends without a newline.
pub(crate) struct TextTable {
    columns: Vec<TableColumn>,
    rows: Vec<LaidRow>,
    /// `true` if headings that are wider than their columns are broken into lines: those with long names of models.
    narrow: bool,
    page: usize,
    /// `true` if decided changes are bold and coloured.
    styled: bool,
}

/// A row, laid out.
type LaidRow = Vec<LaidCell>;

/// A cell as one line.
struct LaidCell {
    text: String,
    /// `true` if it is a decided change.
    decided: bool,
    /// The colour of such a change, if its sign is known.
    colour: Option<Color>,
}

impl TextTable {
    /// Lays a table out for a page as wide as the terminal. What a terminal would obey is escaped: names come from strangers.
    pub(crate) fn new(table: &Table) -> Self {
        let mut columns = table.columns.clone();
        columns.iter_mut().for_each(|column| column.heading = escaped(&column.heading).into_owned());
        let mut rows: Vec<LaidRow> = table.rows.iter().map(|_| LaidRow::new()).collect();
        for (at, column) in columns.iter_mut().enumerate() {
            let cells: Vec<&Cell> = table.rows.iter().map(|row| &row[at]).collect();
            // Numbers stand below each other, whatever stands behind them.
            let has_behind = column.number && cells.iter().any(|cell| !cell.behind().is_empty());
            let width = if has_behind { cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0) } else { 0 };
            column.number &= !has_behind;
            for (row, cell) in rows.iter_mut().zip(&cells) {
                let padding = " ".repeat(width.saturating_sub(cell.text.width()));
                row.push(LaidCell {
                    text: escaped(&format!("{padding}{}", cell.line())).into_owned(),
                    decided: cell.decided || cell.number_decided,
                    colour: cell.exact.map(|change| if change > 0.0 { HIGHER } else { LOWER }),
                });
            }
        }
        Self { columns, rows, narrow: false, page: terminal::columns(), styled: terminal::has_styles() }.narrowed()
    }

    /// Breaks headings into lines if the table fits the page with them only.
    fn narrowed(mut self) -> Self {
        self.narrow = !self.fits();
        self.narrow &= self.fits();
        self
    }

    /// The lines of a heading.
    fn heading(&self, column: usize) -> Vec<Cow<'_, str>> {
        let heading = &self.columns[column].heading;
        if !self.narrow {
            return vec![heading.into()];
        }
        let cells = self.rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0);
        broken(heading, cells.max(NARROWEST))
    }

    /// Returns `true` if the table is no wider than the page.
    pub(super) fn fits(&self) -> bool {
        let (columns, rows): (Vec<usize>, Vec<_>) = ((0..self.columns.len()).collect(), self.rows.iter().collect());
        self.width(&columns, &rows) <= self.page
    }

    /// Characters that columns of rows take.
    fn width(&self, columns: &[usize], rows: &[&LaidRow]) -> usize {
        let mut width = 0;
        for &column in columns {
            let cells = rows.iter().map(|row| row[column].text.width());
            let heading = self.heading(column).into_iter().map(|line| line.width());
            width += cells.chain(heading).max().unwrap_or(0) + GAP;
        }
        width.saturating_sub(GAP)
    }

    /// Returns `true` if a column tells rows apart or has something to say of them: not one that is no result and the same in all.
    fn differs(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| &row[column].text);
        let Some(first) = cells.next() else { return true };
        column == 0 || self.columns[column].role == ColumnRole::Result || cells.any(|cell| cell != first)
    }

    fn is_key(&self, column: usize) -> bool {
        column == 0 || self.columns[column].role.is_key()
    }

    /// The blocks of columns that are as wide as the page at most, as far as a single column is; keys come in each.
    fn blocks(&self, columns: &[usize], rows: &[&LaidRow]) -> Vec<Vec<usize>> {
        let (keys, others): (Vec<usize>, Vec<usize>) = columns.iter().partition(|&&column| self.is_key(column));
        let mut blocks = vec![keys.clone()];
        for column in others {
            let block = blocks.last_mut().expect("there is a first block");
            block.push(column);
            if block.len() > keys.len() + 1 && self.width(block, rows) > self.page {
                block.pop();
                blocks.push([keys.as_slice(), &[column]].concat());
            }
        }
        blocks
    }

    /// The rows of each value of a column, in the order in which values first come.
    fn parts(&self, column: usize) -> Vec<(&str, Vec<&LaidRow>)> {
        let mut parts: Vec<(&str, Vec<&LaidRow>)> = Vec::new();
        for row in &self.rows {
            let value = row[column].text.as_str();
            match parts.iter_mut().find(|(known, _)| *known == value) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((value, vec![row])),
            }
        }
        parts
    }

    /// Some of the columns of some rows, aligned.
    fn block(&self, columns: &[usize], rows: &[&LaidRow]) -> String {
        let mut block = comfy_table::Table::new();
        block.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.styled {
            block.enforce_styling();
        } else {
            block.force_no_tty();
        }
        let headings: Vec<Vec<Cow<'_, str>>> = columns.iter().map(|&column| self.heading(column)).collect();
        let lines = headings.iter().map(Vec::len).max().unwrap_or(1);
        block.set_header(headings.iter().map(|heading| "\n".repeat(lines - heading.len()) + &heading.join("\n")));
        for (cells, &column) in block.column_iter_mut().zip(columns) {
            let number = self.columns[column].number;
            cells.set_cell_alignment(if number { CellAlignment::Right } else { CellAlignment::Left });
            cells.set_padding((0, GAP as u16));
        }
        for row in rows {
            block.add_row(columns.iter().map(|&column| row[column].printed()));
        }
        block.trim_fmt()
    }

    /// A heading and what stands under it: `tokens 512`.
    fn headed(&self, column: usize, value: &str) -> String {
        format!("{} {value}", self.columns[column].heading).trim_start().to_owned()
    }
}

impl LaidCell {
    fn printed(&self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(&self.text);
        match (self.decided, self.colour) {
            (true, Some(colour)) => cell.add_attribute(Attribute::Bold).fg(colour),
            (true, None) => cell.add_attribute(Attribute::Bold),
            (false, _) => cell,
        }
    }
}

/// Breaks a heading into lines of at most `width` characters: after blanks and the marks within names, or anywhere; not within the
/// brackets of a level.
fn broken(heading: &str, width: usize) -> Vec<Cow<'_, str>> {
    let separator = WordSeparator::Custom(|text| Box::new(parts_of(text).into_iter()));
    let options = Options::new(width).word_separator(separator).word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(heading, options)
}

/// The parts of a heading that stay on one line.
fn parts_of(heading: &str) -> Vec<Word<'_>> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut in_brackets = false;
    for (at, c) in heading.char_indices() {
        in_brackets = if in_brackets { c != ']' } else { c == '[' };
        if !in_brackets && matches!(c, ' ' | '-' | '_' | '/') {
            parts.push(Word::from(&heading[from..=at]));
            from = at + 1;
        }
    }
    parts.push(Word::from(&heading[from..]));
    parts
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let rows: Vec<&LaidRow> = self.rows.iter().collect();
        if self.fits() {
            return f.write_str(&self.block(&all, &rows));
        }
        let (mut shown, shared): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&column| self.differs(column));
        let mut blocks = Vec::new();
        if !shared.is_empty() {
            // A line does not end between a heading and its value.
            let values: Vec<String> = shared
                .iter()
                .map(|&column| self.headed(column, &self.rows[0][column].text).replace(' ', "\u{a0}"))
                .collect();
            blocks.push(wrapped(&format!("Throughout: {}", values.join(", ")), "").replace('\u{a0}', " "));
        }
        let part = shown.iter().position(|&column| self.columns[column].role == ColumnRole::Part);
        let parts = match part.filter(|_| self.width(&shown, &rows) > self.page) {
            Some(at) => {
                let column = shown.remove(at);
                let parts = self.parts(column).into_iter();
                parts.map(|(value, rows)| (self.headed(column, value) + "\n", rows)).collect()
            }
            None => vec![(String::new(), rows)],
        };
        for (headline, rows) in parts {
            let first = blocks.len();
            blocks.extend(self.blocks(&shown, &rows).iter().map(|columns| self.block(columns, &rows)));
            blocks[first].insert_str(0, &headline);
        }
        f.write_str(&blocks.join("\n\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::table::{numbers, words, Cell};
    use super::*;

    fn laid_out(columns: Vec<TableColumn>, rows: &[&[&str]], page: usize) -> String {
        let rows = rows.iter().map(|row| row.iter().map(|text| Cell::words(*text)).collect()).collect();
        let table = Table::plain(columns, rows);
        TextTable { page, narrow: false, ..TextTable::new(&table) }.narrowed().to_string()
    }

    #[test]
    fn long_names_are_broken_into_lines_before_a_table_is_broken_into_blocks() {
        let columns = ["claim", "Meta-Llama-3.1-8B-Instruct", "org_of_mine/diff-8B"];
        let columns =
            [vec![words(columns[0]).key()], columns[1..].iter().map(|name| numbers(*name)).collect()].concat();
        let whole = "\
claim  Meta-Llama-3.1-8B-Instruct  org_of_mine/diff-8B
T2                            100                +10.5";
        let broken = [
            "       Meta-Llama-     org_of_",
            "           3.1-8B-  mine/diff-",
            "claim     Instruct          8B",
            "T2             100       +10.5",
        ];
        let rows: [&[&str]; 1] = [&["T2", "100", "+10.5"]];
        assert_eq!(laid_out(columns.clone(), &rows, 54), whole);
        assert_eq!(laid_out(columns.clone(), &rows, 53), broken.join("\n"));
        assert!(laid_out(columns, &rows, 28).contains("org_of_mine/diff-8B\n"), "where blocks are needed, whole");
    }

    #[test]
    fn a_level_in_brackets_stays_on_one_line() {
        assert_eq!(broken("change [95 %]", 11), ["change", "[95 %]"]);
        assert_eq!(broken("wins/ties/losses", 11), ["wins/ties/", "losses"]);
    }

    #[test]
    fn words_stand_left_and_numbers_right() {
        let columns = vec![words("model"), words("N/R"), numbers("accuracy %"), numbers("answer %")];
        let rows: [&[&str]; 2] =
            [&["transformer", "1/1", "97.5 [93.1, 99.2]", "4.1"], &["diff", "6/2", "100.0 [96.4, 100.0]", "31.0"]];
        let expected = "\
model        N/R           accuracy %  answer %
transformer  1/1    97.5 [93.1, 99.2]       4.1
diff         6/2  100.0 [96.4, 100.0]      31.0";
        assert_eq!(laid_out(columns, &rows, 80), expected);
    }

    #[test]
    fn numbers_with_intervals_stand_below_each_other() {
        let cell = |text: &str, aside: &str, decided| Cell { aside: aside.into(), decided, ..Cell::words(text) };
        let rows = vec![
            vec![Cell::words("exact"), cell("100", "[90, 100]", false)],
            vec![Cell::words("4 bits"), cell("-87", "[-94, -71]", true)],
            vec![Cell::words("6 bits"), cell("-1", "", false)],
        ];
        let table = Table::plain(vec![words("accuracy %"), numbers("diff")], rows);
        let expected = "\
accuracy %  diff
exact       100 [90, 100]
4 bits      -87 [-94, -71]*
6 bits       -1";
        assert_eq!(TextTable { page: 80, ..TextTable::new(&table) }.to_string(), expected);
    }

    #[test]
    fn on_a_terminal_only_decided_changes_are_bold_and_coloured() {
        let cell = |exact| Cell { decided: exact < 0.0, ..Cell::number(Some(exact), |x| format!("{x:+}")) };
        let rows = vec![vec![Cell::words("a"), cell(-8.0)], vec![Cell::words("b"), cell(1.0)]];
        let table = Table::plain(vec![words("model"), numbers("diff")], rows);
        let of = |styled| TextTable { styled, page: 80, ..TextTable::new(&table) }.to_string();
        let (plain, styled) = (of(false), of(true));
        assert!(!plain.contains('\u{1b}') && plain.ends_with("+1"), "{plain}");
        let changes: Vec<bool> = styled.lines().map(|line| line.contains("\u{1b}[1m")).collect();
        assert_eq!(changes, [false, true, false], "{styled:?}");
    }

    #[test]
    fn long_cells_are_not_wrapped() {
        let table = laid_out(vec![words("model").key(), numbers("n")], &[&["m".repeat(300).as_str(), "1"]], 80);
        assert_eq!(table.lines().count(), 2);
    }

    /// Two models at one length, with so many numbers each.
    fn wide(count: usize, page: usize) -> String {
        let mut columns = vec![words("model").key(), numbers("tokens").key()];
        columns.extend((0..count).map(|i| numbers(format!("number {i}"))));
        let values = ["0", "1", "2"];
        let rows = ["transformer", "diff"].map(|model| [&[model, "512"], &values[..count]].concat());
        laid_out(columns, &[&rows[0], &rows[1]], page)
    }

    #[test]
    fn a_table_that_is_too_wide_says_once_what_its_rows_share_and_is_broken_into_blocks() {
        let narrow = "\
model        tokens  number 0
transformer     512         0
diff            512         0";
        assert_eq!(wide(1, 29), narrow);
        let shared = "\
Throughout: tokens 512

model        number 0
transformer         0
diff                0";
        assert_eq!(wide(1, 28), shared);
        let blocks = "\
Throughout: tokens 512

model        number 0  number 1
transformer         0         1
diff                0         1

model        number 2
transformer         2
diff                2";
        assert_eq!(wide(3, 31), blocks);
        assert_eq!(wide(3, 1).matches("model").count(), 3, "a page is as wide as a key and a number at least");
    }

    #[test]
    fn what_a_wide_table_compares_heads_its_parts_and_what_its_numbers_rest_on_is_said_once() {
        let columns = vec![
            words("metric"),
            words("compared").with(ColumnRole::Part),
            numbers("n").with(ColumnRole::Basis),
            numbers("difference"),
        ];
        let rows: [&[&str]; 4] = [
            &["exact", "diff - base", "30", "+0.1"],
            &["exact", "v2 - base", "30", "+0.1"],
            &["noise", "diff - base", "30", "+0.1"],
            &["noise", "v2 - base", "30", "+0.1"],
        ];
        let parts = "\
Throughout: n 30

compared diff - base
metric  difference
exact         +0.1
noise         +0.1

compared v2 - base
metric  difference
exact         +0.1
noise         +0.1";
        assert_eq!(laid_out(columns.clone(), &rows, 24), parts);
        let whole = laid_out(columns, &rows, 40);
        assert_eq!(whole.lines().next(), Some("metric  compared      n  difference"), "where it fits: {whole}");
    }
}
