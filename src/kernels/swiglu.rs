//! SwiGLU (Shazeer 2020): silu(gate) * up, as a differentiable op.

use super::simd::sigmoid;
use super::{has_kernels, in_chunks, slice, wide, with_values, NUMBERS_PER_TASK};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use candle_nn::ops::silu;
use rayon::prelude::*;

struct SwiGlu;

/// `silu(gate) * up`, element by element.
///
/// # Errors
/// If the shapes or number types differ, or an argument is not contiguous.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if has_kernels(gate) {
        return gate.apply_op2(up, SwiGlu);
    }
    (silu(&wide(gate)?)? * wide(up)?)?.to_dtype(gate.dtype())
}

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        if l1.shape() != l2.shape() {
            candle_core::bail!("swiglu: gate {:?} and up {:?} differ", l1.shape(), l2.shape());
        }
        let (gate, up) = (slice(s1, l1, "swiglu")?, slice(s2, l2, "swiglu")?);
        let y = in_chunks(gate.len(), NUMBERS_PER_TASK, |chunk, y| {
            let of_chunk = chunk * NUMBERS_PER_TASK..chunk * NUMBERS_PER_TASK + y.len();
            forward(&gate[of_chunk.clone()], &up[of_chunk], y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dgate, dup) = with_values([gate, up, dy], |[gate, up, dy]| gradients(gate, up, dy))?;
        let [dgate, dup] = [dgate, dup].map(|values| Tensor::from_vec(values, gate.shape(), gate.device()));
        Ok((Some(dgate?), Some(dup?)))
    }
}

#[pulp::with_simd(forward = pulp::Arch::new())]
#[inline(always)]
fn forward_simd<'a, S: pulp::Simd>(_simd: S, gate: &'a [f32], up: &'a [f32], y: &'a mut [f32]) {
    for ((y, &g), &u) in y.iter_mut().zip(gate).zip(up) {
        *y = g * sigmoid(g) * u;
    }
}

/// With s = sigmoid(g): d/dg [g s] = s (1 + g (1 - s)).
#[pulp::with_simd(backward = pulp::Arch::new())]
#[inline(always)]
fn backward_simd<'a, S: pulp::Simd>(
    _simd: S,
    gate: &'a [f32],
    up: &'a [f32],
    dy: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
) {
    for (((dgate, dup), (&g, &u)), &dy) in dgate.iter_mut().zip(dup).zip(gate.iter().zip(up)).zip(dy) {
        let s = sigmoid(g);
        *dgate = dy * u * s * (1.0 + g * (1.0 - s));
        *dup = dy * g * s;
    }
}

fn gradients(gate: &[f32], up: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut dgate, mut dup) = (vec![0.0; gate.len()], vec![0.0; gate.len()]);
    dgate
        .par_chunks_mut(NUMBERS_PER_TASK)
        .zip(dup.par_chunks_mut(NUMBERS_PER_TASK))
        .zip(gate.par_chunks(NUMBERS_PER_TASK).zip(up.par_chunks(NUMBERS_PER_TASK)))
        .zip(dy.par_chunks(NUMBERS_PER_TASK))
        .for_each(|(((dgate, dup), (gate, up)), dy)| {
            backward(gate, up, dy, dgate, dup);
        });
    (dgate, dup)
}
