//! `difftool show`: the tables of a finished run, printed again.

use super::screens::{print_tables, TableArgs};
use super::shared::Examples;
use crate::report::SavedRun;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: Examples = &[
    ("What the run printed", "difftool show runs/readme"),
    ("All of its tables", "difftool show runs/readme --tables all"),
    ("One table for a paper", "difftool show runs/readme --tables answers --latex"),
];

#[derive(Debug, Args)]
pub struct Show {
    /// Run folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    #[command(flatten)]
    pub tables: TableArgs,
}

/// Prints the tables of a run folder.
///
/// # Errors
/// If it is none, or one of its files is not what the manifest describes.
pub(super) fn run(args: &Show) -> Result<()> {
    print_tables(&SavedRun::read(&args.run)?.frame, &args.tables)
}
