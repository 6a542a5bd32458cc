use super::*;
use crate::attention::Variant;
use crate::kernels::RopeStyle;
use crate::model::rotary::RopeScaling;
use crate::model::DecoderSizes;
use serde_json::json;

const SIZES: DecoderSizes =
    DecoderSizes { vocab: 50, width: 32, layers: 2, ffn: 48, heads: 2, kv_heads: 2, head_dim: 8, max_ctx_tok: 64 };

fn tiny(variant: Variant, style: RopeStyle) -> ModelConfig {
    ModelConfig::llama(variant, SIZES, 10_000.0, style)
}

fn read(json: &Value) -> Result<ModelConfig> {
    ModelConfig::from_json(json, None)
}

fn preset(name: &str) -> Variant {
    Variant::preset(name).unwrap()
}

#[test]
fn a_saved_configuration_reads_back_unchanged_with_its_model_type() {
    for (name, &variant) in Variant::presets() {
        for style in [RopeStyle::Half, RopeStyle::Interleaved] {
            let sizes = DecoderSizes { heads: 6, kv_heads: 6, ..SIZES };
            let config = ModelConfig::llama(variant, sizes, 10_000.0, style);
            let json = config.to_json();
            let got = read(&json).unwrap();
            // The configuration does not state the initialisation.
            assert!(got.variant.computes_the_same_as(&variant), "{name}");
            assert_eq!(ModelConfig { variant, ..got }, config, "{name}");
            let model_type = match (name.as_str(), style) {
                ("transformer", RopeStyle::Half) => "llama",
                ("diff" | "diff-zero-lambda", RopeStyle::Half) => "diffllama",
                _ => "difftool",
            };
            assert_eq!(json["model_type"], model_type, "{name}");
            let normed = config.with_qk_norm();
            let got = read(&normed.to_json()).unwrap();
            assert_eq!(ModelConfig { variant, ..got }, normed, "{name}");
            assert_eq!(normed.model_type, "difftool", "{name}");
        }
    }
}

#[test]
fn a_configuration_of_our_own_states_every_choice() {
    let own = tiny(preset("diff-v2"), RopeStyle::Half).to_json();
    for choice in own["attention"].as_object().unwrap().keys() {
        assert_edited_is_refused(&own, |json| _ = json["attention"].as_object_mut().unwrap().remove(choice), choice);
    }
    assert_edited_is_refused(&own, |json| json["attention"]["maps"] = json!(3), "maps is 3");
    assert_edited_is_refused(&own, |json| json["attention"]["maps"] = json!(0), "maps is 0");
    assert_edited_is_refused(&own, |json| json["attention"]["lamda"] = json!(1), "lamda");
    assert_edited_is_refused(&own, |json| json["attention"]["lambda"] = json!("fourier"), "fourier");
    assert_edited_is_refused(&own, |json| json["attention"] = json!("diff-v2"), "attention");
    assert_edited_is_refused(&own, |json| _ = json.as_object_mut().unwrap().remove("rope_style"), "rope_style");
}

#[track_caller]
fn assert_edited_is_refused(json: &Value, edit: impl FnOnce(&mut Value), named: &str) {
    let mut json = json.clone();
    edit(&mut json);
    let message = format!("{:#}", read(&json).unwrap_err());
    assert!(message.contains(named), "{message}");
}

#[track_caller]
fn assert_refused(edit: impl FnOnce(&mut Value), named: &str) {
    assert_edited_is_refused(&tiny(preset("transformer"), RopeStyle::Half).to_json(), edit, named);
}

#[test]
fn unsupported_values_are_errors_that_name_the_field() {
    assert_refused(|json| json["hidden_act"] = json!("quick_gelu"), "hidden_act");
    assert_refused(|json| json["rope_scaling"] = json!({"rope_type": "proportional"}), "proportional");
    assert_refused(|json| json["rope_scaling"] = json!({"rope_type": "linear"}), "factor");
    assert_refused(|json| json["model_type"] = json!("mamba"), "mamba");
    assert_refused(|json| json["quantization_config"] = json!({"bits": 4}), "quantization_config");
    assert_refused(|json| json["rms_norm_eps"] = json!(-1), "rms_norm_eps");
    assert_refused(|json| json["rope_theta"] = json!(0), "rope_theta");
    for (model_type, field, value) in [
        ("gemma3_text", "rope_parameters", json!({"rope_type": "linear", "factor": 8.0})),
        ("gemma3_text", "rope_scaling", json!("linear")),
        ("gemma3_text", "sliding_window_pattern", json!(0)),
        ("smollm3", "no_rope_layers", json!([1, 2])),
    ] {
        assert_refused(|json| (json["model_type"], json[field]) = (json!(model_type), value), field);
    }
}

