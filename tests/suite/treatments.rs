//! Treated passes of whole models: decoding against whole passes, both against the dense reference, and from outside.

use crate::common::{assert_close, assert_drawn, edit_tensor, fixture, Scratch};
use crate::dense::Dense;
use crate::generate::{cases, load, splits};
use candle_core::{Device, Tensor};
use difftool::results::record::Record;
use engine::attention::{Attend, KeyRemoval, OutputReplacement, ResolvedTreatment, Stream};
use engine::model::generate::Decoder;
use engine::model::Transformer;
use names::condition::{Format, Quantised, Quantiser, Removal, Scope};
use names::{HeadPlace, LayersAndHeads};
use std::collections::BTreeMap;

/// Logits of a whole pass: (T, W).
fn whole(model: &Transformer, ids: &[u32], attend: &mut dyn Attend) -> Tensor {
    let hidden = model.hidden(&[ids.to_vec()], attend).unwrap();
    model.logits(&hidden).unwrap().get(0).unwrap()
}

/// Some of everything that can be done to a text of `t` tokens, for heads that write `width` channels.
pub(crate) fn treatments(t: usize, width: usize) -> Vec<(&'static str, ResolvedTreatment)> {
    let removed = |how, rows, keys: Vec<std::ops::Range<usize>>| KeyRemoval {
        how,
        of: LayersAndHeads { layers: None, heads: Some(vec![0]) },
        rows,
        keys,
    };
    let masked = vec![removed(Removal::Mask, t / 3..usize::MAX, vec![0..3, 5..9, t - 4..usize::MAX])];
    let silenced = vec![removed(Removal::Silence, t / 2..usize::MAX, vec![1..t / 3])];
    let replaced =
        |layer, head, output| OutputReplacement { layer, head, rows: vec![t / 4..t / 3, t / 2..usize::MAX], output };
    let replaced = vec![replaced(0, 1, vec![0.25; width]), replaced(1, 0, Vec::new())];
    let sinks: BTreeMap<_, _> =
        [(0, vec![0, 2]), (1, vec![t - 6])].map(|(i, keys)| (HeadPlace { layer: i, head: i }, keys)).into();
    let logits = Quantiser {
        of: Quantised::Logits,
        format: Format::Int(6),
        scope: Scope::Row,
        smooth: false,
        rotate: false,
        exempt_sinks: true,
        layers: None,
    };
    // A scale per token does not depend on later ones.
    let (of, format, scope) = (Quantised::Qk, Format::Int(8), Scope::Token);
    let qk = Quantiser { of, format, scope, rotate: true, ..logits.clone() };
    // Nor does the mean of the keys matter with many bits.
    let format = Format::Int(16);
    let (smooth, layers) = (true, Some(vec![1]));
    let smooth_qk = Quantiser { of, format, scope, smooth, exempt_sinks: false, layers, ..logits.clone() };
    let none = ResolvedTreatment::default;
    let quantised = |quantiser| ResolvedTreatment { quantisers: vec![quantiser], sinks: sinks.clone(), ..none() };
    vec![
        ("masked", ResolvedTreatment { removed: masked.clone(), ..none() }),
        ("silenced", ResolvedTreatment { removed: silenced.clone(), ..none() }),
        ("replaced", ResolvedTreatment { replaced: replaced.clone(), ..none() }),
        ("quantised", quantised(logits.clone())),
        ("rounded q and k", quantised(qk)),
        ("rounded q and k less the mean", quantised(smooth_qk)),
        ("all", ResolvedTreatment { removed: [masked, silenced].concat(), replaced, ..quantised(logits) }),
    ]
}

/// Whether a number half-way between two codes may become either.
pub(crate) fn quantises(treated: &ResolvedTreatment) -> bool {
    !treated.quantisers.is_empty()
}

pub(crate) fn value_width(model: &Transformer) -> usize {
    model.config.wiring().value_slices() * model.config.head_dim
}

