//! Masks of a tile: which keys a query sees, and which a treatment removes.

use super::Portable;
use crate::attention::KeyRemoval;
use candle_core::{Result, Tensor};
use names::condition::{Quantiser, Removal};
use names::HeadPlace;
use std::ops::Range;

/// Masks of a tile. The second dimension is 1 where all heads have the same mask.
pub(super) struct Masks {
    /// The keys that at least one query of the tile sees.
    pub(super) keys: Range<usize>,
    /// 0 where the key is visible, otherwise -inf: (1, 1 or H, queries, keys).
    pub(super) hidden: Tensor,
    /// 1 where a logit is quantised and counts for the scale, otherwise 0: (1, 1 or H, queries, keys). Nothing without
    /// a quantiser.
    pub(super) counted: Option<Tensor>,
    /// 0 where a weight of every map is silenced, otherwise 1: (1, 1 or H, queries, keys).
    pub(super) silenced: Option<Tensor>,
    /// 0 where a weight of the second map is silenced, otherwise 1: (1, 1 or H, queries, keys).
    pub(super) silenced_second: Option<Tensor>,
}

impl Portable<'_> {
    pub(super) fn masks(&self, queries: &Range<usize>) -> Result<Masks> {
        let rule = &self.heads.rule;
        let keys = rule.first_visible(queries.start)..queries.end;
        let mut seen = self.seen(queries, &keys)?; // 1,1,queries,keys
        if let Some(masked) = self.kept(Removal::Mask, queries, &keys)? {
            seen = masked.broadcast_mul(&seen)?; // 1,1 or H,queries,keys
        }
        let counted = match self.quantiser() {
            None => None,
            Some(quantiser) if !quantiser.exempt_sinks => Some(seen.clone()),
            Some(quantiser) => Some(seen.broadcast_mul(&self.not_exempt(quantiser, &keys)?)?),
        };
        let silenced = self.kept(Removal::Silence, queries, &keys)?;
        let silenced_second = self.kept(Removal::SilenceSecond, queries, &keys)?;
        Ok(Masks { keys, hidden: seen.log()?, counted, silenced, silenced_second })
    }

    /// 1 where a query sees a key: (1, 1, queries, keys).
    fn seen(&self, queries: &Range<usize>, keys: &Range<usize>) -> Result<Tensor> {
        let key = Tensor::arange(keys.start as u32, keys.end as u32, self.device())?.reshape((1, keys.len()))?;
        let query = Tensor::arange(queries.start as u32, queries.end as u32, self.device())?;
        let mut seen = key.broadcast_le(&query.reshape((queries.len(), 1))?)?;
        if self.heads.rule.window.is_some() {
            let first: Vec<u32> = queries.clone().map(|query| self.heads.rule.first_visible(query) as u32).collect();
            let first = Tensor::from_vec(first, (queries.len(), 1), self.device())?;
            seen = (seen * key.broadcast_ge(&first)?)?;
        }
        seen.to_dtype(self.dtype())?.reshape((1, 1, queries.len(), keys.len()))
    }

    /// 0 where a row loses a key, otherwise 1: (1, 1 or H, queries, keys). Nothing if no row of the tile loses any.
    fn kept(&self, how: Removal, queries: &Range<usize>, keys: &Range<usize>) -> Result<Option<Tensor>> {
        let Some(treated) = self.treated else { return Ok(None) };
        let mut of_tile = Vec::new();
        for removed in treated.removed.iter().filter(|removed| removed.how == how) {
            let KeyRemoval { of, rows, .. } = removed;
            let is_of_layer = of.layers.as_ref().is_none_or(|layers| layers.contains(&self.layer));
            if is_of_layer && rows.start < queries.end && queries.start < rows.end {
                of_tile.push(removed);
            }
        }
        if of_tile.is_empty() {
            return Ok(None);
        }
        let heads =
            if of_tile.iter().any(|removed| removed.of.heads.is_some()) { self.heads.wiring.heads() } else { 1 };
        let mut kept = vec![1.0_f32; heads * queries.len() * keys.len()];
        for (row, kept) in kept.chunks_exact_mut(keys.len()).enumerate() {
            let head = row / queries.len();
            let query = queries.start + row % queries.len();
            let at = HeadPlace { layer: self.layer, head };
            treated.remove(how, at, query, keys.start, &mut kept[..query + 1 - keys.start], 0.0);
        }
        self.here(kept, (1, heads, queries.len(), keys.len())).map(Some)
    }

    /// 0 for the keys that a head does not quantise, otherwise 1: (1, H, 1, keys).
    fn not_exempt(&self, quantiser: &Quantiser, keys: &Range<usize>) -> Result<Tensor> {
        let heads = self.heads.wiring.heads();
        let mut counted = vec![1.0_f32; heads * keys.len()];
        for (head, counted) in counted.chunks_exact_mut(keys.len()).enumerate() {
            let exempt = self.treated.map_or(&[][..], |treated| treated.exempt(quantiser, self.layer, head));
            exempt.iter().filter(|key| keys.contains(key)).for_each(|key| counted[key - keys.start] = 0.0);
        }
        self.here(counted, (1, heads, 1, keys.len()))
    }
}
