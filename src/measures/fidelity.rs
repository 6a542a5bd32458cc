//! Divergence of attention, its output and predictions under a condition from the baseline pass over the same prompt.

use super::target::{TargetCollector, TargetProbe, TargetSummary};
use super::{number, of_head, rounded, Measure, MeasureOutput, Needs, ObservedPass};
use crate::results::record::Measurement;
use crate::results::run_table::{Content, RunTable};
use anyhow::{Context, Result};
use engine::attention::{AttentionRow, RowProbe, Trace};
use engine::model::pass::Predictions;
use names::metric::{
    Metric, ANSWER_FLIPS, ERROR_CANCELLED, KL, NLL, OUTPUT_COSINE, ROW_ERROR, TOP_TOKEN_FLIPS, TOTAL_VARIATION,
};
use names::{metric, HeadPlace, Region};
use stats::{mean, Divergence, MixedRow, RowChange, TwoMaps};
use std::collections::BTreeMap;
use std::ops::Range;
use text::Prompt;

/// Divergence of the target rows, what cancels of the changes of their two maps, and changes of the output of attention;
/// negative log-likelihood and changes of the most likely token over prose; changed answers.
pub(super) struct FidelityMeasure;

/// Data of the baseline pass.
struct Baseline {
    heads: HeadRows,
    predictions: Predictions,
    /// By question, `true` if it is answered right.
    hits: Vec<bool>,
    trace: Trace,
}

/// Rows of each target, by head.
type HeadRows = BTreeMap<HeadPlace, Vec<Vec<MixedRow>>>;

impl Measure for FidelityMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(TargetProbe::new(&prompt.answerable_targets(), Vec::<MixedRow>::new()))]
    }

    fn needs(&self) -> Needs {
        Needs { predictions: true, trace: true, ..Needs::default() }
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let predictions = pass.predictions.context("predictions were asked for")?;
        let trace = pass.trace.context("a trace was asked for")?;
        let mut heads = HeadRows::new();
        for result in pass.probe_results {
            let rows = result.collector.into_collector::<TargetCollector<Vec<MixedRow>>>().summaries;
            heads.insert(result.at, rows);
        }
        // The prediction of token i is at i - 1.
        let prose: Vec<usize> = pass.prompt.scored_tokens().into_iter().map(|token| token - 1).collect();
        let nll = prose.iter().map(|&i| f64::from(predictions.nll_nats[i])).sum::<f64>() / prose.len() as f64;
        output.push(None, "filler", number(&NLL, nll, prose.len()));
        let hits: Vec<bool> = pass.queries.iter().map(|query| query.hit).collect();
        let Some(baseline) = pass.baseline else {
            let predictions = predictions.clone();
            output.kept = Some(Box::new(Baseline { heads, predictions, hits, trace: trace.clone() }));
            return Ok(());
        };
        let baseline = baseline.downcast_ref::<Baseline>().expect("this measure keeps a baseline");
        let flips = prose.iter().filter(|&&i| predictions.top[i] != baseline.predictions.top[i]).count();
        let flips = flips as f64 / prose.len() as f64;
        output.push(None, "filler", number(&TOP_TOKEN_FLIPS, flips, prose.len()));
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let mut diverged = Vec::new();
            for (at, rows) in &heads {
                diverged.extend(HeadDivergence::new(*at, &baseline.heads[at][index], &rows[index]));
            }
            let mut records = Vec::new();
            if let Some(query) = target.query {
                let flipped = hits[query] != baseline.hits[query];
                records.push(number(&ANSWER_FLIPS, f64::from(u8::from(flipped)), 1));
            }
            add_divergences(&diverged, &mut records);
            add_changes(&diverged, &mut records);
            let cosines = output_cosines(pass.model.config.layers.len(), &target.rows, &baseline.trace, trace);
            add_cosines(&cosines, target.rows.len(), &mut records);
            output.extend(target.query, pass.prompt.rows_name(), records);
        }
        Ok(())
    }
}

/// The rows are kept for comparison with another pass over the same prompt.
impl TargetSummary for Vec<MixedRow> {
    fn add(&mut self, row: &AttentionRow<'_>, _regions: &[(Region, Range<usize>)]) {
        let maps = match row.maps {
            [first, second] => Some(TwoMaps { first: first.to_vec(), second: second.to_vec(), weight: row.mix[1] }),
            _ => None,
        };
        self.push(MixedRow { effective: row.effective.to_vec(), maps });
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }
}

/// Divergence of one head, as means over the rows of a target.
struct HeadDivergence {
    at: HeadPlace,
    divergence: Divergence,
    /// Changes of the rows and of the maps.
    change: RowChange,
}

impl HeadDivergence {
    /// Compares rows with those of the baseline; `None` if no pair of rows has weight.
    fn new(at: HeadPlace, before: &[MixedRow], after: &[MixedRow]) -> Option<Self> {
        let mut kl_nats = Vec::new();
        let mut total_variations = Vec::new();
        let mut change = RowChange::default();
        for (before, after) in before.iter().zip(after) {
            if let Some(divergence) = Divergence::of(&before.effective, &after.effective) {
                kl_nats.push(divergence.kl_nats);
                total_variations.push(divergence.total_variation);
            }
            change.add(before, after);
        }
        let divergence = Divergence { kl_nats: mean(&kl_nats)?, total_variation: mean(&total_variations)? };
        Some(Self { at, divergence, change })
    }
}

