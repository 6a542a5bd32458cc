//! Keys and values of consecutive tokens in one layer, packed for the kernel.

use super::values::packed_values;
use crate::kernels::{Mat, Packed, PairPanels, Panels, Products, PANEL};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of memory that are added at once where tokens follow one at a time.
const ROOM: usize = 64;

/// Keys and values of consecutive tokens, packed by head.
pub(super) struct PackedKeys {
    /// Position of the first token, at the beginning of a panel of keys.
    pub(super) first: usize,
    /// Position after the last token.
    pub(super) end: usize,
    d: usize,
    /// Tokens that there is memory for.
    room: usize,
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
        let paired_heads = if products == Products::Bf16 { 0..v_heads } else { 0..0 };
        Self {
            first,
            end: first + tokens,
            d,
            room: tokens,
            k: (0..k_heads)
                .into_par_iter()
                .map(|head| Packed::new(of_head(k, head, k_heads, d).t(), products))
                .collect(),
            v: packed_values(v, v_heads, d),
            v_pairs: paired_heads.into_par_iter().map(|head| PairPanels::new(of_head(v, head, v_heads, d))).collect(),
        }
    }

    /// Copies a range of tokens that begins with a panel, with memory for `more` tokens.
    pub(super) fn part(&self, tokens: Range<usize>, more: usize) -> Self {
        let rows = tokens.start - self.first..tokens.end - self.first;
        let panels = rows.start / PANEL..rows.end.div_ceil(PANEL);
        Self {
            first: tokens.start,
            end: tokens.end,
            d: self.d,
            room: tokens.len() + more,
            k: self.k.iter().map(|k| k.with_panels(panels.clone())).collect(),
            v: self.v.iter().map(|v| v.with_rows(rows.clone(), more)).collect(),
            v_pairs: self.v_pairs.iter().map(|v| v.with_rows(rows.clone(), more)).collect(),
        }
    }

    /// Adds keys (tokens, key heads, d) and values (tokens, value heads, d) of the next tokens. If there is no memory left
    /// for them, tokens before the panel of `needed` are dropped.
    pub(super) fn append(&mut self, k: &[f32], v: &[f32], needed: usize) {
        let d = self.d;
        for (k, v) in k.chunks_exact(self.k.len() * d).zip(v.chunks_exact(self.v.len() * d)) {
            if self.end - self.first == self.room {
                *self = self.part(needed / PANEL * PANEL..self.end, ROOM);
            }
            let token = self.end - self.first;
            for (packed, k) in self.k.iter_mut().zip(k.chunks_exact(d)) {
                k.iter().enumerate().for_each(|(channel, &x)| packed.set(channel, token, x));
            }
            for (packed, v) in self.v.iter_mut().zip(v.chunks_exact(d)) {
                v.iter().enumerate().for_each(|(channel, &x)| packed.set(token, channel, x));
            }
            for (packed, v) in self.v_pairs.iter_mut().zip(v.chunks_exact(d)) {
                v.iter().enumerate().for_each(|(channel, &x)| packed.set(token, channel, x));
            }
            self.end += 1;
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

/// One of the heads of x (tokens, heads, d): (tokens, d).
pub(super) fn of_head(x: &[f32], head: usize, heads: usize, d: usize) -> Mat<'_> {
    Mat::new(&x[head * d..], x.len() / (heads * d), d, heads * d)
}
