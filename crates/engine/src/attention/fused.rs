//! Attention for training: one differentiable op for all maps of a layer. It works on blocks of queries and keys that
//! fit in a core's cache, keeps only the log-sum-exp of every row, and recomputes the maps block by block in the
//! backward pass.
//!
//! The maps of a differential head weigh the same values, so they share two products of the backward pass: the gradient
//! of a map is dOut V^T, times -lambda for the second map, and the gradient of the values is (map 1 - lambda map 2)^T
//! dOut.

mod backward;
mod forward;

use super::portable::Portable;
use super::{Attend, HeadScalars, Heads, LogitRule, Wiring};
use crate::kernels::simd::dot;
use crate::kernels::{has_kernels, multiply_panel, slice, with_values, Mat, MatMut, Panels, PANEL, ROWS_PER_TASK};
use backward::Backward;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use forward::Forward;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Queries and keys of a block. A block takes 64 KiB, so that the blocks in use fit in a second-level cache.
const QUERIES: usize = 64;
const KEYS: usize = 256;

/// Attention with gradients, for training.
pub struct Fused;

impl Attend for Fused {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        if !has_kernels(&heads.q) {
            return Portable::new(heads, None, layer)?.mixture();
        }
        let LogitRule { scale, softcap: None, window: None, alibi: None } = heads.rule else {
            candle_core::bail!("soft-capped, windowed or biased attention cannot be trained");
        };
        let wiring = heads.wiring.clone();
        let scalars = heads.scalars()?;
        let kept = Arc::new(OnceLock::new());
        let mixture = Mixture { wiring: wiring.clone(), scalars: scalars.clone(), scale, kept: kept.clone() };
        let mut out = heads.q.apply_op3(&heads.k, &heads.v, mixture)?;
        if let Some(sink) = &heads.sink {
            out = out.apply_op2(sink, OfSink { wiring, scalars, kept: kept.clone() })?;
        }
        match &heads.lambda {
            None => Ok(out),
            Some(lambda) => out.apply_op2(lambda, OfLambda { kept }),
        }
    }
}

/// sum_j mix_j softmax(scale * Q_j K_j^T) V as a function of q (B, T, QH, d), k (B, T, KH, d) and v (B, T, VH, d) for a
/// given lambda and given sinks: (B, T, H, value width).
struct Mixture {
    wiring: Wiring,
    scalars: HeadScalars,
    scale: f32,
    kept: Arc<OnceLock<Kept>>,
}

/// Results of the forward pass that the backward pass needs.
struct Kept {
    /// log(sum(exp(logits))) of the rows of every task and map: (T).
    log_sums: Vec<Vec<Vec<f32>>>,
    /// Output of the second map alone, (B, T, H, value width); empty for one map.
    second: Vec<f32>,
}

/// The mixture as a function of lambda. candle's ops have at most three arguments.
struct OfLambda {
    kept: Arc<OnceLock<Kept>>,
}

/// The mixture as a function of the sinks.
struct OfSink {
    wiring: Wiring,
    scalars: HeadScalars,
    kept: Arc<OnceLock<Kept>>,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    t: usize,
    q_heads: usize,
    k_heads: usize,
    v_heads: usize,
    heads: usize,
    slices: usize,
    d: usize,
}

impl Sizes {
    fn of(q: &Shape, k: &Shape, v: &Shape, wiring: &Wiring) -> Result<Self> {
        let (batch, t, q_heads, d) = q.dims4()?;
        let (_, _, k_heads, _) = k.dims4()?;
        let (_, _, v_heads, _) = v.dims4()?;
        if k.dims() != [batch, t, k_heads, d] || v.dims() != [batch, t, v_heads, d] {
            candle_core::bail!("attention: q {q:?}, k {k:?} and v {v:?} do not fit");
        }
        Ok(Self { batch, t, q_heads, k_heads, v_heads, heads: wiring.heads(), slices: wiring.value_slices(), d })
    }
    /// Head width rounded up to whole panels.
    fn padded(&self) -> usize {
        self.d.next_multiple_of(PANEL)
    }
    /// Value width.
    fn width(&self) -> usize {
        self.slices * self.d
    }
    /// Slices of head width in the outputs of a token: (B, T, H, value width) as (B, T, slices, d).
    fn out_slices(&self) -> usize {
        self.heads * self.slices
    }
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> {
        pieces(self.t, QUERIES)
    }
    /// The parallel tasks.
    fn tasks(&self) -> impl IndexedParallelIterator<Item = Task> {
        let heads = self.heads;
        (0..self.batch * heads).into_par_iter().map(move |task| Task { entry: task / heads, head: task % heads })
    }
    /// Some rows of one of the `heads` of x (B, T, heads, d): (rows, d).
    fn rows<'a>(&self, x: &'a [f32], heads: usize, entry: usize, head: usize, rows: &Range<usize>) -> Mat<'a> {
        Mat::new(&x[((entry * self.t + rows.start) * heads + head) * self.d..], rows.len(), self.d, heads * self.d)
    }
    /// One of the heads of x (B, T, heads, d), times `factor`: (T, d).
    fn scaled(&self, x: &[f32], heads: usize, entry: usize, head: usize, factor: f32) -> Vec<f32> {
        let mut scaled = vec![0.0; self.t * self.d];
        let rows = x[(entry * self.t * heads + head) * self.d..].chunks(heads * self.d);
        for (to, from) in scaled.chunks_exact_mut(self.d).zip(rows) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = factor * from);
        }
        scaled
    }
    /// Packs every head of x (B, T, heads, d), as (T, d) or transposed as (d, T).
    fn pack(&self, x: &[f32], heads: usize, transposed: bool) -> Vec<Panels> {
        let panels = (0..self.batch * heads).into_par_iter().map(|i| {
            let head = self.rows(x, heads, i / heads, i % heads, &(0..self.t));
            Panels::new(if transposed { head.t() } else { head })
        });
        panels.collect()
    }
}

