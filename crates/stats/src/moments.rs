//! Mean, variance, kurtosis and quantiles.

use super::simd::{central_powers, sum};
use serde::{Deserialize, Serialize};

/// The mean of numbers; `None` without numbers. Exact if the sum is, unlike the running mean of [`Moments`].
pub fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// Count, mean and central moments up to the fourth of a stream of numbers, computed in one pass without the
/// cancellation of Σx² − (Σx)²/n (Welford 1962; Pébay 2008 for the higher moments and for merging).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    n: u64,
    mean: f64,
    /// Σ (x − mean)².
    squares: f64,
    /// Σ (x − mean)³.
    cubes: f64,
    /// Σ (x − mean)⁴.
    fourths: f64,
}

impl Moments {
    /// Computes the moments of the finite numbers of a slice, vectorised: first the mean, then the powers of the
    /// differences from it.
    pub fn of_finite(numbers: &[f32]) -> Self {
        if numbers.is_empty() {
            return Self::default();
        }
        let total = sum(numbers);
        // A sum of finite f32 numbers cannot overflow f64, so the total is finite only if all numbers are.
        if !total.is_finite() {
            return Self::of_finite(&numbers.iter().copied().filter(|x| x.is_finite()).collect::<Vec<f32>>());
        }
        let mean = total / numbers.len() as f64;
        let [squares, cubes, fourths] = central_powers(numbers, mean);
        Self { n: numbers.len() as u64, mean, squares, cubes, fourths }
    }

    /// Adds one number.
    pub fn push(&mut self, x: f64) {
        let n = (self.n + 1) as f64;
        let before = x - self.mean;
        let step = before / n;
        let after = before * (1.0 - 1.0 / n);
        let both = before * after;
        self.fourths +=
            both * step * step * (n * n - 3.0 * n + 3.0) + 6.0 * step * step * self.squares - 4.0 * step * self.cubes;
        self.cubes += both * step * (n - 2.0) - 3.0 * step * self.squares;
        self.n += 1;
        self.mean += step;
        self.squares += before * (x - self.mean);
    }

    /// Adds the numbers of another stream (the pairwise update of Pébay 2008).
    pub fn merge(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = *other;
            return;
        }
        let a = self.n as f64;
        let b = other.n as f64;
        let n = a + b;
        let step = (other.mean - self.mean) / n;
        let square = step * step;
        self.fourths += other.fourths
            + a * b * (a * a - a * b + b * b) * n * square * square
            + 6.0 * square * (a * a * other.squares + b * b * self.squares)
            + 4.0 * step * (a * other.cubes - b * self.cubes);
        self.cubes +=
            other.cubes + a * b * (a - b) * n * square * step + 3.0 * step * (a * other.squares - b * self.squares);
        self.squares += other.squares + a * b * n * square;
        self.mean += b * step;
        self.n += other.n;
    }

    /// The number of numbers.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The mean; `None` without numbers.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then_some(self.mean)
    }

    /// The sample variance Σ (x − mean)² / (n − 1); `None` for fewer than two numbers.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }

    /// The population standard deviation √(Σ (x − mean)² / n); `None` without numbers.
    pub fn std(&self) -> Option<f64> {
        (self.n > 0).then(|| (self.squares / self.n as f64).sqrt())
    }

    /// The population kurtosis m₄ / m₂², *not* the excess kurtosis: 3 for normal numbers. `None` if all numbers
    /// are equal.
    pub fn kurtosis(&self) -> Option<f64> {
        (self.squares > 0.0).then(|| self.n as f64 * self.fourths / (self.squares * self.squares))
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Self {
        let mut moments = Self::default();
        numbers.into_iter().for_each(|x| moments.push(x));
        moments
    }
}

