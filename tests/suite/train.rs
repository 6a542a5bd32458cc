//! The trainer: gradients reach everything, a run can be stopped anywhere, and a wrong spec is refused on one line.

mod starts;

use crate::common::{assert_close, edit_tensor, preset, random_model, tiny_model, tiny_sizes, train, StopAfter};
use base::error::exit_code;
use candle_core::{DType, Device, Tensor, Var};
use difftool::train::*;
use engine::attention::{Fused, LambdaStart, Pairing, ValueWidth, Variant};
use engine::kernels::{cross_entropy, RopeStyle};
use engine::model::{DecoderSizes, ModelConfig, Placement, Transformer, Weights, TENSOR_FILE};
use stats::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use text::Tokenizer;

/// Two small variants, two stages of 12 and 8 steps, a log line every four steps.
pub(super) const SPEC: &str = r#"
question = "Does the trainer work?"
seed = 3

[model]
width = 32
layers = 2
heads = 4
head_dim = 8
ffn = 48
rope_theta = 10000.0
max_ctx_tok = 128

[[variant]]
name = "transformer"
attention = "transformer"

[[variant]]
name = "diff"
attention = "diff"

[optimizer]
rate = 1e-2
final_fraction = 0.1
warmup_tok = 512
beta1 = 0.9
beta2 = 0.95
weight_decay = 0.1
clip = 1.0

[loss]
first_digit = 2.0
other_digits = 2.0
new_digits = 0.5

[[stage]]
ctx_tok = 64
tokens = 3072
step_tok = 256
data = { facts = [1, 3], restate = 2.0, prose = 0.0, wordings = [1.0], exam = 0.0, synthetic = 0.5 }

[[stage]]
ctx_tok = 128
tokens = 2048
step_tok = 256
data = { facts = [1, 3], restate = 2.0, prose = 0.3, wordings = [1.0], exam = 0.2, synthetic = 0.5 }

[watch]
log_every_tok = 1024
eval_every_tok = 2048
eval_samples = 1
save_every_tok = 2048
"#;

fn spec() -> TrainSpec {
    TrainSpec::parse(SPEC, "spec.toml").unwrap()
}

fn run(spec: &TrainSpec, out: &Path, resume: bool, steps: usize) -> TrainOutcome {
    let stop = AtomicBool::new(false);
    train(spec, out, resume, &stop, &StopAfter::new(steps, &stop)).unwrap()
}

fn finish(spec: &TrainSpec, out: &Path) {
    assert_eq!(run(spec, out, false, usize::MAX), TrainOutcome::Finished);
}

