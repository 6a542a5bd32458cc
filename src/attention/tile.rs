//! One tile of queries of one head: logits, quantisation, exponentials, rows for probes, the weighing of values.

use super::{Heads, LogitRule, Quantise, Row, Wiring};
use crate::ops::simd::{soft_cap, windowed_exp};
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
    rule: LogitRule,
    t: usize,
    d: usize,
    q_row: usize,
    k_row: usize,
    v_row: usize,
    quantise: Option<&'a Quantise>,
    /// Quantisation steps of every map j of every head; without numbers if each row has its own.
    steps: [Vec<f32>; 2],
}

/// Queries of one head over all keys that any of them sees.
pub(super) struct Tile {
    queries: Range<usize>,
    keys: Range<usize>,
    /// Exponentials of each map: (queries, keys), row-major.
    maps: Vec<Vec<f32>>,
    /// Logits of each map, of the same shape; nothing if no probe wants them.
    logits: Vec<Vec<f32>>,
    /// Sums of the exponentials' rows.
    sums: [[f32; TILE]; 2],
    /// Room for one row of each map, of its logits, and for the effective row.
    rows: Vec<Vec<f32>>,
    logit_rows: Vec<Vec<f32>>,
    effective: Vec<f32>,
}

impl Tile {
    /// Room for tiles of at most `keys` keys.
    pub(super) fn new(maps: usize, keys: usize) -> Self {
        Self {
            queries: 0..0,
            keys: 0..0,
            maps: vec![vec![0.0; TILE * keys]; maps],
            logits: Vec::new(),
            sums: [[0.0; TILE]; 2],
            rows: vec![Vec::new(); maps],
            logit_rows: vec![Vec::new(); maps],
            effective: Vec::new(),
        }
    }
}

