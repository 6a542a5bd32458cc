//! The largest logits and hidden states, pooled over all prompts, overall and by layer; and massive activations.

mod tables;

pub(crate) use tables::{side_by_side, CHANNELS, OUTLIERS};

use super::sinks::{SinkCollector, SinkProbe};
use super::{decoded, encoded, number, token_text, Measure, MeasureData, MeasureOutput, Needs, ObservedPass, PassKey};
use crate::results::record::Measurement;
use crate::results::MassiveAt;
use anyhow::Result;
use engine::attention::{AttentionRow, ResidualProbe, RowCollector, RowProbe};
use names::metric::{
    top_k, Metric, INF_NORM_MAX, KURTOSIS, LARGEST, MASSIVE, MEDIAN, SHARE_BEYOND_6_SIGMA, TOP_1_OVER_MEDIAN, TOP_K,
};
use serde::{Deserialize, Serialize};
use stats::simd::max_magnitude;
use stats::Tally;
use std::collections::{BTreeMap, BTreeSet};
use text::Prompt;

/// Ranks of the largest magnitudes, as in the paper's Table 5.
const RANKS: [usize; 5] = [1, 2, 3, 10, 100];

/// Standard deviations beyond which a number is an outlier (Bondarenko et al. 2021).
const SIGMAS: f64 = 6.0;

/// Minimum magnitude of massive activations (Sun et al. 2024, "Massive activations in large language models").
const MASSIVE_MAGNITUDE: f32 = 100.0;

/// Minimum ratio of a massive activation to the median magnitude of its layer.
const TIMES_MEDIAN: f64 = 1000.0;

/// Pools the logits of all maps over visible keys, and the hidden states at the output of each layer.
#[derive(Default)]
pub(crate) struct OutlierMeasure {
    /// Pooled data, by model and condition.
    pub(crate) pooled: BTreeMap<PassKey, Outliers>,
}

impl Measure for OutlierMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(LogitProbe), Box::new(SinkProbe::new(prompt.ids.len()))]
    }

    fn needs(&self) -> Needs {
        Needs { residual: true, ..Needs::default() }
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut outliers = Outliers { tokens: pass.prompt.ids.len(), prompts: 1, ..Outliers::default() };
        let mut sinks = BTreeSet::new();
        for result in pass.probe_results {
            match result.probe {
                0 => {
                    let tally = result.collector.into_collector::<LogitCollector>().tally;
                    outliers.logits.entry(result.at.layer).or_default().merge(&tally);
                }
                _ => sinks.extend(result.collector.into_collector::<SinkCollector>().sinks()),
            }
        }
        for (site, hidden) in pass.residual.iter().flat_map(|residual| &residual.sites) {
            let Some(layer) = site.checked_sub(1) else { continue }; // the embeddings
            outliers.inf_norm.insert(layer, hidden.inf_norm);
            let median = hidden.tally.median().filter(|&median| median > 0.0);
            for massive in &hidden.massive {
                let position = massive.position;
                outliers.massive.push(MassiveAt {
                    model: String::new(),
                    sample: 0,
                    layer,
                    position,
                    token: token_text(pass.tokenizer, pass.prompt.ids[position])?,
                    channel: massive.channel,
                    value: massive.value,
                    ratio: median.map(|median| f64::from(massive.value.abs()) / median),
                    large_share: None,
                    sink: sinks.contains(&position),
                });
            }
            outliers.large.extend(hidden.large.iter().map(|(&channel, &tokens)| ((layer, channel), tokens)));
            outliers.hidden.insert(layer, hidden.tally.clone());
        }
        output.extend(None, "all", largest_records(&outliers));
        output.pooled = Some(Box::new(outliers));
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let later = pooled.downcast::<Outliers>().expect("this measure pools outliers");
        self.pooled.entry(key).or_default().absorb(*later);
    }

    fn encode(&self, pooled: &MeasureData) -> Result<Option<Vec<u8>>> {
        encoded::<Outliers>(pooled)
    }

    fn decode(&self, bytes: &[u8]) -> Result<MeasureData> {
        decoded::<Outliers>(bytes)
    }

    fn finish(&mut self) -> Vec<(PassKey, Measurement)> {
        let mut records = Vec::new();
        for (&key, outliers) in &self.pooled {
            records.extend(outliers.records().into_iter().map(|record| (key, record)));
        }
        records
    }
}