/// An output head of a batch entry.
#[derive(Clone, Copy)]
struct Task {
    entry: usize,
    head: usize,
}

/// Cuts 0..end into ranges of `length`, of which the last may be shorter.
fn pieces(end: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..end).step_by(length).map(move |start| start..(start + length).min(end))
}

/// `dst = a @ b`, or `dst += a @ b` with `add`, where b is a part of `panels` whose columns begin at a panel. Columns
/// of `dst` behind these, up to the end of their last panel, have unspecified values.
fn multiply_panels(dst: Target<'_>, add: bool, a: Mat<'_>, panels: &Panels, rows: Range<usize>, columns: Range<usize>) {
    for (i, panel) in (columns.start / PANEL..columns.end.div_ceil(PANEL)).enumerate() {
        let dst = MatMut::new(&mut dst.data[i * PANEL..], dst.rows, PANEL, dst.stride);
        multiply_panel(dst, add, a, panels.rows(panel, rows.clone()));
    }
}

/// The destination of panel products: rows that start `stride` apart.
struct Target<'a> {
    data: &'a mut [f32],
    rows: usize,
    stride: usize,
}

/// Output of one head, (T, d) with rows `stride` apart, for its place in a tensor (B, T, heads, d).
struct Share<'a> {
    entry: usize,
    head: usize,
    values: &'a [f32],
    stride: usize,
}

/// The sum of all shares, in their order: (B, T, heads, d).
fn join(size: &Sizes, heads: usize, shares: &[Share<'_>]) -> Vec<f32> {
    let row = heads * size.d;
    let d = size.d;
    let mut joined = vec![0.0; size.batch * size.t * row];
    joined.par_chunks_mut(size.t * row).enumerate().for_each(|(entry, joined)| {
        joined.par_chunks_mut(ROWS_PER_TASK * row).enumerate().for_each(|(chunk, rows)| {
            for share in shares.iter().filter(|share| share.entry == entry) {
                let from = &share.values[chunk * ROWS_PER_TASK * share.stride..];
                add_rows(&mut rows[share.head * d..], row, from, share.stride, d);
            }
        });
    });
    joined
}

/// The outputs of a map, from those of every task and map (T, padded value width): (B, T, H, value width).
fn join_outputs(size: &Sizes, outs: &[Vec<Vec<f32>>], map: usize) -> Vec<f32> {
    let padded = size.padded();
    let mut shares = Vec::new();
    for (task, of_maps) in outs.iter().enumerate() {
        for slice in 0..size.slices {
            let entry = task / size.heads;
            let head = task % size.heads * size.slices + slice;
            shares.push(Share { entry, head, values: &of_maps[map][slice * padded..], stride: size.slices * padded });
        }
    }
    join(size, size.out_slices(), &shares)
}

/// Adds rows of d numbers that start `from_row` apart to rows that start `to_row` apart.
#[pulp::with_simd(add_rows = pulp::Arch::new())]
#[inline(always)]
fn add_rows_simd<'a, S: pulp::Simd>(
    _simd: S,
    to: &'a mut [f32],
    to_row: usize,
    from: &'a [f32],
    from_row: usize,
    d: usize,
) {
    for (to, from) in to.chunks_mut(to_row).zip(from.chunks(from_row)) {
        to[..d].iter_mut().zip(&from[..d]).for_each(|(to, from)| *to += from);
    }
}

/// The dot products of the rows of a and b, both (rows, width).
#[pulp::with_simd(row_dots = pulp::Arch::new())]
#[inline(always)]
fn row_dots_simd<'a, S: pulp::Simd>(_simd: S, a: &'a [f32], b: &'a [f32], width: usize, dots: &'a mut [f32]) {
    for ((dot_of, a), b) in dots.iter_mut().zip(a.chunks_exact(width)).zip(b.chunks_exact(width)) {
        *dot_of = dot(a, b);
    }
}

/// [`row_dots`] in parallel.
fn all_row_dots(a: &[f32], b: &[f32], width: usize) -> Vec<f32> {
    let mut dots = vec![0.0; a.len() / width];
    let parts = a.par_chunks(ROWS_PER_TASK * width).zip(b.par_chunks(ROWS_PER_TASK * width));
    dots.par_chunks_mut(ROWS_PER_TASK).zip(parts).for_each(|(dots, (a, b))| row_dots(a, b, width, dots));
    dots
}

