//! Executes an experiment: prepare, measure, print, draw, finish.

use super::command::{Command, Typed};
use super::experiment::Experiment;
use super::progress::{Preparation, ProgressReporter};
use super::report::{self, check_page};
use super::screens::print_tables;
use super::shared::OutputArgs;
use super::{start_threads, stop_on_signal};
use crate::figures::RunFigure;
use crate::results::folder::{check_out, BEGUN, CELLS, COMMAND, EXPERIMENT, RESULTS};
use crate::results::table::plural;
use crate::results::Frame;
use crate::run::{finished_frame, possible_series, Run, RunPart, RunStart, Setup, Setups};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::error::{is_usage, unless_broken_pipe, ExpectationFailed};
use base::terminal::quoted_path;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The command that opens a folder in a window.
const OPENER: &str = if cfg!(windows) {
    "explorer"
} else if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Executes a command with what was typed, or prints it as an experiment file with `--print-experiment`.
pub(super) fn execute_typed(command: &'static Command, typed: Typed) -> Result<()> {
    let Typed { flags, run, output, part } = typed;
    let experiment = Experiment::new(command, flags, run);
    if part.print_experiment {
        return print_experiment(experiment);
    }
    let part = part.of_run(&output)?;
    execute(experiment, &output, part)
}

/// Prints an experiment as a file for `difftool run`, with what was not given filled in.
pub(super) fn print_experiment(mut experiment: Experiment) -> Result<()> {
    let (plans, _) = experiment.plans()?;
    write!(base::terminal::stdout(), "{}", plans[0].origin.experiment)?;
    Ok(())
}

/// Executes an experiment.
///
/// # Errors
/// Usage errors before anything runs; afterwards errors of writing, an error if prompts failed, and [`ExpectationFailed`].
pub(super) fn execute(mut experiment: Experiment, output: &OutputArgs, mut part: RunPart) -> Result<()> {
    let started = Instant::now();
    let Some(setups) = load(&mut experiment, output, &mut part)? else { return Ok(()) };
    let preparation = Preparation::begin(output.quiet, setups.each.iter().find_map(Setup::measured_first));
    let (series, left_out) = possible_series(setups, part.shard)?;
    let mut run = Run::prepare(series, left_out, part, output.style())?;
    drop(preparation);
    // From here on there is a run that can be continued; before, a signal ends the process.
    let stop = stop_on_signal("the prompts in progress")?;
    measure(&mut run, &stop)?;
    // The records are on disk: an error from here on does not keep the other files from being written.
    let printed = print(&run, output);
    let drawn = draw(&run, &experiment);
    finish(&run, &experiment, output, started, printed.and(drawn))
}

/// Checks flags and files, and loads models and texts; `None` if the run to be resumed is finished.
fn load(experiment: &mut Experiment, output: &OutputArgs, part: &mut RunPart) -> Result<Option<Setups>> {
    if let Some(page) = &output.report {
        if part.shard.is_some() {
            bail_usage!("--report: a shard has no report; give --report to `difftool merge`");
        }
        check_page("--report", page)?;
    }
    start_threads(output.threads)?;
    let preparation = Preparation::begin(output.quiet, experiment.flags.measured_first());
    let (plans, models) = experiment.plans().map_err(|error| with_file(error, part))?;
    drop(preparation);
    if let Some((folder, frame)) = finished_frame(&plans[0], part)? {
        if !output.quiet {
            base::say!("the run in {} is finished: nothing to resume", folder.display());
        }
        write_report(output, &folder)?;
        if part.shard.is_none() {
            check_fail_if(experiment, &models.names, &frame)?;
        }
        return Ok(None);
    }
    if let RunStart::New(out) = &part.start {
        experiment.flags.check_output()?;
        check_out(out.as_deref())?;
    }
    let setups = models.into_opened().and_then(|opened| Setups::load(plans, opened));
    setups.map(Some).map_err(|error| with_file(error, part))
}

/// Says of a usage error of a run that is resumed or merged where its flags come from: their paths are those of the folder in which
/// it began.
fn with_file(error: anyhow::Error, part: &RunPart) -> anyhow::Error {
    let folder = match &part.start {
        RunStart::Resume(folder) => Some(folder.path()),
        RunStart::Merge(shards, _) => shards.first().map(PathBuf::as_path),
        RunStart::New(_) => None,
    };
    match folder.filter(|_| is_usage(&error)) {
        Some(folder) => {
            let file = folder.join(EXPERIMENT);
            error.context(format!("{}, whose paths are from the folder in which the run began", file.display()))
        }
        None => error,
    }
}

/// Measures what is left, with progress on stderr, until the end or a signal.
fn measure(run: &mut Run, stop: &AtomicBool) -> Result<()> {
    let mut progress = ProgressReporter::begin(run);
    let measured = run.measure(stop, &mut || progress.prompt_finished());
    progress.finish();
    measured?;
    if run.setup().plan.maps.is_some() && !run.is_complete() {
        return discard(run);
    }
    Ok(())
}

