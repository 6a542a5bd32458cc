//! The trainer's step against the same model in PyTorch and in composed candle ops: tokens/s and peak memory.
//!
//! `cargo bench --bench training -- --python PATH` prints a table and writes `target/bench/training.csv`; without
//! Python, PyTorch is left out. `--all` runs every case: 256, 1,024 and 4,096 tokens of context; about 1 and 5 million
//! parameters; one thread, two threads, and a standard and a differential model side by side on one thread each, which
//! is how `difftool train` uses two cores. `--only 5m/1024` runs the cases of that name, and `--rounds N` sets the
//! number of steps.
//!
//! Each side is a process of its own, for its peak memory, and the sides run in turn. They start from the same weights,
//! train on the same batch with the same optimiser, and must agree on the first loss and gradient norm before anything
//! is timed. PyTorch is `transformers` in float32 without compilation, with SDPA attention and the fused AdamW. It
//! computes the gradient of the whole batch at once; difftool's is summed over parts.
//!
//! Cases with one thread are timed in CPU time, which other processes do not distort. The others are wall time; the
//! machine must be idle.

mod composed;
mod sides;

use anyhow::{ensure, Context, Result};
use candle_core::{DType, Var};
use composed::Composed;
use difftool::model::{Checkpoint, ModelConfig, Transformer, Weights};
use difftool::prompt::Tokenizer;
use difftool::train::{step, tensors, AdamW, Batch, DataSource, OptimizerSpec, TrainSpec};
use serde::{Deserialize, Serialize};
use sides::{bench_dir, cpu_model, cpu_seconds, median, option, peers, python, spread, write, Side};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// As in `main.rs`. candle's composed ops gain most from it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The embedded models' sizes, data and optimiser.
const SPEC: &str = "experiments/study-b-models.toml";
const STEP_TOK: usize = 4096;
const VARIANTS: [&str; 2] = ["transformer", "diff"];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, side, folder, batch, threads] = args.as_slice() {
        if flag == "--side" {
            return serve(side, Path::new(folder), Path::new(batch), threads.parse()?);
        }
    }
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let rounds = option(&args, "--rounds").map_or(Ok(5), |n| n.parse()).context("--rounds takes a number")?;
    // `cargo test --benches` passes no `--bench`: one step shows that the sides agree.
    let bench = Bench {
        rounds: if has("--bench") { rounds } else { 1 },
        python: if has("--bench") { python(&args) } else { None },
    };
    println!("{}; {STEP_TOK} tokens per step; {} steps of each side in turn", cpu_model(), bench.rounds);
    println!("tokens/s; how many times as long the others take (least to most); peak memory");
    let mut rows = Vec::new();
    for case in cases(has("--all"), option(&args, "--only"), has("--bench")) {
        rows.extend(bench.measure(&case)?);
    }
    write("training.csv", &rows)
}

/// One comparison.
struct Case {
    /// About how many million parameters.
    millions: usize,
    ctx_tok: usize,
    mode: Mode,
    /// Whether candle's composed ops run too, if memory suffices.
    composed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    OneThread,
    TwoThreads,
    /// A standard and a differential model at the same time, one thread each.
    SideBySide,
}

impl Mode {
    fn threads(self) -> usize {
        if self == Self::TwoThreads {
            2
        } else {
            1
        }
    }
    fn name(self) -> &'static str {
        match self {
            Self::OneThread => "one thread",
            Self::TwoThreads => "two threads",
            Self::SideBySide => "both side by side, one thread each",
        }
    }
}

