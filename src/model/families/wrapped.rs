//! Models that see or hear besides reading: `text_config` describes the part that is measured.

use super::super::config::ModelConfig;
use super::super::raw::Raw;
use super::Layout;
use anyhow::{bail, Context, Result};
use serde_json::{json, Map, Value};

/// What wraps which text model, and what `transformers` assumes where `text_config` says nothing: files on the Hub leave out
/// what is as in the first model of its kind.
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
    /// The text part of a model of that type; nothing if it is no wrapper.
    pub(super) fn of_wrapped(raw: &Raw<'_>, model_type: &str, layout: Option<Layout>) -> Result<Option<Self>> {
        let Some((inner, defaults)) = known(model_type) else { return Ok(None) };
        let said = raw.object("text_config")?.context("text_config is missing")?;
        match Raw(said).text("model_type").context("text_config")? {
            None => {}
            Some(named) if named == inner => {}
            Some(other) => bail!("text_config: model_type \"{other}\" is not supported; {inner} is"),
        }
        // The wrapper of Gemma 3 in transformers leaves it out, the text model alone has it.
        Raw(said).only("final_logit_softcapping", Value::Null).context("text_config")?;
        let mut fields: Map<String, Value> = defaults.as_object().cloned().unwrap_or_default();
        fields.extend(said.iter().map(|(name, value)| (name.clone(), value.clone())));
        fields.insert("model_type".into(), inner.into());
        let text = Self::from_json(&Value::Object(fields), layout).context("text_config")?;
        // The wrapper decides, and says so by default. Whether the files have a head of their own is seen when they are read.
        let tied = raw.flag("tie_word_embeddings")?.unwrap_or(true);
        Ok(Some(Self { wrapped: true, tied, ..text }))
    }
}
