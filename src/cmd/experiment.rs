//! `difftool run` and `difftool merge`.

use super::execute::{execute, print_experiment};
use super::session::RunOptions;
use super::{start_threads, wrong_command_error};
use crate::bail_usage;
use crate::cli::{ExperimentArgs, MergeArgs};
use crate::experiment::{cells_of, CellSpec, Experiment, RunPart, RunStart, Setup};
use crate::prompt::CitySet;
use crate::runfolder::EXPERIMENT;
use crate::table::{left, plural, right, Table};
use crate::terminal::escaped;
use crate::train::TrainSpec;
use anyhow::Result;
use serde::Serialize;
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
    } else if args.list {
        list(experiment, &options)
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
    let mut out = crate::terminal::stdout();
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

/// The prompts of one kind.
#[derive(Serialize)]
struct PromptKind {
    /// Numbers of the first and the last prompt.
    first: u64,
    last: u64,
    spec: CellSpec,
}

/// Lists the prompts by kind.
fn list(experiment: Experiment, options: &RunOptions) -> Result<()> {
    start_threads(options.output.threads)?;
    let setup = Setup::load(experiment)?;
    let mut cells = cells_of(setup.grid.cells(), options.part.shard);
    setup.check(&cells)?;
    if cells.is_empty() {
        bail_usage!("no prompt belongs to this shard");
    }
    cells.sort_by_key(|cell| cell.index);
    let kinds: Vec<PromptKind> = cells
        .chunk_by(|a, b| a.spec == b.spec)
        .map(|alike| PromptKind {
            first: alike[0].index,
            last: alike[alike.len() - 1].index,
            spec: alike[0].spec.clone(),
        })
        .collect();
    let mut out = crate::terminal::stdout();
    if options.output.json {
        let plan = json!({ "prompts": kinds, "cells": cells.len() });
        writeln!(out, "{plan:#}")?;
        return Ok(());
    }
    writeln!(out, "{}", table(&kinds))?;
    writeln!(out, "\n{}", plural(cells.len(), "prompt"))?;
    Ok(())
}

fn table(kinds: &[PromptKind]) -> Table {
    let [tokens, needles, retrieve, depth] = ["tokens", "N", "R", "depth %"].map(right);
    let mut table = Table::new(&[left("prompts"), left("task"), tokens, needles, retrieve, depth, left("cities")]);
    for kind in kinds {
        let none = || "-".to_owned();
        let (task, ctx_tok, needles, retrieve, depth, cities) = match &kind.spec {
            CellSpec::Text(windows) => ("text".to_owned(), windows.ctx_tok, none(), none(), none(), "-"),
            CellSpec::Shots(spec) => {
                (spec.task(), spec.ctx_tok, spec.shots.to_string(), "1".to_owned(), none(), CitySet::Train.name())
            }
            CellSpec::Needle(spec) => {
                let cities = if spec.names_cities() { spec.cities.name() } else { "-" };
                let depth = format!("{:.0}", spec.depth_pct);
                let (needles, retrieve) = (spec.needles.to_string(), spec.retrieve.to_string());
                (spec.form.name(), spec.ctx_tok, needles, retrieve, depth, cities)
            }
        };
        let prompts = format!("{}-{}", kind.first, kind.last);
        table.row([prompts, task, ctx_tok.to_string(), needles, retrieve, depth, cities.to_owned()]);
    }
    table
}
