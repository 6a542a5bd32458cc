//! Path of one row from the attention mixture to the residual stream, as a linear map ([`HeadOutput`]).
//!
//! Norms are applied with the factor of the actual row, so that the parts of a vector can be normed one by one and sum
//! to the normed whole ("frozen" norms, as in the logit attribution of Elhage et al. 2021). Biases belong to no part
//! and are left out.

use super::linear::Norm;
use super::Transformer;
use crate::attention::{Gate, Trace};
use crate::kernels::{multiply, numbers, with_values, Mat, MatMut};
use anyhow::{Context, Result};
use candle_core::Tensor;

/// Linear map from a head's mixture c to its output in the residual stream, for one row of one layer: u = W_O,h (g ∘ c)
/// · factor.
pub struct HeadOutput {
    /// Output projection (E, H x value width). The columns of this head start at `first`.
    weight: Tensor,
    first: usize,
    /// Factor of each channel in this row, from norm, scale and gate: (value width).
    scale: Vec<f64>,
}

impl HeadOutput {
    /// Outputs u of parts c (n, value width): (n, E).
    ///
    /// # Panics
    /// If the parts have another width.
    pub fn write(&self, parts: &[f64]) -> Result<Vec<f32>> {
        let n = parts.len() / self.scale.len();
        let width = self.scale.len();
        assert_eq!(parts.len(), n * width, "width of a part");
        let scaled = parts.chunks_exact(width).flat_map(|part| part.iter().zip(&self.scale));
        let scaled: Vec<f32> = scaled.map(|(c, scale)| (c * scale) as f32).collect(); // n,width
        let (e, columns) = self.weight.dims2()?;
        let mut output = vec![0.0; n * e];
        with_values([&self.weight], |[weight]| {
            let weight = Mat::new(&weight[self.first..], e, width, columns);
            multiply(MatMut::new(&mut output, n, e, e), false, Mat::new(&scaled, n, width, width), weight.t());
        })?;
        Ok(output)
    }
}

/// Shares of the parts of a mixture in a head's output, computable before the layer has run. With G = W_O,h diag(gain),
/// parts c and c' of row t have the outputs r_t G c and r_t G c', so ⟨u, u'⟩ = r_t² c · GᵀG c'. The factor r_t of the
/// row is the same for all parts and cancels in their shares.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// GᵀG: (value width, value width), row-major and symmetric.
    gram: Vec<f32>,
    width: usize,
    /// For a norm of each head, the ε of r_t = 1 / √(mean square + ε).
    eps: Option<f64>,
}

impl Agreement {
    /// Creates it from GᵀG (value width, value width) and, for a norm of each head, its ε.
    pub fn new(gram: Vec<f32>, width: usize, eps: Option<f64>) -> Self {
        assert_eq!(gram.len(), width * width, "a square matrix");
        Self { gram, width, eps }
    }

    /// The vector z (value width) with z · c = ⟨u_c, u⟩ / ⟨u, u⟩ for every part c of `mixture` (value width): its share
    /// of the head's output in this row. Zeros if the output is zero.
    pub fn shares_of(&self, mixture: &[f64]) -> Vec<f64> {
        let gram_mixture = self.times(mixture);
        let whole = dot(mixture, &gram_mixture);
        if whole <= 0.0 {
            return vec![0.0; self.width];
        }
        gram_mixture.into_iter().map(|z| z / whole).collect()
    }

    /// ⟨u_c, u⟩ and ⟨u, u⟩ of a part of a mixture (value width each). A factor that depends on other heads counts as 1.
    pub fn products(&self, part: &[f64], mixture: &[f64]) -> (f64, f64) {
        let gram_mixture = self.times(mixture);
        let mean_square = mixture.iter().map(|o| o * o).sum::<f64>() / self.width as f64;
        let squared = self.eps.map_or(1.0, |eps| 1.0 / (mean_square + eps));
        (squared * dot(part, &gram_mixture), squared * dot(mixture, &gram_mixture))
    }

