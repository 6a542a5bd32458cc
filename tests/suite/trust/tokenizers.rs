//! Tokenizers that make their library panic, hang or lie.

use super::NEEDLE;
use crate::common::Scratch;
use serde_json::{json, Value};

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
    bench.run(&format!("{NEEDLE} --model m --out out -q")).refused(1, &["m/tokenizer.json"]);
}

#[test]
fn a_tokenizer_that_makes_no_tokens_is_an_error_and_no_hang() {
    let bench = Scratch::with_model();
    let mut empty = smallest();
    empty["model"] = json!({"type": "BPE", "vocab": {}, "merges": []});
    bench.write("m/tokenizer.json", empty.to_string());
    for command in [NEEDLE, "nll --samples 1 --ctx 64"] {
        bench.run(&format!("{command} --model m --out out -q")).refused(1, &["m/tokenizer.json", "no token"]);
    }
}

#[test]
fn offsets_beyond_the_text_are_an_error_that_names_the_tokenizer() {
    let bench = Scratch::with_model();
    bench.write("m/tokenizer.json", include_str!("../../fixtures/repro/offsets-beyond-text.json"));
    bench.write("t.txt", "\u{65e5}\u{672c}\u{8a9e}\u{1f600}".repeat(40));
    for command in ["nll --text t.txt --ctx 33", "needle --ctx 1024 --samples 1 --needles 1 --depths 50"] {
        bench.run(&format!("{command} --model m --out out -q")).refused(1, &["m/tokenizer.json", "offsets"]);
    }
}
