//! The built-in models against the same files in Python `transformers`: logits and token ids. The fixtures are the work
//! of tests/fixtures/export_trained.py, which also sees to it that the folders load with nothing missing or left over.

use crate::common::{assert_close, distance, fixture};
use base::hash::sha256;
use candle_core::{Device, Tensor};
use engine::attention::Stream;
use engine::model::{ModelConfig, Positions, Transformer, Weights, TENSOR_FILE};
use std::collections::HashMap;
use std::path::PathBuf;
use text::Tokenizer;

/// Absolute, in float32; logits reach about 30.
const TOLERANCE: f64 = 1e-3;

/// The built-in models that have a class in `transformers`.
const MODELS: [(&str, &str); 2] = [("transformer", "LlamaForCausalLM"), ("diff", "DiffLlamaForCausalLM")];

struct Expected {
    metadata: HashMap<String, String>,
    tensors: HashMap<String, Tensor>,
}

/// The fixture of a built-in model, which must be of the weights that are built in now.
#[track_caller]
fn expected(name: &str) -> Expected {
    let bytes = std::fs::read(fixture(&format!("trained/{name}.safetensors"))).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let weights = std::fs::read(assets(name).join(TENSOR_FILE)).unwrap();
    assert!(
        metadata["model_sha256"] == sha256(&weights),
        "crates/engine/assets/models/{name} has new weights: run tests/fixtures/export_trained.py, as its head says"
    );
    Expected { metadata, tensors: candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap() }
}

impl Expected {
    fn ids(&self, name: &str) -> Vec<u32> {
        let ids = self.tensors[name].flatten_all().unwrap().to_vec1::<i64>().unwrap();
        ids.into_iter().map(|id| u32::try_from(id).unwrap()).collect()
    }
}

fn assets(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crates/engine/assets/models").join(name)
}

fn built_in(name: &str) -> Transformer {
    let config = ModelConfig::read(&assets(name).join("config.json")).unwrap();
    Transformer::load(&config, Weights::read(&assets(name).join(TENSOR_FILE)).unwrap()).unwrap()
}

/// Logits of the last `kept` positions: (1, kept, W).
fn logits(model: &Transformer, ids: Vec<u32>, kept: usize) -> Tensor {
    let start = ids.len() - kept;
    let hidden = model.hidden(&[ids], &mut Stream::new(&[])).unwrap();
    model.logits(&hidden.narrow(1, start, kept).unwrap()).unwrap()
}

/// On a short prompt with `transformers` as it is; at the end of the context with its RoPE angles in float64 like ours,
/// because its own, in float32, move the logits there by about the tolerance (see the script).
#[test]
fn logits_agree_with_transformers() {
    for (name, _) in MODELS {
        let (expected, model) = (expected(name), built_in(name));
        for prompt in ["", "long."] {
            let (ids, want) =
                (expected.ids(&format!("{prompt}input_ids")), &expected.tensors[&format!("{prompt}logits")]);
            let label = format!("{name}: {prompt}logits of {} tokens", ids.len());
            let got = logits(&model, ids, want.dim(1).unwrap());
            println!("{label}: differ by {:.1e}", distance(&got, want));
            assert_close(&label, &got, want, TOLERANCE);
        }
    }
}

/// The RoPE base is a key of config.json that `transformers` has renamed before.
#[test]
fn another_rope_base_does_not_pass() {
    for (name, _) in MODELS {
        let expected = expected(name);
        let config = ModelConfig::read(&assets(name).join("config.json")).unwrap();
        let Positions::Rotary { style, mut embeddings } = config.positions.clone() else { panic!("rotary") };
        embeddings[0].theta *= 0.5;
        let config = ModelConfig { positions: Positions::Rotary { style, embeddings }, ..config };
        let weights = Weights::read(&assets(name).join(TENSOR_FILE)).unwrap();
        let model = Transformer::load(&config, weights).unwrap();
        let (ids, want) = (expected.ids("input_ids"), &expected.tensors["logits"]);
        assert!(distance(&logits(&model, ids, want.dim(1).unwrap()), want) > 10.0 * TOLERANCE, "{name}");
    }
}

#[test]
fn the_fixtures_say_what_they_should() {
    for (name, class) in MODELS {
        let expected = expected(name);
        assert_eq!(expected.metadata["class"], class);
        let config = ModelConfig::read(&assets(name).join("config.json")).unwrap();
        assert_eq!(expected.ids("long.input_ids").len(), config.max_ctx_tok, "{name}");
        assert!(expected.ids("input_ids").len() > 64, "{name}");
    }
}

#[test]
fn token_ids_agree_with_transformers() {
    for (name, _) in MODELS {
        let expected = expected(name);
        let texts: Vec<String> = serde_json::from_str(&expected.metadata["texts"]).unwrap();
        assert!(texts.len() > 3);
        for (i, text) in texts.iter().enumerate() {
            let ids = Tokenizer::embedded().encode(text).unwrap().ids;
            assert_eq!(ids, expected.ids(&format!("text.{i}")), "{name}: {text:?}");
        }
    }
}
