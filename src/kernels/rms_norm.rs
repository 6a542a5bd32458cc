//! RMSNorm over the last dimension (Zhang & Sennrich 2019), as a differentiable op.

use super::simd::dot;
use super::{has_kernels, in_chunks, slice, with_values, ROWS_PER_TASK};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use candle_nn::ops::rms_norm_slow;
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
        let (x, gain) = (slice(s1, l1, "rms-norm")?, slice(s2, l2, "rms-norm")?);
        let e = gain.len();
        if l1.shape().dims().last() != Some(&e) {
            candle_core::bail!("rms-norm: x {:?} does not fit gain of {e}", l1.shape());
        }
        let y = in_chunks(x.len(), ROWS_PER_TASK * e, |task, y| {
            forward_rows(&x[task * ROWS_PER_TASK * e..][..y.len()], gain, self.eps, y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, gain: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dx, dgain) = with_values([x, gain, dy], |[x, gain, dy]| gradients(x, gain, dy, self.eps))?;
        Ok((
            Some(Tensor::from_vec(dx, x.shape(), x.device())?),
            Some(Tensor::from_vec(dgain, gain.shape(), gain.device())?),
        ))
    }
}

#[pulp::with_simd(forward_rows = pulp::Arch::new())]
#[inline(always)]
fn forward_rows_simd<'a, S: pulp::Simd>(_simd: S, x: &'a [f32], gain: &'a [f32], eps: f32, y: &'a mut [f32]) {
    let e = gain.len();
    for (y, x) in y.chunks_exact_mut(e).zip(x.chunks_exact(e)) {
        let inverse = 1.0 / (dot(x, x) / e as f32 + eps).sqrt();
        for ((y, &x), &gain) in y.iter_mut().zip(x).zip(gain) {
            *y = x * inverse * gain;
        }
    }
}

/// dx and dgain. With r = 1/rms and u = dy * gain: dx = r u - x r^3 (u . x) / E, dgain = sum over rows of dy x r.
fn gradients(x: &[f32], gain: &[f32], dy: &[f32], eps: f32) -> (Vec<f32>, Vec<f32>) {
    let e = gain.len();
    let mut dx = vec![0.0; x.len()];
    let partial: Vec<Vec<f32>> = dx
        .par_chunks_mut(ROWS_PER_TASK * e)
        .zip(x.par_chunks(ROWS_PER_TASK * e))
        .zip(dy.par_chunks(ROWS_PER_TASK * e))
        .map(|((dx, x), dy)| {
            let mut dgain = vec![0.0f32; e];
            backward_rows(Rows { x, gain, dy, eps }, dx, &mut dgain);
            dgain
        })
        .collect();
    let mut dgain = vec![0.0; e];
    for part in partial {
        dgain.iter_mut().zip(part).for_each(|(total, value)| *total += value);
    }
    (dx, dgain)
}

struct Rows<'a> {
    x: &'a [f32],
    gain: &'a [f32],
    dy: &'a [f32],
    eps: f32,
}

#[pulp::with_simd(backward_rows = pulp::Arch::new())]
#[inline(always)]
fn backward_rows_simd<'a, S: pulp::Simd>(_simd: S, rows: Rows<'a>, dx: &'a mut [f32], dgain: &'a mut [f32]) {
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
