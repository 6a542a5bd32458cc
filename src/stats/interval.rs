//! 95 % intervals: Wilson for one proportion, bootstrap for a mean.

use super::{quantile, LEAST_SEEDS};
use crate::rng::Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Confidence level of every interval.
pub const LEVEL: f64 = 0.95;

/// Default number of bootstrap resamples. The 2.5 % quantile then has 250 resamples below it and varies by about 1 % of
/// the interval's width from seed to seed.
pub const RESAMPLES: usize = 10_000;

/// A closed interval, in the unit of its quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Interval {
    /// Returns `true` if `x` is in the interval, ends included.
    pub fn contains(&self, x: f64) -> bool {
        (self.lo..=self.hi).contains(&x)
    }

    /// Returns `true` if the width is 0 up to rounding. This happens if all prompts give the same number; the bootstrap
    /// then says nothing about other prompts, so such an interval is printed as `[-]` and decides nothing.
    pub fn is_point(&self) -> bool {
        self.hi - self.lo < 1e-12
    }

    /// Returns 1 if the interval is above zero and -1 if it is below; 0 if it contains zero or is a point.
    pub fn side(&self) -> i32 {
        if self.is_point() {
            return 0;
        }
        i32::from(self.lo > 0.0) - i32::from(self.hi < 0.0)
    }
}

/// Returns Student's (1908) interval of the mean of a few replicates, m ± t s / √n with n − 1 degrees of freedom. A
/// bootstrap of so few numbers would be too narrow. `None` for fewer than three.
pub fn student(replicates: &[f64]) -> Option<Interval> {
    let n = replicates.len();
    if n < LEAST_SEEDS {
        return None;
    }
    let mean = replicates.iter().sum::<f64>() / n as f64;
    let variance = replicates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let t =
        StudentsT::new(0.0, 1.0, (n - 1) as f64).expect("degrees of freedom above 0").inverse_cdf(0.5 + LEVEL / 2.0);
    let half = t * (variance / n as f64).sqrt();
    Some(Interval { lo: mean - half, hi: mean + half })
}

/// Returns the Wilson (1927) score interval of a proportion after `hits` in `n` trials:
/// (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), with z the normal quantile of [`LEVEL`].
///
/// Unlike p ± z·SE it stays within 0..=1 and is useful at 0 and n hits. Without trials it is 0..=1.
///
/// # Panics
/// If there are more hits than trials.
pub fn wilson(hits: usize, n: usize) -> Interval {
    assert!(hits <= n, "{hits} hits of {n}");
    if n == 0 {
        return Interval { lo: 0.0, hi: 1.0 };
    }
    score_interval(hits as f64 / n as f64, n as f64)
}

/// Returns the Wilson interval for trials in groups of similar trials, each given as (hits, trials).
///
/// The number of trials is divided by the design effect (Kish 1965; with Wilson's interval: Dean & Pagano 2015), the
/// variance of the proportion between groups over that of independent trials. The effective number is between the
/// number of groups and that of trials; it is the number of groups if the design effect is unknown: with one group, or
/// if all or no trials are hits.
///
/// # Panics
/// If a group has more hits than trials.
pub fn wilson_of_groups(groups: &[(usize, usize)]) -> Interval {
    assert!(groups.iter().all(|(hits, n)| hits <= n), "more hits than trials");
    let (hits, n) = groups.iter().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
    let (k, trials) = (groups.len() as f64, n as f64);
    if n == 0 || groups.len() == n {
        return wilson(hits, n);
    }
    let p = hits as f64 / trials;
    let off = |&(hits, n): &(usize, usize)| (hits as f64 - p * n as f64).powi(2);
    let between = groups.iter().map(off).sum::<f64>() * k / (k - 1.0) / (trials * trials);
    let independent = p * (1.0 - p) / trials;
    let most = trials / k;
    let design_effect = if independent > 0.0 && k > 1.0 { (between / independent).clamp(1.0, most) } else { most };
    score_interval(p, trials / design_effect)
}

