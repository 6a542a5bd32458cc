//! Screens: what a command prints by default. Models are columns, a change stands in the cell of what it is a change of, and
//! what all rows share is said once.

use super::difference::correct;
use super::frame::{of_model, under, Frame};
use super::query::{Query, ResultRow};
use super::run_table::{row_columns, sorted_rows};
use super::table::{numbers, plural, words, Cell, Table, TableColumn};
use names::column::{Column, Cut, Value};
use names::condition::Purpose;
use names::metric::{Number, ACCURACY};
use serde::Serialize;
use text::shots::order_of;

/// What a command prints by default.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    pub(crate) tables: Vec<ScreenTable>,
    /// Sentences below the tables.
    pub(crate) notes: Vec<String>,
    /// What to look at next: `difftool ablate, the cost of noise`.
    pub(crate) next: String,
    /// What pages say of each part of it.
    pub(crate) chapters: Vec<Chapter>,
}

/// What a page says of a part of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chapter {
    pub(crate) title: String,
    pub(crate) paragraphs: Vec<String>,
    /// The command line that measures it by itself.
    pub(crate) command: String,
    /// The name of the file of its figure, without an extension, if it has one of its own.
    pub(crate) figure: Option<&'static str>,
}

/// Names of a screen's tables on pages, where others have theirs.
const NAMES: [&str; 4] = ["screen", "screen-2", "screen-3", "screen-4"];

impl Screen {
    /// Its tables, for pages: the first with what was measured and the notes as its caption, those below it with what is said
    /// of the table of the same name among `all`.
    pub(crate) fn into_tables(self, all: &[Table]) -> Vec<Table> {
        let mut tables = Vec::new();
        let mut notes = self.notes;
        for (id, screen) in NAMES.into_iter().zip(self.tables) {
            let known = all.iter().find(|table| table.id == screen.table.id).filter(|_| screen.title.is_empty());
            let heading = known.map_or_else(|| screen.heading(), |known| known.what().to_owned() + screen.marks());
            let sentences: Vec<String> = [heading + "."].into_iter().chain(std::mem::take(&mut notes)).collect();
            let title = known.map_or("In short", |known| known.title);
            tables.push(Table { id, title, note: sentences.join(" ").replace('\u{a0}', " "), ..screen.table });
        }
        tables
    }
}

/// A table of a screen.
#[derive(Debug)]
pub(crate) struct ScreenTable {
    /// What was measured.
    pub(crate) title: String,
    /// What all its rows share: `4096 tokens`, `40 prompts a model`.
    pub(crate) shared: Vec<String>,
    pub(crate) table: Table,
}

impl ScreenTable {
    /// A table that is no query, with the size of the run's prompts.
    pub(crate) fn of_run(title: &str, frame: &Frame, table: Table) -> Self {
        let mut shared = Vec::new();
        if let [setting] = frame.settings[..] {
            shared.push(plural(setting.ctx_tok, "token"));
            shared.extend((setting.needles > 0).then(|| plural(setting.needles, "needle")));
        }
        let what = if frame.asks() { "prompt" } else { "window" };
        shared.extend(Some(frame.prompts()).filter(|&n| n > 0).map(|n| plural(n, what)));
        Self { title: title.to_owned(), shared, table }
    }

    /// What was measured, what all rows share, and what marks mean: `Answers: 512 tokens [95 %]; * decided`; empty below another.
    pub(crate) fn heading(&self) -> String {
        if self.title.is_empty() {
            return String::new();
        }
        let shared = if self.shared.is_empty() { String::new() } else { format!(": {}", self.shared.join(", ")) };
        self.title.clone() + &shared + self.marks()
    }

    /// What brackets and stars in its cells mean.
    fn marks(&self) -> &'static str {
        let has = |mark: fn(&Cell) -> bool| self.table.rows.iter().flatten().any(mark);
        match (has(Cell::shows_interval), has(|cell| cell.decided || cell.number_decided)) {
            (true, true) => " [95 %]; *\u{a0}decided",
            (true, false) => " [95 %]",
            (false, true) => "; *\u{a0}decided",
            (false, false) => "",
        }
    }

    /// A table below another, which has said what both share.
    pub(crate) fn below(table: Table) -> Self {
        Self { title: String::new(), shared: Vec::new(), table }
    }
}

