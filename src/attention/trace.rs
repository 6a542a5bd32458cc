//! What passes at a few rows: enough to follow what a head writes on its way to the logits.

use crate::ops::numbers;
use candle_core::{Result, Tensor};

/// Numbers of chosen rows of one pass over one prompt, as a [`Stream`](super::Stream) met them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    rows: Vec<usize>,
    /// By layer, the mixtures of all heads before they are finished: (rows, H x value width).
    mixtures: Vec<Vec<f32>>,
    /// By layer, what the finished mixtures are multiplied with, if anything: (rows, H x value width).
    gates: Vec<Vec<f32>>,
    /// By layer, what attention gives, before any norm after it: (rows, E).
    attended: Vec<Vec<f32>>,
    /// The residual stream where it was last seen: (rows, E).
    last: Vec<f32>,
}

impl Trace {
    /// Nothing yet, of these rows.
    pub(super) fn new(rows: Vec<usize>) -> Self {
        Self { rows, ..Self::default() }
    }

    /// The rows: positions of query tokens.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// The mixtures of all heads of a layer in a row: (H x value width). Nothing if the row was not traced.
    pub fn mixture_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.mixtures.get(layer)?, row)
    }

    /// What the finished mixtures of a layer are multiplied with in a row: (H x value width). Nothing without an output gate.
    pub fn gate_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.gates.get(layer).filter(|gates| !gates.is_empty())?, row)
    }

    /// What a layer's attention gave in a row, before any norm after it: (E).
    pub fn attended_of(&self, layer: usize, row: usize) -> Option<&[f32]> {
        self.row(self.attended.get(layer)?, row)
    }

    /// The residual stream of a row after the last layer, before the final norm: (E).
    pub fn last_of(&self, row: usize) -> Option<&[f32]> {
        self.row(&self.last, row)
    }

    fn row<'a>(&self, values: &'a [f32], row: usize) -> Option<&'a [f32]> {
        let at = self.rows.iter().position(|&traced| traced == row)?;
        values.chunks_exact(values.len() / self.rows.len()).nth(at)
    }

    /// Keeps the rows of a layer's mixtures (1, T, H, value width), and of its output gate (1, T, H x value width).
    pub(super) fn mixture(&mut self, x: &Tensor, gate: Option<&Tensor>) -> Result<()> {
        self.mixtures.push(self.pick(x)?);
        self.gates.push(gate.map_or_else(|| Ok(Vec::new()), |gate| self.pick(gate))?);
        Ok(())
    }

    /// Keeps the rows of what a layer's attention gives (1, T, E).
    pub(super) fn attended(&mut self, x: &Tensor) -> Result<()> {
        self.attended.push(self.pick(x)?);
        Ok(())
    }

    /// Keeps the rows of the residual stream (1, T, E).
    pub(super) fn residual(&mut self, x: &Tensor) -> Result<()> {
        self.last = self.pick(x)?;
        Ok(())
    }

    /// Only these rows leave the device: (1, T, ..).
    fn pick(&self, x: &Tensor) -> Result<Vec<f32>> {
        let mut picked = Vec::new();
        for &row in &self.rows {
            picked.extend(numbers(&x.narrow(1, row, 1)?)?);
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
        assert_eq!((trace.mixture_of(0, 3), trace.last_of(1)), (Some(&[3.0, 3.1][..]), Some(&[6.0][..])));
        assert_eq!((trace.mixture_of(0, 2), trace.mixture_of(1, 3), trace.attended_of(0, 1)), (None, None, None));
    }
}
