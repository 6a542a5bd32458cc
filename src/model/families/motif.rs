//! Motif 2.6B: DIFF V1 with adjacent pairs, lambda_init of the previous layer, and PolyNorm as the activation function.
//!
//! Its own code is not in `transformers`. These formulas are those of vLLM's `motif.py`, which derives from it and
//! reads its weights. Later Motif models share a noise map between signal heads (`num_noise_heads`) and are refused.

use super::super::config::{Activation, ModelConfig};
use super::super::raw::Raw;
use crate::attention::{LambdaInit, Variant};
use anyhow::{ensure, Result};
use serde_json::json;

/// Values of `model_type`.
pub(super) const MOTIF: [&str; 2] = ["Motif", "motif"];

/// The attention of `diff-microsoft` with Motif's lambda_init.
pub(super) fn variant(variant: Variant) -> Variant {
    Variant { lambda_init: LambdaInit::DepthBefore, ..variant }
}

impl ModelConfig {
    pub(super) fn with_motif(self, raw: &Raw<'_>) -> Result<Self> {
        let heads = raw.size("num_attention_heads")?;
        if let Some(noise) = raw.optional_size("num_noise_heads")? {
            ensure!(
                2 * noise == heads,
                "num_noise_heads is {noise} of {heads} heads; only half of them is supported, as in Motif 2.6B"
            );
        }
        // The epsilon of the head norm is that of Microsoft's files.
        raw.only("attn_rms_norm_eps", json!(1e-5))?;
        for field in ["use_bias", "qkv_bias", "use_sliding_window"] {
            raw.only(field, json!(false))?;
        }
        Ok(Self { activation: Activation::PolyNorm, ..self })
    }
}
