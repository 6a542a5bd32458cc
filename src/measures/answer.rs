//! Accuracy of answers, and attention and output by region of the rows that predict them.

use super::contribution::{readouts, RegionOutputs};
use super::layer_output::{mean_over_layers, LayerOutput, LayerSums};
use super::{number, rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::{ProbeResult, RowProbe};
use crate::measures::probe::{
    Allocation, AnswerCollector, AnswerProbe, ContributionCollector, ContributionProbe, ReceivedCollector, SinkProbe,
};
use crate::model::pass::QueryScore;
use crate::prompts::{Prompt, Region};
use crate::results::metric::{
    Metric, ANSWER_LOG_PROB, CANCELLED, EXACT, LAMBDA, LOGIT_OUT, NOISE_ABS, NOISE_OUT, NOISE_OUT_NO_SINKS,
    NOISE_SIGNED, SHARE_ABS, SHARE_OUT, SHARE_SIGNED,
};
use crate::results::record::Measurement;
use anyhow::{Context, Result};

/// Accuracy and log-probability of the answer; attention and output by region, of all heads and by head.
pub struct AnswerMeasure {
    /// Whether every layer and head gets records of its own.
    pub by_head: bool,
    /// Whether sinks are detected, and the output of noise is measured without them too.
    pub sinks: bool,
}

impl Measure for AnswerMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let targets = prompt.answerable_targets();
        let contribution = ContributionProbe::new(&targets).with_strong_keys(self.sinks);
        let mut probes: Vec<Box<dyn RowProbe>> = vec![Box::new(AnswerProbe::new(&targets)), Box::new(contribution)];
        if self.sinks {
            probes.push(Box::new(SinkProbe::new(prompt.ids.len(), Vec::new())));
        }
        probes
    }

    fn wants_trace(&self) -> bool {
        true
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let heads = heads(std::mem::take(&mut pass.probe_results));
        let targets = pass.prompt.answerable_targets();
        for (index, target) in targets.iter().enumerate() {
            let (found, layers) = found_of(&pass, &heads, index)?;
            let mut push = |found| output.push(target.query, pass.prompt.rows_name(), found);
            if let Some(query) = target.query {
                answer_measures(&pass.queries[query], &mut push);
            }
            if !found.is_empty() {
                output_measures(&layers, self.sinks, &mut push);
                mean_measures(&found, &mut push);
            }
            if self.by_head {
                found.iter().for_each(|head| head_measures(head, &mut push));
            }
        }
        Ok(())
    }
}

/// Probe results of one head.
struct HeadSinks {
    at: (usize, usize),
    answer: Box<AnswerCollector>,
    contribution: Box<ContributionCollector>,
    /// The detected sinks; empty if they are not asked for.
    sinks: Vec<usize>,
}

/// Joins the results of the probes, which come in (layer, head, probe) order.
fn heads(probe_results: Vec<ProbeResult>) -> Vec<HeadSinks> {
    let mut probe_results = probe_results.into_iter().peekable();
    let mut heads = Vec::new();
    while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
        let answer = first.collector.into_collector();
        let contribution = second.collector.into_collector();
        let third = probe_results.next_if(|result| result.probe == 2);
        let sinks =
            third.map_or_else(Vec::new, |result| result.collector.into_collector::<ReceivedCollector>().sinks());
        heads.push(HeadSinks { at: (first.layer, first.head), answer, contribution, sinks });
    }
    heads
}

/// Attention and output of one head in the rows of one target.
struct HeadFound<'a> {
    at: (usize, usize),
    allocation: &'a Allocation,
    written: RegionOutputs,
}

/// Results of the measured heads, and of their layers.
type Found<'a> = (Vec<HeadFound<'a>>, Vec<LayerOutput>);

/// Computes attention and output of every head and layer for the target with this index.
fn found_of<'a>(pass: &ObservedPass<'_>, heads: &'a [HeadSinks], index: usize) -> Result<Found<'a>> {
    let (mut found, mut layers) = (Vec::new(), Vec::new());
    let Some(first) = heads.first() else { return Ok((found, layers)) };
    let trace = pass.trace.context("a trace was asked for")?;
    let rows = first.contribution.rows[index].iter().map(|row| row.query);
    let readouts = readouts(pass.model, trace, &pass.prompt.ids, rows)?;
    for of_layer in heads.chunk_by(|a, b| a.at.0 == b.at.0) {
        let mut sums = LayerSums::default();
        for head in of_layer {
            let rows = &head.contribution.rows[index];
            let written = RegionOutputs::of(pass.model, trace, head.at, rows, &readouts, &mut sums)?;
            sums.add_sinks(pass.model, trace, head.at, rows, &head.sinks)?;
            found.push(HeadFound { at: head.at, allocation: &head.answer.allocations[index], written });
        }
        layers.push(sums.finish(pass.model, trace, of_layer[0].at.0)?);
    }
    Ok((found, layers))
}

