//! The largest logits and hidden states, pooled over all prompts, overall and by layer; and massive activations.

use super::{
    decoded, encoded, number, token_text, Measure, MeasureData, MeasureOutput, ObservedPass, PassKey, ResidualSink,
};
use crate::attention::{ResidualProbe, RowProbe};
use crate::measures::probe::{LogitCollector, LogitProbe, ReceivedCollector, ResidualStats, SinkProbe};
use crate::prompts::Prompt;
use crate::results::metric::{
    top_k, Metric, INF_NORM_MAX, KURTOSIS, MASSIVE, MEDIAN, SHARE_BEYOND_6_SIGMA, TOP_1_OVER_MEDIAN, TOP_K,
};
use crate::results::record::Measurement;
use crate::results::MassiveAt;
use crate::stats::Tally;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranks of the largest magnitudes, as in the paper's Table 5.
pub const RANKS: [usize; 5] = [1, 2, 3, 10, 100];

/// Standard deviations beyond which a number is an outlier (Bondarenko et al. 2021).
const SIGMAS: f64 = 6.0;

/// Pools the logits of all maps over visible keys, and the hidden states at the output of each layer.
#[derive(Default)]
pub struct OutlierMeasure {
    /// Pooled data, by model and condition.
    pub pooled: BTreeMap<PassKey, Outliers>,
}

/// Pooled data of one model under one condition. It is read back by resumed runs; `BTreeMap` does not reserve memory
/// for as many entries as a damaged file may claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outliers {
    /// Logits, by measured layer.
    pub logits: BTreeMap<usize, Tally>,
    /// Hidden states at the output of each layer.
    pub hidden: BTreeMap<usize, Tally>,
    /// The largest infinity norm of a token at the output of each layer.
    pub inf_norm: BTreeMap<usize, f32>,
    /// Massive activations.
    pub massive: Vec<MassiveAt>,
    /// By layer and channel, the number of tokens on which the channel is large.
    pub large: BTreeMap<(usize, usize), usize>,
    /// Number of tokens.
    pub tokens: usize,
    /// Number of prompts.
    prompts: usize,
}

impl Outliers {
    /// Returns the logits of all layers together.
    pub fn all_logits(&self) -> Tally {
        merged(&self.logits)
    }

    /// Returns the hidden states of all layers together.
    pub fn all_hidden(&self) -> Tally {
        merged(&self.hidden)
    }

    /// The share of the tokens on which a channel is large at a layer.
    pub fn large_share(&self, layer: usize, channel: usize) -> f64 {
        self.large.get(&(layer, channel)).map_or(0.0, |&tokens| tokens as f64 / self.tokens as f64)
    }

    fn absorb(&mut self, later: Outliers) {
        let merge = |mine: &mut BTreeMap<usize, Tally>, theirs: BTreeMap<usize, Tally>| {
            theirs.into_iter().for_each(|(layer, tally)| mine.entry(layer).or_default().merge(&tally));
        };
        merge(&mut self.logits, later.logits);
        merge(&mut self.hidden, later.hidden);
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
        let mut records = Vec::new();
        push_tally("logits", None, &self.all_logits(), &mut records);
        push_tally("hidden", None, &self.all_hidden(), &mut records);
        for (&layer, tally) in &self.logits {
            push_tally("logits", Some(layer), tally, &mut records);
        }
        for (&layer, tally) in &self.hidden {
            push_tally("hidden", Some(layer), tally, &mut records);
            let norm = self.inf_norm.get(&layer).copied().unwrap_or(f32::NAN);
            let massive = self.massive.iter().filter(|at| at.layer == layer).count();
            for (metric, value) in [(&INF_NORM_MAX, f64::from(norm)), (&MASSIVE, massive as f64)] {
                let found = number(metric, value, tally.histogram.n() as usize);
                records.push(Measurement { layer: Some(layer), region: Some("hidden".into()), ..found });
            }
        }
        records
    }
}

fn merged(layers: &BTreeMap<usize, Tally>) -> Tally {
    let mut all = Tally::default();
    layers.values().for_each(|tally| all.merge(tally));
    all
}

/// Adds the statistics of a tally; `what` becomes the region of the records.
fn push_tally(what: &'static str, layer: Option<usize>, tally: &Tally, records: &mut Vec<Measurement>) {
    let n = tally.histogram.n() as usize;
    let found = |metric, value| Measurement { layer, region: Some(what.into()), ..number(metric, value, n) };
    for rank in RANKS {
        if let Some(value) = tally.top.magnitude(rank) {
            records.push(Measurement { metric: top_k(rank).into(), ..found(&TOP_K, f64::from(value)) });
        }
    }
    let others: [(&Metric, Option<f64>); 4] = [
        (&MEDIAN, tally.median()),
        (&TOP_1_OVER_MEDIAN, tally.max_over_median()),
        (&KURTOSIS, tally.moments.kurtosis()),
        (&SHARE_BEYOND_6_SIGMA, tally.share_beyond_sigmas(SIGMAS)),
    ];
    records.extend(others.into_iter().filter_map(|(metric, value)| Some(found(metric, value?))));
}

impl Measure for OutlierMeasure {
    fn row_probes(&self, _model: usize, prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        vec![Box::new(LogitProbe), Box::new(SinkProbe::new(prompt.ids.len(), Vec::new()))]
    }

    fn residual_probe(&self) -> Option<Box<dyn ResidualSink>> {
        Some(Box::new(HiddenSink::default()))
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> Result<()> {
        let mut found = Outliers { tokens: pass.prompt.ids.len(), prompts: 1, ..Outliers::default() };
        let mut sinks: Vec<usize> = Vec::new();
        for result in pass.probe_results {
            match result.probe {
                0 => {
                    let tally = result.collector.into_collector::<LogitCollector>().tally;
                    found.logits.entry(result.layer).or_default().merge(&tally);
                }
                _ => sinks.extend(result.collector.into_collector::<ReceivedCollector>().sinks()),
            }
        }
        let hidden = pass.residual.and_then(|sink| sink.downcast::<HiddenSink>().ok()).unwrap_or_default();
        // Site 0 is the embeddings; site l + 1 is the output of layer l.
        for (site, hidden) in hidden.sites.into_iter().filter(|(site, _)| *site > 0) {
            let layer = site - 1;
            found.inf_norm.insert(layer, hidden.inf_norm);
            let median = hidden.tally.median().filter(|&median| median > 0.0);
            for massive in &hidden.massive {
                let position = massive.position;
                found.massive.push(MassiveAt {
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
            found.large.extend(hidden.large.iter().map(|(&channel, &tokens)| ((layer, channel), tokens)));
            found.hidden.insert(layer, hidden.tally);
        }
        output.pooled = Some(Box::new(found));
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
        let of = |(key, outliers): (&PassKey, &Outliers)| {
            let key = *key;
            outliers.records().into_iter().map(move |found| (key, found)).collect::<Vec<_>>()
        };
        self.pooled.iter().flat_map(of).collect()
    }
}

/// The residual stream of one pass, by site.
#[derive(Default)]
struct HiddenSink {
    sites: BTreeMap<usize, ResidualStats>,
}

impl ResidualProbe for HiddenSink {
    fn observe(&mut self, site: usize, values: &[f32], width: usize) {
        self.sites.insert(site, ResidualStats::of(values, width));
    }
}

impl ResidualSink for HiddenSink {}