/// The cases: all, those of a name, those that take a few minutes, or the smallest.
fn cases(all: bool, only: Option<&String>, real: bool) -> Vec<Case> {
    use Mode::{OneThread, SideBySide, TwoThreads};
    let mut cases = Vec::new();
    for millions in [1, 5] {
        for ctx_tok in [256, 1024, 4096] {
            for mode in [OneThread, TwoThreads, SideBySide] {
                let composed = mode == OneThread && (all || only.is_some() || millions == 1);
                cases.push(Case { millions, ctx_tok, mode, composed });
            }
        }
    }
    let few = |case: &Case| match case.millions {
        1 => case.mode == OneThread || case.ctx_tok == 1024,
        _ => case.mode == OneThread && case.ctx_tok == 1024,
    };
    cases.retain(|case| match only {
        Some(name) => format!("{}m/{}/{}", case.millions, case.ctx_tok, case.mode.name()).contains(name),
        None if real => all || few(case),
        None => case.mode == OneThread && case.millions == 1 && case.ctx_tok == 256,
    });
    cases
}

/// A line of the CSV: one side of one case and variant. `times_ours` is its time as a multiple of difftool's,
/// `times_standard` the time of its differential step as a multiple of its standard step.
#[derive(Serialize)]
struct Row {
    parameters: usize,
    ctx_tok: usize,
    step_tok: usize,
    mode: Mode,
    variant: &'static str,
    side: &'static str,
    rounds: usize,
    tokens_per_s: f64,
    times_ours: f64,
    times_ours_min: f64,
    times_ours_max: f64,
    times_standard: Option<f64>,
    times_standard_min: Option<f64>,
    times_standard_max: Option<f64>,
    peak_bytes: u64,
    /// CPU time divided by wall time of a step: the number of threads on an idle machine.
    cores: f64,
    cpu: String,
}

/// What a side reports of a step.
#[derive(Clone, Serialize, Deserialize)]
struct Reply {
    loss: f64,
    norm: f64,
    /// Wall time.
    seconds: f64,
    cpu_s: f64,
    peak_bytes: u64,
}

/// The steps of one side with one variant, in a process of its own.
struct Run<'a> {
    made: &'a Made,
    side: &'static str,
    process: Side,
    /// The first step, a warm-up.
    first: Reply,
    replies: Vec<Reply>,
}

struct Bench {
    rounds: usize,
    python: Option<PathBuf>,
}

impl Bench {
    fn measure(&self, case: &Case) -> Result<Vec<Row>> {
        println!("\n{} million parameters, {} tokens of context, {}", case.millions, case.ctx_tok, case.mode.name());
        let made = VARIANTS.iter().map(|variant| Made::new(case, variant)).collect::<Result<Vec<_>>>()?;
        let peer = self.python.as_ref().map(|_| "pytorch");
        let mut runs = Vec::new();
        for side in ["difftool"].into_iter().chain(peer) {
            for made in &made {
                runs.push(self.start(case, made, side)?);
            }
        }
        let together = if case.mode == Mode::SideBySide { made.len() } else { 1 };
        let runs = in_turn(runs, self.rounds, together)?;
        // By side, then by variant.
        let mut rows: Vec<Row> = runs
            .iter()
            .enumerate()
            .map(|(i, run)| run.row(case, &runs[i % 2], (i % 2 == 1).then(|| &runs[i - 1])))
            .collect();
        // candle's ops need the memory of the other sides.
        drop(runs);
        for made in made.iter().filter(|made| case.composed && made.composed_fits(case)) {
            let pair = vec![self.start(case, made, "difftool")?, self.start(case, made, "candle")?];
            let pair = in_turn(pair, self.rounds.min(3), 1)?;
            rows.push(pair[1].row(case, &pair[0], None));
        }
        rows.iter().for_each(Row::print);
        Ok(rows)
    }

    fn start<'a>(&self, case: &Case, made: &'a Made, side: &'static str) -> Result<Run<'a>> {
        let mut command = match (side, &self.python) {
            ("pytorch", Some(python)) => {
                let mut command = Command::new(python);
                command.arg(peers()).arg("train");
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--side", side]);
                command
            }
        };
        command.arg(&made.folder).arg(&made.batch).arg(case.mode.threads().to_string());
        let mut process = Side::start(&mut command, case.mode.threads())?;
        let first = process.step()?;
        Ok(Run { made, side, process, first, replies: Vec::new() })
    }
}

