//! A histogram of numbers by sign and magnitude, fine enough for medians and tails and small enough for one per head.

use serde::{Deserialize, Serialize};

/// Mantissa bits of a bin: 128 bins per doubling.
const MANTISSA_BITS: u32 = 7;
/// Binary exponents that have bins of their own.
const EXPONENTS: std::ops::Range<i32> = -30..20;
const BINS: usize = ((EXPONENTS.end - EXPONENTS.start) as usize) << MANTISSA_BITS;

// Slots of one sign: zero, below the bins, the bins, beyond the bins, not finite.
const ZERO: usize = 0;
const BELOW: usize = 1;
const FIRST_BIN: usize = 2;
const BEYOND: usize = FIRST_BIN + BINS;
const NOT_FINITE: usize = BEYOND + 1;
const SLOTS: usize = NOT_FINITE + 1;

/// Exponent and first [`MANTISSA_BITS`] of the mantissa of the first bin, as in the bits of an `f32`.
const FIRST_CODE: u32 = ((127 + EXPONENTS.start) as u32) << MANTISSA_BITS;
const SHIFT: u32 = 23 - MANTISSA_BITS;
/// Numbers that are sorted into slots at once.
const CHUNK: usize = 256;

/// A histogram of signed numbers, 128 bins per doubling of magnitude from 2^-30 to 2^20.
///
/// Magnitudes are read back as the middle of their bin, within a factor of 1 ± 2^-8. Zeros have a slot of their own,
/// and so have magnitudes below 2^-30 and those from 2^20 on. NaNs and infinities are counted, but belong to no
/// quantile and no share. The first number allocates its 100 KiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts of positive numbers by slot, then of negative ones; empty before the first number.
    counts: Vec<u64>,
}

impl Histogram {
    /// Adds one number.
    pub fn push(&mut self, x: f32) {
        self.push_all(&[x]);
    }

