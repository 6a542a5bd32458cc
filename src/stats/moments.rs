//! Mean, variance and quantiles.

/// The mean of numbers; `None` of nothing. Exact where the sum is, unlike the running mean of [`Moments`].
pub fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// Count, mean and variance of a stream of numbers in one pass (Welford 1962), without the cancellation of
/// Σx² − (Σx)²/n.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    n: u64,
    mean: f64,
    /// Σ (x − mean)².
    squares: f64,
}

impl Moments {
    /// Takes in one number.
    pub fn push(&mut self, x: f64) {
        self.n += 1;
        let before = x - self.mean;
        self.mean += before / self.n as f64;
        self.squares += before * (x - self.mean);
    }

    /// How many numbers were taken in.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The mean; `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then_some(self.mean)
    }

    /// The sample variance Σ (x − mean)² / (n − 1); `None` of fewer than two numbers.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Self {
        let mut moments = Self::default();
        numbers.into_iter().for_each(|x| moments.push(x));
        moments
    }
}

/// The `q`-quantile of numbers in ascending order, interpolated linearly between neighbours (type 7 of Hyndman & Fan
/// 1996, the default of R and NumPy).
///
/// # Panics
/// If there are no numbers or `q` is outside 0..=1.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    assert!(!sorted.is_empty(), "quantile of nothing");
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
    fn nothing_has_no_mean_and_one_number_no_variance() {
        assert_eq!(mean(&[]), None);
        assert_eq!(Moments::default().mean(), None);
        assert_eq!(Moments::from_iter([4.0]).mean(), Some(4.0));
        assert_eq!(Moments::from_iter([4.0]).variance(), None);
    }

    proptest! {
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
