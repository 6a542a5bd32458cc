//! The model that training starts from, and its function in other attention variants.
//!
//! Two maps with the same queries and keys are the same map A, and their mixture is (1 - lambda) A. So a variant of two
//! maps has the function of a standard model if the queries of both maps are that model's, and W_O is divided by 1 -
//! lambda. Where that is a power of two, as for DIFF V2 (lambda = sigmoid(0) = 1/2) or the mean of two maps (lambda = -1), the
//! logits are the same to the last bit.

use super::layers::split;
use super::spec::{ModelSpec, StartSpec, TrainSpec};
use anyhow::{ensure, Context, Result};
use base::bail_usage;
use candle_core::Tensor;
use engine::attention::{Extras, Factor, Fused, Gate, HeadNorm, Keys, Lambda, Sink, ValueWidth, Variant};
use engine::kernels::numbers;
use engine::model::open::{self, LoadOptions, OpenedModel};
use engine::model::{Init, ModelConfig, Positions, Transformer, Weights};
use serde_json::{json, Value};
use stats::Rng;
use std::collections::{BTreeMap, BTreeSet};
use text::Tokenizer;

const QUERIES: &str = "self_attn.q_proj";
const KEYS: &str = "self_attn.k_proj";
const OUTPUT: &str = "self_attn.o_proj.weight";
/// Tensors that are 0 at the start, so that lambda and gates are the same for every token.
const ZEROS: [&str; 2] = ["self_attn.lambda_proj.weight", "self_attn.gate.weight"];

/// Size of 1 - lambda below which W_O is not divided by it.
const LEAST_SHARE: f64 = 1e-3;

/// Largest difference of logits at step 0 that rounding explains, over the largest logit.
const ROUNDING: f64 = 1e-3;

/// A model whose files are open. Its weights are read for each run that begins.
pub(super) struct StartModel {
    spec: StartSpec,
    opened: OpenedModel,
    sha256: String,
}

/// The weights that a run begins with.
pub(super) struct Forked {
    pub(super) weights: Weights,
    /// Largest difference of logits between the start model and the variant before noise.
    pub(super) difference: f64,
}

impl StartModel {
    /// Opens the start model of a spec; `None` if training starts from random weights.
    ///
    /// # Errors
    /// Those of [`open::open`].
    pub(super) fn of(spec: &TrainSpec) -> Result<Option<Self>> {
        let Some(start) = &spec.start else { return Ok(None) };
        let opened = open::open(&start.from, LoadOptions::default()).context("start.from")?;
        let sha256 = opened.checkpoint.sha256()?;
        Ok(Some(Self { spec: start.clone(), opened, sha256 }))
    }

