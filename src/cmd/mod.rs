//! One thin file per subcommand: options -> library -> presentation. Only this module and `main` print.

mod needle;
mod train;

use crate::cli::{Cli, Command};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

/// Runs the chosen subcommand.
///
/// # Errors
/// Whatever it meets; see [`crate::error`] for exit codes.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Needle(args) => needle::run(&args),
        Command::Train(args) => train::run(&args),
    }
}

/// A flag that the first Ctrl-C sets; the second ends the process at once.
fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, std::sync::atomic::Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    Ok(stop)
}

/// A bar on stderr with the time left; silent when stderr is not a terminal.
fn progress_bar(len: usize, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} prompts, {eta} left").expect("a valid template");
    ProgressBar::with_draw_target(Some(len as u64), target).with_style(style)
}
