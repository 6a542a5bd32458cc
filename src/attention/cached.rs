//! Attention for decoding: caches the keys and values of every layer, so that each new token costs one row.
//!
//! A prompt is processed by [`Stream`], or by [`Continuations`] if the keys and values of its beginning are known. Each
//! later token is one query against the cache. A layer with a window caches that many keys and overwrites the oldest;
//! all cached keys are visible, and their order does not matter. Keys and values are cached on the host as `f32`, and
//! tokens attend there, wherever the weights are.

use super::{treat, Attend, Continuations, HeadScalars, Heads, LogitRule, Prefix, Removal, ResolvedTreatment, Stream};
use crate::kernels::quant::{absmax, quantise, Quantised, Quantiser, Scope};
use crate::kernels::simd::{dot, soft_cap_simd, softmax};
use crate::kernels::with_values;
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Computes the mixture of a prompt, then of one token at a time, without gradients (B = 1).
///
/// The last layer of a prompt computes only the last row, which predicts the next token.
pub struct Cached<'a> {
    layers: Vec<LayerCache>,
    treated: Option<&'a ResolvedTreatment>,
    /// Keys and values of the first tokens of the prompt, and their number.
    prefix: Option<(&'a Prefix, usize)>,
    /// Number of tokens to reserve memory for.
    tokens: usize,
}

/// Cached keys and values of one layer.
#[derive(Default)]
struct LayerCache {
    /// Tokens processed so far, including those that left the window.
    seen: usize,
    /// Keys of every key head: (slots, d). Position p is stored in slot p modulo the window.
    keys: Vec<Vec<f32>>,
    /// Values of every value head, likewise.
    values: Vec<Vec<f32>>,
    /// Means of the keys of the prompt, if they are rounded less their means.
    means: Vec<f32>,
}

impl<'a> Cached<'a> {
    /// Creates an empty cache for `layers` layers and `tokens` tokens, prompt included.
    pub fn new(layers: usize, tokens: usize) -> Self {
        Self { layers: (0..layers).map(|_| LayerCache::default()).collect(), treated: None, prefix: None, tokens }
    }

    /// Starts with the first `tokens` tokens of `prefix`, after which the prompt continues.
    pub fn after(self, prefix: &'a Prefix, tokens: usize) -> Self {
        Self { prefix: Some((prefix, tokens)), ..self }
    }

    /// Applies a treatment to the prompt and to every later token. A quantisation scale shared by the rows of a layer,
    /// head or block covers the prompt's rows in the prompt, and one row after it; the mean that smoothing takes off keys is
    /// that of the prompt.
    pub fn treated(self, treated: Option<&'a ResolvedTreatment>) -> Self {
        Self { treated, ..self }
    }

    /// Computes the rows of a prompt: all, or only the last one in the last layer.
    fn prompt(&self, layer: usize, heads: &Heads<'_>, t: usize) -> Result<Tensor> {
        let stream = Stream::new(&[]).treated(self.treated);
        let last = self.layers.len() - 1;
        let needed = (0..t).map(|row| row + 1 == t).collect();
        match self.prefix {
            Some((prefix, start)) => {
                Continuations::new(prefix, start, (last, needed), vec![stream]).attend(layer, heads)
            }
            None => stream.with_needed_rows(last, needed).attend(layer, heads),
        }
    }
}

impl Attend for Cached<'_> {
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        let Some(treated) = self.treated else { return Ok(heads) };
        if self.prefix.is_some() && treated.quantiser(Quantised::Qk, layer).is_some() {
            candle_core::bail!("attention: rounded queries and keys of a text need all of it");
        }
        let cache = &mut self.layers[layer];
        if cache.seen == 0 {
            cache.means = treated.key_means(layer, &heads.k)?;
        }
        treated.quantised_heads(layer, heads, cache.seen, &cache.means)
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, ..) = heads.q.dims4()?;
        let seen = self.layers[layer].seen;
        if batch != 1 || (seen > 0 && t != 1) {
            candle_core::bail!("decoding takes one prompt, and then one token at a time: got {batch} x {t} tokens");
        }
        let mixture = if seen == 0 { Some(self.prompt(layer, heads, t)?) } else { None };
        let (tokens, cache) = (self.tokens, &mut self.layers[layer]);
        if let (Some((prefix, start)), true) = (self.prefix, seen == 0) {
            let [k, v] = prefix.first_tokens(layer, start)?;
            cache.append([&k, &v], &heads.rule, tokens)?;
        }
        cache.append([&heads.k, &heads.v], &heads.rule, tokens)?;
        match mixture {
            Some(mixture) => Ok(mixture),
            None => cache.attend(layer, heads, self.treated),
        }
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let start = self.layers[layer].seen - heads.dim(1)?;
        treat::replace(&[self.treated], layer, start, heads)
    }
}

