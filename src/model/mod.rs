//! The transformer: its description, its weights on disk, and the forward pass.

mod block;
mod checkpoint;
mod chunks;
mod config;
mod cost;
mod describe;
pub mod device;
mod families;
mod file_bytes;
pub mod generate;
mod gguf;
pub mod gguf_tokenizer;
pub mod hub;
mod latent;
mod mlp;
mod names;
mod number_type;
pub mod open;
mod output;
pub mod pass;
mod placement;
mod projection;
mod raw;
mod rotary;
mod stored_tensor;
mod tensors;
mod transformer;
mod weight_storage;
mod weights;

pub use block::{Attention, RotaryPositions};
pub(crate) use checkpoint::shards;
pub use checkpoint::{Audit, Checkpoint, INDEX_FILE, TENSOR_FILE};
pub(crate) use chunks::LOGIT_POSITIONS;
pub use config::{
    Activation, Biases, DecoderSizes, ExpertChoice, Experts, Family, Latent, Layer, ModelConfig, NormKind, NormPlace,
    Positions, QkNorm, ResidualLayout,
};
pub use families::HeadLayout;
pub(crate) use gguf::parts_of as gguf_parts;
pub use gguf::{Gguf, GgufVocabulary};
pub use output::{Agreement, HeadOutput, Readout};
pub use placement::Placement;
pub use raw::{LARGEST_SIZE, MOST_LAYERS, MOST_TOKENS};
pub use rotary::{RopeScaling, Rotary};
pub use transformer::Transformer;
pub use weights::{Init, Weights};
