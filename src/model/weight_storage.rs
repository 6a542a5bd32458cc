//! Storage of a model's weights: in memory as they are computed with, or as their files have them, on disk or in memory.
//! Then each layer is expanded when its turn comes, the rows of the embedding for the tokens of a prompt, and the output
//! head in parts. While a layer from disk runs, the system reads the bytes of the next one. Results are identical to the
//! last bit.

use super::block::{DecoderBlock, OutputPath};
use super::chunks::HEAD_ROWS;
use super::{Checkpoint, ModelConfig, Placement, Weights};
use crate::ops::{linear, wide, wide_type};
use anyhow::Result;
use candle_core::{Device, Tensor};
use candle_nn::{Embedding, Module as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Weights as their files have them, with the model's configuration and placement.
pub(super) struct StoredWeights {
    checkpoint: Checkpoint,
    config: ModelConfig,
    placement: Placement,
    /// `true` for weights on disk: the bytes of the next layer are read in the background.
    reads_ahead: bool,
}

impl StoredWeights {
    pub(super) fn new(checkpoint: Checkpoint, config: &ModelConfig, placement: &Placement, reads_ahead: bool) -> Self {
        Self { checkpoint, config: config.clone(), placement: placement.clone(), reads_ahead }
    }

    pub(super) fn reads_ahead(&self) -> bool {
        self.reads_ahead
    }

    /// Reads the tensors whose names are `wanted`, to be placed.
    pub(super) fn read(&self, wanted: impl Fn(&str) -> bool) -> Result<Weights> {
        Ok(self.checkpoint.read_some(&self.config, wanted)?.placed(&self.placement))
    }

    /// Reads a layer and places it.
    pub(super) fn block(&self, layer: usize) -> Result<DecoderBlock> {
        let prefix = DecoderBlock::prefix(layer);
        DecoderBlock::load(&self.config, layer, &mut self.read(|name| name.starts_with(&prefix))?)
    }

    /// Makes the system read the bytes of a layer.
    fn read_ahead(&self, layer: usize) -> Result<()> {
        let prefix = DecoderBlock::prefix(layer);
        self.checkpoint.read_ahead(&self.config, |name| name.starts_with(&prefix))
    }

    /// Reads the output path of a layer to the host.
    fn output_path(&self, layer: usize) -> Result<OutputPath> {
        let prefix = format!("{}self_attn.", DecoderBlock::prefix(layer));
        let norms = format!("{}{}", DecoderBlock::prefix(layer), self.config.norm_names().after_attention);
        let is_of_path = |name: &str| name.starts_with(&prefix) || name.starts_with(&norms);
        OutputPath::load(&self.config, layer, &mut self.checkpoint.read_some(&self.config, is_of_path)?)
    }

    /// Reads rows of a matrix: (rows, embedding width).
    fn rows(&self, name: &str, ranges: impl Iterator<Item = Range<usize>>) -> Result<Tensor> {
        let values = self.checkpoint.rows(&self.config, name, ranges)?;
        let width = self.config.embed_width;
        let shape = (values.len() / width, width);
        Ok(self.placement.put(&Tensor::from_vec(values, shape, &Device::Cpu)?)?)
    }
}

/// The layers of a model.
#[derive(Clone)]
pub(super) struct BlockStorage {
    source: BlockSource,
    last_output_path: Arc<Mutex<LastOutputPath>>,
}

/// The output path requested last, with its layer.
type LastOutputPath = Option<(usize, Arc<OutputPath>)>;

#[derive(Clone)]
enum BlockSource {
    InMemory(Arc<Vec<Arc<DecoderBlock>>>),
    Stored(Arc<StoredBlocks>),
}

/// Layers that are read one by one.
pub(super) struct StoredBlocks {
    weights: Arc<StoredWeights>,
    /// The thread that reads the bytes of the next layer.
    reading: Mutex<Option<JoinHandle<()>>>,
}

impl BlockStorage {
    pub(super) fn in_memory(blocks: Vec<DecoderBlock>) -> Self {
        let source = BlockSource::InMemory(Arc::new(blocks.into_iter().map(Arc::new).collect()));
        Self { source, last_output_path: Arc::default() }
    }

    pub(super) fn stored(weights: Arc<StoredWeights>) -> Self {
        let source = BlockSource::Stored(Arc::new(StoredBlocks { weights, reading: Mutex::default() }));
        Self { source, last_output_path: Arc::default() }
    }

    /// The weights as their files have them, unless they are in memory as they are computed with.
    pub(super) fn stored_weights(&self) -> Option<&StoredWeights> {
        match &self.source {
            BlockSource::InMemory(_) => None,
            BlockSource::Stored(blocks) => Some(&blocks.weights),
        }
    }

    /// Returns a layer, for a pass that continues with the next.
    pub(super) fn block(&self, layer: usize) -> Result<Arc<DecoderBlock>> {
        match &self.source {
            BlockSource::InMemory(blocks) => Ok(blocks[layer].clone()),
            BlockSource::Stored(blocks) => blocks.block(layer),
        }
    }

    /// The output path of a layer, with its matrix on the host.
    pub(super) fn output_path(&self, layer: usize) -> Result<Arc<OutputPath>> {
        let mut last = locked(&self.last_output_path);
        if let Some((_, path)) = last.as_ref().filter(|(of, _)| *of == layer) {
            return Ok(path.clone());
        }
        let path = Arc::new(match &self.source {
            BlockSource::InMemory(blocks) => blocks[layer].output_path().on_host()?,
            BlockSource::Stored(blocks) => blocks.weights.output_path(layer)?,
        });
        *last = Some((layer, path.clone()));
        Ok(path)
    }
}

/// Locks a mutex. A panic of another thread cannot leave these values half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoredBlocks {
    fn block(&self, layer: usize) -> Result<Arc<DecoderBlock>> {
        if let Some(reading) = locked(&self.reading).take() {
            let _ = reading.join(); // its bytes would be read a second time
        }
        let block = Arc::new(self.weights.block(layer)?);
        if self.weights.reads_ahead && layer + 1 < self.weights.config.layers.len() {
            let weights = self.weights.clone();
            // What cannot be read ahead is read, or is an error, when the layer is needed.
            let read = move || drop(weights.read_ahead(layer + 1));
            *locked(&self.reading) = std::thread::Builder::new().spawn(read).ok();
        }
        Ok(block)
    }
}

