//! The description a decoder is built from, whatever family it comes from.
//!
//! [`ModelConfig`] is data: which norm stands where, what is rotated, what a query sees. `families/` fills it in from
//! a `config.json`, `names.rs` says where each tensor is found in the files of that family, `transformer.rs` reads it.

use super::rotary::{RopeScaling, Rotary};
use crate::attention::{LayerSizes, LogitRule, Variant, Wiring};
use crate::files;
use crate::ops::RopeStyle;
use anyhow::{ensure, Context, Result};
use serde::Serialize;
use serde_json::{json, Value};
use std::path::Path;

/// Wider heads, all of a layer together, are mistakes; products of sizes that are checked do not overflow.
const WIDEST_HEADS: usize = 1 << 24;

/// Whose names the tensors have, and which conventions come with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama's names, shared by most: also Mistral, Qwen, Gemma, OLMo, SmolLM 3, Granite, Cohere 2, DiffLlama and ours.
    Llama,
    /// GPT-2.
    Gpt2,
    /// GPT-NeoX: Pythia.
    GptNeox,
    /// OPT.
    Opt,
    /// Phi 3, which fuses projections.
    Phi3,
    /// Phi 1, 1.5 and 2.
    Phi,
    /// StableLM.
    StableLm,
    /// StarCoder 2.
    Starcoder2,
    /// Mixtral.
    Mixtral,
    /// gpt-oss, which keeps the experts of a layer in one tensor.
    GptOss,
    /// diff-mlx.
    DiffMlx,
    /// Any family in a GGUF file.
    Gguf,
}

/// What a norm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMSNorm with a gain.
    Rms,
    /// RMSNorm whose gain is 1 + weight (Gemma).
    RmsPlusOne,
    /// LayerNorm with gain and bias.
    Layer,
    /// LayerNorm with gain (Cohere 2).
    LayerGain,
}

/// Where the norms of a block stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlace {
    /// Before attention and MLP.
    Before,
    /// On what attention and MLP add (OLMo 2).
    After,
    /// Both (Gemma 2 and 3).
    Both,
}

/// A norm on queries and keys before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Over each head (Qwen 3, Gemma 3): logits are bounded by the gains.
    Head,
    /// Over the whole projection (OLMo 2).
    Projection,
    /// A LayerNorm with gains of its own for every head (StableLM 2 12B).
    EachHead,
}

/// What attention and MLP of a block read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// The MLP reads what attention has added to.
    Serial,
    /// Both read the same residual stream, each through its norm (GPT-NeoX).
    Parallel,
    /// Both read it through the same norm (Phi, Cohere 2).
    OneNorm,
}

/// A mixture of experts: a router chooses some of many MLPs for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// MLPs of a layer.
    pub count: usize,
    /// How many of them a token passes.
    pub per_token: usize,
    /// Hidden width of each.
    pub ffn: usize,
    /// Whether the weights of those that were chosen are made to sum to 1.
    pub normed: bool,
    /// Whether the router has a bias.
    pub router_bias: bool,
    /// Hidden width of one more that every token passes, weighed with sigmoid(x . w) (Qwen 2 MoE).
    pub shared: Option<usize>,
}

/// The function between the two matrices of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// x sigmoid(x).
    Silu,
    /// x Phi(x), with the error function.
    Gelu,
    /// Its approximation with tanh.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// w0 n(x^3) + w1 n(x^2) + w2 n(x) + b with learned w and b, n dividing by the root mean square (PolyNorm, arXiv 2411.03884).
    PolyNorm,
    /// g sigmoid(alpha g) (u + 1) of gate g, at most `limit`, and up u, within +-`limit` (gpt-oss).
    ClampedSwiglu {
        /// Slope of the sigmoid.
        alpha: f64,
        /// Where gate and up are cut off.
        limit: f64,
    },
}

/// Which projections have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The output of attention.
    pub out: bool,
    /// The MLP.
    pub mlp: bool,
    /// The output head.
    pub head: bool,
}

/// How a token knows its place.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// Queries and keys are rotated; a layer names one of these embeddings, or none.
    Rotary {
        /// Which channels are rotated together.
        style: RopeStyle,
        /// The embeddings, of which most models have one.
        embeddings: Vec<Rotary>,
    },
    /// A learned vector per position is added to the embedding.
    Learned {
        /// Rows of the table before that of position 0 (OPT: 2).
        offset: usize,
    },
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Scale, soft cap and window of the logits.
    pub rule: LogitRule,
    /// Index of the rotary embedding; nothing for a layer without.
    pub rotary: Option<usize>,
    /// Whether its MLP is the mixture of experts.
    pub experts: bool,
}