/// A row of a (queries, keys) tile from key 0 to the query itself: zeros stand for keys before the tile's.
fn whole_row(row: &mut Vec<f32>, tile: &[f32], keys: &Range<usize>, i: usize, query: usize) {
    row.clear();
    row.resize(keys.start, 0.0);
    row.extend_from_slice(&tile[i * keys.len()..][..query + 1 - keys.start]);
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
        if heads.rule.window == Some(0) {
            candle_core::bail!("a window of no keys");
        }
        let mut pass = Self {
            q,
            k,
            v,
            lambda,
            layer,
            wiring: heads.wiring,
            rule: heads.rule,
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

    /// The keys that any of `queries` sees.
    pub(super) fn keys(&self, queries: &Range<usize>) -> Range<usize> {
        self.rule.first_visible(queries.start)..queries.end
    }

    /// The most keys that a tile of `queries` sees.
    pub(super) fn most_keys(&self, queries: &Range<usize>) -> usize {
        self.rule.window.map_or(queries.end, |window| queries.end.min(window.saturating_add(TILE)))
    }

    /// The keys that `query` sees, as positions in a row of a tile over `keys`.
    fn visible(&self, query: usize, keys: &Range<usize>) -> Range<usize> {
        self.rule.first_visible(query) - keys.start..query + 1 - keys.start
    }

    /// One step for each map and head, from a sweep over all their logits.
    fn shared_steps(&self, quantise: &Quantise) -> [Vec<f32>; 2] {
        let (heads, tiles) = (self.wiring.heads(), self.t.div_ceil(TILE));
        let largest_of = |task: usize| {
            let (head, first) = (task % heads, task / heads * TILE);
            let queries = first..(first + TILE).min(self.t);
            let keys = self.keys(&queries);
            let mut tile = vec![0.0; queries.len() * keys.len()];
            let mut largest = [0.0f32; 2];
            for (j, largest) in largest.iter_mut().enumerate().take(self.wiring.maps()) {
                self.logits(j, head, queries.clone(), &mut tile);
                for (query, row) in queries.clone().zip(tile.chunks_exact_mut(keys.len())) {
                    let visible = self.visible(query, &keys);
                    take_out(&mut row[visible.clone()], keys.start + visible.start, quantise.exempt(self.layer, head));
                    let visible = &row[visible];
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

    /// Soft-capped scale * Q_j K_j^T of `queries` against all keys that any of them sees.
    fn logits(&self, j: usize, head: usize, queries: Range<usize>, out: &mut [f32]) {
        let keys = self.keys(&queries);
        let q = &self.q[queries.start * self.q_row + self.wiring.query[j][head] * self.d..];
        let k = &self.k[keys.start * self.k_row + self.wiring.key[j][head] * self.d..];
        let (rows, keys) = (queries.len(), keys.len());
        let (q, k) = (Mat::new(q, rows, self.d, self.q_row), Mat::new(k, keys, self.d, self.k_row));
        let out = &mut out[..rows * keys];
        multiply(MatMut::new(out, rows, keys, keys), self.rule.scale, q, k.t());
        if let Some(cap) = self.rule.softcap {
            soft_cap(out, cap);
        }
    }

    /// Quantises the visible keys of a tile of logits of map j.
    fn quantise(&self, quantise_by: &Quantise, j: usize, head: usize, queries: Range<usize>, logits: &mut [f32]) {
        let keys = self.keys(&queries);
        for (query, row) in queries.zip(logits.chunks_exact_mut(keys.len())) {
            let visible = &mut row[self.visible(query, &keys)];
            let first = query + 1 - visible.len();
            let kept = take_out(visible, first, quantise_by.exempt(self.layer, head));
            let step = match self.steps[j].get(head) {
                Some(&step) => step,
                None => quantise_by.quantiser.step(absmax(visible)),
            };
            quantise(visible, step);
            kept.into_iter().for_each(|(at, logit)| visible[at] = logit);
        }
    }

    /// Fills every map with exp(logit - largest logit of the row), zero where masked, and the sums of its rows.
    /// Dividing by the sums is left to whoever needs it: a row nobody probes is divided after weighing the values.
    pub(super) fn exponentials(&self, head: usize, queries: Range<usize>, keep_logits: bool, tile: &mut Tile) {
        let keys = self.keys(&queries);
        tile.queries = queries.clone();
        tile.keys = keys.clone();
        tile.logits.clear();
        for (j, map) in tile.maps.iter_mut().enumerate() {
            self.logits(j, head, queries.clone(), map);
            let map = &mut map[..queries.len() * keys.len()];
            if let Some(quantise) = self.quantise {
                self.quantise(quantise, j, head, queries.clone(), map);
            }
            if keep_logits {
                tile.logits.push(map.to_vec());
            }
            let (first_end, window) = (queries.start + 1 - keys.start, self.rule.window.unwrap_or(usize::MAX));
            windowed_exp(map, keys.len(), first_end, window, &mut tile.sums[j][..queries.len()]);
        }
    }

    /// Lends one row of the tile to `see`, normalised and mixed.
    pub(super) fn show(&self, head: usize, query: usize, tile: &mut Tile, see: &mut dyn FnMut(&Row<'_>)) {
        let i = query - tile.queries.start;
        for (j, (row, map)) in tile.rows.iter_mut().zip(&tile.maps).enumerate() {
            whole_row(row, map, &tile.keys, i, query);
            scale(&mut row[tile.keys.start..], 1.0 / tile.sums[j][i]);
        }
        for (row, logits) in tile.logit_rows.iter_mut().zip(&tile.logits) {
            whole_row(row, logits, &tile.keys, i, query);
        }
        let mix = self.mix(head, query);
        tile.effective.clone_from(&tile.rows[0]);
        if let [_, second] = tile.rows.as_slice() {
            add_scaled(&mut tile.effective, 1.0, second, mix[1]);
        }
        let maps: Vec<&[f32]> = tile.rows.iter().map(Vec::as_slice).collect();
        let logits: Vec<&[f32]> = tile.logit_rows[..tile.logits.len()].iter().map(Vec::as_slice).collect();
        let (mix, effective) = (&mix[..maps.len()], tile.effective.as_slice());
        see(&Row {
            query,
            first_visible: self.rule.first_visible(query),
            logits: &logits,
            maps: &maps,
            mix,
            effective,
        });
    }

    /// out = (sum_j mix_j map_j) V. The mixture overwrites the first map.
    pub(super) fn weigh_values(&self, head: usize, tile: &mut Tile, out: &mut [f32]) {
        let (rows, keys, width) = (tile.queries.len(), tile.keys.len(), self.value_width());
        let (first, rest) = tile.maps.split_at_mut(1);
        if let [second] = rest {
            for i in 0..rows {
                let [_, mix] = self.mix(head, tile.queries.start + i);
                let row = i * keys..(i + 1) * keys;
                add_scaled(&mut first[0][row.clone()], 1.0 / tile.sums[0][i], &second[row], mix / tile.sums[1][i]);
            }
        }
        for (piece, &value) in self.wiring.value[head].iter().enumerate() {
            let v = Mat::new(&self.v[tile.keys.start * self.v_row + value * self.d..], keys, self.d, self.v_row);
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

/// Sets the logits of `keys` to 0 in a row that starts at key `first`, and gives back where they were and what; keys
/// outside the row are not visible.
fn take_out(row: &mut [f32], first: usize, keys: &[usize]) -> Vec<(usize, f32)> {
    let at = |key: &usize| key.checked_sub(first);
    keys.iter().filter_map(at).filter_map(|at| Some((at, std::mem::take(row.get_mut(at)?)))).collect()
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