/// A table that grows row by row, with a column for each model.
pub(crate) struct ModelRows<'a> {
    models: &'a [String],
    columns: Vec<TableColumn>,
    rows: Vec<Vec<Cell>>,
}

impl<'a> ModelRows<'a> {
    /// A table without rows; `corner` heads their labels.
    pub(crate) fn new(corner: impl Into<String>, models: &'a [String]) -> Self {
        let columns = [words(corner).named("measured").key()].into_iter().chain(models.iter().map(numbers)).collect();
        Self { models, columns, rows: Vec::new() }
    }

    /// Adds a row, given the cell of a model; one without numbers is left out.
    pub(crate) fn row(&mut self, label: impl Into<String>, cell: impl FnMut(&'a String) -> Cell) {
        let cells: Vec<Cell> = self.models.iter().map(cell).collect();
        if cells.iter().any(|cell| !cell.is_none()) {
            self.rows.push([Cell::words(label)].into_iter().chain(cells).collect());
        }
    }

    /// The table; `None` without rows.
    pub(crate) fn table(self, id: &'static str) -> Option<Table> {
        Table::new(id, "", String::new(), self.columns, self.rows).with_rows()
    }
}

/// Numbers with a column for each model: levels of the first model, and of the others their changes from it on the same prompts;
/// where there are conditions, levels of the untreated passes, and changes from them under each condition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SideBySide<'a> {
    pub(crate) id: &'static str,
    pub(crate) title: &'a str,
    pub(crate) numbers: &'a [Number<'static>],
    /// What stands in the corner, if it is not the heading of the only number.
    pub(crate) corner: &'a str,
    /// Columns that make rows, besides setting and condition.
    pub(crate) by: &'static [Column],
    pub(crate) only: &'a [Cut<'a>],
    /// The name of the untreated passes.
    pub(crate) untreated: &'static str,
    /// `true` if all cells are levels, and none is a change.
    pub(crate) levels: bool,
    /// `true` if they stand without intervals.
    pub(crate) plain: bool,
}

