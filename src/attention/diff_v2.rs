//! DIFF V2 (Microsoft, 2026, `multihead_flashdiffv2.py`): doubled query heads over shared keys and values, lambda per
//! token and head, no norm.

use super::Wiring;
use crate::ops::linear;
use candle_core::{Result, Tensor};

/// What a V2 layer has beside its projections.
#[derive(Clone, Debug)]
pub struct DiffV2 {
    /// lambda_proj: (H, E), no bias.
    pub lambda_proj: Tensor,
}

impl DiffV2 {
    /// Output head h subtracts query head 2h + 1 from 2h; both read key and value head floor(2h / rep), where
    /// rep = 2 heads / kv_heads, so a pair never straddles two groups.
    pub fn wiring(heads: usize, kv_heads: usize) -> Wiring {
        let rep = 2 * heads / kv_heads;
        let kv: Vec<usize> = (0..heads).map(|h| 2 * h / rep).collect();
        Wiring {
            query: vec![(0..heads).map(|h| 2 * h).collect(), (0..heads).map(|h| 2 * h + 1).collect()],
            key: vec![kv.clone(), kv.clone()],
            value: kv.into_iter().map(|i| vec![i]).collect(),
        }
    }

    /// lambda[t, h] = sigmoid(x_t . w_h) of the layer's (normed) input x (B, T, E): (B, T, H).
    ///
    /// # Errors
    /// If the widths differ.
    pub fn lambda(&self, x: &Tensor) -> Result<Tensor> {
        candle_nn::ops::sigmoid(&linear(x, &self.lambda_proj)?)
    }
}

#[cfg(test)]
mod tests {
    use super::DiffV2;

    #[test]
    fn both_maps_of_a_head_read_one_key_head() {
        let w = DiffV2::wiring(6, 2);
        assert_eq!(w.key[0], w.key[1]);
        assert_eq!(w.key[0], [0, 0, 0, 1, 1, 1]);
        assert_eq!(w.query[1], [1, 3, 5, 7, 9, 11]);
    }
}
