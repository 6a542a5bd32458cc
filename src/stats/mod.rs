//! Intervals and tests: how far a number from a few dozen prompts can be trusted.
//!
//! * one proportion (accuracy of a cell): [`wilson`];
//! * two models on the same prompts: [`Paired`], a mean difference with a bootstrap interval;
//! * hits and misses of two models on the same prompts: [`mcnemar`];
//! * many tests at once: [`holm`].
//!
//! Pure functions of numbers. Whatever is random takes its seed as an argument.

mod interval;
mod moments;
mod paired;
mod significance;

pub use interval::{bootstrap_mean, wilson, Interval, LEVEL, RESAMPLES};
pub use moments::{mean, quantile, Moments};
pub use paired::Paired;
pub use significance::{holm, mcnemar};
