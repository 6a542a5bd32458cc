//! Tables of anybody, whose rows are paired by their keys.

use super::super::column::Column;
use super::super::csv_table::{CsvTable, Separator};
use super::super::difference::{are_hits, correct, Difference, Row};
use super::super::metric::Kind;
use super::super::pair::pairs;
use super::super::record::{Identity, Measurement, Record};
use super::notes::note_rows;
use super::{Comparison, Counts, Input, PairedSets, Request, Unpaired};
use crate::bail_usage;
use anyhow::{bail, Context, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A table whose numbers are records; their task is the key of their row.
struct KeyedTable {
    input: Input,
    counts: Counts,
    records: Vec<Record>,
}

/// Compares the numbers of tables with those of the first, row by row of the same key.
///
/// # Errors
/// Usage errors if there are no two tables, a column is missing, or no key is in both; others if a key is there twice, or what
/// should be a number is none.
pub(super) fn compare_tables(request: &Request) -> Result<Comparison> {
    let tables = request.inputs.iter().map(|path| read(path, request)).collect::<Result<Vec<_>>>()?;
    let (mut rows, mut pairings, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for column in &request.value {
        for other in &tables[1..] {
            let (pairing, difference) = compare_column(&tables[0], other, column, &request.key.join(", "))?;
            let (baseline, other) = (pairing.baseline.clone(), pairing.other.clone());
            rows.push(Row { baseline, other, metric: column.clone(), difference, ..Row::default() });
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

/// Pairs the numbers of one column.
fn compare_column(
    first: &KeyedTable,
    second: &KeyedTable,
    column: &str,
    keys: &str,
) -> Result<(PairedSets, Difference)> {
    let [a, b] = [first, second]
        .map(|table| table.records.iter().filter(|record| record.measure.metric == column).collect::<Vec<_>>());
    let joined = pairs(a, b, &[Column::Model]);
    let (baseline, other) = (first.input.name.clone(), second.input.name.clone());
    let [only_baseline, only_other] = [&joined.only_baseline, &joined.only_other].map(|records| Unpaired {
        by_metric: records.first().map(|_| (column.to_owned(), records.len())).into_iter().collect(),
        cases: records.iter().map(|record| record.identity.task.clone()).collect(),
    });
    if joined.pairs.is_empty() {
        let [a, b] =
            [&only_baseline, &only_other].map(|unpaired| unpaired.cases.first().map_or("nothing", String::as_str));
        bail_usage!(
            "{baseline} and {other} have no {keys} in common that has a {column}: {a} is in one, {b} in the other"
        );
    }
    let kind = if are_hits(&joined.pairs) { Kind::Hit } else { Kind::Number };
    let difference = Difference::of_prompts(&joined.pairs, &[Column::Model], kind)
        .with_context(|| format!("{column}: its numbers are too large to be averaged"))?;
    let (regardless_of, pairs) = (format!("every column but {keys}"), joined.pairs.len());
    Ok((PairedSets { baseline, other, regardless_of, pairs, only_baseline, only_other }, difference))
}

/// Reads the keys and the numbers of a table.
fn read(path: &Path, Request { key: keys, value: values, .. }: &Request) -> Result<KeyedTable> {
    let (file, table) = (path.display(), CsvTable::open(path)?);
    let (key_places, value_places) = (places(&table, keys, path)?, places(&table, values, path)?);
    let (separator, name) = (table.separator, file.to_string());
    let (mut records, mut missing, mut lines) = (Vec::new(), 0, HashMap::new());
    for row in table {
        let (line, row) = row?;
        let mut key = Vec::new();
        for (column, &at) in keys.iter().zip(&key_places) {
            key.push(format!("{column}={}", row[at].trim()));
            if row[at].trim().is_empty() {
                bail!("{file}, line {line}: it has no {column}");
            }
        }
        let key = key.join(" ");
        if let Some(before) = lines.insert(key.clone(), line) {
            bail!("{file}: {key} is in line {before} and again in line {line}; --key names one column, or more, that tell rows apart");
        }
        let identity = Arc::new(Identity { model: name.clone(), task: key, ..Identity::default() });
        for (column, &at) in values.iter().zip(&value_places) {
            let number = number(&row[at], separator)
                .with_context(|| format!("{file}, line {line}, column `{column}`: `{}` is not a number", &row[at]))?;
            let Some(value) = number else {
                missing += 1;
                continue;
            };
            let measure = Measurement { metric: column.clone().into(), value: Some(value), ..Measurement::default() };
            records.push(Record { identity: identity.clone(), measure });
        }
    }
    let counts = Counts { records: records.len() + missing, missing, kept: records.len(), errors: 0 };
    Ok(KeyedTable { input: Input { name, results: path.to_path_buf(), manifest: None }, counts, records })
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

/// Reads a number, or a hit or miss; `Some(None)` for a missing one, `None` for anything else.
fn number(field: &str, separator: Separator) -> Option<Option<f64>> {
    match field.trim().to_ascii_lowercase().as_str() {
        "" | "na" | "nan" | "<na>" | "null" | "none" => Some(None),
        "true" => Some(Some(1.0)),
        "false" => Some(Some(0.0)),
        other => separator.with_point(other).parse().ok().filter(|number: &f64| number.is_finite()).map(Some),
    }
}
