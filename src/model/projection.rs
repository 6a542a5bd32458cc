//! A linear projection, with or without bias.

use super::Weights;
use crate::kernels::{linear_of, Products};
use anyhow::Result;
use candle_core::Tensor;

/// A linear projection, with or without bias.
#[derive(Clone)]
pub(super) struct Projection {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
    pub(super) products: Products,
}

impl Projection {
    pub(super) fn load(name: &str, bias: bool, weights: &mut Weights) -> Result<Self> {
        let weight = weights.take(&format!("{name}.weight"))?;
        let bias = bias.then(|| weights.take(&format!("{name}.bias"))).transpose()?;
        Ok(Self { weight, bias, products: weights.placement().products })
    }

    /// Computes in `f32`. Used for routers and gates, which decide what else is computed.
    pub(super) fn in_f32(self) -> Self {
        Self { products: Products::F32, ..self }
    }

    /// Multiplies weight and bias by `factor`.
    pub(super) fn scaled(self, factor: f64) -> Result<Self> {
        if factor == 1.0 {
            return Ok(self);
        }
        let bias = self.bias.map(|bias| bias * factor).transpose()?;
        Ok(Self { weight: (self.weight * factor)?, bias, ..self })
    }

    /// (.., in) -> (.., out).
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = linear_of(self.products, x, &self.weight)?;
        Ok(match &self.bias {
            None => y,
            Some(bias) => y.broadcast_add(&bias.to_dtype(y.dtype())?)?,
        })
    }
}
