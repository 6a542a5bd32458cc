//! Entropy of the rows that predict an answer, regardless of the regions they attend to, and their attention to sinks.

use super::sinks::{add_longer, SinkCollector, SinkProbe};
use super::target::{RowMean, TargetCollector, TargetProbe, TargetSummary};
use super::{number, of_head, rounded, Measure, MeasureOutput, ObservedPass};
use crate::results::record::Measurement;
use crate::results::run_table::{Content, RunTable};
use anyhow::Result;
use engine::attention::{AttentionRow, RowProbe};
use names::metric::{ENTROPY, NOISE_OUT_NO_SINKS, SHARE_ABS, SINK_SHARE_DETECTED, SINK_SHARE_FIRST, VALUE_NORM_FIRST};
use names::{HeadPlace, Region};
use stats::mean;
use stats::simd::{add_magnitudes, sum_magnitudes};
use std::ops::Range;
use text::Prompt;

/// Entropy of the rows, and sinks.
pub(crate) struct ShapeMeasure;

impl Measure for ShapeMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let rows = TargetProbe::new(&prompt.answerable_targets(), RowShapes::default());
        vec![Box::new(rows), Box::new(SinkProbe::new(prompt.ids.len()))]
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut collected = Vec::new();
        let mut probe_results = pass.probe_results.into_iter();
        while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
            let at = first.at;
            let targets = first.collector.into_collector::<TargetCollector<RowShapes>>().summaries;
            collected.push((at, targets, second.collector.into_collector::<SinkCollector>().sinks()));
        }
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let mut heads = Vec::new();
            for (at, targets, sinks) in &collected {
                heads.extend(HeadShape::new(*at, &targets[index], sinks));
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

/// Entropy and weights of the rows of one target.
#[derive(Clone, Default)]
struct RowShapes {
    entropy_nats: RowMean,
    /// Per key, the sum of |a| over the rows.
    magnitudes: Vec<f32>,
    /// Norm of the first key's value.
    first_norm: f64,
    /// Sum of the norms of the values of all keys.
    norm_sum: f64,
}

impl TargetSummary for RowShapes {
    fn add(&mut self, row: &AttentionRow<'_>, _regions: &[(Region, Range<usize>)]) {
        self.entropy_nats.add(entropy_nats(row.effective));
        for key in self.magnitudes.len()..row.effective.len() {
            let norm = f64::from(row.values.norm(key) as f32);
            self.first_norm = if key == 0 { norm } else { self.first_norm };
            self.norm_sum += norm;
        }
        self.magnitudes.resize(self.magnitudes.len().max(row.effective.len()), 0.0);
        add_magnitudes(&mut self.magnitudes, row.effective, 1.0);
    }

    fn merge(&mut self, later: Self) {
        self.entropy_nats.merge(later.entropy_nats);
        if later.magnitudes.len() > self.magnitudes.len() {
            self.first_norm = later.first_norm;
            self.norm_sum = later.norm_sum;
        }
        add_longer(&mut self.magnitudes, &later.magnitudes);
    }
}

impl RowShapes {
    /// The norm of the first token's value relative to the mean of all keys up to the last row: near 0 for a null
    /// sink, which receives attention but adds nothing to the output (Kobayashi et al. 2020), unlike a sink that broadcasts
    /// information. `None` without rows.
    fn first_value_norm(&self) -> Option<f64> {
        let mean = self.norm_sum / self.magnitudes.len() as f64;
        (mean > 0.0).then(|| self.first_norm / mean)
    }
}

/// The Shannon entropy -sum p ln p of p = |a| / sum |a|, in nats: ln n for n equal weights. `None` without a positive,
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
    at: HeadPlace,
    entropy_nats: f64,
    /// Share of |a| of the first token.
    first: f64,
    /// Share of |a| of the detected sinks.
    sinks: f64,
    /// Value norm of the first token over the mean of all keys.
    first_value_norm: Option<f64>,
}

impl HeadShape {
    /// `None` if no row has weight. `sinks` are the head's.
    fn new(at: HeadPlace, rows: &RowShapes, sinks: &[usize]) -> Option<Self> {
        let total: f64 = rows.magnitudes.iter().map(|&x| f64::from(x)).sum();
        let share = |key: usize| rows.magnitudes.get(key).map_or(0.0, |&x| f64::from(x) / total);
        Some(Self {
            at,
            entropy_nats: rows.entropy_nats.mean()?,
            first: share(0),
            sinks: sinks.iter().map(|&key| share(key)).sum(),
            first_value_norm: rows.first_value_norm(),
        })
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

/// Means over layers and heads.
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

pub(crate) const SHAPE: RunTable = RunTable {
    id: "shape",
    title: "Entropy and sinks",
    note: "How spread out the rows are, and what sinks take [95 % interval].",
    content: Content::Numbers {
        numbers: &[
            ENTROPY.overall(),
            SINK_SHARE_FIRST.overall(),
            SINK_SHARE_DETECTED.overall(),
            SHARE_ABS.of("sink"),
            VALUE_NORM_FIRST.overall(),
            NOISE_OUT_NO_SINKS.overall(),
        ],
        by: &[],
    },
};

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;
    use text::TargetRows;

    fn probe(rows: &[Range<usize>]) -> TargetProbe<RowShapes> {
        let mut targets = Vec::new();
        for rows in rows {
            targets.push(TargetRows { query: None, rows: rows.clone(), regions: Vec::new() });
        }
        TargetProbe::new(&targets, RowShapes::default())
    }

    fn shapes(probe: &TargetProbe<RowShapes>, rows: &[TestRow], block: usize) -> Vec<RowShapes> {
        watch::<TargetCollector<RowShapes>>(probe, rows, block).summaries
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
        let means: Vec<RowMean> = shapes(&probe, &rows, 2).iter().map(|shape| shape.entropy_nats).collect();
        assert!((means[0].mean().unwrap() - 0.5 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!((means[0].rows, means[1].rows), (2, 1));
        assert_eq!(means[2].mean(), None);
    }

    #[test]
    fn magnitudes_are_summed_over_the_rows_of_a_target() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[0.5, -0.125, 0.375], &[0.5, 0.125, 0.25, -0.125]].map(TestRow::one);
        let of_targets = shapes(&probe(&[2..4, 9..12]), &rows, 3);
        assert_eq!(of_targets[0].magnitudes, [1.0, 0.25, 0.625, 0.125]);
        assert!(of_targets[1].magnitudes.is_empty());
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
            let rows = random_rows(tokens, seed);
            let probe = probe(&[0..tokens, 1..2]);
            let whole = shapes(&probe, &rows, tokens);
            let merged = shapes(&probe, &rows, block);
            for (a, b) in whole.iter().zip(&merged) {
                let entropy_a = a.entropy_nats;
                let entropy_b = b.entropy_nats;
                prop_assert_eq!(entropy_a.rows, entropy_b.rows);
                prop_assert!((entropy_a.mean().unwrap_or(0.0) - entropy_b.mean().unwrap_or(0.0)).abs() < 1e-11);
                prop_assert_eq!((a.first_norm, a.norm_sum), (b.first_norm, b.norm_sum));
                prop_assert_eq!(a.magnitudes.len(), b.magnitudes.len());
                for (a, b) in a.magnitudes.iter().zip(&b.magnitudes) {
                    prop_assert!((a - b).abs() < 1e-5 * (1.0 + a.abs()));
                }
            }
        }
    }
}
