//! A forward pass that reports the answer's share of every head, against Python `transformers` with the same weights and
//! ids: eager attention with `output_attentions=True`, which reports the same, and SDPA, which reports nothing.
//!
//! `cargo bench --bench pass -- --python PATH` prints a table and writes `target/bench/pass.csv`; without Python only our
//! own side runs. `--ctx N`, `--rounds N` and `--threads N` change what is run.
//!
//! Each side is a process of its own, so that its peak memory is its own, and the sides take passes in turn. The shares of
//! both must agree to 1e-4 before anything is timed. A second is one of wall time.
//!
//! Where the time of our own pass goes is measured after the others have ended: attention by a watch at its seam, the linear
//! layers by running them alone on as many tokens; what remains is norms, rotary embedding, SwiGLU and sums.

mod sides;

use anyhow::{ensure, Context, Result};
use candle_core::{DType, Device, Tensor};
use difftool::attention::{Attend, Heads, RowProbe, Stream};
use difftool::model::{Checkpoint, ModelConfig, Transformer};
use difftool::ops::linear;
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
            "--side" => return serve(Path::new(folder), ctx_tok.parse()?),
            "--parts" => return serve_parts(Path::new(folder), ctx_tok.parse()?),
            _ => {}
        }
    }
    let number = |flag: &str, default: usize| -> Result<usize> {
        option(&args, flag).map_or(Ok(default), |n| n.parse().with_context(|| format!("{flag} {n}")))
    };
    // `cargo test --benches` passes no `--bench`: a short pass is enough to see that it works.
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
    write("pass.csv", &rows)
}

struct Plan {
    ctx_tok: usize,
    rounds: usize,
    threads: usize,
    python: Option<PathBuf>,
}

/// A line of the table and of the CSV; peers are missing without Python.
#[derive(Serialize)]
struct Row {
    variant: String,
    parameters: usize,
    ctx_tok: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    seconds: f64,
    peak_bytes: u64,
    attention_percent: f64,
    attention_gflop_per_s: f64,
    linear_percent: f64,
    linear_gflop_per_s: f64,
    eager_seconds: Option<f64>,
    eager_peak_bytes: Option<u64>,
    eager_ratio: Option<f64>,
    eager_ratio_min: Option<f64>,
    eager_ratio_max: Option<f64>,
    sdpa_seconds: Option<f64>,
    sdpa_peak_bytes: Option<u64>,
    sdpa_ratio: Option<f64>,
    sdpa_ratio_min: Option<f64>,
    sdpa_ratio_max: Option<f64>,
}

/// What a side says about a pass.
#[derive(Serialize, Deserialize)]
struct Reply {
    /// By layer and head: the answer's share in the rows that predict it.
    shares: Option<Vec<Vec<f64>>>,
    seconds: f64,
    peak_bytes: u64,
}

/// Where the seconds of one of our passes go.
#[derive(Serialize, Deserialize)]
struct Parts {
    all_s: f64,
    attention_s: f64,
    linear_s: f64,
}

