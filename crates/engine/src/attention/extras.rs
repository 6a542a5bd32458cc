//! Learned tensors of an attention layer besides its projections, and the formulas of every [`Variant`] that use them.
//!
//! A new formula needs a name in `variant.rs`, its tensors in [`Variant::extra_tensors`], its computation here, and a
//! reference in `tests/suite/variants.rs`.

use super::variant::{Factor, Gate, HeadNorm, Lambda, LambdaStart, Pairing, Sink, Variant};
use crate::kernels::{linear, numbers, rms_norm, sigmoid, wide};
use anyhow::Result;
use candle_core::{DType, Device, Tensor, D};
use std::ops::Range;

/// Sizes that determine the shapes of the tensors.
#[derive(Clone, Copy, Debug)]
pub struct LayerSizes {
    /// Model width E.
    pub width: usize,
    /// Output heads H.
    pub heads: usize,
    /// Query heads.
    pub query_heads: usize,
    /// Head width d of queries and keys.
    pub head_dim: usize,
    /// Value width of an output head: d or 2d.
    pub value_width: usize,
}

/// A learned tensor: its name below `self_attn`, its shape, and its initialisation.
pub(crate) struct ExtraTensor {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) init: TensorInit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TensorInit {
    /// All elements equal to this number.
    Constant(f64),
    /// Normal with this standard deviation.
    Normal(f64),
}

/// Initial standard deviation of the lambda vectors (paper section 3.1).
const VECTOR_DEVIATION: f64 = 0.1;
/// Initial standard deviation of projections, as in the rest of the model.
const PROJECTION_DEVIATION: f64 = 0.02;
/// Names of the lambda vectors in the order of the formula.
const VECTORS: [&str; 4] = ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"];
const LAMBDA: &str = "lambda";
/// Stored lambda_init of [`Lambda::VectorsAndInit`].
const LAMBDA_INIT: &str = "lambda_init";
const LAMBDA_PROJECTION: &str = "lambda_proj.weight";
const HEAD_GAIN: &str = "subln.weight";
const ALL_HEADS_GAIN: &str = "norm.weight";
const SINKS: &str = "sinks";
const GATE: &str = "gate.weight";
/// Epsilon of the head norm in Microsoft's files, a constant. The Hugging Face version uses the model's.
const MICROSOFT_EPS: f64 = 1e-5;
/// Added to the root mean square over all heads, rather than under the root (Edifice).
const ALL_HEADS_EPS: f64 = 1e-6;

impl Variant {
    /// Learned tensors of the 0-based `layer` besides its projections.
    pub(crate) fn extra_tensors(&self, layer: usize, sizes: LayerSizes) -> Vec<ExtraTensor> {
        let LayerSizes { width, heads, query_heads, head_dim, value_width } = sizes;
        let (vector, projection) = match self.lambda_start {
            LambdaStart::Normal => (TensorInit::Normal(VECTOR_DEVIATION), TensorInit::Normal(PROJECTION_DEVIATION)),
            LambdaStart::Zero => (TensorInit::Constant(0.0), TensorInit::Constant(0.0)),
        };
        let init = TensorInit::Constant(self.lambda_init.of(layer));
        let mut tensors = match self.lambda {
            Lambda::None | Lambda::Fixed => Vec::new(),
            Lambda::Vectors => VECTORS.map(|name| (name, vec![head_dim], vector)).to_vec(),
            Lambda::VectorsAndInit => {
                let vectors = VECTORS.map(|name| (name, vec![head_dim], vector));
                vectors.into_iter().chain([(LAMBDA_INIT, vec![1], init)]).collect()
            }
            Lambda::Layer => vec![(LAMBDA, vec![1], init)],
            Lambda::Head => vec![(LAMBDA, vec![heads], init)],
            Lambda::TokenSigmoid | Lambda::Token => vec![(LAMBDA_PROJECTION, vec![heads, width], projection)],
        };
        match self.norm {
            HeadNorm::None | HeadNorm::Rms => {}
            HeadNorm::RmsGain => tensors.push((HEAD_GAIN, vec![value_width], TensorInit::Constant(1.0))),
            HeadNorm::AllHeads => {
                tensors.push((ALL_HEADS_GAIN, vec![heads * value_width], TensorInit::Constant(1.0)));
            }
        }
        if self.sink == Sink::Learned {
            tensors.push((SINKS, vec![query_heads], TensorInit::Constant(0.0)));
        }
        let gate = TensorInit::Normal(PROJECTION_DEVIATION);
        match self.gate {
            Gate::None => {}
            Gate::Channel => tensors.push((GATE, vec![heads * value_width, width], gate)),
            Gate::Head => tensors.push((GATE, vec![heads, width], gate)),
        }
        tensors.into_iter().map(|(name, shape, init)| ExtraTensor { name, shape, init }).collect()
    }

