//! The MLP of a block, or a mixture of experts.

use super::config::{Activation, ExpertChoice, Experts};
use super::linear::Projection;
use super::{ModelConfig, Weights};
use crate::kernels::{gelu, gelu_tanh, numbers, relu, sigmoid, silu, swiglu, wide};
use anyhow::Result;
use candle_core::{Tensor, D};

/// The feed-forward part of a block.
#[derive(Clone)]
pub(super) enum FeedForward {
    Dense(Mlp),
    Mixture(Box<ExpertMixture>),
}

/// Two projections with an activation function between them, or three with a gate.
#[derive(Clone)]
pub(super) struct Mlp {
    gate: Option<Projection>,
    up: Projection,
    down: Projection,
    activation: Activation,
    /// Weight (3) and bias (1) of [`Activation::PolyNorm`].
    polynomial: Option<(Tensor, Tensor)>,
}

/// A router and its experts.
#[derive(Clone)]
pub(super) struct ExpertMixture {
    config: Experts,
    /// (experts, E)
    router: Projection,
    /// Added to the scores for the choice alone: (experts).
    choice_bias: Option<Vec<f32>>,
    experts: Vec<Mlp>,
    /// The shared expert, and its gate (1, E) if it has one.
    shared: Option<(Mlp, Option<Projection>)>,
}

impl FeedForward {
    /// Takes the tensors of `layer` under `prefix`.
    pub(super) fn load(config: &ModelConfig, layer: usize, prefix: &str, weights: &mut Weights) -> Result<Self> {
        match config.experts.filter(|_| config.layers[layer].experts) {
            None => Ok(Self::Dense(Mlp::load(config, prefix, weights)?)),
            Some(experts) => Ok(Self::Mixture(Box::new(ExpertMixture::load(config, experts, prefix, weights)?))),
        }
    }

    /// (B, T, E) -> (B, T, E).
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.forward(x),
            Self::Mixture(mixture) => mixture.forward(x),
        }
    }
}

impl Mlp {
    fn load(config: &ModelConfig, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map(|name| format!("{prefix}.{name}"));
        let [w, b] = ["weight", "bias"].map(|kind| weights.find(&format!("{prefix}.act_fn.{kind}")));
        Ok(Self {
            gate: Projection::find(&gate, weights)?,
            up: Projection::load(&up, weights)?,
            down: Projection::load(&down, weights)?.scaled(config.residual_scale)?,
            activation: config.activation,
            polynomial: w?.zip(b?),
        })
    }

    /// (.., E) -> (.., E).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let up = self.up.forward(x)?; // ..,F
        let hidden = match (&self.gate, self.activation) {
            (None, _) => self.activate(&up)?,
            (Some(gate), Activation::Silu) => swiglu(&gate.forward(x)?, &up)?,
            (Some(gate), Activation::ClampedSwiglu { alpha, limit }) => {
                clamped_swiglu(&gate.forward(x)?, &up, alpha, limit)?
            }
            (Some(gate), _) => (self.activate(&gate.forward(x)?)? * up)?,
        };
        self.down.forward(&hidden)
    }

    /// Applies the activation function: (.., F) -> same shape.
    fn activate(&self, x: &Tensor) -> Result<Tensor> {
        if let Some((weight, bias)) = &self.polynomial {
            return poly_norm(x, weight, bias);
        }
        Ok(match self.activation {
            Activation::Silu => silu(x)?,
            Activation::Gelu => gelu(x)?,
            Activation::GeluTanh => gelu_tanh(x)?,
            Activation::Relu => relu(x)?,
            Activation::PolyNorm => anyhow::bail!("PolyNorm has weights"),
            // Without a gate, u is both.
            Activation::ClampedSwiglu { alpha, limit } => clamped_swiglu(x, x, alpha, limit)?,
        })
    }
}

/// Added to the mean square under the root, as in Motif.
const POLY_NORM_EPS: f64 = 1e-6;

/// w0 n(x^3) + w1 n(x^2) + w2 n(x) + b with n(x) = x / rms(x): (.., F), (3), (1) -> (.., F).
fn poly_norm(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let dtype = x.dtype();
    let x = wide(x)?;
    let squared = x.sqr()?;
    let powers = [(&squared * &x)?, squared, x.clone()]; // ..,F
    let mut sum = x.zeros_like()?.broadcast_add(&bias.to_dtype(x.dtype())?)?;
    for (power, weight) in powers.iter().zip(numbers(weight)?) {
        let rms = (power.sqr()?.mean_keepdim(D::Minus1)? + POLY_NORM_EPS)?.sqrt()?; // ..,1
        sum = (sum + power.broadcast_div(&rms)?.affine(weight.into(), 0.0)?)?;
    }
    Ok(sum.to_dtype(dtype)?)
}

