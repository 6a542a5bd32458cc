//! Estimates: means with their 95 % intervals.

use super::pair::by_prompt;
use super::records::RecordRef;
use names::metric::Kind;
use stats::{mean, student, test_mean, wilson_of_groups, Interval, MeanTest, PairedHits, PromptOutcomes};
use std::collections::{BTreeMap, BTreeSet};

/// A mean over prompts, each the mean of its questions, or a proportion of hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The mean, or hits over trials.
    pub(crate) value: f64,
    /// Its 95 % interval: Wilson's for hits and Tango's for their changes, in which questions of one prompt count as much as they
    /// differ; otherwise Student's over prompts, corrected for skewness, or Student's over training seeds. `None` of fewer than
    /// six prompts or three seeds, and where all are equal.
    pub(crate) interval: Option<Interval>,
    /// Two-sided p-value of a mean of 0, as differences may have; missing of hits, and without an interval.
    pub(crate) p: Option<f64>,
    /// Number of prompts, of training seeds, or of groups of tokens.
    pub(crate) prompts: usize,
    /// Number of trials: more than prompts, where a prompt has several questions.
    pub(crate) trials: usize,
}

impl Estimate {
    /// Estimates a metric from its records, over training seeds where models are replicates; `None` of none.
    pub(crate) fn of(records: &[RecordRef<'_>], kind: Kind) -> Option<Self> {
        let seeds: BTreeSet<u64> = records.iter().filter_map(|record| record.identity.replicate).collect();
        if seeds.len() > 1 {
            return Self::of_replicates(records, seeds, kind);
        }
        let numbers = records.iter().map(|record| (*record, record.value));
        let prompts: Vec<Vec<f64>> = by_prompt(numbers, &[]).into_iter().map(|(_, values)| values).collect();
        // Hits that were averaged, over draws of heads for example, are no trials any more.
        if kind == Kind::Hit && prompts.iter().flatten().all(|&value| value == 0.0 || value == 1.0) {
            return Self::of_hits(&prompts);
        }
        let means: Vec<f64> = prompts.iter().filter_map(|values| mean(values)).collect();
        let estimate = Self::of_means(&means, records.len(), kind)?;
        if kind == Kind::HitChange && prompts.iter().flatten().all(|value| [-1.0, 0.0, 1.0].contains(value)) {
            return Some(estimate.with_outcomes(&prompts));
        }
        Some(estimate)
    }

    /// The same with interval and test of hits that are won and lost.
    fn with_outcomes(self, prompts: &[Vec<f64>]) -> Self {
        let outcomes: Vec<PromptOutcomes> = prompts.iter().map(|changes| PromptOutcomes::of_changes(changes)).collect();
        let hits = PairedHits::new(&outcomes);
        Self { interval: hits.map(|hits| hits.interval()), p: hits.map(|hits| hits.p()), ..self }
    }

    /// Estimates a metric over training seeds, each the mean over its prompts.
    fn of_replicates(records: &[RecordRef<'_>], seeds: BTreeSet<u64>, kind: Kind) -> Option<Self> {
        let mut means = BTreeMap::new();
        for seed in seeds {
            let of_seed: Vec<RecordRef<'_>> =
                records.iter().copied().filter(|record| record.identity.replicate == Some(seed)).collect();
            means.extend(Self::of(&of_seed, kind).map(|estimate| (seed, estimate.value)));
        }
        Self::of_seeds(&means, kind)
    }

    /// Estimates a mean from one number for each prompt.
    pub(crate) fn of_means(prompts: &[f64], trials: usize, kind: Kind) -> Option<Self> {
        let mean = Self::of_test(mean(prompts)?, test_mean(prompts), prompts.len(), trials);
        Some(kind.most().map_or(mean, |most| mean.within(Interval { lo: 0.0, hi: most })))
    }

    /// Estimates a mean over training seeds, with Student's interval from three seeds on.
    pub(crate) fn of_seeds(numbers: &BTreeMap<u64, f64>, kind: Kind) -> Option<Self> {
        let mean = Self::over_seeds(numbers)?;
        Some(kind.most().map_or(mean, |most| mean.within(Interval { lo: 0.0, hi: most })))
    }

    /// Estimates a mean difference over training seeds.
    pub(crate) fn of_changes(changes: &BTreeMap<u64, f64>, kind: Kind) -> Option<Self> {
        let mean = Self::over_seeds(changes)?;
        Some(kind.most().map_or(mean, |most| mean.within(Interval { lo: -most, hi: most })))
    }

    fn over_seeds(numbers: &BTreeMap<u64, f64>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.values().copied().collect();
        Some(Self::of_test(mean(&numbers)?, student(&numbers), numbers.len(), numbers.len()))
    }

    /// A mean with its interval and test, if it has them.
    pub(crate) fn of_test(value: f64, test: Option<MeanTest>, prompts: usize, trials: usize) -> Self {
        Self { value, interval: test.map(|test| test.interval), p: test.map(|test| test.p), prompts, trials }
    }

    /// The same with the part of its interval that is possible.
    pub(crate) fn within(self, range: Interval) -> Self {
        Self { interval: self.interval.map(|interval| interval.within(range.lo, range.hi)), ..self }
    }

    fn of_hits(prompts: &[Vec<f64>]) -> Option<Self> {
        let mut groups = Vec::new();
        for values in prompts {
            groups.push((values.iter().filter(|&&value| value == 1.0).count(), values.len()));
        }
        let (hits, trials) = groups.iter().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
        let interval = Some(wilson_of_groups(&groups));
        (trials > 0).then(|| Self {
            value: hits as f64 / trials as f64,
            interval,
            p: None,
            prompts: prompts.len(),
            trials,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Identity, Measurement, Record};
    use super::super::records::Records;
    use super::*;
    use std::sync::Arc;

    fn record(seed: u64, query: usize, value: f64) -> Record {
        let identity = Identity { seed: Some(seed), query: Some(query), ..Identity::default() };
        Record { identity: Arc::new(identity), measure: Measurement { value: Some(value), ..Measurement::default() } }
    }

    fn estimate(records: &[Record], kind: Kind) -> Option<Estimate> {
        Estimate::of(&Records::of(records).select(|_| true, |_| true), kind)
    }

    #[test]
    fn questions_are_averaged_before_prompts_are() {
        let records = [record(0, 0, 1.0), record(0, 1, 3.0), record(1, 0, 6.0)];
        let found = estimate(&records, Kind::Number).unwrap();
        assert_eq!((found.value, found.prompts, found.trials), (4.0, 2, 3));
    }

    #[test]
    fn few_prompts_have_a_mean_but_no_interval_and_hits_always_have_wilsons() {
        let of = |n: u64| {
            let records: Vec<Record> = (0..n).map(|i| record(i, 0, i as f64)).collect();
            estimate(&records, Kind::Number).unwrap()
        };
        assert_eq!((of(5).value, of(5).interval), (2.0, None));
        assert!(of(6).interval.is_some_and(|interval| interval.lo > 0.0 && interval.hi < 5.0));
        let hits = estimate(&[record(0, 0, 1.0), record(1, 0, 0.0)], Kind::Hit).unwrap();
        assert_eq!((hits.value, hits.trials), (0.5, 2));
        assert!(hits.interval.is_some_and(|interval| interval.lo > 0.0 && interval.hi < 1.0));
        assert_eq!(estimate(&[], Kind::Hit), None);
    }

    #[test]
    fn changes_of_hits_have_tangos_interval() {
        // One in three of 30 prompts is won and one lost.
        let mut records: Vec<Record> =
            (0..29).map(|seed| record(seed, 0, f64::from(u8::from(seed % 3 == 0)))).collect();
        records.push(record(29, 0, -1.0));
        let found = estimate(&records, Kind::HitChange).unwrap();
        let interval = found.interval.unwrap();
        assert!((found.value - 0.3).abs() < 1e-12 && found.p.unwrap() < 0.02, "{found:?}");
        assert!(interval.lo > 0.05 && interval.hi < 0.55, "{found:?}");
        assert_eq!(estimate(&records, Kind::Number).unwrap().value, found.value);
        assert_ne!(estimate(&records, Kind::Number).unwrap().interval, found.interval);
    }

    #[test]
    fn means_over_fewer_than_three_seeds_have_no_interval() {
        let of = |numbers: &[(u64, f64)]| Estimate::of_seeds(&numbers.iter().copied().collect(), Kind::Rate);
        let three = of(&[(1, 0.5), (2, 0.6), (7, 0.7)]).unwrap();
        assert!((three.value - 0.6).abs() < 1e-12 && three.prompts == 3 && three.interval.is_some());
        assert_eq!(of(&[(1, 0.5), (2, 0.75)]).map(|two| (two.value, two.interval)), Some((0.625, None)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn hits_that_were_averaged_are_numbers() {
        let found = estimate(&[record(0, 0, 0.5), record(1, 0, 1.0)], Kind::Hit).unwrap();
        assert_eq!((found.value, found.interval), (0.75, None), "two prompts");
    }
}
