//! Our forward pass against numbers from other people's implementations (see tests/fixtures/README.md).

mod common;

use candle_core::{DType, Device, Tensor};
use common::{distance, fixture};
use difftool::attention::{Attend, Dense, Fused, Pairing, RowProbe, Selection, Stream};
use difftool::model::{Attention, ModelConfig, Transformer, Variant, Weights};
use difftool::ops::{RopeStyle, RopeTable};
use difftool::probe::{GridProbe, GridSink, GridSpec, Pooling, Quantity};
use std::collections::HashMap;
use std::sync::Arc;

/// Of the largest magnitude of the expected tensor, where that exceeds 1: the hidden states of the tiny `diffllama`
/// folders reach 7, and one unit in the last place of an f32 there is 5e-7.
const TOLERANCE: f64 = 1e-5;

#[track_caller]
fn assert_close(label: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let largest =
        f64::from(want.abs().unwrap().max_all().unwrap().to_dtype(DType::F32).unwrap().to_scalar::<f32>().unwrap());
    common::assert_close(label, got, want, tolerance * largest.max(1.0));
}

const FOLDERS: [&str; 4] = ["llama_mha", "llama_gqa_tied", "diffllama_mha", "diffllama_gqa"];

struct Folder {
    config: ModelConfig,
    weights: Weights,
    ids: Vec<Vec<u32>>,
    expected: HashMap<String, Tensor>,
}

fn folder(name: &str) -> Folder {
    let dir = fixture(&format!("transformers/{name}"));
    let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
    let ids = expected["input_ids"].to_dtype(DType::U32).unwrap().to_vec2().unwrap();
    let weights = Weights::read(&dir.join("model.safetensors")).unwrap();
    Folder { config: ModelConfig::read(&dir.join("config.json")).unwrap(), weights, ids, expected }
}

impl Folder {
    fn logits(&self, config: &ModelConfig, attend: &mut dyn Attend) -> Tensor {
        let model = Transformer::load(config, self.weights.clone()).unwrap();
        model.logits(&model.hidden(&self.ids, attend).unwrap()).unwrap()
    }
}

#[test]
fn logits_and_hidden_states_agree_with_transformers() {
    for name in FOLDERS {
        let folder = folder(name);
        let mut dense = Dense::default();
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        let last = model.hidden(&folder.ids, &mut dense).unwrap();
        for (site, x) in dense.residuals.iter().enumerate() {
            // The last hidden state transformers returns is after the final norm.
            let x = if site == folder.config.layers { &last } else { x };
            assert_close(&format!("{name}: hidden {site}"), x, &folder.expected[&format!("hidden.{site}")], TOLERANCE);
        }
        let logits = model.logits(&last).unwrap();
        assert_close(&format!("{name}: logits, dense"), &logits, &folder.expected["logits"], TOLERANCE);
        let fused = folder.logits(&folder.config, &mut Fused);
        assert_close(&format!("{name}: logits, fused"), &fused, &folder.expected["logits"], TOLERANCE);
    }
}

#[test]
fn streaming_logits_agree_with_transformers() {
    for name in FOLDERS {
        let folder = folder(name);
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        for (i, ids) in folder.ids.iter().enumerate() {
            let hidden = model.hidden(std::slice::from_ref(ids), &mut Stream::new(&[])).unwrap();
            let want = folder.expected["logits"].narrow(0, i, 1).unwrap();
            assert_close(&format!("{name}: row {i}"), &model.logits(&hidden).unwrap(), &want, TOLERANCE);
        }
    }
}

#[test]
fn attention_maps_agree_with_transformers() {
    for name in FOLDERS {
        let folder = folder(name);
        let mut dense = Dense::default();
        folder.logits(&folder.config, &mut dense);
        let wiring = folder.config.wiring();
        for (layer, batch) in dense.kept.iter().enumerate() {
            let expected = &folder.expected[&format!("attention.{layer}")]; // B, raw heads, T, T
            let t = folder.ids[0].len();
            for (b, heads) in batch.iter().enumerate() {
                for (h, head) in heads.iter().enumerate() {
                    for (j, map) in head.maps.iter().enumerate() {
                        let want = expected.get(b).unwrap().get(wiring.query[j][h]).unwrap();
                        let got = Tensor::from_slice(map, (t, t), &Device::Cpu).unwrap();
                        assert_close(&format!("{name}: layer {layer} head {h} map {j}"), &got, &want, TOLERANCE);
                    }
                }
            }
        }
    }
}

