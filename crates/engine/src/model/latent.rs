//! Queries, keys and values of latent attention (DeepSeek, arXiv 2405.04434), as attention sees them: expanded to heads.

use super::config::Latent;
use super::linear::{Norm, Projection};
use super::{ModelConfig, Weights};
use anyhow::Result;
use candle_core::{Tensor, D};

/// Epsilon of the norms of the vectors of low rank, whatever that of the other norms is.
const EPS: f64 = 1e-6;

/// Projections to vectors of low rank and from there to heads.
///
/// The rotated channels come first in a head here and last in the files. Products of queries and keys do not depend on the
/// order.
#[derive(Clone)]
pub(super) struct LatentProjections {
    /// To the vector of the queries (rank, E), with its norm.
    q_down: Option<(Projection, Norm)>,
    /// Queries of all heads: (H d, rank or E).
    q: Projection,
    /// To the vector of keys and values and the rotated channels of the key: (rank + rotated, E).
    kv_down: Projection,
    kv_norm: Norm,
    /// Other channels of the keys, and values: (H (d - rotated + value width), rank).
    kv: Projection,
    latent: Latent,
    head_dim: usize,
}

impl LatentProjections {
    pub(super) fn load(config: &ModelConfig, latent: Latent, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let named = |name: &str| format!("{prefix}.{name}");
        let q_down = Projection::find(&named("q_a_proj"), weights)?;
        let q_norm = Norm::find(config, &named("q_a_layernorm"), weights)?;
        Ok(Self {
            q_down: q_down.zip(q_norm.map(|norm| Norm { eps: EPS, ..norm })),
            q: Projection::load(&named(if latent.query_rank.is_some() { "q_b_proj" } else { "q_proj" }), weights)?,
            kv_down: Projection::load(&named("kv_a_proj_with_mqa"), weights)?,
            kv_norm: Norm { eps: EPS, ..Norm::load(config, &named("kv_a_layernorm"), weights)? },
            kv: Projection::load(&named("kv_b_proj"), weights)?,
            latent,
            head_dim: config.head_dim,
        })
    }

    /// Queries, keys and values, filled up with zeros: (B, T, E) -> (B, T, H, d) each.
    pub(super) fn forward(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let Latent { rank, rotated, value_dim, .. } = self.latent;
        let (b, t, _) = x.dims3()?;
        let d = self.head_dim;
        let plain = self.head_dim - rotated;
        let q = match &self.q_down {
            None => self.q.forward(x)?,
            Some((down, norm)) => self.q.forward(&norm.forward(&down.forward(x)?)?)?,
        };
        let q = q.reshape((b, t, (), d))?; // B,T,H,d
        let q = Tensor::cat(&[q.narrow(3, plain, rotated)?, q.narrow(3, 0, plain)?], 3)?; // B,T,H,d

        let down = self.kv_down.forward(x)?; // B,T,rank + rotated
        let of_all_heads = down.narrow(2, rank, rotated)?.unsqueeze(2)?; // B,T,1,rotated
        let kv = self.kv.forward(&self.kv_norm.forward(&down.narrow(2, 0, rank)?.contiguous()?)?)?;
        let kv = kv.reshape((b, t, (), plain + value_dim))?; // B,T,H,plain + value width
        let of_all_heads = of_all_heads.broadcast_as((b, t, kv.dim(2)?, rotated))?;
        let k = Tensor::cat(&[of_all_heads, kv.narrow(3, 0, plain)?], 3)?; // B,T,H,d
        let v = kv.narrow(3, plain, value_dim)?.pad_with_zeros(3, 0, d - value_dim)?; // B,T,H,d
        Ok([q.contiguous()?, k.contiguous()?, v.contiguous()?])
    }
}

impl Latent {
    /// The output projection (E, H value width) with columns of zeros for the channels that values are filled up with:
    /// (E, H d).
    pub(super) fn padded_output(self, o: Projection, head_dim: usize) -> Result<Projection> {
        let (e, columns) = o.weight.dims2()?;
        let by_head = o.weight.reshape((e, columns / self.value_dim, self.value_dim))?; // E,H,value width
        let padded = by_head.pad_with_zeros(D::Minus1, 0, head_dim - self.value_dim)?; // E,H,d
        Ok(Projection { weight: padded.flatten_from(1)?.contiguous()?, ..o })
    }
}