/// g sigmoid(alpha g) (u + 1) of the clamped gate and up projections (gpt-oss).
fn clamped_swiglu(gate: &Tensor, up: &Tensor, alpha: f64, limit: f64) -> Result<Tensor> {
    let dtype = gate.dtype();
    let gate = wide(gate)?.minimum(limit)?;
    let up = wide(up)?.clamp(-limit, limit)?;
    let glu = (&gate * sigmoid(&(&gate * alpha)?)?)?;
    Ok((glu * (up + 1.0)?)?.to_dtype(dtype)?)
}

impl ExpertMixture {
    fn load(config: &ModelConfig, experts: Experts, prefix: &str, weights: &mut Weights) -> Result<Self> {
        let router = Projection::load(&format!("{prefix}.gate"), weights)?;
        let choice_bias = weights.find(&format!("{prefix}.gate.e_score_correction_bias"))?;
        let choice_bias = choice_bias.map(|bias| numbers(&bias)).transpose()?;
        let mut mlps = Vec::with_capacity(experts.count);
        for expert in 0..experts.count {
            mlps.push(Mlp::load(config, &format!("{prefix}.experts.{expert}"), weights)?);
        }
        let mut shared = None;
        if experts.shared.is_some() {
            let gate = Projection::find(&format!("{prefix}.shared_expert_gate"), weights)?;
            shared = Some((Mlp::load(config, &format!("{prefix}.shared_expert"), weights)?, gate));
        }
        Ok(Self { config: experts, router, choice_bias, experts: mlps, shared })
    }

    /// (B, T, E) -> (B, T, E). Each expert is computed only for the tokens that chose it. Outputs are added in the
    /// order of the experts, so that results do not depend on the number of threads.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let flat = x.flatten_to(1)?.contiguous()?; // N,E
        let mut sum = flat.zeros_like()?; // N,E
        for (expert, chosen) in self.experts.iter().zip(self.choose(&flat)?) {
            if chosen.is_empty() {
                continue;
            }
            let n = chosen.len();
            let (rows, weights): (Vec<u32>, Vec<f32>) = chosen.into_iter().unzip();
            let rows = Tensor::from_vec(rows, n, x.device())?;
            let y = expert.forward(&flat.index_select(&rows, 0)?)?; // n,E
            let weights = Tensor::from_vec(weights, (n, 1), x.device())?.to_dtype(x.dtype())?;
            sum = sum.index_add(&rows, &y.broadcast_mul(&weights)?, 0)?;
        }
        if let Some((mlp, gate)) = &self.shared {
            let mut y = mlp.forward(&flat)?; // N,E
            if let Some(gate) = gate {
                y = y.broadcast_mul(&sigmoid(&gate.forward(&flat)?)?)?;
            }
            sum = (sum + y)?;
        }
        Ok(sum.reshape(x.shape())?)
    }

    /// The tokens (N, E) that choose each expert, with the weights of their choices.
    fn choose(&self, x: &Tensor) -> Result<Vec<Vec<(u32, f32)>>> {
        let logits = numbers(&self.router.forward(x)?)?; // N,X
        let mut chosen = vec![Vec::new(); self.config.count];
        for (row, logits) in logits.chunks_exact(self.config.count).enumerate() {
            for (expert, weight) in route(logits, self.choice_bias.as_deref(), self.config) {
                chosen[expert].push((row as u32, weight as f32));
            }
        }
        Ok(chosen)
    }
}

/// The experts of one token, the best first, with their weights: their scores (see [`ExpertChoice`]), normalised over the
/// chosen ones if `normed`, times a factor.
fn route(logits: &[f32], choice_bias: Option<&[f32]>, config: Experts) -> Vec<(usize, f64)> {
    let Experts { per_token, normed, choice, scale, .. } = config;
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scores: Vec<f64> = if choice.sigmoid {
        logits.iter().map(|&x| 1.0 / (1.0 + (-f64::from(x)).exp())).collect()
    } else {
        logits.iter().map(|&x| f64::from(x - largest).exp()).collect()
    };
    let mut by: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
    if let Some(bias) = choice_bias {
        by = scores.iter().zip(bias).map(|(score, &bias)| score + f64::from(bias)).collect();
    }
    let mut order = in_best_groups(&by, choice);
    order.sort_by(|&a, &b| by[b].total_cmp(&by[a])); // stable, so the first of equals wins
    order.truncate(per_token);
    let total: f64 = match (normed, choice.sigmoid) {
        (true, _) => order.iter().map(|&i| scores[i]).sum(),
        (false, true) => 1.0,
        (false, false) => scores.iter().sum(),
    };
    order.into_iter().map(|i| (i, scale * scores[i] / total)).collect()
}

