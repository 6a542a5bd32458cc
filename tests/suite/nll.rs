//! The binary from outside: `nll` on a tiny model of `transformers` with the logits that it has there, and on tiny
//! random models.

use crate::common::{self, fixture};
use candle_core::{DType, Device};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;

/// A scratch folder.
struct Scratch(common::Scratch);

/// A line of `tokens.csv`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
struct Token {
    model: String,
    sample: u64,
    text_position: usize,
    position: usize,
    token_id: u32,
    nll_nats: f64,
    ar_hit: u8,
}

impl Scratch {
    fn new() -> Self {
        Self(common::Scratch::new())
    }

    /// With a standard and a differential model.
    fn with_models() -> Self {
        Self(common::Scratch::with(&["transformer", "diff"]))
    }

    /// With `llama`, a model without a tokenizer. Gives ids and what `transformers` says about them: the NLL of every
    /// token but the first, in nats.
    fn with_llama() -> (Self, Vec<u32>, Vec<f64>) {
        let (scratch, from) = (Self::new(), fixture("transformers/llama_mha"));
        fs::create_dir(scratch.path("llama")).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(from.join(file), scratch.path("llama").join(file)).unwrap();
        }
        let expected: HashMap<_, _> =
            candle_core::safetensors::load(from.join("expected.safetensors"), &Device::Cpu).unwrap();
        let ids = expected["input_ids"].to_dtype(DType::U32).unwrap().to_vec2::<u32>().unwrap().remove(0);
        let logits = expected["logits"].to_dtype(DType::F64).unwrap().to_vec3::<f64>().unwrap().remove(0);
        // -log softmax, written out.
        let nll = |(i, logits): (usize, &Vec<f64>)| {
            logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[ids[i + 1] as usize]
        };
        let nll = logits[..ids.len() - 1].iter().enumerate().map(nll).collect();
        (scratch, ids, nll)
    }

    fn write_ids(&self, name: &str, ids: &[u32]) {
        self.write(name, ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }

    fn tokens(&self, run: &str) -> Vec<Token> {
        csv::Reader::from_path(self.path(run).join("tokens.csv")).unwrap().deserialize().map(Result::unwrap).collect()
    }
}

common::is_scratch!(Scratch);

const LLAMA: [&str; 5] = ["nll", "--ids", "ids.txt", "--model", "./llama"];
const BOTH: [&str; 5] = ["nll", "--model", "./transformer", "--model", "./diff"];

#[test]
fn every_token_of_ids_has_the_probability_that_transformers_gives_it() {
    let (scratch, ids, expected) = Scratch::with_llama();
    scratch.write_ids("ids.txt", &ids);
    let stdout = scratch.stdout([&LLAMA[..], &["--out", "run"]].concat());
    let tokens = scratch.tokens("run");
    assert_eq!(tokens.iter().map(|token| token.text_position).collect::<Vec<_>>(), (1..ids.len()).collect::<Vec<_>>());
    for (token, expected) in tokens.iter().zip(&expected) {
        assert_eq!((token.token_id, token.position), (ids[token.text_position], token.text_position));
        assert!((token.nll_nats - expected).abs() < 1e-4, "{token:?}: {expected} expected");
    }
    let mean = expected.iter().sum::<f64>() / expected.len() as f64;
    assert!(stdout.contains(&format!("{mean:.3}")), "{mean}: {stdout}");
    // It has none, so that only the table says what they are.
    assert!(!stdout.contains("AR hits"), "{stdout}");
    let table = scratch.stdout("show run --tables nll").replace('\n', " ");
    assert!(table.contains("at most 50 times in this text"), "{table}");
}

#[test]
fn sliding_windows_score_every_token_once_and_the_first_is_a_plain_pass() {
    let (scratch, ids, expected) = Scratch::with_llama();
    scratch.write_ids("ids.txt", &ids);
    scratch.write_ids("first.txt", &ids[..10]);
    scratch.stdout([&LLAMA[..], &["--ctx", "10", "--stride", "4", "--out", "sliding"]].concat());
    scratch.stdout(["nll", "--ids", "first.txt", "--model", "./llama", "--out", "plain"]);
    let (sliding, plain) = (scratch.tokens("sliding"), scratch.tokens("plain"));
    assert_eq!(sliding.iter().map(|token| token.text_position).collect::<Vec<_>>(), (1..ids.len()).collect::<Vec<_>>());
    assert_eq!(sliding[..9], plain[..]);
    for token in &sliding[9..] {
        assert_eq!(token.position, token.text_position - 4 * token.sample as usize, "window i begins at token 4 i");
        assert!((6..10).contains(&token.position), "context: {token:?}");
    }
    // Less context is another prediction.
    assert!((sliding[12].nll_nats - expected[12]).abs() > 1e-3);
}

