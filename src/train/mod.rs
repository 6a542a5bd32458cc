//! Training matched models: the loop, top to bottom.
//!
//! Every variant of a spec runs in a thread of its own with an equal share of the machine's threads, on the same documents in
//! the same order, from the same initial values of the tensors they share. How many threads there are changes no bit.

mod adamw;
mod checkpoint;
mod data;
mod log;
mod spec;

pub use adamw::{AdamW, Gradients};
pub use data::{Batch, DataSource, Kind, Part};
pub use log::{EvalLine, LogLine};
pub use spec::*;

use crate::attention::Fused;
use crate::model::{ModelConfig, Transformer, Weights, TENSOR_FILE};
use crate::ops::{cross_entropy, TokenScores};
use crate::pass::score;
use crate::prompt::{self, CitySet, Haystack, NeedleSpec, Tokenizer};
use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor, Var};
use checkpoint::Position;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The training log of a variant: [`LogLine`]s.
pub const LOG_FILE: &str = "log.csv";
/// The needle evaluations of a variant: [`EvalLine`]s.
pub const EVAL_FILE: &str = "eval.csv";

/// How training tells how far it is.
pub trait Progress: Sync {
    /// After every step of a variant.
    fn step(&self, variant: usize, tokens: usize, message: &str);
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All tokens were used; the model folder is written.
    Finished,
    /// Stopped by request; a checkpoint is written.
    Stopped,
}

