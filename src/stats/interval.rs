//! 95 % intervals of one proportion, and of a mean over a few training seeds.

use super::LEAST_SEEDS;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Confidence level of every interval.
pub const LEVEL: f64 = 0.95;

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

    /// Returns 1 if the interval is above zero and -1 if it is below; 0 if it contains zero.
    pub fn side(&self) -> i32 {
        i32::from(self.lo > 0.0) - i32::from(self.hi < 0.0)
    }
}

/// Returns Student's (1908) interval of the mean of a few replicates, m ± t s / √n with n − 1 degrees of freedom. It
/// supposes normal numbers: of three replicates, of which some learn and some do not, it covers far less. `None` for
/// fewer than three, or if all are equal.
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
    (half > 1e-12).then_some(Interval { lo: mean - half, hi: mean + half })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

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
    fn students_interval_of_five_replicates_has_2_776_standard_errors_on_either_side() {
        let Interval { lo, hi } = student(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(((hi - 3.0) / 0.5_f64.sqrt() - 2.7764).abs() < 1e-3 && (lo + hi - 6.0).abs() < 1e-9, "{lo} {hi}");
        assert_eq!((student(&[1.0, 2.0]), student(&[0.1; 3])), (None, None));
        let covered = (0..2000_u64).filter(|&seed| {
            let mut rng = Rng::new(seed, "replicates");
            let replicates: Vec<f64> = (0..5).map(|_| rng.normal()).collect();
            student(&replicates).unwrap().contains(0.0)
        });
        let covered = covered.count() as f64 / 2000.0;
        assert!((covered - 0.95).abs() < 0.02, "{covered}");
    }
}
