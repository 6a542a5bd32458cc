//! Attention in candle's ops, for the devices and number types without kernels. It is differentiable.
//!
//! Queries, keys and values are gathered by output head once per layer. Tiles of queries of all heads follow one after
//! the other, which bounds the memory of the logits; the rows of a tile that probes want are copied to the host.
//! Everything is computed in `f32`, or in `f64` of `f64`: logits in `bf16` would have eight bits. In training, candle
//! keeps the maps of all tiles for the backward pass: O(T^2).

mod masks;
mod show;
#[cfg(test)]
mod tests;

use super::blocks::covering_range;
use super::keys::packed_values;
use super::probes::{HeadProbes, IndexedProbe};
use super::{Alibi, HeadScalars, Heads, ResolvedTreatment};
use crate::kernels::quant::step;
use crate::kernels::{numbers, wide, wide_type, with_values, Panels};
use candle_core::{DType, Device, Result, Shape, Tensor, D};
use candle_nn::ops::{softmax, softmax_last_dim};
use masks::Masks;
use names::condition::{Quantised, Quantiser, Scope};
use names::HeadPlace;
use std::ops::Range;

/// Memory of a tile's logits, one map of all heads, in bytes.
const TILE_BYTES: usize = 64 << 20;

/// Tensors of the size of a map of all heads that are kept for the backward pass, for one map and for two.
const KEPT: [usize; 2] = [5, 12];

/// Keys and values of consecutive tokens, gathered by output head.
#[derive(Clone)]
pub(super) struct KeyPart {
    /// Positions of the tokens.
    pub(super) tokens: Range<usize>,
    /// K^T of every map: (B, H, d, tokens).
    pub(super) k: Vec<Tensor>,
    /// (B, H, tokens, value width)
    pub(super) v: Tensor,
}

impl KeyPart {
    /// Gathers the heads of tokens from the position `first` on.
    fn new(heads: &Heads<'_>, first: usize) -> Result<Self> {
        let wiring = heads.wiring;
        let (b, t, _, d) = heads.k.dims4()?;
        let mut k = Vec::new();
        for of_map in &wiring.key {
            k.push(by_head(&heads.k, of_map, (b, t, wiring.heads(), d))?.t()?);
        }
        let width = wiring.value_slices() * d;
        let v = by_head(&heads.v, &wiring.value.concat(), (b, t, wiring.heads(), width))?;
        Ok(Self { tokens: first..first + t, k, v })
    }
}

/// One layer, its heads gathered. Tensors have the number type that sums are taken in.
pub(super) struct Portable<'a> {
    /// scale * Q of every map: (B, H, T, d).
    q: Vec<Tensor>,
    /// Position of the first query.
    start: usize,
    /// Keys and values in the order of their tokens, the last of which are those of the queries.
    keys: Vec<KeyPart>,
    /// (1, 1 or H, 1, 1) or (B, H, T, 1)
    lambda: Option<Tensor>,
    /// Of every map: (1, H, 1, 1).
    sinks: Vec<Tensor>,
    /// Quantisation steps of every map, (1, H, 1, 1); empty if each row has its own.
    steps: Vec<Tensor>,
    heads: &'a Heads<'a>,
    scalars: HeadScalars,
    treated: Option<&'a ResolvedTreatment>,
    layer: usize,
    /// Queries of a tile.
    rows: usize,
}

/// A range of queries of all heads, and their masks.
struct Tile {
    queries: Range<usize>,
    masks: Masks,
}

/// One softmax map of a tile.
struct SoftmaxMap {
    /// Input of the softmax, -inf where a key is not visible: (B, H, queries, keys).
    logits: Tensor,
    /// (B, H, queries, keys)
    weights: Tensor,
    /// Weight of the sink: (B, H, queries, 1).
    sink: Option<Tensor>,
}

impl<'a> Portable<'a> {
    /// Gathers the heads, and finds the quantisation steps that rows share, if there are any.
    pub(super) fn new(heads: &'a Heads<'a>, treated: Option<&'a ResolvedTreatment>, layer: usize) -> Result<Self> {
        let (b, t, ..) = heads.q.dims4()?;
        let rows = rows_of_tile(b * heads.wiring.heads(), t, wide_type(heads.q.dtype()).size_in_bytes());
        Self::with_rows(heads, None, treated, layer, rows)
    }