fn score_interval(p: f64, trials: f64) -> Interval {
    let z = Normal::standard().inverse_cdf(0.5 + LEVEL / 2.0);
    let shrink = 1.0 + z * z / trials;
    let centre = (p + z * z / (2.0 * trials)) / shrink;
    let half = z * (p * (1.0 - p) / trials + z * z / (4.0 * trials * trials)).sqrt() / shrink;
    // With p = 0 or 1 an end is exactly 0 or 1; rounding must not move it.
    Interval { lo: if p == 0.0 { 0.0 } else { centre - half }, hi: if p == 1.0 { 1.0 } else { centre + half } }
}

/// Returns the percentile bootstrap interval (Efron 1979) of a mean: the middle [`LEVEL`] of the means of `resamples`
/// resamples, drawn with replacement. `None` without numbers or resamples.
///
/// Its width is zero if all numbers are equal, and it is too narrow below about twenty numbers. The same seed gives the
/// same interval.
pub fn bootstrap_mean(numbers: &[f64], resamples: usize, seed: u64) -> Option<Interval> {
    let ones: Vec<(f64, f64)> = numbers.iter().map(|&number| (number, 1.0)).collect();
    bootstrap_ratio(&ones, resamples, seed)
}

/// Returns the bootstrap interval of a mean over groups of unequal size, each given as (sum, number of members). Whole
/// groups are drawn, because members of a group are not independent; the mean is the sum of sums over the number of all
/// members. `None` without members or resamples.
pub fn bootstrap_ratio(groups: &[(f64, f64)], resamples: usize, seed: u64) -> Option<Interval> {
    if !groups.iter().any(|&(_, n)| n > 0.0) {
        return None;
    }
    let mut rng = Rng::new(seed, "bootstrap");
    let mut mean = |_| {
        let drawn = (0..groups.len()).map(|_| *rng.pick(groups));
        let (sum, n) = drawn.fold((0.0, 0.0), |(sums, ns), (sum, n)| (sums + sum, ns + n));
        (n > 0.0).then(|| sum / n) // `None` if all drawn groups are empty
    };
    let mut means: Vec<f64> = (0..resamples).filter_map(&mut mean).collect();
    means.sort_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    (!means.is_empty()).then(|| Interval { lo: quantile(&means, tail), hi: quantile(&means, 1.0 - tail) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Moments;

    #[test]
    fn questions_of_one_prompt_count_as_much_as_they_differ() {
        let close = |a: Interval, b: Interval| assert!((a.lo - b.lo).abs() < 1e-12 && (a.hi - b.hi).abs() < 1e-12);
        let single: Vec<(usize, usize)> = (0..20).map(|i| (usize::from(i < 13), 1)).collect();
        close(wilson_of_groups(&single), wilson(13, 20));
        // Both questions of a prompt alike: as many trials as prompts.
        let alike: Vec<(usize, usize)> = single.iter().map(|(hits, _)| (2 * hits, 2)).collect();
        close(wilson_of_groups(&alike), wilson(13, 20));
        // One hit of two in every prompt: no variation between prompts.
        close(wilson_of_groups(&[(1, 2); 20]), wilson(20, 40));
        // All trials are hits: the design effect is unknown.
        close(wilson_of_groups(&[(2, 2); 20]), wilson(20, 20));
        close(wilson_of_groups(&[]), wilson(0, 0));
        // One prompt: the design effect is unknown.
        close(wilson_of_groups(&[(2, 4)]), score_interval(0.5, 1.0));
    }

    #[test]
    fn wilson_agrees_with_scipy() {
        // SciPy 1.17.1: scipy.stats.binomtest(k, n).proportion_ci(0.95, "wilson"); statsmodels 0.15.0 says the same.
        let expected = [
            (0, 20, 0.0, 0.161_125_158_052_819_35),
            (19, 20, 0.763_868_806_553_258, 0.991_118_551_199_204_7),
            (20, 20, 0.838_874_841_947_180_8, 1.0),
            (37, 50, 0.604_468_427_351_511_5, 0.841_284_725_064_476_2),
            (156, 160, 0.937_490_107_133_332_6, 0.990_236_007_453_737_5),
        ];
        for (hits, n, lo, hi) in expected {
            let found = wilson(hits, n);
            assert!((found.lo - lo).abs() < 1e-9 && (found.hi - hi).abs() < 1e-9, "{hits}/{n}: {found:?}");
        }
    }

    #[test]
    fn no_trials_leave_every_proportion_possible() {
        assert_eq!(wilson(0, 0), Interval { lo: 0.0, hi: 1.0 });
    }

    #[test]
    fn wilson_covers_the_truth_as_often_as_it_says() {
        let mut rng = Rng::new(11, "wilson");
        for truth in [0.5, 0.8, 0.9] {
            let covered = (0..4000)
                .filter(|_| wilson((0..80).filter(|_| rng.unit() < truth).count(), 80).contains(truth))
                .count();
            let coverage = covered as f64 / 4000.0;
            assert!((0.93..=0.97).contains(&coverage), "p {truth}: {coverage}");
        }
    }

    #[test]
    fn the_bootstrap_covers_the_truth_as_often_as_it_says() {
        let mut rng = Rng::new(12, "normal");
        let covered = (0..1000)
            .filter(|&seed| {
                let numbers: Vec<f64> = (0..60).map(|_| 0.3 + rng.normal()).collect();
                bootstrap_mean(&numbers, 400, seed).unwrap().contains(0.3)
            })
            .count();
        let coverage = covered as f64 / 1000.0;
        assert!((0.93..=0.97).contains(&coverage), "{coverage}");
    }

    #[test]
    fn the_bootstrap_of_many_numbers_is_the_normal_interval() {
        let mut rng = Rng::new(13, "normal");
        let numbers: Vec<f64> = (0..400).map(|_| rng.normal()).collect();
        let moments: Moments = numbers.iter().copied().collect();
        let half = 1.959_964 * (moments.variance().unwrap() / 400.0).sqrt();
        let found = bootstrap_mean(&numbers, RESAMPLES, 0).unwrap();
        assert!((found.lo - (moments.mean().unwrap() - half)).abs() < 0.05 * half, "{found:?}");
        assert!((found.hi - (moments.mean().unwrap() + half)).abs() < 0.05 * half, "{found:?}");
    }

    #[test]
    fn groups_weigh_as_much_as_they_have_members() {
        // Groups of one and of many members about the same mean: the many decide.
        let groups = [(1.0, 1.0), (50.0, 100.0), (52.0, 100.0), (48.0, 100.0), (51.0, 100.0)];
        let found = bootstrap_ratio(&groups, 2000, 0).unwrap();
        assert!(found.contains(202.0 / 401.0) && found.hi < 0.53, "{found:?}");
        assert_eq!(bootstrap_ratio(&[(0.0, 0.0), (3.0, 2.0)], 500, 0), Some(Interval { lo: 1.5, hi: 1.5 }));
        assert_eq!(bootstrap_ratio(&[(0.0, 0.0)], 500, 0), None);
    }

    #[test]
    fn students_interval_of_five_replicates_has_2_776_standard_errors_on_either_side() {
        let Interval { lo, hi } = student(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(((hi - 3.0) / 0.5_f64.sqrt() - 2.7764).abs() < 1e-3 && (lo + hi - 6.0).abs() < 1e-9, "{lo} {hi}");
        assert_eq!(student(&[1.0, 2.0]), None);
        let covered = (0..2000_u64).filter(|&seed| {
            let mut rng = Rng::new(seed, "replicates");
            let replicates: Vec<f64> = (0..5).map(|_| rng.normal()).collect();
            student(&replicates).unwrap().contains(0.0)
        });
        let covered = covered.count() as f64 / 2000.0;
        assert!((covered - 0.95).abs() < 0.02, "{covered}");
    }

    #[test]
    fn a_seed_gives_the_same_interval_again() {
        let numbers = [0.1, 0.7, -0.2, 0.4, 0.9];
        assert_eq!(bootstrap_mean(&numbers, 500, 3), bootstrap_mean(&numbers, 500, 3));
        assert_ne!(bootstrap_mean(&numbers, 500, 3), bootstrap_mean(&numbers, 500, 4));
        assert_eq!(bootstrap_mean(&[], 500, 3), None);
    }

    #[test]
    fn equal_numbers_have_an_interval_without_width_around_them() {
        let found = bootstrap_mean(&[0.1; 7], 200, 0).unwrap();
        assert!((found.lo - 0.1).abs() < 1e-15 && found.hi == found.lo, "{found:?}");
    }
}
