//! The configuration of a GGUF file: what all models of a family share is in `families.toml`, the rest in the metadata.
//!
//! Architectures and defaults follow llama.cpp's `src/models/`. Three conventions differ from Hugging Face's: rows of q and k of
//! Llama and its kin are permuted, which is undone when they are read; Gemma's norm weights include the 1 that is added to them;
//! and Gemma's attention scale, which depends on the model size, is not in the file: llama.cpp's rule is repeated here.

use super::header::FieldValue;
use super::Gguf;
use crate::model::config::{
    Biases, DecoderSizes, ExpertChoice, Experts, ModelConfig, NormKind, NormPlace, ResidualLayout,
};
use crate::model::families::{plausible, windows, LARGEST_SIZE, MOST_LAYERS};
use crate::model::tensor_names::tensor_names;
use anyhow::{bail, ensure, Context, Result};
use base::hash::sha256;
use names::values::MOST_TOKENS;
use serde::Deserialize;
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
pub(super) struct Architecture {
    pub(super) name: String,
    model_type: String,
    pub(super) interleaved: bool,
    pairs_of_qk: bool,
    pub(super) partial: bool,
    optional_biases: bool,
    window: Option<usize>,
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
    /// The model that the file describes, with the file's tensor names and conventions.
    ///
    /// # Errors
    /// If the architecture is not supported, or a field is missing, unknown or has an unsupported value. Names the field.
    pub fn config(&self) -> Result<ModelConfig> {
        self.described().with_context(|| self.origin().to_owned())
    }

    fn described(&self) -> Result<ModelConfig> {
        let arch = self.supported()?;
        let family = ModelConfig::of_family(self.model_type(arch)?, self.sizes()?);
        let config = self.with_windows(self.with_conventions(family, arch)?, arch)?;
        let mut config = self.with_experts(self.with_rotary(config, arch)?)?;
        match config.model_type.as_str() {
            "gemma2" | "gemma3_text" => self.set_gemma(&mut config)?,
            "granite" => self.set_granite(&mut config)?,
            "cohere" | "cohere2" => config.logit_scale = self.needed(Self::positive, "logit_scale")?,
            // All are groups of heads in parallel with the MLP, each with its norm or both with one.
            "falcon" if self.has("blk.0.attn_norm_2.weight") => {
                config.residual = ResidualLayout::Parallel;
                config.names = tensor_names("gguf-falcon-40b");
            }
            "falcon" => config.residual = ResidualLayout::OneNorm,
            "gpt_neox" if self.needed(Self::own_number, "use_parallel_residual")? != 0.0 => {
                config.residual = ResidualLayout::Parallel;
            }
            // A parallel block has one norm for attention and MLP.
            "stablelm" if !self.has("blk.0.ffn_norm.weight") => config.residual = ResidualLayout::OneNorm,
            _ => {}
        }
        self.check_all_asked(&arch.name)?;
        config.checked()
    }

    /// SHA-256 of the fields that describe the model. The files as a whole, tensors too, have another.
    ///
    /// # Errors
    /// If the file does not name its architecture.
    pub fn config_sha256(&self) -> Result<String> {
        let prefix = format!("{}.", self.architecture()?);
        let fields: Vec<_> = self.fields.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
        Ok(sha256(format!("{fields:?}").as_bytes()))
    }

    /// The architecture of the file.
    fn supported(&self) -> Result<&'static Architecture> {
        let arch = self.architecture()?;
        let all = &Architectures::get().architecture;
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

