//! GGUF files that say something else than usual: it is read as llama.cpp reads it, or an error names it.

use crate::common::{difftool, distance, fixture, Scratch};
use crate::gguf::{assert_same, load, logits, tokenizer, tokenizer_fields, write, write_both};
use crate::gguf::{write_with_fields, write_with_tokenizer, Fields};
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::GgmlDType;
use candle_core::{Device, Tensor};
use engine::attention::Stream;
use engine::model::open::{self, LoadOptions};
use engine::model::{Placement, Transformer};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

/// The fields and the tensors of a file.
fn parts(file: &str) -> (Fields, BTreeMap<String, Tensor>) {
    let mut reader = File::open(file).unwrap();
    let content = gguf_file::Content::read(&mut reader).unwrap();
    let read = |name: &String| {
        let tensor = content.tensor(&mut reader, name, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
        (name.clone(), tensor)
    };
    let tensors = content.tensor_infos.keys().map(read).collect();
    (content.metadata.into_iter().collect(), tensors)
}

/// The same file with other fields.
fn change(file: &str, edit: impl FnOnce(&mut Fields)) {
    let (mut fields, tensors) = parts(file);
    edit(&mut fields);
    write(Path::new(file), &fields, &tensors, GgmlDType::F32);
}

fn set(fields: &mut Fields, name: &str, field: Field) {
    fields.retain(|(other, _)| other != name);
    fields.push((name.to_owned(), field));
}

fn error(file: &str) -> String {
    format!("{:#}", open::load(file, LoadOptions::default()).err().expect("it is refused"))
}

#[track_caller]
fn assert_refused(file: &str, words: &[&str]) {
    let error = error(file);
    assert!(words.iter().all(|word| error.contains(word)), "{words:?} are not in: {error}");
}

fn inspect(folder: &Path, file: &str) -> std::process::Output {
    difftool(folder, ["inspect", file]).output().unwrap()
}

#[test]
fn a_number_that_is_none_is_named() {
    let dir = Scratch::new();
    let (_, file) = write_both(dir.folder(), "gemma2", GgmlDType::F32, |_| ());
    change(&file, |fields| set(fields, "gemma2.final_logit_softcapping", Field::F32(f32::NAN)));
    assert_refused(&file, &["gemma2.gguf", "gemma2.final_logit_softcapping"]);
}

/// Writes `bytes` into the entry of a tensor in the header, so many bytes behind its name and number of dimensions.
fn patch(file: &str, tensor: &str, behind: usize, bytes: &[u8]) {
    let mut all = fs::read(file).unwrap();
    let name = [&(tensor.len() as u64).to_le_bytes()[..], tensor.as_bytes()].concat();
    let at = all.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 4 + behind;
    all[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(file, all).unwrap();
}

#[test]
fn a_number_type_that_cannot_be_read_is_named_with_its_tensor() {
    let dir = Scratch::new();
    let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
    patch(&file, "blk.1.ffn_up.weight", 16, &20u32.to_le_bytes());
    assert_refused(&file, &["llama.gguf", "tensor blk.1.ffn_up.weight", "IQ4_NL"]);
    let shown = dir.run("inspect llama.gguf");
    assert!(shown.code != Some(0) && shown.stdout.contains("blk.1.ffn_up.weight holds IQ4_NL"), "{}", shown.stdout);
    patch(&file, "blk.1.ffn_up.weight", 16, &200u32.to_le_bytes());
    assert_refused(&file, &["tensor blk.1.ffn_up.weight", "number type 200"]);
}

#[test]
fn tensors_lie_within_the_file() {
    let dir = Scratch::new();
    let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
    let whole = fs::read(&file).unwrap();
    patch(&file, "output_norm.weight", 12, &u64::MAX.to_le_bytes());
    assert_refused(&file, &["llama.gguf: tensor output_norm.weight begins at"]);
    fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    assert_refused(&file, &["llama.gguf: not complete", "ends at"]);
    assert_eq!(inspect(dir.folder(), "llama.gguf").status.code(), Some(1));
}

#[test]
fn lengths_beyond_the_file_take_no_memory() {
    let dir = Scratch::new();
    let path = dir.path("m.gguf");
    let huge = 1u64 << 63;
    let header =
        |tensors: u64, fields: u64| [b"GGUF\x03\0\0\0", &tensors.to_le_bytes()[..], &fields.to_le_bytes()].concat();
    let field = |kinds: &[u32]| {
        let kinds = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
        [header(0, 1), 1u64.to_le_bytes().to_vec(), b"x".to_vec(), kinds, huge.to_le_bytes().to_vec()].concat()
    };
    let tensor = [
        header(1, 0),
        0u64.to_le_bytes().to_vec(),
        2u32.to_le_bytes().to_vec(),
        [huge, huge].map(u64::to_le_bytes).concat(),
        vec![0; 12],
    ];
    for bytes in [header(huge, 0), header(0, huge), field(&[8]), field(&[9, 8]), field(&[9, 0]), tensor.concat()] {
        fs::write(&path, bytes).unwrap();
        let error = error(&path.display().to_string());
        assert!(error.contains("m.gguf: ") && (error.contains("cut off") || error.contains("more numbers")), "{error}");
    }
}

#[test]
fn soft_caps_of_gemma_2_are_those_of_llama_cpp_where_the_file_has_none() {
    let dir = Scratch::new();
    let both = write_both(dir.folder(), "gemma2", GgmlDType::F32, |json| {
        (json["attn_logit_softcapping"], json["final_logit_softcapping"]) = (json!(50.0), json!(30.0));
    });
    change(&both.1, |fields| fields.retain(|(name, _)| !name.contains("softcapping")));
    assert_same("without soft caps", &both);
    let capped = logits(&load(&both.1).transformer);
    change(&both.1, |fields| set(fields, "gemma2.attn_logit_softcapping", Field::F32(2.0)));
    assert!(distance(&capped, &logits(&load(&both.1).transformer)) > 1e-3, "a cap of 2 does something");
}

#[test]
fn windows_of_gemma_3_are_those_that_the_file_says() {
    let dir = Scratch::new();
    let pattern = ["full_attention", "sliding_attention"].repeat(3);
    let both = write_both(dir.folder(), "gemma3_text", GgmlDType::F32, |json| {
        json["layer_types"] = json!(pattern);
        json["rope_local_base_freq"] = json!(300.0);
    });
    change(&both.1, |fields| {
        let list = [false, true].repeat(3).into_iter().map(Field::Bool).collect();
        set(fields, "gemma3.attention.sliding_window_pattern", Field::Array(list));
        set(fields, "gemma3.rope.freq_base_swa", Field::F32(300.0));
    });
    assert_same("a list of windows", &both);
    change(&both.1, |fields| {
        set(fields, "gemma3.attention.sliding_window_pattern", Field::Array(vec![Field::Bool(true)]));
    });
    assert_refused(&both.1, &["gemma3.attention.sliding_window_pattern has 1 entries for 6 layers"]);
}

#[test]
fn rope_scaling_is_read_from_every_field_that_llama_cpp_reads() {
    let scaled = |scaling: serde_json::Value, fields: &[(&str, Field)]| {
        let dir = Scratch::new();
        let both = write_both(dir.folder(), "qwen2", GgmlDType::F32, |json| json["rope_scaling"] = scaling);
        change(&both.1, |all| {
            fields.iter().for_each(|(name, field)| set(all, &format!("qwen2.rope.{name}"), field.clone()));
        });
        assert_same(&format!("{fields:?}"), &both);
    };
    let linear = json!({"rope_type": "linear", "factor": 4.0});
    scaled(linear.clone(), &[("scaling.factor", Field::F32(4.0))]);
    scaled(linear.clone(), &[("scale_linear", Field::F32(4.0))]);
    scaled(linear, &[("scale_linear", Field::F32(4.0)), ("scaling.factor", Field::F32(4.0))]);
    scaled(json!(null), &[("scaling.type", Field::String("none".into())), ("scaling.factor", Field::F32(4.0))]);
    let yarn = || ("scaling.type", Field::String("yarn".into()));
    let original = || ("scaling.original_context_length", Field::U32(32));
    scaled(
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
        &[yarn(), original(), ("scaling.factor", Field::F32(4.0))],
    );
    let factor = 1.5 * (1.0 + 0.1 * 4f64.ln());
    scaled(
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8.0,
            "attention_factor": factor}),
        &[
            yarn(),
            original(),
            ("scaling.factor", Field::F32(4.0)),
            ("scaling.attn_factor", Field::F32(1.5)),
            ("scaling.yarn_beta_fast", Field::F32(8.0)),
        ],
    );
}

