//! The probe of target rows, those that predict an answer; means over rows, and shares of their keys.

use engine::attention::{AttentionRow, RowCollector, RowProbe};
use names::Region;
use stats::simd::sum_magnitudes;
use std::ops::Range;
use std::sync::Arc;
use text::TargetRows;

/// Summary of the rows of one target of one head.
pub trait TargetSummary: Clone + Send + Sync + 'static {
    /// Adds a row. `regions` are those of all keys, in order.
    fn add(&mut self, row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]);
    /// Adds the summary of later rows.
    fn merge(&mut self, later: Self);
}

/// Observes the target rows of one prompt: those that predict the answers. Each target has a summary of its rows.
pub struct TargetProbe<S> {
    targets: Arc<[TargetRanges]>,
    empty: S,
}

/// The rows of one target, with the ranges of keys by region in order.
struct TargetRanges {
    rows: Range<usize>,
    regions: Vec<(Region, Range<usize>)>,
}

/// Merges neighbouring keys of the same region into ranges.
pub(crate) fn region_ranges(regions: &[Region]) -> Vec<(Region, Range<usize>)> {
    let mut ranges: Vec<(Region, Range<usize>)> = Vec::new();
    for (key, &region) in regions.iter().enumerate() {
        match ranges.last_mut() {
            Some((last, range)) if *last == region => range.end = key + 1,
            _ => ranges.push((region, key..key + 1)),
        }
    }
    ranges
}

impl<S: TargetSummary> TargetProbe<S> {
    /// Creates a probe for the targets of a prompt, each with this `empty` summary to begin with.
    pub fn new(targets: &[TargetRows], empty: S) -> Self {
        let mut ranges = Vec::new();
        for target in targets {
            ranges.push(TargetRanges { rows: target.rows.clone(), regions: region_ranges(&target.regions) });
        }
        Self { targets: ranges.into(), empty }
    }
}

impl<S: TargetSummary> RowProbe for TargetProbe<S> {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        self.targets.iter().any(|target| target.rows.contains(&query))
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        let summaries = vec![self.empty.clone(); self.targets.len()];
        Box::new(TargetCollector { targets: Arc::clone(&self.targets), summaries })
    }
}

/// State of the probe for one head.
pub struct TargetCollector<S> {
    targets: Arc<[TargetRanges]>,
    /// One per target.
    pub summaries: Vec<S>,
}

impl<S: TargetSummary> RowCollector for TargetCollector<S> {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for (target, summary) in self.targets.iter().zip(&mut self.summaries) {
            if target.rows.contains(&row.query) {
                summary.add(row, &target.regions);
            }
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.summaries.iter_mut().zip(later.summaries).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

/// Mean of a score over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RowMean {
    sum: f64,
    /// Number of scored rows.
    pub(super) rows: usize,
}

impl RowMean {
    /// The mean; `None` without rows.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }

    /// Adds the score of a row. Rows without weight have none.
    pub(super) fn add(&mut self, score: Option<f64>) {
        self.sum += score.unwrap_or(0.0);
        self.rows += usize::from(score.is_some());
    }

    /// Adds the scores of later rows.
    pub(super) fn merge(&mut self, later: Self) {
        self.sum += later.sum;
        self.rows += later.rows;
    }
}

/// The share of `keys` in the magnitude of a row; `None` for a row without weight.
pub(super) fn share(weights: &[f32], keys: Range<usize>) -> Option<f64> {
    let total = sum_magnitudes(weights);
    let visible = keys.start.min(weights.len())..keys.end.min(weights.len());
    (total > 0.0 && total.is_finite()).then(|| sum_magnitudes(&weights[visible]) / total)
}
