//! Executes an experiment: runs it, draws figures, writes the manifest, prints tables, and checks expectations.

use super::session::{RunOptions, RunResults, Session};
use super::shared::{Measured, MeasuredOnce, OutputArgs, PartArgs};
use super::spec::{Experiment, Spec};
use super::{report, start_threads};
use crate::base::error::{unless_broken_pipe, ExpectationFailed};
use crate::measures::GenerationMeasure;
use crate::results::folder::{
    CELLS, COMMAND, DRAWN, EXPERIMENT, GENERATIONS, HEADS, MASSIVE, RANKINGS, RESULTS, TOKENS,
};
use crate::results::print::{json, text, Tables};
use crate::results::record::Record;
use crate::results::view::each_head::head_rows;
use crate::results::{About, Frame};
use crate::run::{finished_records, RunStart, Setup};
use crate::treatments::purposes;
use anyhow::{bail, Context, Result};
use clap::Args;
use std::io::Write as _;
use std::path::Path;

impl<S: Args> Measured<S> {
    /// Executes the experiment of these flags, or prints it with `--print-experiment`.
    pub(super) fn execute(self, spec: fn(S) -> Spec) -> Result<()> {
        let Self { spec: flags, run, output, part } = self;
        let mut experiment = Experiment::new(spec(flags), run);
        if part.print_experiment {
            return print_experiment(&mut experiment);
        }
        execute(experiment, RunOptions::new(&output, &part)?)
    }
}

impl<S: Args> MeasuredOnce<S> {
    /// Like [`Measured::execute`].
    pub(super) fn execute(self, spec: fn(S) -> Spec) -> Result<()> {
        let Self { spec: flags, run, output, print_experiment } = self;
        let part = PartArgs { print_experiment, ..PartArgs::default() };
        Measured { spec: flags, run, output, part }.execute(spec)
    }
}

/// Prints an experiment as a file for `difftool run`, with what was not given filled in.
pub(super) fn print_experiment(experiment: &mut Experiment) -> Result<()> {
    let (plan, _) = experiment.plan()?;
    write!(crate::base::terminal::stdout(), "{}", plan.experiment)?;
    Ok(())
}

/// Executes an experiment.
///
/// # Errors
/// Usage errors before anything runs; afterwards errors of writing, an error if prompts failed, and [`ExpectationFailed`].
pub(super) fn execute(mut experiment: Experiment, mut options: RunOptions) -> Result<()> {
    let (plan, models) = experiment.plan()?;
    if let Some(records) = finished_records(&plan, &mut options.part)? {
        return check_finished_run(&experiment, &models.names, &options, &records);
    }
    let measuring = experiment.spec.measuring();
    if let RunStart::New(_) = &options.part.start {
        measuring.check_output()?;
    }
    start_threads(options.output.threads)?;
    let setup = Setup::load(plan, models.into_opened()?)?;
    let (mut frame, mut measures) = (Frame::new(setup.about()), setup.measures()?);
    let mut session = Session::run(setup, options, &mut measures.list(), &mut |record| frame.add(record))?;
    let mut frame = frame.finish()?;
    if session.setup.plan.maps.is_some() && !session.run.is_complete() {
        return discard(&session);
    }
    frame.purposes = purposes(frame.treated().iter().filter_map(|treated| treated.condition.as_deref()));
    (frame.tokens, frame.massive) = (session.setup.tokens(&measures), session.setup.massive(&measures));
    frame.drawn = session.setup.drawn_heads(&measures);
    let results = RunResults { frame, measures };
    let whole = session.shard.is_none();
    // The records are complete: an error from here on does not keep the other files from being written.
    let mut after_records = Ok(());
    if session.run.is_complete() {
        if whole {
            let pooled =
                write_pooled(&mut session, &results).context("the records are complete, but not the files beside them");
            let drawn =
                measuring.draw(&mut session, &results).context("the results are complete, but not their figures");
            after_records = pooled.and(drawn);
        }
        session.run.outputs.write_manifest(&session.setup)?;
    }
    if whole {
        // If the reader of stdout has gone, the run may still have failed.
        unless_broken_pipe(print(&results.frame, &session.output))?;
    }
    if session.run.is_complete() {
        let folder = session.run.outputs.folder().path();
        after_records = after_records.and(write_report(&session.output, folder));
    }
    session.conclude()?;
    if whole {
        check_fail_if(&experiment, results.frame.models(), &results.frame)?;
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
fn write_pooled(session: &mut Session, results: &RunResults) -> Result<()> {
    let (frame, outputs) = (&results.frame, &mut session.run.outputs);
    if let Some(generation) = results.measures.of_type::<GenerationMeasure>().next() {
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
    let mut out = crate::base::terminal::stdout();
    if output.json {
        writeln!(out, "{:#}", json(frame))?;
    } else {
        write!(out, "{}", text(frame, output.tables.as_ref().unwrap_or(&Tables::Main))?)?;
    }
    Ok(())
}

/// Checks the results of a run that is already finished.
fn check_finished_run(
    experiment: &Experiment,
    models: &[String],
    options: &RunOptions,
    records: &[Record],
) -> Result<()> {
    if let RunStart::Resume(folder) = &options.part.start {
        if !options.output.quiet {
            crate::say!("the run in {} is finished: nothing to resume", folder.path().display());
        }
        write_report(&options.output, folder.path())?;
    }
    if options.part.shard.is_some() || experiment.run.fail_if.is_empty() {
        return Ok(());
    }
    check_fail_if(experiment, models, &Frame::of(About::default(), records)?)
}

/// Fails if a mean of a model meets a condition of `--fail-if`, or was not measured.
fn check_fail_if(experiment: &Experiment, models: &[String], frame: &Frame) -> Result<()> {
    let mut failures = Vec::new();
    for fail_if in &experiment.run.fail_if {
        for model in models.iter().filter(|&name| fail_if.model().is_none_or(|model| model == name)) {
            match fail_if.mean(frame, model) {
                Some(mean) if fail_if.holds_for(mean) => {
                    failures.push(format!("'{fail_if}' holds for {model}: {mean:.4}"));
                }
                Some(_) => {}
                None => failures.push(format!("'{fail_if}': {model} has no such number")),
            }
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(ExpectationFailed(format!("--fail-if {}", failures.join("; "))).into()),
    }
}
