//! One training run: the steps of a variant from a seed, with its logs, evaluations and checkpoints.

use super::adamw::AdamW;
use super::checkpoint::{self, Position};
use super::corpus::Corpora;
use super::data::DataSource;
use super::layers::{layer_lines, LayerLine};
use super::log::{self, EvalLine, HeldOutLine, LogLine};
use super::spec::{Stage, TrainSpec, VariantSpec};
use super::start::StartModel;
use super::step::{copy_to_device, detached, step, tensors, trainable};
use super::{Progress, TrainOutcome, WorkerPool, EVAL_FILE, HELD_OUT_FILE, LAYER_FILE, LOG_FILE};
use anyhow::{bail, Context, Result};
use base::bail_usage;
use base::error::TooShort;
use base::files::replace;
use base::model_files::{CONFIG, TOKENIZER, TRAINING};
use base::seed::{prompt_seed, Purpose};
use candle_core::{DType, Var};
use engine::attention::{Fused, Stream};
use engine::kernels::cross_entropy;
use engine::model::pass::pass;
use engine::model::{ModelConfig, Placement, Transformer, Weights, TENSOR_FILE};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use text::{needle, Haystack, NeedleSpec, Tokenizer};

/// Tokens on which a variant is compared with the start model.
const COMPARED_TOK: usize = 256;

/// The settings of a run.
pub(super) struct Trainer<'a> {
    pub(super) spec: &'a TrainSpec,
    pub(super) config: &'a ModelConfig,
    pub(super) variant: &'a VariantSpec,
    /// The model that it starts from.
    pub(super) start: Option<&'a StartModel>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) texts: &'a Corpora,
    pub(super) seed: u64,
    pub(super) dir: &'a Path,
    pub(super) resume: bool,
    pub(super) stop: &'a AtomicBool,
    /// Where passes are computed. The parameters stay on the host.
    pub(super) placement: &'a Placement,
    /// The workers that share the threads.
    pub(super) workers: &'a WorkerPool,
    pub(super) progress: &'a dyn Progress,
    /// Index of the run, for `progress`.
    pub(super) index: usize,
}

/// The state of a run.
struct RunState<'a> {
    run: &'a Trainer<'a>,
    _lock: Option<File>,
    vars: BTreeMap<String, Var>,
    model: Transformer,
    optimizer: AdamW,
    data: DataSource<'a>,
    /// What `config.json` says of the start model.
    origin: Option<Value>,
    log: csv::Writer<File>,
    evals: csv::Writer<File>,
    layers: csv::Writer<File>,
    /// If a stage has texts.
    held_out: Option<csv::Writer<File>>,
    /// Position of the run, with the sums of the current log line.
    at: Position,
    /// Time and tokens at the beginning of the current log line, for the speed.
    since: (Instant, usize),
    message: String,
}

