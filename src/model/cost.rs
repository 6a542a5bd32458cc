//! What a forward pass costs, before it is made.

use super::block::MLP_ROWS;
use super::{Layer, ModelConfig};
use crate::attention::{portable_bytes, TILE};
use crate::pass::POSITIONS;

/// Multiplications and additions of forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flops {
    /// That grow with the tokens: weights.
    pub linear: f64,
    /// That grow with the pairs of tokens a layer looks at: attention.
    pub attention: f64,
}

impl Flops {
    /// All of them.
    pub fn sum(self) -> f64 {
        self.linear + self.attention
    }
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
    /// the hidden layer of the MLP, for as many rows as pass at once (of a mixture, if all of them chose one expert); or the
    /// logits of some positions at the end. Two residual streams are there at any time, and the weight that is being multiplied is there a second time, packed.
    pub fn forward_bytes(&self, ctx_tok: usize) -> u64 {
        let kv = (self.key_heads() + self.kv_heads) * self.head_dim;
        let outputs = if self.variant.gate { 3 } else { 2 } * self.attention_width();
        let attention = 2 * self.width + self.query_heads() * self.head_dim + 2 * kv + outputs;
        let rows = ctx_tok.min(MLP_ROWS);
        let ffn = self.widest_ffn();
        let mixture = self.experts.map_or(0, |experts| 4 * self.width + 2 * experts.count);
        let hidden = mixture + if self.gated { 3 * ffn } else { 2 * ffn };
        let mlp = 3 * self.width * ctx_tok + (hidden + self.width) * rows;
        let logits = if self.final_softcap.is_some() { 3 * self.vocab } else { self.vocab };
        let head = self.width * ctx_tok + logits * POSITIONS.min(ctx_tok);
        let packed = self.width * ffn.max(self.query_heads() * self.head_dim);
        4 * ((attention * ctx_tok).max(mlp).max(head) + packed) as u64
    }

    /// The same of a pass in candle's own ops, with numbers of `bytes`: queries, keys and values are there once more, gathered
    /// by output head, and a tile of the logits of all heads; functions of the hidden layer are made step by step.
    pub fn portable_bytes(&self, ctx_tok: usize, bytes: u64) -> u64 {
        let wide = bytes.max(4); // what sums are taken in
        let wiring = self.wiring();
        let gathered = 2 * wiring.maps() * wiring.heads() * self.head_dim + self.attention_width();
        let hidden = 3 * self.widest_ffn() * ctx_tok.min(MLP_ROWS);
        let beside = wide * (gathered * ctx_tok + hidden) as u64;
        self.forward_bytes(ctx_tok) / 4 * wide + beside + self.tile_bytes_of_candle(ctx_tok, wide)
    }

    /// Memory of the host for a pass on another device, in bytes: rows of attention that are looked at, values, and a residual
    /// stream.
    pub fn copied_bytes(&self, ctx_tok: usize) -> u64 {
        let values = 2 * self.kv_heads * self.head_dim;
        4 * ((values + 2 * self.width) * ctx_tok) as u64 + self.tile_bytes_of_candle(ctx_tok, 4)
    }

    fn tile_bytes_of_candle(&self, ctx_tok: usize, bytes: u64) -> u64 {
        let wiring = self.wiring();
        portable_bytes(wiring.heads(), wiring.maps(), ctx_tok, bytes as usize)
    }

    /// Memory of all weights as `f32`, in bytes.
    pub fn weights_bytes(&self) -> u64 {
        4 * self.parameters() as u64
    }

    /// Memory of each thread for the rows of attention it works on, in bytes.
    pub fn tile_bytes(&self, ctx_tok: usize) -> u64 {
        4 * (self.wiring().maps() * TILE * ctx_tok) as u64
    }

    /// The widest hidden layer of an MLP.
    fn widest_ffn(&self) -> usize {
        let all = self.layers.iter().all(|layer| layer.experts);
        let dense = if all && self.experts.is_some() { 0 } else { self.ffn };
        self.experts.map_or(dense, |experts| dense.max(experts.ffn).max(experts.shared.unwrap_or(0)))
    }

    /// Weights of experts that a token does not pass, of all layers.
    fn idle_parameters(&self) -> usize {
        let Some(experts) = self.experts else { return 0 };
        let layers = self.layers.iter().filter(|layer| layer.experts).count();
        let matrices = if self.gated { 3 } else { 2 };
        layers * (experts.count - experts.per_token) * matrices * self.width * experts.ffn
    }

    /// Work of one forward pass over `ctx_tok` tokens, about: two operations for each weight and token that meet; of the
    /// attention the causal half, or the window. The embedding is looked up, and few rows pass the output head: they are left out.
    pub fn forward_flops(&self, ctx_tok: usize) -> Flops {
        let tokens = ctx_tok as f64;
        let embedding = self.vocab * self.width * if self.tied { 1 } else { 2 };
        let per_pair = (self.query_heads() * self.head_dim + self.attention_width()) as f64;
        let pairs = |layer: &Layer| match layer.rule.window {
            Some(window) if window < ctx_tok => window as f64 * (tokens - window as f64 / 2.0),
            _ => tokens * tokens / 2.0,
        };
        Flops {
            linear: 2.0 * tokens * (self.parameters() - embedding - self.idle_parameters()) as f64,
            attention: 2.0 * per_pair * self.layers.iter().map(pairs).sum::<f64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sizes;
    use super::*;
    use crate::attention::Variant;
    use crate::ops::RopeStyle;

    #[test]
    fn the_work_of_a_window_goes_on_from_that_without() {
        let sizes =
            Sizes { vocab: 50, width: 32, layers: 2, ffn: 48, heads: 2, kv_heads: 2, head_dim: 8, max_ctx_tok: 9999 };
        let plain = ModelConfig::llama(Variant::preset("transformer").unwrap(), sizes, 10_000.0, RopeStyle::Half);
        let mut windowed = plain.clone();
        windowed.layers.iter_mut().for_each(|layer| layer.rule.window = Some(100));
        let attention = |config: &ModelConfig, ctx_tok| config.forward_flops(ctx_tok).attention;
        assert_eq!(attention(&windowed, 100), attention(&plain, 100));
        // From there on every token sees 100 keys.
        let more = attention(&windowed, 102) - attention(&windowed, 101);
        assert!((more / (attention(&plain, 100) / 50.0) - 1.0).abs() < 1e-9, "{more}");
    }
}
