//! Entropy of the target rows, and their attention sinks.

use super::{number, rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::RowProbe;
use crate::measures::probe::{EntropyCollector, EntropyProbe, ReceivedCollector, SinkProbe};
use crate::prompts::Prompt;
use crate::results::metric::{ENTROPY, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, VALUE_NORM_FIRST};
use crate::results::record::Measurement;
use anyhow::Result;

/// Entropy of the rows, and sinks.
pub struct ShapeMeasure;

impl Measure for ShapeMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let rows: Vec<_> = prompt.answerable_targets().into_iter().map(|target| target.rows).collect();
        vec![Box::new(EntropyProbe::new(rows.clone())), Box::new(SinkProbe::new(prompt.ids.len(), rows))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let (mut entropies, mut received) = (Vec::new(), Vec::new());
        for result in pass.probe_results {
            let at = (result.layer, result.head);
            match result.probe {
                0 => entropies.push((at, result.collector.into_collector::<EntropyCollector>())),
                _ => received.push(result.collector.into_collector::<ReceivedCollector>()),
            }
        }
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let heads: Vec<HeadShape> = entropies
                .iter()
                .zip(&received)
                .filter_map(|((at, entropy), received)| {
                    let entropy_nats = entropy.sums[index].mean()?;
                    Some(HeadShape::new(*at, entropy_nats, received, index))
                })
                .collect();
            let rows = pass.prompt.rows_name();
            if !heads.is_empty() {
                mean_measures(&heads, |found| output.push(target.query, rows, found));
                head_measures(&heads, |found| output.push(target.query, rows, found));
            }
        }
        Ok(())
    }
}

/// Attention of one head in the rows of one target.
struct HeadShape {
    at: (usize, usize),
    entropy_nats: f64,
    /// Share of |a| of the first token.
    first: f64,
    /// Share of |a| of the detected sinks.
    sink_share: f64,
    /// Value norm of the first token over the mean of all keys.
    first_value_norm: Option<f64>,
}

impl HeadShape {
    fn new(at: (usize, usize), entropy_nats: f64, received: &ReceivedCollector, index: usize) -> Self {
        let magnitudes = &received.magnitudes[index];
        let total: f64 = magnitudes.iter().map(|&x| f64::from(x)).sum();
        let share = |key: usize| magnitudes.get(key).map_or(0.0, |&x| f64::from(x) / total);
        Self {
            at,
            entropy_nats,
            first: share(0),
            sink_share: received.sinks().into_iter().map(share).sum(),
            first_value_norm: received.first_value_norm(index),
        }
    }
}

/// Pushes means over layers and heads.
fn mean_measures(heads: &[HeadShape], mut push: impl FnMut(Measurement)) {
    let n = heads.len();
    let mean = |f: &dyn Fn(&HeadShape) -> f64| heads.iter().map(f).sum::<f64>() / n as f64;
    push(number(&ENTROPY, mean(&|h| h.entropy_nats), n));
    push(rounded(&SINK_SHARE_FIRST, None, mean(&|h| h.first), n));
    push(rounded(&SINK_SHARE_DETECTED, None, mean(&|h| h.sink_share), n));
    let norms: Vec<f64> = heads.iter().filter_map(|head| head.first_value_norm).collect();
    if let Some(norm) = crate::stats::mean(&norms) {
        push(number(&VALUE_NORM_FIRST, norm, norms.len()));
    }
}

fn head_measures(heads: &[HeadShape], mut push: impl FnMut(Measurement)) {
    for head in heads {
        let mut push = |found| push(Measurement { layer: Some(head.at.0), head: Some(head.at.1), ..found });
        push(number(&ENTROPY, head.entropy_nats, 1));
        push(rounded(&SINK_SHARE_DETECTED, None, head.sink_share, 1));
        push(rounded(&SINK_SHARE_FIRST, None, head.first, 1));
        if let Some(norm) = head.first_value_norm {
            push(number(&VALUE_NORM_FIRST, norm, 1));
        }
    }
}
