//! One attention layer: projections, wiring and the tensors of its variant.

use super::config::{Layer, PositionScale, Positions, QkNorm};
use super::latent::LatentProjections;
use super::linear::{Norm, Projection};
use super::{ModelConfig, Weights};
use crate::attention::{Attend, Extras, Heads, Wiring};
use crate::kernels::{rope, RopeStyle, RopeTable};
use anyhow::Result;
use candle_core::Tensor;
use std::sync::Arc;

/// Positions of the tokens of a pass, with their rotary tables.
pub struct RotaryPositions<'a> {
    /// One table per rotary embedding of the model.
    pub tables: &'a [Arc<RopeTable>],
    /// Position of the first token.
    pub start: usize,
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
    position_scale: Option<PositionScale>,
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
    q_norm: Option<HeadsNorm>,
    k_norm: Option<HeadsNorm>,
    head_dim: usize,
}

/// Norm of queries or keys.
#[derive(Clone)]
struct HeadsNorm {
    kind: QkNorm,
    norm: Norm,
}

impl Attention {
    /// Takes the layer's tensors under `prefix`.
    pub fn load(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let inputs = match config.latent {
            None => HeadInputs::Direct(DirectProjections::load(config, prefix, weights)?),
            Some(latent) => HeadInputs::Latent(LatentProjections::load(config, latent, prefix, weights)?),
        };
        let (o, extras) = Self::load_output(config, layer, prefix, weights)?;
        let style = match config.positions {
            Positions::Rotary { style, .. } => style,
            Positions::Learned { .. } | Positions::Biases => RopeStyle::Half,
        };
        let wiring = Arc::new(config.wiring());
        let layer = config.layers[layer];
        Ok(Self { inputs, o, extras, wiring, layer, style, position_scale: config.position_scale })
    }

    /// Takes the output projection and the tensors that the variant applies before it.
    pub(super) fn load_output(
        config: &ModelConfig,
        layer: usize,
        prefix: &str,
        weights: &mut Weights,
    ) -> Result<(Projection, Extras)> {
        let mut o = Projection::load(&format!("{prefix}.o_proj"), weights)?.scaled(config.residual_scale)?;
        if let Some(latent) = config.latent {
            o = latent.padded_output(o, config.head_dim)?;
        }
        let device = weights.placement().device.clone();
        let norm_eps = config.head_norm_eps.unwrap_or(config.variant.head_norm_eps(config.norm_eps));
        let extras = Extras::load(&config.variant, layer, config.layer_sizes(), norm_eps, &device, |name: &str| {
            weights.take(&format!("{prefix}.{name}"))
        })?;
        Ok((o, extras))
    }

    pub(super) fn output(&self) -> (&Projection, &Extras) {
        (&self.o, &self.extras)
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
            q: self.scaled(self.rotated(q, at)?, at.start)?,
            k: self.rotated(k, at)?,
            v,
            lambda: self.extras.lambda(&x)?,
            sink: self.extras.sink().cloned(),
            gate: self.extras.gate(&x)?,
            wiring: &self.wiring,
            rule: self.layer.rule,
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

    /// Scales queries (B, T, heads, d) by their positions, the first of which is `start`.
    fn scaled(&self, q: Tensor, start: usize) -> Result<Tensor> {
        let t = q.dim(1)?;
        let Some(PositionScale { beta, ctx_tok }) = self.position_scale.filter(|scale| start + t > scale.ctx_tok)
        else {
            return Ok(q);
        };
        let mut factors = Vec::with_capacity(t);
        for position in start..start + t {
            factors.push((1.0 + beta * ((position / ctx_tok) as f64).ln_1p()) as f32);
        }
        let factors = Tensor::from_vec(factors, (1, t, 1, 1), q.device())?.to_dtype(q.dtype())?;
        Ok(q.broadcast_mul(&factors)?)
    }
}

impl DirectProjections {
    fn load(config: &ModelConfig, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let [q, k, v] = ["q", "k", "v"].map(|x| Projection::load(&format!("{prefix}.{x}_proj"), weights));
        let q_norm = HeadsNorm::load(config, &format!("{prefix}.q_norm"), config.query_heads(), weights)?;
        let k_norm = HeadsNorm::load(config, &format!("{prefix}.k_norm"), config.key_heads(), weights)?;
        Ok(Self { q: q?, k: k?, v: v?, q_norm, k_norm, head_dim: config.head_dim })
    }

    /// Queries, keys and values: (B, T, E) -> (B, T, heads, d) each.
    fn forward(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let q = self.heads(self.q.forward(x)?, self.q_norm.as_ref())?;
        let k = self.heads(self.k.forward(x)?, self.k_norm.as_ref())?;
        Ok([q, k, self.heads(self.v.forward(x)?, None)?])
    }

    /// Splits a projection into heads and norms them: (B, T, heads d) -> (B, T, heads, d).
    fn heads(&self, x: Tensor, norm: Option<&HeadsNorm>) -> Result<Tensor> {
        let (b, t, width) = x.dims3()?;
        let x = match norm {
            Some(HeadsNorm { kind: QkNorm::Projection, norm }) => norm.forward(&x)?,
            _ => x,
        };
        let x = x.reshape((b, t, width / self.head_dim, self.head_dim))?; // B,T,heads,d
        match norm {
            Some(HeadsNorm { kind: QkNorm::Head, norm }) => norm.forward(&x),
            Some(HeadsNorm { kind: QkNorm::EachHead, norm }) => norm.forward_each_head(&x),
            _ => Ok(x),
        }
    }
}

impl HeadsNorm {
    /// Takes the norm called `name`, if the model has such norms.
    fn load(config: &ModelConfig, name: &str, heads: usize, weights: &mut Weights) -> Result<Option<Self>> {
        let Some(kind) = config.qk_norm else { return Ok(None) };
        let norm = match kind {
            QkNorm::EachHead => Norm::of_each_head(config, name, heads, weights)?,
            QkNorm::Head | QkNorm::Projection => Norm::load(config, name, weights)?,
        };
        Ok(Some(Self { kind, norm }))
    }
}
