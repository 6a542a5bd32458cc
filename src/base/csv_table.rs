//! CSV files of any program: commas, semicolons, tabs or bars between fields, decimal points or commas, a byte order mark.

use super::files;
use anyhow::{anyhow, ensure, Context, Result};
use csv::{ErrorKind, Position, StringRecord};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Chain, Cursor, Read as _};
use std::path::{Path, PathBuf};

/// Longest first line in which the separator is looked for.
const LONGEST_HEADER: u64 = 1 << 20;

/// What separates fields: the one that the first line has most of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Separator(u8);

impl Separator {
    fn of(header: &[u8]) -> Self {
        // Of equals the last counts, and that is the comma.
        let most = b"|\t;,".iter().max_by_key(|&separator| header.iter().filter(|&byte| byte == separator).count());
        Self(*most.unwrap_or(&b','))
    }

    /// Returns a number with a decimal point. Where commas do not separate fields, one may be its decimal sign.
    pub(crate) fn with_point(self, number: &str) -> Cow<'_, str> {
        match self.0 {
            b',' => number.into(),
            _ if number.contains('.') => number.into(),
            _ => number.replacen(',', ".", 1).into(),
        }
    }
}

/// The rows of a file, each with its line.
pub(crate) struct CsvTable {
    path: PathBuf,
    pub(crate) separator: Separator,
    pub(crate) header: StringRecord,
    rows: csv::StringRecordsIntoIter<Chain<Cursor<Vec<u8>>, BufReader<File>>>,
}

impl CsvTable {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If it cannot be read, or is no text.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let mut file = BufReader::new(files::open(path)?);
        let mut first = Vec::new();
        let read = file.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut first);
        read.with_context(|| format!("cannot read {shown}"))?;
        ensure!(
            !first.starts_with(&[0xff, 0xfe]) && !first.starts_with(&[0xfe, 0xff]),
            "{shown} is UTF-16: save it as CSV in UTF-8"
        );
        let separator = Separator::of(&first);
        let bytes = Cursor::new(first).chain(file);
        let mut rows =
            csv::ReaderBuilder::new().has_headers(false).delimiter(separator.0).from_reader(bytes).into_records();
        let header = rows.next().with_context(|| format!("{shown} is empty"))?.map_err(|e| explained(&e, path))?;
        Ok(Self { path: path.to_owned(), separator, header, rows })
    }

    /// Returns the place of a column.
    pub(crate) fn place(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name.trim() == column)
    }

    /// Returns the names of its columns, separated by commas.
    pub(crate) fn names(&self) -> String {
        self.header.iter().map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

impl Iterator for CsvTable {
    type Item = Result<(u64, StringRecord)>;

    /// Returns the next row that is not empty.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.rows.next()? {
                Ok(row) if row.iter().all(str::is_empty) => {}
                Ok(row) => return Some(Ok((row.position().map_or(0, Position::line), row))),
                Err(error) => return Some(Err(explained(&error, &self.path))),
            }
        }
    }
}

/// Converts a CSV error to one with the file and the line.
fn explained(error: &csv::Error, path: &Path) -> anyhow::Error {
    let place = format!("{}, line {}", path.display(), error.position().map_or(0, Position::line));
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            anyhow!("{place}: {len} fields where the header has {expected_len}; was the file cut off?")
        }
        ErrorKind::Utf8 { .. } => anyhow!("{place}: not UTF-8; save the file as CSV in UTF-8"),
        _ => anyhow!("{}: {error}", path.display()),
    }
}
