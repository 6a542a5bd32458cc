//! Differences: how one side of pairs differs from the other, with an interval and a test.
//!
//! Several questions of one prompt are not independent, so means, differences and intervals are over prompts, each the mean of
//! its questions. The test of hits and misses is McNemar's where each prompt asks one question, Wilcoxon's of the prompts'
//! means otherwise. Where models are replicates, trained from several seeds, seeds and prompts are what is independent.

use super::cells::Key;
use super::field::Field;
use super::sample::{by_prompt, Pair};
use crate::stats::{
    bh, holm, mcnemar, mean, pairs_needed, smallest_detectable, wilcoxon, Interval, Paired, Replicated, RESAMPLES,
};
use serde::Serialize;
use std::collections::BTreeMap;
use strum::IntoStaticStr;

/// How p-values are corrected for the number of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Correction {
    /// Against any false alarm among all rows.
    #[default]
    Holm,
    /// Against too large a share of false alarms (Benjamini and Hochberg).
    Bh,
    /// Not at all.
    None,
}

impl Correction {
    /// Returns the corrected p-values, in order.
    pub(crate) fn apply(self, p_values: &[f64]) -> Vec<f64> {
        match self {
            Self::Holm => holm(p_values),
            Self::Bh => bh(p_values),
            Self::None => p_values.to_vec(),
        }
    }
}

/// A test of the hypothesis that nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Test {
    /// McNemar's exact test, of hits and misses, where each prompt asks one question.
    Mcnemar,
    /// Wilcoxon's signed-rank test, of means over the questions of each prompt.
    Wilcoxon,
    /// Student's t of the mean over training seeds and prompts, where models are replicates.
    T,
}

impl Test {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How the other side of pairs differs from the baseline. Differences are other − baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Number of prompts: what is independent, and what means and interval are over.
    pub n: usize,
    /// Number of training seeds, where models are replicates; `n` is then of the prompts that all seeds have.
    pub seeds: Option<usize>,
    /// Number of pairs of cells: more than prompts, where a prompt has several questions.
    pub cells: usize,
    /// Mean of the baseline, over prompts.
    pub mean_baseline: f64,
    /// Mean of the other.
    pub mean_other: f64,
    /// Mean over prompts of the difference.
    pub diff: f64,
    /// Lower end of the 95 % interval of `diff`; missing of a single prompt, and of fewer than three seeds.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// The smallest true difference that so many prompts (seeds, of replicates) would have shown with 80 % power; missing
    /// where they do not tell.
    pub detectable: Option<f64>,
    /// Number of prompts (seeds, of replicates) that would show the difference asked for with 80 % power.
    pub needed: Option<u64>,
    /// Number of prompts (seeds, of replicates) where the other is larger.
    pub wins: usize,
    /// Where both are equal.
    pub ties: usize,
    /// Where the other is smaller.
    pub losses: usize,
    /// The test that `p` is of; missing of a single prompt.
    pub test: Option<Test>,
    /// Two-sided p-value.
    pub p: Option<f64>,
    /// The p-value corrected over all rows.
    pub p_adjusted: Option<f64>,
}

/// The sign of a difference, as its interval decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies above 0.
    Higher,
    /// The interval lies below 0.
    Lower,
    /// The interval holds 0, has no width, or is missing.
    Undecided,
}

impl Verdict {
    /// The verdict of an interval, by its [side](Interval::side) of 0.
    pub(crate) fn of(interval: Option<Interval>) -> Self {
        match interval.map_or(0, |interval| interval.side()) {
            1 => Self::Higher,
            -1 => Self::Lower,
            _ => Self::Undecided,
        }
    }

    /// Its word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Undecided => "undecided",
        }
    }
}

/// How differences are worked out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DifferenceOptions {
    /// Whether the metric's numbers are hits and misses.
    pub(crate) hits: bool,
    /// Number of resamples of the bootstrap.
    pub(crate) resamples: usize,
    /// Seed of the bootstrap.
    pub(crate) seed: u64,
    /// A difference that prompts are wanted for.
    pub(crate) detect: Option<f64>,
}

impl Default for DifferenceOptions {
    fn default() -> Self {
        Self { hits: false, resamples: RESAMPLES, seed: 0, detect: None }
    }
}

