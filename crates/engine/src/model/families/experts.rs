//! Families with a mixture of experts: Mixtral, Qwen 2 and 3 MoE, OLMoE, gpt-oss, and DeepSeek V2 and V3 with latent attention
//! and experts that are chosen by groups.

use super::super::config::{Activation, ExpertChoice, Experts, Latent, ModelConfig, Positions};
use super::super::rotary::{RopeScaling, Rotary};
use super::llama;
use super::raw::Raw;
use crate::attention::LogitRule;
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

pub(super) fn mixtral(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let experts = Experts { normed: true, ..experts(raw, config.ffn)? };
    Ok(with_experts(config, experts, |_| true))
}

pub(super) fn qwen2_moe(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let shared = raw.size_or("shared_expert_intermediate_size", 5632)?;
    let config = llama::with_qwen_windows(config, raw, |layer, first_full| {
        layer.is_multiple_of(2) && (layer as f64) < first_full
    })?;
    with_qwen_experts(config, raw, Some(shared))
}

pub(super) fn qwen3_moe(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let config = with_qwen_experts(config, raw, None)?;
    if !raw.flag("use_sliding_window", false)? {
        return Ok(config);
    }
    Ok(config.windowed(raw.window(Some(4096))?, |_| true))
}

/// Adds experts to every `decoder_sparse_step`th layer, except those in `mlp_only_layers`.
fn with_qwen_experts(config: ModelConfig, raw: &Raw<'_>, shared: Option<usize>) -> Result<ModelConfig> {
    let normed = raw.flag("norm_topk_prob", false)?;
    let ffn = raw.size("moe_intermediate_size")?;
    let step = raw.size_or("decoder_sparse_step", 1)?;
    let dense = raw.layer_list("mlp_only_layers")?;
    let experts = Experts { normed, shared, shared_gate: shared.is_some(), ..experts(raw, ffn)? };
    Ok(with_experts(config, experts, |layer| !dense.contains(&layer) && (layer + 1).is_multiple_of(step)))
}

pub(super) fn olmoe(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let normed = raw.flag("norm_topk_prob", false)?;
    let experts = Experts { normed, ..experts(raw, config.ffn)? };
    // transformers leaves it to kernels other than its default.
    let window = raw.optional_tokens("sliding_window")?.filter(|&window| window < config.max_ctx_tok);
    ensure!(window.is_none(), "sliding_window {} is not supported by this model_type", window.unwrap_or_default());
    Ok(with_experts(config, experts, |_| true))
}

/// Experts with biases and a clamped SwiGLU.
pub(super) fn gpt_oss(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let scaling = raw.object("rope_parameters")?.or(raw.object("rope_scaling")?);
    ensure!(scaling.is_some(), "rope_parameters is missing, and so is rope_scaling");
    if let Activation::ClampedSwiglu { alpha, limit } = &mut config.activation {
        *alpha = raw.positive_or("swiglu_alpha", *alpha)?;
        *limit = raw.positive_or("swiglu_limit", *limit)?;
    }
    // Normalising the softmax over all logits to the chosen ones equals the softmax over the chosen ones.
    let experts = Experts { normed: true, router_bias: true, ..experts(raw, config.ffn)? };
    Ok(with_experts(config, experts, |_| true))
}

/// Scores of experts are the softmax, of all or of those in the groups with the largest one.
pub(super) fn deepseek_v2(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let (groups, groups_per_token) =
        match raw.text("topk_method")?.map_or_else(|| raw.default("topk_method", "greedy"), Ok)? {
            "greedy" => (1, 1),
            "group_limited_greedy" => (raw.size("n_group")?, raw.size("topk_group")?),
            other => bail!("topk_method \"{other}\" is not supported; greedy and group_limited_greedy are"),
        };
    let choice = ExpertChoice { sigmoid: false, groups, groups_per_token };
    let scale = raw.positive_or("routed_scaling_factor", 1.0)?;
    let experts = Experts { choice, scale, ..deepseek_experts(raw)? };
    let first = first_with_experts(raw, 0.0)?;
    Ok(with_experts(with_latent(config, raw, RopeStyle::Interleaved)?, experts, |layer| layer >= first))
}

/// Scores of experts are sigmoids, with a bias for the choice, of experts in the best groups.
pub(super) fn deepseek_v3(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let groups = raw.size_or("n_group", 8)?;
    let groups_per_token = raw.size_or("topk_group", 4)?;
    let experts = Experts {
        normed: raw.flag("norm_topk_prob", true)?,
        choice: ExpertChoice { sigmoid: true, groups, groups_per_token },
        scale: raw.positive_or("routed_scaling_factor", 2.5)?,
        ..deepseek_experts(raw)?
    };
    let count = experts.count;
    ensure!(count >= 2 * groups, "n_group is {groups}, but a group needs two of the {count} experts");
    let interleaved = raw.flag("rope_interleave", true)?;
    let first = first_with_experts(raw, 3.0)?;
    let style = if interleaved { RopeStyle::Interleaved } else { RopeStyle::Half };
    Ok(with_experts(with_latent(config, raw, style)?, experts, |layer| layer >= first))
}

