//! Translation of GGUF metadata to a `config.json`.
//!
//! Architectures and defaults follow llama.cpp's `src/models/`. Three conventions differ from Hugging Face's: rows of q and k are
//! permuted where llama.cpp uses interleaved RoPE, Gemma's norm weights include the 1 that is added to them, and Gemma's attention
//! scale, which depends on the model size, is not in the file: llama.cpp's rule is repeated here.

use super::header::FieldValue;
use super::{Gguf, DIVISORS};
use crate::kernels::RopeStyle;
use crate::model::config::{Biases, ModelConfig, NormKind, NormPlace, Positions, ResidualLayout};
use crate::model::tensor_names::tensor_names;
use crate::model::MOST_LAYERS;
use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::OnceLock;

/// The tables of `architectures.toml`, where the fields are explained.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Architectures {
    information: Vec<String>,
    off_at_zero: Vec<String>,
    architecture: Vec<Architecture>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Architecture {
    name: String,
    model_type: String,
    interleaved: bool,
    partial: bool,
    layer_norm: bool,
    optional_biases: bool,
    full_every: Option<u64>,
    window: Option<u64>,
    window_required: bool,
}

impl Architectures {
    /// # Panics
    /// If the embedded file is invalid, which a test rules out.
    fn get() -> &'static Self {
        static ALL: OnceLock<Architectures> = OnceLock::new();
        ALL.get_or_init(|| toml::from_str(include_str!("architectures.toml")).expect("architectures.toml is tested"))
    }
}

impl Gguf {
    /// The `config.json` of the same model.
    ///
    /// # Errors
    /// If the architecture is not supported, or a field is missing, unknown or has an unsupported value. Names the field.
    pub fn config_json(&self) -> Result<Value> {
        self.config().with_context(|| self.origin().to_owned())
    }

    fn config(&self) -> Result<Value> {
        let described = self.described()?;
        let arch = described.name.as_str();
        let mut config = self.sizes(described)?;
        self.add_rope(&mut config, described.partial)?;
        self.add_windows(&mut config, described)?;
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

    /// The architecture of the file.
    fn described(&self) -> Result<&'static Architecture> {
        let (arch, all) = (self.architecture()?, &Architectures::get().architecture);
        match (self.text("general.type")?, arch) {
            (Some("adapter"), _) => bail!("an adapter, not a model: merge it into its base model (llama-export-lora)"),
            (Some("mmproj"), _) | (_, "clip") => {
                bail!("the image part of a multimodal model: name the file of its text part")
            }
            _ => {}
        }
        all.iter().find(|known| known.name == arch).with_context(|| {
            let known: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
            format!("general.architecture \"{arch}\" is not supported; {} are", known.join(", "))
        })
    }