    /// Its tokenizer.
    ///
    /// # Errors
    /// If its files have none that can be read.
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        self.opened.tokenizer().context("start.from")
    }

    /// The configurations of the variants of a spec: its own with other attention.
    ///
    /// # Errors
    /// A usage error if `[model]` or a stage does not fit it, its architecture cannot be trained, or a variant cannot
    /// hold its function; the error says why.
    pub(super) fn configs(&self, spec: &TrainSpec) -> Result<Vec<ModelConfig>> {
        let own = &self.opened.config;
        if let Some(model) = &spec.model {
            check_agrees(model, own)?;
        }
        if let Some(stage) = spec.stages.iter().find(|stage| stage.ctx_tok > own.max_ctx_tok) {
            let most = own.max_ctx_tok;
            bail_usage!("stage: ctx_tok {} exceeds the {most} tokens of {}", stage.ctx_tok, self.spec.from);
        }
        let mut configs = Vec::new();
        for variant in &spec.variants {
            let attention = variant.attention.resolve()?;
            let name = &variant.name;
            if let Some(why) = cannot_hold(&own.variant, &attention) {
                bail_usage!("variant {name}: it cannot hold the function of {}: {why}", self.spec.from);
            }
            match own.with_variant(attention) {
                Ok(config) => configs.push(config),
                Err(error) => bail_usage!("start.from {}: {error:#}", self.spec.from),
            }
        }
        Ok(configs)
    }

    /// The weights of a variant with the function of this model, and then noise, drawn from `seed`. The function is
    /// compared on the tokens `ids`.
    ///
    /// # Errors
    /// If a tensor of either model has no counterpart, or the functions differ by more than rounding.
    pub(super) fn fork(&self, config: &ModelConfig, seed: u64, ids: &[u32]) -> Result<Forked> {
        let own = &self.opened.config;
        let given = self.opened.checkpoint.load(own)?;
        let mut tensors = moved(own, given.clone(), config, seed)?;
        let forked = Weights::new(tensors.clone(), "the variant");
        let difference = largest_difference([(own, given), (config, forked)], ids)?;
        if self.spec.noise > 0.0 {
            add_noise(config, &mut tensors, self.spec.noise, seed)?;
        }
        Ok(Forked { weights: Weights::new(tensors, "the variant"), difference })
    }

    /// What a saved `config.json` says of a run that began with this model.
    pub(super) fn to_json(&self, difference: f64) -> Value {
        let StartSpec { from, noise } = &self.spec;
        json!({"start": {
            "from": from, "weights_sha256": self.sha256, "noise": noise, "largest_logit_difference": difference,
        }})
    }

    /// Token that begins a text and those that end one, for `config.json`.
    pub(super) fn ends_json(&self) -> Result<[Value; 2]> {
        let ends = match self.opened.eos_ids() {
            [] => Value::Null,
            [id] => json!(id),
            ids => json!(ids),
        };
        Ok([json!(self.tokenizer()?.text_bos.id), ends])
    }

    /// What is said of a run of a variant that begins.
    pub(super) fn said(&self, variant: &Variant, difference: f64) -> String {
        let StartSpec { from, noise } = &self.spec;
        let noise = match variant.maps {
            2 if *noise > 0.0 => format!(", before noise of {} %", 100.0 * noise),
            // With a weight of one sign the gradients of both maps have one direction.
            2 if variant.lambda == Lambda::Fixed => "; its maps are alike and may stay so: set start.noise".to_owned(),
            _ => String::new(),
        };
        let size = if difference == 0.0 { "0".to_owned() } else { format!("{difference:.1e}") };
        format!("starts as {from}: logits at step 0 differ by at most {size}{noise}")
    }
}

/// Checks that `[model]` says what the start model is.
fn check_agrees(said: &ModelSpec, own: &ModelConfig) -> Result<()> {
    let theta = match &own.positions {
        Positions::Rotary { embeddings, .. } => embeddings.first().map(|rotary| rotary.theta),
        Positions::Learned { .. } | Positions::Biases => None,
    };
    for (key, said, own) in [
        ("width", said.width, own.width),
        ("layers", said.layers, own.layers.len()),
        ("heads", said.heads, own.heads),
        ("kv_heads", said.kv_heads.unwrap_or(said.heads), own.kv_heads),
        ("head_dim", said.head_dim, own.head_dim),
        ("ffn", said.ffn, own.ffn),
        ("max_ctx_tok", said.max_ctx_tok, own.max_ctx_tok),
    ] {
        if said != own {
            bail_usage!("model: {key} is {said}, but {own} in start.from; leave [model] out");
        }
    }
    if theta.is_some_and(|theta| theta != said.rope_theta) {
        bail_usage!("model: rope_theta is {}, but another one in start.from; leave [model] out", said.rope_theta);
    }
    Ok(())
}

/// Why a variant cannot hold the function of a start model of another one; `None` if it can.
fn cannot_hold(own: &Variant, variant: &Variant) -> Option<&'static str> {
    if variant.computes_the_same_as(own) {
        return None;
    }
    let standard = Variant::preset("transformer").expect("it is in presets.toml");
    let reasons = [
        (!own.computes_the_same_as(&standard), "only a standard model can become another variant than it is"),
        (variant.norm != HeadNorm::None, "a norm of the outputs of heads (norm) changes their sizes"),
        (variant.values == ValueWidth::Doubled, "doubled values join two heads, whose maps differ, into one"),
        (variant.signal_heads > 1, "several signal heads share one second map, and their first maps differ"),
        (variant.keys == Keys::Next, "the second map reads other keys than the first (keys)"),
        (variant.sink != Sink::None, "a sink takes a part of each row (sink)"),
    ];
    reasons.into_iter().find_map(|(is_so, why)| is_so.then_some(why))
}