/// A resolved description of a decoder: every field has been checked against the others.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `model_type`.
    pub model_type: String,
    /// Names of the tensors.
    pub family: Family,
    /// Whether the files hold a model of which this one is the text part.
    pub wrapped: bool,
    /// How a layer makes its attention rows and what becomes of them.
    pub variant: Variant,
    /// Vocabulary size W.
    pub vocab: usize,
    /// Model width E.
    pub width: usize,
    /// Hidden width of the MLP.
    pub ffn: usize,
    /// Output heads H: half the raw heads for V1.
    pub heads: usize,
    /// Value heads in slices of the head width, which `config.json` calls key/value heads.
    pub kv_heads: usize,
    /// Head width d of queries and keys.
    pub head_dim: usize,
    /// Longest context the model was trained for, in tokens.
    pub max_ctx_tok: usize,
    /// What norms do.
    pub norm: NormKind,
    /// Epsilon of every norm.
    pub norm_eps: f64,
    /// Where norms stand.
    pub norm_place: NormPlace,
    /// What attention and MLP of a block read.
    pub residual: Residual,
    /// Factor on what attention and MLP add to the residual stream (Granite).
    pub residual_scale: f64,
    /// Norm on queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Function of the MLP.
    pub activation: Activation,
    /// Whether the MLP multiplies `activation(gate)` with a second projection.
    pub gated: bool,
    /// The mixture of experts that some layers have for an MLP.
    pub experts: Option<Experts>,
    /// Which projections have a bias.
    pub bias: Biases,
    /// Rotary or learned positions.
    pub positions: Positions,
    /// Factor on the embeddings (Gemma: sqrt(E)).
    pub embed_scale: f64,
    /// Factor on the output logits (Granite, Cohere 2).
    pub logit_scale: f64,
    /// Soft cap c of the output logits: c tanh(x / c).
    pub final_softcap: Option<f64>,
    /// Whether the output head is the embedding matrix.
    pub tied: bool,
    /// One entry per layer.
    pub layers: Vec<Layer>,
}

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Vocabulary size W.
    pub vocab: usize,
    /// Model width E.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Hidden width of the MLP.
    pub ffn: usize,
    /// Output heads H.
    pub heads: usize,
    /// See [`ModelConfig::kv_heads`].
    pub kv_heads: usize,
    /// Head width d.
    pub head_dim: usize,
    /// Longest context, in tokens.
    pub max_ctx_tok: usize,
}

impl ModelConfig {
    /// A decoder of Llama's shape: RMSNorm before attention and a SwiGLU, tied, no bias, rotary positions.
    pub fn llama(variant: Variant, sizes: Sizes, theta: f64, style: RopeStyle) -> Self {
        let Sizes { vocab, width, layers, ffn, heads, kv_heads, head_dim, max_ctx_tok } = sizes;
        let rotary = Rotary { theta, channels: head_dim, scaling: RopeScaling::None };
        let config = Self {
            model_type: String::new(),
            family: Family::Llama,
            wrapped: false,
            variant,
            vocab,
            width,
            ffn,
            heads,
            kv_heads,
            head_dim,
            max_ctx_tok,
            norm: NormKind::Rms,
            norm_eps: 1e-5,
            norm_place: NormPlace::Before,
            residual: Residual::Serial,
            residual_scale: 1.0,
            qk_norm: None,
            activation: Activation::Silu,
            gated: true,
            experts: None,
            bias: Biases::default(),
            positions: Positions::Rotary { style, embeddings: vec![rotary] },
            embed_scale: 1.0,
            logit_scale: 1.0,
            final_softcap: None,
            tied: true,
            layers: vec![Layer { rule: LogitRule::plain(head_dim), rotary: Some(0), experts: false }; layers],
        };
        Self { model_type: config.own_model_type().to_owned(), ..config }
    }

    /// Query heads that are projected: maps x output heads.
    pub fn query_heads(&self) -> usize {
        self.variant.query_heads(self.heads)
    }

    /// Key heads that are projected.
    pub fn key_heads(&self) -> usize {
        self.variant.key_heads(self.heads, self.kv_heads)
    }

    /// Which heads read which.
    pub fn wiring(&self) -> Wiring {
        let wiring = self.variant.wiring(self.heads, self.kv_heads);
        wiring.check(self.query_heads(), self.key_heads(), self.kv_heads);
        wiring
    }

