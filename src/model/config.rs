//! `config.json` as Hugging Face writes it, and the description the model is built from.
//!
//! | `model_type` | variant | heads counted by `num_attention_heads` |
//! |---|---|---|
//! | `llama` | standard | output heads |
//! | `diffllama` | DIFF V1, pairs (i, i + H), half-rotation RoPE, head norm without gain | raw heads, 2H |
//! | `difftool_diff_v1` (ours) | DIFF V1 of the Microsoft files: adjacent pairs, interleaved RoPE, head norm with gain; `diff_pairing` may say otherwise | raw heads, 2H |
//! | `difftool_diff_v2` (ours) | DIFF V2 of the Microsoft file: `q_proj` (2 H d, E), `lambda_proj` (H, E), adjacent pairs; RoPE as `rope_style` says | output heads, H |

use crate::attention::{standard_wiring, DiffV2, Pairing, Wiring};
use crate::ops::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Map, Value};
use std::path::Path;

/// More layers than any model has: a larger number is a mistake, and would take memory before it is noticed.
const MOST_LAYERS: usize = 10_000;

/// How a layer makes its attention rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One softmax map per head.
    Standard,
    /// Differential Transformer V1.
    DiffV1 {
        /// Which raw heads form a pair.
        pairing: Pairing,
        /// Whether the per-head norm has a learned gain (`self_attn.subln.weight`).
        gain: bool,
    },
    /// Differential Transformer V2.
    DiffV2,
}

impl Variant {
    /// The short name used in tables and records: `transformer`, `diff`, `diff-v2`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "transformer",
            Self::DiffV1 { .. } => "diff",
            Self::DiffV2 => "diff-v2",
        }
    }
}

/// A resolved description of a decoder: every field has been checked against the others.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Attention variant and its layout.
    pub variant: Variant,
    /// Vocabulary size W.
    pub vocab: usize,
    /// Model width E.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// SwiGLU hidden width.
    pub ffn: usize,
    /// Output heads H: half the raw heads for V1.
    pub heads: usize,
    /// Key/value heads, raw (both maps counted for V1).
    pub kv_heads: usize,
    /// Head width d of queries and keys.
    pub head_dim: usize,
    /// Longest context the model was trained for, in tokens.
    pub max_ctx_tok: usize,
    /// RoPE base.
    pub rope_theta: f64,
    /// Which channels RoPE rotates together.
    pub rope_style: RopeStyle,
    /// Epsilon of every RMSNorm.
    pub norm_eps: f64,
    /// Whether the output head is the embedding matrix.
    pub tied: bool,
}

impl ModelConfig {
    /// Query heads that are projected: maps x output heads.
    pub fn query_heads(&self) -> usize {
        match self.variant {
            Variant::Standard => self.heads,
            Variant::DiffV1 { .. } | Variant::DiffV2 => 2 * self.heads,
        }
    }

    /// Which heads read which.
    pub fn wiring(&self) -> Wiring {
        let wiring = match self.variant {
            Variant::Standard => standard_wiring(self.heads, self.kv_heads),
            Variant::DiffV1 { pairing, .. } => pairing.wiring(self.heads, self.kv_heads),
            Variant::DiffV2 => DiffV2::wiring(self.heads, self.kv_heads),
        };
        wiring.check(self.query_heads(), self.kv_heads, self.kv_heads);
        wiring
    }

    /// Width of the concatenated head outputs, the input of the output projection.
    pub fn attention_width(&self) -> usize {
        self.heads * self.wiring().value_slices() * self.head_dim
    }

