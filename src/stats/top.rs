//! The largest numbers of a stream.

use super::simd::max_magnitude;
use serde::{Deserialize, Serialize};

/// Numbers checked at once; a chunk whose largest magnitude is too small is skipped.
const CHUNK: usize = 256;

/// One of the largest numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry<P> {
    /// The number, with its sign.
    pub value: f32,
    /// Its label, for example its position.
    pub place: P,
}

/// The `k` numbers of largest magnitude of a stream. Of equal magnitudes the first ones are kept; numbers that are not
/// finite are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top<P> {
    k: usize,
    /// In descending order of magnitude; equal magnitudes in the order of the stream.
    entries: Vec<Entry<P>>,
}

impl<P: Copy> Top<P> {
    /// Creates an empty list for the `k` largest numbers. Memory is allocated as numbers are added.
    pub fn new(k: usize) -> Self {
        Self { k, entries: Vec::new() }
    }

    /// Returns the largest numbers so far, in descending order of magnitude.
    pub fn entries(&self) -> &[Entry<P>] {
        &self.entries
    }

    /// Returns the `rank`-th largest magnitude, counted from 1; `None` if fewer numbers are kept.
    pub fn magnitude(&self, rank: usize) -> Option<f32> {
        self.entries.get(rank.checked_sub(1)?).map(|entry| entry.value.abs())
    }

    /// Adds one number.
    pub fn push(&mut self, value: f32, place: P) {
        let magnitude = value.abs();
        if !magnitude.is_finite() || !self.has_room_for(magnitude) {
            return;
        }
        let at = self.entries.partition_point(|entry| entry.value.abs() >= magnitude);
        if self.entries.len() == self.k {
            self.entries.pop();
        }
        self.entries.insert(at, Entry { value, place });
    }

    /// Adds numbers in order; the i-th has the label `place(i)`.
    pub fn push_all(&mut self, values: &[f32], place: impl Fn(usize) -> P) {
        for (chunk, values) in values.chunks(CHUNK).enumerate() {
            if self.has_room_for(max_magnitude(values)) {
                for (i, &value) in values.iter().enumerate() {
                    self.push(value, place(chunk * CHUNK + i));
                }
            }
        }
    }

    /// Adds the numbers of a later part of the stream.
    pub fn merge(&mut self, later: &Self) {
        for entry in &later.entries {
            self.push(entry.value, entry.place);
        }
    }

    /// Maps the labels of the numbers.
    pub fn map<Q>(self, place: impl Fn(P) -> Q) -> Top<Q> {
        let renamed = |entry: Entry<P>| Entry { value: entry.value, place: place(entry.place) };
        Top { k: self.k, entries: self.entries.into_iter().map(renamed).collect() }
    }

    fn has_room_for(&self, magnitude: f32) -> bool {
        self.k > 0 && (self.entries.len() < self.k || magnitude > self.entries[self.k - 1].value.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(top: &Top<usize>) -> Vec<(f32, usize)> {
        top.entries().iter().map(|entry| (entry.value, entry.place)).collect()
    }

    #[test]
    fn the_largest_magnitudes_keep_their_sign_and_place() {
        let mut top = Top::new(3);
        top.push_all(&[1.0, -5.0, 0.5, 4.0, -2.0], |i| i + 10);
        assert_eq!(values(&top), [(-5.0, 11), (4.0, 13), (-2.0, 14)]);
        assert_eq!((top.magnitude(1), top.magnitude(3), top.magnitude(4)), (Some(5.0), Some(2.0), None));
        assert_eq!(top.magnitude(0), None);
    }

    #[test]
    fn numbers_that_are_not_finite_are_ignored() {
        let mut top = Top::new(2);
        top.push_all(&[f32::NAN, 1.0, f32::INFINITY, 0.0, f32::NEG_INFINITY], |i| i);
        assert_eq!(values(&top), [(1.0, 1), (0.0, 3)]);
    }

    #[test]
    fn a_list_of_length_zero_stays_empty() {
        let mut top = Top::new(0);
        top.push_all(&[1.0, 2.0], |i| i);
        assert_eq!(values(&top), []);
    }

    proptest! {
        #[test]
        fn the_top_is_the_head_of_a_stable_sort(numbers in prop::collection::vec(-9_i8..9, 0..900), k in 0_usize..20) {
            let numbers: Vec<f32> = numbers.into_iter().map(f32::from).collect();
            let mut top = Top::new(k);
            top.push_all(&numbers, |i| i);
            let mut sorted: Vec<(f32, usize)> = numbers.iter().copied().zip(0..).collect();
            sorted.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
            sorted.truncate(k);
            prop_assert_eq!(values(&top), sorted);
        }

        #[test]
        fn merging_parts_equals_the_whole(numbers in prop::collection::vec(-50_i8..50, 0..900), cut in 0.0..1.0) {
            let numbers: Vec<f32> = numbers.into_iter().map(f32::from).collect();
            let cut = (cut * numbers.len() as f64) as usize;
            let (mut whole, mut first, mut second) = (Top::new(7), Top::new(7), Top::new(7));
            whole.push_all(&numbers, |i| i);
            first.push_all(&numbers[..cut], |i| i);
            second.push_all(&numbers[cut..], |i| i + cut);
            first.merge(&second);
            prop_assert_eq!(first, whole);
        }
    }
}
