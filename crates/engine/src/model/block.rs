//! One layer of the decoder: attention and an MLP, each with its norms, on a residual stream.

use super::config::{NormPlace, ResidualLayout};
use super::linear::{normed, Norm, Projection};
use super::mlp::FeedForward;
use super::names::LAYERS;
use super::self_attention::{Attention, RotaryPositions};
use super::tensors::{NORM_AFTER_ATTENTION, NORM_AFTER_MLP, NORM_BEFORE_ATTENTION};
use super::{ModelConfig, Weights};
use crate::attention::{Attend, Extras};
use crate::kernels::on_host;
use anyhow::Result;
use candle_core::Tensor;

#[derive(Clone)]
pub(super) struct DecoderBlock {
    attention: Attention,
    mlp: FeedForward,
    attention_norms: Norms,
    mlp_norms: Norms,
    residual: ResidualLayout,
    /// Rows that pass through the MLP at once.
    mlp_rows: usize,
}

impl DecoderBlock {
    /// The part of the layer between the attention mixture and the residual stream.
    pub(super) fn output_path(&self) -> OutputPath {
        let (o, extras) = self.attention.output();
        OutputPath { o: o.clone(), extras: extras.clone(), after: self.attention_norms.after.clone() }
    }

    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        Ok(Self {
            attention_norms: Norms::load(config, &prefix, NORM_BEFORE_ATTENTION, NORM_AFTER_ATTENTION, weights)?,
            mlp_norms: Norms::load(config, &prefix, config.norm_before_mlp(), NORM_AFTER_MLP, weights)?,
            attention: Attention::load(config, layer, &format!("{prefix}.self_attn"), weights)?,
            mlp: FeedForward::load(config, layer, &format!("{prefix}.mlp"), weights)?,
            residual: config.residual,
            mlp_rows: config.mlp_rows(),
        })
    }

    /// (B, T, E) -> (B, T, E).
    pub(super) fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        at: &RotaryPositions<'_>,
        attend: &mut dyn Attend,
    ) -> Result<Tensor> {
        if let (ResidualLayout::OneNorm, Some(norm)) = (self.residual, &self.attention_norms.before) {
            let normed = norm.forward(x)?;
            let attended = self.attended(normed.clone(), layer, at, attend)?;
            return Ok(((attended + self.mlp_of_needed_rows(attend.needed(layer), &normed)?)? + x)?);
        }
        let attended = self.attention_norms.around(x, |x| self.attended(x, layer, at, attend))?;
        if self.residual != ResidualLayout::Serial {
            return Ok(((attended + self.mlp_of_needed_rows(attend.needed(layer), x)?)? + x)?);
        }
        let x = normed(&self.attention_norms.of_sum, (x + attended)?)?;
        let mlp = self.mlp_of_needed_rows(attend.needed(layer), &x)?;
        normed(&self.mlp_norms.of_sum, (x + mlp)?)
    }

    /// Output of the attention: (B, T, E) -> (B, T, E).
    fn attended(&self, x: Tensor, layer: usize, at: &RotaryPositions<'_>, attend: &mut dyn Attend) -> Result<Tensor> {
        let y = self.attention.forward(x, layer, at, attend)?;
        attend.attention_output(layer, &y)?;
        Ok(y)
    }

    /// Output of the MLP for the rows that are needed, zeros in the others: (B, T, E) -> (B, T, E).
    fn mlp_of_needed_rows(&self, needed: Option<&[bool]>, x: &Tensor) -> Result<Tensor> {
        let Some(needed) = needed else { return self.mlp(x) };
        let rows: Vec<u32> = (0..).zip(needed).filter(|(_, &needed)| needed).map(|(row, _)| row).collect();
        let none = x.zeros_like()?; // B,T,E
        if rows.is_empty() {
            return Ok(none);
        }
        let rows = Tensor::new(rows, x.device())?;
        let mlp = self.mlp(&x.index_select(&rows, 1)?)?; // B,rows,E
        Ok(none.index_add(&rows, &mlp, 1)?) // B,T,E
    }

    /// Output of the MLP, computed for some rows at a time: rows are independent, and the hidden layer of a
    /// long text would be the largest tensor of the pass.
    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let t = x.dim(1)?;
        let mut parts = Vec::new();
        for start in (0..t).step_by(self.mlp_rows) {
            let rows = x.narrow(1, start, self.mlp_rows.min(t - start))?.contiguous()?; // B,rows,E
            parts.push(self.mlp_norms.around(&rows, |x| self.mlp.forward(&x))?);
        }
        match parts.as_slice() {
            [all] => Ok(all.clone()),
            parts => Ok(Tensor::cat(parts, 1)?), // B,T,E
        }
    }
}

/// The part of a layer between the attention mixture and the residual stream.
pub(super) struct OutputPath {
    pub(super) o: Projection,
    /// Tensors that the attention variant applies before it.
    pub(super) extras: Extras,
    /// The norm after attention, in architectures that have one.
    pub(super) after: Option<Norm>,
}

impl OutputPath {
    /// Takes the tensors of this part from `weights`.
    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        let (o, extras) = Attention::load_output(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let norms = Norms::load(config, &prefix, NORM_BEFORE_ATTENTION, NORM_AFTER_ATTENTION, weights)?;
        Ok(Self { o, extras, after: norms.after })
    }

    /// Moves the matrix to the host, where single rows are decomposed.
    pub(super) fn on_host(self) -> Result<Self> {
        Ok(Self { o: Projection { weight: on_host(&self.o.weight)?, ..self.o }, ..self })
    }
}

/// The norms around a sublayer.
#[derive(Clone)]
struct Norms {
    before: Option<Norm>,
    after: Option<Norm>,
    /// Norm of the residual stream to which the output has been added.
    of_sum: Option<Norm>,
}

impl Norms {
    /// Takes those of the two norms that the model has.
    fn load(config: &ModelConfig, prefix: &str, before: &str, after: &str, weights: &mut Weights) -> Result<Self> {
        let before = Norm::find(config, &format!("{prefix}.{before}"), weights)?;
        let mut load_after = || Norm::find(config, &format!("{prefix}.{after}"), weights);
        Ok(match config.norm_place {
            // The norm of the MLP has the name of the one after attention.
            NormPlace::Before => Self { before, after: None, of_sum: None },
            NormPlace::After | NormPlace::Both => Self { before, after: load_after()?, of_sum: None },
            NormPlace::Sum => Self { before, after: None, of_sum: load_after()? },
        })
    }

    /// Output of a sublayer with its norms: the term added to the residual stream.
    fn around(&self, x: &Tensor, sublayer: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let y = sublayer(normed(&self.before, x.clone())?)?;
        normed(&self.after, y)
    }
}