#[test]
fn ar_hits_complete_a_bigram_of_their_own_window() {
    let (scratch, ..) = Scratch::with_llama();
    scratch.write("ids.txt", "1 2 3 1 2 4\n1 3 1 2");
    let hits = |out: &str, args: &[&str]| {
        scratch.stdout([&LLAMA[..], &["--out", out], args].concat());
        let hits = scratch.tokens(out).into_iter().filter(|token| token.ar_hit == 1);
        hits.map(|token| token.text_position).collect::<Vec<_>>()
    };
    assert_eq!(hits("whole", &[]), [4, 8, 9]);
    // In windows of 5, only the fifth token still sees its bigram.
    assert_eq!(hits("short", &["--ctx", "5", "--stride", "1"]), [4]);
    let records = scratch.records("whole");
    let of = |metric: &str| {
        let mut found = records.iter().filter(|record| record.measure.metric == metric);
        found.next().map(|record| (record.measure.value.unwrap(), record.measure.n.unwrap()))
    };
    assert_eq!(of("ar_hit_share"), Some((3.0 / 9.0, 9)));
    let (hit, other, all) = (of("nll_ar_hit").unwrap(), of("nll_other").unwrap(), of("nll").unwrap());
    assert_eq!((hit.1, other.1, all.1), (3, 6, 9));
    assert!(((3.0 * hit.0 + 6.0 * other.0) / 9.0 - all.0).abs() < 1e-12);
    assert_eq!(of("nll_pos_4_7").map(|(_, n)| n), Some(4));
}

#[test]
fn ids_that_cannot_be_scored_are_refused_with_their_file_and_line() {
    let (scratch, ..) = Scratch::with_llama();
    for (text, words) in [
        ("1 2\nx 4", "ids.txt, line 2: `x` is not a token id"),
        ("1 2 3\n4 131 5", "ids.txt, line 2: token id 131 is outside the vocabulary of llama, which has ids 0 to 130"),
        ("", "ids.txt, line 1: no token id"),
        ("7\n", "ids.txt has 1 token; it takes 2"),
    ] {
        scratch.write("ids.txt", text);
        scratch.fails(LLAMA, 2, &[words]);
    }
    scratch.write("ids.txt", "1 2 3 4 5 6 7 8");
    scratch.fails(
        [&LLAMA[..], &["--ctx", "4", "--stride", "4"]].concat(),
        2,
        &["windows of 4 tokens can slide by 1 to 3"],
    );
    assert!(!scratch.exists("runs"), "nothing was begun");
}

#[test]
fn a_text_needs_a_tokenizer() {
    let (scratch, ..) = Scratch::with_llama();
    scratch.write("text.txt", "The river is wide here.");
    scratch.fails(["nll", "--text", "text.txt", "--model", "./llama"], 1, &["tokenizer.json"]);
    scratch.fails(["nll", "--model", "./llama"], 1, &["tokenizer.json"]);
}