impl SideBySide<'_> {
    /// Numbers of all records, by setting and condition.
    pub(crate) const fn of<'a>(id: &'static str, title: &'a str, numbers: &'a [Number<'static>]) -> SideBySide<'a> {
        let untreated = "untreated";
        SideBySide { id, title, numbers, corner: "", by: &[], only: &[], untreated, levels: false, plain: false }
    }

    /// Fills the table; `None` if the run has none of its numbers.
    pub(crate) fn table(&self, frame: &Frame) -> Option<ScreenTable> {
        let answer = self.ask(frame)?;
        let Answer { groups, rows, .. } = &answer;
        let measured: Vec<usize> =
            (0..self.numbers.len()).filter(|&at| rows.iter().any(|row| row.numbers[at].is_some())).collect();
        // A row that no key tells from others is named after its number.
        let is_named = groups.keys.len() > 1 || !self.label(frame, groups, groups.keys.first()?).is_empty();
        let names = match measured[..] {
            [_] if is_named => RowNames::Keys,
            [_, _, ..] if groups.keys.len() > 1 => RowNames::KeysBelow,
            _ => RowNames::Number,
        };
        let corner = match measured[..] {
            [only] if self.corner.is_empty() && is_named => self.numbers[only].heading(),
            _ => self.corner.to_owned(),
        };
        let mut table = ModelRows::new(corner, &frame.models);
        for &at in &measured {
            if names == RowNames::KeysBelow {
                table.row(self.numbers[at].heading(), |_| Cell::default());
            }
            for ShownRow { label, cells, .. } in self.shown_rows(&answer, at, names) {
                let mut cells = cells.into_iter();
                table.row(label, |_| cells.next().unwrap_or_default());
            }
        }
        let table = table.table(self.id)?;
        Some(ScreenTable { title: self.title.to_owned(), shared: shared(groups, rows, frame), table })
    }

    /// Asks the run for the numbers, and for their changes from the first model or from the untreated passes.
    fn ask<'a>(&self, frame: &'a Frame) -> Option<Answer<'a>> {
        let columns = row_columns(frame, self.by);
        let first = frame.models.first()?;
        let against =
            if frame.has_conditions() { (Column::Condition, None) } else { (Column::Model, Some(Value::Text(first))) };
        let against = Some(against).filter(|_| !self.levels);
        let mut rows = sorted_rows(frame, &Query { only: self.only, rows: &columns, numbers: self.numbers, against });
        correct(rows.iter_mut().flat_map(|row| row.changes.iter_mut().flatten()));
        Some(Answer { frame, groups: Groups::of(&columns, &rows), rows })
    }

    /// The rows of a number, one for each key; neighbours that show the same are one.
    fn shown_rows(&self, answer: &Answer<'_>, at: usize, names: RowNames) -> Vec<ShownRow> {
        let Answer { frame, groups, rows } = answer;
        let mut shown: Vec<ShownRow> = Vec::new();
        for key in &groups.keys {
            let label = match names {
                RowNames::Keys => self.label(frame, groups, key),
                RowNames::KeysBelow => format!("  {}", self.label(frame, groups, key)),
                RowNames::Number => self.numbers[at].heading(),
            };
            let of_models: Vec<_> = frame.models.iter().map(|model| groups.row(rows, key, model)).collect();
            let row = ShownRow {
                label,
                bits: groups.bits(frame, key).into_iter().collect(),
                is_change: of_models.iter().flatten().all(|row| row.changes[at].is_some()),
                cells: of_models.iter().map(|row| row.map_or_else(Cell::none, |row| self.cell(row, at))).collect(),
            };
            match shown.last_mut().filter(|above| above.shows_same(&row)) {
                Some(above) => above.join(row, names == RowNames::KeysBelow),
                None => shown.push(row),
            }
        }
        shown
    }

    /// A number of a row: its change, if the row is compared with another.
    fn cell(&self, row: &ResultRow<'_>, at: usize) -> Cell {
        let kind = self.numbers[at].metric.kind;
        let cell = match &row.changes[at] {
            Some(change) => Cell { decided: change.is_decided(), ..Cell::difference(kind, change) },
            None => Cell::estimate(kind, row.numbers[at]),
        };
        if self.plain {
            return Cell { aside: String::new(), decided: false, ..cell };
        }
        cell
    }

    /// The words of a row: the values of the columns that differ between rows.
    fn label(&self, frame: &Frame, groups: &Groups<'_>, key: &Key<'_>) -> String {
        let mut parts = Vec::new();
        for (at, &column) in groups.columns.iter().enumerate() {
            if groups.varies(at) {
                parts.push(match (column, key[at]) {
                    (Column::Condition, None) => self.untreated.to_owned(),
                    (Column::Condition, Some(Value::Text(name))) => frame.condition_words(name),
                    (column, value) => value_words(frame, column, value),
                });
            }
        }
        if let (true, Some(name)) = (parts.is_empty(), groups.condition(key)) {
            return frame.condition_words(name);
        }
        parts.join(", ")
    }
}

/// The names of the rows of a number.
#[derive(Clone, Copy, PartialEq)]
enum RowNames {
    /// Their keys.
    Keys,
    /// Their keys, below a row with the name of the number.
    KeysBelow,
    /// The number.
    Number,
}

/// The rows of a query, by their keys.
struct Answer<'a> {
    frame: &'a Frame,
    groups: Groups<'a>,
    rows: Vec<ResultRow<'a>>,
}

/// The values of the columns that make rows, without the model.
type Key<'a> = Vec<Option<Value<'a>>>;

/// The rows of a query without their models.
struct Groups<'a> {
    /// The columns of the keys.
    columns: Vec<Column>,
    /// Distinct keys, in the order of the rows.
    keys: Vec<Key<'a>>,
    /// The place of the model among the columns of the query.
    model: usize,
}