    /// The layout in one line, as `inspect` and the manifest print it.
    pub fn layout(&self) -> String {
        let rope = match self.rope_style {
            RopeStyle::Half => "half-rotation RoPE",
            RopeStyle::Interleaved => "interleaved RoPE",
        };
        match self.variant {
            Variant::Standard => format!("standard, {rope}"),
            Variant::DiffV1 { pairing, gain } => {
                let pairs = match pairing {
                    Pairing::Halves => "pairs (i, i+H)",
                    Pairing::Adjacent => "pairs (2i, 2i+1)",
                    Pairing::AdjacentNaive => "pairs (2i, 2i+1), keys as in the naive file",
                };
                format!("DIFF V1, {pairs}, {rope}, head norm {} gain", if gain { "with" } else { "without" })
            }
            Variant::DiffV2 => format!("DIFF V2, pairs (2i, 2i+1) on one key head, {rope}"),
        }
    }

    /// Every tensor of the checkpoint with its shape, in file order.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (e, d, kv) = (self.width, self.head_dim, self.kv_heads * self.head_dim);
        let mut list = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocab, e])];
        for layer in 0..self.layers {
            let mut add = |name: &str, shape: Vec<usize>| list.push((format!("model.layers.{layer}.{name}"), shape));
            add("input_layernorm.weight", vec![e]);
            add("self_attn.q_proj.weight", vec![self.query_heads() * d, e]);
            add("self_attn.k_proj.weight", vec![kv, e]);
            add("self_attn.v_proj.weight", vec![kv, e]);
            add("self_attn.o_proj.weight", vec![e, self.attention_width()]);
            match self.variant {
                Variant::Standard => {}
                Variant::DiffV1 { gain, .. } => {
                    for name in ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"] {
                        add(&format!("self_attn.{name}"), vec![d]);
                    }
                    if gain {
                        add("self_attn.subln.weight", vec![2 * d]);
                    }
                }
                Variant::DiffV2 => add("self_attn.lambda_proj.weight", vec![self.heads, e]),
            }
            add("post_attention_layernorm.weight", vec![e]);
            add("mlp.gate_proj.weight", vec![self.ffn, e]);
            add("mlp.up_proj.weight", vec![self.ffn, e]);
            add("mlp.down_proj.weight", vec![e, self.ffn]);
        }
        list.push(("model.norm.weight".to_owned(), vec![e]));
        if !self.tied {
            list.push(("lm_head.weight".to_owned(), vec![self.vocab, e]));
        }
        list
    }

    /// Number of trained numbers.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    /// If the file cannot be read, or a field is missing, contradictory or not supported; the field is named.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text).with_context(|| format!("{}: not JSON", path.display()))?;
        Self::from_json(&value).with_context(|| path.display().to_string())
    }

    /// Resolves a parsed `config.json`.
    ///
    /// # Errors
    /// As [`ModelConfig::read`].
    pub fn from_json(value: &Value) -> Result<Self> {
        let raw = Raw(value.as_object().context("a model configuration is a JSON object")?);
        raw.refuse_unsupported()?;
        let raw_heads = raw.usize("num_attention_heads")?;
        let width = raw.usize("hidden_size")?;
        ensure!(raw_heads > 0, "num_attention_heads is 0");
        let (variant, heads) = raw.variant(raw_heads)?;
        let config = Self {
            variant,
            vocab: raw.usize("vocab_size")?,
            width,
            layers: raw.layers()?,
            ffn: raw.usize("intermediate_size")?,
            heads,
            kv_heads: raw.optional_usize("num_key_value_heads")?.unwrap_or(raw_heads),
            head_dim: raw.optional_usize("head_dim")?.unwrap_or(width / raw_heads),
            max_ctx_tok: raw.usize("max_position_embeddings")?,
            rope_theta: raw.rope_theta()?,
            rope_style: raw.rope_style(variant)?,
            norm_eps: raw.f64("rms_norm_eps")?,
            tied: raw.0.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
        };
        config.check()?;
        Ok(config)
    }

    /// Checks the fields against each other.
    ///
    /// # Errors
    /// Names the field of `config.json` that does not fit.
    pub fn check(&self) -> Result<()> {
        for (field, n) in [("vocab_size", self.vocab), ("hidden_size", self.width), ("intermediate_size", self.ffn)] {
            ensure!(n > 0, "{field} is 0");
        }
        ensure!(
            self.layers > 0 && self.head_dim > 0 && self.kv_heads > 0 && self.heads > 0,
            "a head or layer count is 0"
        );
        ensure!(self.head_dim.is_multiple_of(2), "head_dim {} is odd; RoPE rotates pairs of channels", self.head_dim);
        let (q, kv) = (self.query_heads(), self.kv_heads);
        ensure!(q % kv == 0, "num_key_value_heads {kv} does not divide the {q} query heads");
        if let Variant::DiffV1 { .. } = self.variant {
            ensure!(
                kv % 2 == 0,
                "num_key_value_heads {kv} is odd; a differential pair needs a key head for each of its maps"
            );
        }
        Ok(())
    }

    /// The `config.json` this model is saved with; [`ModelConfig::from_json`] reads it back.
    pub fn to_json(&self) -> Value {
        let (model_type, architecture) = match self.variant {
            Variant::Standard => ("llama", "LlamaForCausalLM"),
            Variant::DiffV1 { pairing: Pairing::Halves, gain: false } => ("diffllama", "DiffLlamaForCausalLM"),
            Variant::DiffV1 { .. } => ("difftool_diff_v1", "DifftoolDiffV1"),
            Variant::DiffV2 => ("difftool_diff_v2", "DifftoolDiffV2"),
        };
        let raw_heads = if matches!(self.variant, Variant::DiffV1 { .. }) { 2 * self.heads } else { self.heads };
        let mut config = json!({
            "architectures": [architecture],
            "attention_bias": false,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "initializer_range": 0.02,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.max_ctx_tok,
            "mlp_bias": false,
            "model_type": model_type,
            "num_attention_heads": raw_heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float16",
            "vocab_size": self.vocab,
        });
        if model_type.starts_with("difftool") {
            config["rope_style"] = json!(self.rope_style);
        }
        if let Variant::DiffV1 { pairing, gain } = self.variant {
            config["lambda_std_dev"] = json!(0.1);
            if model_type.starts_with("difftool") {
                config["diff_pairing"] = json!(pairing);
                config["diff_norm_gain"] = json!(gain);
            }
        }
        config
    }
}

