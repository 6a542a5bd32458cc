//! Reads the `config.json` of every supported family into a [`ModelConfig`].
//!
//! `families.toml` lists the families, with their keys, defaults and tensor names; `finish` calls the function of each for what
//! no table can say. Absent fields have the defaults of transformers 5.23. A field with an unsupported value is an error that
//! names it.

mod differential;
mod experts;
mod gemma;
mod layer_norm;
mod llama;
mod raw;
mod rope;

pub use differential::HeadLayout;
pub(super) use differential::DIFF_MLX;
pub(super) use raw::plausible;
pub use raw::{LARGEST_SIZE, MOST_LAYERS};
pub(super) use rope::yarn_amplitude;

use super::config::{
    Activation, Biases, DecoderSizes, Layer, ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout,
};
use super::rotary::{RopeScaling, Rotary};
use super::tensor_names::{tensor_names, with_bases, FAMILIES_TOML};
use crate::attention::{Alibi, LogitRule, Sink, Variant};
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use base::bail_usage;
use differential::{is_diff_mlx, HeadMaps};
use names::values::MOST_TOKENS;
use raw::Raw;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::OnceLock;

/// A table of `families.toml`, where the fields are explained.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Family {
    /// Name of the table.
    #[serde(skip)]
    model_type: String,
    also: Option<String>,
    #[serde(default)]
    text_models: Vec<String>,
    #[serde(default)]
    text_sizes: Map<String, Value>,
    keys: [String; 5],
    grouped: bool,
    ctx_tok: Option<usize>,
    head_dim: Option<usize>,
    kv_heads_required: bool,
    #[serde(default)]
    only: Map<String, Value>,
    #[serde(default)]
    absent: Vec<String>,
    positions: PositionKeys,
    offset: usize,
    windows: Option<Windows>,
    rotated: Option<f64>,
    rotated_key: String,
    theta: f64,
    theta_key: String,
    interleaved: bool,
    sink: Option<Sink>,
    #[serde(default)]
    scaled_embeddings: bool,
    bias: Biases,
    bias_keys: BiasKeys,
    activation: Activation,
    activation_key: String,
    gated: bool,
    norm: NormKind,
    norm_eps: f64,
    norm_eps_key: String,
    norm_place: NormPlace,
    residual: ResidualLayout,
    qk_norm: Option<QkNorm>,
    #[serde(default)]
    qk_norm_key: String,
    tied: bool,
    names: String,
}

/// Layers with a sliding window.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Windows {
    /// One of so many layers, the last of them, has full attention; 0 if none has.
    pub(super) full_every: usize,
    /// Key of this number, if there is one.
    #[serde(default)]
    key: String,
    /// The window of files that do not state one, in tokens.
    tokens: Option<usize>,
}

/// Keys that say whether a projection has a bias; empty where nothing does.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BiasKeys {
    qkv: String,
    out: String,
    mlp: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PositionKeys {
    Rotary,
    Learned,
    Alibi,
    Own,
}

/// The families of `families.toml`, in the order of the file.
///
/// # Panics
/// If the embedded file is invalid, which a test rules out.
fn families() -> &'static [Family] {
    static FAMILIES: OnceLock<Vec<Family>> = OnceLock::new();
    FAMILIES.get_or_init(|| parsed(FAMILIES_TOML).expect("families.toml is tested"))
}

fn parsed(text: &str) -> Result<Vec<Family>> {
    let mut families = Vec::new();
    for (model_type, table) in with_bases(&text.parse()?, "family")? {
        let family: Family = table.try_into().with_context(|| model_type.clone())?;
        families.push(Family { model_type, ..family });
    }
    Ok(families)
}

