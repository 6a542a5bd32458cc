//! Divergence of attention, its output and predictions under a condition from the baseline pass over the same prompt.

use super::{number, rounded, Measure, MeasureData, MeasureOutput, ObservedPass};
use crate::attention::{RowProbe, Trace};
use crate::metric::{
    Metric, ANSWER_FLIPS, CONTEXT_ENDING, ERROR_CANCELLED, ERROR_CORRELATION, KL, MAP_ENDINGS, NLL, OUTPUT_COSINE,
    OUTPUT_ERROR_MAX, ROW_ERROR, TOP_KEY_FLIPS, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
};
use crate::pass::Predictions;
use crate::probe::{KeptRow, RowsProbe, RowsSink};
use crate::prompt::{Prompt, TargetRows};
use crate::record::Measurement;
use crate::stats::{mean, Divergence, MixedRow, RowChange};
use anyhow::{Context, Result};
use std::ops::Range;

/// Divergence of the target rows and changes of their largest key, changes of the two maps, and changes of the output of
/// attention; negative log-likelihood and changes of the most likely token over prose; changed answers.
pub struct FidelityMeasure;

/// Data of the baseline pass.
struct Baseline {
    /// Target rows of each head, in (layer, head) order.
    heads: Vec<RowsSink>,
    predictions: Predictions,
    /// Whether each question is answered right.
    exact: Vec<bool>,
    trace: Trace,
}

/// Divergence of one head, as means over the rows of a target.
struct HeadDivergence {
    layer: usize,
    head: usize,
    all: MeanDivergence,
    /// On the keys of the haystack; `None` if no row has weight there in both passes.
    context: Option<MeanDivergence>,
    /// Changes of the rows and of the maps, over all keys.
    change: RowChange,
}

