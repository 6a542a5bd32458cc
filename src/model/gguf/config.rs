//! Translation of GGUF metadata to a `config.json`.
//!
//! Architectures and defaults follow llama.cpp's `src/models/`. Three conventions differ from Hugging Face's: rows of q and k are
//! permuted where llama.cpp uses interleaved RoPE, Gemma's norm weights include the 1 that is added to them, and Gemma's attention
//! scale, which depends on the model size, is not in the file: llama.cpp's rule is repeated here.

use super::header::FieldValue;
use super::{Gguf, DIVISORS};
use crate::kernels::RopeStyle;
use crate::model::config::{Biases, ModelConfig, NormKind, NormPlace, Positions, ResidualLayout};
use crate::model::families::tensor_names;
use crate::model::MOST_LAYERS;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

/// Supported architectures, and the `model_type` of each in a `config.json`.
const ARCHITECTURES: [(&str, &str); 22] = [
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen2moe", "qwen2_moe"),
    ("qwen3", "qwen3"),
    ("qwen3moe", "qwen3_moe"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi2", "phi"),
    ("phi3", "phi3"),
    ("olmo2", "olmo2"),
    ("olmoe", "olmoe"),
    ("smollm3", "smollm3"),
    ("granite", "granite"),
    ("gpt2", "gpt2"),
    ("gptneox", "gpt_neox"),
    ("stablelm", "stablelm"),
    ("starcoder2", "starcoder2"),
    ("command-r", "cohere"),
    ("cohere2", "cohere2"),
    ("falcon", "falcon"),
    ("gpt-oss", "gpt_oss"),
];

/// Architectures whose RoPE rotates channels (2i, 2i + 1).
const INTERLEAVED: [&str; 5] = ["llama", "smollm3", "granite", "command-r", "cohere2"];

/// Architectures whose biases are optional: the tensors decide.
const OPTIONAL_BIASES: [&str; 8] =
    ["llama", "smollm3", "granite", "stablelm", "starcoder2", "command-r", "cohere2", "falcon"];

/// Fields that do not affect the computation.
const INFORMATION: [&str; 7] = [
    "vocab_size",
    "tensor_data_layout",
    "rope.scaling.finetuned",
    "pooling_type",
    "features_length",
    "context_length",
    "use_parallel_residual",
];

/// Fields that have no effect if they are 0.
const OFF_AT_ZERO: [&str; 15] = [
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sliding_window",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "expert_group_count",
    "expert_group_used_count",
    "expert_feed_forward_length",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "rope.scaling.yarn_log_multiplier",
];

impl Gguf {
    /// The `config.json` of the same model.
    ///
    /// # Errors
    /// If the architecture is not supported, or a field is missing, unknown or has an unsupported value. Names the field.
    pub fn config_json(&self) -> Result<Value> {
        self.config().with_context(|| self.origin().to_owned())
    }

    fn config(&self) -> Result<Value> {
        let arch = self.architecture()?;
        let model_type = ARCHITECTURES.into_iter().find(|(known, _)| *known == arch).map(|(_, model_type)| model_type);
        let Some(model_type) = model_type else {
            let known: Vec<&str> = ARCHITECTURES.into_iter().map(|(known, _)| known).collect();
            bail!("general.architecture \"{arch}\" is not supported; {} are", known.join(", "))
        };
        let mut config = self.sizes(model_type)?;
        self.add_rope(&mut config)?;
        self.add_windows(&mut config)?;
        self.add_experts(&mut config)?;
        match arch {
            "gemma2" | "gemma3" => self.add_gemma(&mut config)?,
            "granite" => self.add_granite(&mut config)?,
            "cohere2" => config["logit_scale"] = json!(self.needed_number("logit_scale")?),
            "command-r" => {
                config["logit_scale"] = json!(self.needed_number("logit_scale")?);
                config["use_qk_norm"] = json!(self.has("blk.0.attn_q_norm.weight"));
            }
            "falcon" => {
                // All are groups of heads in parallel with the MLP, each with its norm or both with one.
                config["new_decoder_architecture"] = json!(true);
                config["num_kv_heads"] = config["num_key_value_heads"].clone();
                config["num_ln_in_parallel_attn"] = json!(if self.has("blk.0.attn_norm_2.weight") { 2 } else { 1 });
                config["ffn_hidden_size"] = config["intermediate_size"].clone();
            }
            "gptneox" => {
                config["use_parallel_residual"] = json!(self.needed_number("use_parallel_residual")? != 0.0);
            }
            "stablelm" => {
                // A parallel block has one norm for attention and MLP.
                let parallel = !self.has("blk.0.ffn_norm.weight");
                config["use_parallel_residual"] = json!(parallel);
                config["qk_layernorm"] = json!(self.has("blk.0.attn_q_norm.weight"));
            }
            "phi2" => config["qk_layernorm"] = json!(self.has("blk.0.attn_q_norm.weight")),
            _ => {}
        }
        self.check_all_asked(arch)?;
        Ok(config)
    }

    fn sizes(&self, model_type: &str) -> Result<Value> {
        let (width, heads) = (self.needed("embedding_length")?, self.same_in_all_layers("attention.head_count")?);
        let heads = heads.with_context(|| self.missing("attention.head_count"))?;
        ensure!(heads > 0, "{} is 0", self.named("attention.head_count"));
        let head_dim = self.own_whole("attention.key_length")?.unwrap_or(width / heads);
        self.only("attention.value_length", head_dim as f64)?;
        self.only("attention.causal", true)?;
        let layers = self.needed("block_count")?;
        ensure!(layers <= MOST_LAYERS, "{} is {layers}, expected at most {MOST_LAYERS}", self.named("block_count"));
        let ffn = self.same_in_all_layers("feed_forward_length")?;
        let context = self.needed("context_length")?;
        let kv_heads = self.same_in_all_layers("attention.head_count_kv")?.unwrap_or(heads);
        let [rms, layer_norm] = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
        [rms, layer_norm].iter().for_each(|field| _ = self.field(&self.named(field))); // some files have both
        let eps = self.needed_number(match model_type {
            "phi" | "gpt2" | "gpt_neox" | "stablelm" | "starcoder2" | "cohere" | "cohere2" | "falcon" => layer_norm,
            _ => rms,
        })?;
        let mut config = json!({
            "model_type": model_type,
            "vocab_size": self.vocabulary_size()?,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": context,
            "rms_norm_eps": eps,
            "layer_norm_eps": eps,
            "norm_epsilon": eps,
            "layer_norm_epsilon": eps,
            "intermediate_size": ffn.with_context(|| self.missing("feed_forward_length"))?,
            "tie_word_embeddings": !self.has("output.weight"),
        });
        if model_type == "gpt2" {
            let theirs = [
                ("n_embd", "hidden_size"),
                ("n_layer", "num_hidden_layers"),
                ("n_head", "num_attention_heads"),
                ("n_inner", "intermediate_size"),
                ("n_positions", "max_position_embeddings"),
            ];
            theirs.into_iter().for_each(|(theirs, ours)| config[theirs] = config[ours].clone());
        }
        Ok(config)
    }

    /// Adds the sliding window and the layers that have it.
    fn add_windows(&self, config: &mut Value) -> Result<()> {
        let arch = self.architecture()?;
        let said = self.own_whole("attention.sliding_window")?.filter(|&window| window > 0);
        // Every `period`-th layer has full attention.
        let (window, period) = match arch {
            "gemma2" => (said.or(Some(4096)), 2),
            "gemma3" => (said, 6),
            "olmo2" => (said, 4),
            "cohere2" => (Some(said.with_context(|| self.missing("attention.sliding_window"))?), 4),
            "gpt-oss" => (Some(said.with_context(|| self.missing("attention.sliding_window"))?), 2),
            "llama" | "phi3" | "starcoder2" => (said, 0),
            _ => {
                ensure!(said.is_none(), "{} is not supported", self.named("attention.sliding_window"));
                return Ok(());
            }
        };
        let layers = config["num_hidden_layers"].as_u64().unwrap_or_default();
        let sliding = self.window_pattern(period, layers)?;
        config["sliding_window"] = json!(window);
        match arch {
            "llama" | "phi3" | "starcoder2" => {
                ensure!(
                    window.is_none() || !sliding.contains(&false),
                    "{}: only a window in every layer is supported",
                    self.named("attention.sliding_window_pattern")
                );
                if window.is_some() && arch == "llama" {
                    config["model_type"] = json!("mistral");
                }
            }
            _ => {
                config["layer_types"] =
                    sliding.iter().map(|&sliding| layer_type(sliding && window.is_some())).collect();
            }
        }
        if arch == "gemma3" && window.is_none() {
            // The family requires a number; no layer uses it.
            config["sliding_window"] = json!(1);
        }
        if arch == "olmo2" && window.is_some() {
            config["model_type"] = json!("olmo3");
            let (full, base) = (config["rope_scaling"].take(), config["rope_theta"].take());
            let mut full = if full.is_null() { json!({"rope_type": "default"}) } else { full };
            full["rope_theta"] = base.clone();
            let base = self.own_number("rope.freq_base_swa")?.map_or(base, |base| json!(base));
            let sliding = json!({"rope_type": "default", "rope_theta": base});
            config["rope_parameters"] = json!({"full_attention": full, "sliding_attention": sliding});
            config.as_object_mut().map(|config| config.remove("rope_theta"));
        } else if arch != "gemma3" {
            self.only("rope.freq_base_swa", config["rope_theta"].as_f64().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Returns for each layer whether it has a window: from the list in the file, or all but every `period`-th (0: all).
    fn window_pattern(&self, period: u64, layers: u64) -> Result<Vec<bool>> {
        let name = self.named("attention.sliding_window_pattern");
        if self.is_list(&name) {
            let list: Vec<bool> = self.numbers(&name)?.into_iter().flatten().map(|&sliding| sliding != 0.0).collect();
            ensure!(list.len() as u64 == layers, "{name} has {} entries for {layers} layers", list.len());
            return Ok(list);
        }
        let period = self.whole(&name)?.unwrap_or(period);
        Ok((0..layers).map(|layer| period == 0 || layer % period < period - 1).collect())
    }

    fn add_experts(&self, config: &mut Value) -> Result<()> {
        let arch = self.architecture()?;
        if !matches!(arch, "llama" | "qwen2moe" | "qwen3moe" | "olmoe" | "gpt-oss") {
            return Ok(());
        }
        let Some(count) = self.own_whole("expert_count")?.filter(|&count| count > 0) else {
            ensure!(arch == "llama", "{} is missing", self.named("expert_count"));
            return Ok(());
        };
        let used = self.needed("expert_used_count")?;
        config["num_local_experts"] = json!(count);
        config["num_experts"] = json!(count);
        config["num_experts_per_tok"] = json!(used);
        let ffn = config["intermediate_size"].as_u64().unwrap_or_default();
        let own = self.same_in_all_layers("expert_feed_forward_length")?;
        match arch {
            "llama" => {
                ensure!(config["model_type"] == "llama", "experts with a sliding window are not supported");
                config["model_type"] = json!("mixtral");
                let field = self.named("expert_feed_forward_length");
                ensure!(own.is_none_or(|own| own == ffn), "{field} is not supported");
            }
            "gpt-oss" | "olmoe" => config["intermediate_size"] = json!(own.unwrap_or(ffn)),
            _ => {
                config["moe_intermediate_size"] = json!(own.unwrap_or(ffn / used.max(1)));
                config["norm_topk_prob"] = json!(arch == "qwen3moe");
            }
        }
        if arch == "qwen2moe" {
            let shared = self.own_whole("expert_shared_feed_forward_length")?.unwrap_or(ffn);
            config["shared_expert_intermediate_size"] = json!(shared);
        }
        // Softmax: of all logits, or (gpt-oss) of those that are chosen, which comes to the same after norming.
        let function = self.own_whole("expert_gating_func")?.unwrap_or(0);
        ensure!(
            function <= 1 || (arch == "gpt-oss" && function == 3),
            "{} {function} is not supported; only softmax is",
            self.named("expert_gating_func")
        );
        self.only("expert_weights_norm", matches!(arch, "llama" | "qwen3moe" | "gpt-oss"))?;
        let scale = self.own_number("expert_weights_scale")?.unwrap_or(0.0);
        ensure!(scale == 0.0 || scale == 1.0, "{} {scale} is not supported", self.named("expert_weights_scale"));
        Ok(())
    }

    fn add_gemma(&self, config: &mut Value) -> Result<()> {
        let gemma2 = self.architecture()? == "gemma2";
        let sizes = ["num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim"];
        let [layers, width, heads, head_dim] = sizes.map(|field| config[field].as_u64().unwrap_or_default());
        // The 27B models, by their number of layers, scale by the width over the heads.
        let largest = layers == if gemma2 { 46 } else { 62 };
        let scalar = if largest { width / heads } else { head_dim };
        config["query_pre_attn_scalar"] = json!(scalar);
        let last = self.own_number("final_logit_softcapping")?;
        if gemma2 {
            config["attn_logit_softcapping"] = json!(self.own_number("attn_logit_softcapping")?.unwrap_or(50.0));
            config["final_logit_softcapping"] = json!(last.unwrap_or(30.0));
        } else {
            config["final_logit_softcapping"] = json!(last.filter(|&cap| cap != 0.0));
            config["rope_local_base_freq"] = json!(self.own_number("rope.freq_base_swa")?.unwrap_or(10_000.0));
        }
        Ok(())
    }

    fn add_granite(&self, config: &mut Value) -> Result<()> {
        let head_dim = config["head_dim"].as_f64().unwrap_or_default();
        config["logits_scaling"] = json!(self.needed_number("logit_scale")?);
        for (field, name, default) in [
            ("residual_multiplier", "residual_scale", 1.0),
            ("embedding_multiplier", "embedding_scale", 1.0),
            ("attention_multiplier", "attention.scale", 1.0 / head_dim.sqrt()),
        ] {
            config[field] = json!(self.own_number(name)?.filter(|&factor| factor != 0.0).unwrap_or(default));
        }
        // False means no RoPE.
        self.only("rope.scaling.finetuned", true)
    }

    /// Fails on a field of the architecture that was not looked up.
    fn check_all_asked(&self, arch: &str) -> Result<()> {
        let asked = self.asked.borrow();
        for (name, value) in self.fields.iter().filter(|(name, _)| !asked.contains(*name)) {
            let Some(field) = name.strip_prefix(arch).and_then(|rest| rest.strip_prefix('.')) else { continue };
            let is_off = *value == FieldValue::Number(0.0) && OFF_AT_ZERO.contains(&field);
            let known = is_off || INFORMATION.contains(&field);
            ensure!(known, "{name} is not supported: its effect is unknown");
        }
        Ok(())
    }

    /// Number of rows of the embedding.
    fn vocabulary_size(&self) -> Result<usize> {
        let embedding = self.tensors.get("token_embd.weight").context("tensor token_embd.weight is missing")?;
        Ok(embedding.shape.first().copied().unwrap_or_default())
    }

    /// Full name of a field of this architecture.
    pub(super) fn named(&self, field: &str) -> String {
        format!("{}.{field}", self.architecture().unwrap_or_default())
    }

    fn missing(&self, field: &str) -> String {
        format!("{} is missing", self.named(field))
    }

    pub(super) fn own_whole(&self, field: &str) -> Result<Option<u64>> {
        self.whole(&self.named(field))
    }

    pub(super) fn own_number(&self, field: &str) -> Result<Option<f64>> {
        self.number(&self.named(field))
    }

    fn needed(&self, field: &str) -> Result<u64> {
        self.own_whole(field)?.with_context(|| self.missing(field))
    }

    fn needed_number(&self, field: &str) -> Result<f64> {
        self.own_number(field)?.with_context(|| self.missing(field))
    }

    /// Fails unless the field is missing or the supported number.
    fn only(&self, field: &str, supported: impl Into<f64>) -> Result<()> {
        let (number, supported) = (self.own_number(field)?, supported.into());
        let said = number.unwrap_or(supported);
        ensure!(said == supported, "{} {said} is not supported; only {supported} is", self.named(field));
        Ok(())
    }

    /// A number, or a list with the same number for every layer.
    fn same_in_all_layers(&self, field: &str) -> Result<Option<u64>> {
        let name = self.named(field);
        if !self.is_list(&name) {
            return self.whole(&name);
        }
        let list = self.numbers(&name)?.map_or(&[][..], Vec::as_slice);
        let first = list.first().with_context(|| format!("{name} is empty"))?;
        ensure!(list.iter().all(|n| n == first), "{name} differs from layer to layer, which is not supported");
        Ok(Some(*first as u64))
    }

    /// Applies the file's tensor names and conventions to the configuration that [`Gguf::config_json`] resolved to.
    ///
    /// # Errors
    /// If a tensor of rotary divisors has the wrong length.
    pub fn conventions(&self, config: ModelConfig) -> Result<ModelConfig> {
        let arch = self.architecture()?;
        let names = match (config.residual, config.norm_place) {
            (ResidualLayout::Parallel, _) if arch == "falcon" => "gguf-falcon-40b",
            (_, NormPlace::Before) => "gguf",
            _ => "gguf-after",
        };
        let mut config = ModelConfig { names: tensor_names(names), ..config };
        if config.norm == NormKind::RmsPlusOne {
            config.norm = NormKind::Rms;
        }
        if OPTIONAL_BIASES.contains(&arch) {
            config.bias = Biases {
                qkv: self.has("blk.0.attn_q.bias") || self.has("blk.0.attn_qkv.bias"),
                out: self.has("blk.0.attn_output.bias"),
                mlp: self.has("blk.0.ffn_up.bias"),
                head: self.has("output.bias"),
            };
        }
        if let Positions::Rotary { style, embeddings } = &mut config.positions {
            if INTERLEAVED.contains(&arch) {
                *style = RopeStyle::Interleaved;
            }
            if let Some(channels) = self.own_whole("rope.dimension_count")? {
                embeddings.iter_mut().for_each(|rotary| rotary.channels = channels as usize);
            }
            self.add_divisors(embeddings).with_context(|| self.origin().to_owned())?;
        } else {
            ensure!(!self.has(DIVISORS), "{}: {DIVISORS} in a model without RoPE", self.origin());
        }
        Ok(config)
    }
}

fn layer_type(slides: bool) -> &'static str {
    if slides {
        "sliding_attention"
    } else {
        "full_attention"
    }
}
