//! Every op that has a kernel against candle's op, on one thread.
//!
//! `cargo bench --bench ops` prints how many times as long candle takes and writes `target/bench/ops.csv`. `cargo bench
//! --bench ops
//! -- rope` runs the ops of that name.
//!
//! The shapes are those of a model of 30 million parameters at 4,096 tokens. A forward pass is compared with
//! candle-nn's fused op where there is one; a forward and backward pass with composed ops, because candle-nn's fused
//! ops have no gradient. Both sides must agree before they are timed. They take turns; seconds are CPU time, the best
//! of all rounds.

mod sides;

use anyhow::{ensure, Result};
use candle_core::{Device, Module as _, Tensor, Var};
use candle_nn::{ops as candle, rotary_emb};
use difftool::ops::{self, RopeStyle, RopeTable};
use difftool::rng::Rng;
use serde::Serialize;
use sides::{cpu_model, cpu_seconds, write};
use std::sync::Arc;

/// As in `main.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WIDTH: usize = 512;
const FFN: usize = 1408;
const HEADS: usize = 8;
const HEAD_DIM: usize = WIDTH / HEADS;
const VOCAB: usize = 8192;
const EPS: f64 = 1e-5;
/// Rounds of a comparison.
const ROUNDS: usize = 15;

type Op = Box<dyn Fn(&[Tensor]) -> candle_core::Result<Tensor> + Send + Sync>;

/// One op on both sides.
struct Case {
    name: &'static str,
    /// Whether the backward pass is run too.
    backward: bool,
    shapes: Vec<Vec<usize>>,
    kernel: Op,
    candle: Op,
}

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    op: &'static str,
    backward: bool,
    rounds: usize,
    cpu: String,
    kernel_s: f64,
    candle_s: f64,
    times_kernel: f64,
}

fn main() -> Result<()> {
    difftool::memory::keep_freed(); // as the program does
    std::env::set_var("CANDLE_NUM_THREADS", "1"); // as in `main.rs`
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| args.iter().filter(|arg| !arg.starts_with("--")).all(|arg| name.contains(arg.as_str()));
    // `cargo test --benches` passes no `--bench`: one round on few tokens shows that the sides agree.
    let (tokens, rounds) = if args.iter().any(|arg| arg == "--bench") { (4096, ROUNDS) } else { (64, 1) };
    println!("{}, one thread; best of {rounds} rounds; cargo bench --bench ops", cpu_model());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let measure = |case: &Case| pool.install(|| case.measure(rounds));
    let rows = cases(tokens).iter().filter(|case| is_asked(case.name)).map(measure).collect::<Result<Vec<_>>>()?;
    write("ops.csv", &rows)
}

/// All comparisons, for so many tokens.
fn cases(tokens: usize) -> Vec<Case> {
    let mut cases = activations(tokens);
    cases.extend(norms(tokens));
    cases.extend(rotations(tokens));
    let of = |name, backward, shapes, kernel, candle| Case { name, backward, shapes, kernel, candle };
    for backward in [false, true] {
        let targets: Vec<u32> = (0..tokens).map(|i| (i * 131 % VOCAB) as u32).collect();
        let indices = Tensor::new(targets.clone(), &Device::Cpu).expect("targets are a vector");
        cases.push(of(
            "linear",
            backward,
            vec![vec![1, tokens, WIDTH], vec![FFN, WIDTH]],
            Box::new(|a| ops::linear(&a[0], &a[1])),
            Box::new(|a| candle_nn::Linear::new(a[1].clone(), None).forward(&a[0])),
        ));
        cases.push(of(
            "swiglu",
            backward,
            vec![vec![1, tokens, FFN]; 2],
            Box::new(|a| ops::swiglu(&a[0], &a[1])),
            Box::new(|a| candle::silu(&a[0])? * &a[1]),
        ));
        cases.push(of(
            "cross_entropy",
            backward,
            vec![vec![tokens, VOCAB]],
            Box::new(move |a| Ok(ops::cross_entropy(&a[0], targets.clone(), vec![1.0; targets.len()])?.0)),
            Box::new(move |a| candle_nn::loss::cross_entropy(&a[0], &indices)),
        ));
    }
    cases
}

fn activations(tokens: usize) -> Vec<Case> {
    let of = |name, backward, kernel: fn(&Tensor) -> _, candle: fn(&Tensor) -> _| Case {
        name,
        backward,
        shapes: vec![vec![1, tokens, FFN]],
        kernel: Box::new(move |a| kernel(&a[0])),
        candle: Box::new(move |a| candle(&a[0])),
    };
    vec![
        of("silu", false, ops::silu, candle::silu),
        of("gelu", false, ops::gelu, Tensor::gelu_erf),
        of("gelu_tanh", false, ops::gelu_tanh, Tensor::gelu),
        of("relu", false, ops::relu, Tensor::relu),
        of("sigmoid", false, ops::sigmoid, candle::sigmoid),
        of("sigmoid", true, ops::sigmoid, candle::sigmoid),
    ]
}

