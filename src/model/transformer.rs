//! The whole decoder, top to bottom: pre-norm blocks of attention and SwiGLU on a residual stream (Llama's shape).

use super::{ModelConfig, Variant, Weights};
use crate::attention::{lambda_init, Attend, DiffV1, DiffV2, Heads, LogitRule, Wiring};
use crate::ops::{linear, rms_norm, rope, swiglu, RopeTable};
use anyhow::{ensure, Result};
use candle_core::{DType, Device, Tensor};
use std::sync::Arc;

/// A decoder-only transformer. Cheap to clone: tensors are shared.
#[derive(Clone)]
pub struct Transformer {
    /// What it was built from.
    pub config: ModelConfig,
    embed: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
    rope: Arc<RopeTable>,
}

#[derive(Clone)]
struct Block {
    attention_norm: Tensor,
    attention: Attention,
    mlp_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    eps: f64,
}

/// One attention layer: projections, wiring and what its variant adds.
#[derive(Clone)]
pub struct Attention {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    kind: Kind,
    wiring: Arc<Wiring>,
    config: ModelConfig,
}

#[derive(Clone)]
enum Kind {
    Standard,
    V1(DiffV1),
    V2(DiffV2),
}

impl Transformer {
    /// Builds the model, taking every tensor once.
    ///
    /// # Errors
    /// If a tensor is missing, misshapen, not finite or left over; see [`Weights::check`].
    pub fn load(config: &ModelConfig, mut weights: Weights) -> Result<Self> {
        weights.check(config)?;
        Self::build(config, &mut weights)
    }

    /// As [`Transformer::load`] without looking at the values, for weights that are being trained.
    ///
    /// # Errors
    /// If a tensor is missing or left over.
    pub fn build(config: &ModelConfig, weights: &mut Weights) -> Result<Self> {
        let embed = weights.take("model.embed_tokens.weight")?;
        let blocks = (0..config.layers).map(|l| Block::load(config, l, weights)).collect::<Result<_>>()?;
        let norm = weights.take("model.norm.weight")?;
        let head = if config.tied { embed.clone() } else { weights.take("lm_head.weight")? };
        ensure!(weights.left().is_empty(), "tensors {:?} are not part of the model", weights.left());
        let rope = Arc::new(RopeTable::new(config.max_ctx_tok, config.head_dim, config.rope_theta));
        Ok(Self { config: config.clone(), embed, blocks, norm, head, rope })
    }

    /// A copy whose positions reach `ctx_tok`, for measuring beyond the trained context.
    pub fn with_context(&self, ctx_tok: usize) -> Self {
        let rope = Arc::new(RopeTable::new(ctx_tok, self.config.head_dim, self.config.rope_theta));
        Self { rope, ..self.clone() }
    }

    /// The final normed residual stream of token ids: (B, T, E).
    ///
    /// # Errors
    /// If an id is outside the vocabulary or T exceeds the context.
    pub fn hidden(&self, ids: &[Vec<u32>], attend: &mut dyn Attend) -> Result<Tensor> {
        let (b, t) = (ids.len(), ids.first().map_or(0, Vec::len));
        ensure!(t > 0 && ids.iter().all(|row| row.len() == t), "a batch needs rows of one length");
        ensure!(t <= self.rope.positions(), "{t} tokens exceed the model's context of {}", self.rope.positions());
        let flat: Vec<u32> = ids.concat();
        if let Some(id) = flat.iter().find(|&&id| id as usize >= self.config.vocab) {
            anyhow::bail!("token id {id} is outside the vocabulary of {}", self.config.vocab);
        }
        let flat = Tensor::from_vec(flat, b * t, &Device::Cpu)?;
        let mut x = self.embed.index_select(&flat, 0)?.reshape((b, t, self.config.width))?; // B,T,E
        attend.residual(0, &x)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, layer, &self.rope, attend)?;
            attend.residual(layer + 1, &x)?;
        }
        Ok(rms_norm(&x, &self.norm, self.config.norm_eps)?)
    }

    /// Logits of hidden states: (.., E) -> (.., W).
    ///
    /// # Errors
    /// If the width differs.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(linear(&hidden.contiguous()?, &self.head)?)
    }

    /// Memory of one forward pass over `ctx_tok` tokens beside the weights, in bytes: what is alive at its widest point,
    /// the projections of an attention layer or the hidden layer of the SwiGLU, and one tile of softmax rows per map.
    pub fn forward_bytes(&self, ctx_tok: usize) -> u64 {
        let c = &self.config;
        // Projections exist before and after rotation; head outputs before and after the norm.
        let attention = 2 * (c.query_heads() + 2 * c.kv_heads) * c.head_dim + 3 * c.attention_width();
        let per_token = 3 * c.width + attention.max(3 * c.ffn);
        let tile = 2 * crate::attention::TILE * ctx_tok;
        4 * (per_token * ctx_tok + tile) as u64
    }

    /// Multiplications and additions of one forward pass over `ctx_tok` tokens, about: two for each weight and token, and
    /// of the attention the causal half.
    pub fn forward_flops(&self, ctx_tok: usize) -> f64 {
        let c = &self.config;
        let per_pair = c.query_heads() * c.head_dim + c.attention_width();
        let tokens = ctx_tok as f64;
        2.0 * tokens * c.parameters() as f64 + tokens * tokens * (c.layers * per_pair) as f64
    }

    /// The learned lambda of every layer: one number per layer for V1, nothing otherwise (V2's depends on the token).
    ///
    /// # Errors
    /// If it cannot be computed.
    pub fn lambdas(&self) -> Result<Vec<f64>> {
        let v1 = self.blocks.iter().filter_map(|block| match &block.attention.kind {
            Kind::V1(v1) => Some(v1),
            _ => None,
        });
        v1.map(|v1| Ok(f64::from(v1.lambda()?.to_vec1::<f32>()?[0]))).collect()
    }
}

