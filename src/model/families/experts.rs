//! Families with a mixture of experts: Mixtral, Qwen 2 and 3 MoE, OLMoE, gpt-oss. DeepSeek has a file of its own.

use super::super::config::{Activation, Biases, ExpertChoice, Experts, Family, ModelConfig, QkNorm};
use super::super::raw::Raw;
use crate::attention::{Sink, Variant};
use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

impl ModelConfig {
    pub(super) fn with_mixtral(self, raw: &Raw<'_>) -> Result<Self> {
        let experts = Experts { normed: true, ..raw.experts(self.ffn)? };
        let config = Self { family: Family::Mixtral, ..self.with_experts(experts, |_| true) };
        Ok(config.windowed(raw.window(None)?, |_| true))
    }

    pub(super) fn with_qwen2_moe(self, raw: &Raw<'_>) -> Result<Self> {
        let shared = raw.optional_size("shared_expert_intermediate_size")?.unwrap_or(5632);
        let windowed = raw.flag("use_sliding_window")?.unwrap_or(false);
        let first_full = raw.number("max_window_layers")?.unwrap_or(28.0);
        let by_rule = |layer: usize| windowed && layer.is_multiple_of(2) && (layer as f64) < first_full;
        let sliding = raw.sliding(self.layers.len(), by_rule)?;
        ensure!(
            windowed || !sliding.contains(&true),
            "layer_types has sliding_attention, but use_sliding_window is false"
        );
        let bias = Biases { qkv: raw.flag("qkv_bias")?.unwrap_or(true), ..Biases::default() };
        let config = Self { bias, ..self.with_qwen_experts(raw, Some(shared))? };
        Ok(config.windowed(raw.window(Some(4096))?, |layer| sliding[layer]))
    }

    pub(super) fn with_qwen3_moe(self, raw: &Raw<'_>) -> Result<Self> {
        let config = Self { qk_norm: Some(QkNorm::Head), ..self.with_qwen_experts(raw, None)? };
        if raw.flag("use_sliding_window")? != Some(true) {
            return Ok(config);
        }
        Ok(config.windowed(raw.window(Some(4096))?, |_| true))
    }

    /// Adds experts to every `decoder_sparse_step`th layer, except those in `mlp_only_layers`.
    fn with_qwen_experts(self, raw: &Raw<'_>, shared: Option<usize>) -> Result<Self> {
        let normed = raw.flag("norm_topk_prob")?.unwrap_or(false);
        let ffn = raw.size("moe_intermediate_size")?;
        let step = raw.optional_size("decoder_sparse_step")?.unwrap_or(1);
        let dense = raw.layer_list("mlp_only_layers")?;
        let experts = Experts { normed, shared, shared_gate: shared.is_some(), ..raw.experts(ffn)? };
        Ok(self.with_experts(experts, |layer| !dense.contains(&layer) && (layer + 1).is_multiple_of(step)))
    }

    pub(super) fn with_olmoe(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("clip_qkv", Value::Null)?;
        raw.only("sliding_window", Value::Null)?;
        let normed = raw.flag("norm_topk_prob")?.unwrap_or(false);
        let experts = Experts { normed, ..raw.experts(self.ffn)? };
        Ok(Self { qk_norm: Some(QkNorm::Projection), ..self.with_experts(experts, |_| true) })
    }

    pub(super) fn with_gpt_oss(self, raw: &Raw<'_>) -> Result<Self> {
        let scaling = raw.object("rope_parameters")?.or(raw.object("rope_scaling")?);
        ensure!(scaling.is_some(), "rope_parameters is missing, and so is rope_scaling");
        let sliding = raw.sliding(self.layers.len(), |layer| layer.is_multiple_of(2))?;
        let bias = raw.flag("attention_bias")?.unwrap_or(true);
        // Normalising the softmax over all logits to the chosen ones equals the softmax over the chosen ones.
        let experts = Experts { normed: true, router_bias: true, ..raw.experts(self.ffn)? };
        let config = Self {
            family: Family::GptOss,
            variant: Variant { sink: Sink::Learned, ..self.variant },
            activation: Activation::ClampedSwiglu {
                alpha: raw.positive("swiglu_alpha")?.unwrap_or(1.702),
                limit: raw.positive("swiglu_limit")?.unwrap_or(7.0),
            },
            bias: Biases { qkv: bias, out: bias, mlp: true, head: false },
            ..self.with_experts(experts, |_| true)
        };
        Ok(config.windowed(Some(raw.needed_window(128)?), |layer| sliding[layer]))
    }

    pub(super) fn with_experts(mut self, experts: Experts, has: impl Fn(usize) -> bool) -> Self {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.experts = has(i);
        }
        Self { experts: Some(experts), ..self }
    }
}

impl Raw<'_> {
    /// Reads the mixture of experts, each `ffn` wide. The number of experts has two field names.
    fn experts(&self, ffn: usize) -> Result<Experts> {
        let (a, b) = (self.optional_size("num_local_experts")?, self.optional_size("num_experts")?);
        if let (Some(a), Some(b)) = (a, b) {
            ensure!(a == b, "num_local_experts is {a} and num_experts is {b}");
        }
        self.experts_of(a.or(b).context("num_experts is missing")?, ffn)
    }

    /// Describes a mixture of `count` experts, each `ffn` wide, of which the softmax of the logits chooses some.
    pub(super) fn experts_of(&self, count: usize, ffn: usize) -> Result<Experts> {
        let per_token = self.size("num_experts_per_tok")?;
        Ok(Experts {
            count,
            per_token,
            ffn,
            normed: false,
            router_bias: false,
            shared: None,
            shared_gate: false,
            choice: ExpertChoice::SOFTMAX,
            scale: 1.0,
        })
    }

    /// Reads a list of 0-based layers; empty if the field is missing.
    fn layer_list(&self, field: &str) -> Result<Vec<usize>> {
        let Some(list) = self.list(field)? else { return Ok(Vec::new()) };
        let layer = |value: &Value| match value.as_u64() {
            Some(layer) => Ok(layer as usize),
            None => bail!("{field} has {value}, expected the index of a layer"),
        };
        list.iter().map(layer).collect()
    }
}
