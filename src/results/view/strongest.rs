//! The strongest heads of a model by a metric, and the stability of their ranks.

use crate::results::metric::Kind;
use crate::results::table::Cell;
use crate::results::{Estimate, Frame};
use crate::stats::{mean, rank_stability, RESAMPLES};

/// A head that is among the strongest by a metric.
pub(super) struct Strong {
    /// Layer and head.
    pub(super) at: (usize, usize),
    /// Mean over prompts.
    pub(super) score: f64,
    values: Vec<f64>,
    /// Fraction of resamples of the prompts in which it is among the strongest, if that was counted.
    in_top: Option<f64>,
}

impl Strong {
    /// Returns the cells of its prompts, its score with an interval, and its stability in percent; the interval is missing of few
    /// prompts, the stability of a single one.
    pub(super) fn cells(&self, kind: Kind) -> [Cell; 3] {
        let several = self.values.len() > 1;
        let found = Estimate::of_means(&self.values, self.values.len());
        let score = found
            .map_or_else(Cell::none, |found| Cell::value(kind, found.value, found.interval).of_several(found.prompts));
        let stable = Cell::number(self.in_top.filter(|_| several), |x| format!("{:.0}", 100.0 * x));
        [Cell::count(Some(self.values.len())), score, stable]
    }
}

/// The strongest heads of a model by a metric of a region; ties in the order of layers and heads.
pub(super) fn strongest(
    frame: &Frame,
    model: &str,
    (metric, region): (&str, Option<&str>),
    top: usize,
) -> impl Iterator<Item = Strong> {
    let (heads, seed) = (frame.heads(model, None, metric, region), frame.about.seed);
    let values: Vec<Vec<f64>> = heads.iter().map(|(_, values)| values.clone()).collect();
    let strong = heads.into_iter().zip(rank_stability(&values, top, RESAMPLES, seed));
    let strong = strong.filter_map(|((at, values), in_top)| {
        let score = mean(&values)?;
        Some(Strong { at, score, values, in_top: Some(in_top) })
    });
    let mut found: Vec<Strong> = strong.collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.into_iter().take(top)
}

/// The strongest head of a model by a metric of a region, without its stability; of equals the first.
pub(super) fn strongest_head(frame: &Frame, model: &str, (metric, region): (&str, Option<&str>)) -> Option<Strong> {
    let heads = frame.heads(model, None, metric, region).into_iter();
    let scored = heads.filter_map(|(at, values)| Some(Strong { at, score: mean(&values)?, values, in_top: None }));
    scored.min_by(|a, b| b.score.total_cmp(&a.score))
}
