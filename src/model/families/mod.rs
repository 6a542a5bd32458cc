//! Reads the `config.json` of every supported family into a [`ModelConfig`].
//!
//! | `model_type` | differences from Llama |
//! |---|---|
//! | `llama` | biases; linear, Llama 3 and YaRN scaling of RoPE |
//! | `mistral` | a sliding window in all layers |
//! | `qwen2` | biases of q, k, v; a window from `max_window_layers` on |
//! | `qwen3` | a norm on queries and keys of each head; an output gate in `q_proj` (arXiv 2505.06708) |
//! | `gemma` | scaled embeddings, gains 1 + weight |
//! | `gemma2` | norms before and after, soft caps, windows in every other layer, scaled embeddings |
//! | `gemma3_text` | like `gemma2` without caps, with QK-norm and two rotary embeddings |
//! | `phi3` | fused projections, partial rotation, a window |
//! | `olmo2` | norms after only, QK-norm over the whole projection |
//! | `olmo3` | like `olmo2`, windows in three of four layers, YaRN in the others |
//! | `smollm3` | layers without RoPE |
//! | `granite` | factors on embeddings, logits, block outputs and attention |
//! | `mixtral`, `qwen2_moe`, `qwen3_moe`, `olmoe` | a mixture of experts, with a shared one in `qwen2_moe` |
//! | `gpt_oss` | a mixture of experts with biases, a clamped SwiGLU, sink logits, alternating windows |
//! | `gpt_neo` | like `gpt2`, with windows in every other layer and logits that are not scaled |
//! | `gptj` | LayerNorm, one norm for attention and MLP, interleaved partial rotation |
//! | `falcon` | LayerNorm, parallel residual, fused projections by groups of heads; ALiBi in bfloat16 in Falcon RW |
//! | `bloom`, `mpt` | LayerNorm, biases of the logits by distance (ALiBi), fused projections; a norm of the embeddings in `bloom` |
//! | `glm4` | norms before and after, interleaved partial rotation, a fused gate |
//! | `gpt2`, `opt` | LayerNorm, learned positions, a plain MLP, biases; in OPT 350M norms of the residual stream, and embeddings of another width |
//! | `deepseek_v2`, `deepseek_v3` | latent attention; experts chosen by groups, with shared ones; in V3 by sigmoids with a bias |
//! | `gpt_neox` | LayerNorm, parallel residual, partial rotation, fused projections |
//! | `phi`, `stablelm` | LayerNorm, one norm for attention and MLP, partial rotation, QK-norm |
//! | `starcoder2` | LayerNorm, a plain MLP, biases, a window |
//! | `cohere` | LayerNorm without bias, one norm for attention and MLP, interleaved RoPE, QK-norm of each head |
//! | `cohere2` | LayerNorm without bias, one norm for attention and MLP, interleaved RoPE in layers with a window, no positions in the others |
//! | `gemma3`, `mistral3` | their `text_config` |
//! | `diffllama` | DIFF V1, pairs (i, i + H), half-rotation RoPE, head norm without gain; raw heads counted |
//! | `Motif` (2.6B, 2 12.7B) | DIFF V1 with adjacent heads, several signal heads on one noise head, half-rotation RoPE, lambda_init of the previous layer, PolyNorm |
//! | `llama-differential` (axolotl) | DIFF V1 with single values, pairs (i, i + H), a stored lambda_init and no factor |
//! | none, but `model` (diff-mlx) | DIFF V1 with adjacent pairs, or standard attention; interleaved RoPE |
//! | `difftool` | any attention variant: `attention` states every choice, `rope_style` the rotation; output heads counted |
//!
//! Absent fields have the defaults of transformers 5.23. A field with an unsupported value is an error that names it.

mod alibi;
mod axolotl;
mod deepseek;
mod diff_mlx;
mod experts;
mod fields;
mod gemma;
mod gpt;
mod layer_norm;
mod layout;
mod llama;
mod motif;
mod wrapped;

pub use layout::HeadLayout;

use super::config::{Activation, Biases, DecoderSizes, Family, ModelConfig, Positions, OWN_MODEL_TYPE};
use super::raw::{Raw, MOST_TOKENS};
use crate::bail_usage;
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use axolotl::AXOLOTL;
use diff_mlx::{is_diff_mlx, DIFF_MLX};
use layout::ResolvedAttention;
use motif::MOTIF;
use serde_json::{json, Value};

/// Names of all supported model types.
const MODEL_TYPES: &str =
    "llama, mistral, mistral3, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gpt2, gpt_neo, gptj, gpt_neox, gpt_oss, \
    opt, falcon, bloom, mpt, gemma, gemma2, gemma3, gemma3_text, phi, phi3, olmo2, olmo3, olmoe, smollm3, stablelm, starcoder2, granite, cohere, cohere2, glm4, \
    deepseek_v2, deepseek_v3, diffllama, llama-differential, Motif and difftool";