#[derive(Clone, Copy)]
struct MeanDivergence {
    kl_nats: f64,
    total_variation: f64,
    flips: f64,
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
            heads.push(*result.sink.into_sink::<RowsSink>());
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
                let all = means(a, b, &(0..usize::MAX))?;
                let context = means(a, b, &pass.prompt.haystack);
                let mut change = RowChange::default();
                a.iter().zip(b).for_each(|(a, b)| change.add(mixed(a), mixed(b)));
                Some(HeadDivergence { layer: *layer, head: *head, all, context, change })
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

/// Returns means over rows of their divergences on a range of keys; `None` if no pair of rows has weight there.
fn means(a: &[KeptRow], b: &[KeptRow], keys: &Range<usize>) -> Option<MeanDivergence> {
    let part = |row: &'_ [f32]| row[keys.start.min(row.len())..keys.end.min(row.len())].to_vec();
    let of_rows = |(a, b): (&KeptRow, &KeptRow)| Divergence::of(&part(&a.effective), &part(&b.effective));
    let found: Vec<Divergence> = a.iter().zip(b).filter_map(of_rows).collect();
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

/// Pushes changes of rows and maps: means over heads, and of each head its error and what cancels of it.
fn push_changes(heads: &[HeadDivergence], mut push: impl FnMut(Measurement)) {
    let mut push_mean = |metric: &Metric, ending: &str, of: &dyn Fn(&RowChange) -> Option<f64>| {
        let found: Vec<f64> = heads.iter().filter_map(|head| of(&head.change)).collect();
        if let Some(value) = mean(&found) {
            push(Measurement { metric: metric.variant(ending), ..rounded(metric, None, value, found.len()) });
        }
    };
    push_mean(&ROW_ERROR, "", &RowChange::error);
    for (j, ending) in MAP_ENDINGS.into_iter().enumerate() {
        push_mean(&ROW_ERROR, ending, &|change| Some(change.map_errors()?[j]));
    }
    push_mean(&ERROR_CORRELATION, "", &RowChange::correlation);
    push_mean(&ERROR_CANCELLED, "", &RowChange::cancelled);
    for head in heads {
        for (metric, value) in [(&ROW_ERROR, head.change.error()), (&ERROR_CANCELLED, head.change.cancelled())] {
            let found = value.map(|value| rounded(metric, None, value, 1));
            found.into_iter().for_each(|found| {
                push(Measurement { layer: Some(head.layer), head: Some(head.head), ..found });
            });
        }
    }
}

/// Pushes the cosine and the largest error of the output of attention in the rows of a target: by layer, and as means.
fn push_outputs(
    layers: usize,
    target: &TargetRows,
    (before, after): (&Trace, &Trace),
    mut push: impl FnMut(Measurement),
) {
    let of_layer = |layer: usize| -> Option<OutputChange> {
        let row = |row: usize| {
            Some(OutputChange::of(before.attention_output_of(layer, row)?, after.attention_output_of(layer, row)?))
        };
        OutputChange::mean(&target.rows.clone().filter_map(row).collect::<Vec<_>>())
    };
    let found: Vec<(usize, OutputChange)> = (0..layers).filter_map(|layer| Some((layer, of_layer(layer)?))).collect();
    let changes: Vec<OutputChange> = found.iter().map(|(_, change)| *change).collect();
    let all = OutputChange::mean(&changes).map(|change| (None, change));
    for (layer, change) in all.into_iter().chain(found.into_iter().map(|(layer, change)| (Some(layer), change))) {
        let n = if layer.is_none() { changes.len() } else { target.rows.len() };
        for (metric, value) in [(&OUTPUT_COSINE, change.cosine), (&OUTPUT_ERROR_MAX, change.largest)] {
            push(Measurement { layer, ..rounded(metric, None, value, n) });
        }
    }
}

/// Change of an output vector.
#[derive(Clone, Copy)]
struct OutputChange {
    cosine: f64,
    /// Largest change of a channel over the root mean square of the vector before.
    largest: f64,
}

impl OutputChange {
    fn of(before: &[f32], after: &[f32]) -> Self {
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let (square, of_both) = (product(before, before), product(before, after));
        let change = |(&before, &after): (&f32, &f32)| (f64::from(after) - f64::from(before)).abs();
        let largest = before.iter().zip(after).map(change).fold(0.0, f64::max);
        Self {
            cosine: of_both / (square * product(after, after)).sqrt(),
            largest: largest / (square / before.len() as f64).sqrt(),
        }
    }

    fn mean(changes: &[Self]) -> Option<Self> {
        let of = |f: fn(&Self) -> f64| mean(&changes.iter().map(f).collect::<Vec<f64>>());
        Some(Self { cosine: of(|change| change.cosine)?, largest: of(|change| change.largest)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(effective: &[f32]) -> KeptRow {
        KeptRow { effective: effective.to_vec(), maps: None }
    }

    #[test]
    fn a_head_without_weight_on_the_context_counts_only_for_all_keys() {
        let (before, after) = ([kept(&[0.9, 0.06, 0.04])], [kept(&[1.0, 0.0, 0.0])]);
        assert!(means(&before, &after, &(1..3)).is_none(), "nothing is left there");
        let all = means(&before, &after, &(0..usize::MAX)).unwrap();
        let head = |context| HeadDivergence { layer: 0, head: 0, all, context, change: RowChange::default() };
        let mut found = Vec::new();
        push_divergences(&[head(None), head(Some(all))], |measure| found.push(measure));
        let n = |metric: &str| found.iter().find(|m| m.metric == metric && m.layer.is_none()).unwrap().n;
        assert_eq!((n(KL.name), n(&KL.variant(CONTEXT_ENDING))), (Some(2), Some(1)));
    }

    #[test]
    fn heads_of_one_map_have_an_error_and_nothing_that_cancels() {
        let all = MeanDivergence { kl_nats: 0.0, total_variation: 0.0, flips: 0.0 };
        let of = |row: KeptRow, later: KeptRow| {
            let mut change = RowChange::default();
            change.add(mixed(&row), mixed(&later));
            HeadDivergence { layer: 1, head: 2, all, context: None, change }
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
        let of_both = names(&[both]);
        let of_maps = MAP_ENDINGS.map(|ending| ROW_ERROR.variant(ending));
        for metric in of_maps.into_iter().chain([ERROR_CORRELATION.name.into(), ERROR_CANCELLED.name.into()]) {
            assert!(of_both.contains(&(metric.to_string(), false)), "{metric}: {of_both:?}");
        }
    }

    #[test]
    fn outputs_of_twice_the_length_have_the_same_direction() {
        let found = OutputChange::of(&[3.0, 4.0], &[6.0, 8.0]);
        assert!((found.cosine - 1.0).abs() < 1e-12);
        assert!((found.largest - 4.0 / 12.5_f64.sqrt()).abs() < 1e-12);
    }
}
