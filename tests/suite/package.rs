//! The crate as it is packaged and installed.

use crate::common::Scratch;
use assert_cmd::cargo::cargo_bin;
use flate2::write::DeflateEncoder;
use flate2::Compression;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A package of the workspace.
struct Package {
    name: String,
    folder: PathBuf,
}

impl Package {
    /// The program, and the libraries under `crates/`.
    fn all() -> Vec<Self> {
        let mut all = vec![Self { name: "difftool".to_owned(), folder: root().to_owned() }];
        for entry in fs::read_dir(root().join("crates")).unwrap() {
            let folder = entry.unwrap().path();
            all.push(Self { name: format!("difftool-{}", folder.file_name().unwrap().to_str().unwrap()), folder });
        }
        all
    }

    /// The files that are published.
    fn files(&self) -> BTreeSet<PathBuf> {
        let list = ["package", "-p", &self.name, "--list", "--allow-dirty", "--offline"];
        let output = Command::new(env!("CARGO")).args(list).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect()
    }
}

/// A path without `..`.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(tidy.pop()),
            part => tidy.push(part),
        }
    }
    tidy
}

/// The files that a source file includes by a literal path.
fn included(folder: &Path, source: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(folder.join(source)).unwrap();
    let calls = ["include_str!(\"", "include_bytes!(\""].map(|call| text.split(call).skip(1));
    let paths = calls.into_iter().flatten().filter_map(|rest| rest.split('"').next());
    paths.map(|path| tidy(&source.parent().unwrap().join(path))).collect()
}

#[test]
fn packages_have_every_file_that_their_sources_include() {
    let mut all = 0;
    for package in Package::all() {
        let packaged = package.files();
        let sources = packaged.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let included: Vec<PathBuf> = sources.flat_map(|source| included(&package.folder, source)).collect();
        for file in &included {
            assert!(packaged.contains(file), "{}: {} is included in a source file", package.name, file.display());
        }
        all += included.len();
    }
    assert!(all > 30, "{all} files are included");
}

#[test]
fn packages_have_less_than_the_ten_megabytes_that_the_registry_takes() {
    let mut all = 0;
    for package in Package::all() {
        let deflated = |path: PathBuf| {
            let Ok(bytes) = fs::read(package.folder.join(path)) else { return 0 }; // what `cargo package` makes itself
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&bytes).unwrap();
            encoder.finish().unwrap().len()
        };
        let bytes: usize = package.files().into_iter().map(deflated).sum();
        assert!(bytes < 10_000_000, "{}: {bytes} bytes", package.name);
        all += bytes;
    }
    assert!(all > 1_000_000, "{all} bytes");
}

#[test]
fn the_version_is_the_same_in_all_files_that_name_it() {
    let version = env!("CARGO_PKG_VERSION");
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    assert!(read("CITATION.cff").contains(&format!("\nversion: {version}\n")));
    for package in Package::all() {
        let manifest = fs::read_to_string(package.folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("\nversion = \"{version}\"\n")), "{}", package.name);
    }
    let changes = read("CHANGELOG.md");
    let newest = changes.lines().find(|line| line.starts_with("## [") && !line.contains("Unreleased")).unwrap();
    assert!(newest.starts_with(&format!("## [{version}] - 20")), "{newest}");
}

/// The lines that a page has for a shell under a heading.
fn shell_lines(page: &str, heading: &str) -> String {
    let (_, section) = page.split_once(heading).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split("```").next().unwrap().to_owned()
}

#[test]
#[cfg(unix)]
fn completions_and_manual_pages_are_installed_as_documented_and_a_second_time() {
    let page = fs::read_to_string(root().join("docs/experiments.md")).unwrap();
    let lines = shell_lines(&page, "## Completions and manual pages");
    let home = Scratch::new();
    let path = format!("{}:{}", cargo_bin("difftool").parent().unwrap().display(), std::env::var("PATH").unwrap());
    let bash = |script: &str| {
        let command = ["--noprofile", "--norc", "-ec", script];
        let output = Command::new("bash").args(command).env("HOME", home.folder()).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    bash(&lines);
    bash(&lines);
    let completed = bash(
        "source ~/.difftool.bash
         COMP_WORDS=(difftool need) COMP_CWORD=1 && _difftool difftool need difftool && echo ${COMPREPLY[@]}",
    );
    assert_eq!(completed.trim(), "needle");
    let page = fs::read_to_string(home.path(".local/share/man/man1/difftool-needle.1")).unwrap();
    for part in
        ["difftool\\-needle \\- Needle", "\\-\\-ctx", "Needles asked for (R in tables)", "difftool needle \\-\\-ctx 4k"]
    {
        assert!(page.contains(part), "no {part} in\n{page}");
    }
}
