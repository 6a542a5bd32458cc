//! The transformer: configuration, weights on disk, and the forward pass on one page.

mod config;
mod transformer;
mod weights;

pub use config::{ModelConfig, Variant};
pub use transformer::{Attention, Transformer};
pub use weights::{Weights, TENSOR_FILE};