/// The embedding or the output head: (W, E).
#[derive(Clone)]
pub(super) enum VocabularyMatrix {
    InMemory(Tensor),
    Stored { weights: Arc<StoredWeights>, name: &'static str },
}

impl VocabularyMatrix {
    /// Rows of token ids: (n, E).
    pub(super) fn rows(&self, ids: &[u32]) -> Result<Tensor> {
        match self {
            Self::InMemory(table) => {
                let embedding = Embedding::new(table.clone(), table.dim(1)?);
                Ok(embedding.forward(&Tensor::new(ids, table.device())?)?)
            }
            Self::Stored { weights, name } => weights.rows(name, ids.iter().map(|&id| id as usize..id as usize + 1)),
        }
    }

    /// Logits: (.., E) -> (.., W). A `bf16` table gives `f32` logits, computed in parts: at eight bits of precision
    /// logits would tie.
    pub(super) fn linear(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::InMemory(table) if table.dtype() == wide_type(table.dtype()) => Ok(linear(x, table)?),
            Self::InMemory(_) => {
                let x = wide(x)?;
                let parts = self.parts().map(|part| Ok(linear(&x, &wide(&part?)?)?)).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::cat(&parts, x.rank() - 1)?) // differentiable
            }
            Self::Stored { .. } => {
                let x = wide(x)?;
                let dim = x.rank() - 1;
                let dims = [&x.dims()[..dim], &[self.len()]].concat();
                let logits = Tensor::zeros(dims, x.dtype(), x.device())?; // ..,W
                let mut done = 0;
                for part in self.parts() {
                    let of_part = linear(&x, &wide(&part?)?)?; // ..,rows
                    logits.slice_set(&of_part, dim, done)?;
                    done += of_part.dim(dim)?;
                }
                Ok(logits)
            }
        }
    }

    /// The mean row: (E).
    pub(super) fn mean_row(&self) -> Result<Vec<f32>> {
        let mut sum: Vec<f64> = Vec::new();
        let mut rows = 0;
        for part in self.parts() {
            let part = part?;
            let (n, width) = part.dims2()?;
            sum.resize(width, 0.0);
            rows += n;
            crate::ops::with_values(&part, "output head", |values| {
                let add = |row: &[f32]| sum.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
                values.chunks_exact(width).for_each(add);
            })?;
        }
        Ok(sum.into_iter().map(|sum| (sum / rows as f64) as f32).collect())
    }

    /// Number of rows.
    fn len(&self) -> usize {
        match self {
            Self::InMemory(table) => table.dims()[0],
            Self::Stored { weights, .. } => weights.config.vocab,
        }
    }

    /// All rows in order, in parts: (rows, E) each.
    fn parts(&self) -> Box<dyn Iterator<Item = Result<Tensor>> + '_> {
        let rows = self.len();
        let ranges = (0..rows).step_by(HEAD_ROWS).map(move |start| start..rows.min(start + HEAD_ROWS));
        match self {
            Self::InMemory(table) => Box::new(ranges.map(|rows| Ok(table.narrow(0, rows.start, rows.len())?))),
            Self::Stored { weights, name } => Box::new(ranges.map(|rows| weights.rows(name, std::iter::once(rows)))),
        }
    }
}

