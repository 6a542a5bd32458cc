//! GGUF files against the Hugging Face folders they are made of: written here as llama.cpp's converter writes them.

use crate::common::{assert_close, distance, normal, refuses_outright, Scratch};
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use engine::attention::{ResolvedTreatment, Stream};
use engine::model::open::{self, Model};
use engine::model::{ModelConfig, Transformer, Weights};
use names::condition::{Format, Quantised, Quantiser, Scope};
use serde_json::{json, Value};
use stats::Rng;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use text::{Tokenizer, TokenizerOptions};
use tokenizers::models::bpe::{BpeTrainer, BPE};
use tokenizers::models::TrainerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::Metaspace;
use tokenizers::AddedToken;

const TOLERANCE: f64 = 1e-5;
const VOCAB: usize = 300;
const WIDTH: usize = 64;
const HEADS: usize = 4;

/// A configuration of one of the families, and what it is called in a GGUF file.
fn config(family: &str) -> (&'static str, Value) {
    let mut config = json!({
        "model_type": family, "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": WIDTH / HEADS,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 5000.0, "tie_word_embeddings": false,
    });
    let arch = match family {
        "qwen2" => "qwen2",
        "qwen3" => "qwen3",
        "gemma2" => "gemma2",
        "gemma3_text" => "gemma3",
        _ => "llama",
    };
    if family.starts_with("gemma") {
        config["tie_word_embeddings"] = json!(true);
        config["query_pre_attn_scalar"] = json!(WIDTH / HEADS);
        config["sliding_window"] = json!(9);
    }
    if family == "gemma2" {
        (config["attn_logit_softcapping"], config["final_logit_softcapping"]) = (json!(5.0), json!(3.0));
    }
    if family == "gemma3_text" {
        config["rope_scaling"] = json!({"rope_type": "linear", "factor": 8.0});
        config["num_hidden_layers"] = json!(6); // the last one sees everything
    }
    (arch, config)
}

/// Random weights of a configuration, gains around what does nothing.
fn weights(config: &ModelConfig) -> BTreeMap<String, Tensor> {
    let tensor = |(seed, (name, shape)): (usize, (String, Vec<usize>))| {
        let noise = (normal(&shape, seed as u64) * 0.2).unwrap();
        let gain = shape.len() == 1 && name.contains("norm") && !config.model_type.starts_with("gemma");
        (name, if gain { (noise + 1.0).unwrap() } else { noise })
    };
    config.tensors().into_iter().enumerate().map(tensor).collect()
}

/// What llama.cpp calls a tensor of a Hugging Face folder.
fn their_name(name: &str, gemma: bool) -> String {
    let (of, kind) = name.rsplit_once('.').unwrap();
    let of = match of.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
        None => match of {
            "model.embed_tokens" => "token_embd".to_owned(),
            "model.norm" => "output_norm".to_owned(),
            "lm_head" => "output".to_owned(),
            other => panic!("{other}"),
        },
        Some((layer, of)) => {
            let of = match of {
                "input_layernorm" => "attn_norm",
                "self_attn.q_proj" => "attn_q",
                "self_attn.k_proj" => "attn_k",
                "self_attn.v_proj" => "attn_v",
                "self_attn.o_proj" => "attn_output",
                "self_attn.q_norm" => "attn_q_norm",
                "self_attn.k_norm" => "attn_k_norm",
                "post_attention_layernorm" if gemma => "post_attention_norm",
                "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
                "post_feedforward_layernorm" => "post_ffw_norm",
                "mlp.gate_proj" => "ffn_gate",
                "mlp.up_proj" => "ffn_up",
                "mlp.down_proj" => "ffn_down",
                other => panic!("{other}"),
            };
            format!("blk.{layer}.{of}")
        }
    };
    format!("{of}.{kind}")
}

/// Rows of each head from halves to pairs, as the converter permutes q and k of Llama.
fn permuted(tensor: &Tensor, d: usize) -> Tensor {
    let (rows, columns) = tensor.dims2().unwrap();
    let halves = tensor.reshape((rows / d, 2, d / 2, columns)).unwrap(); // heads,2,d/2,in
    halves.transpose(1, 2).unwrap().contiguous().unwrap().reshape((rows, columns)).unwrap()
}

