//! The whole decoder, as described by a [`ModelConfig`]: embedding, layers on a residual stream, final norm and output
//! head.

use super::block::DecoderBlock;
use super::linear::{normed, Norm};
use super::names::{EMBEDDING, EMBEDDING_NORM, FINAL_NORM, HEAD, HEAD_BIAS, POSITIONS, PROJECT_IN, PROJECT_OUT};
use super::rotary::GrowingTable;
use super::self_attention::RotaryPositions;
use super::weight_storage::{BlockStorage, StoredWeights, VocabularyMatrix};
use super::{Checkpoint, ModelConfig, Placement, Positions, Weights};
use crate::attention::{Attend, Lambda};
use crate::kernels::{linear, numbers, RopeTable};
use anyhow::{bail, ensure, Result};
use candle_core::Tensor;
use std::sync::Arc;

/// A decoder-only transformer. Cheap to clone: tensors are shared.
#[derive(Clone)]
pub struct Transformer {
    /// The description that it was built from.
    pub config: ModelConfig,
    pub placement: Placement,
    embed: VocabularyMatrix,
    embed_norm: Option<Norm>,
    /// From the width of the embeddings to E (E, embedding width) and back, where they differ.
    pub(super) projections: Option<[Tensor; 2]>,
    /// Learned position embeddings: (positions, E).
    positions: Option<Tensor>,
    rotary: Vec<Arc<GrowingTable>>,
    pub(super) blocks: BlockStorage,
    pub(super) norm: Option<Norm>,
    pub(super) head: VocabularyMatrix,
    head_bias: Option<Tensor>,
}

impl Transformer {
    /// Builds the model from `weights`.
    ///
    /// # Errors
    /// If a tensor is missing, or not used by the model.
    pub fn load(config: &ModelConfig, mut weights: Weights) -> Result<Self> {
        Self::build(config, &mut weights)
    }

    /// Like [`Transformer::load`], but borrows the weights, for training.
    pub fn build(config: &ModelConfig, weights: &mut Weights) -> Result<Self> {
        weights.check(config)?;
        let blocks = (0..config.layers.len()).map(|layer| DecoderBlock::load(config, layer, weights));
        let blocks = BlockStorage::expanded(blocks.collect::<Result<_>>()?);
        Self::assemble(config, blocks, weights)
    }

    /// Like [`Transformer::load`], from files and for any device or number type. Layers are read one at a time.
    ///
    /// # Errors
    /// Those of [`Checkpoint::load`].
    pub fn expanded(config: &ModelConfig, checkpoint: Checkpoint, placement: &Placement) -> Result<Self> {
        Self::build(config, &mut StoredWeights::new(checkpoint, config, placement)?.placed())
    }

    /// Builds a model whose weights stay in their files: each layer is expanded when its turn comes, in decoding for
    /// every token.
    ///
    /// # Errors
    /// Like [`Checkpoint::load`], but NaN and infinities are found only when a layer is read.
    pub fn streamed(config: &ModelConfig, checkpoint: Checkpoint, placement: &Placement) -> Result<Self> {
        let stored = StoredWeights::new(checkpoint, config, placement)?;
        let mut weights = stored.placed();
        Self::assemble(config, BlockStorage::streamed(stored), &mut weights)
    }

    /// Builds the model from its layers, and takes the remaining tensors.
    fn assemble(config: &ModelConfig, blocks: BlockStorage, weights: &mut Weights) -> Result<Self> {
        let [embed, head] = match blocks.stored() {
            None => {
                let embed = weights.take(EMBEDDING)?;
                let head = if config.tied { embed.clone() } else { weights.take(HEAD)? };
                [embed, head].map(VocabularyMatrix::Expanded)
            }
            Some(stored) => [EMBEDDING, if config.tied { EMBEDDING } else { HEAD }]
                .map(|name| VocabularyMatrix::Streamed { weights: stored.clone(), name }),
        };
        let mut rotary = Vec::new();
        if let Positions::Rotary { embeddings, .. } = &config.positions {
            rotary.extend(embeddings.iter().map(|rotary| Arc::new(GrowingTable::new(rotary))));
        }
        Ok(Self {
            config: config.clone(),
            placement: weights.placement().clone(),
            embed,
            embed_norm: Norm::find(config, EMBEDDING_NORM, weights)?,
            projections: weights.find(PROJECT_IN)?.zip(weights.find(PROJECT_OUT)?).map(<[Tensor; 2]>::from),
            positions: weights.find(POSITIONS)?,
            rotary,
            blocks,
            norm: Norm::find(config, FINAL_NORM, weights)?,
            head,
            head_bias: weights.find(HEAD_BIAS)?,
        })
    }

    /// Returns `true` if the weights stay in their files.
    pub fn is_streamed(&self) -> bool {
        self.blocks.stored().is_some()
    }

    /// Memory of the weights that a pass expands, in bytes; 0 if all of them are.
    pub fn expanded_bytes(&self) -> u64 {
        if self.is_streamed() {
            self.config.expanded_bytes(self.placement.dtype)
        } else {
            0
        }
    }

