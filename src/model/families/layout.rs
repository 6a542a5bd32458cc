//! Head layouts of differential attention, from a configuration or an override.

use super::super::config::{ATTENTION_FIELD, OWN_MODEL_TYPE};
use super::super::raw::Raw;
use super::axolotl::{self, AXOLOTL};
use super::motif::{self, MOTIF};
use crate::attention::{HeadNorm, Keys, Pairing, ValueWidth, Variant};
use crate::ops::RopeStyle;
use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

/// Arrangement of heads into attention maps. Overrides a configuration that does not state it, or states it wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadLayout {
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

impl HeadLayout {
    /// The attention variant of this layout.
    pub(super) fn variant(self) -> Variant {
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

    /// Default rotation of queries and keys; `None` for attention without positions.
    fn style(self) -> Option<RopeStyle> {
        match self {
            Self::Standard | Self::Diffllama => Some(RopeStyle::Half),
            Self::Scalar => None,
            Self::MicrosoftV1 | Self::MicrosoftV1Naive | Self::MicrosoftV2 => Some(RopeStyle::Interleaved),
        }
    }
}

/// Attention described by a configuration or its override.
pub(super) struct ResolvedAttention {
    pub(super) variant: Variant,
    /// Whether `num_attention_heads` counts the heads of both maps, signal heads and noise heads.
    pub(super) raw_heads: bool,
    /// Rotation of queries and keys; `None` for attention without positions.
    pub(super) style: Option<RopeStyle>,
}

impl ResolvedAttention {
    pub(super) fn new(raw: &Raw<'_>, model_type: &str, layout: Option<HeadLayout>) -> Result<Self> {
        if model_type == OWN_MODEL_TYPE && layout.is_none() {
            return Self::stated(raw);
        }
        let detected = match model_type {
            "diffllama" => HeadLayout::Diffllama,
            "difftool_diff_v1" => HeadLayout::MicrosoftV1,
            _ if MOTIF.contains(&model_type) => HeadLayout::MicrosoftV1,
            AXOLOTL => HeadLayout::Diffllama,
            "difftool_diff_v2" => HeadLayout::MicrosoftV2,
            "difftool_diff_scalar" => HeadLayout::Scalar,
            _ => HeadLayout::Standard,
        };
        // Details of the layout in the file apply only to the layout of the file.
        let own = layout.is_none_or(|layout| layout == detected);
        let layout = layout.unwrap_or(detected);
        let mut variant = layout.variant();
        if layout == HeadLayout::MicrosoftV1 && own {
            (variant.pairing, variant.keys) = raw.pairing()?.unwrap_or((variant.pairing, variant.keys));
        }
        if model_type == "diffllama" && own {
            raw.only("diff_pairing", json!("halves"))?;
        }
        if variant.norm == HeadNorm::RmsGain && raw.flag("diff_norm_gain")? == Some(false) {
            variant.norm = HeadNorm::Rms;
        }
        if MOTIF.contains(&model_type) {
            let raw_heads = variant.values == ValueWidth::Doubled;
            let variant = motif::variant(variant, raw)?;
            return Ok(Self { variant, raw_heads, style: Some(RopeStyle::Half) });
        }
        if model_type == AXOLOTL && own {
            variant = axolotl::variant(raw)?;
        }
        let stated = if own { raw.rope_style()? } else { None };
        let raw_heads = variant.values == ValueWidth::Doubled;
        Ok(Self { variant, raw_heads, style: stated.unwrap_or(layout.style()) })
    }

    /// Reads difftool's own format, which states every choice.
    fn stated(raw: &Raw<'_>) -> Result<Self> {
        let fields = raw.object(ATTENTION_FIELD)?.with_context(|| format!("{ATTENTION_FIELD} is missing"))?;
        let variant: Variant =
            serde_json::from_value(Value::Object(fields.clone())).with_context(|| ATTENTION_FIELD.to_owned())?;
        variant.check().with_context(|| ATTENTION_FIELD.to_owned())?;
        let style = raw.rope_style()?.context("rope_style is missing, expected half, interleaved or none")?;
        Ok(Self { variant, raw_heads: false, style })
    }
}

impl Raw<'_> {
    /// Pairs and keys of `difftool_diff_v1`.
    fn pairing(&self) -> Result<Option<(Pairing, Keys)>> {
        Ok(Some(match self.text("diff_pairing")? {
            None => return Ok(None),
            Some("halves") => (Pairing::Halves, Keys::Separate),
            Some("adjacent") => (Pairing::Adjacent, Keys::Separate),
            Some("adjacent-naive") => (Pairing::Adjacent, Keys::InOrder),
            Some(other) => bail!("diff_pairing is \"{other}\", expected halves, adjacent or adjacent-naive"),
        }))
    }

    /// Rotation of queries and keys, if the file states it: `Some(None)` is no rotation.
    fn rope_style(&self) -> Result<Option<Option<RopeStyle>>> {
        Ok(match self.text("rope_style")? {
            None => None,
            Some("half") => Some(Some(RopeStyle::Half)),
            Some("interleaved") => Some(Some(RopeStyle::Interleaved)),
            Some("none") => Some(None),
            Some(other) => bail!("rope_style \"{other}\" is not supported; half, interleaved and none are"),
        })
    }
}
