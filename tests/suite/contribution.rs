//! What regions write through heads: against Python `transformers` (tests/fixtures/export_contribution.py), against the
//! residual stream, and under changes that must not matter.

use crate::common::{edit_tensor, fixture, tiny_model, Scratch};
use base::hash::sha256;
use candle_core::{Device, Tensor};
use difftool::measures::{
    mean_over_layers, Allocation, Contributions, LayerOutput, LayerSums, TargetCollector, TargetProbe,
};
use engine::attention::{
    Attend, Factor, HeadNorm, Heads, LambdaInit, ProbeResult, ResidualProbe, RowProbe, Stream, Trace, Variant,
};
use engine::model::{Checkpoint, ModelConfig, NormKind, NormPlace, Transformer, Weights};
use names::{HeadPlace, LayersAndHeads, Region};
use proptest::prelude::*;
use stats::Rng;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use text::TargetRows;

const REGIONS: usize = Region::ALL.len();

fn load(dir: &Path) -> (ModelConfig, Weights) {
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    let weights = Checkpoint::open(dir).unwrap().load(&config).unwrap();
    (config, weights)
}

fn built_in(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crates/engine/assets/models").join(name)
}

/// The residual stream before the first layer and after the last.
#[derive(Default)]
struct Ends {
    first: Vec<f32>,
    last: Vec<f32>,
}

impl ResidualProbe for Ends {
    fn observe(&mut self, site: usize, values: &[f32], _width: usize) {
        if site == 0 {
            self.first = values.to_vec();
        }
        self.last = values.to_vec();
    }
}

/// Everything about one pass.
struct Pass {
    probe_results: Vec<ProbeResult>,
    trace: Trace,
    ends: Ends,
}

fn pass(model: &Transformer, ids: &[u32], target: &TargetRows) -> Pass {
    let targets = std::slice::from_ref(target);
    let (answer, contribution) =
        (TargetProbe::new(targets, Allocation::default()), TargetProbe::new(targets, Contributions::default()));
    let probes: [&dyn RowProbe; 2] = [&answer, &contribution];
    let mut ends = Ends::default();
    let mut stream = Stream::new(&probes)
        .only(&LayersAndHeads::default())
        .tracing(target.rows.clone().collect())
        .with_residual(&mut ends);
    model.hidden(&[ids.to_vec()], &mut stream).unwrap();
    let (probe_results, trace) = (stream.probe_results, stream.trace.unwrap());
    Pass { probe_results, trace, ends }
}

/// Shares of regions in what a head wrote, and how much was cancelled.
pub(super) type OfHead = ([f64; REGIONS], [f64; REGIONS], Box<TargetCollector<Allocation>>);

/// What was written by each head and how much was cancelled, in (layer, head) order.
fn written(model: &Transformer, ids: &[u32], target: &TargetRows) -> Vec<OfHead> {
    written_by_layer(model, ids, target).0
}

/// The same, and what was written by each layer.
pub(super) fn written_by_layer(
    model: &Transformer,
    ids: &[u32],
    target: &TargetRows,
) -> (Vec<OfHead>, Vec<LayerOutput>) {
    let pass = pass(model, ids, target);
    let mut probe_results = pass.probe_results.into_iter();
    let mut found = Vec::new();
    let mut layers: Vec<LayerSums> =
        (0..model.config.layers.len()).map(|layer| LayerSums::new(model, &pass.trace, layer)).collect();
    while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
        let answer = first.collector.into_collector::<TargetCollector<Allocation>>();
        let parts = second.collector.into_collector::<TargetCollector<Contributions>>();
        let rows = &parts.summaries[0].rows;
        let written = layers[first.at.layer].add_head(first.at.head, rows).unwrap();
        let cancelled = Region::ALL.map(|region| answer.summaries[0].cancelled(region));
        found.push((written, cancelled, answer));
    }
    (found, layers.into_iter().map(|sums| sums.finish().unwrap()).collect())
}

/// Asserts that numbers are equal within `limit`, relative to the larger of the expected number and 1.
#[track_caller]
pub(super) fn assert_close_to(got: &[f64], want: &[f64], limit: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= limit * want.abs().max(1.0), "{what}, {i}: {got} instead of {want}");
    }
}

struct Expected {
    tensors: HashMap<String, Tensor>,
    ids: Vec<u32>,
    target: TargetRows,
}

