//! One experiment from beginning to end, whatever it shows: run, draw, write the manifest, print, compare with what was
//! expected.

use super::session::{How, Session, Start};
use super::{needle, nll, outliers, quantize, ratio};
use crate::bail_usage;
use crate::cli::{OutputArgs, PartArgs};
use crate::error::{unless_broken_pipe, Unmet};
use crate::experiment::{check_experiment, Experiment, Grid, Show, MANIFEST, RESULTS};
use crate::manifest::Manifest;
use crate::measure::Measures;
use crate::record;
use crate::summary::Summary;
use anyhow::{Context, Result};
use std::path::Path;

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
    write!(std::io::stdout().lock(), "{}", experiment.to_toml()?)?;
    Ok(())
}

/// Runs an experiment and shows it.
///
/// # Errors
/// Usage errors before anything runs; afterwards what cannot be written, prompts that failed, and [`Unmet`] expectations.
pub(super) fn execute(experiment: Experiment, how: How) -> Result<()> {
    if let Start::Resume(folder) = &how.start {
        check_experiment(folder, &experiment.to_toml()?)?;
        if folder.join(MANIFEST).exists() {
            return finished(&experiment, &how, folder);
        }
    }
    let (draw, print) = presentation(experiment.show);
    let mut session = Session::open(experiment, how)?;
    let mut found = Found::new(&session)?;
    session.measure(&mut found.measures.list(), &mut |record| found.summary.add(record))?;
    let whole = session.how.shard.is_none();
    let mut drawn = Ok(());
    if session.is_complete() {
        if whole {
            if let Some(generation) = &found.measures.generation {
                session.save_lines(GENERATIONS, &generation.pooled)?;
            }
            drawn = draw(&mut session, &found);
        }
        session.manifest()?;
    }
    if whole {
        // Whoever has read enough of the tables still wants to know whether the run failed.
        unless_broken_pipe(print(&session, &found))?;
    }
    session.conclude()?;
    if whole {
        check_expectations(&session.experiment, &found.summary, session.how.output.quiet)?;
    }
    drawn.context("the results are complete, but not their figures")
}

/// What was found, for tables and figures.
pub(super) struct Found {
    pub(super) summary: Summary,
    pub(super) measures: Measures,
}

impl Found {
    fn new(session: &Session) -> Result<Self> {
        let summary = match (session.experiment.show, &session.grid) {
            (Show::Ratio, Grid::Text(_)) => Summary::with_heads("share_abs", "bos"),
            (Show::Ratio, _) => Summary::with_heads("share_abs", "answer"),
            _ => Summary::default(),
        };
        Ok(Self { summary, measures: session.measures()? })
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
        Show::Quantize => (quantize::draw, quantize::print),
        Show::Outliers => (outliers::draw, outliers::print),
        Show::Nll => (nll::draw, nll::print),
        Show::Heatmap => unreachable!("maps are drawn by their own command"),
    }
}

/// What is left to do of a run that is finished: to look at its expectations.
fn finished(experiment: &Experiment, how: &How, folder: &Path) -> Result<()> {
    let manifest = Manifest::read(&folder.join(MANIFEST))?;
    let shard = how.shard.map(|shard| shard.to_string());
    if manifest.shard != shard {
        let name =
            |shard: &Option<String>| shard.as_ref().map_or("no shard".to_owned(), |shard| format!("shard {shard}"));
        bail_usage!("{} holds {}, {} is asked for", folder.display(), name(&manifest.shard), name(&shard));
    }
    if !how.output.quiet {
        eprintln!("the run in {} is finished: nothing to resume", folder.display());
    }
    let records = record::read(&folder.join(RESULTS))?;
    if let Some(error) = records.iter().find_map(|record| record.measure.error.as_deref()) {
        anyhow::bail!("prompts of the run in {} failed ({error}); run it anew", folder.display());
    }
    if shard.is_some() || experiment.expect.is_empty() {
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
            eprintln!("{} {}: {found}", if outcome.holds { "holds  " } else { "UNMET  " }, outcome.expected);
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
