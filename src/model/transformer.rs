//! The whole decoder, top to bottom: blocks of attention and MLP on a residual stream, as a [`ModelConfig`] describes them.

use super::config::Layer;
use super::held::{Blocks, OnDisk, Table};
use super::linear::Linear;
use super::mlp::FeedForward;
use super::rotary::GrowingTable;
use super::{Checkpoint, ModelConfig, NormKind, NormPlace, Placement, Positions, QkNorm, Residual, Weights};
use crate::attention::{Attend, Extras, Heads, Lambda, Wiring};
use crate::ops::{layer_norm, numbers, on_host, rms_norm, rope, RopeStyle, RopeTable};
use anyhow::{bail, ensure, Result};
use candle_core::Tensor;
use std::sync::{Arc, OnceLock};

/// Our names of the embedding and the output head, and what those of layers begin with.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const HEAD: &str = "lm_head.weight";
const LAYERS: &str = "model.layers.";

/// Rows that an MLP works on at once.
pub(super) const MLP_ROWS: usize = 4096;

/// A decoder-only transformer. Cheap to clone: tensors are shared.
#[derive(Clone)]
pub struct Transformer {
    /// What it was built from.
    pub config: ModelConfig,
    /// Where it runs.
    pub placement: Placement,
    embed: Table,
    /// Learned positions: (positions, E).
    positions: Option<Tensor>,
    rotary: Vec<Arc<GrowingTable>>,
    pub(super) blocks: Blocks,
    pub(super) norm: Norm,
    pub(super) head: Table,
    head_bias: Option<Tensor>,
    /// The mean row of `head`, once somebody has asked for it.
    pub(super) mean_head_row: Arc<OnceLock<Vec<f32>>>,
}

#[derive(Clone)]
pub(super) struct Block {
    attention: Attention,
    mlp: FeedForward,
    attention_norms: Norms,
    mlp_norms: Norms,
    residual: Residual,
}

/// What the mixture of one layer passes on its way to the residual stream.
pub(super) struct Written {
    /// The output projection.
    pub(super) o: Linear,
    /// What the variant adds before it.
    pub(super) extras: Extras,
    /// The norm after attention, if there is one.
    pub(super) after: Option<Norm>,
}

/// The norms around a sublayer.
#[derive(Clone)]
pub(super) struct Norms {
    before: Option<Norm>,
    after: Option<Norm>,
}

#[derive(Clone)]
pub(super) struct Norm {
    pub(super) gain: Tensor,
    pub(super) bias: Option<Tensor>,
    pub(super) eps: f64,
}

/// One attention layer: projections, wiring and what its variant adds.
#[derive(Clone)]
pub struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    qk_norm: Option<(QkNorm, [Norm; 2])>,
    extras: Extras,
    wiring: Arc<Wiring>,
    layer: Layer,
    style: RopeStyle,
    head_dim: usize,
}

impl Transformer {
    /// Builds the model, taking every tensor once.
    ///
    /// # Errors
    /// If a tensor is missing or left over.
    pub fn load(config: &ModelConfig, mut weights: Weights) -> Result<Self> {
        Self::build(config, &mut weights)
    }

    /// As [`Transformer::load`], for weights that are being trained.
    ///
    /// # Errors
    /// If a tensor is missing or left over.
    pub fn build(config: &ModelConfig, weights: &mut Weights) -> Result<Self> {
        let blocks = (0..config.layers.len()).map(|layer| Block::load(config, layer, weights));
        let blocks = blocks.collect::<Result<_>>()?;
        Self::held(config, blocks, weights)
    }

    /// As [`Transformer::load`], for another device or number type: a layer at a time, so that the host needs room for one
    /// layer and for what is outside of the layers, not for the whole model.
    ///
    /// # Errors
    /// As [`Checkpoint::load`], or if the device has no room.
    pub fn placed(config: &ModelConfig, checkpoint: Checkpoint, placement: &Placement) -> Result<Self> {
        checkpoint.check(config)?;
        let mut weights = checkpoint.read_some(config, |name| !name.starts_with(LAYERS))?.placed(placement);
        let disk = OnDisk { checkpoint, config: config.clone(), placement: placement.clone() };
        let blocks = (0..config.layers.len()).map(|layer| disk.block(layer)).collect::<Result<_>>()?;
        Self::held(config, blocks, &mut weights)
    }

