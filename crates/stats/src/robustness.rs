//! Effect of the arrangement of a prompt: the best arrangement less the worst.

use super::{mean, Interval};
use crate::Rng;

/// The difference of the best and the worst of several arrangements of the same prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Robustness {
    /// Largest mean over prompts of an arrangement less the smallest.
    pub best_less_worst: f64,
    /// Its expected value if the arrangement has no effect, because noise alone makes one arrangement the best: the
    /// mean over random permutations of the arrangements of each prompt.
    pub by_chance: f64,
    /// The middle 95 % of these permutations: `best_less_worst` above it is more than chance.
    pub chance: Interval,
}

impl Robustness {
    /// Computes it from a table of prompts × arrangements and as many permutations. `None` for fewer than two prompts or
    /// arrangements, or without permutations.
    ///
    /// # Panics
    /// If prompts have different numbers of arrangements.
    pub fn new(table: &[Vec<f64>], permutations: usize, seed: u64) -> Option<Self> {
        let arrangements = table.first()?.len();
        assert!(table.iter().all(|prompt| prompt.len() == arrangements), "every prompt has every arrangement");
        if table.len() < 2 || arrangements < 2 || permutations == 0 {
            return None;
        }
        let mut exchanging = Rng::new(seed, "arrangements");
        let mut exchanged = table.to_vec();
        let mut spreads = Vec::new();
        for _ in 0..permutations {
            exchanged.iter_mut().for_each(|prompt| exchanging.shuffle(prompt));
            spreads.push(spread(&exchanged, arrangements));
        }
        spreads.sort_by(f64::total_cmp);
        Some(Self {
            best_less_worst: spread(table, arrangements),
            by_chance: mean(&spreads)?,
            chance: Interval::middle(&spreads),
        })
    }
}

/// The largest mean of a column less the smallest.
fn spread(prompts: &[Vec<f64>], arrangements: usize) -> f64 {
    let mut sums = vec![0.0; arrangements];
    for prompt in prompts {
        sums.iter_mut().zip(prompt).for_each(|(sum, x)| *sum += x);
    }
    let (lo, hi) = sums.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), &x| (lo.min(x), hi.max(x)));
    (hi - lo) / prompts.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_less_worst_is_that_of_the_means_of_arrangements() {
        let table = vec![vec![1.0, 0.0, 1.0], vec![1.0, 0.0, 0.0], vec![1.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]];
        let found = Robustness::new(&table, 400, 0).unwrap();
        assert_eq!(found.best_less_worst, 0.75);
        assert!(found.chance.contains(found.by_chance) && found.by_chance < 0.75, "{found:?}");
    }

    #[test]
    fn arrangements_that_do_not_matter_spread_as_much_as_chance_says() {
        let mut rng = Rng::new(8, "hits");
        let mut spreads = Vec::new();
        let mut by_chance = Vec::new();
        for seed in 0..800 {
            let mut table = vec![vec![0.0; 4]; 20];
            table.iter_mut().flatten().for_each(|hit| *hit = f64::from(u8::from(rng.unit() < 0.6)));
            let found = Robustness::new(&table, 50, seed).unwrap();
            spreads.push(found.best_less_worst);
            by_chance.push(found.by_chance);
        }
        let found = mean(&spreads).unwrap();
        let by_chance = mean(&by_chance).unwrap();
        assert!(found > 0.1 && (found - by_chance).abs() < 0.01, "{found} {by_chance}");
    }

    #[test]
    fn one_prompt_or_one_arrangement_has_no_best() {
        assert_eq!(Robustness::new(&[], 10, 0), None);
        assert_eq!(Robustness::new(&[vec![1.0, 0.0]], 10, 0), None);
        assert_eq!(Robustness::new(&[vec![1.0], vec![0.0]], 10, 0), None);
    }
}
