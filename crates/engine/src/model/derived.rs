//! A model with the architecture of another one and another attention variant, as `difftool train` makes and saves it.

use super::config::{Biases, DecoderSizes, ModelConfig, Positions, QkNorm};
use crate::attention::{LogitRule, Variant};
use crate::kernels::RopeStyle;
use anyhow::{bail, Result};

impl ModelConfig {
    /// The same decoder with another attention variant, in the format of [`ModelConfig::to_json`]: sizes, norms, RoPE,
    /// biases and tied embeddings stay. Its tensors have this crate's names, those that [`ModelConfig::tensors`] has.
    ///
    /// # Errors
    /// Names what of the architecture cannot be trained, or cannot be stated in a saved `config.json`.
    pub fn with_variant(&self, variant: Variant) -> Result<Self> {
        if let Some(what) = self.untrained_part() {
            bail!("a model of type {} has {what}", self.model_type);
        }
        let like_llama = self.like_llama();
        // Names in files are those of the family; the weights are read by them before.
        let known =
            Self { names: like_llama.names, model_type: like_llama.model_type.clone(), wrapped: false, ..self.clone() };
        if known != like_llama {
            bail!(
                "a model of type {} has an architecture that the config.json of a training cannot state",
                self.model_type
            );
        }
        let config = Self { variant, ..like_llama };
        config.check()?;
        Ok(Self { model_type: config.own_model_type().to_owned(), ..config })
    }

    /// A decoder of Llama's architecture with the sizes of this one and all that may differ.
    fn like_llama(&self) -> Self {
        let (style, theta) = match &self.positions {
            Positions::Rotary { style, embeddings } => (*style, embeddings.first().map_or(1.0, |rotary| rotary.theta)),
            Positions::Learned { .. } | Positions::Biases => (RopeStyle::Half, 1.0),
        };
        let sizes = DecoderSizes {
            vocab: self.vocab,
            width: self.width,
            layers: self.layers.len(),
            ffn: self.ffn,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            max_ctx_tok: self.max_ctx_tok,
        };
        let config = Self {
            norm_eps: self.norm_eps,
            qk_norm: self.qk_norm,
            bias: Biases { head: false, ..self.bias },
            tied: self.tied,
            ..Self::llama(self.variant, sizes, theta, style)
        };
        Self { model_type: config.own_model_type().to_owned(), ..config }
    }

    /// The first part of the architecture that training has no gradient for, or that a saved `config.json` has no key
    /// for, with the reason.
    fn untrained_part(&self) -> Option<&'static str> {
        let plain = LogitRule::plain(self.head_dim);
        let has = |differs: fn(&LogitRule) -> bool| self.layers.iter().any(|layer| differs(&layer.rule));
        let rotary = match &self.positions {
            Positions::Rotary { embeddings, .. } => embeddings.as_slice(),
            Positions::Learned { .. } | Positions::Biases => &[],
        };
        let usual = self.like_llama();
        let parts = [
            (self.experts.is_some(), "a mixture of experts, whose choice has no gradient"),
            (self.latent.is_some(), "latent attention, which is not trained"),
            (has(|rule| rule.softcap.is_some()), "soft-capped logits, for which attention has no gradient"),
            (has(|rule| rule.window.is_some()), "sliding windows, for which attention has no gradient"),
            (has(|rule| rule.alibi.is_some()), "ALiBi, for which attention has no gradient"),
            (rotary.is_empty(), "learned positions, which a saved config.json cannot state"),
            (
                rotary.len() > 1 || self.layers.iter().any(|layer| layer.rotary != Some(0)),
                "layers with different positions, which a saved config.json cannot state",
            ),
            (self.positions != usual.positions, "scaled or partial RoPE, which a saved config.json cannot state"),
            (
                self.layers.iter().any(|layer| layer.rule.scale != plain.scale),
                "another scale of logits, which a saved config.json cannot state",
            ),
            (
                self.qk_norm.is_some_and(|norm| norm != QkNorm::Head),
                "a norm over all queries or keys, or one of each head, which a saved config.json cannot state",
            ),
            (
                (self.norm, self.norm_place, self.residual) != (usual.norm, usual.norm_place, usual.residual),
                "other norms than RMSNorm before attention and MLP, which a saved config.json cannot state",
            ),
            (
                !self.gated || self.activation != usual.activation,
                "another MLP than SwiGLU, which a saved config.json cannot state",
            ),
        ];
        parts.into_iter().find_map(|(is_there, what)| is_there.then_some(what))
    }
}
