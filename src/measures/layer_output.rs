//! Output of all heads of a layer together, by region of the prompt.
//!
//! With u_{R,h} the output of head h that comes from region R ([`super::contribution`]), a layer adds u = Σ_h Σ_R u_{R,h} to
//! the residual stream x in a row. Where a family has a norm after attention, u_{R,h} has gone through it with the factor
//! of the row. Over the rows t of one answer, for a layer l:
//!
//! * s_l\[R\] = Σ_t ⟨Σ_h u_{R,h}, u⟩ / Σ_t ⟨u, u⟩, which sums to 1 over the regions. Heads count by what they write, and
//!   what one head writes against another counts as little as it adds;
//! * w_l = Σ_t ⟨u, u⟩ / Σ_t (⟨x, x⟩ + ⟨u, u⟩), between 0 and 1. Residual streams grow from layer to layer, and the norms of
//!   later layers divide what was written by their size: ⟨u, u⟩ alone would weigh the last layers most. ⟨u, u⟩ / ⟨x, x⟩ has
//!   no limit, and would weigh the first layer most, which is added to small embeddings;
//! * share_out\[R\] = Σ_l w_l s_l\[R\] / Σ_l w_l.
//!
//! Only measured heads count. Biases belong to no region and are left out.

use crate::attention::Trace;
use crate::measures::probe::Contribution;
use crate::model::Transformer;
use crate::prompts::Region;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const REGIONS: usize = Region::ALL.len();

/// Sums over the heads of one layer in the rows of one answer.
#[derive(Clone, Debug, Default)]
pub struct LayerSums {
    /// Σ_h u_{R,h} before the norm after attention, by row: (regions, E).
    written: BTreeMap<usize, Vec<f64>>,
    /// The part of it that comes from detected sinks in noise, by row: (E). Without rows where there are none.
    sinks: BTreeMap<usize, Vec<f64>>,
}

/// Adds `other` to `sum`, which is empty or as long.
fn add(sum: &mut Vec<f64>, other: &[f32]) {
    sum.resize(other.len(), 0.0);
    sum.iter_mut().zip(other).for_each(|(sum, &x)| *sum += f64::from(x));
}

impl LayerSums {
    /// Adds the output of a head in a row: (regions, E).
    pub fn add(&mut self, row: usize, written: &[f32]) {
        add(self.written.entry(row).or_default(), written);
    }

    /// Adds what comes from `sinks`, the detected sinks of a head, as far as they are strong keys of noise.
    ///
    /// # Errors
    /// If a row was not traced.
    pub fn add_sinks(
        &mut self,
        model: &Transformer,
        trace: &Trace,
        (layer, head): (usize, usize),
        rows: &[Contribution],
        sinks: &[usize],
    ) -> Result<()> {
        for row in rows {
            let strong = row.strong_keys.iter().filter(|strong| sinks.contains(&strong.key));
            let parts: Vec<&[f64]> = strong.map(|strong| strong.part.as_slice()).collect();
            if let Some(width) = parts.first().map(|part| part.len()) {
                let sum: Vec<f64> = (0..width).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
                let written = model.head_output(layer, head, row.query, trace)?.write(&sum)?; // E
                add(self.sinks.entry(row.query).or_default(), &written);
            }
        }
        Ok(())
    }

    /// Computes the output of the layer from these sums.
    ///
    /// # Errors
    /// If a row was not traced.
    pub fn finish(mut self, model: &Transformer, trace: &Trace, layer: usize) -> Result<LayerOutput> {
        let (mut inner, mut sinks, mut square, mut residual) = ([0.0; REGIONS], 0.0, 0.0, 0.0);
        for (&row, written) in &mut self.written {
            model.norm_after_attention(layer, row, trace, written)?;
            let parts: Vec<&[f64]> = written.chunks_exact(written.len() / REGIONS).collect();
            let whole: Vec<f64> = (0..parts[0].len()).map(|i| parts.iter().map(|part| part[i]).sum()).collect(); // E
            inner.iter_mut().zip(&parts).for_each(|(inner, part)| *inner += dot(part, &whole));
            if let Some(part) = self.sinks.get_mut(&row) {
                model.norm_after_attention(layer, row, trace, part)?;
                sinks += dot(part, &whole);
            }
            square += dot(&whole, &whole);
            residual += trace.residual_square(layer, row).context("the row was not traced")?;
        }
        Ok(LayerOutput {
            share_out: inner.map(|inner| inner / square),
            noise_sinks: sinks / square,
            weight: square / (residual + square),
        })
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Output of the heads of one layer in the rows of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerOutput {
    /// s_l of each region in the order of [`Region::ALL`]; NaN if the output is 0.
    pub share_out: [f64; REGIONS],
    /// The part of it that comes from detected sinks in noise.
    pub noise_sinks: f64,
    /// w_l: the square of the output over the sum of it and that of the residual stream that it is added to.
    pub weight: f64,
}

impl LayerOutput {
    /// s_l of noise.
    pub fn noise_out(&self) -> f64 {
        Region::NOISE.iter().map(|&region| self.share_out[region as usize]).sum()
    }
}

/// Mean of a share over layers, weighted by w_l; NaN if nothing is written. Layers that write nothing have no share.
pub fn mean_over_layers(layers: &[LayerOutput], share: impl Fn(&LayerOutput) -> f64) -> f64 {
    let writing = || layers.iter().filter(|layer| layer.weight.is_finite() && layer.weight > 0.0);
    let whole: f64 = writing().map(|layer| layer.weight).sum();
    writing().map(|layer| layer.weight * share(layer)).sum::<f64>() / whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(answer: f64, weight: f64) -> LayerOutput {
        let mut share_out = [0.0; REGIONS];
        share_out[Region::Answer as usize] = answer;
        share_out[Region::Filler as usize] = 1.0 - answer;
        LayerOutput { share_out, noise_sinks: 0.0, weight }
    }

    #[test]
    fn layers_count_by_what_they_write() {
        let answer = |layer: &LayerOutput| layer.share_out[Region::Answer as usize];
        let layers = [layer(0.2, 0.75), layer(0.6, 0.25), layer(f64::NAN, 0.0)];
        assert!((mean_over_layers(&layers, answer) - 0.3).abs() < 1e-12);
        assert!((mean_over_layers(&layers, LayerOutput::noise_out) - 0.7).abs() < 1e-12);
        assert!(mean_over_layers(&layers[2..], answer).is_nan() && mean_over_layers(&[], answer).is_nan());
    }
}