#[test]
fn a_treated_model_decodes_step_by_step_what_a_whole_treated_pass_gives() {
    for (name, model, texts) in cases() {
        let ids = &texts[0];
        for (what, treated) in treatments(ids.len(), value_width(&model)) {
            let want = whole(&model, ids, &mut Stream::new(&[]).treated(Some(&treated)));
            let largest = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            let tolerance = if quantises(&treated) { 2e-2 } else { 1e-5 } * f64::from(largest).max(1.0);
            for split in splits(&model, ids.len()) {
                let mut decoder = Decoder::new(&model).treated(Some(&treated));
                let mut next = decoder.read(&ids[..split]).unwrap();
                for at in split..=ids.len() {
                    let got = Tensor::from_vec(next, model.config.vocab, &Device::Cpu).unwrap();
                    let label = format!("{name}, {what}: {split}, {at}");
                    assert_close(&label, &got, &want.get(at - 1).unwrap(), tolerance);
                    let Some(id) = ids.get(at) else { break };
                    next = decoder.read(&[*id]).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_treated_pass_is_that_of_the_dense_reference_and_not_the_untreated_one() {
    for (name, model, texts) in cases() {
        let ids = &texts[0];
        let before = whole(&model, ids, &mut Stream::new(&[]));
        for (what, treated) in treatments(ids.len(), value_width(&model)) {
            let got = whole(&model, ids, &mut Stream::new(&[]).treated(Some(&treated)));
            let want = whole(&model, ids, &mut Dense { treated: treated.clone(), ..Dense::default() });
            let largest = want.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            let tolerance = if quantises(&treated) { 2e-2 } else { 1e-5 } * f64::from(largest).max(1.0);
            assert_close(&format!("{name}, {what}"), &got, &want, tolerance);
            let moved = (got - &before).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(moved > 0.0, "{name}, {what}: nothing was done");
        }
    }
}

#[test]
fn a_head_that_writes_nothing_is_a_head_whose_columns_of_the_output_projection_are_zero() {
    for name in ["llama_gqa_tied", "diffllama_gqa"] {
        let scratch = Scratch::new();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(fixture("transformers").join(name).join(file), scratch.path(file)).unwrap();
        }
        let model = load(scratch.folder());
        let (heads, width) = (model.config.wiring().heads(), value_width(&model));
        edit_tensor(scratch.folder(), "model.layers.1.self_attn.o_proj.weight", |weight| {
            for row in weight.chunks_exact_mut(heads * width) {
                row[width..2 * width].fill(0.0);
            }
        });
        let replaced = vec![OutputReplacement { layer: 1, head: 1, rows: vec![0..usize::MAX], output: Vec::new() }];
        let treated = ResolvedTreatment { replaced, ..ResolvedTreatment::default() };
        let ids: Vec<u32> = (0..30).map(|i| (i * 7 + 3) % model.config.vocab as u32).collect();
        let got = whole(&model, &ids, &mut Stream::new(&[]).treated(Some(&treated)));
        let want = whole(&load(scratch.folder()), &ids, &mut Stream::new(&[]));
        assert_close(name, &got, &want, 1e-6);
    }
}

const FILE: &str = r#"
command = "needle"

[run]
model = ["transformer", "diff"]
condition = ["mask(needle+answer)", "silence(needle+answer)", "mask(random:5)", "ablate(all)", "ablate(best:2:share_out)"]

[prompts]
ctx = ["256"]
needles = [1]
depths = [0.0, 50.0, 100.0]
samples = 3
seed = 4
"#;

/// The mean of a metric of a model under a condition.
fn mean(records: &[Record], model: &str, condition: Option<&str>, metric: &str) -> f64 {
    let of = |r: &&Record| {
        r.identity.model == model && r.identity.condition.as_deref() == condition && r.measure.metric == metric
    };
    let values: Vec<f64> = records.iter().filter(of).filter_map(|record| record.measure.value).collect();
    assert!(!values.is_empty(), "{model}, {condition:?}, {metric}");
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn a_model_that_cannot_see_the_needle_cannot_name_the_number() {
    let scratch = Scratch::new();
    scratch.write("x.toml", FILE.replace("[run]", "generate = true\nmax-new = 8\n[run]"));
    scratch.stdout(["run", "x.toml", "-q", "--out", "run"]);
    let records = scratch.records("run");
    for model in ["transformer", "diff"] {
        let of = |condition, metric| mean(&records, model, condition, metric);
        for (accuracy, log_prob) in [("accuracy", "answer_log_prob"), ("generated_accuracy", "answer_log_prob")] {
            assert!(of(None, accuracy) > 0.6, "{model} finds numbers: {}", of(None, accuracy));
            for condition in ["mask(needle+answer)", "silence(needle+answer)", "ablate(all)"] {
                assert_eq!(of(Some(condition), accuracy), 0.0, "{model}, {condition}, {accuracy}");
                assert!(of(Some(condition), log_prob) < of(None, log_prob) - 4.0, "{model}, {condition}");
            }
            assert!(of(Some("mask(random:5)"), accuracy) > 0.5, "{model} does without five words");
        }
        // What is measured is the treated row.
        let most = |metric: &str, region: &str, condition: Option<&str>| {
            let of = |r: &&Record| {
                let (id, m) = (&r.identity, &r.measure);
                id.model == model
                    && id.condition.as_deref() == condition
                    && (&*m.metric, m.region.as_deref(), m.layer) == (metric, Some(region), None)
            };
            records.iter().filter(of).filter_map(|r| r.measure.value).reduce(f64::max)
        };
        let [masked, silenced] = [Some("mask(needle+answer)"), Some("silence(needle+answer)")];
        let share = |condition| most("share_abs", "answer", condition).unwrap();
        assert!(share(None) > 0.05 && share(masked) == 0.0 && share(silenced) == 0.0);
    }
}

#[test]
fn conditions_of_a_run_are_paired_by_name_and_do_not_depend_on_threads_or_interruptions() {
    let scratch = Scratch::new();
    scratch.write("x.toml", FILE);
    scratch.stdout(["run", "x.toml", "-q", "--out", "one", "--threads", "1"]);
    scratch.stdout(["run", "x.toml", "-q", "--out", "three", "--threads", "3"]);
    let csv = |run: &str| scratch.read(format!("{run}/results.csv"));
    assert_eq!(csv("one"), csv("three"));
    for shard in ["1/2", "2/2"] {
        scratch.stdout(["run", "x.toml", "-q", "--out", &shard.replace('/', "of"), "--shard", shard]);
    }
    scratch.stdout(["merge", "1of2", "2of2", "-q", "--out", "merged"]);
    assert_eq!(csv("one"), csv("merged"));
    let compared = scratch.stdout(["compare", "one", "--by", "condition", "--where", "model=diff", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&compared).unwrap();
    let others: Vec<&str> = json["pairings"].as_array().unwrap().iter().map(|p| p["other"].as_str().unwrap()).collect();
    assert!(others.contains(&"condition=mask(needle+answer)") && others.len() == 5, "{others:?}");
}

#[test]
fn conditions_that_cannot_be_are_usage_errors_that_name_what_can() {
    let scratch = Scratch::new();
    let with = |condition: &str| {
        let first = FILE.find("condition = ").unwrap();
        let last = first + FILE[first..].find('\n').unwrap();
        let text = format!("{}condition = [{condition:?}]{}", &FILE[..first], &FILE[last..]);
        scratch.write("x.toml", text);
    };
    for (condition, words) in [
        ("mask(fillers)", &["x.toml, line 6", "`fillers` is not a region", "filler, distractor, needle"][..]),
        ("ablate(4.0)", &["there is no head 4.0; transformer has heads 0.0 to 3.7"]),
        ("mask(noise, layers=9)", &["layers=9", "transformer has layers 0 to 3"]),
        ("ablate(1.7)", &["there is no head 1.7; diff has heads 0.0 to 3.3"]),
        ("ablate(best:3:beauty)", &["`beauty` is not a ranking, expected one of cost, share_out, share_abs"]),
    ] {
        with(condition);
        scratch.refuses(["run", "x.toml", "--out", "run"], words);
        assert!(!scratch.exists("run"), "{condition}");
    }
}

#[test]
fn what_hiding_a_region_changes_is_what_its_condition_changes_to_the_bit() {
    let scratch = Scratch::new();
    let hidden = ["noise", "distractor", "filler"];
    let conditions = hidden.map(|region| format!("mask({region})"));
    let flags = ["needle", "--needles", "4", "--ctx", "300", "--samples", "2", "--depths", "0,60", "--out", "run"];
    let text = scratch.stdout(flags);
    assert!(text.contains("noise, nats") && text.contains("other needles, nats"), "{text}");
    let alone = scratch.records("run");
    let treated: Vec<&str> = conditions.iter().flat_map(|condition| ["--condition", condition]).collect();
    scratch.stdout([&flags[..10], &["treated", "-q"], &treated[..]].concat());
    let records = scratch.records("treated");
    let numbers = |records: &[Record], metric: &str, condition: Option<&str>, region: Option<&str>| -> Vec<f64> {
        let of = |record: &&Record| {
            let (id, measure) = (&record.identity, &record.measure);
            &*measure.metric == metric && id.condition.as_deref() == condition && measure.region.as_deref() == region
        };
        records.iter().filter(of).map(|record| record.measure.value.unwrap()).collect()
    };
    for (region, condition) in hidden.iter().zip(&conditions) {
        for (hidden, of) in [("hidden_log_prob", "answer_log_prob"), ("hidden_accuracy", "accuracy")] {
            let found = numbers(&records, hidden, None, Some(region));
            assert_eq!(found, numbers(&alone, hidden, None, Some(region)));
            let under = numbers(&records, of, Some(condition), None);
            let changes = under.iter().zip(numbers(&records, of, None, None)).map(|(hidden, seen)| hidden - seen);
            assert_eq!(found, changes.collect::<Vec<f64>>(), "{of}, {region}");
            assert_eq!(found.len(), 3 * 4 * 2, "three models, four prompts, two questions");
        }
    }
    // A prompt without other needles has none to hide.
    let one = ["needle", "--model", "diff", "--ctx", "256", "--needles", "1", "--samples", "1", "--out", "one", "-q"];
    scratch.stdout(one);
    let one = scratch.records("one");
    let count = |region| numbers(&one, "hidden_log_prob", None, Some(region)).len();
    assert_eq!(hidden.map(count), [5, 0, 5]);
}

#[test]
fn ablate_says_what_noise_and_heads_cost_with_figures_numbers_and_words() {
    let scratch = Scratch::new();
    let flags = ["--ctx", "256", "--samples", "6", "--depths", "0,100", "--knock-out", "2", "-q"];
    let text = scratch.stdout([&["ablate", "--out", "run", "--tables", "all"], &flags[..]].concat());
    for words in [
        "mask(random:noise)",
        "silence(noise)",
        "mask(noise, layers=3)",
        "Costs of conditions",
        "best - random, nats",
        "diff - transformer",
        "silence(bos+first)",
        "cost",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let manifest = scratch.read("run/manifest.json");
    assert!(manifest.contains("conditions.png") && manifest.contains("heads-out.png"));
    // The same experiment from its file, with the numbers behind the words.
    let json = scratch.stdout(["run", "run/experiment.toml", "--out", "again", "--json", "-q"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let heads = json["heads-out"].as_array().unwrap();
    assert_eq!(heads.len(), 3, "one for each model");
    assert_eq!((&heads[0]["n"], &heads[0]["draws"]), (&2.into(), &3.into()));
    let csv = |run: &str, file: &str| std::fs::read_to_string(scratch.path(run).join(file)).unwrap();
    assert_eq!(csv("run", "results.csv"), csv("again", "results.csv"));
    let lost = json["conditions"].as_array().unwrap().iter().find(|c| c["condition"] == "mask(needle+answer)").unwrap();
    assert!(lost["answer_log_prob_change"]["hi"].as_f64().unwrap() < 0.0);
    // Which heads were the best, whichever are measured.
    let rankings = csv("run", "rankings.csv");
    scratch.stdout([&["ablate", "--layers", "1", "--heads", "0", "--out", "part"], &flags[..]].concat());
    assert_eq!(csv("part", "rankings.csv"), rankings);
    let of_diff = rankings.lines().filter_map(|line| line.strip_prefix("diff,cost,"));
    let scores: Vec<f64> = of_diff.map(|line| line.rsplit(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(scores.len() == 16 && scores.is_sorted_by(|a, b| a >= b) && scores[0] > scores[15], "{rankings}");
    // A report of the folder has the same tables.
    let report = scratch.stdout(["report", "run", "--format", "markdown"]);
    assert!(report.contains("### Costs of conditions") && report.contains("### Heads taken out"));
}

#[test]
fn a_cell_of_flow_is_what_its_condition_costs() {
    let scratch = Scratch::with(&["transformer"]);
    let flags = ["ablate", "--parts", "flow", "--model", "./transformer", "--ctx", "192", "--samples", "2"];
    scratch.stdout([&flags[..], &["--out", "run", "-q"]].concat());
    let json: serde_json::Value = serde_json::from_str(&scratch.stdout(["show", "run", "--json"])).unwrap();
    let rows = json["flow"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| &row["rows"]).collect::<Vec<_>>(),
        ["needle", "value", "context", "asking", "answer"]
    );
    let mut cells = 0;
    for row in rows {
        for keys in ["bos+first", "filler", "distractor", "needle", "answer", "question"] {
            let scope = if row["rows"] == "answer" {
                String::new()
            } else {
                format!(", rows={}", row["rows"].as_str().unwrap())
            };
            let name = format!("silence({keys}{scope})");
            let condition = json["conditions"].as_array().unwrap().iter().find(|of| of["condition"] == *name);
            assert_eq!(
                row[keys],
                condition.map_or(serde_json::Value::Null, |of| of["answer_log_prob_change"].clone()),
                "{name}"
            );
            cells += usize::from(condition.is_some());
        }
    }
    assert_eq!(cells, 20);
    assert_drawn(&scratch.path("run/flow.png"), "--parts flow");
    assert!(!scratch.exists("run/conditions.png"), "all conditions are in the grid");
}

#[test]
fn every_part_of_ablate_prints_a_table_of_its_subject() {
    let scratch = Scratch::with(&["transformer"]);
    let parts = [
        ("noise", &["Costs of conditions"][..]),
        ("layers", &["Costs of conditions"]),
        ("heads", &["Heads taken out"]),
        ("each-head", &["Cost of each head", "Prediction of the cost of heads"]),
        ("each-layer", &["Costs of conditions"]),
        ("flow", &["Where the answer travels", "Costs of conditions"]),
        ("patch", &["Costs of conditions"]),
        ("patch-each-head", &["Answer carried by each head", "Prediction of what heads carry"]),
    ];
    let cli = difftool::commands::command_line();
    let mut flags = cli.find_subcommand("ablate").unwrap().get_arguments();
    let values = flags.find(|flag| flag.get_id() == "parts").unwrap().get_possible_values();
    assert!(values.iter().map(|value| value.get_name()).eq(parts.iter().map(|(part, _)| *part)));
    for (part, titles) in parts {
        let out = format!("{part}-run");
        let flags = ["ablate", "--model", "./transformer", "--ctx", "192", "--samples", "2", "--depths", "0,50,100"];
        scratch.stdout([&flags[..], &["--parts", part, "--out", &out, "-q"]].concat());
        let text = scratch.stdout(["show", &out, "--tables", "all"]);
        let report = scratch.stdout(["report", &out, "--format", "markdown"]);
        for title in titles {
            assert!(text.contains(title), "{part}, {title}: {text}");
            assert!(report.contains(&format!("### {title}")), "{part}, {title}: {report}");
        }
    }
}