impl Difference {
    /// The interval of `diff`.
    pub fn interval(&self) -> Option<Interval> {
        self.lo.zip(self.hi).map(|(lo, hi)| Interval { lo, hi })
    }

    /// Returns the verdict of the interval.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.interval())
    }

    /// The difference over prompts; `None` of no pairs, and of numbers so large that their mean overflows.
    pub(crate) fn of_prompts(pairs: &[Pair], options: DifferenceOptions) -> Option<Self> {
        let prompts: Vec<(f64, f64)> = prompt_means(pairs).into_iter().map(|(_, means)| means).collect();
        let paired = Paired::new(&prompts, options.resamples, options.seed)?;
        if ![paired.diff, paired.lo, paired.hi].iter().all(|x| x.is_finite()) {
            return None;
        }
        // One prompt says nothing about others.
        let several = paired.n > 1;
        let differences: Vec<f64> = prompts.iter().map(|(a, b)| b - a).collect();
        let mut found = Self {
            n: paired.n,
            cells: pairs.len(),
            mean_baseline: paired.mean_a,
            mean_other: paired.mean_b,
            diff: paired.diff,
            lo: several.then_some(paired.lo),
            hi: several.then_some(paired.hi),
            detectable: smallest_detectable(&differences),
            needed: options.detect.and_then(|size| pairs_needed(&differences, size)),
            wins: paired.wins,
            ties: paired.ties,
            losses: paired.losses,
            ..Self::default()
        };
        let binary = options.hits && pairs.iter().flat_map(|pair| [pair.a, pair.b]).all(|x| x == 0.0 || x == 1.0);
        // Only one pair for each prompt may count: several questions, or several heads, are not independent.
        if binary && pairs.len() == paired.n {
            found.p = several.then(|| mcnemar(found.losses as u64, found.wins as u64));
            found.test = several.then_some(Test::Mcnemar);
        } else {
            found.p = wilcoxon(&differences).map(|found| found.p).filter(|_| several);
            found.test = several.then_some(Test::Wilcoxon);
        }
        Some(found)
    }

    /// The difference over training seeds and prompts, where models are replicates.
    pub(crate) fn of_seeds(pairs: &[Pair], options: DifferenceOptions) -> Option<Self> {
        let tables = by_seed(pairs);
        let differences: Vec<Vec<f64>> =
            tables.iter().map(|of_seed| of_seed.iter().map(|(a, b)| b - a).collect()).collect();
        let across = Replicated::new(&differences)?;
        let of = |f: fn(&(f64, f64)) -> f64| {
            mean(
                &tables
                    .iter()
                    .map(|of_seed| mean(&of_seed.iter().map(f).collect::<Vec<_>>()))
                    .collect::<Option<Vec<_>>>()?,
            )
        };
        let count = |test: fn(&f64) -> bool| across.of_seeds.iter().filter(|diff| test(diff)).count();
        Some(Self {
            n: tables.first().map_or(0, Vec::len),
            seeds: Some(tables.len()),
            cells: pairs.len(),
            mean_baseline: of(|(a, _)| *a)?,
            mean_other: of(|(_, b)| *b)?,
            diff: across.diff,
            lo: across.interval.map(|interval| interval.lo),
            hi: across.interval.map(|interval| interval.hi),
            detectable: across.interval.and_then(|_| smallest_detectable(&across.of_seeds)),
            needed: options.detect.and_then(|size| pairs_needed(&across.of_seeds, size)),
            wins: count(|diff| *diff > 0.0),
            ties: count(|diff| *diff == 0.0),
            losses: count(|diff| *diff < 0.0),
            test: across.p.map(|_| Test::T),
            p: across.p,
            ..Self::default()
        })
    }
}

/// Means of each prompt that all seeds have, seeds × prompts.
fn by_seed(pairs: &[Pair]) -> Vec<Vec<(f64, f64)>> {
    let mut seeds: BTreeMap<u32, BTreeMap<Key, (f64, f64)>> = BTreeMap::new();
    for (mut prompt, means) in prompt_means(pairs) {
        let seed = std::mem::take(&mut prompt[Field::Replicate as usize]);
        prompt[Field::Variant as usize] = 0; // a folder may hold another model than its neighbours
        seeds.entry(seed).or_default().insert(prompt, means);
    }
    let everywhere = |prompt: &&Key| seeds.values().all(|of_seed| of_seed.contains_key(*prompt));
    let shared: Vec<Key> =
        seeds.values().next().into_iter().flat_map(BTreeMap::keys).filter(everywhere).copied().collect();
    seeds.values().map(|of_seed| shared.iter().map(|prompt| of_seed[prompt]).collect()).collect()
}

