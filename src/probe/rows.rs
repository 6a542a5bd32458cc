//! The target rows themselves, a few per head, for comparison with another pass over the same prompt.

use crate::attention::{AttentionRow, RowProbe, RowSink};
use std::ops::Range;
use std::sync::Arc;

/// Keeps the mixture rows of ranges of queries.
pub struct RowsProbe {
    targets: Arc<[Range<usize>]>,
}

impl RowsProbe {
    /// Creates a probe for ranges of query positions: the [`rows`](crate::prompt::Target::rows) of a prompt's targets.
    pub fn new(targets: Vec<Range<usize>>) -> Self {
        Self { targets: targets.into() }
    }
}

impl RowProbe for RowsProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|rows| rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowSink> {
        Box::new(RowsSink { targets: Arc::clone(&self.targets), rows: vec![Vec::new(); self.targets.len()] })
    }
}

/// State of the probe for one head.
pub struct RowsSink {
    targets: Arc<[Range<usize>]>,
    /// Mixture rows of each target, in the order of queries: (query + 1) each.
    pub rows: Vec<Vec<Vec<f32>>>,
}

impl RowsSink {
    /// Memory of a state after `rows` rows at the end of a text of `tokens` tokens, in bytes.
    pub fn bytes(tokens: usize, rows: usize) -> u64 {
        (rows * (size_of::<Vec<f32>>() + size_of::<f32>() * tokens)) as u64
    }
}

impl RowSink for RowsSink {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (target, rows) in self.targets.iter().zip(&mut self.rows) {
            if target.contains(&row.query) {
                rows.push(row.effective.to_vec());
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowSink>) {
        let later = later.into_sink::<Self>();
        self.rows.iter_mut().zip(later.rows).for_each(|(mine, theirs)| mine.extend(theirs));
    }
}
