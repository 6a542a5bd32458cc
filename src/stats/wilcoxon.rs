//! Wilcoxon's signed-rank test of paired differences, which need not be normal.

use statrs::distribution::{ContinuousCDF, Normal};

/// Largest number of differences with an exact p-value; beyond, the normal approximation is used.
const EXACT: usize = 50;

/// Result of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wilcoxon {
    /// Number of differences other than 0.
    pub n: usize,
    /// Sum of the ranks of the positive differences, ranked by magnitude from 1.
    pub positive: f64,
    /// Sum of the ranks of the negative differences.
    pub negative: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Whether `p` is exact rather than from the normal approximation.
    pub exact: bool,
}

/// Tests with two sides whether paired differences are symmetric about 0 (Wilcoxon 1945). Differences of 0 are dropped,
/// as by Wilcoxon; equal magnitudes share the mean of their ranks. `None` if a difference is not finite; p is 1 if none
/// is left.
///
/// Up to 50 differences p is exact, also with ties: twice the smaller tail of the distribution over all signs, not
/// above 1. Beyond, the rank sum counts as normal, with its variance corrected for ties and no continuity correction.
/// SciPy's `wilcoxon` does the same, but is approximate from 14 differences on if there are ties or zeros.
pub fn wilcoxon(differences: &[f64]) -> Option<Wilcoxon> {
    if !differences.iter().all(|d| d.is_finite()) {
        return None;
    }
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0).collect();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (mut doubled_ranks, mut tied) = (Vec::with_capacity(sorted.len()), 0.0);
    for group in sorted.chunk_by(|a, b| a.abs() == b.abs()) {
        // Ranks first..first + size have the mean first + (size - 1) / 2, an integer when doubled.
        let (first, size) = (doubled_ranks.len() + 1, group.len());
        doubled_ranks.resize(first - 1 + size, 2 * first + size - 1);
        tied += (size as f64).powi(3) - size as f64;
    }
    let n = sorted.len();
    let positive: usize = sorted.iter().zip(&doubled_ranks).filter(|(&d, _)| d > 0.0).map(|(_, rank)| rank).sum();
    let negative = n * (n + 1) - positive;
    let exact = n <= EXACT;
    let least = positive.min(negative);
    let p = if exact { exact_p(&doubled_ranks, least) } else { normal_p(n as f64, tied, 0.5 * least as f64) };
    Some(Wilcoxon { n, positive: 0.5 * positive as f64, negative: 0.5 * negative as f64, p, exact })
}

/// Returns twice the probability that the ranks with positive sign, for random signs, add up to at most `least`.
fn exact_p(ranks: &[usize], least: usize) -> f64 {
    // probability[s] is that of a positive sum s; sums above `least` do not matter.
    let mut probability = vec![0.0; least + 1];
    probability[0] = 1.0;
    for &rank in ranks {
        for sum in (0..=least).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = 0.5 * (probability[sum] + with);
        }
    }
    (2.0 * probability.iter().sum::<f64>()).min(1.0)
}

