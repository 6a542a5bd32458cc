//! From a `config.json` of any supported family to the description a decoder is built from.
//!
//! | `model_type` | what it adds to Llama's shape |
//! |---|---|
//! | `llama` | biases; linear, Llama 3 and YaRN scaling of RoPE |
//! | `mistral` | a sliding window in all layers |
//! | `qwen2` | biases of q, k, v; a window from `max_window_layers` on |
//! | `qwen3` | a norm on queries and keys of each head |
//! | `gemma2` | norms before and after, soft caps, windows in every other layer, scaled embeddings |
//! | `gemma3_text` | the same without caps, QK-norm, two rotary embeddings |
//! | `phi3` | fused projections, partial rotation, a window |
//! | `olmo2` | norms after only, QK-norm over the whole projection |
//! | `smollm3` | layers without RoPE |
//! | `gpt2`, `opt` | LayerNorm, learned positions, a plain MLP, biases |
//! | `gpt_neox` | LayerNorm, parallel residual, partial rotation, fused projections |
//! | `diffllama` | DIFF V1, pairs (i, i + H), half-rotation RoPE, head norm without gain; raw heads counted |
//! | `difftool` (ours) | any attention variant: `attention` states every choice, `rope_style` the rotation; output heads counted |
//! | `difftool_diff_v1` (ours, until 0.1) | DIFF V1 of the Microsoft files: adjacent pairs, interleaved RoPE, head norm with gain; `diff_pairing` may say otherwise; raw heads counted |
//! | `difftool_diff_v2` (ours, until 0.1) | DIFF V2 of the Microsoft file: `q_proj` (2 H d, E), `lambda_proj` (H, E), adjacent pairs; output heads counted |
//! | `difftool_diff_scalar` (ours, until 0.1) | one scalar lambda per layer, halves, a norm over all heads; output heads counted |
//!
//! The defaults of absent fields are those of transformers 5.23. A field that asks for something else is an error which
//! names it.

use super::config::{
    Activation, Biases, Family, Layer, ModelConfig, NormKind, NormPlace, Positions, QkNorm, Sizes, ATTENTION_FIELD,
    OWN_MODEL_TYPE,
};
use super::raw::{Raw, Rope, RotaryDefaults};
use super::rotary::{RopeScaling, Rotary};
use crate::attention::{HeadNorm, Keys, LogitRule, Pairing, ValueWidth, Variant};
use crate::bail_usage;
use crate::ops::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{json, Map, Value};

/// Which heads make a map, where a configuration does not say so or says it wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One map per head
    Standard,
    /// DIFF V1 as Hugging Face has it: pairs (i, i+H), half-rotation RoPE, head norm without gain
    Diffllama,
    /// DIFF V1 as in Microsoft's flash files: pairs (2i, 2i+1), interleaved RoPE, head norm with gain
    MicrosoftV1,
    /// The same with the keys of Microsoft's naive file, another function under grouped heads
    MicrosoftV1Naive,
    /// DIFF V2 as in Microsoft's file: pairs (2i, 2i+1) on one key head, lambda per token and head
    MicrosoftV2,
    /// One scalar lambda per layer, pairs (i, i+H), one norm over all heads
    Scalar,
}

/// What every supported model type is called.
const MODEL_TYPES: &str = "llama, mistral, qwen2, qwen3, gpt2, gpt_neox, opt, gemma2, gemma3_text, phi3, olmo2, \
    smollm3, diffllama, difftool, difftool_diff_v1, difftool_diff_v2 and difftool_diff_scalar";

