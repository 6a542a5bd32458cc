//! Tables for the terminal: aligned columns, no lines, no colours. A table that is wider than the page says once what all its
//! rows share, and is broken into parts and blocks of columns.

use crate::base::terminal::{columns, escaped, wrapped};
use comfy_table::{presets, CellAlignment, ContentArrangement};
use std::borrow::Cow;
use std::fmt;
use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// The role of a column. It matters to a table that is wider than the page: what all rows share of anything but a result, the
/// table says once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnRole {
    /// A result.
    #[default]
    Result,
    /// The basis of a result: number of prompts, unit.
    Basis,
    /// The subject of a row, as in the first column: repeated in every block of columns.
    Key,
    /// The same, as the headline of a part of the table for each value.
    Part,
}

impl ColumnRole {
    /// Returns `true` if it says what a row is about.
    pub fn is_key(self) -> bool {
        matches!(self, Self::Key | Self::Part)
    }
}

/// A heading, how its column is aligned, and what for.
#[derive(Clone, Debug)]
pub struct TextColumn {
    heading: Cow<'static, str>,
    alignment: CellAlignment,
    role: ColumnRole,
}

impl TextColumn {
    /// The same as one of those that say what a row is about.
    pub fn key(self) -> Self {
        self.with(ColumnRole::Key)
    }

    /// The same in another role.
    pub fn with(self, role: ColumnRole) -> Self {
        Self { role, ..self }
    }
}

/// A column of words.
pub fn left(heading: impl Into<Cow<'static, str>>) -> TextColumn {
    TextColumn { heading: heading.into(), alignment: CellAlignment::Left, role: ColumnRole::Result }
}

/// A column of numbers.
pub fn right(heading: impl Into<Cow<'static, str>>) -> TextColumn {
    TextColumn { heading: heading.into(), alignment: CellAlignment::Right, role: ColumnRole::Result }
}

/// A plain table, printed with `{}`; the last line ends without a newline.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<TextColumn>,
    rows: Vec<Vec<String>>,
    page: usize,
}

impl Table {
    /// A table without rows, for a page as wide as the terminal.
    pub fn new(headings: &[TextColumn]) -> Self {
        let escape = |column: &TextColumn| TextColumn {
            heading: escaped(&column.heading).into_owned().into(),
            ..column.clone()
        };
        Self { columns: headings.iter().map(escape).collect(), rows: Vec::new(), page: columns() }
    }

    /// Adds a row. What a terminal would obey is escaped: names come from strangers.
    ///
    /// # Panics
    /// If it has not one cell for each column.
    pub fn row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| escaped(&cell.to_string()).into_owned()).collect();
        assert_eq!(cells.len(), self.columns.len(), "cells of a row: {cells:?}");
        self.rows.push(cells);
    }

    /// Characters that a column takes.
    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].width());
        cells.fold(self.columns[column].heading.width(), usize::max)
    }

    fn width_of(&self, columns: &[usize]) -> usize {
        columns.iter().map(|&column| self.width(column) + GAP).sum::<usize>().saturating_sub(GAP)
    }

    /// Returns `true` if a column tells rows apart or has something to say of them: not one that is no result and the same in all.
    fn differs(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| &row[column]);
        let Some(first) = cells.next() else { return true };
        column == 0 || self.columns[column].role == ColumnRole::Result || cells.any(|cell| cell != first)
    }

    fn is_key(&self, column: usize) -> bool {
        column == 0 || self.columns[column].role.is_key()
    }

    /// The blocks of columns that are as wide as the page at most, as far as a single column is; keys come in each.
    fn blocks(&self, columns: &[usize]) -> Vec<Vec<usize>> {
        let (keys, others): (Vec<usize>, Vec<usize>) = columns.iter().partition(|&&column| self.is_key(column));
        let mut blocks = vec![keys.clone()];
        for column in others {
            let block = blocks.last_mut().expect("there is a first block");
            block.push(column);
            if block.len() > keys.len() + 1 && self.width_of(block) > self.page {
                block.pop();
                blocks.push([keys.as_slice(), &[column]].concat());
            }
        }
        blocks
    }

    /// The rows of each value of a column, in the order in which values first come.
    fn parts(&self, column: usize) -> Vec<(&str, Vec<&Vec<String>>)> {
        let mut parts: Vec<(&str, Vec<&Vec<String>>)> = Vec::new();
        for row in &self.rows {
            match parts.iter_mut().find(|(value, _)| *value == row[column]) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((&row[column], vec![row])),
            }
        }
        parts
    }

    /// Some of the columns of some rows, aligned.
    fn block(&self, columns: &[usize], rows: &[&Vec<String>]) -> String {
        let mut block = comfy_table::Table::new();
        block.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        block.set_header(columns.iter().map(|&column| &self.columns[column].heading));
        for (cells, &column) in block.column_iter_mut().zip(columns) {
            cells.set_cell_alignment(self.columns[column].alignment);
            cells.set_padding((0, GAP as u16));
        }
        for row in rows {
            block.add_row(columns.iter().map(|&column| &row[column]));
        }
        block.trim_fmt()
    }

    /// A heading and what stands under it: `tokens 512`.
    fn said(&self, column: usize, value: &str) -> String {
        format!("{} {value}", self.columns[column].heading)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let rows: Vec<&Vec<String>> = self.rows.iter().collect();
        if self.width_of(&all) <= self.page {
            return f.write_str(&self.block(&all, &rows));
        }
        let (mut told, shared): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&column| self.differs(column));
        let mut blocks = Vec::new();
        if !shared.is_empty() {
            let said = shared.iter().map(|&column| self.said(column, &self.rows[0][column]));
            // A line does not end between a heading and its value.
            let whole: Vec<String> = said.map(|said| said.replace(' ', "\u{a0}")).collect();
            blocks.push(wrapped(&format!("Throughout: {}", whole.join(", ")), "").replace('\u{a0}', " "));
        }
        let part = told.iter().position(|&column| column != 0 && self.columns[column].role == ColumnRole::Part);
        let parts = match part.filter(|_| self.width_of(&told) > self.page) {
            Some(at) => {
                let column = told.remove(at);
                let parts = self.parts(column).into_iter();
                parts.map(|(value, rows)| (Some(self.said(column, value)), rows)).collect()
            }
            None => vec![(None, rows)],
        };
        for (headline, rows) in parts {
            blocks.extend(headline);
            blocks.extend(self.blocks(&told).iter().map(|columns| self.block(columns, &rows)));
        }
        f.write_str(&blocks.join("\n\n"))
    }
}

