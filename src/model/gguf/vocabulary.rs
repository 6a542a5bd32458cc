//! Tokenizer fields of a GGUF file.

use super::Gguf;
use anyhow::Result;

/// Tokenizer fields of a GGUF file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `gpt2` for byte-level BPE, `llama` for SentencePiece.
    pub model: String,
    /// Name of the pre-tokenizer.
    pub pre: String,
    /// Every token by its id.
    pub tokens: Vec<String>,
    /// Type of each token: 3 is a control token, 4 an added one.
    pub types: Vec<u64>,
    /// Merges, each two tokens separated by a space; `None` if the list is missing.
    pub merges: Option<Vec<String>>,
    /// SentencePiece scores; the largest is merged first.
    pub scores: Vec<f32>,
    /// For SentencePiece: whether a space is put before the text.
    pub space_prefix: Option<bool>,
    /// Id of the begin-of-sequence token.
    pub bos: Option<usize>,
    /// Id of the end-of-sequence token.
    pub eos: Option<usize>,
    /// Ids of the end-of-turn and end-of-message tokens.
    pub ends: Vec<usize>,
    /// Whether every text begins with the begin-of-sequence token.
    pub add_bos: Option<bool>,
    /// Whether white space after special tokens is removed (Phi-3).
    pub strips: bool,
    /// The chat template.
    pub template: Option<String>,
}

impl Gguf {
    /// The tokenizer fields; `None` if the file has no tokenizer.
    ///
    /// # Errors
    /// If a field has the wrong type.
    pub fn vocabulary(&self) -> Result<Option<GgufVocabulary>> {
        let named = |field: &str| format!("tokenizer.ggml.{field}");
        let Some(model) = self.text(&named("model"))?.filter(|model| !matches!(*model, "none" | "no_vocab")) else {
            return Ok(None);
        };
        let id = |field: &str| Ok::<_, anyhow::Error>(self.whole(&named(field))?.map(|id| id as usize));
        let types = self.numbers(&named("token_type"))?.into_iter().flatten();
        let scores = self.numbers(&named("scores"))?.into_iter().flatten();
        let name = self.text("general.name")?.unwrap_or_default().to_lowercase();
        Ok(Some(GgufVocabulary {
            model: model.to_owned(),
            pre: self.text(&named("pre"))?.filter(|pre| !pre.is_empty()).unwrap_or("default").to_owned(),
            tokens: self.texts(&named("tokens"))?.cloned().unwrap_or_default(),
            types: types.map(|&kind| kind as u64).collect(),
            merges: self.texts(&named("merges"))?.cloned(),
            scores: scores.map(|&score| score as f32).collect(),
            space_prefix: self.flag(&named("add_space_prefix"))?,
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            ends: ["eot_token_id", "eom_token_id"]
                .into_iter()
                .filter_map(|field| id(field).transpose())
                .collect::<Result<_>>()?,
            add_bos: self.flag(&named("add_bos_token"))?,
            strips: ["phi-3", "phi3"].iter().any(|phi| name.contains(phi)),
            template: self.text("tokenizer.chat_template")?.map(str::to_owned),
        }))
    }
}
