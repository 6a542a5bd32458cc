//! One tile of queries of one head: logits, quantisation, exponentials, rows for probes, the weighing of values.

use super::{Heads, Quantise, Row, Wiring};
use crate::ops::simd::causal_exp;
use crate::ops::{multiply, Mat, MatMut};
use crate::quant::{absmax, quantise, Scope};
use candle_core::Result;
use rayon::prelude::*;
use std::ops::Range;

/// Queries per tile: J maps x 32 rows x 4,096 keys of `f32` are J x 512 KiB.
pub const TILE: usize = 32;

/// One layer's tensors as slices.
pub(super) struct Pass<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    lambda: Option<&'a [f32]>,
    pub(super) layer: usize,
    pub(super) wiring: &'a Wiring,
    scale: f32,
    t: usize,
    d: usize,
    q_row: usize,
    k_row: usize,
    v_row: usize,
    quantise: Option<&'a Quantise>,
    /// Quantisation steps of every map j of every head; without numbers if each row has its own.
    steps: [Vec<f32>; 2],
}

/// Queries of one head over the keys up to the last of them.
pub(super) struct Tile {
    queries: Range<usize>,
    /// Exponentials of each map: (queries, keys), row-major, `queries.end` keys.
    maps: Vec<Vec<f32>>,
    /// Logits of each map, of the same shape; nothing if no probe wants them.
    logits: Vec<Vec<f32>>,
    /// Sums of the exponentials' rows.
    sums: [[f32; TILE]; 2],
    /// Room for one row of each map and for the effective row.
    rows: Vec<Vec<f32>>,
    effective: Vec<f32>,
}

impl Tile {
    /// Room for tiles of at most `keys` keys.
    pub(super) fn new(maps: usize, keys: usize) -> Self {
        Self {
            queries: 0..0,
            maps: vec![vec![0.0; TILE * keys]; maps],
            logits: Vec::new(),
            sums: [[0.0; TILE]; 2],
            rows: vec![Vec::with_capacity(keys); maps],
            effective: Vec::with_capacity(keys),
        }
    }

    fn keys(&self) -> usize {
        self.queries.end
    }
}

