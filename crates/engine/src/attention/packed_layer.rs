//! One layer of the streaming kernel: packed keys and values, with logits computed in blocks of keys.

use super::keys::PackedKeys;
use super::{HeadScalars, Heads, LogitRule, ResolvedTreatment, Values, Wiring, TILE};
use crate::kernels::quant::{absmax, quantise, step};
use crate::kernels::simd::{copy_scaled, soft_cap};
use crate::kernels::{multiply_panel, Mat, MatMut, PANEL};
use candle_core::Result;
use names::condition::{Quantised, Quantiser, Removal, Scope};
use names::HeadPlace;
use rayon::prelude::*;
use std::ops::Range;

/// Keys per block, counted from key 0 so that the sums of a row have the same order in any tile. The logits of a tile
/// and block are 128 KiB, and its keys and values the same for a head width of 64: they fit a second-level cache.
pub(super) const KEYS: usize = 512;

/// Rows whose values are weighted together, over all keys visible to any of them. Smaller groups waste less at the
/// diagonal.
const GROUP: usize = 16;

/// Queries, keys and values of one prompt in a layer, with the treatment of its logits.
pub(super) struct PackedLayer<'a> {
    rows: PromptRows<'a>,
    scalars: &'a HeadScalars,
    pub(super) layer: usize,
    pub(super) wiring: &'a Wiring,
    rule: LogitRule,
    /// Position of the first query.
    first: usize,
    d: usize,
    q_row: usize,
    treated: Option<&'a ResolvedTreatment>,
    /// Quantisation steps of each map j of each head; empty if each row has its own.
    steps: [Vec<f32>; 2],
}

/// Rows of one prompt in a layer.
pub(super) struct PromptRows<'a> {
    /// (queries, query heads, d)
    pub(super) q: &'a [f32],
    /// Row of the first query, counted through the batch.
    pub(super) row: usize,
    pub(super) keys: PromptKeys<'a>,
}

/// Keys and values of one prompt.
#[derive(Clone, Copy)]
pub(super) struct PromptKeys<'a> {
    /// Those of a text that begins alike, used before the first of its own.
    pub(super) earlier: Option<&'a PackedKeys>,
    /// Its own, up to the last query's. They may begin before the first query.
    pub(super) own: &'a PackedKeys,
}

impl<'a> PackedLayer<'a> {
    /// Creates the layer of one prompt. If steps are shared between rows, measures them in these rows.
    pub(super) fn new(
        rows: PromptRows<'a>,
        scalars: &'a HeadScalars,
        heads: &Heads<'a>,
        treated: Option<&'a ResolvedTreatment>,
        layer: usize,
    ) -> Result<Self> {
        let (_, n, q_heads, d) = heads.q.dims4()?;
        let first = rows.keys.own.end - n;
        let mut packed = Self {
            rows,
            scalars,
            layer,
            wiring: heads.wiring,
            rule: heads.rule,
            first,
            d,
            q_row: q_heads * d,
            treated,
            steps: [Vec::new(), Vec::new()],
        };
        if let Some(quantiser) = packed.quantiser().filter(|quantiser| quantiser.scope != Scope::Row) {
            packed.steps = packed.shared_steps(quantiser);
        }
        Ok(packed)
    }

