//! One thin file per subcommand: options -> library -> presentation. Only this module and `main` print.

mod ablate;
mod allocation;
mod beat;
mod compare;
mod downloads;
mod execute;
mod experiment;
mod explore;
mod flags;
mod heads;
mod heatmap;
mod inspect;
mod manual;
mod needle;
mod nll;
mod outliers;
mod progress;
mod prompt;
mod quantize;
mod ratio;
mod report;
mod session;
mod shots;
mod train;

use crate::bail_usage;
use crate::cli::{Cli, Command};
use crate::error::Usage;
use anyhow::{Context, Error, Result};
pub use manual::command_line;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the chosen subcommand.
///
/// # Errors
/// Whatever it meets; see [`crate::error`] for exit codes.
pub fn run(cli: Cli) -> Result<()> {
    check_environment()?;
    // Files have fields, and flags are spoken of only to those who typed some.
    crate::hub::show_downloads(downloads::bar);
    let is_file = matches!(cli.command, Command::Run(_) | Command::Merge(_));
    let name: &str = (&cli.command).into();
    dispatch(cli.command).map_err(|error| match command_line().find_subcommand(name) {
        Some(command) if !is_file => flags::in_flags(error, command),
        _ => error,
    })
}

fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Needle(args) => execute::preset(needle::experiment(&args)?, &args.run.output, &args.part),
        Command::Shots(args) => execute::preset(shots::experiment(&args)?, &args.run.output, &args.part),
        Command::Ratio(args) => execute::preset(ratio::experiment(&args)?, &args.run.output, &args.part),
        Command::Heads(args) => execute::preset(heads::experiment(&args)?, &args.run.output, &args.part),
        Command::Heatmap(args) => execute::preset(heatmap::experiment(&args)?, &args.run.output, &args.prompt.part()),
        Command::Explore(args) => execute::preset(explore::experiment(&args)?, &args.run.output, &args.prompt.part()),
        Command::Quantize(args) => execute::preset(quantize::experiment(&args)?, &args.run.output, &args.part),
        Command::Ablate(args) => execute::preset(ablate::experiment(&args)?, &args.run.output, &args.part),
        Command::Outliers(args) => execute::preset(outliers::experiment(&args)?, &args.run.output, &args.part),
        Command::Nll(args) => execute::preset(nll::experiment(&args)?, &args.output, &args.part),
        Command::Run(args) => experiment::run(&args),
        Command::Merge(args) => experiment::merge(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Prompt(args) => prompt::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    }
}

/// What is wrong with a file, or the command that takes what it is.
fn or_taken_by<T>(command: &str, file: &Path, read: fn(&Path) -> Result<T>, error: Error) -> Error {
    // What is not a file, a pipe, can be read only once.
    if file.is_file() && read(file).is_ok() {
        return Usage(format!("{0} is for `difftool {command} {0}`", file.display())).into();
    }
    error
}

/// More threads than any machine has.
const MOST_THREADS: usize = 4096;

/// What rayon reads if no number of threads is asked for.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// Refuses a number of threads in the environment that no machine has: rayon would panic wherever it is first used.
fn check_environment() -> Result<()> {
    let threads = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(threads) = threads.filter(|&threads| threads > MOST_THREADS) {
        bail_usage!("{THREADS_VARIABLE} is {threads}: at most {MOST_THREADS}");
    }
    Ok(())
}

/// Starts the threads of the kernels: as many as asked for, or as the machine has.
///
/// # Errors
/// A usage error if they are more than any machine has; if the system refuses to start them.
fn start_threads(threads: Option<NonZeroUsize>) -> Result<()> {
    let builder = match threads {
        Some(threads) if threads.get() > MOST_THREADS => bail_usage!("--threads {threads}: at most {MOST_THREADS}"),
        Some(threads) => rayon::ThreadPoolBuilder::new().num_threads(threads.get()),
        None => rayon::ThreadPoolBuilder::new(),
    };
    builder.build_global().context("cannot start the threads; ask for fewer with --threads or RAYON_NUM_THREADS")
}

/// Signals that come so soon after the first are the same one: `timeout` sends it to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// A flag that the first Ctrl-C sets, or the SIGTERM that schedulers send, or the SIGHUP of a terminal that closes; the
/// second ends the process at once.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let mut first: Option<Instant> = None;
    keeping_nohup(|| {
        ctrlc::set_handler(move || {
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL {
                std::process::exit(130);
            }
        })
        .context("cannot listen to signals")
    })?;
    Ok(stop)
}

/// Sets handlers of signals, but leaves SIGHUP ignored where it is, as under `nohup`.
#[cfg(unix)]
#[expect(unsafe_code, reason = "dispositions of signals are the system's")]
fn keeping_nohup(set: impl FnOnce() -> Result<()>) -> Result<()> {
    // SAFETY: sigaction is plain data, for which zeros are valid; the calls read and write it on this stack.
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
fn keeping_nohup(set: impl FnOnce() -> Result<()>) -> Result<()> {
    set()
}
