//! Means of scored tokens with intervals: over all tokens, by position, and differences between models.

use super::{ScoredToken, ScoredWindow};
use crate::results::Estimate;
use stats::{test_ratio, LEAST_PROMPTS};
use std::collections::BTreeSet;

/// Tokens of a block; with few windows, blocks count as independent instead.
pub(crate) const BLOCK_TOK: usize = 256;

/// Least number of windows that count as independent.
const ENOUGH_WINDOWS: usize = LEAST_PROMPTS;

/// A range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bin {
    /// First position.
    pub(crate) first: u32,
    /// Last position, inclusive.
    pub(crate) last: u32,
}

impl Bin {
    /// Returns `true` if a position is in the range.
    pub(crate) fn holds(self, position: u32) -> bool {
        (self.first..=self.last).contains(&position)
    }
}

/// The bin of a position: from a power of two to the last position before the next one. 0 has a bin of its own.
fn bin_of(position: u32) -> Bin {
    match position.checked_ilog2() {
        None => Bin { first: 0, last: 0 },
        Some(power) => Bin { first: 1 << power, last: (1 << power) - 1 + (1 << power) },
    }
}

/// The bins of these positions, in order.
pub(crate) fn bins(positions: impl Iterator<Item = u32>) -> Vec<Bin> {
    positions.map(bin_of).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The groups that count as independent: windows if there are at least six, otherwise blocks of 256 scored tokens.
pub(crate) fn groups(windows: &[ScoredWindow]) -> Vec<&[ScoredToken]> {
    let size = if windows.len() < ENOUGH_WINDOWS { BLOCK_TOK } else { usize::MAX };
    windows.iter().flat_map(|window| window.tokens.chunks(size)).collect()
}

/// The mean negative log-likelihood in nats of the tokens that `keep` keeps, with equal weight for every token; its
/// interval is over groups. `None` if it keeps none.
pub(crate) fn mean_nll(groups: &[&[ScoredToken]], keep: impl Fn(&ScoredToken) -> bool) -> Option<Estimate> {
    let mut sums = Vec::new();
    for group in groups {
        let kept = group.iter().filter(|token| keep(token));
        sums.push(kept.fold((0.0, 0.0), |(sum, n), token| (sum + f64::from(token.nll_nats), n + 1.0)));
    }
    of_sums(&sums)
}

/// The mean of b - a over the tokens of `a` that `keep` keeps; the windows must be [`comparable`].
pub(crate) fn mean_difference(
    a: &[&[ScoredToken]],
    b: &[&[ScoredToken]],
    keep: impl Fn(&ScoredToken) -> bool,
) -> Option<Estimate> {
    let mut sums = Vec::new();
    for (a, b) in a.iter().zip(b) {
        let kept = a.iter().zip(*b).filter(|(a, _)| keep(a));
        sums.push(
            kept.fold((0.0, 0.0), |(sum, n), (a, b)| (sum + f64::from(b.nll_nats) - f64::from(a.nll_nats), n + 1.0)),
        );
    }
    of_sums(&sums)
}

fn of_sums(sums: &[(f64, f64)]) -> Option<Estimate> {
    let (sum, n) = sums.iter().fold((0.0, 0.0), |(sums, ns), (sum, n)| (sums + sum, ns + n));
    (n > 0.0).then(|| Estimate::of_test(sum / n, test_ratio(sums), sums.len(), n as usize))
}

/// Returns `true` if two models were scored on the same tokens.
pub(super) fn comparable(a: &[ScoredWindow], b: &[ScoredWindow]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.tokens.iter().map(place).eq(b.tokens.iter().map(place)))
}

fn place(token: &ScoredToken) -> (u64, u32, u32) {
    (token.text_position, token.position, token.id)
}