    /// Adds numbers.
    pub fn push_all(&mut self, numbers: &[f32]) {
        if self.counts.is_empty() && !numbers.is_empty() {
            self.counts = vec![0; 2 * SLOTS];
        }
        let mut slots = [0_u16; CHUNK];
        for numbers in numbers.chunks(CHUNK) {
            let slots = &mut slots[..numbers.len()];
            find_slots(numbers, slots);
            for &slot in slots.iter() {
                self.counts[usize::from(slot)] += 1;
            }
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// The number of finite numbers.
    pub fn n(&self) -> u64 {
        (ZERO..=BEYOND).map(|slot| self.magnitudes(slot)).sum()
    }

    /// The number of zeros.
    pub fn zeros(&self) -> u64 {
        self.magnitudes(ZERO)
    }

    /// The number of NaNs and infinities.
    pub fn non_finite(&self) -> u64 {
        self.magnitudes(NOT_FINITE)
    }

    /// The `q`-quantile of the magnitudes, interpolated as by [`quantile`](super::quantile) and within a factor
    /// of 1 ± 2^-8 of the exact one between 2^-30 and 2^20. Smaller magnitudes count as 2^-31, larger ones as 2^20.
    /// `None` without finite numbers, or if `q` is outside 0..=1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let n = self.n();
        if n == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = q * (n - 1) as f64;
        let below = rank.floor() as u64;
        let low = self.ranked(below);
        let high = self.ranked((below + 1).min(n - 1));
        Some(low + (rank - below as f64) * (high - low))
    }

    /// The median of the magnitudes.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// The share of finite numbers x with |x - centre| > distance. Approximate: numbers of the bin with a limit
    /// count as spread evenly over the bin, magnitudes below 2^-30 count as zero, and those from 2^20 on as beyond any
    /// limit. `None` without finite numbers, if `centre` or `distance` is NaN, or if `distance` is negative.
    pub fn share_beyond(&self, centre: f64, distance: f64) -> Option<f64> {
        let n = self.n();
        if n == 0 || centre.is_nan() || distance.is_nan() || distance < 0.0 {
            return None;
        }
        let high = centre + distance;
        let low = centre - distance;
        let above = if high >= 0.0 { self.tail(0, high) } else { n as f64 - self.tail(1, -high) };
        let below = if low <= 0.0 { self.tail(1, -low) } else { n as f64 - self.tail(0, low) };
        Some((above + below) / n as f64)
    }

    /// The complementary cumulative distribution of the magnitudes: for each bin that is not empty, in
    /// ascending order, its lower edge and the share of finite numbers of at least that magnitude. Zeros and magnitudes
    /// below 2^-30 have no point, but count in the denominator.
    pub fn ccdf(&self) -> Vec<(f64, f64)> {
        let n = self.n() as f64;
        let mut at_least = 0;
        let mut points = Vec::new();
        for slot in (FIRST_BIN..=BEYOND).rev() {
            let here = self.magnitudes(slot);
            at_least += here;
            if here > 0 {
                points.push((lower_edge(slot), at_least as f64 / n));
            }
        }
        points.reverse();
        points
    }

    fn count(&self, negative: usize, slot: usize) -> u64 {
        self.counts.get(negative * SLOTS + slot).copied().unwrap_or(0)
    }

    fn magnitudes(&self, slot: usize) -> u64 {
        self.count(0, slot) + self.count(1, slot)
    }

    /// The magnitude with a rank, counted from 0 for the smallest.
    fn ranked(&self, rank: u64) -> f64 {
        let mut seen = 0;
        for slot in ZERO..=BEYOND {
            seen += self.magnitudes(slot);
            if seen > rank {
                return middle(slot);
            }
        }
        middle(BEYOND)
    }

    /// Estimates how many numbers of one sign have a magnitude above `limit` >= 0.
    fn tail(&self, negative: usize, limit: f64) -> f64 {
        let in_bins = (FIRST_BIN..BEYOND).map(|slot| {
            let low = lower_edge(slot);
            let high = lower_edge(slot + 1);
            self.count(negative, slot) as f64 * ((high - limit) / (high - low)).clamp(0.0, 1.0)
        });
        in_bins.sum::<f64>() + self.count(negative, BEYOND) as f64
    }
}

/// The smallest magnitude of a bin, or of [`BEYOND`].
fn lower_edge(slot: usize) -> f64 {
    f64::from(f32::from_bits(((slot - FIRST_BIN) as u32 + FIRST_CODE) << SHIFT))
}

/// The magnitude that represents a slot.
fn middle(slot: usize) -> f64 {
    match slot {
        ZERO => 0.0,
        BELOW => 0.5 * lower_edge(FIRST_BIN),
        BEYOND => lower_edge(BEYOND),
        _ => 0.5 * (lower_edge(slot) + lower_edge(slot + 1)),
    }
}

/// Writes the slot of each number, counted over both signs.
#[pulp::with_simd(find_slots = pulp::Arch::new())]
#[inline(always)]
fn find_slots_simd<'a, S: pulp::Simd>(_simd: S, numbers: &'a [f32], slots: &'a mut [u16]) {
    for (slot, x) in slots.iter_mut().zip(numbers) {
        *slot = slot_of(x.to_bits());
    }
}

