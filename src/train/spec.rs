//! The training spec: models, data and schedule. Unknown keys are errors.

use anyhow::{Context, Result};
use base::bail_usage;
use base::spec_file;
use engine::attention::{ValueWidth, VariantName};
use engine::kernels::RopeStyle;
use engine::model::{DecoderSizes, Init, ModelConfig};
use names::SEED_FOLDERS;
use serde::{Deserialize, Serialize};
use std::path::Path;
use text::{CitySet, DocumentSpec};

/// Needles of the prompts of every evaluation, those asked for, and their cities.
const EVALUATED: [(usize, usize, CitySet); 4] =
    [(1, 1, CitySet::Train), (2, 2, CitySet::Train), (4, 2, CitySet::Train), (2, 2, CitySet::HeldOut)];

/// Needles asked for of the numbers in `watch.needles`.
const ASKED: usize = 2;

/// A training run of several variants on the same data.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSpec {
    /// The question that the run is to answer, in a sentence or two.
    #[serde(default)]
    pub question: String,
    /// The result that was expected before it.
    pub expectation: Option<String>,
    /// Seed of the initial weights and of the data. The folder of a run has the name of its variant.
    pub seed: Option<u64>,
    /// Several seeds, each for every variant. Folders are `VARIANT/seed-N`.
    pub seeds: Option<Vec<u64>>,
    /// The model whose function all variants begin with, in place of random weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartSpec>,
    /// Sizes that all variants share. Required without `start`, whose model has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// The variants.
    #[serde(rename = "variant")]
    pub variants: Vec<VariantSpec>,
    /// AdamW and its schedule.
    #[serde(default)]
    pub optimizer: OptimizerSpec,
    /// Weights of the loss.
    #[serde(default)]
    pub loss: LossSpec,
    /// The length curriculum, in order.
    #[serde(rename = "stage")]
    pub stages: Vec<Stage>,
    /// When to evaluate, log and save.
    #[serde(default)]
    pub watch: WatchSpec,
    /// Comparisons of more than two variants.
    #[serde(default, rename = "contrast", skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<Contrast>,
}

/// Difference of means between two groups of variants, seed by seed, at the end of training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contrast {
    /// Its name in tables.
    pub name: String,
    /// Variants of the first group.
    pub of: Vec<String>,
    /// Variants of the second group, whose mean is subtracted.
    pub less: Vec<String>,
}

impl Contrast {
    /// Returns `true` if both have the same sides.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.of, &self.less) == (&other.of, &other.less)
    }
}

/// The model that training starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartSpec {
    /// Its name, as of `--model`: a built-in model, a folder, a GGUF file, or a model of the Hub.
    pub from: String,
    /// Length of the random vector that is added to each row of the second map's queries, over that of the row. Drawn
    /// from the seed of the run.
    #[serde(default)]
    pub noise: f64,
}

/// Sizes shared by all variants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Residual stream width E.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Attention heads of the standard variant. Variants with doubled values have half as many, so that all but V2,
    /// which doubles its queries, have the same projections.
    pub heads: usize,
    /// Key/value heads, counted as the standard variant does. Default: `heads`.
    pub kv_heads: Option<usize>,
    /// Head width d.
    pub head_dim: usize,
    /// SwiGLU hidden width.
    pub ffn: usize,
    /// RoPE base.
    pub rope_theta: f64,
    /// Longest context, in tokens.
    pub max_ctx_tok: usize,
}

/// One variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSpec {
    /// Folder name of the result, and the model's name in the log.
    pub name: String,
    /// A preset, such as `diff`, or a preset with other choices: `{ preset = "diff", norm = "none" }`. `transformers`
    /// loads models of `diff` as `diffllama`.
    pub attention: VariantName,
    /// SwiGLU hidden width, if another one is needed to match parameter counts.
    pub ffn: Option<usize>,
    /// Heads, counted as in `[model]`, if there are others; then also the number of key/value heads.
    pub heads: Option<usize>,
    /// Head width, if it is another one.
    pub head_dim: Option<usize>,
    /// Peak learning rate, if it is another one than `optimizer.rate`. Peaks of later cycles change in proportion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// `true` if the queries and keys of each head have an RMSNorm with a gain.
    #[serde(default)]
    pub qk_norm: bool,
    /// Standard deviation of the initial embeddings. Default: 0.02.
    pub embedding_deviation: Option<f64>,
    /// `true` if the output projection of attention starts at 0.
    #[serde(default)]
    pub zero_output: bool,
}

