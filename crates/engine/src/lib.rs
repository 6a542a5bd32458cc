//! Language models and their attention, standard and differential, which probes watch row by row.
//!
//! A [`model`] turns the tokens of a prompt into heads; a head is a *signed mixture of softmax rows* ([`attention`]); the
//! numerical loops are in [`kernels`]. No map of all queries and keys is ever held: rows exist while probes look at them.
//!
//! It knows prompts and names, and nothing of measures, runs and results.
//!
//! ```
//! use engine::attention::Stream;
//! use engine::model::open::{load, LoadOptions};
//! use engine::model::pass::pass;
//! use text::{needle, Haystack, NeedleSpec};
//!
//! // A model that is built in, and a prompt with a needle.
//! let model = load("transformer", LoadOptions::default())?;
//! let spec = NeedleSpec { ctx_tok: 256, ..NeedleSpec::default() };
//! let prompt = needle::build(&spec, 7, model.tokenizer()?, &Haystack::Embedded)?;
//!
//! // A teacher-forced pass, which nobody watches: the log-probability of the answer, in nats.
//! let passed = pass(&model.transformer, &prompt, Stream::new(&[]), false)?;
//! assert!(passed.queries[0].log_prob_nats < 0.0);
//! # anyhow::Ok(())
//! ```
//!
//! Shape letters used in comments: B batch, T query tokens, S key tokens, H output heads, J maps per head, d head width,
//! E model width, F SwiGLU width, W vocabulary.

pub mod attention;
pub mod kernels;
pub mod model;
