//! Executes an experiment: runs it, draws figures, writes the manifest, prints tables, and checks expectations.

use super::session::{RunOptions, RunResults, Session};
use super::start_threads;
use super::{ablate, explore, heads, heatmap, needle, nll, outliers, quantize, ratio, report, shots};
use crate::base::error::{unless_broken_pipe, ExpectationFailed};
use crate::cli::{OutputArgs, PartArgs};
use crate::results::folder::{
    CELLS, COMMAND, DRAWN, EXPERIMENT, GENERATIONS, HEADS, MASSIVE, RANKINGS, RESULTS, TOKENS,
};
use crate::results::print::{json, text, Tables};
use crate::results::record::Record;
use crate::results::view::each_head::head_rows;
use crate::results::{About, Frame};
use crate::run::{finished_records, Experiment, RunStart, Setup, Show};
use crate::treatments::purposes;
use anyhow::{bail, Context, Result};
use std::path::Path;

/// Executes the experiment of a command, or prints it with `--print-experiment`.
pub(super) fn preset(experiment: Experiment, output: &OutputArgs, part: &PartArgs) -> Result<()> {
    experiment.check()?;
    if part.print_experiment {
        return print_experiment(&experiment);
    }
    execute(experiment, RunOptions::new(output, part)?)
}

/// Prints an experiment as a file for `difftool run`.
pub(super) fn print_experiment(experiment: &Experiment) -> Result<()> {
    use std::io::Write as _;
    write!(crate::base::terminal::stdout(), "{}", experiment.to_toml()?)?;
    Ok(())
}

/// Executes an experiment.
///
/// # Errors
/// Usage errors before anything runs; afterwards errors of writing, an error if prompts failed, and [`ExpectationFailed`].
pub(super) fn execute(experiment: Experiment, mut options: RunOptions) -> Result<()> {
    if let Some(records) = finished_records(&experiment, &mut options.part)? {
        return check_finished_run(&experiment, &options, &records);
    }
    if let RunStart::New(_) = &options.part.start {
        heatmap::check_data(&experiment)?;
    }
    start_threads(options.output.threads)?;
    let setup = Setup::load(experiment)?;
    let (mut frame, mut measures) = (Frame::new(setup.about()), setup.measures()?);
    let mut session = Session::run(setup, options, &mut measures.list(), &mut |record| frame.add(record))?;
    let mut frame = frame.finish()?;
    if session.setup.experiment.show.is_of_maps() && !session.run.is_complete() {
        return discard(&session);
    }
    frame.purposes = purposes(frame.treated().iter().filter_map(|treated| treated.condition.as_deref()));
    (frame.tokens, frame.massive) = (session.setup.tokens(&measures), session.setup.massive(&measures));
    frame.drawn = session.setup.drawn_heads(&measures);
    let found = RunResults { frame, measures };
    let whole = session.shard.is_none();
    // The records are complete: an error from here on does not keep the other files from being written.
    let mut after_records = Ok(());
    if session.run.is_complete() {
        if whole {
            let pooled =
                write_pooled(&mut session, &found).context("the records are complete, but not the files beside them");
            let drawn = draw(&mut session, &found).context("the results are complete, but not their figures");
            after_records = pooled.and(drawn);
        }
        session.run.outputs.write_manifest(&session.setup)?;
    }
    if whole {
        // If the reader of stdout has gone, the run may still have failed.
        unless_broken_pipe(print(&found.frame, &session.output))?;
    }
    if session.run.is_complete() {
        let folder = session.run.outputs.folder().path();
        after_records = after_records.and(write_report(&session.output, folder));
    }
    session.conclude()?;
    if whole {
        check_expectations(&session.setup.experiment, &found.frame, session.output.quiet)?;
    }
    after_records
}

/// Writes the report of a finished run, if it is asked for.
fn write_report(output: &OutputArgs, folder: &Path) -> Result<()> {
    let Some(page) = &output.report else { return Ok(()) };
    report::write_run(folder, page, output.quiet).context("the results are complete, but not their report")
}

/// Removes the files of a stopped run on one prompt, which cannot be resumed.
fn discard(session: &Session) -> Result<()> {
    let folder = session.run.outputs.folder().path();
    for file in [RESULTS, CELLS, EXPERIMENT, COMMAND] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
    bail!("stopped before the map was complete; its files in {} are removed", folder.display())
}

/// Writes the pooled data that have their own files.
fn write_pooled(session: &mut Session, found: &RunResults) -> Result<()> {
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
    let costs = head_rows(frame);
    if !costs.is_empty() {
        outputs.save_table(HEADS, &costs)?;
    }
    if !frame.tokens.0.is_empty() {
        frame.tokens.write(&outputs.add_file(TOKENS, Some(frame.tokens.count() as u64)))?;
    }
    Ok(())
}

/// Prints the tables, or all of them as JSON.
fn print(frame: &Frame, output: &OutputArgs) -> Result<()> {
    use std::io::Write as _;
    let mut out = crate::base::terminal::stdout();
    if output.json {
        writeln!(out, "{:#}", json(frame))?;
    } else {
        write!(out, "{}", text(frame, output.tables.as_ref().unwrap_or(&Tables::Main))?)?;
    }
    Ok(())
}

/// Draws the figures of a finished run.
fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    match session.setup.experiment.show {
        Show::Needle => needle::draw(session, found),
        Show::Shots => shots::draw(session, found),
        Show::Ratio => ratio::draw(session, found),
        Show::Heads => heads::draw(session, found),
        Show::Quantize => quantize::draw(session, found),
        Show::Ablate => ablate::draw(session, found),
        Show::Outliers => outliers::draw(session, found),
        Show::Nll => nll::draw(session, found),
        Show::Heatmap => heatmap::draw(session, found),
        Show::Explore => explore::draw(session, found),
    }
}

/// Checks the expectations of a run that is already finished.
fn check_finished_run(experiment: &Experiment, options: &RunOptions, records: &[Record]) -> Result<()> {
    if let RunStart::Resume(folder) = &options.part.start {
        if !options.output.quiet {
            crate::say!("the run in {} is finished: nothing to resume", folder.path().display());
        }
        write_report(&options.output, folder.path())?;
    }
    if options.part.shard.is_some() || experiment.expect.is_empty() {
        return Ok(());
    }
    check_expectations(experiment, &Frame::of(About::default(), records)?, options.output.quiet)
}

/// Checks the expectations and prints the results to stderr.
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
        unmet => Err(ExpectationFailed(format!("expectations not met: {}", unmet.join("; "))).into()),
    }
}
