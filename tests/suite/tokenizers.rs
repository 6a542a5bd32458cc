//! Tokenizers of model folders: their special tokens and files, and those that make their library panic, hang or lie.

use crate::common::{vocab_and_merges, Scratch, NEEDLE};
use serde_json::{json, Value};
use std::fs;
use text::{SpecialTokens, Tokenizer, TokenizerOptions};

/// A tokenizer of two letters and one merge.
fn smallest() -> Value {
    json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "truncation": null, "padding": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    })
}

#[test]
fn a_tokenizer_that_makes_its_library_panic_is_an_error_that_names_it() {
    let bench = Scratch::with_model();
    let mut prefix = smallest();
    prefix["model"]["continuing_subword_prefix"] = json!("##");
    let mut charsmap = smallest();
    charsmap["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    let mut second = smallest();
    second["post_processor"] = json!({
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {},
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    });
    let no_json = smallest().to_string().replace(r#""decoder":null"#, r#""decoder":NaN"#);
    for tokenizer in [prefix.to_string(), charsmap.to_string(), second.to_string(), no_json] {
        bench.write("m/tokenizer.json", &tokenizer);
        bench.run("inspect m").refused(1, &["m/tokenizer.json"]);
    }
}

#[test]
fn a_tokenizer_that_panics_over_a_text_is_an_error_that_names_it() {
    let bench = Scratch::with_model();
    bench.edit_json("m/tokenizer.json", |tokenizer| {
        tokenizer["normalizer"] = json!({"type": "Prepend", "prepend": ""});
    });
    bench.run(format!("{NEEDLE} --model m --out out -q")).refused(1, &["m/tokenizer.json"]);
}

#[test]
fn a_tokenizer_that_makes_no_tokens_is_an_error_and_no_hang() {
    let bench = Scratch::with_model();
    let mut empty = smallest();
    empty["model"] = json!({"type": "BPE", "vocab": {}, "merges": []});
    bench.write("m/tokenizer.json", empty.to_string());
    for command in [NEEDLE, "nll --samples 1 --ctx 64"] {
        bench.run(format!("{command} --model m --out out -q")).refused(1, &["m/tokenizer.json", "no token"]);
    }
}

#[test]
fn offsets_beyond_the_text_are_an_error_that_names_the_tokenizer() {
    let bench = Scratch::with_model();
    bench.write("m/tokenizer.json", include_str!("../fixtures/repro/offsets-beyond-text.json"));
    bench.write("t.txt", "\u{65e5}\u{672c}\u{8a9e}\u{1f600}".repeat(40));
    for command in ["nll --text t.txt --ctx 33", "needle --ctx 1024 --samples 1 --needles 1 --depths 50"] {
        bench.run(format!("{command} --model m --out out -q")).refused(1, &["m/tokenizer.json", "offsets"]);
    }
}

/// A folder with the embedded tokenizer, of 1024 tokens, and these files.
fn folder(files: &[(&str, String)]) -> Scratch {
    let folder = Scratch::new();
    folder.write("tokenizer.json", &Tokenizer::embedded().json);
    for (name, text) in files {
        folder.write(name, text);
    }
    folder
}

fn open(folder: &Scratch, special: SpecialTokens) -> Result<Tokenizer, String> {
    let options = TokenizerOptions { special, ..TokenizerOptions::default() };
    Tokenizer::open(folder.folder(), &options).map_err(|error| format!("{error:#}"))
}

const TURNS: &str = "<|im_start|>user<|im_end|>";

/// Name, files, and the ids of the two tokens or the words of the error.
type AddedTokens = (&'static str, Vec<(&'static str, Value)>, Result<[u32; 2], &'static str>);

/// Files that name tokens which `tokenizer.json` lacks, with the ids that transformers 5.24 gives them. It does not heed
/// other ids in the files.
fn added_tokens() -> Vec<AddedTokens> {
    let token = |content: &str, special: bool| json!({"content": content, "special": special});
    let decoder = |first: u32, special| {
        let both = json!({(first + 1).to_string(): token("<|im_end|>", special), first.to_string(): token("<|im_start|>", special)});
        ("tokenizer_config.json", json!({"added_tokens_decoder": both}))
    };
    let names = json!(["<|im_start|>", "<|im_end|>"]);
    vec![
        ("added_tokens_decoder", vec![decoder(1024, true)], Ok([1024, 1025])),
        ("tokens that are not special", vec![decoder(1024, false)], Ok([1024, 1025])),
        (
            "added_tokens.json",
            vec![("added_tokens.json", json!({"<|im_end|>": 1025, "<|im_start|>": 1024}))],
            Ok([1024, 1025]),
        ),
        (
            "special_tokens_map.json",
            vec![(
                "special_tokens_map.json",
                json!({"eos_token": token("<|im_end|>", true), "bos_token": "<|im_start|>"}),
            )],
            Ok([1024, 1025]),
        ),
        ("a list", vec![("tokenizer_config.json", json!({"additional_special_tokens": names}))], Ok([1024, 1025])),
        (
            "a list of old",
            vec![("special_tokens_map.json", json!({"additional_special_tokens": names}))],
            Ok([1024, 1025]),
        ),
        (
            "names",
            vec![("tokenizer_config.json", json!({"extra_special_tokens": {"a": "<|im_start|>", "b": "<|im_end|>"}}))],
            Ok([1024, 1025]),
        ),
        (
            "a name of this model alone",
            vec![("tokenizer_config.json", json!({"image_token": "<|im_end|>", "pad_token": "<|im_start|>"}))],
            Ok([1024, 1025]),
        ),
        (
            "ids with a gap",
            vec![decoder(1030, true)],
            Err("tokenizer_config.json, added_tokens_decoder: \"<|im_start|>\" has id 1030"),
        ),
        ("ids of others", vec![decoder(7, true)], Err("added_tokens_decoder: \"<|im_start|>\" has id 7")),
        (
            "ids with a gap",
            vec![("added_tokens.json", json!({"<|im_start|>": 1025, "<|im_end|>": 1026}))],
            Err("added_tokens.json: \"<|im_start|>\" has id 1025"),
        ),
        (
            "no id",
            vec![("tokenizer_config.json", json!({"added_tokens_decoder": {"x": token("a", true)}}))],
            Err("added_tokens_decoder: \"x\""),
        ),
    ]
}

#[test]
fn tokens_of_the_files_beside_a_tokenizer_are_tokens() {
    for (name, files, want) in added_tokens() {
        let files: Vec<(&str, String)> = files.into_iter().map(|(file, json)| (file, json.to_string())).collect();
        let tokenizer = open(&folder(&files), SpecialTokens::Parse);
        match (tokenizer, want) {
            (Ok(tokenizer), Ok([start, end])) => {
                let user = tokenizer.encode("user").unwrap().ids;
                let ids = tokenizer.encode(TURNS).unwrap().ids;
                assert_eq!(ids, [&[start], &user[..], &[end]].concat(), "{name}");
                assert_ne!(tokenizer.sha256, Tokenizer::embedded().sha256, "{name}");
            }
            (Err(error), Err(words)) => assert!(error.contains(words), "{name}: {error}"),
            (tokenizer, _) => panic!("{name}: {:?}", tokenizer.map(|tokenizer| tokenizer.encode(TURNS))),
        }
    }
}

#[test]
fn special_tokens_in_texts_are_what_the_user_says_and_the_default_is_said() {
    let bench = Scratch::with_model();
    bench.write("t.txt", "One document.<eos>Another one.<eos>".repeat(20));
    bench.write("n.jsonl", r#"{"needle": "He wrote <eos> on the wall.", "question": "What?", "answer": "the wall"}"#);
    for (command, default) in [
        ("nll --text t.txt --ctx 100 --samples 1 --skip 0", true),
        ("needle --ctx 128 --samples 1 --depths 50 --needles 1 --haystack t.txt", true),
        ("needle --ctx 128 --samples 1 --depths 50 --needles-file n.jsonl", true),
        ("needle --ctx 256 --samples 1 --depths 50 --needles 1", false),
    ] {
        let out = bench.run(format!("{command} --model m --out text"));
        let said = "special tokens such as <eos>, which are cut into letters; with --special-tokens parse";
        assert_eq!(out.succeeded().stderr.matches(said).count(), usize::from(default), "{command}: {}", out.stderr);
        let out = bench.run(format!("{command} --model m --out parse --special-tokens parse"));
        assert!(!out.succeeded().stderr.contains("special tokens"), "{command}: {}", out.stderr);
        for run in ["text", "parse"] {
            let tokens = bench.path(run).join("tokens.csv");
            if tokens.exists() {
                let mut rows = csv::Reader::from_path(tokens).unwrap();
                let column = rows.headers().unwrap().iter().position(|name| name == "token_id").unwrap();
                let eos = rows.records().filter(|row| &row.as_ref().unwrap()[column] == "1").count();
                assert_eq!(eos > 2, run == "parse", "{command}: {eos}");
            }
            fs::remove_dir_all(bench.path(run)).unwrap();
        }
    }
    bench
        .run(format!("{NEEDLE} --model transformer --out out --special-tokens parse"))
        .refused(2, &["--special-tokens", "built-in transformer"]);
    assert_eq!(open(&folder(&[]), SpecialTokens::Parse).unwrap().encode("a<eos>").unwrap().ids[1..], [1]);
}

#[test]
fn a_tokenizer_may_have_tokens_that_the_model_does_not_know() {
    let bench = Scratch::with_model();
    bench.edit_json("m/tokenizer.json", |tokenizer| {
        let added = tokenizer["added_tokens"].as_array_mut().unwrap();
        added.push(json!({"id": 1024, "content": "<image>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false}));
        // And one that texts are cut into.
        added.push(json!({"id": 1025, "content": "zebra", "special": false, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false}));
    });
    bench.run(format!("{NEEDLE} --model m --out out -q")).succeeded();
    bench.write("t.txt", "A zebra is an animal. ".repeat(40));
    bench
        .run("nll --text t.txt --ctx 33 --samples 1 --model m --out nll -q")
        .refused(1, &["m/tokenizer.json", "\"zebra\" has id 1025", "1024 tokens"]);
}

#[test]
fn a_tokenizer_in_two_files_is_read() {
    let bench = Scratch::with_model();
    fs::remove_file(bench.path("m/tokenizer.json")).unwrap();
    for (file, text) in vocab_and_merges() {
        bench.write(format!("m/{file}"), text);
    }
    let config = json!({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<bos>"});
    bench.write("m/tokenizer_config.json", config.to_string());
    bench.run(format!("{NEEDLE} --model m --out out -q")).succeeded();
    let shown = bench.run("inspect m");
    assert!(shown.stdout.contains("prompts begin with <bos> (config)"), "{}", shown.stdout);
}
