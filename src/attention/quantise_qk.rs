//! Quantisation of queries and keys where they enter attention, so that every implementation of it reads rounded ones.

use super::{Heads, Quantise, Wiring};
use crate::kernels::quant::{HeadRows, QkQuantiser};
use crate::kernels::{numbers, wide_type};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Quantisation of queries and keys before their product. A key head that several output heads read has the exempt keys
/// of all of them.
pub type QuantiseQk = Quantise<QkQuantiser>;

impl QuantiseQk {
    /// The heads of a whole text with rounded queries and keys.
    pub(super) fn of_text<'h>(&self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        let means = self.means(&heads.k)?;
        self.rounded(layer, heads, 0, &means)
    }

    /// The means that smoothing takes off keys (B, T, heads, d): (B, heads, d), or empty without smoothing.
    pub(super) fn means(&self, k: &Tensor) -> Result<Vec<f32>> {
        if !self.quantiser.smooth {
            return Ok(Vec::new());
        }
        let (_, t, heads, d) = k.dims4()?;
        let row = heads * d;
        let keys = numbers(k)?;
        let of_text = |text: &[f32]| {
            let sum = |i: usize| (0..t).map(|token| f64::from(text[token * row + i])).sum::<f64>();
            (0..row).into_par_iter().map(|i| (sum(i) / t as f64) as f32).collect::<Vec<f32>>()
        };
        Ok(keys.chunks_exact(t * row).flat_map(of_text).collect())
    }

    /// The heads of tokens from the position `first` on, with rounded queries and keys.
    pub(super) fn rounded<'h>(&self, layer: usize, heads: Heads<'h>, first: usize, means: &[f32]) -> Result<Heads<'h>> {
        let d = heads.q.dim(3)?;
        let exempt = self.exempt_of_key_heads(layer, heads.wiring, heads.k.dim(2)?);
        let key_heads = exempt.len();
        let q = by_head(&heads.q, |_, rows| {
            self.quantiser.queries(&HeadRows { first, d, mean: &[], exempt: &[] }, rows);
        })?;
        let k = by_head(&heads.k, |head, rows| {
            let mean = means.get(head * d..(head + 1) * d).unwrap_or(&[]);
            self.quantiser.keys(&HeadRows { first, d, mean, exempt: &exempt[head % key_heads] }, rows);
        })?;
        Ok(Heads { q, k, ..heads })
    }

    /// The exempt keys of each key head.
    fn exempt_of_key_heads(&self, layer: usize, wiring: &Wiring, key_heads: usize) -> Vec<Vec<usize>> {
        let mut exempt = vec![Vec::new(); key_heads];
        for of_map in &wiring.key {
            for (head, &key_head) in of_map.iter().enumerate() {
                exempt[key_head].extend(self.exempt(layer, head));
            }
        }
        exempt
    }
}

/// Changes the rows (T, d) of every head of (B, T, heads, d), counted through the batch. The result is `f64` of `f64`,
/// otherwise `f32`: codes times a scale are no numbers of `bf16`.
fn by_head(x: &Tensor, change: impl Fn(usize, &mut [f32]) + Sync) -> Result<Tensor> {
    let (b, t, heads, d) = x.dims4()?;
    let values = numbers(x)?;
    let of_head = |i: usize| {
        let first = i / heads * t * heads + i % heads;
        let row = |token: usize| &values[(first + token * heads) * d..][..d];
        let mut rows: Vec<f32> = (0..t).flat_map(row).copied().collect(); // T,d
        change(i, &mut rows);
        rows
    };
    let changed: Vec<Vec<f32>> = (0..b * heads).into_par_iter().map(of_head).collect();
    let mut out = Vec::with_capacity(values.len());
    for (text, token) in (0..b).flat_map(|text| (0..t).map(move |token| (text, token))) {
        for rows in &changed[text * heads..(text + 1) * heads] {
            out.extend_from_slice(&rows[token * d..][..d]);
        }
    }
    Tensor::from_vec(out, (b, t, heads, d), x.device())?.to_dtype(wide_type(x.dtype()))
}
