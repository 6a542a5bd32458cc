//! Tables of anybody, whose rows are paired by their keys.

use super::super::difference::{are_hits, correct, Difference};
use super::super::pair::Join;
use super::super::rows::Row;
use super::super::table::plural;
use super::notes::note_rows;
use super::{Comparison, Counts, Input, PairedSets, Request, Unpaired};
use anyhow::{bail, ensure, Context, Result};
use base::bail_usage;
use base::csv_table::DecimalSign;
use base::foreign_table::{column_names, each_row, Wanted};
use base::json_objects::Place;
use names::distinct;
use names::metric::{metric_name, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rows of a table, sorted by their keys.
struct KeyedTable {
    input: Input,
    counts: Counts,
    rows: Vec<KeyedRow>,
    /// Values of the first of several keys.
    first_keys: BTreeSet<String>,
}

struct KeyedRow {
    /// `id=q7`.
    key: String,
    place: Place,
    /// Values of the columns to group by: `algebra,hard`. Empty without any.
    group: String,
    /// The value of the column whose rows go together.
    cluster: Option<String>,
    /// The numbers of the columns that are compared; not a number where one is missing.
    numbers: Box<[f64]>,
}

/// What is asked of tables, as columns of the files.
struct Columns {
    keys: Vec<String>,
    /// A row is read if each of these columns has one of its values.
    wheres: BTreeMap<String, BTreeSet<String>>,
    groups: Vec<String>,
    cluster: Option<String>,
    values: Vec<String>,
}

/// What stands for a missing value in a condition, as in those of records.
const MISSING: &str = "none";

/// Compares the numbers of tables with those of the first, row by row of the same key.
///
/// # Errors
/// Usage errors if there are no two tables, a column is missing, or no key is in both; others if a key is there twice, or what
/// should be a number is none.
pub(super) fn compare_tables(request: &Request) -> Result<Comparison> {
    let [first, _, ..] = request.inputs.as_slice() else {
        bail_usage!("--key {}: name two tables, or more", request.key.join(","));
    };
    let asked = request.key.iter().chain(&request.value).chain(&request.groups);
    // A comma may be part of a name; otherwise the files need not be read for it.
    let there = if asked.clone().any(|name| name.contains(',')) { column_names(first)? } else { Vec::new() };
    let columns = Columns::of(request, &there)?;
    let tables = request.inputs.iter().map(|path| read(path, &columns)).collect::<Result<Vec<_>>>()?;
    let groups = distinct(tables.iter().flat_map(|table| &table.rows).map(|row| row.group.as_str()));
    let mut rows = Vec::new();
    let mut pairings = Vec::new();
    let mut notes = Vec::new();
    for (place, column) in columns.values.iter().enumerate() {
        for (group, other) in groups.iter().flat_map(|group| tables[1..].iter().map(move |other| (group, other))) {
            let group = if columns.groups.is_empty() { None } else { Some(group.clone()) };
            let numbers = ComparedNumbers { place, column, group: group.as_deref(), keys: &columns.keys.join(", ") };
            let (pairing, difference) = numbers.compare([&tables[0], other])?;
            let (baseline, other) = (pairing.baseline.as_str().into(), pairing.other.as_str().into());
            rows.push(Row { baseline, other, metric: column.clone(), region: group, difference, ..Row::default() });
            pairings.push(pairing);
        }
    }
    correct(rows.iter_mut().map(|row| &mut row.difference));
    note_rows(&rows, request, &[], &mut notes);
    notes.extend(columns.note_on_clusters(&tables[0]));
    let inputs = tables.into_iter().map(|table| (table.input, table.counts)).collect();
    Ok(Comparison { inputs, differences: Vec::new(), pairings, groups: Vec::new(), rows, notes })
}

impl Columns {
    fn of(request: &Request, there: &[String]) -> Result<Self> {
        let mut wheres: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for text in &request.only {
            let Some((column, value)) = text.split_once('=') else {
                bail_usage!("--where {text}: it is not COLUMN=VALUE");
            };
            wheres.entry(column.trim().to_owned()).or_default().insert(value.trim().to_owned());
        }
        Ok(Self {
            keys: listed(&request.key, there),
            wheres,
            groups: listed(&request.groups, there),
            cluster: request.cluster.clone(),
            values: listed(&request.value, there),
        })
    }

    /// All columns, one after the other, with those that hold numbers at the end.
    fn all(&self) -> Vec<String> {
        let Self { keys, wheres, groups, cluster, values } = self;
        keys.iter().chain(wheres.keys()).chain(groups).chain(cluster).chain(values).cloned().collect()
    }

    /// Makes a row of the fields of all columns; `None` if it does not meet the conditions.
    ///
    /// # Errors
    /// If it has no key, or what should be a number is none.
    fn row(&self, place: Place, fields: &[&str], sign: DecimalSign) -> Result<Option<KeyedRow>> {
        let (keys, fields) = fields.split_at(self.keys.len());
        let (conditions, fields) = fields.split_at(self.wheres.len());
        let (groups, fields) = fields.split_at(self.groups.len());
        let (cluster, values) = fields.split_at(usize::from(self.cluster.is_some()));
        if !self.wheres.values().zip(conditions).all(|(wanted, field)| wanted.contains(&or_missing(field))) {
            return Ok(None);
        }
        ensure!(keys.iter().any(|key| !key.is_empty()), "it has no {}", self.keys.join(", "));
        let keys: Vec<String> =
            self.keys.iter().zip(keys).map(|(name, key)| format!("{name}={}", or_missing(key))).collect();
        let groups: Vec<String> = groups.iter().map(|field| or_missing(field)).collect();
        let mut numbers = Vec::new();
        for (column, field) in self.values.iter().zip(values) {
            let number =
                number(field, sign).with_context(|| format!("column `{column}`: `{field}` is not a number"))?;
            numbers.push(number.unwrap_or(f64::NAN));
        }
        Ok(Some(KeyedRow {
            key: keys.join(" "),
            place,
            group: groups.join(","),
            cluster: cluster.first().map(|field| or_missing(field)),
            numbers: numbers.into(),
        }))
    }

    /// Says of keys of several columns that rows count as independent, where some agree in the first column.
    fn note_on_clusters(&self, table: &KeyedTable) -> Option<String> {
        let items = table.first_keys.len();
        let rows = table.rows.len();
        if self.cluster.is_some() || items == 0 || items == rows {
            return None;
        }
        let first = &self.keys[0];
        Some(format!(
            "{} count as independent, of {items} values of {first}; if those of one {first} go together, --cluster {first}",
            plural(rows, "row")
        ))
    }
}

/// Splits names at commas, but for those that are the name of a column.
fn listed(names: &[String], there: &[String]) -> Vec<String> {
    let mut columns = Vec::new();
    for name in names {
        if there.contains(name) {
            columns.push(name.clone());
        } else {
            columns.extend(name.split(',').map(|part| part.trim().to_owned()));
        }
    }
    columns
}

/// Numbers that are compared.
struct ComparedNumbers<'a> {
    /// The place of their column among those that are compared.
    place: usize,
    column: &'a str,
    /// The group of their rows; all rows if there are no groups.
    group: Option<&'a str>,
    /// The names of the keys, for errors.
    keys: &'a str,
}

