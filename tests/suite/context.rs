//! `context`: what parts of a text give the answer, against an outside implementation on a real model, and against whole passes over
//! the shorter text.

use crate::common::{fixture, tiny_model, Scratch};
use crate::real_models::real;
use difftool::results::record::Record;
use engine::attention::{KeyRemoval, ResolvedTreatment, Stream};
use engine::model::open::{load, LoadOptions};
use engine::model::pass::pass;
use names::condition::Removal;
use names::metric::{ALONE, ANSWER_LOG_PROB, CONTEXT_FLOOR, GIVES, HARMS, LOG_PROB_WITHOUT, THROUGH_OTHERS};
use names::{segment_name, LayersAndHeads};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::fs;
use text::{Context, Kept, Segment};

/// Nats by which a number may be off that of torch.
const TOLERANCE: f64 = 1e-3;

const NUMBERS: &str =
    "The special magic Oslo number is: 48213. The harbour is old. The special magic Rome number is: 17040. \
                       A cat sleeps on the wall. It rains in spring.";

fn number(records: &[Record], metric: &str, region: Option<&str>) -> Option<f64> {
    let is = |record: &&Record| record.measure.metric == metric && record.measure.region.as_deref() == region;
    records.iter().find(is).and_then(|record| record.measure.value)
}

/// A question about the numbers, to a built-in model.
fn ask<'a>(text: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let question = "What is the special magic Rome number?";
    let lead = "The special magic Rome number is:";
    let fixed =
        ["context", "--model", "transformer", "--prompt", text, "--question", question, "--lead", lead, "--quiet"];
    [&fixed, more].concat()
}

