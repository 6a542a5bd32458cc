//! Reference implementation of attention: whole maps, plain loops, `f64` sums. The fast implementations are tested against it.
#![allow(dead_code)] // the bench uses a part

use candle_core::{DType, Device, Result, Tensor};
use engine::attention::{Attend, Heads, LogitRule, ResolvedTreatment, Stream};
use engine::kernels::quant::step;
use names::condition::{Quantised, Quantiser, Removal, Scope};
use names::HeadPlace;
use std::collections::BTreeMap;

/// The maps of one output head, T x T each, row-major, zero above the diagonal.
#[derive(Clone, Debug)]
pub(crate) struct DenseHead {
    /// Scaled logits of each map j, quantised if requested, -inf where masked.
    pub(crate) logits: Vec<Vec<f64>>,
    /// Softmax map of each j.
    pub(crate) maps: Vec<Vec<f64>>,
    /// Sum over j of mix_j * map_j.
    pub(crate) effective: Vec<f64>,
}

/// Computes whole maps and keeps them. O(T^2) per head.
#[derive(Default)]
pub(crate) struct Dense {
    /// `kept[layer][batch][head]`.
    pub(crate) kept: Vec<Vec<Vec<DenseHead>>>,
    /// Residual streams by site, as [`Attend::residual`] passes them.
    pub(crate) residuals: Vec<Tensor>,
    pub(crate) treated: ResolvedTreatment,
}

impl Attend for Dense {
    /// Queries and keys are rounded as in the fast implementation, which has a reference of its own in `quantise_qk.rs`.
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        Stream::new(&[]).treated(Some(&self.treated)).head_inputs(layer, heads)
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, _, d) = heads.q.dims4()?;
        let wiring = heads.wiring;
        let mut out = Vec::with_capacity(batch * t * wiring.heads() * wiring.value_slices() * d);
        let mut of_layer = Vec::new();
        for b in 0..batch {
            let maps = self.maps_of_text(layer, heads, b)?;
            let v = numbers(&heads.v.get(b)?)?.to_vec3::<f64>()?; // T, value heads, d
            for query in 0..t {
                for (head, slices) in maps.iter().zip(&wiring.value) {
                    let row = &head.effective[query * t..][..query + 1];
                    for &slice in slices {
                        for c in 0..d {
                            let sum: f64 = row.iter().zip(&v).map(|(weight, v)| weight * v[slice][c]).sum();
                            out.push(sum as f32);
                        }
                    }
                }
            }
            of_layer.push(maps);
        }
        self.kept.push(of_layer);
        let shape = (batch, t, wiring.heads(), wiring.value_slices() * d);
        Tensor::from_vec(out, shape, heads.q.device())?.to_dtype(heads.v.dtype())
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let (batch, t, _, width) = heads.dims4()?;
        let mut written = heads;
        for replaced in self.treated.replaced.iter().filter(|replaced| replaced.layer == layer) {
            let output = if replaced.output.is_empty() { vec![0.0; width] } else { replaced.output.clone() };
            let output = Tensor::from_vec(output, (1, 1, 1, width), written.device())?.to_dtype(written.dtype())?;
            let output = output.repeat((batch, 1, 1, 1))?; // B,1,1,value width
            for row in (0..t).filter(|row| replaced.rows.iter().any(|rows| rows.contains(row))) {
                let at = [0..batch, row..row + 1, replaced.head..replaced.head + 1, 0..width];
                written = written.slice_assign(&at, &output)?;
            }
        }
        Ok(written)
    }

    fn residual(&mut self, _site: usize, x: &Tensor) -> Result<()> {
        self.residuals.push(x.clone());
        Ok(())
    }
}

impl Dense {
    /// The maps of all heads for one text of the batch.
    fn maps_of_text(&self, layer: usize, heads: &Heads<'_>, b: usize) -> Result<Vec<DenseHead>> {
        let (t, wiring) = (heads.q.dim(1)?, heads.wiring);
        let (q, k) = (numbers(&heads.q.get(b)?)?.to_vec3::<f64>()?, numbers(&heads.k.get(b)?)?.to_vec3::<f64>()?);
        let sinks = heads.sink.as_ref().map(|sinks| numbers(sinks)?.to_vec1::<f64>()).transpose()?;
        let lambda =
            heads.lambda.as_ref().map(|lambda| numbers(lambda)?.flatten_all()?.to_vec1::<f64>()).transpose()?;
        // logits[h][j]: T x T
        let mut logits: Vec<Vec<Vec<f64>>> = Vec::new();
        for h in 0..wiring.heads() {
            let of_map = |j: usize| logit_map(&q, wiring.query[j][h], &k, wiring.key[j][h], &heads.rule);
            logits.push((0..wiring.maps()).map(of_map).collect());
        }
        let quantisers = &self.treated.quantisers;
        if let Some(quantiser) = quantisers.iter().find(|by| by.of == Quantised::Logits && by.has(layer)) {
            self.quantise(quantiser, layer, &heads.rule, &mut logits);
        }
        let mut maps_of_heads = Vec::new();
        for (h, mut logits) in logits.into_iter().enumerate() {
            let at = HeadPlace { layer, head: h };
            for i in (0..t * t).filter(|i| self.is_masked(at, i / t, i % t)) {
                logits.iter_mut().for_each(|map| map[i] = f64::NEG_INFINITY);
            }
            let mut maps = Vec::new();
            for (j, logits) in logits.iter().enumerate() {
                let mut map =
                    softmax_map(logits, t, &heads.rule, sinks.as_ref().map(|sinks| sinks[wiring.query[j][h]]));
                for (i, weight) in map.iter_mut().enumerate() {
                    let second = j == 1 && self.loses(Removal::SilenceSecond, at, i / t, i % t);
                    if second || self.loses(Removal::Silence, at, i / t, i % t) {
                        *weight = 0.0;
                    }
                }
                maps.push(map);
            }
            let mut effective = maps[0].clone();
            if let (Some(second), Some(lambda)) = (maps.get(1), &lambda) {
                for (i, x) in effective.iter_mut().enumerate() {
                    // One number for all rows and heads, one per head, or one per row of the batch and head.
                    let row = b * t + i / t;
                    *x -= lambda[(row * wiring.heads() + h) % lambda.len()] * second[i];
                }
            }
            maps_of_heads.push(DenseHead { logits, maps, effective });
        }
        Ok(maps_of_heads)
    }

