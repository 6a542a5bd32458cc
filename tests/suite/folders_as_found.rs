//! Folders that are a little other than usual, as public bug reports describe them.

use crate::common::{fixture, tiny_model};
use crate::trust::{edit_json, Bench, NEEDLE};
use difftool::attention::Stream;
use difftool::model::open::{self, LoadOptions};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

#[test]
fn a_tokenizer_may_have_tokens_that_the_model_does_not_know() {
    let bench = Bench::new();
    edit_json(&bench.path("m/tokenizer.json"), |tokenizer| {
        let added = tokenizer["added_tokens"].as_array_mut().unwrap();
        added.push(json!({"id": 1024, "content": "<image>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false}));
        // And one that texts are cut into.
        added.push(json!({"id": 1025, "content": "zebra", "special": false, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false}));
    });
    bench.run(&format!("{NEEDLE} --model m --out out -q")).succeeded();
    bench.write("t.txt", "A zebra is an animal. ".repeat(40));
    bench
        .run("nll --text t.txt --ctx 33 --samples 1 --model m --out nll -q")
        .refused(1, &["m/tokenizer.json", "\"zebra\" has id 1025", "1024 tokens"]);
}

#[test]
fn yarn_reaches_as_far_as_it_was_made_for() {
    let bench = Bench::new();
    edit_json(&bench.path("m/config.json"), |config| {
        config["max_position_embeddings"] = json!(512);
        config["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512});
    });
    bench.run("needle --ctx 1k --samples 1 --needles 1 --depths 50 --model m --out out -q").succeeded();
    bench
        .run("needle --ctx 4k --samples 1 --needles 1 --depths 50 --model m --out out2 -q")
        .refused(2, &["2048 tokens"]);
}

#[test]
fn longrope_is_what_transformers_computes_within_the_original_context_and_beyond() {
    let folder = fixture("repro/phi3-longrope");
    let model = open::load(folder.to_str().unwrap(), LoadOptions::default()).unwrap();
    // transformers 5.24, float64.
    for (file, expected) in [("ids100.txt", 6.555_801), ("ids300.txt", 6.576_425)] {
        let ids = fs::read_to_string(folder.join(file)).unwrap();
        let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let hidden = model.transformer.hidden(std::slice::from_ref(&ids), &mut Stream::new(&[])).unwrap();
        let logits = model.transformer.logits(&hidden).unwrap().squeeze(0).unwrap();
        let rows = logits.to_vec2::<f32>().unwrap();
        let nll = |(row, &next): (&Vec<f32>, &u32)| {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            sum.ln() - f64::from(row[next as usize])
        };
        let all: Vec<f64> = rows.iter().zip(&ids[1..]).map(nll).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - expected).abs() < 1e-4, "{file}: {mean}, expected {expected}");
    }
}

#[test]
fn a_tied_matrix_may_have_either_name() {
    let dir = TempDir::new().unwrap();
    let of = |name: &str| {
        let folder = dir.path().join(name);
        tiny_model(&folder, "transformer");
        folder
    };
    let (plain, renamed) = (of("plain"), of("renamed"));
    let path = renamed.join("model.safetensors");
    let mut tensors: HashMap<String, candle_core::Tensor> =
        candle_core::safetensors::load(&path, &candle_core::Device::Cpu).unwrap();
    let embedding = tensors.remove("model.embed_tokens.weight").unwrap();
    tensors.insert("lm_head.weight".into(), embedding);
    candle_core::safetensors::save(&tensors, &path).unwrap();
    let logits = |folder: &Path| {
        let model = open::load(folder.to_str().unwrap(), LoadOptions::default()).unwrap();
        let hidden = model.transformer.hidden(&[vec![1, 2, 3]], &mut Stream::new(&[])).unwrap();
        model.transformer.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(logits(&plain), logits(&renamed));
}

#[test]
fn a_configuration_alone_says_whether_its_family_is_supported() {
    let bench = Bench::new();
    fs::remove_file(bench.path("m/model.safetensors")).unwrap();
    for model in ["m", "m/config.json"] {
        let shown = bench.run(&format!("inspect {model}"));
        shown.succeeded();
        assert!(shown.stdout.contains("none: this is the configuration of a supported family"), "{}", shown.stdout);
    }
    bench.run(&format!("{NEEDLE} --model m --out out -q")).refused(1, &["m: has neither model.safetensors"]);
    edit_json(&bench.path("m/config.json"), |config| config["model_type"] = json!("mamba"));
    bench.run("inspect m/config.json").refused(1, &["m/config.json", "\"mamba\" is not supported"]);
}

#[test]
fn a_tokenizer_in_two_files_is_read() {
    let bench = Bench::new();
    let json: Value = serde_json::from_str(&bench.read("m/tokenizer.json")).unwrap();
    fs::remove_file(bench.path("m/tokenizer.json")).unwrap();
    bench.write("m/vocab.json", json["model"]["vocab"].to_string());
    let merges = json["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| format!("{} {}\n", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    bench.write("m/merges.txt", format!("#version: 0.2\n{}", merges.collect::<String>()));
    let config = json!({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<bos>"});
    bench.write("m/tokenizer_config.json", config.to_string());
    bench.run(&format!("{NEEDLE} --model m --out out -q")).succeeded();
    let shown = bench.run("inspect m");
    assert!(shown.stdout.contains("prompts begin with <bos> (config)"), "{}", shown.stdout);
}

#[test]
#[cfg(unix)]
fn a_link_that_leads_nowhere_is_an_error_and_no_absent_file() {
    let bench = Bench::new();
    for file in ["tokenizer_config.json", "generation_config.json"] {
        std::os::unix::fs::symlink("nowhere", bench.path(&format!("m/{file}"))).unwrap();
        bench.run("inspect m").refused(1, &[file]);
        fs::remove_file(bench.path(&format!("m/{file}"))).unwrap();
    }
}
