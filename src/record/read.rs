//! Reads results files of this schema and of earlier ones.

use super::{columns, parquet, schema_1, schema_2, Identity, Measurement, Record, SCHEMA};
use anyhow::{bail, ensure, Context, Result};
use csv::StringRecord;
use flate2::bufread::MultiGzDecoder;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// First bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// Largest compression ratio. Records have about 15; a file with a ratio of 1000 is made to fill the memory.
const MOST_BYTES_EACH: u64 = 100;

/// Reads the records of a file: CSV, CSV compressed with gzip, or Parquet.
///
/// # Errors
/// If the file cannot be read or is not a results file of a known schema; with the line of a row that is invalid.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let mut rows = rows(path)?;
    let header = rows.next().with_context(|| format!("{} is empty", path.display()))??;

    let mut records: Vec<Record> = Vec::new();
    let mut known_schema = None;
    for row in rows {
        let row = row?;
        // Check the schema number before the columns, because it gives the better error.
        let schema = schema_of(&row, &header, path)?;
        if known_schema.is_none() {
            check_columns(&header, schema, path)?;
        }
        let known = *known_schema.get_or_insert(schema);
        if known != schema {
            let line = row.position().map_or(0, csv::Position::line);
            bail!("{}, line {line}: written in schema {schema}, and those before in schema {known}", path.display());
        }
        let row = if schema == 1 { schema_1::widened(&row) } else { row };
        let (_, identity, measure): (u32, Identity, Measurement) = parse(&row, path)?;
        let shared = records.last().map(|last| &last.identity).filter(|last| ***last == identity);
        let identity = shared.cloned().unwrap_or_else(|| Arc::new(identity));
        records.push(Record { identity, measure });
    }
    match known_schema {
        None => check_columns(&header, SCHEMA, path)?,
        Some(SCHEMA) => {}
        Some(schema) => {
            if schema == 1 {
                schema_1::derive(&mut records);
            }
            schema_2::derive(&mut records);
        }
    }
    Ok(records)
}

/// Reads the rows of a file, header first.
fn rows(path: &Path) -> Result<Box<dyn Iterator<Item = Result<StringRecord>>>> {
    let mut file = BufReader::new(crate::files::open(path)?);
    let begins = file.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
    if begins.starts_with(PARQUET) {
        return Ok(Box::new(parquet::rows(path)?));
    }
    let text: Box<dyn Read> = if begins.starts_with(&GZIP) { Box::new(inflated(file, path)?) } else { Box::new(file) };
    let (rows, path) = (csv::ReaderBuilder::new().has_headers(false).from_reader(text), path.to_owned());
    Ok(Box::new(rows.into_records().map(move |row| row.map_err(|e| explain(&e, &path)))))
}

/// Decompresses a file.
fn inflated(file: BufReader<File>, path: &Path) -> Result<Cursor<Vec<u8>>> {
    let cannot = || format!("cannot read {}", path.display());
    let most = MOST_BYTES_EACH * file.get_ref().metadata().with_context(cannot)?.len();
    let mut text = Vec::new();
    MultiGzDecoder::new(file).take(most + 1).read_to_end(&mut text).with_context(cannot)?;
    ensure!(
        text.len() as u64 <= most,
        "{}: decompresses to more than {most} bytes, which no results file does",
        path.display()
    );
    Ok(Cursor::new(text))
}

fn parse<T: DeserializeOwned>(row: &StringRecord, path: &Path) -> Result<T> {
    row.deserialize(None).map_err(|e| explain(&e, path))
}

/// Returns the schema number of a row.
fn schema_of(row: &StringRecord, header: &StringRecord, path: &Path) -> Result<u32> {
    let file = path.display();
    ensure!(header.get(0) == Some("schema"), "{file} is not a results file: its first column is not `schema`");
    let line = row.position().map_or(0, csv::Position::line);
    match row.get(0).map(str::parse::<u32>) {
        Some(Ok(schema @ 1..=SCHEMA)) => Ok(schema),
        Some(Ok(other)) => {
            bail!("{file}, line {line}: written in schema {other}, but this version of difftool reads schemas 1 to {SCHEMA}")
        }
        _ => bail!("{file}, line {line}, column `schema`: `{}` is not a number", row.get(0).unwrap_or_default()),
    }
}

fn check_columns(header: &StringRecord, schema: u32, path: &Path) -> Result<()> {
    let columns = if schema == 1 { schema_1::columns() } else { columns() };
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