/// Returns, for each position from `skip` on, the mean over all positions from there up to it, with equal weight for every
/// position: (position, nats).
pub(crate) fn cumulative(windows: &[ScoredWindow], skip: u32) -> Vec<(u32, f64)> {
    let longest = windows.iter().flat_map(|window| &window.tokens).map(|token| token.position as usize).max();
    let mut sums = vec![(0.0, 0.0); longest.map_or(0, |longest| longest + 1)];
    for token in windows.iter().flat_map(|window| &window.tokens).filter(|token| token.position >= skip) {
        let (sum, n) = &mut sums[token.position as usize];
        (*sum, *n) = (*sum + f64::from(token.nll_nats), *n + 1.0);
    }
    let mut total = 0.0;
    let mut positions = 0.0;
    let mut means = Vec::new();
    for (position, &(sum, n)) in sums.iter().enumerate().filter(|(_, &(_, n))| n > 0.0) {
        total += sum / n;
        positions += 1.0;
        means.push((position as u32, total / positions));
    }
    means
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(sample: u64, nll: &[f32]) -> ScoredWindow {
        let token = |(i, &nll_nats): (usize, &f32)| ScoredToken {
            text_position: i as u64,
            position: i as u32 + 1,
            id: i as u32,
            bytes: 1,
            nll_nats,
            ar_hit: i % 2 == 1,
        };
        ScoredWindow { sample, tokens: nll.iter().enumerate().map(token).collect() }
    }

    #[test]
    fn bins_are_powers_of_two_and_hold_every_position_once() {
        let ends: Vec<(u32, u32)> = bins(0..=9).into_iter().map(|bin| (bin.first, bin.last)).collect();
        assert_eq!(ends, [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15)]);
        for position in [0, 1, 2, 255, 256, 4095, 1 << 31, u32::MAX] {
            assert!(bin_of(position).holds(position), "{position}");
        }
        assert_eq!(bin_of(256), Bin { first: 256, last: 511 });
    }

    #[test]
    fn every_token_counts_alike_however_windows_are_cut() {
        let windows = [window(0, &[1.0, 2.0, 3.0]), window(1, &[6.0])];
        let all = mean_nll(&groups(&windows), |_| true).unwrap();
        assert_eq!((all.value, all.trials, all.interval), (3.0, 4, None), "two windows are too few");
        let hits = mean_nll(&groups(&windows), |token| token.ar_hit).unwrap();
        assert_eq!((hits.value, hits.trials), (2.0, 1));
        assert_eq!(mean_nll(&groups(&windows), |token| token.position > 7), None);
    }

    #[test]
    fn one_window_is_drawn_from_in_blocks() {
        let nll: Vec<f32> = (0..6).flat_map(|block| vec![1.0 + 0.25 * block as f32; BLOCK_TOK]).collect();
        let one = [window(0, &nll)];
        assert_eq!(groups(&one).len(), 6);
        let interval = mean_nll(&groups(&one), |_| true).unwrap().interval.unwrap();
        assert!(interval.lo > 1.0 && interval.contains(1.625) && interval.hi < 2.25, "{interval:?}");
        let many: Vec<ScoredWindow> =
            (0..ENOUGH_WINDOWS as u64).map(|i| window(i, &vec![1.0; 2 * BLOCK_TOK])).collect();
        assert_eq!(groups(&many).len(), ENOUGH_WINDOWS);
    }

    #[test]
    fn differences_are_those_of_the_same_tokens() {
        let a = [window(0, &[1.0, 2.0, 3.0])];
        let b = [window(0, &[2.0, 2.0, 5.0])];
        assert!(comparable(&a, &b));
        let found = mean_difference(&groups(&a), &groups(&b), |_| true).unwrap();
        assert_eq!((found.value, found.trials), (1.0, 3));
        let mut other = b.clone();
        other[0].tokens[1].id = 77;
        assert!(!comparable(&a, &other) && !comparable(&a, &[]));
    }

    #[test]
    fn the_cumulative_mean_counts_every_position_once() {
        // Position 1 twice with the mean 2, position 2 once.
        let windows = [window(0, &[1.0, 5.0]), window(1, &[3.0])];
        assert_eq!(cumulative(&windows, 0), [(1, 2.0), (2, 3.5)]);
        assert_eq!(cumulative(&windows, 2), [(2, 5.0)]);
        assert_eq!(cumulative(&[], 0), []);
    }
}
