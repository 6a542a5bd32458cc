//! Divergence of attention and predictions under a condition from the baseline pass over the same prompt.

use super::{number, rounded, Measure, MeasureData, MeasureOutput, ObservedPass, PassSize};
use crate::attention::RowProbe;
use crate::metric::{Metric, CONTEXT_ENDING, KL, NLL, TOP_KEY_FLIPS, TOP_TOKEN_FLIPS, TOTAL_VARIATION};
use crate::pass::Predictions;
use crate::probe::{RowsProbe, RowsSink};
use crate::prompt::Prompt;
use crate::record::Measurement;
use crate::stats::Divergence;
use anyhow::{Context, Result};
use std::ops::Range;

/// Divergence of the target rows and changes of their largest key; negative log-likelihood and changes of the most
/// likely token over prose.
pub struct FidelityMeasure;

/// Data of the baseline pass.
struct Baseline {
    /// Target rows of each head, in (layer, head) order.
    heads: Vec<RowsSink>,
    predictions: Predictions,
}

/// Divergence of one head, as means over the rows of a target.
struct HeadDivergence {
    layer: usize,
    head: usize,
    all: MeanDivergence,
    /// On the keys of the haystack; `None` if no row has weight there in both passes.
    context: Option<MeanDivergence>,
}

#[derive(Clone, Copy)]
struct MeanDivergence {
    kl_nats: f64,
    total_variation: f64,
    flips: f64,
}

/// Passes whose rows are in memory together: the baseline, and the one compared with it.
const PASSES: u64 = 2;

impl Measure for FidelityMeasure {
    fn memory_bytes(&self, extent: &PassSize) -> u64 {
        let PassSize { layers, heads, ctx_tok, rows, .. } = *extent;
        PASSES * ((layers * heads) as u64 * RowsSink::bytes(ctx_tok, rows) + Predictions::bytes(ctx_tok))
    }

    fn head_records(&self) -> u64 {
        1
    }

    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RowsProbe::new(prompt.answerable_targets().into_iter().map(|target| target.rows).collect()))]
    }

    fn wants_predictions(&self) -> bool {
        true
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let predictions = pass.predictions.context("predictions were asked for")?;
        let (mut places, mut heads) = (Vec::new(), Vec::new());
        for result in pass.probe_results {
            places.push((result.layer, result.head));
            heads.push(*result.sink.into_sink::<RowsSink>());
        }
        // The prediction of token i is at i - 1.
        let prose: Vec<usize> = pass.prompt.scored_tokens().into_iter().map(|token| token - 1).collect();
        let nll = prose.iter().map(|&i| f64::from(predictions.nll_nats[i])).sum::<f64>() / prose.len() as f64;
        output.push(None, "filler", number(&NLL, nll, prose.len()));
        let Some(baseline) = pass.baseline else {
            let kept: MeasureData = Box::new(Baseline { heads, predictions: predictions.clone() });
            output.kept = Some(kept);
            return Ok(());
        };
        let baseline = baseline.downcast_ref::<Baseline>().expect("this measure keeps a baseline");
        let flips = prose.iter().filter(|&&i| predictions.top[i] != baseline.predictions.top[i]).count();
        let flips = flips as f64 / prose.len() as f64;
        output.push(None, "filler", number(&TOP_TOKEN_FLIPS, flips, prose.len()));
        let rows = pass.prompt.rows_name();
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let of_head = |(i, (layer, head)): (usize, &(usize, usize))| {
                let (a, b) = (&baseline.heads[i].rows[index], &heads[i].rows[index]);
                let all = means(a, b, &(0..usize::MAX))?;
                let context = means(a, b, &pass.prompt.haystack);
                Some(HeadDivergence { layer: *layer, head: *head, all, context })
            };
            let diverged: Vec<HeadDivergence> = places.iter().enumerate().filter_map(of_head).collect();
            push_divergences(&diverged, |found| output.push(target.query, rows, found));
        }
        Ok(())
    }
}

