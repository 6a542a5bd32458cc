//! Helpers shared by the integration tests.
#![allow(dead_code)] // every test binary uses its own part

use candle_core::{DType, Device, Tensor};
use difftool::rng::Rng;
use std::path::PathBuf;

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
