//! Executes an experiment: runs it, draws figures, writes the manifest, prints tables, and checks expectations.

use super::command::{Command, Typed};
use super::experiment::Experiment;
use super::report::{self, check_page};
use super::screens::print_tables;
use super::session::{RunResults, Session};
use super::shared::OutputArgs;
use super::start_threads;
use crate::bail_usage;
use crate::base::error::{unless_broken_pipe, ExpectationFailed};
use crate::measures::GenerationMeasure;
use crate::results::folder::{
    check_out, CELLS, COMMAND, DRAWN, EXPERIMENT, GENERATIONS, HEADS, MANIFEST, MASSIVE, RANKINGS, RESULTS, TOKENS,
};
use crate::results::view::each_head::head_rows;
use crate::results::{ConditionKey, Frame};
use crate::run::{finished_frame, RunPart, RunStart, Setup};
use crate::treatments::condition_facts;
use anyhow::{bail, Context, Result};
use std::io::Write as _;
use std::path::Path;

/// Executes a command with what was typed, or prints it as an experiment file with `--print-experiment`.
pub(super) fn execute_typed(command: &'static Command, typed: Typed) -> Result<()> {
    let Typed { flags, run, output, part } = typed;
    let experiment = Experiment::new(command, flags, run);
    if part.print_experiment {
        return print_experiment(experiment);
    }
    let part = part.of_run(&output)?;
    execute(experiment, output, part)
}

/// Prints an experiment as a file for `difftool run`, with what was not given filled in.
pub(super) fn print_experiment(mut experiment: Experiment) -> Result<()> {
    let (plan, _) = experiment.plan()?;
    write!(crate::base::terminal::stdout(), "{}", plan.experiment)?;
    Ok(())
}

/// Executes an experiment.
///
/// # Errors
/// Usage errors before anything runs; afterwards errors of writing, an error if prompts failed, and [`ExpectationFailed`].
pub(super) fn execute(mut experiment: Experiment, output: OutputArgs, mut part: RunPart) -> Result<()> {
    if let Some(page) = &output.report {
        if part.shard.is_some() {
            bail_usage!("--report: a shard has no report; give --report to `difftool merge`");
        }
        check_page("--report", page)?;
    }
    let (plan, models) = experiment.plan()?;
    if let Some((folder, frame)) = finished_frame(&plan, &mut part)? {
        if !output.quiet {
            crate::say!("the run in {} is finished: nothing to resume", folder.display());
        }
        write_report(&output, &folder)?;
        return if part.shard.is_some() { Ok(()) } else { check_fail_if(&experiment, &models.names, &frame) };
    }
    let flags = &experiment.flags;
    if let RunStart::New(out) = &part.start {
        flags.check_output()?;
        check_out(out.as_deref())?;
    }
    start_threads(output.threads)?;
    let setup = Setup::load(plan, models.into_opened()?)?;
    let (mut frame, mut measures) = (Frame::new(setup.about()), setup.measures()?);
    let mut session = Session::run(setup, output, part, &mut measures.list(), &mut |record| frame.add(record))?;
    let mut frame = frame.finish();
    if session.setup.plan.maps.is_some() && !session.run.is_complete() {
        return discard(&session);
    }
    frame.conditions = condition_facts(frame.treated.iter().map(ConditionKey::name));
    (frame.tokens, frame.massive) = (session.setup.tokens(&measures), session.setup.massive(&measures));
    frame.drawn = session.setup.drawn_heads(&measures);
    let results = RunResults { frame, measures };
    let whole = session.run.part.shard.is_none();
    // The records are complete: an error from here on does not keep the other files from being written.
    let mut after_records = Ok(());
    if session.run.is_complete() {
        if whole {
            let others = write_pooled(&mut session, &results);
            after_records = others.and(flags.draw(&mut session, &results));
        }
        let way_on = session.setup.plan.way_on(session.run.folder.path(), session.run.part.shard);
        after_records = after_records.map_err(|error| without_figures(error, &session, &way_on));
        session.run.write_manifest(&session.setup).context(way_on)?;
    }
    if whole {
        // If the reader of stdout has gone, the run may still have failed.
        unless_broken_pipe(print_tables(&results.frame, &session.output.tables))?;
    }
    if session.run.is_complete() {
        after_records = after_records.and(write_report(&session.output, session.run.folder.path()));
    }
    session.conclude()?;
    if whole {
        check_fail_if(&experiment, &results.frame.models, &results.frame)?;
    }
    after_records
}

/// Says of an error that only figures and tables are incomplete, and how to make them again if a file could not be written.
fn without_figures(error: anyhow::Error, session: &Session, way_on: &str) -> anyhow::Error {
    let incomplete = "the results are complete, but not their figures and tables";
    if !error.chain().any(|cause| cause.is::<std::io::Error>()) {
        return error.context(incomplete);
    }
    let manifest = session.run.folder.join(MANIFEST);
    error.context(match session.setup.plan.maps {
        Some(_) => format!("{incomplete}; when they can be written, {way_on}"),
        None => format!("{incomplete}; when they can be written, remove {} and {way_on}", manifest.display()),
    })
}

/// Writes the report of a finished run, if it is asked for.
fn write_report(output: &OutputArgs, folder: &Path) -> Result<()> {
    let Some(page) = &output.report else { return Ok(()) };
    report::write_run(folder, page, output.quiet).with_context(|| {
        let (folder, page) = (folder.display(), page.display());
        format!("the results are complete; `difftool report {folder} -o {page}` makes their report again")
    })
}

/// Removes the files of a stopped run on one prompt, which cannot be resumed.
fn discard(session: &Session) -> Result<()> {
    let folder = session.run.folder.path();
    for file in [RESULTS, CELLS, EXPERIMENT, COMMAND] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
    bail!("stopped before the map was complete; its files in {} are removed", folder.display())
}

/// Writes the pooled data that have their own files.
fn write_pooled(session: &mut Session, results: &RunResults) -> Result<()> {
    let (frame, outputs) = (&results.frame, &mut session.run);
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

/// Fails if a mean of a model meets a condition of `--fail-if`, or was not measured.
fn check_fail_if(experiment: &Experiment, models: &[String], frame: &Frame) -> Result<()> {
    let mut failures = Vec::new();
    for fail_if in &experiment.run.fail_if {
        for model in models.iter().filter(|&name| fail_if.model.as_ref().is_none_or(|model| model == name)) {
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
