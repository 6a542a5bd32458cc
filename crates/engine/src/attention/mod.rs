//! Attention. Every variant is a signed mixture of softmax rows over shared values.
//!
//! ```text
//! row[h,t,s] = sum_j mix[h,j,t] * softmax_s( scale * q[h,j,t] . k[h,j,s] )        t - window < s <= t
//! out[h,t]   = finish( sum_s row[h,t,s] * v[h,s] )
//! ```
//!
//! Some families cap the logits or hide keys beyond a window, described by a [`LogitRule`]. Some have sinks: one logit
//! per head that counts in the denominator of the softmax and has no value.
//!
//! A [`Variant`] is data: the heads that each map reads ([`Wiring`]), the mix, and the processing of the output
//! ([`Extras`]). Rows exist only inside the implementations of [`Attend`].
//!
//! | implementation | purpose | memory |
//! |---|---|---|
//! | [`Stream`] | measuring: passes rows to probes, which do not change the output | O(T) |
//! | [`Continuations`] | measuring: passes over texts that begin alike, from the first row that differs | O(T) |
//! | [`Cached`] | decoding: keeps keys and values, and computes one row for each token | O(T) |
//! | [`Fused`] | training: differentiable, recomputes maps in the backward pass | O(T) |
//! | `LastRows` | attribution: differentiable, the last rows of a text behind constant keys and values | O(T) |
//!
//! They are tested against a reference that computes whole maps (`tests/suite/dense.rs`). All have kernels for `f32` on
//! the CPU. On a GPU or in `bf16` or `f64`, [`Stream`] and [`Fused`] use candle's own ops (`portable.rs`): a tile of
//! queries of all heads at a time, with the wanted rows copied to the host. [`Cached`] keeps its cache on the host.
//! [`Continuations`] have only the kernels.

mod blocks;
mod cached;
mod describe;
mod extras;
mod fused;
mod keys;
mod last_rows;
mod packed_layer;
mod portable;
mod prefix;
mod probes;
mod stream;
mod tile;
mod trace;
mod treat;
mod variant;
mod wiring;

pub use cached::Cached;
pub(crate) use extras::TensorInit;
pub use extras::{Extras, LayerSizes};
pub use fused::Fused;
pub use keys::Values;
pub(crate) use last_rows::LastRows;
pub use last_rows::Written;
pub use portable::kept_bytes;
pub use prefix::{Continuations, Prefix};
pub use probes::{AttentionRow, ProbeResult, ResidualProbe, RowCollector, RowProbe};
pub use stream::{HeadOutputSums, NeededRows, Stream};
pub(crate) use tile::TILE;
pub use trace::Trace;
pub use treat::{KeyRemoval, OutputReplacement, ResolvedTreatment};
pub use variant::{
    Factor, Gate, HeadNorm, Keys, Lambda, LambdaInit, LambdaStart, Pairing, Sink, ValueWidth, Variant, VariantName,
};
pub use wiring::Wiring;

use crate::kernels::numbers;
use candle_core::{Result, Tensor};
use half::bf16;

/// Computation of logits from q . k, and visibility of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitRule {
    /// Factor on every q . k, usually 1/sqrt(d).
    pub scale: f32,
    /// Soft cap c of the scaled logits: c tanh(x / c) (Gemma 2).
    pub softcap: Option<f32>,
    /// Number of visible keys, including the query's own; `None` for all keys before it.
    pub window: Option<usize>,
    /// Bias of logits by distance, added after the soft cap (ALiBi: BLOOM, MPT).
    pub alibi: Option<Alibi>,
}

/// Bias of the logits by distance (ALiBi, arXiv 2108.12409).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alibi {
    /// slope (key - query).
    Exact,
    /// scale (round(slope key) - round(slope query)), with the scale of the logits and products rounded to bfloat16 (Falcon).
    Rounded,
}

/// Bias of the logits of one head.
#[derive(Clone, Copy, Debug)]
pub struct DistanceBias {
    slope: f32,
    alibi: Alibi,
    scale: f32,
}

impl DistanceBias {
    /// Bias of a key in the row of a query that is not before it.
    pub fn of(self, query: usize, key: usize) -> f64 {
        match self.alibi {
            Alibi::Exact => -(f64::from(self.slope) * (query - key) as f64),
            Alibi::Rounded => f64::from(self.scale) * f64::from(self.rounded(key) - self.rounded(query)),
        }
    }

    /// The product of slope and position, as computed in bfloat16.
    fn rounded(self, position: usize) -> f32 {
        let product = bf16::from_f32(self.slope).to_f32() * bf16::from_f32(position as f32).to_f32();
        bf16::from_f32(product).to_f32()
    }
}

