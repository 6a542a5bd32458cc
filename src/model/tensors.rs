//! Names and shapes of a model's tensors.

use super::config::{Activation, Experts, Latent, ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout};
use super::names::{EMBEDDING_NORM, PROJECT_IN, PROJECT_OUT};

/// Names of norms in a block.
pub(super) const NORM_BEFORE_ATTENTION: &str = "input_layernorm";
pub(super) const NORM_AFTER_ATTENTION: &str = "post_attention_layernorm";
pub(super) const NORM_AFTER_MLP: &str = "post_feedforward_layernorm";

impl ModelConfig {
    /// All tensors of the model with their shapes, under this crate's names: Llama's where Llama has the tensor.
    /// `names.rs` maps them to the names of each family.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut list = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab, self.embed_width])];
        if self.embed_width != self.width {
            list.push((PROJECT_IN.to_owned(), vec![self.width, self.embed_width]));
            list.push((PROJECT_OUT.to_owned(), vec![self.embed_width, self.width]));
        }
        if let Positions::Learned { offset } = self.positions {
            list.push(("model.embed_positions.weight".into(), vec![self.max_ctx_tok + offset, self.width]));
        }
        if self.embed_norm {
            self.add_norm(EMBEDDING_NORM, self.width, &mut |name, shape| list.push((name.to_owned(), shape)));
        }
        for layer in 0..self.layers.len() {
            let mut add = |name: &str, shape: Vec<usize>| list.push((format!("model.layers.{layer}.{name}"), shape));
            let (before, after) = (self.norm_place.is_before(), self.norm_place != NormPlace::Before);
            if before {
                self.add_norm(NORM_BEFORE_ATTENTION, self.width, &mut add);
            }
            self.add_attention(layer, &mut add);
            if after {
                self.add_norm(NORM_AFTER_ATTENTION, self.width, &mut add);
            }
            if before && self.residual != ResidualLayout::OneNorm {
                self.add_norm(self.norm_before_mlp(), self.width, &mut add);
            }
            match self.experts.filter(|_| self.layers[layer].experts) {
                None => self.add_mlp("mlp", self.ffn, &mut add),
                Some(experts) => self.add_experts(experts, &mut add),
            }
            if after {
                self.add_norm(NORM_AFTER_MLP, self.width, &mut add);
            }
        }
        if self.final_norm {
            self.add_norm("model.norm", self.width, &mut |name, shape| list.push((name.to_owned(), shape)));
        }
        if !self.tied {
            list.push(("lm_head.weight".to_owned(), vec![self.vocab, self.embed_width]));
        }
        if self.bias.head {
            list.push(("lm_head.bias".to_owned(), vec![self.vocab]));
        }
        list
    }

    fn add_mlp(&self, name: &str, ffn: usize, add: &mut dyn FnMut(&str, Vec<usize>)) {
        if self.gated {
            self.add_linear(&format!("{name}.gate_proj"), [ffn, self.width], self.bias.mlp, add);
        }
        if self.activation == Activation::PolyNorm {
            add(&format!("{name}.act_fn.weight"), vec![3]);
            add(&format!("{name}.act_fn.bias"), vec![1]);
        }
        self.add_linear(&format!("{name}.up_proj"), [ffn, self.width], self.bias.mlp, add);
        self.add_linear(&format!("{name}.down_proj"), [self.width, ffn], self.bias.mlp, add);
    }

    fn add_experts(&self, experts: Experts, add: &mut dyn FnMut(&str, Vec<usize>)) {
        self.add_linear("mlp.gate", [experts.count, self.width], experts.router_bias, add);
        if experts.choice.sigmoid {
            add("mlp.gate.e_score_correction_bias", vec![experts.count]);
        }
        for expert in 0..experts.count {
            self.add_mlp(&format!("mlp.experts.{expert}"), experts.ffn, add);
        }
        if let Some(ffn) = experts.shared {
            self.add_mlp("mlp.shared_expert", ffn, add);
        }
        if experts.shared_gate {
            self.add_linear("mlp.shared_expert_gate", [1, self.width], false, add);
        }
    }

    fn add_latent(&self, latent: Latent, add: &mut dyn FnMut(&str, Vec<usize>)) {
        let Latent { query_rank, rank, rotated, value_dim } = latent;
        let (e, queries) = (self.width, self.heads * self.head_dim);
        match query_rank {
            None => self.add_linear("self_attn.q_proj", [queries, e], false, add),
            Some(rank) => {
                self.add_linear("self_attn.q_a_proj", [rank, e], self.bias.qkv, add);
                self.add_norm("self_attn.q_a_layernorm", rank, add);
                self.add_linear("self_attn.q_b_proj", [queries, rank], false, add);
            }
        }
        self.add_linear("self_attn.kv_a_proj_with_mqa", [rank + rotated, e], self.bias.qkv, add);
        self.add_norm("self_attn.kv_a_layernorm", rank, add);
        let key_and_value = self.heads * (self.head_dim - rotated + value_dim);
        self.add_linear("self_attn.kv_b_proj", [key_and_value, rank], false, add);
        self.add_linear("self_attn.o_proj", [e, self.heads * value_dim], self.bias.out, add);
    }

    fn add_attention(&self, layer: usize, add: &mut dyn FnMut(&str, Vec<usize>)) {
        if let Some(latent) = self.latent {
            return self.add_latent(latent, add);
        }
        let (e, d) = (self.width, self.head_dim);
        let (q, k, v) = (self.query_heads() * d, self.key_heads() * d, self.kv_heads * d);
        self.add_linear("self_attn.q_proj", [q, e], self.bias.qkv, add);
        self.add_linear("self_attn.k_proj", [k, e], self.bias.qkv, add);
        self.add_linear("self_attn.v_proj", [v, e], self.bias.qkv, add);
        self.add_linear("self_attn.o_proj", [e, self.attention_width()], self.bias.out, add);
        for (name, width) in [("self_attn.q_norm", q), ("self_attn.k_norm", k)] {
            match self.qk_norm {
                None => {}
                Some(QkNorm::Head) => self.add_norm(name, d, add),
                Some(QkNorm::Projection) => self.add_norm(name, width, add),
                Some(QkNorm::EachHead) => (0..width / d).for_each(|h| add(&format!("{name}.{h}.weight"), vec![d])),
            }
        }
        for extra in self.variant.extra_tensors(layer, self.layer_sizes()) {
            add(&format!("self_attn.{}", extra.name), extra.shape);
        }
    }

    fn add_linear(&self, name: &str, shape: [usize; 2], bias: bool, add: &mut dyn FnMut(&str, Vec<usize>)) {
        add(&format!("{name}.weight"), shape.to_vec());
        if bias {
            add(&format!("{name}.bias"), vec![shape[0]]);
        }
    }

    fn add_norm(&self, name: &str, width: usize, add: &mut dyn FnMut(&str, Vec<usize>)) {
        add(&format!("{name}.weight"), vec![width]);
        if self.norm == NormKind::Layer {
            add(&format!("{name}.bias"), vec![width]);
        }
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
