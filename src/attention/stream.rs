//! Attention for measuring: tiles of queries that fit in cache, rows lent to probes as they pass and then dropped.
//!
//! A tile belongs to one output head. Tiles run in parallel; every block of [`BLOCK`] queries of a head has its own
//! probe state, and the states of a head are merged in query order, so what a probe learns does not depend on the
//! number of threads.

use super::{Attend, Heads, Wiring};
use crate::ops::simd::causal_exp;
use crate::ops::{multiply, with_values, Mat, MatMut};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Queries per tile: J maps x 32 rows x 4,096 keys of `f32` are J x 512 KiB.
pub const TILE: usize = 32;
/// Queries per task and per probe state.
const BLOCK: usize = 256;

/// One row of attention of one output head, on its way past.
pub struct Row<'a> {
    /// Position of the query token; the keys are 0..=query.
    pub query: usize,
    /// Softmax rows of the maps j = 0, 1: each (query + 1).
    pub maps: &'a [&'a [f32]],
    /// Weight of each map: 1, or 1 and -lambda.
    pub mix: &'a [f32],
    /// The mixture, which weighs the values: (query + 1).
    pub effective: &'a [f32],
}

/// A measurement of rows: says which rows it wants and makes one [`RowSink`] per head and block of queries.
pub trait RowProbe: Sync {
    /// Whether the row of this query of this head is to be seen. Rows nobody wants cost nothing.
    fn wants(&self, layer: usize, head: usize, query: usize) -> bool;
    /// A fresh state for one head.
    fn start(&self, layer: usize, head: usize) -> Box<dyn RowSink>;
}

/// What a probe has learned of one head so far.
pub trait RowSink: Send {
    /// Takes note of a row. The row is borrowed: keep numbers, not rows.
    fn see(&mut self, row: &Row<'_>);
    /// Adds what `later`, made by the same probe for later queries of the same head, has learned.
    fn merge(&mut self, later: Box<dyn RowSink>);
    /// For reading the result: `sink.into_any().downcast::<MySink>()`.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// What one probe learned of one head of one layer.
pub struct Sighting {
    /// 0-based layer.
    pub layer: usize,
    /// 0-based output head.
    pub head: usize,
    /// Index of the probe in the list given to [`Stream::new`].
    pub probe: usize,
    /// The probe's state after all rows.
    pub sink: Box<dyn RowSink>,
}

/// Computes the mixture without gradients and shows its rows to probes. One prompt at a time (B = 1).
pub struct Stream<'a> {
    probes: &'a [&'a dyn RowProbe],
    /// What was learned, in (layer, head, probe) order.
    pub sightings: Vec<Sighting>,
}

impl<'a> Stream<'a> {
    /// A stream watched by `probes`.
    pub fn new(probes: &'a [&'a dyn RowProbe]) -> Self {
        Self { probes, sightings: Vec::new() }
    }
}

impl Attend for Stream<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, q_heads, d) = heads.q.dims4()?;
        if batch != 1 {
            candle_core::bail!("streaming attention takes one prompt at a time, got {batch}");
        }
        let lambda = heads.lambda.as_ref().map(|l| l.flatten_all()?.to_vec1::<f32>()).transpose()?;
        let (scale, wiring) = (heads.scale()?, heads.wiring);
        let kv_row = heads.k.dim(2)? * d;
        let blocks = t.div_ceil(BLOCK);
        let tasks: Vec<Block> = with_values(&heads.q, "attention", |q| {
            with_values(&heads.k, "attention", |k| {
                with_values(&heads.v, "attention", |v| {
                    let pass =
                        Pass { q, k, v, lambda: lambda.as_deref(), wiring, scale, t, d, q_row: q_heads * d, kv_row };
                    // Late blocks cost most: start with them.
                    let run = |task: usize| {
                        let (h, block) = (task % wiring.heads(), blocks - 1 - task / wiring.heads());
                        pass.block(layer, h, block * BLOCK, self.probes)
                    };
                    (0..wiring.heads() * blocks).into_par_iter().with_max_len(1).map(run).collect()
                })
            })
        })???;
        let width = wiring.value_slices() * d;
        let mut out = vec![0.0; t * wiring.heads() * width];
        let mut sinks: Vec<Vec<Option<Box<dyn RowSink>>>> =
            (0..wiring.heads()).map(|_| self.probes.iter().map(|_| None).collect()).collect();
        for block in tasks.into_iter().rev() {
            // reversed again: query order within a head
            for (i, row) in block.out.chunks_exact(width).enumerate() {
                out[((block.start + i) * wiring.heads() + block.head) * width..][..width].copy_from_slice(row);
            }
            for (probe, later) in block.sinks.into_iter().enumerate() {
                match &mut sinks[block.head][probe] {
                    Some(sink) => sink.merge(later),
                    slot => *slot = Some(later),
                }
            }
        }
        for (head, sinks) in sinks.into_iter().enumerate() {
            let found = sinks.into_iter().enumerate().filter_map(|(probe, sink)| Some((probe, sink?)));
            self.sightings.extend(found.map(|(probe, sink)| Sighting { layer, head, probe, sink }));
        }
        Tensor::from_vec(out, (1, t, wiring.heads(), width), heads.q.device())
    }
}

