//! Treatment of attention in one pass, resolved to positions, layers and heads.

use super::Heads;
use crate::kernels::quant::{quantise_keys, quantise_queries, HeadRows};
use crate::kernels::{numbers, numbers_as};
use candle_core::{DType, Result, Tensor, WithDType};
use names::condition::{Quantised, Quantiser, Removal};
use names::{HeadPlace, LayersAndHeads};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// The removals after the softmax of map `j`.
pub(super) fn removals_of_weights(j: usize) -> &'static [Removal] {
    match j {
        1 => &[Removal::Silence, Removal::SilenceSecond],
        _ => &[Removal::Silence],
    }
}

/// Removal of keys from some rows of some heads.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyRemoval {
    pub how: Removal,
    pub of: LayersAndHeads,
    /// Positions of queries.
    pub rows: Range<usize>,
    /// Positions of keys, ascending.
    pub keys: Vec<Range<usize>>,
}

impl KeyRemoval {
    /// The first row that may lose a key, as no row sees the keys behind it; `None` without keys.
    fn first_row(&self) -> Option<usize> {
        Some(self.rows.start.max(self.keys.first()?.start))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OutputReplacement {
    pub layer: usize,
    pub head: usize,
    /// Positions of queries.
    pub rows: Vec<Range<usize>>,
    /// Replacement, after the head's norm and before the output projection: (value width) for all rows, (rows, value
    /// width) with one for each, or empty for zeros.
    pub output: Vec<f32>,
}

/// Complete treatment of the attention in one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResolvedTreatment {
    /// At most one of logits, and one of queries and keys.
    pub quantisers: Vec<Quantiser>,
    /// Attention sinks by head, for quantisers that exempt them.
    pub sinks: BTreeMap<HeadPlace, Vec<usize>>,
    pub removed: Vec<KeyRemoval>,
    pub replaced: Vec<OutputReplacement>,
}

impl ResolvedTreatment {
    /// The quantiser of a layer's logits, or of its queries and keys.
    pub(super) fn quantiser(&self, of: Quantised, layer: usize) -> Option<&Quantiser> {
        self.quantisers.iter().find(|quantiser| quantiser.of == of && quantiser.has(layer))
    }

    /// The keys of a head that a quantiser exempts.
    pub(super) fn exempt(&self, quantiser: &Quantiser, layer: usize, head: usize) -> &[usize] {
        match self.sinks.get(&HeadPlace { layer, head }) {
            Some(sinks) if quantiser.exempt_sinks => sinks,
            _ => &[],
        }
    }

    /// The means that smoothing subtracts from the keys of a text (B, T, heads, d): (B, heads, d), or empty without
    /// smoothing.
    pub(super) fn key_means(&self, layer: usize, k: &Tensor) -> Result<Vec<f64>> {
        if !self.quantiser(Quantised::Qk, layer).is_some_and(|quantiser| quantiser.smooth) {
            return Ok(Vec::new());
        }
        let (batch, t, heads, d) = k.dims4()?;
        let row = heads * d;
        let keys: Vec<f64> = numbers_as(k)?;
        let means = (0..batch * row).into_par_iter().map(|i| {
            let column = keys[i / row * t * row + i % row..].iter().step_by(row).take(t);
            column.sum::<f64>() / t as f64
        });
        Ok(means.collect())
    }