impl ModelConfig {
    /// Resolves a parsed `config.json`; `layout` overrides what it says about differential heads.
    ///
    /// # Errors
    /// If a field is missing, contradictory or not supported; the field is named.
    pub fn from_json(value: &Value, layout: Option<Layout>) -> Result<Self> {
        let raw = Raw(value.as_object().context("a model configuration is a JSON object")?);
        let model_type = raw.text("model_type")?.context("model_type is missing")?;
        raw.only("quantization_config", Value::Null)?;
        let llama = || Self::of_llama(&raw, layout);
        let mut config = match model_type {
            "llama" | "diffllama" | "difftool_diff_v1" | "difftool_diff_v2" | "difftool_diff_scalar" => llama(),
            OWN_MODEL_TYPE => llama(),
            "mistral" => llama().and_then(|config| config.with_mistral(&raw)),
            "qwen2" => llama().and_then(|config| config.with_qwen2(&raw)),
            "qwen3" => llama().and_then(|config| config.with_qwen3(&raw)),
            "gemma2" => llama().and_then(|config| config.with_gemma2(&raw)),
            "gemma3_text" => llama().and_then(|config| config.with_gemma3(&raw)),
            "phi3" => llama().and_then(|config| config.with_phi3(&raw)),
            "olmo2" => {
                llama().map(|config| Self { norm_place: NormPlace::After, qk_norm: Some(QkNorm::Projection), ..config })
            }
            "smollm3" => llama().and_then(|config| config.with_smollm3(&raw)),
            "gpt2" => Self::of_gpt2(&raw),
            "gpt_neox" => Self::of_gpt_neox(&raw),
            "opt" => Self::of_opt(&raw),
            other => bail!("model_type \"{other}\" is not supported; {MODEL_TYPES} are"),
        }?;
        if layout.is_some_and(|layout| layout != Layout::Standard) && config.family != Family::Llama {
            bail_usage!("`layout`: a {model_type} has no differential heads");
        }
        config.model_type = model_type.to_owned();
        config.check()?;
        Ok(config)
    }

    /// What all families with Llama's names share.
    fn of_llama(raw: &Raw<'_>, layout: Option<Layout>) -> Result<Self> {
        let model_type = raw.text("model_type")?.unwrap_or_default();
        let counted = raw.size("num_attention_heads")?;
        let layout = Resolved::new(raw, model_type, layout)?;
        let heads = if layout.raw_heads {
            ensure!(counted.is_multiple_of(2), "num_attention_heads {counted} is odd; DIFF V1 pairs them");
            counted / 2
        } else {
            counted
        };
        let width = raw.size("hidden_size")?;
        let head_dim = match raw.optional_size("head_dim")? {
            Some(head_dim) => head_dim,
            None if model_type == "qwen3" => 128,
            None if model_type.starts_with("gemma") => 256,
            None => {
                ensure!(
                    width.is_multiple_of(counted),
                    "head_dim is missing, and num_attention_heads {counted} does not divide hidden_size {width}"
                );
                width / counted
            }
        };
        let sizes = Sizes {
            vocab: raw.tokens("vocab_size")?,
            width,
            layers: raw.layers("num_hidden_layers")?,
            ffn: raw.size("intermediate_size")?,
            heads,
            kv_heads: raw.kv_heads(model_type, counted)?,
            head_dim,
            max_ctx_tok: raw.tokens("max_position_embeddings")?,
        };
        let (theta, tied) = match model_type {
            "smollm3" => (2_000_000.0, true),
            "gemma2" | "gemma3_text" => (10_000.0, true),
            _ => (10_000.0, false),
        };
        let style = layout.style.unwrap_or(RopeStyle::Half);
        let mut config = Self::llama(layout.variant, sizes, theta, style);
        if layout.style.is_none() {
            config.layers.iter_mut().for_each(|layer| layer.rotary = None);
        }
        if model_type != "gemma3_text" {
            let part_field = (model_type == "phi3").then_some("partial_rotary_factor");
            let rotary = raw.rotary(head_dim, RotaryDefaults { part_field, ..RotaryDefaults::whole(theta) })?;
            config.positions = Positions::Rotary { style, embeddings: vec![rotary] };
        }
        let attention_bias = raw.flag("attention_bias")?.unwrap_or(false);
        config.bias = Biases { qkv: attention_bias, out: attention_bias, mlp: raw.flag("mlp_bias")?.unwrap_or(false) };
        config.activation = raw.activation("hidden_act", Activation::Silu)?;
        let default_eps = if matches!(model_type, "phi3" | "olmo2" | "diffllama") { 1e-5 } else { 1e-6 };
        config.norm_eps = raw.positive("rms_norm_eps")?.unwrap_or(default_eps);
        config.tied = raw.flag("tie_word_embeddings")?.unwrap_or(tied);
        Ok(config)
    }

