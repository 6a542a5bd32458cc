//! Tensors by name, in memory or in files, and their initialisation.

use super::weight_storage::StoredWeights;
use super::{ModelConfig, Placement};
use crate::attention::TensorInit;
use anyhow::{ensure, Context, Result};
use candle_core::{DType, Device, Tensor};
use stats::Rng;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Tensors of a model. From memory, [`Weights::take`] returns each once, so that unused tensors can be found.
#[derive(Clone)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
    /// The files of tensors that are read when they are taken.
    stored: Option<Arc<StoredWeights>>,
    origin: String,
    placement: Placement,
}

impl Weights {
    /// Wraps tensors; `origin` (a path) names them in errors.
    pub fn new(tensors: impl IntoIterator<Item = (String, Tensor)>, origin: &str) -> Self {
        let tensors = tensors.into_iter().collect();
        Self { tensors, stored: None, origin: origin.to_owned(), placement: Placement::default() }
    }

    /// Tensors of files. Each is read when it is taken.
    pub(super) fn stored(stored: Arc<StoredWeights>) -> Self {
        Self { stored: Some(stored), ..Self::new([], "the files") }
    }

    /// Sets the placement, applied to tensors as they are taken.
    pub fn placed(self, placement: &Placement) -> Self {
        Self { placement: placement.clone(), ..self }
    }

