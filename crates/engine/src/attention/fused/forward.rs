//! The mixture, with an online softmax over blocks of keys.

use super::{multiply_panels, pieces, Mixture, Sizes, Target, Task, KEYS, QUERIES};
use crate::attention::tile::{scale_rows, start_rows};
use crate::kernels::simd::softmax_block;
use crate::kernels::{Mat, Panels};
use std::ops::Range;

/// Input of all tasks.
pub(super) struct Forward<'a> {
    op: &'a Mixture,
    size: Sizes,
    q: &'a [f32],
    /// K^T of every key head, (d, T), of every batch entry.
    k: Vec<Panels>,
    /// V of every value head, (T, d), of every batch entry.
    v: Vec<Panels>,
}

/// Reused buffers.
pub(super) struct ForwardBuffers {
    /// Scaled queries of a map: (T, d).
    q: Vec<f32>,
    /// Logits of a block, then exponentials: (queries, KEYS).
    weights: Vec<f32>,
    visible: Vec<Range<usize>>,
    largest: Vec<f32>,
    sums: Vec<f32>,
    factors: Vec<f32>,
}

impl<'a> Forward<'a> {
    pub(super) fn new(op: &'a Mixture, size: Sizes, q: &'a [f32], k: &[f32], v: &[f32]) -> Self {
        Self { op, size, q, k: size.pack(k, size.k_heads, true), v: size.pack(v, size.v_heads, false) }
    }

    /// The output of a head and, if there are two maps, the output of the second map alone, both (T, padded value
    /// width); and the log-sums of each map (T).
    pub(super) fn head(&self, buffers: &mut ForwardBuffers, task: Task) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let Task { entry, head } = task;
        let size = &self.size;
        let width = size.slices * size.padded();
        let mut outs = Vec::new();
        let mut log_sums = Vec::new();
        for (j, query_heads) in self.op.wiring.query.iter().enumerate() {
            buffers.q = size.scaled(self.q, size.q_heads, entry, query_heads[head], self.op.scale);
            let mut out = vec![0.0; size.t * width];
            let mut log_sums_of_map = vec![0.0; size.t];
            for tile in size.tiles() {
                let rows = &mut out[tile.start * width..tile.end * width];
                self.tile(buffers, task, j, &tile, rows, &mut log_sums_of_map[tile.clone()]);
            }
            outs.push(out);
            log_sums.push(log_sums_of_map);
        }
        if let [first, second] = outs.as_mut_slice() {
            for (query, (first, second)) in first.chunks_exact_mut(width).zip(second.chunks_exact(width)).enumerate() {
                let lambda = self.op.scalars.lambda(entry * size.t + query, head);
                first.iter_mut().zip(second).for_each(|(first, second)| *first -= lambda * second);
            }
        }
        (outs, log_sums)
    }

    /// softmax(scale Q K^T) V of a tile of queries: (queries, padded value width).
    fn tile(
        &self,
        buffers: &mut ForwardBuffers,
        Task { entry, head }: Task,
        j: usize,
        tile: &Range<usize>,
        out: &mut [f32],
        log_sums: &mut [f32],
    ) {
        let size = &self.size;
        let wiring = &self.op.wiring;
        let n = tile.len();
        let width = size.slices * size.padded();
        let queries = Mat::new(&buffers.q[tile.start * size.d..], n, size.d, size.d);
        start_rows(&mut buffers.largest, &mut buffers.sums, n, self.op.scalars.sink(wiring.query[j][head]));
        for keys in pieces(tile.end, KEYS) {
            let k = &self.k[entry * size.k_heads + wiring.key[j][head]];
            let logits = Target { data: &mut buffers.weights, rows: n, stride: KEYS };
            multiply_panels(logits, false, queries, k, 0..size.d, keys.clone());
            buffers.visible.clear();
            buffers.visible.extend(tile.clone().map(|query| 0..(query + 1).saturating_sub(keys.start).min(keys.len())));
            let weights = &mut buffers.weights[..n * KEYS];
            softmax_block(
                weights,
                KEYS,
                &buffers.visible,
                &mut buffers.largest,
                &mut buffers.sums,
                &mut buffers.factors,
            );
            scale_rows(out, width, &buffers.factors);
            for (piece, value) in wiring.value[head].iter().enumerate() {
                let v = &self.v[entry * size.v_heads + value];
                let out = Target { data: &mut out[piece * size.padded()..], rows: n, stride: width };
                multiply_panels(out, true, Mat::new(&buffers.weights, n, keys.len(), KEYS), v, keys.clone(), 0..size.d);
            }
        }
        for (i, log_sum) in log_sums.iter_mut().enumerate() {
            *log_sum = buffers.largest[i] + buffers.sums[i].ln();
            buffers.factors[i] = 1.0 / buffers.sums[i];
        }
        scale_rows(out, width, &buffers.factors);
    }
}

impl Default for ForwardBuffers {
    fn default() -> Self {
        Self {
            q: Vec::new(),
            weights: vec![0.0; QUERIES * KEYS],
            visible: Vec::new(),
            largest: vec![0.0; QUERIES],
            sums: vec![0.0; QUERIES],
            factors: vec![0.0; QUERIES],
        }
    }
}