/// One variant with one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainRun {
    /// Its folder below that of the spec: `VARIANT`, or `VARIANT/seed-N`.
    pub name: String,
    /// Index of the variant.
    pub variant: usize,
    /// Seed of the initial weights and of the data.
    pub seed: u64,
}

impl VariantSpec {
    /// Options of its initial weights.
    pub fn init(&self) -> Init {
        let usual = Init::default();
        let embedding_deviation = self.embedding_deviation.unwrap_or(usual.embedding_deviation);
        Init { embedding_deviation, zero_output: self.zero_output }
    }

    /// Its learning rates over those of the spec.
    pub(super) fn rate_factor(&self, optimizer: &OptimizerSpec) -> f64 {
        self.rate.map_or(1.0, |rate| rate / optimizer.rate)
    }
}

/// AdamW with linear warm-up and cosine decay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSpec {
    /// Peak learning rate.
    pub rate: f64,
    /// Rate at the end, as a fraction of the peak.
    pub final_fraction: f64,
    /// Tokens of linear warm-up.
    pub warmup_tok: usize,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Decoupled weight decay, on matrices only.
    pub weight_decay: f64,
    /// Largest norm of the gradient of all parameters.
    pub clip: f64,
}

/// The values of the embedded models.
impl Default for OptimizerSpec {
    fn default() -> Self {
        Self {
            rate: 2e-3,
            final_fraction: 0.05,
            warmup_tok: 200_000,
            beta1: 0.9,
            beta2: 0.95,
            weight_decay: 0.1,
            clip: 1.0,
        }
    }
}

/// Weights of tokens in the loss.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossSpec {
    /// Weight of the first digit of a value that can be recalled from the context.
    pub first_digit: f64,
    /// Weight of its other digits.
    pub other_digits: f64,
    /// Weight of digits that cannot be known: of a value stated for the first time.
    pub new_digits: f64,
}

/// The values of the embedded models.
impl Default for LossSpec {
    fn default() -> Self {
        Self { first_digit: 10.0, other_digits: 3.0, new_digits: 0.1 }
    }
}

/// One stage of the length curriculum.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Context length, in tokens.
    pub ctx_tok: usize,
    /// Tokens to train on.
    pub tokens: usize,
    /// Tokens per step (a multiple of `ctx_tok`).
    pub step_tok: usize,
    /// Peak rate of a new cosine cycle that starts here (a warm restart, Loshchilov & Hutter 2017). The first cycle
    /// peaks at `optimizer.rate`.
    pub cycle_rate: Option<f64>,
    /// Contents of documents.
    pub data: DocumentSpec,
}

/// When to evaluate, log and save. Counts are in tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchSpec {
    /// Tokens per line of the log.
    pub log_every_tok: usize,
    /// Tokens between evaluations on needle prompts of the stage's context length.
    pub eval_every_tok: usize,
    /// Prompts per evaluation and setting; 0 for none.
    pub eval_samples: usize,
    /// Windows of held-out documents per evaluation.
    pub held_out_windows: usize,
    /// Further numbers of needles in these prompts, of which two are asked for.
    pub needles: Vec<usize>,
    /// Tokens between checkpoints.
    pub save_every_tok: usize,
}

/// The values of the embedded models.
impl Default for WatchSpec {
    fn default() -> Self {
        Self {
            log_every_tok: 50_000,
            eval_every_tok: 500_000,
            eval_samples: 20,
            held_out_windows: 20,
            needles: Vec::new(),
            save_every_tok: 500_000,
        }
    }
}

impl TrainSpec {
    /// Reads and checks a spec.
    ///
    /// # Errors
    /// If the file cannot be read; usage errors with the line and the key if it is not a spec.
    pub fn read(path: &Path) -> Result<Self> {
        let text = base::files::input_text(path, base::files::CONFIG_MAX)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads and checks a spec's text; `name` is for messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let spec: Self = spec_file::parse(name, text)?;
        spec.check().with_context(|| name.to_owned())?;
        Ok(spec)
    }

    /// The seeds, each for every variant.
    pub fn seeds(&self) -> &[u64] {
        self.seeds.as_deref().unwrap_or(self.seed.as_slice())
    }

