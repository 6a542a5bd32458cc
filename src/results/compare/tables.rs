//! Tables of anybody, whose rows are paired by their keys.

use super::super::difference::{are_hits, correct, Difference};
use super::super::metric::Kind;
use super::super::pair::Join;
use super::super::rows::Row;
use super::notes::note_rows;
use super::{Comparison, Counts, Input, PairedSets, Request, Unpaired};
use crate::bail_usage;
use crate::base::csv_table::{CsvTable, DecimalSign};
use anyhow::{bail, ensure, Context, Result};
use csv::StringRecord;
use std::path::Path;

/// The rows of a table, sorted by their keys.
struct KeyedTable {
    input: Input,
    counts: Counts,
    rows: Vec<KeyedRow>,
}

struct KeyedRow {
    /// `id=q7`.
    key: String,
    line: u64,
    /// The numbers of the columns that are compared; not a number where one is missing.
    numbers: Box<[f64]>,
}

/// Compares the numbers of tables with those of the first, row by row of the same key.
///
/// # Errors
/// Usage errors if there are no two tables, a column is missing, or no key is in both; others if a key is there twice, or what
/// should be a number is none.
pub(super) fn compare_tables(request: &Request) -> Result<Comparison> {
    let tables = request.inputs.iter().map(|path| read(path, request)).collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    let mut pairings = Vec::new();
    let mut notes = Vec::new();
    for (place, column) in request.value.iter().enumerate() {
        for other in &tables[1..] {
            let (pairing, difference) = compare_column([&tables[0], other], place, column, &request.key.join(", "))?;
            rows.push(Row {
                baseline: pairing.baseline.clone(),
                other: pairing.other.clone(),
                metric: column.clone(),
                difference,
                ..Row::default()
            });
            pairings.push(pairing);
        }
    }
    if rows.is_empty() {
        bail_usage!("--key {}: name two tables, or more", request.key.join(","));
    }
    correct(rows.iter_mut().map(|row| &mut row.difference));
    note_rows(&rows, request, &[], &mut notes);
    let inputs = tables.into_iter().map(|table| (table.input, table.counts)).collect();
    Ok(Comparison { inputs, differences: Vec::new(), pairings, groups: Vec::new(), rows, notes })
}

/// Pairs the numbers of one column, the one at `place` among those that are compared. Each key is a prompt of its own.
fn compare_column(
    tables: [&KeyedTable; 2],
    place: usize,
    column: &str,
    keys: &str,
) -> Result<(PairedSets, Difference)> {
    let sides = tables.map(|table| {
        let numbers = table.rows.iter().map(|row| (row.key.as_str(), row.numbers[place]));
        numbers.filter(|(_, number)| number.is_finite()).collect::<Vec<_>>()
    });
    let join = Join::of(&sides[0], &sides[1], |(a, _), (b, _)| a.cmp(b));
    let [baseline, other] = tables.map(|table| table.input.name.clone());
    let [only_baseline, only_other] = [&join.only_first, &join.only_second].map(|rows| Unpaired {
        by_metric: rows.first().map(|_| (column.to_owned(), rows.len())).into_iter().collect(),
        cases: rows.iter().map(|(key, _)| (*key).to_owned()).collect(),
    });
    if join.both.is_empty() {
        let [a, b] =
            [&only_baseline, &only_other].map(|unpaired| unpaired.cases.first().map_or("nothing", String::as_str));
        bail_usage!(
            "{baseline} and {other} have no {keys} in common that has a {column}: {a} is in one, {b} in the other"
        );
    }
    let pairs: Vec<Vec<(f64, f64)>> = join.both.iter().map(|((_, a), (_, b))| vec![(*a, *b)]).collect();
    let kind = if are_hits(&pairs) { Kind::Hit } else { Kind::Number };
    let difference = Difference::of_numbers(&pairs, kind)
        .with_context(|| format!("{column}: its numbers are too large to be averaged"))?;
    let regardless_of = format!("every column but {keys}");
    let pairing = PairedSets { baseline, other, regardless_of, pairs: pairs.len(), only_baseline, only_other };
    Ok((pairing, difference))
}

/// Reads the keys and the numbers of a table.
fn read(path: &Path, Request { key: keys, value: values, .. }: &Request) -> Result<KeyedTable> {
    let file = path.display();
    let table = CsvTable::open(path)?;
    let key_places = places(&table, keys, path)?;
    let value_places = places(&table, values, path)?;
    let sign = table.decimal_sign(&value_places)?;
    let mut rows = Vec::new();
    for row in table {
        let (line, row) = row?;
        let key = key_of(&row, keys, &key_places).with_context(|| format!("{file}, line {line}"))?;
        let mut numbers = Vec::new();
        for (column, &at) in values.iter().zip(&value_places) {
            let number = number(&row[at], sign)
                .with_context(|| format!("{file}, line {line}, column `{column}`: `{}` is not a number", &row[at]))?;
            numbers.push(number.unwrap_or(f64::NAN));
        }
        rows.push(KeyedRow { key, line, numbers: numbers.into() });
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    if let Some(twice) = rows.windows(2).find(|two| two[0].key == two[1].key) {
        let [KeyedRow { key, line: before, .. }, KeyedRow { line, .. }] = twice else { unreachable!("windows of two") };
        bail!("{file}: {key} is in line {before} and again in line {line}; --key names one column, or more, that tell rows apart");
    }
    let numbers = rows.iter().flat_map(|row| &row.numbers);
    let missing = numbers.filter(|number| number.is_nan()).count();
    let records = rows.len() * values.len();
    let counts = Counts { records, missing, kept: records - missing, errors: 0 };
    let input = Input { name: file.to_string(), results: path.to_path_buf(), manifest: None };
    Ok(KeyedTable { input, counts, rows })
}

/// Returns the key of a row in words.
///
/// # Errors
/// If a column has no value.
fn key_of(row: &StringRecord, columns: &[String], places: &[usize]) -> Result<String> {
    let mut key = Vec::new();
    for (column, &at) in columns.iter().zip(places) {
        let value = row[at].trim();
        ensure!(!value.is_empty(), "it has no {column}");
        // Data frames write whole numbers so where one is missing.
        let whole = value.strip_suffix(".0").filter(|whole| whole.parse::<u64>().is_ok());
        let value = whole.unwrap_or(value);
        key.push(format!("{column}={value}"));
    }
    Ok(key.join(" "))
}

/// Returns the places of columns.
///
/// # Errors
/// A usage error if a column is missing or there twice.
fn places(table: &CsvTable, columns: &[String], path: &Path) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for column in columns {
        let Some(place) = table.place(column) else {
            bail_usage!("{} has no column `{column}`; there are {}", path.display(), table.names());
        };
        if table.header.iter().skip(place + 1).any(|name| name.trim() == column) {
            bail_usage!("{} has two columns `{column}`", path.display());
        }
        places.push(place);
    }
    Ok(places)
}

/// Reads a number, also in percent, or a hit or miss; `Some(None)` for a missing one, `None` for anything else.
fn number(field: &str, sign: DecimalSign) -> Option<Option<f64>> {
    match field.trim().to_ascii_lowercase().as_str() {
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
