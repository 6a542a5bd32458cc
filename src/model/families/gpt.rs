//! GPT-Neo, GPT-J and Falcon.

use super::super::config::{Activation, Biases, DecoderSizes, Family, ModelConfig, Positions, ResidualLayout};
use super::super::raw::Raw;
use super::super::rotary::{RopeScaling, Rotary};
use crate::attention::Alibi;
use crate::kernels::RopeStyle;
use anyhow::{bail, ensure, Result};
use serde_json::{json, Value};

/// Context of Falcon models whose configuration states none.
const FALCON_CTX_TOK: usize = 2048;

impl ModelConfig {
    /// GPT-Neo: logits are not scaled, and every other layer has a window.
    pub(super) fn of_gpt_neo(raw: &Raw<'_>) -> Result<Self> {
        let sizes = raw
            .sizes(["hidden_size", "num_layers", "num_heads", "intermediate_size", "max_position_embeddings"], None)?;
        let local = raw.local_layers(sizes.layers)?;
        let window = raw.optional_tokens("window_size")?.unwrap_or(256);
        let mut config = Self {
            family: Family::GptNeo,
            positions: Positions::Learned { offset: 0 },
            activation: raw.activation("activation_function", Activation::GeluTanh)?,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(true),
            bias: Biases { out: true, mlp: true, ..Biases::default() },
            ..Self::with_layer_norm(sizes)
        };
        for layer in &mut config.layers {
            layer.rotary = None;
            layer.rule.scale = 1.0;
        }
        Ok(config.windowed(Some(window), |layer| local[layer]))
    }

    /// GPT-J: attention and MLP share a norm, and RoPE turns the first channels, interleaved.
    pub(super) fn of_gptj(raw: &Raw<'_>) -> Result<Self> {
        let sizes = raw.sizes(["n_embd", "n_layer", "n_head", "n_inner", "n_positions"], None)?;
        let channels = raw.optional_size("rotary_dim")?.unwrap_or(64);
        let rotary = Rotary { theta: 10_000.0, channels, scaling: RopeScaling::None };
        Ok(Self {
            family: Family::GptJ,
            positions: Positions::Rotary { style: RopeStyle::Interleaved, embeddings: vec![rotary] },
            activation: raw.activation("activation_function", Activation::GeluTanh)?,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            residual: ResidualLayout::OneNorm,
            tied: raw.flag("tie_word_embeddings")?.unwrap_or(false),
            bias: Biases { mlp: true, head: true, ..Biases::default() },
            ..Self::with_layer_norm(sizes)
        })
    }

    /// Falcon 7B (one key head, one norm for attention and MLP), 40B and 180B (groups of key heads, two norms), 2 11B
    /// (groups, one norm), and older ones with a serial block.
    pub(super) fn of_falcon(raw: &Raw<'_>) -> Result<Self> {
        let fields = [
            raw.either("n_embed", "hidden_size"),
            "num_hidden_layers",
            "num_attention_heads",
            "ffn_hidden_size",
            "max_position_embeddings",
        ];
        let sizes = raw.sizes(fields, Some(FALCON_CTX_TOK))?;
        let flag = |field, default| Ok::<_, anyhow::Error>(raw.flag(field)?.unwrap_or(default));
        let (grouped, parallel) = (flag("new_decoder_architecture", false)?, flag("parallel_attn", true)?);
        let kv_heads = match (grouped, flag("multi_query", true)?) {
            (true, _) => raw.optional_size("num_kv_heads")?.unwrap_or(sizes.heads),
            (false, true) => 1,
            (false, false) => sizes.heads,
        };
        let norms = raw.optional_size("num_ln_in_parallel_attn")?;
        let residual = match (grouped, parallel, norms) {
            (true, true, None | Some(2)) => ResidualLayout::Parallel,
            (_, true, None | Some(1)) => ResidualLayout::OneNorm,
            (false, false, None) => ResidualLayout::Serial,
            _ => bail!(
                "num_ln_in_parallel_attn {} does not fit parallel_attn {parallel} and new_decoder_architecture {grouped}",
                norms.map_or("null".to_owned(), |norms| norms.to_string())
            ),
        };
        let bias = flag("bias", false)?;
        let rotary = raw.rotary(sizes.head_dim, 10_000.0, None)?;
        let config = Self {
            family: Family::Falcon,
            norm_eps: raw.positive("layer_norm_epsilon")?.unwrap_or(1e-5),
            residual,
            positions: Positions::Rotary { style: RopeStyle::Half, embeddings: vec![rotary] },
            activation: raw.activation("activation", Activation::Gelu)?,
            bias: Biases { qkv: bias, out: bias, mlp: bias, head: false },
            tied: flag("tie_word_embeddings", true)?,
            ..Self::with_layer_norm(DecoderSizes { kv_heads, ..sizes })
        };
        Ok(if flag("alibi", false)? { config.with_alibi(Alibi::Rounded) } else { config })
    }
}

impl Raw<'_> {
    /// Returns for each layer of GPT-Neo whether it has a window, from `attention_types`: lists of kinds and how often each is repeated.
    fn local_layers(&self, layers: usize) -> Result<Vec<bool>> {
        let default = vec![json!([["global", "local"], 12])];
        let types = self.list("attention_types")?.unwrap_or(&default);
        let mut local = Vec::new();
        for entry in types {
            let kinds = entry.get(0).and_then(Value::as_array);
            let (Some(kinds), Some(times)) = (kinds, entry.get(1).and_then(Value::as_u64)) else {
                bail!("attention_types has {entry}, expected a list of kinds and a number")
            };
            for _ in 0..times.min(layers as u64 + 1) {
                for kind in kinds {
                    local.push(match kind.as_str() {
                        Some("global") => false,
                        Some("local") => true,
                        _ => bail!("attention_types has {kind}, expected global or local"),
                    });
                }
            }
        }
        ensure!(local.len() == layers, "attention_types has {} entries for {layers} layers", local.len());
        Ok(local)
    }
}
