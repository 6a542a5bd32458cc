//! Memory of a forward pass, bounded in advance, and the sizes of the chunks in which it computes.

use super::names::LAYERS;
use super::ModelConfig;
use crate::attention::{kept_bytes, TILE};
use candle_core::DType;

/// Rows that an MLP processes at once, at most.
const MLP_ROWS: usize = 4096;

/// Rows that an MLP processes at once even if its hidden layer is wide: with fewer, packing weights would cost more than
/// it saves.
const LEAST_MLP_ROWS: usize = 512;

/// Size of a hidden layer of these rows, in bytes. mimalloc keeps larger blocks apart, and finds no place for them where
/// smaller ones were freed.
const HIDDEN_BYTES: usize = 24 << 20;

/// Rows of the output head that are expanded at once, if it is not in memory as `f32`.
pub(super) const HEAD_ROWS: usize = 4096;

/// Positions whose logits are held at once when all tokens are scored.
pub(crate) const LOGIT_POSITIONS: usize = 128;

impl ModelConfig {
    /// A generous bound on the memory of one forward pass over `ctx_tok` tokens, without the weights, in bytes:
    /// the residual stream, queries, keys, values and outputs of a layer, the hidden layer of the rows that pass an MLP at
    /// once (in a mixture, as if all chose one expert), a tile of attention rows of every head, logits, and a packed copy of
    /// the largest weight.
    pub fn pass_bytes(&self, ctx_tok: usize) -> u64 {
        let queries = self.query_heads() * self.head_dim;
        let attention = 4 * self.width + queries + 2 * self.key_value_width() + 3 * self.attention_width();
        let tiles = self.wiring().heads() * self.wiring().maps() * TILE;
        let ffn = self.widest_ffn();
        let experts = self.experts.map_or(0, |experts| 4 * self.width + 2 * experts.count);
        let mlp = (3 * ffn + self.width + experts) * ctx_tok.min(self.mlp_rows());
        let logits = 3 * self.vocab * ctx_tok.min(LOGIT_POSITIONS);
        let packed = self.width * ffn.max(queries);
        4 * ((attention + tiles) * ctx_tok + mlp + logits + packed) as u64
    }

    /// A generous bound on the memory of a forward and backward pass in training over `tokens` tokens, without weights and
    /// their gradients, in bytes: what every layer keeps for the backward pass, and logits with their gradient.
    pub fn training_bytes(&self, tokens: usize) -> u64 {
        let queries = self.query_heads() * self.head_dim;
        let attention = 10 * self.width + 3 * (queries + 2 * self.key_value_width()) + 3 * self.attention_width();
        let row = self.layers.len() * (attention + 4 * self.widest_ffn()) + 4 * self.vocab;
        4 * (row * tokens) as u64
    }

    /// Returns `true` if gradients of answers of this many tokens are computed: the choice of experts is not differentiated.
    pub fn differentiates(&self, tokens: usize) -> bool {
        self.experts.is_none() && self.keeps_prefix(tokens)
    }

    /// Returns `true` if keys and values of so many tokens are kept for what nobody has asked for: they take at most 4 GiB.
    pub fn keeps_prefix(&self, tokens: usize) -> bool {
        self.prefix_bytes(tokens) <= 4 << 30
    }

    /// Memory of the keys and values of all layers, which are kept for passes over texts that begin alike and for
    /// decoding, in bytes.
    pub fn prefix_bytes(&self, ctx_tok: usize) -> u64 {
        4 * (self.layers.len() * self.key_value_width() * ctx_tok) as u64
    }

    /// A generous bound on the memory that attribution takes besides the keys and values, in bytes, if `rows` rows of a prompt
    /// are differentiated: in one layer, the maps of these rows, the hidden layer and their gradients, and the residual stream at
    /// every site.
    pub fn gradient_bytes(&self, tokens: usize, rows: usize) -> u64 {
        let wiring = self.wiring();
        let maps = kept_bytes(wiring.heads(), wiring.maps(), rows * tokens, 4);
        let row = 8 * self.widest_ffn() + self.width * (self.layers.len() + 24);
        let logits = 6 * self.vocab * rows.min(LOGIT_POSITIONS);
        // As they are kept and as gradients, each also before its parts are joined.
        4 * maps + 4 * (row * rows + logits) as u64
    }

    /// Numbers that all heads of all layers write in one row.
    pub fn written_numbers(&self) -> u64 {
        (self.layers.len() * self.attention_width()) as u64
    }

    /// Memory of the weights that a pass expands at once, in bytes: the largest layer, or a part of the output head, as
    /// `f32` or in a wider number type. Norms and biases are neglected.
    pub fn expanded_bytes(&self, number: DType) -> u64 {
        let mut layers = vec![0; self.layers.len()];
        for (name, shape) in self.tensors() {
            let layer = name.strip_prefix(LAYERS).and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            if let Some(layer) = layer {
                layers[layer] += shape.iter().product::<usize>();
            }
        }
        let layer = layers.into_iter().max().unwrap_or(0);
        let head = self.embed_width * self.vocab.min(HEAD_ROWS);
        (layer.max(head) * number.size_in_bytes().max(4)) as u64
    }

    /// Rows that an MLP processes at once.
    pub(super) fn mlp_rows(&self) -> usize {
        (HIDDEN_BYTES / (4 * self.widest_ffn().max(1))).clamp(LEAST_MLP_ROWS, MLP_ROWS)
    }

    /// Width of the widest hidden layer.
    fn widest_ffn(&self) -> usize {
        let all_mixtures = self.layers.iter().all(|layer| layer.experts);
        let dense = if all_mixtures && self.experts.is_some() { 0 } else { self.ffn };
        self.experts.map_or(dense, |experts| dense.max(experts.ffn).max(experts.shared.unwrap_or(0)))
    }

    /// Width of the keys and values of all heads of a token in one layer.
    fn key_value_width(&self) -> usize {
        (self.key_heads() + self.kv_heads) * self.head_dim
    }
}
