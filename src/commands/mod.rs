//! The subcommands, one file each: from options to the library to output. Only this module and `main` print.

mod ablate;
mod claims;
mod cli;
mod command;
mod compare;
mod context;
mod execute;
mod experiment;
mod explain;
mod explore;
mod heads;
mod heatmap;
mod hidden;
mod inspect;
mod measuring;
mod models;
mod needle;
mod nll;
mod outliers;
mod progress;
mod prompt;
mod quantize;
mod ratio;
mod report;
mod run;
mod screens;
mod shared;
mod shots;
mod show;
mod table_args;
mod train;

use crate::measures::MeasureName;
use crate::results::differences::DIFFERENCES;
use crate::results::run_table::RunTable;
use crate::train::tables::TABLES as TRAINING_TABLES;
use anyhow::{Context, Error, Result};
use base::bail_usage;
use base::error::Usage;
use clap::ArgMatches;
pub use cli::{command_line, with_tip};
use command::{Action, Command};
use execute::execute_typed;
pub use experiment::Experiment;
use names::hint;
use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strum::VariantArray as _;

/// All commands by what they are for, in the order of the help.
static GROUPS: [(&str, &[&Command]); 5] = [
    (
        "Ask models",
        &[
            &claims::CLAIMS_COMMAND,
            &needle::NEEDLE,
            &context::CONTEXT,
            &shots::SHOTS,
            &ratio::RATIO,
            &heads::HEADS,
            &heatmap::HEATMAP,
            &explore::EXPLORE,
            &quantize::QUANTIZE,
            &ablate::ABLATE,
            &outliers::OUTLIERS,
            &nll::NLL,
        ],
    ),
    ("Read results", &[&compare::COMPARE, &show::SHOW, &report::REPORT, &explain::EXPLAIN]),
    ("Run experiments", &[&run::RUN, &run::MERGE]),
    ("Models and prompts", &[&inspect::INSPECT, &prompt::PROMPT, &train::TRAIN]),
    ("Shell", &[&cli::COMPLETIONS, &cli::MAN]),
];

/// All commands, in the order of the help.
fn commands() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied())
}

/// The command of a name.
fn command(name: &str) -> Option<&'static Command> {
    commands().find(|command| command.name == name)
}

/// All tables of runs.
fn run_tables() -> impl Iterator<Item = &'static RunTable> {
    let of_commands = commands().filter_map(Command::measuring).flat_map(|measuring| measuring.tables);
    of_commands.copied().chain(of_all_runs())
}

/// The tables of conditions, of differences, and of measures.
fn of_all_runs() -> impl Iterator<Item = &'static RunTable> {
    let of_measures = MeasureName::VARIANTS.iter().flat_map(|measure| measure.tables());
    ablate::OF_CONDITIONS.iter().chain(&[&DIFFERENCES]).chain(of_measures).copied()
}

/// The names and titles of all tables, those of several commands several times.
fn named_tables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_training = TRAINING_TABLES.iter().map(|table| (table.id, table.title));
    run_tables().map(|table| (table.id, table.title)).chain(of_training)
}

/// The names of all tables.
fn table_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for (id, _) in named_tables() {
        if !names.contains(&id) {
            names.push(id);
        }
    }
    names
}

/// The table that is typed: its name, or the title that it is printed under.
fn table_name(typed: &str) -> Result<&'static str, String> {
    let found = named_tables().find(|(id, title)| *id == typed || title.eq_ignore_ascii_case(typed));
    found.map(|(id, _)| id).ok_or_else(|| {
        let ids = table_names();
        format!("there is no table `{typed}`{}; there are {}", hint(typed, ids.iter().copied()), ids.join(", "))
    })
}

/// Runs the command that was typed. See [`base::error`] for exit codes.
pub fn run(typed: &ArgMatches) -> Result<()> {
    check_environment()?;
    let (name, flags) = typed.subcommand().expect("the parser requires a command");
    let command = command(name).expect("the parser knows no others");
    match &command.action {
        Action::Measure(measuring) => execute_typed(command, (measuring.typed)(flags)?),
        Action::Other(run) => run(flags),
    }
}

/// The error of a file, or a usage error that names the command that the file is for.
fn wrong_command_error<T>(command: &str, file: &Path, read: fn(&Path) -> Result<T>, error: Error) -> Error {
    // A pipe cannot be read a second time.
    if file.is_file() && read(file).is_ok() {
        return Usage(format!("{0} is for `difftool {command} {0}`", file.display())).into();
    }
    match file.extension().is_some_and(|extension| extension == "csv") {
        true => error
            .context(format!("{} is no experiment, which is TOML; `difftool compare` reads tables", file.display())),
        false => error,
    }
}

/// Largest number of threads.
const MOST_THREADS: usize = 4096;

/// Variable from which rayon takes the default number of threads.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// Checks the number of threads in the environment, with which rayon would panic on first use if it is too large.
fn check_environment() -> Result<()> {
    let threads = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(threads) = threads.filter(|&threads| threads > MOST_THREADS) {
        bail_usage!("{THREADS_VARIABLE} is {threads}: at most {MOST_THREADS}");
    }
    Ok(())
}

/// Starts the threads of the kernels: the given number, or one for each core.
fn start_threads(threads: Option<NonZeroUsize>) -> Result<()> {
    let builder = match threads {
        Some(threads) => rayon::ThreadPoolBuilder::new().num_threads(threads.get()),
        None => rayon::ThreadPoolBuilder::new(),
    };
    builder.build_global().context("cannot start the threads; ask for fewer with --threads or RAYON_NUM_THREADS")
}

/// Time within which a second signal counts as the same one: `timeout` signals both the process and its group.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// A flag that the first SIGINT (Ctrl-C), SIGTERM or SIGHUP sets, which says what is still finished. The second signal
/// ends the process.
fn stop_on_signal(finished: &'static str) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let mut first: Option<Instant> = None;
    preserving_sighup(|| {
        ctrlc::set_handler(move || {
            if !flag.swap(true, std::sync::atomic::Ordering::Relaxed) {
                if std::io::stderr().is_terminal() {
                    base::say!(""); // below the bar
                }
                base::say!("stopping after {finished}; again: at once");
            }
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL {
                std::process::exit(130);
            }
        })
        .context("cannot listen to signals")
    })?;
    Ok(stop)
}

/// Sets signal handlers, but keeps SIGHUP ignored if it was, as under `nohup`.
#[cfg(unix)]
#[expect(unsafe_code, reason = "sigaction is a C function")]
fn preserving_sighup(set: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: all-zero bytes are a valid sigaction; the pointers are to a local variable or null.
    unsafe {
        let mut hangup: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut hangup);
        set()?;
        if hangup.sa_sigaction == libc::SIG_IGN {
            libc::sigaction(libc::SIGHUP, &hangup, std::ptr::null_mut());
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn preserving_sighup(set: impl FnOnce() -> Result<()>) -> Result<()> {
    set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_table_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = run_tables().map(|table| table.id).collect();
        // The maps of one prompt are listed by layer, or by head.
        assert_eq!(names.len() + 1, run_tables().count());
    }
}