/// Trains every variant of `spec` into `out/<variant>/`. With `resume`, continues from the checkpoints found there.
///
/// # Errors
/// The first error of any variant; the others stop with a checkpoint.
pub fn train(
    spec: &TrainSpec,
    out: &Path,
    resume: bool,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Outcome> {
    let tokenizer = Tokenizer::embedded();
    let configs = spec.configs(tokenizer.vocab_size())?;
    // A thread for every variant, and more for fewer variants than cores.
    let threads_each = (rayon::current_num_threads() / configs.len()).max(1);
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            threads.push(scope.spawn(move || {
                let dir = out.join(&spec.variants[index].name);
                let run = Run { spec, config, dir: &dir, stop, tokenizer };
                // A pool of its own: the variants share the machine, not each other's kernels.
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads_each).build()?;
                let report = |tokens: usize, message: &str| progress.step(index, tokens, message);
                let outcome = catch_unwind(AssertUnwindSafe(|| pool.install(|| run.train(resume, &report))));
                let outcome = outcome.unwrap_or_else(|_| anyhow::bail!("a panic, whose message is above"));
                if outcome.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                outcome.with_context(|| format!("variant {}", spec.variants[index].name))
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(if outcomes.contains(&Outcome::Stopped) { Outcome::Stopped } else { Outcome::Finished })
}

/// One variant's run.
struct Run<'a> {
    spec: &'a TrainSpec,
    config: &'a ModelConfig,
    dir: &'a Path,
    stop: &'a AtomicBool,
    tokenizer: &'a Tokenizer,
}

/// The moving parts of a run.
struct Session<'a> {
    run: &'a Run<'a>,
    vars: BTreeMap<String, Var>,
    model: Transformer,
    optimizer: AdamW,
    data: DataSource<'a>,
    log: csv::Writer<File>,
    evals: csv::Writer<File>,
    /// Where the run stands, with the sums of the log line in progress.
    at: Position,
    /// When and where the log line in progress began, for the speed.
    since: (Instant, usize),
    message: String,
}

impl Run<'_> {
    fn train(&self, resume: bool, report: &dyn Fn(usize, &str)) -> Result<Outcome> {
        let mut session = self.start(resume)?;
        while let Some(stage) = self.stage_at(session.at.tokens) {
            if self.stop.load(Ordering::Relaxed) {
                session.save()?;
                return Ok(Outcome::Stopped);
            }
            session.advance(stage)?;
            report(session.at.tokens, &session.message);
        }
        Ok(Outcome::Finished)
    }

    fn start(&self, resume: bool) -> Result<Session<'_>> {
        let vars = variables(self.config, self.spec.seed)?;
        let model = Transformer::build(self.config, &mut tensors(&vars))?;
        let mut optimizer = AdamW::new(&vars, &self.spec.optimizer);
        let saved = if resume { checkpoint::load(&self.checkpoints(), &mut optimizer)? } else { None };
        let at = saved.unwrap_or_default();
        std::fs::create_dir_all(self.dir).with_context(|| format!("cannot create {}", self.dir.display()))?;
        Ok(Session {
            run: self,
            log: log::open(&self.dir.join(LOG_FILE), at.tokens, |line: &LogLine| line.tokens)?,
            evals: log::open(&self.dir.join(EVAL_FILE), at.tokens, |line: &EvalLine| line.tokens)?,
            data: DataSource::new(self.tokenizer, self.spec.seed)?,
            since: (Instant::now(), at.tokens),
            message: String::new(),
            vars,
            model,
            optimizer,
            at,
        })
    }

    fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoint")
    }

    /// The stage that trains the token after `tokens`, if any is left.
    fn stage_at(&self, tokens: usize) -> Option<&Stage> {
        let mut end = 0;
        self.spec.stages.iter().find(|stage| {
            end += stage.steps() * stage.step_tok;
            tokens < end
        })
    }

    /// Needle prompts nobody trained on, at the current context.
    fn evaluate(&self, vars: &BTreeMap<String, Var>, ctx_tok: usize, tokens: usize) -> Result<Vec<EvalLine>> {
        // Detached, so that no activations are kept for a backward pass.
        let model = Transformer::build(self.config, &mut detached(vars)?)?;
        let haystack = Haystack::embedded();
        let mut lines = Vec::new();
        for (needles, retrieve, cities) in
            [(1, 1, CitySet::Train), (2, 2, CitySet::Train), (4, 2, CitySet::Train), (2, 2, CitySet::HeldOut)]
        {
            let mut scores = Vec::new();
            for sample in 0..self.spec.watch.eval_samples as u64 {
                let depth_pct = (sample % 5) as f64 * 25.0;
                let spec = NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities };
                // A short stage may not have room for every setting.
                let Ok(prompt) = prompt::needle::build(&spec, sample, self.tokenizer, &haystack) else { break };
                scores.extend(score(&model, &prompt, &[])?.queries);
            }
            let share = |hits: usize| hits as f64 / scores.len() as f64;
            if !scores.is_empty() {
                lines.push(EvalLine {
                    tokens,
                    ctx_tok,
                    needles,
                    retrieve,
                    cities: cities.name().to_owned(),
                    n: scores.len(),
                    exact: share(scores.iter().filter(|s| s.exact).count()),
                    first_digit: share(scores.iter().filter(|s| s.first_rank == 1).count()),
                    log_prob_nats: scores.iter().map(|s| s.log_prob_nats).sum::<f64>() / scores.len() as f64,
                });
            }
        }
        Ok(lines)
    }

    /// An ordinary Hugging Face folder, beside the checkpoint and the logs.
    fn write_model(&self, vars: &BTreeMap<String, Var>) -> Result<()> {
        let write = |name: &str, text: &str| {
            let path = self.dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("config.json", &format!("{:#}\n", self.config.to_json()))?;
        write("tokenizer.json", self.tokenizer.json())?;
        detached(vars)?.write(&self.dir.join(TENSOR_FILE), DType::F16, &[])
    }
}

