//! Interval and test of a mean of independent numbers that may have a long tail.
//!
//! Student's t has too short an interval on the side of a long tail. Hall's (1992, "On the removal of skewness by
//! transformation") monotone function of t removes the skewness γ of its distribution to order 1/n:
//!
//! G(t) = t + g t² / 3 + g² t³ / 27 + g / 6, with g = γ / √n
//!
//! and is itself too narrow for symmetrical numbers with two long tails. So each end of the interval is the outer one of
//! both, and p is the larger one: the interval holds 0 if and only if p is at least 0.05. `cargo bench --bench coverage`
//! compares it with the bootstrap.

use super::interval::{student_quantile, two_sided_p, NO_WIDTH, POWER};
use super::{mean, Interval, LEVEL};

/// Least number of prompts for an interval and a test. With fewer, the intervals of skewed numbers cover less than 90 %.
pub const LEAST_PROMPTS: usize = 6;

/// Moments of numbers that an interval can be based on.
#[derive(Clone, Copy, Debug)]
struct Sample {
    n: f64,
    mean: f64,
    /// Sample variance, with n − 1 in the denominator.
    variance: f64,
    /// Unbiased skewness √(n (n − 1)) / (n − 2) · m₃ / m₂^1.5.
    skewness: f64,
}

impl Sample {
    /// The moments of at least [`LEAST_PROMPTS`] finite numbers that are not all equal.
    fn of(numbers: &[f64]) -> Option<Self> {
        let mean = mean(numbers).filter(|mean| numbers.len() >= LEAST_PROMPTS && mean.is_finite())?;
        let n = numbers.len() as f64;
        let [squares, cubes] = [2, 3].map(|power| numbers.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / n);
        if !squares.is_finite() || (squares / n).sqrt() <= NO_WIDTH {
            return None;
        }
        let skewness = (n * (n - 1.0)).sqrt() / (n - 2.0) * cubes / squares.powf(1.5);
        Some(Self { n, mean, variance: squares * n / (n - 1.0), skewness })
    }

    fn standard_error(&self) -> f64 {
        (self.variance / self.n).sqrt()
    }

    /// The interval at a level, such as [`LEVEL`].
    fn interval(&self, level: f64) -> Option<Interval> {
        let (below, above) = reach(level, self.n, self.skewness)?;
        let error = self.standard_error();
        Some(Interval { lo: self.mean - below * error, hi: self.mean + above * error })
    }

    /// The two-sided p-value of the hypothesis that the mean is 0.
    fn p(&self) -> Option<f64> {
        let t = self.mean / self.standard_error();
        let g = self.skewness / self.n.sqrt();
        let corrected = t + g * t * t / 3.0 + g * g * t.powi(3) / 27.0 + g / 6.0;
        two_sided_p(t.abs().min(corrected.abs()), self.n - 1.0)
    }
}

/// How many standard errors the interval of `n` numbers at a level reaches below and above their mean.
fn reach(level: f64, n: f64, skewness: f64) -> Option<(f64, f64)> {
    let t = student_quantile(0.5 + level / 2.0, n - 1.0)?;
    let g = skewness / n.sqrt();
    Some((without_skewness(t, g).max(t), (-without_skewness(-t, g)).max(t)))
}

/// The inverse of G; near g = 0 it is the identity.
fn without_skewness(y: f64, g: f64) -> f64 {
    if g.abs() < 1e-6 {
        y
    } else {
        3.0 / g * ((1.0 + g * (y - g / 6.0)).cbrt() - 1.0)
    }
}

/// How many standard errors a mean of `n` numbers must be from 0, on its worse side, to be detected with
/// [`POWER`].
fn detectable_errors(n: f64, skewness: f64) -> Option<f64> {
    let (below, above) = reach(LEVEL, n, skewness)?;
    Some(below.max(above) + student_quantile(POWER, n - 1.0)?)
}

/// Interval and test of a mean, which agree: the interval excludes 0 if and only if p < 0.05.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanTest {
    /// The 95 % interval of the mean.
    pub interval: Interval,
    /// Two-sided p-value of a mean of 0.
    pub p: f64,
}