#[test]
fn absurd_numbers_are_refused_before_they_overflow_or_take_memory() {
    let huge = json!(u64::MAX);
    for field in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"] {
        assert_refused(|json| json[field] = huge.clone(), field);
        assert_refused(|json| json[field] = json!(0), field);
        assert_refused(|json| json[field] = json!("many"), field);
    }
    assert_refused(|json| json["max_position_embeddings"] = huge.clone(), "max_position_embeddings");
    assert_refused(|json| json["num_key_value_heads"] = json!(3), "num_key_value_heads");
    assert_refused(|json| json["head_dim"] = json!(7), "head_dim");
}

#[test]
fn a_layout_overrides_what_the_file_says() {
    let config = tiny(preset("diff"), RopeStyle::Half).to_json();
    for (layout, words) in [
        (HeadLayout::Diffllama, "DIFF V1, pairs (i, i+H), half-rotation RoPE, head norm without gain"),
        (HeadLayout::MicrosoftV1, "DIFF V1, pairs (2i, 2i+1), interleaved RoPE, head norm with gain"),
        (HeadLayout::Standard, "standard, half-rotation RoPE"),
    ] {
        assert_eq!(ModelConfig::from_json(&config, Some(layout)).unwrap().layout(), words);
    }
    let gpt2 = json!({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8, "vocab_size": 9});
    assert!(ModelConfig::from_json(&gpt2, Some(HeadLayout::MicrosoftV2)).unwrap_err().to_string().contains("--layout"));
}

#[test]
fn the_logit_tap_describes_changed_logits() {
    let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
    for (model_type, tap) in [
        ("llama", None),
        ("qwen3", Some("queries and keys normed per head")),
        ("gemma2", Some("after the soft cap at 50")),
    ] {
        json["model_type"] = json!(model_type);
        assert_eq!(read(&json).unwrap().logit_tap().as_deref(), tap);
    }
}

#[track_caller]
fn assert_family_refuses(model_type: &str, fields: Value, named: &str) {
    let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
    json["model_type"] = json!(model_type);
    (json["num_experts"], json["num_experts_per_tok"]) = (json!(4), json!(2));
    json["moe_intermediate_size"] = json!(16);
    json.as_object_mut().unwrap().remove("head_dim");
    json.as_object_mut().unwrap().remove("rope_theta");
    assert_edited_is_refused(&json, |json| extend(json, &fields), named);
}

#[test]
fn unsupported_values_of_families_are_errors_that_name_the_field() {
    assert_family_refuses("mixtral", json!({"num_local_experts": 5}), "num_local_experts is 5, but num_experts");
    assert_family_refuses("mixtral", json!({"num_experts_per_tok": 5}), "num_experts_per_tok");
    assert_family_refuses("mixtral", json!({"num_experts": null}), "num_experts is missing");
    assert_family_refuses("qwen3_moe", json!({"mlp_only_layers": ["first"]}), "mlp_only_layers");
    assert_family_refuses("qwen3_moe", json!({"norm_topk_prob": 1}), "norm_topk_prob");
    let windows = json!({"layer_types": ["sliding_attention", "full_attention"]});
    assert_family_refuses("qwen2_moe", windows, "use_sliding_window");
    assert_family_refuses("olmoe", json!({"clip_qkv": 8.0}), "clip_qkv");
    assert_family_refuses("olmo3", json!({"rope_theta": 10_000.0}), "rope_theta");
    assert_family_refuses("olmo3", json!({"rope_parameters": {"rope_type": "default"}}), "full_attention");
    assert_family_refuses("cohere2", json!({"head_dim": 8}), "head_dim is 8");
    assert_family_refuses("cohere2", json!({"sliding_window": null}), "sliding_window");
    assert_family_refuses("granite", json!({"residual_multiplier": 0}), "residual_multiplier");
    assert_family_refuses("gpt_oss", json!({}), "rope_parameters is missing");
    assert_family_refuses("gpt_oss", json!({"rope_parameters": null}), "rope_parameters is missing");
    assert_family_refuses("olmo3", json!({"sliding_window": null}), "sliding_window is null");
    assert_family_refuses("gpt_oss", json!({"quantization_config": {"quant_method": "mxfp4"}}), "MXFP4");
}

#[track_caller]
fn assert_deepseek_refuses(version: usize, fields: Value, named: &str) {
    let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
    let usual = json!({
        "model_type": format!("deepseek_v{version}"), "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4, "v_head_dim": 8, "head_dim": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 16, "n_group": 4, "topk_group": 2,
    });
    extend(&mut json, &usual);
    assert_edited_is_refused(&json, |json| extend(json, &fields), named);
}

