//! Inspection of a model: its architecture, lambda by layer, memory, and a check of its tensors.

use crate::attention::{Extras, Lambda, Stream};
use crate::measures::{LambdaCollector, LambdaProbe};
use crate::model::open::{Model, OpenedModel};
use crate::model::pass::pass;
use crate::model::ModelConfig;
use crate::prompts::{BosPolicy, Text, Windows};
use crate::results::manifest::WeightsState;
use crate::stats::{quantile, Moments};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// Length of the prose over which token-dependent lambda is measured, in tokens.
const LAMBDA_TOK: usize = 512;

/// Output of `inspect`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Inspection {
    /// Name: that of a built-in model, or the folder or GGUF file as given.
    pub(super) name: String,
    /// `model_type` of the configuration.
    pub(super) model_type: String,
    pub(super) variant: &'static str,
    pub(super) layout: String,
    /// Definition of the logits, if they are not scaled products of queries and keys.
    pub(super) logit_tap: Option<String>,
    /// Number of parameters; tied ones count once.
    pub(super) parameters: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Softmax maps of each head.
    pub(super) maps: usize,
    /// Key heads of a layer.
    pub(super) key_heads: usize,
    /// Value heads of a layer, in slices of the head width.
    pub(super) value_heads: usize,
    /// Width of queries and keys.
    pub(super) head_dim: usize,
    /// Description of latent attention, if the model has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latent: Option<String>,
    pub(super) width: usize,
    pub(super) mlp: String,
    /// Description of norms and residual stream.
    pub(super) block: String,
    /// Projections with a bias.
    pub(super) biases: String,
    pub(super) positions: Vec<String>,
    pub(super) sees: String,
    /// Longest context the model was trained for, in tokens.
    pub(super) max_ctx_tok: usize,
    pub(super) vocab: usize,
    /// `true` if the output head is the embedding matrix.
    pub(super) tied: bool,
    pub(super) tokenizer: Option<TokenizerInfo>,
    pub(super) weights: WeightsInfo,
    pub(super) memory: MemoryInfo,
    /// Lambda of every layer; empty without differential attention, or if the weights cannot be read.
    pub(super) lambda: Vec<LayerLambda>,
}

/// The tokenizer of a model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TokenizerInfo {
    /// Vocabulary size, including special tokens.
    pub(super) vocab: usize,
    /// The begin-of-sequence token of prompts, with its source.
    pub(super) bos: BosPolicy,
    /// `true` if prompts are put in a chat template.
    pub(super) chat: bool,
}

/// Weights on disk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WeightsInfo {
    /// Number types; empty if only the configuration is there.
    pub(super) dtype: String,
    /// Size of the files.
    pub(super) bytes: u64,
    /// Tensors of the model that no file has, with their expected shapes.
    pub(super) missing: Vec<(String, Vec<usize>)>,
    /// One message for each tensor with the wrong shape or an unsupported number type.
    pub(super) misfits: Vec<String>,
    /// Tensors that are not part of the model.
    pub(super) unused: Vec<(String, Vec<usize>)>,
}

/// Host memory of one forward pass.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct MemoryInfo {
    pub(super) ctx_tok: usize,
    /// Memory of the weights, in bytes: of one layer if they are streamed.
    pub(super) weights_bytes: u64,
    /// Their state while the model runs.
    pub(super) weights: WeightsState,
    /// Bound on the memory of activations, in bytes.
    pub(super) pass_bytes: u64,
}

/// Lambda of one layer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LayerLambda {
    pub(super) layer: usize,
    /// lambda_init, if lambda includes it.
    pub(super) init: Option<f64>,
    /// Lambda, if it is one number per layer.
    pub(super) learned: Option<f64>,
    /// Distribution of lambda over tokens and heads, if it depends on them.
    pub(super) over_tokens: Option<Distribution>,
}

/// Distribution of numbers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Distribution {
    pub(super) n: usize,
    pub(super) mean: f64,
    pub(super) std: f64,
    pub(super) p5: f64,
    pub(super) median: f64,
    pub(super) p95: f64,
}

