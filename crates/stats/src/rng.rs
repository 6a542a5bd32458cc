//! Random numbers: a seeded ChaCha8 stream, the same on every platform.
//!
//! The distributions are implemented here rather than taken from `rand`, because a library may change its mapping from
//! bits to numbers between versions, and a seed must always give the same prompt.

use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Creates a stream for `seed`. Streams of different `label`s are independent, so that the prose and the needles of
    /// one prompt do not affect each other.
    pub fn new(seed: u64, label: &str) -> Self {
        // FNV-1a of the label picks one of ChaCha's 2^64 independent streams.
        let stream = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut inner = ChaCha8Rng::seed_from_u64(seed);
        inner.set_stream(stream);
        Self(inner)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer in `0..n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "Rng::below(0)");
        // Multiply-shift (Lemire 2019) without the rejection step: its bias, n / 2^64, is negligible.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box-Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// One element of a slice.
    ///
    /// # Panics
    /// If the slice is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `k` distinct elements in random order.
    ///
    /// # Panics
    /// If there are fewer than `k`.
    pub fn sample<T: Clone>(&mut self, items: &[T], k: usize) -> Vec<T> {
        assert!(k <= items.len(), "cannot draw {k} of {}", items.len());
        let mut order: Vec<usize> = (0..items.len()).collect();
        for i in 0..k {
            let j = i + self.below(items.len() - i);
            order.swap(i, j);
        }
        order[..k].iter().map(|&i| items[i].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_stream() {
        let mut rng = Rng::new(7, "needle");
        let first: Vec<usize> = (0..6).map(|_| rng.below(1000)).collect();
        let mut again = Rng::new(7, "needle");
        assert_eq!(first, (0..6).map(|_| again.below(1000)).collect::<Vec<_>>());
        assert_ne!(first[0], Rng::new(7, "prose").below(1000));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_unit_variance() {
        let mut rng = Rng::new(1, "normal");
        let draws: Vec<f64> = (0..20_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "mean {mean}, variance {variance}");
    }

    #[test]
    fn a_sample_has_no_repeats() {
        let mut drawn = Rng::new(3, "sample").sample(&(0..50).collect::<Vec<_>>(), 50);
        drawn.sort_unstable();
        assert_eq!(drawn, (0..50).collect::<Vec<_>>());
    }
}
