//! The streaming attention kernel against the machine's peak and against the dense reference, and linear layers against the
//! peak, one thread.
//!
//! `cargo bench --bench kernel` prints tables and writes `target/bench/kernel.csv` and `linear.csv`. `cargo bench --bench
//! kernel -- 64/4096` measures the lines of that name: variant/head width/tokens, or linear/inner size/rows.
//!
//! Only useful operations count: the products of each query with its visible keys (2 d for the logits of each map, 2
//! for each value channel). The peak is that of a register-blocked product of random numbers in the first-level cache,
//! timed in turn with the kernel in this process. Seconds are CPU time, the best of all rounds. Before anything is
//! timed, kernel and reference must agree on the output and on the mass of the answer to 1e-4.

mod common;
#[path = "../tests/suite/dense.rs"]
mod dense;

use anyhow::{ensure, Result};
use candle_core::{Device, Tensor};
use common::{cpu_model, cpu_seconds, is_real, write};
use dense::Dense;
use difftool::measures::{Contributions, TargetProbe};
use engine::attention::{Attend, AttentionRow, Heads, LogitRule, RowCollector, RowProbe, Stream, Variant, Wiring};
use engine::kernels::linear;
use engine::kernels::simd::{max, sum};
use names::Region;
use serde::Serialize;
use stats::Rng;
use std::ops::Range;
use std::time::Instant;
use text::TargetRows;

/// As in `main.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows that predict an answer, at the end of the prompt.
const ANSWER_ROWS: usize = 8;
/// Keys of the answer: the second tenth of a prompt.
fn answer_keys(t: usize) -> Range<usize> {
    t / 10..t / 5
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked = |name: &str| args.iter().filter(|arg| !arg.starts_with("--")).all(|arg| name.contains(arg.as_str()));
    let (rounds, lengths): (usize, &[usize]) = if is_real() { (9, &[1024, 4096, 16384]) } else { (1, &[1024]) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!("{}, one thread; best of up to {rounds} rounds; cargo bench --bench kernel", cpu_model());
    println!(
        "probing costs: the last {ANSWER_ROWS} rows and all rows for their sums and extrema; the last {ANSWER_ROWS} rows for \
         what regions give the output"
    );
    let lines = pool.install(|| -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for d in [32, 64, 128] {
            for variant in ["transformer", "diff", "diff-v2"] {
                for &t in lengths.iter().filter(|t| asked(&format!("{variant}/{d}/{t}"))) {
                    agree(variant, d, 1024)?;
                    lines.push(measure(variant, d, t, rounds)?);
                }
            }
        }
        Ok(lines)
    })?;
    let linear = pool.install(|| -> Result<Vec<LinearLine>> {
        // The widths of SmolLM2 135M, Gemma 3 270M and Qwen 2.5 0.5B, into their MLPs.
        let shapes = [(576, 1536), (640, 2048), (896, 4864)];
        let lengths = lengths.iter().filter(|&&t| t <= 4096);
        let cases = lengths.flat_map(|&rows| shapes.map(|(inner, outer)| (rows, inner, outer)));
        let asked = cases.filter(|(rows, inner, _)| asked(&format!("linear/{inner}/{rows}")));
        asked.map(|shape| measure_linear(shape, rounds)).collect()
    })?;
    write("kernel.csv", &lines)?;
    write("linear.csv", &linear)
}

/// A line of the table and of the CSV of linear layers.
#[derive(Serialize)]
struct LinearLine {
    rows: usize,
    inner: usize,
    outer: usize,
    cpu: String,
    seconds: f64,
    gflop_per_s: f64,
    peak_gflop_per_s: f64,
    /// From the best times.
    percent_of_peak: f64,
}

