//! Norms over the last dimension: RMSNorm (Zhang & Sennrich 2019), and LayerNorm (Ba et al. 2016), whose gradient is that of
//! candle with respect to its input alone.

use super::simd::{dot, sum};
use super::{gradient_in_candle, has_kernels, in_chunks, slice, with_values, ROWS_PER_TASK};
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use candle_nn::ops::{layer_norm_slow, rms_norm_slow};
use rayon::prelude::*;

struct RmsNorm {
    eps: f32,
}

/// `x / sqrt(mean(x^2) + eps) * gain` over the last dimension: x (.., E), gain (E) -> (.., E).
///
/// # Errors
/// If the sizes differ or an argument is not contiguous.
pub fn rms_norm(x: &Tensor, gain: &Tensor, eps: f64) -> Result<Tensor> {
    if has_kernels(x) {
        return x.apply_op2(gain, RmsNorm { eps: eps as f32 });
    }
    rms_norm_slow(x, &gain.to_dtype(x.dtype())?, eps as f32)
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(s1, l1, "rms-norm")?;
        let gain = slice(s2, l2, "rms-norm")?;
        let e = gain.len();
        if l1.shape().dims().last() != Some(&e) {
            candle_core::bail!("rms-norm: x {:?} does not fit gain of {e}", l1.shape());
        }
        let y = in_chunks(x.len(), ROWS_PER_TASK * e, |task, y| {
            rms_norm_rows(&x[task * ROWS_PER_TASK * e..][..y.len()], gain, self.eps, y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, gain: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dx, dgain) = with_values([x, gain, dy], |[x, gain, dy]| rms_norm_gradients(x, gain, dy, self.eps))?;
        Ok((
            Some(Tensor::from_vec(dx, x.shape(), x.device())?),
            Some(Tensor::from_vec(dgain, gain.shape(), gain.device())?),
        ))
    }
}

#[pulp::with_simd(rms_norm_rows = pulp::Arch::new())]
#[inline(always)]
fn rms_norm_rows_simd<'a, S: pulp::Simd>(_simd: S, x: &'a [f32], gain: &'a [f32], eps: f32, y: &'a mut [f32]) {
    let e = gain.len();
    for (y, x) in y.chunks_exact_mut(e).zip(x.chunks_exact(e)) {
        let inverse = 1.0 / (dot(x, x) / e as f32 + eps).sqrt();
        for ((y, &x), &gain) in y.iter_mut().zip(x).zip(gain) {
            *y = x * inverse * gain;
        }
    }
}

/// dx and dgain. With r = 1/rms and u = dy * gain: dx = r u - x r^3 (u . x) / E, dgain = sum over rows of dy x r.
fn rms_norm_gradients(x: &[f32], gain: &[f32], dy: &[f32], eps: f32) -> (Vec<f32>, Vec<f32>) {
    let e = gain.len();
    let mut dx = vec![0.0; x.len()];
    let partial: Vec<Vec<f32>> = dx
        .par_chunks_mut(ROWS_PER_TASK * e)
        .zip(x.par_chunks(ROWS_PER_TASK * e))
        .zip(dy.par_chunks(ROWS_PER_TASK * e))
        .map(|((dx, x), dy)| {
            let mut dgain = vec![0.0f32; e];
            rms_norm_gradient_rows(GradientRows { x, gain, dy, eps }, dx, &mut dgain);
            dgain
        })
        .collect();
    let mut dgain = vec![0.0; e];
    for part in partial {
        dgain.iter_mut().zip(part).for_each(|(total, value)| *total += value);
    }
    (dx, dgain)
}

struct GradientRows<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    dy: &'a [f32],
    eps: f32,
}

#[pulp::with_simd(rms_norm_gradient_rows = pulp::Arch::new())]
#[inline(always)]
fn rms_norm_gradient_rows_simd<'a, S: pulp::Simd>(
    _simd: S,
    rows: GradientRows<'a>,
    dx: &'a mut [f32],
    dgain: &'a mut [f32],
) {
    let e = rows.gain.len();
    let mut u = vec![0.0f32; e];
    for ((dx, x), dy) in dx.chunks_exact_mut(e).zip(rows.x.chunks_exact(e)).zip(rows.dy.chunks_exact(e)) {
        let r = 1.0 / (dot(x, x) / e as f32 + rows.eps).sqrt();
        for (u, (&dy, &gain)) in u.iter_mut().zip(dy.iter().zip(rows.gain)) {
            *u = dy * gain;
        }
        for (dgain, (&dy, &x)) in dgain.iter_mut().zip(dy.iter().zip(x)) {
            *dgain += dy * x * r;
        }
        let c = r * r * r * dot(&u, x) / e as f32;
        for (dx, (&u, &x)) in dx.iter_mut().zip(u.iter().zip(x)) {
            *dx = r * u - c * x;
        }
    }
}

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
        let gain = slice(s2, l2, "layer-norm")?;
        let bias = slice(s3, l3, "layer-norm")?;
        let e = gain.len();
        if l1.shape().dims().last() != Some(&e) || bias.len() != e {
            candle_core::bail!("layer-norm: x {:?} does not fit gain of {e} and bias of {}", l1.shape(), bias.len());
        }
        let y = in_chunks(x.len(), ROWS_PER_TASK * e, |task, y| {
            layer_norm_rows(&x[task * ROWS_PER_TASK * e..][..y.len()], gain, bias, self.eps, y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        gain: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let dx = gradient_in_candle(x, dy, |x| layer_norm_slow(x, gain, bias, self.eps))?;
        Ok((Some(dx), None, None))
    }
}

#[pulp::with_simd(layer_norm_rows = pulp::Arch::new())]
#[inline(always)]
fn layer_norm_rows_simd<'a, S: pulp::Simd>(
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