impl Inspection {
    /// Inspects a model, with the memory for prompts of `ctx_tok` tokens.
    ///
    /// # Errors
    /// If a file cannot be read. Tensors that do not fit the architecture are part of the result.
    pub(super) fn new(opened: OpenedModel, ctx_tok: usize) -> Result<Self> {
        let config = &opened.config;
        let audit = opened.checkpoint.audit(config);
        let none = opened.checkpoint.is_none();
        let weights = WeightsInfo {
            dtype: opened.checkpoint.dtypes(),
            bytes: opened.checkpoint.len_bytes(),
            missing: if none { Vec::new() } else { audit.missing.clone() },
            misfits: audit.misfits.clone(),
            unused: audit.unused.clone(),
        };
        let tokenizer = opened.tokenizer().ok().map(|tokenizer| TokenizerInfo {
            vocab: tokenizer.vocab_size(),
            bos: tokenizer.bos().clone(),
            chat: tokenizer.chat().is_some(),
        });
        let state = opened.weights_state();
        let memory = MemoryInfo {
            ctx_tok,
            weights_bytes: opened.weights_bytes(state),
            weights: state,
            pass_bytes: config.pass_bytes(ctx_tok),
        };
        Ok(Self {
            name: opened.name.clone(),
            model_type: config.model_type.clone(),
            variant: config.variant.name(),
            layout: config.layout(),
            logit_tap: config.logit_tap(),
            parameters: config.parameters(),
            layers: config.layers.len(),
            heads: config.heads,
            maps: config.wiring().maps(),
            key_heads: config.key_heads(),
            value_heads: config.kv_heads,
            head_dim: config.head_dim,
            latent: config.latent_ranks(),
            width: config.width,
            mlp: config.mlp(),
            block: config.block(),
            biases: config.biases(),
            positions: config.positions(),
            sees: config.windows(),
            max_ctx_tok: config.max_ctx_tok,
            vocab: config.vocab,
            tied: config.tied,
            tokenizer,
            weights,
            memory,
            lambda: if audit.is_clean() { lambdas(opened)? } else { Vec::new() },
        })
    }

    /// Returns `true` if lambda is 0 in every layer, so that the second map has no effect.
    pub(super) fn is_standard_by_lambda(&self) -> bool {
        !self.lambda.is_empty() && self.lambda.iter().all(LayerLambda::is_zero)
    }

    /// Returns `true` if the tensors are those of the architecture.
    pub(super) fn is_loadable(&self) -> bool {
        let WeightsInfo { missing, misfits, unused, .. } = &self.weights;
        missing.is_empty() && misfits.is_empty() && unused.is_empty()
    }
}

fn lambdas(opened: OpenedModel) -> Result<Vec<LayerLambda>> {
    let config = opened.config.clone();
    let mut layers = Vec::new();
    match config.variant.lambda {
        Lambda::None => {}
        Lambda::Vectors | Lambda::VectorsAndInit | Lambda::Layer | Lambda::Fixed => {
            let has_init = matches!(config.variant.lambda, Lambda::Vectors | Lambda::Fixed);
            for (layer, learned) in learned(&opened, &config)?.into_iter().enumerate() {
                let init = has_init.then(|| config.variant.lambda_init.of(layer));
                layers.push(LayerLambda { layer, init, learned: Some(learned), over_tokens: None });
            }
        }
        Lambda::Head | Lambda::TokenSigmoid | Lambda::Token if opened.tokenizer().is_err() => {}
        Lambda::Head | Lambda::TokenSigmoid | Lambda::Token => {
            for (layer, over_tokens) in over_tokens(&opened.load()?)? {
                layers.push(LayerLambda { layer, init: None, learned: None, over_tokens: Some(over_tokens) });
            }
        }
    }
    Ok(layers)
}

/// Lambda of every layer, from its own tensors only.
fn learned(opened: &OpenedModel, config: &ModelConfig) -> Result<Vec<f64>> {
    let mut weights = opened.checkpoint.load_some(config, |name| name.contains("self_attn.lambda"))?;
    let mut lambdas = Vec::new();
    for layer in 0..config.layers.len() {
        let lambda = Extras::load_lambda(&config.variant, layer, |name: &str| {
            weights.take(&format!("model.layers.{layer}.self_attn.{name}"))
        })?;
        let lambda = lambda.context("lambda depends on the token")?;
        lambdas.push(f64::from(lambda.to_vec1::<f32>()?[0]));
    }
    Ok(lambdas)
}

/// Lambda of every token and head over embedded prose, by layer.
fn over_tokens(model: &Model) -> Result<BTreeMap<usize, Distribution>> {
    let ctx_tok = LAMBDA_TOK.min(model.transformer.config.max_ctx_tok);
    let prompt = Text::Prose.window(0, Windows { ctx_tok, stride: None }, 0, model.tokenizer())?;
    let passed = pass(&model.transformer, &prompt, Stream::new(&[&LambdaProbe]), true)?;
    let mut layers: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for result in passed.probe_results {
        let collector = result.collector.into_collector::<LambdaCollector>();
        layers.entry(result.layer).or_default().extend(collector.lambdas.iter().map(|&lambda| f64::from(lambda)));
    }
    layers.into_iter().map(|(layer, lambdas)| Ok((layer, Distribution::of(lambdas)?))).collect()
}

impl LayerLambda {
    fn is_zero(&self) -> bool {
        self.learned == Some(0.0) || self.over_tokens.is_some_and(|over| over.mean == 0.0 && over.std == 0.0)
    }
}

impl Distribution {
    fn of(mut numbers: Vec<f64>) -> Result<Self> {
        numbers.sort_by(f64::total_cmp);
        let moments: Moments = numbers.iter().copied().collect();
        let (mean, std) = moments.mean().zip(moments.std()).context("lambda of fewer than two tokens")?;
        let at = |q| quantile(&numbers, q);
        Ok(Self { n: numbers.len(), mean, std, p5: at(0.05), median: at(0.5), p95: at(0.95) })
    }
}
