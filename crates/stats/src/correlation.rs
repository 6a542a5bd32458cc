//! Correlation of two measurements of the same items, and stability of their ranking.

use super::{mean, Interval};
use crate::Rng;

/// A coefficient of correlation: [`pearson`] or [`spearman`].
pub type Correlation = fn(&[f64], &[f64]) -> Option<f64>;

/// Pearson's correlation. `None` if there are fewer than two items, or all numbers of one side are equal.
///
/// # Panics
/// If there are not as many numbers of both.
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "two numbers for each item");
    let mean_x = mean(x)?;
    let mean_y = mean(y)?;
    let spread = (co_moment(x, mean_x, x, mean_x) * co_moment(y, mean_y, y, mean_y)).sqrt();
    (spread > 0.0).then(|| co_moment(x, mean_x, y, mean_y) / spread)
}

/// Σ (a − mean of a) (b − mean of b).
fn co_moment(a: &[f64], mean_a: f64, b: &[f64], mean_b: f64) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum()
}

/// Spearman's (1904) rank correlation: Pearson's correlation of the ranks, with mean ranks for ties. `None` as for
/// [`pearson`].
///
/// # Panics
/// If there are not as many numbers of both.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    pearson(&ranks(x), &ranks(y))
}

/// The correlation of the items' means of x over one half of the prompts with those of y over the other half, as the mean of
/// both ways round: what x tells of y on other prompts. That of y with itself is its split-half reliability, which is as much as any
/// measurement can tell. `x[i][p]` and `y[i][p]` are item i measured on prompt p; every second prompt is of the second half. `None`
/// without a correlation, or if items were measured on different numbers of prompts.
pub fn correlation_on_other_prompts(correlation: Correlation, x: &[Vec<f64>], y: &[Vec<f64>]) -> Option<f64> {
    let Table { items, halves } = Table::of(x, y)?;
    correlation_of_drawn(correlation, [x, y], &items, &halves)
}

/// The 95 % interval of [`correlation_on_other_prompts`] for other items and other prompts: the middle of the correlations of
/// items and prompts of each half that are drawn with replacement, each independently of the others, the same ones for both
/// measurements (Owen 2007, "The pigeonhole bootstrap"). So it is wide where a single item decides the correlation. `None`
/// as for the correlation, and of fewer than four prompts.
pub fn correlation_interval(
    correlation: Correlation,
    x: &[Vec<f64>],
    y: &[Vec<f64>],
    resamples: usize,
    seed: u64,
) -> Option<Interval> {
    let Table { items, halves } = Table::of(x, y).filter(|table| table.halves[1].len() > 1)?;
    let mut rng = Rng::new(seed, "correlation");
    let mut drawn = |all: &Vec<usize>| all.iter().map(|_| *rng.pick(all)).collect::<Vec<_>>();
    bootstrap(resamples, || {
        let items = drawn(&items);
        let halves = [drawn(&halves[0]), drawn(&halves[1])];
        correlation_of_drawn(correlation, [x, y], &items, &halves)
    })
}

/// The middle 95 % of what drawn samples give; `None` if they give nothing.
fn bootstrap(resamples: usize, mut draw: impl FnMut() -> Option<f64>) -> Option<Interval> {
    let mut resampled: Vec<f64> = (0..resamples).filter_map(|_| draw()).collect();
    resampled.sort_by(f64::total_cmp);
    (!resampled.is_empty()).then(|| Interval::middle(&resampled))
}

/// Items, and both halves of the prompts on which all of them were measured, as indices.
struct Table {
    items: Vec<usize>,
    halves: [Vec<usize>; 2],
}

impl Table {
    /// `None` without any, or if items were measured on different numbers of prompts.
    fn of(x: &[Vec<f64>], y: &[Vec<f64>]) -> Option<Self> {
        let prompts = x.first()?.len();
        let is_table = prompts > 1 && x.len() == y.len() && x.iter().chain(y).all(|item| item.len() == prompts);
        let halves = [0, 1].map(|first| (first..prompts).step_by(2).collect());
        is_table.then(|| Self { items: (0..x.len()).collect(), halves })
    }
}

/// The correlation of the drawn items' sums of x over the drawn prompts of one half with those of y over the other.
fn correlation_of_drawn(
    correlation: Correlation,
    measured: [&[Vec<f64>]; 2],
    items: &[usize],
    halves: &[Vec<usize>; 2],
) -> Option<f64> {
    let [x, y] = measured.map(|measured| [0, 1].map(|half| sums(measured, items, &halves[half])));
    Some((correlation(&x[0], &y[1])? + correlation(&x[1], &y[0])?) / 2.0)
}

