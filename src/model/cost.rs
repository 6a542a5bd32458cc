//! What a forward pass costs, before it is made.

use super::transformer::MLP_ROWS;
use super::{Layer, ModelConfig};

/// Multiplications and additions of forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flops {
    /// That grow with the tokens: weights.
    pub linear: f64,
    /// That grow with the pairs of tokens a layer looks at: attention.
    pub attention: f64,
}

impl std::ops::Add for Flops {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { linear: self.linear + other.linear, attention: self.attention + other.attention }
    }
}

impl ModelConfig {
    /// Memory of one forward pass over `ctx_tok` tokens beside the weights, in bytes: what is alive at its widest point. That
    /// is while attention reads queries, keys and values, the latter two also packed, and its outputs are put in order; or
    /// the hidden layer of the MLP, for as many rows as pass at once. Two residual streams are there at any time.
    pub fn forward_bytes(&self, ctx_tok: usize) -> u64 {
        let kv = (self.key_heads() + self.kv_heads) * self.head_dim;
        let attention = 2 * self.width + self.query_heads() * self.head_dim + 2 * kv + 2 * self.attention_width();
        let rows = ctx_tok.min(MLP_ROWS);
        let hidden = if self.gated { 3 * self.ffn } else { 2 * self.ffn };
        let mlp = 3 * self.width * ctx_tok + (hidden + self.width) * rows;
        4 * (attention * ctx_tok).max(mlp) as u64
    }

    /// Work of one forward pass over `ctx_tok` tokens, about: two operations for each weight and token; of the attention
    /// the causal half, or the window. The embedding is looked up, and few rows pass the output head: they are left out.
    pub fn forward_flops(&self, ctx_tok: usize) -> Flops {
        let tokens = ctx_tok as f64;
        let embedding = self.vocab * self.width * if self.tied { 1 } else { 2 };
        let per_pair = (self.query_heads() * self.head_dim + self.attention_width()) as f64;
        let pairs = |layer: &Layer| match layer.rule.window {
            Some(window) if window < ctx_tok => tokens * window as f64,
            _ => tokens * tokens / 2.0,
        };
        Flops {
            linear: 2.0 * tokens * (self.parameters() - embedding) as f64,
            attention: 2.0 * per_pair * self.layers.iter().map(pairs).sum::<f64>(),
        }
    }
}
