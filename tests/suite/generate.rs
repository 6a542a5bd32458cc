//! Decoding with a memory against whole forward passes, for every family and variant, and `--generate` from outside.

use crate::common::{self, assert_close, attention_variants, fixture, normal, tiny_model, AttentionCase};
use crate::dense::Dense;
use candle_core::{DType, Device, Tensor};
use engine::attention::{Alibi, Attend, Cached, Heads, LogitRule, Stream};
use engine::model::generate::{generate, Decoder, StopConditions, StopReason};
use engine::model::open;
use engine::model::{Checkpoint, ModelConfig, Transformer};
use std::path::Path;
use text::Tokenizer;

/// A model and texts for it: label, model, ids.
pub(crate) type Case = (String, Transformer, Vec<Vec<u32>>);

/// Every folder of tests/fixtures/transformers, and tiny models of the differential variants.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(fixture("transformers")).unwrap() {
        let dir = entry.unwrap().path();
        let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
        let ids = expected["input_ids"].to_dtype(DType::U32).unwrap().to_vec2().unwrap();
        cases.push((dir.file_name().unwrap().to_str().unwrap().to_owned(), load(&dir), ids));
    }
    assert!(cases.len() >= 27, "{}", cases.len());
    let scratch = Scratch::new();
    for variant in ["diff", "diff-v2", "diff-scalar"] {
        let dir = scratch.path(variant);
        tiny_model(&dir, variant);
        let ids = (0..40).map(|i| (i * 97 + 5) % 1024).collect();
        cases.push((variant.to_owned(), load(&dir), vec![ids]));
    }
    cases
}

pub(crate) fn load(dir: &Path) -> Transformer {
    let config = ModelConfig::read(&dir.join("config.json")).unwrap();
    Transformer::load(&config, Checkpoint::open(dir).unwrap().load(&config).unwrap()).unwrap()
}

/// Logits of a whole pass: (T, W).
fn whole(model: &Transformer, ids: &[u32]) -> Tensor {
    let hidden = model.hidden(&[ids.to_vec()], &mut Stream::new(&[])).unwrap();
    model.logits(&hidden).unwrap().get(0).unwrap()
}

/// Where prompts end: at the first token, around windows, and before the last token.
pub(crate) fn splits(model: &Transformer, tokens: usize) -> Vec<usize> {
    let windows = model.config.layers.iter().filter_map(|layer| layer.rule.window);
    let mut splits: Vec<usize> = windows.flat_map(|window| [window - 1, window, window + 1]).collect();
    splits.extend([1, tokens / 2, tokens - 1]);
    splits.retain(|&split| (1..tokens).contains(&split));
    splits.sort_unstable();
    splits.dedup();
    splits
}

#[test]
fn decoding_step_by_step_gives_the_bits_of_a_whole_pass() {
    let mut windows = 0;
    for (name, model, texts) in cases() {
        for ids in texts {
            let want = whole(&model, &ids);
            for split in splits(&model, ids.len()) {
                windows += usize::from(model.config.layers.iter().any(|layer| layer.rule.window == Some(split)));
                let mut decoder = Decoder::new(&model);
                let mut next = decoder.read(&ids[..split]).unwrap();
                for at in split..=ids.len() {
                    let got = Tensor::from_vec(next, model.config.vocab, &Device::Cpu).unwrap();
                    assert_close(&format!("{name}: {split}, {at}"), &got, &want.get(at - 1).unwrap(), 0.0);
                    let Some(id) = ids.get(at) else { break };
                    next = decoder.read(&[*id]).unwrap();
                }
            }
        }
    }
    assert!(windows > 4, "prompts as long as a window were among them");
}

/// The token of the largest logit after `ids`.
fn greedy(model: &Transformer, ids: &[u32]) -> u32 {
    let last = whole(model, ids).get(ids.len() - 1).unwrap();
    last.argmax(0).unwrap().to_scalar().unwrap()
}

#[test]
fn greedy_generation_is_what_repeated_whole_passes_give() {
    for (name, model, texts) in cases() {
        let prompt = &texts[0][..texts[0].len() / 2];
        let until = StopConditions { max_new: 12, eos: &[], numbers: 0, digits: 0, one_line: false };
        let got = generate(&model, Tokenizer::embedded(), prompt, &until, None, None).unwrap();
        let mut want = prompt.to_vec();
        for _ in 0..12 {
            want.push(greedy(&model, &want));
        }
        assert_eq!(got.ids, want[prompt.len()..], "{name}");
        assert_eq!(got.stop, StopReason::MaxNew, "{name}");
    }
}

