//! Means of scored tokens with intervals: over all tokens, by position, and differences between models.

use super::{ScoredToken, ScoredWindow};
use crate::stats::{ratio_interval, Interval, LEAST_PROMPTS};
use std::collections::BTreeSet;

/// Tokens of a block; with few windows, blocks count as independent instead.
pub const BLOCK_TOK: usize = 256;

/// Least number of windows that count as independent.
const ENOUGH_WINDOWS: usize = LEAST_PROMPTS;

/// A range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bin {
    /// First position.
    pub first: u32,
    /// Last position, inclusive.
    pub last: u32,
}

impl Bin {
    /// Returns `true` if a position is in the range.
    pub fn holds(self, position: u32) -> bool {
        (self.first..=self.last).contains(&position)
    }

    /// Returns the geometric mean of its ends.
    pub fn centre(self) -> f64 {
        (f64::from(self.first) * f64::from(self.last)).sqrt()
    }
}

/// Returns the bin of a position: from a power of two to the last position before the next one. 0 has a bin of its own.
pub fn bin_of(position: u32) -> Bin {
    match position.checked_ilog2() {
        None => Bin { first: 0, last: 0 },
        Some(power) => Bin { first: 1 << power, last: (1 << power) - 1 + (1 << power) },
    }
}

/// Returns the bins of these positions, in order.
pub fn bins(positions: impl Iterator<Item = u32>) -> Vec<Bin> {
    positions.map(bin_of).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the groups that count as independent: windows if there are at least six, otherwise blocks of 256 scored tokens.
pub fn groups(windows: &[ScoredWindow]) -> Vec<&[ScoredToken]> {
    let size = if windows.len() < ENOUGH_WINDOWS { BLOCK_TOK } else { usize::MAX };
    windows.iter().flat_map(|window| window.tokens.chunks(size)).collect()
}

/// A mean negative log-likelihood over tokens, or a mean difference, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NllEstimate {
    /// The mean, with equal weight for every token.
    pub mean: f64,
    /// Number of tokens.
    pub n: usize,
    /// 95 % interval over groups; `None` with fewer than six groups.
    pub interval: Option<Interval>,
}

/// Returns the mean over the tokens that `keep` selects; `None` if it selects none.
pub fn estimate(groups: &[&[ScoredToken]], keep: impl Fn(&ScoredToken) -> bool) -> Option<NllEstimate> {
    let sums = groups.iter().map(|group| {
        let kept = group.iter().filter(|token| keep(token));
        kept.fold((0.0, 0.0), |(sum, n), token| (sum + f64::from(token.nll_nats), n + 1.0))
    });
    of_sums(&sums.collect::<Vec<_>>())
}

/// Returns the mean of b - a over the tokens of `a` that `keep` selects; the windows must be [`comparable`].
pub fn difference(
    a: &[&[ScoredToken]],
    b: &[&[ScoredToken]],
    keep: impl Fn(&ScoredToken) -> bool,
) -> Option<NllEstimate> {
    let sums = a.iter().zip(b).map(|(a, b)| {
        let kept = a.iter().zip(*b).filter(|(a, _)| keep(a));
        kept.fold((0.0, 0.0), |(sum, n), (a, b)| (sum + f64::from(b.nll_nats) - f64::from(a.nll_nats), n + 1.0))
    });
    of_sums(&sums.collect::<Vec<_>>())
}

fn of_sums(sums: &[(f64, f64)]) -> Option<NllEstimate> {
    let (sum, n) = sums.iter().fold((0.0, 0.0), |(sums, ns), (sum, n)| (sums + sum, ns + n));
    (n > 0.0).then(|| NllEstimate { mean: sum / n, n: n as usize, interval: ratio_interval(sums) })
}

/// Returns `true` if two models were scored on the same tokens.
pub fn comparable(a: &[ScoredWindow], b: &[ScoredWindow]) -> bool {
    let same =
        |a: &ScoredToken, b: &ScoredToken| (a.text_position, a.position, a.id) == (b.text_position, b.position, b.id);
    let tokens = |windows: &'_ [ScoredWindow]| windows.iter().map(|window| window.tokens.len()).collect::<Vec<_>>();
    let all = |windows| <[ScoredWindow]>::iter(windows).flat_map(|window| &window.tokens);
    tokens(a) == tokens(b) && all(a).zip(all(b)).all(|(a, b)| same(a, b))
}

/// Returns, for each position, the mean over all positions up to it, with equal weight for every position: (position,
/// nats).
pub fn cumulative(windows: &[ScoredWindow]) -> Vec<(u32, f64)> {
    let longest = windows.iter().flat_map(|window| &window.tokens).map(|token| token.position as usize).max();
    let mut sums = vec![(0.0, 0.0); longest.map_or(0, |longest| longest + 1)];
    for token in windows.iter().flat_map(|window| &window.tokens) {
        let (sum, n) = &mut sums[token.position as usize];
        (*sum, *n) = (*sum + f64::from(token.nll_nats), *n + 1.0);
    }
    let (mut total, mut positions) = (0.0, 0.0);
    let reached = |(position, &(sum, n)): (usize, &(f64, f64))| {
        total += sum / n;
        positions += 1.0;
        (position as u32, total / positions)
    };
    sums.iter().enumerate().filter(|(_, &(_, n))| n > 0.0).map(reached).collect()
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
        let all = estimate(&groups(&windows), |_| true).unwrap();
        assert_eq!((all.mean, all.n, all.interval), (3.0, 4, None), "two windows are too few");
        let hits = estimate(&groups(&windows), |token| token.ar_hit).unwrap();
        assert_eq!((hits.mean, hits.n), (2.0, 1));
        assert_eq!(estimate(&groups(&windows), |token| token.position > 7), None);
    }

    #[test]
    fn one_window_is_drawn_from_in_blocks() {
        let nll: Vec<f32> = (0..6).flat_map(|block| vec![1.0 + 0.25 * block as f32; BLOCK_TOK]).collect();
        let one = [window(0, &nll)];
        assert_eq!(groups(&one).len(), 6);
        let interval = estimate(&groups(&one), |_| true).unwrap().interval.unwrap();
        assert!(interval.lo > 1.0 && interval.contains(1.625) && interval.hi < 2.25, "{interval:?}");
        let many: Vec<ScoredWindow> =
            (0..ENOUGH_WINDOWS as u64).map(|i| window(i, &vec![1.0; 2 * BLOCK_TOK])).collect();
        assert_eq!(groups(&many).len(), ENOUGH_WINDOWS);
    }

    #[test]
    fn differences_are_those_of_the_same_tokens() {
        let (a, b) = ([window(0, &[1.0, 2.0, 3.0])], [window(0, &[2.0, 2.0, 5.0])]);
        assert!(comparable(&a, &b));
        let found = difference(&groups(&a), &groups(&b), |_| true).unwrap();
        assert_eq!((found.mean, found.n), (1.0, 3));
        let mut other = b.clone();
        other[0].tokens[1].id = 77;
        assert!(!comparable(&a, &other) && !comparable(&a, &[]));
    }

    #[test]
    fn the_cumulative_mean_counts_every_position_once() {
        // Position 1 twice with the mean 2, position 2 once.
        assert_eq!(cumulative(&[window(0, &[1.0, 5.0]), window(1, &[3.0])]), [(1, 2.0), (2, 3.5)]);
        assert_eq!(cumulative(&[]), []);
    }
}
