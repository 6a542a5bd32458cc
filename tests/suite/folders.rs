//! Hugging Face folders from outside: a real tokenizer through every command, `inspect`, and folders that are broken.

use crate::common::{fixture, tiny_model, Scratch};
use candle_core::DType;
use engine::model::{ModelConfig, Weights};
use serde_json::{json, Value};
use stats::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use text::Haystack;
use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::AddedToken;

/// A byte-level BPE as GPT-2 has it, whose tokens join digits, and which puts `<s>` before every text.
fn save_bpe(path: &Path) -> usize {
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::default()));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let trainer = BpeTrainer::builder()
        .vocab_size(700)
        .show_progress(false)
        .special_tokens(["<s>", "</s>"].map(|name| AddedToken::from(name, true)).to_vec())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let prose: Vec<String> =
        Haystack::Embedded.sentences(Rng::new(0, "test")).take(400).map(|prose| prose.text).collect();
    let numbers = (0..400).map(|i| format!("The special magic Paris number is: {}.", 10_000 + 97 * i));
    let text: Vec<String> = prose.into_iter().chain(numbers).collect();
    tokenizer.train(&mut TrainerWrapper::from(trainer), text.into_iter()).unwrap();
    let id = tokenizer.token_to_id("<s>").unwrap();
    let template =
        TemplateProcessing::builder().try_single("<s> $A").unwrap().special_tokens(vec![("<s>", id)]).build().unwrap();
    tokenizer.with_post_processor(Some(template));
    tokenizer.save(path, false).unwrap();
    tokenizer.get_vocab_size(true)
}

/// A bfloat16 Qwen 2 with biases, grouped heads and that tokenizer.
fn qwen2(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let vocab = save_bpe(&dir.join("tokenizer.json"));
    let json = json!({
        "model_type": "qwen2", "vocab_size": vocab, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 1024, "rope_theta": 10000.0, "tie_word_embeddings": true,
    });
    fs::write(dir.join("config.json"), json.to_string()).unwrap();
    let config = ModelConfig::from_json(&json, None).unwrap();
    Weights::init(&config, 1).unwrap().write(&dir.join("model.safetensors"), DType::BF16, &[]).unwrap();
}

#[test]
fn a_folder_with_its_own_tokenizer_goes_through_every_command() {
    let dir = Scratch::new();
    qwen2(&dir.path("qwen"));
    let run = |args: &[&str]| dir.stdout([args, &["--model", "qwen", "--quiet"]].concat());
    let needle = run(&["needle", "--samples", "1", "--depths", "50", "--needles", "2"]);
    assert!(needle.contains("qwen"), "{needle}");
    assert!(needle.contains("1024"), "the default length is what the model can take: {needle}");
    run(&["ratio", "--ctx", "512", "--samples", "1", "--depths", "0,100"]);
    run(&["heatmap", "--ctx", "256"]);
    run(&["quantize", "--ctx", "512", "--samples", "1", "--depths", "50", "--bits", "8"]);
    run(&["outliers", "--ctx", "256", "--samples", "2"]);
    run(&["nll", "--ctx", "256", "--samples", "2"]);
}

#[test]
fn inspect_says_what_a_model_is() {
    let dir = Scratch::new();
    let gemma = fixture("transformers/gemma2").display().to_string();
    let facts = dir.stdout(["inspect", &gemma]);
    for fact in ["gemma2", "after the soft cap at 5", "the last 9 tokens in", "before and after", "only token ids"] {
        assert!(facts.contains(fact), "no `{fact}` in {facts}");
    }
    let diff: Value = serde_json::from_str(&dir.stdout(["inspect", "diff", "--json"])).unwrap();
    assert_eq!(diff["layout"], "DIFF V1, pairs (i, i+H), half-rotation RoPE, head norm without gain");
    assert_eq!(diff["lambda"].as_array().unwrap().len(), 4);
    assert!((diff["lambda"][1]["init"].as_f64().unwrap() - 0.3555).abs() < 1e-4);
    let v2: Value = serde_json::from_str(&dir.stdout(["inspect", "diff-v2", "--json"])).unwrap();
    let over_tokens = &v2["lambda"][0]["over_tokens"];
    assert_eq!(over_tokens["n"], 8 * 512);
    assert!(over_tokens["p5"].as_f64() < over_tokens["p95"].as_f64());
}

#[test]
fn a_layout_that_does_not_fit_the_tensors_is_refused_with_what_is_missing() {
    let dir = Scratch::new();
    tiny_model(&dir.path("v1"), "diff");
    dir.fails(["needle", "--model", "v1", "--layout", "microsoft-v1"], 1, &["subln", "missing"]);
    let shown = dir.run("inspect v1 --layout microsoft-v2");
    for fact in
        ["missing model.layers.0.self_attn.lambda_proj.weight", "misfit", "unused model.layers.0.self_attn.lambda_q1"]
    {
        assert!(shown.stdout.contains(fact), "no `{fact}` in {}", shown.stdout);
    }
    assert_eq!(shown.code, Some(1));
}

#[test]
fn the_scalar_layout_is_measured_like_the_others() {
    let dir = Scratch::new();
    tiny_model(&dir.path("scalar"), "diff-scalar");
    let table = dir.stdout(["ratio", "--model", "scalar", "--ctx", "256", "--samples", "1", "--depths", "50", "-q"]);
    assert!(table.contains("scalar"), "{table}");
    assert!(dir.stdout(["inspect", "scalar"]).contains("scalar lambda, pairs (i, i+H)"));
}