    fn sizes(&self, described: &Architecture) -> Result<Value> {
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
        let eps = self.needed_number(if described.layer_norm { layer_norm } else { rms })?;
        let mut config = json!({
            "model_type": described.model_type,
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
        if described.model_type == "gpt2" {
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
    fn add_windows(&self, config: &mut Value, described: &Architecture) -> Result<()> {
        let arch = described.name.as_str();
        let field = self.named("attention.sliding_window");
        let context = config["max_position_embeddings"].as_u64().unwrap_or_default();
        let stated = self.whole(&field)?.filter(|&window| window > 0);
        let Some(full_every) = described.full_every else {
            ensure!(stated.is_none_or(|window| window >= context), "{field} is not supported");
            return Ok(());
        };
        ensure!(stated.is_some() || !described.window_required, "{field} is missing");
        let window = stated.or(described.window);
        let layers = config["num_hidden_layers"].as_u64().unwrap_or_default();
        let sliding = self.window_pattern(full_every, layers)?;
        config["sliding_window"] = json!(window);
        if full_every > 0 {
            let layer_types = sliding.iter().map(|&sliding| layer_type(sliding && window.is_some()));
            config["layer_types"] = layer_types.collect();
        } else {
            ensure!(
                window.is_none() || !sliding.contains(&false),
                "{field}_pattern: only a window in every layer is supported"
            );
        }
        match (arch, window) {
            ("llama", Some(_)) => config["model_type"] = json!("mistral"),
            // The family requires a number; no layer uses it.
            ("gemma3", None) => config["sliding_window"] = json!(1),
            ("olmo2", Some(_)) => self.make_olmo3(config)?,
            _ => {}
        }
        if arch != "gemma3" && (arch != "olmo2" || window.is_none()) {
            self.only("rope.freq_base_swa", config["rope_theta"].as_f64().unwrap_or_default())?;
        }
        Ok(())
    }

    /// OLMo 2 with windows is OLMo 3, with another rotary embedding in their layers.
    fn make_olmo3(&self, config: &mut Value) -> Result<()> {
        config["model_type"] = json!("olmo3");
        let (full, base) = (config["rope_scaling"].take(), config["rope_theta"].take());
        let mut full = if full.is_null() { json!({"rope_type": "default"}) } else { full };
        full["rope_theta"] = base.clone();
        let base = self.own_number("rope.freq_base_swa")?.map_or(base, |base| json!(base));
        let sliding = json!({"rope_type": "default", "rope_theta": base});
        config["rope_parameters"] = json!({"full_attention": full, "sliding_attention": sliding});
        config.as_object_mut().map(|config| config.remove("rope_theta"));
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
        let expert_ffn = self.same_in_all_layers("expert_feed_forward_length")?;
        match arch {
            "llama" => {
                ensure!(config["model_type"] == "llama", "experts with a sliding window are not supported");
                config["model_type"] = json!("mixtral");
                let field = self.named("expert_feed_forward_length");
                ensure!(expert_ffn.is_none_or(|expert_ffn| expert_ffn == ffn), "{field} is not supported");
            }
            "gpt-oss" | "olmoe" => config["intermediate_size"] = json!(expert_ffn.unwrap_or(ffn)),
            _ => {
                config["moe_intermediate_size"] = json!(expert_ffn.unwrap_or(ffn / used.max(1)));
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
        let Architectures { information, off_at_zero, .. } = Architectures::get();
        let asked = self.asked.borrow();
        for (name, value) in self.fields.iter().filter(|(name, _)| !asked.contains(*name)) {
            let Some(field) = name.strip_prefix(arch).and_then(|rest| rest.strip_prefix('.')) else { continue };
            let is_off = *value == FieldValue::Number(0.0) && off_at_zero.iter().any(|off| off == field);
            let known = is_off || information.iter().any(|known| known == field);
            ensure!(known, "{name} is not supported: its effect is unknown");
        }
        Ok(())
    }

    /// Number of rows of the embedding.
    fn vocabulary_size(&self) -> Result<usize> {
        let embedding = self.tensors.get("token_embd.weight").context("tensor token_embd.weight is missing")?;
        Ok(embedding.shape.iter().rev().nth(1).copied().unwrap_or_default())
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
        let described = self.described()?;
        let names = match (config.residual, config.norm_place) {
            (ResidualLayout::Parallel, _) if described.name == "falcon" => "gguf-falcon-40b",
            (_, NormPlace::Before) => "gguf",
            _ => "gguf-after",
        };
        let mut config = ModelConfig { names: tensor_names(names), ..config };
        if config.norm == NormKind::RmsPlusOne {
            config.norm = NormKind::Rms;
        }
        if described.optional_biases {
            config.bias = Biases {
                qkv: self.has("blk.0.attn_q.bias") || self.has("blk.0.attn_qkv.bias"),
                out: self.has("blk.0.attn_output.bias"),
                mlp: self.has("blk.0.ffn_up.bias"),
                head: self.has("output.bias"),
            };
        }
        if let Positions::Rotary { style, embeddings } = &mut config.positions {
            if described.interleaved {
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
