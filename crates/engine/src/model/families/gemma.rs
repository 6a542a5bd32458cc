//! Gemma 1, 2 and 3: scaled embeddings, from Gemma 2 on windows in some layers.

use super::super::config::{Activation, ModelConfig};
use super::raw::Raw;
use anyhow::Result;

pub(super) fn gemma(config: ModelConfig) -> ModelConfig {
    // The first configurations say "gelu" and mean its approximation.
    let activation = match config.activation {
        Activation::Gelu => Activation::GeluTanh,
        other => other,
    };
    ModelConfig { activation, ..config }
}

/// With soft caps.
pub(super) fn gemma2(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let mut config = scaled(config, raw)?;
    let softcap = cap(raw, "attn_logit_softcapping", 50.0)?.map(|cap| cap as f32);
    config.layers.iter_mut().for_each(|layer| layer.rule.softcap = softcap);
    config.final_softcap = cap(raw, "final_logit_softcapping", 30.0)?;
    Ok(config)
}

/// With two rotary embeddings.
pub(super) fn gemma3(config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let mut config = scaled(config, raw)?;
    config.final_softcap = raw.positive("final_logit_softcapping")?;
    let theta = raw.positive_or("rope_theta", 1_000_000.0)?;
    let local = raw.positive_or("rope_local_base_freq", 10_000.0)?;
    let embeddings = raw.rotary_by_kind(config.head_dim, theta, local)?;
    Ok(config.with_rotary_by_kind(embeddings))
}

fn scaled(mut config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    let scalar = raw.positive_or("query_pre_attn_scalar", 256.0)?;
    config.layers.iter_mut().for_each(|layer| layer.rule.scale = (1.0 / scalar.sqrt()) as f32);
    Ok(config)
}

/// A soft cap, which null turns off.
fn cap(raw: &Raw<'_>, field: &str, default: f64) -> Result<Option<f64>> {
    if raw.has(field) {
        raw.positive(field)
    } else {
        Ok(Some(default))
    }
}
