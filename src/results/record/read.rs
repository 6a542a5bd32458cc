//! Reads results files, also those that a spreadsheet or a data frame has written again.

use super::{columns, Identity, Measurement, Record, SCHEMA};
use anyhow::{anyhow, bail, Context, Result};
use base::csv_table::{CsvTable, DecimalSign};
use csv::StringRecord;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// Reads the records of a CSV file. Columns are found by their names; others between them do not matter.
///
/// # Errors
/// If the file cannot be read or is not a results file of this schema; with the line of a row that is invalid.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    read_each(path, |record| records.push(record.clone()))?;
    Ok(records)
}

/// Passes the records of a CSV file on, one at a time. Returns `true` if seeds have lost their last digits, as those of a file that a
/// spreadsheet wrote.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_each(path: &Path, mut see: impl FnMut(&Record)) -> Result<bool> {
    let file = path.display();
    let table = CsvTable::open(path)?;
    let names = columns();
    let Some(schema) = table.place(&names[0]) else {
        bail!(
            "{file} is not a results file: it has no column `schema`, but {}; the columns of results are {}. Other tables are \
             compared with --key and --value",
            table.names(),
            names.join(", ")
        );
    };
    let mut columns = Vec::new();
    for name in &names {
        columns.push((name, Content::of(name), table.place(name)));
    }
    let numbers = columns.iter().filter(|(_, content, _)| matches!(content, Content::Whole | Content::Real));
    let sign = table.decimal_sign(&numbers.filter_map(|(.., place)| *place).collect::<Vec<_>>())?;
    let seed = table.place("seed");
    let mut are_seeds_cut = false;
    let mut last = Arc::new(Identity::default());
    for row in table {
        let (line, row) = row?;
        check_schema(&row[schema]).with_context(|| format!("{file}, line {line}"))?;
        let mut fields = StringRecord::new();
        for (name, content, place) in &columns {
            let field = &row[place.with_context(|| format!("{file} has no column `{name}`"))?];
            are_seeds_cut |= *place == seed && is_cut(field);
            let written = content.as_written(field, sign);
            let written = written
                .with_context(|| format!("{file}, line {line}, column `{name}`: `{field}` is not {}", content.noun()));
            fields.push_field(&written?);
        }
        let (_, identity, measure): (u32, Identity, Measurement) = fields
            .deserialize(None)
            .map_err(|error| anyhow!("{file}, line {line}, {}", field_error(&error, &names)))?;
        if *last != identity {
            last = Arc::new(identity);
        }
        see(&Record { identity: last.clone(), measure });
    }
    Ok(are_seeds_cut)
}

/// Describes the error of a field that is empty, or beyond what its column can hold.
fn field_error(error: &csv::Error, names: &[String]) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            let name = err.field().and_then(|at| names.get(at as usize)).map_or("", String::as_str);
            format!("column `{name}`: {}", err.kind())
        }
        _ => error.to_string(),
    }
}

/// Checks that a row is of this schema, which comes before its columns, because it gives the better error.
fn check_schema(field: &str) -> Result<()> {
    match field.parse::<f64>() {
        Ok(schema) if schema == f64::from(SCHEMA) => Ok(()),
        Ok(schema) => bail!(
            "written in schema {schema}; this version of difftool reads schema {SCHEMA}; measure again, or read it \
                             with the version in its manifest.json"
        ),
        Err(_) => bail!("column `schema`: `{field}` is not a number"),
    }
}

/// What the fields of a column hold.
#[derive(Clone, Copy)]
enum Content {
    Text,
    OptionalText,
    Flag,
    Whole,
    Real,
}

impl Content {
    fn of(column: &str) -> Self {
        match column {
            "model" | "variant" | "task" | "metric" => Self::Text,
            "cities" | "rows" | "condition" | "scope" | "region" | "unit" | "error" => Self::OptionalText,
            "placed" => Self::Flag,
            "depth_req_pct" | "depth_real_pct" | "value" => Self::Real,
            _ => Self::Whole,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Text | Self::OptionalText => "a text",
            Self::Flag => "true or false",
            Self::Whole => "a whole number",
            Self::Real => "a number",
        }
    }

    /// A field as runs write it, whether Python, R or a spreadsheet wrote it: `True`, `1.0`, `NA`, `0,5`. `None` if it is
    /// nothing of that kind.
    fn as_written(self, field: &str, sign: DecimalSign) -> Option<Cow<'_, str>> {
        let field = if matches!(self, Self::Text | Self::OptionalText) { field } else { field.trim() };
        match (self, field) {
            (Self::Text, _) | (Self::Real, "NaN") | (_, "") => Some(field.into()),
            (_, "NA") => Some("".into()),
            (Self::OptionalText, _) => Some(field.into()),
            (_, "NaN" | "nan" | "<NA>" | "null" | "NULL" | "None") => Some("".into()),
            (Self::Flag, _) => match field.to_ascii_lowercase().as_str() {
                "true" | "1" | "1.0" => Some("true".into()),
                "false" | "0" | "0.0" => Some("false".into()),
                _ => None,
            },
            (Self::Whole, _) if field.bytes().all(|byte| byte.is_ascii_digit()) => Some(field.into()),
            (Self::Whole, _) => whole(&sign.with_point(field)).map(Cow::from),
            (Self::Real, _) => Some(sign.with_point(field)).filter(|number| number.parse::<f64>().is_ok()),
        }
    }
}

/// A whole number that was written as a floating-point one.
fn whole(text: &str) -> Option<String> {
    let number: f64 = text.parse().ok()?;
    (number >= 0.0 && number.fract() == 0.0).then(|| format!("{number:.0}"))
}

/// Returns `true` if the last digits of a large whole number are cut, as R and spreadsheets cut those of seeds: `2.93837E+15`.
fn is_cut(text: &str) -> bool {
    let Some((mantissa, exponent)) = text.trim().split_once(['e', 'E']) else { return false };
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    exponent.parse::<usize>().is_ok_and(|exponent| exponent >= digits.max(9))
}
