//! Storage of a model's weights in one of two states: expanded once, as they are computed with, or streamed from their
//! files. Then each layer is expanded when its turn comes, the rows of the embedding for the tokens of a prompt, and the
//! output head in parts. Results are identical to the last bit.

use super::block::{DecoderBlock, OutputPath};
use super::memory::HEAD_ROWS;
use super::{Checkpoint, ModelConfig, Placement, Weights};
use crate::kernels::{linear, wide, wide_type};
use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use candle_nn::{Embedding, Module as _};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Weights in their files, with the model's configuration and placement.
pub(super) struct StoredWeights {
    checkpoint: Checkpoint,
    config: ModelConfig,
    shapes: BTreeMap<String, Vec<usize>>,
    placement: Placement,
}

impl StoredWeights {
    /// # Errors
    /// Those of [`Checkpoint::check`].
    pub(super) fn new(checkpoint: Checkpoint, config: &ModelConfig, placement: &Placement) -> Result<Arc<Self>> {
        checkpoint.check(config)?;
        let shapes = config.tensors().into_iter().collect();
        Ok(Arc::new(Self { checkpoint, config: config.clone(), shapes, placement: placement.clone() }))
    }

    /// The weights, to be placed.
    pub(super) fn placed(self: &Arc<Self>) -> Weights {
        Weights::stored(self.clone()).placed(&self.placement)
    }

    /// Reads a tensor of the model as `f32`; `None` if the model has none of this name.
    pub(super) fn read(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(shape) = self.shapes.get(name) else { return Ok(None) };
        self.checkpoint.read(&self.config, name, shape).map(Some)
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
    Expanded(Arc<Vec<Arc<DecoderBlock>>>),
    Streamed(Arc<StoredWeights>),
}

impl BlockStorage {
    pub(super) fn expanded(blocks: Vec<DecoderBlock>) -> Self {
        let source = BlockSource::Expanded(Arc::new(blocks.into_iter().map(Arc::new).collect()));
        Self { source, last_output_path: Arc::default() }
    }

    pub(super) fn streamed(weights: Arc<StoredWeights>) -> Self {
        Self { source: BlockSource::Streamed(weights), last_output_path: Arc::default() }
    }

    /// The weights of layers that are expanded when their turn comes; `None` if they all are.
    pub(super) fn stored(&self) -> Option<&Arc<StoredWeights>> {
        match &self.source {
            BlockSource::Expanded(_) => None,
            BlockSource::Streamed(weights) => Some(weights),
        }
    }

    pub(super) fn block(&self, layer: usize) -> Result<Arc<DecoderBlock>> {
        match &self.source {
            BlockSource::Expanded(blocks) => Ok(blocks[layer].clone()),
            BlockSource::Streamed(weights) => {
                Ok(Arc::new(DecoderBlock::load(&weights.config, layer, &mut weights.placed())?))
            }
        }
    }

    /// The output path of a layer, with its matrix on the host.
    pub(super) fn output_path(&self, layer: usize) -> Result<Arc<OutputPath>> {
        // A panic of another thread cannot leave it half changed.
        let mut last = self.last_output_path.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, path)) = last.as_ref().filter(|(of, _)| *of == layer) {
            return Ok(path.clone());
        }
        let path = Arc::new(match &self.source {
            BlockSource::Expanded(blocks) => blocks[layer].output_path().on_host()?,
            BlockSource::Streamed(weights) => {
                OutputPath::load(&weights.config, layer, &mut Weights::stored(weights.clone()))?
            }
        });
        *last = Some((layer, path.clone()));
        Ok(path)
    }
}

/// The embedding or the output head: (W, E).
#[derive(Clone)]
pub(super) enum VocabularyMatrix {
    Expanded(Tensor),
    Streamed { weights: Arc<StoredWeights>, name: &'static str },
}

impl VocabularyMatrix {
    /// Rows of token ids: (n, E).
    pub(super) fn rows(&self, ids: &[u32]) -> Result<Tensor> {
        match self {
            Self::Expanded(table) => {
                let embedding = Embedding::new(table.clone(), table.dim(1)?);
                Ok(embedding.forward(&Tensor::new(ids, table.device())?)?)
            }
            Self::Streamed { weights, name } => weights.rows(name, ids.iter().map(|&id| id as usize..id as usize + 1)),
        }
    }

