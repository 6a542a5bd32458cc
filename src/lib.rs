//! **difftool** measures attention noise: how much attention of a transformer reaches the answer, how much is wasted on
//! irrelevant context, and whether differential attention does better.
//!
//! The modules, in the order data flows through them:
//!
//! > An [`experiment`] makes [`prompt`]s; a prompt knows where its answer is; a [`model`] turns a prompt into heads; a
//! > head is a *signed mixture of softmax rows* ([`attention`]); a [`probe`] looks at the rows as they pass and keeps
//! > almost nothing; what a probe learned is a [`record`]; records are grouped ([`frame`]), tabulated ([`tables`]), drawn
//! > ([`plot`]), compared ([`compare`]), told ([`report`]) and walked around in ([`explore`]).
//!
//! [`device`] names what computes, [`train`] makes matched models to measure, [`ops`] holds the numerical loops of both, and
//! [`cmd`] is the command line on top: the only module that prints.
//!
//! Shape letters used in comments: B batch, T query tokens, S key tokens, H output heads, J maps per head, d head width,
//! E model width, F SwiGLU width, W vocabulary.

#![warn(missing_docs)]

pub mod attention;
pub mod cli;
pub mod cmd;
pub mod compare;
pub mod device;
pub mod error;
pub mod experiment;
pub mod explore;
pub mod files;
pub mod frame;
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
pub mod rng;
pub mod runfolder;
mod spec_file;
mod spelled;
pub mod stats;
pub mod table;
pub mod tables;
pub mod terminal;
pub mod train;
pub mod treatment;
