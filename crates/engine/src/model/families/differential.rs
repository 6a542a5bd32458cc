//! Differential attention: the layouts of heads, and the families that have them, with the format of difftool's own models.

use super::super::config::{DecoderSizes, ModelConfig, Positions};
use super::raw::Raw;
use crate::attention::{Factor, HeadNorm, Lambda, LambdaInit, ValueWidth, Variant};
use crate::kernels::RopeStyle;
use crate::model::tensor_names::tensor_names;
use anyhow::{bail, ensure, Context, Result};
use base::bail_usage;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

/// Arrangement of heads into attention maps. Overrides a configuration that does not state it, or states it wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HeadLayout {
    /// One map per head
    Standard,
    /// DIFF V1 as in Hugging Face: pairs (i, i+H), half-rotation RoPE, head norm without gain
    Diffllama,
    /// DIFF V1 as in Microsoft's flash files: pairs (2i, 2i+1), interleaved RoPE, head norm with gain
    MicrosoftV1,
    /// The same with the key order of Microsoft's naive file, which differs with grouped heads
    MicrosoftV1Naive,
    /// DIFF V2 as in Microsoft's file: pairs (2i, 2i+1) on one key head, lambda per token and head
    MicrosoftV2,
    /// One scalar lambda per layer, pairs (i, i+H), one norm over all heads
    Scalar,
}

/// Attention maps of a configuration or of the layout that overrides it.
pub(super) struct HeadMaps {
    pub(super) variant: Variant,
    /// `true` if `num_attention_heads` counts the heads of both maps, signal heads and noise heads.
    pub(super) raw_heads: bool,
    /// Rotation of queries and keys; `None` for attention without positions.
    pub(super) style: Option<RopeStyle>,
}

impl HeadLayout {
    pub(super) fn maps(self) -> HeadMaps {
        let preset = match self {
            Self::Standard => "transformer",
            Self::Diffllama => "diff",
            Self::MicrosoftV1 => "diff-microsoft",
            Self::MicrosoftV1Naive => "diff-microsoft-naive",
            Self::MicrosoftV2 => "diff-v2",
            Self::Scalar => "diff-scalar",
        };
        let style = match self {
            Self::Standard | Self::Diffllama => Some(RopeStyle::Half),
            Self::Scalar => None,
            Self::MicrosoftV1 | Self::MicrosoftV1Naive | Self::MicrosoftV2 => Some(RopeStyle::Interleaved),
        };
        HeadMaps::new(Variant::preset(preset).expect("layouts are presets"), style)
    }
}

impl HeadMaps {
    fn new(variant: Variant, style: Option<RopeStyle>) -> Self {
        Self { variant, raw_heads: variant.values == ValueWidth::Doubled, style }
    }

    /// The maps of a family, or of the layout that overrides what its configuration says.
    pub(super) fn read(model_type: &str, raw: &Raw<'_>, layout: Option<HeadLayout>) -> Result<Self> {
        match (model_type, layout) {
            ("difftool", None) => stated_maps(raw),
            ("llama-differential", None | Some(HeadLayout::Diffllama)) => axolotl_maps(raw),
            ("Motif", layout) => motif_maps(raw, layout.unwrap_or(HeadLayout::MicrosoftV1)),
            ("diffllama", None) => Ok(HeadLayout::Diffllama.maps()),
            (_, layout) => Ok(layout.unwrap_or(HeadLayout::Standard).maps()),
        }
    }
}

/// `llama-differential` of axolotl's plugin: a Llama model whose attention was made differential.
///
/// Rows of q and k are doubled, second maps last, and rows of v are unchanged; with `split_heads` heads are paired instead and
/// values joined, as in DiffLlama. lambda_init is a tensor, and no factor follows the norm of each head.
fn axolotl_maps(raw: &Raw<'_>) -> Result<HeadMaps> {
    let preset = if raw.flag("split_heads", false)? { "diff" } else { "diff-scalar" };
    let norm = if raw.flag("sublayer_norm", true)? { HeadNorm::RmsGain } else { HeadNorm::None };
    let variant = Variant {
        lambda: Lambda::VectorsAndInit,
        lambda_init: LambdaInit::Depth,
        norm,
        factor: Factor::One,
        ..Variant::preset(preset)?
    };
    Ok(HeadMaps::new(variant, Some(RopeStyle::Half)))
}