    fn held(config: &ModelConfig, blocks: Vec<Block>, weights: &mut Weights) -> Result<Self> {
        let embed = weights.take(EMBEDDING)?;
        let head = if config.tied { embed.clone() } else { weights.take(HEAD)? };
        Self::around(config, Table::Held(embed), Blocks::held(blocks), Table::Held(head), weights)
    }

    /// A model whose weights stay where they are: every layer is read when it is its turn. For measuring, not for decoding,
    /// which would read all of them for every token.
    ///
    /// # Errors
    /// As [`Checkpoint::load`]; numbers that are none are found when they are read.
    pub fn on_disk(config: &ModelConfig, checkpoint: Checkpoint, placement: &Placement) -> Result<Self> {
        checkpoint.check(config)?;
        let has_rows = checkpoint.has_rows();
        let is_apart = |name: &str| name.starts_with(LAYERS) || (has_rows && [EMBEDDING, HEAD].contains(&name));
        let mut weights = checkpoint.read_some(config, |name| !is_apart(name))?.placed(placement);
        let disk = Arc::new(OnDisk { checkpoint, config: config.clone(), placement: placement.clone() });
        let mut table = |name: &'static str| -> Result<Table> {
            Ok(if has_rows { Table::OnDisk { disk: disk.clone(), name } } else { Table::Held(weights.take(name)?) })
        };
        let embed = table(EMBEDDING)?;
        let head = if config.tied { embed.clone() } else { table(HEAD)? };
        Self::around(config, embed, Blocks::on_disk(disk), head, &mut weights)
    }

    /// What is left between the embedding, the layers and the head.
    fn around(config: &ModelConfig, embed: Table, blocks: Blocks, head: Table, weights: &mut Weights) -> Result<Self> {
        let (positions, rotary) = match &config.positions {
            Positions::Learned { .. } => (Some(weights.take("model.embed_positions.weight")?), Vec::new()),
            Positions::Rotary { embeddings, .. } => {
                (None, embeddings.iter().map(|rotary| Arc::new(GrowingTable::new(rotary))).collect())
            }
        };
        let norm = Norm::load(config, "model.norm", weights)?;
        let head_bias = config.bias.head.then(|| weights.take("lm_head.bias")).transpose()?;
        ensure!(weights.left().is_empty(), "tensors {:?} are not part of the model", weights.left());
        let (config, placement) = (config.clone(), weights.placement().clone());
        let mean_head_row = Arc::default();
        Ok(Self { config, placement, embed, positions, rotary, blocks, norm, head, head_bias, mean_head_row })
    }

    /// Whether the weights are on disk while it runs.
    pub fn is_on_disk(&self) -> bool {
        self.blocks.are_on_disk()
    }

    /// A copy that takes up to `ctx_tok` tokens, for measuring rotary models beyond the trained context.
    pub fn with_context(&self, ctx_tok: usize) -> Self {
        let mut longer = self.clone();
        longer.config.max_ctx_tok = ctx_tok;
        longer
    }

    /// The final normed residual stream of token ids: (B, T, E).
    ///
    /// # Errors
    /// If an id is outside the vocabulary or T exceeds the context.
    pub fn hidden(&self, ids: &[Vec<u32>], attend: &mut dyn Attend) -> Result<Tensor> {
        self.hidden_from(ids, 0, attend)
    }

    /// As [`Transformer::hidden`] for tokens of which the first stands at position `start`: `attend` knows the keys and
    /// values before it.
    ///
    /// # Errors
    /// As [`Transformer::hidden`].
    pub fn hidden_from(&self, ids: &[Vec<u32>], start: usize, attend: &mut dyn Attend) -> Result<Tensor> {
        let end = start + ids.first().map_or(0, Vec::len);
        let mut x = self.embedded(ids, start)?; // B,T,E
        attend.residual(0, &x)?;
        let tables: Vec<Arc<RopeTable>> = self.rotary.iter().map(|table| table.reaching(end)).collect();
        for layer in 0..self.config.layers.len() {
            let block = self.blocks.block(layer)?;
            x = block.forward(&x, layer, &At { tables: &tables, start }, attend)?;
            attend.residual(layer + 1, &x)?;
        }
        self.norm.forward(&x)
    }

    /// What the first layer reads: (B, T, E).
    fn embedded(&self, ids: &[Vec<u32>], start: usize) -> Result<Tensor> {
        let (b, t) = (ids.len(), ids.first().map_or(0, Vec::len));
        ensure!(t > 0 && ids.iter().all(|row| row.len() == t), "a batch needs rows of one length");
        let limit = self.config.max_ctx_tok;
        ensure!(start + t <= limit, "{} tokens exceed the model's context of {limit}", start + t);
        let flat: Vec<u32> = ids.concat();
        if let Some(id) = flat.iter().find(|&&id| id as usize >= self.config.vocab) {
            bail!("token id {id} is outside the vocabulary of {}", self.config.vocab);
        }
        let mut x = self.embed.rows(&flat)?.reshape((b, t, self.config.width))?; // B,T,E
        if self.config.embed_scale != 1.0 {
            x = (x * self.config.embed_scale)?;
        }
        if let (Some(positions), Positions::Learned { offset }) = (&self.positions, &self.config.positions) {
            ensure!(
                start + t + offset <= positions.dim(0)?,
                "{} tokens exceed the model's {} learned positions",
                start + t,
                positions.dim(0)? - offset
            );
            x = x.broadcast_add(&positions.narrow(0, start + offset, t)?)?;
        }
        Ok(x)
    }

    /// Logits of hidden states: (.., E) -> (.., W), at least `f32` whatever the weights are.
    ///
    /// # Errors
    /// If the width differs.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut logits = self.head.linear(&hidden.contiguous()?)?;
        if let Some(bias) = &self.head_bias {
            logits = logits.broadcast_add(bias)?;
        }
        if self.config.logit_scale != 1.0 {
            logits = (logits * self.config.logit_scale)?;
        }
        match self.config.final_softcap {
            None => Ok(logits),
            Some(cap) => Ok(((logits / cap)?.tanh()? * cap)?),
        }
    }

    /// Lambda of every layer where it holds for all tokens, as the mean over heads; nothing for one map, or if it depends on
    /// the token.
    ///
    /// # Errors
    /// If it cannot be computed.
    pub fn lambdas(&self) -> Result<Vec<f64>> {
        let mut lambdas = Vec::new();
        let layers = if self.config.variant.lambda == Lambda::None { 0 } else { self.config.layers.len() };
        for layer in 0..layers {
            if let Some(lambda) = self.blocks.written(layer)?.extras.constant_lambda()? {
                let numbers = numbers(&lambda)?;
                lambdas.push(numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len() as f64);
            }
        }
        Ok(lambdas)
    }
}

