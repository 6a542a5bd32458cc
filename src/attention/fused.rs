//! Attention for training: one differentiable op per map, which keeps only the log-sum-exp of each row and recomputes
//! maps tile by tile in the backward pass. A differential head is two calls that share V.

use super::{Attend, Heads, LogitRule, Wiring};
use crate::ops::simd::{causal_softmax, dot, exp};
use crate::ops::{multiply, multiply_add, slice, subtract_scaled, with_values, Mat, MatMut};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::{Arc, OnceLock};

/// Queries per tile: 64 rows x 4,096 keys of `f32` are 1 MiB, which stays in a core's second-level cache.
const TILE: usize = 64;

/// Computes the mixture with gradients.
pub struct Fused;

impl Attend for Fused {
    fn attend(&mut self, _layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let LogitRule { scale, softcap: None, window: None } = heads.rule else {
            candle_core::bail!("soft-capped or windowed attention cannot be trained");
        };
        let map = |j: usize| {
            let op = OneMap { wiring: Arc::new(heads.wiring.clone()), j, scale, log_sums: OnceLock::new() };
            heads.q.apply_op3(&heads.k, &heads.v, op)
        };
        match &heads.lambda {
            None => map(0),
            Some(lambda) => subtract_scaled(&map(0)?, &map(1)?, lambda),
        }
    }
}

/// softmax(scale * Q_j K_j^T) V for one j: q (B, T, QH, d), k (B, T, KH, d), v (B, T, VH, d) -> (B, T, H, value width).
struct OneMap {
    wiring: Arc<Wiring>,
    j: usize,
    scale: f32,
    /// (B, H, T), from the forward pass.
    log_sums: OnceLock<Vec<f32>>,
}

#[derive(Clone, Copy)]
struct Sizes {
    t: usize,
    q_heads: usize,
    k_heads: usize,
    v_heads: usize,
    heads: usize,
    slices: usize,
    d: usize,
}

impl Sizes {
    fn of(q: &Shape, k: &Shape, v: &Shape, wiring: &Wiring) -> Result<(usize, Self)> {
        let ((b, t, q_heads, d), (_, _, k_heads, _), (_, _, v_heads, _)) = (q.dims4()?, k.dims4()?, v.dims4()?);
        if k.dims() != [b, t, k_heads, d] || v.dims() != [b, t, v_heads, d] {
            candle_core::bail!("attention: q {q:?}, k {k:?} and v {v:?} do not fit");
        }
        let sizes = Self { t, q_heads, k_heads, v_heads, heads: wiring.heads(), slices: wiring.value_slices(), d };
        Ok((b, sizes))
    }
    fn q_row(&self) -> usize {
        self.q_heads * self.d
    }
    fn k_row(&self) -> usize {
        self.k_heads * self.d
    }
    fn v_row(&self) -> usize {
        self.v_heads * self.d
    }
    fn value_width(&self) -> usize {
        self.slices * self.d
    }
}

/// What one head of one batch entry reads, as views into the whole tensors.
struct HeadView<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: Vec<&'a [f32]>,
    size: Sizes,
    scale: f32,
}