fn bytes(folder: &Path, file: &str) -> Vec<u8> {
    std::fs::read(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A CSV without its column of speeds: header and lines.
fn lines(path: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(path).unwrap();
    let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let speed = records[0].iter().position(|name| name == "tokens_per_s");
    let keep = |record: &csv::StringRecord| {
        record.iter().enumerate().filter(|(i, _)| Some(*i) != speed).map(|(_, field)| field.to_owned()).collect()
    };
    records.iter().map(keep).collect()
}

fn config(variant: Variant, heads: usize, kv_heads: usize) -> ModelConfig {
    let adjacent = variant.pairing == Pairing::Adjacent;
    let rope_style = if adjacent { RopeStyle::Interleaved } else { RopeStyle::Half };
    let sizes =
        DecoderSizes { vocab: 50, width: 32, layers: 2, ffn: 40, heads, kv_heads, head_dim: 8, max_ctx_tok: 64 };
    ModelConfig::llama(variant, sizes, 10_000.0, rope_style)
}

/// Every variant with as many key heads as query heads, and with fewer; and norms of queries and keys.
fn variants() -> Vec<ModelConfig> {
    let of = |(name, &variant): (&String, &Variant)| {
        let heads = if name.ends_with("-grouped") { 6 } else { variant.output_heads(4) };
        let doubled = variant.values == ValueWidth::Doubled;
        // In one group of keys the others are not read.
        let fewer = if name == "diff-v2-across" { 4 } else { heads };
        vec![
            config(variant, heads, if doubled { 2 * heads } else { heads }),
            config(variant, fewer, if doubled { 2 } else { fewer / 2 }),
        ]
    };
    let normed =
        ["transformer", "diff"].map(|name| config(preset(name), preset(name).output_heads(4), 2).with_qk_norm());
    Variant::presets().iter().flat_map(of).chain(normed).collect()
}

/// Whether a parameter is known to receive no gradient: lambda vectors that start at 0, each the gradient of another.
fn is_stuck(config: &ModelConfig, name: &str) -> bool {
    config.variant.lambda_start == LambdaStart::Zero && name.contains("lambda_")
}

fn random_batch(vocab: usize, rows: usize, t: usize) -> Batch {
    let mut rng = Rng::new(0, "test batch");
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.below(vocab) as u32).collect() };
    let inputs = (0..rows).map(|_| ids(t)).collect();
    Batch { inputs, targets: ids(rows * t), weights: vec![1.0; rows * t], kinds: vec![TargetKind::Text; rows * t] }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn every_parameter_of_every_variant_receives_a_gradient() {
    for config in variants() {
        let label = format!("{} with {} key heads", config.layout(), config.kv_heads);
        let vars = variables(&config, 1).unwrap();
        let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
        let batch = random_batch(config.vocab, 2, 33);
        let logits = model.logits(&model.hidden(&batch.inputs, &mut Fused).unwrap().flatten_to(1).unwrap()).unwrap();
        let (loss, _) = cross_entropy(&logits, batch.targets, batch.weights).unwrap();
        let grads = loss.backward().unwrap();
        for (name, var) in &vars {
            let gradient = values(grads.get(var).unwrap_or_else(|| panic!("{label}: {name} has no gradient")));
            assert!(gradient.iter().all(|g| g.is_finite()), "{label}: {name}");
            if is_stuck(&config, name) {
                continue;
            }
            // Nothing in these models is unused, so a zero is a lost head, row or channel.
            let zeros = gradient.iter().filter(|&&g| g == 0.0).count();
            assert_eq!(zeros, 0, "{label}: {zeros} of {} gradients of {name} are zero", gradient.len());
        }
    }
}

#[test]
fn a_step_over_many_sequences_in_parts_has_the_loss_and_gradient_of_all_at_once() {
    let config = config(preset("transformer"), 4, 4);
    let vars = variables(&config, 1).unwrap();
    let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
    let mut batch = random_batch(config.vocab, 40, 33); // more than one part, and not a whole number of them
    batch.weights.iter_mut().enumerate().for_each(|(i, weight)| *weight = (i % 7) as f32);
    let logits = model.logits(&model.hidden(&batch.inputs, &mut Fused).unwrap().flatten_to(1).unwrap()).unwrap();
    let (loss, _) = cross_entropy(&logits, batch.targets.clone(), batch.weights.clone()).unwrap();
    let mut optimizer = AdamW::new(&vars, &spec().optimizer);
    let mut gradients = Gradients::new();
    optimizer.collect(&loss.backward().unwrap(), &mut gradients).unwrap();
    let norm = gradients.iter().flatten().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
    let Stepped { loss_nats: got, scores, grad_norm: got_norm, .. } =
        step(&model, &mut optimizer, &batch, 1e-3).unwrap();
    assert_eq!(scores.len(), 40 * 33);
    assert!((got - f64::from(loss.to_scalar::<f32>().unwrap())).abs() < 1e-5, "{got} instead of {loss}");
    assert!((got_norm / norm - 1.0).abs() < 1e-4, "{got_norm} instead of {norm}");
}

#[test]
fn a_step_in_candles_ops_has_the_loss_the_gradients_and_the_update_of_a_step_of_the_kernels() {
    for config in variants() {
        let label = format!("{} with {} key heads", config.layout(), config.kv_heads);
        let batch = random_batch(config.vocab, 3, 33);
        let stepped = |dtype: DType| {
            let vars = variables(&config, 1).unwrap();
            let model = copy_to_device(&config, &vars, &Placement { device: Device::Cpu, dtype }).unwrap();
            let mut optimizer = AdamW::new(&vars, &spec().optimizer);
            let done = step(&model, &mut optimizer, &batch, 1e-3).unwrap();
            (done, vars)
        };
        let ((want, kernels), (got, candle)) = (stepped(DType::F32), stepped(DType::F64));
        assert!((got.loss_nats - want.loss_nats).abs() < 1e-5, "{label}: {} is not {}", got.loss_nats, want.loss_nats);
        assert!((got.grad_norm / want.grad_norm - 1.0).abs() < 1e-4, "{label}");
        for ((name, got), want) in kernels.keys().zip(&got.gradients).zip(&want.gradients) {
            let size = want.iter().fold(1e-3, |size: f32, x| size.max(x.abs()));
            let far = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-3 * size, "{label}: gradient of {name} differs by {far} of {size}");
        }
        // Adam divides by the gradient: where that is next to nothing, its sign is rounding.
        for ((name, want), gradient) in kernels.iter().zip(&want.gradients) {
            let (got, want) = (values(&candle[name]), values(want));
            let steady = gradient.iter().map(|g| g.abs() > 1e-4);
            let far = got.iter().zip(&want).zip(steady).filter(|((a, b), steady)| *steady && (*a - *b).abs() > 1e-5);
            assert_eq!(far.count(), 0, "{label}: {name}");
        }
        let (coarse, _) = stepped(DType::BF16);
        assert!((coarse.loss_nats - want.loss_nats).abs() < 0.02, "{label}: {} in bf16", coarse.loss_nats);
        assert!((coarse.grad_norm / want.grad_norm - 1.0).abs() < 0.05, "{label}: {} in bf16", coarse.grad_norm);
    }
}

