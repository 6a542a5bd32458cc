//! What a forward pass costs, before it is made.

use super::ModelConfig;

impl ModelConfig {
    /// Memory of one forward pass over `ctx_tok` tokens beside the weights, in bytes: what is alive at its widest point,
    /// the projections of an attention layer or the hidden layer of the MLP, and one tile of softmax rows per map.
    pub fn forward_bytes(&self, ctx_tok: usize) -> u64 {
        // Projections exist before and after rotation; head outputs before and after the norm.
        let projected = self.query_heads() + self.key_heads() + self.kv_heads;
        let attention = 2 * projected * self.head_dim + 3 * self.attention_width();
        let mlp = if self.gated { 3 * self.ffn } else { 2 * self.ffn };
        let per_token = 3 * self.width + attention.max(mlp);
        let tile = 2 * crate::attention::TILE * ctx_tok;
        4 * (per_token * ctx_tok + tile) as u64
    }

    /// Multiplications and additions of one forward pass over `ctx_tok` tokens, about: two for each weight and token, and
    /// of the attention the causal half, or the window.
    pub fn forward_flops(&self, ctx_tok: usize) -> f64 {
        let per_pair = (self.query_heads() * self.head_dim + self.attention_width()) as f64;
        let tokens = ctx_tok as f64;
        let pairs = |layer: &super::Layer| match layer.rule.window {
            Some(window) if window < ctx_tok => tokens * window as f64,
            _ => tokens * tokens / 2.0,
        };
        2.0 * tokens * self.parameters() as f64 + 2.0 * per_pair * self.layers.iter().map(pairs).sum::<f64>()
    }
}
