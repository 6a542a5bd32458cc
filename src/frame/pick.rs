//! Which numbers are wanted, and what they come to.

use super::{millipct, Frame, Key, Number, OfHead, Setting, ASIDE};
use crate::stats::{bootstrap_mean, mean, wilson_of_groups, Interval, Paired, RESAMPLES};
use std::collections::BTreeMap;

/// Hits of trials.
#[derive(Clone, Copy, Debug)]
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

    /// Under a condition; nothing for the untreated passes.
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
            && self.cities.map_or(!usual || !ASIDE.contains(&key.cities.as_str()), |cities| key.cities == cities)
            && self.depth_pct.is_none_or(|depth| key.depth_millipct == Some(millipct(depth)))
    }
}

impl Frame {
    /// The mean over prompts, if there are any.
    pub fn mean(&self, pick: Pick<'_>) -> Option<f64> {
        mean(&self.by_prompt(pick))
    }

    /// The same with its 95 % bootstrap interval over prompts.
    pub fn mean_in(&self, pick: Pick<'_>) -> Option<(f64, Interval)> {
        let prompts = self.by_prompt(pick);
        Some((mean(&prompts)?, bootstrap_mean(&prompts, RESAMPLES, self.about.seed)?))
    }

    /// The mean over the questions of each prompt, by its seed.
    pub fn prompt_means(&self, pick: Pick<'_>) -> BTreeMap<u64, f64> {
        mean_by_prompt(&self.select(pick))
    }

    /// Of many-shot prompts: the numbers of each prompt, arrangement by arrangement. Prompts that lack one are left out.
    pub fn arrangements(&self, pick: Pick<'_>) -> Vec<Vec<f64>> {
        let mut prompts: BTreeMap<u64, BTreeMap<u64, f64>> = BTreeMap::new();
        for number in self.select(pick) {
            prompts.entry(number.seed).or_default().insert(number.sample, number.value);
        }
        let most = prompts.values().map(BTreeMap::len).max().unwrap_or(0);
        prompts.retain(|_, of_prompt| of_prompt.len() == most);
        prompts.into_values().map(|of_prompt| of_prompt.into_values().collect()).collect()
    }

    /// Hits of trials among numbers that are 0 or 1.
    pub fn proportion(&self, pick: Pick<'_>) -> Proportion {
        Proportion::new(&by_prompt(&self.select(pick)).into_values().collect::<Vec<_>>())
    }

    /// The mean of b - a over prompts that both have.
    pub fn paired(&self, a: Pick<'_>, b: Pick<'_>) -> Option<Paired> {
        let (a, b) = (self.prompt_means(a), self.prompt_means(b));
        let pairs: Vec<(f64, f64)> = a.iter().filter_map(|(prompt, a)| Some((*a, *b.get(prompt)?))).collect();
        Paired::new(&pairs, RESAMPLES, self.about.seed)
    }

    /// Numbers of single heads of a model, averaged over the questions of each prompt: (layer, head), and
    /// prompts in the order of their seeds; without held-out cities unless there are no others.
    pub fn heads(&self, model: &str, metric: &str, region: Option<&str>) -> Vec<((usize, usize), Vec<f64>)> {
        self.heads_under(model, None, metric, region)
    }

    /// The same under a condition: only where one prompt is looked at.
    pub fn heads_under(
        &self,
        model: &str,
        condition: Option<&str>,
        metric: &str,
        region: Option<&str>,
    ) -> Vec<((usize, usize), Vec<f64>)> {
        let usual = self.usual();
        let per_prompt = |numbers: &[(Number, bool)]| {
            let counts = numbers.iter().filter(|(_, held_out)| !(usual && *held_out));
            let numbers: Vec<Number> = counts.map(|(number, _)| *number).collect();
            mean_by_prompt(&numbers).into_values().collect()
        };
        let is = |of: &OfHead| {
            of.model == model
                && of.condition.as_deref() == condition
                && of.metric == metric
                && of.region.as_deref() == region
        };
        let wanted = self.heads.iter().filter(|(of, _)| is(of));
        wanted.map(|(of, numbers)| ((of.layer, of.head), per_prompt(numbers))).collect()
    }

    /// All numbers of every head in one pass over one prompt, by layer and head: `share_out answer`. Of several the first.
    pub fn numbers_of_heads(
        &self,
        model: &str,
        condition: Option<&str>,
    ) -> BTreeMap<(usize, usize), BTreeMap<String, f64>> {
        let mut heads: BTreeMap<_, BTreeMap<String, f64>> = BTreeMap::new();
        for (of, numbers) in &self.heads {
            let Some((first, _)) = numbers.first() else { continue };
            if of.model == model && of.condition.as_deref() == condition {
                let name = of.region.as_ref().map_or(of.metric.clone(), |region| format!("{} {region}", of.metric));
                heads.entry((of.layer, of.head)).or_default().insert(name, first.value);
            }
        }
        heads
    }

    /// The mean of each prompt, in the order of their seeds.
    fn by_prompt(&self, pick: Pick<'_>) -> Vec<f64> {
        self.prompt_means(pick).into_values().collect()
    }

    fn select(&self, pick: Pick<'_>) -> Vec<Number> {
        let usual = self.usual();
        let found = self.values.iter().filter(|(key, _)| pick.matches(key, usual));
        let numbers = found.flat_map(|(_, numbers)| numbers.iter().copied());
        numbers.filter(|number| pick.depth_pct.is_none() || number.placed != Some(false)).collect()
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