    fn quantiser(&self) -> Option<&'a Quantiser> {
        self.treated?.quantiser(Quantised::Logits, self.layer)
    }

    /// The keys of a head that are not quantised and do not count for scales.
    fn exempt(&self, quantiser: &Quantiser, head: usize) -> &'a [usize] {
        self.treated.map_or(&[], |treated| treated.exempt(quantiser, self.layer, head))
    }

    /// Sets the visible removed keys to `value` in a block of a head's logits or weights.
    pub(super) fn remove(
        &self,
        how: Removal,
        head: usize,
        queries: &Range<usize>,
        block: usize,
        rows: &mut [f32],
        value: f32,
    ) {
        let Some(treated) = self.treated else { return };
        for (query, row) in queries.clone().zip(rows.chunks_exact_mut(KEYS)) {
            let visible = self.visible(query, block);
            let first = block * KEYS + visible.start;
            treated.remove(how, HeadPlace { layer: self.layer, head }, query, first, &mut row[visible], value);
        }
    }

    pub(super) fn value_width(&self) -> usize {
        self.wiring.value_slices() * self.d
    }

    /// Value width of an output head with each slice padded to whole panels.
    pub(super) fn padded_width(&self) -> usize {
        self.wiring.value_slices() * self.d.next_multiple_of(PANEL)
    }

    pub(super) fn values(&self, head: usize) -> Values<'_> {
        let PromptKeys { earlier, own } = self.rows.keys;
        let values = Values::new(&own.v, &self.wiring.value[head], self.d);
        earlier.map_or(values, |earlier| values.after(&earlier.v, own.first))
    }

    /// Weights of the maps.
    pub(super) fn mix(&self, head: usize, query: usize) -> [f32; 2] {
        self.scalars.mix(self.rows.row + query - self.first, head)
    }

    /// The sink of map j of a head.
    pub(super) fn sink(&self, j: usize, head: usize) -> Option<f32> {
        self.scalars.sink(self.wiring.query[j][head])
    }

    /// The keys and values of the token at `position`.
    fn keys_at(&self, position: usize) -> &'a PackedKeys {
        let PromptKeys { earlier, own } = self.rows.keys;
        earlier.filter(|_| position < own.first).unwrap_or(own)
    }

    /// The first key that a query sees.
    pub(super) fn first_visible(&self, query: usize) -> usize {
        self.rule.first_visible(query)
    }

    /// Blocks with keys visible to any of `queries`.
    pub(super) fn blocks(&self, queries: &Range<usize>) -> Range<usize> {
        self.first_visible(queries.start) / KEYS..queries.end.div_ceil(KEYS)
    }

    /// Visible keys of a block for `query`, as positions in the block.
    pub(super) fn visible(&self, query: usize, block: usize) -> Range<usize> {
        let [first, end] = [self.first_visible(query), query + 1].map(|key| key.saturating_sub(block * KEYS).min(KEYS));
        first..end
    }

    /// Computes scale * Q_j of some queries of a head: (queries, d).
    pub(super) fn scaled_queries(&self, j: usize, head: usize, queries: &Range<usize>, q: &mut Vec<f32>) {
        let first = self.wiring.query[j][head] * self.d;
        q.resize(queries.len() * self.d, 0.0);
        for (query, row) in queries.clone().zip(q.chunks_exact_mut(self.d)) {
            copy_scaled(row, &self.rows.q[(query - self.first) * self.q_row + first..][..self.d], self.rule.scale);
        }
    }

    /// Computes soft-capped and biased scale * Q_j K_j^T of the scaled queries `q` and a block of keys: (queries, [`KEYS`]). Keys
    /// that are not visible are undefined.
    pub(super) fn logits(
        &self,
        j: usize,
        head: usize,
        q: &[f32],
        queries: &Range<usize>,
        block: usize,
        out: &mut [f32],
    ) {
        let keys = block * KEYS..((block + 1) * KEYS).min(queries.end);
        for first in keys.clone().step_by(PANEL) {
            // Queries before the panel's first key do not see it, nor do those whose window starts after its last.
            let after = self.rule.window.map_or(queries.end, |window| queries.end.min(first + PANEL - 1 + window));
            let seeing = first.max(queries.start)..after;
            if seeing.is_empty() {
                continue;
            }
            let row = seeing.start - queries.start;
            let out = MatMut::new(&mut out[row * KEYS + first - keys.start..], seeing.len(), PANEL, KEYS);
            let q = Mat::new(&q[row * self.d..], seeing.len(), self.d, self.d);
            let (k, panel) = self.keys_at(first).panel(self.wiring.key[j][head], first);
            multiply_panel(out, false, q, k.rows(panel, 0..self.d));
        }
        if let Some(cap) = self.rule.softcap {
            for (query, row) in queries.clone().zip(out.chunks_exact_mut(KEYS)) {
                soft_cap(&mut row[self.visible(query, block)], cap);
            }
        }
        if let Some(bias) = self.rule.bias(self.wiring.query[j][head], self.q_row / self.d) {
            for (query, row) in queries.clone().zip(out.chunks_exact_mut(KEYS)) {
                let visible = self.visible(query, block);
                let keys = block * KEYS + visible.start..;
                row[visible].iter_mut().zip(keys).for_each(|(logit, key)| *logit += bias.of(query, key) as f32);
            }
        }
    }

    /// Adds weights · V of a block to out, with weights (queries, [`KEYS`]) and out (queries, padded width).
    pub(super) fn weigh(&self, head: usize, queries: &Range<usize>, block: usize, weights: &[f32], out: &mut [f32]) {
        let width = self.padded_width();
        let panels = self.d.div_ceil(PANEL);
        for column in 0..self.wiring.value_slices() * panels {
            let value_head = self.wiring.value[head][column / panels];
            for first in (0..queries.len()).step_by(GROUP) {
                let rows = first..queries.len().min(first + GROUP);
                // All keys that any of these rows sees. Weights of keys that a row does not see are zero.
                let keys = self.visible(queries.start + rows.start, block).start
                    ..self.visible(queries.start + rows.end - 1, block).end;
                if keys.is_empty() {
                    continue;
                }
                // Earlier keys, then own keys: a sum of parts has the bits of the whole sum.
                let border =
                    self.rows.keys.own.first.clamp(block * KEYS + keys.start, block * KEYS + keys.end) - block * KEYS;
                for keys in [keys.start..border, border..keys.end].into_iter().filter(|keys| !keys.is_empty()) {
                    let out = MatMut::new(&mut out[first * width + column * PANEL..], rows.len(), PANEL, width);
                    let weights = Mat::new(&weights[first * KEYS + keys.start..], rows.len(), keys.len(), KEYS);
                    let packed = self.keys_at(block * KEYS + keys.start);
                    let keys = block * KEYS + keys.start - packed.first..block * KEYS + keys.end - packed.first;
                    multiply_panel(out, true, weights, packed.v[value_head].rows(column % panels, keys));
                }
            }
        }
    }

    /// Quantises the visible part of a block of logits of map j. Row i uses `row_steps[i]` if steps are not shared.
    pub(super) fn quantise(
        &self,
        j: usize,
        head: usize,
        queries: &Range<usize>,
        block: usize,
        row_steps: &[f32],
        logits: &mut [f32],
    ) {
        let Some(quantiser) = self.quantiser() else { return };
        for (i, (query, row)) in queries.clone().zip(logits.chunks_exact_mut(KEYS)).enumerate() {
            let visible = self.visible(query, block);
            let first = block * KEYS + visible.start;
            let row = &mut row[visible];
            let exempt = take_out(row, first, self.exempt(quantiser, head));
            quantise(row, self.steps[j].get(head).copied().unwrap_or_else(|| row_steps[i]));
            exempt.into_iter().for_each(|(at, logit)| row[at] = logit);
        }
    }

    /// The quantisation step of each row of map j, from one sweep over its logits. Empty if steps are shared.
    pub(super) fn row_steps(
        &self,
        j: usize,
        head: usize,
        q: &[f32],
        queries: &Range<usize>,
        room: &mut [f32],
    ) -> Vec<f32> {
        let Some(quantiser) = self.quantiser().filter(|quantiser| quantiser.scope == Scope::Row) else {
            return Vec::new();
        };
        let largest = self.largest_of_rows(quantiser, j, head, q, queries, room);
        largest.into_iter().map(|x| step(quantiser.format, x)).collect()
    }

    /// The largest |logit| of each row of map j, without exempt and masked keys. `room` is scratch space for a block.
    fn largest_of_rows(
        &self,
        quantiser: &Quantiser,
        j: usize,
        head: usize,
        q: &[f32],
        queries: &Range<usize>,
        room: &mut [f32],
    ) -> Vec<f32> {
        let mut largest = vec![0.0_f32; queries.len()];
        for block in self.blocks(queries) {
            self.logits(j, head, q, queries, block, room);
            self.remove(Removal::Mask, head, queries, block, room, 0.0);
            for ((query, row), largest) in queries.clone().zip(room.chunks_exact_mut(KEYS)).zip(&mut largest) {
                let visible = self.visible(query, block);
                let first = block * KEYS + visible.start;
                take_out(&mut row[visible.clone()], first, self.exempt(quantiser, head));
                *largest = largest.max(absmax(&row[visible]));
            }
        }
        largest
    }

    /// The largest |logit| of each map of a head in a tile, without exempt and masked keys.
    fn largest_of_tile(&self, quantiser: &Quantiser, head: usize, queries: &Range<usize>) -> [f32; 2] {
        let mut q = Vec::new();
        let mut room = vec![0.0; queries.len() * KEYS];
        let mut largest = [0.0_f32; 2];
        for (j, largest) in largest.iter_mut().enumerate().take(self.wiring.maps()) {
            self.scaled_queries(j, head, queries, &mut q);
            let of_rows = self.largest_of_rows(quantiser, j, head, &q, queries, &mut room);
            *largest = of_rows.into_iter().fold(0.0, f32::max);
        }
        largest
    }

    /// One step for each map and head, from a sweep over all logits.
    fn shared_steps(&self, quantiser: &Quantiser) -> [Vec<f32>; 2] {
        let heads = self.wiring.heads();
        let end = self.rows.keys.own.end;
        let tiles = (end - self.first).div_ceil(TILE);
        let tasks = (0..heads * tiles).into_par_iter().with_max_len(1).map(|task| {
            let head = task % heads;
            let first = self.first + task / heads * TILE;
            (head, self.largest_of_tile(quantiser, head, &(first..(first + TILE).min(end))))
        });
        let mut largest = [vec![0.0_f32; heads], vec![0.0_f32; heads]];
        for (head, of_tile) in tasks.collect::<Vec<(usize, [f32; 2])>>() {
            for j in 0..2 {
                largest[j][head] = largest[j][head].max(of_tile[j]);
            }
        }
        if quantiser.scope == Scope::Tensor {
            let of_all = largest.iter().flatten().fold(0.0_f32, |a, &b| a.max(b));
            largest.iter_mut().flatten().for_each(|x| *x = of_all);
        }
        largest.map(|of_heads| of_heads.into_iter().map(|x| step(quantiser.format, x)).collect())
    }
}

/// Sets the logits of `keys` to 0 in a row that starts at key `first`. Returns their indices and values. Keys outside
/// the row are skipped.
fn take_out(row: &mut [f32], first: usize, keys: &[usize]) -> Vec<(usize, f32)> {
    let mut taken = Vec::new();
    for at in keys.iter().filter_map(|key| key.checked_sub(first)) {
        if let Some(logit) = row.get_mut(at) {
            taken.push((at, std::mem::take(logit)));
        }
    }
    taken
}
