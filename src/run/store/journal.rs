//! The journal of a run, and the prompts that it describes.

use crate::results::folder::{CELLS, RESULTS};
use crate::results::record;
use anyhow::{Context, Result};
use base::files;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The first line of the journal.
pub(super) const HEADER: &str = "cell,key,prompts_sha256,rows,results_end,pooled,sha256\n";

/// One line of the journal, a finished prompt, without its last column: the SHA-256 of its records and the line before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct JournalLine {
    /// Number of the prompt in the whole grid.
    pub(super) index: u64,
    /// Hash of everything that its records depend on; see [`Setup::keys`](crate::run::Setup::keys).
    pub(super) key: String,
    /// SHA-256 over its token ids, model by model.
    pub(super) prompts_sha256: String,
    /// Number of its records.
    pub(super) rows: u64,
    /// Length of `results.csv` after them, in bytes.
    pub(super) results_end: u64,
    /// Pooled data of its measures, as base64.
    pub(super) pooled: String,
}

impl JournalLine {
    /// Encodes the line of a prompt with these records.
    pub(super) fn to_bytes(&self, results: &[u8]) -> Result<Vec<u8>> {
        let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        csv.serialize(self)?;
        let mut line = csv.into_inner().context("memory cannot be written")?;
        line.pop(); // its end
        let sha256 = sha256_of(results, &line);
        line.extend(format!(",{sha256}\n").bytes());
        Ok(line)
    }
}

fn sha256_of(results: &[u8], line: &[u8]) -> String {
    base::hash::sha256(&[results, line].concat())
}

/// A finished prompt with its records.
pub(super) struct StoredPrompt {
    pub(super) line: JournalLine,
    pub(super) results: Vec<u8>,
}

/// The finished prompts of a folder in order, up to the first whose line or records are not what was written.
pub(super) struct StoredPrompts {
    journal: Vec<u8>,
    results: Option<File>,
    /// Length of the journal up to the last prompt that was read, in bytes.
    pub(super) journal_end: u64,
    /// Length of `results.csv` up to that prompt, in bytes.
    pub(super) results_end: u64,
}

impl StoredPrompts {
    /// Opens the files of a folder.
    ///
    /// # Errors
    /// If there is no journal, or it cannot be read.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(CELLS);
        let journal = files::bytes(&path, u64::MAX)?;
        let journal_end = if journal.starts_with(HEADER.as_bytes()) { HEADER.len() as u64 } else { 0 };
        let results_end = record::header().len() as u64;
        let results = folder.join(RESULTS);
        let mut results = if files::is_there(&results) { Some(files::open(&results)?) } else { None };
        if let Some(results) = &mut results {
            results.seek(SeekFrom::Start(results_end))?;
        }
        Ok(Self { journal, results, journal_end, results_end })
    }

    /// Returns, after all prompts were read, whether the journal goes on behind them, or there are records without any.
    pub(super) fn are_damaged(&self) -> bool {
        let length = self.results.as_ref().and_then(|results| Some(results.metadata().ok()?.len()));
        let has_prompts = self.journal_end > HEADER.len() as u64;
        self.journal_end < self.journal.len() as u64 || !has_prompts && length > Some(self.results_end)
    }
}

impl Iterator for StoredPrompts {
    type Item = StoredPrompt;

    fn next(&mut self) -> Option<StoredPrompt> {
        if self.journal_end == 0 {
            return None;
        }
        let rest = &self.journal[self.journal_end as usize..];
        let bytes = &rest[..rest.iter().position(|&byte| byte == b'\n')?];
        let (hashed, sha256) = bytes.split_at(bytes.iter().rposition(|&byte| byte == b',')?);
        let mut csv = csv::ReaderBuilder::new().has_headers(false).from_reader(hashed);
        let line: JournalLine = csv.deserialize().next()?.ok()?;
        let mut results = Vec::new();
        let length = line.results_end.checked_sub(self.results_end)?;
        self.results.as_ref()?.take(length).read_to_end(&mut results).ok()?;
        if sha256_of(&results, hashed).as_bytes() != &sha256[1..] {
            return None;
        }
        self.journal_end += bytes.len() as u64 + 1;
        self.results_end = line.results_end;
        Some(StoredPrompt { line, results })
    }
}