#[test]
fn models_are_compared_token_by_token_whatever_the_number_of_threads() {
    let scratch = Scratch::with_models();
    scratch.write("text.txt", "The river is wide here, and a boat goes by. Nobody waves from it. ".repeat(60));
    let args = |out| [&BOTH[..], &["--text", "text.txt", "--ctx", "128", "--out", out]].concat();
    let stdout = scratch.stdout([&args("one")[..], &["--threads", "1", "--tables", "all"]].concat());
    for heading in ["perplexity", "bits/byte", "diff - transformer", "AR hits", "By position", "cumulative NLL"] {
        assert!(stdout.contains(heading), "{heading} is missing: {stdout}");
    }
    let json = scratch.stdout([&args("three")[..], &["--threads", "3", "--json"]].concat());
    for file in ["results.csv", "tokens.csv", "cells.csv"] {
        let read = |run: &str| fs::read(scratch.path(run).join(file)).unwrap();
        assert!(read("one") == read("three"), "{file}");
    }
    let json: Value = serde_json::from_str(&json).unwrap();
    let tokens = scratch.tokens("one");
    for model in json["nll"].as_array().unwrap() {
        let of_model: Vec<&Token> = tokens.iter().filter(|token| token.model == model["model"]).collect();
        let mean = of_model.iter().map(|token| token.nll_nats).sum::<f64>() / of_model.len() as f64;
        assert_eq!(model["tokens"], of_model.len());
        assert!((model["nll_nats"]["value"].as_f64().unwrap() - mean).abs() < 1e-4, "{model}");
        assert!(model["nll_nats"]["lo"].as_f64().unwrap() < mean, "{model}");
        // With a begin-of-sequence token every token is scored.
        let places: Vec<usize> = of_model.iter().map(|token| token.text_position).collect();
        assert_eq!(places, (0..places.len()).collect::<Vec<_>>());
    }
    assert!(scratch.exists("one/nll.png"));
}

#[test]
fn the_beginning_of_a_window_counts_by_position_only() {
    let scratch = Scratch::with_models();
    let run = |args: &[&str]| {
        let args = [&BOTH[..], &["--ctx", "64", "--samples", "2", "--json"], args].concat();
        serde_json::from_str::<Value>(&scratch.stdout(&args)).unwrap()
    };
    let (all, some) = (run(&["--out", "all"]), run(&["--skip", "20", "--out", "some"]));
    let skip = |run: &str| {
        let manifest: Value = scratch.json(format!("{run}/manifest.json"));
        manifest["config"]["skip"].clone()
    };
    assert_eq!((skip("all"), skip("some")), (Value::from(0), Value::from(20)));
    let tokens = |json: &Value| json["nll"][0]["tokens"].as_u64().unwrap();
    assert_eq!(tokens(&all) - tokens(&some), 2 * 19, "two windows, of which the begin-of-sequence token is not scored");
    let by_position = |json: &Value| -> Vec<Value> {
        let rows = json["nll-positions"].as_array().unwrap();
        rows.iter().map(|row| serde_json::json!([row["model"], row["from"], row["tokens"], row["nll_nats"]])).collect()
    };
    assert_eq!(by_position(&all), by_position(&some));
    assert_ne!(all["nll-positions"], some["nll-positions"], "only the cumulative means differ");
    let of_model = |tokens: Vec<Token>| tokens.into_iter().filter(|t| t.model == "./transformer" && t.position >= 20);
    let kept: Vec<f64> = of_model(scratch.tokens("some")).map(|token| token.nll_nats).collect();
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    assert!((some["nll"][0]["nll_nats"]["value"].as_f64().unwrap() - mean).abs() < 1e-4);
}

#[test]
fn its_runs_can_be_compared_reported_and_made_from_files() {
    let scratch = Scratch::with_models();
    scratch.stdout([&BOTH[..], &["--ctx", "512", "--samples", "3", "--out", "run"]].concat());
    let compared = scratch.stdout(["compare", "run", "--by", "model"]);
    assert!(compared.contains("NLL of AR hits") && compared.contains("NLL of others"), "{compared}");
    let report = scratch.stdout(["report", "run", "--format", "markdown"]);
    assert!(report.contains("NLL of AR hits"), "{report}");
    let quantised = [&BOTH[..], &["--ctx", "512", "--samples", "3", "--condition", "quantise(4, row)"]].concat();
    let stdout = scratch.stdout([&quantised[..], &["--out", "bits"]].concat());
    // Of both models; the heading is broken where the page ends.
    assert_eq!(stdout.matches("quantise(4,").count(), 2, "{stdout}");
    let file = scratch.read("run/experiment.toml");
    assert!(!file.contains("stride"), "{file}");
    scratch.write("two.toml", file.replace("\"512\"", "\"256..512:256\""));
    scratch.fails(["run", "two.toml"], 2, &["windows of one length"]);
    scratch.write("texts.toml", file.replace("command", "text = \"a\"\nids = \"b\"\ncommand"));
    scratch.fails(["run", "texts.toml"], 2, &["--text and --ids exclude each other"]);
}