impl Trainer<'_> {
    /// Trains until all tokens are used or `stop` is set.
    pub(super) fn train(&self) -> Result<TrainOutcome> {
        let mut pool = self.workers.thread_pool()?;
        let mut state = pool.install(|| self.start())?;
        self.progress.begin(self.index, state.at.tokens);
        while let Some(stage) = self.stage_at(state.at.tokens) {
            if self.stop.load(Ordering::Relaxed) {
                state.save()?;
                return Ok(TrainOutcome::Stopped);
            }
            if pool.current_num_threads() != self.workers.threads_per_run() {
                pool = self.workers.thread_pool()?;
            }
            pool.install(|| state.advance(stage))?;
            self.progress.step(self.index, state.at.tokens, &state.message);
        }
        Ok(TrainOutcome::Finished)
    }

    fn start(&self) -> Result<RunState<'_>> {
        let lock = self.lock()?;
        let data = DataSource::new(self.seed, self.tokenizer).with_texts(self.texts);
        let (weights, difference) = self.initial(&data)?;
        let vars = trainable(&weights)?;
        let model = Transformer::build(self.config, &mut tensors(&vars))?;
        let mut optimizer = AdamW::new(&vars, &self.spec.optimizer);
        drop(weights);
        let saved = if self.resume { checkpoint::load(self.dir, &mut optimizer)? } else { None };
        let device = (!self.placement.has_kernels()).then(|| self.placement.name());
        if let Some(Position { device: before, .. }) = saved.as_ref().filter(|saved| saved.device != device) {
            let before = before.clone().unwrap_or_else(|| Placement::default().name());
            bail_usage!("`resume`: {} was trained on {before}; this is {}", self.dir.display(), self.placement.name());
        }
        if let (None, Some((start, difference))) = (&saved, self.start.zip(difference)) {
            self.progress.say(self.index, &start.said(&self.config.variant, difference));
        }
        let at = saved.unwrap_or(Position { device, ..Position::default() });
        Ok(RunState {
            run: self,
            _lock: lock,
            log: log::open(&self.dir.join(LOG_FILE), at.tokens, |line: &LogLine| line.tokens)?,
            evals: log::open(&self.dir.join(EVAL_FILE), at.tokens, |line: &EvalLine| line.tokens)?,
            layers: log::open(&self.dir.join(LAYER_FILE), at.tokens, |line: &LayerLine| line.tokens)?,
            held_out: self.open_held_out(at.tokens)?,
            origin: self.start.zip(difference).map(|(start, difference)| start.to_json(difference)),
            data,
            since: (Instant::now(), at.tokens),
            message: String::new(),
            vars,
            model,
            optimizer,
            at,
        })
    }

    /// Opens the log of the losses of held-out documents, if a stage has texts.
    fn open_held_out(&self, tokens: usize) -> Result<Option<csv::Writer<File>>> {
        let has_text = self.spec.stages.iter().any(Stage::has_text);
        let path = self.dir.join(HELD_OUT_FILE);
        has_text.then(|| log::open(&path, tokens, |line: &HeldOutLine| line.tokens)).transpose()
    }

    /// The weights before the first step. From a start model, also the largest difference of its logits and the
    /// variant's, on the beginning of the first document.
    fn initial(&self, data: &DataSource<'_>) -> Result<(Weights, Option<f64>)> {
        let Some(start) = self.start else {
            return Ok((Weights::init_with(self.config, self.seed, &self.variant.init())?, None));
        };
        let first = data.batch(&self.spec.stages[0], &self.spec.loss, 0)?;
        let row = &first.inputs[0];
        let forked = start.fork(self.config, self.seed, &row[..row.len().min(COMPARED_TOK)])?;
        Ok((forked.weights, Some(forked.difference)))
    }

    /// The stage of the token after `tokens`; `None` at the end.
    fn stage_at(&self, tokens: usize) -> Option<&Stage> {
        let mut end = 0;
        self.spec.stages.iter().find(|stage| {
            end += stage.steps() * stage.step_tok;
            tokens < end
        })
    }

    /// The loss of held-out documents of the texts of a stage, if it has any.
    fn held_out(&self, model: &Transformer, stage: &Stage, tokens: usize) -> Result<Option<HeldOutLine>> {
        let Some(corpus) = self.texts.of(stage) else { return Ok(None) };
        let ctx_tok = stage.ctx_tok;
        let windows = corpus.held_out(ctx_tok, self.spec.watch.held_out_windows);
        let mut sum = 0.0;
        for window in &windows {
            let hidden = model.hidden(&[window[..ctx_tok].to_vec()], &mut Fused)?; // 1,T,E
            let logits = model.logits(&hidden.flatten_to(1)?)?; // T,W
            let (_, scores) = cross_entropy(&logits, window[1..].to_vec(), vec![1.0; ctx_tok])?;
            sum += scores.iter().map(|score| f64::from(score.nll_nats)).sum::<f64>();
        }
        let heldout_nats = sum / (windows.len() * ctx_tok).max(1) as f64;
        Ok((!windows.is_empty()).then_some(HeldOutLine { tokens, ctx_tok, windows: windows.len(), heldout_nats }))
    }

    /// Evaluates on unseen needle prompts of the current context length.
    fn evaluate(&self, model: &Transformer, ctx_tok: usize, tokens: usize) -> Result<Vec<EvalLine>> {
        let haystack = Haystack::Embedded;
        let mut lines = Vec::new();
        for (needles, retrieve, cities) in self.spec.watch.evaluated() {
            let mut scores = Vec::new();
            for sample in 0..self.spec.watch.eval_samples as u64 {
                let depth_pct = (sample % 5) as f64 * 25.0;
                let spec = NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities, ..NeedleSpec::default() };
                let seed = prompt_seed(Purpose::Development, 0, sample);
                match needle::build(&spec, seed, self.tokenizer, &haystack) {
                    // A short context may not have room for every setting.
                    Err(error) if error.is::<TooShort>() => break,
                    prompt => scores.extend(pass(model, &prompt?, Stream::new(&[]), false)?.queries),
                }
            }
            let n = scores.len() as f64;
            if !scores.is_empty() {
                lines.push(EvalLine {
                    tokens,
                    ctx_tok,
                    needles,
                    retrieve,
                    cities: cities.name().to_owned(),
                    n: scores.len(),
                    accuracy: scores.iter().filter(|score| score.hit).count() as f64 / n,
                    first_digit: scores.iter().filter(|score| score.first_hit).count() as f64 / n,
                    log_prob_nats: scores.iter().map(|score| score.log_prob_nats).sum::<f64>() / n,
                });
            }
        }
        Ok(lines)
    }

    /// Writes the model as a Hugging Face folder, beside the checkpoint and the logs.
    fn write_model(&self, vars: &BTreeMap<String, Var>, origin: Option<&Value>) -> Result<()> {
        let mut config = self.config.to_json();
        if let Some((start, origin)) = self.start.zip(origin) {
            [config["bos_token_id"], config["eos_token_id"]] = start.ends_json()?;
            config[TRAINING] = origin.clone();
        }
        let config = format!("{config:#}\n");
        for (file, text) in [(CONFIG, config.as_str()), (TOKENIZER, &*self.tokenizer.json)] {
            replace(&self.dir.join(file), |path| Ok(std::fs::write(path, text)?))?;
        }
        let weights = detached(vars)?;
        replace(&self.dir.join(TENSOR_FILE), |path| weights.write(path, DType::F16, &[]))
    }

    /// Locks the folder against other processes for as long as it is open.
    fn lock(&self) -> Result<Option<File>> {
        // Some systems cannot open folders, and some file systems have no locks.
        let Ok(folder) = File::open(self.dir) else { return Ok(None) };
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("another process is training into {}", self.dir.display()),
            _ => Ok(Some(folder)),
        }
    }
}