/// Runs the sides in turn, `together` of them at once, a step each. All must have the same first loss and gradient
/// norm.
fn in_turn<'a>(mut runs: Vec<Run<'a>>, rounds: usize, together: usize) -> Result<Vec<Run<'a>>> {
    for run in &runs {
        let ours =
            runs.iter().find(|other| other.made.variant == run.made.variant).map_or(&run.first, |run| &run.first);
        let (variant, side, theirs) = (run.made.variant, run.side, &run.first);
        let (a, b) = (ours.loss, theirs.loss);
        ensure!((a - b).abs() < 1e-4, "{variant}: loss {a} in difftool and {b} in {side}");
        let (a, b) = (ours.norm, theirs.norm);
        ensure!((a / b - 1.0).abs() < 1e-3, "{variant}: gradient norm {a} in difftool and {b} in {side}");
    }
    for _ in 0..rounds {
        for runs in runs.chunks_mut(together) {
            runs.iter_mut().try_for_each(|run| run.process.ask())?;
            for run in runs {
                run.replies.push(run.process.answer()?);
            }
        }
    }
    Ok(runs)
}

impl Run<'_> {
    /// The line of this run, compared step by step with `ours` and, for a differential model, with the same side's
    /// `standard` run.
    fn row(&self, case: &Case, ours: &Run<'_>, standard: Option<&Run<'_>>) -> Row {
        let time = |reply: &Reply| if case.mode == Mode::OneThread { reply.cpu_s } else { reply.seconds };
        let against = |other: &Run<'_>| spread(self.replies.iter().zip(&other.replies).map(|(a, b)| time(a) / time(b)));
        let (times_ours, times_standard) = (against(ours), standard.map(against));
        Row {
            parameters: self.made.config.parameters(),
            ctx_tok: case.ctx_tok,
            step_tok: STEP_TOK,
            mode: case.mode,
            variant: self.made.variant,
            side: self.side,
            rounds: self.replies.len(),
            tokens_per_s: STEP_TOK as f64 / median(self.replies.iter().map(time)),
            times_ours: times_ours[0],
            times_ours_min: times_ours[1],
            times_ours_max: times_ours[2],
            times_standard: times_standard.map(|t| t[0]),
            times_standard_min: times_standard.map(|t| t[1]),
            times_standard_max: times_standard.map(|t| t[2]),
            peak_bytes: self.replies.iter().map(|reply| reply.peak_bytes).max().unwrap_or(0),
            cores: median(self.replies.iter().map(|reply| reply.cpu_s / reply.seconds)),
            cpu: cpu_model(),
        }
    }
}

impl Row {
    fn print(&self) {
        let Row { variant, side, tokens_per_s, peak_bytes, .. } = self;
        print!("  {side:8} {variant:11} {tokens_per_s:6.0} tokens/s, {:5} MiB", peak_bytes >> 20);
        if *side != "difftool" {
            print!(", {:.2} times ours ({:.2} to {:.2})", self.times_ours, self.times_ours_min, self.times_ours_max);
        }
        if let (Some(times), Some(least), Some(most)) =
            (self.times_standard, self.times_standard_min, self.times_standard_max)
        {
            print!(", {times:.2} times its standard model ({least:.2} to {most:.2})");
        }
        if self.cores < 0.9 {
            print!(" [{:.0} % of a core]", 100.0 * self.cores);
        }
        println!();
    }
}

/// A fresh model and a batch, in files for all sides.
struct Made {
    variant: &'static str,
    config: ModelConfig,
    folder: PathBuf,
    batch: PathBuf,
}

/// The file of a batch.
#[derive(Serialize, Deserialize)]
struct BatchFile {
    /// Token ids by row. Every token but the first is the target of the one before it.
    ids: Vec<Vec<u32>>,
    optimizer: OptimizerSpec,
}

