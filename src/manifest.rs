//! The manifest: what was run, on what, and what came out, as `manifest.json` beside the results.
//!
//! Enough to run it again and to notice that something else was run: `compare` checks manifests first.

use crate::hash::sha256_file;
use crate::machine::{Machine, Tool};
use crate::ops::Products;
use crate::runfolder::MANIFEST;
use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Everything about a run but its results. Written in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of difftool and what it was built from.
    pub tool: Tool,
    /// What it ran on.
    #[serde(default)]
    pub machine: Machine,
    /// The arguments as given, the program's name first.
    pub argv: Vec<String>,
    /// The configuration they came to, defaults filled in.
    pub config: serde_json::Value,
    /// The models, in the order they ran.
    pub models: Vec<ModelInfo>,
    /// SHA-256 of the text that the haystacks were cut from.
    pub haystack_sha256: Option<String>,
    /// SHA-256 of the user's text, if plain text was measured.
    pub text_sha256: Option<String>,
    /// SHA-256 of the prompts' tokens, in the order they ran.
    pub prompts_sha256: Option<String>,
    /// Number type of weights and activations: `f32`, `bf16`, `f64`.
    pub dtype: String,
    /// What the kernels multiplied: `f32`, `bf16`.
    #[serde(default)]
    pub precision: Products,
    /// What computed: `cpu`, `cuda:0`.
    pub device: String,
    /// Which part of the experiment this is, as in `2/8`; missing for the whole.
    #[serde(default)]
    pub shard: Option<String>,
    /// Prompts that were measured before this process, which resumed or merged them. Times are this process's own.
    #[serde(default)]
    pub resumed_cells: u64,
    /// Threads of the computation. Results do not depend on it.
    pub threads: usize,
    /// Seeds by what they are for.
    pub seeds: BTreeMap<String, u64>,
    /// Start of the run in UTC, ISO 8601.
    pub started_utc: String,
    /// Duration of the run in seconds.
    pub wall_s: f64,
    /// Most memory held at once, in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The files of the run folder but this one.
    pub outputs: Vec<Output>,
}

/// A model, down to the bytes of its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name in the results.
    pub name: String,
    /// Its folder or GGUF file; missing for a built-in model.
    pub path: Option<String>,
    /// `model_type` of its configuration.
    #[serde(default)]
    pub model_type: String,
    /// Attention variant.
    pub variant: String,
    /// Number of parameters, tied ones counted once.
    pub parameters: u64,
    /// Number types of the weights on disk.
    #[serde(default)]
    pub weights_dtype: String,
    /// SHA-256 of `model.safetensors`; of weights in several files, of their hashes.
    pub weights_sha256: String,
    /// SHA-256 of `config.json`.
    pub config_sha256: String,
    /// SHA-256 of `tokenizer.json`; empty if the folder has none.
    pub tokenizer_sha256: String,
    /// The token that needle prompts begin with and who says so: `<s> (config)`, `none (template)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<String>,
    /// SHA-256 of the chat template that needle prompts stand in, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_sha256: Option<String>,
    /// Which heads pair and which keys they read, in words.
    pub layout: String,
    /// What its logits are, where that is not scaled products of queries and keys: `after the soft cap at 50`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_tap: Option<String>,
    /// λ by layer, its mean where it depends on the token; empty without differential attention.
    pub lambda: Vec<f64>,
}

/// A file that the run wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Name in the run folder.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Records in it, if it holds records.
    pub rows: Option<u64>,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

impl Output {
    /// Describes a file of `folder` as it is now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn describe(folder: &Path, file: &str, rows: Option<u64>) -> Result<Self> {
        let path = folder.join(file);
        let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok(Self { file: file.into(), bytes, rows, sha256: sha256_file(&path)? })
    }

    /// Its path in the folder of its run.
    ///
    /// # Errors
    /// If it is somewhere else: a manifest may come from anybody.
    pub fn path(&self, folder: &Path) -> Result<PathBuf> {
        ensure!(
            Path::new(&self.file).file_name().is_some_and(|name| name == self.file.as_str()),
            "{}: the output `{}` is not a file of this folder",
            folder.join(MANIFEST).display(),
            self.file
        );
        Ok(folder.join(&self.file))
    }

    /// Whether the file is still the one that was described.
    ///
    /// # Errors
    /// If it cannot be read; those of [`Output::path`].
    pub fn is_unchanged(&self, folder: &Path) -> Result<bool> {
        Ok(sha256_file(&self.path(folder)?)? == self.sha256)
    }
}

impl Manifest {
    /// Writes the manifest to a new file, as JSON for people. The file is there whole or not at all.
    ///
    /// # Errors
    /// If there is such a file already, or it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let cannot = || format!("cannot create {} (results are never overwritten)", path.display());
        let text = serde_json::to_string_pretty(self).context("the manifest cannot be written as JSON")?;
        let mut file = new_file_beside(path).with_context(cannot)?;
        file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).with_context(cannot)?;
        file.persist_noclobber(path).map(|_| ()).map_err(|error| error.error).with_context(cannot)
    }

    /// Whether the files of the run are still what was written.
    ///
    /// # Errors
    /// Names the first file that is missing or was changed.
    pub fn check_outputs(&self, folder: &Path) -> Result<()> {
        for output in &self.outputs {
            let path = output.path(folder)?;
            let found = Output::describe(folder, &output.file, output.rows)
                .context("its manifest.json says that the run is finished")?;
            let length = match found.bytes == output.bytes {
                true => "as long, but with other bytes".to_owned(),
                false => format!("{} bytes where manifest.json says {}", found.bytes, output.bytes),
            };
            let shown = path.display();
            ensure!(found.sha256 == output.sha256, "{shown} is not what was written ({length}); begin a new run");
        }
        Ok(())
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a manifest of this version.
    pub fn read(path: &Path) -> Result<Self> {
        let text = crate::files::text(path, crate::files::CONFIG_MAX)?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a manifest of this version", path.display()))
    }
}

/// A temporary file in the folder of `path`, as readable as other files are.
fn new_file_beside(path: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // less what umask takes
    builder.tempfile_in(path.parent().unwrap_or(Path::new(".")))
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
        assert_eq!(crate::hash::sha256(b"abc"), abc);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), "abc").unwrap();
        let output = Output::describe(folder.path(), "x", Some(1)).unwrap();
        assert_eq!(output, Output { file: "x".into(), bytes: 3, rows: Some(1), sha256: abc.into() });
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
