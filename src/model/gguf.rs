//! GGUF files (llama.cpp): what they say about a model in the words of a `config.json`, and their tensors, which candle reads
//! and dequantises.
//!
//! Their conventions differ from Hugging Face's in three things. Rows of q and k of `llama` are permuted for interleaved
//! RoPE, so the model is described with that. Norms of Gemma are stored with the 1 that is added to them. What depends on the
//! size of a Gemma (the scale of attention) is not in the file but in llama.cpp, whose rule is repeated here.

use super::config::{Family, ModelConfig, NormKind, Positions};
use super::rotary::RopeScaling;
use crate::files::{self, FilePrefix, HEADER_MAX};
use crate::guard::guarded;
use crate::ops::RopeStyle;
use anyhow::{bail, ensure, Context, Result};
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value as Field};
use candle_core::Device;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Divisors of the frequencies of Llama 3.1's RoPE.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

/// An open file.
pub struct Gguf {
    path: PathBuf,
    file: File,
    len_bytes: u64,
    content: Content,
}

/// What a file says about its tokenizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `gpt2` for byte-level BPE, `llama` for SentencePiece.
    pub model: String,
    /// How text is cut before merges.
    pub pre: String,
    /// Every token by its id.
    pub tokens: Vec<String>,
    /// What each is: 3 is a control token, 4 one that was added.
    pub types: Vec<u64>,
    /// Pairs, with a space between them.
    pub merges: Vec<String>,
    /// Of SentencePiece: how early each token is merged, the largest first.
    pub scores: Vec<f32>,
    /// Of SentencePiece: whether text begins with a space that it does not have.
    pub space_prefix: Option<bool>,
    /// Id of the token that texts begin with.
    pub bos: Option<usize>,
    /// Id of the token that they end with.
    pub eos: Option<usize>,
    /// Whether the first is put before every text.
    pub add_bos: Option<bool>,
    /// The chat template.
    pub template: Option<String>,
}

