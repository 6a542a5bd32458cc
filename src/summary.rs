//! From records to the numbers of a table: accuracy with its interval, attention shares, paired differences.

use crate::record::Record;
use crate::stats::{mean, wilson, Interval, Paired, RESAMPLES};
use serde::Serialize;
use std::collections::BTreeMap;

/// One row of the table: a model in one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Model name.
    pub model: String,
    /// Prompt length, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text.
    pub needles: usize,
    /// Needles asked for.
    pub retrieve: usize,
    /// Accuracy over numbers asked, cities the model was trained on.
    pub accuracy: Proportion,
    /// The same with held-out cities.
    pub accuracy_heldout: Proportion,
    /// Mean log-probability of the answer, in nats.
    pub answer_log_prob_nats: f64,
    /// Mean share of |attention| on the answer's tokens.
    pub answer_share_abs: f64,
    /// Mean share of |attention| on noise.
    pub noise_share_abs: f64,
    /// Mean lambda.
    pub lambda: f64,
}

/// Hits of trials.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Proportion {
    /// Hits.
    pub hits: usize,
    /// Trials.
    pub n: usize,
    /// Hits over trials; nothing without trials.
    pub fraction: Option<f64>,
    /// Ends of the 95 % Wilson interval.
    pub lo: f64,
    /// See `lo`.
    pub hi: f64,
}

impl Proportion {
    fn new(values: &[f64]) -> Self {
        let (hits, n) = (values.iter().filter(|&&v| v == 1.0).count(), values.len());
        let Interval { lo, hi } = wilson(hits, n);
        Self { hits, n, fraction: mean(values), lo, hi }
    }

    /// The interval.
    pub fn interval(&self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }
}

/// The paired difference of one metric between a model and the first one.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The other model.
    pub model: String,
    /// The first model.
    pub baseline: String,
    /// Prompt length, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text.
    pub needles: usize,
    /// Needles asked for.
    pub retrieve: usize,
    /// `exact`, `answer_share_abs` or `noise_share_abs`.
    pub metric: &'static str,
    /// Prompts compared.
    pub n: usize,
    /// Mean of model - baseline.
    pub difference: f64,
    /// Ends of the 95 % bootstrap interval.
    pub lo: f64,
    /// See `lo`.
    pub hi: f64,
}

/// The three metrics that are compared: name in the summary, metric and region of the records.
const COMPARED: [(&str, &str, Option<&str>); 3] = [
    ("exact", "exact", None),
    ("answer_share_abs", "share_abs", Some("answer")),
    ("noise_share_abs", "noise_abs", None),
];

/// Records that are means over heads and layers, grouped for lookup. Records of single heads are not kept.
#[derive(Default)]
pub struct Summary {
    models: Vec<String>,
    settings: Vec<Setting>,
    values: BTreeMap<Key, Vec<(Sample, f64)>>,
}

/// Context, needles in the text, needles asked for.
type Setting = (usize, usize, usize);
/// What identifies a number among those of one key: seed and query.
type Sample = (u64, usize);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    model: String,
    setting: Setting,
    cities: String,
    depth_millipct: u64,
    metric: String,
    region: Option<String>,
}

impl Summary {
    /// Takes note of a record.
    pub fn add(&mut self, record: &Record) {
        let (id, measure) = (&record.identity, &record.measure);
        let (Some(value), None) = (measure.value, measure.layer) else { return };
        let setting = (id.ctx_tok, id.needles.unwrap_or(0), id.retrieve.unwrap_or(0));
        if !self.models.contains(&id.model) {
            self.models.push(id.model.clone());
        }
        if !self.settings.contains(&setting) {
            self.settings.push(setting);
        }
        let key = Key {
            model: id.model.clone(),
            setting,
            cities: id.cities.as_deref().unwrap_or_default().to_owned(),
            depth_millipct: (id.depth_req_pct.unwrap_or(0.0) * 1000.0).round() as u64,
            metric: measure.metric.to_string(),
            region: measure.region.as_deref().map(ToOwned::to_owned),
        };
        self.values.entry(key).or_default().push(((id.seed.unwrap_or(0), id.query.unwrap_or(0)), value));
    }