/// Times `x @ w^T`: x (rows, inner), w (outer, inner), in turn with the peak.
fn measure_linear((rows, inner, outer): (usize, usize, usize), rounds: usize) -> Result<LinearLine> {
    let random = |name: &str, shape: [usize; 2]| {
        let mut rng = Rng::new(1, name);
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.normal() as f32).collect();
        Tensor::from_vec(values, shape.as_slice(), &Device::Cpu)
    };
    let (x, w, mut peak) = (random("x", [rows, inner])?, random("w", [outer, inner])?, Peak::new());
    let flops = (2 * rows * inner * outer) as f64;
    let (mut seconds, mut of_peak) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds * (4e9 / flops).ceil() as usize {
        let start = cpu_seconds();
        std::hint::black_box(linear(&x, &w)?);
        seconds = seconds.min(cpu_seconds() - start);
        of_peak = of_peak.min(peak.seconds());
    }
    let (gflop_per_s, peak_gflop_per_s) = (flops / seconds / 1e9, peak.flops() / of_peak / 1e9);
    let percent_of_peak = 100.0 * gflop_per_s / peak_gflop_per_s;
    println!(
        "linear {rows:5} rows of {inner:4} -> {outer:4}: {:7.2} ms, {gflop_per_s:3.0} of {peak_gflop_per_s:3.0} GFLOP/s, \
         {percent_of_peak:2.0} % of peak",
        1e3 * seconds
    );
    Ok(LinearLine { rows, inner, outer, cpu: cpu_model(), seconds, gflop_per_s, peak_gflop_per_s, percent_of_peak })
}

/// The answer's rows of a prompt with all regions.
fn target(t: usize) -> TargetRows {
    let mut regions = vec![Region::Filler; t];
    regions[0] = Region::Bos;
    regions[answer_keys(t)].fill(Region::Answer);
    regions[t - t / 20..].fill(Region::Question);
    TargetRows { query: None, rows: t - ANSWER_ROWS..t, regions }
}

/// Two random output heads of a variant. Queries are scaled up so that rows are far from uniform.
fn random_heads<'a>(variant: &str, wiring: &'a Wiring, d: usize, t: usize) -> Result<Heads<'a>> {
    let (q_heads, kv_heads) = head_counts(variant);
    let random = |name: &str, shape: &[usize], scale: f64| {
        let mut rng = Rng::new(1, name);
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| (scale * rng.normal()) as f32).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    };
    let lambda = match variant {
        "transformer" => None,
        "diff" => Some(Tensor::new(&[0.5_f32], &Device::Cpu)?),
        _ => Some((random("lambda", &[1, t, wiring.heads()], 0.1)? + 0.5)?),
    };
    Ok(Heads {
        q: random("q", &[1, t, q_heads, d], 2.0)?,
        k: random("k", &[1, t, kv_heads, d], 1.0)?,
        v: random("v", &[1, t, kv_heads, d], 1.0)?,
        lambda,
        sink: None,
        gate: None,
        wiring,
        rule: LogitRule::plain(d),
    })
}

fn head_counts(variant: &str) -> (usize, usize) {
    match variant {
        "transformer" => (2, 2),
        "diff" => (4, 4),
        _ => (4, 2),
    }
}

fn wiring(variant: &str) -> Wiring {
    let (preset, value_heads) = if variant == "diff" { ("diff-microsoft", 4) } else { (variant, 2) };
    Variant::preset(preset).expect("variants are presets").wiring(2, value_heads)
}

/// Checks the kernel against the reference.
fn agree(variant: &str, d: usize, t: usize) -> Result<()> {
    let wiring = wiring(variant);
    let heads = random_heads(variant, &wiring, d, t)?;
    let (mut dense, probe) = (Dense::default(), Sums { from: t - ANSWER_ROWS, t });
    let watched: [&dyn RowProbe; 1] = [&probe];
    let mut stream = Stream::new(&watched);
    let difference = (stream.attend(0, &heads)? - dense.attend(0, &heads)?)?;
    let difference = difference.abs()?.max_all()?.to_scalar::<f32>()?;
    ensure!(difference < 1e-4, "{variant}, width {d}: outputs differ by {difference}");
    for (result, reference) in stream.probe_results.into_iter().zip(&dense.kept[0][0]) {
        let got = result.collector.into_collector::<SumsCollector>().answer;
        let row = |query: usize| &reference.effective[query * t..][answer_keys(t)];
        let want = (t - ANSWER_ROWS..t).map(|query| row(query).iter().sum::<f64>()).sum::<f64>();
        ensure!((got - want).abs() < 1e-4, "{variant}, width {d}: answer mass {got} instead of {want}");
    }
    Ok(())
}

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Line {
    variant: String,
    maps: usize,
    head_dim: usize,
    ctx_tok: usize,
    heads: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    seconds: f64,
    gflop_per_s: f64,
    peak_gflop_per_s: f64,
    /// From the best times.
    percent_of_peak: f64,
    /// Median and extremes of the rounds' own ratios.
    percent_of_peak_median: f64,
    percent_of_peak_min: f64,
    percent_of_peak_max: f64,
    /// Time of the dense reference as a multiple; empty where it was not run.
    dense_slowdown: Option<f64>,
    answer_rows_percent: f64,
    all_rows_percent: f64,
    /// With [`Contributions`] on the answer's rows, for `share_out`.
    contribution_percent: f64,
}