/// A number with three significant digits or so: `0.012`, `3.14`, `251`, `3610`; `-` for none.
pub fn short(x: Option<f64>) -> String {
    match x {
        None => "-".to_owned(),
        Some(x) if x != 0.0 && x.abs() < 0.001 => format!("{x:.1e}"),
        Some(x) if x.abs() < 1.0 => format!("{x:.3}"),
        Some(x) if x.abs() < 10.0 => format!("{x:.2}"),
        Some(x) if x.abs() < 100.0 => format!("{x:.1}"),
        Some(x) => format!("{x:.0}"),
    }
}

/// `1 window`, `2 windows`.
pub(crate) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Formats a number with so many decimals; zero has no sign.
pub(crate) fn fixed(x: f64, decimals: usize) -> String {
    format!("{:.*}", decimals, unsigned_zero(x, decimals))
}

/// Returns 0 for a number that so many decimals would show as -0.0.
pub(crate) fn unsigned_zero(x: f64, decimals: usize) -> f64 {
    if x.abs() < 0.5 * 10_f64.powi(-(decimals as i32)) {
        0.0
    } else {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut table = Table::new(&[left("model"), left("N/R"), right("accuracy %"), right("answer %")]);
        table.row(["transformer", "1/1", "97.5 [93.1, 99.2]", "4.1"]);
        table.row(["diff", "6/2", "100.0 [96.4, 100.0]", "31.0"]);
        let expected = "\
model        N/R           accuracy %  answer %
transformer  1/1    97.5 [93.1, 99.2]       4.1
diff         6/2  100.0 [96.4, 100.0]      31.0";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn long_cells_are_not_wrapped() {
        let mut table = Table::new(&[left("model").key(), right("n")]);
        table.row(["m".repeat(300), "1".to_string()]);
        assert_eq!(table.to_string().lines().count(), 2);
    }

    /// Two models at one length, with so many numbers each.
    fn wide(numbers: usize, page: usize) -> String {
        let keys = [left("model").key(), right("tokens").key()];
        let numbers: Vec<String> = (0..numbers).map(|i| format!("number {i}")).collect();
        let columns: Vec<TextColumn> = keys.into_iter().chain(numbers.iter().cloned().map(right)).collect();
        let mut table = Table { page, ..Table::new(&columns) };
        for model in ["transformer", "diff"] {
            table.row(
                [model, "512"].into_iter().map(str::to_owned).chain(numbers.iter().map(|name| name[7..].to_owned())),
            );
        }
        table.to_string()
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
        let columns = [
            left("metric"),
            left("compared").with(ColumnRole::Part),
            right("n").with(ColumnRole::Basis),
            right("difference"),
        ];
        let mut table = Table { page: 24, ..Table::new(&columns) };
        for metric in ["exact", "noise"] {
            ["diff - base", "v2 - base"].iter().for_each(|pair| table.row([metric, pair, "30", "+0.1"]));
        }
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
        assert_eq!(table.to_string(), parts);
        let whole = Table { page: 40, ..table }.to_string();
        assert_eq!(whole.lines().next(), Some("metric  compared      n  difference"), "where it fits: {whole}");
    }

    #[test]
    fn short_numbers_keep_about_three_digits() {
        let shown = [3608.6, 251.54, 38.84, 3.128, 0.0123, 0.00012, 0.0].map(|x| short(Some(x)));
        assert_eq!(shown, ["3609", "252", "38.8", "3.13", "0.012", "1.2e-4", "0.000"]);
        assert_eq!(short(None), "-");
    }

    #[test]
    fn zero_has_no_minus_sign() {
        assert_eq!([fixed(-0.01, 1), fixed(-0.0, 0)], ["0.0", "0"]);
    }
}
