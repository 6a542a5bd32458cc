//! `difftool train`: trains the models of a spec, and writes models, logs and curves.

mod bars;
mod draw;

use super::{start_threads, stop_on_signal, wrong_command_error};
use crate::bail_usage;
use crate::base::files;
use crate::cli::TrainArgs;
use crate::model::device::{self, DeviceName, Dtype};
use crate::results::print::{write_table, Tables};
use crate::run::Experiment;
use crate::train::{
    tables, train_runs, Study, TrainOutcome, TrainRun, TrainSpec, TrainingCurves, COURSE_FILE, SUMMARY_FILE,
};
use anyhow::{bail, Context, Result};
use bars::Bars;
use std::fs::File;
use std::io::Write as _;

/// Copy of the spec in the output folder.
const SPEC_FILE: &str = "spec.toml";

/// The spec of `--example`.
const EXAMPLE: &str = include_str!("../../experiments/example.toml");

/// Trains or summarises a spec.
pub(super) fn run(args: &TrainArgs) -> Result<()> {
    if args.example {
        write!(crate::base::terminal::stdout(), "{EXAMPLE}")?;
        return Ok(());
    }
    let file = args.spec();
    let spec = TrainSpec::read(file).map_err(|error| wrong_command_error("run", file, Experiment::read, error))?;
    let runs = chosen(&spec, &args.only)?;
    if args.summary {
        return summarise_runs(&spec, args);
    }
    start_threads(None)?;
    if (args.device, args.dtype) == (DeviceName::Cpu, Dtype::Bf16) {
        bail_usage!("--dtype bf16: on the CPU, training has f32 and f64");
    }
    let placement = device::placement(args.device, args.dtype)?;
    spec.check_memory(&runs, &placement)?;
    prepare(args)?;
    let stop = stop_on_signal()?;
    if !args.quiet {
        let (names, tokens) = (bars::named(&runs), spec.total_tokens());
        crate::say!("{names}: {tokens} tokens each -> {}", args.out().display());
    }
    let bars = Bars::new(&spec, &runs, args.quiet);
    let outcome = train_runs(&spec, &runs, args.out(), args.resume, &placement, &stop, &bars)?;
    bars.finish();
    match outcome {
        TrainOutcome::Finished => {
            summarise_runs(&spec, args)?;
            crate::say!("models, logs, course.csv, summary.csv and curves in {}", args.out().display());
        }
        TrainOutcome::Stopped => {
            let only = if args.only.is_empty() { String::new() } else { format!(" --only {}", args.only.join(",")) };
            let (spec, out) = (args.spec().display(), args.out().display());
            bail!("stopped; `difftool train {spec} --out {out}{only} --resume` continues");
        }
    }
    Ok(())
}

/// Writes, draws and prints the curves and the summary of all runs so far.
fn summarise_runs(spec: &TrainSpec, args: &TrainArgs) -> Result<()> {
    let out = args.out();
    let curves = TrainingCurves::read(spec, out)?;
    if curves.is_empty() {
        bail_usage!("--out {}: it has no log of a run of {}", out.display(), args.spec().display());
    }
    let study = Study { spec: spec.clone(), curves };
    files::replace_csv(&out.join(COURSE_FILE), study.curves.lines())?;
    draw::curves(&study.spec, &study.curves, out, &args.figures)?;
    let summary = tables::summary(&study);
    files::replace(&out.join(SUMMARY_FILE), |partial| write_table(&summary, &mut File::create(partial)?))?;
    write!(
        crate::base::terminal::stdout(),
        "{}",
        tables::text(&study, args.tables.as_ref().unwrap_or(&Tables::Main))?
    )?;
    Ok(())
}

/// Returns the runs of `--only`, or all runs.
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

/// Creates the output folder with a copy of the spec. With `--resume`, checks that the folder has the same spec.
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
                "--resume: {} differs from {}, with which training was started",
                args.spec().display(),
                kept.display()
            );
        }
        return Ok(()); // not written again: that could lose it on a full disk
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    // If this fails, the next attempt finds an empty folder.
    files::create(&kept, text.as_bytes()).with_context(|| format!("cannot write {}", kept.display()))
}
