//! One experiment from beginning to end, whatever it shows: run, draw, write the manifest, print, compare with what was
//! expected.

use super::session::{How, Session};
use super::{heads, needle, nll, outliers, quantize, ratio};
use crate::cli::{OutputArgs, PartArgs};
use crate::error::{unless_broken_pipe, Unmet};
use crate::experiment::{finished, Experiment, Setup, Show, Start};
use crate::measure::Measures;
use crate::record::Record;
use crate::summary::Summary;
use anyhow::{Context, Result};

/// What models said by themselves: one JSON object per prompt and model.
const GENERATIONS: &str = "generations.jsonl";

/// Runs a preset, or prints it.
///
/// # Errors
/// As [`execute`].
pub(super) fn preset(experiment: Experiment, output: &OutputArgs, part: &PartArgs) -> Result<()> {
    if part.print_experiment {
        return print_experiment(&experiment);
    }
    execute(experiment, How::new(output, part))
}

/// Prints an experiment as the file that reproduces it.
pub(super) fn print_experiment(experiment: &Experiment) -> Result<()> {
    use std::io::Write as _;
    write!(crate::terminal::stdout(), "{}", experiment.to_toml()?)?;
    Ok(())
}

/// Runs an experiment and shows it.
///
/// # Errors
/// Usage errors before anything runs; afterwards what cannot be written, prompts that failed, and [`Unmet`] expectations.
pub(super) fn execute(experiment: Experiment, how: How) -> Result<()> {
    if let Some(records) = finished(&experiment, &how.part)? {
        return look_again(&experiment, &how, &records);
    }
    let (draw, print) = presentation(experiment.show);
    how.start_threads()?;
    let setup = Setup::load(experiment)?;
    let Found { mut summary, mut measures } = Found::new(&setup)?;
    let mut session = Session::run(setup, how, &mut measures.list(), &mut |record| summary.add(record))?;
    let found = Found { summary, measures };
    let whole = session.shard.is_none();
    let mut drawn = Ok(());
    if session.run.is_complete() {
        if whole {
            if let Some(generation) = &found.measures.generation {
                session.run.outputs.save_lines(GENERATIONS, &generation.pooled)?;
            }
            drawn = draw(&mut session, &found);
        }
        session.run.outputs.write_manifest(&session.setup)?;
    }
    if whole {
        // Whoever has read enough of the tables still wants to know whether the run failed.
        unless_broken_pipe(print(&session, &found))?;
    }
    session.conclude()?;
    if whole {
        check_expectations(&session.setup.experiment, &found.summary, session.output.quiet)?;
    }
    drawn.context("the results are complete, but not their figures")
}

/// What was found, for tables and figures.
pub(super) struct Found {
    pub(super) summary: Summary,
    pub(super) measures: Measures,
}

impl Found {
    fn new(setup: &Setup) -> Result<Self> {
        let summary = match (setup.experiment.show, &setup.grid) {
            (Show::Ratio, grid) => Summary::with_heads(&[ratio::head_metric(grid)]),
            (Show::Heads, _) => Summary::with_heads(&heads::metrics()),
            _ => Summary::default(),
        };
        Ok(Self { summary, measures: setup.measures()? })
    }
}

/// Draws the figures of a finished run.
type Draw = fn(&mut Session, &Found) -> Result<()>;
/// Prints the tables.
type Print = fn(&Session, &Found) -> Result<()>;

/// How each kind of experiment is shown.
fn presentation(show: Show) -> (Draw, Print) {
    match show {
        Show::Needle => (needle::draw, needle::print),
        Show::Ratio => (ratio::draw, ratio::print),
        Show::Heads => (heads::draw, heads::print),
        Show::Quantize => (quantize::draw, quantize::print),
        Show::Outliers => (outliers::draw, outliers::print),
        Show::Nll => (nll::draw, nll::print),
        Show::Heatmap => unreachable!("maps are drawn by their own command"),
    }
}

/// What is left to do of a run that is finished: to look at its expectations.
fn look_again(experiment: &Experiment, how: &How, records: &[Record]) -> Result<()> {
    if let (Start::Resume(folder), false) = (&how.part.start, how.output.quiet) {
        crate::say!("the run in {} is finished: nothing to resume", folder.display());
    }
    if how.part.shard.is_some() || experiment.expect.is_empty() {
        return Ok(());
    }
    let mut summary = Summary::default();
    records.iter().for_each(|record| summary.add(record));
    check_expectations(experiment, &summary, how.output.quiet)
}

/// Says on stderr what became of the expectations.
fn check_expectations(experiment: &Experiment, summary: &Summary, quiet: bool) -> Result<()> {
    let mut unmet = Vec::new();
    for outcome in experiment.outcomes(summary) {
        let found = outcome.found.map_or("nothing was measured".to_owned(), |x| format!("found {x:.4}"));
        if !quiet {
            crate::say!("{} {}: {found}", if outcome.holds { "holds  " } else { "UNMET  " }, outcome.expected);
        }
        if !outcome.holds {
            unmet.push(format!("{}: {found}", outcome.expected));
        }
    }
    match unmet.as_slice() {
        [] => Ok(()),
        unmet => Err(Unmet(format!("expectations not met: {}", unmet.join("; "))).into()),
    }
}
