//! Files of a model, and validation of its index.

use anyhow::{bail, Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;

/// Files that every model needs besides its weights.
pub(super) const REQUIRED: [&str; 2] = ["config.json", "tokenizer.json"];

/// Files that are downloaded if they exist.
pub(super) const OPTIONAL: [&str; 4] =
    ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json"];

/// File name of weights in one file.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// File name of the index of sharded weights.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The weight files listed in an index, in order. File names must be plain.
pub(super) fn shards(index: &[u8]) -> Result<Vec<String>> {
    let json: Value = serde_json::from_slice(index).context("not JSON")?;
    let Some(map) = json.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        bail!("\"weight_map\" is missing or empty");
    };
    let mut files = BTreeSet::new();
    for (tensor, file) in map {
        match file.as_str() {
            Some(file) if is_plain(file) => files.insert(file.to_owned()),
            _ => bail!("tensor {tensor} is in {file}, which is not the plain name of a .safetensors file"),
        };
    }
    Ok(files.into_iter().collect())
}

/// Returns whether a name stays in its folder on every system, and needs no escaping in a URL.
fn is_plain(file: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    file.ends_with(".safetensors") && file.chars().all(known) && !file.contains("..") && !file.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_each_shard_once() {
        let index = r#"{"weight_map": {"a": "m-2-of-2.safetensors", "b": "m-1-of-2.safetensors", "c": "m-2-of-2.safetensors"}}"#;
        assert_eq!(shards(index.as_bytes()).unwrap(), ["m-1-of-2.safetensors", "m-2-of-2.safetensors"]);
    }

    #[test]
    fn an_index_that_names_other_folders_or_nothing_is_refused() {
        for file in [
            "../x.safetensors",
            "a/b.safetensors",
            "a\\\\b.safetensors",
            "..",
            ".x.safetensors",
            "",
            "x.bin",
            "x%2fy.safetensors",
        ] {
            let index = format!(r#"{{"weight_map": {{"w": "{file}"}}}}"#);
            let message = shards(index.as_bytes()).unwrap_err().to_string();
            assert!(message.contains("tensor w") && message.contains(file), "{message}");
        }
        for index in ["", "[]", "{}", r#"{"weight_map": {}}"#, r#"{"weight_map": {"w": 1}}"#] {
            assert!(shards(index.as_bytes()).is_err(), "{index}");
        }
    }
}
