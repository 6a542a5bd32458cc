//! The slow, obvious way: whole maps, plain loops, `f64` sums. The reference for the fast paths, for ever.

use super::{Attend, Heads};
use candle_core::{Result, Tensor};

/// The maps of one output head.
#[derive(Clone, Debug)]
pub struct DenseHead {
    /// Softmax map of each j: T x T, row-major, zero above the diagonal.
    pub maps: Vec<Vec<f64>>,
    /// The effective map, sum over j of mix_j * map_j: T x T.
    pub effective: Vec<f64>,
}

/// Computes whole maps and keeps them. O(T^2) per head: for tests and short texts.
#[derive(Default)]
pub struct Dense {
    /// `kept[layer][batch][head]`.
    pub kept: Vec<Vec<Vec<DenseHead>>>,
    /// Residual streams by site, as [`Attend::residual`] passes them.
    pub residuals: Vec<Tensor>,
}

impl Attend for Dense {
    fn attend(&mut self, _layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, _, d) = heads.q.dims4()?;
        let scale = f64::from(heads.scale()?);
        let q = heads.q.to_dtype(candle_core::DType::F64)?;
        let (q, k, v) = (nested(&q)?, nested(&heads.k)?, nested(&heads.v)?);
        let lambda = heads.lambda.as_ref().map(|l| l.flatten_all()?.to_vec1::<f32>()).transpose()?;
        let wiring = heads.wiring;
        let mut out = Vec::with_capacity(batch * t * wiring.heads() * wiring.value_slices() * d);
        let mut layer_maps = Vec::new();
        for b in 0..batch {
            let mix = |h: usize, j: usize, query: usize| match (&lambda, j) {
                (_, 0) => 1.0,
                (Some(l), _) if l.len() == 1 => -f64::from(l[0]),
                (Some(l), _) => -f64::from(l[(b * t + query) * wiring.heads() + h]),
                (None, _) => unreachable!("a second map has a lambda"),
            };
            let maps: Vec<DenseHead> = (0..wiring.heads())
                .map(|h| {
                    let maps: Vec<Vec<f64>> = (0..wiring.maps())
                        .map(|j| softmax_map(&q[b], wiring.query[j][h], &k[b], wiring.key[j][h], scale))
                        .collect();
                    let effective = (0..t * t).map(|i| (0..maps.len()).map(|j| mix(h, j, i / t) * maps[j][i]).sum());
                    DenseHead { effective: effective.collect(), maps }
                })
                .collect();
            for query in 0..t {
                for (h, head) in maps.iter().enumerate() {
                    for &slice in &wiring.value[h] {
                        let weigh =
                            |c: usize| (0..=query).map(|s| head.effective[query * t + s] * v[b][s][slice][c]).sum();
                        out.extend((0..d).map(|c| -> f64 { weigh(c) }).map(|x| x as f32));
                    }
                }
            }
            layer_maps.push(maps);
        }
        self.kept.push(layer_maps);
        Tensor::from_vec(out, (batch, t, wiring.heads(), wiring.value_slices() * d), heads.q.device())
    }

    fn residual(&mut self, _site: usize, x: &Tensor) -> Result<()> {
        self.residuals.push(x.clone());
        Ok(())
    }
}

type Nested = Vec<Vec<Vec<Vec<f64>>>>; // b, t, head, d

fn nested(x: &Tensor) -> Result<Nested> {
    let x = x.to_dtype(candle_core::DType::F64)?;
    (0..x.dim(0)?).map(|b| x.get(b)?.to_vec3::<f64>()).collect()
}

fn softmax_map(q: &[Vec<Vec<f64>>], q_head: usize, k: &[Vec<Vec<f64>>], k_head: usize, scale: f64) -> Vec<f64> {
    let t = q.len();
    let mut map = vec![0.0; t * t];
    for query in 0..t {
        let logit =
            |s: usize| -> f64 { scale * q[query][q_head].iter().zip(&k[s][k_head]).map(|(a, b)| a * b).sum::<f64>() };
        let logits: Vec<f64> = (0..=query).map(logit).collect();
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|x| (x - largest).exp()).sum();
        for (s, x) in logits.iter().enumerate() {
            map[query * t + s] = (x - largest).exp() / total;
        }
    }
    map
}
