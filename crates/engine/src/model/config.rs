//! Description of a decoder, independent of the model family it comes from.
//!
//! [`ModelConfig`] is plain data: kinds and positions of norms, rotary embeddings, attention windows. `families/`
//! builds it from a `config.json`, `names.rs` finds its tensors in files, and `transformer.rs` builds the network from it.

use super::rotary::{RopeScaling, Rotary};
use super::tensor_names::TensorNames;
use crate::attention::{LayerSizes, LogitRule, Variant, Wiring};
use crate::kernels::RopeStyle;
use anyhow::{ensure, Context, Result};
use base::files;
use serde::Deserialize;
use std::path::Path;

/// Largest plausible width of all heads of a layer, or of shared experts. Products of checked sizes do not overflow.
const WIDEST_HEADS: usize = 1 << 24;

/// Largest plausible number of tensors, all of which are listed.
const MOST_TENSORS: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// RMSNorm with a gain.
    Rms,
    /// RMSNorm whose gain is 1 + weight (Gemma).
    RmsPlusOne,
    /// LayerNorm with gain and bias.
    Layer,
    /// LayerNorm with gain (Cohere, MPT).
    LayerGain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlace {
    /// Before attention and MLP.
    Before,
    /// On the output of attention and MLP (OLMo 2).
    After,
    /// Both (Gemma 2 and 3, GLM 4).
    Both,
    /// On the residual stream, once the output of attention or MLP has been added (OPT 350M).
    Sum,
}

/// Norm of queries and keys, applied before rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QkNorm {
    /// Over each head (Qwen 3, Gemma 3): logits are bounded by the gains.
    Head,
    /// Over the whole projection (OLMo 2).
    Projection,
    /// A LayerNorm with separate gains for each head (StableLM 2 12B, Cohere).
    EachHead,
}

/// Inputs of the attention and the MLP of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResidualLayout {
    /// The MLP reads the stream that attention has been added to.
    Serial,
    /// Both read the same residual stream, each through its norm (GPT-NeoX).
    Parallel,
    /// Both read it through the same norm (Phi, Cohere, GPT-J).
    OneNorm,
}

/// A mixture of experts: a router chooses some of many MLPs for each token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    pub count: usize,
    /// Number of experts that process a token.
    pub per_token: usize,
    /// Hidden width of each expert.
    pub ffn: usize,
    /// `true` if the weights of the chosen experts are normalised to sum to 1.
    pub normed: bool,
    pub router_bias: bool,
    /// Hidden width of a shared expert that processes every token.
    pub shared: Option<usize>,
    /// `true` if the shared expert is weighted with sigmoid(x . w) (Qwen 2 MoE).
    pub shared_gate: bool,
    pub choice: ExpertChoice,
    /// Factor on the weights of the chosen experts (DeepSeek).
    pub scale: f64,
}

/// Choice of a token's experts by their logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertChoice {
    /// `true` if a score is the sigmoid of its logit, to which a learned bias is added for the choice alone (DeepSeek V3).
    /// Otherwise scores are the softmax of the logits.
    pub sigmoid: bool,
    /// Number of groups that the experts form, in order.
    pub groups: usize,
    /// Number of groups from which experts are chosen: those with the largest score, or with the largest sum of two
    /// scores if they are sigmoids.
    pub groups_per_token: usize,
}

impl ExpertChoice {
    /// By the softmax of the logits of all experts.
    pub const SOFTMAX: Self = Self { sigmoid: false, groups: 1, groups_per_token: 1 };

    /// Checks the groups against the number of experts.
    fn check(self, count: usize, per_token: usize) -> Result<()> {
        let Self { groups, groups_per_token, .. } = self;
        ensure!(count.is_multiple_of(groups), "n_group {groups} does not divide the {count} experts");
        ensure!(groups_per_token <= groups, "topk_group is {groups_per_token}, but n_group is {groups}");
        let most = count / groups * groups_per_token;
        ensure!(
            per_token <= most,
            "num_experts_per_tok is {per_token}, but {groups_per_token} groups have {most} experts"
        );
        Ok(())
    }
}