/// Adds the latent attention, with the scale of its logits.
fn with_latent(config: ModelConfig, raw: &Raw<'_>, style: RopeStyle) -> Result<ModelConfig> {
    raw.only("num_key_value_heads", config.heads)?;
    ensure!(raw.has("q_lora_rank"), "q_lora_rank is missing; null projects queries from the input");
    let latent = Latent {
        query_rank: raw.optional_size("q_lora_rank")?,
        rank: raw.size("kv_lora_rank")?,
        rotated: raw.size("qk_rope_head_dim")?,
        value_dim: raw.size("v_head_dim")?,
    };
    let head_dim = latent.rotated + raw.size("qk_nope_head_dim")?;
    ensure!(
        latent.value_dim <= head_dim,
        "v_head_dim is {}, expected at most the {head_dim} channels of a key",
        latent.value_dim
    );
    // Where it is, it counts the rotated channels.
    if raw.get("head_dim").is_some() {
        raw.only("head_dim", latent.rotated)?;
    }
    let rotary = raw.rotary(latent.rotated, ("rope_theta", 10_000.0), None)?;
    let rule = LogitRule::plain(head_dim);
    let rule = LogitRule { scale: (f64::from(rule.scale) * latent_scale(raw, &rotary)?) as f32, ..rule };
    let mut config = ModelConfig {
        head_dim,
        latent: Some(latent),
        positions: Positions::Rotary { style, embeddings: vec![rotary] },
        ..config
    };
    config.layers.iter_mut().for_each(|layer| layer.rule = rule);
    Ok(config)
}

/// Factor on the logits of a context that YaRN lengthens: (0.1 mscale_all_dim ln factor + 1)².
fn latent_scale(raw: &Raw<'_>, rotary: &Rotary) -> Result<f64> {
    let Some(fields) = raw.object("rope_parameters")?.or(raw.object("rope_scaling")?) else { return Ok(1.0) };
    let mscale = Raw(fields).number("mscale_all_dim").context("rope_parameters")?.unwrap_or(0.0);
    match rotary.scaling {
        RopeScaling::Yarn { factor, .. } if mscale != 0.0 && factor > 1.0 => {
            Ok((0.1 * mscale * factor.ln() + 1.0).powi(2))
        }
        RopeScaling::None | RopeScaling::Yarn { .. } => Ok(1.0),
        _ if mscale == 0.0 => Ok(1.0),
        _ => bail!("mscale_all_dim {} is not supported, except for yarn", Value::from(mscale)),
    }
}

/// Index of the first layer with experts.
fn first_with_experts(raw: &Raw<'_>, default: f64) -> Result<usize> {
    let first = raw.number_or("first_k_dense_replace", default)?;
    ensure!(first >= 0.0 && first.fract() == 0.0, "first_k_dense_replace is {first}, expected a whole number");
    Ok(first as usize)
}

/// Experts and the shared ones, which are one MLP of their joint width.
fn deepseek_experts(raw: &Raw<'_>) -> Result<Experts> {
    let ffn = raw.size("moe_intermediate_size")?;
    let shared = raw.size("n_shared_experts")? * ffn;
    let count = raw.size(raw.first_of("n_routed_experts|num_local_experts|num_experts")?)?;
    Ok(Experts { shared: Some(shared), ..mixture(raw, count, ffn)? })
}

/// Reads the mixture of experts, each `ffn` wide. The number of experts has two field names.
fn experts(raw: &Raw<'_>, ffn: usize) -> Result<Experts> {
    mixture(raw, raw.size(raw.first_of("num_local_experts|num_experts")?)?, ffn)
}

/// A mixture of `count` experts, each `ffn` wide, of which the softmax of the logits chooses some.
fn mixture(raw: &Raw<'_>, count: usize, ffn: usize) -> Result<Experts> {
    Ok(Experts {
        count,
        per_token: raw.size("num_experts_per_tok")?,
        ffn,
        normed: false,
        router_bias: false,
        shared: None,
        shared_gate: false,
        choice: ExpertChoice::SOFTMAX,
        scale: 1.0,
    })
}

/// Gives the experts to the layers for which `has` is true.
fn with_experts(mut config: ModelConfig, experts: Experts, has: impl Fn(usize) -> bool) -> ModelConfig {
    for (i, layer) in config.layers.iter_mut().enumerate() {
        layer.experts = has(i);
    }
    ModelConfig { experts: Some(experts), ..config }
}
