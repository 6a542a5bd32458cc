//! One experiment from beginning to end, whatever it shows: run, draw, write the manifest, print, compare with what was
//! expected.

use super::session::{Gathered, How, Session};
use super::{ablate, explore, heads, heatmap, needle, nll, outliers, quantize, ratio, shots};
use crate::cli::{OutputArgs, PartArgs, RecordFormat};
use crate::error::{unless_broken_pipe, Unmet};
use crate::experiment::{finished, Experiment, Setup, Show, Start};
use crate::frame::{About, Frame};
use crate::record::Record;
use crate::runfolder::{CELLS, DRAWN, EXPERIMENT, GENERATIONS, MASSIVE, RANKINGS, RESULTS, TOKENS};
use crate::tables;
use anyhow::{bail, Context, Result};

/// Runs a preset, or prints it.
///
/// # Errors
/// Usage errors for what cannot be an experiment; as [`execute`].
pub(super) fn preset(experiment: Experiment, output: &OutputArgs, part: &PartArgs) -> Result<()> {
    experiment.check()?;
    if part.print_experiment {
        return print_experiment(&experiment);
    }
    execute(experiment, How::new(output, part)?)
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
    let draw = figures(experiment.show);
    if let Start::New(out) = &how.part.start {
        heatmap::check_data(&experiment, out.as_deref())?;
    }
    how.start_threads()?;
    let setup = Setup::load(experiment)?;
    let (mut frame, mut measures) = (Frame::new(setup.about()), setup.measures()?);
    let mut session = Session::run(setup, how, &mut measures.list(), &mut |record| frame.add(record))?;
    if session.setup.experiment.show.is_of_maps() && !session.run.is_complete() {
        return discard(&session);
    }
    (frame.tokens, frame.massive) = (session.setup.tokens(&measures), session.setup.massive(&measures));
    frame.drawn = session.setup.drawn_heads(&measures);
    let found = Gathered { frame, measures };
    let whole = session.shard.is_none();
    let mut drawn = Ok(());
    if session.run.is_complete() {
        if whole {
            write_pooled(&mut session, &found)?;
            drawn = draw(&mut session, &found);
            convert_records(&mut session)?;
        }
        session.run.outputs.write_manifest(&session.setup)?;
    }
    if whole {
        // Whoever has read enough of the tables still wants to know whether the run failed.
        unless_broken_pipe(print(&found.frame, session.output.json))?;
    }
    session.conclude()?;
    if whole {
        check_expectations(&session.setup.experiment, &found.frame, session.output.quiet)?;
    }
    drawn.context("the results are complete, but not their figures")
}

/// Leaves the records of a finished run in the format that was asked for.
fn convert_records(session: &mut Session) -> Result<()> {
    match session.output.records {
        RecordFormat::Csv => Ok(()),
        RecordFormat::Gzip => session.run.outputs.compress_results(),
        RecordFormat::Parquet => session.run.outputs.results_to_parquet(),
    }
}

/// Of one prompt there is all or nothing: a folder without its maps would only stand in the way of the next attempt.
fn discard(session: &Session) -> Result<()> {
    let folder = session.run.outputs.folder().path();
    for file in [RESULTS, CELLS, EXPERIMENT] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
    bail!("stopped before the map was there; nothing is left in {}", folder.display())
}

/// Writes what measures pooled and records have no columns for, as files of their own.
fn write_pooled(session: &mut Session, found: &Gathered) -> Result<()> {
    let (frame, outputs) = (&found.frame, &mut session.run.outputs);
    if let Some(generation) = &found.measures.generation {
        outputs.save_lines(GENERATIONS, &generation.pooled)?;
    }
    if !frame.massive.is_empty() {
        outputs.save_table(MASSIVE, &frame.massive)?;
    }
    if !frame.drawn.is_empty() {
        outputs.save_table(DRAWN, &frame.drawn)?;
    }
    let ranked = session.setup.ranked_heads()?;
    if !ranked.is_empty() {
        outputs.save_table(RANKINGS, &ranked)?;
    }
    if !frame.tokens.0.is_empty() {
        frame.tokens.write(&outputs.place(TOKENS, Some(frame.tokens.count() as u64)))?;
    }
    Ok(())
}

/// Prints the tables, or the same as JSON.
fn print(frame: &Frame, as_json: bool) -> Result<()> {
    use std::io::Write as _;
    let mut out = crate::terminal::stdout();
    if as_json {
        writeln!(out, "{:#}", tables::json(frame))?;
    } else {
        write!(out, "{}", tables::text(frame))?;
    }
    Ok(())
}

/// Draws the figures of a finished run.
type Draw = fn(&mut Session, &Gathered) -> Result<()>;

/// The figures of each kind of experiment.
fn figures(show: Show) -> Draw {
    match show {
        Show::Needle => needle::draw,
        Show::Shots => shots::draw,
        Show::Ratio => ratio::draw,
        Show::Heads => heads::draw,
        Show::Quantize => quantize::draw,
        Show::Ablate => ablate::draw,
        Show::Outliers => outliers::draw,
        Show::Nll => nll::draw,
        Show::Heatmap => heatmap::draw,
        Show::Explore => explore::draw,
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
    check_expectations(experiment, &Frame::of(About::default(), records), how.output.quiet)
}

/// Says on stderr what became of the expectations.
fn check_expectations(experiment: &Experiment, frame: &Frame, quiet: bool) -> Result<()> {
    let mut unmet = Vec::new();
    for outcome in experiment.outcomes(frame) {
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