/// Tests whether the mean of independent numbers is 0. `None` for fewer than [`LEAST_PROMPTS`] numbers, or if they are
/// all equal or not finite.
pub fn test_mean(numbers: &[f64]) -> Option<MeanTest> {
    let sample = Sample::of(numbers)?;
    Some(MeanTest { interval: sample.interval(LEVEL)?, p: sample.p()? })
}

/// The interval of one of `count` means whose intervals are to hold together with [`LEVEL`]: each has the level
/// 1 − (1 − [`LEVEL`]) / `count` (Bonferroni). `None` as for [`test_mean`].
pub fn simultaneous_interval(numbers: &[f64], count: usize) -> Option<Interval> {
    Sample::of(numbers)?.interval(1.0 - (1.0 - LEVEL) / count.max(1) as f64)
}

/// Tests whether a mean over groups of unequal size is 0, each given as (sum, number of members): the sum of sums over
/// the number of all members. Members of a group are not independent, groups are. Linearised: interval and test are those
/// of the mean of r + (sum − r · members) / (mean number of members), with r the ratio. `None` as [`test_mean`], of groups
/// that have members.
pub fn test_ratio(groups: &[(f64, f64)]) -> Option<MeanTest> {
    let groups: Vec<(f64, f64)> = groups.iter().copied().filter(|&(_, members)| members > 0.0).collect();
    let (sum, members) = groups.iter().fold((0.0, 0.0), |total, group| (total.0 + group.0, total.1 + group.1));
    let ratio = sum / members;
    let mean_size = members / groups.len() as f64;
    let linear: Vec<f64> = groups.iter().map(|(sum, n)| ratio + (sum - ratio * n) / mean_size).collect();
    test_mean(&linear)
}

