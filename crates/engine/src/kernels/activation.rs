//! Element-wise functions of hidden layers and gates. [`sigmoid`] and [`swiglu`], which training uses, have kernels for their
//! gradients; those of the others are candle's.

use super::simd::{self, exp};
use super::{gradient_in_candle, has_kernels, in_chunks, slice, wide, with_values, NUMBERS_PER_TASK};
use candle_core::{bail, CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// Writes dx to its third argument, given y = f(x) and dy.
type DerivativeFn = fn(&[f32], &[f32], &mut [f32]);

/// An element-wise function as a candle op.
#[derive(Clone, Copy)]
struct Elementwise {
    name: &'static str,
    /// Writes f(x) to its second argument.
    forward: fn(&[f32], &mut [f32]),
    backward: Option<DerivativeFn>,
    /// The function in candle's ops.
    in_candle: fn(&Tensor) -> Result<Tensor>,
}

/// x sigmoid(x). x must be contiguous.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    apply(x, Elementwise { name: "silu", forward: silu_forward, backward: None, in_candle: candle_nn::ops::silu })
}

/// x Phi(x) with the error function (Hendrycks & Gimpel 2016). x must be contiguous.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    apply(x, Elementwise { name: "gelu", forward: gelu_forward, backward: None, in_candle: Tensor::gelu_erf })
}

/// The approximation of [`gelu`] with tanh, as in GPT-2. x must be contiguous.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    apply(x, Elementwise { name: "gelu-tanh", forward: gelu_tanh_forward, backward: None, in_candle: Tensor::gelu })
}

/// max(x, 0). x must be contiguous.
pub fn relu(x: &Tensor) -> Result<Tensor> {
    apply(x, Elementwise { name: "relu", forward: relu_forward, backward: None, in_candle: Tensor::relu })
}

/// 1 / (1 + exp(-x)). x must be contiguous.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    apply(
        x,
        Elementwise {
            name: "sigmoid",
            forward: sigmoid_forward,
            backward: Some(sigmoid_backward),
            in_candle: candle_nn::ops::sigmoid,
        },
    )
}

/// Applies the kernel where there is one, otherwise candle's function in the number type of sums.
fn apply(x: &Tensor, function: Elementwise) -> Result<Tensor> {
    if has_kernels(x) {
        return x.apply_op1(function);
    }
    (function.in_candle)(&wide(x)?)?.to_dtype(x.dtype())
}

impl CustomOp1 for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(storage, layout, self.name)?;
        let y = in_chunks(x.len(), NUMBERS_PER_TASK, |chunk, y| {
            (self.forward)(&x[chunk * NUMBERS_PER_TASK..][..y.len()], y);
        });
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let Some(backward) = self.backward else { return gradient_in_candle(x, dy, self.in_candle).map(Some) };
        let dx = with_values([y, dy], |[y, dy]| {
            in_chunks(y.len(), NUMBERS_PER_TASK, |chunk, dx| {
                let of_chunk = chunk * NUMBERS_PER_TASK..chunk * NUMBERS_PER_TASK + dx.len();
                backward(&y[of_chunk.clone()], &dy[of_chunk], dx);
            })
        })?;
        Ok(Some(Tensor::from_vec(dx, x.shape(), x.device())?))
    }
}

/// Defines a vectorised loop that applies a function to every number.
macro_rules! forward_loop {
    ($name:ident, $simd:ident, $f:expr) => {
        #[pulp::with_simd($name = pulp::Arch::new())]
        #[inline(always)]
        fn $simd<'a, S: pulp::Simd>(_simd: S, x: &'a [f32], y: &'a mut [f32]) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = $f(x);
            }
        }
    };
}

forward_loop!(silu_forward, silu_forward_simd, silu_of);
forward_loop!(gelu_forward, gelu_forward_simd, gelu_of);
forward_loop!(gelu_tanh_forward, gelu_tanh_forward_simd, gelu_tanh_of);
forward_loop!(relu_forward, relu_forward_simd, relu_of);
forward_loop!(sigmoid_forward, sigmoid_forward_simd, simd::sigmoid);

#[pulp::with_simd(sigmoid_backward = pulp::Arch::new())]
#[inline(always)]
fn sigmoid_backward_simd<'a, S: pulp::Simd>(_simd: S, y: &'a [f32], dy: &'a [f32], dx: &'a mut [f32]) {
    for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
        *dx = dy * y * (1.0 - y);
    }
}

#[inline(always)]
fn silu_of(x: f32) -> f32 {
    x * simd::sigmoid(x)
}

#[inline(always)]
fn relu_of(x: f32) -> f32 {
    x.max(0.0)
}

