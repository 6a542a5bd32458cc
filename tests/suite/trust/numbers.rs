//! No number is silently wrong.

use crate::common::{Scratch, NEEDLE};
use candle_core::{DType, Tensor};
use engine::model::{ModelConfig, Weights};
use serde_json::json;
use std::fs;

/// Adds a tensor to the tiny model, made of its embedding.
fn add_to_weights(bench: &Scratch, name: &str, from: impl FnOnce(&Tensor) -> Tensor) {
    let path = bench.path("m/model.safetensors");
    let weights = Weights::read(&path).unwrap();
    let mut tensors: Vec<(String, Tensor)> = weights.iter().map(|(name, t)| (name.clone(), t.clone())).collect();
    let embedding = tensors.iter().find(|(name, _)| name == "model.embed_tokens.weight").unwrap().1.clone();
    tensors.push((name.to_owned(), from(&embedding)));
    Weights::new(tensors, "edited").write(&path, DType::F32, &[]).unwrap();
}

fn nll(bench: &Scratch, out: &str) -> String {
    bench.write("ids.txt", "5 6 7 8 9 10 11 5 6 7 8 9 10 11 99 100 101 102");
    bench.run(format!("nll --ids ids.txt --ctx 16 --model m --out {out} -q")).succeeded();
    bench.read(format!("{out}/results.csv"))
}

#[test]
fn an_output_head_that_differs_from_the_embedding_it_is_said_to_be_tied_to_is_used() {
    let bench = Scratch::with_model();
    let tied = nll(&bench, "tied");
    add_to_weights(&bench, "lm_head.weight", |embedding| (embedding * -1.5).unwrap());
    let other = nll(&bench, "other");
    bench.edit_json("m/config.json", |config| config["tie_word_embeddings"] = json!(false));
    assert_eq!(other, nll(&bench, "untied"), "as if config.json said so");
    assert_ne!(other, tied);
    assert!(!bench.run("inspect m").succeeded().stdout.contains("output head tied"));
}

#[test]
fn a_copy_of_the_embedding_beside_it_changes_nothing() {
    let bench = Scratch::with_model();
    let tied = nll(&bench, "tied");
    add_to_weights(&bench, "lm_head.weight", Tensor::clone);
    assert_eq!(nll(&bench, "copy"), tied);
    assert!(bench.run("inspect m").succeeded().stdout.contains("output head tied"));
}

#[test]
fn a_prompt_is_made_without_reading_weights() {
    let bench = Scratch::with_model();
    let path = bench.path("m/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 8..].fill(0xff); // NaN in any number type
    fs::write(&path, bytes).unwrap();
    bench.run(format!("{NEEDLE} --model m --out out")).refused(1, &["model.safetensors", "NaN"]);
    assert!(bench.run("prompt --ctx 256 --model m").succeeded().stdout.contains("the answer for"));
}

#[test]
fn two_different_rotary_embeddings_of_gemma_3_are_an_error_that_names_both_fields() {
    let config = |scaling: serde_json::Value| {
        let config = json!({
            "model_type": "gemma3_text", "head_dim": 8, "hidden_size": 48, "intermediate_size": 32, "vocab_size": 101,
            "max_position_embeddings": 256, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 1,
            "rope_parameters": {
                "full_attention": {"factor": 8.0, "rope_theta": 1e6, "rope_type": "linear"},
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}
            },
            "rope_scaling": scaling
        });
        ModelConfig::from_json(&config, None)
    };
    let error = format!("{:#}", config(json!({"rope_type": "linear", "factor": 4.0})).unwrap_err());
    assert!(error.contains("rope_parameters.full_attention and rope_scaling") && error.contains("differ"), "{error}");
    assert!(config(json!({"type": "linear", "factor": 8.0})).is_ok(), "the same in the words of older versions");
    assert!(config(json!(null)).is_ok());
}

#[test]
fn merges_that_are_left_out_by_chance_are_refused() {
    let bench = Scratch::with_model();
    bench.edit_json("m/tokenizer.json", |tokenizer| tokenizer["model"]["dropout"] = json!(0.5));
    bench.run("inspect m").refused(1, &["m/tokenizer.json", "model.dropout is 0.5"]);
    bench.edit_json("m/tokenizer.json", |tokenizer| tokenizer["model"]["dropout"] = json!(0.0));
    bench.run("inspect m").succeeded();
}

