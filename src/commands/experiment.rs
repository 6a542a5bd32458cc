//! `difftool run` and `difftool merge`.

use super::execute::{execute, print_experiment};
use super::session::RunOptions;
use super::{start_threads, wrong_command_error};
use crate::bail_usage;
use crate::base::terminal::escaped;
use crate::cli::{ExperimentArgs, MergeArgs};
use crate::results::folder::EXPERIMENT;
use crate::results::table::plural;
use crate::run::{cells_of, Experiment, RunPart, RunStart, Setup};
use crate::train::TrainSpec;
use anyhow::Result;
use serde_json::json;
use std::io::Write as _;

/// Runs an experiment file.
pub(super) fn run(args: &ExperimentArgs) -> Result<()> {
    let experiment = match (&args.file, &args.part.resume) {
        (Some(file), _) => {
            Experiment::read(file).map_err(|error| wrong_command_error("train", file, TrainSpec::read, error))?
        }
        (None, Some(folder)) => Experiment::read(&folder.join(EXPERIMENT))?,
        (None, None) => bail_usage!("name an experiment file"),
    };
    let options = RunOptions::new(&args.output, &args.part)?;
    if args.part.print_experiment {
        print_experiment(&experiment)
    } else if args.dry_run {
        dry_run(experiment, &options)
    } else {
        execute(experiment, options)
    }
}

/// Merges shards.
pub(super) fn merge(args: &MergeArgs) -> Result<()> {
    let Some(first) = args.shards.first() else { bail_usage!("name the folders of the shards") };
    let experiment = Experiment::read(&first.join(EXPERIMENT))?;
    let start = RunStart::Merge(args.shards.clone(), args.output.out.clone());
    execute(experiment, RunOptions::of(&args.output, RunPart { start, shard: None })?)
}

/// Loads and checks an experiment, without running it.
fn dry_run(experiment: Experiment, options: &RunOptions) -> Result<()> {
    start_threads(options.output.threads)?;
    let setup = Setup::load(experiment)?;
    let cells = cells_of(setup.grid.cells(), options.part.shard);
    setup.measures()?;
    setup.check(&cells)?;
    let cells = cells.len();
    let names: Vec<&str> = setup.models.iter().map(|model| model.name.as_str()).collect();
    let mut out = crate::base::terminal::stdout();
    let conditions = setup.conditions.len();
    if options.output.json {
        let plan = json!({ "cells": cells, "models": names, "conditions": conditions });
        writeln!(out, "{plan:#}")?;
        return Ok(());
    }
    writeln!(
        out,
        "can run: {} on {} under {}",
        plural(cells, "prompt"),
        escaped(&names.join(", ")),
        plural(conditions, "condition")
    )?;
    Ok(())
}