impl Plan {
    fn measure(&self, variant: &str) -> Result<Row> {
        let (folder, config) = make(variant, self.ctx_tok)?;
        let mut ours = self.own("--side", &folder)?;
        let first: Reply = ours.step()?; // also warms it up
        let mut eager = self.peer("eager", &folder)?;
        if let Some(eager) = &mut eager {
            check(variant, &first, &eager.step()?)?;
        }
        let mut sdpa = self.peer("sdpa", &folder)?;
        sdpa.as_mut().map(Side::step::<Reply>).transpose()?;
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            let peers = [&mut eager, &mut sdpa];
            let own: Reply = ours.step()?;
            let [eager, sdpa] = peers.map(|peer| peer.as_mut().map(Side::step::<Reply>).transpose());
            rounds.push((own, eager?, sdpa?));
        }
        drop((ours, eager, sdpa));
        let mut own = self.own("--parts", &folder)?;
        let parts = (0..self.rounds).map(|_| own.step()).collect::<Result<Vec<Parts>>>()?;
        let row = self.row(variant, &config, &rounds, &parts);
        row.print();
        Ok(row)
    }

    fn own(&self, mode: &str, folder: &Path) -> Result<Side> {
        let mut command = Command::new(std::env::current_exe()?);
        Side::start(command.arg(mode).arg(folder).arg(self.ctx_tok.to_string()), self.threads)
    }

    fn peer(&self, mode: &str, folder: &Path) -> Result<Option<Side>> {
        let Some(python) = &self.python else { return Ok(None) };
        let mut command = Command::new(python);
        command.arg(peers()).arg(mode).arg(folder).arg(folder.join("prompt.json")).arg(self.threads.to_string());
        Side::start(&mut command, self.threads).map(Some)
    }

    fn row(
        &self,
        variant: &str,
        config: &ModelConfig,
        rounds: &[(Reply, Option<Reply>, Option<Reply>)],
        parts: &[Parts],
    ) -> Row {
        let mut flops = config.forward_flops(self.ctx_tok);
        // Of the last layer only the rows that predict the answer are computed.
        flops.attention *= 1.0 - 1.0 / config.layers.len() as f64;
        let [all_s, attention_s, linear_s] = [|p: &Parts| p.all_s, |p: &Parts| p.attention_s, |p: &Parts| p.linear_s]
            .map(|of| median(parts.iter().map(of)));
        type Pick = fn(&(Reply, Option<Reply>, Option<Reply>)) -> Option<&Reply>;
        let peers: [Pick; 2] = [|round| round.1.as_ref(), |round| round.2.as_ref()];
        let [eager, sdpa] = peers.map(|peer| {
            let replies: Vec<(&Reply, &Reply)> = rounds.iter().filter_map(|r| Some((&r.0, peer(r)?))).collect();
            (!replies.is_empty()).then(|| {
                let ratios = sorted(replies.iter().map(|(own, peer)| peer.seconds / own.seconds));
                let peak = replies.iter().map(|(_, peer)| peer.peak_bytes).max().unwrap_or(0);
                (median(replies.iter().map(|(_, peer)| peer.seconds)), peak, ratios)
            })
        });
        let ratio =
            |of: &Option<(f64, u64, Vec<f64>)>| of.as_ref().map(|(.., r)| (r[r.len() / 2], r[0], r[r.len() - 1]));
        Row {
            variant: variant.to_owned(),
            parameters: config.parameters(),
            ctx_tok: self.ctx_tok,
            threads: self.threads,
            rounds: self.rounds,
            cpu: cpu_model(),
            seconds: median(rounds.iter().map(|(own, ..)| own.seconds)),
            peak_bytes: rounds.iter().map(|(own, ..)| own.peak_bytes).max().unwrap_or(0),
            attention_percent: 100.0 * attention_s / all_s,
            attention_gflop_per_s: 1e-9 * flops.attention / attention_s,
            linear_percent: 100.0 * linear_s / all_s,
            linear_gflop_per_s: 1e-9 * flops.linear / linear_s,
            eager_seconds: eager.as_ref().map(|e| e.0),
            eager_peak_bytes: eager.as_ref().map(|e| e.1),
            eager_ratio: ratio(&eager).map(|r| r.0),
            eager_ratio_min: ratio(&eager).map(|r| r.1),
            eager_ratio_max: ratio(&eager).map(|r| r.2),
            sdpa_seconds: sdpa.as_ref().map(|e| e.0),
            sdpa_peak_bytes: sdpa.as_ref().map(|e| e.1),
            sdpa_ratio: ratio(&sdpa).map(|r| r.0),
            sdpa_ratio_min: ratio(&sdpa).map(|r| r.1),
            sdpa_ratio_max: ratio(&sdpa).map(|r| r.2),
        }
    }
}

