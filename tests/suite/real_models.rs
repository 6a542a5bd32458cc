//! Models and vocabularies that people have, where `tests/real_models.sh` has got them: token ids and negative log-likelihoods
//! against numbers that were worked out by other means (`tests/fixtures/export_real_models.py`), and tokenizers against what
//! llama.cpp expects of its own.

use crate::common::fixture;
use crate::contribution::{assert_close_to, written_by_layer};
use candle_core::{DType, D};
use difftool::measures::mean_over_layers;
use engine::attention::Stream;
use engine::model::open::{self, LoadOptions};
use names::Region;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use text::TargetRows;

/// Nats by which a token may be off. What weights are stored in is the same; sums are in `f32` here and in `f64` there.
const TOLERANCE: f64 = 2e-4;

/// A file that is not part of the repository; nothing, and a line that says so, if it is not there.
pub(crate) fn real(file: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/real-models").join(file);
    if !path.exists() {
        eprintln!("not tested: {} is not there; tests/real_models.sh gets it", path.display());
    }
    path.exists().then_some(path)
}

/// Token ids and nats of each but the first, by the model and by its reference.
fn check(file: &str) {
    let Some(path) = real(file) else { return };
    let reference: Value = serde_json::from_slice(&fs::read(fixture("real_models.json")).unwrap()).unwrap();
    let text = reference["text"].as_str().unwrap();
    let of_model = reference["models"].as_array().unwrap().iter().find(|model| model["file"] == file).unwrap();
    let want: Vec<u32> = serde_json::from_value(of_model["ids"].clone()).unwrap();
    let nll: Vec<f64> = serde_json::from_value(of_model["nll"].clone()).unwrap();
    let model = open::load(path.to_str().unwrap(), LoadOptions::default()).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let ids: Vec<u32> = tokenizer.text_bos.id.into_iter().chain(tokenizer.encode(text).unwrap().ids).collect();
    assert_eq!(ids, want, "{file}");
    let hidden = model.transformer.hidden(std::slice::from_ref(&ids), &mut Stream::new(&[])).unwrap();
    let logits = model.transformer.logits(&hidden).unwrap().squeeze(0).unwrap().to_dtype(DType::F64).unwrap();
    let total = logits.log_sum_exp(D::Minus1).unwrap().to_vec1::<f64>().unwrap();
    let logits = logits.to_vec2::<f64>().unwrap();
    for (i, want) in nll.into_iter().enumerate() {
        let got = total[i] - logits[i][ids[i + 1] as usize];
        assert!((got - want).abs() < TOLERANCE, "{file}, token {}: {got} nats, expected {want}", i + 1);
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// What regions write through all heads, by the model and by PyTorch (`tests/fixtures/export_real_contribution.py`).
fn check_written(file: &str) {
    let Some(path) = real(file) else { return };
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap() };
    let of_file = |list: &Value| list.as_array().unwrap().iter().find(|model| model["file"] == file).unwrap().clone();
    let ids: Vec<u32> = serde_json::from_value(of_file(&read("real_models.json")["models"])["ids"].clone()).unwrap();
    let want = of_file(&read("real_contribution.json"));
    let regions: Vec<usize> = serde_json::from_value(want["regions"].clone()).unwrap();
    let regions: Vec<Region> = regions.into_iter().map(|region| Region::ALL[region]).collect();
    let rows: [usize; 2] = serde_json::from_value(want["rows"].clone()).unwrap();
    let target = TargetRows { query: None, rows: rows[0]..rows[1], regions };
    let model = open::load(path.to_str().unwrap(), LoadOptions::default()).unwrap();
    let (_, layers) = written_by_layer(&model.transformer, &ids, &target);
    for (i, layer) in layers.iter().enumerate() {
        assert_close_to(&layer.share_out, &numbers(&want["share_out_layer"][i]), 1e-4, &format!("{file}, layer {i}"));
    }
    let weights: Vec<f64> = layers.iter().map(|layer| layer.weight).collect();
    assert_close_to(&weights, &numbers(&want["layer_weight"]), 1e-4, &format!("{file}, weights"));
    let share = |region: Region| mean_over_layers(&layers, |layer| layer.share_out[region as usize]);
    assert_close_to(&Region::ALL.map(share), &numbers(&want["share_out"]), 1e-4, file);
}

#[test]
fn regions_write_through_the_heads_of_smollm2_what_pytorch_says() {
    check_written("SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
#[ignore = "a minute without optimisation"]
fn regions_write_through_the_heads_of_gemma_3_what_pytorch_says() {
    check_written("gemma-3-270m-q4_k_m.gguf");
}

#[test]
fn smollm2_cuts_and_predicts_a_text_as_the_reference_does() {
    check("SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
#[ignore = "a minute without optimisation"]
fn gemma_3_cuts_and_predicts_a_text_as_the_reference_does() {
    check("gemma-3-270m-q4_k_m.gguf");
}

/// Vocabularies of llama.cpp with a text for each and the ids that it expects.
#[test]
#[ignore = "a minute without optimisation"]
fn vocabularies_of_llama_cpp_cut_its_texts_as_it_expects() {
    if real("ggml-vocab-gpt-2.gguf").is_none() {
        return;
    }
    let folder = real("ggml-vocab-gpt-2.gguf").unwrap().parent().unwrap().to_owned();
    let mut checked = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("ggml-vocab-") || !name.ends_with(".gguf") {
            continue;
        }
        let with = |end: &str| path.with_file_name(format!("{name}{end}"));
        let vocabulary = engine::model::Gguf::open(&path).unwrap().vocabulary().unwrap().unwrap();
        if let Some(why) = vocabulary.unsupported() {
            assert!(why.contains(&vocabulary.model), "{name}: {why}");
            continue;
        }
        let tokenizer = match vocabulary.tokenizer(&path, &Default::default()) {
            Ok(tokenizer) => tokenizer,
            // Its ordinary tokens of score 0 overlap, which a fixed order of merges cannot express.
            Err(error) if name == "ggml-vocab-baichuan.gguf" => {
                assert!(format!("{error:#}").contains("overlap and have the same score"), "{error:#}");
                continue;
            }
            Err(error) => panic!("{name}: {error:#}"),
        };
        if !with(".inp").exists() {
            continue;
        }
        let (texts, ids) = (fs::read_to_string(with(".inp")).unwrap(), fs::read_to_string(with(".out")).unwrap());
        let texts = texts.strip_suffix("\n__ggml_vocab_test__\n").unwrap_or(&texts).split("\n__ggml_vocab_test__\n");
        let mut different = Vec::new();
        for (text, want) in texts.zip(ids.lines()) {
            let want: Vec<u32> = want.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let got = tokenizer.encode(text).unwrap().ids;
            if got != want {
                different.push(format!("{text:?}: {got:?}, expected {want:?}"));
            }
        }
        assert!(different.is_empty(), "{name}: {}", different.join("\n"));
        checked.push(name);
    }
    assert!(checked.len() >= 10, "{checked:?}");
}
