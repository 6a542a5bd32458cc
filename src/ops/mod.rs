//! Numerical building blocks on plain `f32` slices, and the differentiable candle ops made from them.
//!
//! Everything here splits its work into fixed pieces whose boundaries depend on the shapes alone, and never lets two
//! pieces write to the same number, so results are bit-identical for any number of threads. candle's own fused ops are
//! not used: they drop gradients silently (candle issues 2168, 3569).

mod activation;
mod cross_entropy;
mod layer_norm;
mod linear;
mod matrix;
mod panels;
mod rms_norm;
mod rope;
pub mod simd;
mod swiglu;

pub use activation::{gelu, gelu_tanh, relu, silu};
pub use cross_entropy::{cross_entropy, TokenScores};
pub use layer_norm::layer_norm;
pub use linear::linear;
pub use matrix::{multiply, multiply_add, Mat, MatMut};
pub use panels::{add_products, multiply_panel, Line, Panels, PANEL};
pub use rms_norm::rms_norm;
pub use rope::{rope, RopeStyle, RopeTable};
pub use swiglu::swiglu;

use candle_core::{CpuStorage, Layout, Result, Storage, Tensor};

/// Rows of a matrix that one task works on. Small enough to share work evenly, large enough to keep gemm busy.
pub(crate) const ROWS_PER_TASK: usize = 256;

/// The contiguous `f32` values behind a custom op's argument.
///
/// # Errors
/// If the storage is not `f32` or not contiguous.
pub(crate) fn slice<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => candle_core::bail!("{op}: argument of shape {:?} is not contiguous", layout.shape()),
    }
}

/// Runs `f` on the contiguous `f32` values of a CPU tensor.
///
/// # Errors
/// If the tensor is not on the CPU or not `f32`.
pub(crate) fn with_values<R>(tensor: &Tensor, op: &str, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(f(slice(storage, layout, op)?)),
        _ => candle_core::bail!("{op}: this op runs on the CPU only"),
    }
}
