//! Tables as data, before they become text, JSON, CSV, HTML or Markdown, and how their numbers are written.

use super::{Difference, Estimate};
use names::condition::UNTREATED;
use names::metric::{Kind, Label};
use names::{Column, ShortNames};
use serde::Serialize;
use stats::Interval;

/// Words of captions for what stands in brackets.
const INTERVAL: &str = " [95 % interval";

/// Heading of a first column of models.
pub(crate) const MODEL: &str = "model";

/// A table: rows of cells below headings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Table {
    /// Its name, for `--tables` and anchors: `accuracy`.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Caption of at most two lines; may be empty.
    pub(crate) note: String,
    /// The first holds the names of the rows.
    pub(crate) columns: Vec<TableColumn>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// `true` if it is left out unless it is asked for, and folded away on a page.
    pub(crate) detail: bool,
}

/// The role of a column. It matters to a table that is wider than the page: what all rows share of anything but a result, the
/// table says once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnRole {
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

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TableColumn {
    pub(crate) heading: String,
    /// Its name for programs.
    pub(crate) name: String,
    /// `true` if its cells are numbers, which stand to the right.
    pub(crate) number: bool,
    #[serde(skip)]
    pub(crate) holds: Holds,
    #[serde(skip)]
    pub(crate) role: ColumnRole,
    /// `true` if files have the ends of its intervals as columns of their own.
    pub(crate) interval: bool,
}

/// What the cells of a column are: figures have their axes, titles and names of lines from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Holds {
    /// Anything that needs no more words than its heading.
    #[default]
    Plain,
    /// Values of a column of records.
    Column(Column),
    /// Numbers of such a thing: `window`.
    Count(&'static str),
    /// Numbers with a unit.
    Numbers(Label),
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// The number.
    pub(crate) text: String,
    /// The interval, shown less prominently.
    pub(crate) aside: String,
    /// The number behind it in full: what a column is sorted by.
    pub(crate) exact: Option<f64>,
    /// Its 95 % interval in full.
    #[serde(skip)]
    pub(crate) interval: Option<Interval>,
    /// `true` if it is an estimate, whether or not there are enough prompts for an interval: JSON has it with its ends.
    #[serde(skip)]
    pub(crate) estimated: bool,
    /// `true` if it is a change that is decided, marked with a star behind the interval, or behind another change that stands there.
    pub(crate) decided: bool,
    /// `true` if the number is a decided change, and another change stands behind it: it has a star of its own.
    #[serde(skip)]
    pub(crate) number_decided: bool,
    /// `true` if it is a fraction, which is shown in percent.
    #[serde(skip)]
    pub(crate) percent: bool,
}

impl Table {
    /// A table that is shown by default.
    pub(crate) fn new(
        id: &'static str,
        title: &'static str,
        note: String,
        columns: Vec<TableColumn>,
        rows: Vec<Vec<Cell>>,
    ) -> Self {
        Self { id, title, note, columns, rows, detail: false }
    }

    /// A table that is printed by itself.
    pub(crate) fn plain(columns: Vec<TableColumn>, rows: Vec<Vec<Cell>>) -> Self {
        Self::new("", "", String::new(), columns, rows)
    }

    /// The same, left out unless it is asked for.
    pub(crate) fn details(self) -> Self {
        Self { detail: true, ..self }
    }

    /// What its caption says first, up to what it says of intervals.
    pub(crate) fn what(&self) -> &str {
        let before = self.note.split(INTERVAL).next().unwrap_or_default();
        before.split(". ").next().unwrap_or_default().trim_end_matches('.')
    }

    /// The place of the column with a name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// A cell that says what a row is about, in words: `4096 tokens`.
    pub(crate) fn words(&self, at: usize, row: &[Cell]) -> String {
        let TableColumn { heading, holds, number, .. } = &self.columns[at];
        let text = &row[at].text;
        match holds {
            Holds::Column(Column::CtxTok) => format!("{text} tokens"),
            Holds::Column(Column::DepthReqPct) => format!("at depth {text} %"),
            Holds::Column(Column::Layer | Column::Head) => format!("{heading} {text}"),
            Holds::Column(Column::Condition) if text == UNTREATED => "untreated".to_owned(),
            Holds::Count(thing) => plural(text, thing),
            _ if *number => format!("{heading}={text}"),
            _ => text.clone(),
        }
    }

    /// Replaces the names of models by their short ones.
    pub(crate) fn with_names(mut self, names: &ShortNames) -> Self {
        for cell in self.rows.iter_mut().flatten().filter(|cell| cell.exact.is_none()) {
            cell.text = names.shortened(&cell.text);
        }
        for column in &mut self.columns {
            column.heading = names.shortened(&column.heading);
        }
        self
    }