#[test]
fn base_seeds_that_lie_close_together_share_no_prompts_and_any_will_do() {
    let bench = Scratch::with_model();
    let prompts = |seed: u64| {
        let command = format!("prompt --samples 4 --needles 1 --ctx 256 --seed {seed} --model m --jsonl -");
        let run = bench.run(&command);
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let seeds: Vec<u64> = run.succeeded().stdout.lines().map(|text| line(text)["seed"].as_u64().unwrap()).collect();
        assert_eq!(seeds.len(), 20);
        seeds
    };
    let mut all: Vec<u64> = [0, 1, 2, 3, u64::MAX].into_iter().flat_map(prompts).collect();
    let seeds = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), seeds);
}

#[test]
fn a_finished_run_whose_results_were_changed_is_not_called_finished() {
    let bench = Scratch::with_model();
    bench.run(format!("{NEEDLE} --model m --out out -q")).succeeded();
    bench.run("run --resume out -q").succeeded();
    let results = bench.read("out/results.csv");
    bench.write("out/results.csv", &results[..results.len() / 2]);
    bench.run("run --resume out -q").refused(1, &["out/results.csv is not what was written", "manifest.json"]);
    fs::remove_file(bench.path("out/results.csv")).unwrap();
    bench.run("run --resume out -q").succeeded();
    assert_eq!(bench.read("out/results.csv"), results, "what is missing is measured again");
}

#[test]
fn flags_that_are_no_booleans_are_refused_and_ends_beyond_the_vocabulary_are_said() {
    let bench = Scratch::with_model();
    for flag in ["1", "\"true\""] {
        bench.write("m/tokenizer_config.json", format!(r#"{{"bos_token": "<bos>", "add_bos_token": {flag}}}"#));
        bench.run("inspect m").refused(1, &["m/tokenizer_config.json: add_bos_token is", "expected true or false"]);
    }
    bench.write("m/tokenizer_config.json", r#"{"bos_token": "<bos>", "add_bos_token": null}"#);
    bench.run("inspect m").succeeded();
    bench.write("m/generation_config.json", r#"{"eos_token_id": [1, 999999]}"#);
    let shown = bench.run("inspect m");
    assert!(shown.succeeded().stderr.contains("generation_config.json: eos_token_id [1,999999] is outside"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let bench = Scratch::with_model();
    let text = "The river is wide here. A boat goes by. ".repeat(30);
    for (flag, content) in [("--text", text), ("--ids", "5 6 7 8 9 10 11 12 ".repeat(5))] {
        let mut results = Vec::new();
        for mark in ["", "\u{feff}"] {
            bench.write("text.txt", format!("{mark}{content}"));
            let out = format!("out{flag}{}", mark.len());
            bench.run(format!("nll {flag} text.txt --ctx 32 --model m --out {out} -q")).succeeded();
            results.push(bench.read(format!("{out}/results.csv")));
        }
        assert_eq!(results[0], results[1], "{flag}");
    }
    for mark in ["", "\u{feff}"] {
        bench.write("hay.txt", format!("{mark}{}", "One lies here. Two lie there. ".repeat(60)));
        let shown = bench.run("prompt --ctx 256 --needles 1 --haystack hay.txt --model m");
        assert!(!shown.succeeded().stdout.contains("feff"), "{}", shown.stdout);
    }
}

#[test]
fn the_stages_of_a_training_run_and_its_sizes_are_bounded_by_name() {
    let bench = Scratch::with_model();
    let spec = crate::train::SPEC;
    for (from, to, words) in [
        ("layers = 2", "layers = 9007199254740992", ["model: layers is", "10000"]),
        ("layers = 2", "layers = 1000000", ["model: layers is", "10000"]),
        ("ffn = 48", "ffn = 9007199254740992", ["model: ffn is", "1048576"]),
        ("ffn = 48", "ffn = 4611686018427387904", ["model: ffn is", "1048576"]),
    ] {
        assert!(spec.contains(from), "{spec}");
        bench.write("t.toml", spec.replace(from, to));
        bench.run("train t.toml --out out -q").refused(2, &[&["t.toml"][..], &words].concat());
        assert!(!bench.exists("out"));
    }
}
