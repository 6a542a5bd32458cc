//! Records as a Parquet file: the typed columns of `results.csv` in a fifteenth of the space. A run writes CSV; it is
//! converted when the run is finished, and reads back as the same rows.

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

/// Rows of a row group, which is held in memory while it is written.
const GROUP_ROWS: usize = 1 << 18;

/// Type of a column.
#[derive(Clone, Copy)]
enum ColumnType {
    Text,
    Float,
    Bool,
    Integer,
}

impl ColumnType {
    fn of(column: &str) -> Self {
        match column {
            "depth_req_pct" | "depth_real_pct" | "value" => Self::Float,
            "placed" => Self::Bool,
            "schema" | "ctx_tok" | "needles" | "retrieve" | "sample" | "seed" | "query" | "bits" | "layer" | "head"
            | "n" => Self::Integer,
            _ => Self::Text,
        }
    }

    /// Returns the declaration of a column of this type in Parquet's schema language.
    fn name(self, column: &str) -> String {
        match self {
            Self::Text => format!("BYTE_ARRAY {column} (UTF8)"),
            Self::Float => format!("DOUBLE {column}"),
            Self::Bool => format!("BOOLEAN {column}"),
            Self::Integer => format!("INT64 {column} (INTEGER(64,false))"),
        }
    }
}

/// Converts a CSV results file.
pub(crate) fn write(results: &Path, to: &Path) -> Result<()> {
    let mut rows = csv::Reader::from_path(results)?;
    let columns: Vec<String> = rows.headers()?.iter().map(String::from).collect();
    let fields: Vec<String> =
        columns.iter().map(|name| format!("OPTIONAL {};", ColumnType::of(name).name(name))).collect();
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
            put(&mut column, ColumnType::of(name), texts).with_context(|| format!("column `{name}`"))?;
            column.close()?;
        }
        writer.close()?;
    }
    file.close()?;
    Ok(())
}

/// Writes one column of a row group.
fn put<'a, I: Iterator<Item = &'a str>>(
    column: &mut SerializedColumnWriter<'_>,
    kind: ColumnType,
    texts: impl Fn() -> I,
) -> Result<()> {
    fn batch<'a, T: DataType>(
        column: &mut SerializedColumnWriter<'_>,
        texts: impl Iterator<Item = &'a str>,
        parse: impl Fn(&str) -> Result<T::T>,
    ) -> Result<()> {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        for text in texts {
            levels.push(i16::from(!text.is_empty())); // empty fields are missing values
            if !text.is_empty() {
                values.push(parse(text)?);
            }
        }
        column.typed::<T>().write_batch(&values, Some(&levels), None)?;
        Ok(())
    }
    match kind {
        ColumnType::Text => batch::<ByteArrayType>(column, texts(), |text| Ok(ByteArray::from(text))),
        ColumnType::Float => batch::<DoubleType>(column, texts(), |text| Ok(text.parse()?)),
        ColumnType::Bool => batch::<BoolType>(column, texts(), |text| Ok(text.parse()?)),
        // Unsigned numbers are stored as the bits of signed ones.
        ColumnType::Integer => batch::<Int64Type>(column, texts(), |text| Ok(text.parse::<u64>()? as i64)),
    }
}

/// Reads the rows of a file as CSV records, header first.
pub(super) fn rows(path: &Path) -> Result<impl Iterator<Item = Result<StringRecord>>> {
    let cannot = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(cannot)?.len();
    let file = SerializedFileReader::new(crate::files::open(path)?).with_context(cannot)?;
    let metadata = file.metadata().file_metadata();
    // A row has more than one byte; a file that claims more rows than bytes would fill the memory.
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

/// Formats a value as in the CSV file.
fn text(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Double(number) => number.to_string(),
        other => other.to_string(),
    }
}
