//! The functions of plain MLPs, element by element. For measuring only: the kernels have no gradient, and say so when asked.

use super::simd::{exp, sigmoid};
use super::{has_kernels, in_chunks, slice, wide, NUMBERS_PER_TASK};
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

macro_rules! activation {
    ($(#[$doc:meta])* $name:ident, $op:ident, $loop:ident, $simd:ident, $f:expr, $in_candle:expr) => {
        struct $op;

        $(#[$doc])*
        ///
        /// # Errors
        /// If x is not contiguous.
        pub fn $name(x: &Tensor) -> Result<Tensor> {
            if has_kernels(x) {
                return x.apply_op1($op);
            }
            $in_candle(&wide(x)?)?.to_dtype(x.dtype())
        }

        impl CustomOp1 for $op {
            fn name(&self) -> &'static str {
                stringify!($name)
            }

            fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
                let x = slice(storage, layout, self.name())?;
                let y = in_chunks(x.len(), NUMBERS_PER_TASK, |chunk, y| $loop(&x[chunk * NUMBERS_PER_TASK..][..y.len()], y));
                Ok((CpuStorage::F32(y), layout.shape().clone()))
            }
        }

        #[pulp::with_simd($loop = pulp::Arch::new())]
        #[inline(always)]
        fn $simd<'a, S: pulp::Simd>(_simd: S, x: &'a [f32], y: &'a mut [f32]) {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = $f(x);
            }
        }
    };
}

activation!(
    /// x sigmoid(x).
    silu, Silu, silu_loop, silu_loop_simd, silu_of, Tensor::silu
);
activation!(
    /// x Phi(x) with the error function (Hendrycks & Gimpel 2016).
    gelu, Gelu, gelu_loop, gelu_loop_simd, gelu_of, Tensor::gelu_erf
);
activation!(
    /// The approximation of [`gelu`] with tanh, as GPT-2 has it.
    gelu_tanh, GeluTanh, gelu_tanh_loop, gelu_tanh_loop_simd, gelu_tanh_of, Tensor::gelu
);
activation!(
    /// max(x, 0).
    relu, Relu, relu_loop, relu_loop_simd, relu_of, Tensor::relu
);

#[inline(always)]
fn silu_of(x: f32) -> f32 {
    x * sigmoid(x)
}

#[inline(always)]
fn relu_of(x: f32) -> f32 {
    x.max(0.0)
}

/// 0.5 (1 + tanh u) is sigmoid(2u).
#[inline(always)]
fn gelu_tanh_of(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    x * sigmoid(2.0 * SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x))
}

/// erf by Abramowitz & Stegun 7.1.26, which is off by 1.5e-7 at most.
#[inline(always)]
fn gelu_of(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let mut p = 1.061_405_4_f32;
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = p.mul_add(t, c);
    }
    // Phi of -|x|: what is left of the upper tail.
    let tail = 0.5 * p * t * exp(-z * z);
    if x < 0.0 {
        x * tail
    } else {
        x * (1.0 - tail)
    }
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
