//! Outliers of the residual stream: the output of one layer for a whole prompt, (T, E).

use crate::stats::simd::max_magnitude;
use crate::stats::Tally;
use std::collections::BTreeMap;

/// Minimum magnitude of massive activations (Sun et al. 2024, "Massive activations in large language models").
const MASSIVE: f32 = 100.0;
/// Minimum ratio of a massive activation to the median magnitude of its layer.
const TIMES_MEDIAN: f64 = 1000.0;

/// A massive activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MassiveActivation {
    /// Position of the token.
    pub position: usize,
    /// 0-based channel of the residual stream.
    pub channel: usize,
    /// The activation, with its sign.
    pub value: f32,
}

/// Statistics of one layer's output.
#[derive(Clone, Debug)]
pub struct ResidualStats {
    /// Tally of all activations.
    pub tally: Tally,
    /// Largest infinity norm of a token, max |x| over channels; 0 without tokens. NaN is ignored.
    pub inf_norm: f32,
    /// Activations with |x| > 100 and |x| >= 1000 times the layer's median |x| (Sun et al. 2024), in the order of
    /// positions and channels. The median is that of the tally's histogram, within a factor of 1 ± 2^-8.
    pub massive: Vec<MassiveActivation>,
    /// By channel, the number of tokens on which it is large: |x| >= 1000 times the layer's median |x|. Channels that are
    /// large on no token are left out.
    pub large: BTreeMap<usize, usize>,
}

impl ResidualStats {
    /// Computes the statistics of `values`, row-major: tokens of `width` channels each.
    pub fn of(values: &[f32], width: usize) -> Self {
        let tokens = values.chunks(width.max(1));
        let mut tally = Tally::default();
        tokens.clone().for_each(|token| tally.add(token));
        let inf_norms: Vec<f32> = tokens.clone().map(max_magnitude).collect();
        let limit = TIMES_MEDIAN * tally.median().unwrap_or(0.0);
        let is_large = |x: f32| x.is_finite() && x != 0.0 && f64::from(x.abs()) >= limit;
        let (mut massive, mut large) = (Vec::new(), BTreeMap::new());
        let may_hold = |&(_, (_, &norm)): &(usize, (&[f32], &f32))| f64::from(norm) >= limit;
        for (position, (token, _)) in tokens.zip(&inf_norms).enumerate().filter(may_hold) {
            for (channel, &value) in token.iter().enumerate().filter(|(_, &x)| is_large(x)) {
                *large.entry(channel).or_default() += 1;
                if value.abs() > MASSIVE {
                    massive.push(MassiveActivation { position, channel, value });
                }
            }
        }
        Self { tally, inf_norm: inf_norms.into_iter().fold(0.0, f32::max), massive, large }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 10 tokens of 8 channels at ±0.1.
    fn calm() -> Vec<f32> {
        (0..80).map(|i| if i % 3 == 0 { -0.1 } else { 0.1 }).collect()
    }

    #[test]
    fn massive_activations_are_large_and_a_thousand_times_the_median() {
        let mut values = calm();
        values[2 * 8 + 5] = -150.0;
        values[7 * 8] = 99.0;
        values[9 * 8 + 7] = 101.5;
        let found = ResidualStats::of(&values, 8);
        let massive = |position, channel, value| MassiveActivation { position, channel, value };
        assert_eq!(found.massive, [massive(2, 5, -150.0), massive(9, 7, 101.5)]);
        assert_eq!(found.large, BTreeMap::from([(5, 1), (7, 1)]));
        assert_eq!((found.inf_norm, found.tally.max(), found.tally.moments.n()), (150.0, Some(150.0), 80));
    }

    #[test]
    fn large_activations_below_a_thousand_medians_are_not_massive() {
        let mut values: Vec<f32> = calm().iter().map(|x| 10.0 * x).collect();
        values[3] = 900.0;
        assert_eq!(ResidualStats::of(&values, 8).massive, []);
        values[3] = 1100.0;
        assert_eq!(ResidualStats::of(&values, 8).massive.len(), 1);
    }

    #[test]
    fn nan_and_odd_shapes_do_not_panic() {
        let found = ResidualStats::of(&[f32::NAN, f32::INFINITY, 500.0, 0.0, 0.0, 0.0, 0.0], 3);
        assert_eq!((found.inf_norm, found.massive.len(), found.tally.histogram.non_finite()), (f32::INFINITY, 1, 2));
        assert_eq!(ResidualStats::of(&[], 0).inf_norm, 0.0);
    }

    proptest! {
        #[test]
        fn the_largest_norm_is_the_top_of_the_tally(values in prop::collection::vec(-500.0_f32..500.0, 1..200)) {
            let found = ResidualStats::of(&values, 7);
            prop_assert_eq!(Some(found.inf_norm), found.tally.max());
            let placed = |massive: &MassiveActivation| values[massive.position * 7 + massive.channel] == massive.value;
            prop_assert!(found.massive.iter().all(placed));
        }
    }
}
