//! Measurements inside the layers during training, at the times of the log: size of the mixtures, lambda, and gradient
//! norms by tensor and head.

use super::adamw::Gradients;
use super::data::Batch;
use super::metrics::{CONTEXT_RMS, GRAD_NORM, LAMBDA};
use super::step::detached;
use anyhow::Result;
use candle_core::{Tensor, Var};
use engine::attention::{Attend, Fused, Heads};
use engine::model::{ModelConfig, Transformer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of `layers.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerLine {
    /// Tokens trained on.
    pub tokens: usize,
    /// 0-based layer; `None` for tensors outside the layers.
    pub layer: Option<usize>,
    /// `context_rms`, `lambda` or `grad_norm`.
    pub quantity: String,
    /// Name of the tensor of a `grad_norm`, without `model.layers.N`.
    pub tensor: Option<String>,
    /// 0-based head: the output head of `context_rms`, `lambda` and `o_proj`; the query, key or value head of the other
    /// projections; `None` for all heads together.
    pub head: Option<usize>,
    /// `context_rms`: root mean square of the mixture before the head norm, over tokens and channels. `lambda`: mean
    /// over tokens. `grad_norm`: norm of the last step's gradient, before clipping.
    pub value: f64,
}

/// Tokens of the batch that are passed through the model again.
const ROWS_TOK: usize = 1024;

/// The lines after a step on `batch` with these `gradients`, which are in the order of the names of `vars`.
pub(super) fn layer_lines(
    config: &ModelConfig,
    vars: &BTreeMap<String, Var>,
    batch: &Batch,
    gradients: &Gradients,
    tokens: usize,
) -> Result<Vec<LayerLine>> {
    let mut lines = Vec::new();
    let mut contexts = Contexts::default();
    let model = Transformer::build(config, &mut detached(vars)?)?;
    if let Some(part) = batch.parts(ROWS_TOK).next() {
        model.hidden(part.inputs, &mut contexts)?;
    }
    for (layer, (rms, lambda)) in contexts.layers.iter().enumerate() {
        let line = LayerLine { tokens, layer: Some(layer), ..LayerLine::default() };
        for (head, &value) in rms.iter().enumerate() {
            lines.push(LayerLine { quantity: CONTEXT_RMS.name.to_owned(), head: Some(head), value, ..line.clone() });
        }
        for (head, &value) in lambda.iter().enumerate() {
            // One lambda is that of the layer.
            let head = (lambda.len() > 1).then_some(head);
            lines.push(LayerLine { quantity: LAMBDA.name.to_owned(), head, value, ..line.clone() });
        }
    }
    for (name, gradient) in vars.keys().zip(gradients) {
        let (layer, tensor) = split(name);
        let heads = by_head(config, tensor, gradient);
        let quantity = GRAD_NORM.name.to_owned();
        let tensor = Some(tensor.to_owned());
        let whole = LayerLine { tokens, layer, quantity, tensor, head: None, value: norm(gradient.iter()) };
        lines.push(whole.clone());
        for (head, value) in heads.into_iter().enumerate() {
            lines.push(LayerLine { head: Some(head), value, ..whole.clone() });
        }
    }
    Ok(lines)
}

/// Splits `model.layers.3.self_attn.q_proj.weight` into (3, `self_attn.q_proj.weight`).
pub(super) fn split(name: &str) -> (Option<usize>, &str) {
    let within = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    within.and_then(|(layer, rest)| Some((Some(layer.parse().ok()?), rest))).unwrap_or((None, name))
}

fn norm<'a>(values: impl Iterator<Item = &'a f32>) -> f64 {
    values.map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

/// The norm of each head's part of a projection: rows of query, key and value projections, columns of the
/// output projection.
fn by_head(config: &ModelConfig, tensor: &str, gradient: &[f32]) -> Vec<f64> {
    match tensor {
        "self_attn.q_proj.weight" | "self_attn.k_proj.weight" | "self_attn.v_proj.weight" => {
            gradient.chunks(config.head_dim * config.width).map(|rows| norm(rows.iter())).collect()
        }
        "self_attn.o_proj.weight" => {
            let width = config.attention_width();
            let head_width = width / config.heads;
            let mut norms = Vec::new();
            for head in 0..config.heads {
                norms.push(norm(gradient.chunks(width).flat_map(|row| &row[head * head_width..][..head_width])));
            }
            norms
        }
        _ => Vec::new(),
    }
}

/// Attention as in training, which also records each layer's mixture and lambda.
#[derive(Default)]
struct Contexts {
    /// By layer: root mean square of each head's mixture; lambda of the layer or of each head, mean over tokens.
    layers: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Attend for Contexts {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> candle_core::Result<Tensor> {
        let mixture = Fused.attend(layer, heads)?; // B,T,H,value width
        let rms = mixture.sqr()?.mean((0, 1, 3))?.sqrt()?.to_vec1::<f32>()?; // H
        let lambda = match &heads.lambda {
            None => Vec::new(),
            Some(lambda) if lambda.rank() == 3 => lambda.mean((0, 1))?.to_vec1::<f32>()?, // H
            Some(lambda) => lambda.to_vec1::<f32>()?,
        };
        let [rms, lambda] = [rms, lambda].map(|numbers| numbers.into_iter().map(f64::from).collect());
        self.layers.push((rms, lambda));
        Ok(mixture)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{step, tensors, variables, AdamW, TargetKind};
    use super::*;
    use crate::train::spec::OptimizerSpec;
    use engine::attention::Variant;
    use engine::kernels::RopeStyle;
    use engine::model::DecoderSizes;

    #[test]
    fn norms_of_heads_and_tensors_make_up_the_norm_of_the_whole_gradient() {
        let sizes = DecoderSizes {
            vocab: 20,
            width: 16,
            layers: 2,
            ffn: 24,
            heads: 3,
            kv_heads: 6,
            head_dim: 4,
            max_ctx_tok: 32,
        };
        let config = ModelConfig::llama(Variant::preset("diff").unwrap(), sizes, 10_000.0, RopeStyle::Half);
        let vars = variables(&config, 1).unwrap();
        let spec = OptimizerSpec { rate: 1e-3, final_fraction: 0.1, warmup_tok: 1, ..OptimizerSpec::default() };
        let mut optimizer = AdamW::new(&vars, &spec);
        let ids: Vec<u32> = (0..33).map(|i| i * 7 % 20).collect();
        let batch = Batch {
            inputs: vec![ids[..32].to_vec()],
            targets: ids[1..].to_vec(),
            weights: vec![1.0; 32],
            kinds: vec![TargetKind::Text; 32],
        };
        let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
        let done = step(&model, &mut optimizer, &batch, 1e-3).unwrap();
        let lines = layer_lines(&config, &vars, &batch, &done.gradients, 32).unwrap();
        let of = |quantity: &str, heads: bool| {
            let wanted = |line: &&LayerLine| line.quantity == quantity && line.head.is_some() == heads;
            lines.iter().filter(wanted).cloned().collect::<Vec<_>>()
        };
        let squares = |lines: &[LayerLine]| lines.iter().map(|line| line.value.powi(2)).sum::<f64>();
        let whole = squares(&of("grad_norm", false)).sqrt();
        assert!((whole / done.grad_norm - 1.0).abs() < 1e-9, "{whole} instead of {}", done.grad_norm);
        for tensor in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            let name = format!("self_attn.{tensor}.weight");
            let of_tensor = |mut list: Vec<LayerLine>| {
                list.retain(|line| line.tensor.as_ref() == Some(&name));
                list
            };
            let heads = of_tensor(of("grad_norm", true));
            let all = of_tensor(of("grad_norm", false));
            assert_eq!(heads.len(), 2 * if tensor == "o_proj" { 3 } else { 6 }, "{tensor}");
            assert!((squares(&heads) / squares(&all) - 1.0).abs() < 1e-9, "{tensor}");
        }
        assert_eq!((of(CONTEXT_RMS.name, true).len(), of(LAMBDA.name, false).len()), (6, 2));
        assert!(lines.iter().all(|line| line.value.is_finite() && line.value > 0.0));
    }
}
