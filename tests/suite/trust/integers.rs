//! Integers that no file should have are refused, or change nothing without bound.

use super::fuzz::ABSURD;
use crate::common::{fixture, tiny_model, Scratch};
use engine::model::{Checkpoint, ModelConfig};
use serde_json::{json, Value};
use std::fs;
use std::time::Instant;

/// Copies of a value with each of its integers replaced by each absurd one, with where that is.
fn changed(value: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    match value {
        Value::Number(n) if n.is_u64() => {
            let others = ABSURD.into_iter().filter(|&absurd| n.as_u64() != Some(absurd));
            all.extend(others.map(|absurd| (format!(" {absurd}"), json!(absurd))));
        }
        Value::Array(list) => {
            for (i, entry) in list.iter().enumerate() {
                for (place, entry) in changed(entry) {
                    let mut list = list.clone();
                    list[i] = entry;
                    all.push((format!("[{i}]{place}"), Value::Array(list)));
                }
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                for (place, field) in changed(field) {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), field);
                    all.push((format!(".{name}{place}"), Value::Object(fields)));
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn in_config_json() {
    for folder in fs::read_dir(fixture("transformers")).unwrap().map(|entry| entry.unwrap().path()) {
        let config = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
        for (place, config) in changed(&config) {
            let begun = Instant::now();
            if let Ok(config) = ModelConfig::from_json(&config, None) {
                let _ = (config.layout(), config.block(), config.positions(), config.windows());
                let _ = (config.parameters(), config.pass_bytes(config.max_ctx_tok), config.wiring().heads());
            }
            assert!(begun.elapsed().as_secs() < 5, "{}{place}", folder.display());
        }
    }
}

#[test]
fn in_the_header_of_safetensors() {
    let dir = Scratch::new();
    let (source, copy) = (dir.path("source"), dir.path("copy"));
    tiny_model(&source, "transformer");
    fs::create_dir(&copy).unwrap();
    let bytes = fs::read(source.join("model.safetensors")).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let config = ModelConfig::read(&source.join("config.json")).unwrap();
    let first_two = header.as_object().unwrap().iter().take(2).map(|(name, entry)| (name.clone(), entry.clone()));
    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    for (place, entries) in changed(&Value::Object(first_two.collect())) {
        let mut header = header.clone();
        header.as_object_mut().unwrap().extend(entries.as_object().unwrap().clone());
        let text = header.to_string().into_bytes();
        headers.push((place, [&(text.len() as u64).to_le_bytes()[..], &text].concat()));
    }
    headers.extend(ABSURD.map(|absurd| (format!("length {absurd}"), absurd.to_le_bytes().to_vec())));
    for (place, header) in headers {
        fs::write(copy.join("model.safetensors"), [&header, &bytes[8 + len..]].concat()).unwrap();
        let read = Checkpoint::open(&copy).and_then(|checkpoint| checkpoint.load(&config).map(drop));
        let error = format!("{:#}", read.expect_err(&place));
        assert!(error.contains("model.safetensors"), "{place}: {error}");
    }
}

#[test]
fn a_tensor_that_is_there_twice_is_named() {
    let dir = Scratch::new();
    tiny_model(dir.folder(), "transformer");
    let path = dir.path("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..8 + len].to_vec()).unwrap();
    for name in ["model.norm.weight", "__metadata__"] {
        let parsed: Value = serde_json::from_str(&header).unwrap();
        let twice = header.trim_end().replacen('{', &format!("{{{:?}:{},", name, parsed[name]), 1);
        let file = [&(twice.len() as u64).to_le_bytes()[..], twice.as_bytes(), &bytes[8 + len..]].concat();
        fs::write(&path, file).unwrap();
        let error = format!("{:#}", Checkpoint::open(dir.folder()).err().unwrap());
        assert!(error.contains("model.safetensors") && error.contains(name) && error.contains("twice"), "{error}");
    }
}