fn measure(variant: &str, d: usize, t: usize, rounds: usize) -> Result<Line> {
    let wiring = wiring(variant);
    let heads = random_heads(variant, &wiring, d, t)?;
    let per_pair = 2 * d * (wiring.maps() + wiring.value_slices());
    let flops = (wiring.heads() * per_pair) as f64 * (t * (t + 1) / 2) as f64;
    let (answer, all) = (Sums { from: t - ANSWER_ROWS, t }, Sums { from: 0, t });
    let contribution = TargetProbe::new(&[target(t)], Contributions::default());
    let time = |probes: &[&dyn RowProbe]| -> Result<f64> {
        let start = cpu_seconds();
        std::hint::black_box(Stream::new(probes).attend(0, &heads)?);
        Ok(cpu_seconds() - start)
    };
    let mut peak = Peak::new();
    // Short kernels run more often, so that some runs of a round are undisturbed.
    let repeat = (4e9 / flops).ceil() as usize;
    let (mut seconds, mut ratios, mut turn) = ([f64::INFINITY; 5], Vec::new(), 0);
    let begin = Instant::now();
    while ratios.len() < rounds && (ratios.len() < 3 || begin.elapsed().as_secs_f64() < 4.0) {
        let mut of_round = [f64::INFINITY; 5];
        for _ in 0..repeat {
            // The order rotates, because the peak leaves its matrices in the caches.
            turn += 1;
            for which in (0..5).map(|i| (turn + i) % 5) {
                let seconds = match which {
                    0 => time(&[])?,
                    1 => time(&[&answer])?,
                    2 => time(&[&all])?,
                    4 => time(&[&contribution])?,
                    _ => peak.seconds(),
                };
                of_round[which] = of_round[which].min(seconds);
            }
        }
        ratios.push(100.0 * flops / of_round[0] / (peak.flops() / of_round[3]));
        seconds = std::array::from_fn(|i| seconds[i].min(of_round[i]));
    }
    ratios.sort_by(f64::total_cmp);
    let rounds = ratios.len();
    let dense_slowdown = (t <= 1024).then(|| -> Result<f64> {
        let start = cpu_seconds();
        std::hint::black_box(Dense::default().attend(0, &heads)?);
        Ok((cpu_seconds() - start) / seconds[0])
    });
    let percent_more = |time: f64| 100.0 * (time / seconds[0] - 1.0);
    let line = Line {
        variant: variant.to_owned(),
        maps: wiring.maps(),
        head_dim: d,
        ctx_tok: t,
        heads: wiring.heads(),
        threads: 1,
        rounds,
        cpu: cpu_model(),
        seconds: seconds[0],
        gflop_per_s: flops / seconds[0] / 1e9,
        peak_gflop_per_s: peak.flops() / seconds[3] / 1e9,
        percent_of_peak: 100.0 * flops / seconds[0] / (peak.flops() / seconds[3]),
        percent_of_peak_median: ratios[rounds / 2],
        percent_of_peak_min: ratios[0],
        percent_of_peak_max: ratios[rounds - 1],
        dense_slowdown: dense_slowdown.transpose()?,
        answer_rows_percent: percent_more(seconds[1]),
        all_rows_percent: percent_more(seconds[2]),
        contribution_percent: percent_more(seconds[4]),
    };
    println!(
        "{variant:12} d {d:3} {t:5} tokens: {:7.2} ms, {:3.0} of {:3.0} GFLOP/s, {:2.0} % of peak ({:.0} to {:.0}); \
         probing {:+.1} %, {:+.1} %, {:+.1} %{}",
        1e3 * line.seconds,
        line.gflop_per_s,
        line.peak_gflop_per_s,
        line.percent_of_peak,
        line.percent_of_peak_min,
        line.percent_of_peak_max,
        line.answer_rows_percent,
        line.all_rows_percent,
        line.contribution_percent,
        line.dense_slowdown.map_or(String::new(), |x| format!("; dense {x:.0} times slower")),
    );
    Ok(line)
}