impl Row {
    fn print(&self) {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let Row { variant, seconds, peak_bytes, .. } = self;
        println!("{variant:10} difftool, every head's answer share: {seconds:.2} s, {}", mib(*peak_bytes));
        println!(
            "{:10} of that, attention {:.0} % at {:.0} GFLOP/s, linear layers {:.0} % at {:.0} GFLOP/s",
            "", self.attention_percent, self.attention_gflop_per_s, self.linear_percent, self.linear_gflop_per_s
        );
        let peers = [
            (
                "eager, the same",
                self.eager_seconds,
                self.eager_peak_bytes,
                self.eager_ratio,
                self.eager_ratio_min,
                self.eager_ratio_max,
            ),
            (
                "SDPA, nothing",
                self.sdpa_seconds,
                self.sdpa_peak_bytes,
                self.sdpa_ratio,
                self.sdpa_ratio_min,
                self.sdpa_ratio_max,
            ),
        ];
        for (name, seconds, peak, ratio, least, most) in peers {
            let (Some(seconds), Some(peak), Some(ratio), Some(least), Some(most)) = (seconds, peak, ratio, least, most)
            else {
                continue;
            };
            let memory = peak as f64 / *peak_bytes as f64;
            println!(
                "{:10} transformers {name}: {seconds:.2} s, {}: {ratio:.2} times as long ({least:.2} to {most:.2}), {memory:.1} times the memory",
                "",
                mib(peak)
            );
        }
    }
}

/// Both sides must have measured the same thing.
fn check(variant: &str, ours: &Reply, peer: &Reply) -> Result<()> {
    let (ours, peer) = ours.shares.as_ref().zip(peer.shares.as_ref()).context("both sides report shares")?;
    ensure!(ours.len() == peer.len(), "{variant}: {} layers and {}", ours.len(), peer.len());
    for (layer, (ours, peer)) in ours.iter().zip(peer).enumerate() {
        ensure!(ours.len() == peer.len(), "{variant}: {} heads and {}", ours.len(), peer.len());
        for (head, (a, b)) in ours.iter().zip(peer).enumerate() {
            ensure!((a - b).abs() < 1e-4, "{variant}, layer {layer}, head {head}: answer share {a} and {b}");
        }
    }
    Ok(())
}

/// A model, and a prompt beside it, as both sides read them.
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
    let spec = NeedleSpec { ctx_tok, needles: 1, retrieve: 1, depth_pct: 50.0, cities: CitySet::Train };
    needle::build(&spec, 0, Tokenizer::embedded(), &Haystack::embedded())
}

/// The child's part: one pass for every line of stdin.
fn serve(folder: &Path, ctx_tok: usize) -> Result<()> {
    difftool::memory::keep_freed(); // as the program does
    let config = ModelConfig::read(&folder.join("config.json"))?;
    let model = Transformer::load(&config, Checkpoint::open(folder)?.load(&config)?)?;
    let prompt = prompt(ctx_tok)?;
    let probe = AnswerProbe::new(&prompt.targets());
    for _ in std::io::stdin().lines() {
        let start = Instant::now();
        let passed = pass(&model, &prompt, Stream::new(&[&probe]), false)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut shares = vec![Vec::new(); config.layers.len()];
        for sighting in passed.sightings {
            let sink = sighting.sink.into_sink::<AnswerSink>();
            shares[sighting.layer].push(sink.allocations[0].share_abs(Region::Answer));
        }
        let peak_bytes = difftool::memory::peak_rss_bytes().unwrap_or(0);
        println!("{}", serde_json::to_string(&Reply { shares: Some(shares), seconds, peak_bytes })?);
    }
    Ok(())
}

/// The child's part: one pass taken apart for every line of stdin.
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
        // As `difftool::pass::pass` has it.
        let stream = Stream::new(&probes).with_needed_rows(config.layers.len() - 1, needed.clone());
        let mut watch = Watch { stream, seconds: 0.0 };
        std::hint::black_box(model.hidden(std::slice::from_ref(&prompt.ids), &mut watch)?);
        let all_s = start.elapsed().as_secs_f64();
        let mut linear_s = 0.0;
        for w in &projections {
            let x = Tensor::ones((1, ctx_tok, w.dim(1)?), DType::F32, &Device::Cpu)?;
            let start = Instant::now();
            std::hint::black_box(linear(&x, w)?);
            linear_s += start.elapsed().as_secs_f64();
        }
        println!("{}", serde_json::to_string(&Parts { all_s, attention_s: watch.seconds, linear_s })?);
    }
    Ok(())
}

/// Attention, with a watch on it.
struct Watch<'a> {
    stream: Stream<'a>,
    seconds: f64,
}

impl Attend for Watch<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> candle_core::Result<Tensor> {
        let start = Instant::now();
        let mixture = self.stream.attend(layer, heads);
        self.seconds += start.elapsed().as_secs_f64();
        mixture
    }
}