#[track_caller]
fn expected(name: &str) -> Expected {
    let bytes = std::fs::read(fixture(&format!("contribution/{name}.safetensors"))).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let weights = std::fs::read(built_in(name).join("model.safetensors")).unwrap();
    assert!(
        header.metadata().clone().unwrap()["model_sha256"] == sha256(&weights),
        "crates/engine/assets/models/{name} has new weights: run tests/fixtures/export_contribution.py, as its head says"
    );
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap();
    let whole =
        |name: &str| tensors[name].to_vec1::<i64>().unwrap().into_iter().map(|x| x as usize).collect::<Vec<_>>();
    let rows = whole("rows");
    let regions = whole("regions").into_iter().map(|region| Region::ALL[region]).collect();
    let ids = whole("input_ids").into_iter().map(|id| id as u32).collect();
    Expected { ids, target: TargetRows { query: None, rows: rows[0]..rows[1], regions }, tensors }
}

#[test]
fn contributions_agree_with_transformers() {
    for name in ["transformer", "diff"] {
        let expected = expected(name);
        let (config, weights) = load(&built_in(name));
        let model = Transformer::load(&config, weights).unwrap();
        let (found, layers) = written_by_layer(&model, &expected.ids, &expected.target);
        for (l, layer) in layers.iter().enumerate() {
            let want = expected.tensors["share_out_layer"].get(l).unwrap().to_vec1::<f64>().unwrap();
            let weight = expected.tensors["layer_weight"].get(l).unwrap().to_scalar::<f64>().unwrap();
            assert_close_to(&layer.share_out, &want, 1e-5, &format!("{name}, layer {l}"));
            assert_close_to(&[layer.weight], &[weight], 1e-5, &format!("{name}, weight of layer {l}"));
        }
        let heads = config.wiring().heads();
        assert_eq!(found.len(), config.layers.len() * heads);
        let mut worst = 0.0_f64;
        for (i, (written, cancelled, _)) in found.iter().enumerate() {
            let want = |name: &str| {
                let of_head = expected.tensors[name].get(i / heads).unwrap().get(i % heads).unwrap();
                of_head.flatten_all().unwrap().to_vec1::<f64>().unwrap()
            };
            for (metric, got) in [("share_out", written), ("cancelled", cancelled)] {
                for (region, (got, want)) in got.iter().zip(want(metric)).enumerate() {
                    if got.is_nan() && want.is_nan() {
                        continue; // a region without keys
                    }
                    let (layer, head) = (i / heads, i % heads);
                    let difference = (got - want).abs() / want.abs().max(1.0);
                    assert!(
                        difference < 1e-5,
                        "{name}, layer {layer}, head {head}, {metric}[{region}]: {got} instead of {want}"
                    );
                    worst = worst.max(difference);
                }
            }
        }
        println!("{name}: differ by {worst:.1e}");
    }
}

/// Projections of one layer as they reach the attention, in numbers.
struct Projections {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// Widths of a row of q, k and v.
    widths: [usize; 3],
    lambda: Vec<f64>,
    sink: Option<Vec<f64>>,
    gate: Option<Vec<f64>>,
    scale: f64,
    softcap: Option<f64>,
    window: Option<usize>,
}

fn f64s(x: &Tensor) -> Vec<f64> {
    x.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect()
}

/// Streams, and keeps the projections of every layer and the residual stream before it.
struct Watched<'a> {
    stream: Stream<'a>,
    layers: Vec<Projections>,
    residual: Vec<Vec<f64>>,
}