/// Returns means over rows of their divergences on a range of keys; `None` if no pair of rows has weight there.
fn means(a: &[Vec<f32>], b: &[Vec<f32>], keys: &Range<usize>) -> Option<MeanDivergence> {
    let part = |row: &'_ [f32]| row[keys.start.min(row.len())..keys.end.min(row.len())].to_vec();
    let found: Vec<Divergence> = a.iter().zip(b).filter_map(|(a, b)| Divergence::of(&part(a), &part(b))).collect();
    let mean = |f: fn(&Divergence) -> f64| found.iter().map(f).sum::<f64>() / found.len() as f64;
    (!found.is_empty()).then(|| MeanDivergence {
        kl_nats: mean(|d| d.kl_nats),
        total_variation: mean(|d| d.total_variation),
        flips: mean(|d| f64::from(u8::from(d.top_flipped))),
    })
}

fn push_divergences(heads: &[HeadDivergence], mut push: impl FnMut(Measurement)) {
    let all: Vec<MeanDivergence> = heads.iter().map(|head| head.all).collect();
    let context: Vec<MeanDivergence> = heads.iter().filter_map(|head| head.context).collect();
    for (ending, means) in [("", all), (CONTEXT_ENDING, context)] {
        let n = means.len();
        let mean = |f: fn(&MeanDivergence) -> f64| means.iter().map(f).sum::<f64>() / n as f64;
        if n > 0 {
            let mut push = |metric: &Metric, found| push(Measurement { metric: metric.variant(ending), ..found });
            push(&KL, number(&KL, mean(|m| m.kl_nats), n));
            push(&TOTAL_VARIATION, rounded(&TOTAL_VARIATION, None, mean(|m| m.total_variation), n));
            push(&TOP_KEY_FLIPS, rounded(&TOP_KEY_FLIPS, None, mean(|m| m.flips), n));
        }
    }
    for head in heads {
        let found = rounded(&TOTAL_VARIATION, None, head.all.total_variation, 1);
        push(Measurement { layer: Some(head.layer), head: Some(head.head), ..found });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::observed_by;
    use super::*;

    #[test]
    fn the_estimated_memory_is_that_of_the_rows_of_two_passes() {
        let (size, passed) = observed_by(&FidelityMeasure, "diff");
        let rows_of = |sink: &RowsSink| -> usize {
            sink.rows.iter().flatten().map(|row| size_of_val(row) + size_of_val(row.as_slice())).sum()
        };
        let sinks = passed.probe_results.into_iter().map(|result| result.sink.into_sink::<RowsSink>());
        let predictions = passed.predictions.unwrap();
        let of_tokens = size_of_val(predictions.nll_nats.as_slice()) + size_of_val(predictions.top.as_slice());
        let taken = 2 * (sinks.map(|sink| rows_of(&sink)).sum::<usize>() + of_tokens) as u64;
        let estimated = FidelityMeasure.memory_bytes(&size);
        // No row is longer than the prompt, and those that predict answers are nearly as long.
        assert!(taken <= estimated && estimated < taken + taken / 8, "{estimated} bytes estimated, {taken} taken");
    }

    #[test]
    fn a_head_without_weight_on_the_context_counts_only_for_all_keys() {
        let (before, after) = (vec![vec![0.9, 0.06, 0.04]], vec![vec![1.0, 0.0, 0.0]]);
        assert!(means(&before, &after, &(1..3)).is_none(), "nothing is left there");
        let all = means(&before, &after, &(0..usize::MAX)).unwrap();
        let head = |context| HeadDivergence { layer: 0, head: 0, all, context };
        let mut found = Vec::new();
        push_divergences(&[head(None), head(Some(all))], |measure| found.push(measure));
        let n = |metric: &str| found.iter().find(|m| m.metric == metric && m.layer.is_none()).unwrap().n;
        assert_eq!((n(KL.name), n(&KL.variant(CONTEXT_ENDING))), (Some(2), Some(1)));
    }
}
