//! Entropy of the rows that predict an answer, regardless of the regions they attend to, and their attention to sinks.

use super::sinks::{SinkCollector, SinkProbe};
use super::target::{RowMean, TargetCollector, TargetProbe, TargetSummary};
use super::{number, of_head, rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::{AttentionRow, RowProbe};
use crate::prompts::{Prompt, Region};
use crate::results::metric::{ENTROPY, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, VALUE_NORM_FIRST};
use crate::results::record::Measurement;
use crate::stats::mean;
use crate::stats::simd::sum_magnitudes;
use anyhow::Result;
use std::ops::Range;

/// Entropy of the rows, and sinks.
pub(super) struct ShapeMeasure;

impl Measure for ShapeMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let targets = prompt.answerable_targets();
        let entropy = TargetProbe::new(&targets, RowEntropy::default());
        let rows = targets.into_iter().map(|target| target.rows).collect();
        vec![Box::new(entropy), Box::new(SinkProbe::new(prompt.ids.len(), rows))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut collected = Vec::new();
        let mut probe_results = pass.probe_results.into_iter();
        while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
            let entropies = first.collector.into_collector::<TargetCollector<RowEntropy>>();
            collected.push(((first.layer, first.head), entropies, second.collector.into_collector::<SinkCollector>()));
        }
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let mut heads = Vec::new();
            for (at, entropies, received) in &collected {
                if let Some(entropy_nats) = entropies.summaries[index].0.mean() {
                    heads.push(HeadShape::new(*at, entropy_nats, received, index));
                }
            }
            if !heads.is_empty() {
                let mut records = mean_records(&heads);
                heads.iter().for_each(|head| records.extend(head.records()));
                output.extend(target.query, pass.prompt.rows_name(), records);
            }
        }
        Ok(())
    }
}

/// Mean entropy of rows, in nats.
#[derive(Clone, Default)]
struct RowEntropy(RowMean);

impl TargetSummary for RowEntropy {
    fn add(&mut self, row: &AttentionRow<'_>, _regions: &[(Region, Range<usize>)]) {
        self.0.add(entropy_nats(row.effective));
    }

    fn merge(&mut self, later: Self) {
        self.0.merge(later.0);
    }
}

/// Returns the Shannon entropy -sum p ln p of p = |a| / sum |a|, in nats: ln n for n equal weights. `None` without a positive,
/// finite sum of magnitudes.
fn entropy_nats(weights: &[f32]) -> Option<f64> {
    let total = sum_magnitudes(weights);
    if !total.is_finite() || total <= 0.0 {
        return None;
    }
    let mut entropy_nats = 0.0;
    for weight in weights {
        let p = f64::from(weight.abs()) / total;
        entropy_nats += if p > 0.0 { -p * p.ln() } else { 0.0 };
    }
    Some(entropy_nats)
}

/// Attention of one head in the rows of one target.
struct HeadShape {
    at: (usize, usize),
    entropy_nats: f64,
    /// Share of |a| of the first token.
    first: f64,
    /// Share of |a| of the detected sinks.
    sinks: f64,
    /// Value norm of the first token over the mean of all keys.
    first_value_norm: Option<f64>,
}

impl HeadShape {
    fn new(at: (usize, usize), entropy_nats: f64, received: &SinkCollector, index: usize) -> Self {
        let magnitudes = &received.magnitudes[index];
        let total: f64 = magnitudes.iter().map(|&x| f64::from(x)).sum();
        let share = |key: usize| magnitudes.get(key).map_or(0.0, |&x| f64::from(x) / total);
        Self {
            at,
            entropy_nats,
            first: share(0),
            sinks: received.sinks().into_iter().map(share).sum(),
            first_value_norm: received.first_value_norm(index),
        }
    }

    fn records(&self) -> Vec<Measurement> {
        let mut records = vec![
            number(&ENTROPY, self.entropy_nats, 1),
            rounded(&SINK_SHARE_DETECTED, self.sinks, 1),
            rounded(&SINK_SHARE_FIRST, self.first, 1),
        ];
        records.extend(self.first_value_norm.map(|norm| number(&VALUE_NORM_FIRST, norm, 1)));
        records.into_iter().map(|record| of_head(self.at, record)).collect()
    }
}

