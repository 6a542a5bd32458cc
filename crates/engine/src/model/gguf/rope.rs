//! Rotary embeddings, from all fields and tensors that llama.cpp reads.

use super::config::Architecture;
use super::{Gguf, DIVISORS, LONG_DIVISORS, SHORT_DIVISORS};
use crate::kernels::RopeStyle;
use crate::model::config::{ModelConfig, Positions};
use crate::model::families::yarn_amplitude;
use crate::model::rotary::{RopeScaling, Rotary};
use anyhow::{bail, ensure, Context, Result};

impl Gguf {
    /// Sets the rotary embeddings and which of them each layer has, in families that have any.
    pub(super) fn with_rotary(&self, mut config: ModelConfig, arch: &Architecture) -> Result<ModelConfig> {
        let is_rotary = matches!(config.positions, Positions::Rotary { .. });
        ensure!(is_rotary || !self.has(DIVISORS), "{DIVISORS} in a model without RoPE");
        let rotary = self.rotary(&config, arch.partial)?;
        if !is_rotary {
            return Ok(config);
        }
        // Layers with a window may have an embedding of their own, which is not scaled.
        let local = match config.model_type.as_str() {
            "gemma3_text" => Some(10_000.0),
            "olmo3" => Some(rotary.theta),
            _ => None,
        };
        let mut embeddings = vec![rotary];
        if let Some(default) = local {
            let theta = self.positive("rope.freq_base_swa")?.unwrap_or(default);
            embeddings.push(Rotary { theta, scaling: RopeScaling::None, ..embeddings[0] });
        } else {
            self.only("rope.freq_base_swa", embeddings[0].theta)?;
        }
        for (i, layer) in config.layers.iter_mut().enumerate() {
            let slides = layer.rule.window.is_some();
            layer.rotary = match config.model_type.as_str() {
                "smollm3" if (i + 1).is_multiple_of(4) => None,
                "cohere2" if !slides => None,
                _ => Some(usize::from(slides && local.is_some())),
            };
        }
        let style = if arch.interleaved { RopeStyle::Interleaved } else { RopeStyle::Half };
        config.positions = Positions::Rotary { style, embeddings };
        Ok(config)
    }

    /// The rotary embedding of layers that see everything. `partial` if it may rotate a part of a head.
    fn rotary(&self, config: &ModelConfig, partial: bool) -> Result<Rotary> {
        let head_dim = config.head_dim;
        let channels = self.own_whole("rope.dimension_count")?.map_or(head_dim, |channels| channels as usize);
        ensure!(
            channels == head_dim || (partial && channels < head_dim),
            "{} is {channels}; only {head_dim}, the width of a head, is supported",
            self.named("rope.dimension_count")
        );
        let theta = self.positive("rope.freq_base")?.unwrap_or(10_000.0);
        let original_ctx_tok = self.tokens("rope.scaling.original_context_length")?.unwrap_or(config.max_ctx_tok);
        let scaling = self.scaling_of_fields(original_ctx_tok)?;
        let of_tensors = self.scaling_of_tensors(channels / 2, original_ctx_tok)?;
        ensure!(
            scaling == RopeScaling::None || of_tensors.is_none(),
            "rope.scaling and tensors that divide frequencies are both there"
        );
        Ok(Rotary { theta, channels, scaling: of_tensors.unwrap_or(scaling) })
    }

    /// As in llama.cpp, a factor without a type is linear and may have its old name.
    fn scaling_of_fields(&self, original_ctx_tok: usize) -> Result<RopeScaling> {
        let type_field = self.named("rope.scaling.type");
        let kind = self.text(&type_field)?.unwrap_or("linear");
        let older = self.factor("rope.scale_linear")?;
        let factor = self.factor("rope.scaling.factor")?.or(older);
        let amplitude = self.positive("rope.scaling.attn_factor")?.unwrap_or(1.0)
            * self.positive("rope.scaling.yarn_attn_factor")?.unwrap_or(1.0);
        let ext = self.own_number("rope.scaling.yarn_ext_factor")?.filter(|&ext| ext >= 0.0);
        let beta_fast = self.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0);
        let beta_slow = self.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
        if self.has(SHORT_DIVISORS) || self.has(LONG_DIVISORS) {
            return Ok(RopeScaling::None);
        }
        if matches!(kind, "none" | "linear") {
            for (field, is_off) in [("attn_factor", amplitude == 1.0), ("yarn_ext_factor", ext.unwrap_or(0.0) == 0.0)] {
                let field = self.named(&format!("rope.scaling.{field}"));
                ensure!(is_off, "{field} with {kind} scaling is not supported");
            }
        }
        Ok(match (kind, factor) {
            ("none", _) | ("linear", None | Some(1.0)) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor },
            ("yarn", factor) => {
                let ext_field = self.named("rope.scaling.yarn_ext_factor");
                ensure!(ext.unwrap_or(1.0) == 1.0, "{ext_field} is not supported; only 1 is");
                let factor = factor.unwrap_or(1.0);
                let amplitude = amplitude * yarn_amplitude(factor, 1.0);
                RopeScaling::Yarn { factor, beta_fast, beta_slow, original_ctx_tok, amplitude, truncate: true }
            }
            ("longrope", _) => bail!("tensor {SHORT_DIVISORS} is missing, which {type_field} longrope needs"),
            (other, _) => bail!("{type_field} \"{other}\" is not supported; none, linear, yarn and longrope are"),
        })
    }

    /// The scaling by tensors that divide each of `pairs` frequencies; `None` without them.
    fn scaling_of_tensors(&self, pairs: usize, original_ctx_tok: usize) -> Result<Option<RopeScaling>> {
        let all = self.divisors(DIVISORS, pairs)?;
        let short = self.divisors(SHORT_DIVISORS, pairs)?;
        Ok(match (all, short, self.divisors(LONG_DIVISORS, pairs)?) {
            (None, None, None) => None,
            (Some(by), None, None) => Some(RopeScaling::Divided { by }),
            (None, Some(short), Some(long)) => {
                let amplitude = self.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
                Some(RopeScaling::LongRope { short, long, original_ctx_tok, amplitude })
            }
            (Some(_), ..) => bail!("{DIVISORS} and divisors of longrope are both there"),
            _ => bail!("of {SHORT_DIVISORS} and {LONG_DIVISORS} one is missing"),
        })
    }

    /// The numbers of a tensor of divisors, one for each of `pairs` frequencies; `None` without the tensor.
    fn divisors(&self, name: &str, pairs: usize) -> Result<Option<Vec<f64>>> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let by = tensor.values().with_context(|| name.to_owned())?;
        ensure!(by.len() == pairs, "{name} has {} numbers for {pairs} frequencies", by.len());
        Ok(Some(by.into_iter().map(f64::from).collect()))
    }
}