#[test]
fn a_real_model_gives_the_numbers_of_torch() {
    let Some(model) = real("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let reference: Value = serde_json::from_slice(&fs::read(fixture("context.json")).unwrap()).unwrap();
    let mut worst: f64 = 0.0;
    for (name, of) in reference.as_object().unwrap() {
        let words = |key: &str| of[key].as_str().unwrap();
        let numbers = |key: &str| serde_json::from_value::<Vec<f64>>(of[key].clone()).unwrap();
        let segments: Vec<String> = serde_json::from_value(of["segments"].clone()).unwrap();
        let scratch = Scratch::new();
        let model = model.to_str().unwrap();
        let text = segments.join(" ");
        let args = [
            "--question",
            words("question"),
            "--lead",
            words("lead"),
            "--answer",
            words("answer"),
            "--quiet",
            "--out",
            "run",
        ];
        scratch.stdout([&["context", "--model", model, "--prompt", text.as_str()][..], &args].concat());
        let records = scratch.records("run");
        let mut check = |what: &str, got: Option<f64>, want: f64| {
            let off = (got.unwrap_or_else(|| panic!("{name}: no {what}")) - want).abs();
            assert!(off < TOLERANCE, "{name}, {what}: {got:?}, torch has {want}");
            worst = worst.max(off);
        };
        check("whole", number(&records, ANSWER_LOG_PROB.name, None), of["log_prob"].as_f64().unwrap());
        check("nothing", number(&records, LOG_PROB_WITHOUT.name, Some("all")), of["nothing"].as_f64().unwrap());
        let [deleted, hidden, alone] = ["deleted", "hidden", "alone"].map(numbers);
        for index in 0..segments.len() {
            let segment = segment_name(index);
            let of_segment = |metric: &str| number(&records, metric, Some(&segment));
            check(&format!("{segment} gives"), of_segment(GIVES.name), deleted[index]);
            check(&format!("{segment} alone"), of_segment(ALONE.name), alone[index]);
            check(
                &format!("{segment} through others"),
                of_segment(THROUGH_OTHERS.name),
                deleted[index] - hidden[index],
            );
        }
    }
    println!("largest difference from torch: {worst:.1e} nats");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// What a run takes out with the keys and values of the whole text equals a whole pass over the text that is left.
    #[test]
    fn without_a_segment_is_a_whole_pass_over_the_shorter_text(sentences in prop::collection::vec("[A-Z][a-z]{1,9}( [a-z]{1,7}){0,6}\\.", 2..6)) {
        let text = sentences.join("\n");
        let scratch = Scratch::new();
        let args = ["context", "--model", "diff", "--prompt", &text, "--question", "What is it?", "--answer", "17", "--split", "lines", "--quiet", "--out", "run"];
        scratch.stdout(args);
        let records = scratch.records("run");
        let model = load("diff", LoadOptions::default()).unwrap();
        let segments: Vec<Segment> = sentences
            .iter()
            .enumerate()
            .map(|(i, text)| Segment { before: if i == 0 { "" } else { "\n" }.into(), text: text.clone(), ..Segment::default() })
            .collect();
        let context = Context { question: "What is it?".into(), segments, ..Context::default() };
        let score = |kept: &[usize]| {
            let prompt = context.prompt(Kept { segments: kept, answer: "17" }, model.tokenizer().unwrap()).unwrap();
            pass(&model.transformer, &prompt, Stream::new(&[]), false).unwrap().queries[0].log_prob_nats
        };
        let all: Vec<usize> = (0..sentences.len()).collect();
        let whole = score(&all);
        prop_assert_eq!(number(&records, ANSWER_LOG_PROB.name, None), Some(whole));
        let nothing = score(&[]);
        for index in all.clone() {
            let rest: Vec<usize> = all.iter().copied().filter(|&other| other != index).collect();
            let segment = segment_name(index);
            prop_assert_eq!(number(&records, GIVES.name, Some(&segment)), Some(whole - score(&rest)));
            prop_assert_eq!(number(&records, ALONE.name, Some(&segment)), Some(score(&[index]) - nothing));
        }
    }
}

/// Keys that no later row sees.
fn hidden_from_later_rows(keys: std::ops::Range<usize>) -> ResolvedTreatment {
    let removal =
        KeyRemoval { how: Removal::Mask, of: LayersAndHeads::default(), rows: keys.end..usize::MAX, keys: vec![keys] };
    ResolvedTreatment { removed: vec![removal], ..ResolvedTreatment::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// What deletion is: no later row sees the segment, and positions close up. A model without positions has nothing to close.
    #[test]
    fn without_positions_deletion_is_hiding_from_all_later_rows(
        sentences in prop::collection::vec("[A-Z][a-z]{1,9}( [a-z]{1,7}){0,6}\\.", 2..6), out in 0..5usize
    ) {
        let scratch = Scratch::new();
        let folder = scratch.path("m");
        tiny_model(&folder, "transformer");
        scratch.edit_json("m/config.json", |config| {
            config["model_type"] = json!("smollm3");
            config["architectures"] = json!(["SmolLM3ForCausalLM"]);
            config["no_rope_layers"] = json!([0, 0]);
        });
        let model = load(folder.to_str().unwrap(), LoadOptions::default()).unwrap();
        let segment = |text: &String| Segment { before: "\n".into(), text: text.clone(), ..Segment::default() };
        let segments: Vec<Segment> = sentences.iter().map(segment).collect();
        let context = Context { question: "What is it?".into(), segments, ..Context::default() };
        let all: Vec<usize> = (0..sentences.len()).collect();
        let out = out % sentences.len();
        let rest: Vec<usize> = all.iter().copied().filter(|&other| other != out).collect();
        let [whole, shorter] = [&all, &rest].map(|segments| {
            context.prompt(Kept { segments, answer: "17" }, model.tokenizer().unwrap()).unwrap()
        });
        let keys = whole.segments[out].clone();
        prop_assert_eq!([&whole.ids[..keys.start], &whole.ids[keys.end..]].concat(), shorter.ids.clone());
        let log_prob = |prompt, treated| {
            let stream = Stream::new(&[]).treated(treated);
            pass(&model.transformer, prompt, stream, false).unwrap().queries[0].log_prob_nats
        };
        let treated = hidden_from_later_rows(keys);
        let hidden = log_prob(&whole, Some(&treated));
        let deleted = log_prob(&shorter, None);
        prop_assert!((hidden - deleted).abs() < 2e-5, "{hidden} hidden, {deleted} deleted");
        prop_assert_ne!(log_prob(&whole, None), deleted, "the segment says something");
    }
}

#[test]
fn the_sentence_with_the_answer_gives_most_and_the_page_and_the_screen_say_so() {
    let scratch = Scratch::new();
    let printed = scratch.stdout(ask(NUMBERS, &["--answer", "17040", "--out", "run"]));
    assert!(printed.lines().count() <= 24 && printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(printed.contains("gives “17040”") && printed.contains("3 The special magic Rome"), "{printed}");
    let records = scratch.records("run");
    let gives: Vec<f64> = (0..5).map(|i| number(&records, GIVES.name, Some(&segment_name(i))).unwrap()).collect();
    assert!(gives.iter().all(|nats| *nats <= gives[2]) && gives[2] > 3.0, "{gives:?}");
    let page = scratch.read("run/context.html");
    assert!(
        page.contains("The special magic Rome number is: 17040.")
            && page.contains("data-sign=\"gives\" data-shade=\"8\"")
    );
    let shown = scratch.stdout(["show", "run", "--tables", "segments,texts"]);
    assert!(shown.contains("17040") && shown.contains("through others"), "{shown}");
}

#[test]
fn without_an_answer_the_model_is_asked_for_its_own() {
    let scratch = Scratch::new();
    let printed = scratch.stdout(ask(NUMBERS, &["--out", "run"]));
    assert!(printed.contains("its own answer"), "{printed}");
    let contexts: Value = scratch.json("run/contexts.jsonl");
    assert_eq!(contexts["answers"], json!([]));
    assert!(!contexts["said"][0]["text"].as_str().unwrap().is_empty(), "{contexts}");
}

#[test]
fn of_two_equal_sentences_each_gives_little_and_is_much_alone() {
    let fact = "The special magic Rome number is: 17040.";
    let text = format!("{fact} It rains. {fact} A cat sleeps.");
    let scratch = Scratch::new();
    scratch.stdout(ask(&text, &["--answer", "17040", "--out", "run"]));
    let records = scratch.records("run");
    for segment in ["s1", "s3"] {
        let [gives, alone] = [&GIVES, &ALONE].map(|metric| number(&records, metric.name, Some(segment)).unwrap());
        assert!(alone > 3.0 && gives < alone / 2.0, "{segment}: {gives}, {alone}");
    }
}

#[test]
fn texts_of_all_kinds_have_numbers() {
    let scratch = Scratch::new();
    let many = "A cat sleeps on the wall. ".repeat(130);
    for (what, text, answer, split) in [
        ("one segment", "Only this.", "17040", "sentences"),
        ("nothing helps", "It rains. A cat sleeps.", "17040", "sentences"),
        ("an answer that is nowhere", NUMBERS, "99999", "sentences"),
        ("Chinese and Arabic", "河很宽。你看见船了吗？ هل ترى القارب؟ نعم.", "17040", "sentences"),
        ("many segments", &many, "17040", "sentences"),
    ] {
        let run = what.replace(' ', "-");
        scratch.stdout(ask(text, &["--answer", answer, "--split", split, "--out", &run]));
        let records = scratch.records(&run);
        assert!(records.iter().all(|record| record.measure.error.is_none()), "{what}");
        assert!(number(&records, CONTEXT_FLOOR.name, None).is_some_and(f64::is_finite), "{what}");
    }
    let groups = |records: &[Record]| {
        let is = |record: &&Record| record.measure.region.as_deref().is_some_and(|region| region.contains('-'));
        records.iter().filter(is).count()
    };
    assert_eq!(groups(&scratch.records("many-segments")), 11, "of 130 segments in groups of 12");
    assert_eq!(groups(&scratch.records("one-segment")), 0);
}

/// Questions with a right passage, one that says otherwise, and others.
pub(super) fn questions(n: usize) -> String {
    let mut lines = Vec::new();
    for i in 0..n {
        let number = 10_000 + 7919 * i % 80_000;
        lines.push(
            json!({
                "id": format!("q{i}"),
                "question": "What is the special magic Rome number?",
                "answers": [number.to_string()],
                "lead": "The special magic Rome number is:",
                "document": i / 2,
                "passages": [
                    {"text": "The harbour is old.", "gold": false},
                    {"text": format!("The special magic Rome number is: {number}."), "gold": true},
                    {"text": format!("The special magic Oslo number is: {}.", number + 3), "gold": false},
                ],
            })
            .to_string(),
        );
    }
    lines.join("\n")
}

#[test]
fn questions_of_a_file_have_intervals_and_models_are_paired() {
    let scratch = Scratch::new();
    scratch.write("rag.jsonl", questions(16));
    let args = [
        "context",
        "--questions-file",
        "rag.jsonl",
        "--model",
        "transformer",
        "--model",
        "diff",
        "--quiet",
        "--out",
        "run",
    ];
    let printed = scratch.stdout(args);
    assert!(printed.contains("16 questions, 48 passages") && printed.contains("right gives (nats)"), "{printed}");
    assert!(printed.lines().count() <= 24 && printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let records = scratch.records("run");
    let seeds: std::collections::BTreeSet<u64> = records.iter().filter_map(|record| record.identity.seed).collect();
    assert_eq!(seeds.len(), 8, "questions of one document count as one");
    assert!(number(&records, HARMS.name, None).is_some());
    // A run that was stopped and goes on has the same bytes.
    let shards = ["1/2", "2/2"].map(|shard| {
        let out = format!("shard-{}", &shard[..1]);
        scratch.stdout([&args[..7], &["--quiet", "--shard", shard, "--out", &out]].concat());
        out
    });
    scratch.stdout(["merge", &shards[0], &shards[1], "--out", "merged", "--quiet"]);
    assert_eq!(scratch.read("merged/results.csv"), scratch.read("run/results.csv"));
}

#[test]
fn several_answers_count_together_and_a_wrong_one_against_them() {
    let scratch = Scratch::new();
    scratch.stdout(ask(NUMBERS, &["--answer", "17040", "--answer", "48213", "--out", "both"]));
    scratch.stdout(ask(NUMBERS, &["--answer", "17040", "--out", "one"]));
    scratch.stdout(ask(NUMBERS, &["--answer", "17040", "--wrong", "48213", "--out", "contrast"]));
    let of = |run: &str, metric: &str, region: Option<&str>| number(&scratch.records(run), metric, region).unwrap();
    assert!(of("both", ANSWER_LOG_PROB.name, None) >= of("one", ANSWER_LOG_PROB.name, None));
    // The sentence of the wrong answer gives more against it than for the right one.
    assert!(of("contrast", GIVES.name, Some("s1")) < of("one", GIVES.name, Some("s1")));
}