/// The tensors of a variant with the function of the start model `own`. New ones are as at the start of any training with
/// this seed, but for projections of lambda and of gates, which are 0.
///
/// # Errors
/// Names a tensor that one of the models does not have, or that does not fit.
fn moved(own: &ModelConfig, mut given: Weights, config: &ModelConfig, seed: u64) -> Result<BTreeMap<String, Tensor>> {
    let same = config.variant.computes_the_same_as(&own.variant);
    let had: BTreeSet<String> = own.tensors().into_iter().map(|(name, _)| name).collect();
    let new = Weights::init_some(config, seed, &Init::default(), |name| !had.contains(name))?;
    let mut tensors = BTreeMap::new();
    for (name, x) in new.iter() {
        let x = if ZEROS.contains(&split(name).1) { x.zeros_like()? } else { x.clone() };
        tensors.insert(name.clone(), x);
    }
    let (of_queries, of_keys) = heads_moved(own, config)?;
    for (name, shape) in config.tensors() {
        if tensors.contains_key(&name) {
            continue;
        }
        let x = given.take(&name)?;
        let (layer, part) = split(&name);
        let x = match (layer, part) {
            _ if same => x,
            (Some(_), part) if part.starts_with(QUERIES) => heads_of(&x, &of_queries, own.head_dim)?,
            (Some(_), part) if part.starts_with(KEYS) => heads_of(&x, &of_keys, own.head_dim)?,
            (Some(layer), OUTPUT) => (x * (1.0 / share(config, layer, &tensors)?))?,
            _ => x,
        };
        ensure!(x.dims() == shape, "{name} has shape {:?} in the start model, expected {shape:?}", x.dims());
        tensors.insert(name, x);
    }
    let left = given.remaining();
    ensure!(left.is_empty(), "{} of the start model is in no tensor of the variant", left.join(", "));
    Ok(tensors)
}

/// For each query head and each key head of a variant, the head of the start model that it is.
fn heads_moved(own: &ModelConfig, config: &ModelConfig) -> Result<(Vec<usize>, Vec<usize>)> {
    let from = own.wiring();
    let to = config.wiring();
    let mut queries = vec![None; config.query_heads()];
    let mut keys = vec![None; config.key_heads()];
    for j in 0..to.maps() {
        for h in 0..to.heads() {
            for (places, place, head) in
                [(&mut queries, to.query[j][h], from.query[0][h]), (&mut keys, to.key[j][h], from.key[0][h])]
            {
                let before = places[place].replace(head);
                ensure!(before.is_none_or(|before| before == head), "head {place} of the variant would be two heads");
            }
        }
    }
    let [queries, keys] = [queries, keys].map(|heads| heads.into_iter().collect::<Option<Vec<usize>>>());
    queries.zip(keys).context("a head of the variant is read by no map")
}

/// Rows of these heads: (heads of the start model d, ..) -> (heads of the variant d, ..).
fn heads_of(x: &Tensor, heads: &[usize], d: usize) -> Result<Tensor> {
    let parts = heads.iter().map(|head| x.narrow(0, head * d, d)).collect::<candle_core::Result<Vec<_>>>()?; // d,..
    Ok(Tensor::cat(&parts, 0)?) // heads d,..
}

/// What the heads of a layer write at the start over what those of the start model do: 1 - lambda times factor and gate.
fn share(config: &ModelConfig, layer: usize, tensors: &BTreeMap<String, Tensor>) -> Result<f64> {
    let variant = &config.variant;
    let lambda = match variant.lambda {
        Lambda::None | Lambda::Token => 0.0,
        Lambda::TokenSigmoid => 0.5,
        _ => {
            let find = |name: &str| tensors.get(&format!("model.layers.{layer}.self_attn.{name}")).cloned();
            let lambda = Extras::load_lambda(variant, layer, |name| find(name).context("lambda has no such tensor"))?;
            // All heads of a layer begin with the same lambda.
            numbers(&lambda.context("lambda is no number")?)?.first().copied().map_or(0.0, f64::from)
        }
    };
    let factor = match variant.factor {
        Factor::One => 1.0,
        Factor::OneMinusLambdaInit => 1.0 - variant.lambda_init.of(layer),
    };
    let gate = if variant.gate == Gate::None { 1.0 } else { 0.5 };
    let share = (1.0 - lambda) * factor * gate;
    ensure!(
        share.abs() >= LEAST_SHARE,
        "layer {layer}: its second map takes all of the first (1 - lambda is {:.1e}), and W_O cannot make up for it",
        1.0 - lambda
    );
    Ok(share)
}

