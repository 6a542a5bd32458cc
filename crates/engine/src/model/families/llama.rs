//! Families with RMSNorm and gated MLPs: Qwen, SmolLM 3, Phi 3, OLMo 3, Granite, GLM 4, Ministral 3, ERNIE 4.5, Seed-OSS,
//! EXAONE 4.

use super::super::config::{ModelConfig, PositionScale, Positions};
use super::super::rotary::RopeScaling;
use super::raw::Raw;
use crate::attention::{Gate, Variant};
use crate::model::tensor_names::tensor_names;
use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

/// Base of the rotary embeddings of OLMo 3.
const OLMO3_THETA: f64 = 500_000.0;

pub(super) fn qwen3(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let normed = raw.flag("use_qk_norm", true)?;
    let qk_norm = config.qk_norm.filter(|_| normed);
    let config = ModelConfig { qk_norm, ..with_qwen_windows(config, raw, from_layer)? };
    let by_head = raw.flag("headwise_attn_output_gate", false)?;
    let gate = match (by_head, raw.flag("elementwise_attn_output_gate", false)?) {
        (false, false) => return Ok(config),
        (true, false) => Gate::Head,
        (false, true) => Gate::Channel,
        (true, true) => bail!("headwise_attn_output_gate and elementwise_attn_output_gate are both true"),
    };
    // The gate would have a bias too.
    raw.only("qkv_bias", false)?;
    raw.only("attention_bias", false)?;
    Ok(ModelConfig { names: tensor_names("gated-qwen3"), variant: Variant { gate, ..config.variant }, ..config })
}

/// `slides` is the rule for layers without `layer_types`, given `max_window_layers`. Without `use_sliding_window` the other
/// settings of windows have no effect.
pub(super) fn with_qwen_windows(
    config: ModelConfig,
    raw: &Raw<'_>,
    slides: fn(usize, f64) -> bool,
) -> Result<ModelConfig> {
    let window = if raw.flag("use_sliding_window", false)? { raw.window(Some(4096))? } else { None };
    // Unlike sizes, this number may be 0.
    let most = raw.number_or("max_window_layers", 28.0)?;
    let sliding = raw.sliding(config.layers.len(), |layer| window.is_some() && slides(layer, most))?;
    ensure!(
        window.is_some() || !sliding.contains(&true),
        "layer_types has sliding_attention, but use_sliding_window or sliding_window turns windows off"
    );
    Ok(config.windowed(window, |layer| sliding[layer]))
}

/// The rule of Qwen 2 and 3.
pub(super) fn from_layer(layer: usize, first: f64) -> bool {
    layer as f64 >= first
}

