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
        let mut qk_norm = None;
        if let Some(kind) = config.qk_norm {
            let heads = [("q", config.query_heads()), ("k", config.key_heads())];
            let [q, k] = heads.map(|(x, heads)| match kind {
                QkNorm::EachHead => Norm::of_each_head(config, &format!("{prefix}.{x}_norm"), heads, weights),
                QkNorm::Head | QkNorm::Projection => Norm::load(config, &format!("{prefix}.{x}_norm"), weights),
            });
            qk_norm = Some((kind, [q?, k?]));
        }
        Ok(Self { q: q?, k: k?, v: v?, qk_norm, head_dim: config.head_dim })
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
