//! The one seam: every attention variant is a signed mixture of softmax rows over shared values.
//!
//! ```text
//! row[h,t,s] = sum_j mix[h,j,t] * softmax_s( scale * q[h,j,t] . k[h,j,s] )        t - window < s <= t
//! out[h,t]   = finish( sum_s row[h,t,s] * v[h,s] )
//! ```
//!
//! Some families cap the logits or hide keys beyond a window: a [`LogitRule`]. Some have a sink: a logit of each head that
//! counts in the denominator of its softmax and that no value belongs to.
//!
//! A [`Variant`] is data: which heads the maps read ([`Wiring`]), what the mix is, and how the output is finished
//! ([`Extras`]). It never sees a row: rows exist only inside the implementations of [`Attend`].
//!
//! | implementation | for | memory |
//! |---|---|---|
//! | [`Stream`] | measuring: hands rows to probes as they pass, which changes no output | O(T) |
//! | [`Cached`] | decoding: remembers keys and values, and attends from one token at a time | O(T) |
//! | [`Fused`] | training: differentiable, recomputes maps in the backward pass | O(T) |
//! | [`Dense`] | the slow, obvious reference the others are tested against | O(T^2) |
//!
//! The first three have kernels for `f32` on the CPU. Elsewhere, on a GPU or in `bf16` or `f64`, [`Stream`] and [`Fused`] do the
//! same in candle's own ops (`portable.rs`): a tile of queries of all heads at a time, of which wanted rows are copied to the
//! host. [`Cached`] keeps its memory on the host.

mod blocks;
mod cached;
mod dense;
mod describe;
mod extras;
mod fused;
mod means;
mod pass;
mod portable;
mod stream;
mod tile;
mod trace;
mod treat;
mod values;
mod variant;
mod watched;
mod wiring;

pub use cached::Cached;
pub use dense::Dense;
pub use extras::{ExtraTensor, Extras, LayerSizes, Start};
pub use fused::Fused;
pub use means::WrittenSums;
pub use portable::{kept_bytes, portable_bytes};
pub use stream::{ResidualProbe, Row, RowProbe, RowSink, Selection, Sighting, Stream};
pub use tile::TILE;
pub use trace::Trace;
pub use treat::{Loss, Removal, Removed, Replaced, Treated};
pub use values::Values;
pub use variant::{
    Factor, HeadNorm, Keys, Lambda, LambdaInit, LambdaStart, Pairing, Sink, ValueWidth, Variant, VariantName,
};
pub use wiring::Wiring;

use crate::ops::{numbers, Products};
use crate::quant::Quantiser;
use candle_core::{Result, Tensor};
use std::collections::BTreeMap;

/// What is done to the logits of every map before its softmax.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantise {
    /// Bits and scope.
    pub quantiser: Quantiser,
    /// Keys by (layer, output head) that keep their logits and do not count for the scale: sinks.
    pub exempt: BTreeMap<(usize, usize), Vec<usize>>,
}

impl Quantise {
    /// The exempt keys of a head.
    pub fn exempt(&self, layer: usize, head: usize) -> &[usize] {
        self.exempt.get(&(layer, head)).map_or(&[], Vec::as_slice)
    }
}

/// How q . k becomes a logit, and which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitRule {
    /// Factor on every q . k, mostly 1/sqrt(d).
    pub scale: f32,
    /// Soft cap c of the scaled logits: c tanh(x / c) (Gemma 2).
    pub softcap: Option<f32>,
    /// Number of keys a query sees, itself included; nothing for all before it.
    pub window: Option<usize>,
}

impl LogitRule {
    /// Scale 1/sqrt(d), no cap, no window.
    pub fn plain(head_dim: usize) -> Self {
        Self { scale: (1.0 / (head_dim as f64).sqrt()) as f32, softcap: None, window: None }
    }

    /// The first key that `query` sees; the last is the query itself.
    pub fn first_visible(&self, query: usize) -> usize {
        self.window.map_or(0, |window| (query + 1).saturating_sub(window))
    }
}

