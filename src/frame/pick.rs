//! Which numbers are wanted, and what they come to.

use super::{cities_of, millipct, setting_of, Frame, Number, Setting, ASIDE};
use crate::record::Identity;
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
    fn matches(&self, id: &Identity, usual: bool) -> bool {
        let depth = |wanted| id.depth_req_pct.map(millipct) == Some(millipct(wanted)) && id.placed != Some(false);
        id.model == self.model
            && id.condition.as_deref() == self.condition
            && self.setting.is_none_or(|setting| setting_of(id) == setting)
            && self.cities.map_or(!usual || !ASIDE.contains(&cities_of(id)), |cities| cities_of(id) == cities)
            && self.depth_pct.is_none_or(depth)
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
        mean_by_prompt(self.select(pick))
    }

    /// Of many-shot prompts: the numbers of each prompt, arrangement by arrangement. Prompts that lack one are left out.
    pub fn arrangements(&self, pick: Pick<'_>) -> Vec<Vec<f64>> {
        let mut prompts: BTreeMap<u64, BTreeMap<u64, f64>> = BTreeMap::new();
        for (id, value) in self.select(pick) {
            prompts.entry(seed_of(id)).or_default().insert(id.sample.unwrap_or(0), value);
        }
        let most = prompts.values().map(BTreeMap::len).max().unwrap_or(0);
        prompts.retain(|_, of_prompt| of_prompt.len() == most);
        prompts.into_values().map(|of_prompt| of_prompt.into_values().collect()).collect()
    }

    /// Hits of trials among numbers that are 0 or 1.
    pub fn proportion(&self, pick: Pick<'_>) -> Proportion {
        Proportion::new(&by_prompt(self.select(pick)).into_values().collect::<Vec<_>>())
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
        let held_out = |id: &Identity| id.cities.as_deref().is_some_and(|cities| ASIDE.contains(&cities));
        let of_head = |(at, numbers): (_, &[Number])| {
            let numbers: Vec<_> = self.under(numbers, model, condition).collect();
            let counts = numbers.iter().copied().filter(|(id, _)| !(self.usual && held_out(id)));
            let of_prompts = mean_by_prompt(counts).into_values().collect();
            (!numbers.is_empty()).then_some((at, of_prompts))
        };
        self.numbers.heads(metric, region).filter_map(of_head).collect()
    }

    /// Those of the numbers that are of a model under a condition, each with what it was measured on.
    fn under<'a>(
        &'a self,
        numbers: &'a [Number],
        model: &'a str,
        condition: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Identity, f64)> {
        let numbers = numbers.iter().map(|number| (self.numbers.identity(number), number.value));
        numbers.filter(move |(id, _)| id.model == model && id.condition.as_deref() == condition)
    }

    /// All numbers of every head in one pass over one prompt, by layer and head: `share_out answer`. Of several the first.
    pub fn numbers_of_heads(
        &self,
        model: &str,
        condition: Option<&str>,
    ) -> BTreeMap<(usize, usize), BTreeMap<String, f64>> {
        let mut heads: BTreeMap<_, BTreeMap<String, f64>> = BTreeMap::new();
        for (of, numbers) in self.numbers.groups() {
            let (Some(layer), Some(head)) = (of.layer, of.head) else { continue };
            if let Some((_, value)) = self.under(numbers, model, condition).next() {
                let region = of.region.as_ref().map_or(String::new(), |region| format!(" {region}"));
                heads.entry((layer, head)).or_default().insert(format!("{}{region}", of.metric), value);
            }
        }
        heads
    }

    /// The mean of each prompt, in the order of their seeds.
    fn by_prompt(&self, pick: Pick<'_>) -> Vec<f64> {
        self.prompt_means(pick).into_values().collect()
    }

    /// The numbers, each with what it was measured on.
    fn select(&self, pick: Pick<'_>) -> Vec<(&Identity, f64)> {
        let numbers = self.numbers.means(pick.metric, pick.region).iter();
        let numbers = numbers.map(|number| (self.numbers.identity(number), number.value));
        numbers.filter(|(id, _)| pick.matches(id, self.usual)).collect()
    }
}

/// Seed of the prompt; one and the same for what is pooled over prompts.
fn seed_of(id: &Identity) -> u64 {
    id.seed.unwrap_or(0)
}

/// The numbers of each prompt, by seed.
fn by_prompt<'a>(numbers: impl IntoIterator<Item = (&'a Identity, f64)>) -> BTreeMap<u64, Vec<f64>> {
    let mut numbers: Vec<(u64, f64)> = numbers.into_iter().map(|(id, value)| (seed_of(id), value)).collect();
    numbers.sort_by_key(|(seed, _)| *seed);
    let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (seed, value) in numbers {
        groups.entry(seed).or_default().push(value);
    }
    groups
}

/// The mean over queries of each prompt, by seed.
fn mean_by_prompt<'a>(numbers: impl IntoIterator<Item = (&'a Identity, f64)>) -> BTreeMap<u64, f64> {
    by_prompt(numbers).into_iter().filter_map(|(seed, values)| Some((seed, mean(&values)?))).collect()
}
