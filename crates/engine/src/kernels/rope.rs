//! Rotary position embedding (Su et al. 2021) in its two layouts, as a differentiable op.

use super::{has_kernels, in_chunks, slice, wide, with_values, ROWS_PER_TASK};
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use candle_nn::rotary_emb::{rope_i_slow, rope_slow};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which two channels of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RopeStyle {
    /// Channels (i, i + d/2): Llama, Hugging Face `diffllama`.
    Half,
    /// Channels (2i, 2i + 1): GPT-J, Microsoft's Differential Transformer files.
    Interleaved,
}

/// Cosine and sine of every position and frequency, both (positions, frequencies).
#[derive(Debug)]
pub struct RopeTable {
    cos: Vec<f32>,
    sin: Vec<f32>,
    pairs: usize,
}

impl RopeTable {
    /// Takes angles t * frequency for t < `positions`, in `f64`, and multiplies cosine and sine by `amplitude`.
    pub fn new(positions: usize, frequencies: &[f64], amplitude: f64) -> Self {
        let angles = (0..positions).flat_map(|t| frequencies.iter().map(move |f| t as f64 * f));
        let (sin, cos) = angles.map(|a| ((amplitude * a.sin()) as f32, (amplitude * a.cos()) as f32)).unzip();
        Self { cos, sin, pairs: frequencies.len() }
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.cos.len() / self.pairs
    }
}

struct Rope {
    table: Arc<RopeTable>,
    style: RopeStyle,
    start: usize,
}

/// Rotates every head of every token by its position, of which the first is `start`: x (B, T, heads, d) -> same shape.
/// Two channels for each frequency of the table are rotated; later channels are copied.
///
/// # Errors
/// If the positions exceed the table, d is too small for it, or x is not contiguous.
pub fn rope(x: &Tensor, table: &Arc<RopeTable>, style: RopeStyle, start: usize) -> Result<Tensor> {
    let (_, t, _, d) = x.dims4()?;
    if start + t > table.positions() || d < 2 * table.pairs {
        candle_core::bail!(
            "rope: {} positions of width {d}, table has {} of width {}",
            start + t,
            table.positions(),
            2 * table.pairs
        );
    }
    let rope = Rope { table: table.clone(), style, start };
    if has_kernels(x) {
        return x.apply_op1(rope);
    }
    rope.in_candle(&wide(x)?)?.to_dtype(x.dtype())
}

impl CustomOp1 for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slice(storage, layout, "rope")?;
        Ok((CpuStorage::F32(self.rotate(x, layout.shape().dims(), 1.0)), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        // The gradient of a rotation is the rotation by the opposite angle.
        let dx = with_values([dy], |[dy]| self.rotate(dy, x.dims(), -1.0))?;
        Ok(Some(Tensor::from_vec(dx, x.shape(), x.device())?))
    }
}

impl Rope {
    /// Rotation in candle's ops: x (B, T, heads, d) -> same shape.
    fn in_candle(&self, x: &Tensor) -> Result<Tensor> {
        let (_, t, _, d) = x.dims4()?;
        let pairs = self.table.pairs;
        let rows = |values: &[f32]| {
            let values = &values[self.start * pairs..(self.start + t) * pairs];
            Tensor::from_slice(values, (t, pairs), x.device())?.to_dtype(x.dtype())
        };
        let cos = rows(&self.table.cos)?; // T,pairs
        let sin = rows(&self.table.sin)?; // T,pairs
        let rotate = match self.style {
            RopeStyle::Half => rope_slow,
            RopeStyle::Interleaved => rope_i_slow,
        };
        let by_head = x.narrow(3, 0, 2 * pairs)?.transpose(1, 2)?.contiguous()?; // B,heads,T,2 pairs
        let rotated = rotate(&by_head, &cos, &sin)?.transpose(1, 2)?; // B,T,heads,2 pairs
        if d == 2 * pairs {
            return rotated.contiguous();
        }
        Tensor::cat(&[&rotated, &x.narrow(3, 2 * pairs, d - 2 * pairs)?], 3)
    }

    /// Rotation by the angles of the table, or by the opposite ones if `direction` is -1: x of `dims` (B, T, heads, d).
    fn rotate(&self, x: &[f32], dims: &[usize], direction: f32) -> Vec<f32> {
        let t = dims[1];
        let heads = dims[2];
        let d = dims[3];
        let pairs = self.table.pairs;
        let width = heads * d;
        in_chunks(x.len(), ROWS_PER_TASK * width, |task, y| {
            let rows = x[task * ROWS_PER_TASK * width..].chunks(width);
            for (i, (y, x)) in y.chunks_mut(width).zip(rows).enumerate() {
                let at = (self.start + (task * ROWS_PER_TASK + i) % t) * pairs;
                let cos = &self.table.cos[at..at + pairs];
                let sin = &self.table.sin[at..at + pairs];
                match self.style {
                    RopeStyle::Half => rotate_halves(x, d, cos, sin, direction, y),
                    RopeStyle::Interleaved => rotate_neighbours(x, d, cos, sin, direction, y),
                }
            }
        })
    }
}

/// All heads of one token: (heads, d), cos and sin (frequencies).
#[pulp::with_simd(rotate_halves = pulp::Arch::new())]
#[inline(always)]
fn rotate_halves_simd<'a, S: pulp::Simd>(
    _simd: S,
    x: &'a [f32],
    d: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    direction: f32,
    y: &'a mut [f32],
) {
    let pairs = cos.len();
    for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
        y[2 * pairs..].copy_from_slice(&x[2 * pairs..]);
        let (x1, x2) = x.split_at(pairs);
        let (y1, y2) = y.split_at_mut(pairs);
        let x1 = &x1[..pairs];
        let x2 = &x2[..pairs];
        let y1 = &mut y1[..pairs];
        let y2 = &mut y2[..pairs];
        for i in 0..pairs {
            let s = sin[i] * direction;
            y1[i] = x1[i] * cos[i] - x2[i] * s;
            y2[i] = x2[i] * cos[i] + x1[i] * s;
        }
    }
}

fn rotate_neighbours(x: &[f32], d: usize, cos: &[f32], sin: &[f32], direction: f32, y: &mut [f32]) {
    let pairs = cos.len();
    for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
        y[2 * pairs..].copy_from_slice(&x[2 * pairs..]);
        for i in 0..pairs {
            let a = x[2 * i];
            let b = x[2 * i + 1];
            let s = sin[i] * direction;
            y[2 * i] = a * cos[i] - b * s;
            y[2 * i + 1] = b * cos[i] + a * s;
        }
    }
}
