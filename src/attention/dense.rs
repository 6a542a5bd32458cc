//! Reference implementation: whole maps, plain loops, `f64` sums. The fast implementations are tested against it.

use super::{Attend, Heads, LogitRule, Quantise, Removal, ResolvedTreatment};
use crate::kernels::quant::Scope;
use candle_core::{DType, Device, Result, Tensor};

/// The maps of one output head.
#[derive(Clone, Debug)]
pub struct DenseHead {
    /// Scaled logits of each map j, quantised if requested, -inf where masked: T x T, row-major, zero above the
    /// diagonal.
    pub logits: Vec<Vec<f64>>,
    /// Softmax map of each j: T x T, row-major, zero above the diagonal.
    pub maps: Vec<Vec<f64>>,
    /// The effective map, sum over j of mix_j * map_j: T x T.
    pub effective: Vec<f64>,
}

/// Computes whole maps and keeps them. O(T^2) per head, for tests and short texts.
#[derive(Default)]
pub struct Dense {
    /// `kept[layer][batch][head]`.
    pub kept: Vec<Vec<Vec<DenseHead>>>,
    /// Residual streams by site, as [`Attend::residual`] passes them.
    pub residuals: Vec<Tensor>,
    /// Treatment of the attention.
    pub treated: ResolvedTreatment,
}

impl Attend for Dense {
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        match self.treated.quantise_qk_in(layer) {
            None => Ok(heads),
            Some(by) => by.of_text(layer, heads),
        }
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, _, d) = heads.q.dims4()?;
        let (q, k, v) = (nested(&heads.q)?, nested(&heads.k)?, nested(&heads.v)?);
        let (scalars, wiring) = (heads.scalars()?, heads.wiring);
        let mut out = Vec::with_capacity(batch * t * wiring.heads() * wiring.value_slices() * d);
        let mut layer_maps = Vec::new();
        for b in 0..batch {
            let mix = |h: usize, j: usize, query: usize| match j {
                0 => 1.0,
                _ => -f64::from(scalars.lambda(b * t + query, h)),
            };
            // logits[h][j]: T x T
            let mut logits: Vec<Vec<Vec<f64>>> = (0..wiring.heads())
                .map(|h| {
                    let of_map = |j: usize| logit_map(&q[b], wiring.query[j][h], &k[b], wiring.key[j][h], &heads.rule);
                    (0..wiring.maps()).map(of_map).collect()
                })
                .collect();
            let treated = &self.treated;
            let masked =
                |h: usize, i: usize| i / t != i % t && loses(treated, Removal::Mask, (layer, h), (i / t, i % t));
            if let Some(quantise) = treated.quantise_in(layer) {
                quantise_layer(quantise, layer, t, &heads.rule, masked, &mut logits);
            }
            for (h, maps) in logits.iter_mut().enumerate() {
                for i in (0..t * t).filter(|&i| masked(h, i)) {
                    maps.iter_mut().for_each(|map| map[i] = f64::NEG_INFINITY);
                }
            }
            let head = |(h, logits): (usize, Vec<Vec<f64>>)| {
                let sink = |j: usize| scalars.sink(wiring.query[j][h]).map(f64::from);
                let map = |(j, logits): (usize, &Vec<f64>)| softmax_map(logits, t, &heads.rule, sink(j));
                let mut maps: Vec<Vec<f64>> = logits.iter().enumerate().map(map).collect();
                for i in (0..t * t).filter(|i| loses(treated, Removal::Silence, (layer, h), (i / t, i % t))) {
                    maps.iter_mut().for_each(|map| map[i] = 0.0);
                }
                let effective = (0..t * t).map(|i| (0..maps.len()).map(|j| mix(h, j, i / t) * maps[j][i]).sum());
                DenseHead { effective: effective.collect(), maps, logits }
            };
            let maps: Vec<DenseHead> = logits.into_iter().enumerate().map(head).collect();
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
        let shape = (batch, t, wiring.heads(), wiring.value_slices() * d);
        Tensor::from_vec(out, shape, heads.q.device())?.to_dtype(heads.v.dtype())
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let (_, t, _, width) = heads.dims4()?;
        let mut written = heads;
        for replaced in self.treated.replaced.iter().filter(|replaced| replaced.layer == layer) {
            let zeros = vec![0.0; width];
            let output = if replaced.output.is_empty() { zeros } else { replaced.output.clone() };
            let output = Tensor::from_vec(output, (1, 1, 1, width), written.device())?.to_dtype(written.dtype())?;
            for row in (0..t).filter(|row| replaced.rows.iter().any(|rows| rows.contains(row))) {
                let of_all = output.repeat((written.dim(0)?, 1, 1, 1))?; // B,1,1,value width
                let head = replaced.head;
                written =
                    written.slice_assign(&[0..written.dim(0)?, row..row + 1, head..head + 1, 0..width], &of_all)?;
            }
        }
        Ok(written)
    }

    fn residual(&mut self, _site: usize, x: &Tensor) -> Result<()> {
        self.residuals.push(x.clone());
        Ok(())
    }
}

