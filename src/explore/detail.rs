//! Stored data of a head.

use super::codes::{encode, CodeType, RUN};
use crate::measures::probe::{Pooling, RowQuantity};

/// Quantity of a pooled map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledQuantity {
    /// A quantity of attention rows.
    Of(RowQuantity),
    /// Contributions of the keys to the output.
    Contribution,
}

/// Data stored for every head.
#[derive(Clone, Debug)]
pub struct HeadSketch {
    /// Mixture map pooled by largest magnitude, in bins that are a multiple of those of pooled maps, as [`triangle`]
    /// bytes.
    pub thumb: Vec<u8>,
    /// Keys that are attention sinks.
    pub sinks: Vec<usize>,
}

/// Data stored for a detailed head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadDetail {
    /// Pooled maps as [`triangle`] bytes.
    pub grids: Vec<(PooledQuantity, Pooling, Vec<u8>)>,
    /// The softmax maps; empty for a treated pass.
    pub maps: Vec<PairCodes<u8>>,
    /// The softmax rows that predict an answer, at higher precision.
    pub answers: Vec<PairCodes<i16>>,
    /// The logits of the rows that predict an answer.
    pub logits: Vec<PairCodes<i16>>,
    /// Contributions of the keys in the rows that predict an answer; at most one, empty if unknown.
    pub contributions: Vec<PairCodes<i16>>,
    /// Weight of the second map for each query; empty for one map.
    pub lambdas: Vec<f32>,
    /// For each softmax map, the weight of the sink for each query, which sums to 1 with the row; empty without sinks.
    pub taken: Vec<Vec<f32>>,
    /// Number of keys visible to a query, or `None` for all keys before it.
    pub window: Option<usize>,
}

/// Codes of (query, key) pairs: the stored runs of each row, row by row. See [`encode`].
#[derive(Clone, Debug, PartialEq)]
pub struct PairCodes<T> {
    /// Exponent of each run.
    pub exponents: Vec<i8>,
    /// Code of each pair. The last run of a row ends at its query.
    pub codes: Vec<T>,
}

impl<T> Default for PairCodes<T> {
    fn default() -> Self {
        Self { exponents: Vec::new(), codes: Vec::new() }
    }
}

impl<T> PairCodes<T> {
    pub(super) fn add(&mut self, row: &[f32], runs: &[usize], (code, floor): (CodeType, i8), to: fn(i16) -> T) {
        for &run in runs {
            let keys = run * RUN..((run + 1) * RUN).min(row.len());
            self.exponents.push(encode(&row[keys], code, floor, |steps| self.codes.push(to(steps))));
        }
    }

    /// Releases unused capacity.
    pub(super) fn whole(mut self) -> Self {
        self.exponents.shrink_to_fit();
        self.codes.shrink_to_fit();
        self
    }

    fn append(&mut self, later: Self) {
        self.exponents.extend(later.exponents);
        self.codes.extend(later.codes);
    }
}

/// Appends the pairs of later rows, map by map.
pub(super) fn append<T>(mine: &mut Vec<PairCodes<T>>, later: Vec<PairCodes<T>>) {
    mine.resize_with(later.len().max(mine.len()), PairCodes::default);
    mine.iter_mut().zip(later).for_each(|(mine, later)| mine.append(later));
}