/// Pooled data of one model under one condition. It is read back by resumed runs; `BTreeMap` does not reserve memory
/// for as many entries as a damaged file may claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outliers {
    /// Logits, by measured layer.
    pub(crate) logits: BTreeMap<usize, Tally>,
    /// Hidden states at the output of each layer.
    pub(crate) hidden: BTreeMap<usize, Tally>,
    /// The largest infinity norm of a token at the output of each layer.
    inf_norm: BTreeMap<usize, f32>,
    /// Massive activations.
    pub(crate) massive: Vec<MassiveAt>,
    /// By layer and channel, the number of tokens on which the channel is large.
    large: BTreeMap<(usize, usize), usize>,
    pub(crate) tokens: usize,
    prompts: usize,
}

impl Outliers {
    /// The logits of all layers together.
    pub(crate) fn all_logits(&self) -> Tally {
        merged(&self.logits)
    }

    /// The hidden states of all layers together.
    pub(crate) fn all_hidden(&self) -> Tally {
        merged(&self.hidden)
    }

    /// The share of the tokens on which a channel is large at a layer.
    pub(crate) fn large_share(&self, layer: usize, channel: usize) -> f64 {
        self.large.get(&(layer, channel)).map_or(0.0, |&tokens| tokens as f64 / self.tokens as f64)
    }

    fn absorb(&mut self, later: Outliers) {
        for (mine, theirs) in [(&mut self.logits, later.logits), (&mut self.hidden, later.hidden)] {
            for (layer, tally) in theirs {
                mine.entry(layer).or_default().merge(&tally);
            }
        }
        for (layer, norm) in later.inf_norm {
            let largest = self.inf_norm.entry(layer).or_default();
            *largest = largest.max(norm);
        }
        self.massive.extend(later.massive.into_iter().map(|at| MassiveAt { sample: self.prompts, ..at }));
        for (place, tokens) in later.large {
            *self.large.entry(place).or_default() += tokens;
        }
        self.tokens += later.tokens;
        self.prompts += later.prompts;
    }

    fn records(&self) -> Vec<Measurement> {
        let mut records = tally_records("logits", None, &self.all_logits());
        records.extend(tally_records("hidden", None, &self.all_hidden()));
        for (&layer, tally) in &self.logits {
            records.extend(tally_records("logits", Some(layer), tally));
        }
        for (&layer, tally) in &self.hidden {
            records.extend(tally_records("hidden", Some(layer), tally));
            let norm = self.inf_norm.get(&layer).copied().unwrap_or(f32::NAN);
            let massive = self.massive.iter().filter(|at| at.layer == layer).count();
            for (metric, value) in [(&INF_NORM_MAX, f64::from(norm)), (&MASSIVE, massive as f64)] {
                let record = number(metric, value, tally.histogram.n() as usize);
                records.push(Measurement { layer: Some(layer), region: Some("hidden".into()), ..record });
            }
        }
        records
    }
}

/// The records of a window: its largest logit and its largest hidden state.
fn largest_records(outliers: &Outliers) -> Vec<Measurement> {
    let mut records = Vec::new();
    for (region, layers) in [("logits", &outliers.logits), ("hidden", &outliers.hidden)] {
        let n = layers.values().map(|tally| tally.histogram.n() as usize).sum();
        let largest = layers.values().filter_map(|tally| tally.top.magnitude(1)).reduce(f32::max);
        let largest = largest.map(|value| number(&LARGEST, f64::from(value), n));
        records.extend(largest.map(|record| Measurement { region: Some(region.into()), ..record }));
    }
    records
}

fn merged(layers: &BTreeMap<usize, Tally>) -> Tally {
    let mut all = Tally::default();
    layers.values().for_each(|tally| all.merge(tally));
    all
}

/// The statistics of a tally; `quantity` becomes the region of the records.
fn tally_records(quantity: &'static str, layer: Option<usize>, tally: &Tally) -> Vec<Measurement> {
    let n = tally.histogram.n() as usize;
    let mut records = Vec::new();
    for rank in RANKS {
        if let Some(value) = tally.top.magnitude(rank) {
            records.push(Measurement { metric: top_k(rank).into(), ..number(&TOP_K, f64::from(value), n) });
        }
    }
    let others: [(&Metric, Option<f64>); 4] = [
        (&MEDIAN, tally.median()),
        (&TOP_1_OVER_MEDIAN, tally.max_over_median()),
        (&KURTOSIS, tally.moments.kurtosis()),
        (&SHARE_BEYOND_6_SIGMA, tally.share_beyond_sigmas(SIGMAS)),
    ];
    for (metric, value) in others {
        records.extend(value.map(|value| number(metric, value, n)));
    }
    for record in &mut records {
        record.layer = layer;
        record.region = Some(quantity.into());
    }
    records
}

