//! What the powers of all tests share: quantiles of Student's distribution, and the search for the number of pairs
//! (Miller 2024, arXiv 2411.00640, section 5, with Student's quantiles instead of normal ones, because pairs are few).

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Probability with which a difference is to be detected.
pub(super) const POWER: f64 = 0.8;

/// Largest number that is considered.
const MOST: u64 = 1_000_000_000;

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

/// Returns the least number from `first` on that is enough, of a test that more numbers meet more easily; `None` beyond
/// a billion.
pub(super) fn least(first: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
    if enough(first) {
        return Some(first);
    }
    let (mut too_few, mut most) = (first, 2 * first);
    while !enough(most) {
        if most > MOST {
            return None;
        }
        (too_few, most) = (most, 2 * most);
    }
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