pub(super) fn axolotl(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    config.check_head_dim(raw)?;
    Ok(ModelConfig { head_norm_eps: Some(config.norm_eps), ..config })
}

/// Epsilon of the norm of each head: the default of Motif, the same in all files of diff-mlx and in Microsoft's.
const HEAD_NORM_EPS: f64 = 1e-5;

/// Motif: DIFF V1 with adjacent heads, lambda_init of the previous layer, and PolyNorm as the activation function. In
/// Motif 2 12.7B several signal heads share a noise map (`num_noise_heads`).
///
/// Its own code is not in `transformers`. These formulas are those of vLLM's `motif.py`, which derives from it, and of a
/// port that reads the weights of both models. Motif 3, with latent attention and experts, is refused.
fn motif_maps(raw: &Raw<'_>, layout: HeadLayout) -> Result<HeadMaps> {
    let variant = layout.maps().variant;
    let mut variant = Variant { lambda_init: LambdaInit::DepthBefore, ..variant };
    let heads = raw.size("num_attention_heads")?;
    if let Some(noise) = raw.optional_size("num_noise_heads")?.filter(|_| variant.maps == 2) {
        let signal = heads.saturating_sub(noise);
        ensure!(
            signal > 0 && signal.is_multiple_of(noise),
            "num_noise_heads is {noise} of {heads} heads: they do not divide the {signal} others"
        );
        variant.signal_heads = signal / noise;
    }
    Ok(HeadMaps::new(variant, Some(RopeStyle::Half)))
}

pub(super) fn motif(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let head_norm_eps = Some(raw.positive_or("attn_rms_norm_eps", HEAD_NORM_EPS)?);
    Ok(ModelConfig { head_norm_eps, ..config })
}

/// Name for models of diff-mlx (github.com/guygrigsby/diff-mlx). Their files have no `model_type`.
pub(in super::super) const DIFF_MLX: &str = "diff-mlx";

/// Returns `true` if the configuration has the fields of diff-mlx.
pub(super) fn is_diff_mlx(raw: &Raw<'_>) -> bool {
    let model = raw.object("model").ok().flatten();
    !raw.has("model_type") && model.is_some_and(|model| model.contains_key("n_heads_vanilla"))
}

impl ModelConfig {
    /// Reads a configuration of diff-mlx. Both variants use pairs (2i, 2i + 1) and interleaved RoPE. The configuration
    /// does not state the variant: it is read as differential unless `layout` is standard.
    pub(super) fn of_diff_mlx(raw: &Raw<'_>, layout: Option<HeadLayout>) -> Result<Self> {
        let raw = Raw(raw.object("model")?.context("model is missing")?);
        let layout = layout.unwrap_or(HeadLayout::MicrosoftV1);
        if !matches!(layout, HeadLayout::Standard | HeadLayout::MicrosoftV1) {
            bail_usage!("--layout: models of {DIFF_MLX} are microsoft-v1 or standard");
        }
        raw.only("tie_embeddings", true)?;
        let width = raw.size("dim")?;
        let heads = raw.size("n_heads_vanilla")?;
        let head_dim = raw.size("qk_head_dim")?;
        ensure!(
            heads * head_dim == width,
            "dim is {width}, expected n_heads_vanilla {heads} times qk_head_dim {head_dim}"
        );
        let differential = layout == HeadLayout::MicrosoftV1;
        ensure!(heads.is_multiple_of(2) || !differential, "n_heads_vanilla {heads} is odd; DIFF V1 pairs them");
        let sizes = DecoderSizes {
            vocab: raw.tokens("vocab_size")?,
            width,
            layers: raw.layers("n_layers")?,
            ffn: raw.size("mlp_intermediate")?,
            heads: if differential { heads / 2 } else { heads },
            kv_heads: heads,
            head_dim,
            max_ctx_tok: raw.tokens("block_size")?,
        };
        let theta = raw.positive_or("rope_base", 10_000.0)?;
        let norm_eps = raw.positive_or("rms_eps", HEAD_NORM_EPS)?;
        ensure!(norm_eps == HEAD_NORM_EPS || !differential, "rms_eps {norm_eps:e} is not supported; only 1e-5 is");
        let config = Self::llama(layout.maps().variant, sizes, theta, RopeStyle::Interleaved);
        Ok(Self { names: tensor_names(DIFF_MLX), norm_eps, tied: true, ..config })
    }
}