/// A register-blocked product of random numbers in the first-level cache: the peak of one thread.
struct Peak {
    /// ROWS numbers for each step.
    a: Vec<f32>,
    /// VECTORS vectors for each step.
    b: Vec<f32>,
}

impl Peak {
    /// Rows and vectors of a block of the result, which stays in registers: AVX2 has 16 of them.
    const ROWS: usize = 6;
    const VECTORS: usize = 2;
    /// Steps: with vectors of 16 numbers 38 KiB, of 8 numbers 22.
    const STEPS: usize = 256;
    const ROUNDS: usize = 20_000;

    fn new() -> Self {
        let mut rng = Rng::new(1, "peak");
        let mut random = |n: usize| (0..n).map(|_| 1e-3 * rng.normal() as f32).collect();
        Self { a: random(Self::STEPS * Self::ROWS), b: random(Self::STEPS * Self::VECTORS * lanes()) }
    }

    fn flops(&self) -> f64 {
        2.0 * (Self::ROUNDS * Self::ROWS * self.b.len()) as f64
    }

    fn seconds(&mut self) -> f64 {
        let start = cpu_seconds();
        for _ in 0..Self::ROUNDS {
            std::hint::black_box(block(std::hint::black_box(&self.a), std::hint::black_box(&self.b)));
        }
        cpu_seconds() - start
    }
}

/// Numbers in a vector register.
#[pulp::with_simd(lanes = pulp::Arch::new())]
#[inline(always)]
fn lanes_simd<S: pulp::Simd>(_simd: S) -> usize {
    size_of::<S::f32s>() / size_of::<f32>()
}

/// The sum of a block ROWS x VECTORS of a product.
#[pulp::with_simd(block = pulp::Arch::new())]
#[inline(always)]
fn block_simd<'a, S: pulp::Simd>(simd: S, a: &'a [f32], b: &'a [f32]) -> f32 {
    let (b, _) = S::as_simd_f32s(b);
    let mut c = [[simd.splat_f32s(0.0); Peak::VECTORS]; Peak::ROWS];
    // Chunks of a fixed size, because iterators over other chunks may be calls, around which sums do not stay in
    // registers.
    for (a, b) in a.as_chunks::<{ Peak::ROWS }>().0.iter().zip(b.as_chunks::<{ Peak::VECTORS }>().0) {
        for i in 0..Peak::ROWS {
            let x = simd.splat_f32s(a[i]);
            for j in 0..Peak::VECTORS {
                c[i][j] = simd.mul_add_f32s(x, b[j], c[i][j]);
            }
        }
    }
    let sum = c.iter().flatten().fold(simd.splat_f32s(0.0), |sum, &x| simd.add_f32s(sum, x));
    simd.reduce_sum_f32s(sum)
}

/// A probe of sums and maxima of the rows from a query on.
struct Sums {
    from: usize,
    t: usize,
}

struct SumsCollector {
    t: usize,
    total: f64,
    answer: f64,
    largest: f32,
}

impl RowProbe for Sums {
    fn wants(&self, _: usize, _: usize, query: usize) -> bool {
        query >= self.from
    }
    fn start(&self, _: usize, _: usize) -> Box<dyn RowCollector> {
        Box::new(SumsCollector { t: self.t, total: 0.0, answer: 0.0, largest: 0.0 })
    }
}

/// The sum and the largest of a row, and the sum of a part of it.
#[pulp::with_simd(look_at = pulp::Arch::new())]
#[inline(always)]
fn look_at_simd<'a, S: pulp::Simd>(_simd: S, row: &'a [f32], part: &'a [f32]) -> [f32; 3] {
    [sum(row), max(row), sum(part)]
}

impl RowCollector for SumsCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let (keys, last) = (answer_keys(self.t), row.effective.len());
        let answer = &row.effective[keys.start.min(last)..keys.end.min(last)];
        let [total, largest, answer] = look_at(row.effective, answer);
        self.total += f64::from(total);
        self.answer += f64::from(answer);
        self.largest = self.largest.max(largest);
    }
    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.total += later.total;
        self.answer += later.answer;
        self.largest = self.largest.max(later.largest);
    }
}
