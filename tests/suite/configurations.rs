//! Configurations as they are found: extended positions, and settings without effect. Each field by itself: `trust`.

use crate::common::{fixture, Scratch, NEEDLE};
use engine::attention::Stream;
use engine::model::open::{self, LoadOptions};
use engine::model::ModelConfig;
use serde_json::{json, Value};
use std::fs;

#[test]
fn yarn_reaches_as_far_as_it_was_made_for() {
    let bench = Scratch::with_model();
    bench.edit_json("m/config.json", |config| {
        config["max_position_embeddings"] = json!(512);
        config["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512});
    });
    bench.run("needle --ctx 1k --samples 1 --needles 1 --depths 50 --model m --out out -q").succeeded();
    bench
        .run("needle --ctx 4k --samples 1 --needles 1 --depths 50 --model m --out out2 -q")
        .refused(2, &["2048 tokens"]);
}

#[test]
fn the_original_context_of_yarn_counts_beside_it_too() {
    let bench = Scratch::with_model();
    let numbers = |out: &str, original_inside: bool| {
        bench.edit_json("m/config.json", |config| {
            config["max_position_embeddings"] = json!(2048);
            config["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0});
            config.as_object_mut().unwrap().remove("original_max_position_embeddings");
            let place = if original_inside { &mut config["rope_scaling"] } else { config };
            place["original_max_position_embeddings"] = json!(128);
        });
        bench.run(format!("{NEEDLE} --model m --out {out} -q")).succeeded();
        let results = bench.read(format!("{out}/results.csv"));
        results.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(numbers("outside", false), numbers("inside", true));
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
fn settings_without_effect_at_lengths_that_can_be_measured_are_no_error() {
    let read = |folder: &str, changes: Value| {
        let path = fixture(&format!("transformers/{folder}/config.json"));
        let mut config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        ModelConfig::from_json(&config, None)
    };
    let dynamic = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0});
    let layers = ["full_attention", "sliding_attention"].repeat(8);
    assert_eq!(
        read("llama_mha", json!({"rope_parameters": dynamic})).unwrap(),
        read("llama_mha", json!({"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}})).unwrap()
    );
    assert_eq!(read("olmoe", json!({"sliding_window": 1 << 20})).unwrap(), read("olmoe", json!({})).unwrap());
    for folder in ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"] {
        let without = |window: Value| {
            let windows = json!({"use_sliding_window": false, "layer_types": null, "sliding_window": window});
            read(folder, windows).unwrap()
        };
        assert_eq!(without(json!(0)), without(json!(null)), "{folder}");
    }
    let types = |n: usize| json!({"layer_types": layers[..n], "sliding_window": 1 << 20});
    let mistral = read("mistral_window", json!({})).unwrap();
    assert!(read("mistral_window", types(mistral.layers.len())).is_ok());
    let narrow = json!({"layer_types": layers[..mistral.layers.len()], "sliding_window": 8});
    assert!(read("mistral_window", narrow).unwrap_err().to_string().contains("layer_types"));
    assert!(read("olmoe", json!({"sliding_window": 8})).unwrap_err().to_string().contains("sliding_window"));
}