#[inline(always)]
fn slot_of(bits: u32) -> u16 {
    let magnitude = bits & 0x7fff_ffff;
    let bin = (magnitude >> SHIFT).clamp(FIRST_CODE - 1, FIRST_CODE + BINS as u32) - (FIRST_CODE - 1) + BELOW as u32;
    let bin = if magnitude == 0 { ZERO as u32 } else { bin };
    let bin = if magnitude >= f32::INFINITY.to_bits() { NOT_FINITE as u32 } else { bin };
    (bin + (bits >> 31) * SLOTS as u32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantile;
    use proptest::prelude::*;

    fn histogram(numbers: &[f32]) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.push_all(numbers);
        histogram
    }

    #[test]
    fn every_kind_of_number_has_its_count() {
        let found = histogram(&[0.0, -0.0, 1.0, -1.0, 1e-20, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!((found.n(), found.zeros(), found.non_finite()), (6, 2, 3));
        assert_eq!((found.magnitudes(BELOW), found.magnitudes(BEYOND)), (1, 1));
    }

    #[test]
    fn bins_begin_at_their_edges() {
        let edges =
            [(2.0_f32.powi(-30), FIRST_BIN), (2.0_f32.powi(20), BEYOND), (1.0, FIRST_BIN + (30 << MANTISSA_BITS))];
        for (edge, slot) in edges {
            assert_eq!(usize::from(slot_of(edge.to_bits())), slot, "{edge}");
            assert_eq!(usize::from(slot_of(edge.next_down().to_bits())), slot - 1, "below {edge}");
            assert_eq!(usize::from(slot_of((-edge).to_bits())), SLOTS + slot, "-{edge}");
            assert_eq!(lower_edge(slot), f64::from(edge));
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantile_and_no_share() {
        let nothing = histogram(&[f32::NAN]);
        assert_eq!((nothing.median(), nothing.share_beyond(0.0, 1.0), nothing.ccdf()), (None, None, vec![]));
        assert_eq!(histogram(&[1.0]).quantile(1.5), None);
        assert_eq!(histogram(&[1.0]).share_beyond(0.0, f64::NAN), None);
    }

    #[test]
    fn tails_are_counted_on_both_sides_of_the_centre() {
        let found = histogram(&[-3.0, -1.0, 0.0, 1.0, 2.0, 6.0, 9.0, 9.0]);
        assert_eq!(found.share_beyond(0.0, 2.5), Some(4.0 / 8.0));
        assert_eq!(found.share_beyond(4.0, 3.5), Some(5.0 / 8.0), "below 0.5 and above 7.5");
        assert_eq!(found.share_beyond(-4.0, 2.5), Some(7.0 / 8.0), "below -6.5 and above -1.5");
        assert_eq!(found.share_beyond(20.0, 5.0), Some(1.0), "below 15 and above 25");
    }

    #[test]
    fn a_bin_on_the_limit_counts_in_part() {
        // The bin of 1 reaches to 1 + 2^-7.
        let found = histogram(&[1.0; 8]).share_beyond(0.0, 1.0 + 0.25 / 128.0).unwrap();
        assert!((found - 0.75).abs() < 1e-12, "{found}");
    }

    #[test]
    fn the_complementary_distribution_falls_from_the_share_of_nonzero_numbers() {
        let found = histogram(&[0.0, 1.0, -1.0, 4.0]).ccdf();
        assert_eq!(found, [(1.0, 0.75), (4.0, 0.25)]);
    }

    proptest! {
        #[test]
        fn quantiles_are_exact_to_one_part_in_256(
            numbers in prop::collection::vec(prop_oneof![-1e5_f32..1e5, -1e-3_f32..1e-3], 1..300), q in 0.0..=1.0
        ) {
            let mut sorted: Vec<f64> = numbers.iter().map(|x| f64::from(x.abs())).collect();
            sorted.sort_by(f64::total_cmp);
            let found = histogram(&numbers).quantile(q).unwrap();
            let exact = quantile(&sorted, q);
            prop_assert!((found - exact).abs() <= exact / 256.0 + 2.0_f64.powi(-30), "{found} {exact}");
        }

        #[test]
        fn merging_parts_equals_the_whole(numbers in prop::collection::vec(any::<f32>(), 0..300), cut in 0.0..1.0) {
            let (head, tail) = numbers.split_at((cut * numbers.len() as f64) as usize);
            let mut merged = histogram(head);
            merged.merge(&histogram(tail));
            prop_assert_eq!(merged, histogram(&numbers));
        }
    }
}
