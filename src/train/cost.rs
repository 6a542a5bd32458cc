//! Memory of training, bounded before it begins.

use super::step::{cut, maps_bytes};
use super::{Stage, TrainRun, TrainSpec, WorkerPool};
use crate::base::memory::{check_fits, size_name};
use crate::model::{ModelConfig, Placement};
use crate::prompts::Tokenizer;
use anyhow::Result;

/// Copies of the parameters in `f32` while a checkpoint is written: the parameters, two moments, gradients, the
/// contents of the file, and the saved model.
const COPIES: u64 = 7;

impl TrainSpec {
    /// Checks that these runs fit into free memory.
    ///
    /// # Errors
    /// A usage error if they do not; those of [`TrainSpec::configs`].
    pub fn check_memory(&self, runs: &[TrainRun], placement: &Placement) -> Result<()> {
        let configs = self.configs(Tokenizer::embedded().vocab_size())?;
        let workers = WorkerPool::new(runs, placement);
        let bytes = runs.iter().map(|run| self.run_bytes(&configs[run.variant], placement, workers.threads_per_run()));
        let needed = bytes.max().unwrap_or(0) * workers.active() as u64;
        check_fits(
            needed,
            || format!("model: training takes up to {} of memory", size_name(needed)),
            "lower width, layers, ffn or step_tok, or train fewer variants at once",
        )
    }

    /// Bound on the host memory of one run with this many threads, in bytes.
    fn run_bytes(&self, config: &ModelConfig, placement: &Placement, threads: usize) -> u64 {
        let stages = self.stages.iter().map(|stage| stage.bytes(config, placement, threads));
        COPIES * parameter_bytes(config) + stages.max().unwrap_or(0)
    }
}

impl Stage {
    /// Memory of the parts of a step that run at once, in bytes. Every part has its own activations and gradients.
    fn bytes(&self, config: &ModelConfig, placement: &Placement, threads: usize) -> u64 {
        let (part_tok, at_once) = cut(config, placement, self.ctx_tok);
        let part_tok = self.ctx_tok.max(part_tok.min(self.step_tok));
        let parts = self.step_tok.div_ceil(part_tok).min(at_once.min(threads)) as u64;
        let maps = maps_bytes(config, placement, self.ctx_tok) * (part_tok / self.ctx_tok) as u64;
        let graph = match (placement.has_kernels(), placement.device.is_cpu()) {
            (true, _) => 2 * activation_bytes(config, part_tok),
            (false, true) => 2 * activation_bytes(config, part_tok) + maps,
            (false, false) => 0, // in device memory
        };
        parts * (graph + parameter_bytes(config))
    }
}

fn parameter_bytes(config: &ModelConfig) -> u64 {
    4 * config.parameters() as u64
}

/// Memory of the activations of a forward pass over `tokens` tokens that the backward pass needs, in bytes: residual
/// streams and norms; q, k, v before and after RoPE; mixtures of the heads; gate, up and their product; logits.
fn activation_bytes(config: &ModelConfig, tokens: usize) -> u64 {
    let wiring = config.wiring();
    let projections = (config.query_heads() + config.key_heads() + config.kv_heads) * config.head_dim;
    let heads = wiring.maps() * wiring.heads() * wiring.value_slices() * config.head_dim;
    let layer = 6 * config.width + 2 * projections + heads + config.attention_width() + 3 * config.ffn;
    4 * (tokens * (layer * config.layers.len() + 3 * config.vocab)) as u64
}