impl Written {
    /// Takes the tensors of a layer that this is made of.
    ///
    /// # Errors
    /// If one is missing.
    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        let (o, extras) = output(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let after = (config.norm_place != NormPlace::Before)
            .then(|| Norm::load(config, &format!("{prefix}.{}", config.norm_names().after_attention), weights));
        Ok(Self { o, extras, after: after.transpose()? })
    }

    /// The same with its matrix on the host, where parts of rows are followed.
    pub(super) fn on_host(self) -> Result<Self> {
        Ok(Self { o: Linear { weight: on_host(&self.o.weight)?, ..self.o }, ..self })
    }
}

/// Takes the output projection of an attention layer, and what its variant adds before it.
fn output(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<(Linear, Extras)> {
    let o = Linear::load(&format!("{prefix}.o_proj"), config.bias.out, weights)?.scaled(config.residual_scale)?;
    let device = weights.placement().device.clone();
    let mut take = |name: &str| weights.take(&format!("{prefix}.{name}"));
    let extras = Extras::load(&config.variant, layer, config.layer_sizes(), config.norm_eps, &device, &mut take)?;
    Ok((o, extras))
}

impl Block {
    /// What the names of its tensors begin with.
    pub(super) fn prefix(layer: usize) -> String {
        format!("{LAYERS}{layer}.")
    }

    /// What of it is [`Written`].
    pub(super) fn written(&self) -> Written {
        let Attention { o, extras, .. } = &self.attention;
        Written { o: o.clone(), extras: extras.clone(), after: self.attention_norms.after.clone() }
    }

    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        let names = config.norm_names();
        let (before, after) = (config.norm_place != NormPlace::After, config.norm_place != NormPlace::Before);
        let mut norms = |before: Option<&str>, after_name: &str| -> Result<Norms> {
            let mut norm = |name: &str| Norm::load(config, &format!("{prefix}.{name}"), weights);
            Ok(Norms {
                before: before.map(&mut norm).transpose()?,
                after: after.then(|| norm(after_name)).transpose()?,
            })
        };
        let attention_norms = norms(before.then_some(names.before_attention), names.after_attention)?;
        let own = before && config.residual != Residual::OneNorm;
        let mlp_norms = norms(own.then_some(names.before_mlp), names.after_mlp)?;
        let attention = Attention::load(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let mlp = FeedForward::load(config, layer, &format!("{prefix}.mlp"), weights)?;
        Ok(Self { attention, mlp, attention_norms, mlp_norms, residual: config.residual })
    }

    /// (B, T, E) -> (B, T, E).
    fn forward(&self, x: &Tensor, layer: usize, at: &At<'_>, attend: &mut dyn Attend) -> Result<Tensor> {
        let mut attention = |x: Tensor| {
            let y = self.attention.forward(x, layer, at, attend)?;
            attend.attended(layer, &y)?;
            Ok(y)
        };
        if let (Residual::OneNorm, Some(norm)) = (self.residual, &self.attention_norms.before) {
            let normed = norm.forward(x)?;
            let attended = attention(normed.clone())?;
            return Ok(((attended + self.mlp(&normed)?)? + x)?);
        }
        let attended = self.attention_norms.around(x, attention)?;
        if self.residual != Residual::Serial {
            return Ok(((attended + self.mlp(x)?)? + x)?);
        }
        let x = (x + attended)?;
        let mlp = self.mlp(&x)?;
        Ok((x + mlp)?)
    }

    /// What the MLP adds, a few rows at a time: no row needs another, and the hidden layer of a long text would be the
    /// largest tensor of the pass.
    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let t = x.dim(1)?;
        let rows = |start: usize| -> Result<Tensor> {
            let x = x.narrow(1, start, MLP_ROWS.min(t - start))?.contiguous()?; // B,rows,E
            self.mlp_norms.around(&x, |x| self.mlp.forward(&x))
        };
        if t <= MLP_ROWS {
            return rows(0);
        }
        let parts = (0..t).step_by(MLP_ROWS).map(rows).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::cat(&parts, 1)?) // B,T,E
    }
}