/// Returns the p-value of the normal approximation; `tied` is the sum of t^3 - t over groups of t equal magnitudes.
fn normal_p(n: f64, tied: f64, least: f64) -> f64 {
    let mean = n * (n + 1.0) / 4.0;
    let variance = (n * (n + 1.0) * (2.0 * n + 1.0) - tied / 2.0) / 24.0;
    2.0 * Normal::standard().cdf((least - mean) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn agrees(differences: &[f64], least: f64, p: f64, exact: bool) {
        let found = wilcoxon(differences).unwrap();
        assert!((found.p - p).abs() < 1e-9 * p.max(1e-3), "{found:?}");
        assert_eq!((found.positive.min(found.negative), found.exact), (least, exact), "{found:?}");
    }

    #[test]
    fn small_samples_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.wilcoxon(d); the third is the example of its documentation (Cureton 1967).
        agrees(&[1.5, -0.5, 2.0, 3.0, -1.0, 4.0], 3.0, 0.156_25, true);
        agrees(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0, 0.062_5, true);
        let plants = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75].map(f64::from);
        agrees(&plants, 24.0, 0.041_259_765_625, true);
        let fifty: Vec<f64> = (0..50).map(|i| f64::from(i * i % 97 - 30) + 0.5 * f64::from(i) / 97.0).collect();
        agrees(&fifty, 277.0, 0.000_337_881_094_345_959_8, true);
    }

    #[test]
    fn ties_and_zeros_of_a_small_sample_agree_with_all_permutations_of_scipy() {
        // SciPy 1.17.1 goes through all signs of up to 13 differences with ties or zeros.
        agrees(&[1.0, 1.0, -1.0, 2.0, 3.0, 0.0, 0.0, 4.0, -2.0, 5.0], 6.5, 0.132_812_5, true);
    }

    #[test]
    fn large_samples_with_ties_and_zeros_agree_with_scipy() {
        // SciPy 1.17.1: scipy.stats.wilcoxon(d), which is zero_method="wilcox", correction=False
        let one_zero: Vec<f64> = (0..80).map(|i| f64::from(i * 37 % 101 - 40) / 10.0).collect();
        agrees(&one_zero, 1015.5, 0.005_800_595_551_585_803_5, false);
        let six_zeros: Vec<f64> = (0..66).map(|i| f64::from(i * 7 % 11 - 4)).collect();
        agrees(&six_zeros, 588.0, 0.015_640_247_855_121_418, false);
    }

    #[test]
    fn without_differences_nothing_differs_and_broken_ones_give_no_test() {
        assert_eq!(wilcoxon(&[0.0, 0.0]).unwrap().p, 1.0);
        assert_eq!(wilcoxon(&[]).unwrap(), Wilcoxon { n: 0, positive: 0.0, negative: 0.0, p: 1.0, exact: true });
        assert_eq!(wilcoxon(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_approximation_joins_the_exact_distribution() {
        let ranks: Vec<usize> = (1..=50).map(|rank| 2 * rank).collect();
        for least in [400, 450, 500, 600] {
            let (exact, normal) = (exact_p(&ranks, 2 * least), normal_p(50.0, 0.0, least as f64));
            assert!((exact / normal - 1.0).abs() < 0.05, "{least}: {exact} {normal}");
        }
    }

    #[test]
    fn a_true_hypothesis_is_rejected_as_seldom_as_it_says() {
        let mut rng = Rng::new(21, "wilcoxon");
        for n in [30, 70] {
            let mut rejected = |_: &u32| wilcoxon(&(0..n).map(|_| rng.normal()).collect::<Vec<_>>()).unwrap().p <= 0.05;
            let share = (0..3000).filter(|i| rejected(i)).count() as f64 / 3000.0;
            assert!((0.035..=0.065).contains(&share), "{n}: {share}");
        }
    }

    proptest! {
        #[test]
        fn swapping_the_models_changes_nothing_but_the_sides(d in prop::collection::vec(-5_i8..=5, 0..80)) {
            let d: Vec<f64> = d.into_iter().map(f64::from).collect();
            let (there, back) = (wilcoxon(&d).unwrap(), wilcoxon(&d.iter().map(|d| -d).collect::<Vec<_>>()).unwrap());
            prop_assert_eq!((there.positive, there.negative, there.p), (back.negative, back.positive, back.p));
            prop_assert!((0.0..=1.0).contains(&there.p));
            prop_assert_eq!(there.positive + there.negative, (there.n * (there.n + 1)) as f64 / 2.0);
        }
    }

    #[test]
    fn ties_are_exact_where_scipy_is_approximate() {
        // NumPy 2 and SciPy 1.17.1: r = rankdata(abs(d)), sums of r over all 2^20 subsets, 2 * mean(sums <= 49.5).
        // scipy.stats.wilcoxon(d) says 0.0379.
        let d = [1, 1, 1, -1, 2, 2, -2, 3, 3, -3, 4, 4, 5, -5, 6, 6, 7, -8, 8, 9].map(f64::from);
        agrees(&d, 49.5, 0.036_827_087_402_343_75, true);
    }
}