    /// Logits: (.., E) -> (.., W). A `bf16` table gives `f32` logits, computed in parts: at eight bits of precision
    /// logits would tie.
    pub(super) fn linear(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Expanded(table) if table.dtype() == wide_type(table.dtype()) => Ok(linear(x, table)?),
            Self::Expanded(_) => {
                let x = wide(x)?;
                let parts = self.parts().map(|part| Ok(linear(&x, &wide(&part?)?)?)).collect::<Result<Vec<_>>>()?;
                Ok(Tensor::cat(&parts, x.rank() - 1)?) // differentiable
            }
            Self::Streamed { .. } => {
                let x = wide(x)?;
                let dim = x.rank() - 1;
                let dims = [&x.dims()[..dim], &[self.len()]].concat();
                let logits = Tensor::zeros(dims, x.dtype(), x.device())?; // ..,W
                let mut done = 0;
                for part in self.parts() {
                    let part_logits = linear(&x, &wide(&part?)?)?; // ..,rows
                    logits.slice_set(&part_logits, dim, done)?;
                    done += part_logits.dim(dim)?;
                }
                Ok(logits)
            }
        }
    }

    /// The gradient of the argument of [`VocabularyMatrix::linear`], from that of its value: (n, W) -> (n, E).
    pub(super) fn pull_back(&self, gradient: &Tensor) -> Result<Tensor> {
        let mut sum = None;
        let mut done = 0;
        for part in self.parts() {
            let part = wide(&part?)?; // rows,E
            let product = gradient.narrow(1, done, part.dim(0)?)?.matmul(&part)?; // n,E
            done += part.dim(0)?;
            sum = Some(match sum {
                None => product,
                Some(sum) => (sum + product)?,
            });
        }
        sum.context("the vocabulary is empty")
    }

    fn len(&self) -> usize {
        match self {
            Self::Expanded(table) => table.dims()[0],
            Self::Streamed { weights, .. } => weights.config.vocab,
        }
    }

    /// All rows in order, in parts: (rows, E) each.
    fn parts(&self) -> Box<dyn Iterator<Item = Result<Tensor>> + '_> {
        let rows = self.len();
        let ranges = (0..rows).step_by(HEAD_ROWS).map(move |start| start..rows.min(start + HEAD_ROWS));
        match self {
            Self::Expanded(table) => Box::new(ranges.map(|rows| Ok(table.narrow(0, rows.start, rows.len())?))),
            Self::Streamed { weights, name } => Box::new(ranges.map(|rows| weights.rows(name, std::iter::once(rows)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DecoderSizes, Transformer};
    use super::*;
    use crate::attention::{Stream, Variant};
    use crate::kernels::RopeStyle;
    use candle_core::DType;

    /// A model of three layers with a vocabulary that is read in two parts, expanded and streamed.
    fn models(tied: bool, dtype: DType) -> [Transformer; 2] {
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
        [Transformer::expanded, Transformer::streamed].map(|open| {
            let checkpoint = Checkpoint::open(folder.path()).unwrap();
            open(&config, checkpoint, &Placement::default()).unwrap()
        })
    }

    #[test]
    fn both_states_of_weights_give_identical_results() {
        for (tied, dtype) in [(false, DType::F32), (true, DType::BF16), (false, DType::F16)] {
            let [expanded, streamed] = models(tied, dtype);
            assert!(streamed.is_streamed() && !expanded.is_streamed());
            assert!(streamed.expanded_bytes() > 0 && expanded.expanded_bytes() == 0);
            let ids: Vec<u32> = (0..40).map(|i| (i * 4001) % expanded.config.vocab as u32).collect();
            let logits = |model: &Transformer| {
                let hidden = model.hidden(std::slice::from_ref(&ids), &mut Stream::new(&[])).unwrap();
                model.logits(&hidden).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
            };
            let agreement = |model: &Transformer| format!("{:?}", model.agreement(2, 1).unwrap());
            for _ in 0..2 {
                assert!(logits(&streamed) == logits(&expanded), "tied: {tied}, {dtype:?}");
            }
            assert_eq!(agreement(&expanded), agreement(&streamed));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_while_a_model_runs_is_an_error_that_names_it() {
        let [expanded, _] = models(false, DType::F32);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        Weights::init(&expanded.config, 1).unwrap().write(&path, DType::F32, &[]).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let model = Transformer::streamed(&expanded.config, checkpoint, &Placement::default()).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(20_000).unwrap();
        let error = model.hidden(&[vec![1, 2, 3]], &mut Stream::new(&[])).unwrap_err();
        assert!(format!("{error:#}").contains("model.safetensors"), "{error:#}");
    }
}
