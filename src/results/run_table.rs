//! Tables of runs as values, declared beside the measure or in the command whose question they answer.

use super::frame::Frame;
use super::query::{Query, ResultRow};
use super::setting::Setting;
use super::table::{basis, key_column, numbers_of, Cell, Table, TableRows};
use names::column::{Column, Cut, Value};
use names::condition::UNTREATED;
use names::metric::{Metric, Number, ANSWER_REGION, AR_HIT_SHARE, NLL, NLL_AR_HIT, NLL_OTHER};

/// A table of runs.
pub(crate) struct RunTable {
    /// Its name, for `--tables` and JSON.
    pub(crate) id: &'static str,
    /// The title that it is printed under.
    pub(crate) title: &'static str,
    /// Caption; empty where the content has one of its own.
    pub(crate) note: &'static str,
    pub(crate) content: Content,
}

/// The contents of a table.
pub(crate) enum Content {
    /// Means of numbers, a column each: a row for each model, setting and condition, and for the values of further columns.
    Numbers { numbers: &'static [Number<'static>], by: &'static [Column] },
    /// What is no mean of records; `None` if the run has nothing of it.
    Made(fn(&Frame) -> Option<Table>),
}

impl RunTable {
    /// A table of means that has a row for each model, setting and condition, and for the values of further columns.
    pub(crate) const fn of_numbers(numbers: &'static [Number<'static>], by: &'static [Column]) -> Self {
        Self { id: "", title: "", note: "", content: Content::Numbers { numbers, by } }
    }

    /// A table that is no means of records.
    pub(crate) const fn made(id: &'static str, title: &'static str, fill: fn(&Frame) -> Option<Table>) -> Self {
        Self { id, title, note: "", content: Content::Made(fill) }
    }

    /// Fills the table with the numbers of a run; `None` if the run has none of them.
    pub(crate) fn filled(&self, frame: &Frame) -> Option<Table> {
        let table = match &self.content {
            Content::Made(make) => make(frame),
            Content::Numbers { numbers, by } => number_table(frame, numbers, by),
        }?;
        let title = if table.title.is_empty() { self.title } else { table.title };
        let note = if table.note.is_empty() { self.note.to_owned() } else { table.note };
        Some(Table { id: self.id, title, note, ..table })
    }
}

/// Returns `true` if a number means anything in a setting: plain text has no answer, and so no noise. What is estimated from
/// scored tokens, where a run has them, is not from means of windows.
fn applies(number: &Number<'_>, frame: &Frame, setting: Setting) -> bool {
    const OF_TOKENS: [&Metric; 4] = [&NLL, &NLL_AR_HIT, &NLL_OTHER, &AR_HIT_SHARE];
    let is_of_answer = number.region == Some(ANSWER_REGION) || number.metric.name.starts_with("noise_");
    (!is_of_answer || setting.asked > 0) && (!OF_TOKENS.contains(&number.metric) || frame.found.tokens.0.is_empty())
}

/// The columns that make rows of a run's tables: model, setting and condition as far as runs have them, then others. Where a
/// run has several tasks, each has rows of its own, unless there are others; the orders of many-shot prompts are no tasks.
pub(crate) fn row_columns(frame: &Frame, by: &[Column]) -> Vec<Column> {
    let mut columns = vec![Column::Model, Column::CtxTok];
    if frame.asks() {
        columns.extend([Column::Needles, Column::Retrieve]);
    }
    if frame.has_conditions() {
        columns.push(Column::Condition);
    }
    columns.extend(by);
    if by.is_empty() && frame.tasks.len() > 1 && !frame.is_of_shots() {
        columns.push(Column::Task);
    }
    columns
}

/// Answers a query with the rows in the order of tables: settings as they ran, models within, conditions within, then the values
/// of other columns. Numbers that mean nothing in their setting are left out.
pub(crate) fn sorted_rows<'a>(frame: &'a Frame, query: &Query<'_>) -> Vec<ResultRow<'a>> {
    let mut rows = frame.query(query);
    rows.sort_by_cached_key(|row| place(frame, query.rows, row));
    for row in &mut rows {
        let setting = setting(query.rows, row);
        for (place, number) in query.numbers.iter().enumerate() {
            let is_wanted = applies(number, frame, setting);
            let estimate = row.numbers[place].filter(|_| is_wanted);
            row.numbers[place] = estimate.map(|estimate| estimate.within(number.metric.range()));
            row.changes[place].take_if(|_| !is_wanted);
        }
    }
    rows.retain(|row| row.numbers.iter().any(Option::is_some));
    rows
}

