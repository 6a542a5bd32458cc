//! Models: what a run says of them.

use serde::{Deserialize, Serialize};

/// State of a model's weights while it runs. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightsState {
    /// All of them in memory, as they are computed with.
    #[default]
    Expanded,
    /// In their files: each layer is expanded when its turn comes.
    Streamed,
}

/// A model, with hashes of its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Name in the results.
    pub name: String,
    /// Its folder or GGUF file; missing for a built-in model.
    pub path: Option<String>,
    /// `model_type` of its configuration.
    pub model_type: String,
    pub variant: String,
    /// Number of parameters; tied ones count once.
    pub parameters: u64,
    /// Number types of the weights on disk.
    pub weights_dtype: String,
    /// State of the weights during the run.
    #[serde(default)]
    pub weights: WeightsState,
    /// SHA-256 of `model.safetensors`; for weights in several files, of their hashes.
    pub weights_sha256: String,
    /// SHA-256 of `config.json`; of a GGUF file, that of the fields of its architecture.
    pub config_sha256: String,
    /// SHA-256 of `tokenizer.json`; empty without one.
    pub tokenizer_sha256: String,
    /// The token that needle prompts begin with and where that is configured: `<s> (config)`, `none (template)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos: Option<String>,
    /// SHA-256 of the chat template of needle prompts, if one is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_template_sha256: Option<String>,
    /// Text between the chat template's generation prompt and an answer, where the generation prompt leaves a thinking block
    /// open or names no channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_opening: Option<String>,
    /// Description of which heads pair and which keys they read.
    pub layout: String,
    /// Description of the logits if they are not scaled products of queries and keys: `after the soft cap at 50`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_tap: Option<String>,
    /// The model whose function its training began with, as `difftool train` writes it into `config.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// λ by layer, as a mean if it depends on the token; empty without differential attention.
    pub lambda: Vec<f64>,
}

/// Returns `true` if spreadsheets would evaluate a text as a formula.
pub fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r'])
}