/// A number of a row.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    row: &'a KeyedRow,
    number: f64,
}

impl ComparedNumbers<'_> {
    /// Pairs the numbers of two tables by key. What is independent is a cluster, or else a key.
    fn compare(&self, tables: [&KeyedTable; 2]) -> Result<(PairedSets, Difference)> {
        let Self { place, column, group, keys } = *self;
        let sides = tables.map(|table| {
            let rows = table.rows.iter().filter(|row| group.is_none_or(|group| row.group == group));
            let numbers = rows.map(|row| Keyed { row, number: row.numbers[place] });
            numbers.filter(|keyed| keyed.number.is_finite()).collect::<Vec<_>>()
        });
        let join = Join::of(&sides[0], &sides[1], |a, b| a.row.key.cmp(&b.row.key));
        let [baseline, other] = tables.map(|table| table.input.name.clone());
        let name = metric_name(column, group);
        let [only_baseline, only_other] = [&join.only_first, &join.only_second].map(|rows| Unpaired {
            by_metric: rows.first().map(|_| (name.clone(), rows.len())).into_iter().collect(),
            cases: rows.iter().map(|keyed| keyed.row.key.clone()).collect(),
        });
        if join.both.is_empty() {
            let [a, b] =
                [&only_baseline, &only_other].map(|unpaired| unpaired.cases.first().map_or("nothing", String::as_str));
            bail_usage!(
                "{baseline} and {other} have no {keys} in common that has a {name}: {a} is in one, {b} in the other"
            );
        }
        let mut independent: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for (a, b) in &join.both {
            let cluster = a.row.cluster.as_deref().unwrap_or(&a.row.key);
            independent.entry(cluster).or_default().push((a.number, b.number));
        }
        let pairs: Vec<Vec<(f64, f64)>> = independent.into_values().collect();
        let kind = if are_hits(&pairs) { Kind::Hit } else { Kind::Number };
        let difference = Difference::of_numbers(&pairs, kind)
            .with_context(|| format!("{name}: its numbers are too large to be averaged"))?;
        let regardless_of = format!("every column but {keys}");
        let pairs = join.both.len();
        Ok((PairedSets { baseline, other, regardless_of, pairs, only_baseline, only_other }, difference))
    }
}