/// Latent attention (DeepSeek): queries, and keys and values together, are projected from a vector of low rank. The rotated
/// channels of the key are the same for all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Rank of the queries; `None` if they are projected from the input.
    pub query_rank: Option<usize>,
    /// Rank of keys and values.
    pub rank: usize,
    /// Rotated channels of a head.
    pub rotated: usize,
    /// Channels of a value, at most the head width. Attention gets values that are filled up with zeros.
    pub value_dim: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// x sigmoid(x).
    Silu,
    /// x Phi(x), with the error function.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// w0 n(x^3) + w1 n(x^2) + w2 n(x) + b with learned w and b, where n divides by the root mean square (PolyNorm,
    /// arXiv 2411.03884).
    PolyNorm,
    /// g sigmoid(alpha g) (u + 1), with the gate g clamped to at most `limit` and the up projection u to ±`limit`
    /// (gpt-oss).
    ClampedSwiglu {
        /// Slope of the sigmoid.
        alpha: f64,
        /// Clamping limit of gate and up projection.
        limit: f64,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
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

#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// Queries and keys are rotated. Each layer uses one of the embeddings, or none.
    Rotary {
        /// Pairing of the rotated channels.
        style: RopeStyle,
        embeddings: Vec<Rotary>,
    },
    /// A learned vector per position is added to the embedding.
    Learned {
        /// Rows of the table before the row of position 0 (OPT: 2).
        offset: usize,
    },
    /// Logits are biased by distance ([`LogitRule::alibi`]).
    Biases,
}

/// Factor on the rotated queries by position: 1 + beta ln(1 + floor(position / ctx_tok)) (Llama 4, Ministral 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    pub beta: f64,
    /// Tokens from the first position for which the factor is 1.
    pub ctx_tok: usize,
}

/// Settings that differ between layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Scale, soft cap and window of the logits.
    pub rule: LogitRule,
    /// Index of the rotary embedding, or `None` for a layer without one.
    pub rotary: Option<usize>,
    /// `true` if the MLP is a mixture of experts.
    pub experts: bool,
}

/// Resolved description of a decoder. The fields have been checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `model_type` of `config.json`.
    pub model_type: String,
    pub names: &'static TensorNames,
    /// `true` if the files hold a multimodal model, of which this is the text part.
    pub wrapped: bool,
    /// Attention variant: how attention rows are made and combined.
    pub variant: Variant,
    /// Vocabulary size W.
    pub vocab: usize,
    /// Model width E.
    pub width: usize,
    /// Width of the embeddings. Where it is not E, two matrices lead to E and back (OPT 350M).
    pub embed_width: usize,
    /// Hidden width of the MLP.
    pub ffn: usize,
    /// Output heads H: half the raw heads for V1.
    pub heads: usize,
    /// Value heads, in slices of the head width. `config.json` calls them key/value heads.
    pub kv_heads: usize,
    /// Head width d of queries and keys.
    pub head_dim: usize,
    /// Longest context the model was trained for, in tokens.
    pub max_ctx_tok: usize,
    pub norm: NormKind,
    /// Epsilon of every norm.
    pub norm_eps: f64,
    /// Epsilon of the norm of each head's output, if the file states it.
    pub head_norm_eps: Option<f64>,
    pub norm_place: NormPlace,
    /// `true` if the residual stream is normed after the last layer.
    pub final_norm: bool,
    pub residual: ResidualLayout,
    /// Factor on the outputs of attention and MLP (Granite).
    pub residual_scale: f64,
    pub qk_norm: Option<QkNorm>,
    /// Low ranks of queries, keys and values.
    pub latent: Option<Latent>,
    pub activation: Activation,
    /// `true` if the MLP multiplies `activation(gate)` by a second projection.
    pub gated: bool,
    /// The mixture of experts that replaces the MLP in some layers.
    pub experts: Option<Experts>,
    pub bias: Biases,
    pub positions: Positions,
    pub position_scale: Option<PositionScale>,
    /// `true` if the embeddings are normed (BLOOM).
    pub embed_norm: bool,
    /// Factor on the embeddings (Gemma: sqrt(E)).
    pub embed_scale: f64,
    /// Factor on the output logits (Granite, Cohere 2).
    pub logit_scale: f64,
    /// Soft cap c of the output logits: c tanh(x / c).
    pub final_softcap: Option<f64>,
    /// `true` if the output head is the embedding matrix.
    pub tied: bool,
    /// One entry per layer.
    pub layers: Vec<Layer>,
}