/// The smallest true mean, in the unit of the numbers, that [`test_mean`] of as many numbers with their variance
/// and skewness detects with a probability of 80 %. `None` as [`test_mean`].
pub fn smallest_detectable(numbers: &[f64]) -> Option<f64> {
    let sample = Sample::of(numbers)?;
    Some(detectable_errors(sample.n, sample.skewness)? * sample.standard_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    /// The share of 2,000 samples whose interval holds the true mean.
    fn coverage(n: usize, truth: f64, draw: impl Fn(&mut Rng) -> f64) -> f64 {
        let mut rng = Rng::new(n as u64, "coverage of means");
        let mut covered = 0;
        for _ in 0..2000 {
            let numbers: Vec<f64> = (0..n).map(|_| draw(&mut rng)).collect();
            covered += usize::from(test_mean(&numbers).unwrap().interval.contains(truth));
        }
        covered as f64 / 2000.0
    }

    #[test]
    fn intervals_of_normal_and_of_skewed_numbers_cover_the_mean() {
        // Student's interval covers 82, 84 and 88 % of the lognormal means, the percentile bootstrap 75, 80 and 88 %.
        for (n, least_normal, least_lognormal) in [(6, 0.95, 0.88), (10, 0.945, 0.90), (30, 0.935, 0.92)] {
            let normal = coverage(n, 0.0, Rng::normal);
            assert!((least_normal..0.985).contains(&normal), "{n}: {normal}");
            let lognormal = coverage(n, 0.5_f64.exp(), |rng| rng.normal().exp());
            assert!((least_lognormal..0.985).contains(&lognormal), "{n}: {lognormal}");
            let two_tails = coverage(n, 0.0, |rng| (1.5 * rng.normal()).exp() - (1.5 * rng.normal()).exp());
            assert!(two_tails > 0.94, "{n}: {two_tails}");
        }
    }

    #[test]
    fn the_interval_of_one_mean_of_many_is_wider_and_that_of_one_is_the_usual() {
        let numbers = [0.3, 1.9, 0.4, 2.2, 0.1, 0.9, 1.1];
        let width = |count| simultaneous_interval(&numbers, count).map(|interval| interval.hi - interval.lo).unwrap();
        assert_eq!(simultaneous_interval(&numbers, 1), test_mean(&numbers).map(|test| test.interval));
        assert!(width(270) > width(10) && width(10) > width(1));
        assert_eq!(simultaneous_interval(&numbers[..3], 9), None);
    }

    #[test]
    fn symmetrical_numbers_have_students_interval_and_p_value() {
        let numbers = [-2.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 6.0];
        let found = test_mean(&numbers).unwrap();
        // s² = 42 / 7, so t = 2 / √(6 / 8); t(0.975) of 7 degrees of freedom is 2.364624.
        let error = (6.0_f64 / 8.0).sqrt();
        assert!((found.interval.lo - (2.0 - 2.364_624 * error)).abs() < 1e-6, "{found:?}");
        assert!((found.interval.hi - (2.0 + 2.364_624 * error)).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn the_interval_reaches_further_on_the_side_of_the_tail() {
        let skewed = [0.0, 0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 4.0];
        let found = test_mean(&skewed).unwrap().interval;
        let mean = mean(&skewed).unwrap();
        assert!(found.hi - mean > 1.5 * (mean - found.lo), "{found:?}");
        let turned = test_mean(&skewed.map(|x| -x)).unwrap().interval;
        assert!((turned.lo + found.hi).abs() < 1e-12 && (turned.hi + found.lo).abs() < 1e-12);
    }

    #[test]
    fn few_or_equal_or_broken_numbers_have_no_interval() {
        assert_eq!(test_mean(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(test_mean(&[0.1; 9]), None);
        assert_eq!(test_mean(&[0.1, 0.2, 0.3, 0.4, 0.5, f64::NAN]), None);
        assert_eq!(test_mean(&[f64::MAX, f64::MIN, 1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(test_mean(&[]), None);
        assert_eq!(smallest_detectable(&[0.5; 8]), None);
    }

    #[test]
    fn groups_weigh_as_much_as_they_have_members() {
        // Groups of one and of many members about the same mean: the many decide.
        let groups =
            [(1.0, 1.0), (50.0, 100.0), (52.0, 100.0), (48.0, 100.0), (51.0, 100.0), (49.0, 100.0), (0.0, 0.0)];
        let found = test_ratio(&groups).unwrap().interval;
        assert!(found.contains(251.0 / 501.0) && found.hi < 0.53, "{found:?}");
        let alike: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 3.0, 5.0].iter().map(|x| (2.0 * x, 2.0)).collect();
        let single = test_mean(&[1.0, 2.0, 4.0, 8.0, 3.0, 5.0]).unwrap().interval;
        let found = test_ratio(&alike).unwrap().interval;
        assert!((found.lo - single.lo).abs() < 1e-12 && (found.hi - single.hi).abs() < 1e-12);
        assert_eq!(test_ratio(&[(0.0, 0.0); 9]), None);
    }

    #[test]
    fn a_detectable_mean_is_found_about_four_times_in_five() {
        let mut rng = Rng::new(21, "power");
        for n in [8, 20, 60] {
            let size = detectable_errors(n as f64, 0.0).unwrap() / (n as f64).sqrt();
            let mut found = 0;
            for _ in 0..3000 {
                let numbers: Vec<f64> = (0..n).map(|_| size + rng.normal()).collect();
                found += usize::from(test_mean(&numbers).unwrap().interval.lo > 0.0);
            }
            let power = found as f64 / 3000.0;
            // Normal numbers look a little skewed, most of all a few of them.
            assert!((0.68..=0.83).contains(&power), "{n}: {power}");
        }
    }

    proptest! {
        #[test]
        fn the_interval_excludes_0_if_and_only_if_p_is_below_5_percent(
            numbers in prop::collection::vec(prop_oneof![-1.0..2.0_f64, 0.0..9.0_f64], 6..40)
        ) {
            let found = test_mean(&numbers).unwrap();
            prop_assert!((found.p - 0.05).abs() < 1e-9 || (found.p < 0.05) != found.interval.contains(0.0), "{found:?}");
            prop_assert!(found.interval.contains(mean(&numbers).unwrap()) && (0.0..=1.0).contains(&found.p));
        }
    }
}