    /// The family, by the architecture or what it is with windows or experts.
    fn model_type<'a>(&self, arch: &'a Architecture) -> Result<&'a str> {
        let windowed = self.tokens("attention.sliding_window")?.is_some();
        let is_llama = arch.name == "llama";
        let has_experts = is_llama && self.own_whole("expert_count")?.is_some_and(|count| count > 0);
        ensure!(!(windowed && has_experts), "experts with a sliding window are not supported");
        Ok(match arch.name.as_str() {
            "llama" if windowed => "mistral",
            "llama" if has_experts => "mixtral",
            "olmo2" if windowed => "olmo3",
            _ => &arch.model_type,
        })
    }

    fn sizes(&self) -> Result<DecoderSizes> {
        let width = self.needed(Self::size, "embedding_length")?;
        let heads = self.needed(Self::size, "attention.head_count")?;
        let head_dim = match self.size("attention.key_length")? {
            Some(stated) => stated,
            None => plausible(&self.named("attention.key_length"), (width / heads) as u64, LARGEST_SIZE)?,
        };
        self.only("attention.value_length", head_dim as f64)?;
        self.only("attention.causal", true)?;
        let layers = self.needed(Self::own_whole, "block_count")?;
        Ok(DecoderSizes {
            vocab: self.vocabulary_size()?,
            width,
            layers: plausible(&self.named("block_count"), layers, MOST_LAYERS)?,
            ffn: self.needed(Self::size, "feed_forward_length")?,
            heads,
            kv_heads: self.size("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            max_ctx_tok: self.needed(Self::tokens, "context_length")?,
        })
    }

    /// Number of rows of the embedding.
    fn vocabulary_size(&self) -> Result<usize> {
        let name = "token_embd.weight";
        let embedding = self.tensors.get(name).with_context(|| format!("tensor {name} is missing"))?;
        let rows = embedding.shape.iter().rev().nth(1).copied().unwrap_or_default();
        plausible(&format!("number of rows of {name}"), rows as u64, MOST_TOKENS)
    }

    /// Applies the tensor names of GGUF files, what their tensors say of the model, and what their norms are.
    fn with_conventions(&self, family: ModelConfig, arch: &Architecture) -> Result<ModelConfig> {
        let mut epsilons = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
        if matches!(family.norm, NormKind::Layer | NormKind::LayerGain) {
            epsilons.reverse();
        }
        self.field(&self.named(epsilons[1])); // some files have both
        let by_tensors = Biases {
            qkv: self.has("blk.0.attn_q.bias") || self.has("blk.0.attn_qkv.bias"),
            out: self.has("blk.0.attn_output.bias"),
            mlp: self.has("blk.0.ffn_up.bias"),
            head: self.has("output.bias"),
        };
        let names = match family.norm_place {
            NormPlace::Before if arch.pairs_of_qk => "gguf-pairs",
            NormPlace::Before => "gguf",
            _ => "gguf-after",
        };
        Ok(ModelConfig {
            names: tensor_names(names),
            norm: if family.norm == NormKind::RmsPlusOne { NormKind::Rms } else { family.norm },
            norm_eps: self.needed(Self::positive, epsilons[0])?,
            qk_norm: family.qk_norm.filter(|_| self.has("blk.0.attn_q_norm.weight")),
            bias: if arch.optional_biases { by_tensors } else { family.bias },
            tied: !self.has("output.weight"),
            ..family
        })
    }

    /// Sets the sliding window of the layers that have one.
    fn with_windows(&self, config: ModelConfig, arch: &Architecture) -> Result<ModelConfig> {
        let field = self.named("attention.sliding_window");
        let stated = self.tokens("attention.sliding_window")?;
        let Some(windows) = windows(&config.model_type) else {
            ensure!(stated.is_none_or(|window| window >= config.max_ctx_tok), "{field} is not supported");
            return Ok(config);
        };
        ensure!(stated.is_some() || !arch.window_required, "{field} is missing");
        let window = stated.or(arch.window);
        let slides = self.window_pattern(windows.full_every, config.layers.len())?;
        ensure!(
            windows.full_every > 0 || window.is_none() || !slides.contains(&false),
            "{field}_pattern: only a window in every layer is supported"
        );
        Ok(config.windowed(window, |layer| slides[layer]))
    }

    /// For each layer whether it has a window: from the list in the file, or all but every `period`-th (0: all).
    fn window_pattern(&self, period: usize, layers: usize) -> Result<Vec<bool>> {
        let name = self.named("attention.sliding_window_pattern");
        if self.is_list(&name) {
            let list: Vec<bool> = self.numbers(&name)?.into_iter().flatten().map(|&slides| slides != 0.0).collect();
            ensure!(list.len() == layers, "{name} has {} entries for {layers} layers", list.len());
            return Ok(list);
        }
        let period = self.whole(&name)?.map_or(period, |period| period as usize);
        Ok((0..layers).map(|layer| period == 0 || layer % period < period - 1).collect())
    }

    /// Puts a mixture of experts in the place of the MLP of every layer, in architectures and files that have one.
    fn with_experts(&self, mut config: ModelConfig) -> Result<ModelConfig> {
        let family = config.model_type.as_str();
        let normed = match family {
            "mixtral" | "qwen3_moe" | "gpt_oss" => true,
            "qwen2_moe" | "olmoe" => false,
            _ => return Ok(config),
        };
        let count = self.needed(Self::size, "expert_count")?;
        let per_token = self.needed(Self::size, "expert_used_count")?;
        let field = self.named("expert_feed_forward_length");
        let usual = if family.starts_with("qwen") { config.ffn / per_token } else { config.ffn };
        let ffn = match self.size("expert_feed_forward_length")? {
            Some(stated) => stated,
            None => plausible(&field, usual as u64, LARGEST_SIZE)?,
        };
        ensure!(family != "mixtral" || ffn == config.ffn, "{field} is not supported");
        let mut shared = None;
        if family == "qwen2_moe" {
            shared = Some(self.size("expert_shared_feed_forward_length")?.unwrap_or(config.ffn));
        }
        self.check_expert_choice(family, normed)?;
        config.layers.iter_mut().for_each(|layer| layer.experts = true);
        config.experts = Some(Experts {
            count,
            per_token,
            ffn,
            normed,
            router_bias: family == "gpt_oss",
            shared,
            shared_gate: shared.is_some(),
            choice: ExpertChoice::SOFTMAX,
            scale: 1.0,
        });
        Ok(config)
    }

    /// Fails unless experts are chosen and weighted by the softmax of their logits.
    fn check_expert_choice(&self, family: &str, normed: bool) -> Result<()> {
        // Of all logits, or (gpt-oss) of those that are chosen, which comes to the same after norming.
        let function = self.own_whole("expert_gating_func")?.unwrap_or(0);
        ensure!(
            function <= 1 || (family == "gpt_oss" && function == 3),
            "{} {function} is not supported; only softmax is",
            self.named("expert_gating_func")
        );
        self.only("expert_weights_norm", normed)?;
        let scale = self.own_number("expert_weights_scale")?.unwrap_or(0.0);
        ensure!(scale == 0.0 || scale == 1.0, "{} {scale} is not supported", self.named("expert_weights_scale"));
        Ok(())
    }

    /// Sets scale and soft caps of logits.
    fn set_gemma(&self, config: &mut ModelConfig) -> Result<()> {
        let gemma2 = config.model_type == "gemma2";
        // The 27B models, by their number of layers, scale by the width over the heads.
        let largest = config.layers.len() == if gemma2 { 46 } else { 62 };
        let scalar = if largest { config.width / config.heads } else { config.head_dim };
        let mut softcap = None;
        if gemma2 {
            softcap = Some(self.positive("attn_logit_softcapping")?.unwrap_or(50.0) as f32);
            config.final_softcap = Some(self.positive("final_logit_softcapping")?.unwrap_or(30.0));
        } else {
            config.final_softcap = self.factor("final_logit_softcapping")?;
        }
        for layer in &mut config.layers {
            layer.rule.scale = (1.0 / (scalar as f64).sqrt()) as f32;
            layer.rule.softcap = softcap;
        }
        Ok(())
    }

    /// Sets the factors on embeddings, logits, block outputs and attention.
    fn set_granite(&self, config: &mut ModelConfig) -> Result<()> {
        config.logit_scale = 1.0 / self.needed(Self::positive, "logit_scale")?;
        config.residual_scale = self.factor("residual_scale")?.unwrap_or(1.0);
        config.embed_scale = self.factor("embedding_scale")?.unwrap_or(1.0);
        if let Some(scale) = self.factor("attention.scale")? {
            config.layers.iter_mut().for_each(|layer| layer.rule.scale = scale as f32);
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
}

/// Access to the fields of the architecture, whose names begin with its own.
impl Gguf {
    /// Full name of a field.
    pub(super) fn named(&self, field: &str) -> String {
        format!("{}.{field}", self.architecture().unwrap_or_default())
    }

    pub(super) fn own_whole(&self, field: &str) -> Result<Option<u64>> {
        self.whole(&self.named(field))
    }

    pub(super) fn own_number(&self, field: &str) -> Result<Option<f64>> {
        self.number(&self.named(field))
    }

    fn needed<T>(&self, read: fn(&Self, &str) -> Result<Option<T>>, field: &str) -> Result<T> {
        read(self, field)?.with_context(|| format!("{} is missing", self.named(field)))
    }

    /// A width or a number of things: a number, or a list with the same number for every layer.
    fn size(&self, field: &str) -> Result<Option<usize>> {
        let name = self.named(field);
        let number = if self.is_list(&name) {
            let list = self.numbers(&name)?.map_or(&[][..], Vec::as_slice);
            let first = list.first().with_context(|| format!("{name} is empty"))?;
            ensure!(list.iter().all(|n| n == first), "{name} differs from layer to layer, which is not supported");
            Some(*first as u64)
        } else {
            self.whole(&name)?
        };
        number.map(|n| plausible(&name, n, LARGEST_SIZE)).transpose()
    }

    /// A number of tokens; 0 counts as missing.
    pub(super) fn tokens(&self, field: &str) -> Result<Option<usize>> {
        let stated = self.own_whole(field)?.filter(|&n| n > 0);
        stated.map(|n| plausible(&self.named(field), n, MOST_TOKENS)).transpose()
    }

    /// A number above 0.
    pub(super) fn positive(&self, field: &str) -> Result<Option<f64>> {
        let x = self.own_number(field)?;
        let is_off = x.is_some_and(|x| x <= 0.0);
        ensure!(!is_off, "{} is {}, expected more than 0", self.named(field), x.unwrap_or_default());
        Ok(x)
    }

    /// A number above 0; 0 counts as missing.
    pub(super) fn factor(&self, field: &str) -> Result<Option<f64>> {
        match self.own_number(field)? {
            Some(0.0) => Ok(None),
            _ => self.positive(field),
        }
    }

    /// Fails unless the field is missing or the supported number.
    pub(super) fn only(&self, field: &str, supported: impl Into<f64>) -> Result<()> {
        let supported = supported.into();
        let said = self.own_number(field)?.unwrap_or(supported);
        ensure!(said == supported, "{} {said} is not supported; only {supported} is", self.named(field));
        Ok(())
    }
}
