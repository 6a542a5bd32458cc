//! A forward pass that measures the answer's share of every head, of a standard and a differential model of 30 million
//! parameters.
//!
//! `cargo bench --bench pass` prints a table and writes `target/bench/pass.csv`; `--ctx N`, `--rounds N` and `--threads N`
//! set tokens, rounds and threads. Seconds are wall time, medians of all rounds. Attention is timed around calls of
//! [`Attend`], the linear layers alone on as many tokens; the rest is norms, rotary embedding, SwiGLU and sums.

mod common;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use common::{cpu_model, is_real, number, random_model, spread, write};
use difftool::measures::{Allocation, TargetProbe};
use engine::attention::{Attend, Heads, RowProbe, Stream};
use engine::kernels::linear;
use engine::model::{Checkpoint, DecoderSizes, Transformer};
use serde::Serialize;
use std::time::Instant;
use text::{needle, Haystack, NeedleSpec, Prompt, Tokenizer};

/// As in `main.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    variant: &'static str,
    parameters: usize,
    ctx_tok: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    seconds: f64,
    seconds_min: f64,
    seconds_max: f64,
    attention_s: f64,
    linear_s: f64,
    /// Of this process up to here.
    peak_bytes: u64,
}

fn main() -> Result<()> {
    std::env::set_var("CANDLE_NUM_THREADS", "1"); // as in `main.rs`
    let ctx_tok = number("--ctx", if is_real() { 4096 } else { 256 })?;
    let rounds = number("--rounds", if is_real() { 5 } else { 1 })?;
    let threads = number("--threads", rayon::current_num_threads())?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    println!("{}, {threads} threads; {ctx_tok} tokens; {rounds} rounds; cargo bench --bench pass", cpu_model());
    let rows = ["transformer", "diff"].map(|variant| pool.install(|| measure(variant, ctx_tok, rounds)));
    write("pass.csv", &rows.into_iter().collect::<Result<Vec<_>>>()?)
}

fn measure(variant: &'static str, ctx_tok: usize, rounds: usize) -> Result<Row> {
    let sizes = DecoderSizes {
        vocab: 8192,
        width: 512,
        layers: 8,
        ffn: 1408,
        heads: if variant == "diff" { 4 } else { 8 },
        kv_heads: 8,
        head_dim: 64,
        max_ctx_tok: ctx_tok.max(4096),
    };
    let (folder, config) = random_model(&format!("{variant}-30m"), variant, sizes)?;
    let weights = Checkpoint::open(&folder)?.load(&config)?;
    let projections: Vec<Tensor> =
        weights.iter().filter(|(name, _)| name.contains("_proj")).map(|(_, w)| w.clone()).collect();
    let model = Transformer::load(&config, weights)?;
    let prompt = prompt(ctx_tok)?;
    let mut needed = vec![false; prompt.ids.len()];
    prompt.queries.iter().flat_map(|query| query.rows()).for_each(|row| needed[row] = true);
    let probe = TargetProbe::new(&prompt.targets(), Allocation::default());
    let probes: [&dyn RowProbe; 1] = [&probe];
    let mut found = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        // As in `engine::model::pass::pass`.
        let stream = Stream::new(&probes).with_needed_rows(config.layers.len() - 1, needed.clone());
        let mut timed = Timed { stream, seconds: 0.0 };
        std::hint::black_box(model.hidden(std::slice::from_ref(&prompt.ids), &mut timed)?);
        found.push([start.elapsed().as_secs_f64(), timed.seconds, linear_seconds(&projections, ctx_tok)?]);
    }
    let [seconds, attention, linear] = [0, 1, 2].map(|part| spread(found.iter().map(|of_round| of_round[part])));
    let row = Row {
        variant,
        parameters: config.parameters(),
        ctx_tok,
        threads: rayon::current_num_threads(),
        rounds,
        cpu: cpu_model(),
        seconds: seconds[0],
        seconds_min: seconds[1],
        seconds_max: seconds[2],
        attention_s: attention[0],
        linear_s: linear[0],
        peak_bytes: base::memory::peak_rss_bytes().unwrap_or(0),
    };
    println!(
        "{variant:12} {:.2} s ({:.2} to {:.2}), of that attention {:.2} s, linear layers {:.2} s; {} MiB at the peak so far",
        row.seconds,
        row.seconds_min,
        row.seconds_max,
        row.attention_s,
        row.linear_s,
        row.peak_bytes >> 20
    );
    Ok(row)
}

fn prompt(ctx_tok: usize) -> Result<Prompt> {
    let spec = NeedleSpec { ctx_tok, ..NeedleSpec::default() };
    needle::build(&spec, 0, Tokenizer::embedded(), &Haystack::Embedded)
}

/// Wall time of all projections, one after the other.
fn linear_seconds(projections: &[Tensor], ctx_tok: usize) -> Result<f64> {
    let mut seconds = 0.0;
    for w in projections {
        let x = Tensor::ones((1, ctx_tok, w.dim(1)?), DType::F32, &Device::Cpu)?;
        let start = Instant::now();
        std::hint::black_box(linear(&x, w)?);
        seconds += start.elapsed().as_secs_f64();
    }
    Ok(seconds)
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