/// The sums of items over prompts.
fn sums(measured: &[Vec<f64>], items: &[usize], prompts: &[usize]) -> Vec<f64> {
    items.iter().map(|&item| prompts.iter().map(|&prompt| measured[item][prompt]).sum()).collect()
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

/// Default number of bootstrap resamples of a ranking.
pub const RESAMPLES: usize = 10_000;

/// Default number of bootstrap resamples of a correlation.
pub const CORRELATION_RESAMPLES: usize = 2000;

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
        let mut totals = vec![f64::NEG_INFINITY; items.len()];
        for (total, item) in totals.iter_mut().zip(items).filter(|(_, item)| item.len() == prompts) {
            *total = drawn.iter().map(|&p| item[p]).sum();
        }
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
    fn the_interval_has_no_width_if_all_agree_and_much_if_prompts_or_items_do_not() {
        let x: Vec<Vec<f64>> = (0..8).map(|i| vec![f64::from(i); 6]).collect();
        let interval = |y: &[Vec<f64>]| correlation_interval(pearson, &x, y, 500, 0).unwrap();
        let agreed = interval(&x);
        assert!((agreed.lo - 1.0).abs() < 1e-12 && (agreed.hi - 1.0).abs() < 1e-12, "{agreed:?}");
        let mut rng = Rng::new(1, "noise");
        let noisy: Vec<Vec<f64>> =
            (0..8).map(|i| (0..6).map(|_| f64::from(i) + 9.0 * rng.normal()).collect()).collect();
        assert!(interval(&noisy).hi - interval(&noisy).lo > 0.2, "{:?}", interval(&noisy));
        assert_eq!(interval(&noisy), interval(&noisy));
        // One item with a large number of both makes the correlation; without it there is none.
        let alone = |i: usize, other: f64| vec![if i == 0 { 50.0 } else { other }; 6];
        let x: Vec<Vec<f64>> = (0..40).map(|i| alone(i, [0.0, 1.0][i % 2])).collect();
        let y: Vec<Vec<f64>> = (0..40).map(|i| alone(i, [0.0, 0.0, 1.0, 1.0][i % 4])).collect();
        assert!(correlation_on_other_prompts(pearson, &x, &y).unwrap() > 0.99);
        assert!(correlation_on_other_prompts(pearson, &x[1..], &y[1..]).unwrap().abs() < 0.1);
        let interval = correlation_interval(pearson, &x, &y, 500, 0).unwrap();
        assert!(interval.contains(0.0) && interval.contains(0.99), "{interval:?}");
    }

    #[test]
    fn the_interval_covers_the_correlation_of_all_items_and_one_over_prompts_alone_would_not() {
        // 40 of many items whose numbers correlate by 0.6, on 10 prompts with noise of their own.
        let mut covered = 0;
        let mut covered_by_prompts = 0;
        let truth = 0.6;
        for seed in 0..300 {
            let mut rng = Rng::new(seed, "items");
            let mut x = Vec::new();
            let mut y = Vec::new();
            for _ in 0..40 {
                let a = rng.normal();
                let b = truth * a + (1.0 - truth * truth).sqrt() * rng.normal();
                let [of_a, of_b] = [a, b].map(|mean| (0..10).map(|_| mean + 0.3 * rng.normal()).collect::<Vec<f64>>());
                x.push(of_a);
                y.push(of_b);
            }
            covered += u32::from(correlation_interval(pearson, &x, &y, 300, seed).unwrap().contains(truth));
            let items: Vec<usize> = (0..40).collect();
            let mut of_prompts: Vec<f64> = (0..300)
                .filter_map(|_| {
                    let halves = [0, 1].map(|half| (0..5).map(|_| 2 * rng.below(5) + half).collect());
                    correlation_of_drawn(pearson, [&x, &y], &items, &halves)
                })
                .collect();
            of_prompts.sort_by(f64::total_cmp);
            covered_by_prompts += u32::from(Interval::middle(&of_prompts).contains(truth));
        }
        assert!((272..=294).contains(&covered) && covered_by_prompts < 90, "{covered} {covered_by_prompts} of 300");
    }

    #[test]
    fn noise_that_both_share_on_a_prompt_is_no_correlation() {
        // Items that differ in nothing but the noise of each prompt, which both measurements have.
        let mut rng = Rng::new(3, "noise");
        let x: Vec<Vec<f64>> = (0..300).map(|_| (0..10).map(|_| rng.normal()).collect()).collect();
        let found = correlation_on_other_prompts(pearson, &x, &x).unwrap();
        assert!(found.abs() < 0.15, "{found}");
        let means: Vec<f64> = x.iter().filter_map(|item| mean(item)).collect();
        assert!((pearson(&means, &means).unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn items_of_different_prompts_have_no_correlation_and_three_prompts_no_interval() {
        let x = [vec![1.0; 3], vec![2.0; 3]];
        let y = [vec![3.0; 3], vec![4.0; 3]];
        assert_eq!(correlation_on_other_prompts(spearman, &[vec![1.0], vec![2.0, 3.0]], &y), None);
        assert_eq!(correlation_on_other_prompts(spearman, &x, &y), Some(1.0));
        assert_eq!(correlation_interval(spearman, &x, &y, 9, 0), None);
    }

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