    /// Epsilon of the norm of each head in a model whose other norms have `of_model`.
    pub fn head_norm_eps(&self, of_model: f64) -> f64 {
        match (self.norm, self.pairing) {
            (HeadNorm::Rms, Pairing::None | Pairing::Halves) => of_model,
            _ => MICROSOFT_EPS,
        }
    }
}

/// Tensors of a layer besides its projections, with their formulas.
#[derive(Clone, Debug)]
pub struct Extras {
    lambda: LambdaSource,
    norm: OutputNorm,
    /// Factor on the output after the norm.
    factor: f64,
    /// (query heads)
    sink: Option<Tensor>,
    /// (H value width, E), or (H, E) for one number per head.
    gate: Option<Tensor>,
    /// Channels of an output head for each row of the gate.
    gated_channels: usize,
}

#[derive(Clone, Debug)]
enum LambdaSource {
    None,
    /// Four vectors (d), and lambda_init: a number of the layer or a tensor (1).
    Vectors([Tensor; 4], LambdaInitSource),
    /// A learned or fixed number: (1) or (H).
    Numbers(Tensor),
    /// Weight (H, E), and `true` if a sigmoid follows.
    Projection(Tensor, bool),
}

/// lambda_init of four vectors.
#[derive(Clone, Debug)]
enum LambdaInitSource {
    Number(f64),
    /// (1)
    Stored(Tensor),
}

#[derive(Clone, Debug)]
enum OutputNorm {
    None,
    /// Over each head, with gain (value width) and epsilon. The gain is 1 in layouts without one.
    Head(Tensor, f64),
    /// Over all heads, with gain (H value width).
    AllHeads(Tensor),
}