impl Attend for Watched<'_> {
    fn attend(&mut self, layer: usize, heads: &Heads<'_>) -> candle_core::Result<Tensor> {
        let width = |x: &Tensor| x.dim(2).unwrap() * x.dim(3).unwrap();
        self.layers.push(Projections {
            q: f64s(&heads.q),
            k: f64s(&heads.k),
            v: f64s(&heads.v),
            widths: [width(&heads.q), width(&heads.k), width(&heads.v)],
            lambda: heads.lambda.as_ref().map(f64s).unwrap_or_default(),
            sink: heads.sink.as_ref().map(f64s),
            gate: heads.gate.as_ref().map(f64s),
            scale: f64::from(heads.rule.scale),
            softcap: heads.rule.softcap.map(f64::from),
            window: heads.rule.window,
        });
        self.stream.attend(layer, heads)
    }

    fn residual(&mut self, site: usize, x: &Tensor) -> candle_core::Result<()> {
        self.residual.push(f64s(x));
        self.stream.residual(site, x)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Projections {
    /// The weights of a map of a head in a row, by the definition of attention.
    fn map(&self, config: &ModelConfig, (head, map): (usize, usize), row: usize) -> Vec<f64> {
        let (wiring, d) = (config.wiring(), config.head_dim);
        let of = |x: &[f64], width: usize, row: usize, head: usize| x[row * width + head * d..][..d].to_vec();
        let query = of(&self.q, self.widths[0], row, wiring.query[map][head]);
        let first = self.window.map_or(0, |window| (row + 1).saturating_sub(window));
        let logit = |key: usize| {
            let logit = self.scale * dot(&query, &of(&self.k, self.widths[1], key, wiring.key[map][head]));
            self.softcap.map_or(logit, |cap| cap * (logit / cap).tanh())
        };
        let weights: Vec<f64> = (0..=row).map(|key| if key < first { 0.0 } else { logit(key).exp() }).collect();
        let sink = self.sink.as_ref().map_or(0.0, |sink| sink[wiring.query[map][head]].exp());
        let total = weights.iter().sum::<f64>() + sink;
        weights.into_iter().map(|weight| weight / total).collect()
    }

    /// What each region gives the mixtures of all heads in a row: (regions, H x value width).
    fn parts(&self, config: &ModelConfig, row: usize, regions: &[Region]) -> Vec<Vec<f64>> {
        let (wiring, d) = (config.wiring(), config.head_dim);
        let heads = wiring.heads();
        let mut parts = vec![Vec::new(); REGIONS];
        for head in 0..heads {
            let mut weights = self.map(config, (head, 0), row);
            if wiring.maps() == 2 {
                let lambda = self.lambda[(row * heads + head) % self.lambda.len()];
                let second = self.map(config, (head, 1), row);
                weights.iter_mut().zip(second).for_each(|(a, b)| *a -= lambda * b);
            }
            for slice in &wiring.value[head] {
                for channel in 0..d {
                    let value = |key: usize| self.v[key * self.widths[2] + slice * d + channel];
                    let mut sums = [0.0; REGIONS];
                    weights.iter().enumerate().for_each(|(key, a)| sums[regions[key] as usize] += a * value(key));
                    parts.iter_mut().zip(sums).for_each(|(part, sum)| part.push(sum));
                }
            }
        }
        parts
    }
}

/// The tensor of a name in full, or `None`.
fn numbers_of(weights: &Weights, name: &str) -> Option<Vec<f64>> {
    weights.iter().find(|(known, _)| *known == name).map(|(_, tensor)| f64s(tensor))
}

/// What the regions of a row add to the residual stream through the heads of a layer: (regions, E).
fn added(
    config: &ModelConfig,
    weights: &Weights,
    layer: usize,
    row: usize,
    of: &Projections,
    regions: &[Region],
) -> Vec<Vec<f64>> {
    let (variant, heads) = (&config.variant, config.wiring().heads());
    let tensor = |name: &str| numbers_of(weights, &format!("model.layers.{layer}.{name}"));
    let mut parts = of.parts(config, row, regions);
    let columns = parts[0].len();
    let width = columns / heads;
    let whole: Vec<f64> = (0..columns).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
    let rms = |x: &[f64], eps: f64| (dot(x, x) / x.len() as f64 + eps).sqrt();
    let factor = if variant.factor == Factor::OneMinusLambdaInit { 1.0 - variant.lambda_init.of(layer) } else { 1.0 };
    let scale = |column: usize| {
        let (of_head, within) = (&whole[column / width * width..][..width], column % width);
        let norm = match variant.norm {
            HeadNorm::None => 1.0,
            HeadNorm::Rms => 1.0 / rms(of_head, config.norm_eps),
            HeadNorm::RmsGain => tensor("self_attn.subln.weight").unwrap()[within] / rms(of_head, 1e-5),
            HeadNorm::AllHeads => tensor("self_attn.norm.weight").unwrap()[column] / (rms(&whole, 0.0) + 1e-6),
        };
        norm * factor * of.gate.as_ref().map_or(1.0, |gate| gate[row * columns + column])
    };
    let scales: Vec<f64> = (0..columns).map(scale).collect();
    let o = tensor("self_attn.o_proj.weight").unwrap(); // E,H*width
    for part in &mut parts {
        let scaled: Vec<f64> = part.iter().zip(&scales).map(|(c, scale)| c * scale).collect();
        *part = o.chunks_exact(columns).map(|row| config.residual_scale * dot(row, &scaled)).collect();
        // E
    }
    if config.norm_place != NormPlace::Before {
        let gain = tensor("post_attention_layernorm.weight").unwrap();
        let plus = if config.norm == NormKind::RmsPlusOne { 1.0 } else { 0.0 };
        let attended: Vec<f64> = (0..gain.len()).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
        let norm = rms(&attended, config.norm_eps);
        parts.iter_mut().for_each(|part| part.iter_mut().zip(&gain).for_each(|(x, g)| *x *= (g + plus) / norm));
    }
    parts
}

#[test]
fn layers_write_what_whole_maps_in_double_precision_say() {
    let scratch = Scratch::new();
    let tiny = Variant::presets().keys().map(|variant| {
        let dir = scratch.path(variant);
        tiny_model(&dir, variant);
        dir
    });
    // Gains, norms after with and without + 1, windows, soft caps, grouped keys, parallel residuals, sinks, factors.
    let families =
        ["gpt_neox", "olmo2", "gemma2", "gemma3_text", "mistral_window", "diffllama_gqa", "gpt_oss", "granite"];
    let dirs = tiny.chain(families.map(|name| fixture(&format!("transformers/{name}"))));
    let dirs = dirs.chain(["transformer", "diff", "diff-v2"].map(built_in));
    for dir in dirs {
        let (config, weights) = attention_only(&dir);
        let model = Transformer::load(&config, weights.clone()).unwrap();
        let (ids, target) = random_prompt(config.vocab, 24, 19..23, 6);
        let (_, found) = written_by_layer(&model, &ids, &target);
        let mut watched = Watched { stream: Stream::new(&[]), layers: Vec::new(), residual: Vec::new() };
        model.hidden(std::slice::from_ref(&ids), &mut watched).unwrap();
        for (layer, found) in found.iter().enumerate() {
            let (mut inner, mut square, mut residual) = ([0.0; REGIONS], 0.0, 0.0);
            for row in target.rows.clone() {
                let parts = added(&config, &weights, layer, row, &watched.layers[layer], &target.regions);
                let whole: Vec<f64> = (0..config.width).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
                inner.iter_mut().zip(&parts).for_each(|(inner, part)| *inner += dot(part, &whole));
                square += dot(&whole, &whole);
                let x = &watched.residual[layer][row * config.width..][..config.width];
                residual += dot(x, x);
            }
            let what = format!("{}, layer {layer}", dir.display());
            assert_close_to(&found.share_out, &inner.map(|inner| inner / square), 1e-4, &what);
            assert_close_to(&[found.weight], &[square / (residual + square)], 1e-4, &what);
        }
    }
}

/// A model whose MLPs and biases write nothing, so that all that is added to the residual stream is attention's.
fn attention_only(dir: &Path) -> (ModelConfig, Weights) {
    let (config, weights) = load(dir);
    let of_mlp = |name: &str| name.contains(".mlp.") && name.contains("down_proj");
    let silent = |name: &str| of_mlp(name) || name.ends_with("o_proj.bias");
    let silenced = weights.iter().map(|(name, tensor)| {
        let tensor = if silent(name) { tensor.zeros_like().unwrap() } else { tensor.clone() };
        (name.clone(), tensor)
    });
    (config, Weights::new(silenced, "without MLPs"))
}

#[test]
fn what_heads_write_sums_to_what_attention_added_to_the_residual_stream() {
    let scratch = Scratch::new();
    let tiny = Variant::presets().keys().map(|variant| {
        let dir = scratch.path(variant);
        tiny_model(&dir, variant);
        dir
    });
    // Gains, LayerNorm, parallel residuals, norms after, norms with + 1, grouped keys.
    let old = ["gpt2", "gpt_neox", "olmo2", "gemma3_text", "mistral_window", "diffllama_gqa"];
    // Factors on what is added and on logits, LayerNorm without bias, one norm for both, experts, sinks.
    let new = ["granite", "cohere2", "stablelm_parallel", "mixtral", "gpt_oss"];
    let families = old.into_iter().chain(new).map(|name| fixture(&format!("transformers/{name}")));
    let dirs = ["transformer", "diff", "diff-v2"].map(built_in).into_iter().chain(tiny).chain(families);
    let mut placed = Vec::new();
    for dir in dirs {
        let (config, weights) = attention_only(&dir);
        placed.push(config.norm_place);
        let model = Transformer::load(&config, weights).unwrap();
        let (ids, target) = random_prompt(config.vocab, 24, 19..23, 3);
        let Pass { probe_results, trace, ends } = pass(&model, &ids, &target);
        let mut written = vec![vec![0.0; config.width]; config.layers.len() * target.rows.len()];
        for result in probe_results.into_iter().filter(|result| result.probe == 1) {
            let HeadPlace { layer, head } = result.at;
            let parts = result.collector.into_collector::<TargetCollector<Contributions>>();
            for (i, row) in parts.summaries[0].rows.iter().enumerate() {
                let output = model.head_output(layer, head, target.rows.start + i, &trace).unwrap();
                let sum = &mut written[layer * target.rows.len() + i];
                sum.iter_mut().zip(output.write(&row.total()).unwrap()).for_each(|(sum, x)| *sum += f64::from(x));
            }
        }
        let mut got = vec![0.0; target.rows.len() * config.width];
        for (i, written) in written.iter_mut().enumerate() {
            let layer = i / target.rows.len();
            let row = i % target.rows.len();
            model.norm_after_attention(layer, target.rows.start + row, &trace, written).unwrap();
            got[row * config.width..].iter_mut().zip(written).for_each(|(got, x)| *got += *x);
        }
        let rows = target.rows.start * config.width..target.rows.end * config.width;
        let added = ends.last[rows.clone()].iter().zip(&ends.first[rows]).map(|(last, first)| f64::from(last - first));
        let want: Vec<f64> = added.collect();
        assert_close_to(&got, &want, 1e-5, &dir.display().to_string());
        assert!(want.iter().any(|x| x.abs() > 1e-3), "{}: it shows nothing", dir.display());
    }
    assert!(placed.contains(&NormPlace::After) && placed.contains(&NormPlace::Before));
}

/// Random ids, the regions of a prompt of every kind of key, and the rows.
fn random_prompt(vocab: usize, tokens: usize, rows: Range<usize>, seed: u64) -> (Vec<u32>, TargetRows) {
    let mut rng = Rng::new(seed, "contribution test");
    let ids = (0..tokens).map(|_| (rng.unit() * vocab as f64) as u32).collect();
    let regions = (0..tokens).map(|key| Region::ALL[key * REGIONS / tokens]).collect();
    (ids, TargetRows { query: None, rows, regions })
}

#[test]
fn attention_spread_evenly_over_equal_tokens_writes_as_many_shares_as_there_are_keys() {
    let scratch = Scratch::new();
    tiny_model(scratch.folder(), "transformer");
    for layer in 0..2 {
        edit_tensor(scratch.folder(), &format!("model.layers.{layer}.self_attn.q_proj.weight"), |q| q.fill(0.0));
    }
    let (config, weights) = load(scratch.folder());
    let model = Transformer::load(&config, weights).unwrap();
    let target = random_prompt(config.vocab, 30, 25..30, 5).1;
    for (written, _, answer) in written(&model, &[7; 30], &target) {
        for region in Region::ALL {
            let keys = |row: usize| target.regions[..=row].iter().filter(|&&of| of == region).count() as f64;
            let even = target.rows.clone().map(|row| keys(row) / (row + 1) as f64).sum::<f64>() / 5.0;
            assert!((answer.summaries[0].share_abs(region) - even).abs() < 1e-6);
            let share = written[region as usize];
            assert!((share - even).abs() < 1e-5, "{share} where {even} is even");
        }
    }
}

#[test]
fn heads_that_cancel_each_other_write_nothing_together() {
    let scratch = Scratch::new();
    tiny_model(scratch.folder(), "transformer");
    let (config, _) = load(scratch.folder());
    let (columns, d) = (config.wiring().heads() * config.head_dim, config.head_dim);
    for layer in 0..2 {
        let name = |projection: &str| format!("model.layers.{layer}.self_attn.{projection}.weight");
        // Head 1 has the queries, keys and values of head 0 and writes the opposite.
        for projection in ["q_proj", "k_proj", "v_proj"] {
            edit_tensor(scratch.folder(), &name(projection), |x| {
                let of_head = x.len() / (columns / d);
                x.copy_within(..of_head, of_head);
            });
        }
        edit_tensor(scratch.folder(), &name("o_proj"), |o| {
            o.chunks_exact_mut(columns).for_each(|row| (0..d).for_each(|i| row[d + i] = -row[i]));
        });
    }
    let (config, weights) = load(scratch.folder());
    assert_eq!(config.wiring().heads(), 2);
    let model = Transformer::load(&config, weights).unwrap();
    let (ids, target) = random_prompt(config.vocab, 24, 19..23, 7);
    let (heads, layers) = written_by_layer(&model, &ids, &target);
    assert!(heads.iter().all(|(head, ..)| head.iter().all(|x| x.is_finite())), "each head writes");
    assert!(layers.iter().all(|layer| layer.weight < 1e-9), "{layers:?}");
}

/// A V1 model with this lambda in every layer. Values are large, so that the norm's epsilon is nothing beside them.
fn with_lambda(dir: &Path, lambda: f64) {
    tiny_model(dir, "diff");
    for layer in 0..2 {
        let name = |tensor: &str| format!("model.layers.{layer}.self_attn.{tensor}");
        let first = lambda + 1.0 - LambdaInit::Depth.of(layer);
        for (vector, value) in [("q1", 1.0), ("k1", first.ln()), ("q2", 0.0), ("k2", 0.0)] {
            edit_tensor(dir, &name(&format!("lambda_{vector}")), |x| {
                x.fill(0.0);
                x[0] = value as f32;
            });
        }
        edit_tensor(dir, &name("v_proj.weight"), |v| v.iter_mut().for_each(|v| *v *= 50.0));
        for projection in ["q_proj.weight", "k_proj.weight"] {
            edit_tensor(dir, &name(projection), |x| x.iter_mut().for_each(|x| *x *= 30.0));
        }
    }
}

/// The same function written otherwise: maps exchanged, 1 / lambda, and what is now -1 / lambda times as large turned
/// around again by the output projection.
fn exchange_maps(dir: &Path, lambda: f64) {
    with_lambda(dir, 1.0 / lambda);
    for layer in 0..2 {
        let name = |tensor: &str| format!("model.layers.{layer}.self_attn.{tensor}.weight");
        for projection in ["q_proj", "k_proj"] {
            edit_tensor(dir, &name(projection), |x| {
                let half = x.len() / 2;
                x.rotate_left(half);
            });
        }
        edit_tensor(dir, &name("o_proj"), |o| o.iter_mut().for_each(|o| *o = -*o));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn shares_sum_to_1_and_do_not_know_which_map_is_subtracted_from_which(
        // Not next to 1: there the two maps cancel what all values share, and what is left is made of rounding.
        lambda in prop_oneof![0.7..0.98_f64, 1.02..1.4_f64],
        seed: u64
    ) {
        let folders = [Scratch::new(), Scratch::new()];
        with_lambda(folders[0].folder(), lambda);
        exchange_maps(folders[1].folder(), lambda);
        let [one, other] = folders.map(|folder| {
            let (config, weights) = load(folder.folder());
            let model = Transformer::load(&config, weights).unwrap();
            let (ids, target) = random_prompt(config.vocab, 24, 19..23, seed);
            written_by_layer(&model, &ids, &target)
        });
        for (a, b) in one.1.iter().zip(&other.1) {
            prop_assert!((a.share_out.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{a:?}");
            let apart = a.share_out.iter().zip(&b.share_out).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            prop_assert!(apart < 1e-3, "lambda {lambda}: {a:?} and {b:?}");
        }
        for layers in [&one.1, &other.1] {
            let share = |region| mean_over_layers(layers, |layer| layer.share_out[region as usize]);
            prop_assert!((Region::ALL.map(share).iter().sum::<f64>() - 1.0).abs() < 1e-6);
        }
        for ((a, cancelled, _), (b, also_cancelled, _)) in one.0.iter().zip(&other.0) {
            prop_assert!((a.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{a:?}");
            for i in 0..REGIONS {
                let pairs = [
                    (a[i], b[i]),
                    (cancelled[i], also_cancelled[i]),
                ];
                for (x, y) in pairs {
                    prop_assert!((x - y).abs() < 1e-3 * x.abs().max(1.0), "lambda {lambda}, region {i}: {x} and {y}");
                }
            }
        }
    }
}