/// What a variant projects one layer's input to.
pub struct Heads<'a> {
    /// Queries, rotated: (B, T, query heads, d).
    pub q: Tensor,
    /// Keys, rotated: (B, T, key heads, d).
    pub k: Tensor,
    /// Values in slices of the head width: (B, T, value heads, d). Not always as many heads as keys.
    pub v: Tensor,
    /// Weight of the second map, subtracted: nothing for one map, one number (1), one per head (H), or one per token and
    /// head (B, T, H).
    pub lambda: Option<Tensor>,
    /// A logit of every query head that no value belongs to: (query heads).
    pub sink: Option<Tensor>,
    /// What finished outputs will be multiplied with: (B, T, H x value width). It is here to be seen, and left alone.
    pub gate: Option<Tensor>,
    /// Which query, key and value heads each output head reads.
    pub wiring: &'a Wiring,
    /// How logits are made of queries and keys.
    pub rule: LogitRule,
    /// What the kernel for measuring multiplies: queries and keys, weights and values. Probes see `f32`.
    pub products: Products,
}

impl Heads<'_> {
    /// Lambda and sinks as numbers.
    fn small(&self) -> Result<Small> {
        let values = |x: &Option<Tensor>| x.as_ref().map(numbers).transpose();
        let (lambda, sink) = (values(&self.lambda)?, values(&self.sink)?);
        if sink.as_ref().is_some_and(|sink| sink.len() != self.q.dim(2).unwrap_or(0)) {
            candle_core::bail!("attention: {:?} sinks for the query heads of {:?}", self.sink, self.q.shape());
        }
        Ok(Small { lambda, sink, heads: self.wiring.heads() })
    }
}

/// The few numbers of a layer that weigh maps.
#[derive(Clone, Debug, Default)]
struct Small {
    /// (1), (H) or (B, T, H).
    lambda: Option<Vec<f32>>,
    /// (query heads)
    sink: Option<Vec<f32>>,
    heads: usize,
}

impl Small {
    /// Lambda of a row, counted through the batch, of an output head; 0 for one map.
    fn lambda(&self, row: usize, head: usize) -> f32 {
        // However many there are of them, they repeat.
        self.lambda.as_ref().map_or(0.0, |lambda| lambda[(row * self.heads + head) % lambda.len()])
    }

    /// Weights of the maps of a row of an output head.
    fn mix(&self, row: usize, head: usize) -> [f32; 2] {
        [1.0, -self.lambda(row, head)]
    }

    /// The sink of a query head.
    fn sink(&self, query_head: usize) -> Option<f32> {
        self.sink.as_ref().map(|sink| sink[query_head])
    }
}

/// A way to compute the mixture, with access to what the model passes on its way.
pub trait Attend {
    /// The mixture of one layer before `finish`: (B, T, H, value width).
    ///
    /// # Errors
    /// If shapes do not fit the wiring, or the device fails.
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor>;

    /// Whether anything is made of each row that a layer gives; nothing if all are needed, as mostly.
    fn needed(&self, _layer: usize) -> Option<&[bool]> {
        None
    }

    /// Called with what the heads of a layer write, after `finish` and before the output projection: (B, T, H, value width).
    /// Gives back what the layer goes on with.
    ///
    /// # Errors
    /// If the shape is another.
    fn written(&mut self, _layer: usize, heads: Tensor) -> Result<Tensor> {
        Ok(heads)
    }

    /// Called with what the attention of a layer gives (B, T, E), before any norm after it.
    ///
    /// # Errors
    /// Whatever the observer meets.
    fn attended(&mut self, _layer: usize, _x: &Tensor) -> Result<()> {
        Ok(())
    }

    /// Called with the residual stream (B, T, E): site 0 is the embeddings, site l + 1 the output of layer l.
    ///
    /// # Errors
    /// Whatever the observer meets.
    fn residual(&mut self, _site: usize, _x: &Tensor) -> Result<()> {
        Ok(())
    }
}
