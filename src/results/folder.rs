//! Run folders and the names of their files. A new run always has a new folder.

use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::files;
use base::model_files::CONFIG;
use base::terminal::{arguments, quoted_path};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The attention explorer, an HTML page.
pub const EXPLORER: &str = "explore.html";
/// The records of a run.
pub const RESULTS: &str = "results.csv";
/// The journal of finished prompts, with what measures pool.
pub const CELLS: &str = "cells.csv";
/// The experiment.
pub const EXPERIMENT: &str = "experiment.toml";
/// What a run was begun with, as JSON.
pub const BEGUN: &str = "begun.json";
/// Arguments of the process that began the run, as JSON.
pub const COMMAND: &str = "command.json";
/// The manifest, which marks the run as finished.
pub const MANIFEST: &str = "manifest.json";
/// Negative log-likelihoods token by token.
pub const TOKENS: &str = "tokens.csv";
/// Massive activations.
pub const MASSIVE: &str = "massive.csv";
/// Heads that were drawn or stored token by token.
pub const DRAWN: &str = "drawn.csv";
/// Heads of each model by the rankings that conditions use.
pub const RANKINGS: &str = "rankings.csv";
/// Texts with questions about them: one JSON object for each.
pub const CONTEXTS: &str = "contexts.jsonl";
/// Costs of heads.
pub const HEADS: &str = "heads.csv";
/// Generated texts: one JSON object per prompt, model and condition.
pub const GENERATIONS: &str = "generations.jsonl";

/// The folder of one run, the time at which the process opened it, and the lock against other processes.
///
/// The lock is on the journal. It is held from the first use of the journal until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    started: SystemTime,
    journal: Option<Arc<File>>,
}

impl RunFolder {
    /// Creates the folder `out`, or `runs/<command>-<UTC date>-<time>` if none is given.
    ///
    /// `out` must be new or empty; a generated name gets a suffix `.2`, `.3`, … if it is taken.
    ///
    /// # Errors
    /// A usage error if `out` is a file or not empty; an error if the folder cannot be created.
    pub fn create(out: Option<&Path>, command: &str) -> Result<Self> {
        let started = SystemTime::now();
        let path = match out {
            Some(path) => {
                check_new(path)?;
                fs::create_dir_all(path).with_context(|| format!("cannot create the run folder {}", path.display()))?;
                path.to_path_buf()
            }
            None => create_generated(Path::new(RUNS), command, started)?,
        };
        Ok(Self { path, started, journal: None })
    }

    /// Opens the folder of a run that is resumed.
    ///
    /// # Errors
    /// A usage error if the folder does not exist.
    pub fn reopen(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            bail_usage!("{}: no such run folder", path.display());
        }
        Ok(Self { path: path.to_path_buf(), started: SystemTime::now(), journal: None })
    }

    /// Creates an empty journal and locks it.
    pub fn create_journal(&mut self) -> Result<Arc<File>> {
        let path = self.join(CELLS);
        let file = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        self.lock(file)
    }

    /// Opens the journal for reading and writing and locks it.
    ///
    /// # Errors
    /// If there is no journal, or another process holds the lock.
    pub fn journal(&mut self) -> Result<Arc<File>> {
        if let Some(journal) = &self.journal {
            return Ok(journal.clone());
        }
        let file = files::open_to_change(&self.join(CELLS));
        self.lock(file.context("not the folder of a run that can be continued")?)
    }

    fn lock(&mut self, file: File) -> Result<Arc<File>> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("another process is writing into {}", self.path.display()),
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        Ok(self.journal.insert(Arc::new(file)).clone())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the folder.
    pub fn join(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// The arguments of the process that began the run, starting with the program name, or those of this process if
    /// the folder does not hold them.
    pub fn command(&self) -> Vec<String> {
        let saved = files::bytes(&self.join(COMMAND), files::CONFIG_MAX).ok();
        let saved = saved.and_then(|text| serde_json::from_slice(&text).ok());
        saved.unwrap_or_else(arguments)
    }

    /// Writes the arguments of this process to a file of the folder.
    pub fn save_command(&self) -> Result<()> {
        let text = format!("{}\n", serde_json::to_string(&arguments())?);
        files::replace(&self.join(COMMAND), |partial| Ok(fs::write(partial, text)?))
    }

    /// The start of the run, as in `2026-11-21T06:45:19Z`.
    pub fn started_utc(&self) -> String {
        let [year, month, day, hour, minute, second] = utc(self.started);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// The seconds since the start of the run.
    pub fn elapsed_s(&self) -> f64 {
        self.started.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64())
    }
}

/// Says of a folder that is not of a run what it is and how it is read; `None` if nothing tells.
pub(crate) fn other_kind(path: &Path) -> Option<String> {
    let shown = path.display();
    let quoted = quoted_path(path);
    if path.join(SPEC).is_file() {
        let spec = quoted_path(&path.join(SPEC));
        let summary = format!("`difftool train {spec} --out {quoted} --summary`");
        return Some(format!("{shown} holds models that difftool trained: {summary} shows how they learned"));
    }
    let is_model = path.join(CONFIG).is_file();
    is_model.then(|| format!("{shown} is the folder of a model: `difftool needle --model {quoted}` measures it"))
}

/// The spec in a folder of `difftool train`.
pub(crate) const SPEC: &str = "spec.toml";

/// Folder of the runs without a name.
const RUNS: &str = "runs";

/// Error about the folder of a run without a name.
const NAME_ONE: &str = "cannot create a run folder here; name one (--out)";

