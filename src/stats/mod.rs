//! Statistics: intervals and tests for measurements on a few dozen prompts, and summaries of streams of billions of
//! numbers.
//!
//! * Interval of a proportion (accuracy): [`wilson`]; of trials in groups: [`wilson_of_groups`].
//! * Interval of a mean over prompts: [`bootstrap_mean`]; over groups of unequal size: [`bootstrap_ratio`].
//! * Interval of a mean over a few training seeds: [`student`].
//! * Mean difference of two models on the same prompts, with a bootstrap interval: [`Paired`].
//! * Power of such a comparison: [`smallest_detectable`], [`pairs_needed`].
//! * Difference of two recipes with several training seeds each on the same prompts: [`Replicated`].
//! * Best less worst of several arrangements of the same prompts: [`Robustness`].
//! * Test of hits and misses of two models on the same prompts: [`mcnemar`].
//! * Test of paired differences of any distribution: [`wilcoxon`].
//! * Correction of many tests: [`holm`] for the family-wise error rate, [`bh`] for the false discovery rate.
//! * Summaries of streams: [`Moments`], [`Histogram`] and [`Top`], together a [`Tally`]; all of them can be merged.
//!
//! All functions are pure; those that draw random numbers take the seed as an argument.

mod divergence;
mod histogram;
mod interval;
mod moments;
mod paired;
mod power;
mod rank;
mod replicates;
mod robustness;
mod significance;
pub(crate) mod simd;
mod tally;
mod top;
mod wilcoxon;

pub use divergence::Divergence;
pub use histogram::Histogram;
pub use interval::{bootstrap_mean, bootstrap_ratio, student, wilson, wilson_of_groups, Interval, LEVEL, RESAMPLES};
pub use moments::{mean, quantile, Moments};
pub use paired::Paired;
pub use power::{pairs_needed, smallest_detectable};
pub use rank::rank_stability;
pub use replicates::{Replicated, LEAST_SEEDS};
pub use robustness::Robustness;
pub use significance::{bh, holm, mcnemar};
pub use tally::{Tally, TOP};
pub use top::{Entry, Top};
pub use wilcoxon::{wilcoxon, Wilcoxon};
