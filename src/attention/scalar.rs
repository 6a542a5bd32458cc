//! Differential attention with one trainable lambda per layer ("simplified V2", Edifice `diff_transformer.ex`): queries and
//! keys are projected twice as wide, values are not, and one RMSNorm spans all heads.

use super::Wiring;
use candle_core::{Result, Tensor, D};

/// What a layer has beside its projections.
#[derive(Clone, Debug)]
pub struct ScalarDiff {
    /// lambda: (1).
    pub lambda: Tensor,
    /// Gain of the norm over the concatenated heads: (H d).
    pub gain: Tensor,
}

impl ScalarDiff {
    /// Added to the root mean square, not under the root as elsewhere.
    pub(crate) const EPS: f64 = 1e-6;

    /// Output head h subtracts query head h + H from h; their keys are key heads floor(h / rep) of either half, and they
    /// share value head floor(h / rep), where rep = heads / kv_heads.
    pub fn wiring(heads: usize, kv_heads: usize) -> Wiring {
        let rep = heads / kv_heads;
        let of = |f: &dyn Fn(usize) -> usize| (0..heads).map(f).collect::<Vec<_>>();
        Wiring {
            query: vec![of(&|h| h), of(&|h| h + heads)],
            key: vec![of(&|h| h / rep), of(&|h| h / rep + kv_heads)],
            value: (0..heads).map(|h| vec![h / rep]).collect(),
        }
    }

    /// RMSNorm over all heads of a token: (B, T, H, d) -> same shape.
    ///
    /// # Errors
    /// If the heads do not fit the gain.
    pub fn finish(&self, mixture: &Tensor) -> Result<Tensor> {
        let x = mixture.flatten_from(2)?; // B,T,H*d
        let rms = x.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
        x.broadcast_div(&(rms + Self::EPS)?)?.broadcast_mul(&self.gain)?.reshape(mixture.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::ScalarDiff;

    #[test]
    fn keys_are_doubled_and_values_are_not() {
        let w = ScalarDiff::wiring(4, 2);
        assert_eq!(w.key, [[0, 0, 1, 1], [2, 2, 3, 3]]);
        assert_eq!(w.query[1], [4, 5, 6, 7]);
        assert_eq!(w.value, [[0], [0], [1], [1]]);
    }
}