/// Checks, before anything is measured, that a run can have the folder `out`, or one with a generated name.
///
/// # Errors
/// A usage error if it is a file or holds files; an error if it cannot be written.
pub(crate) fn check_out(out: Option<&Path>) -> Result<()> {
    let Some(path) = out else { return files::check_writable(Path::new(RUNS)).context(NAME_ONE) };
    check_new(path)?;
    files::check_writable(path).with_context(|| format!("cannot create the run folder {}", path.display()))
}

/// Checks that the folder that the user names is new or empty.
///
/// # Errors
/// A usage error if it is a file or holds files.
fn check_new(path: &Path) -> Result<()> {
    let shown = path.display();
    let is_unfinished = path.join(EXPERIMENT).is_file() && path.join(CELLS).is_file() && !path.join(MANIFEST).exists();
    match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
        Ok(true) if is_unfinished => bail_usage!(
            "{shown} holds a run that is not finished: `difftool run --resume {}` continues it (a shard with its --shard); \
             for a new run name a new folder",
            quoted_path(path)
        ),
        Ok(true) => bail_usage!("{shown} already holds files; results are never overwritten: name a new folder"),
        Ok(false) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            bail_usage!("{shown} is a file, but the results need a folder: name a new one")
        }
        Err(e) => Err(e).with_context(|| format!("cannot use {shown} as the run folder")),
    }
}

/// Creates a folder under `parent` that is named after the command and the time.
fn create_generated(parent: &Path, command: &str, now: SystemTime) -> Result<PathBuf> {
    let [year, month, day, hour, minute, second] = utc(now);
    let name = format!("{command}-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
    fs::create_dir_all(parent).context(NAME_ONE)?;
    let suffixes = std::iter::once(String::new()).chain((2..).map(|i: u32| format!(".{i}")));
    for suffix in suffixes {
        let path = parent.join(format!("{name}{suffix}"));
        // create_dir fails on what exists: of two runs in the same second each gets its own folder.
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).context(NAME_ONE),
        }
    }
    unreachable!("the suffixes do not end")
}

/// Year, month, day, hour, minute and second of a time, in UTC.
///
/// Days to date as in Hinnant, "chrono-compatible low-level date algorithms" (`civil_from_days`): years begin in March,
/// so that the leap day is the last of its year, and repeat every 146,097 days, an era of 400 years.
fn utc(moment: SystemTime) -> [u64; 6] {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468; // since 0000-03-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    [year, month, day, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60]
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::exit_code;
    use std::time::Duration;

    fn moment(unix_s: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(unix_s)
    }

    #[test]
    fn moments_have_the_dates_of_the_calendar() {
        // GNU date: date -u -d @<seconds> '+%Y %m %d %H %M %S'
        assert_eq!(utc(moment(0)), [1970, 1, 1, 0, 0, 0]);
        assert_eq!(utc(moment(951_782_399)), [2000, 2, 28, 23, 59, 59]);
        assert_eq!(utc(moment(951_782_400)), [2000, 2, 29, 0, 0, 0]);
        assert_eq!(utc(moment(1_709_251_199)), [2024, 2, 29, 23, 59, 59]);
        assert_eq!(utc(moment(1_767_225_599)), [2025, 12, 31, 23, 59, 59]);
        assert_eq!(utc(moment(4_107_542_400)), [2100, 3, 1, 0, 0, 0]);
    }

    #[test]
    fn our_folders_are_named_after_command_and_time_and_numbered_when_taken() {
        let home = tempfile::tempdir().unwrap();
        let runs = home.path().join("runs");
        let names = ["needle-20240229-235959", "needle-20240229-235959.2", "needle-20240229-235959.3"];
        for name in names {
            assert_eq!(create_generated(&runs, "needle", moment(1_709_251_199)).unwrap(), runs.join(name));
        }
    }

    #[test]
    fn a_folder_the_user_names_is_made_with_its_parents() {
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("a/b/c");
        let run = RunFolder::create(Some(&out), "needle").unwrap();
        assert!(run.path().is_dir() && run.join("results.csv") == out.join("results.csv"));
        // It is still empty, so it may be named again.
        RunFolder::create(Some(&out), "needle").unwrap();
    }

    #[test]
    fn a_folder_with_files_and_a_file_are_refused_with_advice() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("notes.txt");
        fs::write(&file, "precious").unwrap();
        for (out, reason) in [(home.path(), "already holds files"), (&file, "is a file")] {
            let error = RunFolder::create(Some(out), "needle").unwrap_err();
            assert!(error.to_string().contains(reason), "{error:#}");
            assert_eq!(exit_code(&error), 2);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn an_unfinished_run_is_refused_with_the_command_that_goes_on() {
        let home = tempfile::tempdir().unwrap();
        for file in [EXPERIMENT, CELLS] {
            fs::write(home.path().join(file), "").unwrap();
        }
        let refused = check_out(Some(home.path())).unwrap_err().to_string();
        assert!(refused.contains(&format!("`difftool run --resume {}`", home.path().display())), "{refused}");
        fs::write(home.path().join(MANIFEST), "").unwrap();
        assert!(check_out(Some(home.path())).unwrap_err().to_string().contains("already holds files"));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_one_clear_line() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let nowhere = Some(Path::new("/proc/difftool/run"));
        for error in [RunFolder::create(nowhere, "needle").unwrap_err(), check_out(nowhere).unwrap_err()] {
            assert_eq!(exit_code(&error), 1);
            assert!(format!("{error:#}").starts_with("cannot create the run folder /proc/difftool/run: "), "{error:#}");
        }
        let error = create_generated(&file, "needle", moment(0)).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot create a run folder here; name one (--out): "), "{error:#}");
    }

    #[test]
    fn the_start_is_written_as_iso_8601() {
        let run = RunFolder { path: PathBuf::new(), started: moment(1_709_251_199), journal: None };
        assert_eq!(run.started_utc(), "2024-02-29T23:59:59Z");
    }
}