impl LogitRule {
    /// Creates a rule with scale 1/sqrt(d), no cap and no window.
    pub fn plain(head_dim: usize) -> Self {
        Self { scale: (1.0 / (head_dim as f64).sqrt()) as f32, softcap: None, window: None, alibi: None }
    }

    /// Bias of the logits of one of `heads` query heads; `None` without ALiBi. The slopes of 2^n heads are 2^(-8 i /
    /// 2^n) for i from 1. Other numbers of heads have those of half the next power of two, and then those between them.
    pub fn bias(&self, head: usize, heads: usize) -> Option<DistanceBias> {
        let power = heads.next_power_of_two();
        let i = match head {
            _ if power == heads => head + 1,
            _ if head < power / 2 => 2 * (head + 1),
            _ => 2 * (head - power / 2) + 1,
        };
        let slope = (-8.0 * i as f32 / power as f32).exp2();
        self.alibi.map(|alibi| DistanceBias { slope, alibi, scale: self.scale })
    }

    /// The first key that `query` sees. The last is its own.
    pub fn first_visible(&self, query: usize) -> usize {
        self.window.map_or(0, |window| (query + 1).saturating_sub(window))
    }
}

/// Projections of one layer's input.
pub struct Heads<'a> {
    /// Queries, rotated: (B, T, query heads, d).
    pub q: Tensor,
    /// Keys, rotated: (B, T, key heads, d).
    pub k: Tensor,
    /// Values in slices of the head width: (B, T, value heads, d). The number of heads can differ from that of keys.
    pub v: Tensor,
    /// Weight of the second map, which is subtracted: one number (1), one per head (H), or one per token and head (B,
    /// T, H). `None` for one map.
    pub lambda: Option<Tensor>,
    /// Sink logit of every query head, which no value belongs to: (query heads).
    pub sink: Option<Tensor>,
    /// Output gate that the layer will apply later: (B, T, H x value width). Observed only.
    pub gate: Option<Tensor>,
    /// Query, key and value heads of each output head.
    pub wiring: &'a Wiring,
    /// Computation of logits.
    pub rule: LogitRule,
}

impl Heads<'_> {
    /// Lambda and sinks as numbers.
    fn scalars(&self) -> Result<HeadScalars> {
        Ok(HeadScalars {
            lambda: self.lambda.as_ref().map(numbers).transpose()?,
            sink: self.sink.as_ref().map(numbers).transpose()?,
            heads: self.wiring.heads(),
        })
    }
}

/// Lambda and sinks of a layer as numbers.
#[derive(Clone, Debug, Default)]
struct HeadScalars {
    /// (1), (H) or (B, T, H).
    lambda: Option<Vec<f32>>,
    /// (query heads)
    sink: Option<Vec<f32>>,
    heads: usize,
}

impl HeadScalars {
    /// Lambda of an output head in a row, counted through the batch; 0 for one map.
    fn lambda(&self, row: usize, head: usize) -> f32 {
        // Shorter lists repeat.
        self.lambda.as_ref().map_or(0.0, |lambda| lambda[(row * self.heads + head) % lambda.len()])
    }

    /// Weights of the maps of an output head in a row.
    fn mix(&self, row: usize, head: usize) -> [f32; 2] {
        [1.0, -self.lambda(row, head)]
    }

    /// The sink of a query head.
    fn sink(&self, query_head: usize) -> Option<f32> {
        self.sink.as_ref().map(|sink| sink[query_head])
    }
}

/// Computation of the mixture, with access to intermediate values of the model.
pub trait Attend {
    /// Receives the projections of a layer. Returns those to attend with.
    fn head_inputs<'h>(&mut self, _layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        Ok(heads)
    }

    /// Computes the mixture of one layer before `finish`: (B, T, H, value width).
    ///
    /// # Errors
    /// If shapes do not fit the wiring, or the device fails.
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor>;

    /// For each row, `true` if the output of the layer is used. `None` if all rows are.
    fn needed(&self, _layer: usize) -> Option<&[bool]> {
        None
    }

    /// Receives the outputs of the heads of a layer, after `finish` and before the output projection: (B, T, H, value
    /// width). Returns the tensor to continue with.
    fn head_outputs(&mut self, _layer: usize, heads: Tensor) -> Result<Tensor> {
        Ok(heads)
    }

    /// Receives the attention output of a layer (B, T, E), before any norm after it.
    fn attention_output(&mut self, _layer: usize, _x: &Tensor) -> Result<()> {
        Ok(())
    }

    /// Receives the residual stream (B, T, E): site 0 is the embeddings, site l + 1 the output of layer l.
    fn residual(&mut self, _site: usize, _x: &Tensor) -> Result<()> {
        Ok(())
    }
}