/// The exact picture of a map, one bin per token, as `heatmap --data FILE --full` writes it.
fn picture(model: &Transformer, ids: &[u32], quantity: Quantity) -> Vec<((usize, usize), Tensor)> {
    let t = ids.len();
    let probe = GridProbe::new(GridSpec {
        heads: Selection::default(),
        quantity,
        pooling: Pooling::Max,
        queries: 0..t,
        keys: 0..t,
        rows: t,
        columns: t,
    });
    let probes: [&dyn RowProbe; 1] = [&probe];
    let mut stream = Stream::new(&probes);
    model.hidden(&[ids.to_vec()], &mut stream).unwrap();
    let grid = |s: difftool::attention::Sighting| {
        let grid = s.sink.into_any().downcast::<GridSink>().unwrap().grid();
        let values: Vec<f32> = grid.values.iter().map(|&x| if x.is_nan() { 0.0 } else { x }).collect();
        ((s.layer, s.head), Tensor::from_vec(values, (t, t), &Device::Cpu).unwrap())
    };
    stream.sightings.into_iter().map(grid).collect()
}

#[test]
fn pictured_maps_agree_with_transformers() {
    for name in FOLDERS {
        let folder = folder(name);
        let model = Transformer::load(&folder.config, folder.weights.clone()).unwrap();
        let (wiring, lambdas) = (folder.config.wiring(), model.lambdas().unwrap());
        for (b, ids) in folder.ids.iter().enumerate() {
            let raw = |layer: usize, head: usize| {
                folder.expected[&format!("attention.{layer}")].get(b).unwrap().get(head).unwrap()
            };
            for j in 0..wiring.maps() {
                for ((layer, h), got) in picture(&model, ids, Quantity::Map(j)) {
                    let want = raw(layer, wiring.query[j][h]);
                    assert_close(&format!("{name}: layer {layer} head {h} map {j}"), &got, &want, TOLERANCE);
                }
            }
            for ((layer, h), got) in picture(&model, ids, Quantity::Effective) {
                let mut want = raw(layer, wiring.query[0][h]);
                if let Some(lambda) = lambdas.get(layer) {
                    want = (want - (raw(layer, wiring.query[1][h]) * *lambda).unwrap()).unwrap();
                }
                assert_close(&format!("{name}: layer {layer} head {h} effective"), &got, &want, TOLERANCE);
            }
        }
    }
}

#[test]
fn a_wrong_layout_does_not_pass_for_the_right_one() {
    for name in ["diffllama_mha", "diffllama_gqa"] {
        let folder = folder(name);
        let wrong_by = |config: &ModelConfig| distance(&folder.logits(config, &mut Fused), &folder.expected["logits"]);
        let pairing = Variant::DiffV1 { pairing: Pairing::Adjacent, gain: false };
        assert!(wrong_by(&ModelConfig { variant: pairing, ..folder.config.clone() }) > 1e-3, "{name}: pairing");
        let rope_style = RopeStyle::Interleaved;
        assert!(wrong_by(&ModelConfig { rope_style, ..folder.config.clone() }) > 1e-3, "{name}: rotary style");
        let mut tensors: HashMap<String, Tensor> = folder.weights.iter().map(|(n, t)| (n.clone(), t.clone())).collect();
        let lambda = tensors.get_mut("model.layers.1.self_attn.lambda_q1").unwrap();
        *lambda = (&*lambda * 0.0).unwrap();
        let model = Transformer::load(&folder.config, Weights::new(tensors, "wrong lambda")).unwrap();
        let logits = model.logits(&model.hidden(&folder.ids, &mut Fused).unwrap()).unwrap();
        assert!(distance(&logits, &folder.expected["logits"]) > 1e-3, "{name}: lambda");
    }
}

