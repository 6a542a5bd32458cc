//! Weighted cross-entropy over logits, as a differentiable op that also scores every token.

use super::simd::{exp, max, softmax, sum};
use super::{has_kernels, numbers, slice, wide};
use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor};
use candle_nn::ops::log_softmax;
use rayon::prelude::*;
use std::sync::{Arc, Mutex};

/// Prediction of one target token.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenScore {
    /// Negative log-likelihood of the target, in nats.
    pub nll_nats: f32,
    /// `true` if the target has the largest logit; a tie is a miss.
    pub hit: bool,
}

/// Scores of every target, in order.
pub type TokenScores = Vec<TokenScore>;

struct CrossEntropy {
    targets: Vec<u32>,
    weights: Vec<f32>,
    scores: Arc<Mutex<TokenScores>>,
}

/// sum(w_i nll_i) / sum(w_i) over rows of logits (N, V), and the score of every row. The loss is 0 if all weights are.
///
/// # Errors
/// If there are not N targets and N weights, a target is V or more, or the logits are not contiguous.
pub fn cross_entropy(logits: &Tensor, targets: Vec<u32>, weights: Vec<f32>) -> Result<(Tensor, TokenScores)> {
    let (n, v) = logits.dims2()?;
    if targets.len() != n || weights.len() != n || targets.iter().any(|&t| t as usize >= v) {
        candle_core::bail!(
            "cross-entropy: {n} rows of {v} logits, {} targets, {} weights",
            targets.len(),
            weights.len()
        );
    }
    if !has_kernels(logits) {
        return in_candle(&wide(logits)?, targets, &weights);
    }
    let scores = Arc::new(Mutex::new(Vec::new()));
    let op = CrossEntropy { targets, weights, scores: scores.clone() };
    let loss = logits.apply_op1(op)?;
    let scores = std::mem::take(&mut *scores.lock().expect("no panic while scoring"));
    Ok((loss, scores))
}

/// [`cross_entropy`] in candle's ops.
fn in_candle(logits: &Tensor, targets: Vec<u32>, weights: &[f32]) -> Result<(Tensor, TokenScores)> {
    let n = targets.len();
    let device = logits.device();
    let dtype = logits.dtype();
    let targets = Tensor::from_vec(targets, (n, 1), device)?;
    let nll = log_softmax(logits, 1)?.gather(&targets, 1)?.squeeze(1)?.neg()?; // N
    let of_targets = logits.contiguous()?.gather(&targets, 1)?; // N,1
    let as_large = logits.broadcast_ge(&of_targets)?.to_dtype(DType::F32)?.sum(1)?; // N: the target counts itself
    let scores = numbers(&nll)?.into_iter().zip(numbers(&as_large)?);
    let scores = scores.map(|(nll_nats, as_large)| TokenScore { nll_nats, hit: as_large == 1.0 }).collect();
    let loss = (nll * Tensor::from_slice(weights, n, device)?.to_dtype(dtype)?)?.sum_all()?;
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    Ok(((loss / if total == 0.0 { 1.0 } else { total })?, scores))
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross-entropy"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let logits = slice(storage, layout, "cross-entropy")?;
        let v = layout.shape().dims()[1];
        let scores: TokenScores = logits
            .par_chunks(v)
            .zip(self.targets.par_iter())
            .with_min_len(64)
            .map(|(row, &t)| score(row, t as usize))
            .collect();
        let total: f64 =
            scores.iter().zip(self.weights.iter()).map(|(s, &w)| f64::from(s.nll_nats) * f64::from(w)).sum();
        *self.scores.lock().expect("no panic while scoring") = scores;
        Ok((CpuStorage::F32(vec![(total / self.total_weight()) as f32]), Shape::from(())))
    }

    fn bwd(&self, logits: &Tensor, _: &Tensor, dloss: &Tensor) -> Result<Option<Tensor>> {
        let v = logits.dim(1)?;
        let scale = f64::from(dloss.to_scalar::<f32>()?) / self.total_weight();
        let mut dlogits = numbers(logits)?;
        dlogits.par_chunks_mut(v).zip(self.targets.par_iter()).zip(self.weights.par_iter()).with_min_len(64).for_each(
            |((row, &target), &weight)| {
                let scale = (scale * f64::from(weight)) as f32;
                scaled_softmax(row, scale);
                row[target as usize] -= scale;
            },
        );
        Ok(Some(Tensor::from_vec(dlogits, logits.shape(), logits.device())?))
    }
}

impl CrossEntropy {
    /// The sum of the weights, as a divisor: never 0.
    fn total_weight(&self) -> f64 {
        self.weights.iter().map(|&w| f64::from(w)).sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

fn score(row: &[f32], target: usize) -> TokenScore {
    let (largest, log_sum) = largest_and_log_sum(row);
    let logit = row[target];
    let hit = logit == largest && row.iter().filter(|&&x| x == largest).count() == 1;
    TokenScore { nll_nats: largest + log_sum - logit, hit }
}

/// The largest logit and log(sum(exp(logit - largest))).
#[pulp::with_simd(largest_and_log_sum = pulp::Arch::new())]
#[inline(always)]
fn largest_and_log_sum_simd<S: pulp::Simd>(_simd: S, row: &[f32]) -> (f32, f32) {
    let largest = max(row);
    let mut lanes = [0.0f32; 16];
    let (chunks, tail) = row.as_chunks::<16>();
    for chunk in chunks {
        for i in 0..16 {
            lanes[i] += exp(chunk[i] - largest);
        }
    }
    let mut total = sum(&lanes);
    for &x in tail {
        total += exp(x - largest);
    }
    (largest, total.ln())
}

#[pulp::with_simd(scaled_softmax = pulp::Arch::new())]
#[inline(always)]
fn scaled_softmax_simd<S: pulp::Simd>(_simd: S, row: &mut [f32], scale: f32) {
    softmax(row);
    for p in row.iter_mut() {
        *p *= scale;
    }
}
