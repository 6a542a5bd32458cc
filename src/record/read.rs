//! Reads results files.

use super::{columns, Identity, Measurement, Record, SCHEMA};
use anyhow::{bail, ensure, Context, Result};
use csv::StringRecord;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

/// Reads the records of a CSV file.
///
/// # Errors
/// If the file cannot be read or is not a results file of this schema; with the line of a row that is invalid.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let file = crate::files::open(path)?;
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(file).into_records();
    let header = rows.next().with_context(|| format!("{} is empty", path.display()))?.map_err(|e| explain(&e, path))?;

    let mut records: Vec<Record> = Vec::new();
    let mut known_columns = false;
    for row in rows {
        let row = row.map_err(|e| explain(&e, path))?;
        // Check the schema number before the columns, because it gives the better error.
        check_schema(&row, &header, path)?;
        if !std::mem::replace(&mut known_columns, true) {
            check_columns(&header, path)?;
        }
        let (_, identity, measure): (u32, Identity, Measurement) = parse(&row, path)?;
        let shared = records.last().map(|last| &last.identity).filter(|last| ***last == identity);
        let identity = shared.cloned().unwrap_or_else(|| Arc::new(identity));
        records.push(Record { identity, measure });
    }
    if !known_columns {
        check_columns(&header, path)?;
    }
    Ok(records)
}

fn parse<T: DeserializeOwned>(row: &StringRecord, path: &Path) -> Result<T> {
    row.deserialize(None).map_err(|e| explain(&e, path))
}

/// Checks that a row is of this schema.
fn check_schema(row: &StringRecord, header: &StringRecord, path: &Path) -> Result<()> {
    let file = path.display();
    ensure!(header.get(0) == Some("schema"), "{file} is not a results file: its first column is not `schema`");
    let line = row.position().map_or(0, csv::Position::line);
    match row.get(0).map(str::parse::<u32>) {
        Some(Ok(SCHEMA)) => Ok(()),
        Some(Ok(other)) => {
            bail!("{file}, line {line}: written in schema {other}; this version of difftool reads schema {SCHEMA}")
        }
        _ => bail!("{file}, line {line}, column `schema`: `{}` is not a number", row.get(0).unwrap_or_default()),
    }
}

fn check_columns(header: &StringRecord, path: &Path) -> Result<()> {
    let columns = columns();
    if header.iter().eq(columns.iter()) {
        return Ok(());
    }
    let differing =
        columns.iter().zip(header.iter().chain(std::iter::repeat(""))).find(|(expected, found)| expected != found);
    match differing {
        Some((expected, found)) => {
            bail!("{}, line 1: column `{expected}` expected, `{found}` found", path.display())
        }
        None => bail!("{}, line 1: more columns than the {} of the schema", path.display(), columns.len()),
    }
}

/// Converts a CSV error to one with the file, the line and the column.
fn explain(error: &csv::Error, path: &Path) -> anyhow::Error {
    let line = error.position().map_or(0, csv::Position::line);
    let place = format!("{}, line {line}", path.display());
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            anyhow::anyhow!("{place}: {len} fields where the header has {expected_len}; was the file cut off?")
        }
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|i| columns().into_iter().nth(i as usize)).unwrap_or_default();
            anyhow::anyhow!("{place}, column `{column}`: {}", err.kind())
        }
        csv::ErrorKind::Utf8 { .. } => anyhow::anyhow!("{place}: not UTF-8"),
        _ => anyhow::anyhow!("{}: {error}", path.display()),
    }
}