/// One attention module of Microsoft's code: configuration, layer index (depth), tensors.
fn microsoft(name: &str) -> (ModelConfig, usize, HashMap<String, Tensor>) {
    let path = fixture(&format!("microsoft/{name}.safetensors"));
    let bytes = std::fs::read(&path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let number = |key: &str| metadata.get(key).map(|n| n.parse::<usize>().unwrap());
    let v2 = name.starts_with("v2");
    let pairing = if name.contains("naive") { Pairing::AdjacentNaive } else { Pairing::Adjacent };
    let kv_heads = number("num_kv_heads").unwrap();
    let width = number(if v2 { "d_model" } else { "embed_dim" }).unwrap();
    let config = ModelConfig {
        variant: if v2 { Variant::DiffV2 } else { Variant::DiffV1 { pairing, gain: true } },
        vocab: 1,
        width,
        layers: 1,
        ffn: 1,
        heads: number("num_heads").unwrap(),
        kv_heads: if v2 { kv_heads } else { 2 * kv_heads }, // V1 files count pairs
        head_dim: number("head_dim").unwrap(),
        max_ctx_tok: 64,
        rope_theta: 10_000.0,
        rope_style: RopeStyle::Interleaved,
        norm_eps: 1e-5,
        tied: true,
    };
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    let rename = |name: String| if name == "out_proj.weight" { "o_proj.weight".into() } else { name };
    (config, number("depth").unwrap_or(0), tensors.into_iter().map(|(n, t)| (rename(n), t)).collect())
}

fn attention_output(
    config: &ModelConfig,
    layer: usize,
    tensors: &HashMap<String, Tensor>,
    attend: &mut dyn Attend,
) -> Tensor {
    let mut weights = Weights::new(tensors.iter().map(|(n, t)| (format!("a.{n}"), t.clone())), "fixture");
    let attention = Attention::load(config, layer, "a", &mut weights).unwrap();
    let mut left = weights.left();
    left.sort_unstable();
    assert_eq!(left, ["a.cos", "a.sin", "a.x", "a.y"], "every weight is used");
    let rope = Arc::new(RopeTable::new(config.max_ctx_tok, config.head_dim, config.rope_theta));
    attention.forward(&tensors["x"], layer, &rope, attend).unwrap()
}

const MICROSOFT: [&str; 8] =
    ["v1_mha", "v1_gqa", "v1_mqa", "v1_naive_mha", "v1_naive_gqa", "v2_mha", "v2_gqa", "v2_wide"];

#[test]
fn attention_modules_agree_with_microsofts_files() {
    for name in MICROSOFT {
        let (config, layer, tensors) = microsoft(name);
        let fused = attention_output(&config, layer, &tensors, &mut Fused);
        assert_close(&format!("{name}, fused"), &fused, &tensors["y"], TOLERANCE);
        let dense = attention_output(&config, layer, &tensors, &mut Dense::default());
        assert_close(&format!("{name}, dense"), &dense, &tensors["y"], TOLERANCE);
    }
}

#[test]
fn a_wrong_layout_of_a_microsoft_module_is_noticed() {
    let differs = |what: &str, config: &ModelConfig, layer: usize, tensors: &HashMap<String, Tensor>| {
        let distance = distance(&attention_output(config, layer, tensors, &mut Fused), &tensors["y"]);
        assert!(distance > 1e-3, "{what} went unnoticed: {distance:.1e}");
    };
    for name in MICROSOFT {
        let (config, layer, tensors) = microsoft(name);
        differs("rotary style", &ModelConfig { rope_style: RopeStyle::Half, ..config.clone() }, layer, &tensors);
        if name.starts_with("v1") {
            let halves = Variant::DiffV1 { pairing: Pairing::Halves, gain: true };
            differs("pairing", &ModelConfig { variant: halves, ..config.clone() }, layer, &tensors);
            differs("lambda_init of another layer", &config, layer + 2, &tensors);
        }
    }
    let (config, layer, tensors) = microsoft("v1_naive_gqa");
    let flash = Variant::DiffV1 { pairing: Pairing::Adjacent, gain: true };
    differs("flash keys under grouped heads", &ModelConfig { variant: flash, ..config }, layer, &tensors);
}

#[test]
fn a_differential_row_sums_to_one_minus_lambda() {
    let (config, layer, tensors) = microsoft("v2_gqa");
    let mut dense = Dense::default();
    attention_output(&config, layer, &tensors, &mut dense);
    let t = tensors["x"].dim(1).unwrap();
    let lambda =
        candle_nn::ops::sigmoid(&tensors["x"].broadcast_matmul(&tensors["lambda_proj.weight"].t().unwrap()).unwrap());
    let lambda = lambda.unwrap().to_vec3::<f32>().unwrap(); // B,T,H
    for (b, heads) in dense.kept[0].iter().enumerate() {
        for (h, head) in heads.iter().enumerate() {
            for (query, lambda) in lambda[b].iter().enumerate() {
                let sum: f64 = head.effective[query * t..(query + 1) * t].iter().sum();
                assert!((sum - (1.0 - f64::from(lambda[h]))).abs() < 1e-6);
            }
        }
    }
}
