//! One layer of the decoder: attention and an MLP, each with its norms, on a residual stream.

use super::chunks::mlp_rows;
use super::config::Layer;
use super::latent::LatentProjections;
use super::mlp::FeedForward;
use super::names::LAYERS;
use super::projection::Projection;
use super::tensors::{NORM_AFTER_ATTENTION, NORM_AFTER_MLP, NORM_BEFORE_ATTENTION};
use super::{ModelConfig, NormKind, NormPlace, Positions, QkNorm, ResidualLayout, Weights};
use crate::attention::{Attend, Extras, Heads, Wiring};
use crate::kernels::{layer_norm, on_host, rms_norm, rope, RopeStyle, RopeTable};
use anyhow::Result;
use candle_core::Tensor;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct DecoderBlock {
    attention: Attention,
    mlp: FeedForward,
    attention_norms: Norms,
    mlp_norms: Norms,
    residual: ResidualLayout,
    /// Rows that pass through the MLP at once.
    mlp_rows: usize,
}

/// Positions of the tokens of a pass, with their rotary tables.
pub struct RotaryPositions<'a> {
    /// One table per rotary embedding of the model.
    pub tables: &'a [Arc<RopeTable>],
    /// Position of the first token.
    pub start: usize,
}

impl DecoderBlock {
    /// Prefix of the names of this layer's tensors.
    pub(super) fn prefix(layer: usize) -> String {
        format!("{LAYERS}{layer}.")
    }

    /// The part of the layer between the attention mixture and the residual stream.
    pub(super) fn output_path(&self) -> OutputPath {
        let Attention { o, extras, .. } = &self.attention;
        OutputPath { o: o.clone(), extras: extras.clone(), after: self.attention_norms.after.clone() }
    }

    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        let place = config.norm_place;
        let before = place.is_before();
        let mut norms = |before: Option<&str>, after: &str| -> Result<Norms> {
            let mut norm = |name: &str| Norm::load(config, &format!("{prefix}.{name}"), weights);
            Ok(Norms {
                before: before.map(&mut norm).transpose()?,
                after: place.is_after().then(|| norm(after)).transpose()?,
                of_sum: (place == NormPlace::Sum).then(|| norm(after)).transpose()?,
            })
        };
        let attention_norms = norms(before.then_some(NORM_BEFORE_ATTENTION), NORM_AFTER_ATTENTION)?;
        let own = before && config.residual != ResidualLayout::OneNorm;
        let mlp_norms = norms(own.then_some(config.norm_before_mlp()), NORM_AFTER_MLP)?;
        let attention = Attention::load(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let mlp = FeedForward::load(config, layer, &format!("{prefix}.mlp"), weights)?;
        let mlp_rows = mlp_rows(config.widest_ffn());
        Ok(Self { attention, mlp, attention_norms, mlp_norms, residual: config.residual, mlp_rows })
    }

    /// (B, T, E) -> (B, T, E).
    pub(super) fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        at: &RotaryPositions<'_>,
        attend: &mut dyn Attend,
    ) -> Result<Tensor> {
        let mut attention = |x: Tensor| {
            let y = self.attention.forward(x, layer, at, attend)?;
            attend.attention_output(layer, &y)?;
            Ok(y)
        };
        if let (ResidualLayout::OneNorm, Some(norm)) = (self.residual, &self.attention_norms.before) {
            let normed = norm.forward(x)?;
            let attended = attention(normed.clone())?;
            return Ok(((attended + self.mlp_of_needed_rows(attend.needed(layer), &normed)?)? + x)?);
        }
        let attended = self.attention_norms.around(x, attention)?;
        if self.residual != ResidualLayout::Serial {
            return Ok(((attended + self.mlp_of_needed_rows(attend.needed(layer), x)?)? + x)?);
        }
        let x = normed(&self.attention_norms.of_sum, (x + attended)?)?;
        let mlp = self.mlp_of_needed_rows(attend.needed(layer), &x)?;
        normed(&self.mlp_norms.of_sum, (x + mlp)?)
    }

    /// Output of the MLP for the rows that are needed, zeros in the others: (B, T, E) -> (B, T, E).
    fn mlp_of_needed_rows(&self, needed: Option<&[bool]>, x: &Tensor) -> Result<Tensor> {
        let Some(needed) = needed else { return self.mlp(x) };
        let rows: Vec<u32> = (0..).zip(needed).filter(|(_, &needed)| needed).map(|(row, _)| row).collect();
        let none = x.zeros_like()?; // B,T,E
        if rows.is_empty() {
            return Ok(none);
        }
        let rows = Tensor::new(rows, x.device())?;
        let mlp = self.mlp(&x.index_select(&rows, 1)?)?; // B,rows,E
        Ok(none.index_add(&rows, &mlp, 1)?) // B,T,E
    }

    /// Output of the MLP, computed for some rows at a time: rows are independent, and the hidden layer of a
    /// long text would be the largest tensor of the pass.
    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let t = x.dim(1)?;
        let rows = |start: usize| -> Result<Tensor> {
            let x = x.narrow(1, start, self.mlp_rows.min(t - start))?.contiguous()?; // B,rows,E
            self.mlp_norms.around(&x, |x| self.mlp.forward(&x))
        };
        if t <= self.mlp_rows {
            return rows(0);
        }
        let parts = (0..t).step_by(self.mlp_rows).map(rows).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::cat(&parts, 1)?) // B,T,E
    }
}

