//! Two recipes, each trained several times, measured on the same prompts: what holds beyond these seeds.
//!
//! Models that differ by training seed alone are *replicates*. A difference of two recipes varies from seed to seed and from
//! prompt to prompt, so both are drawn anew: seeds, then prompts, which all seeds share (a crossed design; the bootstrap is
//! that of Owen 2007, "The pigeonhole bootstrap", which is never too narrow by more than the number of seeds is small). A
//! handful of seeds is few: their part of the spread is widened by √(k/(k − 1)), which makes a bootstrap's variance that of
//! a sample, and the interval takes Student's quantile with k − 1 degrees of freedom instead of percentiles.

use super::{mean, Interval, Moments, LEVEL};
use crate::rng::Rng;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// Fewer seeds say nothing about others.
pub const LEAST_SEEDS: usize = 3;

/// How two recipes differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replicated {
    /// Training seeds that both recipes have.
    pub seeds: usize,
    /// Prompts.
    pub prompts: usize,
    /// Mean over seeds of the mean difference over their prompts.
    pub diff: f64,
    /// Standard deviation of the seeds' differences.
    pub deviation: f64,
    /// The 95 % interval of `diff` for other seeds and prompts of the same kind; nothing of fewer than [`LEAST_SEEDS`].
    pub interval: Option<Interval>,
}

impl Replicated {
    /// Of the paired differences of each seed: by prompt, whose number is the same for all seeds. `None` of no numbers, and
    /// when one is not finite.
    pub fn new(seeds: &[BTreeMap<u64, f64>], resamples: usize, seed: u64) -> Option<Self> {
        let means: Vec<f64> =
            seeds.iter().map(|of| mean(&of.values().copied().collect::<Vec<_>>())).collect::<Option<_>>()?;
        let spread: Moments = means.iter().copied().collect();
        let diff = mean(&means).filter(|diff| diff.is_finite())?;
        let numbers: BTreeMap<u64, usize> = {
            let mut all: Vec<u64> = seeds.iter().flat_map(|of| of.keys().copied()).collect();
            all.sort_unstable();
            all.dedup();
            all.into_iter().zip(0..).collect()
        };
        let found = Self {
            seeds: seeds.len(),
            prompts: numbers.len(),
            diff,
            deviation: spread.variance().unwrap_or(0.0).sqrt(),
            interval: None,
        };
        if seeds.len() < LEAST_SEEDS || resamples < 2 {
            return Some(found);
        }
        let of_seed = |of: &BTreeMap<u64, f64>| of.iter().map(|(prompt, x)| (numbers[prompt], *x)).collect();
        let table: Vec<Vec<(usize, f64)>> = seeds.iter().map(of_seed).collect();
        let half = half_width(&table, numbers.len(), resamples, seed)?;
        Some(Self { interval: Some(Interval { lo: diff - half, hi: diff + half }), ..found })
    }
}

/// Half the width of the interval, from the variance of means over seeds and prompts that are drawn again and again.
fn half_width(seeds: &[Vec<(usize, f64)>], prompts: usize, resamples: usize, seed: u64) -> Option<f64> {
    let mut rng = Rng::new(seed, "replicates");
    let k = seeds.len();
    let mut weights = vec![0.0; prompts];
    let mut draw = || {
        weights.fill(0.0);
        (0..prompts).for_each(|_| weights[rng.below(prompts)] += 1.0);
        let drawn: Vec<usize> = (0..k).map(|_| rng.below(k)).collect();
        let means = drawn.iter().filter_map(|&i| weighted_mean(&seeds[i], &weights));
        mean(&means.collect::<Vec<_>>())
    };
    let means: Moments = (0..resamples).filter_map(|_| draw()).collect();
    let k = k as f64;
    let error = (means.variance()? * k / (k - 1.0)).sqrt();
    Some(StudentsT::new(0.0, 1.0, k - 1.0).ok()?.inverse_cdf(0.5 + LEVEL / 2.0) * error)
}

