//! Numerical building blocks on plain `f32` slices, and the differentiable candle ops made from them.
//!
//! Everything here splits its work into fixed pieces whose boundaries depend on the shapes alone, and never lets two
//! pieces write to the same number, so results are bit-identical for any number of threads. candle's own fused ops are
//! not used: they drop gradients silently (candle issues 2168, 3569).
//!
//! The kernels are made for `f32` on the CPU. Every op gives other devices and number types ([`has_kernels`]) the same formula
//! in plain candle ops, beside its kernel; sums are taken in `f32` there, or `f64` of `f64`.

mod activation;
mod cross_entropy;
mod layer_norm;
mod linear;
mod matrix;
mod pairs;
mod panels;
mod products;
mod rms_norm;
mod rope;
mod sigmoid;
pub mod simd;
mod swiglu;

pub use activation::{gelu, gelu_tanh, relu, silu};
pub use cross_entropy::{cross_entropy, TokenScores};
pub use layer_norm::layer_norm;
pub use linear::{linear, linear_of};
pub use matrix::{multiply, multiply_add, Mat, MatMut};
pub use pairs::PairPanels;
pub use panels::{add_products, multiply_panel, Line, Panels, PANEL};
pub use products::{Packed, Products};
pub use rms_norm::rms_norm;
pub use rope::{rope, RopeStyle, RopeTable};
pub use sigmoid::sigmoid;
pub use swiglu::swiglu;

use candle_core::{CpuStorage, DType, Device, Layout, Result, Storage, Tensor};
use rayon::prelude::*;

/// Rows of a matrix that one task works on. Small enough to share work evenly, large enough to keep gemm busy.
pub(crate) const ROWS_PER_TASK: usize = 256;

/// Numbers that one task works on where each is computed by itself.
const NUMBERS_PER_TASK: usize = 1 << 15;

/// `length` numbers that are written in parallel, `chunk` at a time: `write` gets which chunk it is, and zeros. They are zeroed by
/// the thread that writes them; all threads would wait for `vec![0.0; length]`, which takes up to a tenth of a linear layer's time.
pub(crate) fn in_chunks<T: Copy + Default + Send + Sync>(
    length: usize,
    chunk: usize,
    write: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    chunks(length, chunk, &write)
}

/// As [`in_chunks`], compiled once for a kind of numbers: chunks are long, and calls are few.
#[expect(unsafe_code, reason = "memory that nobody has written yet")]
fn chunks<T: Copy + Default + Send + Sync>(
    length: usize,
    chunk: usize,
    write: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Vec<T> {
    let zero = T::default(); // of a line of numbers, a call that is not always inlined
    let mut numbers = Box::new_uninit_slice(length);
    numbers.par_chunks_mut(chunk.max(1)).enumerate().for_each(|(i, chunk)| {
        for number in chunk.iter_mut() {
            number.write(zero);
        }
        // SAFETY: all of the chunk was written just now.
        write(i, unsafe { std::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast(), chunk.len()) });
    });
    // SAFETY: so was every chunk.
    unsafe { numbers.assume_init() }.into_vec()
}

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

/// Whether the kernels take a tensor.
pub fn has_kernels(x: &Tensor) -> bool {
    has_kernels_for(x.device(), x.dtype())
}

/// Whether the kernels take tensors of a device and a number type.
pub(crate) fn has_kernels_for(device: &Device, dtype: DType) -> bool {
    device.is_cpu() && dtype == DType::F32
}

/// In the number type that sums are taken in: `f64` stays what it is, anything else becomes `f32`.
///
/// # Errors
/// If the device cannot convert it.
pub(crate) fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(wide_type(x.dtype()))
}

/// See [`wide`].
pub(crate) fn wide_type(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// The larger of x and a bound that broadcasts to it, element by element. candle has it too, but compiled where it is called, for
/// every type of number.
///
/// # Errors
/// If shapes or types do not fit.
pub(crate) fn at_least(x: &Tensor, bound: &Tensor) -> Result<Tensor> {
    let bound = bound.broadcast_as(x.shape())?;
    x.lt(&bound)?.where_cond(&bound, x) // what is no number stays so
}

/// The smaller of x and a bound, as [`at_least`].
///
/// # Errors
/// As [`at_least`].
pub(crate) fn at_most(x: &Tensor, bound: &Tensor) -> Result<Tensor> {
    let bound = bound.broadcast_as(x.shape())?;
    x.gt(&bound)?.where_cond(&bound, x)
}

/// A number beside x: on its device, of its type.
///
/// # Errors
/// If the device has no room.
pub(crate) fn scalar(number: f64, x: &Tensor) -> Result<Tensor> {
    // Not every device has f64.
    Tensor::new(number, &Device::Cpu)?.to_dtype(x.dtype())?.to_device(x.device())
}

/// As `f32` on the CPU: a copy, unless it is there.
///
/// # Errors
/// If it cannot be copied.
pub(crate) fn on_host(x: &Tensor) -> Result<Tensor> {
    // Of a part of a tensor elsewhere, candle would copy the whole.
    let own = if x.device().is_cpu() { x.clone() } else { x.force_contiguous()? };
    own.to_device(&Device::Cpu)?.to_dtype(DType::F32)
}

/// The numbers of a tensor in their order, as `f32`.
///
/// # Errors
/// If they cannot be copied.
pub(crate) fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    with_values(x, "reading numbers", <[f32]>::to_vec)
}

/// Runs `f` on the contiguous `f32` values of a tensor, which are copied if they are elsewhere or other numbers.
///
/// # Errors
/// If they cannot be copied.
pub(crate) fn with_values<R>(tensor: &Tensor, op: &str, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = on_host(tensor)?.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(f(slice(storage, layout, op)?)),
        _ => unreachable!("it was copied to the CPU"),
    }
}
