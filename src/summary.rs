//! From records to the numbers of a table: accuracy with its interval, attention shares, paired differences.

use crate::record::Record;
use crate::stats::{bootstrap_mean, mean, wilson_of_groups, Interval, Paired, RESAMPLES};
use serde::Serialize;
use std::collections::BTreeMap;

/// Hits of trials.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Proportion {
    /// Hits.
    pub hits: usize,
    /// Trials.
    pub n: usize,
    /// Hits over trials; nothing without trials.
    pub fraction: Option<f64>,
    /// Ends of the 95 % Wilson interval, in which the questions of one prompt count as much as they differ.
    pub lo: f64,
    /// See `lo`.
    pub hi: f64,
}

impl Proportion {
    /// Of the numbers of each prompt, which are 0 or 1.
    fn new(prompts: &[Vec<f64>]) -> Self {
        let of_prompt = |values: &Vec<f64>| (values.iter().filter(|&&v| v == 1.0).count(), values.len());
        let groups: Vec<(usize, usize)> = prompts.iter().map(of_prompt).collect();
        let (hits, n) = groups.iter().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
        let Interval { lo, hi } = wilson_of_groups(&groups);
        Self { hits, n, fraction: (n > 0).then(|| hits as f64 / n as f64), lo, hi }
    }

    /// The interval.
    pub fn interval(&self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }
}

/// A paired difference: the same prompts, measured in two ways.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What is compared, for example a model or a number of bits.
    pub of: String,
    /// What it is compared with.
    pub baseline: String,
    /// Prompt length, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text.
    pub needles: usize,
    /// Needles asked for.
    pub retrieve: usize,
    /// Name of the quantity.
    pub metric: String,
    /// Prompts compared.
    pub n: usize,
    /// Mean over prompts of this - baseline.
    pub difference: f64,
    /// Ends of the 95 % bootstrap interval.
    pub lo: f64,
    /// See `lo`.
    pub hi: f64,
}

impl Difference {
    /// The interval.
    pub fn interval(&self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }
}

/// Records grouped for lookup: those that are means over heads and layers, and those of single heads.
#[derive(Default)]
pub struct Summary {
    models: Vec<String>,
    settings: Vec<Setting>,
    /// Whether there are other cities than held-out ones.
    usual: bool,
    values: BTreeMap<Key, Vec<Number>>,
    /// Numbers of single heads of some metrics, by metric, model, layer and head; whether their cities were held out.
    heads: BTreeMap<(HeadMetric, String, usize, usize), Vec<(Number, bool)>>,
    head_metrics: Vec<HeadMetric>,
}

/// A metric of single heads, and the region that it is about.
pub type HeadMetric = (&'static str, Option<&'static str>);

/// Context, needles in the text, needles asked for.
pub type Setting = (usize, usize, usize);

/// A number of one key, and what tells it from the others.
#[derive(Clone, Copy, Debug)]
struct Number {
    seed: u64,
    /// Whether its question's needle lies at the depth that was asked for; nothing of a whole prompt.
    placed: Option<bool>,
    value: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    model: String,
    setting: Setting,
    condition: Option<String>,
    cities: String,
    /// Missing of what was pooled over depths.
    depth_millipct: Option<u64>,
    metric: String,
    region: Option<String>,
}

/// Which numbers are wanted: of one model and metric, and as narrow as is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a> {
    model: &'a str,
    metric: &'a str,
    region: Option<&'a str>,
    setting: Option<Setting>,
    condition: Option<&'a str>,
    cities: Option<&'a str>,
    depth_pct: Option<f64>,
}

impl<'a> Pick<'a> {
    /// Numbers of a metric of no region, of the untreated passes, in all settings, at all depths; without held-out cities
    /// unless there are no others.
    pub fn of(model: &'a str, metric: &'a str) -> Self {
        Self { model, metric, region: None, setting: None, condition: None, cities: None, depth_pct: None }
    }

    /// Of a region.
    pub fn region(self, region: &'a str) -> Self {
        Self { region: Some(region), ..self }
    }

    /// In one setting.
    pub fn setting(self, setting: Setting) -> Self {
        Self { setting: Some(setting), ..self }
    }

    /// Under a condition, by its name; nothing for the untreated passes.
    pub fn condition(self, condition: Option<&'a str>) -> Self {
        Self { condition, ..self }
    }

    /// With cities of one set.
    pub fn cities(self, cities: &'a str) -> Self {
        Self { cities: Some(cities), ..self }
    }

    /// Of questions whose needle was put at one depth: of several needles that a prompt asks for only one was.
    pub fn depth_pct(self, depth_pct: f64) -> Self {
        Self { depth_pct: Some(depth_pct), ..self }
    }