/// The prompts of pairs, each with its means.
fn prompt_means(pairs: &[Pair]) -> Vec<(Key, (f64, f64))> {
    let means = |pairs: &[&Pair]| {
        let of = |value: fn(&Pair) -> f64| mean(&pairs.iter().map(|pair| value(pair)).collect::<Vec<f64>>());
        (of(|pair| pair.a).unwrap_or(f64::NAN), of(|pair| pair.b).unwrap_or(f64::NAN))
    };
    by_prompt(pairs.iter().map(|pair| (pair.key, pair))).into_iter().map(|(key, pairs)| (key, means(&pairs))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::field::COLUMNS;
    use super::*;
    use crate::rng::Rng;

    /// The difference of pairs of hits, or of other numbers.
    fn compared(pairs: &[Pair], hits: bool) -> Option<Difference> {
        Difference::of_prompts(pairs, DifferenceOptions { hits, ..DifferenceOptions::default() })
    }

    /// The pair of one question of one prompt.
    fn pair(prompt: u32, query: u32, (a, b): (f64, f64)) -> Pair {
        let mut key = [0; COLUMNS];
        key[Field::Seed as usize] = prompt + 1;
        key[Field::Query as usize] = query + 1;
        Pair { key, a, b }
    }

    #[test]
    fn questions_of_a_prompt_are_averaged_before_prompts_are() {
        let pairs = [pair(0, 0, (0.0, 0.25)), pair(0, 1, (0.0, 0.75)), pair(1, 0, (1.0, 1.0)), pair(1, 1, (1.0, 1.0))];
        let row = compared(&pairs, false).unwrap();
        assert_eq!((row.n, row.cells, row.diff, row.mean_other), (2, 4, 0.25, 0.75));
        assert_eq!((row.wins, row.ties, row.losses, row.test), (1, 1, 0, Some(Test::Wilcoxon)));
    }

    #[test]
    fn what_is_made_of_one_seed_is_one_prompt_whatever_else_differs() {
        let with = |column: Field, value: u32, pair: Pair| {
            let mut key = pair.key;
            key[column as usize] = value;
            Pair { key, ..pair }
        };
        for column in [Field::Task, Field::Needles, Field::Cities, Field::Sample] {
            // In the order of their keys, in which the two of a seed are not neighbours.
            let pairs: Vec<Pair> = [1, 2]
                .into_iter()
                .flat_map(|value| (0..6).map(move |prompt| (value, pair(prompt, 0, (0.0, 1.0)))))
                .map(|(value, pair)| with(column, value, pair))
                .collect();
            let row = compared(&pairs, true).unwrap();
            assert_eq!((row.n, row.cells, row.wins, row.test), (6, 12, 6, Some(Test::Wilcoxon)), "{column}");
            let of_three_models: Vec<Pair> = [3, 4, 5]
                .into_iter()
                .flat_map(|seed| pairs.iter().map(move |&pair| (seed, pair)))
                .map(|(seed, pair)| with(Field::Replicate, seed, pair))
                .collect();
            assert_eq!(Difference::of_seeds(&of_three_models, DifferenceOptions::default()).unwrap().n, 6, "{column}");
            let without_seeds: Vec<Pair> = pairs.iter().map(|&pair| with(Field::Seed, 0, pair)).collect();
            assert_eq!(compared(&without_seeds, true).unwrap().n, 2, "{column}");
        }
    }

    #[test]
    fn hits_and_misses_of_one_question_each_are_tested_by_mcnemar_and_of_several_by_prompt() {
        let gained: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 1.0))).collect();
        let row = compared(&gained, true).unwrap();
        assert_eq!((row.wins, row.ties, row.losses, row.test), (6, 0, 0, Some(Test::Mcnemar)));
        // 2 · ½⁶
        assert!((row.p.unwrap() - 0.03125).abs() < 1e-12, "{row:?}");
        // Both questions of six prompts: twelve hits more, and no more evidence.
        let twice: Vec<Pair> = (0..6).flat_map(|prompt| [0, 1].map(|query| pair(prompt, query, (0.0, 1.0)))).collect();
        let row = compared(&twice, true).unwrap();
        assert_eq!((row.n, row.cells, row.wins, row.test), (6, 12, 6, Some(Test::Wilcoxon)));
        assert!((row.p.unwrap() - 0.03125).abs() < 1e-12, "{row:?}");
    }

    #[test]
    fn hits_of_several_heads_are_not_counted_as_questions() {
        let mut second = pair(0, 0, (0.0, 1.0));
        second.key[Field::Head as usize] = 1;
        let row = compared(&[pair(0, 0, (0.0, 1.0)), second, pair(1, 0, (1.0, 1.0))], true).unwrap();
        assert_eq!((row.n, row.test), (2, Some(Test::Wilcoxon)));
    }

    #[test]
    fn numbers_that_are_not_hits_are_tested_by_rank_whatever_they_are_called() {
        let pairs: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 0.5))).collect();
        assert_eq!(compared(&pairs, true).unwrap().test, Some(Test::Wilcoxon));
        let zeros: Vec<Pair> = (0..6).map(|prompt| pair(prompt, 0, (0.0, 0.0))).collect();
        assert_eq!(compared(&zeros, false).unwrap().test, Some(Test::Wilcoxon));
    }

    #[test]
    fn numbers_that_overflow_have_no_difference() {
        assert_eq!(compared(&[pair(0, 0, (f64::MIN, f64::MAX))], false), None);
        assert_eq!(compared(&[pair(0, 0, (0.0, f64::MAX)), pair(0, 1, (0.0, f64::MAX))], false), None);
    }

    #[test]
    fn one_prompt_has_a_difference_but_neither_interval_nor_test() {
        let row = compared(&[pair(0, 0, (0.5, 0.75))], false).unwrap();
        assert_eq!((row.diff, row.lo, row.hi, row.p, row.test), (0.25, None, None, None, None));
    }

    #[test]
    fn wilcoxon_agrees_with_scipy_through_a_row() {
        // SciPy 1.17.1: scipy.stats.wilcoxon([1.5, -0.5, 2.0, 3.0, -1.0, 4.0]).pvalue
        let differences = [1.5, -0.5, 2.0, 3.0, -1.0, 4.0];
        let pairs: Vec<Pair> = differences.iter().zip(0..).map(|(d, prompt)| pair(prompt, 0, (7.0, 7.0 + d))).collect();
        assert!((compared(&pairs, false).unwrap().p.unwrap() - 0.15625).abs() < 1e-12);
    }

    /// How often the interval of 1,500 experiments holds the truth. Each has 100 prompts of two questions, which share
    /// the luck of their prompt, and both models its difficulty. `as_one`: the questions are known to be of one prompt.
    fn coverage(as_one: bool, truth: f64) -> f64 {
        let mut rng = Rng::new(31, "prompts");
        let mut experiment = |seed| {
            let mut pairs = Vec::new();
            for prompt in 0..100 {
                let (difficulty, luck) = (3.0 * rng.normal(), rng.normal());
                for query in 0..2 {
                    let a = difficulty + 0.3 * rng.normal();
                    let seen_as = if as_one { prompt } else { 2 * prompt + query };
                    pairs.push(pair(seen_as, query, (a, a + truth + luck + 0.3 * rng.normal())));
                }
            }
            Difference::of_prompts(&pairs, DifferenceOptions { seed, resamples: 400, ..DifferenceOptions::default() })
                .unwrap()
        };
        let covers = |row: &Difference| row.lo.unwrap() <= truth && truth <= row.hi.unwrap();
        (0..1500).filter(|&seed| covers(&experiment(seed))).count() as f64 / 1500.0
    }

    #[test]
    fn intervals_of_the_paired_difference_cover_the_truth_as_often_as_they_say() {
        let found = coverage(true, 0.4);
        assert!((0.93..=0.97).contains(&found), "{found}");
    }

    #[test]
    fn questions_taken_as_prompts_of_their_own_would_not() {
        let found = coverage(false, 0.4);
        assert!(found < 0.88, "{found}");
    }
}
