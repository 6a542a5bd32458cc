//! Storage of a model's weights: in memory as `f32`, or on disk, from which each layer is read when it is needed.
//!
//! Reading from disk, a pass holds the current layer and the next, which is read in the background. Of the embedding
//! only the rows of the tokens are read, and the output head in parts. Results are identical to the last bit.

use super::block::{DecoderBlock, OutputPath};
use super::chunks::HEAD_ROWS;
use super::{Checkpoint, ModelConfig, Placement, Weights};
use crate::ops::{linear, wide, wide_type};
use anyhow::{anyhow, Result};
use candle_core::{Device, Tensor};
use candle_nn::{Embedding, Module as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A checkpoint with its configuration and placement.
pub(super) struct DiskWeights {
    pub(super) checkpoint: Checkpoint,
    pub(super) config: ModelConfig,
    pub(super) placement: Placement,
}

impl DiskWeights {
    /// Reads the tensors of a layer.
    fn weights(&self, layer: usize) -> Result<Weights> {
        let prefix = DecoderBlock::prefix(layer);
        self.checkpoint.read_some(&self.config, |name| name.starts_with(&prefix))
    }

    /// Reads a layer and places it.
    pub(super) fn block(&self, layer: usize) -> Result<DecoderBlock> {
        DecoderBlock::load(&self.config, layer, &mut self.weights(layer)?.placed(&self.placement))
    }

    /// Reads the output path of a layer to the host.
    fn output_path(&self, layer: usize) -> Result<OutputPath> {
        OutputPath::load(&self.config, layer, &mut self.weights(layer)?)
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
    OnDisk(Arc<StreamedBlocks>),
}

/// Layers read from disk one by one.
pub(super) struct StreamedBlocks {
    disk: Arc<DiskWeights>,
    /// The next layer, being read in the background.
    next: Mutex<Option<(usize, JoinHandle<Result<Arc<DecoderBlock>>>)>>,
}

impl BlockStorage {
    pub(super) fn in_memory(blocks: Vec<DecoderBlock>) -> Self {
        let source = BlockSource::InMemory(Arc::new(blocks.into_iter().map(Arc::new).collect()));
        Self { source, last_output_path: Arc::default() }
    }

    pub(super) fn on_disk(disk: Arc<DiskWeights>) -> Self {
        let source = BlockSource::OnDisk(Arc::new(StreamedBlocks { disk, next: Mutex::default() }));
        Self { source, last_output_path: Arc::default() }
    }

    pub(super) fn are_on_disk(&self) -> bool {
        matches!(self.source, BlockSource::OnDisk(_))
    }

    /// Returns a layer, for a pass that continues with the next.
    pub(super) fn block(&self, layer: usize) -> Result<Arc<DecoderBlock>> {
        match &self.source {
            BlockSource::InMemory(blocks) => Ok(blocks[layer].clone()),
            BlockSource::OnDisk(streamed) => streamed.block(layer),
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
            BlockSource::OnDisk(streamed) => streamed.disk.output_path(layer)?,
        });
        *last = Some((layer, path.clone()));
        Ok(path)
    }
}

/// Locks a mutex. A panic of another thread cannot leave these values half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StreamedBlocks {
    fn block(&self, layer: usize) -> Result<Arc<DecoderBlock>> {
        let begun = locked(&self.next).take_if(|(begun, _)| *begun == layer);
        let block = match begun {
            Some((_, reading)) => reading.join().map_err(|_| anyhow!("reading layer {layer} panicked"))?,
            None => self.disk.block(layer).map(Arc::new),
        }?;
        if layer + 1 < self.disk.config.layers.len() {
            let disk = self.disk.clone();
            let reading = std::thread::spawn(move || disk.block(layer + 1).map(Arc::new));
            *locked(&self.next) = Some((layer + 1, reading));
        }
        Ok(block)
    }
}