impl ModelConfig {
    /// Memory of the weights that a pass expands at once, in bytes: the largest layer, or a part of the output head. Norms
    /// and biases are neglected.
    pub fn expanded_bytes(&self) -> u64 {
        let mut layers = vec![0; self.layers.len()];
        for (name, shape) in self.tensors() {
            let layer =
                name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            if let Some(layer) = layer {
                layers[layer] += shape.iter().product::<usize>();
            }
        }
        let layer = layers.into_iter().max().unwrap_or(0);
        let head = self.embed_width * self.vocab.min(HEAD_ROWS);
        4 * layer.max(head) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DecoderSizes, Transformer};
    use super::*;
    use crate::attention::{Dense, Variant};
    use crate::ops::RopeStyle;
    use candle_core::DType;

    /// A vocabulary that is read in two parts, with enough layers to read ahead.
    fn models(tied: bool, dtype: DType) -> [Transformer; 3] {
        let sizes = DecoderSizes {
            vocab: HEAD_ROWS + 777,
            width: 16,
            layers: 3,
            ffn: 24,
            heads: 2,
            kv_heads: 2,
            head_dim: 8,
            max_ctx_tok: 64,
        };
        let variant = Variant::preset("transformer").unwrap();
        let config = ModelConfig { tied, ..ModelConfig::llama(variant, sizes, 10_000.0, RopeStyle::Half) };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        Weights::init(&config, 1).unwrap().write(&path, dtype, &[]).unwrap();
        let open = || Checkpoint::open(folder.path()).unwrap();
        let held = Transformer::load(&config, open().load(&config).unwrap()).unwrap();
        let packed = Transformer::packed(&config, open(), &Placement::default()).unwrap();
        [held, packed, Transformer::on_disk(&config, open(), &Placement::default()).unwrap()]
    }

    #[test]
    fn weights_as_they_are_stored_and_as_f32_give_identical_results() {
        for (tied, dtype) in [(false, DType::F32), (true, DType::BF16), (false, DType::F16)] {
            let [held, packed, on_disk] = models(tied, dtype);
            assert!(on_disk.is_on_disk() && !packed.is_on_disk() && !held.is_on_disk());
            assert!(on_disk.expanded_bytes() == packed.expanded_bytes() && held.expanded_bytes() == 0);
            let ids: Vec<u32> = (0..40).map(|i| (i * 4001) % held.config.vocab as u32).collect();
            let logits = |model: &Transformer| {
                let hidden = model.hidden(std::slice::from_ref(&ids), &mut Dense::default()).unwrap();
                model.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
            };
            let agreement = |model: &Transformer| format!("{:?}", model.agreement(2, 1).unwrap());
            for stored in [packed, on_disk] {
                for _ in 0..2 {
                    assert!(logits(&stored) == logits(&held), "tied: {tied}, {dtype:?}");
                }
                assert_eq!(held.head.mean_row().unwrap(), stored.head.mean_row().unwrap());
                assert_eq!(agreement(&held), agreement(&stored));
            }
        }
    }

    #[test]
    fn weights_in_memory_need_their_file_no_more_and_are_checked_when_they_are_read() {
        let [held, ..] = models(false, DType::F32);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let weights = Weights::init(&held.config, 1).unwrap();
        weights.write(&path, DType::BF16, &[]).unwrap();
        let open = || Checkpoint::open(folder.path()).unwrap();
        assert!(open().packed_bytes(&held.config).unwrap() * 2 <= held.config.weights_bytes());
        let packed = Transformer::packed(&held.config, open(), &Placement::default()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert!(packed.hidden(&[vec![1, 2, 3]], &mut Dense::default()).is_ok());
        let broken = weights.iter().map(|(name, tensor)| {
            let is_broken = name == "model.layers.2.mlp.up_proj.weight";
            (name.clone(), if is_broken { (tensor * f64::NAN).unwrap() } else { tensor.clone() })
        });
        Weights::new(broken, "test").write(&path, DType::F32, &[]).unwrap();
        let error = Transformer::packed(&held.config, open(), &Placement::default()).err().unwrap();
        let error = format!("{error:#}");
        assert!(error.contains("model.layers.2.mlp.up_proj.weight: holds") && error.contains("NaN"), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_off_while_a_model_runs_is_an_error_that_names_it() {
        let [held, ..] = models(false, DType::F32);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        Weights::init(&held.config, 1).unwrap().write(&path, DType::F32, &[]).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let model = Transformer::on_disk(&held.config, checkpoint, &Placement::default()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(20_000).unwrap();
        let error = model.hidden(&[vec![1, 2, 3]], &mut Dense::default()).unwrap_err();
        assert!(format!("{error:#}").contains("model.safetensors"), "{error:#}");
    }
}
