//! Reads results files.

use super::{columns, Identity, Measurement, Record, SCHEMA};
use anyhow::{bail, ensure, Context, Result};
use csv::StringRecord;
use std::path::Path;
use std::sync::Arc;

/// Reads the records of a CSV file.
///
/// # Errors
/// If the file cannot be read or is not a results file of this schema; with the line of a row that is invalid.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let file = crate::base::files::open(path)?;
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(file).into_records().peekable();
    let header = rows.next().with_context(|| format!("{} is empty", path.display()))?.map_err(|e| explain(&e, path))?;
    ensure!(
        header.get(0) == Some("schema"),
        "{} is not a results file: its first column is not `schema`",
        path.display()
    );
    // The schema number comes before the columns, because it gives the better error.
    if let Some(Ok(row)) = rows.peek() {
        check_schema(row, path)?;
    }
    check_columns(&header, path)?;
    let mut records: Vec<Record> = Vec::new();
    for row in rows {
        let row = row.map_err(|e| explain(&e, path))?;
        check_schema(&row, path)?;
        let (_, identity, measure): (u32, Identity, Measurement) =
            row.deserialize(None).map_err(|e| explain(&e, path))?;
        let shared = records.last().map(|last| &last.identity).filter(|last| ***last == identity);
        let identity = shared.cloned().unwrap_or_else(|| Arc::new(identity));
        records.push(Record { identity, measure });
    }
    Ok(records)
}

/// Checks that a row is of this schema.
fn check_schema(row: &StringRecord, path: &Path) -> Result<()> {
    let file = path.display();
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
