//! The trainer's step against the same model written with composed candle ops: tokens/s and peak memory, one thread.
//!
//! `cargo bench --bench training` prints a table and writes `target/bench/training.csv`.
//!
//! Each side is a process of its own, so that its peak memory is its own, and the two take steps in turn (A B A B ..). They
//! start from the same weights, train on the same batch with the same optimiser ([`AdamW`] of the trainer, faster than
//! candle's), and must agree on the first loss and gradient norm before anything is timed.
//!
//! A second is one of CPU time. For one thread on an idle machine that is a second; on a busy one wall time says who was
//! given the core, and the share that each step got of it is printed as a warning.

use anyhow::{bail, ensure, Context, Result};
use candle_core::{Device, Tensor, Var, D};
use candle_nn::ops::{log_softmax, silu, softmax};
use difftool::attention::lambda_init;
use difftool::model::{ModelConfig, Positions, Transformer, Variant};
use difftool::prompt::Tokenizer;
use difftool::train::{step, tensors, variables, AdamW, Batch, DataSource, TrainSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// As in `main.rs`; the composed side gains most from it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The embedded models' sizes, and their data at this context.
const SPEC: &str = "experiments/pair-4k.toml";
const CTX_TOK: usize = 1024;
const STEP_TOK: usize = 4096;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, side, variant] = args.as_slice() {
        if flag == "--side" {
            return serve(side, variant);
        }
    }
    // `cargo test --benches` passes no `--bench`: once is enough to see that the two sides agree.
    let rounds = if args.iter().any(|arg| arg == "--bench") { 9 } else { 1 };
    let cpu = cpu_model();
    println!("{cpu}, one thread; {CTX_TOK} tokens of context, {STEP_TOK} per step; {rounds} steps of each side");
    println!("fused and composed: median tokens/s, speed-up (least to most), peak memory");
    let rows = ["transformer", "diff"].iter().map(|variant| measure(variant, rounds)).collect::<Result<Vec<_>>>()?;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench").join("training.csv");
    write(&path, &rows).with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    variant: String,
    parameters: usize,
    ctx_tok: usize,
    step_tok: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    fused_tokens_per_s: f64,
    composed_tokens_per_s: f64,
    speedup: f64,
    speedup_min: f64,
    speedup_max: f64,
    fused_peak_bytes: u64,
    composed_peak_bytes: u64,
    /// Least CPU time per wall time of a step: near 1 if the machine was idle.
    core_share_min: f64,
}

fn measure(variant: &str, rounds: usize) -> Result<Row> {
    let (mut fused, mut composed) = (Side::start("fused", variant)?, Side::start("composed", variant)?);
    let (a, b) = (fused.step()?, composed.step()?); // also warms both up
    ensure!((a.loss - b.loss).abs() < 1e-4, "{variant}: losses differ: fused {}, composed {}", a.loss, b.loss);
    ensure!((a.norm / b.norm - 1.0).abs() < 1e-3, "{variant}: gradients differ: fused {}, composed {}", a.norm, b.norm);
    let pairs = (0..rounds).map(|_| Ok((fused.step()?, composed.step()?))).collect::<Result<Vec<(Reply, Reply)>>>()?;
    let last = pairs.last().context("at least one round")?;
    let speedups = sorted(pairs.iter().map(|(a, b)| b.seconds / a.seconds));
    let speed = |seconds: Vec<f64>| STEP_TOK as f64 / seconds[seconds.len() / 2];
    let row = Row {
        variant: variant.to_owned(),
        parameters: a.parameters,
        ctx_tok: CTX_TOK,
        step_tok: STEP_TOK,
        threads: 1,
        rounds,
        cpu: cpu_model(),
        fused_tokens_per_s: speed(sorted(pairs.iter().map(|(a, _)| a.seconds))),
        composed_tokens_per_s: speed(sorted(pairs.iter().map(|(_, b)| b.seconds))),
        speedup: speedups[rounds / 2],
        speedup_min: speedups[0],
        speedup_max: speedups[rounds - 1],
        fused_peak_bytes: last.0.peak_bytes,
        composed_peak_bytes: last.1.peak_bytes,
        core_share_min: sorted(pairs.iter().flat_map(|(a, b)| [a, b]).map(|r| r.seconds / r.wall_s))[0],
    };
    print(&row);
    Ok(row)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn print(row: &Row) {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    println!(
        "{:12} {:.0} and {:.0} tokens/s, {:.2}x ({:.2} to {:.2}), {} and {}",
        row.variant,
        row.fused_tokens_per_s,
        row.composed_tokens_per_s,
        row.speedup,
        row.speedup_min,
        row.speedup_max,
        mib(row.fused_peak_bytes),
        mib(row.composed_peak_bytes),
    );
    if row.core_share_min < 0.9 {
        println!("{:12} a step got {:.0} % of a core: repeat on an idle machine", "", 100.0 * row.core_share_min);
    }
}

fn write(path: &Path, rows: &[Row]) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    let mut csv = csv::Writer::from_path(path)?;
    rows.iter().try_for_each(|row| csv.serialize(row))?;
    Ok(csv.flush()?)
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown CPU", |(_, name)| name).to_owned()
}

