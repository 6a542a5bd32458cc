//! The files of a run folder besides the records: files derived from them, and the manifest that lists all of them.

use super::{RunPart, RunStart, Setup};
use crate::base::files::{self, replace, replace_csv};
use crate::base::machine::Machine;
use crate::base::memory::peak_rss_bytes;
use crate::results::folder::{RunFolder, MANIFEST, RESULTS};
use crate::results::manifest::{Manifest, OutputFile};
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;

/// The folder of a run whose records are written, with the list of its files.
pub struct Outputs {
    folder: RunFolder,
    /// Replace existing files: a resumed run may have been killed while it wrote its figures.
    replaces: bool,
    /// File names, with the number of rows of those that have rows.
    files: Vec<(String, Option<u64>)>,
    shard: Option<String>,
    resumed_cells: u64,
    prompts_sha256: String,
}

impl Outputs {
    /// Creates the outputs of a folder with `rows` records. `resumed_cells` cases were finished before this process.
    pub(super) fn new(
        folder: RunFolder,
        part: &RunPart,
        rows: u64,
        resumed_cells: u64,
        prompts_sha256: String,
    ) -> Self {
        Self {
            replaces: matches!(part.start, RunStart::Resume(_)),
            folder,
            files: vec![(RESULTS.to_owned(), Some(rows))],
            shard: part.shard.map(|shard| shard.to_string()),
            resumed_cells,
            prompts_sha256,
        }
    }

    /// Returns the run folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Adds a file to the list and returns its path; the caller writes it. The manifest lists it if it is there in the end.
    pub fn add_file(&mut self, file: &str, rows: Option<u64>) -> PathBuf {
        let path = self.folder.join(file);
        if self.replaces {
            let _ = std::fs::remove_file(&path);
        }
        self.files.push((file.to_owned(), rows));
        path
    }

    /// Writes rows as a CSV file with the fields of `T` as columns.
    pub fn save_table<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        replace_csv(&self.add_file(file, Some(rows.len() as u64)), rows)
    }

    /// Writes rows as JSON lines.
    pub fn save_lines<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.add_file(file, Some(rows.len() as u64));
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row)?;
            lines.push(b'\n');
        }
        replace(&path, |partial| Ok(std::fs::write(partial, lines)?))
    }

    /// Writes the manifest. It marks the run as finished, so it must be written after all other files. Files that could
    /// not be written are not listed; the error about them is the caller's to report.
    ///
    /// # Errors
    /// If a file cannot be read, or the manifest cannot be written.
    pub fn write_manifest(&self, setup: &Setup) -> Result<()> {
        let mut outputs = Vec::new();
        for (file, rows) in &self.files {
            let path = self.folder.join(file);
            if path.is_file() {
                files::sync(&path)?;
                outputs.push(OutputFile::describe(self.folder.path(), file, *rows)?);
            }
        }
        let (seed, reading) = (setup.grid.seed(), &setup.plan.reading);
        let manifest = Manifest {
            argv: self.folder.command(),
            machine: Machine::here(),
            config: setup.config(),
            models: setup.models.iter().map(|model| model.info.clone()).collect(),
            haystack_sha256: Some(setup.sources.haystack.sha256()),
            text_sha256: setup.sources.text.sha256(),
            needles_sha256: setup.sources.needles.as_ref().map(|file| file.sha256().to_owned()),
            prompts_sha256: Some(self.prompts_sha256.clone()),
            dtype: reading.dtype.name().into(),
            device: reading.device.to_string(),
            shard: self.shard.clone(),
            resumed_cells: self.resumed_cells,
            threads: rayon::current_num_threads(),
            seeds: [("prompts".to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: self.folder.started_utc(),
            wall_s: self.folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs,
            ..Manifest::default()
        };
        let path = self.folder.join(MANIFEST);
        if self.replaces {
            let _ = std::fs::remove_file(&path); // a file that it listed was missing
        }
        files::sync_folder_of(&path);
        manifest.write(&path)
    }
}