    /// `usual`: whether held-out cities count only where they are asked for.
    fn matches(&self, key: &Key, usual: bool) -> bool {
        key.model == self.model
            && key.metric == self.metric
            && key.region.as_deref() == self.region
            && key.condition.as_deref() == self.condition
            && self.setting.is_none_or(|setting| key.setting == setting)
            && self.cities.map_or(!usual || key.cities != "heldout", |cities| key.cities == cities)
            && self.depth_pct.is_none_or(|depth| key.depth_millipct == Some(millipct(depth)))
    }
}

fn millipct(depth_pct: f64) -> u64 {
    (depth_pct * 1000.0).round() as u64
}

impl Summary {
    /// A summary that also keeps these metrics of every head.
    pub fn with_heads(metrics: &[HeadMetric]) -> Self {
        Self { head_metrics: metrics.to_vec(), ..Self::default() }
    }

    /// Takes note of a record.
    pub fn add(&mut self, record: &Record) {
        let (id, measure) = (&record.identity, &record.measure);
        let Some(value) = measure.value else { return };
        let number = Number { seed: id.seed.unwrap_or(0), placed: id.placed, value };
        let held_out = id.cities.as_deref() == Some("heldout");
        // What is pooled over all prompts is of no cities.
        self.usual |= id.seed.is_some() && !held_out;
        if let (Some(layer), Some(head)) = (measure.layer, measure.head) {
            let is = |wanted: &&HeadMetric| measure.metric == wanted.0 && measure.region.as_deref() == wanted.1;
            let kept = self.head_metrics.iter().find(is).filter(|_| id.condition.is_none() && id.seed.is_some());
            if let Some(&metric) = kept {
                self.heads.entry((metric, id.model.clone(), layer, head)).or_default().push((number, held_out));
            }
        }
        if measure.layer.is_some() {
            return;
        }
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
            condition: id.condition.as_deref().map(ToOwned::to_owned),
            cities: id.cities.as_deref().unwrap_or_default().to_owned(),
            depth_millipct: id.depth_req_pct.map(millipct),
            metric: measure.metric.to_string(),
            region: measure.region.as_deref().map(ToOwned::to_owned),
        };
        self.values.entry(key).or_default().push(number);
    }

    /// Models in the order they first appeared.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// Settings (context, needles, asked) in the order they first appeared.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Metrics with their regions that occur, sorted.
    pub fn metrics(&self) -> Vec<(String, Option<String>)> {
        let mut metrics: Vec<_> = self.values.keys().map(|key| (key.metric.clone(), key.region.clone())).collect();
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }

    /// Depths that occur, in percent, from the top.
    pub fn depths_pct(&self) -> Vec<f64> {
        let mut depths: Vec<u64> = self.values.keys().filter_map(|key| key.depth_millipct).collect();
        depths.sort_unstable();
        depths.dedup();
        depths.into_iter().map(|d| d as f64 / 1000.0).collect()
    }

    /// The numbers of a pick.
    pub fn numbers(&self, pick: Pick<'_>) -> Vec<f64> {
        self.select(pick).into_iter().map(|number| number.value).collect()
    }

    /// Their mean, if there are any.
    pub fn mean(&self, pick: Pick<'_>) -> Option<f64> {
        mean(&self.numbers(pick))
    }

    /// Means over the questions of each prompt, which are not independent, and the mean of those with its 95 % bootstrap
    /// interval.
    pub fn mean_in(&self, pick: Pick<'_>, seed: u64) -> Option<(f64, Interval)> {
        let per_prompt: Vec<f64> = mean_by_prompt(&self.select(pick)).into_values().collect();
        Some((mean(&per_prompt)?, bootstrap_mean(&per_prompt, RESAMPLES, seed)?))
    }

    /// Hits of trials among numbers that are 0 or 1.
    pub fn proportion(&self, pick: Pick<'_>) -> Proportion {
        Proportion::new(&by_prompt(&self.select(pick)).into_values().collect::<Vec<_>>())
    }

    /// The numbers of a kept metric of single heads of a model, averaged over the questions of each prompt: (layer, head), and
    /// prompts in the order of their seeds; without held-out cities unless there are no others.
    pub fn heads(&self, model: &str, metric: HeadMetric) -> Vec<((usize, usize), Vec<f64>)> {
        let of_model = self.heads.iter().filter(|((of, name, ..), _)| *of == metric && name == model);
        let per_prompt = |numbers: &[(Number, bool)]| {
            let counts = numbers.iter().filter(|(_, held_out)| !(self.usual && *held_out));
            let numbers: Vec<Number> = counts.map(|(number, _)| *number).collect();
            mean_by_prompt(&numbers).into_values().collect()
        };
        of_model.map(|((_, _, layer, head), numbers)| ((*layer, *head), per_prompt(numbers))).collect()
    }

    fn select(&self, pick: Pick<'_>) -> Vec<Number> {
        let found = self.values.iter().filter(|(key, _)| pick.matches(key, self.usual));
        let mut numbers: Vec<Number> = found.flat_map(|(_, numbers)| numbers.iter().copied()).collect();
        if pick.depth_pct.is_some() {
            numbers.retain(|number| number.placed != Some(false));
        }
        numbers
    }

    /// The mean of b - a over prompts that both have. Numbers of one prompt are averaged first: they are not
    /// independent.
    pub fn paired(&self, a: Pick<'_>, b: Pick<'_>, seed: u64) -> Option<Paired> {
        let (a, b) = (mean_by_prompt(&self.select(a)), mean_by_prompt(&self.select(b)));
        let pairs: Vec<(f64, f64)> = a.iter().filter_map(|(prompt, a)| Some((*a, *b.get(prompt)?))).collect();
        Paired::new(&pairs, RESAMPLES, seed)
    }

    /// Every model against the first, on the same prompts, for metrics given as (name in the result, metric, region).
    pub fn differences(&self, metrics: &[(&str, &str, Option<&str>)], seed: u64) -> Vec<Difference> {
        let Some((baseline, others)) = self.models.split_first() else { return Vec::new() };
        let mut list = Vec::new();
        for &setting in &self.settings {
            for model in others {
                for &(name, metric, region) in metrics {
                    let pick = |model| Pick { region, ..Pick::of(model, metric).setting(setting) };
                    let Some(paired) = self.paired(pick(baseline), pick(model), seed) else { continue };
                    list.push(Difference {
                        of: model.clone(),
                        baseline: baseline.clone(),
                        ctx_tok: setting.0,
                        needles: setting.1,
                        retrieve: setting.2,
                        metric: name.to_owned(),
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

/// The numbers of each prompt, by seed.
fn by_prompt(numbers: &[Number]) -> BTreeMap<u64, Vec<f64>> {
    let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for number in numbers {
        groups.entry(number.seed).or_default().push(number.value);
    }
    groups
}

/// The mean over queries of each prompt, by seed.
fn mean_by_prompt(numbers: &[Number]) -> BTreeMap<u64, f64> {
    by_prompt(numbers).into_iter().filter_map(|(seed, values)| Some((seed, mean(&values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measure};
    use std::sync::Arc;

    fn record(seed: u64, query: usize, (depth_req_pct, placed): (f64, bool), exact: f64) -> Record {
        let identity = Identity {
            model: "m".into(),
            ctx_tok: 256,
            needles: Some(2),
            retrieve: Some(2),
            depth_req_pct: Some(depth_req_pct),
            cities: Some("train".into()),
            seed: Some(seed),
            query: Some(query),
            placed: Some(placed),
            ..Identity::default()
        };
        let measure = Measure { metric: "exact".into(), value: Some(exact), ..Measure::default() };
        Record { identity: Arc::new(identity), measure }
    }

    #[test]
    fn at_a_depth_only_the_needle_counts_that_was_put_there() {
        let mut summary = Summary::default();
        // Found where it was put at 25 %, missed where it was put at 75 %; the other needles are anywhere.
        let found = [
            (0, 0, (25.0, true), 1.0),
            (0, 1, (25.0, false), 0.0),
            (1, 0, (75.0, false), 1.0),
            (1, 1, (75.0, true), 0.0),
        ];
        found.iter().for_each(|&(seed, query, depth, exact)| summary.add(&record(seed, query, depth, exact)));
        let at = |depth| summary.proportion(Pick::of("m", "exact").depth_pct(depth));
        assert_eq!((at(25.0).hits, at(25.0).n, at(75.0).hits, at(75.0).n), (1, 1, 0, 1));
        assert_eq!(summary.proportion(Pick::of("m", "exact")).n, 4, "without a depth all questions count");
        assert_eq!(summary.depths_pct(), [25.0, 75.0]);
    }

    #[test]
    fn what_is_pooled_over_all_prompts_has_no_depth_and_no_cities() {
        let mut summary = Summary::default();
        let of = |identity| Record { identity: Arc::new(identity), ..record(0, 0, (50.0, true), 1.0) };
        let held_out =
            Identity { cities: Some("heldout".into()), ..(*record(0, 0, (50.0, true), 1.0).identity).clone() };
        let pooled = Identity { seed: None, cities: None, depth_req_pct: None, ..held_out.clone() };
        [of(held_out), of(pooled)].iter().for_each(|record| summary.add(record));
        assert_eq!(summary.depths_pct(), [50.0]);
        assert_eq!(summary.numbers(Pick::of("m", "exact").cities("heldout")).len(), 1);
        assert!(!summary.numbers(Pick::of("m", "exact")).is_empty(), "held-out cities count where there are no others");
    }
}