/// The place of a row among those of its table.
fn place<'a>(frame: &Frame, columns: &[Column], row: &ResultRow<'a>) -> (Vec<usize>, Vec<Option<Value<'a>>>) {
    let setting = setting(columns, row);
    let mut run = vec![frame.settings.iter().position(|&known| known == setting).unwrap_or(usize::MAX), 0, 0];
    let mut others = Vec::new();
    for (column, &key) in columns.iter().zip(&row.keys) {
        match (column, key) {
            (Column::Model, Some(Value::Text(model))) => {
                run[1] = rank(&frame.models, model);
            }
            (Column::Condition, key) => {
                let known = frame.treated.iter().position(|known| known.as_deref().map(Value::Text) == key);
                run[2] = known.unwrap_or(usize::MAX);
            }
            (Column::CtxTok | Column::Needles | Column::Retrieve, _) => {}
            (Column::Task, Some(Value::Text(task))) => run.push(rank(&frame.tasks, task)),
            (Column::Region, Some(Value::Text(region))) => run.push(rank(&frame.regions, region)),
            (_, key) => others.push(key),
        }
    }
    (run, others)
}

/// The place of a name in a list, behind all others if it is not there.
fn rank(list: &[String], name: &str) -> usize {
    list.iter().position(|known| known == name).unwrap_or(usize::MAX)
}

/// The setting of a row, which has its columns as keys.
pub(super) fn setting(columns: &[Column], row: &ResultRow<'_>) -> Setting {
    let count = |of: Column| match columns.iter().zip(&row.keys).find(|(&column, _)| column == of) {
        Some((_, Some(Value::Int(n)))) => *n as usize,
        _ => 0,
    };
    Setting { ctx_tok: count(Column::CtxTok), needles: count(Column::Needles), asked: count(Column::Retrieve) }
}

/// A table of numbers without name and caption: keys, the number of prompts, and a column for each number.
pub(crate) fn number_table(frame: &Frame, wanted: &[Number<'_>], by: &[Column]) -> Option<Table> {
    number_table_of(frame, &[], wanted, by)
}

/// The same of records with some values.
pub(crate) fn number_table_of(frame: &Frame, only: &[Cut<'_>], wanted: &[Number<'_>], by: &[Column]) -> Option<Table> {
    let columns = row_columns(frame, by);
    let rows = sorted_rows(frame, &Query { only, rows: &columns, numbers: wanted, ..Query::default() });
    table_of_rows(&columns, &rows, wanted)
}

/// The same of rows that a query has answered with.
pub(crate) fn table_of_rows(columns: &[Column], rows: &[ResultRow<'_>], wanted: &[Number<'_>]) -> Option<Table> {
    let mut table = TableRows::of(rows);
    for (at, &column) in columns.iter().enumerate() {
        table = table.column(key_column(column), |row| key_cell(column, row.keys[at]));
    }
    table = table.column(basis("prompt"), |row| Cell::optional(row.prompts()));
    for (at, number) in wanted.iter().enumerate() {
        let head = numbers_of(number.label()).named(number.metric.name_of(number.region));
        table = table.column(head, |row| Cell::estimate(number.metric.kind, row.numbers[at]));
    }
    without_zeros(table.noted("")).trimmed()
}

fn key_cell(column: Column, key: Option<Value<'_>>) -> Cell {
    match (column, key) {
        (Column::Condition, None) => Cell::words(UNTREATED),
        (_, None) => Cell::none(),
        (_, Some(Value::Text(text))) => Cell::words(text),
        (_, Some(value)) => Cell::count(value),
    }
}

/// Empties columns of shares that are zero in every row: regions that the prompts do not have.
fn without_zeros(mut table: Table) -> Table {
    for i in (0..table.columns.len()).filter(|&i| table.columns[i].name.starts_with("share_")) {
        if table.rows.iter().all(|row| row[i].exact == Some(0.0)) {
            table.rows.iter_mut().for_each(|row| row[i] = Cell::none());
        }
    }
    table
}
