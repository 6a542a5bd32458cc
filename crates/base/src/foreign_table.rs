//! Tables of any program: CSV files, and JSON objects, one a line or in an array. Only the columns that are asked for are kept.

use super::csv_table::{CsvTable, DecimalSign};
use super::json_objects::Place;
use super::{files, json_objects};
use crate::bail_usage;
use anyhow::{Context, Result};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// Bytes at the beginning of a file that tell what it is.
const BEGINNING: u64 = 4096;

/// Columns of a file that are read.
pub struct Wanted<'a> {
    pub columns: &'a [String],
    /// Those at the end that hold numbers.
    pub numbers: usize,
}

/// Passes the fields of every row of a file to `see`, with its place and the decimal sign of its numbers. A field that is not there is
/// empty.
///
/// # Errors
/// Those of `see`, with file and place; if the file cannot be read; a usage error if a column is missing or there twice.
pub fn each_row(
    path: &Path,
    wanted: &Wanted<'_>,
    mut see: impl FnMut(Place, &[&str], DecimalSign) -> Result<()>,
) -> Result<()> {
    let Wanted { columns, numbers } = wanted;
    if is_json(path)? {
        return each_object(path, columns, see);
    }
    let table = CsvTable::open(path)?;
    let places = places(&table, columns, path)?;
    let sign = table.decimal_sign(&places[columns.len() - numbers..])?;
    for row in table {
        let (line, row) = row?;
        let fields: Vec<&str> = places.iter().map(|&at| row[at].trim()).collect();
        let place = Place::Line(line);
        see(place, &fields, sign).with_context(|| format!("{}, {place}", path.display()))?;
    }
    Ok(())
}

fn each_object(
    path: &Path,
    columns: &[String],
    mut see: impl FnMut(Place, &[&str], DecimalSign) -> Result<()>,
) -> Result<()> {
    let text = files::without_byte_order_mark(files::input_text(path, files::TEXT_MAX)?);
    let mut names = BTreeSet::new();
    let all = json_objects::each(&text, |place, object| {
        let fields: Vec<Cow<'_, str>> = columns.iter().map(|column| field(object.get(column))).collect();
        let fields: Vec<&str> = fields.iter().map(|field| field.trim()).collect();
        see(place, &fields, DecimalSign::POINT)?;
        names.extend(object.into_iter().map(|(name, _)| name));
        Ok(())
    });
    if let Some(missing) = columns.iter().find(|&column| all.is_ok() && !names.contains(column)) {
        let there: Vec<String> = names.into_iter().collect();
        bail_usage!("{}: no object has the key `{missing}`; there are {}", path.display(), there.join(", "));
    }
    all.with_context(|| path.display().to_string())
}

/// The names of the columns of a file: of JSON, those of its first object.
///
/// # Errors
/// If the file cannot be read.
pub fn column_names(path: &Path) -> Result<Vec<String>> {
    if !is_json(path)? {
        return Ok(CsvTable::open(path)?.header.iter().map(|name| name.trim().to_owned()).collect());
    }
    let text = files::without_byte_order_mark(files::input_text(path, files::TEXT_MAX)?);
    let mut names = Vec::new();
    json_objects::each(&text, |_, object| {
        if names.is_empty() {
            names.extend(object.into_iter().map(|(name, _)| name));
        }
        Ok(())
    })
    .with_context(|| path.display().to_string())?;
    Ok(names)
}

fn is_json(path: &Path) -> Result<bool> {
    let mut beginning = Vec::new();
    let read = files::open(path)?.take(BEGINNING).read_to_end(&mut beginning);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(json_objects::is_json(&beginning))
}

/// A value as a field: texts without their quotes, nothing for `null`.
fn field(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed(""),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(other) => Cow::Owned(other.to_string()),
    }
}

/// The places of columns.
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
