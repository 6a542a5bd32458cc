//! Language models and their attention, standard and differential, which probes watch row by row.
//!
//! A [`model`] turns the tokens of a prompt into heads; a head is a *signed mixture of softmax rows* ([`attention`]); the
//! numerical loops are in [`kernels`]. No map of all queries and keys is ever held: rows exist while probes look at them.
//!
//! It knows prompts and names, and nothing of measures, runs and results.
//!
//! Shape letters used in comments: B batch, T query tokens, S key tokens, H output heads, J maps per head, d head width,
//! E model width, F SwiGLU width, W vocabulary.

pub mod attention;
pub mod kernels;
pub mod model;
