//! The sink rate of Gu et al. (2025), "When attention sink emerges in language models", over three kinds of tokens.

use super::{rounded, Measure, MeasureOutput, ObservedPass};
use crate::attention::{ProbeResult, RowProbe, Stream};
use crate::base::rng::Rng;
use crate::measures::probe::{FirstTokenCollector, FirstTokenProbe};
use crate::prompts::Prompt;
use crate::results::metric::{SINK_RATE, TOKEN_KINDS};
use crate::results::record::Measurement;
use crate::stats::mean;
use anyhow::Result;

/// Tokens of a text: T of the paper.
const TOKENS: usize = 64;

/// Mean attention to the first token from which a head has a sink: epsilon of the paper.
const SINK_SHARE: f64 = 0.3;

/// Sink rate over the first tokens of every text, and over as many random and repeated ones in two short passes more.
/// These begin with no special token.
pub struct SinkRateMeasure;

impl Measure for SinkRateMeasure {
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(FirstTokenProbe { tokens: TOKENS })]
    }

    fn conclude(&self, mut pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let of_text = std::mem::take(&mut pass.probe_results);
        let heads: Vec<(usize, usize)> = of_text.iter().map(|result| (result.layer, result.head)).collect();
        let mut found = vec![(TOKEN_KINDS[0], of_text)];
        // These passes are untreated, so they run only for the baseline.
        if pass.key.condition == 0 {
            let config = &pass.model.config;
            let tokens = TOKENS.min(config.max_ctx_tok);
            let mut rng = Rng::new(pass.identity.seed.unwrap_or(pass.sample), "tokens of the sink rate");
            let random: Vec<u32> = (0..tokens).map(|_| rng.below(config.vocab) as u32).collect();
            let repeated = vec![rng.below(config.vocab) as u32; tokens];
            for (kind, ids) in [(TOKEN_KINDS[1], random), (TOKEN_KINDS[2], repeated)] {
                let probe = FirstTokenProbe { tokens };
                let probes: [&dyn RowProbe; 1] = [&probe];
                let mut stream = Stream::new(&probes);
                pass.model.hidden(&[ids], &mut stream)?;
                let measured = stream.probe_results.into_iter();
                found.push((kind, measured.filter(|result| heads.contains(&(result.layer, result.head))).collect()));
            }
        }
        for (kind, results) in found {
            push_rate(kind, results, |found| output.push(None, "first", found));
        }
        Ok(())
    }
}

/// Pushes the rate of one kind of tokens.
fn push_rate(kind: &'static str, results: Vec<ProbeResult>, mut push: impl FnMut(Measurement)) {
    let shares =
        results.into_iter().filter_map(|result| result.collector.into_collector::<FirstTokenCollector>().share());
    let rates: Vec<f64> = shares.map(|share| f64::from(u8::from(share > SINK_SHARE))).collect();
    if let Some(rate) = mean(&rates) {
        push(Measurement { region: Some(kind.into()), ..rounded(&SINK_RATE, None, rate, rates.len()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::probe::testing::{watch, TestRow};

    #[test]
    fn the_rate_is_the_share_of_heads_whose_first_token_has_more_than_the_threshold() {
        let head = |share: f32| {
            let rows: Vec<TestRow> = (0..2).map(|_| TestRow::two(&[share, 1.0 - share], &[0.25, 0.75], 0.0)).collect();
            let collector = watch::<FirstTokenCollector>(&FirstTokenProbe { tokens: TOKENS }, &rows, 2);
            ProbeResult { layer: 0, head: 0, probe: 0, collector }
        };
        let mut found = Vec::new();
        push_rate("random", [0.125, 0.25, 0.5, 0.625].map(head).into(), |measure| found.push(measure));
        let [rate] = found.as_slice() else { panic!("one rate") };
        assert_eq!((rate.metric.as_ref(), rate.value, rate.n), (SINK_RATE.name, Some(0.5), Some(4)));
        assert_eq!(rate.region.as_deref(), Some("random"));
    }
}
