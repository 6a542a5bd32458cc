//! Snapshots of models in the cache: what is missing, and downloading it.
//!
//! All files of a snapshot belong to one commit, even if the branch moves meanwhile. They are linked into the
//! snapshot's folder only after all of them were downloaded and checked, so that no incomplete folder looks complete.

use super::cache::{create_parent, Cache};
use super::client::{Client, FileMeta};
use super::files::{shards, INDEX, OPTIONAL, REQUIRED, WEIGHTS};
use super::spec::HubSpec;
use super::{Transfer, TransferFactory};
use crate::bail_usage;
use crate::files;
use crate::hash::sha256_file;
use anyhow::{bail, Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Default address of the Hub.
const ENDPOINT: &str = "https://huggingface.co";

/// A Hub with a local cache.
pub struct Hub {
    /// Address of the Hub or of a mirror.
    pub endpoint: String,
    /// The folder with `models--org--name`.
    pub cache: PathBuf,
    /// Whether to use only the cache.
    pub offline: bool,
    /// Access token for gated or private models.
    pub token: Option<String>,
}

impl Hub {
    /// Creates it from environment variables, by the rules of the Python library.
    ///
    /// # Errors
    /// If no variable or home folder determines the cache.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| std::env::var(name).ok(), std::env::home_dir())
    }

    /// Like [`Self::from_env`], with the given variables.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Result<Self> {
        let var = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let is_on = |name: &str| {
            var(name).is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&&*value.trim().to_uppercase()))
        };
        let cache = if let Some(hub) = var("HF_HUB_CACHE").or_else(|| var("HUGGINGFACE_HUB_CACHE")) {
            PathBuf::from(hub)
        } else if let Some(hf) = var("HF_HOME") {
            Path::new(&hf).join("hub")
        } else if let Some(cache) = var("XDG_CACHE_HOME") {
            Path::new(&cache).join("huggingface/hub")
        } else if let Some(home) = home {
            home.join(".cache/huggingface/hub")
        } else {
            bail!("there is no home folder: set HF_HOME to the folder for models");
        };
        Ok(Self {
            endpoint: var("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()),
            cache,
            offline: is_on("HF_HUB_OFFLINE"),
            token: var("HF_TOKEN").map(|token| token.trim().to_owned()),
        })
    }

    /// Like [`super::resolve`], with these settings.
    pub fn resolve(&self, spec: &str, watch: TransferFactory) -> Result<PathBuf> {
        let spec = HubSpec::parse(spec)?;
        let cache = Cache::new(&self.cache, &spec);
        let known = cache.commit(&spec);
        let missing = match &known {
            Some(commit) => missing(&cache, commit).with_context(|| format!("{spec}"))?,
            None => vec![format!("every file of revision {}", spec.revision)],
        };
        if self.offline && !missing.is_empty() {
            bail!(
                "{spec}: the cache {} lacks {}, and HF_HUB_OFFLINE forbids downloads: unset it, or copy \
                 the model there",
                self.cache.display(),
                missing.join(", ")
            );
        }
        let client = Client::new(&self.endpoint, self.token.clone());
        let download = Download { spec: &spec, cache: &cache, client: &client, watch };
        match known {
            Some(commit) if missing.is_empty() => {
                // The Python library may have left out files that describe the beginning of prompts. If the Hub cannot
                // be reached, the cache is used as it is.
                if !self.offline && OPTIONAL.iter().any(|file| !is_known(&cache, &commit, file)) {
                    let _ = download.run(&commit);
                }
                Ok(cache.snapshot(&commit))
            }
            Some(commit) => download.run(&commit),
            None => {
                let Some(meta) = client.meta(&spec, &spec.revision, REQUIRED[0])? else {
                    bail_usage!("{spec}: the model has no {} at revision {}", REQUIRED[0], spec.revision);
                };
                download.run(&meta.commit)
            }
        }
    }
}

/// Returns whether the cache knows if a commit has a file.
fn is_known(cache: &Cache, commit: &str, file: &str) -> bool {
    cache.has(commit, file) || cache.lacks(commit, file)
}

/// Required files that the cache lacks.
fn missing(cache: &Cache, commit: &str) -> Result<Vec<String>> {
    let mut wanted: Vec<String> = REQUIRED.map(str::to_owned).to_vec();
    if !cache.has(commit, WEIGHTS) && cache.has(commit, INDEX) {
        let path = cache.snapshot(commit).join(INDEX);
        let index = files::bytes(&path, files::TOKENIZER_MAX)?;
        wanted.extend(shards(&index).with_context(|| path.display().to_string())?);
    } else {
        wanted.push(WEIGHTS.to_owned());
    }
    wanted.retain(|file| !cache.has(commit, file));
    Ok(wanted)
}

/// Place of a file of a commit.
enum FileState {
    /// In the snapshot.
    Here,
    /// On the Hub.
    Hub(FileMeta),
    /// Not in the commit.
    Nowhere,
}

impl FileState {
    /// The file with its metadata, if it must be downloaded.
    fn into_get(self, file: &str) -> Option<(String, FileMeta)> {
        match self {
            FileState::Hub(meta) => Some((file.to_owned(), meta)),
            FileState::Here | FileState::Nowhere => None,
        }
    }
}

/// Download of one model into the cache.
struct Download<'a> {
    spec: &'a HubSpec,
    cache: &'a Cache,
    client: &'a Client,
    watch: TransferFactory,
}

