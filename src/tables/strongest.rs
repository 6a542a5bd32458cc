//! The strongest heads of a model by any number, and how sure it is that they are.

use super::sheet::{Cell, Kind};
use crate::frame::Frame;
use crate::stats::{bootstrap_mean, mean, rank_stability, RESAMPLES};

/// How many heads are listed: as many as were asked for, or `usual`.
pub(super) fn listed(frame: &Frame, usual: usize) -> usize {
    let asked = frame.config("top").and_then(serde_json::Value::as_u64);
    asked.map_or(usual, |top| usize::try_from(top).unwrap_or(usize::MAX))
}

/// A head that is among the strongest by some number.
pub(super) struct Strong {
    /// Layer and head.
    pub(super) at: (usize, usize),
    /// Mean over prompts.
    pub(super) score: f64,
    values: Vec<f64>,
    /// How often it is among them when prompts are drawn anew.
    in_top: f64,
    seed: u64,
}

impl Strong {
    /// How many prompts it was measured on, its score with an interval, how often it is among the strongest in %; the last two
    /// say more than the score only if prompts are several.
    pub(super) fn cells(&self, kind: Kind) -> [Cell; 3] {
        let several = self.values.len() > 1;
        let interval = bootstrap_mean(&self.values, RESAMPLES, self.seed).filter(|_| several);
        let stable = Cell::number(Some(self.in_top).filter(|_| several), |x| format!("{:.0}", 100.0 * x));
        [Cell::count(Some(self.values.len())), Cell::estimate(kind, self.score, interval), stable]
    }
}

/// The strongest heads of a model by a metric of a region; ties in the order of layers and heads.
pub(super) fn strongest(
    frame: &Frame,
    model: &str,
    (metric, region): (&str, Option<&str>),
    top: usize,
) -> impl Iterator<Item = Strong> {
    let (heads, seed) = (frame.heads(model, metric, region), frame.about.seed);
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let strong = heads.into_iter().zip(rank_stability(&values, top, RESAMPLES, seed));
    let strong = strong.filter_map(|((at, values), in_top)| {
        let score = mean(&values)?;
        Some(Strong { at, score, values, in_top, seed })
    });
    let mut found: Vec<Strong> = strong.collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.into_iter().take(top)
}