/// The `q`-quantile of numbers in ascending order, interpolated linearly between neighbours (type 7 of Hyndman
/// & Fan 1996, the default of R and NumPy).
///
/// # Panics
/// If there are no numbers or `q` is outside 0..=1.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    assert!(!sorted.is_empty(), "quantile of an empty slice");
    assert!((0.0..=1.0).contains(&q), "quantile {q} is outside 0..=1");
    let rank = q * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (rank - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NUMBERS: [f64; 7] = [2.5, 3.25, -1.0, 7.0, 4.125, 0.0, 9.75];

    #[test]
    fn mean_and_variance_agree_with_numpy() {
        // NumPy 2.4.6: np.mean(x), np.var(x, ddof=1)
        let moments: Moments = NUMBERS.into_iter().collect();
        assert!((mean(&NUMBERS).unwrap() - 3.660_714_285_714_285_6).abs() < 1e-14);
        assert!((moments.mean().unwrap() - 3.660_714_285_714_285_6).abs() < 1e-14);
        assert!((moments.variance().unwrap() - 14.180_803_571_428_57).abs() < 1e-13);
    }

    #[test]
    fn quantiles_agree_with_numpy() {
        // NumPy 2.4.6: np.quantile(x, q)
        let mut sorted = NUMBERS;
        sorted.sort_by(f64::total_cmp);
        let expected = [(0.0, -1.0), (0.025, -0.85), (0.1, -0.4), (0.5, 3.25), (0.975, 9.337_5), (1.0, 9.75)];
        for (q, value) in expected {
            assert!((quantile(&sorted, q) - value).abs() < 1e-12, "q {q}: {}", quantile(&sorted, q));
        }
    }

    #[test]
    fn a_large_offset_does_not_cancel_the_variance() {
        let shifted: Moments = NUMBERS.iter().map(|x| x + 1e9).collect();
        assert!((shifted.variance().unwrap() - 14.180_803_571_428_57).abs() < 1e-5);
    }

    #[test]
    fn higher_moments_agree_with_scipy() {
        // SciPy 1.17.1, NumPy 2.4.6: np.std(x), scipy.stats.skew(x), scipy.stats.kurtosis(x, fisher=False)
        let narrow: Vec<f32> = NUMBERS.iter().map(|&x| x as f32).collect();
        for moments in [NUMBERS.into_iter().collect(), Moments::of_finite(&narrow)] {
            assert!((moments.std().unwrap() - 3.486_398_498_421_532_4).abs() < 1e-13);
            assert!((moments.kurtosis().unwrap() - 2.081_361_123_663_917_6).abs() < 1e-13);
        }
    }

    #[test]
    fn normal_numbers_have_kurtosis_three() {
        let mut rng = crate::Rng::new(2, "normal");
        let numbers: Vec<f32> = (0..100_000).map(|_| rng.normal() as f32).collect();
        let moments = Moments::of_finite(&numbers);
        assert!((moments.kurtosis().unwrap() - 3.0).abs() < 0.05);
    }

    #[test]
    fn only_finite_numbers_of_a_slice_count() {
        let moments = Moments::of_finite(&[f32::NAN, 1.0, f32::INFINITY, 3.0, f32::NEG_INFINITY]);
        assert_eq!((moments.n(), moments.mean(), moments.variance()), (2, Some(2.0), Some(2.0)));
        assert_eq!(Moments::of_finite(&[f32::NAN]), Moments::default());
    }

    #[test]
    fn equal_numbers_have_no_shape() {
        let moments = Moments::of_finite(&[0.1; 7]);
        assert_eq!((moments.std(), moments.kurtosis()), (Some(0.0), None));
    }

    #[test]
    fn an_empty_slice_has_no_mean_and_one_number_no_variance() {
        assert_eq!(mean(&[]), None);
        assert_eq!(Moments::default().mean(), None);
        assert_eq!(Moments::from_iter([4.0]).mean(), Some(4.0));
        assert_eq!(Moments::from_iter([4.0]).variance(), None);
    }

    proptest! {
        #[test]
        fn pushing_merging_and_slices_agree(
            numbers in prop::collection::vec(-100.0_f32..100.0, 2..200), cut in 0.0..1.0, offset in -1e3_f32..1e3
        ) {
            let numbers: Vec<f32> = numbers.iter().map(|x| x + offset).collect();
            let (head, tail) = numbers.split_at((cut * numbers.len() as f64) as usize);
            let pushed: Moments = numbers.iter().map(|&x| f64::from(x)).collect();
            let mut merged = Moments::of_finite(head);
            merged.merge(&Moments::of_finite(tail));
            prop_assert_eq!(merged.n(), pushed.n());
            let std = pushed.std().unwrap();
            prop_assume!(std > 1e-2);
            prop_assert!((merged.mean().unwrap() - pushed.mean().unwrap()).abs() < 1e-9);
            prop_assert!((merged.std().unwrap() / std - 1.0).abs() < 1e-9);
            prop_assert!((merged.kurtosis().unwrap() / pushed.kurtosis().unwrap() - 1.0).abs() < 1e-6);
        }

        #[test]
        fn quantiles_rise_with_q_and_stay_within_the_data(
            mut numbers in prop::collection::vec(-1e6..1e6, 1..40), q in 0.0..1.0, step in 0.0..1.0
        ) {
            numbers.sort_by(f64::total_cmp);
            let higher = f64::min(q + step, 1.0);
            prop_assert!(quantile(&numbers, q) <= quantile(&numbers, higher) + 1e-9);
            prop_assert!(quantile(&numbers, q) >= numbers[0] && quantile(&numbers, q) <= numbers[numbers.len() - 1]);
        }
    }
}
