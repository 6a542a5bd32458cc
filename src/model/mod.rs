//! The transformer: its description, its weights on disk, and the forward pass.

mod block;
mod checkpoint;
mod config;
mod describe;
pub mod device;
mod families;
pub mod generate;
mod gguf;
pub mod hub;
mod latent;
mod linear;
mod memory;
mod mlp;
mod names;
mod number_type;
pub mod open;
mod output;
pub mod pass;
mod rotary;
mod self_attention;
mod stored_tensor;
mod tensors;
mod transformer;
mod weight_storage;
mod weights;

pub(crate) use checkpoint::shards;
pub use checkpoint::{Audit, Checkpoint, INDEX_FILE, TENSOR_FILE};
pub use config::{
    Activation, Biases, DecoderSizes, ExpertChoice, Experts, Latent, Layer, ModelConfig, NormKind, NormPlace,
    Positions, QkNorm, ResidualLayout,
};
pub use device::Placement;
pub use families::{HeadLayout, LARGEST_SIZE, MOST_LAYERS, MOST_TOKENS};
pub(crate) use gguf::parts_of as gguf_parts;
pub use gguf::{Gguf, GgufVocabulary};
pub(crate) use memory::LOGIT_POSITIONS;
pub use output::{Agreement, HeadOutput, Readout};
pub use rotary::{RopeScaling, Rotary};
pub use self_attention::{Attention, RotaryPositions};
pub use transformer::Transformer;
pub use weights::{Init, Weights};
