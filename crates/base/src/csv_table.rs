//! CSV files of any program: commas, semicolons, tabs or bars between fields, decimal points or commas, a byte order mark.

use super::files;
use super::json_objects::is_json;
use anyhow::{anyhow, bail, ensure, Context, Result};
use csv::{ErrorKind, Position, StringRecord};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};

/// How files of other formats begin.
const OTHER_FORMATS: [(&[u8], &str); 3] = [
    (b"PK\x03\x04", "a workbook or another ZIP archive"),
    (b"PAR1", "a Parquet file"),
    (b"\x1f\x8b", "compressed (gzip)"),
];

/// Longest first line in which the separator is looked for.
const LONGEST_HEADER: u64 = 1 << 20;

/// The sign between the whole part of a file's numbers and their decimals: a point or a comma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalSign(char);

impl DecimalSign {
    /// That of JSON.
    pub(crate) const POINT: Self = Self('.');

    /// A number of the file with a decimal point.
    pub fn with_point(self, number: &str) -> Cow<'_, str> {
        match self.0 {
            ',' => number.replacen(',', ".", 1).into(),
            _ => number.into(),
        }
    }
}

/// The separator of fields: the most frequent candidate in the first line.
fn separator_of(header: &[u8]) -> u8 {
    // Of equals the last counts, and that is the comma.
    let most = b"|\t;,".iter().max_by_key(|&separator| header.iter().filter(|&byte| byte == separator).count());
    *most.unwrap_or(&b',')
}

/// Returns `true` if the comma of a number may separate thousands: `1,200`.
fn may_group(number: &str) -> bool {
    let number = number.trim_start_matches(['+', '-']).trim_end_matches(['%', ' ']);
    number.split_once(',').is_some_and(|(before, behind)| {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        matches!(before.len(), 1..=3)
            && behind.len() == 3
            && is_digits(before)
            && is_digits(behind)
            && !before.starts_with('0')
    })
}

/// Counts the quotes of what is read.
struct CountQuotes<R> {
    inner: R,
    quotes: usize,
}

impl<R: Read> Read for CountQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.quotes += buffer[..read].iter().filter(|&&byte| byte == b'"').count();
        Ok(read)
    }
}

/// A file of which the first line was read ahead.
type CountedFile = CountQuotes<Chain<Cursor<Vec<u8>>, BufReader<File>>>;

/// The rows of a file, each with its line.
pub struct CsvTable {
    path: PathBuf,
    separator: u8,
    pub header: StringRecord,
    rows: csv::StringRecordsIntoIter<CountedFile>,
    /// 1 if lines end in CRLF: the reader counts its LF to the row behind it, which so begins one line too early.
    crlf: u64,
}

impl CsvTable {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If it cannot be read, or is no text.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let mut file = BufReader::new(files::open(path)?);
        let mut first = Vec::new();
        let read = file.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut first);
        read.with_context(|| format!("cannot read {shown}"))?;
        ensure!(
            !first.starts_with(&[0xff, 0xfe]) && !first.starts_with(&[0xfe, 0xff]),
            "{shown} is UTF-16: save it as CSV in UTF-8"
        );
        for (magic, what) in OTHER_FORMATS {
            ensure!(!first.starts_with(magic), "{shown} is {what}: save it as CSV in UTF-8");
        }
        ensure!(!is_json(&first), "{shown} is JSON, and a CSV is expected");
        let separator = separator_of(&first);
        let crlf = u64::from(first.ends_with(b"\r\n"));
        let bytes = CountQuotes { inner: Cursor::new(first).chain(file), quotes: 0 };
        let mut rows =
            csv::ReaderBuilder::new().has_headers(false).delimiter(separator).from_reader(bytes).into_records();
        let header = rows.next().with_context(|| format!("{shown} is empty"))?;
        let header = header.map_err(|error| explained(&error, path, 0))?;
        Ok(Self { path: path.to_owned(), separator, header, rows, crlf })
    }

    /// The place of a column.
    pub fn place(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name.trim() == column)
    }

    /// The names of its columns, separated by commas.
    pub fn names(&self) -> String {
        self.header.iter().map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The decimal sign of the numbers in some columns. Where commas separate fields it is the point; elsewhere it is
    /// decided once for the whole file.
    ///
    /// # Errors
    /// If the file cannot be read, has both signs, or commas that may separate thousands and nothing that decides it.
    pub fn decimal_sign(&self, columns: &[usize]) -> Result<DecimalSign> {
        if self.separator == b',' {
            return Ok(DecimalSign('.'));
        }
        let mut point = None;
        let mut comma = None;
        let mut doubtful = None;
        for row in Self::open(&self.path)? {
            let (line, row) = row?;
            for field in columns.iter().map(|&at| row[at].trim()) {
                let first = match (field.contains('.'), field.contains(',')) {
                    (true, false) => &mut point,
                    (false, true) if may_group(field) => &mut doubtful,
                    (false, true) => &mut comma,
                    // A number without a sign, or no number.
                    _ => continue,
                };
                first.get_or_insert_with(|| (line, field.to_owned()));
            }
        }
        let file = self.path.display();
        match (point, comma.as_ref().or(doubtful.as_ref())) {
            (_, None) => Ok(DecimalSign('.')),
            (Some((line, number)), Some((other_line, other))) => bail!(
                "{file}: `{number}` in line {line} has a point and `{other}` in line {other_line} a comma; {ADVICE}"
            ),
            (None, Some((line, number))) if comma.is_none() => {
                bail!("{file}, line {line}: the comma of `{number}` may separate thousands or decimals; {ADVICE}")
            }
            (None, Some(_)) => Ok(DecimalSign(',')),
        }
    }
}

