//! 95 % intervals of one proportion, and of a mean over a few training seeds; and what all tests share: quantiles of
//! Student's distribution, power (Miller 2024, arXiv 2411.00640, section 5, with Student's quantiles instead of normal
//! ones, because pairs are few), and the correction of many tests.

use super::{quantile, MeanTest, LEAST_SEEDS};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Confidence level of every interval.
pub const LEVEL: f64 = 0.95;

/// Probability with which a difference is to be detected.
pub(super) const POWER: f64 = 0.8;

/// Width below which an interval, or an error, is that of equal numbers, up to rounding.
pub(super) const NO_WIDTH: f64 = 1e-12;

/// Degrees of freedom from which on Student's quantiles are derived from normal ones, because the iteration of statrs
/// may not end there.
const MANY: f64 = 200.0;

/// A quantile of Student's distribution. For many degrees of freedom ν it uses the first term of the expansion
/// about the normal quantile, z + (z³ + z) / 4ν, which is exact to 10⁻⁵ there.
pub(super) fn student_quantile(level: f64, freedom: f64) -> Option<f64> {
    if freedom < MANY {
        return Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(level));
    }
    let z = Normal::standard().inverse_cdf(level);
    Some(z + (z.powi(3) + z) / (4.0 * freedom))
}

/// The two-sided p-value of a value of Student's distribution; `None` for no number, as the quotient of two infinities.
pub(super) fn two_sided_p(t: f64, freedom: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok()?;
    (!t.is_nan()).then(|| (2.0 * distribution.cdf(-t.abs())).min(1.0))
}

/// A closed interval, in the unit of its quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Interval {
    /// The middle 95 % of numbers in ascending order.
    pub(super) fn middle(sorted: &[f64]) -> Self {
        let tail = (1.0 - LEVEL) / 2.0;
        Self { lo: quantile(sorted, tail), hi: quantile(sorted, 1.0 - tail) }
    }

    /// Returns `true` if `x` is in the interval, ends included.
    pub fn contains(&self, x: f64) -> bool {
        (self.lo..=self.hi).contains(&x)
    }

    /// The part of the interval from `least` to `most`: what is measured cannot be elsewhere.
    pub fn within(self, least: f64, most: f64) -> Self {
        Self { lo: self.lo.clamp(least, most), hi: self.hi.clamp(least, most) }
    }

    /// 1 if the interval is above zero and -1 if it is below; 0 if it contains zero.
    pub fn side(&self) -> i32 {
        i32::from(self.lo > 0.0) - i32::from(self.hi < 0.0)
    }
}

/// The two-sided p-value of a value other than the estimate, from the estimate and its 95 % interval, as if the estimate
/// were normal (Altman and Bland 2011, "How to obtain the P value from a confidence interval").
pub fn p_of_interval(estimate: f64, interval: Interval, value: f64) -> f64 {
    let normal = Normal::standard();
    let error = (interval.hi - interval.lo) / (2.0 * normal.inverse_cdf(0.5 + LEVEL / 2.0));
    2.0 * normal.cdf(-((estimate - value) / error).abs())
}

/// Student's (1908) test of the mean of a few replicates, with the interval m ± t s / √n with n − 1 degrees of freedom. It
/// supposes normal numbers: of three replicates, of which some learn and some do not, the interval covers far less. `None`
/// for fewer than three, or if all are equal.
pub fn student(replicates: &[f64]) -> Option<MeanTest> {
    let n = replicates.len();
    if n < LEAST_SEEDS {
        return None;
    }
    let mean = replicates.iter().sum::<f64>() / n as f64;
    let variance = replicates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let error = (variance / n as f64).sqrt();
    let freedom = (n - 1) as f64;
    let half = student_quantile(0.5 + LEVEL / 2.0, freedom)? * error;
    if half <= NO_WIDTH {
        return None; // without an error there is no t
    }
    Some(MeanTest { interval: Interval { lo: mean - half, hi: mean + half }, p: two_sided_p(mean / error, freedom)? })
}

