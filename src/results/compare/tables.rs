//! Tables of anybody, whose rows are paired by their keys.

use super::super::column::Column;
use super::super::csv_table::{CsvTable, Separator};
use super::super::difference::{correct, Difference, Row};
use super::super::pair::pairs;
use super::super::record::{Identity, Measurement, Record};
use super::notes::note_rows;
use super::{Comparison, Counts, Input, PairedSets, Request, Unpaired};
use crate::bail_usage;
use anyhow::{bail, Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Compares the numbers of tables with those of the first, row by row of the same key.
///
/// # Errors
/// Usage errors if there are no two tables, a column is missing, or no key is in both; others if a key is there twice, or what
/// should be a number is none.
pub(super) fn compare_tables(request: &Request) -> Result<Comparison> {
    if request.inputs.len() < 2 {
        bail_usage!("--key {}: name two tables, or more", request.key.join(","));
    }
    let (mut inputs, mut tables) = (Vec::new(), Vec::new());
    for path in &request.inputs {
        let (records, missing) = read(path, &request.key, &request.value)?;
        let kept = records.len();
        let name = path.display().to_string();
        inputs.push((
            Input { name, results: path.clone(), manifest: None },
            Counts { records: kept + missing, missing, kept, errors: 0 },
        ));
        tables.push(records);
    }
    let (mut rows, mut pairings, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for column in &request.value {
        let of_column = |at: usize| tables[at].iter().filter(|record| record.measure.metric == *column).collect();
        for other in 1..tables.len() {
            let joined = pairs(of_column(0), of_column(other), &[Column::Model]);
            let (keys, names) = (request.key.join(", "), [0, other].map(|at| inputs[at].0.name.clone()));
            let [baseline, other] = names;
            if joined.pairs.is_empty() {
                let of = |records: &[&Record]| {
                    records.first().map_or("none".to_owned(), |record| record.identity.task.clone())
                };
                let [a, b] = [&joined.only_baseline, &joined.only_other].map(|records| of(records));
                bail_usage!("{baseline} and {other} have no {keys} in common where both have a {column}: for example {a} and {b}");
            }
            let difference = Difference::of_prompts(&joined.pairs, &[Column::Model], true);
            let difference =
                difference.with_context(|| format!("{column}: its numbers are too large to be averaged"))?;
            pairings.push(PairedSets {
                baseline: baseline.clone(),
                other: other.clone(),
                regardless_of: format!("every column but {keys}"),
                pairs: joined.pairs.len(),
                only_baseline: unpaired(&joined.only_baseline),
                only_other: unpaired(&joined.only_other),
            });
            rows.push(Row { baseline, other, metric: column.clone(), difference, ..Row::default() });
        }
    }
    correct(&mut rows);
    note_rows(&rows, request, &[], &mut notes);
    Ok(Comparison { inputs, differences: Vec::new(), pairings, groups: Vec::new(), rows, notes })
}

fn unpaired(records: &[&Record]) -> Unpaired {
    let mut by_metric = BTreeMap::new();
    for record in records {
        *by_metric.entry(record.measure.metric.to_string()).or_insert(0) += 1;
    }
    Unpaired { by_metric, cases: records.iter().map(|record| record.identity.task.clone()).collect() }
}

/// Reads the numbers of some columns as records, whose task is the key of their row, and counts those that are missing.
fn read(path: &Path, keys: &[String], values: &[String]) -> Result<(Vec<Record>, usize)> {
    let (file, table) = (path.display(), CsvTable::open(path)?);
    let [key_places, value_places] = [keys, values].map(|columns| places(&table, columns, path));
    let (key_places, value_places, separator) = (key_places?, value_places?, table.separator);
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
        let identity = Arc::new(Identity { model: file.to_string(), task: key, ..Identity::default() });
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
    Ok((records, missing))
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