impl Extras {
    /// Takes the tensors of the 0-based `layer` by their names below `self_attn`. They are on `device`; `norm_eps` is
    /// that of the norm of each head.
    pub fn load(
        variant: &Variant,
        layer: usize,
        sizes: LayerSizes,
        norm_eps: f64,
        device: &Device,
        mut take: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<Self> {
        let init = variant.lambda_init.of(layer);
        Ok(Self {
            lambda: LambdaSource::load(variant, init, device, &mut take)?,
            norm: match variant.norm {
                HeadNorm::None => OutputNorm::None,
                HeadNorm::Rms => OutputNorm::Head(Tensor::ones(sizes.value_width, DType::F32, device)?, norm_eps),
                HeadNorm::RmsGain => OutputNorm::Head(take(HEAD_GAIN)?, norm_eps),
                HeadNorm::AllHeads => OutputNorm::AllHeads(take(ALL_HEADS_GAIN)?),
            },
            factor: match variant.factor {
                Factor::One => 1.0,
                Factor::OneMinusLambdaInit => 1.0 - init,
            },
            sink: match variant.sink {
                Sink::None => None,
                Sink::Zero => Some(Tensor::zeros(sizes.query_heads, DType::F32, device)?),
                Sink::Learned => Some(take(SINKS)?),
            },
            gate: (variant.gate != Gate::None).then(|| take(GATE)).transpose()?,
            gated_channels: if variant.gate == Gate::Head { sizes.value_width } else { 1 },
        })
    }

    /// Lambda of a layer, loaded on the CPU without the layer's other tensors. `None` if it depends on the token or
    /// there is one map.
    pub fn load_lambda(
        variant: &Variant,
        layer: usize,
        mut take: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        LambdaSource::load(variant, variant.lambda_init.of(layer), &Device::Cpu, &mut take)?.constant()
    }

    /// Weight of the second map for the layer's normed input x (B, T, E): (1), (H) or (B, T, H). `None` for one map.
    pub fn lambda(&self, x: &Tensor) -> Result<Option<Tensor>> {
        match &self.lambda {
            LambdaSource::Projection(weight, squash) => {
                let product = linear(&wide(x)?, &wide(weight)?)?; // B,T,H
                Ok(Some(if *squash { sigmoid(&product)? } else { product }))
            }
            other => other.constant(),
        }
    }

    /// Lambda that holds for every token, (1) or (H). `None` if it depends on the token or there is one map.
    pub fn constant_lambda(&self) -> Result<Option<Tensor>> {
        self.lambda.constant()
    }

    /// Sink logits, which no value belongs to: (query heads).
    pub fn sink(&self) -> Option<&Tensor> {
        self.sink.as_ref()
    }

    /// Output gate sigmoid(x W) of the layer's input x (B, T, E): (B, T, H value width).
    pub fn gate(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let Some(weight) = &self.gate else { return Ok(None) };
        let gate = sigmoid(&linear(x, weight)?)?; // B,T,H value width or B,T,H
        if self.gated_channels == 1 {
            return Ok(Some(gate));
        }
        let (b, t, heads) = gate.dims3()?;
        let repeated = gate.unsqueeze(3)?.broadcast_as((b, t, heads, self.gated_channels))?; // B,T,H,value width
        Ok(Some(repeated.flatten_from(2)?)) // B,T,H value width
    }

    /// Applies norm and factor to the mixture: (B, T, H, value width) -> same shape.
    pub fn finish(&self, mixture: Tensor) -> Result<Tensor> {
        Ok(match &self.norm {
            OutputNorm::None => self.scaled(&mixture)?,
            OutputNorm::Head(gain, eps) => rms_norm(&mixture, &self.scaled(gain)?, *eps)?,
            OutputNorm::AllHeads(gain) => {
                let x = wide(&mixture.flatten_from(2)?)?; // B,T,H*value width
                let rms = x.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
                let normed = x.broadcast_div(&(rms + ALL_HEADS_EPS)?)?;
                let scaled = normed.broadcast_mul(&self.scaled(gain)?)?;
                scaled.to_dtype(mixture.dtype())?.reshape(mixture.shape())?
            }
        })
    }

    /// Factors of `finish` and gate on the channels `of_head` of one row: (value width). `mixture` and `gate` are those
    /// of the whole row, (H value width).
    pub fn row_scale(&self, of_head: Range<usize>, mixture: &[f32], gate: Option<&[f32]>) -> Result<Vec<f64>> {
        let (mut scale, _) = self.head_gain(of_head.clone())?;
        let factor = match &self.norm {
            OutputNorm::None => 1.0,
            OutputNorm::Head(_, eps) => 1.0 / (mean_square(&mixture[of_head.clone()]) + eps).sqrt(),
            OutputNorm::AllHeads(_) => 1.0 / (mean_square(mixture).sqrt() + ALL_HEADS_EPS),
        };
        scale.iter_mut().for_each(|scale| *scale *= factor);
        if let Some(gate) = gate {
            scale.iter_mut().zip(&gate[of_head]).for_each(|(scale, &gate)| *scale *= f64::from(gate));
        }
        Ok(scale)
    }

    /// The part of [`Self::row_scale`] that is the same in every row (value width). For a norm of each head, also the ε
    /// of the row's factor 1 / √(mean square of the head's mixture + ε).
    pub fn head_gain(&self, of_head: Range<usize>) -> Result<(Vec<f64>, Option<f64>)> {
        let (gain, eps) = match &self.norm {
            OutputNorm::None => return Ok((vec![self.factor; of_head.len()], None)),
            OutputNorm::Head(gain, eps) => (numbers(&self.scaled(gain)?)?, Some(*eps)),
            OutputNorm::AllHeads(gain) => (numbers(&self.scaled(gain)?)?[of_head].to_vec(), None),
        };
        Ok((gain.into_iter().map(f64::from).collect(), eps))
    }

    fn scaled(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        if self.factor == 1.0 {
            Ok(x.clone())
        } else {
            x.affine(self.factor, 0.0)
        }
    }
}

impl LambdaSource {
    fn load(
        variant: &Variant,
        init: f64,
        device: &Device,
        mut take: impl FnMut(&str) -> Result<Tensor>,
    ) -> Result<Self> {
        Ok(match variant.lambda {
            Lambda::None => Self::None,
            Lambda::Vectors => {
                let [q1, k1, q2, k2] = VECTORS.map(&mut take);
                Self::Vectors([q1?, k1?, q2?, k2?], LambdaInitSource::Number(init))
            }
            Lambda::VectorsAndInit => {
                let [q1, k1, q2, k2] = VECTORS.map(&mut take);
                Self::Vectors([q1?, k1?, q2?, k2?], LambdaInitSource::Stored(take(LAMBDA_INIT)?))
            }
            Lambda::Layer | Lambda::Head => Self::Numbers(take(LAMBDA)?),
            Lambda::Fixed => Self::Numbers(Tensor::new(&[init as f32], device)?),
            Lambda::TokenSigmoid => Self::Projection(take(LAMBDA_PROJECTION)?, true),
            Lambda::Token => Self::Projection(take(LAMBDA_PROJECTION)?, false),
        })
    }

    fn constant(&self) -> Result<Option<Tensor>> {
        match self {
            Self::None | Self::Projection(..) => Ok(None),
            Self::Numbers(numbers) => Ok(Some(numbers.clone())),
            // exp(q1 . k1) - exp(q2 . k2) + lambda_init, one number per layer: (1)
            Self::Vectors([q1, k1, q2, k2], init) => {
                let difference = (exp_dot(q1, k1)? - exp_dot(q2, k2)?)?; // 1
                Ok(Some(match init {
                    LambdaInitSource::Number(init) => (difference + *init)?,
                    LambdaInitSource::Stored(init) => (difference + init)?,
                }))
            }
        }
    }
}

fn exp_dot(q: &Tensor, k: &Tensor) -> candle_core::Result<Tensor> {
    linear(&q.unsqueeze(0)?, &k.unsqueeze(0)?)?.flatten_all()?.exp()
}

fn mean_square(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64
}
