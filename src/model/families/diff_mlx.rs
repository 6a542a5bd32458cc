//! Checkpoints of diff-mlx (github.com/guygrigsby/diff-mlx), whose configuration has its own fields.

use super::super::config::{DecoderSizes, Family, ModelConfig};
use super::super::raw::Raw;
use super::HeadLayout;
use crate::bail_usage;
use crate::kernels::RopeStyle;
use anyhow::{ensure, Context, Result};
use serde_json::json;

/// Name for these models. Their files have no `model_type`.
pub(super) const DIFF_MLX: &str = "diff-mlx";

/// Epsilon of the head norm, the same in all diff-mlx files and in Microsoft's.
const HEAD_NORM_EPS: f64 = 1e-5;

/// Returns whether the configuration has the fields of diff-mlx.
pub(super) fn is_diff_mlx(raw: &Raw<'_>) -> bool {
    !raw.has("model_type")
        && raw.object("model").is_ok_and(|model| model.is_some_and(|m| m.contains_key("n_heads_vanilla")))
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
        raw.only("tie_embeddings", json!(true))?;
        let (width, heads, head_dim) = (raw.size("dim")?, raw.size("n_heads_vanilla")?, raw.size("qk_head_dim")?);
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
        let theta = raw.positive("rope_base")?.unwrap_or(10_000.0);
        let norm_eps = raw.positive("rms_eps")?.unwrap_or(HEAD_NORM_EPS);
        ensure!(norm_eps == HEAD_NORM_EPS || !differential, "rms_eps {norm_eps:e} is not supported; only 1e-5 is");
        let config = Self::llama(layout.variant(), sizes, theta, RopeStyle::Interleaved);
        Ok(Self { family: Family::DiffMlx, norm_eps, tied: true, ..config })
    }
}