impl LayerCache {
    /// Adds the keys and values of the next T tokens: (1, T, heads, d) each.
    fn append(&mut self, [k, v]: [&Tensor; 2], rule: &LogitRule, tokens: usize) -> Result<()> {
        let positions = self.seen..self.seen + k.dim(1)?;
        let window = rule.window.unwrap_or(usize::MAX);
        let room = tokens.min(window);
        for (x, slots) in [(k, &mut self.keys), (v, &mut self.values)] {
            let (_, _, count, d) = x.dims4()?;
            slots.resize_with(count, Vec::new);
            let n = positions.end.min(window);
            with_values([x], |[x]| {
                for (head, slots) in slots.iter_mut().enumerate() {
                    slots.reserve_exact((room.max(n) * d).saturating_sub(slots.len()));
                    slots.resize(n * d, 0.0);
                    for (row, position) in x.chunks_exact(d).skip(head).step_by(count).zip(positions.clone()) {
                        slots[position % window * d..][..d].copy_from_slice(row);
                    }
                }
            })?;
        }
        self.seen = positions.end;
        Ok(())
    }

    /// Computes the row of the last token: (1, 1, H, value width).
    fn attend(&self, layer: usize, heads: &Heads<'_>, treated: Option<&ResolvedTreatment>) -> Result<Tensor> {
        let (wiring, d) = (heads.wiring, heads.q.dim(3)?);
        let scalars = heads.scalars()?;
        let rows: Vec<Vec<f32>> = with_values([&heads.q], |[q]| {
            let row = CachedRow { cache: self, q, d, heads, scalars: &scalars, layer, treated };
            let steps = row.steps();
            let row = |head| row.mixture(head, &steps);
            (0..wiring.heads()).into_par_iter().with_max_len(1).map(row).collect()
        })?;
        let shape = (1, 1, wiring.heads(), wiring.value_slices() * d);
        Tensor::from_vec(rows.concat(), shape, heads.q.device())?.to_dtype(heads.v.dtype())
    }

    /// The slot of a position, if it is within the last `slots` positions.
    fn slot(&self, position: usize, slots: usize) -> Option<usize> {
        (position < self.seen && self.seen - position <= slots).then(|| position % slots)
    }
}

/// Attention of one token with queries `q`: (query heads, d).
struct CachedRow<'a> {
    cache: &'a LayerCache,
    q: &'a [f32],
    d: usize,
    heads: &'a Heads<'a>,
    scalars: &'a HeadScalars,
    layer: usize,
    treated: Option<&'a ResolvedTreatment>,
}

