//! Accuracy of answers, and attention and output by region of the rows that predict them.

mod tables;

pub(crate) use tables::{ANSWERS, ATTENTION, DEPTH, HIDDEN, REGIONS};

use super::output::{mean_over_layers, sum_of_noise, Contributions, LayerOutput, LayerSums};
use super::sinks::{SinkCollector, SinkProbe};
use super::target::{TargetCollector, TargetProbe, TargetSummary};
use super::{number, of_head, of_region, rounded, HiddenScores, Measure, MeasureOutput, Needs, ObservedPass};
use crate::results::record::Measurement;
use anyhow::{Context, Result};
use engine::attention::{AttentionRow, ProbeResult, RowProbe};
use engine::model::gradient::HeadAttributions;
use engine::model::pass::QueryScore;
use names::metric::{
    Metric, ACCURACY, ANSWER_LOG_PROB, CANCELLED, HEAD_ATTRIBUTION, HIDDEN_ACCURACY, HIDDEN_LOG_PROB, LAMBDA,
    NOISE_ABS, NOISE_OUT, NOISE_OUT_NO_SINKS, NOISE_SIGNED, SHARE_ABS, SHARE_OUT, SHARE_SIGNED,
};
use names::{HeadPlace, Region};
use stats::mean;
use stats::simd::sum;
use std::ops::Range;
use text::Prompt;

const REGION_COUNT: usize = Region::ALL.len();

/// Smallest |Σ a| relative to Σ|a| for which shares of the signed sum are reported. At this limit, such a share has ten
/// times the error of the mass.
const SMALL_SUM: f64 = 0.1;

/// Accuracy and log-probability of the answer; attention and output by region, of all heads and by head.
pub(crate) struct AnswerMeasure {
    /// `true` if every layer and head gets records of its own.
    pub(crate) by_head: bool,
    /// `true` if sinks are detected, and the output of noise is measured without them too.
    pub(crate) sinks: bool,
}

impl Measure for AnswerMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let targets = prompt.answerable_targets();
        let contributions = Contributions { with_strong_keys: self.sinks, ..Contributions::default() };
        let mut probes: Vec<Box<dyn RowProbe>> = vec![
            Box::new(TargetProbe::new(&targets, Allocation::default())),
            Box::new(TargetProbe::new(&targets, contributions)),
        ];
        if self.sinks {
            probes.push(Box::new(SinkProbe::new(prompt.ids.len())));
        }
        probes
    }

    fn needs(&self) -> Needs {
        Needs { trace: true, ..Needs::default() }
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let collected = collected_heads(std::mem::take(&mut pass.probe_results));
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let (heads, layers) = measured_heads(&pass, &collected, index)?;
            let mut records = Vec::new();
            if let Some(query) = target.query {
                let score = &pass.queries[query];
                records.push(number(&ACCURACY, f64::from(u8::from(score.hit)), 1));
                records.push(number(&ANSWER_LOG_PROB, score.log_prob_nats, 1));
                add_hidden(query, score, pass.hidden, &mut records);
            }
            if !heads.is_empty() {
                add_output(&layers, self.sinks, &mut records);
                add_means(&heads, &mut records);
            }
            if self.by_head {
                let attributions = target.query.and_then(|query| pass.attributions.get(query));
                heads.iter().for_each(|head| add_head(head, attributions, &mut records));
            }
            output.extend(target.query, pass.prompt.rows_name(), records);
        }
        Ok(())
    }
}

/// Adds what hiding regions changes in the score of a question.
fn add_hidden(query: usize, seen: &QueryScore, hidden: &[HiddenScores], records: &mut Vec<Measurement>) {
    for HiddenScores { region, queries } in hidden {
        let QueryScore { hit, log_prob_nats, .. } = queries[query];
        let hits = f64::from(u8::from(hit)) - f64::from(u8::from(seen.hit));
        for measurement in
            [number(&HIDDEN_LOG_PROB, log_prob_nats - seen.log_prob_nats, 1), number(&HIDDEN_ACCURACY, hits, 1)]
        {
            records.push(Measurement { region: Some(region.clone().into()), ..measurement });
        }
    }
}

/// Probe results of one head.
struct CollectedHead {
    at: HeadPlace,
    allocations: Box<TargetCollector<Allocation>>,
    contributions: Box<TargetCollector<Contributions>>,
    /// The detected sinks; empty if they are not asked for.
    sinks: Vec<usize>,
}

