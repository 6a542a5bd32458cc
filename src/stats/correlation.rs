//! Correlation of two measurements of the same items.

use super::{mean, quantile, Interval, LEVEL};
use crate::base::rng::Rng;

/// A coefficient of correlation: [`pearson`] or [`spearman`].
pub type Correlation = fn(&[f64], &[f64]) -> Option<f64>;

/// Returns Pearson's correlation. `None` if there are fewer than two items, or all numbers of one side are equal.
///
/// # Panics
/// If there are not as many numbers of both.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "two numbers for each item");
    let (mean_x, mean_y) = (mean(x)?, mean(y)?);
    let product = |a: &[f64], mean_a: f64, b: &[f64], mean_b: f64| {
        a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>()
    };
    let spread = (product(x, mean_x, x, mean_x) * product(y, mean_y, y, mean_y)).sqrt();
    (spread > 0.0).then(|| product(x, mean_x, y, mean_y) / spread)
}

/// Returns Spearman's (1904) rank correlation: Pearson's correlation of the ranks, with mean ranks for ties. `None` as for
/// [`pearson`].
///
/// # Panics
/// If there are not as many numbers of both.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// Returns the correlation of the items' means over prompts, with its 95 % bootstrap interval over prompts; no interval of
/// a single prompt. `x[i][p]` and `y[i][p]` are item i measured on prompt p. Prompts are drawn with replacement, the same
/// ones for all items and both measurements. `None` without a correlation, or if items were measured on different numbers
/// of prompts.
pub fn correlation_over_prompts(
    correlation: Correlation,
    x: &[Vec<f64>],
    y: &[Vec<f64>],
    resamples: usize,
    seed: u64,
) -> Option<(f64, Option<Interval>)> {
    let prompts = x.first()?.len();
    if prompts == 0 || x.len() != y.len() || x.iter().chain(y).any(|item| item.len() != prompts) {
        return None;
    }
    let of = |drawn: &[usize]| {
        let sums = |items: &[Vec<f64>]| -> Vec<f64> {
            items.iter().map(|item| drawn.iter().map(|&p| item[p]).sum()).collect()
        };
        correlation(&sums(x), &sums(y))
    };
    let found = of(&(0..prompts).collect::<Vec<_>>())?;
    let mut rng = Rng::new(seed, "rank correlation");
    let mut draw = || (0..prompts).map(|_| rng.below(prompts)).collect::<Vec<_>>();
    let mut resampled: Vec<f64> = (0..resamples).filter_map(|_| of(&draw())).collect();
    resampled.sort_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    let interval = || Interval { lo: quantile(&resampled, tail), hi: quantile(&resampled, 1.0 - tail) };
    Some((found, (prompts > 1 && !resampled.is_empty()).then(interval)))
}

/// Ranks from 1 on; equal numbers share the mean of their ranks.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![0.0; numbers.len()];
    let mut before = 0;
    for ties in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        let rank = before as f64 + (ties.len() as f64 + 1.0) / 2.0;
        ties.iter().for_each(|&i| ranks[i] = rank);
        before += ties.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_agree_with_scipy() {
        // scipy 1.15.2: spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]).statistic
        let found = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5.0, 6.0, 7.0, 8.0, 7.0]).unwrap();
        assert!((found - 0.820_782_681_668_123_3).abs() < 1e-12, "{found}");
        // pearsonr of the same
        let found = pearson(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5.0, 6.0, 7.0, 8.0, 7.0]).unwrap();
        assert!((found - 0.832_050_294_337_843_7).abs() < 1e-12, "{found}");
        assert_eq!(spearman(&[1.0, 2.0, 9.0], &[5.0, 4.0, -3.0]), Some(-1.0));
        assert_eq!(spearman(&[1.0, 2.0], &[3.0, 3.0]), None);
        assert_eq!(spearman(&[], &[]), None);
    }

    #[test]
    fn the_interval_over_prompts_has_no_width_if_prompts_agree_and_much_if_they_do_not() {
        let x: Vec<Vec<f64>> = (0..8).map(|i| vec![f64::from(i); 6]).collect();
        let (r, interval) = correlation_over_prompts(spearman, &x, &x, 200, 0).unwrap();
        assert_eq!((r, interval), (1.0, Some(Interval { lo: 1.0, hi: 1.0 })));
        let mut rng = Rng::new(1, "noise");
        let noisy: Vec<Vec<f64>> =
            (0..8).map(|i| (0..6).map(|_| f64::from(i) + 9.0 * rng.normal()).collect()).collect();
        let (r, interval) = correlation_over_prompts(spearman, &x, &noisy, 500, 0).unwrap();
        let interval = interval.unwrap();
        assert!(r < 1.0 && interval.hi - interval.lo > 0.2, "{r} {interval:?}");
        assert_eq!(correlation_over_prompts(spearman, &x, &noisy, 500, 0), Some((r, Some(interval))));
    }

    #[test]
    fn items_of_different_prompts_have_no_correlation_and_one_prompt_no_interval() {
        assert_eq!(
            correlation_over_prompts(spearman, &[vec![1.0], vec![2.0, 3.0]], &[vec![1.0], vec![2.0]], 9, 0),
            None
        );
        assert_eq!(
            correlation_over_prompts(spearman, &[vec![1.0], vec![2.0]], &[vec![3.0], vec![4.0]], 9, 0),
            Some((1.0, None))
        );
    }
}
