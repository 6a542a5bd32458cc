//! Head layouts of differential attention, from a configuration or an override.

use super::super::config::{ATTENTION_FIELD, OWN_MODEL_TYPE};
use super::super::raw::Raw;
use super::axolotl::{self, AXOLOTL};
use super::motif::{self, MOTIF};
use crate::attention::{ValueWidth, Variant};
use crate::kernels::RopeStyle;
use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
            "diffllama" | AXOLOTL => HeadLayout::Diffllama,
            _ if MOTIF.contains(&model_type) => HeadLayout::MicrosoftV1,
            _ => HeadLayout::Standard,
        };
        // Details in the file apply only to the layout of the file.
        let own = layout.is_none_or(|layout| layout == detected);
        let layout = layout.unwrap_or(detected);
        let (mut variant, mut style) = (layout.variant(), layout.style());
        if MOTIF.contains(&model_type) {
            (variant, style) = (motif::variant(variant, raw)?, Some(RopeStyle::Half));
        }
        if model_type == AXOLOTL && own {
            variant = axolotl::variant(raw)?;
        }
        Ok(Self { variant, raw_heads: variant.values == ValueWidth::Doubled, style })
    }

    /// Reads difftool's own format, which states every choice.
    fn stated(raw: &Raw<'_>) -> Result<Self> {
        let fields = raw.object(ATTENTION_FIELD)?.with_context(|| format!("{ATTENTION_FIELD} is missing"))?;
        let variant: Variant =
            serde_json::from_value(Value::Object(fields.clone())).with_context(|| ATTENTION_FIELD.to_owned())?;
        variant.check().with_context(|| ATTENTION_FIELD.to_owned())?;
        let style = match raw.text("rope_style")? {
            Some("half") => Some(RopeStyle::Half),
            Some("interleaved") => Some(RopeStyle::Interleaved),
            Some("none") => None,
            Some(other) => bail!("rope_style \"{other}\" is not supported; half, interleaved and none are"),
            None => bail!("rope_style is missing, expected half, interleaved or none"),
        };
        Ok(Self { variant, raw_heads: false, style })
    }
}
