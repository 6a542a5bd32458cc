//! Is the needle found, and where does the attention of the rows that predict it go?

use super::{number, Findings, Measure, Seen};
use crate::attention::RowProbe;
use crate::pass::QueryScore;
use crate::probe::{Allocation, AnswerProbe, AnswerSink};
use crate::prompt::{Prompt, Region};
use crate::record::{widen, Measure as Found};
use anyhow::Result;

/// Accuracy, log-probability and rank of the answer; attention by region, as means and by head.
pub struct AnswerMeasure {
    /// Whether every head gets its records too.
    pub by_head: bool,
}

impl Measure for AnswerMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(AnswerProbe::new(&prompt.targets()))]
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let sinks: Vec<HeadSink> = seen
            .sightings
            .into_iter()
            .map(|s| {
                let sink = s.sink.into_any().downcast::<AnswerSink>().expect("the answer probe makes answer sinks");
                HeadSink { layer: s.layer, head: s.head, allocations: sink.allocations }
            })
            .collect();
        for (index, target) in seen.prompt.targets().iter().enumerate() {
            let mut push = |found| findings.push(target.query, seen.prompt.rows_name(), found);
            if let Some(query) = target.query {
                answer_measures(&seen.queries[query], &mut push);
            }
            if !sinks.is_empty() {
                attention_measures(&sinks, index, self.by_head, &mut push);
            }
        }
        Ok(())
    }
}

/// One head's allocations, one per target of the prompt.
struct HeadSink {
    layer: usize,
    head: usize,
    allocations: Vec<Allocation>,
}

fn answer_measures(query: &QueryScore, push: &mut dyn FnMut(Found)) {
    push(number("exact", f64::from(u8::from(query.exact)), Some("fraction"), 1));
    push(number("answer_log_prob", query.log_prob_nats, Some("nats"), 1));
    push(number("answer_first_rank", query.first_rank as f64, None, 1));
}

/// What counts as noise: everything before the question that is neither BOS nor the answer's needle.
pub const NOISE: [Region; 3] = [Region::Template, Region::Filler, Region::Distractor];

type Share = fn(&Allocation, Region) -> f64;

/// The conventions for signed rows; the first is the headline.
const CONVENTIONS: [(&str, &str, Share); 3] = [
    ("share_abs", "noise_abs", Allocation::share_abs),
    ("share_signed", "noise_signed", Allocation::share_signed),
    ("share_pos", "noise_pos", Allocation::share_pos),
];

/// A fraction made of sums of `f32` weights: digits beyond theirs would only fill the disk. A signed share of a row that
/// sums to 0 is missing.
pub(super) fn fraction(metric: &'static str, region: Option<Region>, value: f64, n: usize) -> Found {
    Found { region: region.map(|r| r.name().into()), ..number(metric, widen(value as f32), Some("fraction"), n) }
}

/// Means over heads and layers in every convention, the best head, and the headline convention of every head.
fn attention_measures(sinks: &[HeadSink], target: usize, by_head: bool, push: &mut dyn FnMut(Found)) {
    let heads = sinks.len();
    let mean =
        |f: &dyn Fn(&Allocation) -> f64| sinks.iter().map(|s| f(&s.allocations[target])).sum::<f64>() / heads as f64;
    for (share_name, noise_name, share) in CONVENTIONS {
        for region in Region::ALL {
            push(fraction(share_name, Some(region), mean(&|a| share(a, region)), heads));
        }
        push(fraction(noise_name, None, mean(&|a| NOISE.iter().map(|&r| share(a, r)).sum()), heads));
    }
    for region in Region::ALL {
        push(fraction("mass", Some(region), mean(&|a| a.mass(region)), heads));
    }
    push(fraction("mass_neg", None, mean(&Allocation::mass_neg), heads));
    let differential = sinks.iter().any(|s| s.allocations[target].differential);
    if differential {
        push(fraction("lambda", None, mean(&Allocation::mean_lambda), heads));
    }
    // Not `f64::max`, which prefers any number to NaN.
    let shares = sinks.iter().map(|s| s.allocations[target].share_abs(Region::Answer));
    if let Some(best) = shares.max_by(f64::total_cmp) {
        push(fraction("share_abs_best_head", Some(Region::Answer), best, 1));
    }
    for sink in sinks.iter().filter(|_| by_head) {
        let allocation = &sink.allocations[target];
        let mut push = |m: Found| push(Found { layer: Some(sink.layer), head: Some(sink.head), ..m });
        for region in Region::ALL {
            push(fraction("share_abs", Some(region), allocation.share_abs(region), 1));
        }
        if differential {
            push(fraction("mass_neg", None, allocation.mass_neg(), 1));
            push(fraction("lambda", None, allocation.mean_lambda(), 1));
        }
    }
}
