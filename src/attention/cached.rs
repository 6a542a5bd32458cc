//! Attention for decoding: remembers the keys and values of every layer, so that a further token costs one row.
//!
//! A prompt goes through [`Stream`]. Every token after it is one query against what is remembered. A layer with a window
//! remembers that many keys and overwrites the oldest: all that is remembered is visible, in whatever order it lies.

use super::{Attend, Heads, LogitRule, Small, Stream};
use crate::ops::simd::{dot, soft_cap_simd, softmax};
use crate::ops::with_values;
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Computes the mixture of a prompt, and then of one token at a time, without gradients (B = 1).
///
/// Of the last layer of a prompt only the last row is computed: it is the one that says what comes next.
pub struct Cached {
    layers: Vec<Memory>,
    /// Tokens it has room for before it grows.
    tokens: usize,
}

/// Keys and values of one layer.
#[derive(Default)]
struct Memory {
    /// Tokens seen, of which a window forgets.
    seen: usize,
    keys: Vec<Slots>,
    values: Vec<Slots>,
}

/// One head's vectors: (slots, d), contiguous. Position p lies in slot p modulo the window.
#[derive(Default)]
struct Slots(Vec<f32>);

impl Cached {
    /// An empty memory for a model of so many layers, with room for so many tokens, prompt included.
    pub fn new(layers: usize, tokens: usize) -> Self {
        Self { layers: (0..layers).map(|_| Memory::default()).collect(), tokens }
    }

    /// Tokens that a layer remembers.
    pub fn remembered(rule: &LogitRule, tokens: usize) -> usize {
        rule.window.map_or(tokens, |window| window.min(tokens))
    }

    /// The rows of a prompt: all of them, or the last one of the last layer.
    fn prompt(&self, layer: usize, heads: &Heads<'_>, t: usize) -> Result<Tensor> {
        let mut stream = Stream::new(&[]);
        if layer + 1 == self.layers.len() {
            let mut needed = vec![false; t];
            needed[t - 1] = true;
            stream = stream.with_needed_rows(layer, needed);
        }
        stream.attend(layer, heads)
    }
}

impl Attend for Cached {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, ..) = heads.q.dims4()?;
        let Some(seen) = self.layers.get(layer).map(|memory| memory.seen) else {
            candle_core::bail!("layer {layer} of a memory of {} layers", self.layers.len());
        };
        if batch != 1 || (seen > 0 && t != 1) {
            candle_core::bail!("decoding takes one prompt, and then one token at a time: got {batch} x {t} tokens");
        }
        let mixture = if seen == 0 { Some(self.prompt(layer, heads, t)?) } else { None };
        let (tokens, memory) = (self.tokens, &mut self.layers[layer]);
        memory.remember(heads, t, tokens)?;
        match mixture {
            Some(mixture) => Ok(mixture),
            None => memory.attend(heads),
        }
    }
}

impl Memory {
    /// Adds the keys and values of the next `t` tokens.
    fn remember(&mut self, heads: &Heads<'_>, t: usize, tokens: usize) -> Result<()> {
        let positions = self.seen..self.seen + t;
        let window = heads.rule.window.unwrap_or(usize::MAX);
        let room = Cached::remembered(&heads.rule, tokens);
        for (x, slots) in [(&heads.k, &mut self.keys), (&heads.v, &mut self.values)] {
            let (_, _, count, d) = x.dims4()?;
            slots.resize_with(count, Slots::default);
            with_values(x, "cached attention", |x| {
                for (head, slots) in slots.iter_mut().enumerate() {
                    let rows = x.chunks_exact(d).skip(head).step_by(count);
                    slots.put(rows, positions.clone(), window, room, d);
                }
            })?;
        }
        self.seen = positions.end;
        Ok(())
    }

    /// The row of the last token: (1, 1, H, value width).
    fn attend(&self, heads: &Heads<'_>) -> Result<Tensor> {
        let (wiring, d) = (heads.wiring, heads.q.dim(3)?);
        let small = heads.small()?;
        let rows: Vec<Vec<f32>> = with_values(&heads.q, "cached attention", |q| {
            let row = |head| self.row(head, q, d, &small, heads);
            (0..wiring.heads()).into_par_iter().with_max_len(1).map(row).collect()
        })?;
        Tensor::from_vec(rows.concat(), (1, 1, wiring.heads(), wiring.value_slices() * d), heads.q.device())
    }

    /// The mixture of one output head for the queries `q` (query heads, d) of one token: (value width).
    fn row(&self, head: usize, q: &[f32], d: usize, small: &Small, heads: &Heads<'_>) -> Vec<f32> {
        let Heads { wiring, rule, .. } = heads;
        let map = |j: usize| {
            let keys = &self.keys[wiring.key[j][head]].0;
            let mut row = vec![0.0; keys.len() / d];
            let query = wiring.query[j][head];
            softmax_row(&q[query * d..][..d], keys, *rule, small.sink(query), &mut row);
            row
        };
        let mut effective = map(0);
        if wiring.maps() == 2 {
            let (second, lambda) = (map(1), small.lambda(0, head));
            effective.iter_mut().zip(second).for_each(|(a, b)| *a -= lambda * b);
        }
        let mut out = Vec::new();
        for &slice in &wiring.value[head] {
            let values = &self.values[slice].0;
            let mut sum = vec![0.0; d];
            weigh(&effective, values, &mut sum);
            out.extend(sum);
        }
        out
    }
}

impl Slots {
    /// Puts the rows (d each) of `positions` into their slots; grows once, to `room` slots.
    fn put<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a [f32]>,
        positions: Range<usize>,
        window: usize,
        room: usize,
        d: usize,
    ) {
        let slots = positions.end.min(window);
        self.0.reserve_exact((room.max(slots) * d).saturating_sub(self.0.len()));
        self.0.resize(slots * d, 0.0);
        for (row, position) in rows.zip(positions) {
            self.0[position % window * d..][..d].copy_from_slice(row);
        }
    }
}

/// The softmax of soft-capped scale * q . k over all keys (S, d), and the sink if there is one.
#[pulp::with_simd(softmax_row = pulp::Arch::new())]
#[inline(always)]
fn softmax_row_simd<'a, S: pulp::Simd>(
    simd: S,
    q: &'a [f32],
    keys: &'a [f32],
    rule: LogitRule,
    sink: Option<f32>,
    row: &'a mut [f32],
) {
    for (logit, key) in row.iter_mut().zip(keys.chunks_exact(q.len())) {
        *logit = rule.scale * dot(q, key);
    }
    if let Some(cap) = rule.softcap {
        soft_cap_simd(simd, row, cap);
    }
    let log_sum = softmax(row);
    if let Some(sink) = sink {
        let kept = 1.0 / (1.0 + (sink - log_sum).exp());
        row.iter_mut().for_each(|x| *x *= kept);
    }
}

/// sum += weights (S) times values (S, d).
#[pulp::with_simd(weigh = pulp::Arch::new())]
#[inline(always)]
fn weigh_simd<'a, S: pulp::Simd>(_simd: S, weights: &'a [f32], values: &'a [f32], sum: &'a mut [f32]) {
    for (&weight, value) in weights.iter().zip(values.chunks_exact(sum.len())) {
        for (sum, &value) in sum.iter_mut().zip(value) {
            *sum = weight.mul_add(value, *sum);
        }
    }
}