#[test]
fn a_run_in_candles_ops_learns_what_one_of_the_kernels_does_and_is_resumed_with_the_same_numbers_alone() {
    let home = tempfile::tempdir().unwrap();
    let short = SPEC.replace("tokens = 3072", "tokens = 1024").replace("tokens = 2048", "tokens = 1024");
    let spec = TrainSpec::parse(&short, "spec.toml").unwrap();
    let of = |dtype: DType, name: &str, resume: bool, steps: usize| {
        let (stop, placement) = (AtomicBool::new(false), Placement { device: Device::Cpu, dtype });
        let progress = StopAfter::new(steps, &stop);
        train_runs(&spec.open()?, &spec.runs(), &home.path().join(name), resume, &placement, &stop, &progress)
    };
    assert_eq!(of(DType::F32, "kernels", false, usize::MAX).unwrap(), TrainOutcome::Finished);
    assert_eq!(of(DType::F64, "candle", false, usize::MAX).unwrap(), TrainOutcome::Finished);
    assert_eq!(of(DType::F64, "stopped", false, 7).unwrap(), TrainOutcome::Stopped);
    let error = of(DType::F32, "stopped", true, usize::MAX).unwrap_err();
    assert_eq!(exit_code(&error), 2);
    assert!(format!("{error:#}").contains("was trained on cpu f64; this is cpu f32"), "{error:#}");
    assert_eq!(of(DType::F64, "stopped", true, usize::MAX).unwrap(), TrainOutcome::Finished);
    for variant in ["transformer", "diff"] {
        let folder = |name: &str| home.path().join(name).join(variant);
        assert!(bytes(&folder("candle"), TENSOR_FILE) == bytes(&folder("stopped"), TENSOR_FILE), "{variant}");
        let loss = |name: &str| -> f64 { lines(&folder(name).join(LOG_FILE)).last().unwrap()[3].parse().unwrap() };
        let (got, want) = (loss("candle"), loss("kernels"));
        assert!((got - want).abs() < 1e-2 * want, "{variant}: a loss of {got} instead of {want}");
    }
}

#[test]
fn a_step_in_parts_is_bit_identical_for_any_number_of_threads() {
    for config in variants() {
        let batch = random_batch(config.vocab, 100, 33); // four parts
        let run = |threads: usize| {
            let vars = variables(&config, 1).unwrap();
            let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
            let mut optimizer = AdamW::new(&vars, &spec().optimizer);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let done = pool.install(|| step(&model, &mut optimizer, &batch, 1e-3)).unwrap();
            let weights: Vec<u32> = vars.values().flat_map(|var| values(var)).map(f32::to_bits).collect();
            (done.loss_nats.to_bits(), done.grad_norm.to_bits(), weights)
        };
        assert!(run(3) == run(1), "{}", config.layout());
    }
}