impl CustomOp3 for Mixture {
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
        let q = slice(s1, l1, "attention")?;
        let k = slice(s2, l2, "attention")?;
        let v = slice(s3, l3, "attention")?;
        let size = Sizes::of(l1.shape(), l2.shape(), l3.shape(), &self.wiring)?;
        let forward = Forward::new(self, size, q, k, v);
        let (outs, log_sums): (Vec<Vec<Vec<f32>>>, Vec<_>) =
            size.tasks().map_init(Default::default, |buffers, task| forward.head(buffers, task)).unzip();
        let second = if self.wiring.maps() > 1 { join_outputs(&size, &outs, 1) } else { Vec::new() };
        // A second forward pass of the op computes the same numbers.
        let _ = self.kept.set(Kept { log_sums, second });
        let shape = (size.batch, size.t, size.heads, size.width());
        Ok((CpuStorage::F32(join_outputs(&size, &outs, 0)), Shape::from(shape)))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let size = Sizes::of(q.shape(), k.shape(), v.shape(), &self.wiring)?;
        let [dq, dk, dv] = with_values([q, k, v, out, dout], |values| Backward::new(self, size, values).gradients())?;
        Ok((
            Some(Tensor::from_vec(dq, q.shape(), q.device())?),
            Some(Tensor::from_vec(dk, k.shape(), k.device())?),
            Some(Tensor::from_vec(dv, v.shape(), v.device())?),
        ))
    }
}

impl Mixture {
    fn kept(&self) -> &Kept {
        self.kept.get().expect("backward runs after forward")
    }
}

impl CustomOp2 for OfLambda {
    fn name(&self) -> &'static str {
        "attention of lambda"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, _: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, t, heads, _) = l1.shape().dims4()?;
        if l2.dims() != [1] && l2.dims() != [heads] && l2.dims() != [batch, t, heads] {
            candle_core::bail!("attention: lambda {:?} does not fit the output {:?}", l2.shape(), l1.shape());
        }
        Ok((CpuStorage::F32(slice(s1, l1, "attention")?.to_vec()), l1.shape().clone()))
    }

    /// d/d lambda = -dOut . (map 2 V), summed over the rows that share a lambda.
    fn bwd(
        &self,
        out: &Tensor,
        lambda: &Tensor,
        _: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let second = &self.kept.get().expect("backward runs after forward").second;
        let width = out.dim(3)?;
        let mut dots = with_values([dout], |[dout]| all_row_dots(dout, second, width))?;
        let numbers = lambda.elem_count();
        if numbers < dots.len() {
            let mut sums = vec![0.0_f64; numbers];
            for row in dots.chunks_exact(numbers) {
                sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            dots = sums.into_iter().map(|sum| sum as f32).collect();
        }
        dots.iter_mut().for_each(|x| *x = -*x);
        Ok((Some(dout.clone()), Some(Tensor::from_vec(dots, lambda.shape(), lambda.device())?)))
    }
}

impl CustomOp2 for OfSink {
    fn name(&self) -> &'static str {
        "attention of sinks"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(slice(s1, l1, "attention")?.to_vec()), l1.shape().clone()))
    }

    /// The weight of a sink in map j is p = exp(s - log_sum), and its value is zero: d/ds = -mix_j p (dOut . map j V),
    /// summed over the rows of all heads that read the query head.
    fn bwd(&self, out: &Tensor, sink: &Tensor, _: &Tensor, dout: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let kept = self.kept.get().expect("backward runs after forward");
        let (_, t, heads, width) = out.dims4()?;
        let (of_out, of_second) = with_values([out, dout], |[out, dout]| {
            let second = &kept.second;
            (all_row_dots(dout, out, width), all_row_dots(&dout[..second.len()], second, width))
        })?;
        let mut gradient = vec![0.0_f64; sink.elem_count()];
        for (task, log_sums) in kept.log_sums.iter().enumerate() {
            let entry = task / heads;
            let head = task % heads;
            for (j, log_sums) in log_sums.iter().enumerate() {
                let query_head = self.wiring.query[j][head];
                let logit = self.scalars.sink(query_head).unwrap_or(f32::NEG_INFINITY);
                for (query, log_sum) in log_sums.iter().enumerate() {
                    let row = entry * t + query;
                    let lambda = self.scalars.lambda(row, head);
                    let second = of_second.get(row * heads + head).copied().unwrap_or(0.0);
                    // Out = map 1 V - lambda map 2 V
                    let weighed = if j == 0 { of_out[row * heads + head] + lambda * second } else { -lambda * second };
                    gradient[query_head] -= f64::from((logit - log_sum).exp()) * f64::from(weighed);
                }
            }
        }
        let gradient: Vec<f32> = gradient.into_iter().map(|x| x as f32).collect();
        Ok((Some(dout.clone()), Some(Tensor::from_vec(gradient, sink.shape(), sink.device())?)))
    }
}
