//! Memory that training needs, compared with what is free before it begins.

use super::adamw::AdamW;
use super::data::DataSource;
use super::spec::Stage;
use super::step::{copy_to_device, cut, step, tensors, variables};
use super::{OpenedSpec, TrainRun, WorkerPool};
use anyhow::Result;
use base::memory::{check_fits, size_name};
use engine::model::{ModelConfig, Placement, Transformer};
use std::time::Instant;

/// Copies of the parameters in `f32` while a checkpoint is written: the parameters, two moments, gradients, the
/// contents of the file, and the saved model.
const COPIES: u64 = 7;

impl OpenedSpec<'_> {
    /// A generous bound on the host memory that these runs need, in bytes.
    pub fn needed_bytes(&self, runs: &[TrainRun], placement: &Placement) -> u64 {
        let workers = WorkerPool::new(runs, placement);
        let threads = workers.threads_per_run();
        let bytes = runs.iter().map(|run| self.run_bytes(&self.configs[run.variant], placement, threads));
        bytes.max().unwrap_or(0) * workers.active() as u64
    }

    /// Checks that these runs fit into free memory.
    ///
    /// # Errors
    /// A usage error if they do not.
    pub fn check_memory(&self, runs: &[TrainRun], placement: &Placement) -> Result<()> {
        let needed = self.needed_bytes(runs, placement);
        check_fits(
            needed,
            || format!("model: training needs {} of memory", size_name(needed)),
            "lower width, layers, ffn or step_tok, or train fewer variants at once",
        )
    }

    /// What is worth knowing before these runs begin: parameters of each variant, memory, and texts that are left out.
    pub fn in_words(&self, runs: &[TrainRun], placement: &Placement) -> Vec<String> {
        let mut sizes = Vec::new();
        for (index, (variant, config)) in self.spec.variants.iter().zip(&self.configs).enumerate() {
            if runs.iter().any(|run| run.variant == index) {
                sizes.push(format!("{} {:.2} M", variant.name, config.parameters() as f64 / 1e6));
            }
        }
        let needed = size_name(self.needed_bytes(runs, placement));
        let mut lines = vec![format!("parameters: {}; at most {needed} of memory", sizes.join(", "))];
        for stage in &self.spec.stages {
            let Some((short, all)) = self.corpora.of(stage).map(|texts| texts.too_short(stage.ctx_tok)) else {
                continue;
            };
            if short > 0 {
                let ctx_tok = stage.ctx_tok;
                lines.push(format!("{short} of {all} documents are shorter than {ctx_tok} tokens, and left out"));
            }
        }
        lines
    }

    /// Tokens a second of a step of a stage in one of these runs, timed while no other run trains. Its weights are random.
    ///
    /// # Errors
    /// If a step fails.
    pub fn timed(&self, run: &TrainRun, stage: &Stage, runs: &[TrainRun], placement: &Placement) -> Result<f64> {
        let config = &self.configs[run.variant];
        let data = DataSource::new(run.seed, self.tokenizer()?).with_texts(&self.corpora);
        let batch = data.batch(stage, &self.spec.loss, 0)?;
        let vars = variables(config, run.seed)?;
        let mut optimizer = AdamW::new(&vars, &self.spec.optimizer);
        let mut seconds = 0.0;
        WorkerPool::new(runs, placement).thread_pool()?.install(|| {
            let start = Instant::now();
            let model = if placement.has_kernels() {
                Transformer::build(config, &mut tensors(&vars))?
            } else {
                copy_to_device(config, &vars, placement)?
            };
            step(&model, &mut optimizer, &batch, self.spec.rate_at(0))?;
            seconds = start.elapsed().as_secs_f64();
            anyhow::Ok(())
        })?;
        Ok(batch.targets.len() as f64 / seconds)
    }

    /// Host memory that one run with this many threads needs, in bytes: the copies of its parameters, and for each part of a
    /// step that runs at once a pass over it and its gradients.
    fn run_bytes(&self, config: &ModelConfig, placement: &Placement, threads: usize) -> u64 {
        let parameters = 4 * config.parameters() as u64;
        let mut largest = 0;
        for stage in &self.spec.stages {
            let (part_tok, at_once) = cut(config, placement, stage.ctx_tok);
            let part_tok = stage.ctx_tok.max(part_tok.min(stage.step_tok));
            let parts = stage.step_tok.div_ceil(part_tok).min(at_once.min(threads)) as u64;
            let of_part =
                if placement.has_kernels() { config.training_bytes(part_tok) } else { config.pass_bytes(part_tok) };
            largest = largest.max(parts * (of_part + parameters));
        }
        COPIES * parameters + largest
    }
}
