//! The journal of a run, and the cells that it describes.

use crate::record;
use crate::runfolder::{CELLS, POOLED, RESULTS};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The first line of the journal.
pub(super) const HEADER: &str = "cell,key,prompts_sha256,rows,results_end,pooled_end,sha256\n";

/// One line of the journal: a finished cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// A finished cell, with its bytes in both files.
pub(super) struct StoredCell {
    pub(super) line: JournalLine,
    pub(super) results: Vec<u8>,
    pub(super) pooled: Vec<u8>,
}

/// The finished cells of a folder in order, up to the first whose line or bytes are not what was written.
pub(super) struct StoredCells {
    journal: Vec<u8>,
    results: Option<File>,
    pooled: Option<File>,
    /// Length of the journal up to the last cell that was read, in bytes.
    pub(super) journal_end: u64,
    results_end: u64,
    /// Length of `pooled.bin` up to that cell, in bytes.
    pub(super) pooled_end: u64,
}

impl StoredCells {
    /// Opens the files of a folder.
    ///
    /// # Errors
    /// If there is no journal, or it cannot be read.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(CELLS);
        let journal = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let journal_end = if journal.starts_with(HEADER.as_bytes()) { HEADER.len() as u64 } else { 0 };
        let results_end = record::header().len() as u64;
        let mut results = File::open(folder.join(RESULTS)).ok();
        if let Some(results) = &mut results {
            results.seek(SeekFrom::Start(results_end))?;
        }
        let pooled = File::open(folder.join(POOLED)).ok();
        Ok(Self { journal, results, pooled, journal_end, results_end, pooled_end: 0 })
    }

    /// Returns, after all cells were read, whether the journal goes on behind them, or there are records without any cell.
    pub(super) fn are_damaged(&self) -> bool {
        let lengths = self.results.iter().flat_map(File::metadata).map(|results| results.len());
        let has_records = lengths.into_iter().any(|length| length > self.results_end);
        let has_cells = self.journal_end > HEADER.len() as u64;
        self.journal_end < self.journal.len() as u64 || has_records && !has_cells
    }
}

impl Iterator for StoredCells {
    type Item = StoredCell;

    fn next(&mut self) -> Option<StoredCell> {
        let rest = &self.journal[self.journal_end as usize..];
        let length = rest.iter().position(|&byte| byte == b'\n')? + 1;
        let line = JournalLine::parse(&rest[..length]).filter(|_| self.journal_end > 0)?;
        let results = next_bytes(&mut self.results, self.results_end, line.results_end)?;
        let pooled = next_bytes(&mut self.pooled, self.pooled_end, line.pooled_end)?;
        if sha256_of(&results, &pooled) != line.sha256 {
            return None;
        }
        self.journal_end += length as u64;
        (self.results_end, self.pooled_end) = (line.results_end, line.pooled_end);
        Some(StoredCell { line, results, pooled })
    }
}

/// Reads the bytes of a file from `start`, where it is, to `end`; `None` if they are not there.
fn next_bytes(file: &mut Option<File>, start: u64, end: u64) -> Option<Vec<u8>> {
    let length = end.checked_sub(start)?;
    let mut bytes = Vec::new();
    if let Some(file) = file {
        file.take(length).read_to_end(&mut bytes).ok()?;
    }
    (bytes.len() as u64 == length).then_some(bytes)
}