    /// Width of the concatenated head outputs, the input of the output projection.
    pub fn attention_width(&self) -> usize {
        self.heads * self.wiring().value_slices() * self.head_dim
    }

    /// What the extra tensors of a layer depend on.
    pub fn layer_sizes(&self) -> LayerSizes {
        LayerSizes {
            width: self.width,
            heads: self.heads,
            query_heads: self.query_heads(),
            head_dim: self.head_dim,
            value_width: self.attention_width() / self.heads,
        }
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
        let text = files::text(path, files::CONFIG_MAX)?;
        let value: Value = serde_json::from_str(&text).with_context(|| format!("{}: not JSON", path.display()))?;
        Self::from_json(&value, None).with_context(|| path.display().to_string())
    }

    /// Checks the fields against each other.
    ///
    /// # Errors
    /// Names the field of `config.json` that does not fit.
    pub fn check(&self) -> Result<()> {
        self.variant.check()?;
        let most_heads = self.query_heads().max(self.key_heads()).max(self.kv_heads);
        let (heads_wide, most) = (most_heads * self.head_dim, WIDEST_HEADS);
        ensure!(
            heads_wide <= most,
            "the heads (head_dim {}) are {heads_wide} wide, expected at most {most}",
            self.head_dim
        );
        self.variant.check_heads(self.heads, self.kv_heads)?;
        if let Positions::Rotary { embeddings, .. } = &self.positions {
            for rotary in embeddings {
                let (channels, d) = (rotary.channels, self.head_dim);
                ensure!(channels < d || d.is_multiple_of(2), "head_dim {d} is odd; RoPE rotates pairs of channels");
                ensure!(
                    channels > 0 && channels <= d && channels.is_multiple_of(2),
                    "{channels} of {d} channels (head_dim) are to be rotated; RoPE rotates pairs"
                );
                ensure!(rotary.theta > 1.0 && rotary.theta.is_finite(), "rope_theta is {}", rotary.theta);
            }
        }
        if let Some(Experts { count, per_token, .. }) = self.experts {
            ensure!(per_token <= count, "num_experts_per_tok is {per_token}, and there are {count} experts");
        }
        ensure!(self.norm_eps > 0.0 && self.norm_eps < 1.0, "the epsilon of the norms is {}", self.norm_eps);
        Ok(())
    }

    /// The `model_type` that a decoder of Llama's shape is saved with: that of an architecture others know, if it is exactly
    /// theirs, or else ours.
    fn own_model_type(&self) -> &'static str {
        let half = matches!(self.positions, Positions::Rotary { style: RopeStyle::Half, .. });
        let rotated = half && self.layers.iter().all(|layer| layer.rotary == Some(0));
        let is = |preset: &str| Variant::preset(preset).is_ok_and(|preset| self.variant.computes_the_same_as(&preset));
        match rotated {
            true if is("transformer") => "llama",
            true if is("diff") => "diffllama",
            _ => OWN_MODEL_TYPE,
        }
    }

    /// The `config.json` that a model of Llama's shape, as we train them, is saved with; [`ModelConfig::from_json`] reads it
    /// back.
    ///
    /// # Panics
    /// If the model has learned positions or no rotary embedding.
    pub fn to_json(&self) -> Value {
        let model_type = self.own_model_type();
        let architecture = match model_type {
            "llama" => "LlamaForCausalLM",
            "diffllama" => "DiffLlamaForCausalLM",
            _ => "Difftool",
        };
        let Positions::Rotary { style, embeddings } = &self.positions else { panic!("our models are rotary") };
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
            "num_attention_heads": if model_type == "diffllama" { 2 * self.heads } else { self.heads },
            "num_hidden_layers": self.layers.len(),
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": embeddings[0].theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float16",
            "vocab_size": self.vocab,
        });
        if model_type == "diffllama" {
            config["lambda_std_dev"] = json!(0.1);
        }
        if model_type == OWN_MODEL_TYPE {
            let rotated = self.layers.iter().any(|layer| layer.rotary.is_some());
            config["rope_style"] = if rotated { json!(style) } else { json!("none") };
            config[ATTENTION_FIELD] = json!(self.variant);
        }
        config
    }
}

/// The `model_type` of ours, which states every choice of its attention.
pub(super) const OWN_MODEL_TYPE: &str = "difftool";
/// The field that does so: a [`Variant`]. Heads are counted as output heads there, and value heads as key/value heads.
pub(super) const ATTENTION_FIELD: &str = "attention";
