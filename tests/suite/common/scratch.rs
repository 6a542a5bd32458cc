//! A folder to run the binary in, and what became of a run of it.

use super::tiny_model;
use assert_cmd::cargo::cargo_bin;
use assert_cmd::Command;
use difftool::results::record::{self, Record};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use tempfile::TempDir;

/// The arguments of a command: a line of words with blanks between them, of which '…' is one, or a list.
pub(crate) trait Words {
    fn words(&self) -> Vec<String>;
}

impl Words for str {
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (i, part) in self.split('\'').enumerate() {
            if i % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }
}

impl Words for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl<S: AsRef<str>> Words for [S] {
    fn words(&self) -> Vec<String> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Words for [S; N] {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

impl<S: AsRef<str>> Words for Vec<S> {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

impl<T: Words + ?Sized> Words for &T {
    fn words(&self) -> Vec<String> {
        T::words(self)
    }
}

/// The binary, to be run in a folder. One that hangs is ended.
pub(crate) fn difftool(folder: impl AsRef<Path>, args: impl Words) -> Command {
    let mut command = Command::cargo_bin("difftool").unwrap();
    command.current_dir(folder).args(args.words()).env_remove("RUST_BACKTRACE").timeout(Duration::from_secs(300));
    command
}

/// The commands that `difftool --help` lists in groups, between the usage and the options.
pub(crate) fn commands() -> Vec<String> {
    let help = printed(&mut difftool(".", "--help"));
    let listed = help.split("Usage: ").nth(1).unwrap().split("Options:\n").next().unwrap();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The commands whose help lists all of these flags.
pub(crate) fn commands_with(flags: &[&str]) -> Vec<String> {
    let mut found = commands();
    found.retain(|command| {
        let help = printed(&mut difftool(".", [command, "--help"]));
        let has = |flag: &&str| help.lines().any(|line| line.trim_start().starts_with(&format!("{flag} <")));
        flags.iter().all(has)
    });
    found
}

/// A folder to run the binary in.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// With a tiny standard model `m`.
    pub(crate) fn with_model() -> Self {
        let scratch = Self::new();
        tiny_model(&scratch.path("m"), "transformer");
        scratch
    }

    /// With one tiny model of each variant.
    pub(crate) fn with_models() -> Self {
        Self::with(&["transformer", "diff", "diff-v2"])
    }

    /// With tiny models of these variants, in folders of their names.
    pub(crate) fn with(variants: &[&str]) -> Self {
        let scratch = Self::new();
        variants.iter().for_each(|variant| tiny_model(&scratch.path(variant), variant));
        scratch
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn exists(&self, name: impl AsRef<Path>) -> bool {
        self.path(name).exists()
    }

    /// Writes a file, and makes the folders that it is in.
    pub(crate) fn write(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[track_caller]
    pub(crate) fn read(&self, name: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    #[track_caller]
    pub(crate) fn bytes(&self, name: impl AsRef<Path>) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self, name: impl AsRef<Path>) -> Value {
        serde_json::from_slice(&self.bytes(name)).unwrap()
    }

    #[track_caller]
    pub(crate) fn edit_json(&self, name: impl AsRef<Path>, edit: impl FnOnce(&mut Value)) {
        let mut value = self.json(&name);
        edit(&mut value);
        self.write(name, value.to_string());
    }

    #[track_caller]
    pub(crate) fn records(&self, run: impl AsRef<Path>) -> Vec<Record> {
        record::read(&self.path(run).join("results.csv")).unwrap()
    }

    pub(crate) fn command(&self, args: impl Words) -> Command {
        difftool(self.folder(), args)
    }

    /// A process that is watched, or whose output goes elsewhere.
    pub(crate) fn process(&self, args: impl Words) -> std::process::Command {
        let mut command = std::process::Command::new(cargo_bin("difftool"));
        command.current_dir(self.folder()).args(args.words());
        command
    }

    /// The binary under a limit of the shell (`ulimit`).
    #[cfg(target_os = "linux")]
    pub(crate) fn limited(&self, limit: &str, args: &str) -> Command {
        let script = format!("{limit}; exec '{}' {args}", cargo_bin("difftool").display());
        let mut command = Command::new("bash");
        command.current_dir(self.folder()).args(["-c", &script]);
        command
    }

    pub(crate) fn run(&self, args: impl Words) -> Outcome {
        Outcome::of(self.command(args).output().unwrap())
    }

    /// What a command that succeeds prints.
    #[track_caller]
    pub(crate) fn stdout(&self, args: impl Words) -> String {
        printed(&mut self.command(args))
    }

    /// Fails as a usage error that says all of these words.
    #[track_caller]
    pub(crate) fn refuses(&self, args: impl Words, words: &[&str]) {
        self.fails(args, 2, words);
    }

    /// Fails with this exit code and an error that says all of these words.
    #[track_caller]
    pub(crate) fn fails(&self, args: impl Words, code: i32, words: &[&str]) {
        self.run(args).refused(code, words);
    }
}

/// Lends a test's own folder, which wraps a [`Scratch`], everything that one can do.
macro_rules! is_scratch {
    ($folder:ty) => {
        impl std::ops::Deref for $folder {
            type Target = crate::common::Scratch;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

pub(crate) use is_scratch;

/// What became of a process.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { code: output.status.code(), stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// The only error: from the line that begins it to the end.
    fn error(&self) -> Result<&str, String> {
        let lines = self.stderr.lines();
        let mut errors = lines.filter(|line| line.starts_with("difftool: ") || line.starts_with("error: "));
        match (errors.next(), errors.next()) {
            (Some(error), None) => Ok(&self.stderr[error.as_ptr() as usize - self.stderr.as_ptr() as usize..]),
            (Some(_), Some(_)) => Err(format!("two errors: {}", self.stderr)),
            (None, _) => Err(format!("no error: {}", self.stderr)),
        }
    }

    /// Why this is not a failure with this exit code and one error, no panic, that has all of these words.
    pub(crate) fn check(&self, code: i32, words: &[&str]) -> Result<(), String> {
        let error = self.error()?;
        let missing: Vec<&&str> = words.iter().filter(|word| !error.contains(**word)).collect();
        if self.code == Some(code) && missing.is_empty() && !self.stderr.contains("panicked") {
            return Ok(());
        }
        Err(format!("exit code {:?} for {code}, {missing:?} missing: {}", self.code, self.stderr))
    }

    /// It failed with this exit code and one error that has all of these words.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        self.check(code, words).unwrap_or_else(|why| panic!("{why}"));
    }

    /// The same, and the error is one line and all that was printed.
    #[track_caller]
    pub(crate) fn refused_outright(&self, code: i32, words: &[&str]) {
        self.refused(code, words);
        assert!(
            self.stderr.trim_end().lines().count() == 1 && self.stdout.is_empty(),
            "{}{}",
            self.stdout,
            self.stderr
        );
    }
}

/// What a command that succeeds prints.
#[track_caller]
pub(crate) fn printed(command: &mut Command) -> String {
    let outcome = Outcome::of(command.output().unwrap());
    outcome.succeeded();
    outcome.stdout
}

/// It fails with this exit code and one error that has all of these words.
#[track_caller]
pub(crate) fn refuses(command: &mut Command, code: i32, words: &[&str]) {
    Outcome::of(command.output().unwrap()).refused(code, words);
}

/// The same, and the error is one line and all that is printed.
#[track_caller]
pub(crate) fn refuses_outright(command: &mut Command, code: i32, words: &[&str]) {
    Outcome::of(command.output().unwrap()).refused_outright(code, words);
}