    fn is_masked(&self, at: HeadPlace, query: usize, key: usize) -> bool {
        query != key && self.loses(Removal::Mask, at, query, key)
    }

    /// Returns `true` if a key is removed from the row of a query.
    fn loses(&self, how: Removal, at: HeadPlace, query: usize, key: usize) -> bool {
        let mut of_head = self.treated.removed.iter().filter(|removed| removed.how == how && removed.of.has(at));
        of_head.any(|removed| removed.rows.contains(&query) && removed.keys.iter().any(|keys| keys.contains(&key)))
    }

    /// Quantises all logits of a layer, `logits[h][j]`. Masked logits and those of exempt keys are not quantised and do not
    /// count for scales.
    fn quantise(&self, quantiser: &Quantiser, layer: usize, rule: &LogitRule, logits: &mut [Vec<Vec<f64>>]) {
        let t = logits[0][0].len().isqrt();
        let none = Vec::new();
        // Indices of the quantised logits of each head, and the largest magnitude of the logits that share a scale.
        let mut counted: Vec<Vec<usize>> = Vec::new();
        let mut largest: BTreeMap<(usize, usize, usize), f64> = BTreeMap::new();
        for (h, maps) in logits.iter().enumerate() {
            let at = HeadPlace { layer, head: h };
            let sinks = self.treated.sinks.get(&at).filter(|_| quantiser.exempt_sinks).unwrap_or(&none);
            let is_counted = |i: &usize| {
                let (query, key) = (i / t, i % t);
                (rule.first_visible(query)..=query).contains(&key)
                    && !self.is_masked(at, query, key)
                    && !sinks.contains(&key)
            };
            let indices: Vec<usize> = (0..t * t).filter(is_counted).collect();
            for (j, map) in maps.iter().enumerate() {
                for &i in &indices {
                    let largest = largest.entry(group(quantiser.scope, h, j, i / t)).or_default();
                    *largest = largest.max(map[i].abs());
                }
            }
            counted.push(indices);
        }
        for (h, maps) in logits.iter_mut().enumerate() {
            for (j, map) in maps.iter_mut().enumerate() {
                for &i in &counted[h] {
                    let step = f64::from(step(quantiser.format, largest[&group(quantiser.scope, h, j, i / t)] as f32));
                    if step > 0.0 {
                        map[i] = (map[i] / step).round_ties_even() * step;
                    }
                }
            }
        }
    }
}

/// The logits that share a scale with those of map j of head h in the row of a query.
fn group(scope: Scope, h: usize, j: usize, query: usize) -> (usize, usize, usize) {
    match scope {
        Scope::Head => (h, j, 0),
        Scope::Row => (h, j, query),
        _ => (0, 0, 0),
    }
}

fn numbers(x: &Tensor) -> Result<Tensor> {
    x.to_device(&Device::Cpu)?.to_dtype(DType::F64)
}

/// Scaled, capped and biased logits of visible keys, zero elsewhere: T x T.
fn logit_map(q: &[Vec<Vec<f64>>], q_head: usize, k: &[Vec<Vec<f64>>], k_head: usize, rule: &LogitRule) -> Vec<f64> {
    let t = q.len();
    let mut logits = vec![0.0; t * t];
    for query in 0..t {
        let bias = rule.bias(q_head, q[query].len());
        for key in rule.first_visible(query)..=query {
            let product: f64 = q[query][q_head].iter().zip(&k[key][k_head]).map(|(a, b)| a * b).sum();
            let scaled = f64::from(rule.scale) * product;
            let capped = rule.softcap.map_or(scaled, |cap| f64::from(cap) * (scaled / f64::from(cap)).tanh());
            logits[query * t + key] = capped + bias.map_or(0.0, |bias| bias.of(query, key));
        }
    }
    logits
}

/// Softmax of the visible keys of each row, with the sink if there is one; zero elsewhere: T x T.
fn softmax_map(logits: &[f64], t: usize, rule: &LogitRule, sink: Option<f64>) -> Vec<f64> {
    let mut map = vec![0.0; t * t];
    for query in 0..t {
        let visible = query * t + rule.first_visible(query)..query * t + query + 1;
        let counted = || logits[visible.clone()].iter().copied().chain(sink);
        let largest = counted().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = counted().map(|x| (x - largest).exp()).sum();
        for i in visible {
            map[i] = (logits[i] - largest).exp() / total;
        }
    }
    map
}
