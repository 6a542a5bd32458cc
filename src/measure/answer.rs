//! Accuracy of answers, and attention and output by region of the rows that predict them.

use super::contribution::{readouts, RegionOutputs};
use super::{number, rounded, Measure, MeasureOutput, ObservedPass, PassSize};
use crate::attention::{ProbeResult, RowProbe};
use crate::metric::{
    Metric, ANSWER_FIRST_RANK, ANSWER_LOG_PROB, CANCELLED, CONTEXT_RMS, EXACT, LAMBDA, LOGIT_OUT, LOGIT_OUT_SUM, MASS,
    MASS_NEG, NOISE_ABS, NOISE_NORM_OUT, NOISE_OUT, NOISE_POS, NOISE_SIGNED, NOISE_UNIFORM, NORM_OUT, SHARE_ABS,
    SHARE_ABS_BEST_HEAD, SHARE_OUT, SHARE_OUT_BEST_HEAD, SHARE_POS, SHARE_SIGNED, SHARE_UNIFORM, SIGNED_LEFT_OUT,
};
use crate::pass::QueryScore;
use crate::probe::{Allocation, AnswerProbe, AnswerSink, ContributionProbe, ContributionSink};
use crate::prompt::{Prompt, Region};
use crate::record::Measurement;
use anyhow::{Context, Result};

/// Accuracy, log-probability and rank of the answer; attention and output by region, as means over heads and by head.
pub struct AnswerMeasure {
    /// Whether every head gets records of its own.
    pub by_head: bool,
}

impl Measure for AnswerMeasure {
    fn memory_bytes(&self, extent: &PassSize) -> u64 {
        let PassSize { layers, heads, value_width, rows, .. } = *extent;
        (layers * heads) as u64 * ContributionSink::bytes(value_width, rows)
    }

    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        let targets = prompt.answerable_targets();
        vec![Box::new(AnswerProbe::new(&targets)), Box::new(ContributionProbe::new(&targets))]
    }

    fn wants_trace(&self) -> bool {
        true
    }

    fn head_records(&self) -> u64 {
        if self.by_head {
            16
        } else {
            0
        }
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let heads = heads(std::mem::take(&mut pass.probe_results));
        for (index, target) in pass.prompt.answerable_targets().iter().enumerate() {
            let found = found_of(&pass, &heads, index)?;
            let mut push = |found| output.push(target.query, pass.prompt.rows_name(), found);
            if let Some(query) = target.query {
                answer_measures(&pass.queries[query], &mut push);
            }
            if !found.is_empty() {
                mean_measures(&found, &mut push);
                found.iter().filter(|_| self.by_head).for_each(|head| head_measures(head, &mut push));
            }
        }
        Ok(())
    }
}

/// Probe results of one head.
struct HeadSinks {
    at: (usize, usize),
    answer: Box<AnswerSink>,
    contribution: Box<ContributionSink>,
}

/// Joins the results of both probes, which come in (layer, head, probe) order.
fn heads(probe_results: Vec<ProbeResult>) -> Vec<HeadSinks> {
    let mut probe_results = probe_results.into_iter();
    let mut heads = Vec::new();
    while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
        let answer = first.sink.into_sink();
        let contribution = second.sink.into_sink();
        heads.push(HeadSinks { at: (first.layer, first.head), answer, contribution });
    }
    heads
}

/// Attention and output of one head in the rows of one target.
struct HeadFound<'a> {
    at: (usize, usize),
    allocation: &'a Allocation,
    written: RegionOutputs,
}

/// Computes attention and output of every head for the target with this index.
fn found_of<'a>(pass: &ObservedPass<'_>, heads: &'a [HeadSinks], index: usize) -> Result<Vec<HeadFound<'a>>> {
    let Some(first) = heads.first() else { return Ok(Vec::new()) };
    let trace = pass.trace.context("a trace was asked for")?;
    let rows = first.contribution.rows[index].iter().map(|row| row.query);
    let readouts = readouts(pass.model, trace, &pass.prompt.ids, rows)?;
    let found = |head: &'a HeadSinks| -> Result<HeadFound<'a>> {
        let rows = &head.contribution.rows[index];
        let written = RegionOutputs::of(pass.model, trace, head.at, rows, &readouts)?;
        Ok(HeadFound { at: head.at, allocation: &head.answer.allocations[index], written })
    };
    heads.iter().map(found).collect()
}

