//! One tile of queries of one head: online softmax over blocks of keys, rows for probes, and weighting of values.
//!
//! Keys are processed in blocks, and exponentials are relative to the largest logit so far. With one map, each block's
//! values are weighted at once, after scaling the previous output to the new largest logit; the exponentials are then
//! overwritten by the next block unless a probe wants rows of this tile. With two maps, the exponentials are kept until
//! both sums are known, and both maps weight the values in one product. This takes two thirds of the multiplications of
//! two separate products, and 2 x 64 x T numbers per thread.
//!
//! Observation changes only what is kept, not what is computed. The output of a row is the same to the last bit
//! whichever rows are observed, needed or in the same tile, and an observed row does not depend on other probes.

use super::packed_layer::{PackedLayer, KEYS};
use super::treat::removals_of_weights;
use super::AttentionRow;
use crate::kernels::simd::{copy_scaled, exp, softmax_block};
use names::condition::Removal;
use std::ops::Range;

/// Queries per tile. Larger tiles are not faster, and two maps keep J x TILE x T exponentials.
pub(crate) const TILE: usize = 64;

// A tile's queries all end in the same block.
const _: () = assert!(KEYS.is_multiple_of(TILE));

/// Queries of one head over all keys visible to any of them. The buffers are reused for the next tile.
#[derive(Default)]
pub(super) struct QueryTile {
    queries: Range<usize>,
    blocks: Range<usize>,
    maps: Vec<MapTile>,
    /// Visible keys of each query in the current block.
    visible: Vec<Range<usize>>,
    /// Weighted values: (queries, padded width).
    out: Vec<f32>,
    /// Scratch space for a mixture row of two maps.
    effective: Vec<f32>,
}

/// One softmax map of a tile.
#[derive(Default)]
struct MapTile {
    /// Scaled queries (queries, d), and their quantisation steps if each row has its own.
    q: Vec<f32>,
    row_steps: Vec<f32>,
    /// exp(logit - largest so far) for each block: (queries, KEYS), row-major. Only the last block for an unobserved
    /// tile of one map.
    weights: Vec<f32>,
    /// Logits in the same layout; empty if no probe wants them.
    logits: Vec<f32>,
    /// Largest logit of each row so far, and the sum of exponentials relative to it.
    largest: Vec<f32>,
    sums: Vec<f32>,
    /// Factor on the exponentials of earlier blocks for the largest logits of the current one.
    grown: Vec<f32>,
    /// `largest` at the time of each block, and finally the factors that turn its exponentials into probabilities:
    /// (blocks, queries).
    factors: Vec<f32>,
    /// Scratch space for one row and its logits.
    row: Vec<f32>,
    logit_row: Vec<f32>,
}

impl MapTile {
    /// Starts rows without keys, with the sink if there is one: its exp(sink - sink) is the first summand. Reserves
    /// `slots` blocks.
    fn start(&mut self, packed: &PackedLayer<'_>, j: usize, head: usize, queries: &Range<usize>, slots: usize) {
        let rows = queries.len();
        self.logits.clear();
        self.factors.clear();
        start_rows(&mut self.largest, &mut self.sums, rows, packed.sink(j, head));
        self.grown.resize(rows, 0.0);
        if self.weights.len() < slots * rows * KEYS {
            self.weights.resize(slots * rows * KEYS, 0.0);
        }
        packed.scaled_queries(j, head, queries, &mut self.q);
        self.row_steps = packed.row_steps(j, head, &self.q, queries, &mut self.weights);
    }

    /// Factor that turns the exponentials of a block into probabilities in row i, once all blocks are done.
    fn factor(&self, slot: usize, i: usize) -> f32 {
        self.factors[slot * self.largest.len() + i]
    }
}

impl QueryTile {
    /// Computes the tile of `queries`: exponentials and sums of every map and, for a single map, the weighted values. A
    /// tile whose rows are lent to probes must be `kept`.
    pub(super) fn compute(
        &mut self,
        packed: &PackedLayer<'_>,
        head: usize,
        queries: Range<usize>,
        kept: bool,
        keep_logits: bool,
    ) {
        let rows = queries.len();
        let maps = packed.wiring.maps();
        // Two maps share one product with the values, which requires both sums.
        let kept = kept || maps > 1;
        self.blocks = packed.blocks(&queries);
        self.queries = queries;
        self.out.clear();
        self.out.resize(rows * packed.padded_width(), 0.0);
        self.maps.resize_with(maps, MapTile::default);
        for (j, map) in self.maps.iter_mut().enumerate() {
            let slots = if kept { self.blocks.len() } else { 1 };
            map.start(packed, j, head, &self.queries, slots);
        }
        for (slot, block) in self.blocks.clone().enumerate() {
            self.visible.clear();
            self.visible.extend(self.queries.clone().map(|query| packed.visible(query, block)));
            // One map after the other, because they may read the same keys.
            for j in 0..maps {
                self.map_block(packed, j, head, block, if kept { slot } else { 0 }, keep_logits);
            }
        }
        if kept {
            self.maps.iter_mut().for_each(|map| finish(&mut map.factors, &map.largest, &map.sums));
        }
    }

