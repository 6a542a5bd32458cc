//! `difftool train`: a spec in, model folders, logs and curves out.

mod bars;
mod draw;
mod print;

use super::{or_taken_by, start_threads, stop_on_signal};
use crate::bail_usage;
use crate::cli::TrainArgs;
use crate::device;
use crate::experiment::Experiment;
use crate::files;
use crate::train::{
    check_sizes, summarise, train_runs, write_course, write_summary, Course, Outcome, Size, TrainRun, TrainSpec,
    COURSE_FILE, SUMMARY_FILE,
};
use anyhow::{bail, Context, Result};
use bars::Bars;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// The spec that runs were started with, in their folder.
const SPEC_FILE: &str = "spec.toml";

/// A small spec, to begin with.
const EXAMPLE: &str = include_str!("../../experiments/example.toml");

/// Trains the spec.
///
/// # Errors
/// If the spec is wrong, the folder is taken, or training fails.
pub(super) fn run(args: &TrainArgs) -> Result<()> {
    if args.example {
        write!(crate::terminal::stdout(), "{EXAMPLE}")?;
        return Ok(());
    }
    let file = args.spec();
    let spec = TrainSpec::read(file).map_err(|error| or_taken_by("run", file, Experiment::read, error))?;
    let runs = chosen(&spec, &args.only)?;
    if args.summary {
        return sum_up(&spec, args);
    }
    start_threads(None)?;
    let placement = device::placement(args.device, args.dtype)?;
    let memory = spec.check_memory(&runs, &placement)?;
    prepare(args)?;
    let stop = stop_on_signal()?;
    if !args.quiet {
        let (names, tokens, mib) = (bars::named(&runs), spec.total_tokens(), memory >> 20);
        crate::say!("{names}: {tokens} tokens each, about {mib} MiB of memory -> {}", args.out().display());
    }
    let bars = Bars::new(&spec, &runs, args.quiet)?;
    let outcome = train_runs(&spec, &runs, args.out(), args.resume, &placement, &stop, &bars)?;
    bars.finish();
    match outcome {
        Outcome::Finished => {
            sum_up(&spec, args)?;
            crate::say!("models, logs, course.csv, summary.csv and curves in {}", args.out().display());
        }
        Outcome::Stopped => {
            let only = if args.only.is_empty() { String::new() } else { format!(" --only {}", args.only.join(",")) };
            let (spec, out) = (args.spec().display(), args.out().display());
            bail!("stopped; `difftool train {spec} --out {out}{only} --resume` continues");
        }
    }
    Ok(())
}

/// Writes, draws and prints what all runs came to, as far as they have got.
fn sum_up(spec: &TrainSpec, args: &TrainArgs) -> Result<()> {
    let out = args.out();
    let course = Course::read(spec, out)?;
    if course.is_empty() {
        bail_usage!("--out {}: no run of {} has logged anything there", out.display(), args.spec().display());
    }
    let sizes = sizes(spec, &course, &args.beside)?;
    write_course(&course, &out.join(COURSE_FILE))?;
    draw::curves(spec, &course, out, &args.figures)?;
    let lines = summarise(spec, &course);
    write_summary(&lines, &out.join(SUMMARY_FILE))?;
    print::summary(spec, &course, &lines)?;
    print::scale(&sizes)
}

/// The study at this size and at those of other folders; none if there are no others.
fn sizes(spec: &TrainSpec, course: &Course, beside: &[PathBuf]) -> Result<Vec<Size>> {
    if beside.is_empty() {
        return Ok(Vec::new());
    }
    let mut sizes = vec![Size::new(spec.clone(), course.clone())?];
    for folder in beside {
        let kept = folder.join(SPEC_FILE);
        if !kept.is_file() {
            bail_usage!("--beside {}: holds no {SPEC_FILE}", folder.display());
        }
        let spec = TrainSpec::read(&kept)?;
        let course = Course::read(&spec, folder)?;
        sizes.push(Size::new(spec, course)?);
    }
    check_sizes(&sizes).context("--beside")?;
    Ok(sizes)
}

/// The runs that `--only` names, or all.
fn chosen(spec: &TrainSpec, only: &[String]) -> Result<Vec<TrainRun>> {
    let mut runs = spec.runs();
    let of = |run: &TrainRun, name: &str| run.name == *name || spec.variants[run.variant].name == *name;
    if let Some(unknown) = only.iter().find(|name| !runs.iter().any(|run| of(run, name))) {
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        bail_usage!("--only {unknown}: no such run; there are {}", names.join(", "));
    }
    runs.retain(|run| only.is_empty() || only.iter().any(|name| of(run, name)));
    Ok(runs)
}

/// Makes the folder, with the spec in it; or finds the run there that is to be continued.
fn prepare(args: &TrainArgs) -> Result<()> {
    let out = args.out();
    let kept = out.join(SPEC_FILE);
    if args.resume && !kept.exists() {
        bail_usage!("--resume: {} holds no run (no {SPEC_FILE})", out.display());
    }
    if !args.resume && out.exists() && out.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        bail_usage!("--out {}: exists and is not empty; choose another folder, or --resume", out.display());
    }
    let text = files::text(args.spec(), files::CONFIG_MAX)?;
    if args.resume {
        if files::text(&kept, files::CONFIG_MAX)? != text {
            bail_usage!(
                "--resume: {} differs from {}, which the run was started with",
                args.spec().display(),
                kept.display()
            );
        }
        return Ok(()); // on a full disk, what is not written again is not lost
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let cannot = || format!("cannot write {}", kept.display());
    let written = File::create_new(&kept).with_context(cannot)?.write_all(text.as_bytes());
    if written.is_err() {
        let _ = std::fs::remove_file(&kept); // half a spec would stand in the way of the next attempt
    }
    written.with_context(cannot)
}
