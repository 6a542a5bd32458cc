//! Stored data of a head, and the selection of the heads whose data are stored in detail.

use super::codes::{encode, CodeType, RUN};
use crate::measures::{PooledMap, Pooling, RowQuantity};
use names::HeadPlace;
use std::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PooledQuantity {
    /// A quantity of attention rows.
    Of(RowQuantity),
    /// Contributions of the keys to the output.
    Contribution,
}

/// Data stored for every head.
#[derive(Clone, Debug)]
pub(crate) struct HeadSketch {
    /// Mixture map pooled by largest magnitude, in bins that are a multiple of those of pooled maps, as [`triangle`]
    /// bytes.
    pub(crate) thumb: Vec<u8>,
    /// Keys that are attention sinks.
    pub(crate) sinks: Vec<usize>,
}

/// Data stored for a detailed head.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeadDetail {
    /// Pooled maps as [`triangle`] bytes.
    pub(crate) pooled: Vec<(PooledQuantity, Pooling, Vec<u8>)>,
    /// The mixture map pooled by largest magnitude, unrounded, for figures.
    pub(crate) effective: Option<PooledMap>,
    /// The softmax maps; empty for a treated pass.
    pub(crate) maps: Vec<PairCodes<u8>>,
    /// The softmax rows that predict an answer, at higher precision.
    pub(crate) answers: Vec<PairCodes<i16>>,
    /// The logits of the rows that predict an answer.
    pub(crate) logits: Vec<PairCodes<i16>>,
    /// Contributions of the keys in the rows that predict an answer; at most one, empty if unknown.
    pub(crate) contributions: Vec<PairCodes<i16>>,
    /// Weight of the second map for each query; empty for one map.
    pub(crate) lambdas: Vec<f32>,
    /// For each softmax map, the weight of the sink for each query, which sums to 1 with the row; empty without sinks.
    pub(crate) taken: Vec<Vec<f32>>,
    /// Number of keys visible to a query, or `None` for all keys before it.
    pub(crate) window: Option<usize>,
}

/// Codes of (query, key) pairs: the stored runs of each row, row by row. See [`encode`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairCodes<T> {
    /// Exponent of each run.
    pub(crate) exponents: Vec<i8>,
    /// Code of each pair. The last run of a row ends at its query.
    pub(crate) codes: Vec<T>,
}

impl<T> Default for PairCodes<T> {
    fn default() -> Self {
        Self { exponents: Vec::new(), codes: Vec::new() }
    }
}

impl<T> PairCodes<T> {
    pub(super) fn add(&mut self, row: &[f32], runs: &[usize], code: CodeType, floor: i8, to: fn(i16) -> T) {
        for &run in runs {
            let keys = run * RUN..((run + 1) * RUN).min(row.len());
            self.exponents.push(encode(&row[keys], code, floor, |steps| self.codes.push(to(steps))));
        }
    }

    fn append(&mut self, later: Self) {
        self.exponents.extend(later.exponents);
        self.codes.extend(later.codes);
    }
}

impl HeadDetail {
    /// Appends the data of later rows.
    pub(super) fn append(&mut self, later: Self) {
        append(&mut self.maps, later.maps);
        append(&mut self.answers, later.answers);
        append(&mut self.logits, later.logits);
        append(&mut self.contributions, later.contributions);
        self.lambdas.extend(later.lambdas);
        self.taken.resize_with(later.taken.len().max(self.taken.len()), Vec::new);
        self.taken.iter_mut().zip(later.taken).for_each(|(taken, later)| taken.extend(later));
        self.window = self.window.or(later.window);
    }

    /// Releases unused capacity of the softmax maps.
    pub(super) fn shrink_maps(&mut self) {
        for map in &mut self.maps {
            map.exponents.shrink_to_fit();
            map.codes.shrink_to_fit();
        }
    }
}

/// Appends the pairs of later rows, map by map.
fn append<T>(pairs: &mut Vec<PairCodes<T>>, later: Vec<PairCodes<T>>) {
    pairs.resize_with(later.len().max(pairs.len()), PairCodes::default);
    pairs.iter_mut().zip(later).for_each(|(pairs, later)| pairs.append(later));
}

/// Keeps the data of the heads with the largest scores.
pub(crate) struct TopHeads {
    places: usize,
    leaders: Mutex<Vec<Candidate>>,
}

/// A head among the best.
pub(crate) struct Candidate {
    pub(crate) at: HeadPlace,
    pub(crate) score: f64,
    pub(crate) kept: HeadDetail,
}

impl TopHeads {
    /// A selection of up to `places` heads.
    pub(crate) fn new(places: usize) -> Self {
        Self { places, leaders: Mutex::new(Vec::new()) }
    }

    /// Enters a head, and drops the last if there are too many. Ties are broken by layer and head. NaN counts as the
    /// smallest score.
    pub(crate) fn enter(&self, at: HeadPlace, score: f64, kept: HeadDetail) {
        let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
        let mut leaders = self.leaders.lock().expect("no panic holds this lock");
        leaders.push(Candidate { at, score, kept });
        leaders.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at)));
        leaders.truncate(self.places);
    }

    /// Takes the best heads, in order.
    pub(crate) fn finish(&self) -> Vec<Candidate> {
        std::mem::take(&mut self.leaders.lock().expect("no panic holds this lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept_in_order_and_ties_go_to_the_first() {
        let top = TopHeads::new(3);
        for (head, score) in [0.1, 0.5, f64::NAN, 0.5, 0.7, 0.2].into_iter().enumerate() {
            top.enter(HeadPlace { layer: 0, head }, score, HeadDetail::default());
        }
        let kept: Vec<usize> = top.finish().into_iter().map(|candidate| candidate.at.head).collect();
        assert_eq!(kept, [4, 1, 3]);
    }
}
