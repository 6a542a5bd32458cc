//! DIFF V1, the Differential Transformer (Ye et al., ICLR 2025): two maps, one learned lambda per layer, a norm per head.

use super::Wiring;
use crate::ops::{linear, rms_norm};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

/// Which raw heads form a differential head, and which key head each of its maps reads under grouped keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Heads i and i + H: Hugging Face `modeling_diffllama.py`.
    Halves,
    /// Heads 2i and 2i + 1, map j of head i reads key head 2 floor(i / rep) + j: Microsoft's
    /// `multihead_flashdiff_1.py`, the canonical V1.
    Adjacent,
    /// Heads 2i and 2i + 1, raw head a reads key head floor(a / rep): Microsoft's `multihead_diffattn.py`, a different
    /// function from the flash file as soon as rep > 1.
    AdjacentNaive,
}

impl Pairing {
    /// The wiring of `heads` differential heads over `kv_heads` raw key heads (both maps counted).
    pub fn wiring(self, heads: usize, kv_heads: usize) -> Wiring {
        let rep = 2 * heads / kv_heads;
        let per_head = |f: &dyn Fn(usize) -> usize| (0..heads).map(f).collect::<Vec<_>>();
        let (query, key) = match self {
            Self::Halves => (
                [per_head(&|h| h), per_head(&|h| h + heads)],
                [per_head(&|h| h / rep), per_head(&|h| (h + heads) / rep)],
            ),
            Self::Adjacent => (
                [per_head(&|h| 2 * h), per_head(&|h| 2 * h + 1)],
                [per_head(&|h| h / rep * 2), per_head(&|h| h / rep * 2 + 1)],
            ),
            Self::AdjacentNaive => (
                [per_head(&|h| 2 * h), per_head(&|h| 2 * h + 1)],
                [per_head(&|h| 2 * h / rep), per_head(&|h| (2 * h + 1) / rep)],
            ),
        };
        // Both Microsoft files group V as (kv_heads / 2) heads of width 2d: slices 2g and 2g + 1 of group g. Hugging
        // Face repeats V like K and then joins its halves, so each slice sits beside the key head of its map.
        let value = (0..heads)
            .map(|h| match self {
                Self::Halves => vec![key[0][h], key[1][h]],
                Self::Adjacent | Self::AdjacentNaive => vec![h / rep * 2, h / rep * 2 + 1],
            })
            .collect();
        Wiring { query: query.into(), key: key.into(), value }
    }
}

/// lambda_init = 0.8 - 0.6 exp(-0.3 l) for the 0-based layer l (paper section 2.1, `lambda_init_fn`).
pub fn lambda_init(layer: usize) -> f64 {
    0.8 - 0.6 * (-0.3 * layer as f64).exp()
}

/// What a V1 layer has beside its projections.
#[derive(Clone, Debug)]
pub struct DiffV1 {
    /// lambda_q1, lambda_k1, lambda_q2, lambda_k2: (d) each.
    pub vectors: [Tensor; 4],
    /// See [`lambda_init`].
    pub lambda_init: f64,
    /// Gain of the per-head norm (2d); ones where the layout has none.
    pub gain: Tensor,
    /// Epsilon of the per-head norm.
    pub eps: f64,
}

impl DiffV1 {
    /// Names of the lambda vectors, in the order of [`DiffV1::vectors`].
    pub const VECTORS: [&'static str; 4] = ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"];

    /// lambda = exp(q1 . k1) - exp(q2 . k2) + lambda_init, one number per layer: (1).
    ///
    /// # Errors
    /// If the vectors differ in length.
    pub fn lambda(&self) -> Result<Tensor> {
        Self::lambda_of(&self.vectors, self.lambda_init)
    }

    /// As [`DiffV1::lambda`], of vectors alone.
    ///
    /// # Errors
    /// If the vectors differ in length.
    pub fn lambda_of([q1, k1, q2, k2]: &[Tensor; 4], lambda_init: f64) -> Result<Tensor> {
        let exp_dot = |q: &Tensor, k: &Tensor| linear(&q.unsqueeze(0)?, &k.unsqueeze(0)?)?.flatten_all()?.exp();
        (exp_dot(q1, k1)? - exp_dot(q2, k2)?)? + lambda_init
    }

    /// RMSNorm over the value width of each head, times gain, times (1 - lambda_init): (B, T, H, 2d) -> same shape.
    ///
    /// # Errors
    /// If the width does not fit the gain.
    pub fn finish(&self, mixture: &Tensor) -> Result<Tensor> {
        rms_norm(mixture, &self.finish_gain()?, self.eps)
    }

    /// What [`DiffV1::finish`] multiplies each channel of a head with after the norm: (2d).
    ///
    /// # Errors
    /// Never of a float tensor.
    pub fn finish_gain(&self) -> Result<Tensor> {
        self.gain.affine(1.0 - self.lambda_init, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambda_init_follows_the_papers_table() {
        for (layer, want) in [(0, 0.2), (1, 0.3555), (3, 0.5561), (11, 0.7779), (27, 0.7998)] {
            assert!((lambda_init(layer) - want).abs() < 5e-5, "layer {layer}");
        }
    }

    #[test]
    fn the_three_pairings_differ_in_the_keys_their_maps_read() {
        let keys = |pairing: Pairing| pairing.wiring(4, 4).key;
        assert_eq!(keys(Pairing::Halves), [[0, 0, 1, 1], [2, 2, 3, 3]]);
        assert_eq!(keys(Pairing::Adjacent), [[0, 0, 2, 2], [1, 1, 3, 3]]);
        assert_eq!(keys(Pairing::AdjacentNaive), [[0, 1, 2, 3], [0, 1, 2, 3]]);
        assert_eq!(Pairing::Adjacent.wiring(4, 8), Pairing::AdjacentNaive.wiring(4, 8), "equal without grouping");
    }
}