/// Applies to a model of a family what `families.toml` cannot say.
fn finish(model_type: &str, config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
    match model_type {
        "ministral3" => llama::ministral3(config, raw),
        "mixtral" => experts::mixtral(config, raw),
        "qwen2" => llama::with_qwen_windows(config, raw, llama::from_layer),
        "qwen2_moe" => experts::qwen2_moe(config, raw),
        "qwen3" => llama::qwen3(config, raw),
        "qwen3_moe" => experts::qwen3_moe(config, raw),
        "gpt2" => layer_norm::gpt2(config, raw),
        "gpt_neo" => layer_norm::gpt_neo(config, raw),
        "gptj" => layer_norm::gptj(config, raw),
        "gpt_neox" => layer_norm::gpt_neox(config, raw),
        "gpt_oss" => experts::gpt_oss(config, raw),
        "opt" => layer_norm::opt(config, raw),
        "falcon" => layer_norm::falcon(config, raw),
        "bloom" => Ok(ModelConfig { embed_norm: true, ..config }),
        "mpt" => layer_norm::mpt(config, raw),
        "gemma" => Ok(gemma::gemma(config)),
        "gemma2" => gemma::gemma2(config, raw),
        "gemma3_text" => gemma::gemma3(config, raw),
        "phi3" => llama::phi3(config),
        "olmo3" => llama::olmo3(config, raw),
        "olmoe" => experts::olmoe(config, raw),
        "smollm3" => llama::smollm3(config, raw),
        "stablelm" => layer_norm::stablelm(config, raw),
        "granite" => llama::granite(config, raw),
        "granitemoehybrid" => llama::granite_hybrid(config, raw),
        "exaone4" => llama::exaone4(config, raw),
        "cohere" => layer_norm::cohere(config, raw),
        "cohere2" => layer_norm::cohere2(config, raw),
        "deepseek_v2" => experts::deepseek_v2(config, raw),
        "deepseek_v3" => experts::deepseek_v3(config, raw),
        "llama-differential" => differential::axolotl(config, raw),
        "Motif" => differential::motif(config, raw),
        _ => Ok(config),
    }
}

/// The `model_type` and its family; `None` for diff-mlx.
fn family_of<'a>(raw: &Raw<'a>) -> Result<(&'a str, Option<&'static Family>)> {
    if is_diff_mlx(raw) {
        return Ok((DIFF_MLX, None));
    }
    let model_type = raw.text("model_type")?.with_context(|| match raw.get("architectures") {
        Some(named) => format!("model_type is missing; architectures are {named}"),
        None => "model_type is missing: this is no configuration of a model of transformers".to_owned(),
    })?;
    let family = family(model_type);
    if family.is_none() {
        let known: Vec<&str> = families().iter().map(|family| family.model_type.as_str()).collect();
        let (last, others) = known.split_last().context("no families")?;
        bail!("model_type \"{model_type}\" is not supported; {} and {last} are", others.join(", "));
    }
    Ok((model_type, family))
}

fn family(model_type: &str) -> Option<&'static Family> {
    families().iter().find(|family| family.model_type == model_type || family.also.as_deref() == Some(model_type))
}

/// The windows of a family, if its layers have any.
pub(super) fn windows(model_type: &str) -> Option<&'static Windows> {
    family(model_type)?.windows.as_ref()
}

impl Windows {
    fn read(&self, config: ModelConfig, raw: &Raw<'_>) -> Result<ModelConfig> {
        let window = raw.window(self.tokens)?;
        let every = raw.size_or(&self.key, self.full_every)?;
        let slides = raw.sliding(config.layers.len(), |layer| every == 0 || !(layer + 1).is_multiple_of(every))?;
        let all = self.full_every == 0;
        ensure!(all || window.is_some(), "sliding_window is null; this model_type needs a window");
        ensure!(
            !all || window.is_none_or(|window| window >= config.max_ctx_tok) || !slides.contains(&false),
            "layer_types has full_attention, but this model_type has the window of sliding_window in every layer"
        );
        Ok(config.windowed(window, |layer| all || slides[layer]))
    }
}

