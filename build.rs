//! Identifies the build: a hash of the sources and, in a git checkout, the commit.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut hasher = DefaultHasher::new();
    for name in ["Cargo.toml", "Cargo.lock", "crates", "src"] {
        println!("cargo:rerun-if-changed={name}");
        hash(&root, &root.join(name), &mut hasher)?;
    }
    println!("cargo:rustc-env=DIFFTOOL_SOURCE={:016x}", hasher.finish());
    println!("cargo:rerun-if-env-changed=DIFFTOOL_GIT");
    // Packagers can set the commit for sources without a repository.
    let commit = env::var("DIFFTOOL_GIT").ok().or_else(|| describe(&root));
    if let Some(commit) = commit {
        println!("cargo:rustc-env=DIFFTOOL_GIT={commit}");
    }
    Ok(())
}

/// Hashes the path within `root` and the bytes of a file, or of all files of a folder in the order of their names.
fn hash(root: &Path, path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    if path.is_dir() {
        let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        return entries.iter().try_for_each(|entry| hash(root, entry, hasher));
    }
    let Ok(bytes) = fs::read(path) else { return Ok(()) }; // a package may lack the lock file
    let place = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    (place, bytes).hash(hasher);
    Ok(())
}

fn describe(root: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["describe", "--always", "--dirty", "--abbrev=12"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
