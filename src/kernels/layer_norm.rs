//! LayerNorm over the last dimension (Ba et al. 2016), for measuring: asking the kernel for a gradient is an error.

use super::simd::{dot, sum};
use super::{has_kernels, in_chunks, slice, ROWS_PER_TASK};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use candle_nn::ops::layer_norm_slow;

struct LayerNorm {
    eps: f32,
}

/// `(x - mean) / sqrt(variance + eps) * gain + bias` over the last dimension: x (.., E), gain (E), bias (E) -> (.., E).
///
/// The kernel subtracts the mean before it squares. candle's fused one takes the variance as mean(x^2) - mean(x)^2,
/// which in `f32` loses digits where the mean is large.
///
/// # Errors
/// If the sizes differ or an argument is not contiguous.
pub fn layer_norm(x: &Tensor, gain: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    if has_kernels(x) {
        return x.apply_op3(gain, bias, LayerNorm { eps: eps as f32 });
    }
    layer_norm_slow(x, &gain.to_dtype(x.dtype())?, &bias.to_dtype(x.dtype())?, eps as f32)
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let x = slice(s1, l1, "layer-norm")?;
        let (gain, bias) = (slice(s2, l2, "layer-norm")?, slice(s3, l3, "layer-norm")?);
        let e = gain.len();
        if l1.shape().dims().last() != Some(&e) || bias.len() != e {
            candle_core::bail!("layer-norm: x {:?} does not fit gain of {e} and bias of {}", l1.shape(), bias.len());
        }
        let y = in_chunks(x.len(), ROWS_PER_TASK * e, |task, y| {
            forward_rows(&x[task * ROWS_PER_TASK * e..][..y.len()], gain, bias, self.eps, y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }
}

#[pulp::with_simd(forward_rows = pulp::Arch::new())]
#[inline(always)]
fn forward_rows_simd<'a, S: pulp::Simd>(
    _simd: S,
    x: &'a [f32],
    gain: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
) {
    let e = gain.len();
    for (y, x) in y.chunks_exact_mut(e).zip(x.chunks_exact(e)) {
        let mean = sum(x) / e as f32;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x - mean;
        }
        let inverse = 1.0 / (dot(y, y) / e as f32 + eps).sqrt();
        for ((y, &gain), &bias) in y.iter_mut().zip(gain).zip(bias) {
            *y = *y * inverse * gain + bias;
        }
    }
}