impl CachedRow<'_> {
    fn quantiser(&self) -> Option<&Quantiser> {
        self.treated?.quantiser(Quantised::Logits, self.layer)
    }

    /// Soft-capped and biased logits of map j of a head, one per slot.
    fn logits(&self, j: usize, head: usize) -> Vec<f32> {
        let Heads { wiring, rule, .. } = self.heads;
        let keys = &self.cache.keys[wiring.key[j][head]];
        let mut row = vec![0.0; keys.len() / self.d];
        let query_head = wiring.query[j][head];
        logit_row(&self.q[query_head * self.d..][..self.d], keys, *rule, &mut row);
        if let Some(bias) = rule.bias(query_head, self.q.len() / self.d) {
            let (last, slots) = (self.cache.seen - 1, row.len());
            let distance = |slot: usize| (last - slot) % slots; // a slot holds its latest position
            row.iter_mut().enumerate().for_each(|(slot, logit)| *logit += bias.of(last, last - distance(slot)) as f32);
        }
        row
    }

    /// Sets the slots of removed keys to `value`.
    fn remove(&self, how: Removal, head: usize, row: &mut [f32], value: f32) {
        let Some(treated) = self.treated else { return };
        let slots = row.len();
        for keys in treated.lost(how, (self.layer, head), self.cache.seen - 1) {
            let remembered = keys.start.max(self.cache.seen - slots)..keys.end;
            remembered.filter_map(|key| self.cache.slot(key, slots)).for_each(|slot| row[slot] = value);
        }
    }

    /// Slots of a head's keys that are exempt from quantisation.
    fn exempt(&self, quantiser: &Quantiser, head: usize, slots: usize) -> Vec<usize> {
        let keys = self.treated.map_or(&[][..], |treated| treated.exempt(quantiser, self.layer, head));
        keys.iter().filter_map(|&key| self.cache.slot(key, slots)).collect()
    }

    /// The largest |logit| of a map, without exempt and masked keys.
    fn largest(&self, quantiser: &Quantiser, j: usize, head: usize) -> f32 {
        let mut row = self.logits(j, head);
        self.exempt(quantiser, head, row.len()).into_iter().for_each(|slot| row[slot] = 0.0);
        self.remove(Removal::Mask, head, &mut row, 0.0);
        absmax(&row)
    }

    /// The quantisation step of each map of each head. With one row, a head's scale is its row's.
    fn steps(&self) -> Vec<Vec<f32>> {
        let Some(quantiser) = self.quantiser() else { return Vec::new() };
        let maps = 0..self.heads.wiring.maps();
        let of_head = |head| maps.clone().map(|j| self.largest(quantiser, j, head)).collect();
        let mut largest: Vec<Vec<f32>> = (0..self.heads.wiring.heads()).map(of_head).collect();
        if quantiser.scope == Scope::Tensor {
            let of_all = largest.iter().flatten().fold(0.0_f32, |a, &b| a.max(b));
            largest.iter_mut().flatten().for_each(|x| *x = of_all);
        }
        largest.iter_mut().flatten().for_each(|x| *x = quantiser.step(*x));
        largest
    }

    /// Weights of map j of a head: (slots).
    fn map(&self, j: usize, head: usize, steps: &[Vec<f32>]) -> Vec<f32> {
        let mut row = self.logits(j, head);
        if let Some(by) = self.quantiser() {
            let exempt = self.exempt(by, head, row.len());
            let kept: Vec<f32> = exempt.iter().map(|&slot| std::mem::take(&mut row[slot])).collect();
            quantise(&mut row, steps[head][j]);
            exempt.into_iter().zip(kept).for_each(|(slot, logit)| row[slot] = logit);
        }
        self.remove(Removal::Mask, head, &mut row, f32::NEG_INFINITY);
        softmax_row(&mut row, self.scalars.sink(self.heads.wiring.query[j][head]));
        self.remove(Removal::Silence, head, &mut row, 0.0);
        row
    }

    /// Mixture of one output head: (value width).
    fn mixture(&self, head: usize, steps: &[Vec<f32>]) -> Vec<f32> {
        let wiring = self.heads.wiring;
        let map = |j: usize| self.map(j, head, steps);
        let mut effective = map(0);
        if wiring.maps() == 2 {
            let (second, lambda) = (map(1), self.scalars.lambda(0, head));
            effective.iter_mut().zip(second).for_each(|(a, b)| *a -= lambda * b);
        }
        let mut out = Vec::new();
        for &slice in &wiring.value[head] {
            let mut sum = vec![0.0; self.d];
            weigh(&effective, &self.cache.values[slice], &mut sum);
            out.extend(sum);
        }
        out
    }
}

/// Softmax of a row of logits, with the sink if there is one.
#[pulp::with_simd(softmax_row = pulp::Arch::new())]
#[inline(always)]
fn softmax_row_simd<S: pulp::Simd>(_simd: S, row: &mut [f32], sink: Option<f32>) {
    let log_sum = softmax(row);
    if let Some(sink) = sink {
        let kept = 1.0 / (1.0 + (sink - log_sum).exp());
        row.iter_mut().for_each(|x| *x *= kept);
    }
}

/// Soft-capped scale * q . k of all keys (S, d).
#[pulp::with_simd(logit_row = pulp::Arch::new())]
#[inline(always)]
fn logit_row_simd<'a, S: pulp::Simd>(simd: S, q: &'a [f32], keys: &'a [f32], rule: LogitRule, row: &'a mut [f32]) {
    for (logit, key) in row.iter_mut().zip(keys.chunks_exact(q.len())) {
        *logit = rule.scale * dot(q, key);
    }
    if let Some(cap) = rule.softcap {
        soft_cap_simd(simd, row, cap);
    }
}

/// sum += weights (S) · values (S, d).
#[pulp::with_simd(weigh = pulp::Arch::new())]
#[inline(always)]
fn weigh_simd<'a, S: pulp::Simd>(_simd: S, weights: &'a [f32], values: &'a [f32], sum: &'a mut [f32]) {
    for (&weight, value) in weights.iter().zip(values.chunks_exact(sum.len())) {
        for (sum, &value) in sum.iter_mut().zip(value) {
            *sum = weight.mul_add(value, *sum);
        }
    }
}
