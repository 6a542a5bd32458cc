//! Is the needle found, where does the attention of the rows that predict it go, and what do they write?

use super::contribution::{readouts, Written};
use super::{number, Extent, Findings, Measure, Seen};
use crate::attention::{ProbeResult, RowProbe};
use crate::pass::QueryScore;
use crate::probe::{Allocation, AnswerProbe, AnswerSink, ContributionProbe, ContributionSink};
use crate::prompt::{Prompt, Region};
use crate::record::{widen, Found};
use anyhow::{Context, Result};

/// Accuracy, log-probability and rank of the answer; attention and what it writes by region, as means and by head.
pub struct AnswerMeasure {
    /// Whether every head gets its records too.
    pub by_head: bool,
}

impl Measure for AnswerMeasure {
    fn memory_bytes(&self, extent: &Extent) -> u64 {
        let Extent { layers, heads, value_width, rows, .. } = *extent;
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

    fn conclude(&self, mut seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let heads = heads(std::mem::take(&mut seen.probe_results));
        for (index, target) in seen.prompt.answerable_targets().iter().enumerate() {
            let found = found_of(&seen, &heads, index)?;
            let mut push = |found| findings.push(target.query, seen.prompt.rows_name(), found);
            if let Some(query) = target.query {
                answer_measures(&seen.queries[query], &mut push);
            }
            if !found.is_empty() {
                mean_measures(&found, &mut push);
                found.iter().filter(|_| self.by_head).for_each(|head| head_measures(head, &mut push));
            }
        }
        Ok(())
    }
}

/// What the probes know of one head.
struct HeadSinks {
    at: (usize, usize),
    answer: Box<AnswerSink>,
    contribution: Box<ContributionSink>,
}

/// Joins the sightings of both probes, which come in (layer, head, probe) order.
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

/// What was found of one head and one target.
struct HeadFound<'a> {
    at: (usize, usize),
    allocation: &'a Allocation,
    written: Written,
}

/// Of the target given by its index, every head.
fn found_of<'a>(seen: &Seen<'_>, heads: &'a [HeadSinks], index: usize) -> Result<Vec<HeadFound<'a>>> {
    let Some(first) = heads.first() else { return Ok(Vec::new()) };
    let trace = seen.trace.context("a trace was asked for")?;
    let rows = first.contribution.rows[index].iter().map(|row| row.query);
    let readouts = readouts(seen.model, trace, &seen.prompt.ids, rows)?;
    let found = |head: &'a HeadSinks| -> Result<HeadFound<'a>> {
        let rows = &head.contribution.rows[index];
        let written = Written::of(seen.model, trace, head.at, rows, &readouts)?;
        Ok(HeadFound { at: head.at, allocation: &head.answer.allocations[index], written })
    };
    heads.iter().map(found).collect()
}

fn answer_measures(query: &QueryScore, push: &mut impl FnMut(Found)) {
    push(number("exact", f64::from(u8::from(query.exact)), Some("fraction"), 1));
    push(number("answer_log_prob", query.log_prob_nats, Some("nats"), 1));
    push(number("answer_first_rank", query.first_rank as f64, None, 1));
}