impl Session<'_> {
    /// One step, and whatever is due after it.
    fn advance(&mut self, stage: &Stage) -> Result<()> {
        let (spec, watch) = (self.run.spec, &self.run.spec.watch);
        let batch = self.data.batch(stage, &spec.loss, self.at.documents)?;
        let rate = spec.rate_at(self.at.tokens);
        let (loss, scores, norm) = step(&self.model, &mut self.optimizer, &batch, rate)?;
        self.at.tally.add(&batch, &scores, loss, norm);
        let before = self.at.tokens;
        self.at.tokens += stage.step_tok;
        self.at.documents += batch.inputs.len() as u64;
        self.at.step += 1;

        let last = self.run.stage_at(self.at.tokens).is_none();
        let due = |every: usize| last || self.at.tokens / every > before / every;
        let (log, evaluate, save) = (due(watch.log_every_tok), due(watch.eval_every_tok), due(watch.save_every_tok));
        if log {
            self.log(stage, rate)?;
        }
        if evaluate {
            for line in self.run.evaluate(&self.vars, stage.ctx_tok, self.at.tokens)? {
                self.evals.serialize(line)?;
            }
            self.evals.flush()?;
        }
        if save {
            self.save()?;
        }
        Ok(())
    }

    fn log(&mut self, stage: &Stage, rate: f64) -> Result<()> {
        let speed = (self.at.tokens - self.since.1) as f64 / self.since.0.elapsed().as_secs_f64();
        let tally = std::mem::take(&mut self.at.tally);
        let line = tally.line(self.at.tokens, stage.ctx_tok, rate, mean(&self.model.lambdas()?), speed);
        self.message = format!("loss {:.3} digit1 {:.2} {:.0} tok/s", line.loss_nats, line.digit1_hit, speed);
        self.since = (Instant::now(), self.at.tokens);
        self.log.serialize(line)?;
        Ok(self.log.flush()?)
    }

    /// A checkpoint to continue from, and the model as it is.
    fn save(&self) -> Result<()> {
        // In this order: the last checkpoint says that the run is finished, so its model must be there by then.
        self.run.write_model(&self.vars)?;
        checkpoint::save(&self.run.checkpoints(), &self.optimizer, &self.at)
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Fresh trainable parameters.
///
/// # Errors
/// If a tensor cannot be made.
pub fn variables(config: &ModelConfig, seed: u64) -> Result<BTreeMap<String, Var>> {
    let init = Weights::init(config, seed)?;
    init.iter().map(|(name, tensor)| Ok((name.clone(), Var::from_tensor(tensor)?))).collect()
}

/// The parameters as tensors that record gradients and follow updates.
pub fn tensors(vars: &BTreeMap<String, Var>) -> Weights {
    Weights::new(vars.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())), "parameters")
}

fn detached(vars: &BTreeMap<String, Var>) -> Result<Weights> {
    let copy = |(name, var): (&String, &Var)| Ok((name.clone(), var.as_detached_tensor().copy()?));
    Ok(Weights::new(vars.iter().map(copy).collect::<Result<Vec<(String, Tensor)>>>()?, "parameters"))
}

/// Tokens that are worked on at once. A step's sequences are independent of each other, and what few of them leave behind for
/// their backward pass takes less memory, of which more stays in the caches.
const PART_TOK: usize = 1024;

/// Forward, backward, update: the loss in nats, every target's score, the gradient norm.
///
/// # Errors
/// If shapes do not fit or a parameter receives no gradient.
pub fn step(model: &Transformer, optimizer: &mut AdamW, batch: &Batch, rate: f64) -> Result<(f64, TokenScores, f64)> {
    let total = sum(&batch.weights);
    let (mut value, mut scores, mut gradients) = (0.0, Vec::with_capacity(batch.targets.len()), Gradients::new());
    let parts: Vec<Part> = batch.parts(PART_TOK).collect();
    // As many at once as there are threads; added up in order, so that the sum does not depend on how many that is.
    for parts in parts.chunks(rayon::current_num_threads()) {
        let done: Vec<_> = parts.par_iter().map(|part| backward(model, part, sum(part.weights) / total)).collect();
        for done in done {
            let (loss, part_scores, grads) = done?;
            value += loss;
            scores.extend(part_scores);
            optimizer.collect(&grads, &mut gradients)?;
        }
    }
    let norm = optimizer.update(&gradients, rate)?;
    Ok((value, scores, norm))
}

/// A part's share of the loss, the scores of its targets, and the gradients of that share.
fn backward(model: &Transformer, part: &Part<'_>, share: f64) -> Result<(f64, TokenScores, GradStore)> {
    let hidden = model.hidden(part.inputs, &mut Fused)?; // B,T,E
    let logits = model.logits(&hidden.flatten_to(1)?)?; // B*T,W
    let (mean, scores) = cross_entropy(&logits, part.targets.to_vec(), part.weights.to_vec())?;
    let loss = (mean * share)?;
    let value = f64::from(loss.to_scalar::<f32>()?);
    anyhow::ensure!(value.is_finite(), "the loss is {value}; lower optimizer.rate");
    Ok((value, scores, loss.backward()?))
}

fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|&w| f64::from(w)).sum()
}