impl Made {
    fn new(case: &Case, variant: &'static str) -> Result<Self> {
        let mut spec = TrainSpec::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(SPEC))?;
        if case.millions == 5 {
            let model = &mut spec.model;
            (model.width, model.layers, model.ffn) = (256, 6, 688);
        }
        spec.variants.retain(|v| VARIANTS.contains(&v.name.as_str()));
        let index = spec.variants.iter().position(|v| v.name == variant).context("a variant of the spec")?;
        let config = spec.configs(Tokenizer::embedded().vocab_size())?.swap_remove(index);
        let folder = bench_dir().join(format!("{variant}-{}m", case.millions));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("config.json"), config.to_json().to_string())?;
        Weights::init(&config, spec.seeds()[0])?.write(&folder.join("model.safetensors"), DType::F32, &[])?;
        let stage =
            spec.stages.iter().find(|stage| stage.ctx_tok == case.ctx_tok).context("a stage of this context")?;
        let mut stage = stage.clone();
        stage.step_tok = STEP_TOK;
        let ids = DataSource::new(Tokenizer::embedded(), spec.seeds()[0])?.batch(&stage, &spec.loss, 0)?.inputs;
        let batch = bench_dir().join(format!("batch-{}.json", case.ctx_tok));
        std::fs::write(&batch, serde_json::to_string(&BatchFile { ids, optimizer: spec.optimizer })?)?;
        Ok(Self { variant, config, folder, batch })
    }

    fn composed_fits(&self, case: &Case) -> bool {
        let needed = Composed::estimated_bytes(&self.config, case.ctx_tok, STEP_TOK);
        let fits = difftool::memory::available_bytes().is_none_or(|available| needed < available / 4 * 3);
        if !fits {
            println!("  candle   {:11} would take about {} GiB: left out", self.variant, needed >> 30);
        }
        fits
    }
}

/// The child process: one step for every line of stdin.
fn serve(side: &str, folder: &Path, batch: &Path, threads: usize) -> Result<()> {
    difftool::memory::keep_freed(); // as the program does
    let config = ModelConfig::read(&folder.join("config.json"))?;
    let BatchFile { ids, optimizer: spec } = serde_json::from_str(&std::fs::read_to_string(batch)?)?;
    let weights = Checkpoint::open(folder)?.load(&config)?;
    let vars = weights.iter().map(|(name, tensor)| Ok((name.clone(), Var::from_tensor(tensor)?)));
    let vars = vars.collect::<Result<BTreeMap<String, Var>>>()?;
    let mut optimizer = AdamW::new(&vars, &spec);
    let fused = Transformer::build(&config, &mut tensors(&vars))?;
    let composed = (side == "candle").then(|| Composed::new(&config, &vars, ids[0].len())).transpose()?;
    let batch = next_tokens(ids);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    for _ in std::io::stdin().lines() {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let (loss, norm) = pool.install(|| match &composed {
            None => step(&fused, &mut optimizer, &batch, spec.rate).map(|done| (done.loss_nats, done.grad_norm)),
            Some(composed) => composed.step(&mut optimizer, &batch, spec.rate),
        })?;
        let (seconds, cpu_s) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
        let peak_bytes = difftool::memory::peak_rss_bytes().unwrap_or(0);
        println!("{}", serde_json::to_string(&Reply { loss, norm, seconds, cpu_s, peak_bytes })?);
    }
    Ok(())
}

/// A batch with the loss of `transformers`: all tokens have the same weight, except the last of a row, which has no
/// target.
fn next_tokens(inputs: Vec<Vec<u32>>) -> Batch {
    let shifted = |row: &Vec<u32>| row[1..].iter().copied().chain([0]).collect::<Vec<u32>>();
    let weights =
        |row: &Vec<u32>| (0..row.len()).map(|i| if i + 1 < row.len() { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
    let (targets, weights) = (inputs.iter().flat_map(shifted).collect(), inputs.iter().flat_map(weights).collect());
    Batch { inputs, targets, weights, kinds: Vec::new() }
}
