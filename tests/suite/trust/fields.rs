//! Every field of the configuration classes of `transformers` is read, refused, or known to be without effect on what a model
//! computes. `tests/fixtures/export_fields.py` lists the fields.

use crate::common::fixture;
use engine::model::ModelConfig;
use serde_json::{json, Map, Value};
use std::fs;

/// Fields that are about training, other heads, special tokens, the storage of weights and the form of outputs.
const WITHOUT_EFFECT: &[&str] = &[
    "attention_dropout",
    "attn_pdrop",
    "bos_token_id",
    "classifier_dropout",
    "dropout",
    "dtype",
    "emb_pdrop",
    "embd_pdrop",
    "embed_dropout",
    "embedding_dropout",
    "eos_token_id",
    "hidden_dropout",
    "init_device",
    "init_std",
    "initializer_range",
    "is_decoder",
    "lambda_std_dev",
    "layerdrop",
    "num_labels",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp", // sums in parts
    "problem_type",
    "reorder_and_upcast_attn", // rounds less in half precision
    "resid_dropout",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "slow_but_exact", // sums in parts
    "summary_activation",
    "summary_first_dropout",
    "summary_last_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "use_cache",
    // Read by the class alone.
    "attention_layers",
    "embedding_fraction",
    "learned_pos_emb",
    "norm_type",
    // Of the images of a multimodal model.
    "image_token_id",
    "mm_tokens_per_image",
    "text_config",
    "vision_config",
];

/// Fields of one family that its model does not read, or not in the configuration that the test changes.
const UNREAD: &[(&str, &str)] = &[
    ("cohere2", "head_dim"),
    ("exaone4", "sliding_window_pattern"), // there is layer_types
    ("deepseek_v2", "num_key_value_heads"),
    ("deepseek_v3", "num_key_value_heads"),
    ("deepseek_v3", "num_local_experts"),
    ("falcon", "head_dim"),
    ("falcon", "num_kv_heads"),
    ("gpt_oss", "hidden_act"),
    ("granitemoehybrid", "intermediate_size"),
    ("granitemoehybrid", "normalization_function"),
    ("granitemoehybrid", "num_experts_per_tok"),
    ("granitemoehybrid", "time_step_limit"),
    ("granitemoehybrid", "time_step_max"),
    ("granitemoehybrid", "time_step_min"),
    ("phi3", "original_max_position_embeddings"),
    ("qwen2", "max_window_layers"),
    ("qwen2", "sliding_window"),
    ("qwen2_moe", "max_window_layers"),
    ("qwen2_moe", "sliding_window"),
    ("qwen3", "max_window_layers"),
    ("qwen3", "sliding_window"),
    ("qwen3", "use_sliding_window"), // sliding_window is null
    ("qwen3_moe", "max_window_layers"),
    ("qwen3_moe", "sliding_window"),
    ("qwen3_moe", "decoder_sparse_step"), // the other layer is in mlp_only_layers
    ("qwen3_moe", "use_sliding_window"),  // sliding_window is null
    ("smollm3", "no_rope_layer_interval"),
    ("smollm3", "sliding_window"),
    ("smollm3", "use_sliding_window"), // there is layer_types
    ("gemma3_text", "sliding_window_pattern"),
    ("opt", "word_embed_proj_dim"),
];

struct Family {
    name: String,
    /// The configuration of a folder of this family.
    base: Map<String, Value>,
    fields: Map<String, Value>,
    aliases: Map<String, Value>,
    code: Vec<String>,
}