/// Joins the results of the probes, which come in (layer, head, probe) order.
fn collected_heads(probe_results: Vec<ProbeResult>) -> Vec<CollectedHead> {
    let mut probe_results = probe_results.into_iter().peekable();
    let mut heads = Vec::new();
    while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
        let third = probe_results.next_if(|result| result.probe == 2);
        heads.push(CollectedHead {
            at: first.at,
            allocations: first.collector.into_collector(),
            contributions: second.collector.into_collector(),
            sinks: third.map_or_else(Vec::new, |third| third.collector.into_collector::<SinkCollector>().sinks()),
        });
    }
    heads
}

/// Attention and output of one head in the rows of one target.
struct MeasuredHead<'a> {
    at: HeadPlace,
    allocation: &'a Allocation,
    /// Share of each region in what it writes, in the order of [`Region::ALL`].
    share_out: [f64; REGION_COUNT],
}

/// Computes attention and output of every head, and the output of every layer, for the target with this index.
fn measured_heads<'a>(
    pass: &ObservedPass<'_>,
    collected: &'a [CollectedHead],
    index: usize,
) -> Result<(Vec<MeasuredHead<'a>>, Vec<LayerOutput>)> {
    let mut measured = Vec::new();
    let mut layers = Vec::new();
    if collected.is_empty() {
        return Ok((measured, layers));
    }
    let trace = pass.trace.context("a trace was asked for")?;
    for heads in collected.chunk_by(|a, b| a.at.layer == b.at.layer) {
        let mut sums = LayerSums::new(pass.model, trace, heads[0].at.layer);
        for CollectedHead { at, allocations, contributions, sinks } in heads {
            let rows = &contributions.summaries[index].rows;
            let share_out = sums.add_head(at.head, rows)?;
            sums.add_sinks(at.head, rows, sinks)?;
            measured.push(MeasuredHead { at: *at, allocation: &allocations.summaries[index], share_out });
        }
        layers.push(sums.finish()?);
    }
    Ok((measured, layers))
}

/// Adds the output of all heads by region: means over layers, weighted by what these write.
fn add_output(layers: &[LayerOutput], sinks: bool, records: &mut Vec<Measurement>) {
    let n = layers.len();
    for region in Region::ALL {
        let share = mean_over_layers(layers, |layer| layer.share_out[region as usize]);
        records.push(of_region(region, rounded(&SHARE_OUT, share, n)));
    }
    records.push(rounded(&NOISE_OUT, mean_over_layers(layers, LayerOutput::noise_out), n));
    if sinks {
        let share = mean_over_layers(layers, |layer| layer.noise_out() - layer.noise_sinks);
        records.push(rounded(&NOISE_OUT_NO_SINKS, share, n));
    }
}

/// A share of a region in the attention of a head; NaN if it has none.
type RegionShare = fn(&Allocation, Region) -> f64;

/// The shares of regions in attention rows, with the metrics of their sums over noise.
const SHARES: [(&Metric, &Metric, RegionShare); 2] =
    [(&SHARE_ABS, &NOISE_ABS, Allocation::share_abs), (&SHARE_SIGNED, &NOISE_SIGNED, Allocation::share_signed_or_nan)];