    fn times(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.gram.chunks_exact(self.width);
        rows.map(|row| row.iter().zip(x).map(|(&g, x)| f64::from(g) * x).sum()).collect()
    }
}

impl Transformer {
    /// Map from parts of the mixture of `head` in `layer` to its output, for a traced row.
    ///
    /// # Errors
    /// If the row was not traced.
    ///
    /// # Panics
    /// If there is no such layer or head.
    pub fn head_output(&self, layer: usize, head: usize, row: usize, trace: &Trace) -> Result<HeadOutput> {
        let path = self.blocks.output_path(layer)?;
        let weight = path.o.weight.clone(); // E,H*width
        let width = weight.dim(1)? / self.config.wiring().heads();
        let channels = head * width..(head + 1) * width;
        let mixture = trace.mixture_of(layer, row).context("the row was not traced")?;
        let scale = path.extras.row_scale(channels.clone(), mixture, trace.gate_of(layer, row))?;
        Ok(HeadOutput { weight, first: channels.start, scale })
    }

    /// Applies the norm after attention, if there is one, to parts (n, E) of the attention output of a traced row. The
    /// results are their terms in the residual stream.
    ///
    /// # Errors
    /// If the row was not traced.
    pub fn norm_after_attention(&self, layer: usize, row: usize, trace: &Trace, parts: &mut [f64]) -> Result<()> {
        let Some(norm) = &self.blocks.output_path(layer)?.after else { return Ok(()) };
        let attended = trace.attention_output_of(layer, row).context("the row was not traced")?; // E
        norm.apply_to_parts(attended, parts)
    }

    /// The [`Agreement`] of a head, or `None` if the variant has a gate, whose factors differ between rows.
    pub fn agreement(&self, layer: usize, head: usize) -> Result<Option<Agreement>> {
        if self.config.variant.gate != Gate::None {
            return Ok(None);
        }
        let path = self.blocks.output_path(layer)?;
        let weight = &path.o.weight; // E,H*width
        let (e, columns) = weight.dims2()?;
        let width = columns / self.config.wiring().heads();
        let (gain, eps) = path.extras.head_gain(head * width..(head + 1) * width)?;
        let mut gram = vec![0.0; width * width];
        with_values([weight], |[weight]| {
            let head_weight = Mat::new(&weight[head * width..], e, width, columns);
            multiply(MatMut::new(&mut gram, width, width, width), false, head_weight.t(), head_weight);
        })?;
        for (i, row) in gram.chunks_exact_mut(width).enumerate() {
            row.iter_mut().zip(&gain).for_each(|(g, of_column)| *g = (f64::from(*g) * gain[i] * of_column) as f32);
        }
        Ok(Some(Agreement { gram, width, eps }))
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn mean(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64
}

impl Norm {
    /// The factor that the norm has for `whole` (E).
    fn factor_of(&self, whole: &[f32]) -> f64 {
        let centre = if self.bias.is_some() { mean(whole) } else { 0.0 };
        let squares = whole.iter().map(|&x| (f64::from(x) - centre).powi(2)).sum::<f64>();
        1.0 / (squares / whole.len() as f64 + self.eps).sqrt()
    }

    /// Applies the norm without its bias to parts (n, E) of `whole` (E), with the factor of `whole`.
    fn apply_to_parts(&self, whole: &[f32], parts: &mut [f64]) -> Result<()> {
        let factor = self.factor_of(whole);
        let gain = numbers(&self.gain)?;
        for part in parts.chunks_exact_mut(whole.len()) {
            let centre = if self.bias.is_some() { part.iter().sum::<f64>() / part.len() as f64 } else { 0.0 };
            part.iter_mut().zip(&gain).for_each(|(x, &gain)| *x = (*x - centre) * f64::from(gain) * factor);
        }
        Ok(())
    }
}