    /// Models in the order they first appeared.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// Settings (context, needles, asked) in the order they first appeared.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Depths that occur, in percent, from the top.
    pub fn depths_pct(&self) -> Vec<f64> {
        let mut depths: Vec<u64> = self.values.keys().map(|key| key.depth_millipct).collect();
        depths.sort_unstable();
        depths.dedup();
        depths.into_iter().map(|d| d as f64 / 1000.0).collect()
    }

    /// Numbers of one metric with training cities, at one depth or all.
    pub fn numbers(
        &self,
        model: &str,
        setting: Setting,
        depth_pct: Option<f64>,
        metric: &str,
        region: Option<&str>,
    ) -> Vec<f64> {
        self.select(model, setting, Some("train"), depth_pct, metric, region)
            .into_iter()
            .map(|(_, value)| value)
            .collect()
    }

    fn select(
        &self,
        model: &str,
        setting: Setting,
        cities: Option<&str>,
        depth_pct: Option<f64>,
        metric: &str,
        region: Option<&str>,
    ) -> Vec<(Sample, f64)> {
        let depth = depth_pct.map(|d| (d * 1000.0).round() as u64);
        let matches = |key: &&Key| {
            key.model == model
                && key.setting == setting
                && cities.is_none_or(|c| key.cities == c)
                && depth.is_none_or(|d| key.depth_millipct == d)
                && key.metric == metric
                && key.region.as_deref() == region
        };
        let found = self.values.iter().filter(|(key, _)| matches(key));
        found.flat_map(|(_, values)| values.iter().copied()).collect()
    }

    /// The table: settings in order, models within.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &setting in &self.settings {
            for model in &self.models {
                let numbers = |metric, region| self.numbers(model, setting, None, metric, region);
                let mean = |metric, region| mean(&numbers(metric, region)).unwrap_or(f64::NAN);
                let heldout = self.select(model, setting, Some("heldout"), None, "exact", None);
                rows.push(Row {
                    model: model.clone(),
                    ctx_tok: setting.0,
                    needles: setting.1,
                    retrieve: setting.2,
                    accuracy: Proportion::new(&numbers("exact", None)),
                    accuracy_heldout: Proportion::new(&heldout.into_iter().map(|(_, v)| v).collect::<Vec<_>>()),
                    answer_log_prob_nats: mean("answer_log_prob", None),
                    answer_share_abs: mean("share_abs", Some("answer")),
                    noise_share_abs: mean("noise_abs", None),
                    lambda: mean("lambda", None),
                });
            }
        }
        rows
    }

    /// Every model against the first, on the same prompts, both city sets together. Numbers of one prompt are averaged
    /// first: they are not independent.
    pub fn differences(&self, seed: u64) -> Vec<Difference> {
        let Some((baseline, others)) = self.models.split_first() else { return Vec::new() };
        let mut list = Vec::new();
        for &setting in &self.settings {
            for model in others {
                for (name, metric, region) in COMPARED {
                    let per_prompt = |model: &str| by_prompt(&self.select(model, setting, None, None, metric, region));
                    let (a, b) = (per_prompt(baseline), per_prompt(model));
                    let pairs: Vec<(f64, f64)> =
                        a.iter().filter_map(|(prompt, a)| Some((*a, *b.get(prompt)?))).collect();
                    let Some(paired) = Paired::new(&pairs, RESAMPLES, seed) else { continue };
                    list.push(Difference {
                        model: model.clone(),
                        baseline: baseline.clone(),
                        ctx_tok: setting.0,
                        needles: setting.1,
                        retrieve: setting.2,
                        metric: name,
                        n: paired.n,
                        difference: paired.diff,
                        lo: paired.lo,
                        hi: paired.hi,
                    });
                }
            }
        }
        list
    }
}

/// The mean over queries of each prompt, by seed.
fn by_prompt(values: &[(Sample, f64)]) -> BTreeMap<u64, f64> {
    let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for ((seed, _), value) in values {
        groups.entry(*seed).or_default().push(*value);
    }
    groups.into_iter().filter_map(|(seed, values)| Some((seed, mean(&values)?))).collect()
}