/// The Wilson (1927) score interval of a proportion after `hits` in `n` trials:
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

/// The Wilson interval for trials in groups of similar trials, each given as (hits, trials).
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
    let k = groups.len() as f64;
    let trials = n as f64;
    if n == 0 || groups.len() == n {
        return wilson(hits, n);
    }
    let p = hits as f64 / trials;
    let squares: f64 = groups.iter().map(|&(hits, n)| (hits as f64 - p * n as f64).powi(2)).sum();
    let between = squares * k / (k - 1.0) / (trials * trials);
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

/// P-values adjusted by Holm's (1979) step-down correction, in the given order, to be compared with the level
/// for the whole family of tests. The i-th smallest of m becomes the running maximum of (m − i + 1)·p, at most 1.
///
/// # Panics
/// If a p-value is outside 0..=1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    assert!(p_values.iter().all(|p| (0.0..=1.0).contains(p)), "p-values outside 0..=1: {p_values:?}");
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut worst = 0.0_f64;
    for (done, &i) in order.iter().enumerate() {
        worst = worst.max(((p_values.len() - done) as f64 * p_values[i]).min(1.0));
        adjusted[i] = worst;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_an_interval_have_a_p_value_of_one_in_twenty() {
        let interval = Interval { lo: -1.0, hi: 3.0 };
        for (value, p) in [(-1.0, 0.05), (3.0, 0.05), (1.0, 1.0), (0.0, 0.327)] {
            assert!((p_of_interval(1.0, interval, value) - p).abs() < 1e-3, "{value}");
        }
    }

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
        let MeanTest { interval: Interval { lo, hi }, p } = student(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(((hi - 3.0) / 0.5_f64.sqrt() - 2.7764).abs() < 1e-3 && (lo + hi - 6.0).abs() < 1e-9, "{lo} {hi}");
        // The distribution of four degrees of freedom is 1/2 + 3/8 u (1 - u² / 12), u = t / √(1 + t² / 4), t² = 18.
        let u = 18.0_f64.sqrt() / 5.5_f64.sqrt();
        assert!((p - (1.0 - 0.75 * u * (1.0 - u * u / 12.0))).abs() < 1e-9, "{p}");
        let covered = (0..2000_u64).filter(|&seed| {
            let mut rng = Rng::new(seed, "replicates");
            let replicates: Vec<f64> = (0..5).map(|_| rng.normal()).collect();
            student(&replicates).unwrap().interval.contains(0.0)
        });
        let covered = covered.count() as f64 / 2000.0;
        assert!((covered - 0.95).abs() < 0.02, "{covered}");
    }

    #[test]
    fn holm_agrees_with_statsmodels() {
        // statsmodels 0.15.0: multipletests(p, method="holm")[1]
        let found = holm(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        let expected = [0.04, 0.09, 0.09, 0.025, 0.5];
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
        assert_eq!(holm(&[]), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn a_correction_lies_between_the_p_value_and_bonferroni(p in prop::collection::vec(0.0..=1.0, 1..30)) {
            for (raw, adjusted) in p.iter().zip(holm(&p)) {
                prop_assert!((*raw..=(raw * p.len() as f64).min(1.0) + 1e-12).contains(&adjusted));
            }
        }

        #[test]
        fn a_correction_keeps_the_order(p in prop::collection::vec(0.0..=1.0, 2..30)) {
            let adjusted = holm(&p);
            for i in 1..p.len() {
                prop_assert!(p[i - 1] > p[i] || adjusted[i - 1] <= adjusted[i]);
            }
        }
    }

    #[test]
    fn equal_p_values_are_corrected_alike_as_by_statsmodels() {
        // statsmodels 0.15.0: multipletests(p, method="holm")[1]
        let found = holm(&[0.02, 0.02, 0.001, 0.8, 0.04, 0.04, 1.0, 0.0003]);
        let expected = [0.12, 0.12, 0.007, 1.0, 0.16, 0.16, 1.0, 0.0024];
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-12), "{found:?}");
    }
}
