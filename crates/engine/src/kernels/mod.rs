//! Numerical building blocks on plain `f32` slices, and the differentiable candle ops made from them.
//!
//! The kernels are for `f32` on the CPU. They split their work into pieces whose boundaries depend on the shapes alone,
//! and no two pieces write to the same number, so results are bit-identical for any number of threads. On other devices
//! and for other number types ([`has_kernels`]) every op calls candle-nn; sums are taken in `f32` there, or in `f64` of
//! `f64`.
//!
//! The benches `kernel`, `pass` and `training` time what they are made for. candle-nn's fused ops have no gradient, and
//! drop it without an error (candle issues 2168, 3569), so training calls its composed ones.

mod activation;
mod cross_entropy;
mod linear;
mod matrix;
mod norms;
mod panels;
pub mod quant;
mod rope;
pub mod simd;

pub use activation::{gelu, gelu_tanh, relu, sigmoid, silu, swiglu};
pub use cross_entropy::{cross_entropy, TokenScore, TokenScores};
pub use linear::linear;
pub use matrix::Mat;
pub(crate) use matrix::{multiply, MatMut};
pub use norms::{layer_norm, rms_norm};
pub(crate) use panels::{add_products, multiply_panel};
pub use panels::{Panels, PANEL};
pub use rope::{rope, RopeStyle, RopeTable};

use candle_core::{CpuStorage, DType, Device, Error, Layout, Result, Storage, Tensor, Var, WithDType};
use rayon::prelude::*;

/// Rows of a matrix in one task: few enough to share work evenly, enough to keep gemm busy.
pub(crate) const ROWS_PER_TASK: usize = 256;

/// Numbers in one task of an element-wise op.
const NUMBERS_PER_TASK: usize = 1 << 15;

/// A vector of `length` numbers, written in parallel, `chunk` numbers at a time. `write` gets the index of its chunk,
/// and the chunk filled with zeros. The thread that writes a chunk also zeroes it: `vec![0.0; length]` on one thread
/// takes up to a tenth of a linear layer's time.
#[expect(unsafe_code, reason = "uninitialised memory")]
pub(crate) fn in_chunks<T: Copy + Default + Send + Sync>(
    length: usize,
    chunk: usize,
    write: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    let zero = T::default(); // for an array, a call that is not always inlined
    let mut numbers = Box::new_uninit_slice(length);
    numbers.par_chunks_mut(chunk.max(1)).enumerate().for_each(|(i, chunk)| {
        for number in chunk.iter_mut() {
            number.write(zero);
        }
        // SAFETY: the loop above has written the whole chunk.
        write(i, unsafe { std::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast(), chunk.len()) });
    });
    // SAFETY: the chunks cover the slice, and all of them are written.
    unsafe { numbers.assume_init() }.into_vec()
}

/// The `f32` values of a custom op's argument, which must be contiguous.
pub fn slice<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => candle_core::bail!("{op}: argument of shape {:?} is not contiguous", layout.shape()),
    }
}

/// Returns `true` if there are kernels for a tensor.
pub fn has_kernels(x: &Tensor) -> bool {
    has_kernels_for(x.device(), x.dtype())
}

/// Returns `true` if there are kernels for a device and a number type.
pub(crate) fn has_kernels_for(device: &Device, dtype: DType) -> bool {
    device.is_cpu() && dtype == DType::F32
}

/// Converts a tensor to the number type that sums are taken in.
pub fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(wide_type(x.dtype()))
}

/// The number type that sums are taken in: `f64` of `f64`, otherwise `f32`.
pub fn wide_type(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Copies a tensor to the CPU as `f32`, unless that is what it is.
pub(crate) fn on_host(x: &Tensor) -> Result<Tensor> {
    on_host_as(x, DType::F32)
}

fn on_host_as(x: &Tensor, dtype: DType) -> Result<Tensor> {
    // candle copies the whole storage of a view.
    let own = if x.device().is_cpu() { x.clone() } else { x.force_contiguous()? };
    own.to_device(&Device::Cpu)?.to_dtype(dtype)
}

/// The numbers of a tensor in row-major order, as `f32`.
pub fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    numbers_as(x)
}

/// The numbers of a tensor in row-major order, as another type.
pub(crate) fn numbers_as<F: WithDType>(x: &Tensor) -> Result<Vec<F>> {
    on_host_as(x, F::DTYPE)?.flatten_all()?.to_vec1()
}

/// Calls `f` with the contiguous `f32` values of tensors, which are copied from other devices and number types.
pub fn with_values<const N: usize, R>(tensors: [&Tensor; N], f: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    let tensors = tensors.into_iter().map(|tensor| on_host(tensor)?.contiguous()).collect::<Result<Vec<_>>>()?;
    let borrowed: Vec<_> = tensors.iter().map(Tensor::storage_and_layout).collect();
    let mut values: [&[f32]; N] = [&[]; N];
    for (values, (storage, layout)) in values.iter_mut().zip(&borrowed) {
        let Storage::Cpu(storage) = &**storage else { unreachable!("on_host copied it to the CPU") };
        *values = slice(storage, layout, "values")?;
    }
    Ok(f(values))
}

/// The gradient dx of a function of candle's ops, for the gradient dy of its value.
///
/// # Errors
/// If the value does not depend on x in a way that candle differentiates.
pub(crate) fn gradient_in_candle(
    x: &Tensor,
    dy: &Tensor,
    function: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let x = Var::from_tensor(x)?;
    let gradients = (function(&x)? * dy)?.sum_all()?.backward()?;
    gradients.get(&x).cloned().ok_or_else(|| Error::Msg("no gradient reaches the argument".into()))
}