/// The part of a layer between the attention mixture and the residual stream.
pub(super) struct OutputPath {
    /// The output projection.
    pub(super) o: Projection,
    /// Tensors that the attention variant applies before it.
    pub(super) extras: Extras,
    /// The norm after attention, in architectures that have one.
    pub(super) after: Option<Norm>,
}

impl OutputPath {
    /// Takes the tensors of this part from `weights`.
    pub(super) fn load(config: &ModelConfig, layer: usize, weights: &mut Weights) -> Result<Self> {
        let prefix = format!("{LAYERS}{layer}");
        let (o, extras) = output(config, layer, &format!("{prefix}.self_attn"), weights)?;
        let after = config
            .norm_place
            .is_after()
            .then(|| Norm::load(config, &format!("{prefix}.{}", NORM_AFTER_ATTENTION), weights));
        Ok(Self { o, extras, after: after.transpose()? })
    }

    /// Moves the matrix to the host, where single rows are decomposed.
    pub(super) fn on_host(self) -> Result<Self> {
        Ok(Self { o: Projection { weight: on_host(&self.o.weight)?, ..self.o }, ..self })
    }
}

/// Takes the output projection of an attention layer and the tensors that its variant applies before it.
fn output(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<(Projection, Extras)> {
    let mut o =
        Projection::load(&format!("{prefix}.o_proj"), config.bias.out, weights)?.scaled(config.residual_scale)?;
    if let Some(latent) = config.latent {
        o = latent.padded_output(o, config.head_dim)?;
    }
    let device = weights.placement().device.clone();
    let norm_eps = config.head_norm_eps.unwrap_or(config.variant.head_norm_eps(config.norm_eps));
    let mut take = |name: &str| weights.take(&format!("{prefix}.{name}"));
    let extras = Extras::load(&config.variant, layer, config.layer_sizes(), norm_eps, &device, &mut take)?;
    Ok((o, extras))
}

/// The norms around a sublayer.
#[derive(Clone)]
pub(super) struct Norms {
    before: Option<Norm>,
    after: Option<Norm>,
    /// Norm of the residual stream to which the output has been added.
    of_sum: Option<Norm>,
}

impl Norms {
    /// Output of a sublayer with its norms: the term added to the residual stream.
    fn around(&self, x: &Tensor, sublayer: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let y = sublayer(normed(&self.before, x.clone())?)?;
        normed(&self.after, y)
    }
}

/// Applies a norm if there is one.
pub(super) fn normed(norm: &Option<Norm>, x: Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(&x),
        None => Ok(x),
    }
}

#[derive(Clone)]
pub(super) struct Norm {
    pub(super) gain: Tensor,
    pub(super) bias: Option<Tensor>,
    pub(super) eps: f64,
}

impl Norm {
    pub(super) fn load(config: &ModelConfig, name: &str, weights: &mut Weights) -> Result<Self> {
        let gain = weights.take(&format!("{name}.weight"))?;
        let gain = if config.norm == NormKind::RmsPlusOne { (gain + 1.0)? } else { gain };
        let bias = match config.norm {
            NormKind::Layer => Some(weights.take(&format!("{name}.bias"))?),
            NormKind::LayerGain => Some(gain.zeros_like()?),
            NormKind::Rms | NormKind::RmsPlusOne => None,
        };
        Ok(Self { gain, bias, eps: config.norm_eps })
    }

    /// One LayerNorm per head, without bias: gains (heads, d).
    fn of_each_head(config: &ModelConfig, name: &str, heads: usize, weights: &mut Weights) -> Result<Self> {
        let gains =
            (0..heads).map(|head| weights.take(&format!("{name}.{head}.weight"))).collect::<Result<Vec<_>>>()?;
        Ok(Self { gain: Tensor::stack(&gains, 0)?, bias: None, eps: config.norm_eps })
    }