/// One side in a process of its own. It takes a step for every line it is sent, and ends with its input.
struct Side {
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

/// What a side says about a step.
#[derive(Serialize, Deserialize)]
struct Reply {
    parameters: usize,
    loss: f64,
    norm: f64,
    /// Of CPU time.
    seconds: f64,
    wall_s: f64,
    peak_bytes: u64,
}

impl Side {
    fn start(side: &str, variant: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--side", side, variant]).env("CANDLE_NUM_THREADS", "1").env("RAYON_NUM_THREADS", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let replies = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { requests: child.stdin.take(), replies, child })
    }

    fn step(&mut self) -> Result<Reply> {
        self.requests.as_mut().context("stdin is piped")?.write_all(b"step\n")?;
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        serde_json::from_str(&line).context("a side ended early; its error is above")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.requests = None; // closes the pipe, which ends the child
        let _ = self.child.wait();
    }
}

/// The child's part: one step for every line of stdin.
fn serve(side: &str, variant: &str) -> Result<()> {
    let spec = TrainSpec::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(SPEC))?;
    let tokenizer = Tokenizer::embedded();
    let index = spec.variants.iter().position(|v| v.name == variant).context("a variant of the spec")?;
    let config = spec.configs(tokenizer.vocab_size())?.swap_remove(index);
    let mut stage = spec.stages.iter().find(|s| s.ctx_tok == CTX_TOK).context("a stage of this context")?.clone();
    stage.step_tok = STEP_TOK;
    let batch = DataSource::new(tokenizer, spec.seed)?.batch(&stage, &spec.loss, 0)?;
    let vars = variables(&config, spec.seed)?;
    let mut optimizer = AdamW::new(&vars, &spec.optimizer);
    let fused = Transformer::build(&config, &mut tensors(&vars))?;
    let composed = Composed::new(&config, &vars)?;
    for _ in std::io::stdin().lines() {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let (loss, norm) = match side {
            "fused" => step(&fused, &mut optimizer, &batch, spec.optimizer.rate).map(|(loss, _, norm)| (loss, norm))?,
            _ => composed.step(&mut optimizer, &batch, spec.optimizer.rate)?,
        };
        let wall_s = start.elapsed().as_secs_f64();
        let seconds = cpu_seconds().zip(cpu_start).map_or(wall_s, |(end, start)| end - start);
        let peak_bytes = difftool::memory::peak_rss_bytes().unwrap_or(0);
        let reply = Reply { parameters: config.parameters(), loss, norm, seconds, wall_s, peak_bytes };
        println!("{}", serde_json::to_string(&reply)?);
    }
    Ok(())
}

/// CPU time of all threads of this process, on Linux.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15, in hundredths of a second. The second one, a name in brackets, may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / 100.0)
}

/// The model as one writes it with candle's own differentiable ops: all heads at once, whole maps, a causal mask.
struct Composed<'a> {
    config: &'a ModelConfig,
    vars: &'a BTreeMap<String, Var>,
    /// cos and sin of every position and pair of channels: (T, d/2).
    angles: [Tensor; 2],
    /// 0 where a query sees a key, -inf elsewhere: (T, T).
    mask: Tensor,
}

