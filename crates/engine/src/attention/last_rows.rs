//! Attention of the last rows of a text in candle's ops, which are differentiable.

use super::portable::{KeyPart, Portable};
use super::{Attend, Heads, Prefix, Wiring};
use candle_core::{Device, Result, Tensor, Var};

/// Computes the rows of one text from `start` on (B = 1) with gradients. Keys and values of the tokens before are constants,
/// from an untreated pass over them.
pub(crate) struct LastRows<'a> {
    prefix: &'a Prefix,
    start: usize,
    /// The constants of the layer that was computed last.
    before: Option<(usize, KeyPart)>,
    /// The residual stream at each site: (1, T - start, E).
    pub(crate) residuals: Vec<Tensor>,
    /// `true` to keep what heads write. Then candle keeps the operations of all layers that follow.
    pub(crate) keeps_written: bool,
    /// Outputs of the heads of the layer computed last.
    pub(crate) written: Option<Written>,
}

/// Outputs of the heads of a layer, with their gradient.
pub struct Written {
    /// The outputs, as constants: (1, T - start, H, value width).
    pub(crate) outputs: Tensor,
    /// Zeros that are added to them, whose gradient is that of the outputs.
    pub(crate) change: Var,
}

impl<'a> LastRows<'a> {
    pub(crate) fn new(prefix: &'a Prefix, start: usize) -> Self {
        Self { prefix, start, before: None, residuals: Vec::new(), keeps_written: false, written: None }
    }

    /// Keys and values of the tokens before `start` in a layer.
    fn before(&self, layer: usize, wiring: &Wiring, d: usize) -> Result<KeyPart> {
        let packed = &self.prefix.layers[layer];
        let n = wiring.heads();
        let mut k = Vec::new();
        for of_map in &wiring.key {
            let keys = packed.transposed_keys(of_map, self.start);
            k.push(Tensor::from_vec(keys, (1, n, d, self.start), &Device::Cpu)?);
        }
        let values = packed.joined_values(&wiring.value, self.start);
        let v = Tensor::from_vec(values, (1, n, self.start, wiring.value_slices() * d), &Device::Cpu)?;
        Ok(KeyPart { tokens: 0..self.start, k, v })
    }
}

impl Attend for LastRows<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        if self.start == 0 {
            return Portable::new(heads, None, layer)?.mixture();
        }
        let before = match self.before.take() {
            Some((of, before)) if of == layer => before,
            _ => self.before(layer, heads.wiring, heads.q.dim(3)?)?,
        };
        self.before = Some((layer, before.clone()));
        Portable::behind(before, heads, layer)?.mixture()
    }

    fn head_outputs(&mut self, _layer: usize, outputs: Tensor) -> Result<Tensor> {
        if !self.keeps_written {
            return Ok(outputs);
        }
        let change = Var::zeros(outputs.shape(), outputs.dtype(), outputs.device())?;
        let changed = (&outputs + change.as_tensor())?;
        self.written = Some(Written { outputs: outputs.detach(), change });
        Ok(changed)
    }

    fn residual(&mut self, _site: usize, x: &Tensor) -> Result<()> {
        self.residuals.push(x.clone());
        Ok(())
    }
}
