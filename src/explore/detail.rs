//! What is kept of a head.

use super::codes::{encode, Code, RUN};
use crate::probe::{Pooling, Quantity};

/// What a pooled map is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooled {
    /// What the rows are made of.
    Of(Quantity),
    /// What the keys contribute to the output.
    Contribution,
}

/// What is kept of every head.
#[derive(Clone, Debug)]
pub struct HeadSketch {
    /// Its effective map, largest magnitudes, in bins of a multiple of the pooled maps' size, as [`triangle`] bytes.
    pub thumb: Vec<u8>,
    /// Keys that are attention sinks.
    pub sinks: Vec<usize>,
}

/// What is kept of a head that is kept token by token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Pooled maps as [`triangle`] bytes.
    pub grids: Vec<(Pooled, Pooling, Vec<u8>)>,
    /// The softmax maps; nothing of a treated pass.
    pub maps: Vec<Pairs<u8>>,
    /// The rows of them that predict an answer, more finely.
    pub answers: Vec<Pairs<i16>>,
    /// The logits of these rows.
    pub logits: Vec<Pairs<i16>>,
    /// What the keys of these rows contribute: one, or none where it is not known.
    pub contributions: Vec<Pairs<i16>>,
    /// Weight of the second map for each query; nothing for one map.
    pub lambdas: Vec<f32>,
    /// For each softmax map what its sink takes of each query's row, which sums to 1 with it; nothing without sinks.
    pub taken: Vec<Vec<f32>>,
    /// Keys that a query sees; nothing if it sees all before it.
    pub window: Option<usize>,
}

/// Token pairs as codes, row after row, of each row its kept runs. [`encode`] says what they mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs<T> {
    /// One for each run.
    pub exponents: Vec<i8>,
    /// One for each pair; the last run of a row ends at its query.
    pub codes: Vec<T>,
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self { exponents: Vec::new(), codes: Vec::new() }
    }
}

impl<T> Pairs<T> {
    pub(super) fn add(&mut self, row: &[f32], runs: &[usize], (code, floor): (Code, i8), to: fn(i16) -> T) {
        for &run in runs {
            let keys = run * RUN..((run + 1) * RUN).min(row.len());
            self.exponents.push(encode(&row[keys], code, floor, |steps| self.codes.push(to(steps))));
        }
    }

    /// The same without room for more.
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
pub(super) fn append<T>(mine: &mut Vec<Pairs<T>>, later: Vec<Pairs<T>>) {
    mine.resize_with(later.len().max(mine.len()), Pairs::default);
    mine.iter_mut().zip(later).for_each(|(mine, later)| mine.append(later));
}