impl<'a> Composed<'a> {
    fn new(config: &'a ModelConfig, vars: &'a BTreeMap<String, Var>) -> Result<Self> {
        ensure!(config.kv_heads == config.query_heads(), "the composed model repeats no key heads");
        let pairs = config.head_dim / 2;
        let Positions::Rotary { embeddings, .. } = &config.positions else { bail!("the composed model is rotary") };
        let frequencies = embeddings[0].frequencies();
        let angle = |t: usize, i: usize| t as f64 * frequencies[i];
        let table = |f: fn(f64) -> f64| {
            let values = (0..CTX_TOK * pairs).map(|at| f(angle(at / pairs, at % pairs)) as f32).collect();
            Tensor::from_vec(values, (CTX_TOK, pairs), &Device::Cpu)
        };
        let hidden = |at: usize| if at % CTX_TOK > at / CTX_TOK { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::from_vec((0..CTX_TOK * CTX_TOK).map(hidden).collect(), (CTX_TOK, CTX_TOK), &Device::Cpu)?;
        Ok(Self { config, vars, angles: [table(f64::cos)?, table(f64::sin)?], mask })
    }

    fn step(&self, optimizer: &mut AdamW, batch: &Batch, rate: f64) -> Result<(f64, f64)> {
        let n = batch.targets.len();
        let targets = Tensor::from_vec(batch.targets.clone(), (n, 1), &Device::Cpu)?;
        let weights = Tensor::from_vec(batch.weights.clone(), n, &Device::Cpu)?;
        let log_probs = log_softmax(&self.logits(&batch.inputs)?, 1)?.gather(&targets, 1)?.squeeze(1)?;
        let loss = ((log_probs * &weights)?.sum_all()?.neg()? / f64::from(weights.sum_all()?.to_scalar::<f32>()?))?;
        let value = f64::from(loss.to_scalar::<f32>()?);
        Ok((value, optimizer.update(&loss.backward()?, rate)?))
    }

    fn logits(&self, ids: &[Vec<u32>]) -> Result<Tensor> {
        let flat = Tensor::from_vec(ids.concat(), ids.len() * CTX_TOK, &Device::Cpu)?;
        let embed = self.var("model.embed_tokens");
        let mut x = embed.index_select(&flat, 0)?.reshape((ids.len(), CTX_TOK, self.config.width))?; // B,T,E
        for layer in 0..self.config.layers.len() {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            let normed = self.norm(&x, &at("input_layernorm"))?;
            x = (x + self.attention(&normed, layer, &at("self_attn"))?)?;
            let normed = self.norm(&x, &at("post_attention_layernorm"))?;
            let gate = silu(&self.linear(&normed, &at("mlp.gate_proj"))?)?;
            let hidden = (gate * self.linear(&normed, &at("mlp.up_proj"))?)?;
            x = (x + self.linear(&hidden, &at("mlp.down_proj"))?)?;
        }
        Ok(self.norm(&x, "model.norm")?.flatten_to(1)?.matmul(&embed.t()?)?) // B*T,W
    }

    fn attention(&self, x: &Tensor, layer: usize, at: &str) -> Result<Tensor> {
        let (b, t, _) = x.dims3()?;
        let c = self.config;
        let split = |name: &str| {
            let y = self.linear(x, &format!("{at}.{name}"))?.reshape((b, t, c.kv_heads, c.head_dim))?;
            Ok::<_, anyhow::Error>(y.transpose(1, 2)?.contiguous()?) // B,heads,T,d
        };
        let (q, k, v) = (self.rope(&split("q_proj")?)?, self.rope(&split("k_proj")?)?, split("v_proj")?);
        let scaled = (q / (c.head_dim as f64).sqrt())?;
        let maps = softmax(&scaled.matmul(&k.t()?)?.broadcast_add(&self.mask)?, D::Minus1)?; // B,maps,T,T
        let out = match c.variant {
            Variant::Standard => maps.matmul(&v)?,
            _ => self.difference(&maps, &v, layer, at)?,
        };
        self.linear(&out.transpose(1, 2)?.flatten_from(2)?, &format!("{at}.o_proj"))
    }

    /// DIFF V1, halves: the first half of the maps less lambda times the second, over values twice as wide.
    fn difference(&self, maps: &Tensor, v: &Tensor, layer: usize, at: &str) -> Result<Tensor> {
        let wide = Tensor::cat(&v.chunk(2, 1)?, 3)?.contiguous()?; // B,H,T,2d
        let halves = maps.matmul(&Tensor::cat(&[&wide, &wide], 1)?)?.chunk(2, 1)?;
        let vector = |name: &str| self.vars[&format!("{at}.lambda_{name}")].as_tensor();
        let exp_dot = |q: &str, k: &str| (vector(q) * vector(k))?.sum_all()?.exp();
        let lambda = ((exp_dot("q1", "k1")? - exp_dot("q2", "k2")?)? + lambda_init(layer))?;
        let mixture = (&halves[0] - halves[1].broadcast_mul(&lambda)?)?;
        Ok((self.unit_rms(&mixture)? * (1.0 - lambda_init(layer)))?)
    }

    fn rope(&self, x: &Tensor) -> Result<Tensor> {
        let [cos, sin] = &self.angles;
        let halves = x.chunk(2, 3)?;
        let (a, b) = (&halves[0], &halves[1]);
        let first = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
        let second = (b.broadcast_mul(cos)? + a.broadcast_mul(sin)?)?;
        Ok(Tensor::cat(&[first, second], 3)?)
    }

    fn unit_rms(&self, x: &Tensor) -> Result<Tensor> {
        let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
        Ok(x.broadcast_div(&(mean + self.config.norm_eps)?.sqrt()?)?)
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        Ok(self.unit_rms(x)?.broadcast_mul(self.var(name))?)
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let (b, t, _) = x.dims3()?;
        Ok(x.flatten_to(1)?.matmul(&self.var(name).t()?)?.reshape((b, t, ()))?)
    }

    fn var(&self, name: &str) -> &Tensor {
        self.vars[&format!("{name}.weight")].as_tensor()
    }
}