    /// Computes a block of map j, and weights its values if it is the only map.
    fn map_block(
        &mut self,
        packed: &PackedLayer<'_>,
        j: usize,
        head: usize,
        block: usize,
        slot: usize,
        keep_logits: bool,
    ) {
        let queries = &self.queries;
        let rows = self.queries.len();
        let width = packed.padded_width();
        let only = self.maps.len() == 1;
        let map = &mut self.maps[j];
        let weights = &mut map.weights[slot * rows * KEYS..][..rows * KEYS];
        packed.logits(j, head, &map.q, queries, block, weights);
        packed.quantise(j, head, queries, block, &map.row_steps, weights);
        packed.remove(Removal::Mask, head, queries, block, weights, f32::NEG_INFINITY);
        if keep_logits {
            map.logits.extend_from_slice(weights);
        }
        softmax_block(weights, KEYS, &self.visible, &mut map.largest, &mut map.sums, &mut map.grown);
        for &removal in removals_of_weights(j) {
            packed.remove(removal, head, queries, block, weights, 0.0);
        }
        map.factors.extend_from_slice(&map.largest);
        if only {
            scale_rows(&mut self.out, width, &map.grown);
            packed.weigh(head, queries, block, weights, &mut self.out);
        }
    }

    /// Copies the row of a query out of the blocks of each map, normalised, and its logits.
    fn gather(&mut self, query: usize) {
        let i = query - self.queries.start;
        let rows = self.queries.len();
        // Slot of the block, range in its weights, and first key in the row.
        let pieces = self.blocks.clone().enumerate().map(|(slot, block)| {
            let length = KEYS.min((query + 1).saturating_sub(block * KEYS));
            (slot, (slot * rows + i) * KEYS..(slot * rows + i) * KEYS + length, block * KEYS)
        });
        for map in &mut self.maps {
            let mut row = std::mem::take(&mut map.row);
            row.resize(query + 1, 0.0);
            row[..self.blocks.start * KEYS].fill(0.0);
            for (slot, piece, key) in pieces.clone() {
                copy_scaled(&mut row[key..][..piece.len()], &map.weights[piece], map.factor(slot, i));
            }
            map.row = row;
            if !map.logits.is_empty() {
                map.logit_row.resize(query + 1, 0.0);
                map.logit_row[..self.blocks.start * KEYS].fill(0.0);
                for (_, piece, key) in pieces.clone() {
                    map.logit_row[key..][..piece.len()].copy_from_slice(&map.logits[piece]);
                }
            }
        }
    }