impl HeadView<'_> {
    /// scale * Q K^T of queries start..end against keys 0..end, into `tile` of `end` columns.
    fn logits(&self, start: usize, end: usize, tile: &mut [f32]) {
        let s = &self.size;
        let q = Mat::new(&self.q[start * s.q_row()..], end - start, s.d, s.q_row());
        let k = Mat::new(self.k, end, s.d, s.k_row());
        multiply(MatMut::new(tile, end - start, end, end), self.scale, q, k.t());
    }

    fn forward(&self, out: &mut [f32], log_sums: &mut [f32]) {
        let (t, d, width) = (self.size.t, self.size.d, self.size.value_width());
        let mut tile = vec![0.0; TILE.min(t) * t];
        for start in (0..t).step_by(TILE) {
            let end = (start + TILE).min(t);
            self.logits(start, end, &mut tile);
            causal_softmax(&mut tile, end, start + 1, &mut log_sums[start..end]);
            for (piece, v) in self.v.iter().enumerate() {
                let out = MatMut::new(&mut out[start * width + piece * d..], end - start, d, width);
                multiply(out, 1.0, Mat::new(&tile, end - start, end, end), Mat::new(v, end, d, self.size.v_row()));
            }
        }
    }

    /// Gradients of q (T, d), k (T, d) and the value slices (T, value width) of this head alone.
    fn backward(&self, dout: &[f32], delta: &[f32], log_sums: &[f32]) -> [Vec<f32>; 3] {
        let (t, d, width) = (self.size.t, self.size.d, self.size.value_width());
        let out_row = self.size.heads * width;
        let (mut dq, mut dk, mut dv) = (vec![0.0; t * d], vec![0.0; t * d], vec![0.0; t * width]);
        let (mut p, mut ds) = (vec![0.0; TILE.min(t) * t], vec![0.0; TILE.min(t) * t]);
        for start in (0..t).step_by(TILE) {
            let end = (start + TILE).min(t);
            let n = end - start;
            self.logits(start, end, &mut p);
            for (piece, v) in self.v.iter().enumerate() {
                // dP = dOut V^T, summed over value slices
                let dout = Mat::new(&dout[start * out_row + piece * d..], n, d, out_row);
                let v = Mat::new(v, end, d, self.size.v_row()).t();
                let product = if piece == 0 { multiply } else { multiply_add };
                product(MatMut::new(&mut ds, n, end, end), 1.0, dout, v);
            }
            for i in 0..n {
                let row = i * end..(i + 1) * end;
                logit_gradient(&mut p[row.clone()], &mut ds[row], start + i + 1, log_sums[start + i], delta[start + i]);
            }
            let (p, ds) = (Mat::new(&p, n, end, end), Mat::new(&ds, n, end, end));
            let (q, k) = (
                Mat::new(&self.q[start * self.size.q_row()..], n, d, self.size.q_row()),
                Mat::new(self.k, end, d, self.size.k_row()),
            );
            multiply(MatMut::new(&mut dq[start * d..], n, d, d), self.scale, ds, k);
            multiply_add(MatMut::new(&mut dk, end, d, d), self.scale, ds.t(), q);
            for piece in 0..self.v.len() {
                let dout = Mat::new(&dout[start * out_row + piece * d..], n, d, out_row);
                multiply_add(MatMut::new(&mut dv[piece * d..], end, d, width), 1.0, p.t(), dout);
            }
        }
        [dq, dk, dv]
    }
}

/// Turns a row of logits into probabilities P, and a row of dP into dS = P * (dP - rowsum(dOut * Out)).
#[pulp::with_simd(logit_gradient = pulp::Arch::new())]
#[inline(always)]
fn logit_gradient_simd<'a, S: pulp::Simd>(
    _simd: S,
    p: &'a mut [f32],
    ds: &'a mut [f32],
    visible: usize,
    log_sum: f32,
    delta: f32,
) {
    for (p, ds) in p[..visible].iter_mut().zip(&mut ds[..visible]) {
        *p = exp(*p - log_sum);
        *ds = *p * (*ds - delta);
    }
    p[visible..].fill(0.0);
    ds[visible..].fill(0.0);
}

/// The dot product of every row of two (T, width) views whose rows start `stride` apart.
#[pulp::with_simd(row_dots = pulp::Arch::new())]
#[inline(always)]
fn row_dots_simd<'a, S: pulp::Simd>(
    _simd: S,
    a: &'a [f32],
    b: &'a [f32],
    width: usize,
    stride: usize,
    out: &'a mut [f32],
) {
    for (i, out) in out.iter_mut().enumerate() {
        let row = i * stride..i * stride + width;
        *out = dot(&a[row.clone()], &b[row]);
    }
}

impl OneMap {
    fn view<'a>(&self, size: Sizes, b: usize, h: usize, q: &'a [f32], k: &'a [f32], v: &'a [f32]) -> HeadView<'a> {
        let q_at = b * size.t * size.q_row() + self.wiring.query[self.j][h] * size.d;
        let k_at = b * size.t * size.k_row() + self.wiring.key[self.j][h] * size.d;
        let v_at = |head: usize| b * size.t * size.v_row() + head * size.d;
        HeadView {
            q: &q[q_at..],
            k: &k[k_at..],
            v: self.wiring.value[h].iter().map(|&head| &v[v_at(head)..]).collect(),
            size,
            scale: self.scale,
        }
    }
}

