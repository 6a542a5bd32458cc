//! Families with LayerNorm: GPT-2, OPT, GPT-NeoX, Phi, StableLM, StarCoder 2, Cohere.

use super::super::config::{
    Activation, Biases, DecoderSizes, Family, ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout,
};
use super::super::raw::Raw;
use super::HeadLayout;
use crate::kernels::RopeStyle;
use anyhow::{ensure, Result};
use serde_json::json;

impl ModelConfig {
    pub(super) fn of_gpt2(raw: &Raw<'_>) -> Result<Self> {
        raw.only("add_cross_attention", json!(false))?;
        raw.only("scale_attn_weights", json!(true))?;
        let sizes = raw.sizes(["n_embd", "n_layer", "n_head", "n_inner", "n_positions"], None)?;
        let mut config = Self {
            family: Family::Gpt2,
            positions: Positions::Learned { offset: 0 },
            activation: raw.activation("activation_function", Activation::GeluTanh)?,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            ..Self::with_layer_norm(sizes)
        };
        let inverse = raw.flag("scale_attn_by_inverse_layer_idx")?.unwrap_or(false);
        for (i, layer) in config.layers.iter_mut().enumerate() {
            layer.rotary = None;
            if inverse {
                layer.rule.scale /= (i + 1) as f32;
            }
        }
        Ok(config)
    }

    pub(super) fn of_opt(raw: &Raw<'_>) -> Result<Self> {
        raw.only("_remove_final_layer_norm", json!(false))?;
        raw.only("enable_bias", json!(true))?;
        raw.only("layer_norm_elementwise_affine", json!(true))?;
        let sizes = raw.sizes(
            ["hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim", "max_position_embeddings"],
            None,
        )?;
        let mut config = Self {
            family: Family::Opt,
            positions: Positions::Learned { offset: 2 },
            activation: raw.activation("activation_function", Activation::Relu)?,
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            embed_width: raw.optional_size("word_embed_proj_dim")?.unwrap_or(sizes.width),
            ..Self::with_layer_norm(sizes)
        };
        if !raw.flag("do_layer_norm_before")?.unwrap_or(true) {
            (config.norm_place, config.final_norm) = (NormPlace::Sum, false);
        }
        config.layers.iter_mut().for_each(|layer| layer.rotary = None);
        Ok(config)
    }

    pub(super) fn of_gpt_neox(raw: &Raw<'_>) -> Result<Self> {
        raw.only("attention_bias", json!(true))?;
        let sizes = raw.sizes(
            ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"],
            None,
        )?;
        // The configuration class of transformers lacks this field, but its rotary embedding reads it.
        raw.only("head_dim", json!(sizes.head_dim))?;
        let rotary = raw.rotary(sizes.head_dim, 10_000.0, Some((0.25, "rotary_pct")))?;
        Ok(Self {
            family: Family::GptNeox,
            positions: Positions::Rotary { style: RopeStyle::Half, embeddings: vec![rotary] },
            activation: raw.activation("hidden_act", Activation::Gelu)?,
            norm_eps: raw.positive("layer_norm_eps")?.unwrap_or(1e-5),
            residual: match raw.flag("use_parallel_residual")?.unwrap_or(true) {
                true => ResidualLayout::Parallel,
                false => ResidualLayout::Serial,
            },
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(false),
            ..Self::with_layer_norm(sizes)
        })
    }

    /// Base of GPT-2, GPT-NeoX and others: LayerNorm, an MLP without gate, biases everywhere.
    pub(super) fn with_layer_norm(sizes: DecoderSizes) -> Self {
        Self {
            norm: NormKind::Layer,
            gated: false,
            bias: Biases { qkv: true, out: true, mlp: true, head: false },
            ..Self::llama(HeadLayout::Standard.variant(), sizes, 10_000.0, RopeStyle::Half)
        }
    }

