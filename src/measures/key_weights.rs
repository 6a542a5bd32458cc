//! The weights of two maps on the same keys, and how far they agree: what is found, and what it would be by chance, over all permutations of
//! the keys of the second.

use std::ops::Range;

/// The least weight beside which all weights that matter to it are normal numbers of 32 bits: 2⁻¹⁰³, about 10⁻³¹.
const LEAST_WEIGHT: f64 = (f32::MIN_POSITIVE / f32::EPSILON) as f64;

/// The weights of both maps on a set of keys in one row, which are not negative.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyWeights {
    first: Vec<f64>,
    second: Vec<f64>,
}

/// A number of both maps, and its mean over all permutations of the second map's keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithChance {
    pub(super) found: f64,
    pub(super) chance: f64,
}

impl KeyWeights {
    /// The weights of two maps on those keys of ranges that are visible.
    pub(super) fn of(ranges: impl Iterator<Item = Range<usize>>, first_visible: usize, maps: [&[f32]; 2]) -> Self {
        let mut weights = Self::default();
        for range in ranges {
            let [first, second] = maps;
            let end = range.end.min(first.len());
            let start = range.start.max(first_visible).min(end);
            weights.first.extend(first[start..end].iter().map(|&weight| f64::from(weight)));
            weights.second.extend(second[start..end].iter().map(|&weight| f64::from(weight)));
        }
        weights
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.first.len()
    }

    /// Sum of the weights, Σ (A1 + |lambda| A2).
    pub(super) fn total(&self, lambda: f64) -> f64 {
        self.first.iter().sum::<f64>() + lambda.abs() * self.second.iter().sum::<f64>()
    }

    /// Cosine of the first list and the second one of another head.
    pub(super) fn cosine_with(&self, other: &Self) -> Option<f64> {
        cosine(&self.first, &other.second).map(|cosine| cosine.found)
    }

    /// Cosine of the two lists.
    pub(super) fn cosine(&self) -> Option<WithChance> {
        cosine(&self.first, &self.second)
    }

    /// The weight that the first list shares with `lambda` times the second, Σ min(x_i, y_i). By chance it is
    /// Σ_i Σ_j min(x_i, y_j) / n, for which one list is sorted and summed up.
    pub(super) fn common(&self, lambda: f64) -> WithChance {
        let mut second: Vec<f64> = self.second.iter().map(|weight| lambda * weight).collect();
        let found = self.first.iter().zip(&second).map(|(x, y)| x.min(*y)).sum();
        second.sort_unstable_by(f64::total_cmp);
        // The sums of the 0, 1, … smallest.
        let mut smallest = vec![0.0];
        for y in &second {
            smallest.push(smallest[smallest.len() - 1] + y);
        }
        let mut sum = 0.0;
        for &x in &self.first {
            let smaller = second.partition_point(|&y| y < x);
            sum += smallest[smaller] + x * (second.len() - smaller) as f64;
        }
        WithChance { found, chance: sum / second.len().max(1) as f64 }
    }
}

/// Cosine of two lists of weights. `None` with fewer than two keys, where it is always 1, and without weight in a map: below
/// [`LEAST_WEIGHT`] the angle depends on which of the smaller weights a device rounds to 0.
fn cosine(first: &[f64], second: &[f64]) -> Option<WithChance> {
    let has_weight = |list: &[f64]| list.iter().any(|&weight| weight >= LEAST_WEIGHT);
    let norms = (dot(first, first) * dot(second, second)).sqrt();
    let sums = first.iter().sum::<f64>() * second.iter().sum::<f64>();
    let n = first.len();
    (n > 1 && has_weight(first) && has_weight(second))
        .then(|| WithChance { found: dot(first, second) / norms, chance: sums / (n as f64 * norms) })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Calls `check` with every permutation of a list.
    fn for_each_permutation(list: &mut [f64], from: usize, check: &mut impl FnMut(&[f64])) {
        if from == list.len() {
            return check(list);
        }
        for at in from..list.len() {
            list.swap(from, at);
            for_each_permutation(list, from + 1, check);
            list.swap(from, at);
        }
    }

    /// The means of cosine and common weight over all permutations of the second list.
    fn by_brute_force(keys: &KeyWeights, lambda: f64) -> [f64; 2] {
        let mut sums = [0.0; 2];
        let mut count = 0.0;
        for_each_permutation(&mut keys.second.clone(), 0, &mut |second| {
            let permuted = KeyWeights { first: keys.first.clone(), second: second.to_vec() };
            sums[0] += permuted.cosine().map_or(0.0, |cosine| cosine.found);
            sums[1] += permuted.common(lambda).found;
            count += 1.0;
        });
        sums.map(|sum| sum / count)
    }

    proptest! {
        #[test]
        fn chance_is_the_mean_over_all_permutations(
            weights in proptest::collection::vec((0.0..1.0_f64, 0.0..1.0_f64), 2..7),
            equal: bool,
            lambda in 0.0..1.5_f64,
        ) {
            let first: Vec<f64> = weights.iter().map(|(x, _)| *x).collect();
            // Weights that differ, or few that come again and again, some of them 0.
            let second = weights.iter().map(|(x, y)| if equal { (4.0 * x).floor() } else { *y }).collect();
            let keys = KeyWeights { first, second };
            let [cosine, common] = by_brute_force(&keys, lambda);
            prop_assert!((keys.common(lambda).chance - common).abs() < 1e-12);
            prop_assert!((keys.cosine().map_or(0.0, |cosine| cosine.chance) - cosine).abs() < 1e-12);
        }
    }
}
