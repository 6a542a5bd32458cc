//! Passes over texts that begin alike: what is the same in all of them is computed once.
//!
//! An untreated pass [keeps](Stream::keeping) the keys and values of every layer. A later pass over a text that begins
//! with the same tokens starts at its first row that differs, and attends to the kept keys and values before it. Its
//! rows have the bits that they have in a whole pass: the linear layers and the kernel compute a row in the same way
//! whichever rows are computed with it.

use super::blocks::{self, SharedKeys};
use super::keys::PackedKeys;
use super::{treat, Attend, Heads, NeededRows, Stream};
use crate::kernels::{has_kernels, with_values};
use candle_core::{Result, Tensor};
use names::condition::{Quantised, Scope};

/// Keys and values of every layer for the tokens of a text, from an untreated pass.
pub struct Prefix {
    pub(super) ids: Vec<u32>,
    pub(super) layers: Vec<PackedKeys>,
}

impl Prefix {
    /// Number of tokens with which both texts begin.
    pub fn common_tokens(&self, ids: &[u32]) -> usize {
        self.ids.iter().zip(ids).take_while(|(a, b)| a == b).count()
    }
}

/// Passes over texts of the same length that begin with the same tokens, as one batch, each observed by its own
/// [`Stream`]. The batch has their rows from `start` on. A stream that is alone can keep the keys and values of the whole text.
pub struct Continuations<'s, 'a> {
    prefix: &'s Prefix,
    start: usize,
    /// The streams, with what they have observed.
    pub streams: Vec<Stream<'a>>,
    needed: NeededRows,
}

impl<'s, 'a> Continuations<'s, 'a> {
    /// Creates passes that start at the row `start`. In the layer of `needed`, only these rows, counted from `start`, are
    /// computed, besides observed ones.
    pub fn new(prefix: &'s Prefix, start: usize, needed: NeededRows, mut streams: Vec<Stream<'a>>) -> Self {
        for stream in &mut streams {
            stream.trace = stream.trace.take().map(|trace| trace.from(start));
        }
        Self { prefix, start, streams, needed }
    }
}

impl Attend for Continuations<'_, '_> {
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        let quantisers =
            self.streams.iter().filter_map(|stream| stream.treated).flat_map(|treated| &treated.quantisers);
        // The scales of the others are those of all rows.
        if !quantisers.filter(|by| by.has(layer)).all(|by| by.of == Quantised::Logits && by.scope == Scope::Row) {
            candle_core::bail!("attention: rounded numbers of a text need all of it");
        }
        Ok(heads)
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        if heads.q.dim(0)? != self.streams.len() || !has_kernels(&heads.q) {
            candle_core::bail!("{} continuations in a batch of {:?}", self.streams.len(), heads.q.shape());
        }
        let prompts: Vec<_> = self.streams.iter().map(|stream| stream.of_layer(layer, heads.wiring.heads())).collect();
        let shared = Some(SharedKeys { packed: &self.prefix.layers[layer], tokens: self.start });
        let (out, watched, _) = blocks::mixture(heads, layer, shared, self.needed(layer), &prompts)?;
        if let [Stream { kept: Some(kept), .. }] = self.streams.as_mut_slice() {
            let mut whole = self.prefix.layers[layer].part(0..self.start, heads.q.dim(1)?);
            with_values([&heads.k, &heads.v], |[k, v]| whole.append(k, v, 0))?;
            kept.push(whole);
        }
        for (i, (stream, watched)) in self.streams.iter_mut().zip(watched).enumerate() {
            let gate = heads.gate.as_ref().map(|gate| gate.narrow(0, i, 1)).transpose()?;
            stream.conclude(watched, &out.narrow(0, i, 1)?, gate.as_ref())?;
        }
        Ok(out)
    }

    fn needed(&self, layer: usize) -> Option<&[bool]> {
        self.needed.of(layer)
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let treated: Vec<_> = self.streams.iter().map(|stream| stream.treated).collect();
        treat::replace(&treated, layer, self.start, heads)
    }

    fn attention_output(&mut self, layer: usize, x: &Tensor) -> Result<()> {
        let mut streams = self.streams.iter_mut().enumerate();
        streams.try_for_each(|(i, stream)| stream.attention_output(layer, &x.narrow(0, i, 1)?))
    }

    fn residual(&mut self, site: usize, x: &Tensor) -> Result<()> {
        let mut streams = self.streams.iter_mut().enumerate();
        streams.try_for_each(|(i, stream)| stream.residual(site, &x.narrow(0, i, 1)?))
    }
}
