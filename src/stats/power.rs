//! Power of paired comparisons: the smallest detectable difference, and the pairs needed for a given one (Miller 2024,
//! arXiv
//! 2411.00640, section 5, with Student's quantiles instead of normal ones, because pairs are few).

use super::{Moments, LEVEL};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Probability with which a difference is to be detected.
const POWER: f64 = 0.8;

/// Largest number of pairs that is considered.
const MOST_PAIRS: u64 = 1_000_000_000;

/// Degrees of freedom from which on Student's quantiles are derived from normal ones, because the iteration of statrs
/// may not end there.
const MANY: f64 = 200.0;

/// Returns a quantile of Student's distribution. For many degrees of freedom ν it uses the first term of the expansion
/// about the normal quantile, z + (z³ + z) / 4ν, which is exact to 10⁻⁵ there.
pub(super) fn student(level: f64, freedom: f64) -> Option<f64> {
    if freedom < MANY {
        return Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(level));
    }
    let z = Normal::standard().inverse_cdf(level);
    Some(z + (z.powi(3) + z) / (4.0 * freedom))
}

/// Returns the smallest difference detected with [`POWER`] at [`LEVEL`], in standard errors: t(0.975) + t(0.8), about
/// 2.8 for many pairs.
fn standard_errors(pairs: u64) -> Option<f64> {
    let freedom = pairs.checked_sub(1).filter(|&freedom| freedom > 0)? as f64;
    Some(student(0.5 + LEVEL / 2.0, freedom)? + student(POWER, freedom)?)
}

/// Returns the smallest true mean difference that a comparison with these paired differences detects (an interval that
/// excludes 0) with [`POWER`], in their unit. `None` for fewer than two differences, or if all are equal.
pub fn smallest_detectable(differences: &[f64]) -> Option<f64> {
    let deviation = deviation(differences)?;
    let n = differences.len();
    Some(standard_errors(n as u64)? * deviation / (n as f64).sqrt())
}

/// Returns the number of pairs, with the standard deviation of these differences, that detect a true mean difference of
/// `size` with [`POWER`]. `None` if the differences are fewer than two or all equal, `size` is 0, or the number is too
/// large.
pub fn pairs_needed(differences: &[f64], size: f64) -> Option<u64> {
    let effect = size.abs() / deviation(differences)?;
    if !effect.is_normal() {
        return None;
    }
    let enough = |n: u64| standard_errors(n).is_some_and(|errors| errors / (n as f64).sqrt() <= effect);
    let mut most = 2_u64;
    while !enough(most) {
        most *= 2;
        if most > MOST_PAIRS {
            return None;
        }
    }
    let (mut too_few, mut most) = (most / 2, most);
    while most - too_few > 1 {
        let middle = too_few + (most - too_few) / 2;
        if enough(middle) {
            most = middle;
        } else {
            too_few = middle;
        }
    }
    Some(most)
}

fn deviation(differences: &[f64]) -> Option<f64> {
    let moments: Moments = differences.iter().copied().collect();
    let deviation = moments.variance()?.sqrt();
    (deviation > 0.0 && deviation.is_finite()).then_some(deviation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn many_pairs_show_what_is_2_8_standard_errors_away() {
        let differences: Vec<f64> = (0..10_000).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let found = smallest_detectable(&differences).unwrap();
        // Standard error 1/100; z(0.975) + z(0.8) = 1.95996 + 0.84162.
        assert!((found - 0.028_016).abs() < 2e-5, "{found}");
    }

    #[test]
    fn a_difference_of_that_size_is_found_four_times_in_five() {
        let mut rng = Rng::new(21, "power");
        for n in [5, 12, 40] {
            let t = StudentsT::new(0.0, 1.0, n as f64 - 1.0).unwrap().inverse_cdf(0.975);
            // Unit deviation, known: the size that `smallest_detectable` gives when the sample shows exactly that.
            let size = standard_errors(n as u64).unwrap() / (n as f64).sqrt();
            let finds = (0..4000).filter(|_| {
                let sample: Moments = (0..n).map(|_| size + rng.normal()).collect();
                sample.mean().unwrap() > t * (sample.variance().unwrap() / n as f64).sqrt()
            });
            let power = finds.count() as f64 / 4000.0;
            // Adding two quantiles is an approximation; it errs by a few points where pairs are very few.
            assert!((0.74..=0.86).contains(&power), "{n} pairs: {power}");
        }
    }

    #[test]
    fn as_many_pairs_as_there_are_show_what_they_can_show() {
        let mut rng = Rng::new(22, "power");
        for n in [3_usize, 10, 77, 500] {
            let differences: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
            let size = smallest_detectable(&differences).unwrap();
            let needed = pairs_needed(&differences, 1.000_001 * size).unwrap();
            assert_eq!(needed, n as u64);
            // A tenth takes a hundred times as many, or fewer where few pairs make Student's quantiles large.
            let tenth = pairs_needed(&differences, -0.1 * size).unwrap();
            let n = n as u64;
            assert!(tenth <= 100 * n && (n < 50 || tenth > 95 * n), "{n}: {tenth}");
        }
    }

    #[test]
    fn equal_differences_have_no_power() {
        assert_eq!(smallest_detectable(&[0.5]), None);
        assert_eq!(smallest_detectable(&[0.5, 0.5, 0.5]), None);
        assert_eq!(pairs_needed(&[0.0, 1.0], 0.0), None);
        assert_eq!(pairs_needed(&[0.0, 1.0], f64::NAN), None);
        assert_eq!(pairs_needed(&[0.0, 1.0], 1e-9), None);
    }
}
