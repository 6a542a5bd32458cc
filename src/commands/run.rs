//! `difftool run` and `difftool merge`.

use super::command::{Action, Command};
use super::execute::{execute, print_experiment};
use super::experiment::Experiment;
use super::shared::{all_in_short_help, OutputArgs, PartArgs};
use super::{start_threads, wrong_command_error};
use crate::results::folder::EXPERIMENT;
use crate::results::table::plural;
use crate::run::{possible_series, RunPart, RunShard, RunStart, Series};
use crate::train::TrainSpec;
use anyhow::Result;
use base::bail_usage;
use base::memory::{peak_rss_bytes, size_name};
use base::terminal::escaped;
use clap::{Args, FromArgMatches as _};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;

pub(super) static RUN: Command = Command {
    name: "run",
    about: "Run an experiment file",
    examples: &[
        ("Write the experiment file of a command", "difftool needle --ctx 1k --print-experiment > exp.toml"),
        ("Run one of eight shards", "difftool run exp.toml --shard 1/8 --out shards/1"),
    ],
    defaults: None,
    flags: |command| all_in_short_help(Run::augment_args(command)),
    action: Action::Other(|typed| run(&Run::from_arg_matches(typed)?)),
};

pub(super) static MERGE: Command = Command {
    name: "merge",
    about: "Merge the shards of an experiment into one run",
    examples: &[("Merge shards", "difftool merge shards/0 shards/1 --out runs/whole")],
    defaults: None,
    flags: |command| all_in_short_help(Merge::augment_args(command)),
    action: Action::Other(|typed| merge(&Merge::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Experiment, a TOML file as printed by --print-experiment [default with --resume: that of the folder]
    #[arg(required_unless_present = "resume", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Load and check everything, without running it
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub part: PartArgs,
}

#[derive(Debug, Args)]
pub(super) struct Merge {
    /// Run folders of all shards of one experiment, in any order
    #[arg(required = true, value_name = "DIR")]
    pub shards: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Runs an experiment file.
fn run(args: &Run) -> Result<()> {
    let experiment = match (&args.file, &args.part.resume) {
        (Some(file), _) => {
            Experiment::read(file).map_err(|error| wrong_command_error("train", file, TrainSpec::read, error))?
        }
        (None, Some(folder)) => Experiment::read(&folder.join(EXPERIMENT))?,
        (None, None) => bail_usage!("name an experiment file"),
    };
    if args.part.print_experiment {
        print_experiment(experiment)
    } else if args.dry_run {
        dry_run(experiment, &args.output, args.part.shard)
    } else {
        execute(experiment, &args.output, args.part.of_run(&args.output)?)
    }
}

/// Merges shards.
fn merge(args: &Merge) -> Result<()> {
    let Some(first) = args.shards.first() else { bail_usage!("name the folders of the shards") };
    if let Some(other) = args.shards.iter().find(|shard| !shard.join(EXPERIMENT).is_file()) {
        bail_usage!("{}: it holds no shard; name the folders that runs with --shard wrote (--out)", other.display());
    }
    let experiment = Experiment::read(&first.join(EXPERIMENT))?;
    let start = RunStart::Merge(args.shards.clone(), args.output.out.clone());
    execute(experiment, &args.output, RunPart { start, shard: None })
}

/// Loads and checks an experiment, without running it.
fn dry_run(mut experiment: Experiment, output: &OutputArgs, shard: Option<RunShard>) -> Result<()> {
    start_threads(output.threads)?;
    let (series, _) = possible_series(experiment.setups()?, shard)?;
    let prompts: usize = series.iter().map(Series::count).sum();
    let passes = series.iter().map(|series| series.pass_bytes).max().unwrap_or(0);
    let needed = passes + peak_rss_bytes().unwrap_or(0);
    let names: Vec<&str> = series[0].setup.models.iter().map(|model| model.name.as_str()).collect();
    let mut out = base::terminal::stdout();
    let conditions = series.iter().map(|series| series.setup.conditions.len()).max().unwrap_or(1);
    if output.tables.json {
        let plan = json!({ "prompts": prompts, "models": names, "conditions": conditions, "memory_bytes": needed });
        writeln!(out, "{plan:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "can run: {} on {} under {}; weights and passes take up to {} of memory",
        plural(prompts, "prompt"),
        escaped(&names.join(", ")),
        plural(conditions, "condition"),
        size_name(needed)
    )?;
    Ok(())
}
