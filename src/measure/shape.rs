//! Entropy and sparsity of the target rows, their attention sinks, and their shares without sinks.

use super::{number, rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::RowProbe;
use crate::metric::{
    ATTENTION_DISTANCE, BOOST, EFFECTIVE_KEYS, ENTROPY, KEYS_90, KEYS_99, NOISE_ABS_NO_SINKS, SHARE_ABS_NO_SINKS,
    SINKS, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, VALUE_NORM_FIRST, VALUE_NORM_SINKS, WEIGHT_MAX,
};
use crate::probe::{shares_without, ReceivedSink, RowShape, ShapeProbe, ShapeSink, SinkProbe};
use crate::prompt::{Prompt, Region, TargetRows};
use crate::record::Measurement;
use anyhow::Result;

/// Entropy, sparsity, boost over uniform attention, sinks, and shares without sinks.
pub struct ShapeMeasure;

impl Measure for ShapeMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let rows: Vec<_> = prompt.answerable_targets().into_iter().map(|target| target.rows).collect();
        vec![Box::new(ShapeProbe::new(rows.clone())), Box::new(SinkProbe::new(prompt.ids.len(), rows))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let (mut shapes, mut received) = (Vec::new(), Vec::new());
        for result in pass.probe_results {
            let at = (result.layer, result.head);
            match result.probe {
                0 => shapes.push((at, result.sink.into_sink::<ShapeSink>())),
                _ => received.push(result.sink.into_sink::<ReceivedSink>()),
            }
        }
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let heads: Vec<HeadShape> = shapes
                .iter()
                .zip(&received)
                .filter_map(|((at, shape), received)| {
                    let shape = shape.sums[index].mean()?;
                    Some(HeadShape::new(*at, shape, received, index, target))
                })
                .collect();
            let rows = pass.prompt.rows_name();
            if !heads.is_empty() {
                mean_measures(&heads, target, |found| output.push(target.query, rows, found));
                head_measures(&heads, |found| output.push(target.query, rows, found));
            }
        }
        Ok(())
    }
}

/// Attention of one head in the rows of one target.
struct HeadShape {
    at: (usize, usize),
    shape: RowShape,
    /// Number of detected sinks.
    sinks: usize,
    /// Share of |a| of the first token.
    first: f64,
    /// Share of |a| of the detected sinks.
    sink_share: f64,
    /// Value norm of the first token over the mean of all keys.
    first_value_norm: Option<f64>,
    /// Mean value norm of the detected sinks over the mean of all keys.
    sink_value_norm: Option<f64>,
    /// Shares of |a| by region.
    shares: [f64; Region::ALL.len()],
    /// Shares by region among the keys that are neither the first token nor a sink.
    shares_no_sinks: [f64; Region::ALL.len()],
}

impl HeadShape {
    fn new(at: (usize, usize), shape: RowShape, received: &ReceivedSink, index: usize, target: &TargetRows) -> Self {
        let magnitudes = &received.magnitudes[index];
        let sinks = received.sinks();
        let total: f64 = magnitudes.iter().map(|&x| f64::from(x)).sum();
        let share = |key: usize| magnitudes.get(key).map_or(0.0, |&x| f64::from(x) / total);
        let mut excluded = sinks.clone();
        excluded.push(0);
        Self {
            at,
            shape,
            sinks: sinks.len(),
            first: share(0),
            first_value_norm: received.value_norm(&[0], index),
            sink_value_norm: received.value_norm(&sinks, index),
            sink_share: sinks.iter().map(|&key| share(key)).sum(),
            shares: shares_without(magnitudes, &target.regions, &[]),
            shares_no_sinks: shares_without(magnitudes, &target.regions, &excluded),
        }
    }
}

impl HeadShape {
    /// Returns the share of a region over its share of the keys that the last row sees; `None` if it sees none of the
    /// region.
    fn boost(&self, region: Region, target: &TargetRows) -> Option<f64> {
        let visible = || self.shape.visible.iter().flat_map(|run| &target.regions[run.clone()]);
        let tokens = visible().filter(|&&other| other == region).count();
        (tokens > 0).then(|| self.shares[region as usize] * visible().count() as f64 / tokens as f64)
    }
}

/// Pushes means over layers and heads. `boost` is a region's share over its share under uniform attention to the keys
/// visible to the last row, as the mean over the heads whose last row sees the region.
fn mean_measures(heads: &[HeadShape], target: &TargetRows, mut push: impl FnMut(Measurement)) {
    let n = heads.len();
    let mean = |f: &dyn Fn(&HeadShape) -> f64| heads.iter().map(f).sum::<f64>() / n as f64;
    push(number(&ENTROPY, mean(&|h| h.shape.entropy_nats), n));
    push(number(&EFFECTIVE_KEYS, mean(&|h| h.shape.effective_keys), n));
    push(number(&ATTENTION_DISTANCE, mean(&|h| h.shape.distance), n));
    push(number(&KEYS_90, mean(&|h| h.shape.keys_90), n));
    push(number(&KEYS_99, mean(&|h| h.shape.keys_99), n));
    push(rounded(&WEIGHT_MAX, None, mean(&|h| h.shape.largest), n));
    push(number(&SINKS, mean(&|h| h.sinks as f64), n));
    push(rounded(&SINK_SHARE_FIRST, None, mean(&|h| h.first), n));
    push(rounded(&SINK_SHARE_DETECTED, None, mean(&|h| h.sink_share), n));
    for (metric, norms) in [
        (&VALUE_NORM_FIRST, heads.iter().filter_map(|head| head.first_value_norm).collect::<Vec<f64>>()),
        (&VALUE_NORM_SINKS, heads.iter().filter_map(|head| head.sink_value_norm).collect()),
    ] {
        if let Some(norm) = crate::stats::mean(&norms) {
            push(number(metric, norm, norms.len()));
        }
    }
    for region in Region::ALL {
        let boosts: Vec<f64> = heads.iter().filter_map(|head| head.boost(region, target)).collect();
        if let Some(boost) = crate::stats::mean(&boosts) {
            let boost = number(&BOOST, boost, boosts.len());
            push(Measurement { region: Some(region.name().into()), ..boost });
        }
        push(rounded(&SHARE_ABS_NO_SINKS, Some(region), mean(&|h| h.shares_no_sinks[region as usize]), n));
    }
    let noise = mean(&|h| Region::NOISE.iter().map(|&region| h.shares_no_sinks[region as usize]).sum());
    push(rounded(&NOISE_ABS_NO_SINKS, None, noise, n));
}

fn head_measures(heads: &[HeadShape], mut push: impl FnMut(Measurement)) {
    for head in heads {
        let mut push = |found| push(Measurement { layer: Some(head.at.0), head: Some(head.at.1), ..found });
        push(number(&ENTROPY, head.shape.entropy_nats, 1));
        push(number(&KEYS_90, head.shape.keys_90, 1));
        push(number(&ATTENTION_DISTANCE, head.shape.distance, 1));
        push(number(&SINKS, head.sinks as f64, 1));
        push(rounded(&SINK_SHARE_DETECTED, None, head.sink_share, 1));
        push(rounded(&SINK_SHARE_FIRST, None, head.first, 1));
        for (metric, norm) in [(&VALUE_NORM_FIRST, head.first_value_norm), (&VALUE_NORM_SINKS, head.sink_value_norm)] {
            norm.into_iter().for_each(|norm| push(number(metric, norm, 1)));
        }
    }
}