    /// The placement of taken tensors.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Reads any safetensors file. Tensors become `f32` on the CPU. Models are read by a
    /// [`Checkpoint`](super::Checkpoint).
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::from_bytes(&bytes, &path.display().to_string())
    }

    /// Like [`Weights::read`], from memory.
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Self> {
        let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu)
            .with_context(|| format!("{origin}: not a complete safetensors file ({} bytes)", bytes.len()))?;
        let mut weights = Self::new([], origin);
        for (name, tensor) in tensors {
            weights.tensors.insert(name, tensor.to_dtype(DType::F32)?);
        }
        Ok(weights)
    }

    /// Removes a tensor and returns it on its device.
    ///
    /// # Errors
    /// If there is no such tensor, it was taken before, or the device has no memory for it.
    pub fn take(&mut self, name: &str) -> Result<Tensor> {
        self.find(name)?.with_context(|| format!("{}: tensor {name} is missing", self.origin))
    }

    /// Like [`Weights::take`], or `None` if there is no such tensor.
    pub(super) fn find(&mut self, name: &str) -> Result<Option<Tensor>> {
        let tensor = match &self.stored {
            None => self.tensors.remove(name),
            Some(stored) => stored.read(name)?,
        };
        let Some(tensor) = tensor else { return Ok(None) };
        let placed = self.placement.put(&tensor).with_context(|| format!("{}: tensor {name}", self.origin))?;
        Ok(Some(placed))
    }

    /// Like [`Weights::take`], and checks the shape.
    pub fn take_shaped(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let tensor = self.take(name)?;
        let origin = &self.origin;
        let dims = tensor.dims();
        ensure!(dims == shape, "{origin}: tensor {name} has shape {dims:?}, expected {shape:?}");
        Ok(tensor)
    }

    /// Checks that tensors in memory are those of the model. Those of files have been checked.
    pub(super) fn check(&self, config: &ModelConfig) -> Result<()> {
        if self.stored.is_some() {
            return Ok(());
        }
        let names: BTreeSet<String> = config.tensors().into_iter().map(|(name, _)| name).collect();
        let missing = names.iter().find(|name| !self.tensors.contains_key(*name));
        ensure!(missing.is_none(), "{}: tensor {} is missing", self.origin, missing.map_or("", String::as_str));
        let unused: Vec<&str> = self.remaining().into_iter().filter(|name| !names.contains(*name)).collect();
        ensure!(unused.is_empty(), "tensors {unused:?} are not part of the model");
        Ok(())
    }

    /// Names of tensors that were not taken.
    pub fn remaining(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    /// All tensors in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.tensors.iter()
    }

    /// Writes a safetensors file in `dtype`, in the order of names. `metadata` has at most one entry, which is written
    /// to the header.
    pub fn write(&self, path: &Path, dtype: DType, metadata: &[(&str, String)]) -> Result<()> {
        let mut header: HashMap<String, String> = metadata.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        if header.is_empty() {
            // transformers refuses a file without it. Never beside other entries: safetensors writes them in random
            // order, and the same tensors must give the same bytes.
            header.insert("format".into(), "pt".into());
        }
        let mut tensors = Vec::new();
        for (name, tensor) in &self.tensors {
            tensors.push((name, tensor.to_dtype(dtype)?.contiguous()?));
        }
        // The library's own writer would leave unreadable temporary files behind when killed.
        let bytes = safetensors::serialize(tensors, Some(header)).map_err(anyhow::Error::from);
        let written = bytes.and_then(|bytes| Ok(std::fs::write(path, bytes)?));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Creates initial weights as in Llama: normal with deviation 0.02, projections into the residual stream divided by
    /// sqrt(2 layers), norm gains 1. Extra attention tensors start as in [`Variant::extra_tensors`].
    ///
    /// [`Variant::extra_tensors`]: crate::attention::Variant::extra_tensors
    ///
    /// The values of a tensor depend only on the seed and its name, so variants that share a tensor start with the same
    /// values: a larger `q_proj` starts with the rows of the smaller one.
    pub fn init(config: &ModelConfig, seed: u64) -> Result<Self> {
        Self::init_with(config, seed, &Init::default())
    }

    /// Like [`Weights::init`], with the settings of `init`.
    pub fn init_with(config: &ModelConfig, seed: u64, init: &Init) -> Result<Self> {
        Self::init_some(config, seed, init, |_| true)
    }

    /// Like [`Weights::init_with`], of the tensors whose names are `wanted` alone.
    pub fn init_some(config: &ModelConfig, seed: u64, init: &Init, wanted: impl Fn(&str) -> bool) -> Result<Self> {
        let mut extras = HashMap::new();
        for layer in 0..config.layers.len() {
            for extra in config.variant.extra_tensors(layer, config.layer_sizes()) {
                extras.insert(format!("model.layers.{layer}.self_attn.{}", extra.name), extra.init);
            }
        }
        let residual = TensorInit::Normal(0.02 / (2.0 * config.layers.len() as f64).sqrt());
        let mut tensors = Vec::new();
        for (name, shape) in config.tensors().into_iter().filter(|(name, _)| wanted(name)) {
            let start = match name.rsplit('.').nth(1).unwrap_or_default() {
                _ if extras.contains_key(&name) => extras[&name],
                "embed_tokens" => TensorInit::Normal(init.embedding_deviation),
                "o_proj" if init.zero_output && shape.len() > 1 => TensorInit::Constant(0.0),
                "o_proj" | "down_proj" if shape.len() > 1 => residual,
                _ if name.ends_with(".bias") => TensorInit::Constant(0.0),
                _ if shape.len() == 1 => TensorInit::Constant(1.0),
                _ => TensorInit::Normal(0.02),
            };
            let count = shape.iter().product();
            let mut rng = Rng::new(seed, &name);
            let values: Vec<f32> = match start {
                TensorInit::Constant(number) => vec![number as f32; count],
                TensorInit::Normal(deviation) => (0..count).map(|_| (rng.normal() * deviation) as f32).collect(),
            };
            tensors.push((name, Tensor::from_vec(values, shape, &Device::Cpu)?));
        }
        Ok(Self::new(tensors, "initial weights"))
    }
}

/// Settings of initial weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Init {
    /// Standard deviation of the embeddings.
    pub embedding_deviation: f64,
    /// `true` if the output projection of attention starts at zero.
    pub zero_output: bool,
}

impl Default for Init {
    fn default() -> Self {
        Self { embedding_deviation: 0.02, zero_output: false }
    }
}