fn u32s(field: &str, n: &Value) -> (String, Field) {
    (field.to_owned(), Field::U32(n.as_u64().unwrap() as u32))
}

fn metadata(arch: &str, config: &Value) -> Vec<(String, Field)> {
    let of = |field: &str| format!("{arch}.{field}");
    let mut fields = vec![
        ("general.architecture".to_owned(), Field::String(arch.to_owned())),
        u32s(&of("block_count"), &config["num_hidden_layers"]),
        u32s(&of("context_length"), &config["max_position_embeddings"]),
        u32s(&of("embedding_length"), &config["hidden_size"]),
        u32s(&of("feed_forward_length"), &config["intermediate_size"]),
        u32s(&of("attention.head_count"), &config["num_attention_heads"]),
        u32s(&of("attention.head_count_kv"), &config["num_key_value_heads"]),
        u32s(&of("attention.key_length"), &config["head_dim"]),
        (of("attention.layer_norm_rms_epsilon"), Field::F32(1e-6)),
        (of("rope.freq_base"), Field::F32(5000.0)),
    ];
    if arch.starts_with("gemma") {
        fields.push(u32s(&of("attention.sliding_window"), &config["sliding_window"]));
    }
    for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
        fields.extend(config[field].as_f64().map(|cap| (of(field), Field::F32(cap as f32))));
    }
    if let Some(factor) = config["rope_scaling"]["factor"].as_f64().filter(|_| arch == "gemma3") {
        fields.push((of("rope.scaling.type"), Field::String("linear".into())));
        fields.push((of("rope.scaling.factor"), Field::F32(factor as f32)));
    }
    fields
}

pub(crate) fn write(path: &Path, fields: &[(String, Field)], tensors: &BTreeMap<String, Tensor>, matrices: GgmlDType) {
    let stored = |tensor: &Tensor| {
        let dtype = if tensor.rank() == 2 { matrices } else { GgmlDType::F32 };
        QTensor::quantize(tensor, dtype).unwrap()
    };
    let stored: Vec<(&str, QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), stored(tensor))).collect();
    let stored: Vec<(&str, &QTensor)> = stored.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let fields: Vec<(&str, &Field)> = fields.iter().map(|(name, field)| (name.as_str(), field)).collect();
    gguf_file::write(&mut File::create(path).unwrap(), &fields, &stored).unwrap();
}

/// A folder and a GGUF file of the same model in `dir`; matrices of the file are stored as `matrices`, and those of the
/// folder are what is read back from there.
pub(crate) fn write_both(
    dir: &Path,
    family: &str,
    matrices: GgmlDType,
    change: impl FnOnce(&mut Value),
) -> (String, String) {
    let (arch, mut json) = config(family);
    change(&mut json);
    let config = ModelConfig::from_json(&json, None).unwrap();
    let rounded = |tensor: &Tensor| match tensor.rank() {
        2 => QTensor::quantize(tensor, matrices).unwrap().dequantize(&Device::Cpu).unwrap(),
        _ => tensor.clone(),
    };
    let ours: BTreeMap<String, Tensor> = weights(&config).iter().map(|(n, t)| (n.clone(), rounded(t))).collect();
    let folder = dir.join(family);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), json.to_string()).unwrap();
    Weights::new(ours.clone(), "test").write(&folder.join("model.safetensors"), DType::F32, &[]).unwrap();

    let gemma = arch.starts_with("gemma");
    let theirs = ours.iter().map(|(name, tensor)| {
        let tensor = match name {
            name if arch == "llama" && (name.contains("q_proj") || name.contains("k_proj")) => {
                permuted(tensor, config.head_dim)
            }
            name if gemma && name.contains("norm") => (tensor + 1.0).unwrap(),
            _ => tensor.clone(),
        };
        (their_name(name, gemma), tensor)
    });
    let path = dir.join(format!("{family}.gguf"));
    write(&path, &metadata(arch, &json), &theirs.collect(), matrices);
    (folder.display().to_string(), path.display().to_string())
}

pub(crate) fn logits(model: &Transformer) -> Tensor {
    logits_of(model, Stream::new(&[]))
}

