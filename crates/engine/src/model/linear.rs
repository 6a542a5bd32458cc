//! Projections and norms.

use super::{ModelConfig, NormKind, Weights};
use crate::kernels::{layer_norm, linear, rms_norm};
use anyhow::{Context, Result};
use candle_core::Tensor;

/// A linear projection, with or without bias.
#[derive(Clone)]
pub(super) struct Projection {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
}

impl Projection {
    pub(super) fn load(name: &str, weights: &mut Weights) -> Result<Self> {
        Self::find(name, weights)?.with_context(|| format!("tensor {name}.weight is missing"))
    }

    /// `None` if the model has no such projection.
    pub(super) fn find(name: &str, weights: &mut Weights) -> Result<Option<Self>> {
        let Some(weight) = weights.find(&format!("{name}.weight"))? else { return Ok(None) };
        let bias = weights.find(&format!("{name}.bias"))?;
        Ok(Some(Self { weight, bias }))
    }

    /// Multiplies weight and bias by `factor`.
    pub(super) fn scaled(self, factor: f64) -> Result<Self> {
        if factor == 1.0 {
            return Ok(self);
        }
        let bias = self.bias.map(|bias| bias * factor).transpose()?;
        Ok(Self { weight: (self.weight * factor)?, bias })
    }

    /// (.., in) -> (.., out).
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = linear(x, &self.weight)?;
        Ok(match &self.bias {
            None => y,
            Some(bias) => y.broadcast_add(&bias.to_dtype(y.dtype())?)?,
        })
    }
}

#[derive(Clone)]
pub(super) struct Norm {
    pub(super) gain: Tensor,
    pub(super) bias: Option<Tensor>,
    pub(super) eps: f64,
}

impl Norm {
    pub(super) fn load(config: &ModelConfig, name: &str, weights: &mut Weights) -> Result<Self> {
        Self::find(config, name, weights)?.with_context(|| format!("tensor {name}.weight is missing"))
    }

    /// `None` if the model has no such norm.
    pub(super) fn find(config: &ModelConfig, name: &str, weights: &mut Weights) -> Result<Option<Self>> {
        let Some(gain) = weights.find(&format!("{name}.weight"))? else { return Ok(None) };
        let gain = if config.norm == NormKind::RmsPlusOne { (gain + 1.0)? } else { gain };
        let bias = match config.norm {
            NormKind::Layer => Some(weights.take(&format!("{name}.bias"))?),
            NormKind::LayerGain => Some(gain.zeros_like()?),
            NormKind::Rms | NormKind::RmsPlusOne => None,
        };
        Ok(Some(Self { gain, bias, eps: config.norm_eps }))
    }

    /// One LayerNorm per head, without bias: gains (heads, d).
    pub(super) fn of_each_head(config: &ModelConfig, name: &str, heads: usize, weights: &mut Weights) -> Result<Self> {
        let gains =
            (0..heads).map(|head| weights.take(&format!("{name}.{head}.weight"))).collect::<Result<Vec<_>>>()?;
        Ok(Self { gain: Tensor::stack(&gains, 0)?, bias: None, eps: config.norm_eps })
    }

    /// Applies the norms of [`Norm::of_each_head`]: (.., heads, d) -> same shape.
    pub(super) fn forward_each_head(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.gain.get(0)?;
        let normed = layer_norm(x, &first.ones_like()?, &first.zeros_like()?, self.eps)?;
        Ok(normed.broadcast_mul(&self.gain.to_dtype(normed.dtype())?)?)
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match &self.bias {
            None => rms_norm(x, &self.gain, self.eps)?,
            Some(bias) => layer_norm(x, &self.gain, bias, self.eps)?,
        })
    }
}

/// Applies a norm if there is one.
pub(super) fn normed(norm: &Option<Norm>, x: Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(&x),
        None => Ok(x),
    }
}