/// The mean of the numbers of some prompts, as often as each was drawn; nothing if none was.
fn weighted_mean(numbers: &[(usize, f64)], weights: &[f64]) -> Option<f64> {
    let add = |(sum, n): (f64, f64), &(prompt, x): &(usize, f64)| (sum + weights[prompt] * x, n + weights[prompt]);
    let (sum, n) = numbers.iter().fold((0.0, 0.0), add);
    (n > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of `seeds` seeds on the same `prompts` prompts, about 0.3: a part of each seed, of each prompt, and noise.
    fn sample(rng: &mut Rng, (seeds, prompts): (usize, u64), of_seed: f64, of_prompt: f64) -> Vec<BTreeMap<u64, f64>> {
        let difficulty: Vec<f64> = (0..prompts).map(|_| of_prompt * rng.normal()).collect();
        let mut of_one = |_| {
            let level = 0.3 + of_seed * rng.normal();
            (0..prompts).map(|p| (p, level + difficulty[p as usize] + 0.5 * rng.normal())).collect()
        };
        (0..seeds).map(&mut of_one).collect()
    }

    #[test]
    fn the_interval_covers_other_seeds_and_prompts_as_often_as_it_says() {
        let mut rng = Rng::new(31, "replicates");
        for (seeds, of_seed, of_prompt) in [(3, 1.0, 1.0), (5, 1.0, 0.5), (5, 0.2, 1.0), (8, 1.0, 0.0)] {
            let covers = (0..600).filter(|&i| {
                let sample = sample(&mut rng, (seeds, 20), of_seed, of_prompt);
                Replicated::new(&sample, 300, i).unwrap().interval.unwrap().contains(0.3)
            });
            let coverage = covers.count() as f64 / 600.0;
            assert!((0.93..=1.0).contains(&coverage), "{seeds} seeds, {of_seed}, {of_prompt}: {coverage}");
        }
    }

    #[test]
    fn prompts_alone_would_cover_far_less() {
        // What resampling the prompts of one seed says of other seeds: the reason for replicates.
        let mut rng = Rng::new(32, "replicates");
        let covers = (0..300).filter(|&i| {
            let one = sample(&mut rng, (1, 40), 1.0, 0.5).remove(0);
            let numbers: Vec<f64> = one.into_values().collect();
            crate::stats::bootstrap_mean(&numbers, 200, i).unwrap().contains(0.3)
        });
        assert!((covers.count() as f64) < 0.5 * 300.0);
    }

    #[test]
    fn without_any_noise_of_prompts_it_is_students_interval() {
        let seeds: Vec<BTreeMap<u64, f64>> = [0.1, 0.4, 0.2, 0.5].iter().map(|&x| [(0, x), (1, x)].into()).collect();
        let found = Replicated::new(&seeds, 20_000, 0).unwrap();
        // SciPy: t.ppf(0.975, 3) * std(ddof=1) / sqrt(4) = 3.182446 * 0.182574 / 2.
        let half = 0.290_514;
        let Interval { lo, hi } = found.interval.unwrap();
        assert!((found.diff - 0.3).abs() < 1e-12 && (found.deviation - 0.182_574).abs() < 1e-6);
        assert!(((hi - lo) / 2.0 - half).abs() < 0.02 * half, "{lo} {hi}");
    }

    #[test]
    fn two_seeds_do_not_generalise() {
        let two: Vec<BTreeMap<u64, f64>> = vec![[(0, 0.1), (1, 0.2)].into(), [(0, 0.3), (1, 0.4)].into()];
        let found = Replicated::new(&two, 100, 0).unwrap();
        assert_eq!((found.seeds, found.prompts, found.interval), (2, 2, None));
        assert!((found.diff - 0.25).abs() < 1e-12);
    }

    #[test]
    fn nothing_and_broken_numbers_have_no_difference() {
        assert_eq!(Replicated::new(&[], 100, 0), None);
        assert_eq!(Replicated::new(&[BTreeMap::new()], 100, 0), None);
        assert_eq!(Replicated::new(&[[(0, f64::NAN)].into()], 100, 0), None);
    }
}
