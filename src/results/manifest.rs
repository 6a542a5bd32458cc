//! The manifest of a run, `manifest.json`: the command, its settings, the models, the machine, and hashes of all files.
//!
//! It is enough to repeat the run, and to notice differences between runs: `compare` checks manifests first.

use crate::machine::{Machine, Tool};
use crate::results::folder::MANIFEST;
use anyhow::{ensure, Context, Result};
use base::files::replace;
use base::hash::sha256_file;
use names::ModelInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The purpose of the seed that prompts are drawn from, in [`Manifest::seeds`].
pub const PROMPTS_SEED: &str = "prompts";

/// Provenance of a run. Written in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version and build of difftool.
    pub tool: Tool,
    pub machine: Machine,
    /// Machines of other kinds that measured shards of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_machines: Vec<Machine>,
    /// Command-line arguments, the program's name first.
    pub argv: Vec<String>,
    /// Settings of the experiment, with defaults filled in.
    pub config: serde_json::Value,
    /// The prompts of the run in a few words, as its figures say them; runs of earlier versions have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
    /// The models, in the order of the run.
    pub models: Vec<ModelInfo>,
    /// SHA-256 of the haystack text.
    pub haystack_sha256: Option<String>,
    /// SHA-256 of the user's text, if one was measured.
    pub text_sha256: Option<String>,
    /// SHA-256 of the file of needles, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needles_sha256: Option<String>,
    /// SHA-256 over the token ids of all prompts, in the order of the run.
    pub prompts_sha256: String,
    /// Number type: `f32`, `bf16`, `f64`.
    pub dtype: String,
    /// Device: `cpu`, `cuda:0`.
    pub device: String,
    /// Shard of the experiment, as in `2/8`; missing for the whole experiment.
    pub shard: Option<String>,
    /// Prompts that were measured before this process resumed or merged them. Times are those of this process.
    pub resumed_cells: u64,
    /// Number of threads. Results do not depend on it.
    pub threads: usize,
    /// Seeds, by purpose.
    pub seeds: BTreeMap<String, u64>,
    /// Start of the run in UTC, ISO 8601.
    pub started_utc: String,
    /// Duration of the run in seconds.
    pub wall_s: f64,
    /// Peak memory of the process, in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The other files of the run folder.
    pub outputs: Vec<OutputFile>,
}

/// A file of a run folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Name in the run folder.
    pub file: String,
    /// Length, in bytes.
    pub bytes: u64,
    /// Number of rows, if it has rows.
    pub rows: Option<u64>,
    /// SHA-256 of its bytes; empty for a file that could not be written.
    pub sha256: String,
}

impl OutputFile {
    /// Describes a file of `folder` in its current state.
    pub fn describe(folder: &Path, file: &str, rows: Option<u64>) -> Result<Self> {
        let path = folder.join(file);
        let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok(Self { file: file.into(), bytes, rows, sha256: sha256_file(&path)? })
    }

    /// Its path in the run folder.
    ///
    /// # Errors
    /// If its name leads out of the folder: a manifest may come from anybody.
    pub fn path(&self, folder: &Path) -> Result<PathBuf> {
        ensure!(
            Path::new(&self.file).file_name().is_some_and(|name| name == self.file.as_str()),
            "{}: the output `{}` is not a file of this folder",
            folder.join(MANIFEST).display(),
            self.file
        );
        Ok(folder.join(&self.file))
    }

    /// Returns `true` if the file has not changed since it was described.
    pub fn is_unchanged(&self, folder: &Path) -> Result<bool> {
        Ok(sha256_file(&self.path(folder)?)? == self.sha256)
    }
}

impl Manifest {
    /// Writes the manifest to a new file as indented JSON, atomically.
    ///
    /// # Errors
    /// If the file exists already, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        ensure!(!path.exists(), "{} is there already (results are never overwritten)", path.display());
        let text = serde_json::to_string_pretty(self).context("the manifest cannot be written as JSON")?;
        replace(path, |partial| Ok(std::fs::write(partial, text + "\n")?))
    }

    /// Checks the files of the run that are there, and returns whether all are.
    ///
    /// # Errors
    /// Names the first file that was changed.
    pub fn check_outputs(&self, folder: &Path) -> Result<bool> {
        let mut all = true;
        for output in &self.outputs {
            let path = output.path(folder)?;
            if !path.exists() {
                all = false;
                continue;
            }
            let current = OutputFile::describe(folder, &output.file, output.rows)?;
            let length = if current.bytes == output.bytes {
                "as long, but with other bytes".to_owned()
            } else {
                format!("{} bytes where manifest.json says {}", current.bytes, output.bytes)
            };
            let shown = path.display();
            ensure!(current.sha256 == output.sha256, "{shown} is not what was written ({length}); begin a new run");
        }
        Ok(all)
    }

    /// Reads a manifest.
    pub fn read(path: &Path) -> Result<Self> {
        let text = base::files::text(path, base::files::CONFIG_MAX)?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a manifest of this version", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let model = ModelInfo { name: "diff".into(), lambda: vec![0.2, 0.3555090675909693], ..ModelInfo::default() };
        Manifest {
            argv: vec!["difftool".into(), "needle".into()],
            config: serde_json::json!({ "ctx_tok": [4096], "samples": 20 }),
            models: vec![model],
            seeds: BTreeMap::from([("prompts".into(), 0), ("bootstrap".into(), 1)]),
            ..Manifest::default()
        }
    }

    #[test]
    fn hashes_agree_with_sha256sum() {
        // printf abc | sha256sum
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(base::hash::sha256(b"abc"), abc);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), "abc").unwrap();
        let output = OutputFile::describe(folder.path(), "x", Some(1)).unwrap();
        assert_eq!(output, OutputFile { file: "x".into(), bytes: 3, rows: Some(1), sha256: abc.into() });
    }

    #[test]
    fn a_manifest_reads_back_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest.json");
        manifest().write(&path).unwrap();
        assert_eq!(Manifest::read(&path).unwrap(), manifest());
        assert!(format!("{:#}", manifest().write(&path).unwrap_err()).contains("never overwritten"));
    }

    #[test]
    fn the_fields_keep_their_order() {
        let text = serde_json::to_string(&manifest()).unwrap();
        let fields = ["tool", "argv", "config", "models", "dtype", "device", "threads", "seeds", "wall_s", "outputs"];
        let places: Vec<usize> = fields.iter().map(|field| text.find(&format!("\"{field}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
    }
}
