//! Single attention layers of every differential layout against their original implementations (see
//! tests/fixtures/README.md).

use crate::common::{assert_close, distance, fixture, preset};
use crate::dense::Dense;
use candle_core::{Device, Tensor};
use engine::attention::{Attend, Fused, HeadNorm, LambdaInit, Stream, Variant};
use engine::kernels::{RopeStyle, RopeTable};
use engine::model::{
    Attention, Checkpoint, DecoderSizes, ModelConfig, Positions, RotaryPositions, Transformer, Weights,
};
use std::collections::HashMap;
use std::sync::Arc;

const TOLERANCE: f64 = 1e-5;

/// One attention module of Microsoft's code: configuration, layer index (depth), tensors.
fn microsoft(name: &str) -> (ModelConfig, usize, HashMap<String, Tensor>) {
    let path = fixture(&format!("microsoft/{name}.safetensors"));
    let bytes = std::fs::read(&path).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let number = |key: &str| metadata.get(key).map(|n| n.parse::<usize>().unwrap());
    let v2 = name.starts_with("v2");
    let kv_heads = number("num_kv_heads").unwrap();
    let width = number(if v2 { "d_model" } else { "embed_dim" }).unwrap();
    let layer = number("depth").unwrap_or(0);
    let sizes = DecoderSizes {
        vocab: 1,
        width,
        layers: layer + 3,
        ffn: 1,
        heads: number("num_heads").unwrap(),
        kv_heads: if v2 { kv_heads } else { 2 * kv_heads }, // V1 files count pairs
        head_dim: number("head_dim").unwrap(),
        max_ctx_tok: 64,
    };
    let variant = match name {
        _ if v2 => "diff-v2",
        _ if name.contains("naive") => "diff-microsoft-naive",
        _ => "diff-microsoft",
    };
    let config = ModelConfig::llama(preset(variant), sizes, 10_000.0, RopeStyle::Interleaved);
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    let rename = |name: String| if name == "out_proj.weight" { "o_proj.weight".into() } else { name };
    (config, layer, tensors.into_iter().map(|(n, t)| (rename(n), t)).collect())
}

fn attention_output(
    config: &ModelConfig,
    layer: usize,
    tensors: &HashMap<String, Tensor>,
    attend: &mut dyn Attend,
) -> Tensor {
    let mut weights = Weights::new(tensors.iter().map(|(n, t)| (format!("a.{n}"), t.clone())), "fixture");
    let attention = Attention::load(config, layer, "a", &mut weights).unwrap();
    let mut left = weights.remaining();
    left.sort_unstable();
    let given = ["a.cos", "a.effective", "a.sin", "a.x", "a.y"];
    assert!(left.iter().all(|name| given.contains(name)), "every weight is used: {left:?}");
    let Positions::Rotary { embeddings, .. } = &config.positions else { panic!("rotary") };
    let tables = [Arc::new(RopeTable::new(config.max_ctx_tok, &embeddings[0].frequencies(config.max_ctx_tok), 1.0))];
    attention.forward(tensors["x"].clone(), layer, &RotaryPositions { tables: &tables, start: 0 }, attend).unwrap()
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
        let Positions::Rotary { embeddings, .. } = config.positions.clone() else { panic!("rotary") };
        let positions = Positions::Rotary { style: RopeStyle::Half, embeddings };
        differs("rotary style", &ModelConfig { positions, ..config.clone() }, layer, &tensors);
        if name.starts_with("v1") {
            let halves = Variant { norm: HeadNorm::RmsGain, ..preset("diff") };
            differs("pairing", &ModelConfig { variant: halves, ..config.clone() }, layer, &tensors);
            differs("lambda_init of another layer", &config, layer + 2, &tensors);
        }
    }
    let (config, layer, tensors) = microsoft("v1_naive_gqa");
    let flash = ModelConfig { variant: preset("diff-microsoft"), ..config };
    differs("flash keys under grouped heads", &flash, layer, &tensors);
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

