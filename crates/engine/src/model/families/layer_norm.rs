//! Families with LayerNorm: GPT-2, GPT-Neo, GPT-J, GPT-NeoX, OPT, Falcon, MPT, Phi, StableLM, StarCoder 2, Cohere.

use super::super::config::{ModelConfig, NormPlace, Positions, ResidualLayout};
use super::super::rotary::{RopeScaling, Rotary};
use super::raw::Raw;
use crate::attention::Alibi;
use crate::kernels::RopeStyle;
use crate::model::tensor_names::tensor_names;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

pub(super) fn gpt2(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    if raw.flag("scale_attn_by_inverse_layer_idx", false)? {
        for (i, layer) in config.layers.iter_mut().enumerate() {
            layer.rule.scale /= (i + 1) as f32;
        }
    }
    Ok(config)
}

pub(super) fn gpt_neo(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let local = local_layers(raw, config.layers.len())?;
    let window = raw.size_or("window_size", 256)?;
    config.layers.iter_mut().for_each(|layer| layer.rule.scale = 1.0);
    Ok(config.windowed(Some(window), |layer| local[layer]))
}

/// For each layer of GPT-Neo whether it has a window, from `attention_types`: lists of kinds and how often each is
/// repeated.
fn local_layers(raw: &Raw<'_>, layers: usize) -> Result<Vec<bool>> {
    let default = vec![json!([["global", "local"], 12])];
    let mut local = Vec::new();
    for entry in raw.list("attention_types")?.unwrap_or(&default) {
        let kinds = entry.get(0).and_then(Value::as_array);
        let (Some(kinds), Some(times)) = (kinds, entry.get(1).and_then(Value::as_u64)) else {
            bail!("attention_types has {entry}, expected a list of kinds and a number")
        };
        for _ in 0..times.min(layers as u64 + 1) {
            for kind in kinds {
                local.push(match kind.as_str() {
                    Some("global") => false,
                    Some("local") => true,
                    _ => bail!("attention_types has {kind}, expected global or local"),
                });
            }
        }
    }
    ensure!(local.len() == layers, "attention_types has {} entries for {layers} layers", local.len());
    // transformers saves both.
    if let Some(listed) = raw.list("attention_layers")? {
        let same = listed.iter().eq(local.iter().map(|&is_local| if is_local { "local" } else { "global" }));
        ensure!(same, "attention_layers is not what attention_types gives");
    }
    Ok(local)
}

pub(super) fn gptj(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let channels = raw.size_or("rotary_dim", 64)?;
    let rotary = Rotary { theta: 10_000.0, channels, scaling: RopeScaling::None };
    let positions = Positions::Rotary { style: RopeStyle::Interleaved, embeddings: vec![rotary] };
    Ok(ModelConfig { positions, ..config })
}

pub(super) fn gpt_neox(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    // The configuration class of transformers lacks this field, but its rotary embedding reads it.
    if raw.get("head_dim").is_some() {
        raw.only("head_dim", config.head_dim)?;
    }
    if let (Positions::Rotary { embeddings, .. }, Some(theta)) = (&config.positions, raw.positive("rope_theta")?) {
        let own = embeddings[0].theta;
        ensure!(theta == own, "rope_theta {theta} has no effect in this model_type, whose rotary_emb_base is {own}");
    }
    let parallel = raw.flag("use_parallel_residual", true)?;
    let residual = if parallel { ResidualLayout::Parallel } else { ResidualLayout::Serial };
    Ok(ModelConfig { residual, ..config })
}

pub(super) fn opt(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    config.embed_width = raw.optional_size("word_embed_proj_dim")?.unwrap_or(config.width);
    if !raw.flag("do_layer_norm_before", true)? {
        (config.norm_place, config.final_norm) = (NormPlace::Sum, false);
        config.names = tensor_names("opt-350m");
    }
    Ok(config)
}

/// 7B (one key head, one norm for attention and MLP), 40B and 180B (groups of key heads, two norms), 2 11B (groups, one norm),
/// RW (ALiBi in bfloat16), and older ones with a serial block.
pub(super) fn falcon(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let grouped = raw.flag("new_decoder_architecture", false)?;
    let parallel = raw.flag("parallel_attn", true)?;
    let is_multi_query = !grouped && raw.flag("multi_query", true)?;
    config.kv_heads = if is_multi_query { 1 } else { raw.optional_size("num_kv_heads")?.unwrap_or(config.heads) };
    ensure!(
        grouped || is_multi_query || config.kv_heads == config.heads,
        "num_kv_heads is {}, but without new_decoder_architecture each of the {} heads has its own",
        config.kv_heads,
        config.heads
    );
    let norms = raw.optional_size("num_ln_in_parallel_attn")?;
    config.residual = match (grouped, parallel, norms) {
        (true, true, None | Some(2)) => ResidualLayout::Parallel,
        (_, true, None | Some(1)) => ResidualLayout::OneNorm,
        (false, false, None) => ResidualLayout::Serial,
        _ => bail!(
            "num_ln_in_parallel_attn {} does not fit parallel_attn {parallel} and new_decoder_architecture {grouped}",
            norms.map_or("null".to_owned(), |norms| norms.to_string())
        ),
    };
    if config.residual == ResidualLayout::Parallel {
        config.names = tensor_names("falcon-40b");
    }
    Ok(if raw.flag("alibi", false)? { config.with_alibi(Alibi::Rounded) } else { config })
}

pub(super) fn mpt(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    match raw.object("attn_config")? {
        None => Ok(config),
        Some(attention) => with_attn_config(config, &Raw(attention)).context("attn_config"),
    }
}

fn with_attn_config(mut config: ModelConfig, attention: &Raw<'_>) -> Result<ModelConfig> {
    attention.only("alibi", true)?;
    attention.only("qk_ln", false)?;
    attention.only("prefix_lm", false)?;
    attention.only("attn_type", "multihead_attention")?;
    attention.only("clip_qkv", Value::Null)?;
    // transformers reads this field but ignores it.
    attention.only("alibi_bias_max", 8)?;
    if let Some(scale) = attention.positive("softmax_scale")? {
        config.layers.iter_mut().for_each(|layer| layer.rule.scale = scale as f32);
    }
    Ok(config)
}

pub(super) fn stablelm(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let parallel = raw.flag("use_parallel_residual", false)?;
    Ok(ModelConfig { residual: if parallel { ResidualLayout::OneNorm } else { ResidualLayout::Serial }, ..config })
}

pub(super) fn cohere(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    Ok(ModelConfig { logit_scale: raw.positive_or("logit_scale", 0.0625)?, ..config })
}

/// Layers with full attention have no positions.
pub(super) fn cohere2(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    config.check_head_dim(raw)?;
    config.logit_scale = raw.positive_or("logit_scale", 0.0625)?;
    config.layers.iter_mut().for_each(|layer| layer.rotary = layer.rotary.filter(|_| layer.rule.window.is_some()));
    Ok(config)
}
