//! **difftool** measures attention noise: how much attention of a transformer reaches the answer, how much is wasted on
//! irrelevant context, and whether differential attention does better.
//!
//! The modules, in the order data flows through them:
//!
//! > An [`experiment`] makes [`prompt`]s with known positions of their answers; a [`model`] computes heads from a
//! > prompt; a head is a *signed mixture of softmax rows* ([`attention`]); a [`probe`] measures rows while they are
//! > computed; its results become [`record`]s of [`metric`]s; [`results`] selects, pairs, estimates, tabulates and compares
//! > records; results are plotted ([`plot`]), summarised in a [`report`] and displayed in an explorer ([`explore`]).
//!
//! [`device`] selects what computes, [`train`] trains matched models to measure, [`ops`] has the numerical loops of
//! both, and [`cmd`] is the command line, the only module that prints.
//!
//! Shape letters used in comments: B batch, T query tokens, S key tokens, H output heads, J maps per head, d head width,
//! E model width, F SwiGLU width, W vocabulary.

#![warn(missing_docs)]

pub mod attention;
pub mod cli;
pub mod cmd;

pub mod device;
pub mod error;
pub mod experiment;
pub mod explore;
pub mod files;

pub mod generate;
pub mod gguf;
mod guard;
pub mod hash;
mod html;
pub mod hub;
pub mod inspect;
pub mod machine;
pub mod manifest;
pub mod measure;
pub mod memory;
pub mod metric;
pub mod model;
pub mod models;
pub mod names;
pub mod ops;
pub mod pass;
pub mod plot;
pub mod probe;
pub mod prompt;
pub mod quant;
pub mod record;
pub mod report;
pub mod results;
pub mod rng;
pub mod runfolder;
mod serde_as_str;
mod spec_file;
pub mod stats;
pub mod table;
pub mod terminal;
pub mod train;
pub mod treatment;