impl ModelConfig {
    /// Resolves a parsed `config.json`. `layout` overrides its differential heads.
    ///
    /// # Errors
    /// If a field is missing, contradictory or not supported. The error names the field.
    pub fn from_json(value: &Value, layout: Option<HeadLayout>) -> Result<Self> {
        let raw = Raw(value.as_object().context("expected a JSON object")?);
        let (model_type, family) = family_of(&raw)?;
        let mut config = match family {
            None => Self::of_diff_mlx(&raw, layout)?,
            Some(Family { text_models, text_sizes, .. }) if !text_models.is_empty() => {
                Self::of_text_part(&raw, text_models, text_sizes, layout)?
            }
            Some(family) => {
                raw.unquantised()?;
                finish(&family.model_type, family.read(&raw, layout)?, &raw)?
            }
        };
        let differential = layout.is_some_and(|layout| layout != HeadLayout::Standard);
        let may_be = [tensor_names("llama"), tensor_names(DIFF_MLX)].contains(&config.names) && !config.wrapped;
        if differential && !may_be {
            bail_usage!("--layout: a model of type {model_type} has no differential heads");
        }
        config.model_type = model_type.to_owned();
        config.checked()
    }

    /// A model of a family with these sizes and no other choices than those of `families.toml`.
    ///
    /// # Panics
    /// If there is no such family.
    pub(super) fn of_family(model_type: &str, sizes: DecoderSizes) -> Self {
        let family = family(model_type).unwrap_or_else(|| panic!("families.toml has no family {model_type}"));
        Self { model_type: model_type.to_owned(), ..family.config(&HeadLayout::Standard.maps(), sizes) }
    }

    /// Checks the fields against each other. The longest context is that of the scaling of rotary embeddings, if that is longer.
    pub(super) fn checked(mut self) -> Result<Self> {
        if let Positions::Rotary { embeddings, .. } = &self.positions {
            // What a scaling was made for counts, whether or not max_position_embeddings was changed with it.
            let scaled = embeddings.iter().filter_map(|rotary| rotary.scaling.ctx_tok());
            self.max_ctx_tok = scaled.fold(self.max_ctx_tok, usize::max).min(MOST_TOKENS as usize);
        }
        self.check()?;
        Ok(self)
    }

    /// Checks that models of this `config.json` can be read as far as their family and their number types go.
    pub(crate) fn check_family(value: &Value) -> Result<()> {
        let raw = Raw(value.as_object().context("expected a JSON object")?);
        family_of(&raw)?;
        raw.unquantised()
    }

    /// The text part of a multimodal model, which `text_config` describes. Files on the Hub omit values equal to those of
    /// the first model of a kind, `sizes`.
    fn of_text_part(
        raw: &Raw<'_>,
        text_models: &[String],
        sizes: &Map<String, Value>,
        layout: Option<HeadLayout>,
    ) -> Result<Self> {
        let text_config = raw.object("text_config")?.context("text_config is missing")?;
        let text_type = Raw(text_config).text("model_type").context("text_config")?.unwrap_or(&text_models[0]);
        if !text_models.iter().any(|name| name == text_type) {
            bail!("text_config: model_type \"{text_type}\" is not supported; {} is", text_models.join(" or "));
        }
        raw.unquantised()?;
        raw.causal()?;
        // transformers ignores this field in the multimodal Gemma 3; only the text model applies it.
        Raw(text_config).only("final_logit_softcapping", Value::Null).context("text_config")?;
        let mut fields = sizes.clone();
        fields.extend(text_config.clone());
        fields.insert("model_type".into(), text_type.into());
        let text = Self::from_json(&Value::Object(fields), layout).context("text_config")?;
        // The outer configuration decides. Reading the weights checks whether they have a separate head.
        Ok(Self { wrapped: true, tied: raw.flag("tie_word_embeddings", true)?, ..text })
    }

