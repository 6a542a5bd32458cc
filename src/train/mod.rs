//! Training matched models.
//!
//! A run trains one variant from one seed. As many runs of a spec train in parallel as there are threads; the threads
//! of finished runs go to the remaining ones. Runs with the same seed see the same documents in the same order, and
//! start from the same values of the tensors that they share. The number of threads changes no bit of the results.

mod adamw;
mod check;
mod checkpoint;
mod corpus;
mod cost;
mod course;
mod data;
mod extend;
mod keys;
mod layers;
mod log;
pub mod metrics;
mod opened;
mod run;
mod spec;
mod start;
mod step;
mod study;
pub(crate) mod tables;

pub use adamw::{AdamW, Gradients};
pub use data::{Batch, BatchPart, DataSource, TargetKind};
pub use keys::{SpecKey, SpecTable, SPEC_TABLES};
pub use layers::LayerLine;
pub use log::{EvalLine, HeldOutLine, LogLine};
pub use opened::OpenedSpec;
pub use spec::*;
pub use step::{copy_to_device, step, tensors, variables, Stepped};
pub(crate) use study::{CurvePoint, Study};

use anyhow::{bail, Context, Result};
use base::files;
use engine::model::Placement;
use run::Trainer;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

/// The training log of a run: [`LogLine`]s.
pub const LOG_FILE: &str = "log.csv";
/// The needle evaluations of a run: [`EvalLine`]s.
pub const EVAL_FILE: &str = "eval.csv";
/// The loss of held-out documents of a run: [`HeldOutLine`]s.
pub const HELD_OUT_FILE: &str = "held_out.csv";
/// The training curves of all runs of a spec: a line for every line of a log.
pub const COURSE_FILE: &str = "course.csv";
/// The summary of a spec: a row for each variant.
pub const SUMMARY_FILE: &str = "summary.csv";
/// Measurements inside the layers of a run: [`LayerLine`]s.
pub const LAYER_FILE: &str = "layers.csv";

/// An observer of the progress of training.
pub trait Progress: Sync {
    /// Called before the first step of a run, with the tokens that it has already been trained on.
    fn begin(&self, _run: usize, _tokens: usize) {}
    /// Called after every step. `run` is the index in the list that was given to [`train_runs`].
    fn step(&self, run: usize, tokens: usize, message: &str);
    /// Called with what is worth knowing of a run before its first step.
    fn say(&self, _run: usize, _message: &str) {}
}

/// The end of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainOutcome {
    /// All tokens have been trained on; the model folders are written.
    Finished,
    /// Stopped on request; a checkpoint is written.
    Stopped,
}

/// Trains these runs of a spec into their folders below `out`, on the device of `placement`. With `resume`, continues from the
/// checkpoints there. Without the kernels of the CPU, one run trains at a time.
///
/// # Errors
/// The first error of any run; the other runs stop with a checkpoint.
pub fn train_runs(
    opened: &OpenedSpec<'_>,
    runs: &[TrainRun],
    out: &Path,
    resume: bool,
    placement: &Placement,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<TrainOutcome> {
    let OpenedSpec { spec, .. } = opened;
    let tokenizer = opened.tokenizer()?;
    let folders = runs.iter().map(|run| files::create_folder(out, &run.name)).collect::<Result<Vec<_>>>()?;
    let workers = WorkerPool::new(runs, placement);
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers.active() {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, || {
                while let Some((index, run)) = runs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let trainer = Trainer {
                        spec,
                        config: &opened.configs[run.variant],
                        variant: &spec.variants[run.variant],
                        start: opened.start.as_ref(),
                        tokenizer,
                        texts: &opened.corpora,
                        seed: run.seed,
                        dir: &folders[index],
                        resume,
                        stop,
                        placement,
                        workers: &workers,
                        progress,
                        index,
                    };
                    let outcome = catch_unwind(AssertUnwindSafe(|| trainer.train()))
                        .unwrap_or_else(|_| bail!("a panic, whose message is above"));
                    if outcome.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let outcome = outcome.with_context(|| format!("run {}", run.name));
                    outcomes.lock().expect("panics are caught").push(outcome);
                }
                workers.active.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = spawned {
                stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    })
    .context("cannot start a thread for each run; train fewer at once with --only")?;
    let outcomes = outcomes.into_inner().expect("panics are caught").into_iter().collect::<Result<Vec<_>>>()?;
    Ok(if outcomes.contains(&TrainOutcome::Stopped) { TrainOutcome::Stopped } else { TrainOutcome::Finished })
}

/// The workers, which train one run each, and the threads that they share. A worker that finds no further run leaves
/// its threads to the others.
struct WorkerPool {
    threads: usize,
    active: AtomicUsize,
}

impl WorkerPool {
    /// Creates as many workers as there are threads; only one without the kernels of the CPU.
    fn new(runs: &[TrainRun], placement: &Placement) -> Self {
        let threads = rayon::current_num_threads();
        let most = if placement.has_kernels() { threads } else { 1 };
        Self { threads, active: AtomicUsize::new(runs.len().clamp(1, most)) }
    }

    fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// The number of threads of each run.
    fn threads_per_run(&self) -> usize {
        (self.threads / self.active().max(1)).max(1)
    }

    /// Creates a thread pool of that size. Each run has its own pool, so that the kernels of different runs do not mix.
    fn thread_pool(&self) -> Result<rayon::ThreadPool> {
        Ok(rayon::ThreadPoolBuilder::new().num_threads(self.threads_per_run()).build()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_runs_get_the_threads_of_finished_ones() {
        let workers = |active| WorkerPool { threads: 8, active: AtomicUsize::new(active) };
        assert_eq!([8, 3, 2, 1, 0].map(|active| workers(active).threads_per_run()), [1, 2, 4, 8, 8]);
        assert_eq!(WorkerPool { threads: 2, active: AtomicUsize::new(3) }.threads_per_run(), 1);
    }
}