/// Observes all visible logits of all maps in every row.
struct LogitProbe;

impl RowProbe for LogitProbe {
    fn wants(&self, _layer: usize, _head: usize, _query: usize) -> bool {
        true
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, _layer: usize, _head: usize) -> Box<dyn RowCollector> {
        Box::new(LogitCollector::default())
    }
}

/// State of the probe for one head. Tallies can be merged over heads, layers and prompts.
#[derive(Default)]
struct LogitCollector {
    /// Magnitudes of the logits of all maps.
    tally: Tally,
}

impl RowCollector for LogitCollector {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        for logits in row.logits {
            // The -inf of masked keys is not a logit of the model.
            let visible = logits[row.first_visible..].split(|&logit| logit == f32::NEG_INFINITY);
            visible.for_each(|run| self.tally.add(run));
        }
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        let later = later.into_collector::<Self>();
        self.tally.merge(&later.tally);
    }
}

/// Collects statistics of the residual stream of one pass.
#[derive(Default)]
pub struct ResidualCollector {
    /// By site: 0 is the embeddings, l + 1 the output of layer l.
    sites: BTreeMap<usize, ResidualStats>,
}

impl ResidualProbe for ResidualCollector {
    fn observe(&mut self, site: usize, values: &[f32], width: usize) {
        self.sites.insert(site, ResidualStats::new(values, width));
    }
}

/// A massive activation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MassiveActivation {
    /// Position of the token.
    position: usize,
    channel: usize,
    value: f32,
}

/// Statistics of the residual stream at one site.
struct ResidualStats {
    /// Magnitudes of all activations.
    tally: Tally,
    /// Largest infinity norm of a token, max |x| over channels; 0 without tokens. NaN is ignored.
    inf_norm: f32,
    /// Activations with |x| > 100 and |x| >= 1000 times the site's median |x| (Sun et al. 2024), in the order of
    /// positions and channels. The median is that of the tally's histogram, within a factor of 1 ± 2^-8.
    massive: Vec<MassiveActivation>,
    /// By channel, the number of tokens on which it is large: |x| >= 1000 times the site's median |x|. Channels that are
    /// large on no token are left out.
    large: BTreeMap<usize, usize>,
}

impl ResidualStats {
    /// Computes the statistics of `values`, row-major: tokens of `width` channels each.
    fn new(values: &[f32], width: usize) -> Self {
        let tokens = values.chunks(width.max(1));
        let mut tally = Tally::default();
        tokens.clone().for_each(|token| tally.add(token));
        let limit = TIMES_MEDIAN * tally.median().unwrap_or(0.0);
        let mut stats = Self { tally, inf_norm: 0.0, massive: Vec::new(), large: BTreeMap::new() };
        for (position, token) in tokens.enumerate() {
            let norm = max_magnitude(token);
            stats.inf_norm = stats.inf_norm.max(norm);
            if f64::from(norm) >= limit {
                stats.add_large(position, token, limit);
            }
        }
        stats
    }

