//! Memory of a forward pass, bounded in advance.

use super::chunks::{mlp_rows, LOGIT_POSITIONS};
use super::ModelConfig;
use crate::attention::TILE;

impl ModelConfig {
    /// Returns a generous bound on the memory of one forward pass over `ctx_tok` tokens, without the weights, in bytes:
    /// the residual stream, queries, keys, values and outputs of a layer, the hidden layer of the rows that pass an MLP at
    /// once (in a mixture, as if all chose one expert), a tile of attention rows of every head, logits, and a packed copy of
    /// the largest weight.
    pub fn pass_bytes(&self, ctx_tok: usize) -> u64 {
        let queries = self.query_heads() * self.head_dim;
        let attention = 4 * self.width + queries + 2 * self.key_value_width() + 3 * self.attention_width();
        let tiles = self.wiring().heads() * self.wiring().maps() * TILE;
        let ffn = self.widest_ffn();
        let experts = self.experts.map_or(0, |experts| 4 * self.width + 2 * experts.count);
        let mlp = (3 * ffn + self.width + experts) * ctx_tok.min(mlp_rows(ffn));
        let logits = 3 * self.vocab * ctx_tok.min(LOGIT_POSITIONS);
        let packed = self.width * ffn.max(queries);
        4 * ((attention + tiles) * ctx_tok + mlp + logits + packed) as u64
    }

    /// Memory of the keys and values of all layers, which are kept for passes over texts that begin alike and for
    /// decoding, in bytes.
    pub fn prefix_bytes(&self, ctx_tok: usize) -> u64 {
        4 * (self.layers.len() * self.key_value_width() * ctx_tok) as u64
    }

    /// Width of the widest hidden layer.
    pub(super) fn widest_ffn(&self) -> usize {
        let all = self.layers.iter().all(|layer| layer.experts);
        let dense = if all && self.experts.is_some() { 0 } else { self.ffn };
        self.experts.map_or(dense, |experts| dense.max(experts.ffn).max(experts.shared.unwrap_or(0)))
    }

    /// Width of the keys and values of all heads of a token in one layer.
    fn key_value_width(&self) -> usize {
        (self.key_heads() + self.kv_heads) * self.head_dim
    }
}
