//! Divergence of attention, its output and predictions under a condition from the baseline pass over the same prompt.

use super::{number, rounded, Measure, MeasureData, MeasureOutput, ObservedPass};
use crate::attention::{RowProbe, Trace};
use crate::measures::probe::{KeptRow, RowsCollector, RowsProbe};
use crate::model::pass::Predictions;
use crate::prompts::{Prompt, TargetRows};
use crate::results::metric::{
    ANSWER_FLIPS, ERROR_CANCELLED, KL, NLL, OUTPUT_COSINE, ROW_ERROR, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
};
use crate::results::record::Measurement;
use crate::stats::{mean, Divergence, MixedRow, RowChange};
use anyhow::{Context, Result};

/// Divergence of the target rows, what cancels of the changes of their two maps, and changes of the output of attention;
/// negative log-likelihood and changes of the most likely token over prose; changed answers.
pub struct FidelityMeasure;

/// Data of the baseline pass.
struct Baseline {
    /// Target rows of each head, in (layer, head) order.
    heads: Vec<RowsCollector>,
    predictions: Predictions,
    /// Whether each question is answered right.
    exact: Vec<bool>,
    trace: Trace,
}

/// Divergence of one head, as means over the rows of a target.
struct HeadDivergence {
    layer: usize,
    head: usize,
    divergence: Divergence,
    /// Changes of the rows and of the maps.
    change: RowChange,
}

impl Measure for FidelityMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RowsProbe::new(prompt.answerable_targets().into_iter().map(|target| target.rows).collect()))]
    }

    fn wants_predictions(&self) -> bool {
        true
    }

    fn wants_trace(&self) -> bool {
        true
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let predictions = pass.predictions.context("predictions were asked for")?;
        let trace = pass.trace.context("a trace was asked for")?;
        let (mut places, mut heads) = (Vec::new(), Vec::new());
        for result in pass.probe_results {
            places.push((result.layer, result.head));
            heads.push(*result.collector.into_collector::<RowsCollector>());
        }
        // The prediction of token i is at i - 1.
        let prose: Vec<usize> = pass.prompt.scored_tokens().into_iter().map(|token| token - 1).collect();
        let nll = prose.iter().map(|&i| f64::from(predictions.nll_nats[i])).sum::<f64>() / prose.len() as f64;
        output.push(None, "filler", number(&NLL, nll, prose.len()));
        let exact: Vec<bool> = pass.queries.iter().map(|query| query.exact).collect();
        let Some(baseline) = pass.baseline else {
            let (predictions, trace) = (predictions.clone(), trace.clone());
            let kept: MeasureData = Box::new(Baseline { heads, predictions, exact, trace });
            output.kept = Some(kept);
            return Ok(());
        };
        let baseline = baseline.downcast_ref::<Baseline>().expect("this measure keeps a baseline");
        let flips = prose.iter().filter(|&&i| predictions.top[i] != baseline.predictions.top[i]).count();
        let flips = flips as f64 / prose.len() as f64;
        output.push(None, "filler", number(&TOP_TOKEN_FLIPS, flips, prose.len()));
        let layers = pass.model.config.layers.len();
        let rows = pass.prompt.rows_name();
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let of_head = |(i, (layer, head)): (usize, &(usize, usize))| {
                let (a, b) = (&baseline.heads[i].rows[index], &heads[i].rows[index]);
                let divergence = mean_divergence(a, b)?;
                let mut change = RowChange::default();
                a.iter().zip(b).for_each(|(a, b)| change.add(mixed(a), mixed(b)));
                Some(HeadDivergence { layer: *layer, head: *head, divergence, change })
            };
            let diverged: Vec<HeadDivergence> = places.iter().enumerate().filter_map(of_head).collect();
            let mut push = |found| output.push(target.query, rows, found);
            if let Some(query) = target.query {
                push(number(&ANSWER_FLIPS, f64::from(u8::from(exact[query] != baseline.exact[query])), 1));
            }
            push_divergences(&diverged, &mut push);
            push_changes(&diverged, &mut push);
            push_outputs(layers, target, (&baseline.trace, trace), &mut push);
        }
        Ok(())
    }
}

fn mixed(row: &KeptRow) -> MixedRow<'_> {
    (&row.effective, row.maps.as_ref().map(|([first, second], weight)| ([&first[..], &second[..]], *weight)))
}

/// Returns the mean over rows of their divergences; `None` if no pair of rows has weight.
fn mean_divergence(a: &[KeptRow], b: &[KeptRow]) -> Option<Divergence> {
    let of_rows = |(a, b): (&KeptRow, &KeptRow)| Divergence::of(&a.effective, &b.effective);
    let found: Vec<Divergence> = a.iter().zip(b).filter_map(of_rows).collect();
    let mean = |f: fn(&Divergence) -> f64| mean(&found.iter().map(f).collect::<Vec<f64>>());
    Some(Divergence { kl_nats: mean(|d| d.kl_nats)?, total_variation: mean(|d| d.total_variation)? })
}

