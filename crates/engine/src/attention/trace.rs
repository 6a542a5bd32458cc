//! Intermediate values of a few rows, from the heads' mixtures to the logits.

use crate::kernels::numbers;
use candle_core::{Result, Tensor};

/// Intermediate values of selected rows in one pass over one prompt, recorded by a [`Stream`](super::Stream).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    rows: Vec<usize>,
    /// Position of the first token of the pass.
    first: usize,
    /// By layer, the mixtures of all heads before `finish`: (rows, H x value width).
    mixtures: Vec<Vec<f32>>,
    /// By layer, the output gates: (rows, H x value width). Empty without gates.
    gates: Vec<Vec<f32>>,
    /// By layer, the attention output before any norm after it: (rows, E).
    attended: Vec<Vec<f32>>,
    /// By site, the sum of squares of the residual stream: (rows). Site l is the input of layer l.
    squares: Vec<Vec<f64>>,
}

impl Trace {
    pub(super) fn new(rows: Vec<usize>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// The trace of a pass that begins with the token at position `first`.
    pub(super) fn from(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// The rows: positions of query tokens.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Mixtures of all heads of a layer in a row: (H x value width). `None` if the row was not traced.
    pub fn mixture_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.mixtures.get(layer)?, row)
    }

    /// Output gate of a layer in a row: (H x value width). `None` without a gate.
    pub fn gate_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.gates.get(layer).filter(|gates| !gates.is_empty())?, row)
    }

    /// Attention output of a layer in a row, before any norm after it: (E).
    pub fn attention_output_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.attended.get(layer)?, row)
    }

    /// Sum of squares of the residual stream of a row at the input of a layer.
    pub fn residual_square(&self, layer: usize, row: usize) -> Option<f64> {
        self.squares.get(layer)?.get(self.place(row)?).copied()
    }

    fn row<'a>(&self, values: &'a [f32], row: usize) -> Option<&'a [f32]> {
        let place = self.place(row)?;
        values.chunks(values.len().div_ceil(self.rows.len()).max(1)).nth(place)
    }

    fn place(&self, row: usize) -> Option<usize> {
        self.rows.iter().position(|&traced| traced == row)
    }

    /// Records the mixtures (1, T, H, value width) and output gates (1, T, H x value width) of a layer.
    pub(super) fn mixture(&mut self, x: &Tensor, gate: Option<&Tensor>) -> Result<()> {
        self.mixtures.push(self.pick(x)?);
        self.gates.push(gate.map_or_else(|| Ok(Vec::new()), |gate| self.pick(gate))?);
        Ok(())
    }

    /// Records the attention output of a layer (1, T, E).
    pub(super) fn attention_output(&mut self, x: &Tensor) -> Result<()> {
        self.attended.push(self.pick(x)?);
        Ok(())
    }

    /// Records the residual stream (1, T, E).
    pub(super) fn residual(&mut self, x: &Tensor) -> Result<()> {
        let picked = self.pick(x)?;
        let rows = picked.chunks_exact(x.dim(2)?);
        self.squares.push(rows.map(|row| row.iter().map(|&x| f64::from(x).powi(2)).sum()).collect());
        Ok(())
    }

    /// Copies only the traced rows of (1, T, ..) from the device.
    fn pick(&self, x: &Tensor) -> Result<Vec<f32>> {
        let mut picked = Vec::new();
        for &row in &self.rows {
            picked.extend(numbers(&x.narrow(1, row - self.first, 1)?)?);
        }
        Ok(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn rows_are_found_by_their_position_and_others_are_missing() {
        let mut trace = Trace::new(vec![1, 3]);
        let rows = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap().reshape((1, 4, ())).unwrap();
        trace.mixture(&rows(&[0.0, 0.1, 1.0, 1.1, 2.0, 2.1, 3.0, 3.1]), None).unwrap();
        assert_eq!(trace.gate_of(0, 3), None);
        trace.residual(&rows(&[5.0, 6.0, 7.0, 8.0])).unwrap();
        assert_eq!((trace.residual_square(0, 3), trace.residual_square(0, 2)), (Some(64.0), None));
        assert_eq!(trace.mixture_of(0, 3), Some(&[3.0, 3.1][..]));
        assert_eq!(
            (trace.mixture_of(0, 2), trace.mixture_of(1, 3), trace.attention_output_of(0, 1)),
            (None, None, None)
        );
    }
}
