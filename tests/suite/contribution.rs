//! What regions write through heads: against Python `transformers` (tests/fixtures/export_contribution.py), against the
//! residual stream, and under changes that must not matter.

use crate::common::{edit_tensor, fixture, tiny_model};
use candle_core::{Device, Tensor};
use difftool::attention::{LambdaInit, LayersAndHeads, ProbeResult, ResidualProbe, RowProbe, Stream, Trace, Variant};
use difftool::hash::sha256;
use difftool::measure::{readouts, RegionOutputs};
use difftool::model::{Checkpoint, ModelConfig, NormKind, NormPlace, Transformer, Weights};
use difftool::probe::{AnswerProbe, AnswerSink, ContributionProbe, ContributionSink};
use difftool::prompt::{Region, TargetRows};
use difftool::rng::Rng;
use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

const REGIONS: usize = Region::ALL.len();

fn load(dir: &Path) -> (ModelConfig, Weights) {
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    let weights = Checkpoint::open(dir).unwrap().load(&config).unwrap();
    (config, weights)
}

fn built_in(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/models").join(name)
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
    let (answer, contribution) = (AnswerProbe::new(targets), ContributionProbe::new(targets));
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

/// What was written by each head and how much was cancelled, in (layer, head) order.
fn written(
    model: &Transformer,
    ids: &[u32],
    target: &TargetRows,
) -> Vec<(RegionOutputs, [f64; REGIONS], Box<AnswerSink>)> {
    let pass = pass(model, ids, target);
    let ways = readouts(model, &pass.trace, ids, target.rows.clone()).unwrap();
    let mut probe_results = pass.probe_results.into_iter();
    let mut found = Vec::new();
    while let (Some(first), Some(second)) = (probe_results.next(), probe_results.next()) {
        let answer = first.sink.into_sink::<AnswerSink>();
        let parts = second.sink.into_sink::<ContributionSink>();
        let at = (first.layer, first.head);
        let written = RegionOutputs::of(model, &pass.trace, at, &parts.rows[0], &ways).unwrap();
        let cancelled = Region::ALL.map(|region| answer.allocations[0].cancelled(region));
        found.push((written, cancelled, answer));
    }
    found
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
        "assets/models/{name} has new weights: run tests/fixtures/export_contribution.py, as its head says"
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
        let found = written(&model, &expected.ids, &expected.target);
        let heads = config.wiring().heads();
        assert_eq!(found.len(), config.layers.len() * heads);
        let mut worst = 0.0_f64;
        for (i, (written, cancelled, _)) in found.iter().enumerate() {
            let want = |name: &str| {
                let of_head = expected.tensors[name].get(i / heads).unwrap().get(i % heads).unwrap();
                of_head.flatten_all().unwrap().to_vec1::<f64>().unwrap()
            };
            let logit_out = written.logit_out.unwrap();
            for (metric, got) in [
                ("share_out", &written.share_out[..]),
                ("norm_out", &written.norm_out),
                ("logit_out", &logit_out),
                ("cancelled", cancelled),
                ("context_rms", &[written.context_rms]),
            ] {
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

/// The direct effect of what was added to the residual stream in a row on the logit of `token` less the mean logit.
fn direct_effect(config: &ModelConfig, weights: &Weights, ends: &Ends, row: usize, token: usize) -> f64 {
    let tensor = |name: &str| weights.iter().find(|(n, _)| *n == name).unwrap().1.clone();
    let unembed = tensor(if config.tied { "model.embed_tokens.weight" } else { "lm_head.weight" });
    let (rows, gain) = (unembed.to_vec2::<f32>().unwrap(), tensor("model.norm.weight").to_vec1::<f32>().unwrap());
    let e = gain.len();
    let of = |x: &[f32]| x[row * e..][..e].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let (first, last) = (of(&ends.first), of(&ends.last));
    let centred = |x: Vec<f64>| {
        let centred = matches!(config.norm, NormKind::Layer | NormKind::LayerGain);
        let mean = if centred { x.iter().sum::<f64>() / e as f64 } else { 0.0 };
        x.into_iter().map(|x| x - mean).collect::<Vec<f64>>()
    };
    let variance = centred(last.clone()).iter().map(|x| x * x).sum::<f64>() / e as f64;
    let added = centred(last.iter().zip(&first).map(|(last, first)| last - first).collect());
    let gain = |i: usize| f64::from(gain[i]) + if config.norm == NormKind::RmsPlusOne { 1.0 } else { 0.0 };
    let normed: Vec<f64> = (0..e).map(|i| added[i] * gain(i) / (variance + config.norm_eps).sqrt()).collect();
    let logit = |row: &[f32]| row.iter().zip(&normed).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
    config.logit_scale * (logit(&rows[token]) - rows.iter().map(|row| logit(row)).sum::<f64>() / rows.len() as f64)
}

#[test]
fn logit_effects_of_regions_heads_and_layers_sum_to_what_attention_added_to_the_residual_stream() {
    let scratch = tempfile::tempdir().unwrap();
    let tiny = Variant::presets().keys().map(|variant| {
        let dir = scratch.path().join(variant);
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
        let model = Transformer::load(&config, weights.clone()).unwrap();
        let (ids, target) = random_prompt(config.vocab, 24, 19..23, 3);
        let found = written(&model, &ids, &target);
        let got: f64 = found.iter().map(|(written, ..)| written.logit_out.unwrap().iter().sum::<f64>()).sum();
        let ends = pass(&model, &ids, &target).ends;
        let effect = |row: usize| direct_effect(&config, &weights, &ends, row, ids[row + 1] as usize);
        let want = target.rows.clone().map(effect).sum::<f64>() / target.rows.len() as f64;
        assert!((got - want).abs() < 1e-5 * want.abs().max(1.0), "{}: {got} instead of {want}", dir.display());
        assert!(want.abs() > 1e-4, "{}: {want} shows nothing", dir.display());
    }
    assert!(placed.contains(&NormPlace::After) && placed.contains(&NormPlace::Before));
}

#[test]
fn a_capped_logit_has_no_direct_effect() {
    let (config, weights) = load(&fixture("transformers/gemma2"));
    let model = Transformer::load(&config, weights).unwrap();
    let (ids, target) = random_prompt(config.vocab, 12, 9..11, 4);
    for (written, ..) in written(&model, &ids, &target) {
        assert!(written.logit_out.is_none() && written.share_out.iter().sum::<f64>().is_finite());
    }
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
    let scratch = tempfile::tempdir().unwrap();
    tiny_model(scratch.path(), "transformer");
    for layer in 0..2 {
        edit_tensor(scratch.path(), &format!("model.layers.{layer}.self_attn.q_proj.weight"), |q| q.fill(0.0));
    }
    let (config, weights) = load(scratch.path());
    let model = Transformer::load(&config, weights).unwrap();
    let target = random_prompt(config.vocab, 30, 25..30, 5).1;
    for (written, _, answer) in written(&model, &[7; 30], &target) {
        for region in Region::ALL {
            let allocation = &answer.allocations[0];
            let uniform = allocation.share_uniform(region);
            assert!((allocation.share_abs(region) - uniform).abs() < 1e-6);
            for share in [written.share_out, written.norm_out] {
                assert!((share[region as usize] - uniform).abs() < 1e-5, "{share:?} where {uniform} is even");
            }
        }
    }
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
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn shares_sum_to_1_and_do_not_know_which_map_is_subtracted_from_which(
        // Not next to 1: there the two maps cancel what all values share, and what is left is made of rounding.
        lambda in prop_oneof![0.7..0.98_f64, 1.02..1.4_f64],
        seed: u64
    ) {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        with_lambda(folders[0].path(), lambda);
        exchange_maps(folders[1].path(), lambda);
        let [one, other] = folders.map(|folder| {
            let (config, weights) = load(folder.path());
            let model = Transformer::load(&config, weights).unwrap();
            let (ids, target) = random_prompt(config.vocab, 24, 19..23, seed);
            written(&model, &ids, &target)
        });
        for ((a, cancelled, _), (b, also_cancelled, _)) in one.iter().zip(&other) {
            for share in [a.share_out, a.norm_out] {
                prop_assert!((share.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{share:?}");
            }
            for i in 0..REGIONS {
                let pairs = [
                    (a.share_out[i], b.share_out[i]),
                    (a.norm_out[i], b.norm_out[i]),
                    (a.logit_out.unwrap()[i], b.logit_out.unwrap()[i]),
                    (cancelled[i], also_cancelled[i]),
                ];
                for (x, y) in pairs {
                    prop_assert!((x - y).abs() < 1e-3 * x.abs().max(1.0), "lambda {lambda}, region {i}: {x} and {y}");
                }
            }
        }
    }
}