    /// Applies the norms of [`Norm::of_each_head`]: (.., heads, d) -> same shape.
    fn forward_each_head(&self, x: &Tensor) -> Result<Tensor> {
        let first = self.gain.get(0)?;
        let normed = layer_norm(x, &first.ones_like()?, &first.zeros_like()?, self.eps)?;
        Ok(normed.broadcast_mul(&self.gain.to_dtype(normed.dtype())?)?)
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match &self.bias {
            None => rms_norm(x, &self.gain, self.eps)?,
            Some(bias) => layer_norm(x, &self.gain, bias, self.eps)?,
        })
    }
}

/// One attention layer: projections, wiring and the tensors of its variant.
#[derive(Clone)]
pub struct Attention {
    inputs: HeadInputs,
    o: Projection,
    extras: Extras,
    wiring: Arc<Wiring>,
    layer: Layer,
    style: RopeStyle,
}

/// Projections that make queries, keys and values.
#[derive(Clone)]
enum HeadInputs {
    /// One for each of them.
    Direct(DirectProjections),
    /// Through vectors of low rank.
    Latent(LatentProjections),
}

/// One projection each for queries, keys and values.
#[derive(Clone)]
struct DirectProjections {
    q: Projection,
    k: Projection,
    v: Projection,
    qk_norm: Option<(QkNorm, [Norm; 2])>,
    head_dim: usize,
}

impl Attention {
    /// Takes the layer's tensors under `prefix`.
    pub fn load(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let inputs = match config.latent {
            None => HeadInputs::Direct(DirectProjections::load(config, prefix, weights)?),
            Some(latent) => HeadInputs::Latent(LatentProjections::load(config, latent, prefix, weights)?),
        };
        let (o, extras) = output(config, layer, prefix, weights)?;
        let style = match config.positions {
            Positions::Rotary { style, .. } => style,
            Positions::Learned { .. } | Positions::Biases => RopeStyle::Half,
        };
        let wiring = Arc::new(config.wiring());
        Ok(Self { inputs, o, extras, wiring, layer: config.layers[layer], style })
    }

    /// Output of the layer for its normed input: (B, T, E) -> (B, T, E).
    pub fn forward(
        &self,
        x: Tensor,
        layer: usize,
        at: &RotaryPositions<'_>,
        attend: &mut dyn Attend,
    ) -> Result<Tensor> {
        let [q, k, v] = match &self.inputs {
            HeadInputs::Direct(projections) => projections.forward(&x)?,
            HeadInputs::Latent(projections) => projections.forward(&x)?,
        };
        let mut heads = Heads {
            q: self.rotated(q, at)?,
            k: self.rotated(k, at)?,
            v,
            lambda: self.extras.lambda(&x)?,
            sink: self.extras.sink().cloned(),
            gate: self.extras.gate(&x)?,
            wiring: &self.wiring,
            rule: self.layer.rule,
            products: self.o.products,
        };
        drop(x); // frees memory before attention: the rows of a long text are large
        heads = attend.head_inputs(layer, heads)?;
        let mixture = attend.attend(layer, &heads)?; // B,T,H,value width
        let gate = heads.gate.take();
        drop(heads);
        let mut finished = self.extras.finish(mixture)?; // B,T,H,value width
        if let Some(gate) = gate {
            finished = (&finished * gate.reshape(finished.shape())?)?;
        }
        let written = attend.head_outputs(layer, finished)?; // B,T,H,value width
        self.o.forward(&written.flatten_from(2)?)
    }

    /// Applies the rotary embedding to queries or keys.
    fn rotated(&self, x: Tensor, at: &RotaryPositions<'_>) -> Result<Tensor> {
        match self.layer.rotary {
            None => Ok(x),
            Some(embedding) => Ok(rope(&x, &at.tables[embedding], self.style, at.start)?),
        }
    }
}

impl DirectProjections {
    fn load(config: &ModelConfig, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let mut linear = |name: &str| Projection::load(&format!("{prefix}.{name}"), config.bias.qkv, weights);
        let (q, k, v) = (linear("q_proj")?, linear("k_proj")?, linear("v_proj")?);
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
        Ok(Self { q, k, v, qk_norm, head_dim: config.head_dim })
    }

    /// Queries, keys and values: (B, T, E) -> (B, T, heads, d) each.
    fn forward(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let [q_norm, k_norm] = match &self.qk_norm {
            None => [None, None],
            Some((kind, [q, k])) => [Some((*kind, q)), Some((*kind, k))],
        };
        let q = self.heads(self.q.forward(x)?, q_norm)?;
        let k = self.heads(self.k.forward(x)?, k_norm)?;
        Ok([q, k, self.heads(self.v.forward(x)?, None)?])
    }

    /// Splits a projection into heads and norms them: (B, T, heads d) -> (B, T, heads, d).
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
}