/// Adds means over layers and heads.
fn add_means(heads: &[MeasuredHead<'_>], records: &mut Vec<Measurement>) {
    for (metric, noise_metric, share) in SHARES {
        for region in Region::ALL {
            records.push(of_region(region, mean_over_heads(metric, heads, |allocation| share(allocation, region))));
        }
        records.push(mean_over_heads(noise_metric, heads, |allocation| {
            sum_of_noise(&Region::ALL.map(|region| share(allocation, region)))
        }));
    }
    for (i, metric) in [&SHARE_ABS, &SHARE_SIGNED].into_iter().enumerate() {
        let mean = mean_over_heads(metric, heads, |allocation| allocation.sink_shares().map_or(f64::NAN, |s| s[i]));
        if mean.n > Some(0) {
            records.push(of_sink(mean));
        }
    }
    if heads.iter().any(|head| head.allocation.differential) {
        records.push(mean_over_heads(&LAMBDA, heads, Allocation::mean_lambda));
        records.push(mean_over_heads(&CANCELLED, heads, Allocation::cancelled_everywhere));
        for region in Region::ALL {
            let mean = mean_over_heads(&CANCELLED, heads, |allocation| allocation.cancelled(region));
            records.push(of_region(region, mean));
        }
    }
}

/// The mean of a number over the heads where it is finite. Heads without output have no share.
fn mean_over_heads(metric: &Metric, heads: &[MeasuredHead<'_>], number: impl Fn(&Allocation) -> f64) -> Measurement {
    let numbers: Vec<f64> = heads.iter().map(|head| number(head.allocation)).filter(|x| x.is_finite()).collect();
    rounded(metric, mean(&numbers).unwrap_or(f64::NAN), numbers.len())
}

/// A measurement as that of the sink, a region without tokens.
fn of_sink(measurement: Measurement) -> Measurement {
    Measurement { region: Some("sink".into()), ..measurement }
}

/// Adds the measurements of one head.
fn add_head(head: &MeasuredHead<'_>, attributions: Option<&HeadAttributions>, records: &mut Vec<Measurement>) {
    let MeasuredHead { at, allocation, share_out } = head;
    let mut measurements = Vec::new();
    for region in Region::ALL {
        measurements.push(of_region(region, rounded(&SHARE_OUT, share_out[region as usize], 1)));
    }
    measurements.push(of_region(Region::Answer, rounded(&SHARE_ABS, allocation.share_abs(Region::Answer), 1)));
    if let Some([share, ..]) = allocation.sink_shares() {
        measurements.push(of_sink(rounded(&SHARE_ABS, share, 1)));
    }
    if let Some(attributions) = attributions {
        measurements.push(rounded(&HEAD_ATTRIBUTION, attributions[at.layer][at.head], 1));
    }
    if allocation.differential {
        let share = allocation.share_signed_or_nan(Region::Answer);
        measurements.push(of_region(Region::Answer, rounded(&SHARE_SIGNED, share, 1)));
        measurements.push(rounded(&CANCELLED, allocation.cancelled_everywhere(), 1));
        measurements.push(rounded(&LAMBDA, allocation.mean_lambda(), 1));
    }
    records.extend(measurements.into_iter().map(|measurement| of_head(*at, measurement)));
}

/// Sums of mixture weights by region, in the order of [`Region::ALL`], over the rows of one target of one head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Sum of the weights.
    signed: [f64; REGION_COUNT],
    /// Sum of their magnitudes.
    magnitude: [f64; REGION_COUNT],
    /// Sum of the weights of the maps before subtraction: Σ_j |mix_j| A_j.
    unmixed: [f64; REGION_COUNT],
    /// Sums of the weight of the sink, which is not a key and has no value; `None` without sinks.
    sink: Option<SinkSums>,
    /// Sum of lambda over rows; 0 for standard attention.
    lambda: f64,
    /// `true` if the rows are differences of two maps.
    differential: bool,
    /// Number of rows.
    rows: usize,
}

/// Sums of the weights of sinks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SinkSums {
    /// Sum of Σ_j mix_j s_j, where s_j is the weight of the sink in map j.
    signed: f64,
    /// Sum of its magnitude.
    magnitude: f64,
    /// Sum of Σ_j |mix_j| s_j.
    unmixed: f64,
}

impl SinkSums {
    fn add(&mut self, other: Self) {
        self.signed += other.signed;
        self.magnitude += other.magnitude;
        self.unmixed += other.unmixed;
    }

    /// The weights of one row; `None` without sinks.
    fn of_row(row: &AttentionRow<'_>) -> Option<Self> {
        let weights = row.sinks.iter().zip(row.mix);
        let signed: f64 = weights.clone().map(|(&sink, &mix)| f64::from(sink) * f64::from(mix)).sum();
        let unmixed = weights.map(|(&sink, &mix)| f64::from(sink) * f64::from(mix.abs())).sum();
        (!row.sinks.is_empty()).then_some(Self { signed, magnitude: signed.abs(), unmixed })
    }
}

impl Allocation {
    /// The sums of the weights and of their magnitudes over all regions and the sink.
    fn totals(&self) -> (f64, f64) {
        let sink = self.sink.unwrap_or_default();
        (self.signed.iter().sum::<f64>() + sink.signed, self.magnitude.iter().sum::<f64>() + sink.magnitude)
    }