#[test]
fn a_step_moves_every_parameter_of_every_variant() {
    let optimizer = spec().optimizer;
    for config in variants() {
        let vars = variables(&config, 1).unwrap();
        let copy = |vars: &BTreeMap<String, Var>| -> Vec<Vec<f32>> { vars.values().map(|var| values(var)).collect() };
        let before = copy(&vars);
        let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
        let Stepped { loss_nats: loss, scores, grad_norm: norm, .. } =
            step(&model, &mut AdamW::new(&vars, &optimizer), &random_batch(config.vocab, 2, 33), 1e-3).unwrap();
        assert!((loss - 50f64.ln()).abs() < 0.1 && norm > 0.0, "{}: loss {loss}, norm {norm}", config.layout());
        assert_eq!(scores.len(), 66);
        for ((name, before), after) in vars.keys().zip(before).zip(copy(&vars)) {
            let moved = before.iter().zip(&after).all(|(a, b)| a != b);
            assert!(moved || is_stuck(&config, name), "{}: {name} did not move", config.layout());
        }
    }
}

#[test]
fn steps_on_one_batch_lower_the_loss_of_every_variant() {
    for config in variants() {
        let vars = variables(&config, 1).unwrap();
        let model = Transformer::build(&config, &mut tensors(&vars)).unwrap();
        let mut optimizer = AdamW::new(&vars, &spec().optimizer);
        let batch = random_batch(config.vocab, 1, 20);
        let losses: Vec<f64> = (0..60).map(|_| step(&model, &mut optimizer, &batch, 1e-2).unwrap().loss_nats).collect();
        assert!(losses[59] < 0.5 * losses[0], "{}: {} to {}", config.layout(), losses[0], losses[59]);
    }
}

#[test]
fn training_lowers_the_loss_and_leaves_logs_and_loadable_models() {
    let out = tempfile::tempdir().unwrap();
    let spec = spec();
    finish(&spec, out.path());
    let configs = spec.configs().unwrap();
    for (variant, config) in spec.variants.iter().zip(&configs) {
        let dir = out.path().join(&variant.name);
        let log = std::fs::read_to_string(dir.join("log.csv")).unwrap();
        let columns = "tokens,ctx_tok,rate,loss_nats,text_nats,digit1_nats,digit1_hit,digit2_hit,digit3_hit,\
                       digit4up_hit,grad_norm,lambda,tokens_per_s";
        assert_eq!(log.lines().next(), Some(columns));
        let log: Vec<LogLine> = csv::Reader::from_reader(log.as_bytes()).deserialize().map(Result::unwrap).collect();
        let at: Vec<(usize, usize)> = log.iter().map(|line| (line.tokens, line.ctx_tok)).collect();
        assert_eq!(at, [(1024, 64), (2048, 64), (3072, 64), (4096, 128), (5120, 128)]);
        let (first, last) = (&log[0], &log[4]);
        assert!(last.loss_nats < 0.8 * first.loss_nats, "{}: {} to {}", variant.name, first.loss_nats, last.loss_nats);
        assert_eq!(last.lambda.is_some(), variant.name == "diff");

        let eval = std::fs::read_to_string(dir.join("eval.csv")).unwrap();
        let columns = "tokens,ctx_tok,needles,retrieve,cities,n,exact,first_digit,log_prob_nats";
        assert_eq!(eval.lines().next(), Some(columns));
        let eval: Vec<EvalLine> = csv::Reader::from_reader(eval.as_bytes()).deserialize().map(Result::unwrap).collect();
        assert!(eval.iter().any(|line| line.tokens == 5120 && line.cities == "heldout"));
        assert!(eval.iter().all(|line| line.n == line.retrieve && line.log_prob_nats < 0.0));
        assert_reloads(&dir, config);
    }
}

#[test]
fn a_variant_with_a_rate_of_its_own_is_trained_at_it() {
    let out = tempfile::tempdir().unwrap();
    let mut spec = spec();
    spec.variants[1].rate = Some(0.5 * spec.optimizer.rate);
    spec.stages.truncate(1);
    finish(&spec, out.path());
    let [usual, own] = ["transformer", "diff"].map(|variant| -> Vec<f64> {
        let log = csv::Reader::from_path(out.path().join(variant).join("log.csv")).unwrap();
        log.into_deserialize().map(|line| line.map(|line: LogLine| line.rate).unwrap()).collect()
    });
    assert!(!usual.is_empty() && usual.iter().all(|&rate| rate > 0.0));
    assert_eq!(own, usual.iter().map(|rate| 0.5 * rate).collect::<Vec<_>>());
}

