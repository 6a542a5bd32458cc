//! Memory that training needs, compared with what is free before it begins.

use super::step::cut;
use super::{TrainRun, TrainSpec, WorkerPool};
use anyhow::Result;
use base::memory::{check_fits, size_name};
use engine::model::{ModelConfig, Placement};

/// Copies of the parameters in `f32` while a checkpoint is written: the parameters, two moments, gradients, the
/// contents of the file, and the saved model.
const COPIES: u64 = 7;

impl TrainSpec {
    /// Checks that these runs fit into free memory.
    ///
    /// # Errors
    /// A usage error if they do not; those of [`TrainSpec::configs`].
    pub fn check_memory(&self, runs: &[TrainRun], placement: &Placement) -> Result<()> {
        let configs = self.configs()?;
        let workers = WorkerPool::new(runs, placement);
        let bytes = runs.iter().map(|run| self.run_bytes(&configs[run.variant], placement, workers.threads_per_run()));
        let needed = bytes.max().unwrap_or(0) * workers.active() as u64;
        check_fits(
            needed,
            || format!("model: training needs {} of memory", size_name(needed)),
            "lower width, layers, ffn or step_tok, or train fewer variants at once",
        )
    }

    /// Host memory that one run with this many threads needs, in bytes: the copies of its parameters, and for each part of a
    /// step that runs at once a pass over it and its gradients.
    fn run_bytes(&self, config: &ModelConfig, placement: &Placement, threads: usize) -> u64 {
        let parameters = 4 * config.parameters() as u64;
        let mut largest = 0;
        for stage in &self.stages {
            let (part_tok, at_once) = cut(config, placement, stage.ctx_tok);
            let part_tok = stage.ctx_tok.max(part_tok.min(stage.step_tok));
            let parts = stage.step_tok.div_ceil(part_tok).min(at_once.min(threads)) as u64;
            largest = largest.max(parts * (config.pass_bytes(part_tok) + parameters));
        }
        COPIES * parameters + largest
    }
}