    /// Adds the activations of a token with a magnitude of at least `limit`.
    fn add_large(&mut self, position: usize, token: &[f32], limit: f64) {
        for (channel, &value) in token.iter().enumerate() {
            if value.is_finite() && value != 0.0 && f64::from(value.abs()) >= limit {
                *self.large.entry(channel).or_default() += 1;
                if value.abs() > MASSIVE_MAGNITUDE {
                    self.massive.push(MassiveActivation { position, channel, value });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{random_rows, watch, TestRow};
    use super::*;
    use proptest::prelude::*;

    fn row(logits: &[&[f32]]) -> TestRow {
        let mut row = TestRow::two(logits[0], logits[0], 0.5);
        row.logits = logits.iter().map(|logits| logits.to_vec()).collect();
        row
    }

    #[test]
    fn logits_of_every_map_and_row_are_tallied() {
        let rows = [row(&[&[1.0], &[-2.0]]), row(&[&[3.0, -9.0], &[0.0, 9.0]])];
        let probe = LogitProbe;
        assert!(probe.wants_logits() && probe.wants(3, 4, 5));
        let tally = watch::<LogitCollector>(&probe, &rows, 1).tally;
        assert_eq!(
            [1, 2, 3, 6, 7].map(|rank| tally.top.magnitude(rank)),
            [Some(9.0), Some(9.0), Some(3.0), Some(0.0), None]
        );
        assert!(tally.moments.n() == 6 && (tally.moments.mean().unwrap() - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!((tally.histogram.n(), tally.histogram.zeros(), tally.max()), (6, 1, Some(9.0)));
        // Magnitudes 0, 1, 2, 3, 9, 9.
        assert!((tally.median().unwrap() - 2.5).abs() < 2.5 / 256.0);
    }

    #[test]
    fn masked_keys_are_skipped() {
        let rows = [row(&[&[f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY, f32::NEG_INFINITY, -5.0]])];
        let tally = watch::<LogitCollector>(&LogitProbe, &rows, 1).tally;
        assert_eq!([1, 2, 3].map(|rank| tally.top.magnitude(rank)), [Some(5.0), Some(3.0), None]);
        assert_eq!((tally.histogram.n(), tally.moments.n(), tally.moments.mean()), (2, 2, Some(-1.0)));
    }

    /// 10 tokens of 8 channels at ±0.1.
    fn calm() -> Vec<f32> {
        (0..80).map(|i| if i % 3 == 0 { -0.1 } else { 0.1 }).collect()
    }

    #[test]
    fn massive_activations_are_large_and_a_thousand_times_the_median() {
        let mut values = calm();
        values[2 * 8 + 5] = -150.0;
        values[7 * 8] = 99.0;
        values[9 * 8 + 7] = 101.5;
        let stats = ResidualStats::new(&values, 8);
        let massive = |position, channel, value| MassiveActivation { position, channel, value };
        assert_eq!(stats.massive, [massive(2, 5, -150.0), massive(9, 7, 101.5)]);
        assert_eq!(stats.large, BTreeMap::from([(5, 1), (7, 1)]));
        assert_eq!((stats.inf_norm, stats.tally.max(), stats.tally.moments.n()), (150.0, Some(150.0), 80));
    }

    #[test]
    fn large_activations_below_a_thousand_medians_are_not_massive() {
        let mut values: Vec<f32> = calm().iter().map(|x| 10.0 * x).collect();
        values[3] = 900.0;
        assert_eq!(ResidualStats::new(&values, 8).massive, []);
        values[3] = 1100.0;
        assert_eq!(ResidualStats::new(&values, 8).massive.len(), 1);
    }

    #[test]
    fn nan_and_odd_shapes_do_not_panic() {
        let stats = ResidualStats::new(&[f32::NAN, f32::INFINITY, 500.0, 0.0, 0.0, 0.0, 0.0], 3);
        assert_eq!((stats.inf_norm, stats.massive.len(), stats.tally.histogram.non_finite()), (f32::INFINITY, 1, 2));
        assert_eq!(ResidualStats::new(&[], 0).inf_norm, 0.0);
    }

    proptest! {
        #[test]
        fn merging_blocks_equals_observing_all_rows(tokens in 1_usize..60, block in 1_usize..60, seed: u64) {
            let rows = random_rows(tokens, seed);
            let whole = watch::<LogitCollector>(&LogitProbe, &rows, tokens).tally;
            let merged = watch::<LogitCollector>(&LogitProbe, &rows, block).tally;
            prop_assert_eq!(&whole.top, &merged.top);
            prop_assert_eq!(&whole.histogram, &merged.histogram);
            prop_assert_eq!(whole.moments.n(), (tokens * (tokens + 1)) as u64);
            prop_assert!((whole.moments.std().unwrap() - merged.moments.std().unwrap()).abs() < 1e-9);
        }

        #[test]
        fn the_largest_norm_is_the_top_of_the_tally(values in prop::collection::vec(-500.0_f32..500.0, 1..200)) {
            let stats = ResidualStats::new(&values, 7);
            prop_assert_eq!(Some(stats.inf_norm), stats.tally.max());
            let placed = |massive: &MassiveActivation| values[massive.position * 7 + massive.channel] == massive.value;
            prop_assert!(stats.massive.iter().all(placed));
        }
    }
}
