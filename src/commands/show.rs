//! `difftool show`: the tables of a finished run, printed again.

use super::command::{Action, Command};
use super::screens::{print_tables, tables};
use super::table_args::{chosen, TableArgs};
use crate::report::SavedRun;
use crate::results::print::write_table;
use crate::results::record;
use crate::results::{About, Findings, Frame, FrameBuilder};
use anyhow::Result;
use base::bail_usage;
use clap::{Args, FromArgMatches as _};
use std::path::{Path, PathBuf};

pub(super) static SHOW: Command = Command {
    name: "show",
    about: "Print the tables of a finished run",
    examples: &[
        ("What the run printed", "difftool show runs/readme"),
        ("All of its tables", "difftool show runs/readme --tables all"),
        ("One table for a paper", "difftool show runs/readme --tables answers --latex"),
    ],
    defaults: None,
    flags: Show::augment_args,
    action: Action::Other(|typed| run(&Show::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Run folder, or a results file
    #[arg(value_name = "RUN|CSV")]
    pub run: PathBuf,
    #[command(flatten)]
    pub tables: TableArgs,
    /// Print the table that --tables names as CSV, with all digits
    #[arg(long, requires = "tables", conflicts_with_all = ["json", "latex"])]
    pub csv: bool,
}

/// Prints the tables of a run folder.
///
/// # Errors
/// If it is none, or one of its files is not what the manifest describes.
fn run(args: &Show) -> Result<()> {
    let frame = if args.run.is_file() { frame_of(&args.run)? } else { SavedRun::read(&args.run)?.frame };
    let Some(wanted) = args.tables.tables.as_ref().filter(|_| args.csv) else {
        return print_tables(&frame, &args.tables);
    };
    match chosen(tables(&frame), wanted)?.as_slice() {
        [table] => write_table(table, &mut base::terminal::stdout()),
        several => bail_usage!("--csv: a file holds one table; --tables names {}", several.len()),
    }
}

/// The numbers of a results file without its run folder.
fn frame_of(results: &Path) -> Result<Frame> {
    let mut frame = FrameBuilder::new(About::default());
    record::read_each(results, |record| frame.add(record))?;
    Ok(frame.finish(Findings::default()))
}