    /// Rounds the queries and keys of tokens from the position `first` on, if those of the layer are quantised. A key head that
    /// several output heads read has the exempt keys of all of them.
    pub(super) fn quantised_heads<'h>(
        &self,
        layer: usize,
        heads: Heads<'h>,
        first: usize,
        means: &[f64],
    ) -> Result<Heads<'h>> {
        let Some(quantiser) = self.quantiser(Quantised::Qk, layer) else { return Ok(heads) };
        match heads.k.dtype() {
            DType::F64 => self.rounded_heads::<f64>(quantiser, layer, heads, first, means),
            _ => self.rounded_heads::<f32>(quantiser, layer, heads, first, means),
        }
    }

    /// Rounds queries and keys in the number type `F`.
    fn rounded_heads<'h, F: WithDType>(
        &self,
        quantiser: &Quantiser,
        layer: usize,
        heads: Heads<'h>,
        first: usize,
        means: &[f64],
    ) -> Result<Heads<'h>> {
        let (_, _, key_heads, d) = heads.k.dims4()?;
        let mut exempt = vec![Vec::new(); key_heads];
        for of_map in &heads.wiring.key {
            for (head, &key_head) in of_map.iter().enumerate() {
                exempt[key_head].extend(self.exempt(quantiser, layer, head));
            }
        }
        let q = by_head::<F>(&heads.q, |_, rows| {
            quantise_queries(quantiser, &HeadRows { first, d, mean: &[], exempt: &[] }, rows);
        })?;
        let k = by_head::<F>(&heads.k, |head, rows| {
            let mean = means.get(head * d..(head + 1) * d).unwrap_or(&[]);
            quantise_keys(quantiser, &HeadRows { first, d, mean, exempt: &exempt[head % key_heads] }, rows);
        })?;
        Ok(Heads { q, k, ..heads })
    }

    /// Keys removed from the row of `query`, as ranges of positions up to the query.
    fn lost(&self, how: Removal, at: HeadPlace, query: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let end = if how == Removal::Mask { query } else { query + 1 };
        let of_row = self
            .removed
            .iter()
            .filter(move |removed| removed.how == how && removed.rows.contains(&query) && removed.of.has(at));
        of_row.flat_map(|removed| &removed.keys).map(move |keys| keys.start..keys.end.min(end))
    }

    /// Sets the removed keys of `query` to `value`, in a piece of its row that starts at key `first`.
    pub(super) fn remove(
        &self,
        how: Removal,
        at: HeadPlace,
        query: usize,
        first: usize,
        piece: &mut [f32],
        value: f32,
    ) {
        for keys in self.lost(how, at, query) {
            let [start, end] = [keys.start, keys.end].map(|key| key.saturating_sub(first).min(piece.len()));
            if start < end {
                piece[start..end].fill(value);
            }
        }
    }

    /// The first row that may differ from that of an untreated pass, in any layer: keys and values of the tokens before
    /// it are the same. `usize::MAX` if no row does.
    pub fn first_row(&self) -> usize {
        let removed = self.removed.iter().filter_map(KeyRemoval::first_row);
        let replaced = self.replaced.iter().flat_map(|replaced| &replaced.rows).map(|rows| rows.start);
        // Quantised logits, queries and keys are those of all rows.
        let quantised = (!self.quantisers.is_empty()).then_some(0);
        removed.chain(replaced).chain(quantised).min().unwrap_or(usize::MAX)
    }

    /// The first layer whose attention may differ from that of an untreated pass. `usize::MAX` if that of no layer does.
    pub fn first_layer(&self) -> usize {
        let first = |layers: &Option<Vec<usize>>| layers.as_ref().map_or(Some(0), |all| all.iter().min().copied());
        let removed = self.removed.iter().filter_map(|removed| first(&removed.of.layers));
        let quantised = self.quantisers.iter().filter_map(|quantiser| first(&quantiser.layers));
        let replaced = self.replaced.iter().map(|replaced| replaced.layer);
        removed.chain(quantised).chain(replaced).min().unwrap_or(usize::MAX)
    }

    /// [`replace`] in the rows (T, H, value width) of one prompt.
    fn replace_rows(&self, layer: usize, start: usize, heads: usize, width: usize, rows: &mut [f32]) {
        let t = rows.len() / (heads * width);
        for replaced in self.replaced.iter().filter(|replaced| replaced.layer == layer) {
            let mut before: usize = 0; // rows in the ranges before
            for positions in &replaced.rows {
                for position in positions.start.max(start)..positions.end.min(start + t) {
                    let output = &mut rows[((position - start) * heads + replaced.head) * width..][..width];
                    match replaced.output.len() {
                        0 => output.fill(0.0),
                        len if len == width => output.copy_from_slice(&replaced.output),
                        _ => {
                            let row = before + position - positions.start;
                            output.copy_from_slice(&replaced.output[row * width..][..width]);
                        }
                    }
                }
                before = before.saturating_add(positions.len());
            }
        }
    }
}

/// Replaces the outputs of the heads that each of B treatments names in the outputs of a layer (B, T, H, value width).
/// The first token is at position `start`.
pub(super) fn replace(
    treated: &[Option<&ResolvedTreatment>],
    layer: usize,
    start: usize,
    written: Tensor,
) -> Result<Tensor> {
    if !treated.iter().flatten().flat_map(|treated| &treated.replaced).any(|replaced| replaced.layer == layer) {
        return Ok(written);
    }
    let (batch, t, heads, width) = written.dims4()?;
    let mut values = numbers(&written)?;
    for (rows, treated) in values.chunks_exact_mut(t * heads * width).zip(treated) {
        treated.iter().for_each(|treated| treated.replace_rows(layer, start, heads, width, rows));
    }
    Tensor::from_vec(values, (batch, t, heads, width), written.device())?.to_dtype(written.dtype())
}

/// Changes the rows (T, d) of every head of (B, T, heads, d), counted through the batch. The result has the number type of
/// the rows, `f64` or `f32`: codes times a scale are no numbers of `bf16`.
fn by_head<F: WithDType>(x: &Tensor, change: impl Fn(usize, &mut [F]) + Sync) -> Result<Tensor> {
    let (b, t, heads, d) = x.dims4()?;
    let values: Vec<F> = numbers_as(x)?;
    let changed = (0..b * heads).into_par_iter().map(|i| {
        let first = i / heads * t * heads + i % heads;
        let rows = values.chunks_exact(d).skip(first).step_by(heads).take(t);
        let mut rows: Vec<F> = rows.flatten().copied().collect(); // T,d
        change(i, &mut rows);
        rows
    });
    let changed: Vec<Vec<F>> = changed.collect();
    let mut out: Vec<F> = Vec::with_capacity(values.len());
    for of_text in changed.chunks(heads) {
        for token in 0..t {
            out.extend(of_text.iter().flat_map(|rows| &rows[token * d..][..d]));
        }
    }
    Tensor::from_vec(out, (b, t, heads, d), x.device())
}