/// Adds to each row of the queries of second maps a random vector of `noise` times its length.
fn add_noise(config: &ModelConfig, tensors: &mut BTreeMap<String, Tensor>, noise: f64, seed: u64) -> Result<()> {
    let wiring = config.wiring();
    let Some(second) = wiring.query.get(1) else { return Ok(()) };
    for (name, x) in tensors.iter_mut().filter(|(name, _)| split(name).1 == format!("{QUERIES}.weight")) {
        let (rows, width) = x.dims2()?;
        let mut rng = Rng::new(seed, &format!("start noise {name}"));
        let mut values = numbers(x)?;
        for row in (0..rows).filter(|row| second.contains(&(row / config.head_dim))) {
            let row = &mut values[row * width..][..width];
            let direction: Vec<f64> = (0..width).map(|_| rng.normal()).collect();
            let length = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let scale = noise * length / direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().zip(direction).for_each(|(x, direction)| *x += (scale * direction) as f32);
        }
        *x = Tensor::from_vec(values, (rows, width), x.device())?;
    }
    Ok(())
}

/// The largest difference of logits of two models in a text.
///
/// # Errors
/// If it is larger than rounding explains.
fn largest_difference(models: [(&ModelConfig, Weights); 2], ids: &[u32]) -> Result<f64> {
    let mut logits = Vec::new();
    for (config, mut weights) in models {
        let model = Transformer::build(config, &mut weights)?;
        logits.push(numbers(&model.logits(&model.hidden(&[ids.to_vec()], &mut Fused)?)?)?);
        // 1,T,W
    }
    let largest = logits[0].iter().fold(0.0_f64, |largest, &x| largest.max(f64::from(x).abs()));
    let pairs = logits[0].iter().zip(&logits[1]);
    let difference = pairs.fold(0.0_f64, |most, (&a, &b)| most.max((f64::from(a) - f64::from(b)).abs()));
    let is_rounding = difference <= ROUNDING * largest && logits.iter().flatten().all(|x| x.is_finite());
    ensure!(is_rounding, "the variant has another function than its start model: logits differ by {difference:.1e}");
    Ok(difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::attention::VariantName;
    use engine::kernels::RopeStyle;
    use engine::model::DecoderSizes;

    /// The shape of SmolLM2, with an odd number of heads in groups, but tiny.
    fn own() -> ModelConfig {
        let sizes = DecoderSizes {
            vocab: 60,
            width: 36,
            layers: 2,
            ffn: 48,
            heads: 9,
            kv_heads: 3,
            head_dim: 8,
            max_ctx_tok: 64,
        };
        ModelConfig::llama(Variant::preset("transformer").unwrap(), sizes, 10_000.0, RopeStyle::Half)
    }

    fn variant(table: &str) -> Variant {
        VariantName::Changed(table.parse().unwrap()).resolve().unwrap()
    }

    /// Weights larger than at the start of a training, so that maps are no means.
    fn weights(config: &ModelConfig) -> Weights {
        let init = Weights::init(config, 1).unwrap();
        Weights::new(init.iter().map(|(name, x)| (name.clone(), (x * 4.0).unwrap())), "a test")
    }

    fn ids() -> Vec<u32> {
        (0..50).map(|i| i * 7 % 60).collect()
    }

    fn difference(own: &ModelConfig, attention: Variant) -> Result<f64> {
        let config = own.with_variant(attention)?;
        let given = weights(own);
        let forked = Weights::new(moved(own, given.clone(), &config, 3)?, "a test");
        largest_difference([(own, given), (&config, forked)], &ids())
    }

    #[test]
    fn a_variant_that_can_hold_a_model_has_its_logits_to_the_last_bit() {
        let normed = own().with_qk_norm();
        for own in [own(), normed] {
            for table in [
                "preset = \"transformer\"",
                "preset = \"diff-v2\"",
                "preset = \"diff-v2\"\nlambda = \"fixed\"\nlambda_init = -1.0",
                "preset = \"diff-v2-no-sigmoid\"",
                "preset = \"gated\"",
                "preset = \"gated-head\"",
                "preset = \"diff-scalar\"\nnorm = \"none\"", // each map with keys of its own
                "preset = \"diff-v2\"\npairing = \"halves\"\nlambda = \"head\"\nlambda_init = 0.5",
                "preset = \"diff-v2\"\ngate = true",
            ] {
                assert_eq!(difference(&own, variant(table)).unwrap(), 0.0, "{table}");
            }
        }
    }

    #[test]
    fn where_one_less_lambda_is_no_power_of_two_logits_agree_but_for_rounding() {
        let lambda = variant("preset = \"diff-v2\"\nlambda = \"vectors\"\nfactor = \"one-minus-lambda-init\"");
        let rounding = difference(&own(), lambda).unwrap();
        assert!(rounding > 0.0 && rounding < 1e-4, "{rounding}");
    }

    #[test]
    fn a_variant_that_is_the_start_models_own_is_a_copy() {
        for preset in ["diff", "sink", "diff-v2"] {
            let preset = Variant::preset(preset).unwrap();
            let sizes = DecoderSizes {
                vocab: 60,
                width: 32,
                layers: 2,
                ffn: 48,
                heads: 4,
                kv_heads: 8 / if preset.values == ValueWidth::Doubled { 1 } else { 2 },
                head_dim: 8,
                max_ctx_tok: 64,
            };
            let own = ModelConfig::llama(preset, sizes, 10_000.0, RopeStyle::Half);
            assert_eq!(difference(&own, preset).unwrap(), 0.0);
        }
    }

    #[test]
    fn what_a_variant_cannot_hold_is_said() {
        let standard = Variant::preset("transformer").unwrap();
        for (own, table, why) in [
            (standard, "preset = \"diff\"", "norm"),
            (standard, "preset = \"transformer-norm\"", "norm"),
            (standard, "preset = \"diff-no-norm\"", "doubled values"),
            (standard, "preset = \"diff-v2-grouped\"", "signal heads"),
            (standard, "preset = \"diff-v2-across\"", "keys"),
            (standard, "preset = \"sink\"", "sink"),
            (Variant::preset("diff-v2").unwrap(), "preset = \"transformer\"", "only a standard model"),
        ] {
            let said = cannot_hold(&own, &variant(table)).unwrap_or_else(|| panic!("{table} is not refused"));
            assert!(said.contains(why), "{table}: {said}");
        }
        let all = variant("preset = \"diff-v2\"\nlambda = \"fixed\"\nlambda_init = 1.0");
        assert!(difference(&own(), all).unwrap_err().to_string().contains("takes all of the first"));
    }

    #[test]
    fn a_tensor_without_its_counterpart_is_named() {
        let own = own();
        let config = own.with_variant(Variant::preset("diff-v2").unwrap()).unwrap();
        let lost = "model.layers.1.self_attn.q_proj.weight";
        let all = weights(&own);
        let fewer = all.iter().filter(|(name, _)| *name != lost).map(|(name, x)| (name.clone(), x.clone()));
        let error = moved(&own, Weights::new(fewer, "a test"), &config, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("tensor {lost} is missing")), "{error}");
        let mut more: Vec<(String, Tensor)> = weights(&own).iter().map(|(n, x)| (n.clone(), x.clone())).collect();
        more.push(("model.layers.1.self_attn.sinks".into(), more[0].1.clone()));
        let error = moved(&own, Weights::new(more, "a test"), &config, 1).unwrap_err().to_string();
        assert!(error.contains("layers.1.self_attn.sinks of the start model is in no tensor"), "{error}");
    }

    #[test]
    fn noise_has_its_share_of_each_row_of_second_queries_and_leaves_the_first() {
        let own = own();
        let config = own.with_variant(Variant::preset("diff-v2").unwrap()).unwrap();
        let before = moved(&own, weights(&own), &config, 1).unwrap();
        let noisy = |seed: u64| {
            let mut tensors = before.clone();
            add_noise(&config, &mut tensors, 0.02, seed).unwrap();
            tensors
        };
        let after = noisy(5);
        for (name, x) in &before {
            let values = |x: &Tensor| numbers(x).unwrap();
            let (was, is) = (values(x), values(&after[name]));
            if !name.ends_with("q_proj.weight") {
                assert_eq!(was, is, "{name}");
                continue;
            }
            for (row, (was, is)) in was.chunks(36).zip(is.chunks(36)).enumerate() {
                let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                let moved = norm(&mut was.iter().zip(is).map(|(a, b)| a - b)) / norm(&mut was.iter().copied());
                let want = if row / 8 % 2 == 1 { 0.02 } else { 0.0 };
                assert!((moved - want).abs() < 1e-5, "{name}, row {row}: {moved}");
            }
            assert_ne!(is, values(&noisy(6)[name]), "another seed has other noise");
            assert_eq!(is, values(&noisy(5)[name]));
        }
    }
}
