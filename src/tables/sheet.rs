//! A table before it becomes text, JSON, HTML or Markdown.

use crate::stats::Interval;
use crate::table::{percent, points, short, Role};

/// A table of results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sheet {
    /// Short name, for anchors and for choosing tables in a splice marker: `accuracy`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What the numbers are, in a sentence or two; empty if the headings say it.
    pub(crate) note: String,
    /// The first is the heading of the rows' names.
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Whether it is for the second look: folded away on the page, left out of a README.
    pub(crate) detail: bool,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) heading: String,
    /// Its name for programs.
    pub(crate) name: String,
    /// Whether its cells are numbers, which stand to the right.
    pub(crate) number: bool,
    /// What it is for: results, or what they are about.
    pub(crate) role: Role,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    /// What is read.
    pub(crate) text: String,
    /// What is read after it and less loudly: the interval.
    pub(crate) aside: String,
    /// The number behind it in full: what a column is sorted by.
    pub(crate) exact: Option<f64>,
    /// Its 95 % interval in full.
    pub(crate) interval: Option<Interval>,
}

/// How a quantity is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Hits and misses, in percent.
    Hits,
    /// A fraction, in percent.
    Share,
    /// A number in its own unit.
    Number,
}

impl Sheet {
    /// A table for the first look.
    pub(crate) fn new(
        id: &'static str,
        title: &'static str,
        note: String,
        columns: Vec<Column>,
        rows: Vec<Vec<Cell>>,
    ) -> Self {
        Self { id, title, note, columns, rows, detail: false }
    }

    /// The same for the second look.
    pub(crate) fn details(self) -> Self {
        Self { detail: true, ..self }
    }

    /// What a row is about: `diff, 4096 tokens, N=1 R=1`.
    pub(crate) fn about(&self, row: &[Cell]) -> String {
        let is_key = |&(at, column): &(usize, &Column)| (at == 0 || column.role.is_key()) && !row[at].is_none();
        let words = |(at, column): (usize, &Column)| {
            let (heading, text) = (column.heading.trim_end_matches(" %"), &row[at].text);
            match heading {
                "prompts" | "heads" if text == "1" => format!("1 {}", heading.trim_end_matches('s')),
                "tokens" | "windows" | "prompts" => format!("{text} {heading}"),
                "condition" if text == "none" => "untreated".to_owned(),
                "depth" => format!("at depth {text} %"),
                "heads" => {
                    if text.starts_with("only ") {
                        text.replace("only", "only head")
                    } else {
                        format!("{text} heads")
                    }
                }
                "layer" | "head" => format!("{heading} {text}"),
                _ if column.number => format!("{heading}={text}"),
                _ => text.clone(),
            }
        };
        self.columns.iter().enumerate().filter(is_key).map(words).collect::<Vec<_>>().join(", ")
    }

    /// The table without the columns, but the first, that say nothing in any row; nothing if no number is left.
    pub(crate) fn trimmed(mut self) -> Option<Self> {
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
pub(crate) fn words(heading: impl Into<String>) -> Column {
    let heading = heading.into();
    Column { name: heading.clone(), heading, number: false, role: Role::Result }
}

/// A column of numbers.
pub(crate) fn numbers(heading: impl Into<String>) -> Column {
    let heading = heading.into();
    Column { name: heading.clone(), heading, number: true, role: Role::Result }
}

impl Column {
    /// The same under another name for programs.
    pub(crate) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same as one of those that say what a row is about.
    pub(crate) fn key(self) -> Self {
        self.with(Role::Key)
    }

    /// The same in another role.
    pub(crate) fn with(self, role: Role) -> Self {
        Self { role, ..self }
    }
}

impl Cell {
    /// Words.
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A count or another number that is shown in full; a dash for none.
    pub(crate) fn count<T: ToString + Copy>(n: Option<T>) -> Self {
        let Some(n) = n else { return Self::none() };
        let text = n.to_string();
        Self { exact: text.parse().ok(), text, ..Self::default() }
    }

    /// A dash: nothing was measured.
    pub(crate) fn none() -> Self {
        Self::words("-")
    }

    /// Whether nothing was measured.
    pub(crate) fn is_none(&self) -> bool {
        self.text == "-" && self.exact.is_none()
    }

    /// A number written in one way; a dash for none.
    pub(crate) fn number(x: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        x.map_or_else(Self::none, |x| Self { exact: Some(x), ..Self::words(write(x)) })
    }

    /// The same with its interval, if it has one.
    pub(crate) fn number_in(x: f64, interval: Option<Interval>, write: impl Fn(f64) -> String) -> Self {
        let aside = interval.map_or(String::new(), |i| match i.is_point() {
            true => "[-]".to_owned(),
            false => format!("[{}, {}]", write(i.lo), write(i.hi)),
        });
        Self { aside, interval, ..Self::number(Some(x), write) }
    }

    /// A number, with its interval if it has one.
    pub(crate) fn estimate(kind: Kind, x: f64, interval: Option<Interval>) -> Self {
        match kind {
            Kind::Number => Self::number_in(x, interval, |x| short(Some(x))),
            Kind::Hits | Kind::Share => Self::number_in(x, interval, percent),
        }
    }

    /// A difference with its interval; of fractions, in percentage points.
    pub(crate) fn difference(kind: Kind, x: f64, interval: Option<Interval>) -> Self {
        match kind {
            Kind::Number => Self::estimate(kind, x, interval),
            Kind::Hits | Kind::Share => Self::number_in(x, interval, points),
        }
    }

    /// All of it on one line: `97.5 [93.1, 99.2]`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.text, self.aside).trim_end().to_owned()
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
        let cell = Cell::difference(Kind::Share, -0.0312, Some(Interval { lo: -0.05, hi: 0.0 }));
        assert_eq!((cell.text.as_str(), cell.aside.as_str()), ("-3.1", "[-5.0, +0.0]"));
        assert_eq!(Cell::estimate(Kind::Number, 3.1234, None).text, "3.12");
        assert_eq!(Cell::estimate(Kind::Number, 2.5, Some(Interval { lo: 2.5, hi: 2.5 })).line(), "2.50 [-]");
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
