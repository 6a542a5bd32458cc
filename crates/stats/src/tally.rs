//! Summary of a stream of numbers, for finding outliers, and its largest magnitudes.

use super::simd::max_magnitude;
use super::{Histogram, Moments};
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

    /// The largest magnitude; `None` without numbers.
    pub fn max(&self) -> Option<f32> {
        self.top.magnitude(1)
    }

    /// The median magnitude from the histogram, within a factor of 1 ± 2^-8.
    pub fn median(&self) -> Option<f64> {
        self.histogram.median()
    }

    /// The largest magnitude over the median magnitude; `None` if the median is 0.
    pub fn max_over_median(&self) -> Option<f64> {
        let median = self.median().filter(|&median| median > 0.0)?;
        Some(f64::from(self.max()?) / median)
    }

    /// The share of numbers more than `sigmas` population standard deviations from the mean, on either side
    /// (the outliers of Bondarenko et al. 2021, with 6). Read from the histogram, so approximate: numbers of the bin
    /// with a limit, which is under 1 % wide, count as spread evenly over it.
    pub fn share_beyond_sigmas(&self, sigmas: f64) -> Option<f64> {
        self.histogram.share_beyond(self.moments.mean()?, sigmas * self.moments.std()?)
    }
}

/// Numbers checked at once; a chunk whose largest magnitude is too small is skipped.
const CHUNK: usize = 256;

/// The `k` largest magnitudes of a stream of numbers. Numbers that are not finite are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top {
    k: usize,
    /// In descending order.
    magnitudes: Vec<f32>,
}

impl Top {
    /// Creates an empty list for the `k` largest magnitudes. Memory is allocated as numbers are added.
    pub fn new(k: usize) -> Self {
        Self { k, magnitudes: Vec::new() }
    }

    /// The `rank`-th largest magnitude, counted from 1; `None` if fewer numbers are kept.
    pub fn magnitude(&self, rank: usize) -> Option<f32> {
        self.magnitudes.get(rank.checked_sub(1)?).copied()
    }

    /// Adds numbers.
    pub fn push_all(&mut self, values: &[f32]) {
        for values in values.chunks(CHUNK) {
            if self.has_room_for(max_magnitude(values)) {
                values.iter().for_each(|value| self.push(value.abs()));
            }
        }
    }

    /// Adds the numbers of another stream.
    pub fn merge(&mut self, other: &Self) {
        other.magnitudes.iter().for_each(|&magnitude| self.push(magnitude));
    }

    fn push(&mut self, magnitude: f32) {
        if !magnitude.is_finite() || !self.has_room_for(magnitude) {
            return;
        }
        let at = self.magnitudes.partition_point(|&larger| larger >= magnitude);
        self.magnitudes.insert(at, magnitude);
        self.magnitudes.truncate(self.k);
    }

    fn has_room_for(&self, magnitude: f32) -> bool {
        self.magnitudes.len() < self.k || self.magnitudes.last().is_some_and(|&least| magnitude > least)
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
            let mean = tally.moments.mean().unwrap();
            let std = tally.moments.std().unwrap();
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
            let mut whole = Tally::new(5);
            let mut merged = Tally::new(5);
            let mut second = Tally::new(5);
            whole.add(&numbers);
            merged.add(&numbers[..cut]);
            second.add(&numbers[cut..]);
            merged.merge(&second);
            prop_assert_eq!(&merged.top, &whole.top);
            prop_assert_eq!(&merged.histogram, &whole.histogram);
            prop_assert!((merged.moments.std().unwrap() - whole.moments.std().unwrap()).abs() < 1e-9);
        }
    }

    #[test]
    fn ranks_are_counted_from_one() {
        let mut top = Top::new(3);
        top.push_all(&[1.0, -5.0, 0.5, 4.0, -2.0]);
        assert_eq!([0, 1, 3, 4].map(|rank| top.magnitude(rank)), [None, Some(5.0), Some(2.0), None]);
    }

    #[test]
    fn numbers_that_are_not_finite_are_ignored() {
        let mut top = Top::new(2);
        top.push_all(&[f32::NAN, 1.0, f32::INFINITY, 0.0, f32::NEG_INFINITY]);
        assert_eq!(top.magnitudes, [1.0, 0.0]);
    }

    proptest! {
        #[test]
        fn the_top_is_the_head_of_a_sorted_list(numbers in prop::collection::vec(-9_i8..9, 0..900), k in 0_usize..20) {
            let numbers: Vec<f32> = numbers.into_iter().map(f32::from).collect();
            let mut top = Top::new(k);
            top.push_all(&numbers);
            let mut sorted: Vec<f32> = numbers.iter().map(|x| x.abs()).collect();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.truncate(k);
            prop_assert_eq!(top.magnitudes, sorted);
        }

        #[test]
        fn merging_tops_equals_the_whole(numbers in prop::collection::vec(-50_i8..50, 0..900), cut in 0.0..1.0) {
            let numbers: Vec<f32> = numbers.into_iter().map(f32::from).collect();
            let cut = (cut * numbers.len() as f64) as usize;
            let mut whole = Top::new(7);
            let mut first = Top::new(7);
            let mut second = Top::new(7);
            whole.push_all(&numbers);
            first.push_all(&numbers[..cut]);
            second.push_all(&numbers[cut..]);
            first.merge(&second);
            prop_assert_eq!(first, whole);
        }
    }
}
