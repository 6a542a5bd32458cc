//! Helpers shared by the benches: CPU time, statistics, random models, the processor's name.
#![allow(dead_code)] // every bench uses its own part

use anyhow::{Context, Result};
use candle_core::DType;
use engine::attention::Variant;
use engine::kernels::RopeStyle;
use engine::model::{DecoderSizes, ModelConfig, Weights};
use serde::Serialize;
use std::path::{Path, PathBuf};
use text::Tokenizer;

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

/// Whether this is a measurement: `cargo test --benches` passes no `--bench`, and a short round shows that a bench works.
pub(super) fn is_real() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// The number after a flag on the command line.
pub(super) fn number(flag: &str, default: usize) -> Result<usize> {
    let value = std::env::args().skip_while(|arg| arg != flag).nth(1);
    value.map_or(Ok(default), |n| n.parse().with_context(|| format!("{flag} {n}")))
}

/// Median, least and most.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// The folder for files of benches.
fn bench_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench")
}

/// Writes a random Llama, or DiffLlama, with the embedded tokenizer. Returns its folder and its configuration.
pub(super) fn random_model(name: &str, variant: &str, sizes: DecoderSizes) -> Result<(PathBuf, ModelConfig)> {
    let config = ModelConfig::llama(Variant::preset(variant)?, sizes, 10_000.0, RopeStyle::Half);
    let folder = bench_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("config.json"), config.to_json().to_string())?;
    std::fs::write(folder.join("tokenizer.json"), &Tokenizer::embedded().json)?;
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
