//! The logistic function as a differentiable op.

use super::{at_least, has_kernels, in_chunks, scalar, simd, slice, wide, with_values, NUMBERS_PER_TASK};
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

struct Sigmoid;

/// 1 / (1 + exp(-x)), element by element.
///
/// # Errors
/// If x is not contiguous.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    if has_kernels(x) {
        return x.apply_op1(Sigmoid);
    }
    // Where exp(-x) overflows, its gradient would be infinity times zero.
    let wide = wide(x)?;
    let small = (at_least(&wide, &scalar(-80.0, &wide)?)?.neg()?.exp()? + 1.0)?;
    small.recip()?.to_dtype(x.dtype())
}

impl CustomOp1 for Sigmoid {
    fn name(&self) -> &'static str {
        "sigmoid"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(storage, layout, "sigmoid")?;
        let y = in_chunks(x.len(), NUMBERS_PER_TASK, |chunk, y| forward(&x[chunk * NUMBERS_PER_TASK..][..y.len()], y));
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let dx = with_values(y, "sigmoid", |y| {
            with_values(dy, "sigmoid", |dy| {
                in_chunks(y.len(), NUMBERS_PER_TASK, |chunk, dx| {
                    let of_chunk = chunk * NUMBERS_PER_TASK..chunk * NUMBERS_PER_TASK + dx.len();
                    backward(&y[of_chunk.clone()], &dy[of_chunk], dx);
                })
            })
        })??;
        Ok(Some(Tensor::from_vec(dx, x.shape(), x.device())?))
    }
}

#[pulp::with_simd(forward = pulp::Arch::new())]
#[inline(always)]
fn forward_simd<'a, S: pulp::Simd>(_simd: S, x: &'a [f32], y: &'a mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = simd::sigmoid(x);
    }
}

#[pulp::with_simd(backward = pulp::Arch::new())]
#[inline(always)]
fn backward_simd<'a, S: pulp::Simd>(_simd: S, y: &'a [f32], dy: &'a [f32], dx: &'a mut [f32]) {
    for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
        *dx = dy * y * (1.0 - y);
    }
}