impl Gguf {
    /// Reads what stands before the tensors.
    ///
    /// # Errors
    /// If the file cannot be read or is no GGUF file, or a tensor is of a type that candle does not know.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = files::open(path)?;
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(metadata.is_file(), "{}: it is no regular file", cannot());
        let len_bytes = metadata.len();
        // Lists of numbers take up to 32 times the memory that they take in the file.
        let mut header = BufReader::new(FilePrefix::new(&file, len_bytes.min(HEADER_MAX)));
        let content = guarded("candle", || Content::read(&mut header));
        let content = content.with_context(|| format!("{}: not a GGUF file", path.display()))?;
        Ok(Self { path: path.to_owned(), file, len_bytes, content })
    }

    /// Size of the file, in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tensors(&self) -> &HashMap<String, TensorInfo> {
        &self.content.tensor_infos
    }

    /// The numbers of a tensor.
    ///
    /// # Errors
    /// If the file is shorter than it says, or was.
    pub(super) fn values(&self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        let mut file = FilePrefix::new(&self.file, self.len_bytes);
        let values = guarded("candle", || {
            let stored = tensor.read(&mut file, self.content.tensor_data_offset, &Device::Cpu)?;
            stored.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()
        });
        values.with_context(|| format!("{} cannot be read; has it been changed meanwhile?", self.path.display()))
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.content.metadata.get(name)
    }

    fn whole(&self, name: &str) -> Result<Option<u64>> {
        let number = |field: &Field| match field {
            Field::I32(n) if *n >= 0 => Ok(*n as u64),
            Field::I64(n) if *n >= 0 => Ok(*n as u64),
            other => other.to_u64(),
        };
        self.field(name).map(|field| number(field).with_context(|| name.to_owned())).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        let number = |field: &Field| match field {
            Field::F64(x) => Ok(*x),
            other => other.to_f32().map(f64::from),
        };
        self.field(name).map(|field| number(field).with_context(|| name.to_owned())).transpose()
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.field(name) {
            None => Ok(None),
            Some(Field::String(text)) => Ok(Some(text)),
            Some(_) => bail!("{name} is no text"),
        }
    }

    fn architecture(&self) -> Result<&str> {
        self.text("general.architecture")?.context("general.architecture is missing")
    }

    /// The configuration of the same model in a Hugging Face folder.
    ///
    /// # Errors
    /// If the architecture is not supported, or a field is missing or asks for something else; it is named.
    pub fn config_json(&self) -> Result<Value> {
        self.config().with_context(|| self.path.display().to_string())
    }

    fn config(&self) -> Result<Value> {
        let arch = self.architecture()?;
        let model_type = match arch {
            "llama" | "qwen2" | "qwen3" | "gemma2" => arch,
            "gemma3" => "gemma3_text",
            other => {
                bail!("general.architecture \"{other}\" is not supported; llama, qwen2, qwen3, gemma2 and gemma3 are")
            }
        };
        let named = |field: &str| format!("{arch}.{field}");
        let whole = |field: &str| self.whole(&named(field));
        let needed = |field: &str| whole(field)?.with_context(|| format!("{} is missing", named(field)));
        let (width, heads) = (needed("embedding_length")?, needed("attention.head_count")?);
        ensure!(heads > 0, "{} is 0", named("attention.head_count"));
        let head_dim = whole("attention.key_length")?.unwrap_or(width / heads);
        for field in ["attention.value_length", "rope.dimension_count"] {
            let other = whole(field)?.unwrap_or(head_dim);
            ensure!(
                other == head_dim,
                "{} is {other}; only {head_dim}, the width of a head, is supported",
                named(field)
            );
        }
        for field in ["expert_count", "attention.sliding_window"] {
            let windowed = field.ends_with("window") && arch.starts_with("gemma");
            ensure!(windowed || whole(field)?.unwrap_or(0) == 0, "{} is not supported", named(field));
        }
        let layers = needed("block_count")?;
        let mut config = json!({
            "model_type": model_type,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "intermediate_size": needed("feed_forward_length")?,
            "num_attention_heads": heads,
            "num_key_value_heads": whole("attention.head_count_kv")?.unwrap_or(heads),
            "head_dim": head_dim,
            "max_position_embeddings": needed("context_length")?,
            "rms_norm_eps": self.number(&named("attention.layer_norm_rms_epsilon"))?
                .with_context(|| format!("{} is missing", named("attention.layer_norm_rms_epsilon")))?,
            "rope_theta": self.number(&named("rope.freq_base"))?.unwrap_or(10_000.0),
            "rope_scaling": self.scaling(arch)?,
            "vocab_size": self.vocabulary_size()?,
            "tie_word_embeddings": !self.tensors().contains_key("output.weight"),
        });
        if arch.starts_with("gemma") {
            // llama.cpp: the 27B models, by their number of layers, scale by the width over the heads.
            let largest = layers == if arch == "gemma2" { 46 } else { 62 };
            config["query_pre_attn_scalar"] = json!(if largest { width / heads } else { head_dim });
            config["sliding_window"] = json!(needed("attention.sliding_window")?);
            for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
                config[field] = json!(self.number(&named(field))?);
            }
        }
        if let Some(id) = self.whole("tokenizer.ggml.eos_token_id")? {
            config["eos_token_id"] = json!(id);
        }
        Ok(config)
    }

    fn scaling(&self, arch: &str) -> Result<Value> {
        let named = |field: &str| format!("{arch}.rope.scaling.{field}");
        let Some(kind) = self.text(&named("type"))?.filter(|kind| *kind != "none") else { return Ok(Value::Null) };
        let factor = self.number(&named("factor"))?;
        ensure!(self.number(&named("attn_factor"))?.unwrap_or(1.0) == 1.0, "{} is not supported", named("attn_factor"));
        let original = self.whole(&named("original_context_length"))?;
        let mut scaling = json!({"rope_type": kind, "factor": factor});
        if let Some(original) = original {
            scaling["original_max_position_embeddings"] = json!(original);
        }
        Ok(scaling)
    }

    /// Rows of the embedding.
    fn vocabulary_size(&self) -> Result<usize> {
        let embedding = self.tensors().get("token_embd.weight").context("tensor token_embd.weight is missing")?;
        Ok(embedding.shape.dims().first().copied().unwrap_or_default())
    }

    /// What [`Gguf::config_json`] was resolved to, with the names and conventions of the file.
    ///
    /// # Errors
    /// If the divisors of the rotary frequencies are not as many as there are.
    pub fn conventions(&self, config: ModelConfig) -> Result<ModelConfig> {
        let mut config = ModelConfig { family: Family::Gguf, ..config };
        if config.norm == NormKind::RmsPlusOne {
            config.norm = NormKind::Rms;
        }
        let llama = self.architecture()? == "llama";
        let divisors = self.tensors().get(FREQUENCIES).map(|tensor| self.values(tensor)).transpose()?;
        let Positions::Rotary { style, embeddings } = &mut config.positions else { return Ok(config) };
        if llama {
            *style = RopeStyle::Interleaved;
        }
        if let Some(divisors) = divisors {
            let (n, pairs) = (divisors.len(), embeddings[0].channels / 2);
            ensure!(n == pairs, "{}: {FREQUENCIES} has {n} numbers for {pairs} frequencies", self.path.display());
            ensure!(embeddings[0].scaling == RopeScaling::None, "{FREQUENCIES} and rope.scaling are both there");
            ensure!(divisors.iter().all(|&x| x.is_finite() && x > 0.0), "{FREQUENCIES}: a divisor is not above 0");
            embeddings[0].scaling = RopeScaling::Divided { by: divisors.into_iter().map(f64::from).collect() };
        }
        Ok(config)
    }

    /// What the file says about its tokenizer; nothing if it has none.
    ///
    /// # Errors
    /// If a field is not what it has to be.
    pub fn vocabulary(&self) -> Result<Option<GgufVocabulary>> {
        let named = |field: &str| format!("tokenizer.ggml.{field}");
        let Some(model) = self.text(&named("model"))? else { return Ok(None) };
        let list = |field: &str| -> Result<&[Field]> {
            match self.field(&named(field)) {
                None => Ok(&[]),
                Some(Field::Array(list)) => Ok(list),
                Some(_) => bail!("{} is no list", named(field)),
            }
        };
        let texts = |field: &str| -> Result<Vec<String>> {
            list(field)?.iter().map(|text| text.to_string().cloned().with_context(|| named(field))).collect()
        };
        let id = |field: &str| Ok::<_, anyhow::Error>(self.whole(&named(field))?.map(|id| id as usize));
        let kind = |field: &Field| match field {
            Field::I32(n) => *n as u64,
            other => other.to_u64().unwrap_or_default(),
        };
        let flag = |field: &str| -> Result<Option<bool>> {
            self.field(&named(field)).map(|flag| flag.to_bool().with_context(|| named(field))).transpose()
        };
        let scores = list("scores")?.iter().map(|score| score.to_f32().with_context(|| named("scores")));
        Ok(Some(GgufVocabulary {
            model: model.to_owned(),
            pre: self.text(&named("pre"))?.unwrap_or("default").to_owned(),
            tokens: texts("tokens")?,
            types: list("token_type")?.iter().map(kind).collect(),
            merges: texts("merges")?,
            scores: scores.collect::<Result<_>>()?,
            space_prefix: flag("add_space_prefix")?,
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            add_bos: flag("add_bos_token")?,
            template: self.text("tokenizer.chat_template")?.map(str::to_owned),
        }))
    }
}