    fn with_mistral(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("layer_types", Value::Null)?;
        let window = if raw.has("sliding_window") { raw.optional_tokens("sliding_window")? } else { Some(4096) };
        Ok(self.windowed(window, |_| true))
    }

    fn with_qwen2(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("use_mrope", json!(false))?;
        let config = self.with_qwen_windows(raw)?;
        Ok(Self { bias: Biases { qkv: true, ..config.bias }, ..config })
    }

    fn with_qwen3(self, raw: &Raw<'_>) -> Result<Self> {
        Ok(Self { qk_norm: Some(QkNorm::Head), ..self.with_qwen_windows(raw)? })
    }

    fn with_qwen_windows(self, raw: &Raw<'_>) -> Result<Self> {
        if raw.flag("use_sliding_window")? != Some(true) {
            return Ok(self);
        }
        let window = raw.optional_tokens("sliding_window")?;
        // 0 is a number here, unlike in every size.
        let first = raw.number("max_window_layers")?.unwrap_or(28.0);
        let sliding = raw.sliding(self.layers.len(), |layer| layer as f64 >= first)?;
        Ok(self.windowed(window, |layer| sliding[layer]))
    }

    fn with_smollm3(mut self, raw: &Raw<'_>) -> Result<Self> {
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

    fn with_phi3(self, raw: &Raw<'_>) -> Result<Self> {
        if let Positions::Rotary { embeddings, .. } = &self.positions {
            // transformers takes every other name for longrope.
            ensure!(embeddings[0].scaling == RopeScaling::None, "rope_scaling of phi3 is not supported");
        }
        let window = raw.optional_tokens("sliding_window")?;
        Ok(Self { family: Family::Phi3, ..self.windowed(window, |_| true) })
    }

    /// What Gemma 2 and 3 share.
    fn with_gemma(mut self, raw: &Raw<'_>, sliding: &[bool]) -> Result<Self> {
        raw.only("use_bidirectional_attention", json!(false))?;
        let scalar = raw.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
        let window = if raw.has("sliding_window") { raw.optional_tokens("sliding_window")? } else { Some(4096) };
        for layer in &mut self.layers {
            layer.rule.scale = (1.0 / scalar.sqrt()) as f32;
        }
        let config = Self {
            norm: NormKind::RmsPlusOne,
            norm_place: NormPlace::Both,
            activation: raw.activation("hidden_activation", Activation::GeluTanh)?,
            embed_scale: (self.width as f64).sqrt(),
            ..self
        };
        Ok(config.windowed(window, |layer| sliding[layer]))
    }

    fn with_gemma2(self, raw: &Raw<'_>) -> Result<Self> {
        let cap = |field, default| if raw.has(field) { raw.positive(field) } else { Ok(Some(default)) };
        let sliding = raw.sliding(self.layers.len(), |layer| layer % 2 == 0)?;
        let mut config = self.with_gemma(raw, &sliding)?;
        let softcap = cap("attn_logit_softcapping", 50.0)?.map(|cap| cap as f32);
        config.layers.iter_mut().for_each(|layer| layer.rule.softcap = softcap);
        config.final_softcap = cap("final_logit_softcapping", 30.0)?;
        Ok(config)
    }

    fn with_gemma3(self, raw: &Raw<'_>) -> Result<Self> {
        // transformers reads this field and does not use it.
        raw.only("attn_logit_softcapping", Value::Null)?;
        let pattern = raw.optional_size("sliding_window_pattern")?.unwrap_or(6);
        let sliding = raw.sliding(self.layers.len(), |layer| !(layer + 1).is_multiple_of(pattern))?;
        let mut config = self.with_gemma(raw, &sliding)?;
        config.qk_norm = Some(QkNorm::Head);
        config.final_softcap = raw.positive("final_logit_softcapping")?;
        let embeddings = raw.gemma3_rotary(config.head_dim)?;
        config.positions = Positions::Rotary { style: RopeStyle::Half, embeddings };
        for (layer, &sliding) in config.layers.iter_mut().zip(&sliding) {
            layer.rotary = Some(usize::from(sliding));
        }
        Ok(config)
    }

    /// Gives the layers that `slide` a window.
    fn windowed(mut self, window: Option<usize>, slides: impl Fn(usize) -> bool) -> Self {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.rule.window = window.filter(|_| slides(i));
        }
        self
    }

