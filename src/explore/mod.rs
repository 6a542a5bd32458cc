//! The explorer: one HTML file for browsing attention maps of thousands of tokens.
//!
//! All data are collected while rows pass, in one pass over the prompt per model and condition:
//!
//! | heads | data | bytes |
//! |---|---|---|
//! | all | a small map of the mixture, attention sinks | (T / bin)^2 / 2 |
//! | detailed: those that bring the answer most on other prompts, or, where that is not measured, share of the answer in their output | maps of all quantities, pooled by magnitude and by mean | (T / bin)^2 / 2 each |
//! | detailed | softmax maps, pair by pair | one for each stored pair |
//!
//! Pairs are complete for prompts of up to [`COMPLETE_TOK`](stored_pairs::COMPLETE_TOK) tokens. For longer ones, those near the diagonal, in the
//! question's rows and on needles are stored: about 320 bytes per query. The detailed heads are known only after the
//! last layer, so the heads of one layer are in memory at once with the best so far. Contributions of keys to the
//! output are computed as rows pass, from precomputed products of the weights ([`Agreements`](probe::Agreements)). Treated passes store
//! the detailed heads of the untreated pass.
//!
//! Numbers are quantised to bytes with a step for each run of 64 keys ([`codes`]). The steps are enlarged until the
//! page fits its budget. Rows that predict an answer, and their logits, are also stored in 16 bits. The page states the
//! largest error.

mod codes;
mod detail;
mod measure;
mod numbers;
mod pack;
mod page;
mod probe;
mod stored_pairs;

pub(crate) use measure::{ExploreMeasure, ModelMaps};
pub(crate) use page::{code, is_own, ExplorerModel, ExplorerPage};
pub(crate) use probe::{agreements, KnownHeads, Resolution};
