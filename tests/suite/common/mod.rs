//! Helpers shared by the integration tests.

mod scratch;

use candle_core::{DType, Device, Tensor};
use difftool::train::{train_runs, Progress, TrainOutcome, TrainSpec};
use engine::attention::{ValueWidth, Variant, Wiring};
use engine::kernels::RopeStyle;
use engine::model::{DecoderSizes, ModelConfig, Placement, Weights};
use stats::Rng;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use text::Tokenizer;

pub(super) use scratch::{
    commands, commands_with, difftool, is_scratch, printed, refuses, refuses_outright, Outcome, Scratch, Words,
};

/// The smallest needle prompt that there is.
pub(super) const NEEDLE: &str = "needle --ctx 256 --samples 1 --needles 1 --depths 50";

/// A file or folder under `tests/fixtures`.
pub(super) fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// Largest absolute difference of two tensors of one shape.
pub(super) fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let values = |x: &Tensor| x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
    // A NaN must fail, and f64::max would drop it.
    values(a).iter().zip(values(b)).map(|(a, b)| (a - b).abs()).fold(0.0, |worst, x| {
        if x > worst || x.is_nan() {
            x
        } else {
            worst
        }
    })
}

/// Two-sided comparison that says what differed and by how much.
#[track_caller]
pub(super) fn assert_close(label: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let distance = distance(got, want);
    assert!(distance <= tolerance, "{label}: differs by {distance:.2e}, allowed {tolerance:.0e}");
}

/// Whether a figure is a picture of more than one colour that carries the command it was drawn by, which has these
/// words.
#[track_caller]
pub(super) fn assert_drawn(path: &Path, words: &str) {
    let recipe = plot::read_recipe(path).unwrap();
    let command = recipe.iter().find(|(keyword, _)| keyword == "command").map(|(_, text)| text.as_str());
    assert!(command.is_some_and(|command| command.contains(words)), "{}: {recipe:?}", path.display());
    let mut reader =
        png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    assert!(pixels.chunks_exact(3).any(|pixel| pixel != &pixels[..3]), "{} is empty", path.display());
}

/// Seeded standard normal numbers.
pub(super) fn normal(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed, "test tensor");
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// The attention variant of that name.
pub(super) fn preset(name: &str) -> Variant {
    Variant::preset(name).unwrap()
}

/// Width of the residual stream of [`tiny_model`].
pub(super) const WIDTH: usize = 32;

/// Sizes of [`tiny_model`]; `variant` is a preset.
pub(super) fn tiny_sizes(variant: &str) -> DecoderSizes {
    let variant = preset(variant);
    let heads = variant.signal_heads.max(2);
    DecoderSizes {
        vocab: Tokenizer::embedded().vocab_size(),
        width: WIDTH,
        layers: 2,
        ffn: 48,
        heads,
        kv_heads: if variant.values == ValueWidth::Doubled { 2 * heads } else { heads },
        head_dim: 8,
        max_ctx_tok: 1024,
    }
}

/// Writes a tiny random model in the Hugging Face format; `variant` is a preset.
pub(super) fn tiny_model(dir: &Path, variant: &str) {
    random_model(dir, variant, tiny_sizes(variant), DType::F32);
}

/// Writes a tiny model that differs from those of other seeds in its embeddings.
pub(super) fn tiny_model_of_seed(dir: &Path, variant: &str, seed: u64) {
    tiny_model(dir, variant);
    edit_tensor(dir, "model.embed_tokens.weight", |values| {
        let mut rng = Rng::new(seed, "embeddings");
        values.iter_mut().for_each(|value| *value += 0.3 * rng.normal() as f32);
    });
}

/// The embedded tokenizer in two files: their names and texts.
pub(super) fn vocab_and_merges() -> [(&'static str, String); 2] {
    let json: serde_json::Value = serde_json::from_str(&Tokenizer::embedded().json).unwrap();
    let mut merges = "#version: 0.2\n".to_owned();
    for pair in json["model"]["merges"].as_array().unwrap() {
        merges += &format!("{} {}\n", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    }
    [("vocab.json", json["model"]["vocab"].to_string()), ("merges.txt", merges)]
}

/// Writes a random model of these sizes, with weights of a number type.
pub(super) fn random_model(dir: &Path, variant: &str, sizes: DecoderSizes, weights: DType) {
    let config = ModelConfig::llama(preset(variant), sizes, 10_000.0, RopeStyle::Half);
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), format!("{:#}", config.to_json())).unwrap();
    std::fs::write(dir.join("tokenizer.json"), &Tokenizer::embedded().json).unwrap();
    Weights::init(&config, 1).unwrap().write(&dir.join("model.safetensors"), weights, &[]).unwrap();
}

