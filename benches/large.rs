//! Time and memory of a pass over 4k tokens that watches every head, with weights in memory and on disk. The models
//! have random bf16 weights and the sizes of Llama 3.2 1B and 3B and Llama 3.1 8B.
//!
//! `cargo bench --bench large -- 1b` (or `3b`, `8b`; `--rounds N`) creates the model in `target/bench` if it does not
//! exist (2.5, 6.4 or 16 GB), and writes `target/bench/large.csv`. Weights in memory take twice the size of the file;
//! where they do not fit, only weights on disk are measured. The sides run in turn as processes, and their results must
//! be equal byte for byte. Memory is the peak without the file cache; seconds are those of the measurement without
//! loading.

mod sides;

use anyhow::{bail, ensure, Context, Result};
use difftool::attention::Variant;
use difftool::memory::available_bytes;
use difftool::model::{DecoderSizes, ModelConfig};
use difftool::ops::RopeStyle;
use difftool::prompt::Tokenizer;
use difftool::rng::Rng;
use half::bf16;
use serde::Serialize;
use serde_json::{json, Map, Value};
use sides::{bench_dir, cpu_model, median, option, write};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tokens of the prompt.
const CTX_TOK: usize = 4096;

#[derive(Serialize)]
struct Row {
    model: String,
    parameters: usize,
    weights: &'static str,
    ctx_tok: usize,
    rounds: usize,
    threads: usize,
    cpu: String,
    seconds: f64,
    peak_gib: f64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let real = args.iter().any(|arg| arg == "--bench");
    let named = args.iter().skip(1).find(|arg| ["tiny", "1b", "3b", "8b"].contains(&arg.as_str()));
    // `cargo test --benches` passes no `--bench`: a tiny model shows that it works.
    let name = named.map_or(if real { "1b" } else { "tiny" }, String::as_str);
    let rounds = option(&args, "--rounds").map_or(Ok(1), |n| n.parse()).context("--rounds takes a number")?;
    let config = config(name)?;
    let folder = folder(name, &config)?;
    let fits = available_bytes().is_none_or(|available| config.weights_bytes() < available / 10 * 8);
    let places: &[&str] = if fits { &["memory", "disk"] } else { &["disk"] };
    println!(
        "{}, {} threads; {name}: {} parameters, bf16",
        cpu_model(),
        rayon::current_num_threads(),
        config.parameters()
    );
    let mut found: Vec<Vec<Run>> = places.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (found, place) in found.iter_mut().zip(places) {
            found.push(ratio(&folder, place)?);
        }
    }
    let first = &found[0][0].results;
    ensure!(found.iter().flatten().all(|run| run.results == *first), "the sides have different results");
    let rows: Vec<Row> = places.iter().zip(&found).map(|(place, runs)| Row::of(name, &config, place, runs)).collect();
    rows.iter().for_each(Row::print);
    if let [memory, disk] = rows.as_slice() {
        println!(
            "left on disk: {:.2} of the speed, {:.2} of the memory",
            memory.seconds / disk.seconds,
            disk.peak_gib / memory.peak_gib
        );
    }
    write("large.csv", &rows)
}

/// The configuration of a model by name.
fn config(name: &str) -> Result<ModelConfig> {
    let (vocab, max_ctx_tok) = (128_256, CTX_TOK);
    let of = |width, layers, ffn, heads, head_dim| DecoderSizes {
        vocab,
        width,
        layers,
        ffn,
        heads,
        kv_heads: 8,
        head_dim,
        max_ctx_tok,
    };
    let (sizes, tied) = match name {
        "tiny" => (DecoderSizes { vocab: 2048, ..of(64, 2, 96, 8, 8) }, true),
        "1b" => (of(2048, 16, 8192, 32, 64), true),
        "3b" => (of(3072, 28, 8192, 24, 128), true),
        "8b" => (of(4096, 32, 14_336, 32, 128), false),
        other => bail!("no model {other}"),
    };
    let kind = Variant::preset("transformer")?;
    Ok(ModelConfig { tied, ..ModelConfig::llama(kind, sizes, 500_000.0, RopeStyle::Half) })
}

/// The model's folder, created if it does not exist.
fn folder(name: &str, config: &ModelConfig) -> Result<PathBuf> {
    let folder = bench_dir().join(format!("large-{name}"));
    let weights = folder.join("model.safetensors");
    if !weights.exists() {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("config.json"), config.to_json().to_string())?;
        std::fs::write(folder.join("tokenizer.json"), Tokenizer::embedded().json())?;
        let partial = weights.with_extension("partial");
        write_random(config, &partial)?;
        std::fs::rename(partial, weights)?;
    }
    Ok(folder)
}

/// Writes a safetensors file of normal numbers and gains of 1, a tensor at a time.
fn write_random(config: &ModelConfig, path: &Path) -> Result<()> {
    let (mut header, mut end) = (Map::new(), 0);
    let tensors = config.tensors();
    for (name, shape) in &tensors {
        let begin = end;
        end += 2 * shape.iter().product::<usize>();
        header.insert(name.clone(), json!({ "dtype": "BF16", "shape": shape, "data_offsets": [begin, end] }));
    }
    let header = Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut rng = Rng::new(1, "large");
    // Drawing takes time, so a million numbers are reused.
    let drawn: Vec<f32> = (0..1 << 20).map(|_| 0.02 * rng.normal() as f32).collect();
    for (i, (_, shape)) in tensors.iter().enumerate() {
        let is_gain = shape.len() == 1;
        for j in 0..shape.iter().product::<usize>() {
            let x = if is_gain { 1.0 } else { drawn[(j * 7 + i * 1013 + j / drawn.len()) % drawn.len()] };
            file.write_all(&bf16::from_f32(x).to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

/// Time, memory and results of a run.
struct Run {
    seconds: f64,
    peak_gib: f64,
    results: Vec<u8>,
}

fn ratio(model: &Path, place: &str) -> Result<Run> {
    let folder = tempfile::tempdir_in(bench_dir())?;
    let out = folder.path().join("run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_difftool"));
    command.args([
        "ratio",
        "--ctx",
        &CTX_TOK.to_string(),
        "--samples",
        "1",
        "--depths",
        "50",
        "-q",
        "--weights",
        place,
    ]);
    let done = command.arg("--model").arg(model).arg("--out").arg(&out).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let manifest: Value = serde_json::from_str(&std::fs::read_to_string(out.join("manifest.json"))?)?;
    let number = |key: &str| manifest[key].as_f64().with_context(|| format!("no {key} in the manifest"));
    Ok(Run {
        seconds: number("wall_s")?,
        peak_gib: number("peak_rss_bytes")? / f64::from(1 << 30),
        results: std::fs::read(out.join("results.csv"))?,
    })
}

impl Row {
    fn of(model: &str, config: &ModelConfig, weights: &'static str, runs: &[Run]) -> Self {
        Self {
            model: model.to_owned(),
            parameters: config.parameters(),
            weights,
            ctx_tok: CTX_TOK,
            rounds: runs.len(),
            threads: rayon::current_num_threads(),
            cpu: cpu_model(),
            seconds: median(runs.iter().map(|run| run.seconds)),
            peak_gib: median(runs.iter().map(|run| run.peak_gib)),
        }
    }

    fn print(&self) {
        println!("weights in {:6}: {:.1} s, {:.2} GiB at the peak", self.weights, self.seconds, self.peak_gib);
    }
}