impl<'a> Groups<'a> {
    fn of(columns: &[Column], rows: &[ResultRow<'a>]) -> Self {
        let model = columns.iter().position(|&column| column == Column::Model).unwrap_or(0);
        let mut keys: Vec<Key<'a>> = Vec::new();
        for row in rows {
            let key = without(&row.keys, model);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Self { columns: without(columns, model), keys, model }
    }

    /// The row of a key and a model.
    fn row<'r>(&self, rows: &'r [ResultRow<'a>], key: &Key<'a>, model: &str) -> Option<&'r ResultRow<'a>> {
        rows.iter()
            .find(|row| row.keys[self.model] == Some(Value::Text(model)) && without(&row.keys, self.model) == *key)
    }

    /// The condition of a key; `None` for the untreated passes.
    fn condition<'k>(&self, key: &'k Key<'a>) -> Option<&'k str> {
        let at = self.columns.iter().position(|&column| column == Column::Condition)?;
        match &key[at] {
            Some(Value::Text(name)) => Some(name),
            _ => None,
        }
    }

    /// The bits of a key whose condition rounds logits to so many and does nothing else, if no other column tells rows apart.
    fn bits(&self, frame: &Frame, key: &Key<'a>) -> Option<u32> {
        let others = (0..self.columns.len()).filter(|&at| self.columns[at] != Column::Condition && self.varies(at));
        match &frame.conditions.get(self.condition(key)?)?.purpose {
            Purpose::Bits { bits, is_usual: true, .. } if others.count() == 0 => Some(*bits),
            _ => None,
        }
    }

    fn varies(&self, at: usize) -> bool {
        self.keys.iter().any(|key| key[at] != self.keys[0][at])
    }
}

fn without<T: Clone>(list: &[T], place: usize) -> Vec<T> {
    [&list[..place], &list[place + 1..]].concat()
}

/// What all rows share, and the number of prompts.
fn shared(groups: &Groups<'_>, rows: &[ResultRow<'_>], frame: &Frame) -> Vec<String> {
    let mut words = Vec::new();
    let first = &groups.keys[0];
    for (at, &column) in groups.columns.iter().enumerate().filter(|(at, _)| !groups.varies(*at)) {
        let is_both =
            column == Column::Retrieve && at > 0 && first[at] == first[at - 1] && first[at] == Some(Value::Int(2));
        match column {
            Column::Condition if first[at].is_none() => {}
            Column::Retrieve if frame.is_of_shots() => {}
            Column::Retrieve if first[at] == Some(Value::Int(1)) && first[at - 1] == Some(Value::Int(1)) => {}
            Column::Retrieve if is_both => words.push("both asked for".to_owned()),
            Column::Retrieve => words.push(value_words(frame, column, first[at]) + " for"),
            column => words.push(value_words(frame, column, first[at])),
        }
    }
    let what = if frame.asks() { "prompt" } else { "window" };
    let prompts: Vec<usize> = rows.iter().filter_map(ResultRow::prompts).collect();
    match (prompts.iter().min(), prompts.iter().max()) {
        (Some(least), Some(most)) if least == most => words.push(plural(*most, what)),
        (Some(least), Some(most)) => words.push(format!("{least} to {most} {what}s")),
        _ => {}
    }
    words
}

/// A value of a column in words: `4096 tokens`, `2 asked`.
fn value_words(frame: &Frame, column: Column, value: Option<Value<'_>>) -> String {
    let Some(value) = value else { return format!("no {column}") };
    if column == Column::Needles && frame.is_of_shots() {
        return plural(value, "example");
    }
    column_words(column, &value.to_string())
}

/// A value of a column in words, from its text: `4096 tokens`, `depth 25 %`.
pub(crate) fn column_words(column: Column, value: &str) -> String {
    match column {
        Column::CtxTok => plural(value, "token"),
        Column::Needles => plural(value, "needle"),
        Column::Retrieve => format!("{value} asked"),
        Column::DepthReqPct => format!("depth {value} %"),
        Column::Layer | Column::Head | Column::Query | Column::Sample | Column::Seed => format!("{column} {value}"),
        Column::Bits if value == "none" => "exact".to_owned(),
        Column::Bits => format!("{value} bits"),
        Column::Task => order_of(value).map_or_else(|| value.to_owned(), |order| order.replace('-', " ")),
        _ if value == "none" => format!("no {column}"),
        _ => value.to_owned(),
    }
}

/// A row of a table, before neighbours that show the same are joined.
struct ShownRow {
    label: String,
    /// The bits, if its condition rounds logits to so many and does nothing else.
    bits: Vec<u32>,
    /// `true` if all its numbers are changes.
    is_change: bool,
    cells: Vec<Cell>,
}

impl ShownRow {
    /// Returns `true` if a row of fewer bits shows the same changes.
    fn shows_same(&self, below: &Self) -> bool {
        let are_changes = self.is_change && below.is_change && !self.bits.is_empty() && !below.bits.is_empty();
        are_changes && self.cells.iter().map(Cell::line).eq(below.cells.iter().map(Cell::line))
    }