    /// Sets the window of the layers for which `slides` is true.
    pub(super) fn windowed(mut self, window: Option<usize>, slides: impl Fn(usize) -> bool) -> Self {
        for (i, layer) in self.layers.iter_mut().enumerate() {
            layer.rule.window = window.filter(|_| slides(i));
        }
        self
    }

    /// Sets the rotary embeddings of layers with full attention and of those with a window.
    fn with_rotary_by_kind(mut self, embeddings: [Rotary; 2]) -> Self {
        self.positions = Positions::Rotary { style: RopeStyle::Half, embeddings: embeddings.into() };
        for layer in &mut self.layers {
            layer.rotary = Some(usize::from(layer.rule.window.is_some()));
        }
        self
    }

    fn with_alibi(self, alibi: Alibi) -> Self {
        let mut config = self.without_rotary();
        config.layers.iter_mut().for_each(|layer| layer.rule.alibi = Some(alibi));
        Self { positions: Positions::Biases, ..config }
    }

    fn without_rotary(mut self) -> Self {
        self.layers.iter_mut().for_each(|layer| layer.rotary = None);
        self
    }

    /// Checks the width of a head in families that do not read `head_dim`.
    fn check_head_dim(&self, raw: &Raw<'_>) -> Result<()> {
        let expected = self.width / raw.size("num_attention_heads")?;
        ensure!(
            self.head_dim == expected,
            "head_dim is {}, but this model_type uses {expected} (hidden_size / num_attention_heads)",
            self.head_dim
        );
        Ok(())
    }
}

impl Family {
    fn read(&self, raw: &Raw<'_>, layout: Option<HeadLayout>) -> Result<ModelConfig> {
        for (field, supported) in &self.only {
            raw.only(field, supported.clone())?;
        }
        for field in self.absent.iter().map(String::as_str).chain(["per_layer_config"]) {
            raw.only(field, Value::Null)?;
        }
        raw.causal()?;
        let maps = HeadMaps::read(&self.model_type, raw, layout)?;
        let sizes = self.sizes(raw, &maps)?;
        let bias = Biases {
            qkv: raw.flag(&self.bias_keys.qkv, self.bias.qkv)?,
            out: raw.flag(&self.bias_keys.out, self.bias.out)?,
            mlp: raw.flag(&self.bias_keys.mlp, self.bias.mlp)?,
            head: self.bias.head,
        };
        let has_qk_norm = raw.flag(&self.qk_norm_key, self.qk_norm_key.is_empty())?;
        let mut config = ModelConfig {
            bias,
            activation: raw.activation(&self.activation_key, self.activation)?,
            norm_eps: raw.positive_or(&self.norm_eps_key, self.norm_eps)?,
            qk_norm: self.qk_norm.filter(|_| has_qk_norm),
            tied: raw.flag("tie_word_embeddings", self.tied)?,
            ..self.config(&maps, sizes)
        };
        if let (PositionKeys::Rotary, Positions::Rotary { embeddings, .. }) = (self.positions, &mut config.positions) {
            let share = self.rotated.map(|share| (share, self.rotated_key.as_str()));
            *embeddings = vec![raw.rotary(sizes.head_dim, (&self.theta_key, self.theta), share)?];
        }
        if let Some(windows) = &self.windows {
            config = windows.read(config, raw)?;
        }
        Ok(if maps.style.is_none() { config.without_rotary() } else { config })
    }

