//! A training step: forward pass, backward pass, AdamW. And the parameters it updates.

use super::adamw::{AdamW, Gradients};
use super::data::{Batch, BatchPart};
use anyhow::Result;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use engine::attention::{kept_bytes, Fused};
use engine::kernels::{cross_entropy, numbers, wide_type, TokenScores};
use engine::model::{ModelConfig, Placement, Transformer, Weights};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Trainable parameters, initialised from a seed.
///
/// # Errors
/// If a tensor cannot be allocated.
pub fn variables(config: &ModelConfig, seed: u64) -> Result<BTreeMap<String, Var>> {
    trainable(&Weights::init(config, seed)?)
}

/// Trainable copies of `weights`.
pub(super) fn trainable(weights: &Weights) -> Result<BTreeMap<String, Var>> {
    weights.iter().map(|(name, tensor)| Ok((name.clone(), Var::from_tensor(tensor)?))).collect()
}

/// The parameters as tensors that record gradients and share storage with `vars`, so that they follow updates.
pub fn tensors(vars: &BTreeMap<String, Var>) -> Weights {
    Weights::new(vars.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())), "parameters")
}

/// The model with copies of the parameters in another place: device or number type. Gradients flow through the copies
/// to `vars`; the copies do not follow updates.
///
/// # Errors
/// If the device has too little memory.
pub fn copy_to_device(
    config: &ModelConfig,
    vars: &BTreeMap<String, Var>,
    placement: &Placement,
) -> Result<Transformer> {
    Transformer::build(config, &mut tensors(vars).placed(placement))
}

/// Copies of the parameters that record no gradients.
pub(super) fn detached(vars: &BTreeMap<String, Var>) -> Result<Weights> {
    let mut copies: Vec<(String, Tensor)> = Vec::new();
    for (name, var) in vars {
        copies.push((name.clone(), var.as_detached_tensor().copy()?));
    }
    Ok(Weights::new(copies, "parameters"))
}

/// Tokens of a part of a step where kernels compute. The activations that a small part keeps for its backward pass take
/// less memory, more of which stays in the caches.
const PART_TOK: usize = 1024;

/// Memory for the attention maps of a part in candle's ops, in bytes. A part has at least one sequence.
const MAPS_BYTES: u64 = 8 << 30;

/// The parts of a step over sequences of `ctx_tok` tokens: tokens in a part, and parts that run at once.
pub(super) fn cut(config: &ModelConfig, placement: &Placement, ctx_tok: usize) -> (usize, usize) {
    if placement.has_kernels() {
        return (PART_TOK, rayon::current_num_threads());
    }
    // One part occupies a device, and a larger part occupies it better.
    let sequences = MAPS_BYTES / maps_bytes(config, placement, ctx_tok).max(1);
    (ctx_tok * sequences.max(1) as usize, 1)
}

/// Memory of the attention maps of all layers that candle's ops keep for the backward pass of a sequence, in bytes.
fn maps_bytes(config: &ModelConfig, placement: &Placement, ctx_tok: usize) -> u64 {
    let wiring = config.wiring();
    let bytes = wide_type(placement.dtype).size_in_bytes();
    config.layers.len() as u64 * kept_bytes(wiring.heads(), wiring.maps(), ctx_tok * ctx_tok, bytes)
}

/// Results of a step.
pub struct Stepped {
    /// The weighted loss.
    pub loss_nats: f64,
    /// Scores of the targets, in order.
    pub scores: TokenScores,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Gradients of all parameters before clipping.
    pub gradients: Gradients,
}

/// Runs the forward and backward pass over a batch and updates the parameters.
///
/// # Errors
/// If shapes do not fit or a parameter receives no gradient.
pub fn step(model: &Transformer, optimizer: &mut AdamW, batch: &Batch, rate: f64) -> Result<Stepped> {
    let total = sum(&batch.weights);
    let mut value = 0.0;
    let mut scores = Vec::with_capacity(batch.targets.len());
    let mut gradients = Gradients::new();
    let (part_tok, at_once) = cut(&model.config, &model.placement, batch.inputs.first().map_or(0, Vec::len));
    let parts: Vec<BatchPart> = batch.parts(part_tok).collect();
    // Gradients are added in the order of the parts, so that the sum does not depend on the number of threads.
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

/// The loss of a part times its share of the weights, the scores of its targets, and the gradients.
fn backward(model: &Transformer, part: &BatchPart<'_>, share: f64) -> Result<(f64, TokenScores, GradStore)> {
    let hidden = model.hidden(part.inputs, &mut Fused)?; // B,T,E
    let logits = model.logits(&hidden.flatten_to(1)?)?; // B*T,W
    let (mean, scores) = cross_entropy(&logits, part.targets.to_vec(), part.weights.to_vec())?;
    let loss = (mean * share)?;
    let value = f64::from(numbers(&loss)?[0]);
    anyhow::ensure!(value.is_finite(), "the loss is {value}; lower optimizer.rate, and begin again in a new folder");
    Ok((value, scores, loss.backward()?))
}

fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}