/// Removes the files of a stopped run on one prompt, which cannot be resumed.
fn discard(run: &Run) -> Result<()> {
    let folder = run.folder.path();
    for file in [RESULTS, CELLS, EXPERIMENT, BEGUN, COMMAND] {
        let _ = std::fs::remove_file(folder.join(file));
    }
    let _ = std::fs::remove_dir(folder);
    bail!("stopped before the map was complete; its files in {} are removed", folder.display())
}

/// Prints the screen of the run, or the tables that are asked for; nothing of a shard.
fn print(run: &Run, output: &OutputArgs) -> Result<()> {
    match run.part.shard {
        Some(_) => Ok(()),
        // If the reader of stdout has gone, the run may still have failed.
        None => unless_broken_pipe(print_tables(&run.frame, &output.tables)),
    }
}

/// Writes the figures and the tables that have files of their own, if the run is complete.
fn draw(run: &Run, experiment: &Experiment) -> Result<()> {
    if !run.is_complete() || run.part.shard.is_some() {
        return Ok(());
    }
    let figures = experiment.command.measuring().map_or(&[][..], |measuring| measuring.figures);
    let drawn = run.save_tables().and(draw_figures(run, figures)).and(experiment.flags.draw(run));
    drawn.map_err(|error| without_figures(error, run))
}

/// Draws those figures that the run has numbers for.
fn draw_figures(run: &Run, figures: &[RunFigure]) -> Result<()> {
    let caption = run.caption();
    for figure in figures {
        if let Some(drawn) = figure.draw(&run.frame, &caption, run.style.page)? {
            run.save_figure(&drawn, figure.file, figure.pooling)?;
        }
    }
    Ok(())
}

/// Says of an error that only figures and tables are incomplete, and how to make them again if a file could not be written.
fn without_figures(error: anyhow::Error, run: &Run) -> anyhow::Error {
    let incomplete = "the results are complete, but not their figures and tables";
    if !error.chain().any(|cause| cause.is::<std::io::Error>()) {
        return error.context(incomplete);
    }
    error.context(format!("{incomplete}; when they can be written, {}", run.way_on()))
}

/// Writes the manifest, which marks the run as finished, and the report, says where the results are, and checks what is
/// expected of them. Returns the error of printing or drawing if there is no other.
fn finish(run: &Run, experiment: &Experiment, output: &OutputArgs, started: Instant, so_far: Result<()>) -> Result<()> {
    if !run.is_complete() {
        bail!("stopped after {} of {} prompts; {}", run.finished(), run.prompts(), run.way_on());
    }
    run.write_manifest().with_context(|| run.way_on())?;
    let reported = write_report(output, run.folder.path());
    let failures = &run.frame.records.failures;
    if let Some(first) = failures.first() {
        bail!(
            "{} failed ({}: {}); see the error column of {}",
            plural(failures.len(), "prompt"),
            first.identity.model,
            first.measure.error.as_deref().unwrap_or("no reason given"),
            run.folder.join(RESULTS).display()
        );
    }
    if !output.quiet {
        say_where(run, started.elapsed());
    }
    if run.part.shard.is_none() {
        check_fail_if(experiment, &run.frame.models, &run.frame)?;
    }
    so_far.and(reported)
}

/// Writes the report of a finished run, if it is asked for.
fn write_report(output: &OutputArgs, folder: &Path) -> Result<()> {
    let Some(page) = &output.report else { return Ok(()) };
    report::write_run(folder, page, output.quiet).with_context(|| {
        let page = quoted_path(page);
        let folder = quoted_path(folder);
        format!("the results are complete; `difftool report {folder} -o {page}` makes their report again")
    })
}

/// Says where the results are, and how long the command took, with loading its models.
fn say_where(run: &Run, elapsed: Duration) {
    let path = run.folder.path().display();
    let seconds = elapsed.as_secs_f64();
    if let Some(shard) = run.part.shard {
        base::say!("shard {shard} is in {path} ({seconds:.0} s); `difftool merge` needs all of them");
        return;
    }
    if let Some(words) = run.other_words() {
        base::say!("{words}");
    }
    base::say!("results, manifest and figures in {path} ({seconds:.0} s)");
    let figures = run.figures();
    if !figures.is_empty() {
        base::say!("figures: {}; to see them: {OPENER} {}", figures.join(", "), quoted_path(run.folder.path()));
    }
}

/// Fails if a mean of a model meets a condition of `--fail-if`.
///
/// # Errors
/// [`ExpectationFailed`] with those that hold; a usage error if a model has no such number.
fn check_fail_if(experiment: &Experiment, models: &[String], frame: &Frame) -> Result<()> {
    let mut failures = Vec::new();
    for fail_if in &experiment.run.fail_if {
        for model in models.iter().filter(|&name| fail_if.model.as_ref().is_none_or(|model| model == name)) {
            match fail_if.mean(frame, model) {
                Some(mean) if fail_if.holds_for(mean) => {
                    failures.push(format!("'{fail_if}' holds for {model}: {mean:.4}"));
                }
                Some(_) => {}
                None => bail_usage!("--fail-if '{fail_if}': {model} has no such number"),
            }
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(ExpectationFailed(format!("--fail-if {}", failures.join("; "))).into()),
    }
}