    /// The configuration of a model of these sizes, as far as the family has one.
    fn config(&self, maps: &HeadMaps, sizes: DecoderSizes) -> ModelConfig {
        let DecoderSizes { vocab, width, layers, ffn, heads, kv_heads, head_dim, max_ctx_tok } = sizes;
        let style = if self.interleaved { RopeStyle::Interleaved } else { maps.style.unwrap_or(RopeStyle::Half) };
        let rotary = Rotary { theta: self.theta, channels: head_dim, scaling: RopeScaling::None };
        let config = ModelConfig {
            model_type: String::new(),
            names: tensor_names(&self.names),
            wrapped: false,
            variant: Variant { sink: self.sink.unwrap_or(maps.variant.sink), ..maps.variant },
            vocab,
            width,
            embed_width: width,
            ffn,
            heads,
            kv_heads,
            head_dim,
            max_ctx_tok,
            norm: self.norm,
            norm_eps: self.norm_eps,
            head_norm_eps: None,
            norm_place: self.norm_place,
            final_norm: true,
            residual: self.residual,
            residual_scale: 1.0,
            qk_norm: self.qk_norm,
            latent: None,
            activation: self.activation,
            gated: self.gated,
            experts: None,
            bias: self.bias,
            positions: Positions::Rotary { style, embeddings: vec![rotary] },
            position_scale: None,
            embed_norm: false,
            embed_scale: if self.scaled_embeddings { (width as f64).sqrt() } else { 1.0 },
            logit_scale: 1.0,
            final_softcap: None,
            tied: self.tied,
            layers: vec![Layer { rule: LogitRule::plain(head_dim), rotary: Some(0), experts: false }; layers],
        };
        match self.positions {
            PositionKeys::Rotary | PositionKeys::Own => config,
            PositionKeys::Learned => {
                let positions = Positions::Learned { offset: self.offset };
                ModelConfig { positions, ..config.without_rotary() }
            }
            PositionKeys::Alibi => config.with_alibi(Alibi::Exact),
        }
    }

    fn sizes(&self, raw: &Raw<'_>, maps: &HeadMaps) -> Result<DecoderSizes> {
        let mut fields = [""; 5];
        for (field, keys) in fields.iter_mut().zip(&self.keys) {
            *field = raw.first_of(keys)?;
        }
        let [width_key, layers_key, heads_key, ffn_key, ctx_key] = fields;
        let width = raw.size(width_key)?;
        let counted = raw.size(heads_key)?;
        let mut heads = counted;
        if maps.raw_heads {
            let signal = maps.variant.signal_heads;
            ensure!(signal > 1 || counted.is_multiple_of(2), "{heads_key} {counted} is odd; DIFF V1 pairs them");
            heads = counted / (signal + 1) * signal;
        }
        let mut head_dim = None;
        let mut kv_heads = None;
        let mut ffn = raw.optional_size(ffn_key)?;
        if self.grouped {
            head_dim = match (raw.optional_size("head_dim")?, self.head_dim) {
                (None, Some(usual)) => Some(raw.default("head_dim", usual)?),
                (stated, _) => stated,
            };
            kv_heads = raw.optional_size("num_key_value_heads")?;
            ensure!(!self.kv_heads_required || raw.has("num_key_value_heads"), "num_key_value_heads is missing");
        } else {
            ffn = ffn.or(Some(4 * width));
        }
        let missing = if self.grouped { ", and head_dim is missing" } else { "" };
        ensure!(
            head_dim.is_some() || width.is_multiple_of(counted),
            "{heads_key} {counted} does not divide {width_key} {width}{missing}"
        );
        let ctx_tok = match (raw.optional_tokens(ctx_key)?, self.ctx_tok) {
            (None, Some(usual)) => Some(raw.default(ctx_key, usual)?),
            (stated, _) => stated,
        };
        Ok(DecoderSizes {
            vocab: raw.tokens("vocab_size")?,
            width,
            layers: raw.layers(layers_key)?,
            ffn: ffn.with_context(|| format!("{ffn_key} is missing"))?,
            heads,
            kv_heads: kv_heads.unwrap_or(counted),
            head_dim: head_dim.unwrap_or(width / counted),
            max_ctx_tok: ctx_tok.with_context(|| format!("{ctx_key} is missing"))?,
        })
    }
}

#[cfg(test)]
mod tests;
