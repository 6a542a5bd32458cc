//! The trained model in candle-nn's differentiable ops: all heads at once, whole maps, a causal mask.

use anyhow::{bail, ensure, Result};
use candle_core::{Device, Tensor, Var, D};
use candle_nn::ops::{log_softmax, rms_norm_slow, silu, softmax};
use candle_nn::rotary_emb::rope_slow;
use candle_nn::{Embedding, Linear, Module as _};
use difftool::train::{AdamW, Batch, Gradients};
use engine::attention::LambdaInit;
use engine::model::{ModelConfig, Positions};
use std::collections::BTreeMap;

/// The model, with tables for its context.
pub(super) struct Composed<'a> {
    config: &'a ModelConfig,
    vars: &'a BTreeMap<String, Var>,
    /// Cosine and sine of every position and pair of channels: (T, d/2).
    angles: [Tensor; 2],
    /// 0 where a key is visible, otherwise -inf: (T, T).
    mask: Tensor,
}

impl<'a> Composed<'a> {
    /// A model for batches of rows of `ctx_tok` tokens.
    pub(super) fn new(config: &'a ModelConfig, vars: &'a BTreeMap<String, Var>, ctx_tok: usize) -> Result<Self> {
        ensure!(config.kv_heads == config.query_heads(), "the composed model repeats no key heads");
        let pairs = config.head_dim / 2;
        let Positions::Rotary { embeddings, .. } = &config.positions else { bail!("the composed model is rotary") };
        let frequencies = embeddings[0].frequencies(ctx_tok);
        let angle = |t: usize, i: usize| t as f64 * frequencies[i];
        let table = |f: fn(f64) -> f64| {
            let values = (0..ctx_tok * pairs).map(|at| f(angle(at / pairs, at % pairs)) as f32).collect();
            Tensor::from_vec(values, (ctx_tok, pairs), &Device::Cpu)
        };
        let hidden = |at: usize| if at % ctx_tok > at / ctx_tok { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::from_vec((0..ctx_tok * ctx_tok).map(hidden).collect(), (ctx_tok, ctx_tok), &Device::Cpu)?;
        Ok(Self { config, vars, angles: [table(f64::cos)?, table(f64::sin)?], mask })
    }

    /// Loss and gradient norm of a training step.
    pub(super) fn step(&self, optimizer: &mut AdamW, batch: &Batch, rate: f64) -> Result<(f64, f64)> {
        let n = batch.targets.len();
        let targets = Tensor::from_vec(batch.targets.clone(), (n, 1), &Device::Cpu)?;
        let weights = Tensor::from_vec(batch.weights.clone(), n, &Device::Cpu)?;
        let log_probs = log_softmax(&self.logits(&batch.inputs)?, 1)?.gather(&targets, 1)?.squeeze(1)?;
        let loss = ((log_probs * &weights)?.sum_all()?.neg()? / f64::from(weights.sum_all()?.to_scalar::<f32>()?))?;
        let value = f64::from(loss.to_scalar::<f32>()?);
        let mut gradients = Gradients::new();
        optimizer.collect(&loss.backward()?, &mut gradients)?;
        Ok((value, optimizer.update(&gradients, rate)?))
    }

    fn logits(&self, ids: &[Vec<u32>]) -> Result<Tensor> {
        let ids = Tensor::new(ids.to_vec(), &Device::Cpu)?; // B,T
        let embed = self.var("model.embed_tokens");
        let mut x = Embedding::new(embed.clone(), self.config.width).forward(&ids)?; // B,T,E
        for layer in 0..self.config.layers.len() {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            let normed = self.norm(&x, &at("input_layernorm"))?;
            x = (x + self.attention(&normed, layer, &at("self_attn"))?)?;
            let normed = self.norm(&x, &at("post_attention_layernorm"))?;
            let gate = silu(&self.linear(&normed, &at("mlp.gate_proj"))?)?;
            let hidden = (gate * self.linear(&normed, &at("mlp.up_proj"))?)?;
            x = (x + self.linear(&hidden, &at("mlp.down_proj"))?)?;
        }
        let x = self.norm(&x, "model.norm")?.flatten_to(1)?;
        Ok(Linear::new(embed.clone(), None).forward(&x)?) // B*T,W
    }

    fn attention(&self, x: &Tensor, layer: usize, at: &str) -> Result<Tensor> {
        let (b, t, _) = x.dims3()?;
        let c = self.config;
        let split = |name: &str| {
            let y = self.linear(x, &format!("{at}.{name}"))?.reshape((b, t, c.kv_heads, c.head_dim))?;
            Ok::<_, anyhow::Error>(y.transpose(1, 2)?.contiguous()?) // B,heads,T,d
        };
        let [cos, sin] = &self.angles;
        let rotated = |name: &str| Ok::<_, anyhow::Error>(rope_slow(&split(name)?, cos, sin)?);
        let (q, k, v) = (rotated("q_proj")?, rotated("k_proj")?, split("v_proj")?);
        let scaled = (q / (c.head_dim as f64).sqrt())?;
        let maps = softmax(&scaled.matmul(&k.t()?)?.broadcast_add(&self.mask)?, D::Minus1)?; // B,maps,T,T
        let out = match c.variant.maps {
            1 => maps.matmul(&v)?,
            _ => self.difference(&maps, &v, layer, at)?,
        };
        self.linear(&out.transpose(1, 2)?.flatten_from(2)?, &format!("{at}.o_proj"))
    }

    /// DIFF V1, halves: the first half of the maps less lambda times the second, over values twice as wide.
    fn difference(&self, maps: &Tensor, v: &Tensor, layer: usize, at: &str) -> Result<Tensor> {
        let wide = Tensor::cat(&v.chunk(2, 1)?, 3)?.contiguous()?; // B,H,T,2d
        let halves = maps.matmul(&Tensor::cat(&[&wide, &wide], 1)?)?.chunk(2, 1)?;
        let vector = |name: &str| self.vars[&format!("{at}.lambda_{name}")].as_tensor();
        let exp_dot = |q: &str, k: &str| (vector(q) * vector(k))?.sum_all()?.exp();
        let lambda = ((exp_dot("q1", "k1")? - exp_dot("q2", "k2")?)? + LambdaInit::Depth.of(layer))?;
        let mixture = (&halves[0] - halves[1].broadcast_mul(&lambda)?)?;
        let gain = (Tensor::ones(2 * self.config.head_dim, mixture.dtype(), mixture.device())?
            * (1.0 - LambdaInit::Depth.of(layer)))?;
        Ok(rms_norm_slow(&mixture, &gain, self.config.norm_eps as f32)?)
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        Ok(rms_norm_slow(x, self.var(name), self.config.norm_eps as f32)?)
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        Ok(Linear::new(self.var(name).clone(), None).forward(x)?)
    }

    fn var(&self, name: &str) -> &Tensor {
        self.vars[&format!("{name}.weight")].as_tensor()
    }
}