/// Changes one tensor of a model folder.
pub(super) fn edit_tensor(dir: &Path, name: &str, edit: impl FnOnce(&mut [f32])) {
    let path = dir.join("model.safetensors");
    let mut tensors: Vec<(String, Tensor)> =
        Weights::read(&path).unwrap().iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let slot = tensors.iter_mut().find(|(n, _)| n == name).unwrap();
    let mut values = slot.1.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    edit(&mut values);
    slot.1 = Tensor::from_vec(values, slot.1.shape(), &Device::Cpu).unwrap();
    Weights::new(tensors, "edited").write(&path, DType::F32, &[]).unwrap();
}

/// How heads are wired and weighed.
pub(super) struct AttentionCase {
    pub label: &'static str,
    pub wiring: Wiring,
    pub query_heads: usize,
    /// Key heads, and value heads.
    pub kv_heads: usize,
    /// Shape of lambda.
    pub lambda: Option<Vec<usize>>,
    /// Whether every query head has a sink.
    pub sink: bool,
}

/// Every way to wire and weigh heads, for `batch` rows of `t` tokens.
pub(super) fn attention_variants(batch: usize, t: usize) -> Vec<AttentionCase> {
    let case = |label, name, heads, value_heads, lambda: Option<Vec<usize>>, sink| {
        let variant = preset(name);
        let kv_heads = variant.key_heads(heads, value_heads).max(value_heads);
        let (wiring, query_heads) = (variant.wiring(heads, value_heads), variant.query_heads(heads));
        AttentionCase { label, wiring, query_heads, kv_heads, lambda, sink }
    };
    vec![
        case("standard", "transformer", 4, 4, None, false),
        case("standard GQA", "transformer", 4, 2, None, false),
        case("standard MQA", "transformer", 3, 1, None, false),
        case("sink", "sink", 4, 2, None, true),
        case("V1 halves", "diff", 2, 4, Some(vec![1]), false),
        case("V1 halves GQA", "diff", 4, 4, Some(vec![1]), false),
        case("V1 adjacent GQA", "diff-microsoft", 4, 4, Some(vec![1]), false),
        case("V1 naive GQA", "diff-microsoft-naive", 4, 4, Some(vec![1]), false),
        case("V1, lambda per head", "diff", 4, 4, Some(vec![4]), false),
        case("V1, sinks", "diff", 2, 4, Some(vec![1]), true),
        case("V2", "diff-v2", 3, 3, Some(vec![batch, t, 3]), false),
        case("V2 GQA", "diff-v2", 4, 2, Some(vec![batch, t, 4]), false),
        case("V2 across GQA, sinks", "diff-v2-across", 4, 2, Some(vec![batch, t, 4]), true),
        case("grouped", "diff-grouped", 6, 6, Some(vec![1]), false),
        case("grouped GQA, sinks", "diff-grouped", 6, 2, Some(vec![6]), true),
    ]
}

/// Raises a flag at the n-th step of all runs together.
pub(super) struct StopAfter<'a> {
    steps: usize,
    done: AtomicUsize,
    stop: &'a AtomicBool,
}

impl<'a> StopAfter<'a> {
    pub(super) fn new(steps: usize, stop: &'a AtomicBool) -> Self {
        Self { steps, done: AtomicUsize::new(0), stop }
    }
}

impl Progress for StopAfter<'_> {
    fn step(&self, _run: usize, _tokens: usize, _message: &str) {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.steps {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Trains every run of a spec on the CPU.
pub(super) fn train(
    spec: &TrainSpec,
    out: &Path,
    resume: bool,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> anyhow::Result<TrainOutcome> {
    train_runs(&spec.open()?, &spec.runs(), out, resume, &Placement::default(), stop, progress)
}

/// A command that heeds signals even where these tests run behind `nohup` or in the background of a script: a program
/// that was begun with a signal ignored goes on ignoring it.
#[cfg(unix)]
#[expect(unsafe_code, reason = "dispositions of signals")]
pub(super) fn heeding_signals(command: &mut std::process::Command) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt as _;
    let default = || {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: signal(2) may be called between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: `default` calls nothing but signal(2).
    unsafe { command.pre_exec(default) }
}