    fn of_gpt2(raw: &Raw<'_>) -> Result<Self> {
        raw.only("add_cross_attention", json!(false))?;
        raw.only("scale_attn_weights", json!(true))?;
        let sizes = raw.sizes(["n_embd", "n_layer", "n_head", "n_inner", "n_positions"])?;
        let config = Self {
            family: Family::Gpt2,
            positions: Positions::Learned { offset: 0 },
            activation: raw.activation("activation_function", Activation::GeluTanh)?,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            ..Self::with_layer_norm(sizes)
        };
        let inverse = raw.flag("scale_attn_by_inverse_layer_idx")?.unwrap_or(false);
        let scale = |(i, layer): (usize, Layer)| Layer {
            rule: LogitRule {
                scale: if inverse { layer.rule.scale / (i + 1) as f32 } else { layer.rule.scale },
                ..layer.rule
            },
            rotary: None,
        };
        Ok(Self { layers: config.layers.iter().copied().enumerate().map(scale).collect(), ..config })
    }

    fn of_opt(raw: &Raw<'_>) -> Result<Self> {
        raw.only("do_layer_norm_before", json!(true))?;
        raw.only("_remove_final_layer_norm", json!(false))?;
        raw.only("enable_bias", json!(true))?;
        raw.only("layer_norm_elementwise_affine", json!(true))?;
        raw.only("word_embed_proj_dim", json!(raw.size("hidden_size")?))?;
        let sizes = raw.sizes([
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "ffn_dim",
            "max_position_embeddings",
        ])?;
        let mut config = Self {
            family: Family::Opt,
            positions: Positions::Learned { offset: 2 },
            activation: raw.activation("activation_function", Activation::Relu)?,
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            ..Self::with_layer_norm(sizes)
        };
        config.layers.iter_mut().for_each(|layer| layer.rotary = None);
        Ok(config)
    }

    fn of_gpt_neox(raw: &Raw<'_>) -> Result<Self> {
        raw.only("attention_bias", json!(true))?;
        let sizes = raw.sizes([
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ])?;
        let defaults = RotaryDefaults { theta: 10_000.0, part: 0.25, part_field: Some("rotary_pct") };
        let rotary = raw.rotary(sizes.head_dim, defaults)?;
        Ok(Self {
            family: Family::GptNeox,
            positions: Positions::Rotary { style: RopeStyle::Half, embeddings: vec![rotary] },
            activation: raw.activation("hidden_act", Activation::Gelu)?,
            norm_eps: raw.positive("layer_norm_eps")?.unwrap_or(1e-5),
            parallel: raw.flag("use_parallel_residual")?.unwrap_or(true),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(false),
            ..Self::with_layer_norm(sizes)
        })
    }

    /// What GPT-2, GPT-NeoX and OPT share: LayerNorm, a plain MLP, biases everywhere.
    fn with_layer_norm(sizes: Sizes) -> Self {
        Self {
            norm: NormKind::Layer,
            gated: false,
            bias: Biases { qkv: true, out: true, mlp: true },
            ..Self::llama(Layout::Standard.variant(), sizes, 10_000.0, RopeStyle::Half)
        }
    }
}

