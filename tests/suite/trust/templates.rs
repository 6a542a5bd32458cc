//! Chat templates are programs of strangers: whatever one does, it is an error that names its file.

use crate::common::{Scratch, NEEDLE};

const CONTENT: &str = "{{ messages[0].content }}";

/// Renders a template of a model: `inspect` says what prompts begin with, `prompt` makes one.
#[track_caller]
fn refused(template: &str, words: &[&str]) {
    let bench = Scratch::with_model();
    bench.write("m/chat_template.jinja", template);
    for command in ["inspect --chat-template m", "prompt --chat-template --ctx 512 --model m --needles 1 --depths 50"] {
        bench.run(command).refused(1, &[&["m/chat_template.jinja"], words].concat());
    }
}

#[test]
fn a_template_that_takes_too_long_is_stopped() {
    let list = "{% set x = range(100000)|list %}{% for i in range(100000) %}";
    refused(&format!("{list}{{% set z = x|sort|list|length %}}{{% endfor %}}{CONTENT}"), &["longer than 5 s"]);
}

#[test]
fn a_template_that_takes_too_much_memory_is_stopped() {
    for template in [
        r#"{% set ns = namespace(x="aaaaaaaa") %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"#,
        r#"{{ [1]|batch(100000000000, 0)|list }}"#,
        "{{ \"a\nb\"|indent(18446744073709551615) }}",
        r#"{{ "{:>10000000000}".format(1) }}"#,
        r#"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"#,
        r#"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}"#,
    ] {
        refused(&format!("{template}{CONTENT}"), &["template"]);
    }
}

#[test]
fn a_template_that_writes_too_much_is_stopped() {
    refused(&format!("{{{{ \"x\"*50000000 }}}}{CONTENT}"), &["writes more than 8 MiB"]);
    refused(&format!("{{{{ {{'a': 1}}|tojson(indent=18446744073709551615) }}}}{CONTENT}"), &["template"]);
}

#[test]
fn a_template_that_nests_without_end_is_stopped() {
    for template in [
        format!("{{{{ messages{} }}}}", ".a".repeat(100_000)),
        format!("{{{{ {} 1 }}}}", "not ".repeat(100_000)),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(50_000)),
    ] {
        refused(&format!("{template}{CONTENT}"), &["m/chat_template.jinja"]);
    }
}

#[test]
fn a_template_that_is_longer_than_any_is_not_read() {
    refused(&" ".repeat(2 << 20), &["longer than 1048576 bytes"]);
}

#[test]
fn a_thinking_block_that_the_template_opens_is_closed_before_the_answer_and_reported() {
    let bench = Scratch::with_model();
    bench.write("m/chat_template.jinja", include_str!("../../fixtures/repro/open-think.jinja"));
    let prompt = "prompt --ctx 512 --samples 1 --needles 1 --depths 50 --model m --chat-template";
    let closed = "<model><think>\n\n</think>\n\nThe special magic";
    for args in ["", " --template-arg enable_thinking=false", " --template-arg enable_thinking=true"] {
        let shown = bench.run(format!("{prompt}{args} --jsonl -"));
        let line: serde_json::Value = serde_json::from_str(shown.succeeded().stdout.trim()).unwrap();
        assert!(line["text"].as_str().unwrap().contains(closed), "{args}: {line}");
    }
    let run = format!("{} --model m --chat-template", NEEDLE).replace("256", "512");
    let stderr = bench.run(format!("{run} --out out")).succeeded().stderr.clone();
    assert!(stderr.contains("thinking block") && stderr.contains("answers follow"), "{stderr}");
    let manifest: serde_json::Value = bench.json("out/manifest.json");
    assert_eq!(manifest["models"][0]["answer_opening"], "\n</think>\n\n");
    let stderr = bench.run(format!("{run} --template-arg enable_thinking=false --out off")).succeeded().stderr.clone();
    assert!(!stderr.contains("thinking"), "{stderr}");
    assert!(bench.read("off/experiment.toml").contains("enable_thinking=false"));
    bench.run("run off/experiment.toml -q --out again").succeeded();
    assert_eq!(bench.read("again/results.csv"), bench.read("off/results.csv"));
    bench
        .run(format!("{run} --template-arg thinking_budget=5 --out x"))
        .refused(2, &["--template-arg", "does not read"]);
    let outcome = bench.run(format!("{run} --template-arg messages=5 --out x"));
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("`messages` is set by difftool"), "{}", outcome.stderr);
}
