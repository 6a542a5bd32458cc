//! `difftool train`: a spec in, model folders, logs and curves out.

use super::stop_on_ctrl_c;
use crate::bail_usage;
use crate::cli::TrainArgs;
use crate::plot::{curves, Curve, CurvePanel};
use crate::train::{train, EvalLine, LogLine, Outcome, Progress, TrainSpec, EVAL_FILE, LOG_FILE};
use anyhow::{Context, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Trains the spec.
///
/// # Errors
/// If the spec is wrong, the folder is taken, or training fails.
pub fn run(args: &TrainArgs) -> Result<()> {
    let spec = TrainSpec::read(&args.spec)?;
    spec.configs(crate::prompt::Tokenizer::embedded().vocab_size())?;
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
    std::fs::write(&kept, text).with_context(|| format!("cannot write {}", kept.display()))?;

    crate::memory::keep_freed();
    let stop = stop_on_ctrl_c()?;
    let bars = Bars::new(&spec, args.quiet);
    let outcome = train(&spec, out, args.resume, &stop, &bars)?;
    bars.finish();
    match outcome {
        Outcome::Finished => {
            draw(&spec, out)?;
            crate::say!("models, logs and curves.png in {}", out.display());
        }
        Outcome::Stopped => {
            crate::say!("stopped; `difftool train {} --out {} --resume` continues", args.spec.display(), out.display())
        }
    }
    Ok(())
}

/// Loss, recall and needle accuracy of every variant against tokens, from the logs.
fn draw(spec: &TrainSpec, out: &Path) -> Result<()> {
    let names = || spec.variants.iter().map(|variant| variant.name.clone());
    let logs = names().map(|name| read(&out.join(name).join(LOG_FILE))).collect::<Result<Vec<Vec<LogLine>>>>()?;
    let evals = names().map(|name| read(&out.join(name).join(EVAL_FILE))).collect::<Result<Vec<Vec<EvalLine>>>>()?;
    let logged = |y: fn(&LogLine) -> f64| {
        let points = |lines: &Vec<LogLine>| lines.iter().map(|line| (line.tokens as f64, y(line))).collect();
        names().zip(&logs).map(|(name, lines)| Curve { name, points: points(lines), band: Vec::new() }).collect()
    };
    let evaluated = |needles: usize| {
        let wanted = move |line: &&EvalLine| line.needles == needles && line.cities == "train";
        let points = |lines: &Vec<EvalLine>| lines.iter().filter(wanted).map(|l| (l.tokens as f64, l.exact)).collect();
        names().zip(&evals).map(|(name, lines)| Curve { name, points: points(lines), band: Vec::new() }).collect()
    };
    let panel = |title: &str, y_label: &str, y_range, curves| CurvePanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range,
        curves,
    };
    let share = Some((0.0, 1.0));
    let panels = [
        panel("prose and templates", "NLL (nats per token)", None, logged(|line| line.text_nats)),
        panel("first digit of a stated number", "predicted (fraction)", share, logged(|line| line.digit1_hit)),
        panel("unseen prompts, one needle", "exact match (fraction)", share, evaluated(1)),
        panel("unseen prompts, N=2 R=2", "exact match (fraction)", share, evaluated(2)),
    ];
    let stages: Vec<String> = spec.stages.iter().map(|stage| stage.ctx_tok.to_string()).collect();
    let subtitle = format!("contexts of {} tokens in turn · seed {}", stages.join(", "), spec.seed);
    let figure = curves(&panels, "Training", &subtitle, "tokens", false)?;
    let path = out.join("curves.png");
    if path.exists() {
        std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    let command = crate::terminal::arguments().join(" ");
    figure.save(&path, &[("command".to_owned(), command), ("seed".to_owned(), spec.seed.to_string())])
}

fn read<L: DeserializeOwned>(path: &Path) -> Result<Vec<L>> {
    let context = || format!("cannot read {}", path.display());
    let reader = csv::Reader::from_path(path).with_context(context)?;
    reader.into_deserialize().collect::<Result<_, _>>().with_context(context)
}

/// One bar per variant on stderr; silent when stderr is not a terminal.
struct Bars {
    bars: Vec<ProgressBar>,
}

impl Bars {
    fn new(spec: &TrainSpec, quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let all = MultiProgress::with_draw_target(target);
        let style =
            ProgressStyle::with_template("{prefix:12} {bar:24} {human_pos}/{human_len} tokens, {eta} left  {msg}");
        let style = style.expect("a valid template");
        let total = spec.total_tokens() as u64;
        let bar = |name: &str| all.add(ProgressBar::new(total).with_prefix(name.to_owned()).with_style(style.clone()));
        Self { bars: spec.variants.iter().map(|variant| bar(&variant.name)).collect() }
    }

    fn finish(&self) {
        self.bars.iter().for_each(ProgressBar::abandon);
    }
}

impl Progress for Bars {
    fn step(&self, variant: usize, tokens: usize, message: &str) {
        self.bars[variant].set_position(tokens as u64);
        self.bars[variant].set_message(message.to_owned());
    }
}
