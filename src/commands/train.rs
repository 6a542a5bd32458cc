//! `difftool train`: trains the models of a spec, and writes models, logs and curves.

mod draw;
mod progress;

use super::command::{Action, Command};
use super::experiment::Experiment;
use super::shared::FigureArgs;
use super::table_args::TableArgs;
use super::{start_threads, stop_on_signal, wrong_command_error};
use crate::results::folder::SPEC;
use crate::results::print::write_table;
use crate::results::table::plural;
use crate::train::{
    tables, train_runs, OpenedSpec, Study, TrainOutcome, TrainRun, TrainSpec, COURSE_FILE, SUMMARY_FILE,
};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::files;
use base::terminal::quoted_path;
use clap::{Args, FromArgMatches as _};
use engine::model::device::{self, DeviceName, Dtype};
use engine::model::Placement;
use names::{Column, ShortNames};
use progress::TrainReporter;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub(super) static TRAIN: Command = Command {
    name: "train",
    about: "Train the models of a spec on the same data",
    examples: &[
        ("Write an example spec", "difftool train --example > example.toml"),
        ("Train the built-in models", "difftool train experiments/study-b-models.toml --out runs/study-b"),
        ("Continue one seed of one variant", "difftool train example.toml --out runs/a --only diff/seed-2 --resume"),
    ],
    defaults: None,
    flags: Train::augment_args,
    action: Action::Other(|typed| run(&Train::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Train {
    /// Training spec, a TOML file (see --example)
    #[arg(required_unless_present = "example")]
    spec: Option<PathBuf>,
    /// Folder for models, checkpoints and logs; must be new or empty without --resume
    #[arg(long, value_name = "DIR", required_unless_present_any = ["example", "dry_run"])]
    out: Option<PathBuf>,
    /// Print a small example spec
    #[arg(long, exclusive = true)]
    pub example: bool,
    /// Continue from the checkpoints in --out
    #[arg(long)]
    pub resume: bool,
    /// Say parameters, memory and tokens a second, timed on a step of each stage, and train nothing
    #[arg(long, conflicts_with_all = ["resume", "summary"])]
    pub dry_run: bool,
    /// Train only these variants, or single seeds of variants (diff/seed-2)
    #[arg(long, value_delimiter = ',', value_name = "RUN")]
    pub only: Vec<String>,
    /// Summarise the runs in --out so far, or their course.csv, without training
    #[arg(long, conflicts_with_all = ["resume", "only"])]
    pub summary: bool,
    #[command(flatten)]
    pub tables: TableArgs,
    /// Device: cpu; or cuda, cuda:1, … or metal in a build for it
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu)]
    pub device: DeviceName,
    /// Number type of weights and activations in training steps; parameters and evaluations have f32
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub figures: FigureArgs,
}

impl Train {
    /// The spec, which is required without `--example`.
    pub(super) fn spec(&self) -> &Path {
        self.spec.as_deref().expect("the parser requires it")
    }

    /// The output folder, which is required without `--example` and `--dry-run`.
    pub(super) fn out(&self) -> &Path {
        self.out.as_deref().expect("the parser requires it")
    }
}

/// The spec of `--example`.
const EXAMPLE: &str = include_str!("../../experiments/example.toml");

/// Trains or summarises a spec.
fn run(args: &Train) -> Result<()> {
    if args.example {
        write!(base::terminal::stdout(), "{EXAMPLE}")?;
        return Ok(());
    }
    let file = args.spec();
    let spec = TrainSpec::read(file).map_err(|error| wrong_command_error("run", file, Experiment::read, error))?;
    let runs = chosen(&spec, &args.only)?;
    if args.summary {
        return summarise_runs(&spec, args);
    }
    start_threads(None)?;
    let placement = device::placement(args.device, args.dtype)?;
    let opened = spec.open()?;
    opened.check_memory(&runs, &placement)?;
    if args.dry_run {
        return time_steps(&opened, &runs, &placement);
    }
    prepare(args, &spec)?;
    let stop = stop_on_signal("this step")?;
    if !args.quiet {
        let runs_in_words = plural(runs.len(), "run");
        let tokens = spec.total_tokens();
        base::say!("{runs_in_words}: {tokens} tokens each -> {}", args.out().display());
        opened.in_words(&runs, &placement).iter().for_each(|line| base::say!("{line}"));
    }
    let reporter = TrainReporter::new(&spec, &runs, args.quiet);
    let outcome = train_runs(&opened, &runs, args.out(), args.resume, &placement, &stop, &reporter);
    reporter.finish();
    let only = if args.only.is_empty() { String::new() } else { format!(" --only {}", args.only.join(",")) };
    let file = quoted_path(args.spec());
    let folder = quoted_path(args.out());
    let out = args.out().display();
    let way_on = format!("stopped; `difftool train {file} --out {folder}{only} --resume` continues");
    // What the spec says would stop it again.
    let with_way_on = |error: anyhow::Error| {
        let is_of_files = error.chain().any(|cause| cause.is::<std::io::Error>());
        if is_of_files {
            error.context(way_on.clone())
        } else {
            error
        }
    };
    match outcome.map_err(with_way_on)? {
        TrainOutcome::Finished => {
            summarise_runs(&spec, args)?;
            base::say!("models, logs, course.csv, summary.csv and curves in {out}");
            claims_command(&spec, args.out())?.into_iter().for_each(|command| base::say!("{command}"));
        }
        TrainOutcome::Stopped => bail!("{way_on}"),
    }
    Ok(())
}

/// Prints what training would take: memory, and the speed of each variant in each stage.
fn time_steps(opened: &OpenedSpec<'_>, runs: &[TrainRun], placement: &Placement) -> Result<()> {
    let mut out = base::terminal::stdout();
    for line in opened.in_words(runs, placement) {
        writeln!(out, "{line}")?;
    }
    for (index, variant) in opened.spec().variants.iter().enumerate() {
        let Some(run) = runs.iter().find(|run| run.variant == index) else { continue };
        for stage in &opened.spec().stages {
            let speed = opened.timed(run, stage, runs, placement)?;
            let name = &variant.name;
            writeln!(out, "{name}: {speed:.0} tokens a second in a context of {} (one step)", stage.ctx_tok)?;
        }
    }
    Ok(())
}

/// The command that tests the paper's claims on the first differential variant, with the first standard one as its
/// baseline; `None` if either has no model.
fn claims_command(spec: &TrainSpec, out: &Path) -> Result<Option<String>> {
    let runs = spec.runs();
    let mut standard = None;
    let mut differential = None;
    for (index, variant) in spec.variants.iter().enumerate() {
        let mut folders = runs.iter().filter(|run| run.variant == index).map(|run| out.join(&run.name));
        if folders.any(|folder| folder.join("config.json").exists()) {
            let is_standard = variant.attention.resolve()?.maps == 1;
            let pair = if is_standard { &mut standard } else { &mut differential };
            pair.get_or_insert(out.join(&variant.name));
        }
    }
    // The folder of a variant stands for the models of all its seeds.
    let seeds = if spec.seeds.is_some() { " --replicates" } else { "" };
    Ok(differential.zip(standard).map(|(model, baseline)| {
        let [model, baseline] = [model, baseline].map(|folder| quoted_path(&folder));
        format!("difftool claims --model {model} --baseline {baseline}{seeds}")
    }))
}

/// Writes, draws and prints the curves and the summary of all runs so far.
fn summarise_runs(spec: &TrainSpec, args: &Train) -> Result<()> {
    let out = args.out();
    let study = Study::read(spec, out)?;
    if study.records.values(Column::Model).is_empty() {
        bail_usage!("--out {}: it has no log of a run of {}", out.display(), args.spec().display());
    }
    study.write_course(&out.join(COURSE_FILE))?;
    draw::curves(&study, out, &args.figures)?;
    if let Some(summary) = tables::SUMMARY.filled(&study) {
        files::replace(&out.join(SUMMARY_FILE), |partial| write_table(&summary, &mut File::create(partial)?))?;
    }
    args.tables.print(|| tables::screen(&study), || tables::tables(&study), &ShortNames::default())
}

/// The runs of `--only`, or all runs.
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

/// Creates the output folder with a copy of the spec. With `--resume`, checks that the spec is that of the folder, or adds to
/// it; then it takes its place.
fn prepare(args: &Train, spec: &TrainSpec) -> Result<()> {
    let out = args.out();
    let kept = out.join(SPEC);
    if args.resume && !kept.exists() {
        bail_usage!("--resume: {} holds no run (no {SPEC})", out.display());
    }
    if !args.resume && out.exists() && out.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        bail_usage!("--out {}: exists and is not empty; choose another folder, or --resume", out.display());
    }
    let text = files::text(args.spec(), files::CONFIG_MAX)?;
    if args.resume {
        let begun = files::text(&kept, files::CONFIG_MAX)?;
        if begun == text {
            return Ok(());
        }
        let given = args.spec().display();
        let earlier = TrainSpec::parse(&begun, &kept.display().to_string())?;
        spec.check_extends(&earlier)
            .with_context(|| format!("--resume: {given} is not {}, with which training was started", kept.display()))?;
        return files::replace(&kept, |partial| Ok(std::fs::write(partial, &text)?));
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    // If this fails, the next attempt finds an empty folder.
    files::create(&kept, text.as_bytes()).with_context(|| format!("cannot write {}", kept.display()))
}
