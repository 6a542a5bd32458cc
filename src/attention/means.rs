//! Mean outputs of heads, which replace a head's output in mean ablation.

use super::{Attend, Heads, Prefix, Stream};
use crate::kernels::with_values;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Attends like a [`Stream`] and sums the outputs of heads over sets of rows (B = 1).
pub struct HeadOutputSums<'a> {
    stream: Stream<'a>,
    /// The rows of each set.
    sets: Vec<Vec<Range<usize>>>,
    /// Sums over the rows of each set and layer: (H, value width), row-major.
    pub sums: Vec<Vec<Vec<f64>>>,
    /// Number of rows in each set.
    pub counts: Vec<usize>,
}

impl<'a> HeadOutputSums<'a> {
    /// Creates sums over these sets of rows.
    pub fn new(stream: Stream<'a>, sets: Vec<Vec<Range<usize>>>) -> Self {
        let n = sets.len();
        Self { stream, sets, sums: vec![Vec::new(); n], counts: vec![0; n] }
    }

    /// See [`Stream::take_prefix`].
    pub fn take_prefix(&mut self, ids: &[u32]) -> Option<Prefix> {
        self.stream.take_prefix(ids)
    }
}

impl Attend for HeadOutputSums<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        self.stream.attend(layer, heads)
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let (_, t, heads_of, width) = heads.dims4()?;
        let row_width = heads_of * width;
        with_values([&heads], |[values]| {
            for ((rows, sums), count) in self.sets.iter().zip(&mut self.sums).zip(&mut self.counts) {
                sums.push(vec![0.0; row_width]);
                let sum = sums.last_mut().expect("it was just pushed");
                let rows = rows.iter().flat_map(|rows| rows.start..rows.end.min(t));
                let mut seen = 0;
                for row in rows {
                    let row = &values[row * row_width..][..row_width];
                    sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
                    seen += 1;
                }
                if layer == 0 {
                    *count = seen;
                }
            }
        })?;
        Ok(heads)
    }
}