fn families() -> Vec<Family> {
    let read = |path: &std::path::Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let mut bases: Vec<Value> = Vec::new();
    let mut folders: Vec<_> =
        fs::read_dir(fixture("transformers")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    bases.extend(folders.iter().map(|folder| read(&folder.join("config.json"))));
    let mut families = Vec::new();
    for (name, family) in read(&fixture("fields.json")).as_object().unwrap() {
        let base = bases.iter().find(|base| base["model_type"] == name.as_str());
        let base = base.unwrap_or_else(|| panic!("no folder of {name}")).as_object().unwrap().clone();
        let of = |key: &str| family[key].as_object().unwrap().clone();
        let code = family["code"].as_array().unwrap().iter().map(|field| field.as_str().unwrap().to_owned()).collect();
        families.push(Family { name: name.clone(), base, fields: of("class"), aliases: of("aliases"), code });
    }
    assert!(families.len() > 35);
    families
}

fn read(fields: &Map<String, Value>) -> Option<ModelConfig> {
    ModelConfig::from_json(&Value::Object(fields.clone()), None).ok()
}

fn with(base: &Map<String, Value>, field: &str, value: Value) -> Map<String, Value> {
    let mut changed = base.clone();
    changed.insert(field.to_owned(), value);
    changed
}

fn without(base: &Map<String, Value>, field: &str) -> Map<String, Value> {
    let mut changed = base.clone();
    changed.remove(field);
    changed
}

fn has_effect(family: &str, field: &str) -> bool {
    !WITHOUT_EFFECT.contains(&field) && !UNREAD.contains(&(family, field)) && !field.starts_with("mamba_")
}

/// Other values than `value`, of its type.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Number(n) if n.is_u64() => vec![json!(n.as_u64().unwrap() + 1)],
        Value::Number(n) => vec![json!(2.0 * n.as_f64().unwrap() + 0.25)],
        Value::String(_) => vec![json!("another")],
        Value::Array(list) if list.is_empty() => vec![json!("another")],
        Value::Array(list) => vec![json!(list[..list.len() - 1]), json!("another")],
        Value::Object(_) => vec![json!({"rope_type": "another", "alibi": false})],
        Value::Null => vec![json!("another"), json!({"1": {"hidden_size": 8}})],
    }
}

#[test]
fn every_field_of_a_class_is_read_or_refused_or_without_effect() {
    let mut ignored = Vec::new();
    for Family { name, base, fields, code, .. } in families() {
        let unchanged = read(&base).unwrap_or_else(|| panic!("{name} cannot be read"));
        for field in fields.keys().chain(&code).filter(|field| has_effect(&name, field)) {
            let value = base.get(field).filter(|value| !value.is_null()).cloned();
            let default = fields.get(field).map_or(Value::Null, |of| of[0].clone());
            let mut changes = others(&value.unwrap_or(default));
            if field == "is_causal" {
                changes = vec![json!(false), json!(null), json!(0)];
            }
            for change in changes {
                if read(&with(&base, field, change.clone())).is_some_and(|changed| changed == unchanged) {
                    ignored.push(format!("{name}: {field} {change}"));
                }
            }
        }
    }
    assert!(ignored.is_empty(), "{ignored:#?}");
}

#[test]
fn null_is_no_default_that_is_not_null() {
    let mut wrong = Vec::new();
    for Family { name, base, fields, aliases, .. } in families() {
        for (field, of) in fields.iter().filter(|(field, _)| has_effect(&name, field)) {
            // What is false or missing means the same, and shapes have to be those of the weights.
            let of_shapes = ["intermediate_size", "ffn_dim"].contains(&field.as_str());
            let has_other = aliases.contains_key(field) || aliases.values().any(|of| of == field.as_str());
            if of_shapes || has_other || of[1] == "default" || [json!(null), json!(false), json!(0)].contains(&of[0]) {
                continue;
            }
            let null = read(&with(&base, field, Value::Null));
            if null.is_some() && null == read(&without(&base, field)) {
                wrong.push(format!("{name}: {field}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn both_spellings_of_a_field_are_read_and_must_agree() {
    for Family { name, base, aliases, .. } in families() {
        let unchanged = read(&base).unwrap();
        for (alias, field) in aliases.iter().filter(|(alias, _)| has_effect(&name, alias)) {
            let field = field.as_str().unwrap();
            let Some(value) = base.get(field).filter(|value| value.is_u64()) else { continue };
            let other = value.as_u64().unwrap() + 1;
            let both = ModelConfig::from_json(&Value::Object(with(&base, alias, json!(other))), None);
            let error = format!("{:#}", both.unwrap_err());
            assert!(error.contains(alias.as_str()) && error.contains(field), "{name}: {error}");
            let renamed = with(&without(&base, field), alias, value.clone());
            assert!(read(&renamed) == Some(unchanged.clone()), "{name}: {alias} instead of {field}");
        }
    }
}

#[test]
fn null_in_the_parameters_of_rope_is_no_default() {
    let folder = families().into_iter().find(|family| family.name == "llama").unwrap();
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32});
    let fields = yarn.as_object().unwrap();
    for field in fields.keys() {
        let null = with(&folder.base, "rope_parameters", Value::Object(with(fields, field, Value::Null)));
        let error = format!("{:#}", ModelConfig::from_json(&Value::Object(null), None).unwrap_err());
        assert!(error.contains(field.as_str()), "{field}: {error}");
    }
    for field in ["rope_theta", "is_causal"] {
        let null = with(&without(&folder.base, "rope_parameters"), field, Value::Null);
        assert!(read(&null).is_none(), "{field}");
    }
}
