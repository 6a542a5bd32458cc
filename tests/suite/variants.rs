//! Every attention variant that has a name: against its formula in plain candle ops, and from a spec to a model that is read
//! back.

use crate::common::{assert_close, normal, preset, train, Scratch};
use crate::dense::Dense;
use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::ops::{sigmoid, softmax};
use difftool::train::{LogLine, Progress, TrainOutcome, TrainSpec};
use engine::attention::*;
use engine::kernels::RopeStyle;
use engine::model::{Attention, Checkpoint, DecoderSizes, ModelConfig, RotaryPositions, Transformer, Weights};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const T: usize = 37;
const LAYER: usize = 2;

/// A model without positions, with six output heads; three of them share keys and values if they are `grouped`.
fn config(variant: Variant, grouped: bool) -> ModelConfig {
    let groups = if grouped { 2 } else { 6 };
    let sizes = DecoderSizes {
        vocab: 9,
        width: 20,
        layers: 4,
        ffn: 8,
        heads: 6,
        kv_heads: if variant.values == ValueWidth::Doubled { 2 * groups } else { groups },
        head_dim: 8,
        max_ctx_tok: 64,
    };
    let mut config = ModelConfig::llama(variant, sizes, 10_000.0, RopeStyle::Half);
    config.layers.iter_mut().for_each(|layer| layer.rotary = None);
    config.check().unwrap();
    config
}

/// Random tensors of a layer's attention by their names below `self_attn`, far from where they start.
fn random_tensors(config: &ModelConfig) -> BTreeMap<String, Tensor> {
    let prefix = format!("model.layers.{LAYER}.self_attn.");
    let shapes = config.tensors();
    let own = shapes.iter().filter_map(|(name, shape)| Some((name.strip_prefix(&prefix)?, shape)));
    own.enumerate().map(|(i, (name, shape))| (name.to_owned(), (normal(shape, i as u64) * 0.4).unwrap())).collect()
}