impl ModelConfig {
    /// Resolves a parsed `config.json`. `layout` overrides its differential heads.
    ///
    /// # Errors
    /// If a field is missing, contradictory or not supported. The error names the field.
    pub fn from_json(value: &Value, layout: Option<HeadLayout>) -> Result<Self> {
        let raw = Raw(value.as_object().context("expected a JSON object")?);
        let model_type = match is_diff_mlx(&raw) {
            true => DIFF_MLX,
            false => raw.text("model_type")?.context("model_type is missing")?,
        };
        raw.unquantised()?;
        let mut config = match Self::of_wrapped(&raw, model_type, layout)? {
            Some(text) => text,
            None => Self::of_family(&raw, model_type, layout)?,
        };
        let differential = layout.is_some_and(|layout| layout != HeadLayout::Standard);
        let may = matches!(config.family, Family::Llama | Family::DiffMlx) && !config.wrapped;
        if differential && !may {
            bail_usage!("--layout: a model of type {model_type} has no differential heads");
        }
        config.model_type = model_type.to_owned();
        if let Positions::Rotary { embeddings, .. } = &config.positions {
            // What a scaling was made for counts, whether or not max_position_embeddings was changed with it.
            let scaled = embeddings.iter().filter_map(|rotary| rotary.scaling.ctx_tok());
            config.max_ctx_tok = scaled.fold(config.max_ctx_tok, usize::max).min(MOST_TOKENS as usize);
        }
        config.check()?;
        Ok(config)
    }

    fn of_family(raw: &Raw<'_>, model_type: &str, layout: Option<HeadLayout>) -> Result<Self> {
        let llama = || Self::of_llama(raw, model_type, layout);
        match model_type {
            "llama" | "diffllama" | OWN_MODEL_TYPE => llama(),
            _ if MOTIF.contains(&model_type) => llama()?.with_motif(raw),
            AXOLOTL => llama()?.with_axolotl(raw),
            "mistral" => llama()?.with_mistral(raw),
            "mixtral" => llama()?.with_mixtral(raw),
            "qwen2" => llama()?.with_qwen2(raw),
            "qwen2_moe" => llama()?.with_qwen2_moe(raw),
            "qwen3" => llama()?.with_qwen3(raw),
            "qwen3_moe" => llama()?.with_qwen3_moe(raw),
            "gemma" => llama()?.with_gemma1(raw),
            "gemma2" => llama()?.with_gemma2(raw),
            "gemma3_text" => llama()?.with_gemma3(raw),
            "phi" => llama()?.with_phi(raw),
            "phi3" => llama()?.with_phi3(raw),
            "olmo2" => Ok(llama()?.with_olmo2()),
            "olmo3" => llama()?.with_olmo3(raw),
            "olmoe" => llama()?.with_olmoe(raw),
            "smollm3" => llama()?.with_smollm3(raw),
            "stablelm" => llama()?.with_stablelm(raw),
            "starcoder2" => llama()?.with_starcoder2(raw),
            "granite" => llama()?.with_granite(raw),
            "cohere" => llama()?.with_cohere(raw),
            "cohere2" => llama()?.with_cohere2(raw),
            "glm4" => llama()?.with_glm4(raw),
            "gpt_oss" => llama()?.with_gpt_oss(raw),
            "deepseek_v2" => llama()?.with_deepseek_v2(raw),
            "deepseek_v3" => llama()?.with_deepseek_v3(raw),
            "gpt2" => Self::of_gpt2(raw),
            "gpt_neo" => Self::of_gpt_neo(raw),
            "gptj" => Self::of_gptj(raw),
            "gpt_neox" => Self::of_gpt_neox(raw),
            "falcon" => Self::of_falcon(raw),
            "bloom" => Self::of_bloom(raw),
            "mpt" => Self::of_mpt(raw),
            "opt" => Self::of_opt(raw),
            DIFF_MLX => Self::of_diff_mlx(raw, layout),
            other => bail!("model_type \"{other}\" is not supported; {MODEL_TYPES} are"),
        }
    }

