//! Models by name: the built-in trio, or any folder in the Hugging Face format.

use crate::bail_usage;
use crate::hash::sha256;
use crate::manifest::ModelInfo;
use crate::model::{Checkpoint, ModelConfig, Transformer, TENSOR_FILE};
use crate::prompt::Tokenizer;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// A model that is part of the binary.
struct BuiltIn {
    name: &'static str,
    config: &'static str,
    weights: &'static [u8],
}

macro_rules! built_in {
    ($name:literal) => {
        BuiltIn {
            name: $name,
            config: include_str!(concat!("../assets/models/", $name, "/config.json")),
            weights: include_bytes!(concat!("../assets/models/", $name, "/model.safetensors")),
        }
    };
}

/// Trained by `difftool train experiments/pair-4k.toml`.
const BUILT_IN: [BuiltIn; 3] = [built_in!("transformer"), built_in!("diff"), built_in!("diff-v2")];

/// Names of the built-in models.
pub fn built_in_names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|model| model.name).collect()
}

/// A model ready to measure.
pub struct Model {
    /// Name in the results: built-in, or the folder as given.
    pub name: String,
    /// The network.
    pub transformer: Transformer,
    /// Its tokenizer; nothing for the built-in one.
    own_tokenizer: Option<Tokenizer>,
    eos_ids: Vec<u32>,
    /// For the manifest.
    pub info: ModelInfo,
}

impl Model {
    /// The tokenizer the model was trained with.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.own_tokenizer.as_ref().unwrap_or_else(|| Tokenizer::embedded())
    }

    /// The tokens that end a text: `eos_token_id` of `generation_config.json`, or of `config.json` where that file says
    /// nothing about it.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos_ids
    }
}

/// See [`Model::eos_ids`]; `config` is the text of `config.json`.
fn eos_ids(dir: Option<&Path>, config: &Value) -> Result<Vec<u32>> {
    let path = dir.map(|dir| dir.join("generation_config.json")).filter(|path| path.exists());
    let generation: Value = match &path {
        None => Value::Null,
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{}: not JSON", path.display()))?
        }
    };
    let said = [&generation, config, &config["text_config"]].map(|file| &file["eos_token_id"]);
    let Some(eos) = said.into_iter().find(|eos| !eos.is_null()) else { return Ok(Vec::new()) };
    let ids = eos.as_array().map_or(std::slice::from_ref(eos), Vec::as_slice);
    let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    ids.iter().map(id).collect::<Option<_>>().with_context(|| format!("eos_token_id is {eos}, which names no tokens"))
}

/// The names that are meant: `all` stands for the built-in ones, nothing for the built-in pair.
///
/// # Errors
/// A usage error if a model is named twice.
pub fn resolve(names: &[String]) -> Result<Vec<String>> {
    let mut wanted: Vec<&str> = Vec::new();
    match names {
        [] => wanted.extend(["transformer", "diff"]),
        names => names.iter().for_each(|name| match name.as_str() {
            "all" => wanted.extend(built_in_names()),
            name => wanted.push(name),
        }),
    }
    for (i, name) in wanted.iter().enumerate() {
        if wanted[..i].contains(name) {
            bail_usage!("--model {name} is named twice");
        }
    }
    Ok(wanted.into_iter().map(str::to_owned).collect())
}

/// Loads a built-in model or a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
///
/// # Errors
/// If the name is neither, or the folder does not hold a model that is supported and whole.
pub fn load(name: &str) -> Result<Model> {
    if let Some(built_in) = BUILT_IN.iter().find(|model| model.name == name) {
        let weights = Checkpoint::built_in(built_in.weights, &format!("built-in {name}/{TENSOR_FILE}"))?;
        return assemble(name, None, built_in.config.as_bytes(), &weights, None);
    }
    let dir = Path::new(name);
    if !dir.is_dir() {
        bail_usage!("--model {name}: neither a built-in model ({}) nor a folder", built_in_names().join(", "));
    }
    let read = |file: &str| {
        let path = dir.join(file);
        std::fs::read(&path).with_context(|| format!("--model {name}: cannot read {}", path.display()))
    };
    let config = read("config.json")?;
    let tokenizer = Tokenizer::from_file(&dir.join("tokenizer.json"))?;
    assemble(name, Some(dir), &config, &Checkpoint::open(dir)?, Some(tokenizer))
}

fn assemble(
    name: &str,
    dir: Option<&Path>,
    config: &[u8],
    weights: &Checkpoint,
    own_tokenizer: Option<Tokenizer>,
) -> Result<Model> {
    let file = |file: &str| dir.map_or(format!("built-in {name}/{file}"), |dir| dir.join(file).display().to_string());
    let parsed = serde_json::from_slice(config).with_context(|| format!("{}: not JSON", file("config.json")))?;
    let resolved = ModelConfig::from_json(&parsed, None).with_context(|| file("config.json"))?;
    let tokenizer = own_tokenizer.as_ref().unwrap_or_else(|| Tokenizer::embedded());
    if tokenizer.vocab_size() > resolved.vocab {
        anyhow::bail!(
            "{}: the tokenizer has {} tokens, the model {}",
            file("tokenizer.json"),
            tokenizer.vocab_size(),
            resolved.vocab
        );
    }
    let transformer = Transformer::load(&resolved, weights.load(&resolved)?)?;
    let info = ModelInfo {
        name: name.to_owned(),
        path: dir.map(|dir| dir.display().to_string()),
        variant: resolved.variant.name().to_owned(),
        parameters: resolved.parameters() as u64,
        weights_sha256: weights.sha256(),
        config_sha256: sha256(config),
        tokenizer_sha256: tokenizer.sha256().to_owned(),
        layout: resolved.layout(),
        lambda: transformer.lambdas()?,
    };
    let eos_ids = eos_ids(dir, &parsed).with_context(|| format!("--model {name}"))?;
    Ok(Model { name: name.to_owned(), transformer, own_tokenizer, eos_ids, info })
}
