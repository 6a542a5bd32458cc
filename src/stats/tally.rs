//! Summary of a stream of numbers, for finding outliers.

use super::{Histogram, Moments, Top};
use serde::{Deserialize, Serialize};

/// Default number of largest numbers in a tally.
pub const TOP: usize = 100;

/// The largest numbers, the distribution and the moments of a stream. Merging the tallies of consecutive parts gives
/// the tally of the whole, with moments equal up to rounding. Numbers that are not finite are counted by the histogram
/// and otherwise ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The largest magnitudes, exactly.
    pub top: Top,
    /// Counts by sign and magnitude.
    pub histogram: Histogram,
    /// Moments of the signed numbers.
    pub moments: Moments,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new(TOP)
    }
}

impl Tally {
    /// Creates an empty tally that keeps the `k` largest numbers. Memory is allocated as numbers are added.
    pub fn new(k: usize) -> Self {
        Self { top: Top::new(k), histogram: Histogram::default(), moments: Moments::default() }
    }

    /// Adds numbers.
    pub fn add(&mut self, values: &[f32]) {
        self.top.push_all(values);
        self.histogram.push_all(values);
        self.moments.merge(&Moments::of_finite(values));
    }

    /// Adds the tally of a later part of the stream.
    pub fn merge(&mut self, later: &Self) {
        self.top.merge(&later.top);
        self.histogram.merge(&later.histogram);
        self.moments.merge(&later.moments);
    }

    /// Returns the largest magnitude; `None` without numbers.
    pub fn max(&self) -> Option<f32> {
        self.top.magnitude(1)
    }

    /// Returns the median magnitude from the histogram, within a factor of 1 ± 2^-8.
    pub fn median(&self) -> Option<f64> {
        self.histogram.median()
    }

    /// Returns the largest magnitude over the median magnitude; `None` if the median is 0.
    pub fn max_over_median(&self) -> Option<f64> {
        let median = self.median().filter(|&median| median > 0.0)?;
        Some(f64::from(self.max()?) / median)
    }

    /// Returns the share of numbers more than `sigmas` population standard deviations from the mean, on either side
    /// (the outliers of Bondarenko et al. 2021, with 6). Read from the histogram, so approximate: numbers of the bin
    /// with a limit, which is under 1 % wide, count as spread evenly over it.
    pub fn share_beyond_sigmas(&self, sigmas: f64) -> Option<f64> {
        self.histogram.share_beyond(self.moments.mean()?, sigmas * self.moments.std()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_giant_among_small_numbers_is_an_outlier_in_every_sense() {
        let mut numbers = [0.5_f32; 1000];
        numbers.iter_mut().step_by(2).for_each(|x| *x = -0.5);
        numbers[123] = -80.0;
        let mut tally = Tally::default();
        tally.add(&numbers);
        assert_eq!(
            (tally.max(), tally.top.magnitude(TOP), tally.top.magnitude(TOP + 1)),
            (Some(80.0), Some(0.5), None)
        );
        assert!((tally.median().unwrap() - 0.5).abs() <= 0.5 / 256.0);
        assert!((tally.max_over_median().unwrap() - 160.0).abs() < 1.0);
        // std is 2.6: only the giant lies beyond 6 of them.
        assert!((tally.share_beyond_sigmas(6.0).unwrap() - 1e-3).abs() < 1e-12);
        assert!(tally.moments.kurtosis().unwrap() > 900.0);
    }

    #[test]
    fn an_empty_tally_has_no_statistics() {
        let tally = Tally::default();
        assert_eq!((tally.max(), tally.median(), tally.max_over_median()), (None, None, None));
        assert_eq!(tally.share_beyond_sigmas(6.0), None);
    }

    proptest! {
        #[test]
        fn the_share_beyond_is_that_of_the_numbers_to_within_the_bins_on_the_limits(
            numbers in prop::collection::vec(-9.0_f32..9.0, 3..300), sigmas in 0.5..2.0
        ) {
            let mut tally = Tally::new(3);
            tally.add(&numbers);
            let (mean, std) = (tally.moments.mean().unwrap(), tally.moments.std().unwrap());
            let beyond = |sigmas: f64, slack: f64| {
                let far = |x: &&f32| (f64::from(**x) - mean).abs() > sigmas * std + slack;
                numbers.iter().filter(far).count() as f64 / numbers.len() as f64
            };
            let found = tally.share_beyond_sigmas(sigmas).unwrap();
            // A bin at a limit below 16 is at most 1/8 wide.
            prop_assert!(found <= beyond(sigmas, -0.125) + 1e-9 && found >= beyond(sigmas, 0.125) - 1e-9, "{found}");
        }

        #[test]
        fn merging_parts_equals_the_whole(numbers in prop::collection::vec(-9.0_f32..9.0, 2..600), cut in 0.0..1.0) {
            let cut = (cut * numbers.len() as f64) as usize;
            let (mut whole, mut merged, mut second) = (Tally::new(5), Tally::new(5), Tally::new(5));
            whole.add(&numbers);
            merged.add(&numbers[..cut]);
            second.add(&numbers[cut..]);
            merged.merge(&second);
            prop_assert_eq!(&merged.top, &whole.top);
            prop_assert_eq!(&merged.histogram, &whole.histogram);
            prop_assert!((merged.moments.std().unwrap() - whole.moments.std().unwrap()).abs() < 1e-9);
        }
    }
}
