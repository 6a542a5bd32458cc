//! DeepSeek V2 and V3: latent attention, and experts that are chosen by groups.

use super::super::config::{Biases, ExpertChoice, Experts, Family, Latent, ModelConfig, Positions};
use super::super::raw::Raw;
use super::super::rotary::{RopeScaling, Rotary};
use crate::attention::LogitRule;
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

impl ModelConfig {
    /// Softmax scores, of all experts or of those in the groups with the largest one.
    pub(super) fn with_deepseek_v2(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("scoring_func", json!("softmax"))?;
        // transformers does not read it here.
        raw.only("norm_topk_prob", json!(false))?;
        let (groups, groups_per_token) = match raw.text("topk_method")?.unwrap_or("greedy") {
            "greedy" => (1, 1),
            "group_limited_greedy" => (raw.size("n_group")?, raw.size("topk_group")?),
            other => bail!("topk_method \"{other}\" is not supported; greedy and group_limited_greedy are"),
        };
        let choice = ExpertChoice { sigmoid: false, groups, groups_per_token };
        let scale = raw.positive("routed_scaling_factor")?.unwrap_or(1.0);
        let (experts, first) = (Experts { choice, scale, ..raw.experts_of_deepseek()? }, raw.first_with_experts(0)?);
        self.with_latent(raw, RopeStyle::Interleaved).map(|config| config.with_experts(experts, |layer| layer >= first))
    }

    /// Sigmoid scores with a bias for the choice, of experts in the best groups.
    pub(super) fn with_deepseek_v3(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("scoring_func", json!("sigmoid"))?;
        raw.only("topk_method", json!("noaux_tc"))?;
        let number = |field, default| Ok::<_, anyhow::Error>(raw.optional_size(field)?.unwrap_or(default));
        let (groups, groups_per_token) = (number("n_group", 8)?, number("topk_group", 4)?);
        let experts = Experts {
            normed: raw.flag("norm_topk_prob")?.unwrap_or(true),
            choice: ExpertChoice { sigmoid: true, groups, groups_per_token },
            scale: raw.positive("routed_scaling_factor")?.unwrap_or(2.5),
            ..raw.experts_of_deepseek()?
        };
        ensure!(
            experts.count >= 2 * groups,
            "n_group is {groups}, but a group needs two of the {} experts",
            experts.count
        );
        let style = match raw.flag("rope_interleave")?.unwrap_or(true) {
            true => RopeStyle::Interleaved,
            false => RopeStyle::Half,
        };
        let first = raw.first_with_experts(3)?;
        self.with_latent(raw, style).map(|config| config.with_experts(experts, |layer| layer >= first))
    }

    /// Adds the latent attention, with the scale of its logits.
    fn with_latent(self, raw: &Raw<'_>, style: RopeStyle) -> Result<Self> {
        raw.only("mlp_bias", json!(false))?;
        raw.only("num_key_value_heads", json!(self.heads))?;
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
        raw.only("head_dim", json!(latent.rotated))?;
        let rotary = raw.rotary(latent.rotated, 10_000.0, None)?;
        let rule = LogitRule::plain(head_dim);
        let rule = LogitRule { scale: (f64::from(rule.scale) * raw.latent_scale(&rotary)?) as f32, ..rule };
        let bias = raw.flag("attention_bias")?.unwrap_or(false);
        let mut config = Self {
            family: Family::DeepSeek,
            head_dim,
            latent: Some(latent),
            positions: Positions::Rotary { style, embeddings: vec![rotary] },
            bias: Biases { qkv: bias, out: bias, ..Biases::default() },
            ..self
        };
        config.layers.iter_mut().for_each(|layer| layer.rule = rule);
        Ok(config)
    }
}

impl Raw<'_> {
    /// Index of the first layer with experts.
    fn first_with_experts(&self, default: usize) -> Result<usize> {
        self.only("moe_layer_freq", json!(1))?;
        let Some(first) = self.number("first_k_dense_replace")? else { return Ok(default) };
        ensure!(first >= 0.0 && first.fract() == 0.0, "first_k_dense_replace is {first}, expected a whole number");
        Ok(first as usize)
    }

    /// Experts and the shared ones, which are one MLP of their joint width.
    fn experts_of_deepseek(&self) -> Result<Experts> {
        let ffn = self.size("moe_intermediate_size")?;
        let shared = self.size("n_shared_experts")? * ffn;
        Ok(Experts { shared: Some(shared), ..self.experts_of(self.size("n_routed_experts")?, ffn)? })
    }

    /// Factor on the logits of a context that YaRN lengthens: (0.1 mscale_all_dim ln factor + 1)².
    fn latent_scale(&self, rotary: &Rotary) -> Result<f64> {
        let Some(fields) = self.object("rope_parameters")?.or(self.object("rope_scaling")?) else { return Ok(1.0) };
        let all = Raw(fields).number("mscale_all_dim").context("rope_parameters")?.unwrap_or(0.0);
        match rotary.scaling {
            RopeScaling::Yarn { factor, .. } if all != 0.0 && factor > 1.0 => {
                Ok((0.1 * all * factor.ln() + 1.0).powi(2))
            }
            RopeScaling::None | RopeScaling::Yarn { .. } => Ok(1.0),
            _ if all == 0.0 => Ok(1.0),
            _ => bail!("mscale_all_dim {} is not supported, except for yarn", Value::from(all)),
        }
    }
}