/// Accessors that name the field in their errors.
struct Raw<'a>(&'a Map<String, Value>);

impl Raw<'_> {
    fn optional_usize(&self, field: &str) -> Result<Option<usize>> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(n) => Ok(Some(n as usize)),
                None => bail!("{field} is {value}, expected a whole number"),
            },
        }
    }

    fn layers(&self) -> Result<usize> {
        let layers = self.usize("num_hidden_layers")?;
        ensure!(layers <= MOST_LAYERS, "num_hidden_layers is {layers}, expected at most {MOST_LAYERS}");
        Ok(layers)
    }

    fn usize(&self, field: &str) -> Result<usize> {
        self.optional_usize(field)?.with_context(|| format!("{field} is missing"))
    }

    fn f64(&self, field: &str) -> Result<f64> {
        let value = self.0.get(field).with_context(|| format!("{field} is missing"))?;
        value.as_f64().with_context(|| format!("{field} is {value}, expected a number"))
    }

    fn str(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// transformers 5 writes `rope_parameters`, earlier versions `rope_theta` and `rope_scaling`.
    fn rope_theta(&self) -> Result<f64> {
        for field in ["rope_parameters", "rope_scaling"] {
            let Some(Value::Object(rope)) = self.0.get(field) else { continue };
            let kind = rope.get("rope_type").or(rope.get("type")).and_then(Value::as_str).unwrap_or("default");
            ensure!(kind == "default", "{field}.rope_type \"{kind}\" is not supported; only \"default\" is");
            if let Some(theta) = rope.get("rope_theta").and_then(Value::as_f64) {
                return Ok(theta);
            }
        }
        match self.0.get("rope_theta") {
            None => Ok(10_000.0),
            Some(_) => self.f64("rope_theta"),
        }
    }

    fn variant(&self, raw_heads: usize) -> Result<(Variant, usize)> {
        let halved = || {
            ensure!(raw_heads.is_multiple_of(2), "num_attention_heads {raw_heads} is odd; DIFF V1 pairs them");
            Ok(raw_heads / 2)
        };
        match self.str("model_type") {
            Some("llama") => Ok((Variant::Standard, raw_heads)),
            Some("diffllama") => Ok((Variant::DiffV1 { pairing: Pairing::Halves, gain: false }, halved()?)),
            Some("difftool_diff_v1") => {
                let pairing = match self.0.get("diff_pairing") {
                    None => Pairing::Adjacent,
                    Some(value) => serde_json::from_value(value.clone()).with_context(|| {
                        format!("diff_pairing is {value}; it is halves, adjacent or adjacent-naive")
                    })?,
                };
                let gain = self.0.get("diff_norm_gain").and_then(Value::as_bool).unwrap_or(true);
                Ok((Variant::DiffV1 { pairing, gain }, halved()?))
            }
            Some("difftool_diff_v2") => Ok((Variant::DiffV2, raw_heads)),
            Some(other) => bail!(
                "model_type \"{other}\" is not supported; llama, diffllama, difftool_diff_v1 and difftool_diff_v2 are"
            ),
            None => bail!("model_type is missing"),
        }
    }

    fn rope_style(&self, variant: Variant) -> Result<RopeStyle> {
        match (self.str("rope_style"), self.str("model_type")) {
            (Some("half"), _) => Ok(RopeStyle::Half),
            (Some("interleaved"), _) => Ok(RopeStyle::Interleaved),
            (Some(other), _) => bail!("rope_style \"{other}\" is not supported; half and interleaved are"),
            (None, Some("llama" | "diffllama")) => Ok(RopeStyle::Half),
            (None, _) => {
                debug_assert!(variant != Variant::Standard);
                Ok(RopeStyle::Interleaved)
            }
        }
    }

    fn refuse_unsupported(&self) -> Result<()> {
        for field in ["attention_bias", "mlp_bias"] {
            ensure!(
                self.0.get(field).and_then(Value::as_bool) != Some(true),
                "{field} is true, which is not supported"
            );
        }
        if let Some(act) = self.str("hidden_act") {
            ensure!(act == "silu", "hidden_act \"{act}\" is not supported; only \"silu\" is");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(variant: Variant) -> ModelConfig {
        ModelConfig {
            variant,
            vocab: 50,
            width: 32,
            layers: 2,
            ffn: 48,
            heads: 2,
            kv_heads: 2,
            head_dim: 8,
            max_ctx_tok: 64,
            rope_theta: 10_000.0,
            rope_style: if variant == Variant::Standard { RopeStyle::Half } else { RopeStyle::Interleaved },
            norm_eps: 1e-5,
            tied: true,
        }
    }

    #[test]
    fn a_saved_configuration_reads_back_unchanged() {
        let v1 = |pairing, gain| Variant::DiffV1 { pairing, gain };
        for variant in
            [Variant::Standard, v1(Pairing::Adjacent, true), v1(Pairing::AdjacentNaive, false), Variant::DiffV2]
        {
            let config = tiny(variant);
            assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
        }
        let config = ModelConfig { rope_style: RopeStyle::Half, ..tiny(v1(Pairing::Halves, false)) };
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    }

    #[test]
    fn an_unsupported_field_is_named() {
        let mut json = tiny(Variant::Standard).to_json();
        json["hidden_act"] = json!("gelu");
        assert!(ModelConfig::from_json(&json).unwrap_err().to_string().contains("hidden_act"));
        let mut json = tiny(Variant::Standard).to_json();
        json["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0});
        assert!(ModelConfig::from_json(&json).unwrap_err().to_string().contains("yarn"));
        let mut json = tiny(Variant::Standard).to_json();
        json["model_type"] = json!("mamba");
        assert!(ModelConfig::from_json(&json).unwrap_err().to_string().contains("mamba"));
    }
}