#[test]
fn generation_ends_at_an_end_token_and_at_the_end_of_the_context() {
    for (name, model, texts) in cases() {
        let prompt = &texts[0][..texts[0].len() / 2];
        let said = |model: &Transformer, max_new, eos: &[u32]| {
            let until = StopConditions { max_new, eos, numbers: 0, digits: 0, one_line: false };
            generate(model, Tokenizer::embedded(), prompt, &until, None, None).unwrap()
        };
        let long = said(&model, 8, &[]);
        let end = *long.ids.last().unwrap();
        let first = long.ids.iter().position(|&id| id == end).unwrap();
        let short = said(&model, 8, &[u32::MAX, end]);
        assert_eq!((&short.ids[..], short.stop), (&long.ids[..first], StopReason::Eos), "{name}");
        // The last token that is predicted stands behind the context.
        let full = said(&model.with_context(prompt.len() + 2), 8, &[]);
        assert_eq!((&full.ids[..], full.stop), (&long.ids[..3], StopReason::Context), "{name}");
    }
}

#[test]
fn every_layout_attends_from_its_memory_as_from_whole_maps() {
    let (t, d, prompt) = (23, 8, 6);
    let plain = LogitRule::plain(d);
    let rules = [
        plain,
        LogitRule { softcap: Some(0.7), ..plain },
        LogitRule { window: Some(5), ..plain },
        LogitRule { window: Some(1), scale: 0.3, ..plain },
        LogitRule { window: Some(5), alibi: Some(Alibi::Exact), ..plain },
        LogitRule { alibi: Some(Alibi::Exact), ..plain },
        LogitRule { window: Some(9), alibi: Some(Alibi::Rounded), ..plain },
        LogitRule { window: Some(9), softcap: Some(2.0), ..plain },
    ];
    for AttentionCase { label, wiring, query_heads, kv_heads, lambda, sink } in attention_variants(1, t) {
        let x = |heads: usize, seed| normal(&[1, t, heads, d], seed);
        let (q, k, v) = (x(query_heads, 1), x(kv_heads, 2), x(kv_heads, 3));
        let lambda = lambda.map(|shape| normal(&shape, 4));
        let sink = sink.then(|| normal(&[query_heads], 5));
        for rule in rules {
            let heads = |from: usize, tokens: usize| {
                let cut = |x: &Tensor| x.narrow(1, from, tokens).unwrap().contiguous().unwrap();
                let lambda = lambda.as_ref().map(|l| if l.dims().len() == 1 { l.clone() } else { cut(l) });
                Heads {
                    q: cut(&q),
                    k: cut(&k),
                    v: cut(&v),
                    lambda,
                    sink: sink.clone(),
                    gate: None,
                    wiring: &wiring,
                    rule,
                }
            };
            let want = Dense::default().attend(0, &heads(0, t)).unwrap();
            let mut cached = Cached::new(2);
            let mut got = vec![cached.attend(0, &heads(0, prompt)).unwrap()];
            got.extend((prompt..t).map(|at| cached.attend(0, &heads(at, 1)).unwrap()));
            assert_close(&format!("{label}, {rule:?}"), &Tensor::cat(&got, 1).unwrap(), &want, 1e-5);
        }
    }
}

#[test]
fn a_memory_takes_one_token_at_a_time_after_the_prompt() {
    let model = load(&fixture("transformers/llama_mha"));
    let mut decoder = Decoder::new(&model);
    decoder.read(&[1, 2]).unwrap();
    let error = decoder.read(&[3, 4]).unwrap_err();
    assert!(format!("{error:#}").contains("one token at a time"), "{error:#}");
    decoder.read(&[3]).unwrap();
}

#[test]
fn threads_change_no_bit_of_what_comes_next() {
    let model = open::load("diff-v2", open::LoadOptions::default()).unwrap().transformer;
    let ids: Vec<u32> = (0..700).map(|i| (i * 131 + 7) % 1024).collect();
    let logits = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut decoder = Decoder::new(&model);
            decoder.read(&ids[..690]).unwrap();
            ids[690..].iter().flat_map(|&id| decoder.read(&[id]).unwrap()).map(f32::to_bits).collect::<Vec<_>>()
        })
    };
    assert!(logits(1) == logits(3));
}

