//! Time and memory of `difftool ratio` on models of 30 million parameters at 4k, 16k and 64k tokens, against its own
//! estimates.
//!
//! `cargo bench --bench scale` prints a table and writes `target/bench/scale.csv`; `--rounds N` sets the number of
//! runs. Time is wall time from the printed estimate to the end of the process, memory the peak in the run's manifest.
//! Runs of all lengths take turns on all cores; the machine must be idle. The time at 64k is compared with what the
//! cost of a token and of a pair of tokens at 4k and 16k predict.

mod sides;

use anyhow::{ensure, Context, Result};
use difftool::model::ModelConfig;
use serde::Serialize;
use serde_json::Value;
use sides::{bench_dir, cpu_model, median, model_30m, option, spread, write};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Tokens and prompts: two passes at once where two fit, one pass on all threads where it takes minutes.
const RUNS: [(usize, usize); 3] = [(4096, 8), (16_384, 4), (65_536, 1)];

/// A line of the table and of the CSV: medians, and extremes of measured values as multiples of estimates.
#[derive(Serialize)]
struct Row {
    variant: &'static str,
    ctx_tok: usize,
    prompts: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    seconds: f64,
    seconds_said: f64,
    seconds_by_said: f64,
    seconds_by_said_min: f64,
    seconds_by_said_max: f64,
    peak_bytes: f64,
    bytes_by_said: f64,
    bytes_by_said_min: f64,
    bytes_by_said_max: f64,
}

/// Time and memory of a run, measured and estimated.
struct Run {
    seconds: f64,
    seconds_said: f64,
    peak_bytes: f64,
    bytes_said: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    // `cargo test --benches` passes no `--bench`: the shortest run shows that it works.
    let real = args.iter().any(|arg| arg == "--bench");
    let rounds = option(&args, "--rounds").map_or(Ok(3), |n| n.parse()).context("--rounds takes a number")?;
    let (runs, rounds) = if real { (&RUNS[..], rounds) } else { (&RUNS[..1], 1) };
    let threads = rayon::current_num_threads();
    println!("{}, {threads} threads; {rounds} runs of each length in turn; cargo bench --bench scale", cpu_model());
    let mut rows = Vec::new();
    for variant in ["llama", "diffllama"] {
        let (folder, config) = model_30m(variant, 65_536)?;
        let found = in_turn(&folder, runs, rounds)?;
        let of_variant: Vec<Row> = runs.iter().zip(&found).map(|(&run, found)| Row::of(variant, run, found)).collect();
        of_variant.iter().for_each(Row::print);
        if let [short, long, longest] = of_variant.as_slice() {
            let times = longest.seconds / expected_s(&config, [short, long], longest);
            println!("{variant:10} {:6} tokens: {times:.2} times as long as 4k and 16k let expect", longest.ctx_tok);
        }
        rows.extend(of_variant);
    }
    write("scale.csv", &rows)
}

/// Runs all lengths in turn, `rounds` times. The results are by length.
fn in_turn(folder: &Path, runs: &[(usize, usize)], rounds: usize) -> Result<Vec<Vec<Run>>> {
    let mut found: Vec<Vec<Run>> = runs.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (found, &(ctx_tok, prompts)) in found.iter_mut().zip(runs) {
            found.push(ratio(folder, ctx_tok, prompts)?);
        }
    }
    Ok(found)
}

/// Runs the program once. It times a prompt before it estimates the run.
fn ratio(model: &Path, ctx_tok: usize, prompts: usize) -> Result<Run> {
    let folder = tempfile::tempdir_in(bench_dir())?;
    let out = folder.path().join("run");
    let (ctx, samples) = (ctx_tok.to_string(), prompts.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_difftool"));
    command.args(["ratio", "--ctx", &ctx, "--samples", &samples, "--depths", "50", "--model"]);
    let mut child = command.arg(model).arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    let mut start = Instant::now();
    for line in BufReader::new(child.stderr.take().context("stderr is piped")?).lines() {
        said.push(line?);
        if said[said.len() - 1].contains(": about ") {
            start = Instant::now();
        }
    }
    let done = child.wait()?;
    let (seconds, said) = (start.elapsed().as_secs_f64(), said.join("\n"));
    ensure!(done.success(), "{said}");
    let number = |before: &str, after: &str| -> Result<f64> {
        let (_, rest) = said.split_once(before).with_context(|| format!("no \"{before}\" in: {said}"))?;
        let (number, _) = rest.split_once(after).with_context(|| format!("no \"{after}\" in: {said}"))?;
        number.parse().with_context(|| said.clone())
    };
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(out.join("manifest.json"))?)?;
    Ok(Run {
        seconds,
        seconds_said: number(": about ", " s, ")?,
        peak_bytes: manifest["peak_rss_bytes"].as_f64().context("a peak in the manifest")?,
        bytes_said: number(" s, about ", " MiB")? * f64::from(1 << 20),
    })
}

/// The predicted time of `longest` if a token and a pair of tokens cost as much as in the two shorter runs.
fn expected_s(config: &ModelConfig, [short, long]: [&Row; 2], longest: &Row) -> f64 {
    let work = |row: &Row| {
        let flops = config.forward_flops(row.ctx_tok);
        [flops.linear, flops.attention].map(|flops| flops * row.prompts as f64)
    };
    let ([a, b], [c, d], [x, y]) = (work(short), work(long), work(longest));
    let determinant = a * d - b * c;
    let per_linear = (short.seconds * d - long.seconds * b) / determinant;
    let per_attention = (long.seconds * a - short.seconds * c) / determinant;
    per_linear * x + per_attention * y
}

impl Row {
    fn of(variant: &'static str, (ctx_tok, prompts): (usize, usize), runs: &[Run]) -> Self {
        let seconds = spread(runs.iter().map(|run| run.seconds / run.seconds_said));
        let bytes = spread(runs.iter().map(|run| run.peak_bytes / run.bytes_said));
        Self {
            variant,
            ctx_tok,
            prompts,
            threads: rayon::current_num_threads(),
            rounds: runs.len(),
            cpu: cpu_model(),
            seconds: median(runs.iter().map(|run| run.seconds)),
            seconds_said: median(runs.iter().map(|run| run.seconds_said)),
            seconds_by_said: seconds[0],
            seconds_by_said_min: seconds[1],
            seconds_by_said_max: seconds[2],
            peak_bytes: median(runs.iter().map(|run| run.peak_bytes)),
            bytes_by_said: bytes[0],
            bytes_by_said_min: bytes[1],
            bytes_by_said_max: bytes[2],
        }
    }

    fn print(&self) {
        println!(
            "{:10} {:6} tokens, {} prompts: {:.1} s, {:.2} times what was said ({:.2} to {:.2}); {:.0} MiB, {:.2} times \
             what was said ({:.2} to {:.2})",
            self.variant,
            self.ctx_tok,
            self.prompts,
            self.seconds,
            self.seconds_by_said,
            self.seconds_by_said_min,
            self.seconds_by_said_max,
            self.peak_bytes / f64::from(1 << 20),
            self.bytes_by_said,
            self.bytes_by_said_min,
            self.bytes_by_said_max,
        );
    }
}
