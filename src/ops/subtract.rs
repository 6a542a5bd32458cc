//! The differential step on outputs: `a - lambda * b`, as a differentiable op.

use super::simd::dot;
use super::{slice, with_values};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

struct SubtractScaled;

/// `a - lambda * b`: a, b (B, T, H, w); lambda either one number (1) or one per token and head (B, T, H).
///
/// Subtracting outputs equals subtracting maps, because both maps of a head weigh the same values.
///
/// # Errors
/// If the shapes do not fit or an argument is not contiguous `f32` on the CPU.
pub fn subtract_scaled(a: &Tensor, b: &Tensor, lambda: &Tensor) -> Result<Tensor> {
    let (batch, t, heads, _) = a.dims4()?;
    if a.shape() != b.shape() || (lambda.elem_count() != 1 && lambda.dims() != [batch, t, heads]) {
        candle_core::bail!("subtract: {:?} - {:?} * {:?} do not fit", a.shape(), lambda.shape(), b.shape());
    }
    a.apply_op3(b, lambda, SubtractScaled)
}

impl CustomOp3 for SubtractScaled {
    fn name(&self) -> &'static str {
        "subtract-scaled"
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
        let (a, b) = (slice(s1, l1, "subtract")?, slice(s2, l2, "subtract")?);
        let lambda = slice(s3, l3, "subtract")?;
        let width = l1.shape().dims()[3];
        let mut y = vec![0.0; a.len()];
        y.par_chunks_mut(width)
            .zip(a.par_chunks(width).zip(b.par_chunks(width)))
            .enumerate()
            .with_min_len(512)
            .for_each(|(row, (y, (a, b)))| {
                let scale = lambda[row % lambda.len()];
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = a - scale * b;
                }
            });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        lambda: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let width = a.dim(3)?;
        let dy = dy.contiguous()?;
        let (db, per_row) = with_values(b, "subtract", |b| {
            with_values(lambda, "subtract", |lambda| with_values(&dy, "subtract", |dy| gradients(b, lambda, dy, width)))
        })???;
        let dlambda = if lambda.elem_count() == 1 {
            vec![per_row.iter().map(|&x| f64::from(x)).sum::<f64>() as f32]
        } else {
            per_row
        };
        let db = Tensor::from_vec(db, b.shape(), b.device())?;
        let dlambda = Tensor::from_vec(dlambda, lambda.shape(), lambda.device())?;
        Ok((Some(dy), Some(db), Some(dlambda)))
    }
}

/// db = -lambda dy, and -(dy . b) of every row, the gradient of that row's lambda.
fn gradients(b: &[f32], lambda: &[f32], dy: &[f32], width: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut db, mut per_row) = (vec![0.0; b.len()], vec![0.0; b.len() / width]);
    db.par_chunks_mut(width)
        .zip(per_row.par_iter_mut())
        .zip(b.par_chunks(width).zip(dy.par_chunks(width)))
        .enumerate()
        .with_min_len(512)
        .for_each(|(row, ((db, dlambda), (b, dy)))| {
            let scale = lambda[row % lambda.len()];
            *dlambda = backward_row(b, dy, scale, db);
        });
    (db, per_row)
}

#[pulp::with_simd(backward_row = pulp::Arch::new())]
#[inline(always)]
fn backward_row_simd<'a, S: pulp::Simd>(_simd: S, b: &'a [f32], dy: &'a [f32], scale: f32, db: &'a mut [f32]) -> f32 {
    for (db, &dy) in db.iter_mut().zip(dy) {
        *db = -scale * dy;
    }
    -dot(dy, b)
}
