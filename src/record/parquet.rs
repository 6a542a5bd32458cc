//! Records as a Parquet file: the columns of `results.csv`, with their types, in a fifteenth of the space. The CSV file is what
//! a run writes and goes on with; this is made of it when the run is finished, and read back as the same rows.

use anyhow::{ensure, Context, Result};
use csv::StringRecord;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Rows that are written, and held, together.
const GROUP_ROWS: usize = 1 << 18;

/// What a column holds.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Real,
    Truth,
    Count,
}

impl Kind {
    fn of(column: &str) -> Self {
        match column {
            "depth_req_pct" | "depth_real_pct" | "value" => Self::Real,
            "placed" => Self::Truth,
            "schema" | "ctx_tok" | "needles" | "retrieve" | "sample" | "seed" | "query" | "bits" | "layer" | "head"
            | "n" => Self::Count,
            _ => Self::Text,
        }
    }

    /// As Parquet calls it.
    fn name(self, column: &str) -> String {
        match self {
            Self::Text => format!("BYTE_ARRAY {column} (UTF8)"),
            Self::Real => format!("DOUBLE {column}"),
            Self::Truth => format!("BOOLEAN {column}"),
            Self::Count => format!("INT64 {column} (INTEGER(64,false))"),
        }
    }
}

/// Writes the rows of a results file.
///
/// # Errors
/// If it cannot be read, or the other not written.
pub(crate) fn write(results: &Path, to: &Path) -> Result<()> {
    let mut rows = csv::Reader::from_path(results)?;
    let columns: Vec<String> = rows.headers()?.iter().map(String::from).collect();
    let fields: Vec<String> = columns.iter().map(|name| format!("OPTIONAL {};", Kind::of(name).name(name))).collect();
    let schema = Arc::new(parse_message_type(&format!("message records {{ {} }}", fields.join(" ")))?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(File::create(to)?, schema, Arc::new(properties))?;
    let mut rows = rows.records();
    loop {
        let group = rows.by_ref().take(GROUP_ROWS).collect::<csv::Result<Vec<_>>>()?;
        if group.is_empty() {
            break;
        }
        let mut writer = file.next_row_group()?;
        for (i, name) in columns.iter().enumerate() {
            let mut column = writer.next_column()?.context("as many columns as the schema has")?;
            let texts = || group.iter().map(|row| row.get(i).unwrap_or_default());
            put(&mut column, Kind::of(name), texts).with_context(|| format!("column `{name}`"))?;
            column.close()?;
        }
        writer.close()?;
    }
    file.close()?;
    Ok(())
}

/// Writes a group of a column.
fn put<'a, I: Iterator<Item = &'a str>>(
    column: &mut SerializedColumnWriter<'_>,
    kind: Kind,
    texts: impl Fn() -> I,
) -> Result<()> {
    fn batch<'a, T: DataType>(
        column: &mut SerializedColumnWriter<'_>,
        texts: impl Iterator<Item = &'a str>,
        parse: impl Fn(&str) -> Result<T::T>,
    ) -> Result<()> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for text in texts {
            levels.push(i16::from(!text.is_empty())); // an empty field is a missing value
            if !text.is_empty() {
                values.push(parse(text)?);
            }
        }
        column.typed::<T>().write_batch(&values, Some(&levels), None)?;
        Ok(())
    }
    match kind {
        Kind::Text => batch::<ByteArrayType>(column, texts(), |text| Ok(ByteArray::from(text))),
        Kind::Real => batch::<DoubleType>(column, texts(), |text| Ok(text.parse()?)),
        Kind::Truth => batch::<BoolType>(column, texts(), |text| Ok(text.parse()?)),
        // Unsigned numbers are kept as the bits of signed ones.
        Kind::Count => batch::<Int64Type>(column, texts(), |text| Ok(text.parse::<u64>()? as i64)),
    }
}

/// The rows of a file as they stand in the CSV file, its header first.
///
/// # Errors
/// If it cannot be read.
pub(super) fn rows(path: &Path) -> Result<impl Iterator<Item = Result<StringRecord>>> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(cannot)?.len();
    let file = SerializedFileReader::new(crate::files::open(path)?).with_context(cannot)?;
    let metadata = file.metadata().file_metadata();
    // A value alone has eight bytes; a file with more rows than bytes is made to fill the memory.
    ensure!(
        u64::try_from(metadata.num_rows()).is_ok_and(|rows| rows <= bytes),
        "{}: impossibly many rows",
        path.display()
    );
    let header: StringRecord = metadata.schema().get_fields().iter().map(|field| field.name()).collect();
    let path = path.to_owned();
    let row = move |row: parquet::errors::Result<parquet::record::Row>| -> Result<StringRecord> {
        let row = row.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(row.get_column_iter().map(|(_, field)| text(field)).collect())
    };
    Ok(std::iter::once(Ok(header)).chain(file.into_iter().map(row)))
}

/// A value as the CSV file has it.
fn text(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Double(number) => number.to_string(),
        other => other.to_string(),
    }
}
