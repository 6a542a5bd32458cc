//! `difftool train`: a spec in, model folders, logs and curves out.

mod bars;
mod draw;

use super::stop_on_ctrl_c;
use crate::bail_usage;
use crate::cli::TrainArgs;
use crate::train::{train_runs, Outcome, TrainRun, TrainSpec};
use anyhow::{Context, Result};
use bars::Bars;

/// Trains the spec.
///
/// # Errors
/// If the spec is wrong, the folder is taken, or training fails.
pub fn run(args: &TrainArgs) -> Result<()> {
    let spec = TrainSpec::read(&args.spec)?;
    spec.configs(crate::prompt::Tokenizer::embedded().vocab_size())?;
    let runs = chosen(&spec, &args.only)?;
    prepare(args)?;
    crate::memory::keep_freed();
    let stop = stop_on_ctrl_c()?;
    let bars = Bars::new(&spec, &runs, args.quiet);
    let outcome = train_runs(&spec, &runs, &args.out, args.resume, &stop, &bars)?;
    bars.finish();
    match outcome {
        Outcome::Finished => {
            draw::curves(&spec, &args.out, &args.figures)?;
            crate::say!("models, logs and curves in {}", args.out.display());
        }
        Outcome::Stopped => {
            let only = if args.only.is_empty() { String::new() } else { format!(" --only {}", args.only.join(",")) };
            let (spec, out) = (args.spec.display(), args.out.display());
            crate::say!("stopped; `difftool train {spec} --out {out}{only} --resume` continues");
        }
    }
    Ok(())
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
    let out = &args.out;
    let kept = out.join("spec.toml");
    if args.resume && !kept.exists() {
        bail_usage!("--resume: {} holds no run (no spec.toml)", out.display());
    }
    if !args.resume && out.exists() && out.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        bail_usage!("--out {}: exists and is not empty; choose another folder, or --resume", out.display());
    }
    let text = std::fs::read_to_string(&args.spec)?;
    if args.resume && std::fs::read_to_string(&kept)? != text {
        bail_usage!(
            "--resume: {} differs from {}, which the run was started with",
            args.spec.display(),
            kept.display()
        );
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    std::fs::write(&kept, text).with_context(|| format!("cannot write {}", kept.display()))
}