/// Some layers have no RoPE.
pub(super) fn smollm3(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let layers = config.layers.len();
    let interval = raw.size_or("no_rope_layer_interval", 4)?;
    let has_rope: Vec<bool> = match raw.per_layer("no_rope_layers", layers)? {
        Some(list) => list.iter().map(yes_or_no).collect::<Result<_>>()?,
        None => (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect(),
    };
    for (layer, &has_rope) in config.layers.iter_mut().zip(&has_rope) {
        layer.rotary = layer.rotary.filter(|_| has_rope);
    }
    // Where there is layer_types, use_sliding_window has no effect.
    let windowed = raw.flag("use_sliding_window", false)? && raw.get("sliding_window").is_some();
    let sliding = raw.sliding(layers, |layer| windowed && !has_rope[layer])?;
    if !sliding.contains(&true) {
        return Ok(config);
    }
    let window = raw.tokens("sliding_window")?;
    Ok(config.windowed(Some(window), |layer| sliding[layer]))
}

/// Parses 0 or 1, false or true.
fn yes_or_no(value: &Value) -> Result<bool> {
    match (value.as_bool(), value.as_u64()) {
        (Some(yes), _) => Ok(yes),
        (_, Some(number @ (0 | 1))) => Ok(number == 1),
        _ => bail!("no_rope_layers has {value}, expected 0 or 1"),
    }
}

pub(super) fn phi3(config: ModelConfig) -> Result<ModelConfig> {
    if let Positions::Rotary { embeddings, .. } = &config.positions {
        // transformers reads any other type as longrope.
        ensure!(
            matches!(embeddings[0].scaling, RopeScaling::None | RopeScaling::LongRope { .. }),
            "rope_scaling of phi3 is not supported, except for longrope"
        );
    }
    Ok(config)
}

/// Layers without a window have YaRN.
pub(super) fn olmo3(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let theta = raw.positive("rope_theta")?;
    let embeddings = raw.rotary_by_kind(config.head_dim, theta.unwrap_or(OLMO3_THETA), OLMO3_THETA)?;
    // transformers 5 applies a base outside of rope_parameters to full-attention layers only, earlier versions to all.
    ensure!(
        theta.is_none_or(|theta| theta == OLMO3_THETA) || raw.has("rope_parameters"),
        "rope_theta {} is not supported by this model_type outside of rope_parameters",
        theta.unwrap_or_default()
    );
    Ok(config.with_rotary_by_kind(embeddings))
}

/// Factors on embeddings, logits, block outputs and attention.
pub(super) fn granite(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let scale = raw.positive_or("attention_multiplier", 1.0)? as f32;
    config.layers.iter_mut().for_each(|layer| layer.rule.scale = scale);
    Ok(ModelConfig {
        embed_scale: raw.positive_or("embedding_multiplier", 1.0)?,
        residual_scale: raw.positive_or("residual_multiplier", 1.0)?,
        logit_scale: 1.0 / raw.positive_or("logits_scaling", 1.0)?,
        ..config
    })
}

/// Granite 4, whose MLP is the shared expert of the mixtures of other sizes.
pub(super) fn granite_hybrid(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    raw.only("num_local_experts", 0)?;
    ensure!(raw.has("num_local_experts"), "num_local_experts is missing; only 0 is supported");
    let kinds = raw.first_of("layers_block_type|layer_types")?;
    let layers = raw.per_layer(kinds, config.layers.len())?;
    for kind in layers.with_context(|| format!("{kinds} is missing; state-space layers are not supported"))? {
        ensure!(
            matches!(kind.as_str(), Some("attention" | "full_attention")),
            "{kinds} {kind} is not supported; models without state-space layers are, such as granite-4.0-1b"
        );
    }
    let config = granite(ModelConfig { ffn: raw.size("shared_intermediate_size")?, ..config }, raw)?;
    Ok(if raw.text("position_embedding_type")? == Some("rope") { config } else { config.without_rotary() })
}

/// Queries are scaled by their position, as in Llama 4.
pub(super) fn ministral3(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let rope = Raw(raw.object("rope_parameters")?.context("rope_parameters is missing")?);
    let beta = rope.positive("llama_4_scaling_beta")?;
    let ctx_tok = rope.tokens("original_max_position_embeddings")?;
    let position_scale = PositionScale { beta: beta.context("llama_4_scaling_beta is missing")?, ctx_tok };
    Ok(ModelConfig { position_scale: Some(position_scale), ..config })
}

/// In models with windows, layers without one have no RoPE either.
pub(super) fn exaone4(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let layers = config.layers.len();
    let Some(window) = raw.window(Some(4096))? else {
        let sliding = raw.sliding(layers, |_| false)?;
        ensure!(!sliding.contains(&true), "layer_types has sliding_attention, but sliding_window is null");
        return Ok(config);
    };
    // A pattern such as "LLLG" comes with layer_types.
    let pattern = if raw.has("layer_types") { None } else { raw.optional_size("sliding_window_pattern")? };
    let sliding = raw.sliding(layers, |layer| !(layer + 1).is_multiple_of(pattern.unwrap_or(4)))?;
    let mut config = config.windowed(Some(window), |layer| sliding[layer]);
    for (layer, &sliding) in config.layers.iter_mut().zip(&sliding) {
        layer.rotary = layer.rotary.filter(|_| sliding);
    }
    Ok(config)
}