#[derive(Clone, Copy, Debug)]
pub struct DecoderSizes {
    /// Vocabulary size W.
    pub vocab: usize,
    /// Model width E.
    pub width: usize,
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
    /// Creates a decoder of Llama's architecture: RMSNorm before attention and SwiGLU, tied embeddings, no biases,
    /// rotary positions.
    pub fn llama(variant: Variant, sizes: DecoderSizes, theta: f64, style: RopeStyle) -> Self {
        let rotary = Rotary { theta, channels: sizes.head_dim, scaling: RopeScaling::None };
        let positions = Positions::Rotary { style, embeddings: vec![rotary] };
        let config = Self { variant, positions, norm_eps: 1e-5, tied: true, ..Self::of_family("llama", sizes) };
        Self { model_type: config.own_model_type().to_owned(), ..config }
    }

    /// The same decoder of Llama's architecture with an RMSNorm of each head's queries and keys.
    pub fn with_qk_norm(self) -> Self {
        let config = Self { qk_norm: Some(QkNorm::Head), ..self };
        Self { model_type: config.own_model_type().to_owned(), ..config }
    }

    /// Number of projected query heads: maps x output heads.
    pub fn query_heads(&self) -> usize {
        self.variant.query_heads(self.heads)
    }

    /// Number of projected key heads.
    pub fn key_heads(&self) -> usize {
        self.variant.key_heads(self.heads, self.kv_heads)
    }

    /// Assignment of query, key and value heads to output heads.
    pub fn wiring(&self) -> Wiring {
        let wiring = self.variant.wiring(self.heads, self.kv_heads);
        wiring.check(self.query_heads(), self.key_heads(), self.kv_heads);
        wiring
    }

    /// Width of the concatenated head outputs, the input of the output projection.
    pub fn attention_width(&self) -> usize {
        self.heads * self.wiring().value_slices() * self.head_dim
    }

    /// Sizes that determine the shapes of a layer's extra tensors.
    pub fn layer_sizes(&self) -> LayerSizes {
        LayerSizes {
            width: self.width,
            heads: self.heads,
            query_heads: self.query_heads(),
            head_dim: self.head_dim,
            value_width: self.attention_width() / self.heads,
        }
    }

    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Reads a `config.json`.
    ///
    /// # Errors
    /// If the file cannot be read, or a field is missing, contradictory or not supported. The error names the field.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = files::bytes(path, files::CONFIG_MAX)?;
        let value = files::json(&bytes).with_context(|| format!("{}: not JSON", path.display()))?;
        Self::from_json(&value, None).with_context(|| path.display().to_string())
    }

    /// Checks the fields against each other.
    ///
    /// # Errors
    /// Names the field of `config.json` that does not fit.
    pub fn check(&self) -> Result<()> {
        self.variant.check()?;
        let most_heads = self.query_heads().max(self.key_heads()).max(self.kv_heads);
        let heads_wide = most_heads * self.head_dim;
        ensure!(
            heads_wide <= WIDEST_HEADS,
            "all heads of a layer (head_dim {}) together are {heads_wide} wide, expected at most {WIDEST_HEADS}",
            self.head_dim
        );
        self.variant.check_heads(self.heads, self.kv_heads)?;
        if let Positions::Rotary { embeddings, .. } = &self.positions {
            for rotary in embeddings {
                let channels = rotary.channels;
                let d = self.head_dim;
                ensure!(
                    channels > 0 && channels <= d && channels.is_multiple_of(2),
                    "RoPE cannot rotate {channels} of {d} channels (head_dim): it rotates pairs of them"
                );
            }
        }
        let mut tensors = 16;
        if let Some(Experts { count, per_token, choice, shared, .. }) = self.experts {
            ensure!(per_token <= count, "num_experts_per_tok is {per_token}, but there are only {count} experts");
            choice.check(count, per_token)?;
            ensure!(shared.is_none_or(|ffn| ffn <= WIDEST_HEADS), "the shared experts are too wide (n_shared_experts)");
            tensors += 3 * count;
        }
        if self.qk_norm == Some(QkNorm::EachHead) {
            tensors += self.query_heads() + self.key_heads();
        }
        let layers = self.layers.len();
        ensure!(
            tensors * layers <= MOST_TENSORS,
            "{layers} layers with up to {tensors} tensors are too many: the number of layers, of experts or of heads is wrong"
        );
        Ok(())
    }
}