    /// As [`Portable::new`], for queries behind the tokens of `before`.
    pub(super) fn behind(before: KeyPart, heads: &'a Heads<'a>, layer: usize) -> Result<Self> {
        let (_, t, ..) = heads.q.dims4()?;
        Self::with_rows(heads, Some(before), None, layer, t)
    }

    fn with_rows(
        heads: &'a Heads<'a>,
        before: Option<KeyPart>,
        treated: Option<&'a ResolvedTreatment>,
        layer: usize,
        rows: usize,
    ) -> Result<Self> {
        let wiring = heads.wiring;
        let (b, t, _, d) = heads.q.dims4()?;
        let n = wiring.heads();
        let mut q = Vec::new();
        let mut sinks = Vec::new();
        for query_heads in &wiring.query {
            let of_map = by_head(&heads.q, query_heads, (b, t, n, d))?;
            if let Some(sink) = &heads.sink {
                let sink = sink.index_select(&index(query_heads, sink.device())?, 0)?;
                sinks.push(sink.reshape((1, n, 1, 1))?.to_dtype(of_map.dtype())?);
            }
            q.push((of_map * f64::from(heads.rule.scale))?);
        }
        let lambda = match &heads.lambda {
            None => None,
            Some(lambda) if lambda.rank() == 3 => Some(lambda.transpose(1, 2)?.unsqueeze(3)?), // B,T,H -> B,H,T,1
            Some(lambda) => Some(lambda.reshape((1, lambda.elem_count(), 1, 1))?),
        };
        let start = before.as_ref().map_or(0, |before| before.tokens.end);
        let mut keys: Vec<KeyPart> = before.into_iter().collect();
        keys.push(KeyPart::new(heads, start)?);
        let mut portable = Self {
            lambda: lambda.map(|lambda| lambda.to_dtype(q[0].dtype())).transpose()?,
            q,
            start,
            keys,
            sinks,
            steps: Vec::new(),
            heads,
            scalars: heads.scalars()?,
            treated,
            layer,
            rows,
        };
        if let Some(quantiser) = portable.quantiser().filter(|quantiser| quantiser.scope != Scope::Row) {
            portable.steps = portable.shared_steps(quantiser)?;
        }
        Ok(portable)
    }

    /// The mixture: (B, T, H, value width).
    pub(super) fn mixture(&self) -> Result<Tensor> {
        Ok(self.watched(None, &[])?.0)
    }

    /// The mixture of one prompt (1, T, H, value width), zeros for queries that are neither needed nor watched, and
    /// the states of the probes of every head.
    pub(super) fn watched<'p>(
        &self,
        needed: Option<&[bool]>,
        probes: &[Vec<IndexedProbe<'p>>],
    ) -> Result<(Tensor, Vec<HeadProbes<'p>>)> {
        let heads = probes.iter().enumerate();
        let mut watched: Vec<_> =
            heads.map(|(head, probes)| HeadProbes::start(HeadPlace { layer: self.layer, head }, probes)).collect();
        let values = if watched.iter().all(HeadProbes::is_empty) { Vec::new() } else { self.packed_values()? };
        let mut parts = Vec::new();
        for queries in self.tiles() {
            let wanted: Vec<Vec<usize>> = watched.iter().map(|watched| watched.wanted(queries.clone())).collect();
            let computed = covering_range(queries.clone(), |query| {
                needed.is_none_or(|needed| needed[query]) || wanted.iter().any(|wanted| wanted.contains(&query))
            });
            let computed = computed.unwrap_or(queries.start..queries.start);
            parts.extend(self.zeros(queries.start..computed.start)?);
            if !computed.is_empty() {
                let tile = self.tile(computed.clone())?;
                let maps = (0..self.q.len()).map(|j| self.map(j, &tile)).collect::<Result<Vec<_>>>()?;
                parts.push(self.output(&tile, &maps)?);
                self.show(&tile, &maps, &wanted, &values, &mut watched)?;
            }
            parts.extend(self.zeros(computed.end..queries.end)?);
        }
        let out = Tensor::cat(&parts, 1)?; // B,T,H,value width
        Ok((out.to_dtype(self.heads.v.dtype())?, watched))
    }