/// Adds divergences: means over heads, and the total variation of each.
fn add_divergences(heads: &[HeadDivergence], records: &mut Vec<Measurement>) {
    let kl_nats: Vec<f64> = heads.iter().map(|head| head.divergence.kl_nats).collect();
    records.extend(mean(&kl_nats).map(|mean| number(&KL, mean, heads.len())));
    let total_variations = heads.iter().map(|head| (head.at, head.divergence.total_variation));
    add_heads(&TOTAL_VARIATION, total_variations.collect(), records);
}

/// Adds changes of rows and what cancels of those of maps: means over heads, and of each head.
fn add_changes(heads: &[HeadDivergence], records: &mut Vec<Measurement>) {
    let errors = heads.iter().filter_map(|head| Some((head.at, head.change.error()?)));
    add_heads(&ROW_ERROR, errors.collect(), records);
    let cancelled = heads.iter().filter_map(|head| Some((head.at, head.change.cancelled()?)));
    add_heads(&ERROR_CANCELLED, cancelled.collect(), records);
}

/// Adds the mean of the numbers of heads, and each of them.
fn add_heads(metric: &Metric, heads: Vec<(HeadPlace, f64)>, records: &mut Vec<Measurement>) {
    let numbers: Vec<f64> = heads.iter().map(|(_, number)| *number).collect();
    records.extend(mean(&numbers).map(|mean| rounded(metric, mean, numbers.len())));
    for (at, number) in heads {
        records.push(of_head(at, rounded(metric, number, 1)));
    }
}

/// Returns, by layer, the mean cosine of the output of attention in these rows with that before. Layers without traced rows
/// have none.
fn output_cosines(layers: usize, rows: &Range<usize>, before: &Trace, after: &Trace) -> Vec<(usize, f64)> {
    let mut cosines = Vec::new();
    for layer in 0..layers {
        let mut of_rows = Vec::new();
        for row in rows.clone() {
            let outputs = before.attention_output_of(layer, row).zip(after.attention_output_of(layer, row));
            of_rows.extend(outputs.map(|(before, after)| cosine(before, after)));
        }
        cosines.extend(mean(&of_rows).map(|mean| (layer, mean)));
    }
    cosines
}

/// Adds cosines of a target with this number of rows: their mean, and that of each layer.
fn add_cosines(cosines: &[(usize, f64)], rows: usize, records: &mut Vec<Measurement>) {
    let numbers: Vec<f64> = cosines.iter().map(|(_, cosine)| *cosine).collect();
    records.extend(mean(&numbers).map(|mean| rounded(&OUTPUT_COSINE, mean, numbers.len())));
    for (layer, cosine) in cosines {
        records.push(Measurement { layer: Some(*layer), ..rounded(&OUTPUT_COSINE, *cosine, rows) });
    }
}

/// The cosine of the angle between two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

pub(crate) const FIDELITY: RunTable = RunTable {
    id: "fidelity",
    title: "Changes by quantisation",
    note: "Against the untreated pass over the same prompt [95 % interval].",
    content: Content::Numbers {
        numbers: &[
            metric::ANSWER_FLIPS.overall(),
            metric::TOP_TOKEN_FLIPS.overall(),
            metric::KL.overall(),
            metric::TOTAL_VARIATION.overall(),
            metric::ROW_ERROR.overall(),
            metric::ERROR_CANCELLED.overall(),
            metric::OUTPUT_COSINE.overall(),
        ],
        by: &[],
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(effective: &[f32]) -> MixedRow {
        MixedRow { effective: effective.to_vec(), maps: None }
    }

    #[test]
    fn heads_of_one_map_have_an_error_and_nothing_that_cancels() {
        let diverged = |row: MixedRow, later: MixedRow| {
            HeadDivergence::new(HeadPlace { layer: 1, head: 2 }, &[row], &[later]).unwrap()
        };
        let two = |first: [f32; 2], second: [f32; 2]| MixedRow {
            effective: vec![first[0] - 0.5 * second[0], first[1] - 0.5 * second[1]],
            maps: Some(TwoMaps { first: first.to_vec(), second: second.to_vec(), weight: -0.5 }),
        };
        let names = |heads: &[HeadDivergence]| {
            let mut records = Vec::new();
            add_changes(heads, &mut records);
            records.into_iter().map(|record| (record.metric.to_string(), record.layer.is_some())).collect::<Vec<_>>()
        };
        let one = diverged(kept(&[0.5, 0.5]), kept(&[0.75, 0.25]));
        assert_eq!(names(&[one]), [(ROW_ERROR.name.to_owned(), false), (ROW_ERROR.name.to_owned(), true)]);
        let both = diverged(two([0.5, 0.5], [0.5, 0.5]), two([0.75, 0.25], [0.75, 0.25]));
        assert!(names(&[both]).contains(&(ERROR_CANCELLED.name.to_owned(), false)));
    }

    #[test]
    fn outputs_of_twice_the_length_have_the_same_direction() {
        assert!((cosine(&[3.0, 4.0], &[6.0, 8.0]) - 1.0).abs() < 1e-12);
    }
}