#[test]
fn inspect_says_where_lambda_leaves_standard_attention() {
    let dir = Scratch::new();
    for (name, zero) in [("axolotl", false), ("axolotl_zero", true), ("gated_head", false)] {
        let folder = fixture(&format!("layouts/{name}"));
        let shown = dir.stdout(["inspect", folder.to_str().unwrap()]);
        assert_eq!(shown.contains("λ is 0 in every layer: standard attention"), zero, "{shown}");
    }
}

/// A folder of two shards with their index.
fn sharded(dir: &Path) -> PathBuf {
    let folder = dir.join("sharded");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(fixture("transformers/llama_sharded_bf16")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// Changes the index of a sharded folder.
fn edit_index(folder: &Path, edit: impl FnOnce(&mut Value)) {
    let path = folder.join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut index);
    fs::write(path, index.to_string()).unwrap();
}

#[test]
fn broken_shards_and_indices_are_named() {
    let broken = |break_it: &dyn Fn(&Path), words: &[&str]| {
        let dir = Scratch::new();
        let folder = sharded(dir.folder());
        dir.stdout(["inspect", "sharded"]);
        break_it(&folder);
        dir.fails(["inspect", "sharded"], 1, words);
    };
    let shards = |folder: &Path| -> Vec<PathBuf> {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut shards: Vec<PathBuf> = all
            .filter(|path| path.to_string_lossy().contains("model-0") && path.extension().unwrap() == "safetensors")
            .collect();
        shards.sort();
        shards
    };
    let remove = |folder: &Path| fs::remove_file(&shards(folder)[1]).unwrap();
    broken(&remove, &["cannot read", "model-0"]);
    let truncate = |folder: &Path| {
        let path = &shards(folder)[0];
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    broken(&truncate, &["not a complete safetensors file"]);
    let escape = |name: &'static str| {
        move |folder: &Path| {
            edit_index(folder, |index| index["weight_map"]["model.norm.weight"] = json!(name));
        }
    };
    broken(&escape("../../etc/passwd"), &["files of a model lie beside it"]);
    broken(&|folder| edit_index(folder, |index| index["weight_map"] = json!([])), &["weight_map is missing"]);
}

#[test]
fn broken_folders_are_named_without_a_panic_or_a_huge_allocation() {
    type Damage<'a> = &'a dyn Fn(&Path);
    let edit_config = |field: &'static str, value: Value| {
        move |folder: &Path| {
            let path = folder.join("config.json");
            let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            config[field] = value.clone();
            fs::write(path, config.to_string()).unwrap();
        }
    };
    let remove = |file: &'static str| move |folder: &Path| fs::remove_file(folder.join(file)).unwrap();
    let cases: [(Damage<'_>, i32, &[&str]); 7] = [
        (&remove("config.json"), 2, &["no config.json"]),
        (&remove("model.safetensors"), 1, &["neither model.safetensors nor"]),
        (&remove("tokenizer.json"), 1, &["tokenizer.json", "only token ids"]),
        (&edit_config("model_type", json!("mamba")), 1, &["model_type \"mamba\" is not supported"]),
        (&edit_config("hidden_size", json!(64)), 1, &["embed_tokens", "expected"]),
        (&edit_config("hidden_size", json!(u64::MAX)), 1, &["hidden_size", "at most"]),
        (&|folder| fs::write(folder.join("model.safetensors"), [255; 64]).unwrap(), 1, &["not a complete safetensors"]),
    ];
    for (damage, code, words) in cases {
        let dir = Scratch::new();
        let folder = dir.path("model");
        tiny_model(&folder, "transformer");
        damage(&folder);
        dir.fails(["needle", "--model", "model", "--ctx", "256", "--samples", "1"], code, words);
    }
}

#[test]
fn weights_of_another_number_type_are_refused() {
    let dir = Scratch::new();
    let folder = dir.path("model");
    tiny_model(&folder, "transformer");
    let path = folder.join("model.safetensors");
    let weights = Weights::read(&path).unwrap();
    weights.write(&path, DType::F64, &[]).unwrap();
    dir.fails(["inspect", "model"], 1, &["cannot be measured"]);
    dir.fails(["needle", "--model", "model"], 1, &["F64", "not supported"]);
}

#[test]
fn a_configuration_is_read_whatever_is_in_it() {
    let dir = Scratch::new();
    let folder = dir.path("model");
    tiny_model(&folder, "transformer");
    for text in ["", "[]", "{\"model_type\": \"llama\"}"] {
        fs::write(folder.join("config.json"), text).unwrap();
        dir.fails(["inspect", "model"], 1, &["config.json"]);
    }
}

#[test]
fn what_a_sink_takes_is_a_region_of_its_own_in_the_results() {
    let dir = Scratch::new();
    tiny_model(&dir.path("sink"), "sink");
    dir.stdout(["ratio", "--model", "sink", "--ctx", "256", "--samples", "1", "--depths", "50", "--out", "out"]);
    let records = dir.records("out");
    for metric in ["share_abs", "share_signed"] {
        let of = |record: &&difftool::results::record::Record| {
            let found = &record.measure;
            found.metric == metric && found.layer.is_none() && found.head.is_none()
        };
        let sum: f64 = records.iter().filter(of).filter_map(|record| record.measure.value).sum();
        let sink = records.iter().filter(of).find(|record| record.measure.region.as_deref() == Some("sink"));
        let sink = sink.unwrap_or_else(|| panic!("no sink in {metric}")).measure.value.unwrap();
        let prompts = records.iter().filter(of).filter(|r| r.measure.region.as_deref() == Some("answer")).count();
        assert!((sum / prompts as f64 - 1.0).abs() < 1e-5, "{metric}: {sum} over {prompts} prompts");
        assert!(sink > 0.0 && sink < 1.0, "{metric}: {sink}");
    }
}
