//! Estimates: means with their 95 % intervals.

use super::cells::Cell;
use super::sample::by_prompt;
use crate::results::metric::Kind;
use crate::stats::{mean, mean_interval, student, wilson_of_groups, Interval};
use std::collections::BTreeMap;

/// A mean over prompts, each the mean of its questions, or a proportion of hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The mean, or hits over trials.
    pub(crate) value: f64,
    /// Its 95 % interval: Wilson's for hits, in which questions of one prompt count as much as they differ; otherwise Student's
    /// over prompts, corrected for skewness, or Student's over training seeds. `None` of fewer than six prompts or three
    /// seeds, and where all are equal.
    pub(crate) interval: Option<Interval>,
    /// Number of prompts, or of training seeds.
    pub(crate) prompts: usize,
    /// Number of trials: more than prompts, where a prompt has several questions.
    pub(crate) trials: usize,
}

impl Estimate {
    /// Estimates a metric from its cells; `None` of none.
    pub(crate) fn of(cells: &[Cell], kind: Kind) -> Option<Self> {
        let prompts = by_prompt(cells.iter().map(|cell| (cell.key, cell.value)));
        let prompts: Vec<Vec<f64>> = prompts.into_iter().map(|(_, values)| values).collect();
        // Hits that were averaged, over draws of heads for example, are no trials any more.
        let are_hits = || prompts.iter().flatten().all(|&value| value == 0.0 || value == 1.0);
        if kind == Kind::Hit && are_hits() {
            return Self::of_hits(&prompts);
        }
        Self::of_means(&prompts.iter().filter_map(|values| mean(values)).collect::<Vec<_>>(), cells.len())
    }

    /// Estimates a mean from one number for each prompt.
    pub(crate) fn of_means(prompts: &[f64], trials: usize) -> Option<Self> {
        Some(Self { value: mean(prompts)?, interval: mean_interval(prompts), prompts: prompts.len(), trials })
    }

    /// Estimates a mean over training seeds, with Student's interval from three seeds on.
    pub(crate) fn of_seeds(numbers: &BTreeMap<u64, f64>) -> Option<Self> {
        let numbers: Vec<f64> = numbers.values().copied().collect();
        let seeds = numbers.len();
        Some(Self { value: mean(&numbers)?, interval: student(&numbers), prompts: seeds, trials: seeds })
    }

    fn of_hits(prompts: &[Vec<f64>]) -> Option<Self> {
        let hits_of = |values: &Vec<f64>| (values.iter().filter(|&&value| value == 1.0).count(), values.len());
        let groups: Vec<(usize, usize)> = prompts.iter().map(hits_of).collect();
        let (hits, trials) = groups.iter().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
        let interval = Some(wilson_of_groups(&groups));
        (trials > 0).then(|| Self { value: hits as f64 / trials as f64, interval, prompts: prompts.len(), trials })
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::{Field, COLUMNS};
    use super::*;

    fn cell(seed: u32, query: u32, value: f64) -> Cell {
        let mut key = [0; COLUMNS];
        key[Field::Seed as usize] = seed + 1;
        key[Field::Query as usize] = query + 1;
        Cell { key, value, input: 0, record: 0 }
    }

    #[test]
    fn questions_are_averaged_before_prompts_are() {
        let cells = [cell(0, 0, 1.0), cell(0, 1, 3.0), cell(1, 0, 6.0)];
        let found = Estimate::of(&cells, Kind::Number).unwrap();
        assert_eq!((found.value, found.prompts, found.trials), (4.0, 2, 3));
    }

    #[test]
    fn few_prompts_have_a_mean_but_no_interval_and_hits_always_have_wilsons() {
        let of =
            |n: u32| Estimate::of(&(0..n).map(|i| cell(i, 0, f64::from(i))).collect::<Vec<_>>(), Kind::Number).unwrap();
        assert_eq!((of(5).value, of(5).interval), (2.0, None));
        assert!(of(6).interval.is_some_and(|interval| interval.lo > 0.0 && interval.hi < 5.0));
        let hits = Estimate::of(&[cell(0, 0, 1.0), cell(1, 0, 0.0)], Kind::Hit).unwrap();
        assert_eq!((hits.value, hits.trials), (0.5, 2));
        assert!(hits.interval.is_some_and(|interval| interval.lo > 0.0 && interval.hi < 1.0));
        assert_eq!(Estimate::of(&[], Kind::Hit), None);
    }

    #[test]
    fn means_over_fewer_than_three_seeds_have_no_interval() {
        let of = |numbers: &[(u64, f64)]| Estimate::of_seeds(&numbers.iter().copied().collect());
        let three = of(&[(1, 0.5), (2, 0.6), (7, 0.7)]).unwrap();
        assert!((three.value - 0.6).abs() < 1e-12 && three.prompts == 3 && three.interval.is_some());
        assert_eq!(of(&[(1, 0.5), (2, 0.75)]).map(|two| (two.value, two.interval)), Some((0.625, None)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn hits_that_were_averaged_are_numbers() {
        let found = Estimate::of(&[cell(0, 0, 0.5), cell(1, 0, 1.0)], Kind::Hit).unwrap();
        assert_eq!((found.value, found.interval), (0.75, None), "two prompts");
    }
}
