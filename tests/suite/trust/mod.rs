//! What comes from others is not trusted: the right number, or an error that names file and field.

mod fields;
mod fuzz;
mod haystacks;
mod integers;
mod lost;
mod memory;
mod mutations;
mod numbers;
mod templates;
mod terminal;
mod tokenizers;

use crate::common::{self, tiny_model, typed};
use assert_cmd::Command;
use std::fs;
use std::path::Path;
use std::process::Output;

/// The smallest needle prompt that there is.
pub(crate) const NEEDLE: &str = "needle --ctx 256 --samples 1 --needles 1 --depths 50";

/// A working folder with a tiny model `m` in it.
pub(crate) struct Bench(common::Scratch);

impl Bench {
    pub(crate) fn new() -> Self {
        let scratch = common::Scratch::new();
        tiny_model(&scratch.path("m"), "transformer");
        Self(scratch)
    }

    /// The binary in this folder; arguments are separated by spaces.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = typed(self.path(""), args);
        command.env_remove("RUST_BACKTRACE");
        command
    }

    pub(crate) fn run(&self, args: &str) -> Outcome {
        Outcome::of(self.command(args).timeout(std::time::Duration::from_secs(300)).output().unwrap())
    }
}

common::is_scratch!(Bench);

/// What became of a process.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// It failed with this code and one line that has all these words.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(words.iter().all(|word| last.contains(word)), "{words:?} are not in: {}", self.stderr);
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(last.starts_with("difftool: ") || last.starts_with("error: "), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }
}

/// The text of a JSON file after a change.
pub(crate) fn edit_json(path: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}
