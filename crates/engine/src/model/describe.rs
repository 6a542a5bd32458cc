//! Descriptions of a decoder in words, for `inspect` and the manifest.

use super::config::{
    Activation, ExpertChoice, Latent, ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout,
};
use crate::kernels::RopeStyle;

impl ModelConfig {
    /// One-line description of the attention.
    pub fn layout(&self) -> String {
        let positions = match &self.positions {
            Positions::Learned { .. } => "learned positions",
            Positions::Biases => "ALiBi",
            Positions::Rotary { .. } if self.layers.iter().all(|layer| layer.rotary.is_none()) => "no positions",
            Positions::Rotary { style: RopeStyle::Half, .. } => "half-rotation RoPE",
            Positions::Rotary { style: RopeStyle::Interleaved, .. } => "interleaved RoPE",
        };
        self.variant.in_words(positions)
    }

    /// Definition of the logits where a family changes it: `QK-norm, soft-capped at 50`. `None` for scaled products of
    /// queries and keys.
    pub fn logit_tap(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(norm) = self.qk_norm {
            let how = match norm {
                QkNorm::Head => "per head",
                QkNorm::Projection => "over all heads",
                QkNorm::EachHead => "per head, each with its own gains",
            };
            parts.push(format!("queries and keys normed {how}"));
        }
        if let Some(cap) = self.layers.iter().find_map(|layer| layer.rule.softcap) {
            parts.push(format!("after the soft cap at {cap}"));
        }
        if self.layers.iter().any(|layer| layer.rule.alibi.is_some()) {
            parts.push("with the bias of their distance (ALiBi)".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Description of latent attention: `queries of rank 14, keys and values of rank 12, values 10 wide`.
    pub fn latent_ranks(&self) -> Option<String> {
        let Latent { query_rank, rank, value_dim, .. } = self.latent?;
        let queries = query_rank.map_or_else(String::new, |rank| format!("queries of rank {rank}, "));
        Some(format!("{queries}keys and values of rank {rank}, values {value_dim} wide"))
    }

    /// Description of norms and residual stream: `RMSNorm before attention and MLP`.
    pub fn block(&self) -> String {
        let norm = match self.norm {
            NormKind::Rms => "RMSNorm",
            NormKind::RmsPlusOne => "RMSNorm (gain 1 + weight)",
            NormKind::Layer => "LayerNorm",
            NormKind::LayerGain => "LayerNorm without bias",
        };
        let place = match self.norm_place {
            NormPlace::Before => "before",
            NormPlace::After => "after",
            NormPlace::Both => "before and after",
            NormPlace::Sum => "of the residual stream after",
        };
        let residual = match self.residual {
            ResidualLayout::Serial => "",
            ResidualLayout::Parallel => ", in parallel",
            ResidualLayout::OneNorm => ", which share it, in parallel",
        };
        let scale = match self.residual_scale {
            1.0 => String::new(),
            scale => format!(", what they add times {scale}"),
        };
        let end = if self.final_norm { "" } else { ", none at the end" };
        let embeddings = match self.embed_width {
            same if same == self.width => String::new(),
            other => format!(", embeddings {other} wide"),
        };
        format!("{norm} {place} attention and MLP{residual}{scale}{end}{embeddings}, eps {:e}", self.norm_eps)
    }

    /// Description of the MLP: `344 wide, silu, gated`, or `2 of 8 experts, each 96 wide, silu, gated`.
    pub fn mlp(&self) -> String {
        let activation = match self.activation {
            Activation::Silu => "silu".to_owned(),
            Activation::Gelu => "gelu".to_owned(),
            Activation::GeluTanh => "gelu (tanh)".to_owned(),
            Activation::Relu => "relu".to_owned(),
            Activation::PolyNorm => "PolyNorm".to_owned(),
            Activation::ClampedSwiglu { alpha, limit } => format!("clamped SwiGLU ({alpha}, {limit})"),
        };
        let kind = format!("{activation}{}", if self.gated { ", gated" } else { "" });
        let Some(experts) = self.experts else { return format!("{} wide, {kind}", self.ffn) };
        let mut mixture = format!("{} of {} experts, each {} wide", experts.per_token, experts.count, experts.ffn);
        if let Some(shared) = experts.shared {
            mixture += &format!(", and a shared one, {shared} wide");
        }
        if experts.choice.groups > 1 {
            let ExpertChoice { groups, groups_per_token, .. } = experts.choice;
            mixture += &format!(", from {groups_per_token} of {groups} groups");
        }
        let layers = self.layers.len();
        let with = self.layers.iter().filter(|layer| layer.experts).count();
        if with < layers {
            mixture += &format!(", in {with} of {layers} layers, in the others {} wide", self.ffn);
        }
        format!("{mixture}, {kind}")
    }

    /// Projections with a bias: `q, k, v, MLP`, or `none`.
    pub fn biases(&self) -> String {
        let parts = [
            ("q, k, v", self.bias.qkv),
            ("attention output", self.bias.out),
            ("MLP", self.bias.mlp),
            ("output head", self.bias.head),
        ];
        let biased: Vec<&str> = parts.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
        if biased.is_empty() {
            return "none".to_owned();
        }
        biased.join(", ")
    }

    /// Description of the position encoding, one line for each embedding.
    pub fn positions(&self) -> Vec<String> {
        let embeddings = match &self.positions {
            Positions::Rotary { embeddings, .. } => embeddings,
            Positions::Learned { .. } => return vec!["learned".to_owned()],
            Positions::Biases => return vec!["none; logits fall with distance (ALiBi)".to_owned()],
        };
        let all = self.layers.len();
        let mut lines = Vec::new();
        for (i, rotary) in embeddings.iter().enumerate() {
            let rotated = self.layers.iter().filter(|layer| layer.rotary == Some(i)).count();
            if rotated == 0 {
                continue;
            }
            let mut line = format!("RoPE, base {}", rotary.theta);
            if rotary.channels < self.head_dim {
                line += &format!(", {} of {} channels", rotary.channels, self.head_dim);
            }
            line += &rotary.scaling.describe();
            if rotated < all {
                line += &format!(", in {rotated} of {all} layers");
            }
            lines.push(line);
        }
        let without = self.layers.iter().filter(|layer| layer.rotary.is_none()).count();
        if without > 0 {
            lines.push(format!("none in {without} of {all} layers"));
        }
        lines
    }

    /// Description of the attention windows: `all before it`, or the window and the number of layers that have it.
    pub fn windows(&self) -> String {
        let windows: Vec<usize> = self.layers.iter().filter_map(|layer| layer.rule.window).collect();
        match windows.first() {
            None => "all before it".to_owned(),
            Some(window) => format!("the last {window} tokens in {} of {} layers", windows.len(), self.layers.len()),
        }
    }
}