/// 0.5 (1 + tanh u) = sigmoid(2u).
#[inline(always)]
fn gelu_tanh_of(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    x * simd::sigmoid(2.0 * SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x))
}

/// Abramowitz & Stegun 7.1.26, an approximation of the error function whose error is at most 1.5e-7.
#[inline(always)]
fn gelu_of(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let mut p = 1.061_405_4_f32;
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = p.mul_add(t, c);
    }
    // Phi(-|x|)
    let tail = 0.5 * p * t * exp(-z * z);
    if x < 0.0 {
        x * tail
    } else {
        x * (1.0 - tail)
    }
}

struct SwiGlu;

/// SwiGLU (Shazeer 2020): `silu(gate) * up`, element by element.
///
/// # Errors
/// If the shapes or number types differ, or an argument is not contiguous.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if has_kernels(gate) {
        return gate.apply_op2(up, SwiGlu);
    }
    (candle_nn::ops::silu(&wide(gate)?)? * wide(up)?)?.to_dtype(gate.dtype())
}

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        if l1.shape() != l2.shape() {
            bail!("swiglu: gate {:?} and up {:?} differ", l1.shape(), l2.shape());
        }
        let gate = slice(s1, l1, "swiglu")?;
        let up = slice(s2, l2, "swiglu")?;
        let y = in_chunks(gate.len(), NUMBERS_PER_TASK, |chunk, y| {
            let of_chunk = chunk * NUMBERS_PER_TASK..chunk * NUMBERS_PER_TASK + y.len();
            swiglu_forward(&gate[of_chunk.clone()], &up[of_chunk], y);
        });
        Ok((CpuStorage::F32(y), l1.shape().clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dgate, dup) = with_values([gate, up, dy], |[gate, up, dy]| swiglu_gradients(gate, up, dy))?;
        let [dgate, dup] = [dgate, dup].map(|values| Tensor::from_vec(values, gate.shape(), gate.device()));
        Ok((Some(dgate?), Some(dup?)))
    }
}

#[pulp::with_simd(swiglu_forward = pulp::Arch::new())]
#[inline(always)]
fn swiglu_forward_simd<'a, S: pulp::Simd>(_simd: S, gate: &'a [f32], up: &'a [f32], y: &'a mut [f32]) {
    for ((y, &g), &u) in y.iter_mut().zip(gate).zip(up) {
        *y = g * simd::sigmoid(g) * u;
    }
}

/// With s = simd::sigmoid(g): d/dg [g s] = s (1 + g (1 - s)).
#[pulp::with_simd(swiglu_backward = pulp::Arch::new())]
#[inline(always)]
fn swiglu_backward_simd<'a, S: pulp::Simd>(
    _simd: S,
    gate: &'a [f32],
    up: &'a [f32],
    dy: &'a [f32],
    dgate: &'a mut [f32],
    dup: &'a mut [f32],
) {
    for (((dgate, dup), (&g, &u)), &dy) in dgate.iter_mut().zip(dup).zip(gate.iter().zip(up)).zip(dy) {
        let s = simd::sigmoid(g);
        *dgate = dy * u * s * (1.0 + g * (1.0 - s));
        *dup = dy * g * s;
    }
}

fn swiglu_gradients(gate: &[f32], up: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let mut dgate = vec![0.0; gate.len()];
    let mut dup = vec![0.0; gate.len()];
    dgate
        .par_chunks_mut(NUMBERS_PER_TASK)
        .zip(dup.par_chunks_mut(NUMBERS_PER_TASK))
        .zip(gate.par_chunks(NUMBERS_PER_TASK).zip(up.par_chunks(NUMBERS_PER_TASK)))
        .zip(dy.par_chunks(NUMBERS_PER_TASK))
        .for_each(|(((dgate, dup), (gate, up)), dy)| {
            swiglu_backward(gate, up, dy, dgate, dup);
        });
    (dgate, dup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_agree_with_their_definitions_in_double_precision() {
        let erf = statrs::function::erf::erf;
        for i in -1200..=1200 {
            let x = f64::from(i) / 100.0;
            let narrow = x as f32;
            let tanh = (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh();
            let close = |got: f32, want: f64| {
                assert!((f64::from(got) - want).abs() < 1e-6 * want.abs().max(1.0), "{x}: {got} is not {want}")
            };
            close(gelu_of(narrow), 0.5 * x * (1.0 + erf(x / 2f64.sqrt())));
            close(gelu_tanh_of(narrow), 0.5 * x * (1.0 + tanh));
            close(silu_of(narrow), x / (1.0 + (-x).exp()));
        }
    }
}
