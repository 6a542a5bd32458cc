//! Stability of a ranking.

use crate::base::rng::Rng;

/// Default number of bootstrap resamples.
pub const RESAMPLES: usize = 10_000;

/// Returns, for each item, the fraction of bootstrap resamples in which it is among the `k` items with the largest means.
///
/// `items[i][p]` is item i measured on prompt p. Prompts are drawn with replacement, the same ones for all items. An
/// item that was not measured on all prompts is never among the largest.
///
/// # Panics
/// If there are no resamples.
pub fn rank_stability(items: &[Vec<f64>], k: usize, resamples: usize, seed: u64) -> Vec<f64> {
    assert!(resamples > 0, "no resamples");
    let prompts = items.iter().map(Vec::len).max().unwrap_or(0);
    let mut rng = Rng::new(seed, "rank stability");
    let mut among = vec![0usize; items.len()];
    for _ in 0..resamples {
        let drawn: Vec<usize> = (0..prompts).map(|_| rng.below(prompts)).collect();
        let total = |item: &Vec<f64>| match item.len() {
            n if n == prompts => drawn.iter().map(|&p| item[p]).sum(),
            _ => f64::NEG_INFINITY,
        };
        let totals: Vec<f64> = items.iter().map(total).collect();
        let mut largest_first: Vec<usize> = (0..items.len()).collect();
        largest_first.sort_by(|&a, &b| totals[b].total_cmp(&totals[a]));
        let counted = largest_first.into_iter().filter(|&i| totals[i] > f64::NEG_INFINITY);
        counted.take(k).for_each(|i| among[i] += 1);
    }
    among.into_iter().map(|n| n as f64 / resamples as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_largest_is_always_among_the_first() {
        let items = [vec![0.9, 0.8, 0.95], vec![0.1, 0.2, 0.1], vec![0.5, 0.6, 0.4]];
        assert_eq!(rank_stability(&items, 1, 200, 0), [1.0, 0.0, 0.0]);
        assert_eq!(rank_stability(&items, 2, 200, 0), [1.0, 0.0, 1.0]);
    }

    #[test]
    fn equals_share_the_first_place() {
        let items = [vec![1.0, 0.0, 1.0, 0.0], vec![0.0, 1.0, 0.0, 1.0], vec![-1.0; 4]];
        let found = rank_stability(&items, 1, 2000, 7);
        assert!((0.3..0.9).contains(&found[0]) && found[2] == 0.0, "{found:?}");
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(found, rank_stability(&items, 1, 2000, 7));
    }
}
