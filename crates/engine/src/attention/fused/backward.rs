//! The gradients of q, k and v, from maps that are recomputed block by block.

use super::{all_row_dots, join, multiply_panels, pieces, Mixture, Share, Sizes, Target, Task, KEYS, QUERIES};
use crate::kernels::simd::exp;
use crate::kernels::{multiply, Mat, MatMut, Panels};
use rayon::prelude::*;
use std::ops::Range;

/// Input of all tasks.
pub(super) struct Backward<'a> {
    op: &'a Mixture,
    size: Sizes,
    q: &'a [f32],
    dout: &'a [f32],
    /// K^T, (d, T), and K, (T, d), of every key head; V^T of every value head.
    k_t: Vec<Panels>,
    k: Vec<Panels>,
    v_t: Vec<Panels>,
    /// dOut . Out of every row, (B, T, H), and dOut . (map 2 V), empty for one map.
    out_dots: Vec<f32>,
    second_dots: Vec<f32>,
}

/// Addends of one head to the gradients: dq (T, padded d) and dk (T, d) of each map, and dv (T, value width).
struct Parts {
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<f32>,
}

/// Reused blocks, each (queries, KEYS).
struct BackwardBuffers {
    /// Gradient of the mixed map.
    dp: Vec<f32>,
    /// The mixed map.
    mixed: Vec<f32>,
    /// Logits of one map, then their gradient.
    ds: Vec<f32>,
}

impl Default for BackwardBuffers {
    fn default() -> Self {
        let [dp, mixed, ds] = [(); 3].map(|()| vec![0.0; QUERIES * KEYS]);
        Self { dp, mixed, ds }
    }
}

/// Numbers of the rows of a tile, for one map.
struct MapRows<'a> {
    log_sums: &'a [f32],
    /// Row sums of P * dP.
    dots: &'a [f32],
    /// 1, or -lambda.
    mix: &'a [f32],
}

/// One map of a head.
struct BackwardMap {
    /// Scaled queries: (T, d).
    q: Vec<f32>,
    dots: Vec<f32>,
    mix: Vec<f32>,
}

