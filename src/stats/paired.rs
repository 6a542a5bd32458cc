//! Paired comparison of two models on the same prompts.

use super::{bootstrap_mean, mean, Interval};

/// Difference of `b` from the baseline `a` over pairs of measurements on the same prompts.
///
/// Pairing removes the difficulty of the prompts from the comparison, so the interval of the differences b − a is
/// usually much narrower than those of `a` and `b` suggest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Number of pairs.
    pub n: usize,
    /// Mean of the baseline.
    pub mean_a: f64,
    /// Mean of the other.
    pub mean_b: f64,
    /// Mean of b − a.
    pub diff: f64,
    /// Lower end of the 95 % bootstrap interval of `diff`.
    pub lo: f64,
    /// Upper end of the 95 % bootstrap interval of `diff`.
    pub hi: f64,
    /// Pairs in which b > a.
    pub wins: usize,
    /// Pairs in which b = a.
    pub ties: usize,
    /// Pairs in which b < a.
    pub losses: usize,
}

impl Paired {
    /// Compares pairs `(a, b)`. `None` without pairs, or if a number is not finite.
    pub fn new(pairs: &[(f64, f64)], resamples: usize, seed: u64) -> Option<Self> {
        if !pairs.iter().all(|(a, b)| a.is_finite() && b.is_finite()) {
            return None;
        }
        let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
        let Interval { lo, hi } = bootstrap_mean(&differences, resamples, seed)?;
        Some(Self {
            n: pairs.len(),
            mean_a: mean(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>())?,
            mean_b: mean(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>())?,
            diff: mean(&differences)?,
            lo,
            hi,
            wins: differences.iter().filter(|&&d| d > 0.0).count(),
            ties: differences.iter().filter(|&&d| d == 0.0).count(),
            losses: differences.iter().filter(|&&d| d < 0.0).count(),
        })
    }

    /// Returns the interval of `diff`.
    pub fn interval(&self) -> Interval {
        Interval { lo: self.lo, hi: self.hi }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn the_difference_is_b_minus_the_baseline_a() {
        let paired = Paired::new(&[(0.0, 1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0)], 1000, 0).unwrap();
        assert_eq!((paired.n, paired.mean_a, paired.mean_b, paired.diff), (4, 0.5, 0.75, 0.25));
        assert_eq!((paired.wins, paired.ties, paired.losses), (2, 1, 1));
        assert!(paired.interval().contains(0.0));
    }

    #[test]
    fn pairing_finds_a_small_shift_among_very_different_prompts() {
        let mut rng = Rng::new(5, "pairs");
        let pairs: Vec<(f64, f64)> = (0..50)
            .map(|_| {
                let prompt = 10.0 * rng.normal();
                (prompt + 0.1 * rng.normal(), prompt + 0.2 + 0.1 * rng.normal())
            })
            .collect();
        let paired = Paired::new(&pairs, 2000, 0).unwrap();
        assert!(!paired.interval().contains(0.0) && paired.interval().contains(0.2), "{paired:?}");
    }

    #[test]
    fn no_pairs_and_broken_numbers_give_no_comparison() {
        assert_eq!(Paired::new(&[], 100, 0), None);
        assert_eq!(Paired::new(&[(0.1, f64::NAN), (0.1, 0.2)], 100, 0), None);
    }

    proptest! {
        #[test]
        fn swapping_the_models_turns_the_comparison_round(
            pairs in prop::collection::vec((0.0..1.0, 0.0..1.0), 1..20), seed: u64
        ) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let (there, back) = (Paired::new(&pairs, 200, seed).unwrap(), Paired::new(&swapped, 200, seed).unwrap());
            prop_assert!((there.diff + back.diff).abs() < 1e-12);
            prop_assert!((there.lo + back.hi).abs() < 1e-12 && (there.hi + back.lo).abs() < 1e-12);
            prop_assert_eq!((there.wins, there.ties, there.losses), (back.losses, back.ties, back.wins));
        }
    }
}
