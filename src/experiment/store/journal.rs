//! The journal of a run, and the cells that it describes.

use crate::runfolder::{CELLS, POOLED, RESULTS};
use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The first line of the journal.
pub(super) const HEADER: &str = "cell,key,prompts_sha256,rows,results_end,pooled_end,sha256\n";

/// Maximum length of the header of `results.csv`, in bytes.
const RESULTS_HEADER_MAX: u64 = 1 << 16;

/// One line of the journal: a finished cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::experiment) struct JournalLine {
    /// Number of the cell in the whole grid.
    pub cell: u64,
    /// Hash of everything that its records depend on; see [`Setup::keys`](crate::experiment::Setup::keys).
    pub key: String,
    /// SHA-256 over the token ids of its prompts, one for each model.
    pub prompts_sha256: String,
    /// Number of its records.
    pub rows: u64,
    /// Length of `results.csv` after them, in bytes.
    pub results_end: u64,
    /// Length of `pooled.bin` after it, in bytes.
    pub pooled_end: u64,
    /// SHA-256 of its bytes in both files, one after the other.
    pub sha256: String,
}

impl JournalLine {
    /// Encodes the line.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        csv.serialize(self)?;
        csv.into_inner().context("memory cannot be written")
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
        reader.deserialize().next()?.ok()
    }
}

/// Returns the SHA-256 hash of a cell's bytes in both files.
pub(super) fn sha256_of(results: &[u8], pooled: &[u8]) -> String {
    crate::hash::sha256(&[results, pooled].concat())
}

/// A finished cell, with the ranges of its bytes in the files of the run.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct StoredCell {
    pub line: JournalLine,
    pub results: Range<u64>,
    pub pooled: Range<u64>,
}

/// The intact part of a run folder.
#[derive(Debug, Default)]
pub(in crate::experiment) struct OnDisk {
    /// Finished cells whose bytes agree with their hashes, in order.
    pub cells: Vec<StoredCell>,
    /// Length of the journal up to the last of them, in bytes.
    pub journal_end: u64,
    /// Number of cells behind them that are damaged, as after a power cut.
    pub damaged: usize,
}

impl OnDisk {
    /// Reads a folder.
    ///
    /// # Errors
    /// If a file cannot be read, or an intact cell follows a damaged one, which no power cut leaves.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CELLS);
        let journal = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(lines) = journal.strip_prefix(HEADER.as_bytes()) else {
            // Interrupted at its beginning, or damaged: the caller inspects the records.
            return Ok(Self::default());
        };
        let lines: Vec<&[u8]> =
            lines.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")).collect();
        let mut found = Self { journal_end: HEADER.len() as u64, ..Self::default() };
        if lines.is_empty() {
            return Ok(found);
        }
        let mut files = CellFiles::open(folder)?;
        let (mut start, mut damaged) = (files.header_len()?.map(|results| (results, 0)), 0);
        for bytes in lines {
            let line = JournalLine::parse(bytes);
            let cell = line.clone().zip(start).map(|(line, (results, pooled))| StoredCell {
                results: results..line.results_end,
                pooled: pooled..line.pooled_end,
                line,
            });
            start = line.map(|line| (line.results_end, line.pooled_end));
            match cell.filter(|cell| files.read(cell).is_ok()) {
                Some(cell) if damaged == 0 => {
                    found.journal_end += bytes.len() as u64;
                    found.cells.push(cell);
                }
                Some(cell) if !cell.results.is_empty() => return Err(not_a_power_cut(folder, found.cells.len())),
                _ => damaged += 1,
            }
        }
        found.damaged = damaged;
        Ok(found)
    }

    /// Returns the number of records of the cells.
    pub(super) fn rows(&self) -> u64 {
        self.cells.iter().map(|cell| cell.line.rows).sum()
    }
}

fn not_a_power_cut(folder: &Path, whole: usize) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: what it holds of the cell in line {} of {CELLS} is not what was written, though later cells are intact; begin a \
         new run, or remove that line and all behind it to measure those cells again",
        folder.display(),
        whole + 2
    )
}

/// The files of a run, to read cells from.
pub(super) struct CellFiles {
    folder: PathBuf,
    results: File,
    pooled: Option<File>,
}

impl CellFiles {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let results = folder.join(RESULTS);
        let results = File::open(&results).with_context(|| format!("cannot read {}", results.display()))?;
        Ok(Self { folder: folder.to_owned(), results, pooled: File::open(folder.join(POOLED)).ok() })
    }

    /// Reads the bytes of a cell from both files and checks their hash.
    pub(super) fn read(&mut self, cell: &StoredCell) -> Result<(Vec<u8>, Vec<u8>)> {
        let results = read_part(&mut self.results, &cell.results, || self.folder.join(RESULTS))?;
        let path = self.folder.join(POOLED);
        let pooled = match &mut self.pooled {
            Some(file) => read_part(file, &cell.pooled, || path.clone())?,
            None if cell.pooled.is_empty() => Vec::new(),
            None => bail!("{} is missing", path.display()),
        };
        ensure!(
            sha256_of(&results, &pooled) == cell.line.sha256,
            "{}: what it holds of cell {} is not what was written",
            self.folder.display(),
            cell.line.cell
        );
        Ok((results, pooled))
    }

    /// Returns the length of the header of `results.csv`, in bytes; `None` without a line end, which a power cut may zero.
    fn header_len(&self) -> Result<Option<u64>> {
        let path = self.folder.join(RESULTS);
        let mut header = Vec::new();
        let read = BufReader::new((&self.results).take(RESULTS_HEADER_MAX)).read_until(b'\n', &mut header);
        read.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(header.ends_with(b"\n").then_some(header.len() as u64))
    }
}

/// Reads a range of bytes of a file. `path` is for errors.
fn read_part(file: &mut File, part: &Range<u64>, path: impl Fn() -> PathBuf) -> Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path().display());
    let length = file.metadata().with_context(cannot)?.len();
    ensure!(
        part.start <= part.end && part.end <= length,
        "{}: {CELLS} beside it describes bytes {} to {} of {length}",
        path().display(),
        part.start,
        part.end
    );
    let mut bytes = vec![0; (part.end - part.start) as usize];
    file.seek(SeekFrom::Start(part.start)).with_context(cannot)?;
    file.read_exact(&mut bytes).with_context(cannot)?;
    Ok(bytes)
}
