//! Keys and values of a prompt's tokens in one layer, kept as tensors or packed for the kernel.

use super::values::packed_values;
use crate::kernels::{with_values, Mat, Packed, PairPanels, Panels, Products, PANEL};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Keys and values of one layer for the tokens of one prompt.
#[derive(Clone)]
pub(super) struct LayerKeys {
    /// (1, T, key heads, d)
    pub(super) k: Tensor,
    /// (1, T, value heads, d)
    pub(super) v: Tensor,
}

impl LayerKeys {
    /// Packs the tokens 0..`end`.
    pub(super) fn packed(&self, end: usize, products: Products) -> Result<PackedKeys> {
        let (k_heads, v_heads, d) = (self.k.dim(2)?, self.v.dim(2)?, self.k.dim(3)?);
        let pack = |[k, v]: [&[f32]; 2]| {
            PackedKeys::new(&k[..end * k_heads * d], &v[..end * v_heads * d], (k_heads, v_heads, d), 0, products)
        };
        with_values([&self.k, &self.v], pack)
    }

    /// Keys and values of a range of tokens: (tokens, heads, d) each.
    pub(super) fn rows(&self, tokens: Range<usize>) -> Result<[Vec<f32>; 2]> {
        let rows = |x: &Tensor| -> Result<Vec<f32>> {
            let row = x.dim(2)? * x.dim(3)?;
            with_values([x], |[x]| x[tokens.start * row..tokens.end * row].to_vec())
        };
        Ok([rows(&self.k)?, rows(&self.v)?])
    }
}

/// Keys and values of consecutive tokens, packed by head.
pub(super) struct PackedKeys {
    /// Position of the first token, at the beginning of a panel of keys.
    pub(super) first: usize,
    /// K^T of every key head: (d, tokens).
    k: Vec<Packed>,
    /// V of every value head: (tokens, d).
    pub(super) v: Vec<Panels>,
    /// V for products of `bf16`; empty otherwise.
    v_pairs: Vec<PairPanels>,
}

impl PackedKeys {
    /// Packs keys (tokens, key heads, d) and values (tokens, value heads, d) of tokens from position `first` on.
    pub(super) fn new(
        k: &[f32],
        v: &[f32],
        (k_heads, v_heads, d): (usize, usize, usize),
        first: usize,
        products: Products,
    ) -> Self {
        assert!(first.is_multiple_of(PANEL), "packed keys begin with a panel");
        let tokens = k.len() / (k_heads * d);
        fn of_head(x: &[f32], head: usize, [tokens, heads, d]: [usize; 3]) -> Mat<'_> {
            Mat::new(&x[head * d..], tokens, d, heads * d)
        }
        let pack_keys = |head: usize| Packed::new(of_head(k, head, [tokens, k_heads, d]).t(), products);
        let pack_pairs = |head: usize| PairPanels::new(of_head(v, head, [tokens, v_heads, d]));
        let paired_heads = if products == Products::Bf16 { 0..v_heads } else { 0..0 };
        Self {
            first,
            k: (0..k_heads).into_par_iter().map(pack_keys).collect(),
            v: packed_values(v, v_heads, d),
            v_pairs: paired_heads.into_par_iter().map(pack_pairs).collect(),
        }
    }

    /// Keys of a head, and the index of the panel that begins with the key at `position`.
    pub(super) fn panel(&self, head: usize, position: usize) -> (&Packed, usize) {
        (&self.k[head], (position - self.first) / PANEL)
    }

    /// Values of a head for products of `bf16`; `None` for others.
    pub(super) fn pairs(&self, head: usize) -> Option<&PairPanels> {
        self.v_pairs.get(head)
    }
}
