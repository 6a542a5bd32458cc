//! The explorer: one HTML file to walk around in attention maps of thousands of tokens.
//!
//! Everything is gathered as rows pass, in one pass over the prompt for each model:
//!
//! | of | kept | bytes |
//! |---|---|---|
//! | every head | a small picture of its effective map, its sinks | (T / bin)^2 / 2 |
//! | the heads that owe most of their output to the answer | maps of all kinds, pooled by magnitude and by mean | (T / bin)^2 / 2 each |
//! | the same | their softmax maps, token pair by token pair | [`Keep::pairs_of`] each |
//!
//! Token pairs are complete for prompts of up to [`COMPLETE_TOK`] tokens. Of longer ones those near the diagonal, those of the
//! question's rows and those on needles are kept: about 320 bytes for a query. Which heads are kept is known only when the
//! last layer has passed, so the heads of one layer are held at once beside the best so far. What a row's keys contribute to
//! the output is known as it passes, because the weights that it is written with are ([`Agreements`]). Under treatments the
//! heads are those of the untreated pass.
//!
//! Numbers become bytes with a step for each run of 64 keys ([`codes`]). To fit the page into its budget, steps of token pairs
//! grow until it does; the rows that predict an answer, and their logits, are kept in 16 bits besides. The page says how far
//! off a number may be.

pub mod codes;
mod contribution;
mod detail;
mod keep;
mod measure;
mod pack;
mod page;
mod probe;
mod race;

pub use contribution::{agreements, Agreements};
pub use detail::{Detail, HeadSketch, Pairs, Pooled};
pub use keep::{Keep, BAND_TOK, COMPLETE_TOK};
pub use measure::{ExploreMeasure, ModelMaps, PromptFacts, QuestionFacts};
pub use page::{Explored, Explorer};
pub use probe::{quantities, ExploreProbe, Resolution};
pub use race::{Entrant, Race};
