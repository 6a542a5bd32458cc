//! The sink rate of Gu et al. (2025), "When attention sink emerges in language models": heads with much attention to the
//! first token of a short text, over three kinds of tokens.

use super::target::{share, RowMean};
use super::{rounded, Measure, MeasureOutput, ObservedPass};
use crate::results::record::Measurement;
use crate::results::run_table::{Content, RunTable};
use anyhow::Result;
use engine::attention::{AttentionRow, ProbeResult, RowCollector, RowProbe};
use names::metric::{SINK_RATE, TOKEN_KINDS};
use stats::mean;
use stats::Rng;
use std::collections::BTreeSet;
use text::Prompt;

/// Tokens of a text: T of the paper.
const TOKENS: usize = 64;

/// Mean attention to the first token from which a head has a sink: epsilon of the paper.
const SINK_SHARE: f64 = 0.3;

/// Sink rate over the first tokens of every text, and over as many random and repeated ones in two short passes more.
/// These begin with no special token.
pub(super) struct SinkRateMeasure;

impl Measure for SinkRateMeasure {
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(FirstTokenProbe { tokens: TOKENS })]
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let of_text = std::mem::take(&mut pass.probe_results);
        let heads: BTreeSet<_> = of_text.iter().map(|result| result.at).collect();
        let mut rates = vec![sink_rate(TOKEN_KINDS[0], of_text)];
        // These passes are untreated, so they run only for the baseline.
        if pass.key.condition == 0 {
            let config = &pass.model.config;
            let tokens = TOKENS.min(config.max_ctx_tok);
            let mut rng = Rng::new(pass.identity.seed.unwrap_or(pass.sample), "tokens of the sink rate");
            let random: Vec<u32> = (0..tokens).map(|_| rng.below(config.vocab) as u32).collect();
            let repeated = vec![rng.below(config.vocab) as u32; tokens];
            for (kind, ids) in [(TOKEN_KINDS[1], random), (TOKEN_KINDS[2], repeated)] {
                rates.push(sink_rate(kind, pass.over_tokens(ids, &FirstTokenProbe { tokens }, &heads)?));
            }
        }
        output.extend(None, "first", rates.into_iter().flatten().collect());
        Ok(())
    }
}

/// The sink rate over one kind of tokens; `None` without heads.
fn sink_rate(kind: &'static str, results: Vec<ProbeResult>) -> Option<Measurement> {
    let mut have_sinks = Vec::new();
    for result in results {
        if let Some(share) = result.collector.into_collector::<FirstTokenCollector>().0.mean() {
            have_sinks.push(f64::from(u8::from(share > SINK_SHARE)));
        }
    }
    let rate = rounded(&SINK_RATE, mean(&have_sinks)?, have_sinks.len());
    Some(Measurement { region: Some(kind.into()), ..rate })
}

/// Observes the first rows of a text.
struct FirstTokenProbe {
    /// Number of rows.
    tokens: usize,
}

impl RowProbe for FirstTokenProbe {
    fn wants(&self, _layer: usize, _head: usize, query: usize) -> bool {
        query < self.tokens
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(FirstTokenCollector::default())
    }
}

/// Mean share |a| / sum |a| of the first token of one head over the rows, its own included. (Gu et al. average over the same
/// rows of an ordinary map, whose weights sum to 1.)
#[derive(Default)]
struct FirstTokenCollector(RowMean);

impl RowCollector for FirstTokenCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        self.0.add(share(row.effective, 0..1));
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.0.merge(later.into_collector::<Self>().0);
    }
}

pub(crate) const SINK_RATES: RunTable = RunTable {
    id: "sink-rate",
    title: "Sink rate",
    note: "Share of heads whose first token has more than 0.3 of the attention over the first 64 rows [95 % interval]. Random and \
           repeated tokens begin with no special token.",
    content: Content::Numbers {
        numbers: &[SINK_RATE.of(TOKEN_KINDS[0]), SINK_RATE.of(TOKEN_KINDS[1]), SINK_RATE.of(TOKEN_KINDS[2])],
        by: &[],
    },
};

#[cfg(test)]
mod tests {
    use super::super::testing::{watch, TestRow};
    use super::*;
    use names::HeadPlace;

    #[test]
    fn the_mean_is_over_all_rows_with_the_first_token_s_own() {
        let rows = [&[1.0][..], &[0.5, 0.5], &[-0.25, 0.5, 0.25], &[0.0, 0.0, 0.0, 1.0]].map(TestRow::one);
        let collector = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: 3 }, &rows, 2);
        assert_eq!(collector.0.mean(), Some((1.0 + 0.5 + 0.25) / 3.0));
    }

    #[test]
    fn of_two_maps_it_is_the_share_of_their_difference() {
        let rows = [TestRow::two(&[1.0], &[1.0], 0.5), TestRow::two(&[0.5, 0.5], &[0.25, 0.75], 1.0)];
        let collector = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: 64 }, &rows, 1);
        assert_eq!(collector.0.mean(), Some(0.75));
        assert_eq!(FirstTokenCollector::default().0.mean(), None);
    }

    #[test]
    fn the_rate_is_the_share_of_heads_whose_first_token_has_more_than_the_threshold() {
        let mut heads = Vec::new();
        for share in [0.125, 0.25, 0.5, 0.625] {
            let rows: Vec<TestRow> = (0..2).map(|_| TestRow::two(&[share, 1.0 - share], &[0.25, 0.75], 0.0)).collect();
            let collector = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: TOKENS }, &rows, 2);
            heads.push(ProbeResult { at: HeadPlace { layer: 0, head: 0 }, probe: 0, collector });
        }
        let rate = sink_rate("random", heads).unwrap();
        assert_eq!((rate.metric.as_ref(), rate.value, rate.n), (SINK_RATE.name, Some(0.5), Some(4)));
        assert_eq!(rate.region.as_deref(), Some("random"));
    }
}