impl<'a> Pass<'a> {
    /// The slices q, k, v of `heads`; with a quantiser, its steps are measured first.
    pub(super) fn new(
        [q, k, v]: [&'a [f32]; 3],
        lambda: Option<&'a [f32]>,
        heads: &Heads<'a>,
        quantise: Option<&'a Quantise>,
        layer: usize,
    ) -> Result<Self> {
        let (_, t, q_heads, d) = heads.q.dims4()?;
        let mut pass = Self {
            q,
            k,
            v,
            lambda,
            layer,
            wiring: heads.wiring,
            scale: heads.rule.scale,
            t,
            d,
            q_row: q_heads * d,
            k_row: heads.k.dim(2)? * d,
            v_row: heads.v.dim(2)? * d,
            quantise,
            steps: [Vec::new(), Vec::new()],
        };
        if let Some(quantise) = quantise.filter(|q| q.quantiser.scope != Scope::Row) {
            pass.steps = pass.shared_steps(quantise);
        }
        Ok(pass)
    }

    pub(super) fn value_width(&self) -> usize {
        self.wiring.value_slices() * self.d
    }

    /// One step for each map and head, from a sweep over all their logits.
    fn shared_steps(&self, quantise: &Quantise) -> [Vec<f32>; 2] {
        let (heads, tiles) = (self.wiring.heads(), self.t.div_ceil(TILE));
        let largest_of = |task: usize| {
            let (head, first) = (task % heads, task / heads * TILE);
            let queries = first..(first + TILE).min(self.t);
            let mut tile = vec![0.0; TILE * queries.end];
            let mut largest = [0.0f32; 2];
            for (j, largest) in largest.iter_mut().enumerate().take(self.wiring.maps()) {
                self.logits(j, head, queries.clone(), &mut tile);
                for (query, row) in queries.clone().zip(tile.chunks_exact_mut(queries.end)) {
                    let visible = &mut row[..=query];
                    take_out(visible, quantise.exempt(self.layer, head));
                    *largest = largest.max(absmax(visible));
                }
            }
            (head, largest)
        };
        let found: Vec<_> = (0..heads * tiles).into_par_iter().with_max_len(1).map(largest_of).collect();
        let mut largest = [vec![0.0f32; heads], vec![0.0f32; heads]];
        for (head, of_tile) in found {
            for j in 0..2 {
                largest[j][head] = largest[j][head].max(of_tile[j]);
            }
        }
        if quantise.quantiser.scope == Scope::Tensor {
            let of_all = largest.iter().flatten().fold(0.0f32, |a, &b| a.max(b));
            largest.iter_mut().flatten().for_each(|x| *x = of_all);
        }
        largest.map(|of_heads| of_heads.into_iter().map(|x| quantise.quantiser.step(x)).collect())
    }

    fn mix(&self, head: usize, query: usize) -> [f32; 2] {
        let lambda = match self.lambda {
            None => 0.0,
            Some([lambda]) => *lambda,
            Some(per_token) => per_token[query * self.wiring.heads() + head],
        };
        [1.0, -lambda]
    }

    /// scale * Q_j K_j^T of `queries` against keys 0..queries.end, masked ones included.
    fn logits(&self, j: usize, head: usize, queries: Range<usize>, out: &mut [f32]) {
        let (rows, keys) = (queries.len(), queries.end);
        let q = &self.q[queries.start * self.q_row + self.wiring.query[j][head] * self.d..];
        let k = &self.k[self.wiring.key[j][head] * self.d..];
        let (q, k) = (Mat::new(q, rows, self.d, self.q_row), Mat::new(k, keys, self.d, self.k_row));
        multiply(MatMut::new(out, rows, keys, keys), self.scale, q, k.t());
    }

    /// Quantises the visible keys of a tile of logits of map j.
    fn quantise(&self, quantise_by: &Quantise, j: usize, head: usize, queries: Range<usize>, logits: &mut [f32]) {
        for (query, row) in queries.clone().zip(logits.chunks_exact_mut(queries.end)) {
            let visible = &mut row[..=query];
            let kept = take_out(visible, quantise_by.exempt(self.layer, head));
            let step = match self.steps[j].get(head) {
                Some(&step) => step,
                None => quantise_by.quantiser.step(absmax(visible)),
            };
            quantise(visible, step);
            kept.into_iter().for_each(|(key, logit)| visible[key] = logit);
        }
    }

    /// Fills every map with exp(logit - largest logit of the row), zero where masked, and the sums of its rows.
    /// Dividing by the sums is left to whoever needs it: a row nobody probes is divided after weighing the values.
    pub(super) fn exponentials(&self, head: usize, queries: Range<usize>, keep_logits: bool, tile: &mut Tile) {
        let (rows, keys) = (queries.len(), queries.end);
        tile.queries = queries.clone();
        tile.logits.clear();
        for (j, map) in tile.maps.iter_mut().enumerate() {
            self.logits(j, head, queries.clone(), map);
            let map = &mut map[..rows * keys];
            if let Some(quantise) = self.quantise {
                self.quantise(quantise, j, head, queries.clone(), map);
            }
            if keep_logits {
                tile.logits.push(map.to_vec());
            }
            causal_exp(map, keys, queries.start + 1, &mut tile.sums[j][..rows]);
        }
    }

    /// Lends one row of the tile to `see`, normalised and mixed.
    pub(super) fn show(&self, head: usize, query: usize, tile: &mut Tile, see: &mut dyn FnMut(&Row<'_>)) {
        let i = query - tile.queries.start;
        let visible = i * tile.keys()..i * tile.keys() + query + 1;
        for (j, (row, map)) in tile.rows.iter_mut().zip(&tile.maps).enumerate() {
            row.clear();
            row.extend_from_slice(&map[visible.clone()]);
            scale(row, 1.0 / tile.sums[j][i]);
        }
        let mix = self.mix(head, query);
        tile.effective.clone_from(&tile.rows[0]);
        if let [_, second] = tile.rows.as_slice() {
            add_scaled(&mut tile.effective, 1.0, second, mix[1]);
        }
        let maps: Vec<&[f32]> = tile.rows.iter().map(Vec::as_slice).collect();
        let logits: Vec<&[f32]> = tile.logits.iter().map(|logits| &logits[visible.clone()]).collect();
        let (mix, effective) = (&mix[..maps.len()], tile.effective.as_slice());
        see(&Row { query, first_visible: 0, logits: &logits, maps: &maps, mix, effective });
    }

    /// out = (sum_j mix_j map_j) V. The mixture overwrites the first map.
    pub(super) fn weigh_values(&self, head: usize, tile: &mut Tile, out: &mut [f32]) {
        let (rows, keys, width) = (tile.queries.len(), tile.keys(), self.value_width());
        let (first, rest) = tile.maps.split_at_mut(1);
        if let [second] = rest {
            for i in 0..rows {
                let [_, mix] = self.mix(head, tile.queries.start + i);
                let row = i * keys..(i + 1) * keys;
                add_scaled(&mut first[0][row.clone()], 1.0 / tile.sums[0][i], &second[row], mix / tile.sums[1][i]);
            }
        }
        for (piece, &value) in self.wiring.value[head].iter().enumerate() {
            let v = Mat::new(&self.v[value * self.d..], keys, self.d, self.v_row);
            let out = MatMut::new(&mut out[piece * self.d..], rows, self.d, width);
            multiply(out, 1.0, Mat::new(&first[0], rows, keys, keys), v);
        }
        if rest.is_empty() {
            for (row, sum) in out.chunks_exact_mut(width).zip(&tile.sums[0][..rows]) {
                row.iter_mut().for_each(|x| *x /= sum);
            }
        }
    }
}

/// Sets the logits of `keys` to 0 and gives back what they were; keys beyond the row are not visible.
fn take_out(row: &mut [f32], keys: &[usize]) -> Vec<(usize, f32)> {
    keys.iter().filter_map(|&key| Some((key, std::mem::take(row.get_mut(key)?)))).collect()
}

/// a = a * scale_a + b * scale_b.
#[pulp::with_simd(add_scaled = pulp::Arch::new())]
#[inline(always)]
fn add_scaled_simd<'a, S: pulp::Simd>(_simd: S, a: &'a mut [f32], scale_a: f32, b: &'a [f32], scale_b: f32) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = scale_b.mul_add(b, *a * scale_a);
    }
}

/// row = row * factor.
#[pulp::with_simd(scale = pulp::Arch::new())]
#[inline(always)]
fn scale_simd<S: pulp::Simd>(_simd: S, row: &mut [f32], factor: f32) {
    for x in row {
        *x *= factor;
    }
}
