//! Gemma 1, 2 and 3.

use super::super::config::{Activation, ModelConfig, NormKind, NormPlace, Positions, QkNorm};
use super::super::raw::Raw;
use crate::kernels::RopeStyle;
use anyhow::Result;
use serde_json::{json, Value};

impl ModelConfig {
    /// Applies the fields that Gemma 2 and 3 share.
    fn with_gemma(mut self, raw: &Raw<'_>, sliding: &[bool]) -> Result<Self> {
        raw.only("use_bidirectional_attention", json!(false))?;
        let scalar = raw.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
        let window = raw.window(Some(4096))?;
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

    pub(super) fn with_gemma1(self, raw: &Raw<'_>) -> Result<Self> {
        raw.only("use_bidirectional_attention", json!(false))?;
        // The first configurations say "gelu" and mean its approximation.
        let activation = match raw.activation("hidden_act", Activation::GeluTanh)? {
            Activation::Gelu => Activation::GeluTanh,
            other => other,
        };
        let embed_scale = (self.width as f64).sqrt();
        Ok(Self { norm: NormKind::RmsPlusOne, activation, embed_scale, ..self })
    }

    pub(super) fn with_gemma2(self, raw: &Raw<'_>) -> Result<Self> {
        let cap = |field, default| if raw.has(field) { raw.positive(field) } else { Ok(Some(default)) };
        let sliding = raw.sliding(self.layers.len(), |layer| layer % 2 == 0)?;
        let mut config = self.with_gemma(raw, &sliding)?;
        let softcap = cap("attn_logit_softcapping", 50.0)?.map(|cap| cap as f32);
        config.layers.iter_mut().for_each(|layer| layer.rule.softcap = softcap);
        config.final_softcap = cap("final_logit_softcapping", 30.0)?;
        Ok(config)
    }

    pub(super) fn with_gemma3(self, raw: &Raw<'_>) -> Result<Self> {
        // transformers reads this field but ignores it.
        raw.only("attn_logit_softcapping", Value::Null)?;
        let pattern = raw.optional_size("sliding_window_pattern")?.unwrap_or(6);
        let sliding = raw.sliding(self.layers.len(), |layer| !(layer + 1).is_multiple_of(pattern))?;
        let mut config = self.with_gemma(raw, &sliding)?;
        config.qk_norm = Some(QkNorm::Head);
        config.final_softcap = raw.positive("final_logit_softcapping")?;
        let theta = raw.positive("rope_theta")?.unwrap_or(1_000_000.0);
        let local = raw.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
        let embeddings = raw.rotary_by_kind(config.head_dim, theta, local)?;
        config.positions = Positions::Rotary { style: RopeStyle::Half, embeddings };
        for (layer, &sliding) in config.layers.iter_mut().zip(&sliding) {
            layer.rotary = Some(usize::from(sliding));
        }
        Ok(config)
    }
}