impl Layout {
    /// What it stands for.
    fn variant(self) -> Variant {
        let preset = match self {
            Self::Standard => "transformer",
            Self::Diffllama => "diff",
            Self::MicrosoftV1 => "diff-microsoft",
            Self::MicrosoftV1Naive => "diff-microsoft-naive",
            Self::MicrosoftV2 => "diff-v2",
            Self::Scalar => "diff-scalar",
        };
        Variant::preset(preset).expect("layouts are presets")
    }

    /// How queries and keys are rotated where the file says nothing; nothing for attention without positions.
    fn style(self) -> Option<RopeStyle> {
        match self {
            Self::Standard | Self::Diffllama => Some(RopeStyle::Half),
            Self::Scalar => None,
            Self::MicrosoftV1 | Self::MicrosoftV1Naive | Self::MicrosoftV2 => Some(RopeStyle::Interleaved),
        }
    }
}

/// The attention that a configuration, or its override, stands for.
struct Resolved {
    variant: Variant,
    /// Whether `num_attention_heads` counts the heads of both maps.
    raw_heads: bool,
    /// Nothing for attention without positions.
    style: Option<RopeStyle>,
}

impl Resolved {
    fn new(raw: &Raw<'_>, model_type: &str, layout: Option<Layout>) -> Result<Self> {
        if model_type == OWN_MODEL_TYPE && layout.is_none() {
            return Self::stated(raw);
        }
        let detected = match model_type {
            "diffllama" => Layout::Diffllama,
            "difftool_diff_v1" => Layout::MicrosoftV1,
            "difftool_diff_v2" => Layout::MicrosoftV2,
            "difftool_diff_scalar" => Layout::Scalar,
            _ => Layout::Standard,
        };
        // What the file says about the layout in detail is about its own.
        let own = layout.is_none_or(|layout| layout == detected);
        let layout = layout.unwrap_or(detected);
        let mut variant = layout.variant();
        if layout == Layout::MicrosoftV1 && own {
            (variant.pairing, variant.keys) = raw.pairing()?.unwrap_or((variant.pairing, variant.keys));
        }
        if model_type == "diffllama" && own {
            raw.only("diff_pairing", json!("halves"))?;
        }
        if variant.norm == HeadNorm::RmsGain && raw.flag("diff_norm_gain")? == Some(false) {
            variant.norm = HeadNorm::Rms;
        }
        let said = if own { raw.rope_style()? } else { None };
        let raw_heads = variant.values == ValueWidth::Doubled;
        Ok(Self { variant, raw_heads, style: said.unwrap_or(layout.style()) })
    }

    /// Of a file of our own type, which states everything.
    fn stated(raw: &Raw<'_>) -> Result<Self> {
        let fields = raw.object(ATTENTION_FIELD)?.with_context(|| format!("{ATTENTION_FIELD} is missing"))?;
        let variant: Variant =
            serde_json::from_value(Value::Object(fields.clone())).with_context(|| ATTENTION_FIELD.to_owned())?;
        variant.check().with_context(|| ATTENTION_FIELD.to_owned())?;
        let style = raw.rope_style()?.context("rope_style is missing; it is half, interleaved or none")?;
        Ok(Self { variant, raw_heads: false, style })
    }
}

