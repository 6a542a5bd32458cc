//! A forward pass that reports the answer's share of every head, against Python `transformers` with the same weights
//! and ids: eager attention with `output_attentions=True`, which reports the same, and SDPA, which reports nothing.
//! Where the processor has products of `bf16`, the pass is also timed with these.
//!
//! `cargo bench --bench pass -- --python PATH` prints a table and writes `target/bench/pass.csv`; without Python only
//! difftool runs. `--ctx N`, `--rounds N` and `--threads N` set tokens, rounds and threads.
//!
//! Each side is a process of its own, for its peak memory, and the sides run in turn. Before anything is timed, all
//! shares must agree to 1e-4, those of `bf16` to 0.005. Seconds are wall time.
//!
//! Parts of difftool's pass are timed after the other sides have ended: attention around calls of [`Attend`], the
//! linear layers alone on as many tokens. The rest is norms, rotary embedding, SwiGLU and sums.

mod sides;

use anyhow::{ensure, Context, Result};
use candle_core::{DType, Device, Tensor};
use difftool::attention::{Attend, Heads, RowProbe, Stream};
use difftool::model::{Checkpoint, ModelConfig, Placement, Transformer};
use difftool::ops::{linear, Products};
use difftool::pass::pass;
use difftool::probe::{AnswerProbe, AnswerSink};
use difftool::prompt::{needle, CitySet, Haystack, NeedleSpec, Prompt, Region, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sides::{cpu_model, median, model_30m, option, peers, python, sorted, write, Side};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, folder, ctx_tok] = args.as_slice() {
        match flag.as_str() {
            "--side" => return serve(Path::new(folder), ctx_tok.parse()?, Products::F32),
            "--bf16" => return serve(Path::new(folder), ctx_tok.parse()?, Products::Bf16),
            "--parts" => return serve_parts(Path::new(folder), ctx_tok.parse()?),
            _ => {}
        }
    }
    let number = |flag: &str, default: usize| -> Result<usize> {
        option(&args, flag).map_or(Ok(default), |n| n.parse().with_context(|| format!("{flag} {n}")))
    };
    // `cargo test --benches` passes no `--bench`: a short pass shows that it works.
    let real = args.iter().any(|arg| arg == "--bench");
    let cores = std::thread::available_parallelism()?.get();
    let plan = Plan {
        ctx_tok: number("--ctx", if real { 4096 } else { 256 })?,
        rounds: number("--rounds", if real { 5 } else { 1 })?,
        threads: number("--threads", cores)?,
        python: if real { python(&args) } else { None },
    };
    println!(
        "{}, {} threads; {} tokens; {} passes of each side in turn",
        cpu_model(),
        plan.threads,
        plan.ctx_tok,
        plan.rounds
    );
    let rows = ["llama", "diffllama"].iter().map(|variant| plan.measure(variant)).collect::<Result<Vec<_>>>()?;
    write("pass.csv", &rows.into_iter().flatten().collect::<Vec<_>>())
}

struct Plan {
    ctx_tok: usize,
    rounds: usize,
    threads: usize,
    python: Option<PathBuf>,
}

/// A line of the CSV: the passes of one side with one model.
#[derive(Serialize)]
struct Row {
    variant: String,
    side: &'static str,
    parameters: usize,
    ctx_tok: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    seconds: f64,
    peak_bytes: u64,
    /// Time as a multiple of difftool's pass in `f32` of the same round: median, least and most.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
    /// Only of difftool's pass in `f32`.
    attention_percent: Option<f64>,
    attention_gflop_per_s: Option<f64>,
    linear_percent: Option<f64>,
    linear_gflop_per_s: Option<f64>,
}

/// What a side reports of a pass.
#[derive(Serialize, Deserialize)]
struct Reply {
    /// The answer's share in the rows that predict it, by layer and head.
    shares: Option<Vec<Vec<f64>>>,
    seconds: f64,
    peak_bytes: u64,
}

/// Seconds of the parts of a pass of difftool.
#[derive(Serialize, Deserialize)]
struct Parts {
    all_s: f64,
    attention_s: f64,
    linear_s: f64,
}

