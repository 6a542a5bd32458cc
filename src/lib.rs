//! **difftool** measures attention noise: how much attention of a transformer reaches the answer, how much is wasted on
//! irrelevant context, and whether differential attention does better.
//!
//! The modules, in the order data flows through them:
//!
//! > A [`run`] makes [`prompts`] with known positions of their answers; a [`model`] computes heads from a prompt; a head
//! > is a *signed mixture of softmax rows* ([`attention`]), which [`treatments`] change; [`measures`] look at rows while
//! > they are computed; what they learn becomes records, which [`results`] selects, pairs, estimates, tabulates and
//! > compares; results are drawn ([`figures`]), summarised in a [`report`] and displayed in an explorer ([`explore`]).
//!
//! [`train`] trains matched models to measure, [`kernels`] has the numerical loops, [`names`] what everybody says, [`base`]
//! what everything stands on; the package `stats` has the statistics, and [`commands`] is the command line, the only module that prints.
//!
//! Shape letters used in comments: B batch, T query tokens, S key tokens, H output heads, J maps per head, d head width,
//! E model width, F SwiGLU width, W vocabulary.

pub mod attention;
pub mod base;
pub mod commands;
pub(crate) mod explore;
pub mod figures;
pub mod kernels;
pub mod measures;
pub mod model;
pub mod names;
pub mod prompts;
pub(crate) mod report;
pub mod results;
pub mod run;
pub mod train;
pub mod treatments;