fn extend(json: &mut Value, fields: &Value) {
    json.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
}

#[test]
fn what_deepseek_could_be_and_is_not_is_named() {
    for (version, fields, named) in [
        (2, json!({"scoring_func": "sigmoid"}), "scoring_func"),
        (3, json!({"scoring_func": "softmax"}), "scoring_func"),
        (2, json!({"topk_method": "noaux_tc"}), "topk_method"),
        (3, json!({"topk_method": "greedy"}), "topk_method"),
        (2, json!({"norm_topk_prob": true}), "norm_topk_prob"),
        (2, json!({"mlp_bias": true}), "mlp_bias"),
        (3, json!({"moe_layer_freq": 2}), "moe_layer_freq"),
        (3, json!({"num_key_value_heads": 1}), "num_key_value_heads"),
        (3, json!({"v_head_dim": 11}), "v_head_dim is 11"),
        (3, json!({"head_dim": 6}), "head_dim"),
        (3, json!({"n_group": 3, "topk_group": 1}), "n_group 3"),
        (3, json!({"topk_group": 5}), "topk_group is 5"),
        (3, json!({"n_group": 8}), "n_group is 8"),
        (
            2,
            json!({"topk_method": "group_limited_greedy", "topk_group": 1, "num_experts_per_tok": 3}),
            "have 2 experts",
        ),
        (3, json!({"kv_lora_rank": null}), "kv_lora_rank is missing"),
        (2, json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}}), "mscale_all_dim"),
        (3, json!({"quantization_config": {"quant_method": "fp8"}}), "FP8"),
    ] {
        assert_deepseek_refuses(version, fields, named);
    }
}

#[test]
fn the_text_part_of_a_wrapped_model_is_described_by_its_text_config() {
    let text = json!({
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "model_type": "gemma3_text",
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    });
    let gemma = json!({"model_type": "gemma3", "text_config": text});
    let config = read(&gemma).unwrap();
    assert!(config.wrapped && config.tied);
    assert_eq!((config.model_type.as_str(), config.vocab, config.kv_heads), ("gemma3", 262_208, 4));
    for (wrapped, named) in [
        (json!({"model_type": "mistral3", "text_config": text}), "text_config: model_type \"gemma3_text\""),
        (
            json!({"model_type": "mistral3", "text_config": {"hidden_size": 64}}),
            "text_config: num_attention_heads is missing",
        ),
        (json!({"model_type": "gemma3"}), "text_config is missing"),
    ] {
        assert_edited_is_refused(&wrapped, |_| (), named);
    }
    let cap = "final_logit_softcapping";
    assert_edited_is_refused(&gemma, |json| json["text_config"][cap] = json!(30.0), &format!("text_config: {cap}"));
    let fp8 = json!({"quant_method": "fp8"});
    assert_edited_is_refused(&gemma, |json| json["quantization_config"] = fp8, "FP8");
}

#[test]
fn a_configuration_of_diff_mlx_is_known_by_its_fields() {
    let model = json!({
        "dim": 32, "n_layers": 2, "n_heads_vanilla": 4, "qk_head_dim": 8, "vocab_size": 61, "mlp_intermediate": 40,
        "block_size": 64, "rope_base": 500_000.0,
    });
    let json = json!({"model": model, "train": {}});
    let config = read(&json).unwrap();
    assert_eq!((config.heads, config.kv_heads, config.variant), (2, 4, preset("diff-microsoft")));
    assert_eq!(config.layout(), "DIFF V1, pairs (2i, 2i+1), interleaved RoPE, head norm with gain");
    for (field, value) in [("qk_head_dim", json!(16)), ("rms_eps", json!(1e-6)), ("tie_embeddings", json!(false))] {
        assert_edited_is_refused(&json, |json| json["model"][field] = value, field);
    }
}

#[test]
fn a_ramp_is_truncated_unless_the_file_has_false_or_null() {
    let cases = [(None, true), (Some(json!(true)), true), (Some(json!(false)), false), (Some(Value::Null), false)];
    for (stated, truncates) in cases {
        let mut json = tiny(preset("transformer"), RopeStyle::Half).to_json();
        json["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0});
        if let Some(stated) = stated {
            json["rope_scaling"]["truncate"] = stated;
        }
        let Positions::Rotary { embeddings, .. } = read(&json).unwrap().positions else { panic!("rotary") };
        let RopeScaling::Yarn { truncate, .. } = embeddings[0].scaling else { panic!("YaRN") };
        assert_eq!(truncate, truncates);
    }
}

#[test]
fn the_file_of_families_can_be_read() {
    for family in families() {
        tensor_names(&family.names);
    }
}