fn answer_measures(query: &QueryScore, push: &mut impl FnMut(Measurement)) {
    push(number(&EXACT, f64::from(u8::from(query.exact)), 1));
    push(number(&ANSWER_LOG_PROB, query.log_prob_nats, 1));
    push(number(&ANSWER_FIRST_RANK, query.first_rank as f64, 1));
}

type RegionShare = fn(&HeadFound<'_>, Region) -> f64;

/// The shares of regions with their sums over noise: of the output, in the three conventions for signed attention
/// rows, of output norms, and of attention spread evenly over the keys.
const SHARES: [(&Metric, &Metric, RegionShare); 6] = [
    (&SHARE_OUT, &NOISE_OUT, |head, region| head.written.share_out[region as usize]),
    (&SHARE_ABS, &NOISE_ABS, |head, region| head.allocation.share_abs(region)),
    (&SHARE_SIGNED, &NOISE_SIGNED, signed),
    (&SHARE_POS, &NOISE_POS, |head, region| head.allocation.share_pos(region)),
    (&NORM_OUT, &NOISE_NORM_OUT, |head, region| head.written.norm_out[region as usize]),
    (&SHARE_UNIFORM, &NOISE_UNIFORM, |head, region| head.allocation.share_uniform(region)),
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
const OF_SINK: [&Metric; 4] = [&SHARE_ABS, &SHARE_SIGNED, &SHARE_POS, &MASS];

/// Returns a fraction of the sink, a region without tokens.
fn of_sink(metric: &Metric, value: f64, n: usize) -> Measurement {
    Measurement { region: Some("sink".into()), ..rounded(metric, None, value, n) }
}

/// Returns the mean over the heads with a finite number, and how many they are. Heads without output have no share.
fn mean(found: &[HeadFound<'_>], of: impl Fn(&HeadFound<'_>) -> f64) -> (f64, usize) {
    let numbers: Vec<f64> = found.iter().map(of).filter(|x| x.is_finite()).collect();
    (crate::stats::mean(&numbers).unwrap_or(f64::NAN), numbers.len())
}

/// Pushes means over layers and heads, sums of logit effects over heads, and the largest share of any head.
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
    for region in Region::ALL {
        push(mean_of(&MASS, Some(region), &|head| head.allocation.mass(region)));
    }
    push(mean_of(&MASS_NEG, None, &|head| head.allocation.mass_neg()));
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
        let left_out = found.iter().filter(|head| head.allocation.sum_is_small()).count();
        push(number(&SIGNED_LEFT_OUT, left_out as f64, found.len()));
    }
    let (rms, n) = mean(found, |head| head.written.context_rms);
    push(rounded(&CONTEXT_RMS, None, rms, n));
    let effects: Option<Vec<_>> = found.iter().map(|head| head.written.logit_out).collect();
    for region in Region::ALL.into_iter().filter(|_| effects.is_some()) {
        let sum = effects.iter().flatten().map(|effect| effect[region as usize]).sum();
        push(rounded(&LOGIT_OUT_SUM, Some(region), sum, 1));
    }
    for (metric, share) in [(&SHARE_OUT_BEST_HEAD, SHARES[0].2), (&SHARE_ABS_BEST_HEAD, SHARES[1].2)] {
        let shares = found.iter().map(|head| share(head, Region::Answer)).filter(|share| share.is_finite());
        if let Some(best) = shares.max_by(f64::total_cmp) {
            push(rounded(metric, Some(Region::Answer), best, 1));
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
    push(rounded(&CONTEXT_RMS, None, written.context_rms, 1));
    if allocation.differential {
        push(rounded(&SHARE_SIGNED, Some(Region::Answer), signed(head, Region::Answer), 1));
        push(rounded(&CANCELLED, None, allocation.cancelled_everywhere(), 1));
        push(rounded(&MASS_NEG, None, allocation.mass_neg(), 1));
        push(rounded(&LAMBDA, None, allocation.mean_lambda(), 1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::observed_by;
    use super::*;

    #[test]
    fn the_estimated_memory_is_that_of_the_contributions_to_the_measured_rows() {
        let measure = AnswerMeasure { by_head: false };
        let (size, passed) = observed_by(&measure, "diff");
        let of_head = |head: HeadSinks| -> usize {
            let rows = head.contribution.rows.iter().flatten();
            rows.map(|row| size_of_val(row) + size_of_val(row.parts())).sum()
        };
        let taken: usize = heads(passed.probe_results).into_iter().map(of_head).sum();
        assert_eq!(measure.memory_bytes(&size), taken as u64);
    }
}