impl<'a> Backward<'a> {
    pub(super) fn new(op: &'a Mixture, size: Sizes, [q, k, v, out, dout]: [&'a [f32]; 5]) -> Self {
        Self {
            op,
            size,
            q,
            dout,
            k_t: size.pack(k, size.k_heads, true),
            k: size.pack(k, size.k_heads, false),
            v_t: size.pack(v, size.v_heads, true),
            out_dots: all_row_dots(dout, out, size.width()),
            second_dots: all_row_dots(&dout[..op.kept().second.len()], &op.kept().second, size.width()),
        }
    }

    /// The gradients of q, k and v, in their shapes.
    pub(super) fn gradients(&self) -> [Vec<f32>; 3] {
        let size = &self.size;
        let wiring = &self.op.wiring;
        let parts: Vec<Parts> =
            size.tasks().map_init(BackwardBuffers::default, |buffers, task| self.head(buffers, task)).collect();
        let mut q = Vec::new();
        let mut k = Vec::new();
        let mut v = Vec::new();
        for (task, parts) in parts.iter().enumerate() {
            let entry = task / size.heads;
            let h = task % size.heads;
            for j in 0..wiring.maps() {
                q.push(Share { entry, head: wiring.query[j][h], values: &parts.q[j], stride: size.padded() });
                k.push(Share { entry, head: wiring.key[j][h], values: &parts.k[j], stride: size.d });
            }
            for (piece, &head) in wiring.value[h].iter().enumerate() {
                v.push(Share { entry, head, values: &parts.v[piece * size.d..], stride: size.width() });
            }
        }
        [join(size, size.q_heads, &q), join(size, size.k_heads, &k), join(size, size.v_heads, &v)]
    }

    fn head(&self, buffers: &mut BackwardBuffers, task: Task) -> Parts {
        let size = &self.size;
        let maps = self.op.wiring.maps();
        let mut parts = Parts {
            q: vec![vec![0.0; size.t * size.padded()]; maps],
            k: vec![vec![0.0; size.t * size.d]; maps],
            v: vec![0.0; size.t * size.width()],
        };
        let maps: Vec<BackwardMap> = (0..maps).map(|j| self.map(task, j)).collect();
        for block in pieces(size.t, KEYS) {
            for tile in size.tiles().filter(|tile| tile.end > block.start) {
                let keys = block.start..block.end.min(tile.end);
                self.block(task, &maps, buffers, &tile, &keys, &mut parts);
            }
        }
        parts.q.iter_mut().flatten().for_each(|dq| *dq *= self.op.scale);
        parts
    }

    fn map(&self, Task { entry, head }: Task, j: usize) -> BackwardMap {
        let size = &self.size;
        let op = self.op;
        let q = size.scaled(self.q, size.q_heads, entry, op.wiring.query[j][head], op.scale);
        let mut dots = Vec::with_capacity(size.t);
        let mut mix = Vec::with_capacity(size.t);
        for row in entry * size.t..(entry + 1) * size.t {
            let at = row * size.heads + head;
            let lambda = op.scalars.lambda(row, head);
            match j {
                0 if op.wiring.maps() == 1 => dots.push(self.out_dots[at]),
                // Out = map 1 V - lambda map 2 V
                0 => dots.push(self.out_dots[at] + lambda * self.second_dots[at]),
                _ => dots.push(self.second_dots[at]),
            }
            mix.push(if j == 0 { 1.0 } else { -lambda });
        }
        BackwardMap { q, dots, mix }
    }

    /// Adds the contribution of a block of queries and keys.
    fn block(
        &self,
        Task { entry, head }: Task,
        maps: &[BackwardMap],
        buffers: &mut BackwardBuffers,
        tile: &Range<usize>,
        keys: &Range<usize>,
        parts: &mut Parts,
    ) {
        let size = &self.size;
        let wiring = &self.op.wiring;
        let d = size.d;
        let n = tile.len();
        let m = keys.len();
        let dout = |piece: usize| size.rows(self.dout, size.out_slices(), entry, head * size.slices + piece, tile);
        for (piece, value) in wiring.value[head].iter().enumerate() {
            let dp = Target { data: &mut buffers.dp, rows: n, stride: KEYS };
            let v_t = &self.v_t[entry * size.v_heads + value];
            multiply_panels(dp, piece > 0, dout(piece), v_t, 0..d, keys.clone());
        }
        for (j, map) in maps.iter().enumerate() {
            let key_head = entry * size.k_heads + wiring.key[j][head];
            let q = Mat::new(&map.q[tile.start * d..], n, d, d);
            let logits = Target { data: &mut buffers.ds, rows: n, stride: KEYS };
            multiply_panels(logits, false, q, &self.k_t[key_head], 0..d, keys.clone());
            let log_sums = &self.op.kept().log_sums[entry * size.heads + head][j][tile.clone()];
            let rows = MapRows { log_sums, dots: &map.dots[tile.clone()], mix: &map.mix[tile.clone()] };
            logit_gradients(buffers, &rows, j > 0, m, tile.start + 1, keys.start);
            let ds = Mat::new(&buffers.ds, n, m, KEYS);
            let dq = Target { data: &mut parts.q[j][tile.start * size.padded()..], rows: n, stride: size.padded() };
            multiply_panels(dq, true, ds, &self.k[key_head], keys.clone(), 0..d);
            multiply(MatMut::new(&mut parts.k[j][keys.start * d..], m, d, d), true, ds.t(), q);
        }
        for piece in 0..size.slices {
            let dv = MatMut::new(&mut parts.v[keys.start * size.width() + piece * d..], m, d, size.width());
            multiply(dv, true, Mat::new(&buffers.mixed, n, m, KEYS).t(), dout(piece));
        }
    }
}

/// Replaces logits by their gradients mix P * (dP - rowsum(P * dP)), and adds mix P to the mixed map, or sets it
/// without `add`. Row i sees the keys before `first_end + i`. The first column is key `first_key`.
#[pulp::with_simd(logit_gradients = pulp::Arch::new())]
#[inline(always)]
fn logit_gradients_simd<'a, S: pulp::Simd>(
    _simd: S,
    buffers: &'a mut BackwardBuffers,
    rows: &'a MapRows<'a>,
    add: bool,
    columns: usize,
    first_end: usize,
    first_key: usize,
) {
    let blocks =
        buffers.ds.chunks_exact_mut(KEYS).zip(buffers.mixed.chunks_exact_mut(KEYS)).zip(buffers.dp.chunks_exact(KEYS));
    for (i, ((ds, mixed), dp)) in blocks.take(rows.mix.len()).enumerate() {
        let visible = (first_end + i).saturating_sub(first_key).min(columns);
        let log_sum = rows.log_sums[i];
        let dot = rows.dots[i];
        let mix = rows.mix[i];
        let ds = &mut ds[..columns];
        let mixed = &mut mixed[..columns];
        let dp = &dp[..columns];
        for ((ds, mixed), dp) in ds[..visible].iter_mut().zip(&mut mixed[..visible]).zip(&dp[..visible]) {
            let p = mix * exp(*ds - log_sum);
            *mixed = if add { *mixed + p } else { p };
            *ds = p * (dp - dot);
        }
        ds[visible..].fill(0.0);
        mixed[visible..].fill(0.0);
    }
}