impl RunState<'_> {
    /// Trains one step, and writes the logs, evaluations and checkpoints that are due after it.
    fn advance(&mut self, stage: &Stage) -> Result<()> {
        let spec = self.run.spec;
        let watch = &self.run.spec.watch;
        let batch = self.data.batch(stage, &spec.loss, self.at.documents)?;
        let rate = self.run.variant.rate_factor(&spec.optimizer) * spec.rate_at(self.at.tokens);
        let placement = self.run.placement;
        let done = if placement.has_kernels() {
            step(&self.model, &mut self.optimizer, &batch, rate)?
        } else {
            step(&copy_to_device(self.run.config, &self.vars, placement)?, &mut self.optimizer, &batch, rate)?
        };
        self.at.sums.add(&batch, &done.scores, done.loss_nats, done.grad_norm);
        let before = self.at.tokens;
        self.at.tokens += stage.step_tok;
        self.at.documents += batch.inputs.len() as u64;
        self.at.step += 1;

        let last = self.run.stage_at(self.at.tokens).is_none();
        let [log, evaluate, save] = [watch.log_every_tok, watch.eval_every_tok, watch.save_every_tok]
            .map(|every| last || self.at.tokens / every > before / every);
        if log {
            self.log(stage, rate)?;
            let lines = layer_lines(self.run.config, &self.vars, &batch, &done.gradients, self.at.tokens)?;
            append(&mut self.layers, &self.run.dir.join(LAYER_FILE), lines)?;
        }
        if evaluate {
            self.evaluate(stage)?;
        }
        if save {
            self.save()?;
        }
        Ok(())
    }

    /// Evaluates on needle prompts, and on held-out documents if the stage has texts.
    fn evaluate(&mut self, stage: &Stage) -> Result<()> {
        // Detached, so that no activations are stored for a backward pass.
        let model = Transformer::build(self.run.config, &mut detached(&self.vars)?)?;
        if self.data.states_facts() {
            let lines = self.run.evaluate(&model, stage.ctx_tok, self.at.tokens)?;
            append(&mut self.evals, &self.run.dir.join(EVAL_FILE), lines)?;
        }
        if let Some(log) = &mut self.held_out {
            let line = self.run.held_out(&model, stage, self.at.tokens)?;
            append(log, &self.run.dir.join(HELD_OUT_FILE), line)?;
        }
        Ok(())
    }

    fn log(&mut self, stage: &Stage, rate: f64) -> Result<()> {
        let speed = (self.at.tokens - self.since.1) as f64 / self.since.0.elapsed().as_secs_f64();
        let sums = std::mem::take(&mut self.at.sums);
        let line = sums.line(self.at.tokens, stage.ctx_tok, rate, stats::mean(&self.model.lambdas()?), speed);
        let recall = line.digit1_hit.map_or_else(String::new, |hit| format!(" digit1 {hit:.2}"));
        self.message = format!("loss {:.3}{recall} {speed:.0} tok/s", line.loss_nats);
        self.since = (Instant::now(), self.at.tokens);
        append(&mut self.log, &self.run.dir.join(LOG_FILE), [line])
    }

    /// Writes the model and a checkpoint.
    fn save(&self) -> Result<()> {
        // The last checkpoint marks the run as finished, so the model and the logs must be written first.
        for log in [&self.log, &self.evals, &self.layers].into_iter().chain(&self.held_out) {
            log.get_ref()
                .sync_data()
                .with_context(|| format!("cannot write the logs in {}", self.run.dir.display()))?;
        }
        self.run.write_model(&self.vars, self.origin.as_ref())?;
        checkpoint::save(self.run.dir, &self.optimizer, &self.at)
    }
}

/// Appends lines to a log.
fn append<L: Serialize>(log: &mut csv::Writer<File>, path: &Path, lines: impl IntoIterator<Item = L>) -> Result<()> {
    let written = lines.into_iter().try_for_each(|line| log.serialize(line)).and_then(|()| Ok(log.flush()?));
    written.with_context(|| format!("cannot write {}", path.display()))
}
