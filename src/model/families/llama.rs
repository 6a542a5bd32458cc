//! Families with RMSNorm and gated MLPs: Mistral, Qwen, SmolLM 3, Phi 3, OLMo, Granite, GLM 4.

use super::super::config::{Biases, Family, ModelConfig, NormPlace, Positions, QkNorm};
use super::super::raw::Raw;
use super::super::rotary::RopeScaling;
use crate::attention::{Gate, Variant};
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Result};
use serde_json::{json, Value};

/// Base of the rotary embeddings of OLMo 3.
const OLMO3_THETA: f64 = 500_000.0;

impl ModelConfig {
    pub(super) fn with_mistral(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("layer_types", Value::Null)?;
        let window = raw.window(Some(4096))?;
        Ok(self.windowed(window, |_| true))
    }

    pub(super) fn with_qwen2(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("use_mrope", json!(false))?;
        let config = self.with_qwen_windows(raw)?;
        Ok(Self { bias: Biases { qkv: true, ..config.bias }, ..config })
    }

    pub(super) fn with_qwen3(self, raw: &Raw<'_>) -> Result<Self> {
        let normed = raw.flag("use_qk_norm")?.unwrap_or(true);
        let config = Self { qk_norm: normed.then_some(QkNorm::Head), ..self.with_qwen_windows(raw)? };
        config.with_gate_in_q(raw)
    }

    /// The output gate of the models of arXiv 2505.06708, whose rows stand in `q_proj`.
    fn with_gate_in_q(self, raw: &Raw<'_>) -> Result<Self> {
        let flag = |field| Ok::<_, anyhow::Error>(raw.flag(field)?.unwrap_or(false));
        let gate = match (flag("headwise_attn_output_gate")?, flag("elementwise_attn_output_gate")?) {
            (false, false) => return Ok(self),
            (true, false) => Gate::Head,
            (false, true) => Gate::Channel,
            (true, true) => bail!("headwise_attn_output_gate and elementwise_attn_output_gate are both true"),
        };
        // The gate would have a bias too.
        raw.only("qkv_bias", json!(false))?;
        raw.only("attention_bias", json!(false))?;
        Ok(Self { family: Family::GatedQwen3, variant: Variant { gate, ..self.variant }, ..self })
    }

    fn with_qwen_windows(self, raw: &Raw<'_>) -> Result<Self> {
        let slides = raw.flag("use_sliding_window")? == Some(true);
        let window = if slides { raw.window(Some(4096))? } else { None };
        // Unlike sizes, this number may be 0.
        let first = raw.number("max_window_layers")?.unwrap_or(28.0);
        let sliding = raw.sliding(self.layers.len(), |layer| window.is_some() && layer as f64 >= first)?;
        ensure!(
            window.is_some() || !sliding.contains(&true),
            "layer_types has sliding_attention, but use_sliding_window or sliding_window turns windows off"
        );
        Ok(self.windowed(window, |layer| sliding[layer]))
    }

    pub(super) fn with_smollm3(mut self, raw: &Raw<'_>) -> Result<Self> {
        let layers = self.layers.len();
        let interval = raw.optional_size("no_rope_layer_interval")?.unwrap_or(4);
        let has_rope: Vec<bool> = match raw.per_layer("no_rope_layers", layers)? {
            Some(list) => list.iter().map(yes_or_no).collect::<Result<_>>()?,
            None => (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect(),
        };
        for (layer, &has_rope) in self.layers.iter_mut().zip(&has_rope) {
            layer.rotary = layer.rotary.filter(|_| has_rope);
        }
        if raw.flag("use_sliding_window")? != Some(true) {
            return Ok(self);
        }
        let window = raw.optional_tokens("sliding_window")?;
        let sliding = raw.sliding(layers, |layer| !has_rope[layer])?;
        Ok(self.windowed(window, |layer| sliding[layer]))
    }

    pub(super) fn with_phi3(self, raw: &Raw<'_>) -> Result<Self> {
        if let Positions::Rotary { embeddings, .. } = &self.positions {
            // transformers reads any other type as longrope.
            ensure!(
                matches!(embeddings[0].scaling, RopeScaling::None | RopeScaling::LongRope { .. }),
                "rope_scaling of phi3 is not supported, except for longrope"
            );
        }
        let window = raw.optional_tokens("sliding_window")?;
        Ok(Self { family: Family::Phi3, ..self.windowed(window, |_| true) })
    }

    pub(super) fn with_olmo2(self) -> Self {
        Self { norm_place: NormPlace::After, qk_norm: Some(QkNorm::Projection), ..self }
    }

    pub(super) fn with_olmo3(self, raw: &Raw<'_>) -> Result<Self> {
        let sliding = raw.sliding(self.layers.len(), |layer| !(layer + 1).is_multiple_of(4))?;
        let theta = raw.positive("rope_theta")?;
        let embeddings = raw.rotary_by_kind(self.head_dim, theta.unwrap_or(OLMO3_THETA), OLMO3_THETA)?;
        // transformers 5 applies a base outside of rope_parameters to full-attention layers only, earlier versions to
        // all.
        ensure!(
            theta.is_none_or(|theta| theta == OLMO3_THETA) || raw.has("rope_parameters"),
            "rope_theta {} is not supported by this model_type outside of rope_parameters",
            theta.unwrap_or_default()
        );
        let mut config = self.with_olmo2();
        config.positions = Positions::Rotary { style: RopeStyle::Half, embeddings };
        for (layer, &sliding) in config.layers.iter_mut().zip(&sliding) {
            layer.rotary = Some(usize::from(sliding));
        }
        Ok(config.windowed(Some(raw.needed_window(4096)?), |layer| sliding[layer]))
    }

    pub(super) fn with_glm4(self, raw: &Raw<'_>) -> Result<Self> {
        let bias = Biases { qkv: raw.flag("attention_bias")?.unwrap_or(true), ..Biases::default() };
        Ok(Self { family: Family::Glm4, norm_place: NormPlace::Both, bias, ..self })
    }

    pub(super) fn with_granite(mut self, raw: &Raw<'_>) -> Result<Self> {
        let factor = |field| Ok::<_, anyhow::Error>(raw.positive(field)?.unwrap_or(1.0));
        let scale = factor("attention_multiplier")? as f32;
        self.layers.iter_mut().for_each(|layer| layer.rule.scale = scale);
        Ok(Self {
            embed_scale: factor("embedding_multiplier")?,
            residual_scale: factor("residual_multiplier")?,
            logit_scale: 1.0 / factor("logits_scaling")?,
            ..self
        })
    }

    /// Sets the window of the layers for which `slides` is true.
    pub(super) fn windowed(mut self, window: Option<usize>, slides: impl Fn(usize) -> bool) -> Self {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.rule.window = window.filter(|_| slides(i));
        }
        self
    }
}

/// Parses 0 or 1, false or true.
fn yes_or_no(value: &Value) -> Result<bool> {
    match (value.as_bool(), value.as_u64()) {
        (Some(yes), _) => Ok(yes),
        (_, Some(number @ (0 | 1))) => Ok(number == 1),
        _ => bail!("no_rope_layers has {value}, expected 0 or 1"),
    }
}
