//! Helpers shared by the integration tests.
#![allow(dead_code)] // every test binary uses its own part

use candle_core::{DType, Device, Tensor};
use difftool::attention::{standard_wiring, DiffV2, Pairing, Wiring};
use difftool::model::{ModelConfig, Sizes, Variant, Weights};
use difftool::ops::RopeStyle;
use difftool::prompt::Tokenizer;
use difftool::rng::Rng;
use std::path::{Path, PathBuf};

/// A file or folder under `tests/fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// Largest absolute difference of two tensors of one shape.
pub fn distance(a: &Tensor, b: &Tensor) -> f64 {
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
pub fn assert_close(label: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let distance = distance(got, want);
    assert!(distance <= tolerance, "{label}: differs by {distance:.2e}, allowed {tolerance:.0e}");
}

/// Seeded standard normal numbers.
pub fn normal(shape: &[usize], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed, "test tensor");
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Writes a tiny random model in the Hugging Face format: `variant` is `transformer`, `diff`, `diff-v2` or
/// `diff-scalar`.
pub fn tiny_model(dir: &Path, variant: &str) {
    let kind = match variant {
        "transformer" => Variant::Standard,
        "diff" => Variant::DiffV1 { pairing: Pairing::Halves, gain: false },
        "diff-v2" => Variant::DiffV2,
        "diff-scalar" => Variant::Scalar,
        other => panic!("no variant {other}"),
    };
    let sizes = Sizes {
        vocab: Tokenizer::embedded().vocab_size(),
        width: 32,
        layers: 2,
        ffn: 48,
        heads: 2,
        kv_heads: if variant == "diff" { 4 } else { 2 },
        head_dim: 8,
        max_ctx_tok: 1024,
    };
    let config = ModelConfig::llama(kind, sizes, 10_000.0, RopeStyle::Half);
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), format!("{:#}", config.to_json())).unwrap();
    std::fs::write(dir.join("tokenizer.json"), Tokenizer::embedded().json()).unwrap();
    Weights::init(&config, 1).unwrap().write(&dir.join("model.safetensors"), DType::F32, &[]).unwrap();
}

/// Changes one tensor of a model folder.
pub fn edit_tensor(dir: &Path, name: &str, edit: impl FnOnce(&mut [f32])) {
    let path = dir.join("model.safetensors");
    let mut tensors: Vec<(String, Tensor)> =
        Weights::read(&path).unwrap().iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    let slot = tensors.iter_mut().find(|(n, _)| n == name).unwrap();
    let mut values = slot.1.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    edit(&mut values);
    slot.1 = Tensor::from_vec(values, slot.1.shape(), &Device::Cpu).unwrap();
    Weights::new(tensors, "edited").write(&path, DType::F32, &[]).unwrap();
}

/// Label, wiring, query heads, key heads, shape of lambda.
pub type AttentionCase = (&'static str, Wiring, usize, usize, Option<Vec<usize>>);

/// Every variant, with and without grouped heads, for `batch` rows of `t` tokens.
pub fn attention_variants(batch: usize, t: usize) -> Vec<AttentionCase> {
    vec![
        ("standard", standard_wiring(4, 4), 4, 4, None),
        ("standard GQA", standard_wiring(4, 2), 4, 2, None),
        ("standard MQA", standard_wiring(3, 1), 3, 1, None),
        ("V1 halves", Pairing::Halves.wiring(2, 4), 4, 4, Some(vec![1])),
        ("V1 halves GQA", Pairing::Halves.wiring(4, 4), 8, 4, Some(vec![1])),
        ("V1 adjacent GQA", Pairing::Adjacent.wiring(4, 4), 8, 4, Some(vec![1])),
        ("V1 naive GQA", Pairing::AdjacentNaive.wiring(4, 4), 8, 4, Some(vec![1])),
        ("V2", DiffV2::wiring(3, 3), 6, 3, Some(vec![batch, t, 3])),
        ("V2 GQA", DiffV2::wiring(4, 2), 8, 2, Some(vec![batch, t, 4])),
    ]
}