type Share = fn(&HeadFound<'_>, Region) -> f64;

/// The shares of regions; the first is the headline, the next three are the conventions for signed rows, and the last is
/// what attention that is spread evenly over the keys would have.
const SHARES: [(&str, &str, Share); 6] = [
    ("share_out", "noise_out", |head, region| head.written.share_out[region as usize]),
    ("share_abs", "noise_abs", |head, region| head.allocation.share_abs(region)),
    ("share_signed", "noise_signed", signed),
    ("share_pos", "noise_pos", |head, region| head.allocation.share_pos(region)),
    ("norm_out", "noise_norm_out", |head, region| head.written.norm_out[region as usize]),
    ("share_uniform", "noise_uniform", |head, region| head.allocation.share_uniform(region)),
];

/// Missing where the row sums to so little that a share of it says nothing.
fn signed(head: &HeadFound<'_>, region: Region) -> f64 {
    if head.allocation.sum_is_small() {
        f64::NAN
    } else {
        head.allocation.share_signed(region)
    }
}

/// A fraction made of sums of `f32` weights: digits beyond theirs would only fill the disk. A signed share of a row that
/// sums to 0 is missing.
pub(super) fn fraction(metric: &'static str, region: Option<Region>, value: f64, n: usize) -> Found {
    Found { region: region.map(|r| r.name().into()), ..number(metric, widen(value as f32), Some("fraction"), n) }
}

/// Another number of that precision.
fn single(metric: &'static str, region: Option<Region>, value: f64, unit: Option<&'static str>, n: usize) -> Found {
    Found { unit: unit.map(Into::into), ..fraction(metric, region, value, n) }
}

/// What is recorded of the sink, as [`Allocation::of_sink`] has it.
const OF_SINK: [&str; 4] = ["share_abs", "share_signed", "share_pos", "mass"];

/// A fraction of a region that no token belongs to.
fn of_sink(metric: &'static str, value: f64, n: usize) -> Found {
    Found { region: Some("sink".into()), ..fraction(metric, None, value, n) }
}

/// The mean of what is a number, and of how many: heads that write nothing have no share.
fn mean(found: &[HeadFound<'_>], of: impl Fn(&HeadFound<'_>) -> f64) -> (f64, usize) {
    let numbers: Vec<f64> = found.iter().map(of).filter(|x| x.is_finite()).collect();
    (crate::stats::mean(&numbers).unwrap_or(f64::NAN), numbers.len())
}

/// Means over heads and layers, sums where parts of one whole are told apart, and the best head.
fn mean_measures(found: &[HeadFound<'_>], push: &mut impl FnMut(Found)) {
    let mean_of = |metric, region, of: &dyn Fn(&HeadFound<'_>) -> f64| {
        let (mean, n) = mean(found, of);
        fraction(metric, region, mean, n)
    };
    for (share_name, noise_name, share) in SHARES {
        for region in Region::ALL {
            push(mean_of(share_name, Some(region), &|head| share(head, region)));
        }
        push(mean_of(noise_name, None, &|head| Region::NOISE.iter().map(|&region| share(head, region)).sum()));
    }
    for region in Region::ALL {
        push(mean_of("mass", Some(region), &|head| head.allocation.mass(region)));
    }
    push(mean_of("mass_neg", None, &|head| head.allocation.mass_neg()));
    for (i, metric) in OF_SINK.into_iter().enumerate() {
        let (mean, n) = mean(found, |head| head.allocation.of_sink().map_or(f64::NAN, |of_sink| of_sink[i]));
        if n > 0 {
            push(of_sink(metric, mean, n));
        }
    }
    if found.iter().any(|head| head.allocation.differential) {
        push(mean_of("lambda", None, &|head| head.allocation.mean_lambda()));
        push(mean_of("cancelled", None, &|head| head.allocation.cancelled_everywhere()));
        for region in Region::ALL {
            push(mean_of("cancelled", Some(region), &|head| head.allocation.cancelled(region)));
        }
        let left_out = found.iter().filter(|head| head.allocation.sum_is_small()).count();
        push(number("signed_left_out", left_out as f64, Some("heads"), found.len()));
    }
    let (rms, n) = mean(found, |head| head.written.context_rms);
    push(single("context_rms", None, rms, None, n));
    let effects: Option<Vec<_>> = found.iter().map(|head| head.written.logit_out).collect();
    for region in Region::ALL.into_iter().filter(|_| effects.is_some()) {
        let sum = effects.iter().flatten().map(|effect| effect[region as usize]).sum();
        push(single("logit_out_sum", Some(region), sum, Some("logits"), 1));
    }
    for (metric, share) in [("share_out_best_head", SHARES[0].2), ("share_abs_best_head", SHARES[1].2)] {
        let shares = found.iter().map(|head| share(head, Region::Answer)).filter(|share| share.is_finite());
        if let Some(best) = shares.max_by(f64::total_cmp) {
            push(fraction(metric, Some(Region::Answer), best, 1));
        }
    }
}

/// The headline of every region, and what else tells heads apart.
fn head_measures(head: &HeadFound<'_>, push: &mut impl FnMut(Found)) {
    let HeadFound { at: (layer, index), allocation, written } = head;
    let mut push = |found| push(Found { layer: Some(*layer), head: Some(*index), ..found });
    for region in Region::ALL {
        push(fraction("share_out", Some(region), written.share_out[region as usize], 1));
    }
    push(fraction("share_abs", Some(Region::Answer), allocation.share_abs(Region::Answer), 1));
    if let Some([share, ..]) = allocation.of_sink() {
        push(of_sink("share_abs", share, 1));
    }
    if let Some(effect) = written.logit_out {
        push(single("logit_out", Some(Region::Answer), effect[Region::Answer as usize], Some("logits"), 1));
    }
    push(single("context_rms", None, written.context_rms, None, 1));
    if allocation.differential {
        push(fraction("share_signed", Some(Region::Answer), signed(head, Region::Answer), 1));
        push(fraction("cancelled", None, allocation.cancelled_everywhere(), 1));
        push(fraction("mass_neg", None, allocation.mass_neg(), 1));
        push(fraction("lambda", None, allocation.mean_lambda(), 1));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::seen_by;
    use super::*;

    #[test]
    fn the_memory_that_is_said_is_that_of_what_regions_give_the_measured_rows() {
        let measure = AnswerMeasure { by_head: false };
        let (extent, passed) = seen_by(&measure, "diff");
        let of_head = |head: HeadSinks| -> usize {
            let rows = head.contribution.rows.iter().flatten();
            rows.map(|row| size_of_val(row) + size_of_val(row.parts())).sum()
        };
        let taken: usize = heads(passed.probe_results).into_iter().map(of_head).sum();
        assert_eq!(measure.memory_bytes(&extent), taken as u64);
    }
}
