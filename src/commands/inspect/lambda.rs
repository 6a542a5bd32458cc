//! Lambda of a model, by layer.

use crate::measures::{LambdaCollector, LambdaProbe};
use anyhow::{Context, Result};
use engine::attention::{Extras, Lambda, Stream};
use engine::model::open::{Model, OpenedModel};
use engine::model::pass::pass;
use serde::Serialize;
use stats::{quantile, Moments};
use std::collections::BTreeMap;
use text::{Text, Windows};

/// Length of the prose over which token-dependent lambda is measured, in tokens.
const LAMBDA_TOK: usize = 512;

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

/// Lambda of every layer; empty without differential attention, or if it depends on tokens and there is no tokenizer.
pub(super) fn by_layer(opened: OpenedModel) -> Result<Vec<LayerLambda>> {
    let config = opened.config.clone();
    let mut layers = Vec::new();
    match config.variant.lambda {
        Lambda::None => {}
        Lambda::Vectors | Lambda::VectorsAndInit | Lambda::Layer | Lambda::Fixed => {
            let has_init = matches!(config.variant.lambda, Lambda::Vectors | Lambda::Fixed);
            for (layer, learned) in learned(&opened)?.into_iter().enumerate() {
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
fn learned(opened: &OpenedModel) -> Result<Vec<f64>> {
    let config = &opened.config;
    let checkpoint = &opened.checkpoint;
    let shapes: BTreeMap<String, Vec<usize>> = config.tensors().into_iter().collect();
    let mut lambdas = Vec::new();
    for layer in 0..config.layers.len() {
        let lambda = Extras::load_lambda(&config.variant, layer, |name: &str| {
            let name = format!("model.layers.{layer}.self_attn.{name}");
            checkpoint.read(config, &name, &shapes[&name])
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
        layers.entry(result.at.layer).or_default().extend(collector.lambdas.iter().map(|&lambda| f64::from(lambda)));
    }
    layers.into_iter().map(|(layer, lambdas)| Ok((layer, Distribution::of(lambdas)?))).collect()
}

impl LayerLambda {
    pub(super) fn is_zero(&self) -> bool {
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