impl Plan {
    /// One line for each side, difftool in `f32` first.
    fn measure(&self, variant: &str) -> Result<Vec<Row>> {
        let (folder, config) = make(variant, self.ctx_tok)?;
        // The other sides that report shares, and the tolerance of their shares.
        let mut sides = vec![("difftool, every head's answer share", None, self.own("--side", &folder)?)];
        if Products::Bf16.are_fast() {
            sides.push(("the same, products of bf16", Some(5e-3), self.own("--bf16", &folder)?));
        }
        if let Some(python) = &self.python {
            sides.push(("transformers eager, the same", Some(1e-4), self.peer(python, "eager", &folder)?));
            sides.push(("transformers SDPA, nothing", None, self.peer(python, "sdpa", &folder)?));
        }
        // Also warms them up.
        let first = sides.iter_mut().map(|(.., side)| side.step()).collect::<Result<Vec<Reply>>>()?;
        for ((name, most, _), reply) in sides.iter().zip(&first) {
            most.map_or(Ok(()), |most| check(&format!("{variant}, {name}"), most, &first[0], reply))?;
        }
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            rounds.push(sides.iter_mut().map(|(.., side)| side.step()).collect::<Result<Vec<Reply>>>()?);
        }
        let names: Vec<_> = sides.into_iter().map(|(name, ..)| name).collect();
        let mut own = self.own("--parts", &folder)?;
        let parts = (0..self.rounds).map(|_| own.step()).collect::<Result<Vec<Parts>>>()?;
        let rows = names.iter().enumerate().map(|(i, name)| {
            let replies: Vec<(&Reply, &Reply)> = rounds.iter().map(|round| (&round[0], &round[i])).collect();
            self.row(variant, name, &config, &replies, (i == 0).then_some(&parts))
        });
        let rows: Vec<Row> = rows.collect();
        rows.iter().for_each(|row| row.print(&rows[0]));
        Ok(rows)
    }

    fn own(&self, mode: &str, folder: &Path) -> Result<Side> {
        let mut command = Command::new(std::env::current_exe()?);
        Side::start(command.arg(mode).arg(folder).arg(self.ctx_tok.to_string()), self.threads)
    }

    fn peer(&self, python: &Path, mode: &str, folder: &Path) -> Result<Side> {
        let mut command = Command::new(python);
        command.arg(peers()).arg(mode).arg(folder).arg(folder.join("prompt.json")).arg(self.threads.to_string());
        Side::start(&mut command, self.threads)
    }

    /// The line of a side, from pairs of difftool's reply and its own of the same round.
    fn row(
        &self,
        variant: &str,
        side: &'static str,
        config: &ModelConfig,
        replies: &[(&Reply, &Reply)],
        parts: Option<&Vec<Parts>>,
    ) -> Row {
        let mut flops = config.forward_flops(self.ctx_tok);
        // In the last layer only the rows that predict the answer are computed.
        flops.attention *= 1.0 - 1.0 / config.layers.len() as f64;
        let of = |pick: fn(&Parts) -> f64| parts.map(|parts| median(parts.iter().map(pick)));
        let (all_s, attention_s, linear_s) = (of(|p| p.all_s), of(|p| p.attention_s), of(|p| p.linear_s));
        let percent = |part: Option<f64>| Some(100.0 * part? / all_s?);
        let ratios = sorted(replies.iter().map(|(own, reply)| reply.seconds / own.seconds));
        Row {
            variant: variant.to_owned(),
            side,
            parameters: config.parameters(),
            ctx_tok: self.ctx_tok,
            threads: self.threads,
            rounds: self.rounds,
            cpu: cpu_model(),
            seconds: median(replies.iter().map(|(_, reply)| reply.seconds)),
            peak_bytes: replies.iter().map(|(_, reply)| reply.peak_bytes).max().unwrap_or(0),
            ratio: ratios[ratios.len() / 2],
            ratio_min: ratios[0],
            ratio_max: ratios[ratios.len() - 1],
            attention_percent: percent(attention_s),
            attention_gflop_per_s: attention_s.map(|s| 1e-9 * flops.attention / s),
            linear_percent: percent(linear_s),
            linear_gflop_per_s: linear_s.map(|s| 1e-9 * flops.linear / s),
        }
    }
}

impl Row {
    /// Prints the line, compared with difftool's pass in `f32`.
    fn print(&self, own: &Row) {
        let Row { variant, side, seconds, peak_bytes, ratio, ratio_min, ratio_max, .. } = self;
        let mib = peak_bytes >> 20;
        if side == &own.side {
            println!("{variant:10} {side}: {seconds:.2} s, {mib} MiB");
        } else {
            let memory = *peak_bytes as f64 / own.peak_bytes as f64;
            println!(
                "{:10} {side}: {seconds:.2} s, {mib} MiB: {ratio:.2} times as long ({ratio_min:.2} to {ratio_max:.2}), \
                 {memory:.1} times the memory",
                ""
            );
        }
        let (attention, linear) = (self.attention_percent, self.linear_percent);
        let rates = (self.attention_gflop_per_s, self.linear_gflop_per_s);
        if let (Some(attention), Some(linear), (Some(of_attention), Some(of_linear))) = (attention, linear, rates) {
            println!(
                "{:10} of that, attention {attention:.0} % at {of_attention:.0} GFLOP/s, linear layers {linear:.0} % at \
                 {of_linear:.0} GFLOP/s",
                ""
            );
        }
    }
}

