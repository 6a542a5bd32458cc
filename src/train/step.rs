//! One update: forward, backward, AdamW; and the parameters it works on.

use super::adamw::{AdamW, Gradients};
use super::data::{Batch, BatchPart};
use crate::attention::{kept_bytes, Fused};
use crate::model::{ModelConfig, Placement, Transformer, Weights};
use crate::ops::{cross_entropy, numbers, wide_type, TokenScores};
use anyhow::Result;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Fresh trainable parameters.
///
/// # Errors
/// If a tensor cannot be made.
pub fn variables(config: &ModelConfig, seed: u64) -> Result<BTreeMap<String, Var>> {
    trainable(&Weights::init(config, seed)?)
}

/// Parameters that start from `weights`.
pub(super) fn trainable(weights: &Weights) -> Result<BTreeMap<String, Var>> {
    weights.iter().map(|(name, tensor)| Ok((name.clone(), Var::from_tensor(tensor)?))).collect()
}

/// The parameters as tensors that record gradients and follow updates.
pub fn tensors(vars: &BTreeMap<String, Var>) -> Weights {
    Weights::new(vars.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())), "parameters")
}

/// The model on another device or with another number type than its parameters: copies, through which gradients find their way
/// back. They do not follow updates.
///
/// # Errors
/// If the device has no room for them.
pub fn elsewhere(config: &ModelConfig, vars: &BTreeMap<String, Var>, placement: &Placement) -> Result<Transformer> {
    Transformer::build(config, &mut tensors(vars).placed(placement))
}

/// Copies that record nothing.
pub(super) fn detached(vars: &BTreeMap<String, Var>) -> Result<Weights> {
    let copy = |(name, var): (&String, &Var)| Ok((name.clone(), var.as_detached_tensor().copy()?));
    Ok(Weights::new(vars.iter().map(copy).collect::<Result<Vec<(String, Tensor)>>>()?, "parameters"))
}

/// Tokens that are worked on at once where the kernels compute. A step's sequences are independent of each other, and what few
/// of them leave behind for their backward pass takes less memory, of which more stays in the caches.
const PART_TOK: usize = 1024;

/// Memory that candle's own ops may take for the attention maps of a part, in bytes; one sequence has to have room.
const MAPS_BYTES: u64 = 8 << 30;

/// How a step over sequences of `ctx_tok` tokens is cut: tokens of a part, and parts at once.
pub(super) fn cut(config: &ModelConfig, placement: &Placement, ctx_tok: usize) -> (usize, usize) {
    if placement.has_kernels() {
        return (PART_TOK, rayon::current_num_threads());
    }
    // A device is busy with one part, the larger the better.
    let sequences = MAPS_BYTES / maps_bytes(config, placement, ctx_tok).max(1);
    (ctx_tok * sequences.max(1) as usize, 1)
}

/// Attention maps of a sequence that candle's own ops keep for the backward pass, of all layers, in bytes.
pub(super) fn maps_bytes(config: &ModelConfig, placement: &Placement, ctx_tok: usize) -> u64 {
    let (wiring, bytes) = (config.wiring(), wide_type(placement.dtype).size_in_bytes());
    config.layers.len() as u64 * kept_bytes(wiring.heads(), wiring.maps(), ctx_tok, bytes)
}

/// What a step leaves to be logged.
pub struct Stepped {
    /// The weighted loss.
    pub loss_nats: f64,
    /// Of every target.
    pub scores: TokenScores,
    /// Before clipping.
    pub grad_norm: f64,
    /// Of all parameters, before clipping.
    pub gradients: Gradients,
}

/// Forward, backward, update.
///
/// # Errors
/// If shapes do not fit or a parameter receives no gradient.
pub fn step(model: &Transformer, optimizer: &mut AdamW, batch: &Batch, rate: f64) -> Result<Stepped> {
    let total = sum(&batch.weights);
    let (mut value, mut scores, mut gradients) = (0.0, Vec::with_capacity(batch.targets.len()), Gradients::new());
    let (part_tok, at_once) = cut(&model.config, &model.placement, batch.inputs.first().map_or(0, Vec::len));
    let parts: Vec<BatchPart> = batch.parts(part_tok).collect();
    // Added up in order, so that the sum does not depend on how many pass at once.
    for parts in parts.chunks(at_once) {
        let done: Vec<_> = parts.par_iter().map(|part| backward(model, part, sum(part.weights) / total)).collect();
        for done in done {
            let (loss, part_scores, grads) = done?;
            value += loss;
            scores.extend(part_scores);
            optimizer.collect(&grads, &mut gradients)?;
        }
    }
    let grad_norm = optimizer.update(&gradients, rate)?;
    Ok(Stepped { loss_nats: value, scores, grad_norm, gradients })
}

/// A part's share of the loss, the scores of its targets, and the gradients of that share.
fn backward(model: &Transformer, part: &BatchPart<'_>, share: f64) -> Result<(f64, TokenScores, GradStore)> {
    let hidden = model.hidden(part.inputs, &mut Fused)?; // B,T,E
    let logits = model.logits(&hidden.flatten_to(1)?)?; // B*T,W
    let (mean, scores) = cross_entropy(&logits, part.targets.to_vec(), part.weights.to_vec())?;
    let loss = (mean * share)?;
    let value = f64::from(numbers(&loss)?[0]);
    anyhow::ensure!(value.is_finite(), "the loss is {value}; lower optimizer.rate");
    Ok((value, scores, loss.backward()?))
}

fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}
