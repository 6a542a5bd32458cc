//! Models by name: the built-in trio, or any folder in the Hugging Face format.

use crate::bail_usage;
use crate::hash::sha256;
use crate::manifest::ModelInfo;
use crate::model::{ModelConfig, Transformer, Weights, TENSOR_FILE};
use crate::prompt::Tokenizer;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

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
    vocabulary: Vocabulary,
    /// For the manifest.
    pub info: ModelInfo,
}

/// Where a model's tokenizer is.
enum Vocabulary {
    BuiltIn,
    Own(Box<Tokenizer>),
    /// The file that is not there.
    Missing(PathBuf),
}

impl Model {
    /// The tokenizer the model was trained with.
    ///
    /// # Errors
    /// If its folder has none: token ids are all it can be given.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        match &self.vocabulary {
            Vocabulary::BuiltIn => Ok(Tokenizer::embedded()),
            Vocabulary::Own(tokenizer) => Ok(tokenizer),
            Vocabulary::Missing(path) => anyhow::bail!(
                "--model {}: cannot read {}, and without it only token ids can be measured (`difftool nll --ids FILE`)",
                self.name,
                path.display()
            ),
        }
    }
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

/// The configuration of a model by name, without its weights.
///
/// # Errors
/// As [`load`].
pub fn config(name: &str) -> Result<ModelConfig> {
    match BUILT_IN.iter().find(|model| model.name == name) {
        Some(built_in) => ModelConfig::from_json(&serde_json::from_str(built_in.config)?),
        None => ModelConfig::read(&folder(name)?.join("config.json")).with_context(|| format!("--model {name}")),
    }
}

/// The folder of a model that is not built in.
fn folder(name: &str) -> Result<&Path> {
    let dir = Path::new(name);
    if !dir.is_dir() {
        bail_usage!("--model {name}: neither a built-in model ({}) nor a folder", built_in_names().join(", "));
    }
    Ok(dir)
}

/// Loads a built-in model or a folder with `config.json`, `model.safetensors` and, unless only token ids are measured,
/// `tokenizer.json`.
///
/// # Errors
/// If the name is neither, or the folder does not hold a model that is supported and whole.
pub fn load(name: &str) -> Result<Model> {
    if let Some(built_in) = BUILT_IN.iter().find(|model| model.name == name) {
        return assemble(name, None, built_in.config.as_bytes(), built_in.weights, Vocabulary::BuiltIn);
    }
    let dir = folder(name)?;
    let read = |file: &str| {
        let path = dir.join(file);
        std::fs::read(&path).with_context(|| format!("--model {name}: cannot read {}", path.display()))
    };
    let (config, weights) = (read("config.json")?, read(TENSOR_FILE)?);
    let path = dir.join("tokenizer.json");
    let vocabulary = match path.exists() {
        true => Vocabulary::Own(Box::new(Tokenizer::from_file(&path)?)),
        false => Vocabulary::Missing(path),
    };
    assemble(name, Some(dir), &config, &weights, vocabulary)
}

fn assemble(name: &str, dir: Option<&Path>, config: &[u8], weights: &[u8], vocabulary: Vocabulary) -> Result<Model> {
    let file = |file: &str| dir.map_or(format!("built-in {name}/{file}"), |dir| dir.join(file).display().to_string());
    let parsed = serde_json::from_slice(config).with_context(|| format!("{}: not JSON", file("config.json")))?;
    let resolved = ModelConfig::from_json(&parsed).with_context(|| file("config.json"))?;
    let tokenizer = match &vocabulary {
        Vocabulary::BuiltIn => Some(Tokenizer::embedded()),
        Vocabulary::Own(tokenizer) => Some(&**tokenizer),
        Vocabulary::Missing(_) => None,
    };
    if let Some(size) = tokenizer.map(Tokenizer::vocab_size).filter(|&size| size > resolved.vocab) {
        let path = file("tokenizer.json");
        anyhow::bail!("{path}: the tokenizer has {size} tokens, the model {}", resolved.vocab);
    }
    let transformer = Transformer::load(&resolved, Weights::from_bytes(weights, &file(TENSOR_FILE))?)?;
    let info = ModelInfo {
        name: name.to_owned(),
        path: dir.map(|dir| dir.display().to_string()),
        variant: resolved.variant.name().to_owned(),
        parameters: resolved.parameters() as u64,
        weights_sha256: sha256(weights),
        config_sha256: sha256(config),
        tokenizer_sha256: tokenizer.map_or("", Tokenizer::sha256).to_owned(),
        layout: resolved.layout(),
        lambda: transformer.lambdas()?,
    };
    Ok(Model { name: name.to_owned(), transformer, vocabulary, info })
}
