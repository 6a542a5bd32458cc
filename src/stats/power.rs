//! What the powers of all tests share: quantiles of Student's distribution, and the search for the number of pairs
//! (Miller 2024, arXiv 2411.00640, section 5, with Student's quantiles instead of normal ones, because pairs are few).

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Probability with which a difference is to be detected.
pub(super) const POWER: f64 = 0.8;

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
