//! Calls the target that `DIFFTOOL_FUZZ_TARGET` names.
#![no_main]

#[path = "../targets.rs"]
mod targets;

use std::sync::LazyLock;
use tempfile::TempDir;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("DIFFTOOL_FUZZ_TARGET").expect("DIFFTOOL_FUZZ_TARGET names a target");
    *targets::TARGETS.iter().find(|(other, _)| *other == name).expect("a target of that name")
});

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (TARGET.1)(bytes, FOLDER.path());
});
