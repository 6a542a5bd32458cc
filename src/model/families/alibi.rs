//! Families whose logits are biased by distance (ALiBi), without position embeddings: BLOOM and MPT.

use super::super::config::{Activation, Biases, Family, ModelConfig, NormKind, Positions};
use super::super::raw::Raw;
use crate::attention::Alibi;
use anyhow::{Context, Result};
use serde_json::{json, Map, Value};

/// Context of BLOOM models whose configuration states none. They were trained with it.
const BLOOM_CTX_TOK: usize = 2048;

impl ModelConfig {
    /// BLOOM: a norm of the embeddings, and fused projections.
    pub(super) fn of_bloom(raw: &Raw<'_>) -> Result<Self> {
        raw.only("apply_residual_connection_post_layernorm", json!(false))?;
        // Older configurations have other names.
        let width = raw.either("n_embed", "hidden_size");
        let heads = raw.either("n_head", "num_attention_heads");
        let layers = raw.either("n_layer", "num_hidden_layers");
        // There is no field for the width of the MLP.
        let sizes = raw.sizes([width, layers, heads, "", "seq_length"], Some(BLOOM_CTX_TOK))?;
        let config = Self {
            family: Family::Bloom,
            activation: Activation::GeluTanh,
            embed_norm: true,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            ..Self::with_layer_norm(sizes)
        };
        Ok(config.with_alibi(Alibi::Exact))
    }

    /// MPT: no biases, also not in norms.
    pub(super) fn of_mpt(raw: &Raw<'_>) -> Result<Self> {
        raw.only("expansion_ratio", json!(4))?;
        raw.only("no_bias", json!(true))?;
        raw.only("logit_scale", Value::Null)?;
        let empty = Map::new();
        let attention = Raw(raw.object("attn_config")?.unwrap_or(&empty));
        let only = |field, value| attention.only(field, value).context("attn_config");
        only("alibi", json!(true))?;
        only("qk_ln", json!(false))?;
        only("prefix_lm", json!(false))?;
        only("attn_type", json!("multihead_attention"))?;
        only("clip_qkv", Value::Null)?;
        // transformers reads this field but ignores it.
        only("alibi_bias_max", json!(8))?;
        let scale = attention.positive("softmax_scale").context("attn_config")?;
        // There is no field for the width of the MLP.
        let sizes = raw.sizes(["d_model", "n_layers", "n_heads", "", "max_seq_len"], None)?;
        let mut config = Self {
            family: Family::Mpt,
            norm: NormKind::LayerGain,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            activation: Activation::Gelu,
            bias: Biases::default(),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            ..Self::with_layer_norm(sizes)
        };
        if let Some(scale) = scale {
            config.layers.iter_mut().for_each(|layer| layer.rule.scale = scale as f32);
        }
        Ok(config.with_alibi(Alibi::Exact))
    }

    pub(super) fn with_alibi(mut self, alibi: Alibi) -> Self {
        for layer in &mut self.layers {
            layer.rotary = None;
            layer.rule.alibi = Some(alibi);
        }
        Self { positions: Positions::Biases, ..self }
    }
}