/// Reads the keys and the numbers of a table.
fn read(path: &Path, columns: &Columns) -> Result<KeyedTable> {
    let file = path.display();
    let all = columns.all();
    let mut rows = Vec::new();
    let mut first_keys = BTreeSet::new();
    each_row(path, &Wanted { columns: &all, numbers: columns.values.len() }, |place, fields, sign| {
        let Some(row) = columns.row(place, fields, sign)? else { return Ok(()) };
        if columns.keys.len() > 1 && !first_keys.contains(fields[0]) {
            first_keys.insert(fields[0].to_owned());
        }
        rows.push(row);
        Ok(())
    })?;
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    if rows.is_empty() && !columns.wheres.is_empty() {
        let conditions = columns.wheres.iter().map(|(column, values)| {
            format!("{column}={}", values.iter().map(String::as_str).collect::<Vec<_>>().join("|"))
        });
        bail_usage!("{file}: no row has {}", conditions.collect::<Vec<_>>().join(" and "));
    }
    if let Some(twice) = rows.windows(2).find(|two| two[0].key == two[1].key) {
        let [KeyedRow { key, place: before, .. }, KeyedRow { place, .. }] = twice else {
            unreachable!("windows of two")
        };
        bail!(
            "{file}: {key} is in {before} and again in {place}; --key names one column, or more, that tell rows apart"
        );
    }
    let numbers = rows.iter().flat_map(|row| &row.numbers);
    let missing = numbers.filter(|number| number.is_nan()).count();
    let records = rows.len() * columns.values.len();
    let counts = Counts { records, missing, kept: records - missing, errors: 0 };
    let input = Input { name: file.to_string(), results: path.to_path_buf(), manifest: None };
    Ok(KeyedTable { input, counts, rows, first_keys })
}

/// A field of a key, a group or a condition.
fn or_missing(field: &str) -> String {
    if field.is_empty() {
        MISSING.to_owned()
    } else {
        whole(field).to_owned()
    }
}

/// A whole number without the `.0` with which data frames write it where one is missing.
fn whole(value: &str) -> &str {
    value.strip_suffix(".0").filter(|whole| whole.parse::<u64>().is_ok()).unwrap_or(value)
}

/// Reads a number, also in percent, or a hit or miss; `Some(None)` for a missing one, `None` for anything else.
fn number(field: &str, sign: DecimalSign) -> Option<Option<f64>> {
    match field.to_ascii_lowercase().as_str() {
        "" | "na" | "nan" | "<na>" | "null" | "none" => Some(None),
        "true" => Some(Some(1.0)),
        "false" => Some(Some(0.0)),
        other => {
            let percent = other.strip_suffix('%').map(str::trim_end);
            let number: f64 = sign.with_point(percent.unwrap_or(other)).parse().ok()?;
            number.is_finite().then_some(Some(if percent.is_some() { number / 100.0 } else { number }))
        }
    }
}
