//! What is left of attention and of predictions under a condition, against the baseline pass over the same prompt.

use super::answer::fraction;
use super::{number, Extent, Findings, Kept, Measure, Seen};
use crate::attention::RowProbe;
use crate::pass::Predictions;
use crate::probe::{RowsProbe, RowsSink};
use crate::prompt::Prompt;
use crate::stats::Divergence;
use anyhow::{Context, Result};
use std::ops::Range;

/// Divergence of the target rows and flips of their top keys; negative log-likelihood and flips of the most likely token
/// over prose.
pub struct FidelityMeasure;

/// What is kept of the baseline pass.
struct Baseline {
    /// One per head, in (layer, head) order.
    heads: Vec<RowsSink>,
    predictions: Predictions,
}

/// One head's divergence, the mean over rows.
struct HeadDivergence {
    layer: usize,
    head: usize,
    all: Means,
    /// Nothing where a row has no weight left on the context.
    context: Option<Means>,
}

#[derive(Clone, Copy)]
struct Means {
    kl_nats: f64,
    total_variation: f64,
    flips: f64,
}

/// Passes whose rows are there at once: the baseline, and the one that is compared with it.
const PASSES: u64 = 2;

impl Measure for FidelityMeasure {
    fn memory_bytes(&self, extent: &Extent) -> u64 {
        let Extent { layers, heads, ctx_tok, rows, .. } = *extent;
        PASSES * ((layers * heads) as u64 * RowsSink::bytes(ctx_tok, rows) + Predictions::bytes(ctx_tok))
    }

    fn head_records(&self) -> u64 {
        1
    }

    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(RowsProbe::new(prompt.answerable_targets().into_iter().map(|target| target.rows).collect()))]
    }

    fn wants_predictions(&self) -> bool {
        true
    }

    fn conclude(&self, seen: Seen<'_>, findings: &mut Findings) -> Result<()> {
        let predictions = seen.predictions.context("predictions were asked for")?;
        let (mut places, mut heads) = (Vec::new(), Vec::new());
        for result in seen.probe_results {
            places.push((result.layer, result.head));
            heads.push(*result.sink.into_sink::<RowsSink>());
        }
        // How token i is predicted is found at i - 1.
        let prose: Vec<usize> = seen.prompt.scored().into_iter().map(|token| token - 1).collect();
        let nll = prose.iter().map(|&i| f64::from(predictions.nll_nats[i])).sum::<f64>() / prose.len() as f64;
        findings.push(None, "filler", number("nll", nll, Some("nats"), prose.len()));
        let Some(baseline) = seen.baseline else {
            let kept: Kept = Box::new(Baseline { heads, predictions: predictions.clone() });
            findings.kept = Some(kept);
            return Ok(());
        };
        let baseline = baseline.downcast_ref::<Baseline>().expect("this measure kept it");
        let flips = prose.iter().filter(|&&i| predictions.top[i] != baseline.predictions.top[i]).count();
        let flips = flips as f64 / prose.len() as f64;
        findings.push(None, "filler", number("top_token_flips", flips, Some("fraction"), prose.len()));
        let rows = seen.prompt.rows_name();
        for (index, target) in seen.prompt.answerable_targets().iter().enumerate() {
            let of_head = |(i, (layer, head)): (usize, &(usize, usize))| {
                let (a, b) = (&baseline.heads[i].rows[index], &heads[i].rows[index]);
                let all = means(a, b, &(0..usize::MAX))?;
                let context = means(a, b, &seen.prompt.haystack);
                Some(HeadDivergence { layer: *layer, head: *head, all, context })
            };
            let diverged: Vec<HeadDivergence> = places.iter().enumerate().filter_map(of_head).collect();
            push_divergences(&diverged, |found| findings.push(target.query, rows, found));
        }
        Ok(())
    }
}

/// Means over rows of their divergences on some of the keys; nothing where a row has nothing there.
fn means(a: &[Vec<f32>], b: &[Vec<f32>], keys: &Range<usize>) -> Option<Means> {
    let part = |row: &'_ [f32]| row[keys.start.min(row.len())..keys.end.min(row.len())].to_vec();
    let found: Vec<Divergence> = a.iter().zip(b).filter_map(|(a, b)| Divergence::of(&part(a), &part(b))).collect();
    let mean = |f: fn(&Divergence) -> f64| found.iter().map(f).sum::<f64>() / found.len() as f64;
    (!found.is_empty()).then(|| Means {
        kl_nats: mean(|d| d.kl_nats),
        total_variation: mean(|d| d.total_variation),
        flips: mean(|d| f64::from(u8::from(d.top_flipped))),
    })
}

fn push_divergences(heads: &[HeadDivergence], mut push: impl FnMut(crate::record::Found)) {
    let all: Vec<Means> = heads.iter().map(|head| head.all).collect();
    let context: Vec<Means> = heads.iter().filter_map(|head| head.context).collect();
    for ([kl, total_variation, flips], means) in [
        (["kl", "total_variation", "top_key_flips"], all),
        (["kl_context", "total_variation_context", "top_key_flips_context"], context),
    ] {
        let n = means.len();
        let mean = |f: fn(&Means) -> f64| means.iter().map(f).sum::<f64>() / n as f64;
        if n > 0 {
            push(number(kl, mean(|m| m.kl_nats), Some("nats"), n));
            push(fraction(total_variation, None, mean(|m| m.total_variation), n));
            push(fraction(flips, None, mean(|m| m.flips), n));
        }
    }
    for head in heads {
        let found = fraction("total_variation", None, head.all.total_variation, 1);
        push(crate::record::Found { layer: Some(head.layer), head: Some(head.head), ..found });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::seen_by;
    use super::*;

    #[test]
    fn the_memory_that_is_said_is_that_of_the_rows_of_two_passes() {
        let (extent, passed) = seen_by(&FidelityMeasure, "diff");
        let rows_of = |sink: &RowsSink| -> usize {
            sink.rows.iter().flatten().map(|row| size_of_val(row) + size_of_val(row.as_slice())).sum()
        };
        let sinks = passed.probe_results.into_iter().map(|seen| seen.sink.into_sink::<RowsSink>());
        let predictions = passed.predictions.unwrap();
        let of_tokens = size_of_val(predictions.nll_nats.as_slice()) + size_of_val(predictions.top.as_slice());
        let taken = 2 * (sinks.map(|sink| rows_of(&sink)).sum::<usize>() + of_tokens) as u64;
        let said = FidelityMeasure.memory_bytes(&extent);
        // No row is longer than the prompt, and those that predict answers are nearly as long.
        assert!(taken <= said && said < taken + taken / 8, "{said} bytes said, {taken} taken");
    }

    #[test]
    fn a_head_that_has_left_the_context_still_counts_among_all_keys() {
        let (before, after) = (vec![vec![0.9, 0.06, 0.04]], vec![vec![1.0, 0.0, 0.0]]);
        assert!(means(&before, &after, &(1..3)).is_none(), "nothing is left there");
        let all = means(&before, &after, &(0..usize::MAX)).unwrap();
        let head = |context| HeadDivergence { layer: 0, head: 0, all, context };
        let mut found = Vec::new();
        push_divergences(&[head(None), head(Some(all))], |measure| found.push(measure));
        let n = |metric: &str| found.iter().find(|m| m.metric == metric && m.layer.is_none()).unwrap().n;
        assert_eq!((n("kl"), n("kl_context")), (Some(2), Some(1)));
    }
}