    /// The parts with a token among `keys`, each with these tokens, counted from its first.
    fn parts(&self, keys: &Range<usize>) -> impl Iterator<Item = (&KeyPart, Range<usize>)> {
        let keys = keys.clone();
        self.keys.iter().filter_map(move |part| {
            let start = keys.start.max(part.tokens.start);
            let end = keys.end.min(part.tokens.end);
            (start < end).then(|| (part, start - part.tokens.start..end - part.tokens.start))
        })
    }

    fn quantiser(&self) -> Option<&'a Quantiser> {
        self.treated?.quantiser(Quantised::Logits, self.layer)
    }

    fn device(&self) -> &Device {
        self.heads.v.device()
    }

    fn dtype(&self) -> DType {
        wide_type(self.heads.v.dtype())
    }

    fn tiles(&self) -> impl Iterator<Item = Range<usize>> {
        let end = self.start + self.q[0].dims()[2];
        let rows = self.rows;
        (self.start..end).step_by(rows).map(move |start| start..(start + rows).min(end))
    }

    /// Outputs of queries that are not computed: (B, queries, H, value width). Nothing if there are no such queries.
    fn zeros(&self, queries: Range<usize>) -> Result<Option<Tensor>> {
        if queries.is_empty() {
            return Ok(None);
        }
        let (b, heads, _, width) = self.keys[0].v.dims4()?;
        Tensor::zeros((b, queries.len(), heads, width), self.dtype(), self.device()).map(Some)
    }

    fn tile(&self, queries: Range<usize>) -> Result<Tile> {
        Ok(Tile { masks: self.masks(&queries)?, queries })
    }

    /// Soft-capped and biased scale * Q_j K_j^T: (B, H, queries, keys).
    fn logits(&self, j: usize, Tile { queries, masks }: &Tile) -> Result<Tensor> {
        let q = self.q[j].narrow(2, queries.start - self.start, queries.len())?; // B,H,queries,d
        let mut products = Vec::new();
        for (part, keys) in self.parts(&masks.keys) {
            let k = part.k[j].narrow(3, keys.start, keys.len())?; // B,H,d,keys of the part
            products.push(q.matmul(&k)?); // B,H,queries,keys of the part
        }
        let logits = Tensor::cat(&products, 3)?; // B,H,queries,keys
        let logits = match self.heads.rule.softcap.map(f64::from) {
            None => logits,
            Some(cap) => ((logits / cap)?.tanh()? * cap)?,
        };
        match self.bias(j, queries, &masks.keys)? {
            None => Ok(logits),
            Some(bias) => logits.broadcast_add(&bias),
        }
    }

    /// Bias of the logits by distance: (1, H, queries, keys). `None` without ALiBi.
    fn bias(&self, j: usize, queries: &Range<usize>, keys: &Range<usize>) -> Result<Option<Tensor>> {
        let of_map = &self.heads.wiring.query[j];
        let all = self.heads.q.dim(2)?;
        let biases = of_map.iter().map(|&head| self.heads.rule.bias(head, all)).collect::<Option<Vec<_>>>();
        let Some(biases) = biases else { return Ok(None) };
        if self.heads.rule.alibi == Some(Alibi::Rounded) {
            let [of_queries, of_keys] = [queries, keys].map(|positions| {
                biases.iter().flat_map(|bias| positions.clone().map(|position| bias.rounded(position))).collect()
            });
            let of_queries = self.here(of_queries, (1, biases.len(), queries.len(), 1))?;
            let of_keys = self.here(of_keys, (1, biases.len(), 1, keys.len()))?;
            return (of_keys.broadcast_sub(&of_queries)? * f64::from(self.heads.rule.scale)).map(Some);
        }
        let distances = keys.clone().flat_map(|key| queries.clone().map(move |query| key as f32 - query as f32));
        let distances = self.here(distances.collect(), (1, 1, keys.len(), queries.len()))?;
        let distances = distances.transpose(2, 3)?.contiguous()?; // 1,1,queries,keys
        let slopes = self.here(biases.iter().map(|bias| bias.slope).collect(), (1, biases.len(), 1, 1))?;
        slopes.broadcast_mul(&distances).map(Some)
    }

    /// Copies numbers to the device.
    fn here(&self, numbers: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_vec(numbers, shape.into(), self.device())?.to_dtype(self.dtype())
    }

    /// Map j: logits, quantised and masked; their softmax with the sink; silenced weights zero.
    fn map(&self, j: usize, tile: &Tile) -> Result<SoftmaxMap> {
        let logits = self.masked_logits(j, tile)?; // B,H,queries,keys
        let (mut weights, sink) = self.softmax(j, &logits)?;
        let of_second = tile.masks.silenced_second.as_ref().filter(|_| j == 1);
        for silenced in tile.masks.silenced.iter().chain(of_second) {
            weights = weights.broadcast_mul(silenced)?;
        }
        Ok(SoftmaxMap { logits, weights, sink })
    }

    /// The input of the softmax: (B, H, queries, keys).
    fn masked_logits(&self, j: usize, tile: &Tile) -> Result<Tensor> {
        let masks = &tile.masks;
        let mut logits = self.logits(j, tile)?; // B,H,queries,keys
        if let (Some(quantiser), Some(counted)) = (self.quantiser(), &masks.counted) {
            let step = match self.steps.get(j) {
                Some(step) => step.clone(),
                None => self.steps_of(quantiser, &largest(&logits, counted)?)?, // B,H,queries,1
            };
            logits = rounded(&logits, &step, counted)?;
        }
        logits.broadcast_add(&masks.hidden)
    }

    /// The softmax of map j over the keys and the sink: weights of the keys, and of the sink if there is one.
    fn softmax(&self, j: usize, logits: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        let Some(sink) = self.sinks.get(j) else { return Ok((softmax_of_rows(logits)?, None)) };
        let (b, heads, queries, keys) = logits.dims4()?;
        let column = sink.broadcast_as((b, heads, queries, 1))?.contiguous()?;
        let weights = softmax_of_rows(&Tensor::cat(&[logits, &column], 3)?)?; // B,H,queries,keys + 1
        Ok((weights.narrow(3, 0, keys)?.contiguous()?, Some(weights.narrow(3, keys, 1)?)))
    }

    /// (sum_j mix_j map_j) V: (B, queries, H, value width).
    fn output(&self, Tile { queries, masks }: &Tile, maps: &[SoftmaxMap]) -> Result<Tensor> {
        let mixed = match (maps, &self.lambda) {
            ([first, second], Some(lambda)) => {
                let of_rows = if lambda.dim(2)? == 1 {
                    lambda.clone()
                } else {
                    lambda.narrow(2, queries.start - self.start, queries.len())?
                };
                (&first.weights - second.weights.broadcast_mul(&of_rows)?)?
            }
            _ => maps[0].weights.clone(),
        }; // B,H,queries,keys
        let mut sum = None;
        let mut done = 0;
        for (part, keys) in self.parts(&masks.keys) {
            let weights = mixed.narrow(3, done, keys.len())?.contiguous()?; // B,H,queries,keys of the part
            let v = part.v.narrow(2, keys.start, keys.len())?; // B,H,keys of the part,value width
            let output = weights.matmul(&v)?; // B,H,queries,value width
            sum = Some(match sum {
                None => output,
                Some(sum) => (sum + output)?,
            });
            done += keys.len();
        }
        sum.expect("a query sees its own key").transpose(1, 2)?.contiguous() // B,queries,H,value width
    }

    /// The steps of every map and head, from the largest |logit| that counts in any tile.
    fn shared_steps(&self, quantiser: &Quantiser) -> Result<Vec<Tensor>> {
        let mut largest_of_maps: Vec<Option<Tensor>> = vec![None; self.q.len()];
        for queries in self.tiles() {
            let tile = self.tile(queries)?;
            let Some(counted) = &tile.masks.counted else { continue };
            for (j, so_far) in largest_of_maps.iter_mut().enumerate() {
                let of_tile = largest(&self.logits(j, &tile)?, counted)?.max_keepdim(2)?; // B,H,1,1
                *so_far = Some(match so_far.take() {
                    None => of_tile,
                    Some(before) => before.maximum(&of_tile)?,
                });
            }
        }
        let mut largest_of_maps: Vec<Tensor> = largest_of_maps.into_iter().flatten().collect();
        if quantiser.scope == Scope::Tensor {
            let of_all = Tensor::cat(&largest_of_maps, 1)?.max_keepdim(1)?; // B,1,1,1
            largest_of_maps.iter_mut().for_each(|of_map| *of_map = of_all.clone());
        }
        largest_of_maps.iter().map(|largest| self.steps_of(quantiser, largest)).collect()
    }

    /// The steps for the largest magnitudes; 1 where there is nothing to scale by.
    fn steps_of(&self, quantiser: &Quantiser, largest: &Tensor) -> Result<Tensor> {
        let mut steps: Vec<f32> =
            numbers(largest)?.into_iter().map(|largest| step(quantiser.format, largest)).collect();
        steps.iter_mut().filter(|step| **step == 0.0).for_each(|step| *step = 1.0);
        self.here(steps, largest.shape())
    }

    /// The values in the form that probes read.
    fn packed_values(&self) -> Result<Vec<Panels>> {
        let (_, _, heads, d) = self.heads.v.dims4()?;
        with_values([&self.heads.v], |[v]| packed_values(v, heads, d))
    }
}