    /// The share of a region in the sum of magnitudes, regardless of signs and values. With a sink, the shares of
    /// the regions and the sink sum to 1.
    pub fn share_abs(&self, region: Region) -> f64 {
        self.magnitude[region as usize] / self.totals().1
    }

    /// The sink's shares as in [`Allocation::share_abs`] and [`Allocation::share_signed`]; `None` without sinks.
    fn sink_shares(&self) -> Option<[f64; 2]> {
        let sink = self.sink?;
        let (signed, magnitude) = self.totals();
        Some([sink.magnitude / magnitude, sink.signed / signed])
    }

    /// The share of a region in the signed sum, which is 1 - lambda per row and can be close to zero: see
    /// [`Allocation::sum_is_small`].
    fn share_signed(&self, region: Region) -> f64 {
        self.signed[region as usize] / self.totals().0
    }

    /// [`Allocation::share_signed`]; NaN if the sum is too small to divide by.
    fn share_signed_or_nan(&self, region: Region) -> f64 {
        if self.sum_is_small() {
            f64::NAN
        } else {
            self.share_signed(region)
        }
    }

    /// Returns `true` if the weights nearly cancel, |Σ a| < 0.1 Σ|a|, so that shares of their sum are meaningless.
    fn sum_is_small(&self) -> bool {
        let (signed, magnitude) = self.totals();
        signed.abs() < SMALL_SUM * magnitude
    }

    /// The fraction of a region's attention that the subtraction removes: 1 - Σ|a| / Σ_j |mix_j| A_j. 0 for one
    /// map, 1 where both maps agree after weighting.
    pub fn cancelled(&self, region: Region) -> f64 {
        1.0 - self.magnitude[region as usize] / self.unmixed[region as usize]
    }

    /// [`Allocation::cancelled`] of all regions together.
    fn cancelled_everywhere(&self) -> f64 {
        1.0 - self.magnitude.iter().sum::<f64>() / self.unmixed.iter().sum::<f64>()
    }

    fn mean_lambda(&self) -> f64 {
        self.lambda / self.rows as f64
    }
}

impl TargetSummary for Allocation {
    fn add(&mut self, row: &AttentionRow<'_>, regions: &[(Region, Range<usize>)]) {
        for (region, keys) in regions {
            let visible = keys.start.min(row.effective.len())..keys.end.min(row.effective.len());
            let region = *region as usize;
            for &weight in &row.effective[visible.clone()] {
                self.signed[region] += f64::from(weight);
                self.magnitude[region] += f64::from(weight.abs());
            }
            for (map, mix) in row.maps.iter().zip(row.mix) {
                self.unmixed[region] += f64::from(mix.abs()) * sum(&map[visible.clone()]);
            }
        }
        if let Some(sink) = SinkSums::of_row(row) {
            self.sink.get_or_insert_default().add(sink);
        }
        self.differential = row.mix.len() > 1;
        self.lambda += row.mix.get(1).map_or(0.0, |&weight| -f64::from(weight));
        self.rows += 1;
    }