impl Raw<'_> {
    /// Key heads: as many as query heads if the field is null, and in most families also if it is missing.
    fn kv_heads(&self, model_type: &str, heads: usize) -> Result<usize> {
        let fixed = ["mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3"];
        if !self.has("num_key_value_heads") && fixed.contains(&model_type) {
            bail!("num_key_value_heads is missing");
        }
        Ok(self.optional_size("num_key_value_heads")?.unwrap_or(heads))
    }

    /// The sizes of families without grouped heads, whose heads share the width. The hidden layer of the MLP is four times
    /// as wide if nothing is said about it.
    fn sizes(&self, [width, layers, heads, ffn, ctx]: [&str; 5]) -> Result<Sizes> {
        let (heads_field, width_field) = (heads, width);
        let (width, heads) = (self.size(width)?, self.size(heads)?);
        ensure!(width.is_multiple_of(heads), "{heads_field} {heads} does not divide {width_field} {width}");
        Ok(Sizes {
            vocab: self.tokens("vocab_size")?,
            width,
            layers: self.layers(layers)?,
            ffn: self.optional_size(ffn)?.unwrap_or(4 * width),
            heads,
            kv_heads: heads,
            head_dim: width / heads,
            max_ctx_tok: self.tokens(ctx)?,
        })
    }

    /// Pairs and keys of `difftool_diff_v1`.
    fn pairing(&self) -> Result<Option<(Pairing, Keys)>> {
        Ok(Some(match self.text("diff_pairing")? {
            None => return Ok(None),
            Some("halves") => (Pairing::Halves, Keys::Separate),
            Some("adjacent") => (Pairing::Adjacent, Keys::Separate),
            Some("adjacent-naive") => (Pairing::Adjacent, Keys::InOrder),
            Some(other) => bail!("diff_pairing is \"{other}\"; it is halves, adjacent or adjacent-naive"),
        }))
    }

    /// How queries and keys are rotated, if the file says so: `Some(None)` for not at all.
    fn rope_style(&self) -> Result<Option<Option<RopeStyle>>> {
        Ok(match self.text("rope_style")? {
            None => None,
            Some("half") => Some(Some(RopeStyle::Half)),
            Some("interleaved") => Some(Some(RopeStyle::Interleaved)),
            Some("none") => Some(None),
            Some(other) => bail!("rope_style \"{other}\" is not supported; half, interleaved and none are"),
        })
    }

    /// Which layers have a window: as `layer_types` says, or by the family's rule.
    fn sliding(&self, layers: usize, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        let Some(list) = self.per_layer("layer_types", layers)? else {
            return Ok((0..layers).map(rule).collect());
        };
        let kind = |value: &Value| match value.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => bail!("layer_types {value} is not supported; full_attention and sliding_attention are"),
        };
        list.iter().map(kind).collect()
    }

    /// The rotary embeddings of layers that see everything and of those with a window.
    fn gemma3_rotary(&self, width: usize) -> Result<Vec<Rotary>> {
        let empty = Map::new();
        let (scaling, nested) = (self.object("rope_scaling")?, self.object("rope_parameters")?.map(Raw));
        let of = |kind: &str| -> Result<Option<&Map<String, Value>>> {
            let Some(nested) = &nested else { return Ok(None) };
            nested
                .object(kind)?
                .with_context(|| format!("rope_parameters has no {kind}, as gemma3_text has it"))
                .map(Some)
        };
        let nested_full = of("full_attention")?;
        let full =
            Rope { field: "rope_parameters.full_attention", raw: Raw(nested_full.or(scaling).unwrap_or(&empty)) };
        let sliding = of("sliding_attention")?.unwrap_or(&empty);
        let sliding = Rope { field: "rope_parameters.sliding_attention", raw: Raw(sliding) };
        let theta = self.positive("rope_theta")?.unwrap_or(1_000_000.0);
        let local = self.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
        let resolved = full.resolve(width, theta, self)?;
        if let (Some(_), Some(scaling)) = (nested_full, scaling) {
            let other = Rope { field: "rope_scaling", raw: Raw(scaling) }.resolve(width, resolved.theta, self)?;
            ensure!(other == resolved, "rope_parameters.full_attention and rope_scaling are both there, and differ");
        }
        Ok(vec![resolved, sliding.resolve(width, local, self)?])
    }
}

