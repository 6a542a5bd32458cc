//! The largest magnitudes of a stream.

use super::simd::max_magnitude;
use serde::{Deserialize, Serialize};

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

    /// Returns the `rank`-th largest magnitude, counted from 1; `None` if fewer numbers are kept.
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
        fn merging_parts_equals_the_whole(numbers in prop::collection::vec(-50_i8..50, 0..900), cut in 0.0..1.0) {
            let numbers: Vec<f32> = numbers.into_iter().map(f32::from).collect();
            let cut = (cut * numbers.len() as f64) as usize;
            let (mut whole, mut first, mut second) = (Top::new(7), Top::new(7), Top::new(7));
            whole.push_all(&numbers);
            first.push_all(&numbers[..cut]);
            second.push_all(&numbers[cut..]);
            first.merge(&second);
            prop_assert_eq!(first, whole);
        }
    }
}