    /// Lends one row of a kept tile to `observe`, normalised and mixed.
    pub(super) fn show(
        &mut self,
        packed: &PackedLayer<'_>,
        head: usize,
        query: usize,
        observe: &mut dyn FnMut(&AttentionRow<'_>),
    ) {
        self.gather(query);
        let i = query - self.queries.start;
        let mix = packed.mix(head, query);
        let effective: &[f32] = match self.maps.as_slice() {
            [first, second] => {
                self.effective.resize(query + 1, 0.0);
                mix_rows(&mut self.effective, &first.row, &second.row, mix[1]);
                &self.effective
            }
            maps => &maps[0].row,
        };
        let maps: Vec<&[f32]> = self.maps.iter().map(|map| map.row.as_slice()).collect();
        let with_logits = self.maps.iter().filter(|map| !map.logits.is_empty());
        let logits: Vec<&[f32]> = with_logits.map(|map| map.logit_row.as_slice()).collect();
        let mut sinks = Vec::new();
        for (j, map) in self.maps.iter().enumerate() {
            sinks.extend(packed.sink(j, head).map(|sink| (sink - map.largest[i]).exp() / map.sums[i]));
        }
        observe(&AttentionRow {
            query,
            first_visible: packed.first_visible(query),
            logits: &logits,
            maps: &maps,
            mix: &mix[..maps.len()],
            sinks: &sinks,
            effective,
            values: packed.values(head),
        });
    }

    /// Computes out = (sum_j mix_j map_j) V: (queries, value width). Overwrites the first of two maps.
    pub(super) fn output(&mut self, packed: &PackedLayer<'_>, head: usize, out: &mut [f32]) {
        let rows = self.queries.len();
        let mut factors: Vec<f32> = vec![1.0; rows];
        if let [first, second] = self.maps.as_mut_slice() {
            for (slot, block) in self.blocks.clone().enumerate() {
                let at = slot * rows * KEYS..(slot + 1) * rows * KEYS;
                let factors: Vec<[f32; 2]> = (0..rows)
                    .map(|i| {
                        let mix = packed.mix(head, self.queries.start + i);
                        [mix[0] * first.factor(slot, i), mix[1] * second.factor(slot, i)]
                    })
                    .collect();
                let weights = &mut first.weights[at.clone()];
                mix_blocks(weights, &second.weights[at], KEYS, &factors);
                packed.weigh(head, &self.queries, block, weights, &mut self.out);
            }
        } else {
            factors.iter_mut().zip(&self.maps[0].sums).for_each(|(factor, sum)| *factor = 1.0 / sum);
        }
        let slice = packed.padded_width() / packed.wiring.value_slices();
        let d = packed.value_width() / packed.wiring.value_slices();
        // Each head slice of each row, without the padding of its last panel.
        for (i, (out, padded)) in out.chunks_exact_mut(d).zip(self.out.chunks_exact(slice)).enumerate() {
            copy_scaled(out, &padded[..d], factors[i / packed.wiring.value_slices()]);
        }
    }
}

/// Initial largest logit and sum of exponentials of `rows` rows before the first key: empty, or the sink.
pub(super) fn start_rows(largest: &mut Vec<f32>, sums: &mut Vec<f32>, rows: usize, sink: Option<f32>) {
    largest.clear();
    largest.resize(rows, sink.unwrap_or(f32::MIN));
    sums.clear();
    sums.resize(rows, if sink.is_some() { 1.0 } else { 0.0 });
}

/// factors = exp(factors - largest) / sums, for each row of `factors`.
#[pulp::with_simd(finish = pulp::Arch::new())]
#[inline(always)]
fn finish_simd<'a, S: pulp::Simd>(_simd: S, factors: &'a mut [f32], largest: &'a [f32], sums: &'a [f32]) {
    for factors in factors.chunks_exact_mut(largest.len()) {
        for ((factor, largest), sum) in factors.iter_mut().zip(largest).zip(sums) {
            *factor = exp(*factor - largest) / sum;
        }
    }
}

/// Multiplies each row of `rows` (`width` wide) by its factor.
#[pulp::with_simd(scale_rows = pulp::Arch::new())]
#[inline(always)]
pub(super) fn scale_rows_simd<'a, S: pulp::Simd>(_simd: S, rows: &'a mut [f32], width: usize, factors: &'a [f32]) {
    for (row, &factor) in rows.chunks_exact_mut(width).zip(factors) {
        for x in row {
            *x *= factor;
        }
    }
}

/// to = first + mix * second.
#[pulp::with_simd(mix_rows = pulp::Arch::new())]
#[inline(always)]
pub(super) fn mix_rows_simd<'a, S: pulp::Simd>(
    _simd: S,
    to: &'a mut [f32],
    first: &'a [f32],
    second: &'a [f32],
    mix: f32,
) {
    for ((to, &first), &second) in to.iter_mut().zip(first).zip(second) {
        *to = mix.mul_add(second, first);
    }
}

/// first = first * factors\[0\] + second * factors\[1\], row by row.
#[pulp::with_simd(mix_blocks = pulp::Arch::new())]
#[inline(always)]
fn mix_blocks_simd<'a, S: pulp::Simd>(
    _simd: S,
    first: &'a mut [f32],
    second: &'a [f32],
    width: usize,
    factors: &'a [[f32; 2]],
) {
    let rows = first.chunks_exact_mut(width).zip(second.chunks_exact(width));
    for ((first, second), &[of_first, of_second]) in rows.zip(factors) {
        for (first, &second) in first.iter_mut().zip(second) {
            *first = of_second.mul_add(second, *first * of_first);
        }
    }
}
