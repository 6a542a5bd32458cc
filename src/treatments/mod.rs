//! Treatments of attention in one prompt: [conditions](names::condition), resolved to positions, layers and heads.

mod positions;
mod resolve;

pub use positions::rows_of;
pub use resolve::{PairedOutputs, PromptFindings, Reference, Resolver};
