//! The transformer: its description, its weights on disk, and the forward pass.

mod block;
mod checkpoint;
mod config;
mod cost;
mod describe;
mod families;
mod gguf;
mod held;
mod linear;
mod mlp;
mod names;
mod output;
mod placement;
mod raw;
mod rotary;
mod shard;
mod tensors;
mod transformer;
mod weights;

pub use block::{At, Attention};
pub use checkpoint::{Audit, Checkpoint, INDEX_FILE, TENSOR_FILE};
pub use config::{
    Activation, Biases, Experts, Family, Layer, ModelConfig, NormKind, NormPlace, Positions, QkNorm, Residual, Sizes,
};
pub use cost::Flops;
pub use families::Layout;
pub use gguf::{Gguf, GgufVocabulary};
pub use output::{Agreement, HeadOutput, Readout};
pub use placement::Placement;
pub use raw::{LARGEST_SIZE, MOST_LAYERS, MOST_TOKENS};
pub use rotary::{RopeScaling, Rotary};
pub use transformer::Transformer;
pub use weights::{Init, Weights};