    /// Joins a row that shows the same: `8, 6 bits`.
    fn join(&mut self, below: Self, is_part: bool) {
        self.bits.extend(below.bits);
        let bits: Vec<String> = self.bits.iter().map(ToString::to_string).collect();
        self.label = format!("{}{} bits", if is_part { "  " } else { "" }, bits.join(", "));
    }
}

/// Numbers of each model in one sentence, without intervals: `Cosine of both maps of diff: noise 0.15; by chance 0.10.`
/// Only for runs with one setting.
pub(crate) fn note_on_levels(frame: &Frame, what: &str, numbers: &[(&str, Number<'static>)]) -> Option<String> {
    if frame.settings.len() > 1 {
        return None;
    }
    let wanted: Vec<Number<'static>> = numbers.iter().map(|(_, number)| *number).collect();
    let only = [(Column::Condition, None)];
    let rows = frame.query(&Query { only: &only, rows: &[Column::Model], numbers: &wanted, against: None });
    let mut parts = Vec::new();
    for (at, (name, _)) in numbers.iter().enumerate() {
        let levels = rows.iter().map(|row| row.numbers[at].map(|estimate| format!("{:.2}", estimate.value)));
        let levels = levels.collect::<Option<Vec<_>>>().filter(|levels| !levels.is_empty());
        parts.extend(levels.map(|levels| format!("{name} {}", levels.join(", "))));
    }
    (!parts.is_empty()).then(|| format!("{what}: {}.", parts.join("; ")))
}

/// Accuracy from which on everything counts as answered, and up to which nothing does.
const EVERYTHING: f64 = 0.97;
const NOTHING: f64 = 0.03;

/// The setting to try where all models answer everything, or nothing: there is nothing to be seen then.
pub(crate) fn note_on_limits(frame: &Frame) -> Option<String> {
    let untreated = (Column::Condition, None);
    let mut levels = Vec::new();
    for model in &frame.models {
        levels.push(frame.estimate(ACCURACY.overall(), &[of_model(model), untreated])?.value);
    }
    if !levels.is_empty() && levels.iter().all(|&level| level >= EVERYTHING) {
        return Some("Everything is answered: differences cannot be seen here; try more --needles.".to_owned());
    }
    let is_nothing = !levels.is_empty() && levels.iter().all(|&level| level <= NOTHING);
    is_nothing.then(|| {
        "Nothing is answered: differences cannot be seen here; try fewer --needles, or a shorter --ctx.".to_owned()
    })
}

/// The sentence on what the columns of a run without conditions are; empty for a single model.
pub(crate) fn note_on_changes(frame: &Frame) -> Option<String> {
    let (first, others) = frame.models.split_first()?;
    let names: Vec<String> = others.iter().map(|model| frame.short_name(model)).collect();
    let is_of_models = !others.is_empty() && !frame.has_conditions();
    is_of_models.then(|| format!("{}: change from {} on the same prompts.", names.join(", "), frame.short_name(first)))
}

/// The differences of accuracy between the models under one condition, in a sentence: `At 4 bits, less transformer, in points:
/// diff +11 [-5, +28].`
pub(crate) fn note_on_condition(frame: &Frame, condition: &str) -> Option<String> {
    let changes = accuracy_changes(frame, Some(condition))?;
    Some(format!("At {}, {changes}.", frame.condition_words(condition)))
}

/// The differences of accuracy of the models from the first under a condition, `None` for the untreated passes, in words: `less
/// transformer, in points: diff +11 [-5, +28]`.
pub(crate) fn accuracy_changes(frame: &Frame, condition: Option<&str>) -> Option<String> {
    let first = frame.models.first()?;
    let query = Query {
        only: &[under(condition)],
        rows: &[Column::Model],
        numbers: &[ACCURACY.overall()],
        against: Some((Column::Model, Some(Value::Text(first)))),
    };
    let mut rows = frame.query(&query);
    correct(rows.iter_mut().flat_map(|row| row.changes.iter_mut().flatten()));
    let mut parts = Vec::new();
    for row in &rows {
        let (Some(Value::Text(model)), Some(change)) = (row.keys[0], &row.changes[0]) else { continue };
        let cell = Cell { decided: change.is_decided(), ..Cell::difference(ACCURACY.kind, change) };
        parts.push(format!("{} {}", frame.short_name(model), cell.line()));
    }
    (!parts.is_empty()).then(|| format!("less {}, in points: {}", frame.short_name(first), parts.join(", ")))
}
