//! Estimates of the memory and the work of training.

use super::step::{cut, maps_bytes};
use super::{Stage, TrainRun, TrainSpec, WorkerPool};
use crate::memory::{check_fits, rss_bytes, size_name};
use crate::model::{ModelConfig, Placement};
use crate::prompt::Tokenizer;
use anyhow::Result;

/// Copies of the parameters in `f32` while a checkpoint is written: the parameters, two moments, gradients, the
/// contents of the file, and the saved model.
const COPIES: f64 = 7.0;

/// Memory of a forward and backward pass relative to the activations of the forward pass, because of gradients of the
/// same shapes.
const BACKWARD: f64 = 1.35;

/// Fixed memory of training, in bytes, as measured: code, and what the allocator holds for each thread.
const ANY_RUN: f64 = 20e6;

impl TrainSpec {
    /// Estimates the peak memory of these runs, in bytes.
    ///
    /// # Errors
    /// A usage error if there is not as much free memory; those of [`TrainSpec::configs`].
    pub fn check_memory(&self, runs: &[TrainRun], placement: &Placement) -> Result<u64> {
        let configs = self.configs(Tokenizer::embedded().vocab_size())?;
        let workers = WorkerPool::new(runs, placement);
        let of_run = |run: &TrainRun| self.run_bytes(&configs[run.variant], placement, workers.threads_per_run());
        let mut bytes: Vec<f64> = runs.iter().map(of_run).collect();
        bytes.sort_by(|a, b| b.total_cmp(a));
        let needed = bytes[..workers.active().min(bytes.len())].iter().sum::<f64>() as u64;
        let takes = || format!("model: training takes about {} of memory", size_name(needed));
        check_fits(needed, takes, "lower width, layers, ffn or step_tok, or train fewer variants at once")?;
        Ok(rss_bytes().unwrap_or(0).saturating_add(needed))
    }

    /// Returns the work of a run with this configuration.
    pub fn work(&self, config: &ModelConfig) -> Work {
        let of_stage = |stage: &Stage| {
            let each = config.forward_flops(stage.ctx_tok).sum() / stage.ctx_tok as f64;
            (stage.steps() * stage.step_tok, each)
        };
        Work(self.stages.iter().map(of_stage).collect())
    }

    /// Estimates the host memory of one run with this many threads, in bytes.
    fn run_bytes(&self, config: &ModelConfig, placement: &Placement, threads: usize) -> f64 {
        let parameters = config.parameters() as f64;
        let of_stage = |ctx_tok: usize, step_tok: usize| {
            let (part_tok, at_once) = cut(config, placement, ctx_tok);
            let part_tok = ctx_tok.max(part_tok.min(step_tok));
            let parts = step_tok.div_ceil(part_tok).min(at_once.min(threads)) as f64;
            let graph = match (placement.has_kernels(), placement.device.is_cpu()) {
                (true, _) => part_bytes(config, part_tok),
                (false, true) => {
                    let maps = maps_bytes(config, placement, ctx_tok) * (part_tok / ctx_tok) as u64;
                    2.0 * part_bytes(config, part_tok) + maps as f64
                }
                (false, false) => 0.0, // in device memory
            };
            // Every part has its own gradients until they are added up.
            parts * (BACKWARD * graph + 4.0 * parameters)
        };
        let widest = self.stages.iter().map(|stage| of_stage(stage.ctx_tok, stage.step_tok)).fold(0.0, f64::max);
        ANY_RUN + 4.0 * COPIES * parameters + widest
    }
}

/// Work of one run: for each stage, its tokens and the operations of a forward pass per token, which grow with the
/// context length. Backward passes are proportional to it.
#[derive(Clone, Debug)]
pub struct Work(Vec<(usize, f64)>);

impl Work {
    /// Returns the forward operations of the first `tokens` tokens.
    pub fn until(&self, tokens: usize) -> f64 {
        let mut rest = tokens;
        let of_stage = |&(tokens, each): &(usize, f64)| {
            let here = tokens.min(rest);
            rest -= here;
            here as f64 * each
        };
        self.0.iter().map(of_stage).sum()
    }
}

/// Estimates the activations of a forward pass over `tokens` tokens that the backward pass needs, in bytes.
fn part_bytes(config: &ModelConfig, tokens: usize) -> f64 {
    let wiring = config.wiring();
    let (e, d) = (config.width, config.head_dim);
    let projections = (config.query_heads() + config.key_heads() + config.kv_heads) * d;
    let heads = wiring.maps() * wiring.heads() * wiring.value_slices() * d;
    // Residual streams and norms; q, k, v before and after RoPE; mixtures of the heads; gate, up and their product.
    let layer = 6 * e + 2 * projections + heads + config.attention_width() + 3 * config.ffn;
    4.0 * tokens as f64 * (layer as f64 * config.layers.len() as f64 + 3.0 * config.vocab as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_long_context_is_more_work() {
        let work = Work(vec![(100, 1.0), (50, 4.0)]);
        assert_eq!(
            [0, 60, 100, 110, 150, 999].map(|tokens| work.until(tokens)),
            [0.0, 60.0, 100.0, 140.0, 300.0, 300.0]
        );
    }
}
