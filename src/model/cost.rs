//! Memory and arithmetic of a forward pass, estimated in advance.

use super::chunks::mlp_rows;
use super::{Layer, ModelConfig};
use crate::attention::{portable_bytes, Gate, TILE};

/// Floating-point operations of a forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flops {
    /// Operations proportional to the number of tokens: products with weights.
    pub linear: f64,
    /// Operations proportional to the number of (query, key) pairs: attention.
    pub attention: f64,
}

impl Flops {
    /// All operations.
    pub fn sum(self) -> f64 {
        self.linear + self.attention
    }
}

impl std::ops::Sub for Flops {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { linear: self.linear - other.linear, attention: self.attention - other.attention }
    }
}

impl std::ops::Add for Flops {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { linear: self.linear + other.linear, attention: self.attention + other.attention }
    }
}

impl ModelConfig {
    /// Peak memory of one forward pass over `ctx_tok` tokens, without the weights, in bytes: the largest of three
    /// stages. During attention, queries, keys, values and outputs are alive, and keys and values a second time,
    /// packed. In the MLP it is the hidden layer of the rows that pass at once (in a mixture, as if all chose one
    /// expert). At the end it is the logits of `logit_rows` positions, twice. Two residual streams and a packed copy of the
    /// current weight are always alive.
    pub fn forward_bytes(&self, ctx_tok: usize, logit_rows: usize) -> u64 {
        let kv = self.key_value_width();
        let outputs = if self.variant.gate != Gate::None { 3 } else { 2 } * self.attention_width();
        let attention = 2 * self.width + self.query_heads() * self.head_dim + 2 * kv + outputs;
        let ffn = self.widest_ffn();
        let rows = ctx_tok.min(mlp_rows(ffn));
        let mixture = self.experts.map_or(0, |experts| 4 * self.width + 2 * experts.count);
        let hidden = mixture + if self.gated { 3 * ffn } else { 2 * ffn };
        let mlp = 3 * self.width * ctx_tok + (hidden + self.width) * rows;
        let logits = if self.final_softcap.is_some() { 3 * self.vocab } else { 2 * self.vocab };
        let head = self.width * ctx_tok + logits * logit_rows.min(ctx_tok);
        let packed = self.width * ffn.max(self.query_heads() * self.head_dim);
        4 * ((attention * ctx_tok).max(mlp).max(head) + packed) as u64
    }

    /// Like [`ModelConfig::forward_bytes`] for a pass in candle's own ops, with numbers of `bytes` bytes: queries, keys
    /// and values exist once more, gathered by output head, with a tile of logits of all heads and the intermediate
    /// steps of the activation function.
    pub fn portable_bytes(&self, ctx_tok: usize, logit_rows: usize, bytes: u64) -> u64 {
        let wide = bytes.max(4); // sums are at least f32
        let wiring = self.wiring();
        let gathered = 2 * wiring.maps() * wiring.heads() * self.head_dim + self.attention_width();
        let ffn = self.widest_ffn();
        let hidden = 3 * ffn * ctx_tok.min(mlp_rows(ffn));
        let beside = wide * (gathered * ctx_tok + hidden) as u64;
        self.forward_bytes(ctx_tok, logit_rows) / 4 * wide + beside + self.tile_bytes_of_candle(ctx_tok, wide)
    }

    /// Host memory of a pass on another device, in bytes: the attention rows that probes observe, values, and a
    /// residual stream.
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

    /// Memory of each thread for the attention rows that it works on, in bytes.
    pub fn tile_bytes(&self, ctx_tok: usize) -> u64 {
        4 * (self.wiring().maps() * TILE * ctx_tok) as u64
    }

    /// Width of the widest hidden layer.
    pub(super) fn widest_ffn(&self) -> usize {
        let all = self.layers.iter().all(|layer| layer.experts);
        let dense = if all && self.experts.is_some() { 0 } else { self.ffn };
        self.experts.map_or(dense, |experts| dense.max(experts.ffn).max(experts.shared.unwrap_or(0)))
    }

    /// Parameters of experts that a token does not pass through, in all layers.
    fn idle_parameters(&self) -> usize {
        let Some(experts) = self.experts else { return 0 };
        let layers = self.layers.iter().filter(|layer| layer.experts).count();
        let matrices = if self.gated { 3 } else { 2 };
        layers * (experts.count - experts.per_token) * matrices * self.width * experts.ffn
    }

    /// Approximate operations of one forward pass over `ctx_tok` tokens: two for each weight and token, and for each
    /// pair within the causal half or the window. The embedding (a lookup) and the output head (applied to few rows)
    /// are left out.
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

    /// Like [`ModelConfig::forward_flops`], for the last `rows` tokens alone, which attend to all before them.
    pub fn last_rows_flops(&self, ctx_tok: usize, rows: usize) -> Flops {
        self.forward_flops(ctx_tok) - self.forward_flops(ctx_tok.saturating_sub(rows))
    }

    /// Memory of the keys and values of all layers that are kept for passes over texts that begin alike, in bytes.
    pub fn prefix_bytes(&self, ctx_tok: usize) -> u64 {
        4 * (self.layers.len() * self.key_value_width() * ctx_tok) as u64
    }

    /// Width of the keys and values of all heads of a token in one layer.
    pub fn key_value_width(&self) -> usize {
        (self.key_heads() + self.kv_heads) * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::super::DecoderSizes;
    use super::*;
    use crate::attention::Variant;
    use crate::ops::RopeStyle;

    #[test]
    fn the_flops_of_a_window_grow_linearly_beyond_it() {
        let sizes = DecoderSizes {
            vocab: 50,
            width: 32,
            layers: 2,
            ffn: 48,
            heads: 2,
            kv_heads: 2,
            head_dim: 8,
            max_ctx_tok: 9999,
        };
        let plain = ModelConfig::llama(Variant::preset("transformer").unwrap(), sizes, 10_000.0, RopeStyle::Half);
        let mut windowed = plain.clone();
        windowed.layers.iter_mut().for_each(|layer| layer.rule.window = Some(100));
        let attention = |config: &ModelConfig, ctx_tok| config.forward_flops(ctx_tok).attention;
        assert_eq!(attention(&windowed, 100), attention(&plain, 100));
        // Every further token sees 100 keys.
        let more = attention(&windowed, 102) - attention(&windowed, 101);
        assert!((more / (attention(&plain, 100) / 50.0) - 1.0).abs() < 1e-9, "{more}");
    }
}
