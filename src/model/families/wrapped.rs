//! Multimodal models: `text_config` describes the text part, which is measured.

use super::super::config::ModelConfig;
use super::super::raw::Raw;
use super::HeadLayout;
use anyhow::{bail, Context, Result};
use serde_json::{json, Map, Value};

/// The `model_type` of the text model in a multimodal one, and the defaults of transformers for fields missing in
/// `text_config`. Files on the Hub omit values equal to those of the first model of a kind.
fn known(model_type: &str) -> Option<(&'static str, Value)> {
    Some(match model_type {
        "gemma3" => (
            "gemma3_text",
            json!({
                "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131_072,
            }),
        ),
        "mistral3" => ("mistral", json!({})),
        _ => return None,
    })
}

impl ModelConfig {
    /// The text part of a multimodal model, or `None` if `model_type` is not multimodal.
    pub(super) fn of_wrapped(raw: &Raw<'_>, model_type: &str, layout: Option<HeadLayout>) -> Result<Option<Self>> {
        let Some((inner, defaults)) = known(model_type) else { return Ok(None) };
        let text_config = raw.object("text_config")?.context("text_config is missing")?;
        match Raw(text_config).text("model_type").context("text_config")? {
            None => {}
            Some(named) if named == inner => {}
            Some(other) => bail!("text_config: model_type \"{other}\" is not supported; {inner} is"),
        }
        // transformers ignores this field in the multimodal Gemma 3; only the text model applies it.
        Raw(text_config).only("final_logit_softcapping", Value::Null).context("text_config")?;
        let mut fields: Map<String, Value> = defaults.as_object().cloned().unwrap_or_default();
        fields.extend(text_config.iter().map(|(name, value)| (name.clone(), value.clone())));
        fields.insert("model_type".into(), inner.into());
        let text = Self::from_json(&Value::Object(fields), layout).context("text_config")?;
        // The outer configuration decides, by default `true`. Reading the weights checks whether they have a separate
        // head.
        let tied = raw.flag("tie_word_embeddings")?.unwrap_or(true);
        Ok(Some(Self { wrapped: true, tied, ..text }))
    }
}