    /// All runs: the variants with the first seed, then those with the next.
    pub fn runs(&self) -> Vec<TrainRun> {
        let mut runs = Vec::new();
        for &seed in self.seeds() {
            let folder = self.seeds.as_ref().map(|_| SEED_FOLDERS.replace('*', &seed.to_string())).unwrap_or_default();
            for (variant, VariantSpec { name, .. }) in self.variants.iter().enumerate() {
                runs.push(TrainRun { name: format!("{name}{folder}"), variant, seed });
            }
        }
        runs
    }

    /// The configurations of all variants of `[model]`, for a vocabulary of this size.
    ///
    /// # Errors
    /// A usage error if parameter counts differ by more than 1 %.
    pub fn configs_of(&self, vocab: usize) -> Result<Vec<ModelConfig>> {
        let configs: Vec<ModelConfig> =
            self.variants.iter().map(|variant| self.config(variant, vocab)).collect::<Result<_>>()?;
        let counts: Vec<usize> = configs.iter().map(ModelConfig::parameters).collect();
        let least = counts.iter().min().copied().unwrap_or(0);
        let most = counts.iter().max().copied().unwrap_or(0);
        if most as f64 > least as f64 * 1.01 {
            let list: Vec<String> = self.variants.iter().zip(&counts).map(|(v, n)| format!("{} {n}", v.name)).collect();
            bail_usage!(
                "parameter counts differ by more than 1 %: {}; set ffn of a variant to match them",
                list.join(", ")
            );
        }
        Ok(configs)
    }

    /// The configuration of one variant of `[model]`, unchecked.
    pub(super) fn config(&self, spec: &VariantSpec, vocab: usize) -> Result<ModelConfig> {
        let m = self.model()?;
        let variant = spec.attention.resolve()?;
        let raw = spec.heads.unwrap_or(m.heads);
        let heads = variant.output_heads(raw);
        let shared = m.kv_heads.filter(|_| spec.heads.is_none());
        let sizes = DecoderSizes {
            vocab,
            width: m.width,
            layers: m.layers,
            ffn: spec.ffn.unwrap_or(m.ffn),
            heads,
            kv_heads: shared.unwrap_or(if variant.values == ValueWidth::Doubled { raw } else { heads }),
            head_dim: spec.head_dim.unwrap_or(m.head_dim),
            max_ctx_tok: m.max_ctx_tok,
        };
        let config = ModelConfig::llama(variant, sizes, m.rope_theta, RopeStyle::Half);
        Ok(if spec.qk_norm { config.with_qk_norm() } else { config })
    }

    /// The sizes in `[model]`.
    pub(super) fn model(&self) -> Result<&ModelSpec> {
        match &self.model {
            Some(model) => Ok(model),
            None => {
                bail_usage!("[model] is missing; give its sizes, or a model to start from: [start] from = \"NAME\"")
            }
        }
    }

    /// The learning rate of the step after `tokens`, but for variants with one of their own: linear warm-up, then a cosine from the peak of the cycle to
    /// `final_fraction` of it over the stages of the cycle.
    pub fn rate_at(&self, tokens: usize) -> f64 {
        let optimizer = &self.optimizer;
        let mut first_stage = 0;
        let mut start = 0;
        let mut end = 0;
        for (i, stage) in self.stages.iter().enumerate() {
            if stage.cycle_rate.is_some() && end <= tokens {
                (first_stage, start) = (i, end);
            }
            end += stage.steps() * stage.step_tok;
        }
        let next_cycle = self.stages[first_stage + 1..].iter().position(|stage| stage.cycle_rate.is_some());
        let last_stage = next_cycle.map_or(self.stages.len(), |offset| first_stage + 1 + offset);
        let length: usize = self.stages[first_stage..last_stage].iter().map(|s| s.steps() * s.step_tok).sum();
        match self.stages[first_stage].cycle_rate {
            Some(peak) => optimizer.cosine(peak, tokens - start, length),
            None if tokens < optimizer.warmup_tok => optimizer.rate * (tokens + 1) as f64 / optimizer.warmup_tok as f64,
            None => {
                let rest = length.saturating_sub(optimizer.warmup_tok);
                optimizer.cosine(optimizer.rate, tokens - optimizer.warmup_tok, rest)
            }
        }
    }