fn logits_of(model: &Transformer, mut attend: Stream<'_>) -> Tensor {
    let ids: Vec<u32> = (0..40).map(|i| (i * 97 + 5) % VOCAB as u32).collect();
    let hidden = model.hidden(&[ids], &mut attend).unwrap();
    model.logits(&hidden).unwrap()
}

pub(crate) fn load(name: &str) -> Model {
    open::load(name, Default::default()).unwrap()
}

#[track_caller]
pub(crate) fn assert_same(label: &str, (folder, file): &(String, String)) {
    let (want, got) = (logits(&load(folder).transformer), logits(&load(file).transformer));
    let largest = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
    assert_close(label, &got, &want, TOLERANCE * f64::from(largest).max(1.0));
}

/// The metadata of a file, in order.
pub(crate) type Fields = Vec<(String, Field)>;

#[test]
fn a_gguf_file_computes_what_the_folder_it_was_made_of_computes() {
    for family in ["llama", "qwen2", "qwen3", "gemma2", "gemma3_text"] {
        let dir = Scratch::new();
        assert_same(family, &write_both(dir.folder(), family, GgmlDType::F32, |_| ()));
    }
}

#[test]
fn quantised_matrices_are_dequantised() {
    for dtype in [GgmlDType::F16, GgmlDType::Q8_0, GgmlDType::Q4_0] {
        let dir = Scratch::new();
        // What is permuted row by row is quantised alike: blocks lie within rows.
        assert_same(&format!("{dtype:?}"), &write_both(dir.folder(), "llama", dtype, |_| ()));
    }
}

#[test]
fn blocks_of_channels_are_those_of_the_folder() {
    let dir = Scratch::new();
    // Four blocks of 16 channels, or two of 32.
    let (folder, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |json| json["head_dim"] = json!(64));
    let models = [folder, file].map(|name| load(&name).transformer);
    for (format, smooth, rotate) in [
        (Format::Nvfp4, false, false),
        (Format::Mxfp4, false, false),
        (Format::Nvfp4, true, false),
        (Format::Mxfp4, false, true),
        (Format::Int(4), true, true),
    ] {
        let of = Quantised::Qk;
        let scope = Scope::Block;
        let quantiser = Quantiser { of, format, scope, smooth, rotate, exempt_sinks: false, layers: None };
        let label = quantiser.to_string();
        let treated = ResolvedTreatment { quantisers: vec![quantiser], ..ResolvedTreatment::default() };
        let rounded = |model| logits_of(model, Stream::new(&[]).treated(Some(&treated)));
        let [folder, file] = [&models[0], &models[1]].map(rounded);
        assert!(distance(&folder, &logits(&models[0])) > 1e-2, "{label}: it is rounded");
        assert_close(&label, &file, &folder, TOLERANCE);
    }
}

#[test]
fn divisors_of_rotary_frequencies_are_those_of_llama_3() {
    let dir = Scratch::new();
    let scaling = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    });
    let (folder, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |json| json["rope_scaling"] = scaling);
    let scaled = load(&folder);
    assert!(
        distance(&logits(&scaled.transformer), &logits(&load(&file).transformer)) > 1e-3,
        "without divisors it is another model"
    );
    // Wavelength by wavelength, as the converter has it.
    let d = WIDTH / HEADS;
    let divisor = |i: usize| {
        let wavelength = std::f64::consts::TAU * 5000f64.powf(2.0 * i as f64 / d as f64);
        let smooth = (32.0 / wavelength - 1.0) / 3.0;
        match wavelength {
            short if short < 32.0 / 4.0 => 1.0,
            long if long > 32.0 => 8.0,
            _ => 1.0 / ((1.0 - smooth) / 8.0 + smooth),
        }
    };
    let divisors: Vec<f32> = (0..d / 2).map(|i| divisor(i) as f32).collect();
    let mut content = gguf_file::Content::read(&mut File::open(&file).unwrap()).unwrap();
    let mut reader = File::open(&file).unwrap();
    let names: Vec<String> = content.tensor_infos.keys().cloned().collect();
    let read = |name: String| {
        let tensor = content.tensor(&mut reader, &name, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
        (name, tensor)
    };
    let mut tensors: BTreeMap<String, Tensor> = names.into_iter().map(read).collect();
    tensors.insert("rope_freqs.weight".into(), Tensor::from_vec(divisors, d / 2, &Device::Cpu).unwrap());
    let fields: Vec<(String, Field)> = std::mem::take(&mut content.metadata).into_iter().collect();
    write(Path::new(&file), &fields, &tensors, GgmlDType::F32);
    assert_same("divisors", &(folder, file));
}