/// The heads `of` x (B, T, heads, d), in `shape` (B, T, n, width), where the width may be several d: (B, n, T, width).
fn by_head(x: &Tensor, of: &[usize], shape: impl Into<Shape>) -> Result<Tensor> {
    let gathered = x.contiguous()?.index_select(&index(of, x.device())?, 2)?; // B,T,of,d
    wide(&gathered.reshape(shape.into())?.transpose(1, 2)?.contiguous()?)
}

fn index(of: &[usize], device: &Device) -> Result<Tensor> {
    Tensor::from_vec(of.iter().map(|&i| i as u32).collect::<Vec<_>>(), of.len(), device)
}

/// Softmax of every row. The fused one has no gradient.
fn softmax_of_rows(x: &Tensor) -> Result<Tensor> {
    if x.track_op() {
        softmax(x, D::Minus1)
    } else {
        softmax_last_dim(x)
    }
}

/// The largest |logit| of every row, of those that count: (B, H, queries, keys) -> (B, H, queries, 1).
fn largest(logits: &Tensor, counted: &Tensor) -> Result<Tensor> {
    logits.broadcast_mul(counted)?.abs()?.max_keepdim(3)
}

/// Rounds the logits that count to the nearest multiple of their step, ties to even.
fn rounded(logits: &Tensor, step: &Tensor, counted: &Tensor) -> Result<Tensor> {
    // 1.5 times 2 to the number of bits of the mantissa: adding it rounds smaller numbers to integers.
    let round = if logits.dtype() == DType::F64 { 1.5 * 2f64.powi(52) } else { 1.5 * 2f64.powi(23) };
    let codes = logits.broadcast_div(step)?.affine(1.0, round)?.affine(1.0, -round)?;
    let others = logits.broadcast_mul(&counted.affine(-1.0, 1.0)?)?;
    codes.broadcast_mul(step)?.broadcast_mul(counted)? + others
}

/// Queries in a tile of `heads` heads over `t` keys, with numbers of `bytes` bytes.
fn rows_of_tile(heads: usize, t: usize, bytes: usize) -> usize {
    (TILE_BYTES / (bytes * heads * t).max(1)).clamp(1, t.max(1))
}

/// Memory that the maps of a layer take until the backward pass, for `pairs` pairs of queries and keys with numbers of `bytes`
/// bytes.
pub fn kept_bytes(heads: usize, maps: usize, pairs: usize, bytes: usize) -> u64 {
    (KEPT[usize::from(maps > 1)] * bytes * heads * pairs) as u64
}