/// Returns means over layers and heads.
fn mean_records(heads: &[HeadShape]) -> Vec<Measurement> {
    let n = heads.len();
    let mut records = vec![
        number(&ENTROPY, heads.iter().map(|head| head.entropy_nats).sum::<f64>() / n as f64, n),
        rounded(&SINK_SHARE_FIRST, heads.iter().map(|head| head.first).sum::<f64>() / n as f64, n),
        rounded(&SINK_SHARE_DETECTED, heads.iter().map(|head| head.sinks).sum::<f64>() / n as f64, n),
    ];
    let norms: Vec<f64> = heads.iter().filter_map(|head| head.first_value_norm).collect();
    records.extend(mean(&norms).map(|norm| number(&VALUE_NORM_FIRST, norm, norms.len())));
    records
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use crate::prompts::TargetRows;
    use proptest::prelude::*;

    fn probe(rows: &[Range<usize>]) -> TargetProbe<RowEntropy> {
        let mut targets = Vec::new();
        for rows in rows {
            targets.push(TargetRows { query: None, rows: rows.clone(), regions: Vec::new() });
        }
        TargetProbe::new(&targets, RowEntropy::default())
    }

    /// Mean entropies of targets.
    fn means(probe: &TargetProbe<RowEntropy>, rows: &[TestRow], block: usize) -> Vec<RowMean> {
        let collector = watch::<TargetCollector<RowEntropy>>(probe, rows, block);
        collector.summaries.into_iter().map(|entropy| entropy.0).collect()
    }

    fn entropy(weights: &[f32]) -> f64 {
        entropy_nats(weights).unwrap()
    }

    #[test]
    fn weights_of_either_sign_have_the_known_entropy() {
        let equal: Vec<f32> = (0..100).map(|i| if i % 3 == 0 { -0.1 } else { 0.1 }).collect();
        assert!((entropy(&equal) - 100.0_f64.ln()).abs() < 1e-9);
        assert_eq!(entropy(&[0.0, -0.75, 0.0, 0.0]), 0.0);
        assert!((entropy(&[0.125, 0.5, 0.125, -0.25]) - 1.75 * 2.0_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn rows_of_a_query_are_averaged_and_others_left_out() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[0.0, 1.0, 0.0], &[0.25; 4]].map(TestRow::one);
        let probe = probe(&[1..3, 3..4, 7..9]);
        assert!(!probe.wants(0, 0, 0));
        let found = means(&probe, &rows, 2);
        assert!((found[0].mean().unwrap() - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!((found[0].rows, found[1].rows), (2, 1));
        assert_eq!(found[2].mean(), None);
    }

    #[test]
    fn rows_without_weight_have_no_entropy() {
        assert_eq!([entropy_nats(&[0.0, 0.0]), entropy_nats(&[f32::NAN, 1.0])], [None, None]);
    }

    proptest! {
        #[test]
        fn entropy_lies_between_zero_and_that_of_equal_weights(
            weights in prop::collection::vec(-1.0_f32..1.0, 1..100)
        ) {
            prop_assume!(weights.iter().any(|&x| x != 0.0));
            prop_assert!((-1e-12..=(weights.len() as f64).ln() + 1e-12).contains(&entropy(&weights)));
        }

        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 2_usize..40, block in 1_usize..40, seed: u64) {
            let (rows, probe) = (random_rows(tokens, seed), probe(&[0..tokens, 1..2]));
            let (whole, merged) = (means(&probe, &rows, tokens), means(&probe, &rows, block));
            for (a, b) in whole.iter().zip(&merged) {
                prop_assert_eq!(a.rows, b.rows);
                prop_assert!((a.mean().unwrap_or(0.0) - b.mean().unwrap_or(0.0)).abs() < 1e-11);
            }
        }
    }
}
