//! The trainer's step against the same model in candle-nn's composed ops.
//!
//! `cargo bench --bench training` prints tokens/s and writes `target/bench/training.csv`; `--rounds N` sets the number of
//! steps, `--ctx N` the only context. Both sides start from the same weights and train on the same batch with the same
//! optimiser, and must agree on the first loss and gradient norm before anything is timed. They take turns on one thread;
//! seconds are CPU time. Contexts of 4,096 tokens take the composed ops several GiB.

mod common;
mod composed;

use anyhow::{ensure, Context, Result};
use candle_core::Var;
use common::{cpu_model, cpu_seconds, is_real, number, spread, write};
use composed::Composed;
use difftool::train::{step, tensors, AdamW, DataSource, TrainSpec};
use engine::model::{Transformer, Weights};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use text::Tokenizer;

/// As in `main.rs`. candle's composed ops gain most from it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The embedded models' sizes, data and optimiser.
const SPEC: &str = "experiments/study-b-models.toml";
const STEP_TOK: usize = 4096;

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    variant: &'static str,
    parameters: usize,
    ctx_tok: usize,
    rounds: usize,
    cpu: String,
    tokens_per_s: f64,
    /// Time of the composed ops as a multiple: median, least and most.
    times: f64,
    times_min: f64,
    times_max: f64,
}

fn main() -> Result<()> {
    std::env::set_var("CANDLE_NUM_THREADS", "1"); // as in `main.rs`
    let rounds = number("--rounds", if is_real() { 5 } else { 1 })?;
    let contexts = match number("--ctx", 0)? {
        0 if is_real() => vec![256, 1024],
        0 => vec![256],
        ctx_tok => vec![ctx_tok],
    };
    println!("{}, one thread; {STEP_TOK} tokens a step; {rounds} steps of each side in turn", cpu_model());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut rows = Vec::new();
    for ctx_tok in contexts {
        for variant in ["transformer", "diff"] {
            rows.push(pool.install(|| measure(variant, ctx_tok, rounds))?);
        }
    }
    write("training.csv", &rows)
}

fn measure(variant: &'static str, ctx_tok: usize, rounds: usize) -> Result<Row> {
    let mut spec = TrainSpec::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(SPEC))?;
    spec.variants.retain(|v| v.name == variant);
    let config = spec.configs()?.swap_remove(0);
    let stage = spec.stages.iter().find(|stage| stage.ctx_tok == ctx_tok).context("a stage of this context")?;
    let mut stage = stage.clone();
    stage.step_tok = STEP_TOK;
    let batch = DataSource::new(1, Tokenizer::embedded()).batch(&stage, &spec.loss, 0)?;
    let weights = Weights::init(&config, 1)?;
    let vars = || -> Result<BTreeMap<String, Var>> {
        weights.iter().map(|(name, tensor)| Ok((name.clone(), Var::from_tensor(tensor)?))).collect()
    };
    let [ours, theirs] = [vars()?, vars()?];
    let fused = Transformer::build(&config, &mut tensors(&ours))?;
    let composed = Composed::new(&config, &theirs, ctx_tok)?;
    let [mut our_optimizer, mut their_optimizer] = [&ours, &theirs].map(|vars| AdamW::new(vars, &spec.optimizer));
    let mut seconds = Vec::new();
    for round in 0..=rounds {
        let start = cpu_seconds();
        let done = step(&fused, &mut our_optimizer, &batch, spec.optimizer.rate)?;
        let middle = cpu_seconds();
        let (loss, norm) = composed.step(&mut their_optimizer, &batch, spec.optimizer.rate)?;
        if round == 0 {
            ensure!((done.loss_nats - loss).abs() < 1e-4, "{variant}: loss {} and {loss}", done.loss_nats);
            ensure!(
                (done.grad_norm / norm - 1.0).abs() < 1e-3,
                "{variant}: gradient norm {} and {norm}",
                done.grad_norm
            );
        } else {
            seconds.push([middle - start, cpu_seconds() - middle]);
        }
    }
    let times = spread(seconds.iter().map(|[ours, theirs]| theirs / ours));
    let row = Row {
        variant,
        parameters: config.parameters(),
        ctx_tok,
        rounds,
        cpu: cpu_model(),
        tokens_per_s: STEP_TOK as f64 / spread(seconds.iter().map(|[ours, _]| *ours))[0],
        times: times[0],
        times_min: times[1],
        times_max: times[2],
    };
    println!(
        "{variant:12} {ctx_tok:5} tokens of context: {:6.0} tokens/s; candle takes {:.2} times as long ({:.2} to {:.2})",
        row.tokens_per_s, row.times, row.times_min, row.times_max
    );
    Ok(row)
}
