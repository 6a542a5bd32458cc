//! What is fuzzed: everything that reads bytes of strangers. A target must return, whatever the bytes are; that it returns an
//! error is fine. `cargo fuzz` calls them with inputs that it finds, the tests of the tool with seeded ones.

use difftool::experiment::{cells_on_disk, Experiment, Measures};
use difftool::manifest::Manifest;
use difftool::measure::MeasureName;
use difftool::model::{Checkpoint, ModelConfig};
use difftool::prompt::{ChatTemplate, Tokenizer, TokenizerOptions};
use difftool::record;
use difftool::train::TrainSpec;
use std::fs;
use std::path::Path;

/// A target: its name, also that of its corpus, and what it does with bytes in a folder of its own.
pub(crate) type Target = (&'static str, fn(&[u8], &Path));

/// All of them.
pub(crate) const TARGETS: [Target; 12] = [
    ("config", config),
    ("index", index),
    ("safetensors", safetensors),
    ("tokenizer", tokenizer),
    ("tokenizer_config", tokenizer_config),
    ("template", template),
    ("experiment", experiment),
    ("training", training),
    ("results", results),
    ("cells", cells),
    ("manifest", manifest),
    ("pooled", pooled),
];

/// The only file of the folder.
fn alone(folder: &Path, file: &str, bytes: &[u8]) {
    for other in fs::read_dir(folder).unwrap() {
        fs::remove_file(other.unwrap().path()).unwrap();
    }
    fs::write(folder.join(file), bytes).unwrap();
}

fn config(bytes: &[u8], _folder: &Path) {
    let Ok(json) = serde_json::from_slice(bytes) else { return };
    let Ok(config) = ModelConfig::from_json(&json, None) else { return };
    // What is accepted can be described and costed.
    let _ = (config.layout(), config.block(), config.positions(), config.windows());
    let _ = (config.parameters(), config.forward_bytes(config.max_ctx_tok), config.forward_flops(1024));
    assert!(config.wiring().heads() == config.heads, "{config:?}");
}

fn index(bytes: &[u8], folder: &Path) {
    alone(folder, "model.safetensors.index.json", bytes);
    let _ = Checkpoint::open(folder);
}

fn safetensors(bytes: &[u8], folder: &Path) {
    alone(folder, "model.safetensors", bytes);
    let Ok(checkpoint) = Checkpoint::open(folder) else { return };
    let _ = (checkpoint.dtypes(), checkpoint.sha256());
    let config = r#"{"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
        "intermediate_size": 4, "vocab_size": 4, "max_position_embeddings": 8}"#;
    let config = ModelConfig::from_json(&serde_json::from_str(config).unwrap(), None).unwrap();
    let _ = checkpoint.load(&config);
}

fn tokenizer(bytes: &[u8], folder: &Path) {
    alone(folder, "tokenizer.json", bytes);
    let Ok(tokenizer) = Tokenizer::open(folder, &TokenizerOptions::default()) else { return };
    let text = "The special magic Oslo number is: 48213.\n\u{65e5}\u{672c}\u{1f600} ab";
    let Ok(encoded) = tokenizer.encode(text) else { return };
    assert!(encoded.offsets.iter().all(|&(start, end)| start <= end && end <= text.len()));
    let _ = tokenizer.decode(&encoded.ids);
}

fn tokenizer_config(bytes: &[u8], folder: &Path) {
    alone(folder, "tokenizer_config.json", bytes);
    if let Ok(Some(template)) = ChatTemplate::read(folder) {
        let _ = template.sha256();
    }
}

/// In this process, whose limits are of steps and output alone.
fn template(bytes: &[u8], folder: &Path) {
    alone(folder, "chat_template.jinja", bytes);
    if let Ok(Some(template)) = ChatTemplate::read(folder) {
        let _ = template.around();
    }
}

fn experiment(bytes: &[u8], _folder: &Path) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(experiment) = Experiment::parse(text, "fuzz.toml") else { return };
    let _ = experiment.conditions();
    // What is read is written as what reads the same.
    let again = Experiment::parse(&experiment.to_toml().unwrap(), "again.toml").unwrap();
    assert_eq!(again.to_toml().unwrap(), experiment.to_toml().unwrap());
}

fn training(bytes: &[u8], folder: &Path) {
    alone(folder, "spec.toml", bytes);
    let Ok(spec) = TrainSpec::read(&folder.join("spec.toml")) else { return };
    let _ = (spec.configs(1024), spec.total_tokens(), spec.rate_at(0));
}

fn results(bytes: &[u8], folder: &Path) {
    alone(folder, "results.csv", bytes);
    let _ = record::read(&folder.join("results.csv"));
}

fn cells(bytes: &[u8], folder: &Path) {
    alone(folder, "cells.csv", bytes);
    fs::write(folder.join("results.csv"), "x".repeat(200)).unwrap();
    fs::write(folder.join("pooled.bin"), "x".repeat(40)).unwrap();
    let _ = cells_on_disk(folder);
}

fn manifest(bytes: &[u8], folder: &Path) {
    alone(folder, "manifest.json", bytes);
    if let Ok(manifest) = Manifest::read(&folder.join("manifest.json")) {
        let _ = manifest.check_outputs(folder);
    }
}

fn pooled(bytes: &[u8], _folder: &Path) {
    let mut measures = Measures::new(&[MeasureName::Outliers, MeasureName::Nll, MeasureName::Generation]);
    for measure in measures.list() {
        let _ = measure.decode(bytes);
    }
}