#[test]
fn a_variant_with_normed_queries_and_keys_has_their_gains_and_reloads() {
    let out = tempfile::tempdir().unwrap();
    let mut spec = spec();
    spec.variants.iter_mut().for_each(|variant| variant.qk_norm = true);
    spec.stages.truncate(1);
    finish(&spec, out.path());
    for (variant, config) in spec.variants.iter().zip(spec.configs().unwrap()) {
        let dir = out.path().join(&variant.name);
        assert_eq!(config.model_type, "difftool");
        assert_reloads(&dir, &config);
        let mut saved = Weights::read(&dir.join(TENSOR_FILE)).unwrap();
        for name in ["q_norm", "k_norm"] {
            let gains = saved.take(&format!("model.layers.1.self_attn.{name}.weight")).unwrap();
            let gains = values(&gains.to_dtype(DType::F32).unwrap());
            assert!(gains.len() == 8 && gains.iter().any(|&gain| gain != 1.0), "{}: {gains:?}", variant.name);
        }
    }
}

/// The folder holds the parameters of the last checkpoint, rounded to half precision.
fn assert_reloads(dir: &Path, config: &ModelConfig) {
    assert_eq!(&ModelConfig::read(&dir.join("config.json")).unwrap(), config);
    let saved = Transformer::load(config, Weights::read(&dir.join(TENSOR_FILE)).unwrap()).unwrap();
    let mut state = Weights::read(&dir.join("checkpoint/state.safetensors")).unwrap();
    let trained: Vec<(String, Tensor)> =
        config.tensors().into_iter().map(|(name, _)| (name.clone(), state.take(&name).unwrap())).collect();
    let trained = Transformer::load(config, Weights::new(trained, "checkpoint")).unwrap();
    let ids: Vec<u32> = (0..100).map(|i| (i * 37 + 3) % config.vocab as u32).collect();
    let logits = |model: &Transformer| {
        let hidden = model.hidden(std::slice::from_ref(&ids), &mut Fused).unwrap();
        model.logits(&hidden).unwrap()
    };
    assert_close("logits of the saved model", &logits(&saved), &logits(&trained), 2e-2);
    assert_eq!(bytes(dir, "tokenizer.json"), Tokenizer::embedded().json.as_bytes());
}

#[test]
fn a_run_stopped_anywhere_and_resumed_equals_one_that_was_not() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    finish(&spec(), whole.path());
    // Once in either stage, and between log lines. The variants stop at different steps.
    assert_eq!(run(&spec(), parts.path(), false, 11), TrainOutcome::Stopped);
    assert_eq!(run(&spec(), parts.path(), true, 17), TrainOutcome::Stopped);
    assert_eq!(run(&spec(), parts.path(), true, usize::MAX), TrainOutcome::Finished);
    for variant in ["transformer", "diff"] {
        let (whole, parts) = (whole.path().join(variant), parts.path().join(variant));
        for file in [TENSOR_FILE, "config.json", "eval.csv", "checkpoint/state.safetensors"] {
            assert!(bytes(&whole, file) == bytes(&parts, file), "{variant}/{file} differs");
        }
        assert_eq!(lines(&whole.join("log.csv")), lines(&parts.join("log.csv")), "{variant}/log.csv");
    }
}

#[test]
fn a_run_stopped_before_its_first_step_can_be_resumed() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    finish(&spec(), whole.path());
    let stopped = AtomicBool::new(true);
    let nobody = StopAfter::new(0, &stopped);
    assert_eq!(train(&spec(), parts.path(), false, &stopped, &nobody).unwrap(), TrainOutcome::Stopped);
    assert_eq!(run(&spec(), parts.path(), true, usize::MAX), TrainOutcome::Finished);
    assert!(bytes(&whole.path().join("diff"), TENSOR_FILE) == bytes(&parts.path().join("diff"), TENSOR_FILE));
}

