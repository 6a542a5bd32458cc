//! Numbers about numbers: how far a measurement of a few dozen prompts can be trusted, and what a billion logits look
//! like.
//!
//! * one proportion (accuracy of a cell): [`wilson`], of trials in groups [`wilson_of_groups`];
//! * a mean of prompts, or of groups of unequal size: [`bootstrap_mean`], [`bootstrap_ratio`];
//! * a mean of a few training seeds: [`student`];
//! * two models on the same prompts: [`Paired`], a mean difference with a bootstrap interval;
//! * what such a comparison could have shown, and what would show more: [`smallest_detectable`], [`pairs_needed`];
//! * two recipes of several training seeds each on the same prompts: [`Replicated`];
//! * the same prompts in several arrangements: [`Robustness`], the best less the worst;
//! * hits and misses of two models on the same prompts: [`mcnemar`];
//! * differences of any distribution: [`wilcoxon`];
//! * many tests at once: [`holm`] against any false alarm, [`bh`] against too large a share of them;
//! * streams too long to keep: [`Moments`], [`Histogram`] and the exact [`Top`], together a [`Tally`]; all of them
//!   merge.
//!
//! Pure functions of numbers. Whatever is random takes its seed as an argument.

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
