//! The target rows themselves, a few per head, for comparison with another pass over the same prompt.

use crate::attention::{AttentionRow, RowCollector, RowProbe};
use std::ops::Range;
use std::sync::Arc;

/// Keeps the rows of ranges of queries.
pub struct RowsProbe {
    targets: Arc<[Range<usize>]>,
}

impl RowsProbe {
    /// Creates a probe for ranges of query positions: the [`rows`](crate::prompts::Target::rows) of a prompt's targets.
    pub fn new(targets: Vec<Range<usize>>) -> Self {
        Self { targets: targets.into() }
    }
}

impl RowProbe for RowsProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|rows| rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(RowsCollector { targets: Arc::clone(&self.targets), rows: vec![Vec::new(); self.targets.len()] })
    }
}

/// A row that was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRow {
    /// The mixture of the maps: (query + 1).
    pub effective: Vec<f32>,
    /// The rows of two maps, (query + 1) each, and the weight of the second; `None` of a single map.
    pub maps: Option<([Vec<f32>; 2], f32)>,
}

/// State of the probe for one head.
pub struct RowsCollector {
    targets: Arc<[Range<usize>]>,
    /// Rows of each target, in the order of queries.
    pub rows: Vec<Vec<KeptRow>>,
}

impl RowCollector for RowsCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (target, rows) in self.targets.iter().zip(&mut self.rows) {
            if target.contains(&row.query) {
                let maps = match row.maps {
                    [first, second] => Some(([first.to_vec(), second.to_vec()], row.mix[1])),
                    _ => None,
                };
                rows.push(KeptRow { effective: row.effective.to_vec(), maps });
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.rows.iter_mut().zip(later.rows).for_each(|(mine, theirs)| mine.extend(theirs));
    }
}
