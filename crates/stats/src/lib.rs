//! Statistics: intervals and tests for measurements on a few dozen prompts, and summaries of streams of billions of
//! numbers.
//!
//! * Interval of a proportion (accuracy): [`wilson`]; of trials in groups: [`wilson_of_groups`].
//! * Interval and test of a mean over prompts: [`test_mean`]; over groups of unequal size: [`test_ratio`]. Of differences of two
//!   models on the same prompts it is the mean difference.
//! * Interval and test of the difference of hits of two models on the same prompts: [`PairedHits`].
//! * Interval and test of a mean over a few training seeds: [`student`].
//! * Test of another value than 0, from an interval: [`p_of_interval`].
//! * Power of these tests: [`smallest_detectable`], and those of [`PairedHits`] and [`Replicated`].
//! * Difference of two recipes with several training seeds each on the same prompts: [`Replicated`].
//! * Best less worst of several arrangements of the same prompts: [`Robustness`].
//! * Correction of many tests: [`holm`] for the family-wise error rate.
//! * Random numbers, alike on every platform: [`Rng`].
//! * Changes of attention rows: [`Divergence`], and of the two maps of a head, [`RowChange`].
//! * Correlation over items on other prompts: [`correlation_on_other_prompts`], with an interval over items and prompts: [`correlation_interval`].
//! * Summaries of streams: [`Moments`], [`Histogram`] and [`Top`], together a [`Tally`]; all of them can be merged.
//!
//! All functions are pure; those that draw random numbers take the seed as an argument. Nothing here knows of models, prompts or records.
//!
//! ```
//! use stats::{test_mean, wilson};
//!
//! // 18 of 20 prompts are answered.
//! let accuracy = wilson(18, 20);
//! assert!(accuracy.lo > 0.69 && accuracy.hi < 0.98);
//!
//! // What another model changes on six prompts, in nats.
//! let change = test_mean(&[0.4, 0.1, 0.6, 0.3, 0.5, 0.2]).unwrap();
//! assert!(change.p < 0.05 && change.interval.lo > 0.0);
//! ```

mod correlation;
mod histogram;
mod interval;
mod mean_interval;
mod moments;
mod paired_hits;
mod replicates;
mod rng;
mod robustness;
mod row_change;
pub mod simd;
mod tally;

pub use correlation::{
    correlation_interval, correlation_on_other_prompts, pearson, rank_stability, spearman, Correlation,
    CORRELATION_RESAMPLES, RESAMPLES,
};
pub use histogram::Histogram;
pub use interval::{holm, p_of_interval, student, wilson, wilson_of_groups, Interval, LEVEL};
pub use mean_interval::{simultaneous_interval, smallest_detectable, test_mean, test_ratio, MeanTest, LEAST_PROMPTS};
pub use moments::{mean, quantile, Moments};
pub use paired_hits::{PairedHits, PromptOutcomes, LEAST_DISCORDANT};
pub use replicates::{Replicated, LEAST_SEEDS};
pub use rng::Rng;
pub use robustness::Robustness;
pub use row_change::{Divergence, MixedRow, RowChange, TwoMaps};
pub use tally::{Tally, Top, TOP};

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each test of some numbers, which stand for prompts, seeds or groups, has an interval.
    fn intervals(numbers: &[f64]) -> [bool; 6] {
        let groups: Vec<(f64, f64)> = numbers.iter().map(|&x| (x, 1.0)).collect();
        let replicated = Replicated::new(&[numbers.to_vec(), numbers.to_vec(), numbers.to_vec()]);
        [
            student(numbers).is_some(),
            test_mean(numbers).is_some(),
            simultaneous_interval(numbers, 4).is_some(),
            smallest_detectable(numbers).is_some(),
            test_ratio(&groups).is_some(),
            replicated.is_some_and(|found| found.interval.is_some()),
        ]
    }

    #[test]
    fn numbers_that_agree_have_no_interval_and_no_numbers_make_a_test_panic() {
        for alike in [0.0, -1.0, 0.1, 1e-300, f64::INFINITY, f64::NAN] {
            assert_eq!(intervals(&[alike; 6]), [false; 6], "{alike}");
        }
        for few in [&[][..], &[1.0], &[1.0, 2.0]] {
            assert_eq!(intervals(few)[..5], [false; 5], "{few:?}");
        }
        for large in [1e120, -1e120, f64::MAX] {
            intervals(&[large; 6]);
            intervals(&[large, 0.0, 0.0, 0.0, 0.0, 0.0]);
            intervals(&[large, -large, large, -large, large, 0.0]);
        }
    }
}
