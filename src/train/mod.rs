//! Training matched models.
//!
//! A run trains one variant from one seed. The runs of a spec take turns on the machine's threads, as many at once as there
//! are threads, and the last ones have the threads of those that are finished. Those of one seed see the same documents in the
//! same order and start from the same values of the tensors they share. How many threads there are changes no bit.

mod adamw;
mod check;
mod checkpoint;
mod cost;
mod course;
mod data;
mod log;
mod run;
mod scale;
mod spec;
mod step;
mod summary;
mod watch;

pub use adamw::{AdamW, Gradients};
pub use cost::Work;
pub use course::{write as write_course, Course, CourseLine};
pub use data::{Batch, DataSource, Part, TargetKind};
pub use log::{EvalLine, LogLine};
pub use scale::{at_sizes, check_sizes, growth, AtSize, Growth, Size};
pub use spec::*;
pub use step::{elsewhere, step, tensors, variables, Stepped};
pub use summary::{
    contrasts, inside, summarise, write as write_summary, Contrasted, Inside, Level, VariantSummary, INSIDE, LEARNED,
    TIMES,
};
pub use watch::LayerLine;

use crate::model::{ModelConfig, Placement};
use crate::prompt::Tokenizer;
use anyhow::{Context, Result};
use run::Trainer;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

/// The training log of a run: [`LogLine`]s.
pub const LOG_FILE: &str = "log.csv";
/// The needle evaluations of a run: [`EvalLine`]s.
pub const EVAL_FILE: &str = "eval.csv";
/// How all runs of a spec went: [`CourseLine`]s.
pub const COURSE_FILE: &str = "course.csv";
/// What a whole spec came to: [`VariantSummary`]s.
pub const SUMMARY_FILE: &str = "summary.csv";
/// What went on in the layers of a run: [`LayerLine`]s.
pub const LAYER_FILE: &str = "layers.csv";

/// How training tells how far it is.
pub trait Progress: Sync {
    /// Before the first step of a run, with the tokens that it has been trained on by then: all of them, if it was finished before.
    fn begin(&self, _run: usize, _tokens: usize) {}
    /// After every step of a run, which is counted as the caller of [`train_runs`] lists them.
    fn step(&self, run: usize, tokens: usize, message: &str);
}

/// Tells of one run how far it is.
struct Reporter<'a> {
    progress: &'a dyn Progress,
    run: usize,
}

impl Reporter<'_> {
    fn begin(&self, tokens: usize) {
        self.progress.begin(self.run, tokens);
    }

    fn step(&self, tokens: usize, message: &str) {
        self.progress.step(self.run, tokens, message);
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All tokens were used; the model folders are written.
    Finished,
    /// Stopped by request; a checkpoint is written.
    Stopped,
}

/// Trains every run of `spec` into its folder below `out`. With `resume`, continues from the checkpoints found there.
///
/// # Errors
/// The first error of any run; the others stop with a checkpoint.
pub fn train(
    spec: &TrainSpec,
    out: &Path,
    resume: bool,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Outcome> {
    train_runs(spec, &spec.runs(), out, resume, &Placement::default(), stop, progress)
}

/// As [`train`], for some of the runs, each by itself, computed where `placement` says. Where that is not the kernels of the CPU, runs
/// take turns.
///
/// # Errors
/// As [`train`].
pub fn train_runs(
    spec: &TrainSpec,
    runs: &[TrainRun],
    out: &Path,
    resume: bool,
    placement: &Placement,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let configs = spec.configs(Tokenizer::embedded().vocab_size())?;
    let crew = Crew::new(runs, placement);
    let whole = Whole { spec, configs, out, resume, placement, stop, crew: &crew };
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while let Some((index, run)) = runs.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = whole.train(run, &Reporter { progress, run: index });
            if outcome.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            outcomes.lock().expect("panics are caught").push(outcome.with_context(|| format!("run {}", run.name)));
        }
        crew.at_work.fetch_sub(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| (0..crew.at_work()).for_each(|_| _ = scope.spawn(work)));
    let outcomes = outcomes.into_inner().expect("panics are caught").into_iter().collect::<Result<Vec<_>>>()?;
    Ok(if outcomes.contains(&Outcome::Stopped) { Outcome::Stopped } else { Outcome::Finished })
}

/// The threads of the machine and those who share them, a run each. Who finds no further run leaves its threads to the others.
struct Crew {
    threads: usize,
    at_work: AtomicUsize,
}

impl Crew {
    /// As many at once as there are threads; of a device only one.
    fn new(runs: &[TrainRun], placement: &Placement) -> Self {
        let threads = rayon::current_num_threads();
        let most = if placement.has_kernels() { threads } else { 1 };
        Self { threads, at_work: AtomicUsize::new(runs.len().clamp(1, most)) }
    }

    fn at_work(&self) -> usize {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Threads that a run may have now.
    fn share(&self) -> usize {
        (self.threads / self.at_work().max(1)).max(1)
    }

    /// So many threads. A pool of its own for each run: they share the machine, not each other's kernels.
    fn pool(&self) -> Result<rayon::ThreadPool> {
        Ok(rayon::ThreadPoolBuilder::new().num_threads(self.share()).build()?)
    }
}

/// What the runs of a spec share.
struct Whole<'a> {
    spec: &'a TrainSpec,
    configs: Vec<ModelConfig>,
    out: &'a Path,
    resume: bool,
    placement: &'a Placement,
    stop: &'a AtomicBool,
    crew: &'a Crew,
}

impl Whole<'_> {
    fn train(&self, run: &TrainRun, reporter: &Reporter<'_>) -> Result<Outcome> {
        let one = Trainer {
            spec: self.spec,
            config: &self.configs[run.variant],
            init: self.spec.variants[run.variant].init(),
            seed: run.seed,
            dir: &self.out.join(&run.name),
            stop: self.stop,
            tokenizer: Tokenizer::embedded(),
            placement: self.placement,
            crew: self.crew,
        };
        catch_unwind(AssertUnwindSafe(|| one.train(self.resume, reporter)))
            .unwrap_or_else(|_| anyhow::bail!("a panic, whose message is above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_left_have_the_threads_of_those_that_are_finished() {
        let crew = |at_work| Crew { threads: 8, at_work: AtomicUsize::new(at_work) };
        assert_eq!([8, 3, 2, 1, 0].map(|at_work| crew(at_work).share()), [1, 2, 4, 8, 8]);
        assert_eq!(Crew { threads: 2, at_work: AtomicUsize::new(3) }.share(), 1);
    }
}