    /// Keeps the columns at places that pass a test.
    pub(crate) fn keep_columns(&mut self, keep: impl Fn(usize) -> bool) {
        keep_places(&mut self.columns, &keep);
        self.rows.iter_mut().for_each(|row| keep_places(row, &keep));
    }

    /// The table; `None` without rows.
    pub(crate) fn with_rows(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// Removes the columns, but the first, that are empty in every row; `None` if no number is left.
    pub(crate) fn trimmed(mut self) -> Option<Self> {
        let keep: Vec<bool> =
            (0..self.columns.len()).map(|at| at == 0 || self.rows.iter().any(|row| !row[at].is_none())).collect();
        self.keep_columns(|at| keep[at]);
        (!self.rows.is_empty() && self.columns.iter().any(|column| column.number)).then_some(self)
    }
}

/// A table that grows column by column, with a row for each item.
pub(crate) struct TableRows<'a, T> {
    items: &'a [T],
    columns: Vec<TableColumn>,
    rows: Vec<Vec<Cell>>,
}

impl<'a, T> TableRows<'a, T> {
    pub(crate) fn of(items: &'a [T]) -> Self {
        Self { items, columns: Vec::new(), rows: vec![Vec::new(); items.len()] }
    }

    /// Adds a column, given the cell of an item.
    pub(crate) fn column(mut self, column: TableColumn, cell: impl Fn(&'a T) -> Cell) -> Self {
        self.columns.push(column);
        for (row, item) in self.rows.iter_mut().zip(self.items) {
            row.push(cell(item));
        }
        self
    }

    /// Adds a column if a table has it.
    pub(crate) fn column_if(self, has: bool, column: TableColumn, cell: impl Fn(&'a T) -> Cell) -> Self {
        if has {
            self.column(column, cell)
        } else {
            self
        }
    }

    /// The table with a caption; its name and title are those of the [`RunTable`](super::run_table::RunTable) that it fills.
    pub(crate) fn noted(self, note: impl Into<String>) -> Table {
        self.table("", "", note)
    }

    /// Gives the table its id, title and caption.
    pub(crate) fn table(self, id: &'static str, title: &'static str, note: impl Into<String>) -> Table {
        Table::new(id, title, note.into(), self.columns, self.rows)
    }
}

fn keep_places<T>(list: &mut Vec<T>, keep: impl Fn(usize) -> bool) {
    let mut place = 0..;
    list.retain(|_| place.next().is_some_and(&keep));
}

/// A column of words.
pub(crate) fn words(heading: impl Into<String>) -> TableColumn {
    TableColumn { number: false, ..numbers(heading) }
}

/// A column of numbers.
pub(crate) fn numbers(heading: impl Into<String>) -> TableColumn {
    let heading = heading.into();
    TableColumn {
        name: heading.clone(),
        heading,
        number: true,
        holds: Holds::Plain,
        role: ColumnRole::Result,
        interval: false,
    }
}

/// A column of numbers with a unit, under a heading such as `change, nats` or `retrieval %`.
pub(crate) fn numbers_in(what: &str, unit: &str) -> TableColumn {
    let heading = if unit == "%" { format!("{what} %") } else { format!("{what}, {unit}") };
    let label = Label { text: what.to_owned(), kind: Kind::Number, unit: unit.to_owned() };
    TableColumn { holds: Holds::Numbers(label), ..numbers(heading) }
}

/// A column of the numbers of a metric.
pub(crate) fn numbers_of(label: Label) -> TableColumn {
    TableColumn { heading: label.heading(), holds: Holds::Numbers(label), ..numbers("") }
}

/// A column of the values of a column of records, which says what a row is about.
pub(crate) fn key_column(column: Column) -> TableColumn {
    let heading = column.heading();
    let name = if column == Column::DepthReqPct { "depth_pct" } else { heading };
    let head = if column.is_text() { words(heading) } else { numbers(heading) };
    TableColumn { holds: Holds::Column(column), ..head.named(name).key() }
}

/// A column of the number of things that a result is based on: `prompt`, `seed`.
pub(crate) fn basis(thing: &'static str) -> TableColumn {
    counts(thing).with(ColumnRole::Basis)
}

/// A column of numbers of things: `windows`.
pub(crate) fn counts(thing: &'static str) -> TableColumn {
    TableColumn { holds: Holds::Count(thing), ..numbers(format!("{thing}s")) }
}

impl TableColumn {
    /// The same under another name for programs.
    pub(crate) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same as one of those that say what a row is about.
    pub(crate) fn key(self) -> Self {
        self.with(ColumnRole::Key)
    }

    /// The same in another role.
    pub(crate) fn with(self, role: ColumnRole) -> Self {
        Self { role, ..self }
    }

    /// The same with the ends of intervals in files.
    pub(crate) fn with_interval(self) -> Self {
        Self { interval: true, ..self }
    }
}

impl Cell {
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The words, a dash for none.
    pub(crate) fn optional_words(text: Option<impl Into<String>>) -> Self {
        text.map_or_else(Self::none, Self::words)
    }

    /// A count or another number that is shown in full.
    pub(crate) fn count(n: impl ToString) -> Self {
        let text = n.to_string();
        Self { exact: text.parse().ok(), text, ..Self::default() }
    }

    /// The same, a dash for none.
    pub(crate) fn optional(n: Option<impl ToString>) -> Self {
        n.map_or_else(Self::none, Self::count)
    }

    /// A dash: nothing was measured.
    pub(crate) fn none() -> Self {
        Self::words("-")
    }

    /// Returns `true` if nothing was measured.
    pub(crate) fn is_none(&self) -> bool {
        self.text == "-" && self.exact.is_none()
    }

    /// A number written in one way; a dash for none.
    pub(crate) fn number(x: Option<f64>, write: impl Fn(f64) -> String) -> Self {
        x.map_or_else(Self::none, |x| Self { exact: Some(x), ..Self::words(write(x)) })
    }

    /// A number with its interval, if it has one, both written in one way.
    pub(crate) fn number_in(x: f64, interval: Option<Interval>, write: impl Fn(f64) -> String) -> Self {
        let aside = interval.map_or(String::new(), |i| format!("[{}, {}]", write(i.lo), write(i.hi)));
        Self { aside, interval, estimated: true, ..Self::number(Some(x), write) }
    }

    /// The same as an estimate.
    pub(crate) fn into_estimate(self) -> Self {
        Self { estimated: !self.is_none(), ..self }
    }

    /// An estimate with its interval: hits in whole percents below 1,000 trials, shares and numbers with the digits that the
    /// interval is worth.
    pub(crate) fn estimate(kind: Kind, estimate: impl Into<Option<Estimate>>) -> Self {
        let Some(Estimate { value, interval, prompts, trials, .. }) = estimate.into() else { return Self::none() };
        let cell = match kind {
            Kind::Hit if trials < 1000 => {
                Self { percent: true, ..Self::number_in(value, interval, |x| fixed(100.0 * x, 0)) }
            }
            _ => Self::value(kind, value, interval),
        };
        cell.into_estimate().of_several(prompts)
    }

    /// Says that several prompts have no interval, because they are too few or all alike.
    pub(crate) fn of_several(self, prompts: usize) -> Self {
        if self.interval.is_none() && prompts > 1 {
            Self { aside: "[-]".to_owned(), ..self }
        } else {
            self
        }
    }

    /// A value with its interval, if it has one; fractions in percent.
    pub(crate) fn value(kind: Kind, x: impl Into<Option<f64>>, interval: Option<Interval>) -> Self {
        let Some(x) = x.into() else { return Self::none() };
        let cell = match kind {
            Kind::Number => Self::number_in(x, interval, |x| short(Some(x))),
            Kind::HitChange => Self::signed(kind, x, interval),
            Kind::Hit | Kind::Rate | Kind::Share => {
                let decimals = percent_decimals(interval);
                Self { percent: true, ..Self::number_in(x, interval, |x| fixed(100.0 * x, decimals)) }
            }
        };
        Self { estimated: interval.is_some(), ..cell }
    }

    /// A difference with its interval; of fractions, in percentage points.
    pub(crate) fn difference<'a>(kind: Kind, difference: impl Into<Option<&'a Difference>>) -> Self {
        let Some(difference) = difference.into() else { return Self::none() };
        Self::signed(kind, difference.diff, difference.interval()).of_several(difference.n)
    }

    /// An estimated change with its interval; of fractions, in percentage points.
    pub(crate) fn change(kind: Kind, change: impl Into<Option<Estimate>>) -> Self {
        let Some(change) = change.into() else { return Self::none() };
        Self::signed(kind, change.value, change.interval).of_several(change.prompts)
    }

    /// A change; an interval that holds every possible one is none.
    fn signed(kind: Kind, x: f64, interval: Option<Interval>) -> Self {
        let interval =
            interval.filter(|interval| kind.most().is_none_or(|most| interval.hi - interval.lo < 2.0 * most));
        match kind {
            Kind::Number => Self::number_in(x, interval, signed),
            Kind::Hit | Kind::HitChange | Kind::Rate | Kind::Share => {
                let decimals = percent_decimals(interval);
                Self {
                    percent: true,
                    ..Self::number_in(x, interval, |x| format!("{:+.*}", decimals, unsigned_zero(100.0 * x, decimals)))
                }
            }
        }
    }

    /// Returns `true` if an interval stands behind the number, or a mark that there is none.
    pub(crate) fn shows_interval(&self) -> bool {
        self.estimated && !self.aside.is_empty()
    }

    /// All of it on one line: `97.5 [93.1, 99.2]`.
    pub(crate) fn line(&self) -> String {
        let star = if self.number_decided { "*" } else { "" };
        format!("{}{star}{}", self.text, self.behind())
    }

    /// What stands behind the number: the interval and the star.
    pub(crate) fn behind(&self) -> String {
        let star = if self.decided { "*" } else { "" };
        let blank = if self.aside.is_empty() { "" } else { " " };
        format!("{blank}{}{star}", self.aside)
    }
}

/// The decimals of percentages whose interval is so wide.
fn percent_decimals(interval: Option<Interval>) -> usize {
    usize::from(interval.is_none_or(|interval| 100.0 * (interval.hi - interval.lo) < 2.0))
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

/// A change with three significant digits or so: `+0.012`, `-3.14`.
fn signed(x: f64) -> String {
    let sign = if x >= 0.0 { "+" } else { "" };
    format!("{sign}{}", short(Some(x)))
}

/// `1 window`, `2 windows`.
pub(crate) fn plural(n: impl ToString, what: &str) -> String {
    let n = n.to_string();
    format!("{n} {what}{}", if n == "1" { "" } else { "s" })
}

/// Formats a number with so many decimals; zero has no sign.
pub(crate) fn fixed(x: f64, decimals: usize) -> String {
    format!("{:.*}", decimals, unsigned_zero(x, decimals))
}

/// 0 for a number that so many decimals would show as -0.0.
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
    fn numbers_have_the_digits_that_their_interval_is_worth_and_are_kept_in_full() {
        let interval = |lo, hi| Some(Interval { lo, hi });
        let found = |value, interval, trials| Estimate { value, interval, p: None, prompts: trials, trials };
        let cell = Cell::estimate(Kind::Hit, found(0.97512, interval(0.931, 0.992), 30));
        assert_eq!((cell.text.as_str(), cell.aside.as_str(), cell.exact), ("98", "[93, 99]", Some(0.97512)));
        let line = |cell: Cell| cell.line();
        assert_eq!(line(Cell::estimate(Kind::Hit, found(0.9751, interval(0.971, 0.979), 2000))), "97.5 [97.1, 97.9]");
        assert_eq!(line(Cell::value(Kind::Share, 0.041, interval(0.039, 0.043))), "4.1 [3.9, 4.3]");
        assert_eq!(line(Cell::value(Kind::Number, 3.1234, None)), "3.12");
        assert_eq!(line(Cell::estimate(Kind::Number, found(2.5, None, 4))), "2.50 [-]");
        assert_eq!(line(Cell::estimate(Kind::Number, found(2.5, None, 1))), "2.50");
        let difference = |diff, lo, hi| Difference { diff, lo: Some(lo), hi: Some(hi), ..Difference::default() };
        assert_eq!(line(Cell::difference(Kind::Share, &difference(-0.0312, -0.05, 0.0))), "-3 [-5, +0]");
        let number = difference(0.3, -0.1, 0.7);
        assert_eq!(line(Cell::difference(Kind::Number, &number)), "+0.300 [-0.100, +0.700]");
    }

    #[test]
    fn columns_without_numbers_are_left_out_and_so_is_a_table_without_any() {
        let table = |cells: [Cell; 2]| Table {
            id: "x",
            title: "X",
            note: String::new(),
            columns: vec![words("model"), numbers("a"), numbers("b")],
            rows: vec![[vec![Cell::words("diff")], cells.to_vec()].concat()],
            detail: false,
        };
        let trimmed = table([Cell::none(), Cell::count(7)]).trimmed().unwrap();
        assert_eq!(trimmed.columns, [words("model"), numbers("b")]);
        assert_eq!(trimmed.rows, [[Cell::words("diff"), Cell::count(7)]]);
        assert_eq!(table([Cell::none(), Cell::none()]).trimmed(), None);
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
