//! What is fuzzed: everything that reads bytes of strangers. A target must return, whatever the bytes are, and says whether
//! they were accepted; that they are refused is fine. `cargo fuzz` calls them with inputs that it finds, the tests of the tool
//! with seeded ones.

use candle_core::quantized::gguf_file;
use candle_core::{Device, Tensor};
use difftool::commands::Experiment;
use difftool::results::manifest::Manifest;
use difftool::results::record;
use difftool::train::TrainSpec;
use engine::model::{Checkpoint, Gguf, ModelConfig, Weights};
use std::fs;
use std::path::Path;
use text::context::read_questions;
use text::needle::form::{NeedleForm, CITIES, FILE};
use text::needle::{self, Texts};
use text::{ChatTemplate, Haystack, Kept, NeedleSpec, NeedlesFile, Tokenizer, TokenizerOptions};

/// A target: its name, also that of its corpus, and what it does with bytes in a folder of its own.
pub(crate) type Target = (&'static str, fn(&[u8], &Path) -> bool);

/// All of them.
pub(crate) const TARGETS: [Target; 14] = [
    ("config", config),
    ("index", index),
    ("safetensors", safetensors),
    ("gguf", gguf),
    ("tokenizer", tokenizer),
    ("tokenizer_config", tokenizer_config),
    ("template", template),
    ("experiment", experiment),
    ("training", training),
    ("results", results),
    ("manifest", manifest),
    ("haystack", haystack),
    ("needles", needles),
    ("questions", questions),
];

/// The only file of the folder.
fn alone(folder: &Path, file: &str, bytes: &[u8]) {
    for other in fs::read_dir(folder).unwrap() {
        fs::remove_file(other.unwrap().path()).unwrap();
    }
    fs::write(folder.join(file), bytes).unwrap();
}

fn config(bytes: &[u8], _folder: &Path) -> bool {
    let Ok(json) = serde_json::from_slice(bytes) else { return false };
    let Ok(config) = ModelConfig::from_json(&json, None) else { return false };
    // What is accepted can be described and costed.
    let _ = (config.layout(), config.block(), config.positions(), config.windows());
    let _ = (config.parameters(), config.pass_bytes(config.max_ctx_tok));
    assert!(config.wiring().heads() == config.heads, "{config:?}");
    true
}

fn index(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "model.safetensors.index.json", bytes);
    // A file that an index may name, with one tensor.
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
    fs::write(folder.join("a.safetensors"), file).unwrap();
    Checkpoint::open(folder).is_ok()
}

fn safetensors(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "model.safetensors", bytes);
    let Ok(checkpoint) = Checkpoint::open(folder) else { return false };
    let _ = (checkpoint.dtypes(), checkpoint.sha256());
    let config = r#"{"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
        "intermediate_size": 4, "vocab_size": 4, "max_position_embeddings": 8}"#;
    let config = ModelConfig::from_json(&serde_json::from_str(config).unwrap(), None).unwrap();
    checkpoint.load(&config).is_ok()
}

/// Configuration, tokenizer and weights in one.
fn gguf(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "model.gguf", bytes);
    let path = folder.join("model.gguf");
    let Ok(file) = Gguf::open(&path) else { return false };
    if let Ok(Some(vocabulary)) = file.vocabulary() {
        let _ = vocabulary.tokenizer(&path, &TokenizerOptions::default());
    }
    let Ok(config) = file.config() else { return false };
    let Ok(mut weights) = Checkpoint::from(file).load(&config) else { return false };
    check_numbers(&path, &mut weights);
    true
}

/// Checks matrices that keep their rows in a GGUF file against candle's own reader of such files.
fn check_numbers(path: &Path, weights: &mut Weights) {
    const NAMES: [(&str, &str); 4] = [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"),
        ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ];
    let mut file = fs::File::open(path).unwrap();
    let Ok(content) = gguf_file::Content::read(&mut file) else { return };
    let bits = |tensor: &Tensor| -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    };
    for (stored, name) in NAMES {
        let Ok(read) = content.tensor(&mut file, stored, &Device::Cpu) else { continue };
        let read = read.dequantize(&Device::Cpu).unwrap();
        let ours = weights.take(name).unwrap();
        assert_eq!((ours.dims(), bits(&ours)), (read.dims(), bits(&read)), "{stored}");
    }
}