#[test]
fn rope_scaling_that_is_not_supported_is_named() {
    let refused = |fields: &[(&str, Field)], words: &[&str]| {
        let dir = Scratch::new();
        let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
        change(&file, |all| {
            fields.iter().for_each(|(name, field)| set(all, &format!("llama.rope.{name}"), field.clone()));
        });
        assert_refused(&file, words);
    };
    refused(&[("scaling.attn_factor", Field::F32(1.2))], &["llama.rope.scaling.attn_factor with linear"]);
    refused(&[("dimension_sections", Field::U32(4))], &["llama.rope.dimension_sections is not supported"]);
}

#[test]
fn divisors_of_longrope_are_tensors_for_short_and_for_long_contexts() {
    let dir = Scratch::new();
    let (short, long) = ([1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 2.5], [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]);
    for original in [24, 64] {
        // Prompts have 40 tokens: more than one of these, and less than the other.
        let both = write_both(dir.folder(), "qwen2", GgmlDType::F32, |json| {
            json["original_max_position_embeddings"] = json!(original);
            json["rope_scaling"] = json!({"type": "longrope", "short_factor": short, "long_factor": long});
        });
        let (mut fields, mut tensors) = parts(&both.1);
        set(&mut fields, "qwen2.rope.scaling.original_context_length", Field::U32(original));
        let factor: f64 = 128.0 / f64::from(original);
        let amplitude = (1.0 + factor.ln() / f64::from(original).ln()).sqrt();
        set(&mut fields, "qwen2.rope.scaling.attn_factor", Field::F32(amplitude as f32));
        for (name, by) in [("short", short), ("long", long)] {
            let by = Tensor::from_vec(by.map(|by| by as f32).to_vec(), 8, &Device::Cpu).unwrap();
            tensors.insert(format!("rope_factors_{name}.weight"), by);
        }
        write(Path::new(&both.1), &fields, &tensors, GgmlDType::F32);
        assert_same(&format!("original context of {original}"), &both);
        tensors.remove("rope_factors_short.weight");
        write(Path::new(&both.1), &fields, &tensors, GgmlDType::F32);
        assert_refused(&both.1, &["qwen2.gguf", "rope_factors_short.weight", "missing"]);
        fs::remove_dir_all(dir.path("qwen2")).unwrap();
    }
}