/// 0 or 1, false or true.
fn yes_or_no(value: &Value) -> Result<bool> {
    match (value.as_bool(), value.as_u64()) {
        (Some(yes), _) => Ok(yes),
        (_, Some(number @ (0 | 1))) => Ok(number == 1),
        _ => bail!("no_rope_layers has {value}, which is neither 0 nor 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes =
        Sizes { vocab: 50, width: 32, layers: 2, ffn: 48, heads: 2, kv_heads: 2, head_dim: 8, max_ctx_tok: 64 };

    fn tiny(variant: Variant, style: RopeStyle) -> ModelConfig {
        ModelConfig::llama(variant, SIZES, 10_000.0, style)
    }

    fn read(json: &Value) -> Result<ModelConfig> {
        ModelConfig::from_json(json, None)
    }

    fn preset(name: &str) -> Variant {
        Variant::preset(name).unwrap()
    }

    #[test]
    fn a_saved_configuration_reads_back_unchanged_and_is_called_what_it_is() {
        for (name, &variant) in Variant::presets() {
            for style in [RopeStyle::Half, RopeStyle::Interleaved] {
                let sizes = Sizes { heads: 6, kv_heads: 6, ..SIZES };
                let config = ModelConfig::llama(variant, sizes, 10_000.0, style);
                let json = config.to_json();
                let got = read(&json).unwrap();
                // A trained model does not know how it started.
                assert!(got.variant.computes_the_same_as(&variant), "{name}");
                assert_eq!(ModelConfig { variant, ..got }, config, "{name}");
                let model_type = match (name.as_str(), style) {
                    ("transformer", RopeStyle::Half) => "llama",
                    ("diff" | "diff-zero-lambda", RopeStyle::Half) => "diffllama",
                    _ => "difftool",
                };
                assert_eq!(json["model_type"], model_type, "{name}");
            }
        }
    }

    #[test]
    fn a_configuration_of_our_own_states_every_choice() {
        let json = tiny(preset("diff-v2"), RopeStyle::Half).to_json();
        let refuses = |edit: &dyn Fn(&mut Value), says: &str| {
            let mut json = json.clone();
            edit(&mut json);
            let message = format!("{:#}", read(&json).unwrap_err());
            assert!(message.contains(says), "{message}");
        };
        for choice in json["attention"].as_object().unwrap().keys() {
            refuses(&|json| _ = json["attention"].as_object_mut().unwrap().remove(choice), choice);
        }
        refuses(&|json| json["attention"]["maps"] = json!(3), "maps is 3");
        refuses(&|json| json["attention"]["maps"] = json!(0), "maps is 0");
        refuses(&|json| json["attention"]["lamda"] = json!(1), "lamda");
        refuses(&|json| json["attention"]["lambda"] = json!("fourier"), "fourier");
        refuses(&|json| json["attention"] = json!("diff-v2"), "attention");
        refuses(&|json| _ = json.as_object_mut().unwrap().remove("rope_style"), "rope_style");
    }

    #[test]
    fn the_three_model_types_of_our_first_version_are_read_as_before() {
        let of = |model_type: &str, heads: usize| {
            let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
            (json["model_type"], json["num_attention_heads"]) = (json!(model_type), json!(heads));
            json
        };
        let interleaved =
            |name| ModelConfig { model_type: String::new(), ..tiny(preset(name), RopeStyle::Interleaved) };
        let got = |json: &Value| ModelConfig { model_type: String::new(), ..read(json).unwrap() };
        assert_eq!(got(&of("difftool_diff_v1", 4)), interleaved("diff-microsoft"));
        assert_eq!(got(&of("difftool_diff_v2", 2)), interleaved("diff-v2"));
        let mut naive = of("difftool_diff_v1", 4);
        (naive["diff_pairing"], naive["diff_norm_gain"]) = (json!("adjacent-naive"), json!(false));
        let want = Variant { norm: HeadNorm::Rms, ..preset("diff-microsoft-naive") };
        assert_eq!(got(&naive).variant, want);
        naive["diff_pairing"] = json!("quarters");
        assert!(read(&naive).unwrap_err().to_string().contains("quarters"));
        let scalar = got(&of("difftool_diff_scalar", 2));
        assert_eq!(scalar.variant, preset("diff-scalar"));
        assert!(scalar.layers.iter().all(|layer| layer.rotary.is_none()), "no positions");
    }

    #[track_caller]
    fn assert_refused(edit: impl FnOnce(&mut Value), named: &str) {
        let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
        edit(&mut json);
        let message = format!("{:#}", read(&json).unwrap_err());
        assert!(message.contains(named), "{message}");
    }

    #[test]
    fn what_is_not_supported_is_an_error_that_names_the_field() {
        assert_refused(|json| json["hidden_act"] = json!("quick_gelu"), "hidden_act");
        assert_refused(|json| json["rope_scaling"] = json!({"rope_type": "dynamic", "factor": 4.0}), "dynamic");
        assert_refused(|json| json["rope_scaling"] = json!({"rope_type": "linear"}), "factor");
        assert_refused(|json| json["model_type"] = json!("mamba"), "mamba");
        assert_refused(|json| json["quantization_config"] = json!({"bits": 4}), "quantization_config");
        assert_refused(|json| json["rms_norm_eps"] = json!(-1), "rms_norm_eps");
        assert_refused(|json| json["rope_theta"] = json!(0), "rope_theta");
        let of_gemma = |json: &mut Value| json["model_type"] = json!("gemma3_text");
        let flat = json!({"rope_type": "linear", "factor": 8.0});
        assert_refused(|json| (of_gemma(json), json["rope_parameters"] = flat).1, "rope_parameters");
        assert_refused(|json| (of_gemma(json), json["rope_scaling"] = json!("linear")).1, "rope_scaling");
        assert_refused(|json| (of_gemma(json), json["sliding_window_pattern"] = json!(0)).1, "sliding_window_pattern");
        let of_smollm = |json: &mut Value| json["model_type"] = json!("smollm3");
        assert_refused(|json| (of_smollm(json), json["no_rope_layers"] = json!([1, 2])).1, "no_rope_layers");
    }

    #[test]
    fn absurd_numbers_are_refused_before_they_overflow_or_take_memory() {
        let huge = json!(u64::MAX);
        for field in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"] {
            assert_refused(|json| json[field] = huge.clone(), field);
            assert_refused(|json| json[field] = json!(0), field);
            assert_refused(|json| json[field] = json!("many"), field);
        }
        assert_refused(|json| json["max_position_embeddings"] = huge.clone(), "max_position_embeddings");
        assert_refused(|json| json["num_key_value_heads"] = json!(3), "num_key_value_heads");
        assert_refused(|json| json["head_dim"] = json!(7), "head_dim");
    }

    #[test]
    fn a_layout_overrides_what_the_file_says() {
        let config = tiny(preset("diff"), RopeStyle::Half).to_json();
        let layout = |layout| ModelConfig::from_json(&config, Some(layout)).map(|config| config.layout());
        assert_eq!(
            layout(Layout::Diffllama).unwrap(),
            "DIFF V1, pairs (i, i+H), half-rotation RoPE, head norm without gain"
        );
        assert_eq!(
            layout(Layout::MicrosoftV1).unwrap(),
            "DIFF V1, pairs (2i, 2i+1), interleaved RoPE, head norm with gain"
        );
        assert_eq!(layout(Layout::Standard).unwrap(), "standard, half-rotation RoPE");
        let gpt2 =
            json!({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8, "vocab_size": 9});
        assert!(ModelConfig::from_json(&gpt2, Some(Layout::MicrosoftV2)).unwrap_err().to_string().contains("`layout`"));
    }

    #[test]
    fn what_counts_as_a_logit_is_said_where_a_family_changes_it() {
        let base = tiny(preset("transformer"), RopeStyle::Half).to_json();
        let tap = |model_type: &str| {
            let mut json = base.clone();
            json["model_type"] = json!(model_type);
            read(&json).unwrap().logit_tap()
        };
        assert_eq!(tap("llama"), None);
        assert_eq!(tap("qwen3").unwrap(), "queries and keys normed per head");
        assert_eq!(tap("gemma2").unwrap(), "after the soft cap at 50");
    }
}