fn tokenizer(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "tokenizer.json", bytes);
    let Ok(tokenizer) = Tokenizer::open(folder, &TokenizerOptions::default()) else { return false };
    let text = "The special magic Oslo number is: 48213.\n\u{65e5}\u{672c}\u{1f600} ab";
    let Ok(encoded) = tokenizer.encode(text) else { return false };
    assert!(encoded.offsets.iter().all(|&(start, end)| start <= end && end <= text.len()));
    tokenizer.decode(&encoded.ids).is_ok()
}

fn tokenizer_config(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "tokenizer_config.json", bytes);
    ChatTemplate::read(folder).is_ok_and(|template| template.is_none_or(|template| !template.sha256().is_empty()))
}

/// In this process, whose limits are of steps and output alone.
fn template(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "chat_template.jinja", bytes);
    matches!(ChatTemplate::read(folder), Ok(Some(template)) if template.text_around().is_ok())
}

fn experiment(bytes: &[u8], _folder: &Path) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(experiment) = Experiment::parse(text, "fuzz.toml") else { return false };
    // What is read is written as what reads the same. A number may be too large to be written.
    let Ok(written) = experiment.to_toml() else { return false };
    assert_eq!(Experiment::parse(&written, "again.toml").unwrap().to_toml().unwrap(), written);
    true
}

fn training(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "spec.toml", bytes);
    let Ok(spec) = TrainSpec::read(&folder.join("spec.toml")) else { return false };
    let _ = (spec.total_tokens(), spec.rate_at(0));
    spec.start.is_none() && spec.configs_of(1024).is_ok()
}

fn results(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "results.csv", bytes);
    record::read(&folder.join("results.csv")).is_ok()
}

fn manifest(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "manifest.json", bytes);
    let Ok(manifest) = Manifest::read(&folder.join("manifest.json")) else { return false };
    let _ = manifest.check_outputs(folder); // there are none
    true
}

/// A text between needles.
fn haystack(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "haystack.txt", bytes);
    let Ok(haystack) = Haystack::from_path(&folder.join("haystack.txt")) else { return false };
    prompt_is_whole(&CITIES, &haystack, None)
}

/// Needles, questions and answers of a file.
fn needles(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "needles.jsonl", bytes);
    let Ok(file) = NeedlesFile::read(&folder.join("needles.jsonl")) else { return false };
    prompt_is_whole(&FILE, &Haystack::Embedded, Some(&file))
}

/// Questions with passages, each of which makes a prompt with all of them and with none.
fn questions(bytes: &[u8], folder: &Path) -> bool {
    alone(folder, "questions.jsonl", bytes);
    let Ok((contexts, _)) = read_questions(&folder.join("questions.jsonl"), None) else { return false };
    for context in contexts {
        let all: Vec<usize> = (0..context.segments.len()).collect();
        for segments in [&all[..], &[]] {
            let _ = context.prompt(Kept { segments, answer: "17" }, Tokenizer::embedded());
        }
    }
    true
}

/// Builds a prompt. One that is built has its answer where it says that it is: in tokens that may begin or end within
/// another word.
fn prompt_is_whole(form: &'static NeedleForm, haystack: &Haystack, file: Option<&NeedlesFile>) -> bool {
    let spec = NeedleSpec { ctx_tok: 200, form, ..NeedleSpec::default() };
    let tokenizer = Tokenizer::embedded();
    let Ok(prompt) = needle::build_of(&spec, 1, Texts { haystack, file, tokenizer }) else { return false };
    assert!(prompt.ids.len() <= spec.ctx_tok, "{} tokens", prompt.ids.len());
    for query in &prompt.queries {
        let answer = tokenizer.decode(&prompt.ids[query.answer.clone()]).unwrap();
        assert!(answer.contains(query.value.trim()), "{answer}: {query:?}");
    }
    true
}