impl Norms {
    /// What a sublayer adds to the residual stream.
    fn around(&self, x: &Tensor, sublayer: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let y = match &self.before {
            Some(norm) => sublayer(norm.forward(x)?)?,
            None => sublayer(x.clone())?,
        };
        match &self.after {
            Some(norm) => norm.forward(&y),
            None => Ok(y),
        }
    }
}

impl Norm {
    fn load(config: &ModelConfig, name: &str, weights: &mut Weights) -> Result<Self> {
        let gain = weights.take(&format!("{name}.weight"))?;
        let gain = if config.norm == NormKind::RmsPlusOne { (gain + 1.0)? } else { gain };
        let bias = match config.norm {
            NormKind::Layer => Some(weights.take(&format!("{name}.bias"))?),
            NormKind::LayerGain => Some(gain.zeros_like()?),
            NormKind::Rms | NormKind::RmsPlusOne => None,
        };
        Ok(Self { gain, bias, eps: config.norm_eps })
    }

    /// LayerNorms of so many heads: gains (heads, d), no bias.
    fn of_each_head(config: &ModelConfig, name: &str, heads: usize, weights: &mut Weights) -> Result<Self> {
        let gains =
            (0..heads).map(|head| weights.take(&format!("{name}.{head}.weight"))).collect::<Result<Vec<_>>>()?;
        Ok(Self { gain: Tensor::stack(&gains, 0)?, bias: None, eps: config.norm_eps })
    }

    /// [`Norm::of_each_head`]: (.., heads, d) -> same shape.
    fn forward_each_head(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.gain.get(0)?;
        let normed = layer_norm(x, &first.ones_like()?, &first.zeros_like()?, self.eps)?;
        Ok(normed.broadcast_mul(&self.gain.to_dtype(normed.dtype())?)?)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match &self.bias {
            None => rms_norm(x, &self.gain, self.eps)?,
            Some(bias) => layer_norm(x, &self.gain, bias, self.eps)?,
        })
    }
}