/// difftool's own format, which states every choice of the attention. Its models count output heads as heads, and value
/// heads as key/value heads.
fn stated_maps(raw: &Raw<'_>) -> Result<HeadMaps> {
    let fields = raw.object("attention")?.context("attention is missing")?;
    let variant: Variant = serde_json::from_value(Value::Object(fields.clone())).context("attention")?;
    variant.check().context("attention")?;
    let style = match raw.text("rope_style")? {
        Some("half") => Some(RopeStyle::Half),
        Some("interleaved") => Some(RopeStyle::Interleaved),
        Some("none") => None,
        Some(other) => bail!("rope_style \"{other}\" is not supported; half, interleaved and none are"),
        None => bail!("rope_style is missing, expected half, interleaved or none"),
    };
    Ok(HeadMaps { variant, raw_heads: false, style })
}

impl ModelConfig {
    /// The `model_type` that a decoder of Llama's architecture is saved with: `llama` or `diffllama` if it is exactly
    /// that, or `difftool`.
    pub(in super::super) fn own_model_type(&self) -> &'static str {
        let half = matches!(self.positions, Positions::Rotary { style: RopeStyle::Half, .. });
        let one_key_of_biases = self.bias.qkv == self.bias.out;
        if half
            && one_key_of_biases
            && self.qk_norm.is_none()
            && self.layers.iter().all(|layer| layer.rotary == Some(0))
        {
            for (preset, model_type) in [("transformer", "llama"), ("diff", "diffllama")] {
                if Variant::preset(preset).is_ok_and(|preset| self.variant.computes_the_same_as(&preset)) {
                    return model_type;
                }
            }
        }
        "difftool"
    }

    /// The `config.json` of a decoder of Llama's architecture, as `difftool train` saves it. [`ModelConfig::from_json`]
    /// reads it back.
    ///
    /// # Panics
    /// If the model has learned positions or no rotary embedding.
    pub fn to_json(&self) -> Value {
        let model_type = self.own_model_type();
        let is_diffllama = model_type == "diffllama";
        let architecture = match model_type {
            "llama" => "LlamaForCausalLM",
            "diffllama" => "DiffLlamaForCausalLM",
            _ => "Difftool",
        };
        let Positions::Rotary { style, embeddings } = &self.positions else { panic!("only rotary models are saved") };
        let mut config = json!({
            "architectures": [architecture],
            "attention_bias": self.bias.qkv,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "initializer_range": 0.02,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.max_ctx_tok,
            "mlp_bias": self.bias.mlp,
            "model_type": model_type,
            "num_attention_heads": if is_diffllama { 2 * self.heads } else { self.heads },
            "num_hidden_layers": self.layers.len(),
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": embeddings[0].theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float16",
            "vocab_size": self.vocab,
        });
        if is_diffllama {
            config["lambda_std_dev"] = json!(0.1);
        }
        if model_type == "difftool" {
            let rotated = self.layers.iter().any(|layer| layer.rotary.is_some());
            config["rope_style"] = if rotated { json!(style) } else { json!("none") };
            config["attention"] = json!(self.variant);
            config["use_qk_norm"] = json!(self.qk_norm.is_some());
            if self.bias.qkv || self.bias.out {
                config["attention_output_bias"] = json!(self.bias.out);
            }
        }
        config
    }
}