    pub(super) fn with_phi(self, raw: &Raw<'_>) -> Result<Self> {
        Ok(Self {
            family: Family::Phi,
            norm: NormKind::Layer,
            norm_eps: raw.positive("layer_norm_eps")?.unwrap_or(1e-5),
            residual: ResidualLayout::OneNorm,
            qk_norm: raw.flag("qk_layernorm")?.unwrap_or(false).then_some(QkNorm::Head),
            activation: raw.activation("hidden_act", Activation::GeluTanh)?,
            gated: false,
            bias: Biases { qkv: true, out: true, mlp: true, head: true },
            ..self
        })
    }

    pub(super) fn with_stablelm(self, raw: &Raw<'_>) -> Result<Self> {
        let parallel = raw.flag("use_parallel_residual")?.unwrap_or(false);
        Ok(Self {
            family: Family::StableLm,
            norm: NormKind::Layer,
            norm_eps: raw.positive("layer_norm_eps")?.unwrap_or(1e-5),
            residual: if parallel { ResidualLayout::OneNorm } else { ResidualLayout::Serial },
            qk_norm: raw.flag("qk_layernorm")?.unwrap_or(false).then_some(QkNorm::EachHead),
            bias: Biases { qkv: raw.flag("use_qkv_bias")?.unwrap_or(false), ..Biases::default() },
            ..self
        })
    }

    pub(super) fn with_starcoder2(self, raw: &Raw<'_>) -> Result<Self> {
        let bias = raw.flag("use_bias")?.unwrap_or(true);
        let config = Self {
            family: Family::Starcoder2,
            norm: NormKind::Layer,
            norm_eps: raw.positive("norm_epsilon")?.unwrap_or(1e-5),
            activation: raw.activation("hidden_act", Activation::GeluTanh)?,
            gated: false,
            bias: Biases { qkv: bias, out: bias, mlp: bias, head: false },
            ..self
        };
        Ok(config.windowed(raw.window(None)?, |_| true))
    }

    pub(super) fn with_cohere(self, raw: &Raw<'_>) -> Result<Self> {
        let normed = raw.flag("use_qk_norm")?.unwrap_or(false);
        Ok(Self {
            family: Family::Cohere,
            qk_norm: normed.then_some(QkNorm::EachHead),
            ..self.with_norm_of_cohere(raw)?
        })
    }

    /// Applies the fields that both generations of Cohere share.
    fn with_norm_of_cohere(self, raw: &Raw<'_>) -> Result<Self> {
        Ok(Self {
            norm: NormKind::LayerGain,
            norm_eps: raw.positive("layer_norm_eps")?.unwrap_or(1e-5),
            residual: ResidualLayout::OneNorm,
            logit_scale: raw.positive("logit_scale")?.unwrap_or(0.0625),
            ..self
        })
    }

    /// Checks the width of a head in families that do not read `head_dim`.
    pub(super) fn check_head_dim(&self, raw: &Raw<'_>) -> Result<()> {
        let own = self.width / raw.size("num_attention_heads")?;
        ensure!(
            self.head_dim == own,
            "head_dim is {}, but this model_type uses {own} (hidden_size / num_attention_heads)",
            self.head_dim
        );
        Ok(())
    }

    pub(super) fn with_cohere2(self, raw: &Raw<'_>) -> Result<Self> {
        let layers = self.layers.len();
        let pattern = raw.optional_size("sliding_window_pattern")?.unwrap_or(4);
        let sliding = raw.sliding(layers, |layer| !(layer + 1).is_multiple_of(pattern))?;
        let window = raw.needed_window(4096)?;
        self.check_head_dim(raw)?;
        let mut config = self.with_norm_of_cohere(raw)?;
        // Full-attention layers have no positions.
        for (layer, &sliding) in config.layers.iter_mut().zip(&sliding) {
            layer.rotary = layer.rotary.filter(|_| sliding);
        }
        Ok(config.windowed(Some(window), |layer| sliding[layer]))
    }
}
