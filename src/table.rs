//! Tables for the terminal: aligned columns, no lines, no colours, the same on a terminal and in a file.

use crate::terminal::escaped;
use comfy_table::{presets, CellAlignment, ContentArrangement};
use std::borrow::Cow;
use std::fmt;

/// A heading and how its column is aligned.
#[derive(Clone, Debug)]
pub struct Column {
    heading: Cow<'static, str>,
    alignment: CellAlignment,
}

/// A column of words.
pub fn left(heading: impl Into<Cow<'static, str>>) -> Column {
    Column { heading: heading.into(), alignment: CellAlignment::Left }
}

/// A column of numbers.
pub fn right(heading: impl Into<Cow<'static, str>>) -> Column {
    Column { heading: heading.into(), alignment: CellAlignment::Right }
}

/// A plain table, printed with `{}`; the last line ends without a newline.
#[derive(Clone, Debug)]
pub struct Table {
    inner: comfy_table::Table,
    width: usize,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[Column]) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        inner.set_header(columns.iter().map(|column| escaped(&column.heading).into_owned()));
        for (cells, column) in inner.column_iter_mut().zip(columns) {
            cells.set_cell_alignment(column.alignment);
            cells.set_padding((0, 2));
        }
        Self { inner, width: columns.len() }
    }

    /// Adds a row. What a terminal would obey is escaped: names come from strangers.
    ///
    /// # Panics
    /// If it has not one cell for each column.
    pub fn row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| escaped(&cell.to_string()).into_owned()).collect();
        assert_eq!(cells.len(), self.width, "cells of a row: {cells:?}");
        self.inner.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.trim_fmt())
    }
}

/// A fraction as a percentage: `97.5`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1}", unsigned_zero(100.0 * fraction))
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

/// A fraction as a percentage, or `-`.
pub fn percent_or_dash(fraction: Option<f64>) -> String {
    fraction.map_or("-".to_owned(), percent)
}

/// A difference of fractions in percentage points: `+3.2`.
pub fn points(difference: f64) -> String {
    format!("{:+.1}", unsigned_zero(100.0 * difference))
}

/// What one decimal shows as -0.0, as 0.
fn unsigned_zero(x: f64) -> f64 {
    if x.abs() < 0.05 {
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
        let mut table = Table::new(&[left("model"), right("n")]);
        table.row(["m".repeat(300), "1".to_string()]);
        assert_eq!(table.to_string().lines().count(), 2);
    }

    #[test]
    fn percentages_have_one_decimal_and_their_interval() {
        assert_eq!(percent(0.975), "97.5");
        assert_eq!(points(0.032), "+3.2");
    }

    #[test]
    fn short_numbers_keep_about_three_digits() {
        let shown = [3608.6, 251.54, 38.84, 3.128, 0.0123, 0.00012, 0.0].map(|x| short(Some(x)));
        assert_eq!(shown, ["3609", "252", "38.8", "3.13", "0.012", "1.2e-4", "0.000"]);
        assert_eq!(short(None), "-");
    }

    #[test]
    fn zero_has_no_minus_sign() {
        assert_eq!(percent(-0.0001), "0.0");
        assert_eq!([points(-0.0), points(-0.0004)], ["+0.0", "+0.0"]);
    }
}