/// The embedding or the output head: (W, E).
#[derive(Clone)]
pub(super) enum VocabularyMatrix {
    InMemory(Tensor),
    OnDisk { disk: Arc<DiskWeights>, name: &'static str },
}

impl VocabularyMatrix {
    /// Rows of token ids: (n, E).
    pub(super) fn rows(&self, ids: &[u32]) -> Result<Tensor> {
        match self {
            Self::InMemory(table) => {
                let embedding = Embedding::new(table.clone(), table.dim(1)?);
                Ok(embedding.forward(&Tensor::new(ids, table.device())?)?)
            }
            Self::OnDisk { disk, name } => disk.rows(name, ids.iter().map(|&id| id as usize..id as usize + 1)),
        }
    }

    /// Logits: (.., E) -> (.., W). A `bf16` table gives `f32` logits, computed in parts: at eight bits of precision
    /// logits would tie.
    pub(super) fn linear(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::InMemory(table) if table.dtype() == wide_type(table.dtype()) => Ok(linear(x, table)?),
            Self::InMemory(_) | Self::OnDisk { .. } => {
                let x = wide(x)?;
                let parts = self.parts().map(|part| Ok(linear(&x, &wide(&part?)?)?)).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::cat(&parts, x.rank() - 1)?)
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

    /// All rows in order, in parts: (rows, E) each.
    fn parts(&self) -> Box<dyn Iterator<Item = Result<Tensor>> + '_> {
        let ranges = |rows: usize| (0..rows).step_by(HEAD_ROWS).map(move |start| start..rows.min(start + HEAD_ROWS));
        match self {
            Self::InMemory(table) => {
                let part = |rows: Range<usize>| Ok(table.narrow(0, rows.start, rows.len())?);
                Box::new(ranges(table.dims()[0]).map(part))
            }
            Self::OnDisk { disk, name } => {
                Box::new(ranges(disk.config.vocab).map(|rows| disk.rows(name, std::iter::once(rows))))
            }
        }
    }
}

impl ModelConfig {
    /// Memory of the weights while a pass reads them from disk, in bytes: two layers and the tensor being converted, or
    /// a part of the output head. Norms and biases are neglected.
    pub fn streamed_bytes(&self) -> u64 {
        let mut layers = vec![0; self.layers.len()];
        let mut largest = 0;
        for (name, shape) in self.tensors() {
            let layer =
                name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
            if let Some(layer) = layer {
                let numbers = shape.iter().product::<usize>();
                layers[layer] += numbers;
                largest = largest.max(numbers);
            }
        }
        layers.sort_unstable();
        let two: usize = layers.iter().rev().take(2).sum();
        let head = self.embed_width * self.vocab.min(HEAD_ROWS);
        4 * (two + largest).max(head) as u64
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
    fn models(tied: bool) -> [Transformer; 2] {
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
        Weights::init(&config, 1).unwrap().write(&path, DType::BF16, &[]).unwrap();
        let open = || Checkpoint::open(folder.path()).unwrap();
        let held = Transformer::load(&config, open().load(&config).unwrap()).unwrap();
        [held, Transformer::on_disk(&config, open(), &Placement::default()).unwrap()]
    }

    #[test]
    fn weights_on_disk_and_in_memory_give_identical_results() {
        for tied in [false, true] {
            let [held, on_disk] = models(tied);
            assert!(on_disk.is_on_disk() && !held.is_on_disk());
            let ids: Vec<u32> = (0..40).map(|i| (i * 4001) % held.config.vocab as u32).collect();
            let logits = |model: &Transformer| {
                let hidden = model.hidden(std::slice::from_ref(&ids), &mut Dense::default()).unwrap();
                model.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
            };
            let expected = logits(&held);
            for _ in 0..2 {
                assert!(logits(&on_disk) == expected, "tied: {tied}");
            }
            assert_eq!(held.head.mean_row().unwrap(), on_disk.head.mean_row().unwrap());
            let agreement = |model: &Transformer| format!("{:?}", model.agreement(2, 1).unwrap());
            assert_eq!(agreement(&held), agreement(&on_disk));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_while_a_model_runs_is_an_error_that_names_it() {
        let [held, _] = models(false);
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