    /// Reads the fields that all families with Llama's field names share.
    fn of_llama(raw: &Raw<'_>, model_type: &str, layout: Option<HeadLayout>) -> Result<Self> {
        let defaults = FamilyDefaults::of(model_type);
        let counted = raw.size("num_attention_heads")?;
        let layout = ResolvedAttention::new(raw, model_type, layout)?;
        let heads = if layout.raw_heads {
            let signal = layout.variant.signal_heads;
            ensure!(
                signal > 1 || counted.is_multiple_of(2),
                "num_attention_heads {counted} is odd; DIFF V1 pairs them"
            );
            counted / (signal + 1) * signal
        } else {
            counted
        };
        let width = raw.size("hidden_size")?;
        let head_dim = head_dim(raw, &defaults, width, counted)?;
        if defaults.kv_heads_required && !raw.has("num_key_value_heads") {
            bail!("num_key_value_heads is missing");
        }
        let sizes = DecoderSizes {
            vocab: raw.tokens("vocab_size")?,
            width,
            layers: raw.layers("num_hidden_layers")?,
            ffn: raw.size("intermediate_size")?,
            heads,
            kv_heads: raw.optional_size("num_key_value_heads")?.unwrap_or(counted),
            head_dim,
            max_ctx_tok: raw.tokens("max_position_embeddings")?,
        };
        let style = match model_type {
            "cohere" | "cohere2" | "glm4" => RopeStyle::Interleaved,
            _ => layout.style.unwrap_or(RopeStyle::Half),
        };
        let mut config = Self::llama(layout.variant, sizes, defaults.theta, style);
        if layout.style.is_none() {
            config.layers.iter_mut().for_each(|layer| layer.rotary = None);
        }
        // These have one embedding for layers with a window and one for the others, or rotate a part of the head.
        if !matches!(model_type, "gemma3_text" | "olmo3" | "deepseek_v2" | "deepseek_v3") {
            let share = defaults.rotated.map(|share| (share, "partial_rotary_factor"));
            let rotary = raw.rotary(head_dim, defaults.theta, share)?;
            config.positions = Positions::Rotary { style, embeddings: vec![rotary] };
        }
        if matches!(model_type, "mistral" | "mixtral" | "qwen2" | "qwen2_moe" | "phi3") {
            // These have no such fields, and transformers would leave such biases out.
            raw.only("attention_bias", json!(false))?;
            raw.only("mlp_bias", json!(false))?;
        }
        let attention_bias = raw.flag("attention_bias")?.unwrap_or(false);
        let mlp_bias = raw.flag("mlp_bias")?.unwrap_or(false);
        config.bias = Biases { qkv: attention_bias, out: attention_bias, mlp: mlp_bias, head: false };
        if MOTIF.contains(&model_type) {
            raw.only("hidden_act", json!("poly_norm"))?;
        } else {
            config.activation = raw.activation("hidden_act", Activation::Silu)?;
        }
        config.norm_eps = raw.positive("rms_norm_eps")?.unwrap_or(defaults.norm_eps);
        config.tied = raw.flag("tie_word_embeddings")?.unwrap_or(defaults.tied);
        Ok(config)
    }
}

/// Channels of a head: from the configuration, the family's default, or the width divided by the number of heads.
fn head_dim(raw: &Raw<'_>, defaults: &FamilyDefaults, width: usize, heads: usize) -> Result<usize> {
    if let Some(head_dim) = raw.optional_size("head_dim")?.or(defaults.head_dim) {
        return Ok(head_dim);
    }
    ensure!(
        width.is_multiple_of(heads),
        "head_dim is missing, and num_attention_heads {heads} does not divide hidden_size {width}"
    );
    Ok(width / heads)
}

/// Defaults of transformers for a configuration with Llama's field names.
struct FamilyDefaults {
    theta: f64,
    tied: bool,
    norm_eps: f64,
    /// `None`: the width divided by the number of heads.
    head_dim: Option<usize>,
    /// Whether `num_key_value_heads` is required, because it does not default to the number of query heads.
    kv_heads_required: bool,
    /// Rotated share of the head width, in families where it can be less than 1.
    rotated: Option<f64>,
}

impl FamilyDefaults {
    fn of(model_type: &str) -> Self {
        let base = Self {
            theta: 10_000.0,
            tied: false,
            norm_eps: 1e-6,
            head_dim: None,
            kv_heads_required: false,
            rotated: None,
        };
        let stated = Self { kv_heads_required: true, ..base };
        match model_type {
            "mistral" | "qwen2" | "qwen2_moe" | "qwen3_moe" | "starcoder2" => {
                Self { tied: model_type == "starcoder2", ..stated }
            }
            "qwen3" => Self { head_dim: Some(128), ..stated },
            "gemma" | "gemma2" | "gemma3_text" => Self { tied: true, head_dim: Some(256), ..stated },
            "smollm3" => Self { theta: 2_000_000.0, tied: true, ..stated },
            "mixtral" => Self { theta: 1_000_000.0, norm_eps: 1e-5, ..stated },
            "gpt_oss" => Self { theta: 150_000.0, norm_eps: 1e-5, head_dim: Some(64), ..stated },
            "stablelm" => Self { rotated: Some(0.25), ..stated },
            "phi" => Self { rotated: Some(0.5), ..base },
            "phi3" => Self { norm_eps: 1e-5, rotated: Some(1.0), ..base },
            "olmo2" | "olmo3" | "olmoe" | "diffllama" => Self { norm_eps: 1e-5, ..base },
            "cohere" => Self { theta: 500_000.0, tied: true, ..base },
            "cohere2" => Self { tied: true, ..base },
            "glm4" => Self { norm_eps: 1.5625e-7, head_dim: Some(128), rotated: Some(0.5), ..stated },
            _ => base,
        }
    }
}

#[cfg(test)]
mod tests;
