//! Attention for decoding: keeps the keys and values of every layer, so that each new token costs one row.
//!
//! A prompt is processed by [`Stream`], or by [`Continuations`] if the keys and values of its beginning are known. Each
//! later token is one row of the same kernel, with the bits that it has in a whole pass. A layer with a window drops keys and
//! values that have left it. Keys and values are kept on the host as `f32`, and tokens attend there, wherever the weights are.

use super::keys::PackedKeys;
use super::{blocks, treat, Attend, Continuations, Heads, NeededRows, Prefix, ResolvedTreatment, Stream};
use crate::kernels::{with_values, PANEL};
use candle_core::{Result, Tensor};
use names::condition::Quantised;

/// Computes the mixture of a prompt, then of one token at a time, without gradients (B = 1).
///
/// The last layer of a prompt computes only the last row, which predicts the next token.
pub struct Cached<'a> {
    layers: Vec<LayerCache>,
    treated: Option<&'a ResolvedTreatment>,
    /// Keys and values of the first tokens of the prompt, and their number.
    prefix: Option<(&'a Prefix, usize)>,
}

/// State of one layer.
#[derive(Default)]
struct LayerCache {
    /// `None` before the prompt.
    keys: Option<PackedKeys>,
    /// Means of the keys of the prompt, if they are rounded less their means.
    means: Vec<f64>,
}

impl<'a> Cached<'a> {
    /// Creates an empty cache.
    pub fn new(layers: usize) -> Self {
        Self { layers: (0..layers).map(|_| LayerCache::default()).collect(), treated: None, prefix: None }
    }

    /// Starts with the first `tokens` tokens of `prefix`, after which the prompt continues.
    pub fn after(self, prefix: &'a Prefix, tokens: usize) -> Self {
        Self { prefix: Some((prefix, tokens)), ..self }
    }

    /// Applies a treatment to the prompt and to every later token. A quantisation scale shared by the rows of a layer,
    /// head or block covers the prompt's rows in the prompt, and one row after it; the mean that smoothing subtracts from
    /// keys is that of the prompt.
    pub fn treated(self, treated: Option<&'a ResolvedTreatment>) -> Self {
        Self { treated, ..self }
    }

    /// Computes the rows of a prompt, or only the last one in the last layer, and keeps its keys and values.
    fn prompt(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (_, t, key_heads, d) = heads.k.dims4()?;
        let stream = Stream::new(&[]).treated(self.treated);
        let last = self.layers.len() - 1;
        let needed = (0..t).map(|row| row + 1 == t).collect();
        let mixture = match self.prefix {
            Some((prefix, start)) => {
                Continuations::new(prefix, start, NeededRows { layer: last, rows: needed }, vec![stream])
                    .attend(layer, heads)
            }
            None => stream.with_needed_rows(last, needed).attend(layer, heads),
        }?;
        let value_heads = heads.v.dim(2)?;
        let start = self.prefix.map_or(0, |(_, start)| start);
        // Keys that the last token does not see are left out.
        let first = heads.rule.first_visible(start + t - 1) / PANEL * PANEL;
        let keys = with_values([&heads.k, &heads.v], |[k, v]| match self.prefix {
            Some((prefix, start)) if first < start => {
                let mut keys = prefix.layers[layer].part(first..start, t);
                keys.append(k, v, first);
                keys
            }
            _ => {
                let skipped = first - start.min(first);
                let k = &k[skipped * key_heads * d..];
                let v = &v[skipped * value_heads * d..];
                PackedKeys::new(k, v, key_heads, value_heads, d, first)
            }
        })?;
        self.layers[layer].keys = Some(keys);
        Ok(mixture)
    }

    /// Position of the next token of a layer.
    fn next(&self, layer: usize) -> usize {
        self.layers[layer].keys.as_ref().map_or(0, |keys| keys.end)
    }
}

impl Attend for Cached<'_> {
    fn head_inputs<'h>(&mut self, layer: usize, heads: Heads<'h>) -> Result<Heads<'h>> {
        let Some(treated) = self.treated else { return Ok(heads) };
        if self.prefix.is_some() && treated.quantiser(Quantised::Qk, layer).is_some() {
            candle_core::bail!("attention: rounded numbers of a text need all of it");
        }
        let next = self.next(layer);
        let means = &mut self.layers[layer].means;
        if next == 0 {
            *means = treated.key_means(layer, &heads.k)?;
        }
        treated.quantised_heads(layer, heads, next, means)
    }

    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> Result<Tensor> {
        let (batch, t, ..) = heads.q.dims4()?;
        let keys = &mut self.layers[layer].keys;
        if batch != 1 || (keys.is_some() && t != 1) {
            candle_core::bail!("decoding takes one prompt, and then one token at a time: got {batch} x {t} tokens");
        }
        let Some(keys) = keys else { return self.prompt(layer, heads) };
        let needed = heads.rule.first_visible(keys.end);
        with_values([&heads.k, &heads.v], |[k, v]| keys.append(k, v, needed))?;
        blocks::last_row(heads, layer, keys, self.treated)
    }

    fn head_outputs(&mut self, layer: usize, heads: Tensor) -> Result<Tensor> {
        let start = self.next(layer) - heads.dim(1)?;
        treat::replace(&[self.treated], layer, start, heads)
    }
}