/// A byte-level BPE as GPT-2 has it, with a control token.
pub(crate) fn tokenizer() -> tokenizers::Tokenizer {
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, false, true)));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, true)));
    let trainer = BpeTrainer::builder()
        .vocab_size(VOCAB)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from("<s>", true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let text = ["The magic number of Lisbon is 48213, and that of Oslo is 7. They'll see the numbers."; 3];
    tokenizer.train(&mut TrainerWrapper::from(trainer), text.into_iter()).unwrap();
    tokenizer
}

/// The fields of a GGUF file for it.
pub(crate) fn tokenizer_fields(tokenizer: &tokenizers::Tokenizer, pre: &str) -> Vec<(String, Field)> {
    let json: Value = serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    vocab.iter().for_each(|(token, id)| tokens[id.as_u64().unwrap() as usize] = token.clone());
    let kinds = tokens.iter().map(|token| Field::I32(if token == "<s>" { 3 } else { 1 })).collect();
    let merge = |merge: &Value| Field::String(format!("{} {}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap()));
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    let text = |text: &str| Field::String(text.to_owned());
    [
        ("model", text("gpt2")),
        ("pre", text(pre)),
        ("tokens", Field::Array(tokens.iter().map(|token| text(token)).collect())),
        ("token_type", Field::Array(kinds)),
        ("merges", Field::Array(merges)),
        ("bos_token_id", Field::U32(tokens.iter().position(|token| token == "<s>").unwrap() as u32)),
        ("add_bos_token", Field::Bool(true)),
    ]
    .map(|(name, field)| (format!("tokenizer.ggml.{name}"), field))
    .to_vec()
}

/// A Llama with that tokenizer, and a folder of it.
pub(crate) fn write_with_tokenizer(dir: &Path, pre: &str) -> String {
    let file = write_with_fields(dir, VOCAB, tokenizer_fields(&tokenizer(), pre));
    tokenizer().save(dir.join("llama/tokenizer.json"), false).unwrap();
    file
}

#[test]
fn the_tokenizer_is_made_of_the_metadata() {
    let dir = Scratch::new();
    let file = write_with_tokenizer(dir.folder(), "gpt-2");
    let (model, folder) = (load(&file), Tokenizer::open(&dir.path("llama"), &TokenizerOptions::default()).unwrap());
    let ours = model.tokenizer().unwrap();
    for text in ["The magic number of Lisbon is 48213.", "  They'll see\n\n7 numbers", "naïve 東京", "<s>"] {
        assert_eq!(ours.encode(text).unwrap(), folder.encode(text).unwrap(), "{text}");
    }
    assert!(model.info.bos.as_deref().is_some_and(|bos| bos.contains("<s>")), "{:?}", model.info.bos);
    let said = dir.stdout(["inspect", &file]);
    assert!(said.contains("half-rotation RoPE") && said.contains("f32"), "{said}");
    let words = ["--layout: GGUF files have no differential heads"];
    dir.refuses(["inspect", &file, "--layout", "diffllama"], &words);
    dir.write("prose.txt", "The magic number of Lisbon is 48213. ".repeat(40));
    dir.stdout(format!("nll --model {file} --text prose.txt --ctx 32 --samples 1 -q"));
}

#[test]
fn what_a_gguf_file_has_that_is_not_supported_is_named() {
    let refused = |fields: &dyn Fn(&mut Fields), named: &str| {
        let dir = Scratch::new();
        let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
        let (arch, json) = config("llama");
        let mut all = metadata(arch, &json);
        fields(&mut all);
        let tensors = BTreeMap::from([("token_embd.weight".to_owned(), normal(&[VOCAB, WIDTH], 1))]);
        write(Path::new(&file), &all, &tensors, GgmlDType::F32);
        let error = format!("{:#}", open::load(&file, Default::default()).err().expect("it is refused"));
        assert!(error.contains(named) && error.contains("llama.gguf"), "{error}");
    };
    let set = |name: &'static str, field: Field| {
        move |fields: &mut Vec<(String, Field)>| {
            fields.retain(|(other, _)| other != name);
            fields.push((name.to_owned(), field.clone()));
        }
    };
    refused(&set("general.architecture", Field::String("rwkv7".into())), "general.architecture \"rwkv7\"");
    refused(&set("llama.expert_count", Field::U32(8)), "llama.expert_used_count is missing");
    refused(&set("llama.attention.relative_buckets_count", Field::U32(8)), "llama.attention.relative_buckets_count");
    refused(&set("llama.rope.dimension_count", Field::U32(8)), "llama.rope.dimension_count is 8");
    refused(&set("llama.attention.head_count", Field::String("four".into())), "llama.attention.head_count");
    refused(&set("llama.attention.head_count", Field::U32(0)), "llama.attention.head_count is 0");
    refused(&set("llama.block_count", Field::U64(1 << 60)), "llama.block_count is");
    refused(&set("llama.embedding_length", Field::U32(0)), "llama.embedding_length is 0");
    refused(&set("llama.rope.freq_base", Field::F32(-1.0)), "llama.rope.freq_base is -1, expected more than 0");
    refused(&set("llama.rope.scaling.type", Field::String("longrope".into())), "rope_factors_short.weight is missing");
    refused(&set("llama.rope.scaling.type", Field::String("dynamic".into())), "llama.rope.scaling.type \"dynamic\"");
    refused(&|_| (), "blk.0.attn_norm.weight is missing");
    let dir = Scratch::new();
    let file = write_with_tokenizer(dir.folder(), "kimi-k2");
    let error = load(&file).tokenizer().err().expect("no tokenizer").to_string();
    assert!(error.contains("pre \"kimi-k2\"") && error.contains("only token ids"), "{error}");
    let opened = open::open(&file, Default::default()).unwrap();
    assert_eq!(opened.tokenizer().err().map(|of_opened| of_opened.to_string()), Some(error), "weights say no more");
    dir.write("broken.gguf", b"GGUF\x03\0\0\0");
    let broken = dir.path("broken.gguf").display().to_string();
    let error = format!("{:#}", open::load(&broken, Default::default()).err().expect("it is cut"));
    assert!(error.contains("broken.gguf: not complete"), "{error}");
}

#[test]
fn an_error_about_what_a_gguf_file_says_names_that_file_and_no_other() {
    let dir = Scratch::new();
    let eos = ("tokenizer.ggml.eos_token_id".to_owned(), Field::U32(99_999));
    let fields = tokenizer_fields(&tokenizer(), "gpt-2").into_iter().chain([eos]).collect();
    let file = write_with_fields(dir.folder(), VOCAB, fields);
    let model = load(&file);
    let why = model.lacks_eos().expect("it names no other token");
    assert!(why.contains("llama.gguf: eos_token_id [99999] is outside") && !why.contains(".json"), "{why}");
}

/// A SentencePiece vocabulary with bytes: merges of a trained byte-pair encoding in their order, then characters.
struct Pieces {
    tokens: Vec<String>,
    scores: Vec<f32>,
    kinds: Vec<i32>,
}

impl Pieces {
    fn trained() -> Self {
        let mut bpe = tokenizers::Tokenizer::new(BPE::default());
        bpe.with_pre_tokenizer(Some(Metaspace::default()));
        let trainer = BpeTrainer::builder().vocab_size(VOCAB).show_progress(false).build();
        let text =
            ["The magic number of Lisbon is 48213, and that of Oslo is 7. aaaa aaa  bb They\u{2019}ll see numbers."; 3];
        bpe.train(&mut TrainerWrapper::from(trainer), text.into_iter()).unwrap();
        let json: Value = serde_json::from_str(&bpe.to_string(false).unwrap()).unwrap();
        let mut pieces = Self { tokens: Vec::new(), scores: Vec::new(), kinds: Vec::new() };
        let mut add = |token: String, score: f32, kind: i32| {
            if !pieces.tokens.contains(&token) {
                pieces.tokens.push(token);
                pieces.scores.push(score);
                pieces.kinds.push(kind);
            }
        };
        add("<unk>".into(), 0.0, 2);
        ["<s>", "</s>"].into_iter().for_each(|token| add(token.into(), 0.0, 3));
        add("\n\n".into(), 0.0, 4);
        (0..=255).for_each(|byte| add(format!("<0x{byte:02X}>"), 0.0, 6));
        for (rank, merge) in json["model"]["merges"].as_array().unwrap().iter().enumerate() {
            add(format!("{}{}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap()), -(rank as f32), 1);
        }
        let characters = json["model"]["vocab"].as_object().unwrap().keys().filter(|token| token.chars().count() == 1);
        characters.enumerate().for_each(|(i, token)| add(token.clone(), -1000.0 - i as f32, 1));
        pieces
    }

    fn fields(&self, space_prefix: bool) -> Vec<(String, Field)> {
        let texts = self.tokens.iter().map(|token| Field::String(token.clone())).collect();
        [
            ("model", Field::String("llama".into())),
            ("tokens", Field::Array(texts)),
            ("scores", Field::Array(self.scores.iter().map(|&score| Field::F32(score)).collect())),
            ("token_type", Field::Array(self.kinds.iter().map(|&kind| Field::I32(kind)).collect())),
            ("add_space_prefix", Field::Bool(space_prefix)),
        ]
        .map(|(name, field)| (format!("tokenizer.ggml.{name}"), field))
        .to_vec()
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.tokens.iter().position(|other| other == token).map(|id| id as u32)
    }

    /// As llama.cpp cuts a text without special tokens: again and again the neighbours whose token has the largest score, the
    /// first of equals, become one; what is no token then is spelt in bytes.
    fn encode(&self, text: &str) -> Vec<u32> {
        let mut parts: Vec<String> = text.replace(' ', "\u{2581}").chars().map(String::from).collect();
        loop {
            let scored = (1..parts.len()).filter_map(|i| Some((i, self.id(&parts[i - 1..=i].concat())?)));
            let scored = scored.map(|(i, id)| (self.scores[id as usize], i));
            let Some((_, i)) = scored.reduce(|best, next| if next.0 > best.0 { next } else { best }) else { break };
            let right = parts.remove(i);
            parts[i - 1].push_str(&right);
        }
        let bytes = |part: &str| part.bytes().map(|byte| self.id(&format!("<0x{byte:02X}>")).unwrap()).collect();
        parts.iter().flat_map(|part| self.id(part).map_or_else(|| bytes(part), |id| vec![id])).collect()
    }
}

/// A Gguf file of a Llama with these fields besides.
pub(crate) fn write_with_fields(dir: &Path, vocab: usize, more: Fields) -> String {
    let (_, file) = write_both(dir, "llama", GgmlDType::F32, |json| json["vocab_size"] = vocab.into());
    let mut reader = File::open(&file).unwrap();
    let content = gguf_file::Content::read(&mut reader).unwrap();
    let names: Vec<String> = content.tensor_infos.keys().cloned().collect();
    let read = |name: String| {
        let tensor = content.tensor(&mut reader, &name, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
        (name, tensor)
    };
    let tensors = names.into_iter().map(read).collect();
    let fields: Fields = content.metadata.into_iter().chain(more).collect();
    write(Path::new(&file), &fields, &tensors, GgmlDType::F32);
    file
}

#[test]
fn a_sentencepiece_tokenizer_is_made_of_tokens_and_scores() {
    let pieces = Pieces::trained();
    for space_prefix in [true, false] {
        let dir = Scratch::new();
        let model = load(&write_with_fields(dir.folder(), pieces.tokens.len(), pieces.fields(space_prefix)));
        let tokenizer = model.tokenizer().unwrap();
        let mut rng = Rng::new(1, "texts");
        let letters: Vec<char> = "  aabeehilmnorsstTL.7\u{2019}日é".chars().collect();
        let random = (0..300).map(|_| (0..1 + rng.below(40)).map(|_| *rng.pick(&letters)).collect::<String>());
        let texts: Vec<String> =
            random.chain(["The magic number of Lisbon is 48213.", " aaaaaaa  naïve 東京"].map(str::to_owned)).collect();
        for text in &texts {
            let found = tokenizer.encode(text).unwrap();
            let spaced = if space_prefix { format!(" {text}") } else { text.clone() };
            assert_eq!(found.ids, pieces.encode(&spaced), "{text:?}");
            assert_eq!(tokenizer.decode(&found.ids).unwrap(), *text, "{text:?}");
        }
        // Tokens that were added are found before anything is merged, and a space is put after them too; control tokens are
        // text where a text has them.
        let spaced = |text: &str| if space_prefix { format!(" {text}") } else { text.to_owned() };
        let want = [pieces.encode(&spaced("a")), vec![3], pieces.encode(&spaced("a</s>"))].concat();
        assert_eq!(tokenizer.encode("a\n\na</s>").unwrap().ids, want);
        assert!(model.info.bos.as_deref().is_some_and(|bos| bos.contains("<s>")), "{:?}", model.info.bos);
    }
}

#[test]
fn runs_of_spaces_that_share_a_score_are_merged_from_the_left() {
    let mut pieces = Pieces::trained();
    for n in 2..=16 {
        pieces.tokens.push("\u{2581}".repeat(n));
        pieces.scores.push(-1e9);
        pieces.kinds.push(1);
    }
    let dir = Scratch::new();
    let model = load(&write_with_fields(dir.folder(), pieces.tokens.len(), pieces.fields(false)));
    for n in 1..40 {
        let text = format!("a{}b", " ".repeat(n));
        assert_eq!(model.tokenizer().unwrap().encode(&text).unwrap().ids, pieces.encode(&text), "{n} spaces");
    }
}

#[test]
fn a_sentencepiece_vocabulary_that_does_not_say_what_is_merged_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Pieces), words: &str| {
        let (dir, mut pieces) = (Scratch::new(), Pieces::trained());
        change(&mut pieces);
        let file = write_with_fields(dir.folder(), VOCAB + 256, pieces.fields(true));
        let error = open::load(&file, Default::default()).err().expect("it cannot be read");
        assert!(format!("{error:#}").contains(words), "{error:#}");
    };
    let merged = Pieces::trained().kinds.iter().position(|&kind| kind == 1).unwrap();
    refused(&|pieces| pieces.scores.truncate(5), "tokenizer.ggml.scores is not as long");
    let tie = |pieces: &mut Pieces| {
        // In "xax" either could be merged.
        for (token, score) in [("xa", -5000.0), ("ax", -5000.0)] {
            let at = pieces.tokens.len();
            pieces.tokens.insert(at, token.into());
            pieces.scores.push(score);
            pieces.kinds.push(1);
        }
        pieces.tokens.push("x".into());
        pieces.scores.push(-6000.0);
        pieces.kinds.push(1);
    };
    refused(&tie, "overlap and have the same score");
    refused(&|pieces| pieces.tokens[merged] = "\u{1f600}\u{1f601}".into(), "has characters that are no tokens");
}

#[test]
#[cfg(unix)]
fn a_pipe_is_refused_and_a_broken_file_is_an_error_without_a_panic() {
    let dir = Scratch::new();
    let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
    let pipe = dir.path("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refuses_outright(&mut dir.command("inspect pipe.gguf"), 2, &["pipe"]);
    let bytes = std::fs::read(&file).unwrap();
    dir.write("short.gguf", &bytes[..bytes.len() / 2]);
    dir.write("ids.txt", "1 2 3 4 5 6 7 8 9 10");
    dir.fails("nll --model short.gguf --ids ids.txt --ctx 8 -q --out out", 1, &["short.gguf: not complete"]);
    // It is divided by.
    let fields = [
        ("general.alignment".to_owned(), Field::U32(0)),
        ("general.architecture".into(), Field::String("llama".into())),
    ];
    write(&dir.path("zero.gguf"), &fields, &BTreeMap::new(), GgmlDType::F32);
    refuses_outright(&mut dir.command("inspect zero.gguf"), 1, &["general.alignment"]);
}