#[test]
fn any_part_of_a_model_in_several_files_stands_for_all() {
    let dir = Scratch::new();
    let (folder, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
    let (fields, tensors) = parts(&file);
    let part = |i: u16, of: u16| dir.path(format!("m-{:05}-of-{of:05}.gguf", i + 1)).display().to_string();
    let all: Vec<(String, Tensor)> = tensors.into_iter().collect();
    for (i, tensors) in all.chunks(all.len().div_ceil(3)).enumerate() {
        let own = if i == 0 { fields.clone() } else { Vec::new() };
        let tensors = tensors.iter().cloned().collect();
        write(Path::new(&part(i as u16, 3)), &own, &tensors, GgmlDType::F32);
    }
    for i in 0..3 {
        assert_same(&format!("part {i}"), &(folder.clone(), part(i, 3)));
    }
    fs::rename(part(1, 3), dir.path("alone.gguf")).unwrap();
    assert_refused(&part(0, 3), &["cannot read", "m-00002-of-00003.gguf"]);
}

#[test]
fn weights_of_a_gguf_file_give_the_same_bits_expanded_and_streamed() {
    use GgmlDType::*;
    let dir = Scratch::new();
    for dtype in [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K] {
        let (_, file) = write_both(dir.folder(), "gemma2", dtype, |config| {
            // Rows of whole blocks.
            (config["hidden_size"], config["intermediate_size"], config["head_dim"]) =
                (256.into(), 256.into(), 64.into());
        });
        let opened = open::open(&file, LoadOptions::default()).unwrap();
        let streamed = Transformer::streamed(&opened.config, opened.checkpoint, &Placement::default()).unwrap();
        assert_eq!(distance(&logits(&load(&file).transformer), &logits(&streamed)), 0.0, "{dtype:?}");
    }
}

#[test]
fn a_file_of_llama_3_begins_prompts_as_llama_cpp_does_where_it_says_nothing() {
    for (pre, expected) in [("llama-bpe", "<s> (config)"), ("tekken", "<s> (config)"), ("qwen2", "none (config)")] {
        let dir = Scratch::new();
        let mut fields = tokenizer_fields(&tokenizer(), pre);
        fields.retain(|(name, _)| name != "tokenizer.ggml.add_bos_token");
        let file = write_with_fields(dir.folder(), 300, fields);
        assert_eq!(load(&file).info.bos.as_deref(), Some(expected), "{pre}");
    }
}

#[test]
fn a_byte_level_vocabulary_without_merges_is_refused_by_name() {
    let dir = Scratch::new();
    let mut fields = tokenizer_fields(&tokenizer(), "gpt-2");
    fields.retain(|(name, _)| name != "tokenizer.ggml.merges");
    assert_refused(&write_with_fields(dir.folder(), 300, fields), &["llama.gguf", "tokenizer.ggml.merges is missing"]);
}

#[test]
fn names_of_one_pattern_make_one_tokenizer() {
    let ids = |pre: &str| {
        let dir = Scratch::new();
        let model = load(&write_with_tokenizer(dir.folder(), pre));
        model.tokenizer().unwrap().encode("The magic number of Lisbon is 48213. They'll see.").unwrap().ids
    };
    assert_eq!(ids("deepseek-r1-qwen"), ids("qwen2"));
    assert_eq!(ids("falcon3"), ids("llama-bpe"));
    assert_eq!(ids("mpt"), ids("gpt-2"));
    assert_ne!(ids("gpt-2"), ids("smollm"), "digits stand alone");
}

#[test]
fn tokens_that_end_a_turn_end_an_answer() {
    let dir = Scratch::new();
    let mut fields = tokenizer_fields(&tokenizer(), "gpt-2");
    set(&mut fields, "tokenizer.ggml.eos_token_id", Field::U32(5));
    set(&mut fields, "tokenizer.ggml.eot_token_id", Field::U32(7));
    assert_eq!(load(&write_with_fields(dir.folder(), 300, fields)).eos_ids(), [5, 7]);
}

/// Folders of which a GGUF file was made with the Python package `gguf` (`export_gguf.py`), with the configuration of a folder.
#[test]
fn every_architecture_computes_what_the_folder_it_was_made_of_computes() {
    let mut names: Vec<String> = fs::read_dir(fixture("gguf"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 23, "{names:?}");
    for name in names {
        let dir = Scratch::new();
        fs::copy(fixture(&format!("gguf/{name}.json")), dir.path("config.json")).unwrap();
        let own = fixture(&format!("gguf/{name}.safetensors"));
        let weights = if own.exists() { own } else { fixture(&format!("transformers/{name}/model.safetensors")) };
        fs::copy(weights, dir.path("model.safetensors")).unwrap();
        let (folder, file) = (dir.folder().display().to_string(), fixture(&format!("gguf/{name}.gguf")));
        let vocab = open::open(&folder, LoadOptions::default()).unwrap().config.vocab as u32;
        let ids: Vec<u32> = (0..40).map(|i| (i * 97 + 5) % vocab).collect();
        let of = |model: &str| {
            let model = open::load(model, LoadOptions::default()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let mut stream = engine::attention::Stream::new(&[]);
            let hidden = model.transformer.hidden(std::slice::from_ref(&ids), &mut stream).unwrap();
            model.transformer.logits(&hidden).unwrap()
        };
        let (want, got) = (of(&folder), of(&file.display().to_string()));
        let largest = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        let apart = distance(&got, &want) / f64::from(largest).max(1.0);
        assert!(apart < 2e-5, "{name}: differs by {apart:.2e}");
    }
}

#[test]
fn a_file_that_contradicts_itself_is_refused_as_by_llama_cpp() {
    let dir = Scratch::new();
    let (_, file) = write_both(dir.folder(), "llama", GgmlDType::F32, |_| ());
    let whole = fs::read(&file).unwrap();
    let replaced = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut changed = whole.clone();
        changed[at..at + from.len()].copy_from_slice(to.as_bytes());
        fs::write(&file, changed).unwrap();
    };
    replaced("blk.0.attn_k.weight", "blk.0.attn_q.weight");
    assert_refused(&file, &["llama.gguf: tensor blk.0.attn_q.weight is there twice"]);
    replaced("llama.block_count", "llama.block_caunt");
    assert_refused(&file, &["llama.block_count is missing"]);
    fs::write(&file, &whole).unwrap();
    patch(&file, "blk.1.ffn_up.weight", 20, &64u64.to_le_bytes());
    assert_refused(&file, &["llama.gguf: tensor blk.1.ffn_up.weight begins at byte 64"]);
    fs::write(&file, &whole).unwrap();
    for alignment in [0, 3, 33, u32::MAX] {
        change(&file, |fields| set(fields, "general.alignment", Field::U32(alignment)));
        assert_refused(&file, &["llama.gguf: general.alignment is no power of two"]);
        fs::write(&file, &whole).unwrap();
    }
    let (mut fields, tensors) = parts(&file);
    fields.push(fields[0].clone());
    write(Path::new(&file), &fields, &tensors, GgmlDType::F32);
    assert_refused(&file, &["llama.gguf: ", "is there twice"]);
}

#[test]
fn a_file_needs_no_extension() {
    let dir = Scratch::new();
    for (name, other) in [("qwen3_moe", "sha256-0123"), ("granite", "Model.GGUF")] {
        fs::copy(fixture(&format!("gguf/{name}.gguf")), dir.path(other)).unwrap();
        assert!(inspect(dir.folder(), other).status.success(), "{other}");
    }
}

#[test]
fn tensors_may_have_further_dimensions_of_one() {
    let dir = Scratch::new();
    let file = dir.path("m.gguf").display().to_string();
    let (fields, tensors) = parts(&fixture("gguf/qwen2_moe.gguf").display().to_string());
    let logits = || {
        let model = load(&file).transformer;
        model.logits(&model.hidden(&[vec![5, 6, 7, 8]], &mut Stream::new(&[])).unwrap()).unwrap()
    };
    write(Path::new(&file), &fields, &tensors, GgmlDType::F32);
    let want = logits();
    let wider = tensors.into_iter().map(|(name, tensor)| {
        let is_wider = name.contains("_exps") || name.contains("token_embd") || name.contains("attn_q.");
        (name, if is_wider { tensor.unsqueeze(0).unwrap() } else { tensor })
    });
    write(Path::new(&file), &fields, &wider.collect(), GgmlDType::F32);
    assert_eq!(distance(&want, &logits()), 0.0);
}

/// Every integer of the fields, in turn, is one that is not expected: what is read then is refused or bounded.
#[test]
fn absurd_integers_are_refused_in_no_time() {
    let dir = Scratch::new();
    let path = dir.path("m.gguf").display().to_string();
    for family in ["gemma", "granite", "mixtral", "olmo3", "phi3", "qwen2_moe", "starcoder2"] {
        let (fields, tensors) = parts(&fixture(&format!("gguf/{family}.gguf")).display().to_string());
        for (i, (name, field)) in fields.iter().enumerate() {
            let is_integer =
                matches!(field, Field::U32(_) | Field::I32(_) | Field::U64(_) | Field::U8(_) | Field::U16(_));
            for absurd in [0, 1 << 31, u64::from(u32::MAX), 1 << 63, u64::MAX].into_iter().filter(|_| is_integer) {
                let mut changed = fields.clone();
                changed[i].1 = Field::U64(absurd);
                write(Path::new(&path), &changed, &tensors, GgmlDType::F32);
                let begun = Instant::now();
                if let Ok(opened) = open::open(&path, LoadOptions::default()) {
                    assert!(opened.config.pass_bytes(1) < 1 << 30, "{family}: {name} {absurd}");
                }
                assert!(begun.elapsed().as_secs() < 5, "{family}: {name} {absurd}");
            }
        }
    }
}
