//! Names and shapes of a model's tensors.

use super::config::{Activation, Experts, Latent, ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout};
use super::names::{
    EMBEDDING, EMBEDDING_NORM, FINAL_NORM, HEAD, HEAD_BIAS, LAYERS, POSITIONS, PROJECT_IN, PROJECT_OUT,
};

/// Names of norms in a block.
pub(super) const NORM_BEFORE_ATTENTION: &str = "input_layernorm";
pub(super) const NORM_AFTER_ATTENTION: &str = "post_attention_layernorm";
pub(super) const NORM_AFTER_MLP: &str = "post_feedforward_layernorm";

impl ModelConfig {
    /// All tensors of the model with their shapes, under this crate's names: Llama's where Llama has the tensor.
    /// `names.rs` maps them to the names of each family.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut list = TensorList { config: self, prefix: String::new(), tensors: Vec::new() };
        list.add(EMBEDDING, &[self.vocab, self.embed_width]);
        if self.embed_width != self.width {
            list.add(PROJECT_IN, &[self.width, self.embed_width]);
            list.add(PROJECT_OUT, &[self.embed_width, self.width]);
        }
        if let Positions::Learned { offset } = self.positions {
            list.add(POSITIONS, &[self.max_ctx_tok + offset, self.width]);
        }
        if self.embed_norm {
            list.add_norm(EMBEDDING_NORM, self.width);
        }
        for layer in 0..self.layers.len() {
            list.prefix = format!("{LAYERS}{layer}.");
            list.add_layer(layer);
        }
        list.prefix.clear();
        if self.final_norm {
            list.add_norm(FINAL_NORM, self.width);
        }
        if !self.tied {
            list.add(HEAD, &[self.vocab, self.embed_width]);
        }
        if self.bias.head {
            list.add(HEAD_BIAS, &[self.vocab]);
        }
        list.tensors
    }

    /// Name of the norm before the MLP. Llama's is `post_attention_layernorm`; a norm after attention takes that name
    /// where there is one.
    pub(super) fn norm_before_mlp(&self) -> &'static str {
        match self.norm_place {
            NormPlace::Before => NORM_AFTER_ATTENTION,
            NormPlace::After | NormPlace::Both | NormPlace::Sum => "pre_feedforward_layernorm",
        }
    }
}

struct TensorList<'a> {
    config: &'a ModelConfig,
    /// Of the names that are added.
    prefix: String,
    tensors: Vec<(String, Vec<usize>)>,
}

impl TensorList<'_> {
    fn add(&mut self, name: &str, shape: &[usize]) {
        self.tensors.push((format!("{}{name}", self.prefix), shape.to_vec()));
    }

    fn add_linear(&mut self, name: &str, shape: [usize; 2], bias: bool) {
        self.add(&format!("{name}.weight"), &shape);
        if bias {
            self.add(&format!("{name}.bias"), &shape[..1]);
        }
    }

    fn add_norm(&mut self, name: &str, width: usize) {
        self.add(&format!("{name}.weight"), &[width]);
        if self.config.norm == NormKind::Layer {
            self.add(&format!("{name}.bias"), &[width]);
        }
    }

    fn add_layer(&mut self, layer: usize) {
        let config = self.config;
        let before = matches!(config.norm_place, NormPlace::Before | NormPlace::Both);
        let after = config.norm_place != NormPlace::Before;
        if before {
            self.add_norm(NORM_BEFORE_ATTENTION, config.width);
        }
        match config.latent {
            None => self.add_attention(layer),
            Some(latent) => self.add_latent_attention(latent),
        }
        if after {
            self.add_norm(NORM_AFTER_ATTENTION, config.width);
        }
        if before && config.residual != ResidualLayout::OneNorm {
            self.add_norm(config.norm_before_mlp(), config.width);
        }
        match config.experts.filter(|_| config.layers[layer].experts) {
            None => self.add_mlp("mlp", config.ffn),
            Some(experts) => self.add_experts(experts),
        }
        if after {
            self.add_norm(NORM_AFTER_MLP, config.width);
        }
    }

    fn add_attention(&mut self, layer: usize) {
        let config = self.config;
        let e = config.width;
        let d = config.head_dim;
        let bias = config.bias;
        let q = config.query_heads() * d;
        let k = config.key_heads() * d;
        let v = config.kv_heads * d;
        self.add_linear("self_attn.q_proj", [q, e], bias.qkv);
        self.add_linear("self_attn.k_proj", [k, e], bias.qkv);
        self.add_linear("self_attn.v_proj", [v, e], bias.qkv);
        self.add_linear("self_attn.o_proj", [e, config.attention_width()], bias.out);
        for (name, width) in [("self_attn.q_norm", q), ("self_attn.k_norm", k)] {
            match config.qk_norm {
                None => {}
                Some(QkNorm::Head) => self.add_norm(name, d),
                Some(QkNorm::Projection) => self.add_norm(name, width),
                Some(QkNorm::EachHead) => (0..width / d).for_each(|h| self.add(&format!("{name}.{h}.weight"), &[d])),
            }
        }
        for extra in config.variant.extra_tensors(layer, config.layer_sizes()) {
            self.add(&format!("self_attn.{}", extra.name), &extra.shape);
        }
    }

    fn add_latent_attention(&mut self, latent: Latent) {
        let Latent { query_rank, rank, rotated, value_dim } = latent;
        let ModelConfig { width: e, heads, head_dim, bias, .. } = *self.config;
        let queries = heads * head_dim;
        match query_rank {
            None => self.add_linear("self_attn.q_proj", [queries, e], false),
            Some(rank) => {
                self.add_linear("self_attn.q_a_proj", [rank, e], bias.qkv);
                self.add_norm("self_attn.q_a_layernorm", rank);
                self.add_linear("self_attn.q_b_proj", [queries, rank], false);
            }
        }
        self.add_linear("self_attn.kv_a_proj_with_mqa", [rank + rotated, e], bias.qkv);
        self.add_norm("self_attn.kv_a_layernorm", rank);
        self.add_linear("self_attn.kv_b_proj", [heads * (head_dim - rotated + value_dim), rank], false);
        self.add_linear("self_attn.o_proj", [e, heads * value_dim], bias.out);
    }

    fn add_mlp(&mut self, name: &str, ffn: usize) {
        let ModelConfig { width, gated, activation, bias, .. } = *self.config;
        if gated {
            self.add_linear(&format!("{name}.gate_proj"), [ffn, width], bias.mlp);
        }
        if activation == Activation::PolyNorm {
            self.add(&format!("{name}.act_fn.weight"), &[3]);
            self.add(&format!("{name}.act_fn.bias"), &[1]);
        }
        self.add_linear(&format!("{name}.up_proj"), [ffn, width], bias.mlp);
        self.add_linear(&format!("{name}.down_proj"), [width, ffn], bias.mlp);
    }

    fn add_experts(&mut self, experts: Experts) {
        let width = self.config.width;
        self.add_linear("mlp.gate", [experts.count, width], experts.router_bias);
        if experts.choice.sigmoid {
            self.add("mlp.gate.e_score_correction_bias", &[experts.count]);
        }
        for expert in 0..experts.count {
            self.add_mlp(&format!("mlp.experts.{expert}"), experts.ffn);
        }
        if let Some(ffn) = experts.shared {
            self.add_mlp("mlp.shared_expert", ffn);
        }
        if experts.shared_gate {
            self.add_linear("mlp.shared_expert_gate", [1, width], false);
        }
    }
}
