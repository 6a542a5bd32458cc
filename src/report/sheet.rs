//! A table before it becomes HTML or Markdown.

use crate::stats::Interval;
use crate::table::{percent, percent_in, points_in, short, short_in};

/// A table of results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sheet {
    /// Short name, for anchors and for choosing tables in a splice marker: `accuracy`.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What the numbers are, in a sentence or two; empty if the headings say it.
    pub(super) note: String,
    /// The first is the heading of the rows' names.
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Whether it is for the second look: folded away on the page, left out of a README.
    pub(super) detail: bool,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) heading: String,
    /// Whether its cells are numbers, which stand to the right.
    pub(super) number: bool,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// What is read.
    pub(super) text: String,
    /// What is read after it and less loudly: the interval.
    pub(super) aside: String,
    /// The number behind it in full: what a column is sorted by.
    pub(super) exact: Option<f64>,
}

/// How a quantity is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Hits and misses, in percent.
    Hits,
    /// A fraction, in percent.
    Share,
    /// A number in its own unit.
    Number,
}

impl Sheet {
    /// The table without the columns, but the first, that say nothing in any row; nothing if no number is left.
    pub(super) fn trimmed(mut self) -> Option<Self> {
        let says = |i: usize| i == 0 || self.rows.iter().any(|row| !row[i].is_none());
        let keep: Vec<bool> = (0..self.columns.len()).map(says).collect();
        retain(&mut self.columns, &keep);
        self.rows.iter_mut().for_each(|row| retain(row, &keep));
        (!self.rows.is_empty() && self.columns.iter().any(|column| column.number)).then_some(self)
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| *keep.next().expect("one flag per column"));
}

/// A column of words.
pub(super) fn words(heading: impl Into<String>) -> Column {
    Column { heading: heading.into(), number: false }
}

/// A column of numbers.
pub(super) fn numbers(heading: impl Into<String>) -> Column {
    Column { heading: heading.into(), number: true }
}

impl Cell {
    /// Words.
    pub(super) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A count or another number that is shown in full; a dash for none.
    pub(super) fn count<T: ToString + Copy>(n: Option<T>) -> Self {
        let Some(n) = n else { return Self::none() };
        let text = n.to_string();
        Self { exact: text.parse().ok(), text, aside: String::new() }
    }

    /// A dash: nothing was measured.
    pub(super) fn none() -> Self {
        Self::words("-")
    }

    /// Whether nothing was measured.
    pub(super) fn is_none(&self) -> bool {
        self.text == "-" && self.exact.is_none()
    }

    /// A number, with its interval if it has one.
    pub(super) fn estimate(kind: Kind, x: f64, interval: Option<Interval>) -> Self {
        let text = match (kind, interval) {
            (Kind::Number, None) => short(Some(x)),
            (Kind::Number, Some(interval)) => short_in(x, interval),
            (_, None) => percent(x),
            (_, Some(interval)) => percent_in(x, interval),
        };
        Self::split(&text, x)
    }

    /// A difference with its interval; of fractions, in percentage points.
    pub(super) fn difference(kind: Kind, x: f64, interval: Interval) -> Self {
        let text = if kind == Kind::Number { short_in(x, interval) } else { points_in(x, interval) };
        Self::split(&text, x)
    }

    /// The terminal's way of writing a number, so that a report reads like it: `97.5 [93.1, 99.2]`.
    fn split(text: &str, exact: f64) -> Self {
        let (text, aside) = text.split_once(' ').unwrap_or((text, ""));
        Self { text: text.to_owned(), aside: aside.to_owned(), exact: Some(exact) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_on_the_terminal_and_sorted_by_all_its_digits() {
        let interval = Interval { lo: 0.931, hi: 0.992 };
        let cell = Cell::estimate(Kind::Hits, 0.97512, Some(interval));
        assert_eq!((cell.text.as_str(), cell.aside.as_str(), cell.exact), ("97.5", "[93.1, 99.2]", Some(0.97512)));
        let cell = Cell::difference(Kind::Share, -0.0312, Interval { lo: -0.05, hi: 0.0 });
        assert_eq!((cell.text.as_str(), cell.aside.as_str()), ("-3.1", "[-5.0, +0.0]"));
        assert_eq!(Cell::estimate(Kind::Number, 3.1234, None).text, "3.12");
    }

    #[test]
    fn columns_without_numbers_are_left_out_and_so_is_a_table_without_any() {
        let sheet = |cells: [Cell; 2]| Sheet {
            id: "x",
            title: "X",
            note: String::new(),
            columns: vec![words("model"), numbers("a"), numbers("b")],
            rows: vec![[vec![Cell::words("diff")], cells.to_vec()].concat()],
            detail: false,
        };
        let trimmed = sheet([Cell::none(), Cell::count(Some(7))]).trimmed().unwrap();
        assert_eq!(trimmed.columns, [words("model"), numbers("b")]);
        assert_eq!(trimmed.rows, [[Cell::words("diff"), Cell::count(Some(7))]]);
        assert_eq!(sheet([Cell::none(), Cell::none()]).trimmed(), None);
    }
}
