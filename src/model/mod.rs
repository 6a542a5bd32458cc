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
mod kinds;
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
mod tensor_names;
mod tensors;
mod transformer;
mod weight_storage;
mod weights;

pub use checkpoint::{Audit, Checkpoint, TENSOR_FILE};
pub use config::{Activation, DecoderSizes, ModelConfig, NormKind, NormPlace, Positions};
pub use device::Placement;
pub(crate) use families::{HeadLayout, LARGEST_SIZE, MOST_LAYERS};
pub use gguf::Gguf;
pub use output::{Agreement, Readout};
pub use self_attention::{Attention, RotaryPositions};
pub use transformer::Transformer;
pub use weights::{Init, Weights};