/// Checks that the shares of two sides agree.
fn check(what: &str, most: f64, ours: &Reply, other: &Reply) -> Result<()> {
    let (ours, other) = ours.shares.as_ref().zip(other.shares.as_ref()).context("both sides report shares")?;
    ensure!(ours.len() == other.len(), "{what}: {} layers and {}", ours.len(), other.len());
    for (layer, (ours, other)) in ours.iter().zip(other).enumerate() {
        ensure!(ours.len() == other.len(), "{what}: {} heads and {}", ours.len(), other.len());
        for (head, (a, b)) in ours.iter().zip(other).enumerate() {
            ensure!((a - b).abs() < most, "{what}, layer {layer}, head {head}: answer share {a} and {b}");
        }
    }
    Ok(())
}

/// Writes a model and a prompt for both sides.
fn make(variant: &str, ctx_tok: usize) -> Result<(PathBuf, ModelConfig)> {
    let (folder, config) = model_30m(variant, ctx_tok.max(4096))?;
    let prompt = prompt(ctx_tok)?;
    let query = &prompt.queries[0];
    let (rows, answer) = (query.rows(), &query.answer);
    let json = json!({"ids": prompt.ids, "rows": [rows.start, rows.end], "answer": [answer.start, answer.end]});
    std::fs::write(folder.join("prompt.json"), json.to_string())?;
    Ok((folder, config))
}

fn prompt(ctx_tok: usize) -> Result<Prompt> {
    let spec = NeedleSpec {
        ctx_tok,
        needles: 1,
        retrieve: 1,
        depth_pct: 50.0,
        cities: CitySet::Train,
        form: Default::default(),
    };
    needle::build(&spec, 0, Tokenizer::embedded(), &Haystack::embedded())
}

/// The child process: one pass for every line of stdin.
fn serve(folder: &Path, ctx_tok: usize, products: Products) -> Result<()> {
    difftool::memory::keep_freed(); // as the program does
    let config = ModelConfig::read(&folder.join("config.json"))?;
    let placement = Placement { products, ..Placement::default() };
    let model = Transformer::load(&config, Checkpoint::open(folder)?.load(&config)?.placed(&placement))?;
    let prompt = prompt(ctx_tok)?;
    let probe = AnswerProbe::new(&prompt.targets());
    for _ in std::io::stdin().lines() {
        let start = Instant::now();
        let passed = pass(&model, &prompt, Stream::new(&[&probe]), false)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut shares = vec![Vec::new(); config.layers.len()];
        for result in passed.probe_results {
            let sink = result.sink.into_sink::<AnswerSink>();
            shares[result.layer].push(sink.allocations[0].share_abs(Region::Answer));
        }
        let peak_bytes = difftool::memory::peak_rss_bytes().unwrap_or(0);
        println!("{}", serde_json::to_string(&Reply { shares: Some(shares), seconds, peak_bytes })?);
    }
    Ok(())
}

/// The child process: one pass with its parts timed, for every line of stdin.
fn serve_parts(folder: &Path, ctx_tok: usize) -> Result<()> {
    difftool::memory::keep_freed();
    let config = ModelConfig::read(&folder.join("config.json"))?;
    let load = || Checkpoint::open(folder)?.load(&config);
    let model = Transformer::load(&config, load()?)?;
    let weights = load()?;
    let projections: Vec<&Tensor> = weights.iter().filter(|(name, _)| name.contains("_proj")).map(|(_, w)| w).collect();
    let prompt = prompt(ctx_tok)?;
    let mut needed = vec![false; prompt.ids.len()];
    prompt.queries.iter().flat_map(|query| query.rows()).for_each(|row| needed[row] = true);
    let probe = AnswerProbe::new(&prompt.targets());
    let probes: [&dyn RowProbe; 1] = [&probe];
    for _ in std::io::stdin().lines() {
        let start = Instant::now();
        // As in `difftool::pass::pass`.
        let stream = Stream::new(&probes).with_needed_rows(config.layers.len() - 1, needed.clone());
        let mut timed = Timed { stream, seconds: 0.0 };
        std::hint::black_box(model.hidden(std::slice::from_ref(&prompt.ids), &mut timed)?);
        let all_s = start.elapsed().as_secs_f64();
        let mut linear_s = 0.0;
        for w in &projections {
            let x = Tensor::ones((1, ctx_tok, w.dim(1)?), DType::F32, &Device::Cpu)?;
            let start = Instant::now();
            std::hint::black_box(linear(&x, w)?);
            linear_s += start.elapsed().as_secs_f64();
        }
        println!("{}", serde_json::to_string(&Parts { all_s, attention_s: timed.seconds, linear_s })?);
    }
    Ok(())
}

/// Attention whose time is taken.
struct Timed<'a> {
    stream: Stream<'a>,
    seconds: f64,
}

impl Attend for Timed<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> candle_core::Result<Tensor> {
        let start = Instant::now();
        let mixture = self.stream.attend(layer, heads);
        self.seconds += start.elapsed().as_secs_f64();
        mixture
    }
}