/// Where tokens stand, and how far the rotary embeddings turn there.
pub struct At<'a> {
    /// One table per rotary embedding of the model.
    pub tables: &'a [Arc<RopeTable>],
    /// Position of the first token.
    pub start: usize,
}

impl Attention {
    /// Takes the layer's tensors under `prefix`.
    ///
    /// # Errors
    /// If one is missing.
    pub fn load(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let mut linear = |name: &str, bias| Linear::load(&format!("{prefix}.{name}"), bias, weights);
        let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| linear(name, config.bias.qkv));
        let (q, k, v) = (q?, k?, v?);
        let mut norm = |kind: QkNorm, name: &str, heads: usize| {
            let name = format!("{prefix}.{name}");
            match kind {
                QkNorm::EachHead => Norm::of_each_head(config, &name, heads, weights),
                QkNorm::Head | QkNorm::Projection => Norm::load(config, &name, weights),
            }
        };
        let mut norms = |kind| -> Result<_> {
            Ok((kind, [norm(kind, "q_norm", config.query_heads())?, norm(kind, "k_norm", config.key_heads())?]))
        };
        let qk_norm = config.qk_norm.map(&mut norms).transpose()?;
        let (o, extras) = output(config, layer, prefix, weights)?;
        let style = match config.positions {
            Positions::Rotary { style, .. } => style,
            Positions::Learned { .. } => RopeStyle::Half,
        };
        let wiring = Arc::new(config.wiring());
        Ok(Self { q, k, v, o, qk_norm, extras, wiring, layer: config.layers[layer], style, head_dim: config.head_dim })
    }

    /// The layer's output for its (normed) input: (B, T, E) -> (B, T, E).
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, x: Tensor, layer: usize, at: &At<'_>, attend: &mut dyn Attend) -> Result<Tensor> {
        let [q_norm, k_norm] = match &self.qk_norm {
            None => [None, None],
            Some((kind, [q, k])) => [Some((*kind, q)), Some((*kind, k))],
        };
        let mut heads = Heads {
            q: self.rotated(self.heads(self.q.forward(&x)?, q_norm)?, at)?,
            k: self.rotated(self.heads(self.k.forward(&x)?, k_norm)?, at)?,
            v: self.heads(self.v.forward(&x)?, None)?,
            lambda: self.extras.lambda(&x)?,
            sink: self.extras.sink().cloned(),
            gate: self.extras.gate(&x)?,
            wiring: &self.wiring,
            rule: self.layer.rule,
        };
        drop(x); // the rows of a long text are large, and attention needs room of its own
        let mixture = attend.attend(layer, &heads)?; // B,T,H,value width
        let gate = heads.gate.take();
        drop(heads);
        let mut finished = self.extras.finish(mixture)?; // B,T,H,value width
        if let Some(gate) = gate {
            finished = (&finished * gate.reshape(finished.shape())?)?;
        }
        let written = attend.written(layer, finished)?; // B,T,H,value width
        self.o.forward(&written.flatten_from(2)?)
    }

    /// A projection cut into heads, normed: (B, T, heads d) -> (B, T, heads, d).
    fn heads(&self, x: Tensor, norm: Option<(QkNorm, &Norm)>) -> Result<Tensor> {
        let (b, t, width) = x.dims3()?;
        let x = match norm {
            Some((QkNorm::Projection, norm)) => norm.forward(&x)?,
            _ => x,
        };
        let x = x.reshape((b, t, width / self.head_dim, self.head_dim))?; // B,T,heads,d
        match norm {
            Some((QkNorm::Head, norm)) => norm.forward(&x),
            Some((QkNorm::EachHead, norm)) => norm.forward_each_head(&x),
            _ => Ok(x),
        }
    }

    /// Queries or keys turned by their positions.
    fn rotated(&self, x: Tensor, at: &At<'_>) -> Result<Tensor> {
        match self.layer.rotary {
            None => Ok(x),
            Some(embedding) => Ok(rope(&x, &at.tables[embedding], self.style, at.start)?),
        }
    }
}