type Nested = Vec<Vec<Vec<Vec<f64>>>>; // b, t, head, d

fn nested(x: &Tensor) -> Result<Nested> {
    let x = x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
    (0..x.dim(0)?).map(|b| x.get(b)?.to_vec3::<f64>()).collect()
}

/// Scaled, capped and biased logits of visible keys, zero elsewhere: T x T.
fn logit_map(q: &[Vec<Vec<f64>>], q_head: usize, k: &[Vec<Vec<f64>>], k_head: usize, rule: &LogitRule) -> Vec<f64> {
    let t = q.len();
    let mut logits = vec![0.0; t * t];
    for query in 0..t {
        for key in rule.first_visible(query)..=query {
            let product: f64 = q[query][q_head].iter().zip(&k[key][k_head]).map(|(a, b)| a * b).sum();
            let scaled = f64::from(rule.scale) * product;
            let capped = rule.softcap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh());
            let bias = rule.bias(q_head, q[query].len());
            logits[query * t + key] = capped + bias.map_or(0.0, |bias| bias.of(query, key));
        }
    }
    logits
}

/// Softmax of the visible keys of each row, with the sink if there is one; zero elsewhere: T x T.
fn softmax_map(logits: &[f64], t: usize, rule: &LogitRule, sink: Option<f64>) -> Vec<f64> {
    let mut map = vec![0.0; t * t];
    for query in 0..t {
        let visible = query * t + rule.first_visible(query)..=query * t + query;
        let counted = || logits[visible.clone()].iter().copied().chain(sink);
        let largest = counted().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = counted().map(|x| (x - largest).exp()).sum();
        for i in visible {
            map[i] = (logits[i] - largest).exp() / total;
        }
    }
    map
}

/// Returns whether a key is removed from the row of a query.
fn loses(
    treated: &ResolvedTreatment,
    how: Removal,
    (layer, head): (usize, usize),
    (query, key): (usize, usize),
) -> bool {
    let of_head = treated.removed.iter().filter(|removed| removed.how == how && removed.of.has(layer, head));
    let mut row_removals = of_head.flat_map(|removed| &removed.row_removals).filter(|loss| loss.rows.contains(&query));
    row_removals.any(|loss| loss.keys.iter().any(|keys| keys.contains(&key)))
}

/// Quantises all logits of a layer, `logits[h][j]`. `masked` logits of a head are not quantised and do not count for
/// scales.
fn quantise_layer(
    quantise: &Quantise,
    layer: usize,
    t: usize,
    rule: &LogitRule,
    masked: impl Fn(usize, usize) -> bool,
    logits: &mut [Vec<Vec<f64>>],
) {
    let visible = |i: usize| (rule.first_visible(i / t)..=i / t).contains(&(i % t));
    let counts = |h: usize, i: usize| visible(i) && !masked(h, i) && !quantise.exempt(layer, h).contains(&(i % t));
    let shares_scale = |(h, j, query): (usize, usize, usize), (h2, j2, query2): (usize, usize, usize)| match quantise
        .quantiser
        .scope
    {
        Scope::Tensor => true,
        Scope::Head => (h, j) == (h2, j2),
        Scope::Row => (h, j, query) == (h2, j2, query2),
    };
    let before = logits.to_vec();
    let absmax = |at: (usize, usize, usize)| {
        let mut largest = 0.0f64;
        for (h, maps) in before.iter().enumerate() {
            for (j, map) in maps.iter().enumerate() {
                let shared = |i: &usize| shares_scale(at, (h, j, i / t)) && counts(h, *i);
                largest = (0..t * t).filter(shared).fold(largest, |largest, i| largest.max(map[i].abs()));
            }
        }
        largest
    };
    for (h, maps) in logits.iter_mut().enumerate() {
        for (j, map) in maps.iter_mut().enumerate() {
            for query in 0..t {
                let step = f64::from(quantise.quantiser.step(absmax((h, j, query)) as f32));
                for i in (query * t..=query * t + query).filter(|&i| counts(h, i) && step > 0.0) {
                    map[i] = (map[i] / step).round_ties_even() * step;
                }
            }
        }
    }
}
