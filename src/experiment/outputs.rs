//! What a run leaves in its folder besides its records: files that are made of them, and the manifest that lists them all.

use super::{Part, Setup, Start};
use crate::files::{replace, replace_csv};
use crate::machine::Machine;
use crate::manifest::{Manifest, Output};
use crate::memory::peak_rss_bytes;
use crate::record::write_parquet;
use crate::runfolder::{RunFolder, MANIFEST, RESULTS, RESULTS_GZ, RESULTS_PARQUET};
use anyhow::{Context, Result};
use flate2::write::GzEncoder;
use flate2::Compression;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The folder of a run whose records are written.
pub struct Outputs {
    folder: RunFolder,
    /// A run that is continued may have been killed while it wrote its figures.
    replaces: bool,
    /// Names, and the number of records of those that hold some.
    files: Vec<(String, Option<u64>)>,
    shard: Option<String>,
    resumed_cells: u64,
    prompts_sha256: String,
}

impl Outputs {
    /// Of a folder that holds `rows` records, of which `resumed_cells` cells were there before.
    pub(super) fn new(folder: RunFolder, part: &Part, rows: u64, resumed_cells: u64, prompts_sha256: String) -> Self {
        Self {
            folder,
            replaces: matches!(part.start, Start::Resume(_)),
            files: vec![(RESULTS.to_owned(), Some(rows))],
            shard: part.shard.map(|shard| shard.to_string()),
            resumed_cells,
            prompts_sha256,
        }
    }

    /// The folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// The path of a new file, which is listed in the manifest: whoever asks for it writes it.
    pub fn place(&mut self, file: &str, rows: Option<u64>) -> PathBuf {
        let path = self.folder.join(file);
        if self.replaces {
            let _ = std::fs::remove_file(&path);
        }
        self.files.push((file.to_owned(), rows));
        path
    }

    /// Writes rows as a CSV file of their own layout.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save_table<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        replace_csv(&self.place(file, Some(rows.len() as u64)), rows)
    }

    /// Writes rows as JSON, one on each line.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save_lines<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.place(file, Some(rows.len() as u64));
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row)?;
            lines.push(b'\n');
        }
        replace(&path, |partial| Ok(std::fs::write(partial, lines)?))
    }

    /// Compresses the records, which takes nine tenths of them away.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub fn compress_results(&mut self) -> Result<()> {
        self.convert_results(RESULTS_GZ, |plain, partial| {
            let mut compressed = GzEncoder::new(File::create(partial)?, Compression::default());
            std::io::copy(&mut File::open(plain)?, &mut compressed)?;
            compressed.finish()?;
            Ok(())
        })
    }

    /// Makes a Parquet file of the records.
    ///
    /// # Errors
    /// If they cannot be read or written, or the program is built without the feature `parquet`.
    pub fn results_to_parquet(&mut self) -> Result<()> {
        self.convert_results(RESULTS_PARQUET, write_parquet)
    }

    /// Puts another file in the place of the records.
    fn convert_results(&mut self, file: &str, write: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        let plain = self.folder.join(RESULTS);
        replace(&self.folder.join(file), |partial| write(&plain, partial))?;
        std::fs::remove_file(&plain).with_context(|| format!("cannot remove {}", plain.display()))?;
        self.files[0].0 = file.to_owned();
        Ok(())
    }

    /// Writes the manifest, which says that the run is finished: after all other files.
    ///
    /// # Errors
    /// If a file that it lists is not there, or it cannot be written.
    pub fn write_manifest(&self, setup: &Setup) -> Result<()> {
        let described = |(file, rows): &(String, Option<u64>)| Output::describe(self.folder.path(), file, *rows);
        let (seed, reading) = (setup.grid.seed(), setup.experiment.reading);
        let manifest = Manifest {
            argv: crate::terminal::arguments(),
            machine: Machine::here(),
            config: setup.config(),
            models: setup.models.iter().map(|model| model.info.clone()).collect(),
            haystack_sha256: Some(setup.sources.haystack.sha256()),
            text_sha256: setup.sources.text.sha256(),
            prompts_sha256: Some(self.prompts_sha256.clone()),
            dtype: reading.dtype.name().into(),
            precision: reading.precision,
            device: reading.device.to_string(),
            shard: self.shard.clone(),
            resumed_cells: self.resumed_cells,
            threads: rayon::current_num_threads(),
            seeds: [("prompts".to_owned(), seed), ("bootstrap".to_owned(), seed)].into(),
            started_utc: self.folder.started_utc(),
            wall_s: self.folder.elapsed_s(),
            peak_rss_bytes: peak_rss_bytes(),
            outputs: self.files.iter().map(described).collect::<Result<_>>()?,
            ..Manifest::default()
        };
        manifest.write(&self.folder.join(MANIFEST))
    }
}