/// Adds or copies (T, d) blocks in and out of (T, heads, d) storage.
fn add_head(into: &mut [f32], row: usize, at: usize, from: &[f32], from_row: usize, from_at: usize, d: usize) {
    for (into, from) in into.chunks_exact_mut(row).zip(from.chunks_exact(from_row)) {
        into[at..at + d].iter_mut().zip(&from[from_at..from_at + d]).for_each(|(a, b)| *a += b);
    }
}

impl CustomOp3 for OneMap {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (q, k, v) = (slice(s1, l1, "attention")?, slice(s2, l2, "attention")?, slice(s3, l3, "attention")?);
        let (batch, size) = Sizes::of(l1.shape(), l2.shape(), l3.shape(), &self.wiring)?;
        let (t, width) = (size.t, size.value_width());
        let heads: Vec<(Vec<f32>, Vec<f32>)> = (0..batch * size.heads)
            .into_par_iter()
            .map(|task| {
                let (mut out, mut log_sums) = (vec![0.0; t * width], vec![0.0; t]);
                self.view(size, task / size.heads, task % size.heads, q, k, v).forward(&mut out, &mut log_sums);
                (out, log_sums)
            })
            .collect();
        let mut out = vec![0.0; batch * t * size.heads * width];
        for (task, (head, _)) in heads.iter().enumerate() {
            let (b, h) = (task / size.heads, task % size.heads);
            let entry = &mut out[b * t * size.heads * width..][..t * size.heads * width];
            add_head(entry, size.heads * width, h * width, head, width, 0, width);
        }
        // A second forward pass of the same op would only repeat the same numbers.
        let _ = self.log_sums.set(heads.into_iter().flat_map(|(_, log_sums)| log_sums).collect());
        Ok((CpuStorage::F32(out), Shape::from((batch, t, size.heads, width))))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (_, size) = Sizes::of(q.shape(), k.shape(), v.shape(), &self.wiring)?;
        let [dq, dk, dv] = with_values(q, "attention", |q| {
            with_values(k, "attention", |k| {
                with_values(v, "attention", |v| {
                    with_values(out, "attention", |out| {
                        with_values(dout, "attention", |dout| self.gradients(size, q, k, v, out, dout))
                    })
                })
            })
        })?????;
        let like = |values: Vec<f32>, x: &Tensor| Tensor::from_vec(values, x.shape(), x.device()).map(Some);
        Ok((like(dq, q)?, like(dk, k)?, like(dv, v)?))
    }
}

impl OneMap {
    fn gradients(&self, size: Sizes, q: &[f32], k: &[f32], v: &[f32], out: &[f32], dout: &[f32]) -> [Vec<f32>; 3] {
        let log_sums = self.log_sums.get().expect("backward runs after forward");
        let (t, d, heads, width) = (size.t, size.d, size.heads, size.value_width());
        let batch = q.len() / (t * size.q_row());
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
        // One batch entry at a time: its heads in parallel, their gradients added in order.
        let entries = dq.par_chunks_mut(t * size.q_row()).zip(dk.par_chunks_mut(t * size.k_row()));
        entries.zip(dv.par_chunks_mut(t * size.v_row())).enumerate().take(batch).for_each(|(b, ((dq, dk), dv))| {
            let parts: Vec<[Vec<f32>; 3]> = (0..heads)
                .into_par_iter()
                .map(|h| {
                    let at = b * t * heads * width + h * width;
                    let mut delta = vec![0.0; t];
                    row_dots(&dout[at..], &out[at..], width, heads * width, &mut delta);
                    let log_sums = &log_sums[(b * heads + h) * t..][..t];
                    self.view(size, b, h, q, k, v).backward(&dout[at..], &delta, log_sums)
                })
                .collect();
            for (h, [part_q, part_k, part_v]) in parts.iter().enumerate() {
                add_head(dq, size.q_row(), self.wiring.query[self.j][h] * d, part_q, d, 0, d);
                add_head(dk, size.k_row(), self.wiring.key[self.j][h] * d, part_k, d, 0, d);
                for (piece, &head) in self.wiring.value[h].iter().enumerate() {
                    add_head(dv, size.v_row(), head * d, part_v, width, piece * d, d);
                }
            }
        });
        [dq, dk, dv]
    }
}
