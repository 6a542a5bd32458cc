//! The cache on disk, in the layout of the Python library `huggingface_hub`.
//!
//! ```text
//! models--org--name/refs/main                      the last known commit of a branch or tag
//! models--org--name/snapshots/COMMIT/config.json   a link to the blob
//! models--org--name/blobs/ETAG                     the contents; ETAG.incomplete during a download
//! models--org--name/.no_exist/COMMIT/FILE          marks a file that the commit does not have
//! .locks/models--org--name/ETAG.lock               held during a download of the blob
//! ```

use super::spec::{is_commit, HubSpec};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The cache of one model.
pub(super) struct Cache {
    repo: PathBuf,
    locks: PathBuf,
}

impl Cache {
    pub(super) fn new(root: &Path, spec: &HubSpec) -> Self {
        let name = format!("models--{}", spec.repo.replace('/', "--"));
        Self { repo: root.join(&name), locks: root.join(".locks").join(name) }
    }

    /// The commit of a revision when it was last downloaded.
    pub(super) fn commit(&self, spec: &HubSpec) -> Option<String> {
        if spec.is_pinned() {
            return Some(spec.revision.clone());
        }
        let commit = fs::read_to_string(self.repo.join("refs").join(&spec.revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// The folder with the files of a commit.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.repo.join("snapshots").join(commit)
    }

    /// Returns whether the cache has a file of a commit. A broken link does not count.
    pub(super) fn has(&self, commit: &str, file: &str) -> bool {
        self.snapshot(commit).join(file).is_file()
    }

    /// Returns whether a commit is known not to have a file.
    pub(super) fn lacks(&self, commit: &str, file: &str) -> bool {
        self.no_exist(commit, file).exists()
    }

    /// Records that a commit does not have a file.
    pub(super) fn set_lacking(&self, commit: &str, file: &str) -> Result<()> {
        write(&self.no_exist(commit, file), "")
    }

    fn no_exist(&self, commit: &str, file: &str) -> PathBuf {
        self.repo.join(".no_exist").join(commit).join(file)
    }

    /// Records the commit of a branch or tag.
    pub(super) fn set_commit(&self, spec: &HubSpec, commit: &str) -> Result<()> {
        if spec.is_pinned() {
            return Ok(());
        }
        write(&self.repo.join("refs").join(&spec.revision), commit)
    }

    /// Path of the contents with an ETag.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.repo.join("blobs").join(etag)
    }

    /// Locks a blob against other downloads, including those of the Python library.
    pub(super) fn lock(&self, etag: &str) -> Result<File> {
        let path = self.locks.join(format!("{etag}.lock"));
        create_parent(&path)?;
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = open.with_context(|| cannot_write(&path))?;
        // Some file systems lack locks. Concurrent downloads are rare enough to continue without.
        let _ = file.lock();
        Ok(file)
    }

    /// Links a downloaded file into its snapshot.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<()> {
        let path = self.snapshot(commit).join(file);
        create_parent(&path)?;
        let _lock = self.lock(etag)?;
        // Created under another name and renamed, so that it appears complete and replaces a broken link.
        let new = path.with_file_name(format!("{file}.new"));
        let _ = fs::remove_file(&new);
        let linked = symlink(&Path::new("../../blobs").join(etag), &new);
        // File systems without links get a copy.
        linked.or_else(|_| fs::copy(self.blob(etag), &new).map(|_| ())).with_context(|| cannot_write(&new))?;
        fs::rename(&new, &path).with_context(|| cannot_write(&path))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {} in the cache (set HF_HOME or HF_HUB_CACHE to use another folder)", path.display())
}

/// Creates the folder of a file.
pub(super) fn create_parent(path: &Path) -> Result<()> {
    let parent = path.parent().expect("a file in the cache has a folder");
    fs::create_dir_all(parent).with_context(|| cannot_write(parent))
}

fn write(path: &Path, text: &str) -> Result<()> {
    create_parent(path)?;
    fs::write(path, text).with_context(|| cannot_write(path))
}