/// Advice on numbers with two readings.
const ADVICE: &str = "write every number with a decimal point, and nothing between thousands";

impl Iterator for CsvTable {
    type Item = Result<(u64, StringRecord)>;

    /// The next row that is not empty.
    ///
    /// # Errors
    /// For what is no row; behind the last one, if a quote was opened and not closed.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.rows.next() {
                Some(Ok(row)) if row.iter().all(str::is_empty) => {}
                Some(Ok(row)) => {
                    return Some(Ok((row.position().map_or(0, Position::line) + self.crlf, row)));
                }
                Some(Err(error)) => return Some(Err(explained(&error, &self.path, self.crlf))),
                None if self.rows.reader().get_ref().quotes % 2 == 1 => {
                    return Some(Err(anyhow!(
                        "{}: an odd number of quotes (\"), so one is not closed; was the file cut off?",
                        self.path.display()
                    )));
                }
                None => return None,
            }
        }
    }
}

/// Converts a CSV error to one with the file and the line.
fn explained(error: &csv::Error, path: &Path, crlf: u64) -> anyhow::Error {
    let place = format!("{}, line {}", path.display(), error.position().map_or(0, Position::line) + crlf);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            anyhow!("{place}: {len} fields where the header has {expected_len}; was the file cut off?")
        }
        ErrorKind::Utf8 { .. } => anyhow!("{place}: not UTF-8; save the file as CSV in UTF-8"),
        _ => anyhow!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sign of the numbers of one column, or why there is none.
    fn sign_of(separator: char, numbers: &[&str]) -> Result<DecimalSign, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows: String = numbers.iter().map(|number| format!("x{separator}{number}\n")).collect();
        std::fs::write(&path, format!("id{separator}score\n{rows}")).unwrap();
        CsvTable::open(&path).and_then(|table| table.decimal_sign(&[1])).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_decimal_sign_is_one_for_a_file_or_an_error() {
        for (numbers, expected) in [
            (&["1", "-2", "1e-5"][..], '.'),
            (&["950.5", "1200", "0.125"], '.'),
            (&["1.200", "870"], '.'),
            (&["950,5", "1200"], ','),
            (&["0,125", "1,200"], ','),
            (&["1,5E-05", "NA"], ','),
            (&["1200,125"], ','),
            (&["-0,125"], ','),
        ] {
            for separator in [';', '\t', '|'] {
                assert_eq!(sign_of(separator, numbers), Ok(DecimalSign(expected)), "{numbers:?}");
            }
        }
        for (numbers, words) in [
            (&["950.5", "1,200"][..], ["`950.5` in line 2 has a point", "`1,200` in line 3 a comma"]),
            (&["1,200", "950.5"], ["`950.5` in line 3 has a point", "`1,200` in line 2 a comma"]),
            (&["950,5", "1.200"], ["`1.200` in line 3 has a point", "`950,5` in line 2 a comma"]),
            (&["870", "1,200"], ["line 3: the comma of `1,200`", "thousands or decimals"]),
            (&["-12,345", "999,999"], ["line 2: the comma of `-12,345`", "thousands or decimals"]),
        ] {
            let refused = sign_of('\t', numbers).unwrap_err();
            assert!(words.iter().all(|word| refused.contains(word)) && refused.contains("t.csv"), "{refused}");
        }
        // Two signs in one number are left to who reads it as a number.
        assert_eq!(sign_of(';', &["1.234,5"]), Ok(DecimalSign('.')));
    }

    #[test]
    fn rows_have_the_lines_that_an_editor_shows_and_end_where_their_quotes_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let read = |text: &str| -> Result<Vec<u64>, String> {
            std::fs::write(&path, text).unwrap();
            let table = CsvTable::open(&path).map_err(|error| format!("{error:#}"))?;
            table.map(|row| row.map(|(line, _)| line).map_err(|error| format!("{error:#}"))).collect()
        };
        for end in ["\n", "\r\n"] {
            let text = |rows: &str| rows.replace('\n', end);
            assert_eq!(read(&text("id,x\na,1\nb,2\nc,3\n")), Ok(vec![2, 3, 4]), "{end:?}");
            assert_eq!(read(&text("id,x\na,\"1\n2\"\nb,3")), Ok(vec![2, 4]), "{end:?}");
            assert_eq!(read(&text("id,x\n\"a \"\"b\"\"\",1\n")), Ok(vec![2]), "{end:?}");
            let short = read(&text("id,x\na,1\nb\n")).unwrap_err();
            assert!(short.contains("t.csv, line 3: 1 fields"), "{end:?}: {short}");
            for open in ["id,x\na,\"1\nb,2\n", "id,x\na,1\nb,\"2", "id,x\na,1\"\n"] {
                let refused = read(&text(open)).unwrap_err();
                assert!(refused.contains("t.csv") && refused.contains("cut off"), "{open:?}: {refused}");
            }
        }
    }
}
