//! The files of a run folder besides the records: files derived from them, and the manifest that lists all of them.

use super::{RunOutcome, RunStart, Setup};
use crate::base::files::{self, replace, replace_csv};
use crate::base::machine::Machine;
use crate::base::memory::peak_rss_bytes;
use crate::results::folder::MANIFEST;
use crate::results::manifest::{Manifest, OutputFile};
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;

impl RunOutcome {
    /// Adds a file to the list and returns its path; the caller writes it. The manifest lists it if it is there in the end.
    pub fn add_file(&mut self, file: &str, rows: Option<u64>) -> PathBuf {
        let path = self.folder.join(file);
        if self.is_resumed() {
            let _ = std::fs::remove_file(&path); // the run may have been killed while it wrote its figures
        }
        self.files.push((file.to_owned(), rows));
        path
    }

    /// Names of the figures and pages that were added.
    pub fn figures(&self) -> Vec<&str> {
        let files = self.files.iter().map(|(file, _)| file.as_str());
        files.filter(|file| [".png", ".svg", ".pdf", ".html"].iter().any(|end| file.ends_with(end))).collect()
    }

    fn is_resumed(&self) -> bool {
        matches!(self.part.start, RunStart::Resume(_))
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
            needles_sha256: setup.sources.needles.as_ref().map(|file| file.sha256.clone()),
            prompts_sha256: self.prompts_sha256.clone(),
            dtype: reading.dtype.name().into(),
            device: reading.device.to_string(),
            shard: self.part.shard.map(|shard| shard.to_string()),
            resumed_cells: self.resumed as u64,
            threads: rayon::current_num_threads(),
            seeds: [("prompts".to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: self.folder.started_utc(),
            wall_s: self.folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs,
            ..Manifest::default()
        };
        let path = self.folder.join(MANIFEST);
        if self.is_resumed() {
            let _ = std::fs::remove_file(&path); // a file that it listed was missing
        }
        files::sync_folder_of(&path);
        manifest.write(&path)
    }
}