impl Block {
    fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("model.layers.{layer}");
        let attention = Attention::load(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let mut take = |name: &str| weights.take(&format!("{prefix}.{name}.weight"));
        Ok(Self {
            attention_norm: take("input_layernorm")?,
            attention,
            mlp_norm: take("post_attention_layernorm")?,
            gate: take("mlp.gate_proj")?,
            up: take("mlp.up_proj")?,
            down: take("mlp.down_proj")?,
            eps: config.norm_eps,
        })
    }

    fn forward(&self, x: &Tensor, layer: usize, rope: &Arc<RopeTable>, attend: &mut dyn Attend) -> Result<Tensor> {
        let normed = rms_norm(x, &self.attention_norm, self.eps)?;
        let x = (x + self.attention.forward(&normed, layer, rope, attend)?)?;
        let normed = rms_norm(&x, &self.mlp_norm, self.eps)?;
        let hidden = swiglu(&linear(&normed, &self.gate)?, &linear(&normed, &self.up)?)?; // B,T,F
        Ok((x + linear(&hidden, &self.down)?)?)
    }
}

impl Attention {
    /// Takes the layer's tensors under `prefix`.
    ///
    /// # Errors
    /// If one is missing.
    pub fn load(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let mut take = |name: &str| weights.take(&format!("{prefix}.{name}"));
        let kind = match config.variant {
            Variant::Standard => Kind::Standard,
            Variant::DiffV1 { gain, .. } => Kind::V1(DiffV1 {
                vectors: [take("lambda_q1")?, take("lambda_k1")?, take("lambda_q2")?, take("lambda_k2")?],
                lambda_init: lambda_init(layer),
                gain: if gain {
                    take("subln.weight")?
                } else {
                    Tensor::ones(2 * config.head_dim, DType::F32, &Device::Cpu)?
                },
                // Microsoft's files fix 1e-5; Hugging Face uses the model's epsilon.
                eps: if gain { 1e-5 } else { config.norm_eps },
            }),
            Variant::DiffV2 => Kind::V2(DiffV2 { lambda_proj: take("lambda_proj.weight")? }),
        };
        Ok(Self {
            q: take("q_proj.weight")?,
            k: take("k_proj.weight")?,
            v: take("v_proj.weight")?,
            o: take("o_proj.weight")?,
            kind,
            wiring: Arc::new(config.wiring()),
            config: config.clone(),
        })
    }

    /// The layer's output for its normed input: (B, T, E) -> (B, T, E).
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        rope_table: &Arc<RopeTable>,
        attend: &mut dyn Attend,
    ) -> Result<Tensor> {
        let (b, t, _) = x.dims3()?;
        let d = self.config.head_dim;
        let split = |w: &Tensor, heads: usize| linear(x, w)?.reshape((b, t, heads, d)); // B,T,heads,d
        let rotate = |x: Tensor| rope(&x, rope_table, self.config.rope_style);
        let heads = Heads {
            q: rotate(split(&self.q, self.config.query_heads())?)?,
            k: rotate(split(&self.k, self.config.kv_heads)?)?,
            v: split(&self.v, self.config.kv_heads)?,
            lambda: match &self.kind {
                Kind::Standard => None,
                Kind::V1(v1) => Some(v1.lambda()?),
                Kind::V2(v2) => Some(v2.lambda(x)?),
            },
            wiring: &self.wiring,
            rule: LogitRule::plain(d),
        };
        let mixture = attend.attend(layer, &heads)?; // B,T,H,value width
        let finished = match &self.kind {
            Kind::V1(v1) => v1.finish(&mixture)?,
            Kind::Standard | Kind::V2(_) => mixture,
        };
        Ok(linear(&finished.flatten_from(2)?, &self.o)?)
    }
}