    /// A copy with a context of `ctx_tok` tokens, for measuring rotary models beyond their trained context.
    pub fn with_context(&self, ctx_tok: usize) -> Self {
        let mut longer = self.clone();
        longer.config.max_ctx_tok = ctx_tok;
        longer
    }

    pub fn last_layer(&self) -> usize {
        self.config.layers.len() - 1
    }

    /// Final normed residual stream, of which logits are made: (B, T, embedding width).
    ///
    /// # Errors
    /// If an id is outside the vocabulary or T exceeds the context.
    pub fn hidden(&self, ids: &[Vec<u32>], attend: &mut dyn Attend) -> Result<Tensor> {
        self.hidden_from(ids, 0, attend)
    }

    /// Like [`Transformer::hidden`], for tokens that start at position `start`. `attend` provides the keys and values
    /// before them.
    pub fn hidden_from(&self, ids: &[Vec<u32>], start: usize, attend: &mut dyn Attend) -> Result<Tensor> {
        let x = self.embedded(ids, start)?; // B,T,E
        self.hidden_behind(x, 0, start, attend)
    }

    /// Like [`Transformer::hidden_from`], from the residual stream (B, T, E) before the layer `first` on.
    pub fn hidden_behind(&self, mut x: Tensor, first: usize, start: usize, attend: &mut dyn Attend) -> Result<Tensor> {
        attend.residual(first, &x)?;
        let tables = self.rotary_tables(start + x.dim(1)?);
        for layer in first..self.config.layers.len() {
            let block = self.blocks.block(layer)?;
            x = block.forward(&x, layer, &RotaryPositions { tables: &tables, start }, attend)?;
            attend.residual(layer + 1, &x)?;
        }
        self.finished(x)
    }

    /// One table per rotary embedding, for this number of positions.
    pub(super) fn rotary_tables(&self, positions: usize) -> Vec<Arc<RopeTable>> {
        self.rotary.iter().map(|table| table.with_positions(positions)).collect()
    }

    /// What logits are made of, from the residual stream after the last layer: (B, T, E) -> (B, T, embedding width).
    pub(super) fn finished(&self, x: Tensor) -> Result<Tensor> {
        let x = normed(&self.norm, x)?;
        match &self.projections {
            None => Ok(x),
            Some([_, out]) => Ok(linear(&x, out)?),
        }
    }

    /// Input of the first layer: (B, T, E).
    fn embedded(&self, ids: &[Vec<u32>], start: usize) -> Result<Tensor> {
        let b = ids.len();
        let t = ids.first().map_or(0, Vec::len);
        ensure!(t > 0 && ids.iter().all(|row| row.len() == t), "the rows of a batch must have the same length");
        let limit = self.config.max_ctx_tok;
        ensure!(start + t <= limit, "{} tokens exceed the model's context of {limit}", start + t);
        let flat: Vec<u32> = ids.concat();
        if let Some(id) = flat.iter().find(|&&id| id as usize >= self.config.vocab) {
            bail!("token id {id} is outside the vocabulary of {}", self.config.vocab);
        }
        let mut x = self.embed.rows(&flat)?.reshape((b, t, self.config.embed_width))?; // B,T,embedding width
        if let Some([into, _]) = &self.projections {
            x = linear(&x, into)?; // B,T,E
        }
        if self.config.embed_scale != 1.0 {
            x = (x * self.config.embed_scale)?;
        }
        x = normed(&self.embed_norm, x)?;
        if let (Some(positions), Positions::Learned { offset }) = (&self.positions, &self.config.positions) {
            ensure!(
                start + t + offset <= positions.dim(0)?,
                "{} tokens exceed the model's {} learned positions",
                start + t,
                positions.dim(0)? - offset
            );
            x = x.broadcast_add(&positions.narrow(0, start + offset, t)?)?;
        }
        Ok(x)
    }

    /// Logits of hidden states: (.., E) -> (.., W), at least `f32` whatever the weights are.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.finished_logits(self.head.linear(&hidden.contiguous()?)?)
    }

    /// Applies bias, factor and soft cap to the products with the output head: (.., W) -> same shape.
    pub(super) fn finished_logits(&self, mut logits: Tensor) -> Result<Tensor> {
        if let Some(bias) = &self.head_bias {
            logits = logits.broadcast_add(bias)?;
        }
        if self.config.logit_scale != 1.0 {
            logits = (logits * self.config.logit_scale)?;
        }
        match self.config.final_softcap {
            None => Ok(logits),
            Some(cap) => Ok(((logits / cap)?.tanh()? * cap)?),
        }
    }

    /// Lambda of each layer, as the mean over heads. Empty for variants with one map, or if lambda depends on the
    /// token.
    pub fn lambdas(&self) -> Result<Vec<f64>> {
        let mut lambdas = Vec::new();
        let layers = if self.config.variant.lambda == Lambda::None { 0 } else { self.config.layers.len() };
        for layer in 0..layers {
            if let Some(lambda) = self.blocks.output_path(layer)?.extras.constant_lambda()? {
                let numbers = numbers(&lambda)?;
                lambdas.push(numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len() as f64);
            }
        }
        Ok(lambdas)
    }
}