    /// Tokens of a whole run of one variant.
    pub fn total_tokens(&self) -> usize {
        self.stages.iter().map(|stage| stage.steps() * stage.step_tok).sum()
    }
}

impl WatchSpec {
    /// The settings of evaluations: needles of their prompts, those asked for, and their cities.
    pub(super) fn evaluated(&self) -> Vec<(usize, usize, CitySet)> {
        let further = self.needles.iter().map(|&needles| (needles, needles.min(ASKED), CitySet::Train));
        EVALUATED.into_iter().chain(further).collect()
    }
}

impl Stage {
    /// Returns `true` if some of its documents are windows of people's texts.
    pub(super) fn has_text(&self) -> bool {
        !self.data.text.is_empty() && self.data.text_share > 0.0
    }

    /// Returns `true` if some of its documents state facts.
    pub(super) fn has_facts(&self) -> bool {
        self.data.text.is_empty() || self.data.text_share < 1.0
    }

    /// Whole steps in this stage.
    pub fn steps(&self) -> usize {
        self.tokens / self.step_tok
    }
}

impl OptimizerSpec {
    /// The rate after `done` of `length` tokens of a cycle: a cosine from `peak` to `final_fraction` of it.
    fn cosine(&self, peak: f64, done: usize, length: usize) -> f64 {
        let progress = done as f64 / length.max(1) as f64;
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos());
        peak * (self.final_fraction + (1.0 - self.final_fraction) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stages: &str) -> TrainSpec {
        let head = include_str!("../../experiments/study-b-models.toml").split("[[stage]]").next().unwrap();
        let watch = "[watch]\nlog_every_tok = 1\neval_every_tok = 1\neval_samples = 1\nsave_every_tok = 1";
        spec_file::parse("x.toml", &format!("{head}\n{stages}\n{watch}")).unwrap()
    }

    #[test]
    fn mistakes_name_the_line_and_the_key() {
        let example = include_str!("../../experiments/example.toml");
        let line_of = |text: &str| example[..example.find(text).unwrap()].matches('\n').count() + 1;
        for (from, to, at, expected) in [
            ("layers = 4", "", "[model]", "missing field `layers` in `model`"),
            ("name = \"standard\"\n", "", "[[variant]]", "missing field `name` in `variant`"),
            ("ctx_tok = 128\n", "", "[[stage]]", "missing field `ctx_tok` in `stage`"),
            (
                "layers = 4",
                "layer = 4",
                "layers = 4",
                "unknown field `layer` (did you mean `layers`?), expected one of `width`",
            ),
            (
                "layers = 4",
                "layers = 2.5",
                "layers = 4",
                "invalid type: floating point `2.5`, expected usize in `model.layers`",
            ),
            ("facts = [2, 5]", "facts = [2, 5, 9]", "data = ", "invalid length 3, expected a list of 2 numbers"),
            ("prose = 0.0", "poetry = 0.0", "data = ", "unknown field `poetry`, expected one of `facts`, `restate`"),
        ] {
            let text = example.replacen(from, to, 1);
            assert_ne!(text, example, "nothing to replace");
            let error = TrainSpec::parse(&text, "x.toml").unwrap_err().to_string();
            assert!(error.starts_with(&format!("x.toml, line {}: {expected}", line_of(at))), "{error}");
        }
    }

    #[test]
    fn the_rate_warms_up_falls_to_its_final_fraction_and_restarts_with_a_cycle() {
        let stage = "[[stage]]\nctx_tok = 100\nstep_tok = 1000\ntokens = 1_000_000\ndata = {}\n";
        let spec = spec(&format!("{stage}{stage}{stage}cycle_rate = 1e-3"));
        assert_eq!(spec.total_tokens(), 3_000_000);
        assert!((spec.rate_at(99_999) - 1e-3).abs() < 1e-9, "half-way up");
        assert!((spec.rate_at(200_000) - 2e-3).abs() < 1e-9, "the peak");
        assert!((spec.rate_at(1_999_999) - 1e-4).abs() < 1e-6, "5 % of the peak");
        assert!((spec.rate_at(2_000_000) - 1e-3).abs() < 1e-9, "the restart");
        assert!((spec.rate_at(2_999_999) - 5e-5).abs() < 1e-6, "5 % of the second peak");
    }
}