#[test]
fn end_tokens_are_read_from_the_folder() {
    let scratch = Scratch::new();
    tiny_model(scratch.folder(), "transformer");
    let name = scratch.folder().to_str().unwrap();
    let eos = || open::load(name, open::LoadOptions::default()).map(|model| model.eos_ids().to_vec());
    assert_eq!(eos().unwrap(), [1], "of config.json");
    let write = |text: &str| scratch.write("generation_config.json", text);
    write(r#"{"eos_token_id": [7, 9]}"#);
    assert_eq!(eos().unwrap(), [7, 9]);
    write(r#"{"temperature": 0.6}"#);
    assert_eq!(eos().unwrap(), [1]);
    write(r#"{"eos_token_id": "<eos>"}"#);
    assert!(format!("{:#}", eos().unwrap_err()).contains("eos_token_id is \"<eos>\""));
    write("{");
    assert!(format!("{:#}", eos().unwrap_err()).contains("generation_config.json: not JSON"));
    assert_eq!(open::load("diff", open::LoadOptions::default()).unwrap().eos_ids(), [1]);
}

/// `difftool` in a scratch folder with a tiny model in `model/`.
struct Scratch(common::Scratch);

impl Scratch {
    fn new() -> Self {
        let scratch = common::Scratch::new();
        tiny_model(&scratch.path("model"), "diff");
        Self(scratch)
    }

    /// `difftool needle --generate` on two short prompts; gives what it prints.
    #[track_caller]
    fn generate(&self, model: &str, args: &[&str]) -> String {
        let base = ["needle", "--model", model, "--ctx", "300", "--depths", "0,100", "--samples", "1"];
        self.stdout([&base[..], &["--generate"], args].concat())
    }

    fn lines(&self, run: &str) -> Vec<serde_json::Value> {
        let text = self.read(format!("{run}/generations.jsonl"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

common::is_scratch!(Scratch);

#[test]
fn what_a_model_says_is_scored_and_kept() {
    let scratch = Scratch::new();
    let stdout = scratch.generate("transformer", &["--needles", "2", "--out", "run"]);
    assert!(stdout.contains("generated accuracy %"), "{stdout}");
    let lines = scratch.lines("run");
    assert_eq!(lines.len(), 2);
    let records = scratch.records("run");
    for line in &lines {
        let text = line["text"].as_str().unwrap();
        let values: Vec<&str> = line["expected"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        assert_eq!((values.len(), line["retrieve"].as_u64(), line["ctx_tok"].as_u64()), (2, Some(2), Some(300)));
        let ids: Vec<u32> = line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        assert_eq!(Tokenizer::embedded().decode(&ids).unwrap(), text);
        let seed = line["seed"].as_u64();
        for (metric, field) in [("generated_accuracy", "exact"), ("generated_contains", "contains")] {
            let of_metric = records.iter().filter(|r| r.measure.metric == metric && r.identity.seed == seed);
            let found: Vec<bool> = of_metric.map(|record| record.measure.value == Some(1.0)).collect();
            let said: Vec<bool> = line[field].as_array().unwrap().iter().map(|hit| hit.as_bool().unwrap()).collect();
            assert_eq!(found, said, "{metric}");
        }
        // At this length the built-in model finds its needles.
        assert!(text.trim_start().starts_with(values[0]), "{text:?} for {values:?}");
    }
    let manifest = difftool::results::manifest::Manifest::read(&scratch.path("run/manifest.json")).unwrap();
    let output = manifest.outputs.iter().find(|output| output.file == "generations.jsonl").unwrap();
    assert_eq!((output.rows, &manifest.config["max_new"]), (Some(2), &serde_json::json!(48)));
}

#[test]
fn the_model_says_by_itself_what_it_was_scored_for() {
    let scratch = Scratch::new();
    scratch.generate("transformer", &["--needles", "1", "--out", "run"]);
    let records = scratch.records("run");
    let hits = |metric: &str| {
        let of = records.iter().filter(|record| record.measure.metric == metric);
        of.map(|record| (record.identity.seed, record.measure.value)).collect::<Vec<_>>()
    };
    assert_eq!(hits("accuracy"), hits("generated_accuracy"), "with one question the two are the same");
    assert!(!hits("accuracy").is_empty());
}

#[test]
fn generated_text_does_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let bytes = |out: &str, threads: &str| {
        scratch.generate("model", &["--needles", "2", "--out", out, "--threads", threads, "--max-new", "9"]);
        ["results.csv", "generations.jsonl"].map(|file| std::fs::read(scratch.path(out).join(file)).unwrap())
    };
    assert!(bytes("one", "1") == bytes("three", "3"));
    assert!(scratch.lines("one").iter().all(|line| line["ids"].as_array().unwrap().len() <= 9));
}

#[test]
fn text_is_generated_under_every_condition() {
    let scratch = Scratch::new();
    let conditions = ["--condition", "quantise(8, tensor)", "--condition", "quantise(4, tensor)"];
    scratch.generate("model", &[&["--needles", "2", "--max-new", "5", "--out", "run"], &conditions[..]].concat());
    let records = scratch.records("run");
    let generated: Vec<_> = records.iter().filter(|r| r.measure.metric == "generated_accuracy").collect();
    let with_bits = |bits| generated.iter().filter(|record| record.identity.bits == bits).count();
    assert!(with_bits(None) == 4 && with_bits(Some(4)) == 4, "two questions at each depth");
    let lines = scratch.lines("run");
    assert_eq!(lines.len(), 6, "one for each depth and condition");
    let treated = lines.iter().filter(|line| line["condition"] == "quantise(4, tensor)").count();
    assert_eq!(treated, 2);
}