/// One attention module of the scalar-lambda layout, from its formula in float64.
fn scalar(name: &str) -> (ModelConfig, HashMap<String, Tensor>) {
    let bytes = std::fs::read(fixture(&format!("scalar/{name}.safetensors"))).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let number = |key: &str| metadata[key].parse::<usize>().unwrap();
    let sizes = DecoderSizes {
        vocab: 1,
        width: number("width"),
        layers: 1,
        ffn: 1,
        heads: number("heads"),
        kv_heads: number("kv_heads"),
        head_dim: number("head_dim"),
        max_ctx_tok: 64,
    };
    let mut config = ModelConfig::llama(preset("diff-scalar"), sizes, 10_000.0, RopeStyle::Half);
    config.layers[0].rotary = None;
    (config, candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap())
}

#[test]
fn scalar_lambda_modules_agree_with_their_formula() {
    for name in ["mha", "gqa"] {
        let (config, tensors) = scalar(name);
        let mut dense = Dense::default();
        assert_close(name, &attention_output(&config, 0, &tensors, &mut dense), &tensors["y"], TOLERANCE);
        let fused = attention_output(&config, 0, &tensors, &mut Fused);
        assert_close(&format!("{name}, fused"), &fused, &tensors["y"], TOLERANCE);
        let first = |x: &Tensor| x.narrow(0, 0, 1).unwrap();
        let one: HashMap<String, Tensor> =
            tensors.iter().map(|(n, t)| (n.clone(), if n == "x" { first(t) } else { t.clone() })).collect();
        let streamed = attention_output(&config, 0, &one, &mut Stream::new(&[]));
        assert_close(&format!("{name}, streamed"), &streamed, &first(&tensors["y"]), TOLERANCE);
        let t = tensors["x"].dim(1).unwrap();
        for (b, heads) in dense.kept[0].iter().enumerate() {
            for (h, head) in heads.iter().enumerate() {
                let got = Tensor::from_slice(&head.effective, (t, t), &Device::Cpu).unwrap();
                let want = tensors["effective"].get(b).unwrap().get(h).unwrap();
                assert_close(&format!("{name}: effective map of head {h}"), &got, &want, TOLERANCE);
            }
        }
    }
}

/// Folders as diff-mlx saves them: the configuration does not say which variant it is, the tensors do.
#[test]
fn folders_of_diff_mlx_are_read_as_they_are() {
    for (variant, layout) in [
        ("diff", "DIFF V1, pairs (2i, 2i+1), interleaved RoPE, head norm with gain"),
        ("vanilla", "standard, interleaved RoPE"),
    ] {
        let dir = fixture(&format!("diff_mlx/{variant}"));
        let model = engine::model::open::load(dir.to_str().unwrap(), Default::default()).unwrap();
        assert_eq!(model.info.layout, layout);
        let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
        let ids = expected["input_ids"].to_dtype(candle_core::DType::U32).unwrap().to_vec2::<u32>().unwrap();
        let hidden = model.transformer.hidden(&ids, &mut Stream::new(&[])).unwrap();
        let logits = model.transformer.logits(&hidden).unwrap();
        assert_close(variant, &logits, &expected["logits"], 8.0 * TOLERANCE);
    }
}

#[test]
fn a_folder_of_motif_computes_its_formulas() {
    let dir = fixture("motif");
    let model = engine::model::open::load(dir.to_str().unwrap(), Default::default()).unwrap();
    assert_eq!(model.info.layout, "DIFF V1, pairs (2i, 2i+1), half-rotation RoPE, head norm with gain");
    let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
    let ids = expected["input_ids"].to_dtype(candle_core::DType::U32).unwrap().to_vec2::<u32>().unwrap();
    let logits = |config: &ModelConfig| {
        let weights = Checkpoint::open(&dir).unwrap().load(config).unwrap();
        let model = Transformer::load(config, weights).unwrap();
        model.logits(&model.hidden(&ids, &mut Stream::new(&[])).unwrap()).unwrap()
    };
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    let largest = expected["logits"].abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
    assert_close("motif", &logits(&config), &expected["logits"], TOLERANCE * f64::from(largest).max(1.0));
    // lambda_init as everywhere else is another model.
    let mut other = config.clone();
    other.variant.lambda_init = LambdaInit::Depth;
    assert!(distance(&logits(&other), &expected["logits"]) > 1e-3);
}