#[test]
fn a_resumed_run_repeats_what_came_after_its_checkpoint() {
    let mut spec = spec();
    spec.variants.truncate(1);
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    finish(&spec, whole.path());
    assert_eq!(run(&spec, killed.path(), false, 8), TrainOutcome::Stopped);
    // A killed process leaves a line later than its checkpoint, and one that was being written.
    let log = |dir: &Path| dir.join("transformer/log.csv");
    let text = std::fs::read_to_string(log(killed.path())).unwrap();
    let later = text.lines().last().unwrap().replacen("2048", "3072", 1);
    std::fs::write(log(killed.path()), format!("{text}{later}\n409")).unwrap();
    assert_eq!(run(&spec, killed.path(), true, usize::MAX), TrainOutcome::Finished);
    assert_eq!(lines(&log(whole.path())), lines(&log(killed.path())));
}

#[test]
fn a_log_with_an_unreadable_line_in_its_middle_is_left_as_it_is() {
    let mut spec = spec();
    spec.variants.truncate(1);
    let out = tempfile::tempdir().unwrap();
    assert_eq!(run(&spec, out.path(), false, 8), TrainOutcome::Stopped);
    let log = out.path().join("transformer/log.csv");
    let broken = std::fs::read_to_string(&log).unwrap().replacen("\n1024,", "\nlots,", 1);
    std::fs::write(&log, &broken).unwrap();
    let stop = AtomicBool::new(false);
    let nobody = StopAfter::new(usize::MAX, &stop);
    let error = format!("{:#}", train(&spec, out.path(), true, &stop, &nobody).unwrap_err());
    assert!(error.contains("log.csv") && error.contains("line: 2"), "{error}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), broken);
}

#[test]
fn resuming_a_finished_run_changes_nothing() {
    let out = tempfile::tempdir().unwrap();
    finish(&spec(), out.path());
    let files = ["log.csv", "eval.csv", TENSOR_FILE, "checkpoint/state.safetensors"];
    let before = files.map(|file| bytes(&out.path().join("diff"), file));
    assert_eq!(run(&spec(), out.path(), true, usize::MAX), TrainOutcome::Finished);
    assert!(before == files.map(|file| bytes(&out.path().join("diff"), file)));
}

#[test]
fn variants_of_one_kind_end_with_the_same_bytes() {
    // Same initial values, same documents in the same order, whatever the threads do meanwhile.
    let mut spec = spec();
    spec.variants[1].attention = "transformer".into();
    let out = tempfile::tempdir().unwrap();
    finish(&spec, out.path());
    let [a, b] = [0, 1].map(|i| out.path().join(&spec.variants[i].name));
    assert!(bytes(&a, TENSOR_FILE) == bytes(&b, TENSOR_FILE));
    assert_eq!(lines(&a.join("log.csv")), lines(&b.join("log.csv")));
    assert_eq!(lines(&a.join("eval.csv")), lines(&b.join("eval.csv")));
}

#[test]
fn variants_start_from_the_same_values_of_the_tensors_they_share() {
    let mut spec = spec();
    let second = spec.variants[1].clone();
    spec.variants.push(VariantSpec { name: "diff-v2".into(), attention: "diff-v2".into(), ffn: Some(38), ..second });
    let configs = spec.configs_of(1024).unwrap();
    let [standard, v1, v2] = [0, 1, 2].map(|i| variables(&configs[i], 3).unwrap());
    for (name, var) in &standard {
        assert_eq!(values(var), values(&v1[name]), "{name}");
        if !name.contains("mlp") && !name.contains("q_proj") {
            assert_eq!(values(var), values(&v2[name]), "{name}");
        }
    }
    let q_proj = "model.layers.1.self_attn.q_proj.weight";
    let (narrow, wide) = (values(&standard[q_proj]), values(&v2[q_proj]));
    assert_eq!(narrow, wide[..narrow.len()], "the doubled query projection starts with the single one");
    let other = variables(&configs[0], 4).unwrap();
    assert_ne!(values(&standard[q_proj]), values(&other[q_proj]), "another seed, other values");
}

#[test]
fn a_batch_depends_on_the_seed_and_the_number_of_its_first_document_alone() {
    let spec = spec();
    let inputs = |seed: u64, rows: usize, first: u64| {
        let stage = Stage { step_tok: rows * spec.stages[1].ctx_tok, ..spec.stages[1].clone() };
        DataSource::new(seed, Tokenizer::embedded()).batch(&stage, &spec.loss, first).unwrap().inputs
    };
    let four = inputs(1, 4, 10);
    assert_eq!(four, [inputs(1, 2, 10), inputs(1, 2, 12)].concat());
    assert_ne!(four, inputs(2, 4, 10));
    assert!(four.iter().all(|row| row.len() == 128));
}

#[test]
fn a_batch_weighs_its_targets_by_what_they_are() {
    let mut spec = spec();
    spec.stages[1].data.exam = 0.5;
    let source = DataSource::new(1, Tokenizer::embedded());
    let word = |id: u32| Tokenizer::embedded().decode(&[id]).unwrap().trim().to_owned();
    let mut seen = [0; 3];
    for first in 0..20 {
        let batch = source.batch(&spec.stages[1], &spec.loss, 2 * first).unwrap();
        let next = |row: usize, t: usize| batch.inputs[row][t + 1];
        assert!((0..2).all(|row| (0..127).all(|t| batch.targets[row * 128 + t] == next(row, t))));
        for ((&target, &kind), &weight) in batch.targets.iter().zip(&batch.kinds).zip(&batch.weights) {
            let (slot, want) = match kind {
                TargetKind::Text => (0, 1.0),
                TargetKind::NewDigit => (1, 0.5),
                TargetKind::Recall(_) => (2, 2.0),
            };
            let word = word(target);
            assert_eq!((word.parse::<u8>().is_ok(), weight), ([1, 2].contains(&slot), want), "{kind:?} {word}");
            seen[slot] += 1;
        }
    }
    assert!(seen.iter().all(|&n| n > 0), "{seen:?}");
}

#[test]
fn variants_more_than_a_percent_apart_are_refused_by_name() {
    let mut spec = spec();
    spec.variants[1].ffn = Some(60);
    let error = spec.configs_of(1024).unwrap_err();
    let message = format!("{error:#}");
    assert_eq!(exit_code(&error), 2);
    assert!(message.contains("transformer ") && message.contains("diff ") && message.contains("ffn"), "{message}");
    let out = tempfile::tempdir().unwrap();
    let (stop, folder) = (AtomicBool::new(false), out.path().join("run"));
    let progress = StopAfter::new(0, &stop);
    assert!(train(&spec, &folder, false, &stop, &progress).is_err());
    assert!(!folder.exists(), "nothing is written for a spec that is refused");
}

/// A spec with one thing changed is refused as a usage error, on one line that names the file and `says`.
#[track_caller]
fn refused(from: &str, to: &str, says: &str) {
    assert!(SPEC.contains(from), "{from}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spec.toml");
    std::fs::write(&path, SPEC.replacen(from, to, 1)).unwrap();
    let error = TrainSpec::read(&path).expect_err(to);
    let message = format!("{error:#}");
    assert_eq!(exit_code(&error), 2, "{message}");
    assert!(!message.contains('\n') && message.contains("spec.toml") && message.contains(says), "{message}");
}

#[test]
fn a_spec_with_unknown_keys_or_broken_toml_is_refused_on_one_line() {
    refused("rate = 1e-2", "rate = 1e-2\nlearning_rate = 1e-2", "learning_rate");
    refused("width = 32", "width = 32\ndropout = 0.1", "dropout");
    refused("exam = 0.0,", "exam = 0.0, exams = 0.0,", "exams");
    refused("attention = \"diff\"", "attention = \"diff-v3\"", "diff-v3");
    refused("attention = \"diff\"", "attention = { preset = \"diff\", maps = 3 }", "maps is 3");
    refused("attention = \"diff\"", "attention = { preset = \"diff\", norms = \"none\" }", "norms");
    refused("[model]", "[model", "");
    refused("seed = 3", "seed = three", "");
    refused("seed = 3\n", "", "seed");
    refused("seed = 3\n", "seed = 3\nseeds = [3]\n", "seed and seeds");
    refused("seed = 3\n", "seeds = []\n", "seeds");
    refused("seed = 3\n", "seeds = [1, 2, 1]\n", "1 is given twice");
    refused("seed = 3\n", "seeds = [1, 4294967296]\n", "4294967296");
}

#[test]
fn a_spec_whose_numbers_do_not_fit_is_refused() {
    refused("step_tok = 256", "step_tok = 100", "100 is not a multiple of ctx_tok 64");
    refused("ctx_tok = 64", "ctx_tok = 0", "ctx_tok");
    refused("ctx_tok = 128\ntokens", "ctx_tok = 256\ntokens", "exceeds model.max_ctx_tok 128");
    refused("heads = 4", "heads = 5", "heads");
    refused("heads = 4", "heads = 4\nkv_heads = 3", "kv_heads");
    refused("name = \"diff\"", "name = \"transformer\"", "same name");
    refused("name = \"diff\"", "name = \"../diff\"", "../diff");
    refused("heads = 4", "heads = 0", "heads");
    refused("attention = \"diff\"", "attention = \"diff\"\nheads = 0", "variant diff: heads");
    refused("attention = \"diff\"", "attention = \"diff\"\nheads = 3", "variant diff: num_key_value_heads 3");
    refused("attention = \"diff\"", "attention = \"diff\"\nembedding_deviation = -1", "embedding_deviation -1");
    refused("attention = \"diff\"", "attention = \"diff\"\nrate = 0", "variant diff: rate 0");
    refused("head_dim = 8", "head_dim = 7", "(head_dim)");
    refused("heads = 4", "heads = 4\nkv_heads = 1", "variant diff: num_key_value_heads 1 is odd");
    refused("clip = 1.0", "clip = 0.0", "clip");
    refused("rate = 1e-2", "rate = -1e-2", "rate -0.01");
    refused("rate = 1e-2", "rate = inf", "rate inf");
    refused("beta1 = ", "beta1 = 1", "beta1 1");
    refused("first_digit = ", "first_digit = -", "first_digit -");
    refused("[[stage]]\n", "[[stage]]\ncycle_rate = 1e-3\n", "the first one has a cycle_rate");
    refused("log_every_tok = 1024", "log_every_tok = 0", "log_every_tok");
    refused("tokens = 3072", "tokens = 200", "200 tokens are less than one step of 256");
    refused("synthetic = 0.5 }\n\n[watch]", "synthetic = 5.0 }\n\n[watch]", "synthetic = 5");
}

#[test]
fn a_gradient_that_is_not_finite_stops_training_before_it_reaches_the_parameters() {
    let config = config(preset("transformer"), 4, 4);
    let vars = variables(&config, 1).unwrap();
    let (name, broken) = vars.iter().next().unwrap();
    let rest = vars.values().map(|var| var.sum_all().unwrap()).reduce(|a, b| (a + b).unwrap()).unwrap();
    // d/dx sqrt(x) at 0 is infinite, though the loss is not.
    let zero = (broken.as_tensor() - broken.as_detached_tensor()).unwrap();
    let loss = (rest + zero.sqrt().unwrap().sum_all().unwrap()).unwrap();
    assert!(loss.to_scalar::<f32>().unwrap().is_finite());
    let before = values(broken);
    let mut optimizer = AdamW::new(&vars, &spec().optimizer);
    let mut gradients = Gradients::new();
    optimizer.collect(&loss.backward().unwrap(), &mut gradients).unwrap();
    let error = optimizer.update(&gradients, 1e-3).unwrap_err();
    assert!(error.to_string().contains("gradient norm"), "{error}");
    assert_eq!(values(broken), before, "{name}");
}

#[test]
fn the_spec_of_the_embedded_models_is_valid_and_matched() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/study-b-models.toml");
    let configs = TrainSpec::read(&path).unwrap().configs().unwrap();
    let names: Vec<&str> = configs.iter().map(|config| config.variant.name()).collect();
    assert_eq!(names, ["transformer", "diff", "diff-no-norm", "diff-v2"]);
    assert!(configs.iter().all(|config| (900_000..4_000_000).contains(&config.parameters())));
    assert!(configs.iter().all(|config| config.max_ctx_tok == 4096));
}

#[test]
fn a_missing_spec_is_named() {
    let error = TrainSpec::read(Path::new("no/such/spec.toml")).unwrap_err();
    assert!(format!("{error:#}").contains("no/such/spec.toml"));
}