fn norms(tokens: usize) -> Vec<Case> {
    let eps = EPS as f32;
    let rms = |backward, candle: Op| Case {
        name: "rms_norm",
        backward,
        shapes: vec![vec![1, tokens, WIDTH], vec![WIDTH]],
        kernel: Box::new(|a| ops::rms_norm(&a[0], &a[1], EPS)),
        candle,
    };
    vec![
        rms(false, Box::new(move |a| candle::rms_norm(&a[0], &a[1], eps))),
        rms(true, Box::new(move |a| candle::rms_norm_slow(&a[0], &a[1], eps))),
        Case {
            name: "layer_norm",
            backward: false,
            shapes: vec![vec![1, tokens, WIDTH], vec![WIDTH], vec![WIDTH]],
            kernel: Box::new(|a| ops::layer_norm(&a[0], &a[1], &a[2], EPS)),
            candle: Box::new(move |a| candle::layer_norm(&a[0], &a[1], &a[2], eps)),
        },
    ]
}

/// Both styles of rotary embedding; candle's has one order of dimensions, ours another.
fn rotations(tokens: usize) -> Vec<Case> {
    let frequencies: Vec<f64> = (0..HEAD_DIM / 2).map(|i| 10_000_f64.powf(-2.0 * i as f64 / HEAD_DIM as f64)).collect();
    let table = Arc::new(RopeTable::new(tokens, &frequencies, 1.0));
    let angles = |f: fn(f64) -> f64| {
        let of_position = |t: usize| frequencies.iter().map(move |frequency| f(t as f64 * frequency) as f32);
        let values: Vec<f32> = (0..tokens).flat_map(of_position).collect();
        Tensor::from_vec(values, (tokens, HEAD_DIM / 2), &Device::Cpu).expect("one angle for each position and pair")
    };
    let (cos, sin) = (angles(f64::cos), angles(f64::sin));
    type Rotate = fn(&Tensor, &Tensor, &Tensor) -> candle_core::Result<Tensor>;
    let of = |name, style, backward, rotate: Rotate| {
        let (table, cos, sin) = (table.clone(), cos.clone(), sin.clone());
        let by_head = move |x: &Tensor| x.transpose(1, 2)?.contiguous();
        Case {
            name,
            backward,
            shapes: vec![vec![1, tokens, HEADS, HEAD_DIM]],
            kernel: Box::new(move |a| ops::rope(&a[0], &table, style, 0)),
            candle: Box::new(move |a| by_head(&rotate(&by_head(&a[0])?, &cos, &sin)?)),
        }
    };
    vec![
        of("rope", RopeStyle::Half, false, rotary_emb::rope),
        of("rope", RopeStyle::Half, true, rotary_emb::rope_slow),
        of("rope_interleaved", RopeStyle::Interleaved, false, rotary_emb::rope_i),
        of("rope_interleaved", RopeStyle::Interleaved, true, rotary_emb::rope_i_slow),
    ]
}

impl Case {
    fn measure(&self, rounds: usize) -> Result<Row> {
        let vars = self.shapes.iter().enumerate().map(|(i, shape)| random(shape, i)).collect::<Result<Vec<_>>>()?;
        let args: Vec<Tensor> = match self.backward {
            true => vars.iter().map(|var| var.as_tensor().clone()).collect(),
            false => vars.iter().map(|var| var.as_detached_tensor()).collect(),
        };
        self.check(&args)?;
        let (mut kernel_s, mut candle_s) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..rounds {
            kernel_s = kernel_s.min(self.seconds(&self.kernel, &args)?);
            candle_s = candle_s.min(self.seconds(&self.candle, &args)?);
        }
        let Self { name, backward, .. } = *self;
        let row =
            Row { op: name, backward, rounds, cpu: cpu_model(), kernel_s, candle_s, times_kernel: candle_s / kernel_s };
        let pass = if backward { "forward and backward" } else { "forward" };
        println!("{name:16} {pass:20} {:8.3} ms, candle {:.2} times as long", 1e3 * kernel_s, row.times_kernel);
        Ok(row)
    }

    fn check(&self, args: &[Tensor]) -> Result<()> {
        let (got, want) = ((self.kernel)(args)?, (self.candle)(args)?);
        let difference = (got - want)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        ensure!(difference < 2e-4, "{}: outputs differ by {difference}", self.name);
        Ok(())
    }

    /// CPU seconds of one pass.
    fn seconds(&self, op: &Op, args: &[Tensor]) -> Result<f64> {
        let start = cpu_seconds();
        let y = op(args)?;
        if self.backward {
            std::hint::black_box(y.sum_all()?.backward()?);
        }
        std::hint::black_box(y);
        Ok(cpu_seconds() - start)
    }
}

fn random(shape: &[usize], i: usize) -> Result<Var> {
    let mut rng = Rng::new(i as u64, "ops");
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Ok(Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu)?)?)
}