/// Pushes divergences: means over heads, and the total variation of each.
fn push_divergences(heads: &[HeadDivergence], mut push: impl FnMut(Measurement)) {
    let mean = |f: fn(&Divergence) -> f64| mean(&heads.iter().map(|head| f(&head.divergence)).collect::<Vec<f64>>());
    if let (Some(kl), Some(variation)) = (mean(|d| d.kl_nats), mean(|d| d.total_variation)) {
        push(number(&KL, kl, heads.len()));
        push(rounded(&TOTAL_VARIATION, None, variation, heads.len()));
    }
    for head in heads {
        let found = rounded(&TOTAL_VARIATION, None, head.divergence.total_variation, 1);
        push(Measurement { layer: Some(head.layer), head: Some(head.head), ..found });
    }
}

/// Pushes changes of rows and what cancels of those of maps: means over heads, and of each head.
fn push_changes(heads: &[HeadDivergence], mut push: impl FnMut(Measurement)) {
    for (metric, of) in
        [(&ROW_ERROR, RowChange::error as fn(&RowChange) -> Option<f64>), (&ERROR_CANCELLED, RowChange::cancelled)]
    {
        let found: Vec<f64> = heads.iter().filter_map(|head| of(&head.change)).collect();
        if let Some(value) = mean(&found) {
            push(rounded(metric, None, value, found.len()));
        }
        for head in heads {
            if let Some(value) = of(&head.change) {
                let found = rounded(metric, None, value, 1);
                push(Measurement { layer: Some(head.layer), head: Some(head.head), ..found });
            }
        }
    }
}

/// Pushes the cosine of the output of attention in the rows of a target with that before: as a mean, and by layer.
fn push_outputs(
    layers: usize,
    target: &TargetRows,
    (before, after): (&Trace, &Trace),
    mut push: impl FnMut(Measurement),
) {
    let of_layer = |layer: usize| -> Option<f64> {
        let row =
            |row: usize| Some(cosine(before.attention_output_of(layer, row)?, after.attention_output_of(layer, row)?));
        mean(&target.rows.clone().filter_map(row).collect::<Vec<f64>>())
    };
    let found: Vec<(usize, f64)> = (0..layers).filter_map(|layer| Some((layer, of_layer(layer)?))).collect();
    if let Some(all) = mean(&found.iter().map(|(_, cosine)| *cosine).collect::<Vec<f64>>()) {
        push(rounded(&OUTPUT_COSINE, None, all, found.len()));
    }
    for (layer, cosine) in found {
        push(Measurement { layer: Some(layer), ..rounded(&OUTPUT_COSINE, None, cosine, target.rows.len()) });
    }
}

/// Cosine of the angle between two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(effective: &[f32]) -> KeptRow {
        KeptRow { effective: effective.to_vec(), maps: None }
    }

    #[test]
    fn heads_of_one_map_have_an_error_and_nothing_that_cancels() {
        let divergence = Divergence { kl_nats: 0.0, total_variation: 0.0 };
        let of = |row: KeptRow, later: KeptRow| {
            let mut change = RowChange::default();
            change.add(mixed(&row), mixed(&later));
            HeadDivergence { layer: 1, head: 2, divergence, change }
        };
        let two = |first: [f32; 2], second: [f32; 2]| KeptRow {
            effective: vec![first[0] - 0.5 * second[0], first[1] - 0.5 * second[1]],
            maps: Some(([first.to_vec(), second.to_vec()], -0.5)),
        };
        let names = |heads: &[HeadDivergence]| {
            let mut found = Vec::new();
            push_changes(heads, |measure| found.push((measure.metric.to_string(), measure.layer.is_some())));
            found
        };
        let one = of(kept(&[0.5, 0.5]), kept(&[0.75, 0.25]));
        assert_eq!(names(&[one]), [(ROW_ERROR.name.to_owned(), false), (ROW_ERROR.name.to_owned(), true)]);
        let both = of(two([0.5, 0.5], [0.5, 0.5]), two([0.75, 0.25], [0.75, 0.25]));
        assert!(names(&[both]).contains(&(ERROR_CANCELLED.name.to_owned(), false)));
    }

    #[test]
    fn outputs_of_twice_the_length_have_the_same_direction() {
        assert!((cosine(&[3.0, 4.0], &[6.0, 8.0]) - 1.0).abs() < 1e-12);
    }
}