    fn merge(&mut self, later: Self) {
        for i in 0..REGION_COUNT {
            self.signed[i] += later.signed[i];
            self.magnitude[i] += later.magnitude[i];
            self.unmixed[i] += later.unmixed[i];
        }
        if let Some(sink) = later.sink {
            self.sink.get_or_insert_default().add(sink);
        }
        self.lambda += later.lambda;
        self.differential |= later.differential;
        self.rows += later.rows;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestRow;
    use super::*;
    use engine::attention::{RowCollector, Values};
    use text::TargetRows;

    /// Regions of keys 0..6: bos, filler, filler, answer, filler, question.
    fn collector() -> Box<TargetCollector<Allocation>> {
        use Region::*;
        let regions = vec![Bos, Filler, Filler, Answer, Filler, Question];
        let target = TargetRows { query: None, rows: 4..6, regions };
        TargetProbe::new(&[target], Allocation::default()).start(0, 0).into_collector()
    }

    fn observe(collector: &mut TargetCollector<Allocation>, query: usize, effective: &[f32], lambda: f32) {
        let values = Values::new(&[], &[], 0);
        collector.observe(&AttentionRow {
            query,
            first_visible: 0,
            logits: &[],
            maps: &[],
            mix: &[1.0, -lambda],
            sinks: &[],
            effective,
            values,
        });
    }

    #[test]
    fn regions_of_a_signed_row_sum_to_the_row_in_every_convention() {
        let mut collector = collector();
        observe(&mut collector, 5, &[0.2, -0.1, 0.0, 0.5, -0.2, 0.1], 0.5);
        let a = &collector.summaries[0];
        for share in [Allocation::share_abs, Allocation::share_signed] {
            let total: f64 = Region::ALL.iter().map(|&region| share(a, region)).sum();
            assert!((total - 1.0).abs() < 1e-12);
        }
        assert!((a.signed.iter().sum::<f64>() - 0.5).abs() < 1e-7, "rows sum to 1 - lambda");
        assert!((a.share_abs(Region::Answer) - 0.5 / 1.1).abs() < 1e-7);
        assert!((a.share_signed(Region::Answer) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn both_conventions_coincide_without_negative_weights() {
        let mut collector = collector();
        observe(&mut collector, 4, &[0.1, 0.2, 0.3, 0.15, 0.25], 0.0);
        let a = &collector.summaries[0];
        for region in Region::ALL {
            assert!((a.share_abs(region) - a.share_signed(region)).abs() < 1e-12);
        }
    }

    #[test]
    fn common_parts_of_two_maps_cancel() {
        let mut collector = collector();
        // Filler: 0.4 in both maps, half of it subtracted; answer: in the first map only; question: in the second only.
        TestRow::two(&[0.0, 0.4, 0.0, 0.6, 0.0, 0.0], &[0.0, 0.4, 0.0, 0.0, 0.0, 0.6], 0.5).show(collector.as_mut());
        let a = &collector.summaries[0];
        assert!((a.cancelled(Region::Filler) - (1.0 - 0.2 / 0.6)).abs() < 1e-6);
        assert!(a.cancelled(Region::Answer).abs() < 1e-6 && a.cancelled(Region::Question).abs() < 1e-6);
        assert!((a.cancelled_everywhere() - (1.0 - 1.1 / 1.5)).abs() < 1e-6);
        assert!(!a.sum_is_small());
    }

    #[test]
    fn one_map_cancels_nothing_and_small_sums_are_detected() {
        let mut one = collector();
        let mut two = collector();
        TestRow::one(&[0.1, 0.2, 0.3, 0.15, 0.25]).show(one.as_mut());
        assert_eq!(one.summaries[0].cancelled_everywhere(), 0.0);
        TestRow::two(&[0.5, 0.5, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.5, 0.25, 0.25], 0.98).show(two.as_mut());
        assert!(two.summaries[0].sum_is_small());
    }

    #[test]
    fn a_sink_is_a_region_of_its_own_in_every_convention() {
        let mut with = collector();
        let mut row = TestRow::two(&[0.1, 0.1, 0.1, 0.2, 0.1], &[0.05, 0.2, 0.05, 0.1, 0.1], 0.5);
        row.sinks = vec![0.4, 0.5];
        row.show(with.as_mut());
        let a = &with.summaries[0];
        let [abs, signed] = a.sink_shares().unwrap();
        for (share, of_sink) in
            [(Allocation::share_abs as fn(&Allocation, Region) -> f64, abs), (Allocation::share_signed, signed)]
        {
            let total: f64 = Region::ALL.iter().map(|&region| share(a, region)).sum();
            assert!((total + of_sink - 1.0).abs() < 1e-7);
        }
        assert!((signed - 0.15 / 0.5).abs() < 1e-6, "0.4 - 0.5 * 0.5 of rows and sink, which sum to 1 - lambda");
        assert_eq!(collector().summaries[0].sink_shares(), None);
    }

    #[test]
    fn merging_blocks_equals_observing_all_rows() {
        let rows: [&[f32]; 2] = [&[0.1, 0.2, 0.3, 0.2, 0.2], &[0.3, -0.1, 0.1, 0.4, 0.2, 0.1]];
        let mut whole = collector();
        let mut first = collector();
        let mut second = collector();
        observe(&mut whole, 4, rows[0], 0.0);
        observe(&mut whole, 5, rows[1], 0.0);
        observe(&mut first, 4, rows[0], 0.0);
        observe(&mut second, 5, rows[1], 0.0);
        first.merge(second);
        assert_eq!(first.summaries, whole.summaries);
    }
}
