//! Helpers shared by the benches: sides in processes of their own, a model of 30 million parameters, statistics, the
//! processor's name.
#![allow(dead_code)] // every bench uses its own part

use anyhow::{Context, Result};
use candle_core::DType;
use difftool::attention::Variant;
use difftool::model::{DecoderSizes, ModelConfig, Weights};
use difftool::ops::RopeStyle;
use difftool::prompt::Tokenizer;
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that does one unit of work for every line of stdin, replies with a line of JSON, and ends when stdin is
/// closed.
pub(super) struct Side {
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Side {
    /// Starts the process with `threads` threads.
    pub(super) fn start(command: &mut Command, threads: usize) -> Result<Self> {
        // As in `main.rs`: threads of candle's own pool spin while they wait.
        command.env("CANDLE_NUM_THREADS", "1").env("RAYON_NUM_THREADS", threads.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let replies = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { requests: child.stdin.take(), replies, child })
    }

    /// Does one unit of work and waits for the reply.
    pub(super) fn step<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.ask()?;
        self.answer()
    }

    /// Starts one unit of work.
    pub(super) fn ask(&mut self) -> Result<()> {
        Ok(self.requests.as_mut().context("stdin is piped")?.write_all(b"step\n")?)
    }

    /// Waits for the reply.
    pub(super) fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
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

/// CPU time of all threads of this process, in seconds.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the clock is the system's")]
pub(super) fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, into one that outlives it.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "a process has a clock");
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Wall time, where CPU time is not available.
#[cfg(not(unix))]
pub fn cpu_seconds() -> f64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64()
}

/// The value of a flag on the command line.
pub(super) fn option<'a>(args: &'a [String], flag: &str) -> Option<&'a String> {
    args.iter().position(|arg| arg == flag).and_then(|i| args.get(i + 1))
}

/// A Python with torch and transformers: `--python PATH`, or python3. Prints a message if it lacks them.
pub(super) fn python(args: &[String]) -> Option<PathBuf> {
    let python = PathBuf::from(option(args, "--python").map_or("python3", String::as_str));
    let found = Command::new(&python).args(["-c", "import torch, transformers"]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    println!(
        "{}: no torch and transformers, so no comparison with them (--python PATH names another)",
        python.display()
    );
    None
}

/// The script of the Python sides.
pub(super) fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers.py")
}

/// Sorts in ascending order.
pub(super) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
}

/// Median, least and most.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values = sorted(values);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// The folder for files of benches.
pub(super) fn bench_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench")
}

/// Writes a random model of 30 million parameters with the embedded tokenizer, `llama` or `diffllama`, for contexts of
/// `ctx_tok` tokens. Returns its folder and its configuration.
pub(super) fn model_30m(variant: &str, ctx_tok: usize) -> Result<(PathBuf, ModelConfig)> {
    let diff = variant == "diffllama";
    let sizes = DecoderSizes {
        vocab: 8192,
        width: 512,
        layers: 8,
        ffn: 1408,
        heads: if diff { 4 } else { 8 },
        kv_heads: 8,
        head_dim: 64,
        max_ctx_tok: ctx_tok,
    };
    let kind = Variant::preset(if diff { "diff" } else { "transformer" })?;
    let config = ModelConfig::llama(kind, sizes, 10_000.0, RopeStyle::Half);
    let folder = bench_dir().join(format!("{variant}-30m-{}k", ctx_tok / 1024));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("config.json"), config.to_json().to_string())?;
    std::fs::write(folder.join("tokenizer.json"), Tokenizer::embedded().json())?;
    Weights::init(&config, 1)?.write(&folder.join("model.safetensors"), DType::F32, &[])?;
    Ok((folder, config))
}

/// Writes the table to `target/bench/FILE` and prints the path.
pub(super) fn write<T: Serialize>(file: &str, rows: &[T]) -> Result<()> {
    let path = bench_dir().join(file);
    std::fs::create_dir_all(bench_dir())?;
    let mut csv = csv::Writer::from_path(&path).with_context(|| format!("cannot write {}", path.display()))?;
    rows.iter().try_for_each(|row| csv.serialize(row))?;
    csv.flush()?;
    println!("written to {}", path.display());
    Ok(())
}

/// The name of the processor.
pub(super) fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown CPU", |(_, name)| name).to_owned()
}