/// One layer's tensors as slices.
struct Pass<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    lambda: Option<&'a [f32]>,
    wiring: &'a Wiring,
    scale: f32,
    t: usize,
    d: usize,
    q_row: usize,
    kv_row: usize,
}

/// A finished block of queries of one head.
struct Block {
    head: usize,
    start: usize,
    /// (queries, value width)
    out: Vec<f32>,
    sinks: Vec<Box<dyn RowSink>>,
}

impl Pass<'_> {
    fn block(&self, layer: usize, head: usize, start: usize, probes: &[&dyn RowProbe]) -> Block {
        let end = (start + BLOCK).min(self.t);
        let width = self.wiring.value_slices() * self.d;
        let mut block = Block {
            head,
            start,
            out: vec![0.0; (end - start) * width],
            sinks: probes.iter().map(|probe| probe.start(layer, head)).collect(),
        };
        let mut tile =
            Tile { start, end, maps: vec![vec![0.0; TILE * end]; self.wiring.maps()], sums: [[0.0; TILE]; 2] };
        for first in (start..end).step_by(TILE) {
            (tile.start, tile.end) = (first, (first + TILE).min(end));
            self.exponentials(head, &mut tile);
            for query in tile.start..tile.end {
                let wanted = |probe: &&dyn RowProbe| probe.wants(layer, head, query);
                if probes.iter().any(wanted) {
                    self.show(head, query, &tile, &mut |row| {
                        let watching = probes.iter().zip(&mut block.sinks).filter(|(probe, _)| wanted(probe));
                        watching.for_each(|(_, sink)| sink.see(row));
                    });
                }
            }
            self.weigh_values(head, &mut tile, &mut block.out[(first - start) * width..]);
        }
        block
    }

    fn mix(&self, head: usize, query: usize) -> [f32; 2] {
        let lambda = match self.lambda {
            None => 0.0,
            Some([lambda]) => *lambda,
            Some(per_token) => per_token[query * self.wiring.heads() + head],
        };
        [1.0, -lambda]
    }

    /// Fills every map with exp(logit - largest logit of the row), zero where masked, and the sums of its rows.
    /// Dividing by the sums is left to whoever needs it: a row nobody probes is divided after weighing the values.
    fn exponentials(&self, head: usize, tile: &mut Tile) {
        let (rows, keys) = (tile.end - tile.start, tile.end);
        for (j, map) in tile.maps.iter_mut().enumerate() {
            let q = &self.q[tile.start * self.q_row + self.wiring.query[j][head] * self.d..];
            let k = &self.k[self.wiring.key[j][head] * self.d..];
            let (q, k) = (Mat::new(q, rows, self.d, self.q_row), Mat::new(k, keys, self.d, self.kv_row));
            multiply(MatMut::new(map, rows, keys, keys), self.scale, q, k.t());
            causal_exp(map, keys, tile.start + 1, &mut tile.sums[j][..rows]);
        }
    }

    /// Lends one row to `see`, normalised and mixed.
    fn show(&self, head: usize, query: usize, tile: &Tile, see: &mut dyn FnMut(&Row<'_>)) {
        let at = (query - tile.start) * tile.end;
        let normalised = |(j, map): (usize, &Vec<f32>)| {
            let inverse = 1.0 / tile.sums[j][query - tile.start];
            map[at..=at + query].iter().map(|x| x * inverse).collect::<Vec<f32>>()
        };
        let maps: Vec<Vec<f32>> = tile.maps.iter().enumerate().map(normalised).collect();
        let mix = self.mix(head, query);
        let mut effective = maps[0].clone();
        if let [_, second] = maps.as_slice() {
            add_scaled(&mut effective, 1.0, second, mix[1]);
        }
        let rows: Vec<&[f32]> = maps.iter().map(Vec::as_slice).collect();
        see(&Row { query, maps: &rows, mix: &mix[..rows.len()], effective: &effective });
    }

    /// out = (sum_j mix_j map_j) V. The mixture overwrites the first map.
    fn weigh_values(&self, head: usize, tile: &mut Tile, out: &mut [f32]) {
        let (rows, keys, width) = (tile.end - tile.start, tile.end, self.wiring.value_slices() * self.d);
        let (first, rest) = tile.maps.split_at_mut(1);
        if let [second] = rest {
            for i in 0..rows {
                let [_, mix] = self.mix(head, tile.start + i);
                let row = i * keys..(i + 1) * keys;
                add_scaled(&mut first[0][row.clone()], 1.0 / tile.sums[0][i], &second[row], mix / tile.sums[1][i]);
            }
        }
        for (piece, &value) in self.wiring.value[head].iter().enumerate() {
            let v = Mat::new(&self.v[value * self.d..], keys, self.d, self.kv_row);
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

/// Queries start..end of one head over keys 0..end.
struct Tile {
    start: usize,
    end: usize,
    /// Exponentials of each map: (queries, keys), row-major.
    maps: Vec<Vec<f32>>,
    /// Their row sums.
    sums: [[f32; TILE]; 2],
}

/// a = a * scale_a + b * scale_b.
#[pulp::with_simd(add_scaled = pulp::Arch::new())]
#[inline(always)]
fn add_scaled_simd<'a, S: pulp::Simd>(_simd: S, a: &'a mut [f32], scale_a: f32, b: &'a [f32], scale_b: f32) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = scale_b.mul_add(b, *a * scale_a);
    }
}