impl Download<'_> {
    /// Completes the snapshot of a commit.
    fn run(&self, commit: &str) -> Result<PathBuf> {
        // The index is downloaded first, so that an invalid one stops the download.
        let mut files = self.weights(commit)?;
        for file in REQUIRED {
            match self.file_state(commit, file)? {
                FileState::Nowhere => return self.missing_file(file, commit),
                look => files.extend(look.into_get(file)),
            }
        }
        let mut lacking = Vec::new();
        for file in OPTIONAL {
            match self.file_state(commit, file)? {
                FileState::Nowhere => lacking.push(file),
                look => files.extend(look.into_get(file)),
            }
        }
        // Weights come last: without them a snapshot does not look complete.
        files.reverse();
        let transfer = (self.watch)(files.iter().filter_map(|(_, meta)| meta.len).sum());
        for (file, meta) in &files {
            transfer.file(file);
            self.blob(file, meta, &*transfer)?;
        }
        drop(transfer);
        for file in lacking {
            self.cache.set_lacking(commit, file)?;
        }
        for (file, meta) in &files {
            self.cache.link(commit, file, &meta.etag)?;
        }
        self.cache.set_commit(self.spec, commit)?;
        Ok(self.cache.snapshot(commit))
    }

    /// The missing weight files, with their index.
    fn weights(&self, commit: &str) -> Result<Vec<(String, FileMeta)>> {
        let single = self.file_state(commit, WEIGHTS)?;
        if !matches!(single, FileState::Nowhere) {
            return Ok(single.into_get(WEIGHTS).into_iter().collect());
        }
        let index = self.file_state(commit, INDEX)?;
        let path = match &index {
            FileState::Nowhere => {
                return self.missing_file(&format!("{WEIGHTS} or {INDEX} (other formats are not supported)"), commit)
            }
            FileState::Here => self.cache.snapshot(commit).join(INDEX),
            FileState::Hub(meta) => self.blob(INDEX, meta, &())?,
        };
        let bytes = files::bytes(&path, files::TOKENIZER_MAX)?;
        let mut files: Vec<(String, FileMeta)> = index.into_get(INDEX).into_iter().collect();
        for file in shards(&bytes).with_context(|| format!("{}: {INDEX}", self.spec))? {
            match self.file_state(commit, &file)? {
                FileState::Nowhere => return self.missing_file(&file, commit),
                look => files.extend(look.into_get(&file)),
            }
        }
        Ok(files)
    }

    fn file_state(&self, commit: &str, file: &str) -> Result<FileState> {
        if self.cache.has(commit, file) {
            return Ok(FileState::Here);
        }
        if self.cache.lacks(commit, file) {
            return Ok(FileState::Nowhere);
        }
        let Some(meta) = self.client.meta(self.spec, commit, file)? else { return Ok(FileState::Nowhere) };
        if meta.commit != commit {
            bail!("{}: requested {file} at {commit}, but the Hub returned {}", self.spec, meta.commit);
        }
        Ok(FileState::Hub(meta))
    }

    fn missing_file<T>(&self, file: &str, commit: &str) -> Result<T> {
        bail_usage!("{}: {} has no {file} at revision {commit}", self.spec, self.spec.repo)
    }

    /// Path of a file's contents, downloaded and checked if the cache lacks them.
    fn blob(&self, file: &str, meta: &FileMeta, transfer: &dyn Transfer) -> Result<PathBuf> {
        let lock = self.cache.lock(&meta.etag)?;
        let path = self.cache.blob(&meta.etag);
        if fs::metadata(&path).is_ok_and(|found| meta.len.is_none_or(|len| found.len() == len)) {
            transfer.bytes(meta.len.unwrap_or(0));
            return Ok(path);
        }
        create_parent(&path)?;
        let partial = path.with_extension("incomplete");
        let mut to = File::options().create(true).append(true).open(&partial)?;
        let here = to.metadata()?.len();
        // Without a known length, the partial file cannot be checked.
        if meta.len.is_none_or(|len| here > len) {
            to.set_len(0)?;
        }
        if meta.len.is_none_or(|len| here != len) {
            self.client.fetch(self.spec, meta, file, &mut to, |n| transfer.bytes(n))?;
        } else {
            transfer.bytes(here);
        }
        to.sync_all()?;
        drop(to);
        self.check(file, meta, &partial)?;
        fs::rename(&partial, &path).with_context(|| format!("cannot write {}", path.display()))?;
        drop(lock);
        Ok(path)
    }

    /// Checks length and hash of a downloaded file.
    fn check(&self, file: &str, meta: &FileMeta, partial: &Path) -> Result<()> {
        let here = fs::metadata(partial)?.len();
        if let Some(len) = meta.len.filter(|&len| here < len) {
            bail!(
                "{}: the download of {file} was interrupted after {here} of {len} bytes; run the command again to resume it",
                self.spec
            );
        }
        let longer = meta.len.is_some_and(|len| here > len);
        if longer || meta.sha256().is_some_and(|wanted| sha256_file(partial).is_ok_and(|found| found != wanted)) {
            fs::remove_file(partial)?;
            bail!(
                "{}: {file} does not have the announced length or hash and was removed; run the command again",
                self.spec
            );
        }
        Ok(())
    }
}