/// The experts of the groups that a token may choose from.
fn in_best_groups(by: &[f64], choice: ExpertChoice) -> Vec<usize> {
    let size = by.len() / choice.groups;
    let mut strengths: Vec<f64> = Vec::with_capacity(choice.groups);
    for group in by.chunks_exact(size) {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        strengths.push(sorted.iter().take(if choice.sigmoid { 2 } else { 1 }).sum());
    }
    let mut groups: Vec<usize> = (0..choice.groups).collect();
    groups.sort_by(|&a, &b| strengths[b].total_cmp(&strengths[a]));
    groups.truncate(choice.groups_per_token);
    groups.sort_unstable();
    groups.into_iter().flat_map(|group| group * size..(group + 1) * size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use stats::Rng;

    const CONFIG: Experts = Experts {
        count: 5,
        per_token: 2,
        ffn: 6,
        normed: true,
        router_bias: false,
        shared: None,
        shared_gate: false,
        choice: ExpertChoice::SOFTMAX,
        scale: 1.0,
    };

    #[test]
    fn a_token_goes_to_the_experts_with_the_largest_logits() {
        let logits = [0.5, 2.0, -1.0, 2.0, 1.0];
        let all: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        let normed = route(&logits, None, CONFIG);
        assert_eq!(normed, [(1, 0.5), (3, 0.5)]);
        let plain = route(&logits, None, Experts { normed: false, per_token: 3, ..CONFIG });
        assert_eq!(plain.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 3, 4]);
        assert!((plain[2].1 - 1f64.exp() / all).abs() < 1e-12);
    }

    #[test]
    fn the_bias_of_the_choice_and_the_groups_decide_who_is_chosen_but_not_the_weights() {
        let logits = [0.5, 0.4, 2.0, -3.0, 0.3, 0.2];
        let choice = ExpertChoice { sigmoid: true, groups: 3, groups_per_token: 2 };
        let config = Experts { count: 6, choice, normed: false, scale: 2.0, ..CONFIG };
        let chosen =
            |bias: &[f32], config| route(&logits, Some(bias), config).into_iter().map(|(i, _)| i).collect::<Vec<_>>();
        // The group with the largest score has the smallest sum of two.
        assert_eq!(chosen(&[0.0; 6], config), [0, 1]);
        let every = ExpertChoice { groups: 1, groups_per_token: 1, ..choice };
        assert_eq!(chosen(&[0.0; 6], Experts { choice: every, ..config }), [2, 0]);
        assert_eq!(chosen(&[0.0, 0.0, 0.0, 0.9, 0.0, 0.5], config), [5, 3]);
        let weight = route(&logits, Some(&[0.0; 6]), config)[0].1;
        assert!((weight - 2.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-12, "{weight}");
        // By the softmax, the largest score of a group counts.
        let softmax = ExpertChoice { sigmoid: false, groups: 3, groups_per_token: 1 };
        let best = route(&logits, None, Experts { choice: softmax, ..config });
        assert_eq!(best.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [2, 3]);
    }

    fn random(shape: &[usize], rng: &mut Rng) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    fn mixture(rng: &mut Rng, width: usize) -> ExpertMixture {
        let mut linear = |out, input| Projection { weight: random(&[out, input], rng), bias: None };
        let router = linear(CONFIG.count, width);
        let mut experts = Vec::new();
        for _ in 0..CONFIG.count {
            experts.push(Mlp {
                gate: Some(linear(CONFIG.ffn, width)),
                up: linear(CONFIG.ffn, width),
                down: linear(width, CONFIG.ffn),
                activation: Activation::ClampedSwiglu { alpha: 1.7, limit: 1.0 },
                polynomial: None,
            });
        }
        ExpertMixture { config: CONFIG, router, choice_bias: None, experts, shared: None }
    }

    #[test]
    fn computing_only_chosen_experts_equals_computing_all() {
        let mut rng = Rng::new(3, "experts");
        for (b, t) in [(1, 1), (2, 9)] {
            let mixture = mixture(&mut rng, 8);
            let x = random(&[b, t, 8], &mut rng);
            let got = mixture.forward(&x).unwrap();
            let logits = mixture.router.forward(&x).unwrap(); // B,T,X
            let mut want = x.zeros_like().unwrap();
            for (i, expert) in mixture.experts.iter().enumerate() {
                let weight =
                    |row: &[f32]| route(row, None, CONFIG).into_iter().find(|(e, _)| *e == i).map_or(0.0, |(_, w)| w);
                let rows = logits.flatten_to(1).unwrap().to_vec2::<f32>().unwrap();
                let weights: Vec<f32> = rows.iter().map(|row| weight(row) as f32).collect();
                let weights = Tensor::from_vec(weights, (b, t, 1), &Device::Cpu).unwrap();
                want = (want + expert.forward(&x).unwrap().broadcast_mul(&weights).unwrap()).unwrap();
            }
            let off = (got - want).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(off < 1e-5, "{off}");
        }
    }
}
