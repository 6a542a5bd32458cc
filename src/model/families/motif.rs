//! Motif: DIFF V1 with adjacent heads, lambda_init of the previous layer, and PolyNorm as the activation function. In
//! Motif 2 12.7B several signal heads share a noise map (`num_noise_heads`).
//!
//! Its own code is not in `transformers`. These formulas are those of vLLM's `motif.py`, which derives from it, and of a
//! port that reads the weights of both models. Motif 3, with latent attention and experts, is refused.

use super::super::config::{Activation, ModelConfig};
use super::super::raw::Raw;
use crate::attention::{LambdaInit, Variant};
use anyhow::{ensure, Result};
use serde_json::{json, Value};

/// Values of `model_type`.
pub(super) const MOTIF: [&str; 2] = ["Motif", "motif"];

/// Epsilon of the norm of each head if the file states none.
const HEAD_NORM_EPS: f64 = 1e-5;

/// Fields of Motif 3, each of which changes the computation.
const OF_MOTIF_3: [&str; 7] = [
    "attention_cls",
    "q_lora_rank",
    "kv_lora_rank",
    "num_experts",
    "mhc_enabled",
    "polynorm_output_scale",
    "hidden_clamp",
];

/// The attention of `diff-microsoft` with Motif's lambda_init and its number of noise heads.
///
/// # Errors
/// If the noise heads do not divide the others.
pub(super) fn variant(variant: Variant, raw: &Raw<'_>) -> Result<Variant> {
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
    Ok(variant)
}

impl ModelConfig {
    pub(super) fn with_motif(self, raw: &Raw<'_>) -> Result<Self> {
        for field in OF_MOTIF_3 {
            raw.only(field, Value::Null)?;
        }
        // More than one key head of signals on each value head.
        raw.only("k_ratio", json!(1))?;
        for field in [
            "use_bias",
            "qkv_bias",
            "use_sliding_window",
            "diff_v2",
            "elementwise_attn_output_gate",
            "headwise_attn_output_gate",
        ] {
            raw.only(field, json!(false))?;
        }
        let head_norm_eps = Some(raw.positive("attn_rms_norm_eps")?.unwrap_or(HEAD_NORM_EPS));
        Ok(Self { activation: Activation::PolyNorm, head_norm_eps, ..self })
    }
}