#[test]
fn what_motif_3_adds_is_refused_by_name() {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture("motif/config.json")).unwrap()).unwrap();
    for (field, value) in [
        ("num_noise_heads", serde_json::json!(3)),
        ("hidden_act", "silu".into()),
        ("k_ratio", 2.into()),
        ("diff_v2", true.into()),
        ("kv_lora_rank", 512.into()),
        ("elementwise_attn_output_gate", true.into()),
        ("use_bias", true.into()),
        ("use_sliding_window", true.into()),
    ] {
        let mut changed = json.clone();
        changed[field] = value;
        let error = format!("{:#}", ModelConfig::from_json(&changed, None).unwrap_err());
        assert!(error.contains(field), "{error}");
    }
}

/// Folders of layouts that `transformers` does not have, with their attention in words.
const LAYOUTS: [(&str, &str); 6] = [
    (
        "motif_grouped",
        "DIFF V1, 3 signal heads before their noise head, half-rotation RoPE, head norm with gain",
    ),
    (
        "axolotl",
        "differential, pairs (i, i+H), half-rotation RoPE, lambda of learned vectors and a stored lambda_init, head norm \
         with gain",
    ),
    (
        "axolotl_split",
        "DIFF V1, pairs (i, i+H), half-rotation RoPE, lambda of learned vectors and a stored lambda_init, no head norm, \
         no factor",
    ),
    (
        "axolotl_zero",
        "differential, pairs (i, i+H), half-rotation RoPE, lambda of learned vectors and a stored lambda_init, head norm \
         with gain",
    ),
    ("gated_head", "standard, half-rotation RoPE, output gate per head"),
    ("gated_channel", "standard, half-rotation RoPE, output gate"),
];

#[test]
fn folders_of_layouts_from_elsewhere_compute_their_formulas() {
    for (name, words) in LAYOUTS {
        let dir = fixture(&format!("layouts/{name}"));
        let config = ModelConfig::read(&dir.join("config.json")).unwrap();
        assert_eq!(config.layout(), words, "{name}");
        let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
        let ids = expected["input_ids"].to_dtype(candle_core::DType::U32).unwrap().to_vec2::<u32>().unwrap();
        let largest = expected["logits"].abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        let tolerance = TOLERANCE * f64::from(largest).max(1.0);
        let logits = |config: &ModelConfig, attend: &mut dyn Attend| {
            let weights = Checkpoint::open(&dir).unwrap().load(config).unwrap();
            let model = Transformer::load(config, weights).unwrap();
            model.logits(&model.hidden(&ids, attend).unwrap()).unwrap()
        };
        let close =
            |how: &str, got: &Tensor| assert_close(&format!("{name}, {how}"), got, &expected["logits"], tolerance);
        close("dense", &logits(&config, &mut Dense::default()));
        close("streamed", &logits(&config, &mut Stream::new(&[])));
        // The norm of each head has an epsilon of its own, and a gate is not left out.
        let other = ModelConfig { head_norm_eps: Some(1e-2), ..config.clone() };
        let differs = distance(&logits(&other, &mut Stream::new(&[])), &expected["logits"]) > 1e-3;
        assert_eq!(differs, matches!(config.variant.norm, HeadNorm::RmsGain), "{name}");
    }
}

#[test]
fn contradictions_of_layouts_from_elsewhere_are_refused_by_name() {
    for (name, field, value) in [
        ("gated_head", "elementwise_attn_output_gate", serde_json::json!(true)),
        ("gated_head", "qkv_bias", true.into()),
        ("axolotl", "head_dim", 8.into()),
    ] {
        let path = fixture(&format!("layouts/{name}/config.json"));
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        json[field] = value;
        let error = format!("{:#}", ModelConfig::from_json(&json, None).unwrap_err());
        assert!(error.contains(field), "{error}");
    }
}