/// What the layer makes of x (B, T, E), in whole maps: a formula per choice.
fn formula(config: &ModelConfig, of: &BTreeMap<String, Tensor>, x: &Tensor) -> Result<Tensor> {
    let (variant, wiring, d) = (&config.variant, config.wiring(), config.head_dim);
    let (b, t, _) = x.dims3()?;
    let project = |name: &str| x.broadcast_matmul(&of[name].t()?);
    let head = |x: &Tensor, head: usize| x.narrow(2, head * d, d)?.contiguous(); // B,T,d
    let (q, k, v) = (project("q_proj.weight")?, project("k_proj.weight")?, project("v_proj.weight")?);
    let future: Vec<f32> = (0..t * t).map(|i| if i % t > i / t { -1e30 } else { 0.0 }).collect();
    let future = Tensor::from_vec(future, (1, t, t), &Device::Cpu)?;
    let lambda_init = match variant.lambda_init {
        LambdaInit::Depth => 0.8 - 0.6 * (-0.3 * LAYER as f64).exp(),
        LambdaInit::DepthBefore => 0.8 - 0.6 * (0.3 - 0.3 * LAYER as f64).exp(),
        LambdaInit::Constant(number) => number,
    };
    let map = |h: usize, j: usize| {
        let logits = head(&q, wiring.query[j][h])?.matmul(&head(&k, wiring.key[j][h])?.t()?)?; // B,T,T
        let logits = (logits / (d as f64).sqrt())?.broadcast_add(&future)?;
        let sink = match variant.sink {
            Sink::None => return softmax(&logits, 2),
            Sink::Zero => Tensor::zeros((b, t, 1), DType::F32, &Device::Cpu)?,
            Sink::Learned => {
                of["sinks"].narrow(0, wiring.query[j][h], 1)?.reshape((1, 1, 1))?.broadcast_as((b, t, 1))?
            }
        };
        softmax(&Tensor::cat(&[logits, sink.contiguous()?], 2)?, 2)?.narrow(2, 0, t)
    };
    let dot = |a: &str, b: &str| (&of[a] * &of[b])?.sum_all()?.exp();
    let lambda = |h: usize| {
        let number = match variant.lambda {
            Lambda::None => unreachable!("two maps have a lambda"),
            Lambda::VectorsAndInit => {
                ((dot("lambda_q1", "lambda_k1")? - dot("lambda_q2", "lambda_k2")?)? + of["lambda_init"].get(0)?)?
            }
            Lambda::Vectors => ((dot("lambda_q1", "lambda_k1")? - dot("lambda_q2", "lambda_k2")?)? + lambda_init)?,
            Lambda::Fixed => Tensor::new(lambda_init as f32, &Device::Cpu)?,
            Lambda::Layer => of["lambda"].get(0)?,
            Lambda::Head => of["lambda"].get(h)?,
            Lambda::Token => return project("lambda_proj.weight")?.narrow(2, h, 1),
            Lambda::TokenSigmoid => return sigmoid(&project("lambda_proj.weight")?.narrow(2, h, 1)?.contiguous()?),
        };
        number.reshape((1, 1, 1))
    };
    let unit = |x: &Tensor, eps: f64| x.broadcast_div(&(x.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?);
    let mut heads = Vec::new();
    for h in 0..wiring.heads() {
        let slices = wiring.value[h].iter().map(|&slice| head(&v, slice)).collect::<Result<Vec<_>>>()?;
        let mut mixed = map(h, 0)?;
        if variant.maps == 2 {
            mixed = (mixed - map(h, 1)?.broadcast_mul(&lambda(h)?)?)?;
        }
        let out = mixed.contiguous()?.matmul(&Tensor::cat(&slices, 2)?)?; // B,T,value width
        heads.push(match variant.norm {
            HeadNorm::None | HeadNorm::AllHeads => out,
            HeadNorm::Rms => unit(&out, 1e-5)?,
            HeadNorm::RmsGain => unit(&out, 1e-5)?.broadcast_mul(&of["subln.weight"])?,
        });
    }
    let mut out = Tensor::cat(&heads, 2)?; // B,T,H*value width
    if variant.norm == HeadNorm::AllHeads {
        let rms = out.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
        out = out.broadcast_div(&(rms + 1e-6)?)?.broadcast_mul(&of["norm.weight"])?;
    }
    if variant.factor == Factor::OneMinusLambdaInit {
        out = (out * (1.0 - lambda_init))?;
    }
    match variant.gate {
        Gate::None => {}
        Gate::Channel => out = (out * sigmoid(&project("gate.weight")?)?)?,
        Gate::Head => {
            let gate = sigmoid(&project("gate.weight")?)?.unsqueeze(3)?; // B,T,H,1
            out = out.reshape((b, t, wiring.heads(), ()))?.broadcast_mul(&gate)?.flatten_from(2)?;
        }
    }
    out.broadcast_matmul(&of["o_proj.weight"].t()?)
}

/// The presets, and combinations that have no name.
fn described() -> Vec<(String, Variant)> {
    let mut list: Vec<_> = Variant::presets().iter().map(|(name, variant)| (name.clone(), *variant)).collect();
    let mut own = |name: &str, variant| list.push((name.to_owned(), variant));
    let (v1, v2, grouped) = (preset("diff"), preset("diff-v2"), preset("diff-grouped"));
    own("V1, lambda per token", Variant { lambda: Lambda::TokenSigmoid, ..v1 });
    own("V1, lambda per token, no norm", Variant { lambda: Lambda::Token, norm: HeadNorm::None, ..v1 });
    let everything = Variant { sink: Sink::Learned, gate: Gate::Channel, norm: HeadNorm::RmsGain, ..v1 };
    own("V1 with everything", Variant { lambda: Lambda::Head, ..everything });
    own("V2 with everything", Variant { sink: Sink::Zero, gate: Gate::Head, norm: HeadNorm::AllHeads, ..v2 });
    own("A1 - A2", Variant { lambda: Lambda::Fixed, lambda_init: LambdaInit::Constant(1.0), ..v2 });
    own("grouped, shared keys", Variant { keys: Keys::Shared, values: ValueWidth::Doubled, ..grouped });
    own("grouped as in Motif 2", Variant { signal_heads: 3, ..preset("diff-microsoft") });
    let scalar = preset("diff-scalar");
    own(
        "axolotl's",
        Variant { lambda: Lambda::VectorsAndInit, lambda_init: LambdaInit::Depth, norm: HeadNorm::RmsGain, ..scalar },
    );
    list
}

#[test]
fn every_variant_agrees_with_its_formula_on_every_path() {
    for (name, variant) in described() {
        for grouped in [false, true] {
            let (config, label) = (config(variant, grouped), format!("{name}, grouped: {grouped}"));
            let of = random_tensors(&config);
            let named = of.iter().map(|(name, tensor)| (format!("a.{name}"), tensor.clone()));
            let mut weights = Weights::new(named, "random");
            let attention = Attention::load(&config, LAYER, "a", &mut weights).unwrap();
            assert!(weights.remaining().is_empty(), "{label}: {:?}", weights.remaining());
            let x = normal(&[1, T, config.width], 77);
            let want = formula(&config, &of, &x).unwrap();
            let run = |x: &Tensor, layer: usize, attend: &mut dyn Attend| {
                attention.forward(x.clone(), layer, &RotaryPositions { tables: &[], start: 0 }, attend).unwrap()
            };
            assert_close(&format!("{label}, fused"), &run(&x, LAYER, &mut Fused), &want, 1e-4);
            assert_close(&format!("{label}, dense"), &run(&x, LAYER, &mut Dense::default()), &want, 1e-4);
            assert_close(&format!("{label}, streamed"), &run(&x, LAYER, &mut Stream::new(&[])), &want, 1e-4);
            let rows = |from: usize, n: usize| x.narrow(1, from, n).unwrap().contiguous().unwrap();
            let mut cached = Cached::new(2);
            let mut got = vec![run(&rows(0, 5), 0, &mut cached)];
            got.extend((5..T).map(|at| run(&rows(at, 1), 0, &mut cached)));
            assert_close(&format!("{label}, cached"), &Tensor::cat(&got, 1).unwrap(), &want, 1e-4);
        }
    }
}

/// A spec of one variant, whose attention is still to be said.
const SPEC: &str = r#"
question = "Can every variant be trained?"
seed = 1
model = { width = 16, layers = 2, heads = 8, head_dim = 4, ffn = 16, rope_theta = 10000.0, max_ctx_tok = 64 }
loss = { first_digit = 2.0, other_digits = 2.0, new_digits = 0.5 }
watch = { log_every_tok = 3200, eval_every_tok = 1_000_000, eval_samples = 0, save_every_tok = 1_000_000 }

[optimizer]
rate = 1e-2
final_fraction = 0.1
warmup_tok = 640
beta1 = 0.9
beta2 = 0.95
weight_decay = 0.1
clip = 1.0

[[stage]]
ctx_tok = 64
step_tok = 64
tokens = 12_800
data = { facts = [1, 3], restate = 2.0, prose = 0.0, wordings = [1.0], exam = 0.0, synthetic = 0.5 }

[[variant]]
name = "it"
attention = "#;

struct Silent;

impl Progress for Silent {
    fn step(&self, _run: usize, _tokens: usize, _message: &str) {}
}

fn logits(model: &Transformer, attend: &mut dyn Attend) -> Tensor {
    let ids: Vec<u32> = (0..50).map(|i| (i * 37 + 3) % 1024).collect();
    model.logits(&model.hidden(&[ids], attend).unwrap()).unwrap()
}

/// The parameters of the last checkpoint as a folder holds them, in half precision.
fn trained(config: &ModelConfig, dir: &Path) -> Transformer {
    let mut state = Weights::read(&dir.join("checkpoint/state.safetensors")).unwrap();
    let half = |tensor: Tensor| tensor.to_dtype(DType::F16).unwrap().to_dtype(DType::F32).unwrap();
    let tensors = config.tensors().into_iter().map(|(name, _)| (name.clone(), half(state.take(&name).unwrap())));
    Transformer::load(config, Weights::new(tensors.collect::<Vec<_>>(), "checkpoint")).unwrap()
}

#[test]
fn every_preset_trains_for_200_steps_and_is_the_same_model_when_it_is_read_back() {
    let presets: Vec<_> = Variant::presets().iter().collect();
    presets.par_iter().for_each(|(name, variant)| {
        let spec = TrainSpec::parse(&format!("{SPEC}\"{name}\""), "spec.toml").unwrap();
        let out = Scratch::new();
        let outcome = train(&spec, out.folder(), false, &AtomicBool::new(false), &Silent).unwrap();
        assert_eq!(outcome, TrainOutcome::Finished, "{name}");
        let dir = out.path("it");
        let log = csv::Reader::from_path(dir.join("log.csv")).unwrap().into_deserialize::<LogLine>();
        let losses: Vec<f64> = log.map(|line| line.unwrap().loss_nats).collect();
        assert!(losses[3] < 0.8 * losses[0], "{name}: {losses:?}");

        let config = ModelConfig::read(&dir.join("config.json")).unwrap();
        assert!(config.variant.computes_the_same_as(variant), "{name}: {:?}", config.variant);
        let saved = Transformer::load(&config, Checkpoint::open(&dir).unwrap().load(&config).unwrap()).unwrap();
        let want = logits(&trained(&spec.configs_of(1024).unwrap()[0], &dir), &mut Fused);
        assert_close(&format!("{name}, read back"), &logits(&saved, &mut Fused), &want, 0.0);
        assert_close(&format!("{name}, dense"), &logits(&saved, &mut Dense::default()), &want, 1e-3);
        assert_close(&format!("{name}, streamed"), &logits(&saved, &mut Stream::new(&[])), &want, 1e-3);
    });
}