fn answer_measures(query: &QueryScore, push: &mut impl FnMut(Measurement)) {
    push(number(&EXACT, f64::from(u8::from(query.exact)), 1));
    push(number(&ANSWER_LOG_PROB, query.log_prob_nats, 1));
}

type RegionShare = fn(&HeadFound<'_>, Region) -> f64;

/// The shares of regions in attention rows with their sums over noise, as means over heads.
const SHARES: [(&Metric, &Metric, RegionShare); 2] = [
    (&SHARE_ABS, &NOISE_ABS, |head, region| head.allocation.share_abs(region)),
    (&SHARE_SIGNED, &NOISE_SIGNED, signed),
];

/// Returns the signed share of a region; NaN if the row's sum is too small to divide by.
fn signed(head: &HeadFound<'_>, region: Region) -> f64 {
    if head.allocation.sum_is_small() {
        f64::NAN
    } else {
        head.allocation.share_signed(region)
    }
}

/// Metrics of the sink, in the order of [`Allocation::of_sink`].
const OF_SINK: [&Metric; 2] = [&SHARE_ABS, &SHARE_SIGNED];

/// Returns a fraction of the sink, a region without tokens.
fn of_sink(metric: &Metric, value: f64, n: usize) -> Measurement {
    Measurement { region: Some("sink".into()), ..rounded(metric, None, value, n) }
}

/// Returns the mean over the heads with a finite number, and how many they are. Heads without output have no share.
fn mean(found: &[HeadFound<'_>], of: impl Fn(&HeadFound<'_>) -> f64) -> (f64, usize) {
    let numbers: Vec<f64> = found.iter().map(of).filter(|x| x.is_finite()).collect();
    (crate::stats::mean(&numbers).unwrap_or(f64::NAN), numbers.len())
}

/// Pushes the output of all heads by region: shares of layers, weighted by what these write.
fn output_measures(layers: &[LayerOutput], sinks: bool, push: &mut impl FnMut(Measurement)) {
    let mean = |metric, region, share: &dyn Fn(&LayerOutput) -> f64| {
        rounded(metric, region, mean_over_layers(layers, share), layers.len())
    };
    for region in Region::ALL {
        push(mean(&SHARE_OUT, Some(region), &|layer| layer.share_out[region as usize]));
    }
    push(mean(&NOISE_OUT, None, &LayerOutput::noise_out));
    if sinks {
        push(mean(&NOISE_OUT_NO_SINKS, None, &|layer| layer.noise_out() - layer.noise_sinks));
    }
}

/// Pushes means over layers and heads.
fn mean_measures(found: &[HeadFound<'_>], push: &mut impl FnMut(Measurement)) {
    let mean_of = |metric: &Metric, region, of: &dyn Fn(&HeadFound<'_>) -> f64| {
        let (mean, n) = mean(found, of);
        rounded(metric, region, mean, n)
    };
    for (share_metric, noise_metric, share) in SHARES {
        for region in Region::ALL {
            push(mean_of(share_metric, Some(region), &|head| share(head, region)));
        }
        push(mean_of(noise_metric, None, &|head| Region::NOISE.iter().map(|&region| share(head, region)).sum()));
    }
    for (i, metric) in OF_SINK.into_iter().enumerate() {
        let (mean, n) = mean(found, |head| head.allocation.of_sink().map_or(f64::NAN, |of_sink| of_sink[i]));
        if n > 0 {
            push(of_sink(metric, mean, n));
        }
    }
    if found.iter().any(|head| head.allocation.differential) {
        push(mean_of(&LAMBDA, None, &|head| head.allocation.mean_lambda()));
        push(mean_of(&CANCELLED, None, &|head| head.allocation.cancelled_everywhere()));
        for region in Region::ALL {
            push(mean_of(&CANCELLED, Some(region), &|head| head.allocation.cancelled(region)));
        }
    }
}

/// Pushes the measurements of one head.
fn head_measures(head: &HeadFound<'_>, push: &mut impl FnMut(Measurement)) {
    let HeadFound { at: (layer, index), allocation, written } = head;
    let mut push = |found| push(Measurement { layer: Some(*layer), head: Some(*index), ..found });
    for region in Region::ALL {
        push(rounded(&SHARE_OUT, Some(region), written.share_out[region as usize], 1));
    }
    push(rounded(&SHARE_ABS, Some(Region::Answer), allocation.share_abs(Region::Answer), 1));
    if let Some([share, ..]) = allocation.of_sink() {
        push(of_sink(&SHARE_ABS, share, 1));
    }
    if let Some(effect) = written.logit_out {
        push(rounded(&LOGIT_OUT, Some(Region::Answer), effect[Region::Answer as usize], 1));
    }
    if allocation.differential {
        push(rounded(&SHARE_SIGNED, Some(Region::Answer), signed(head, Region::Answer), 1));
        push(rounded(&CANCELLED, None, allocation.cancelled_everywhere(), 1));
        push(rounded(&LAMBDA, None, allocation.mean_lambda(), 1));
    }
}
