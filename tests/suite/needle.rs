//! The binary from outside: `difftool needle` on a tiny random model, and everything a user can get wrong.

use crate::common::{self, assert_drawn, refuses, tiny_model};
use assert_cmd::Command;
use difftool::results::record::{self, Record};
use std::collections::BTreeMap;
use std::fs;

/// A scratch folder with a tiny model in `model/`.
struct Scratch(common::Scratch);

impl Scratch {
    fn new() -> Self {
        let scratch = common::Scratch::new();
        tiny_model(&scratch.path("model"), "transformer");
        Self(scratch)
    }

    /// `difftool needle` on the tiny model with a few short prompts, in the scratch folder.
    fn needle(&self, args: &[&str]) -> Command {
        let mut command = self.command(&["needle", "--model", "model", "--needles", "2"]);
        command.args(args);
        // What a test gives itself is not given twice.
        for (flag, value) in [("--ctx", "256"), ("--samples", "1")] {
            if !args.contains(&flag) {
                command.args([flag, value]);
            }
        }
        command
    }
}

common::is_scratch!(Scratch);

#[test]
fn a_run_prints_a_table_and_leaves_results_manifest_and_figures() {
    let scratch = Scratch::new();
    let output = scratch.needle(&["--out", "run"]).assert().success().get_output().clone();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("accuracy %") && stdout.contains("noise in output %") && stdout.lines().count() <= 40,
        "{stdout}"
    );
    for file in ["accuracy.png", "regions.png"] {
        assert_drawn(&scratch.path("run").join(file), "needle");
    }
    let manifest = std::fs::read_to_string(scratch.path("run/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let rows = std::fs::read_to_string(scratch.path("run/results.csv")).unwrap().lines().count() - 1;
    let results =
        manifest["outputs"].as_array().unwrap().iter().find(|output| output["file"] == "results.csv").unwrap();
    assert_eq!(results["rows"].as_u64(), Some(rows as u64), "{manifest}");
}

#[test]
fn several_lengths_have_a_figure_of_their_own() {
    let scratch = Scratch::new();
    let args = ["needle", "--model", "diff", "--ctx", "128,256", "--needles", "1", "--samples", "1", "--depths", "50"];
    let mut command = scratch.command(&[]);
    command.args(args).args(["--out", "run", "-q"]);
    command.assert().success();
    assert_drawn(&scratch.path("run/length.png"), "needle");
}

#[test]
fn regions_of_every_head_are_a_partition() {
    let scratch = Scratch::new();
    tiny_model(&scratch.path("other"), "diff");
    scratch.stdout(&[
        "ratio",
        "--ctx",
        "256",
        "--needles",
        "2",
        "--samples",
        "1",
        "--out",
        "run",
        "--model",
        "other",
        "-q",
    ]);
    let records = record::read(&scratch.path("run/results.csv")).unwrap();
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    // Of single heads the headline alone has all regions.
    let shares = ["share_out", "share_abs", "share_signed"];
    for Record { identity, measure } in records {
        let metric = measure.metric.as_ref();
        let whole = metric == "share_out" || (measure.layer.is_none() && shares.contains(&metric));
        if whole {
            let group = format!(
                "{} {:?} {:?} {:?} {:?} {}",
                identity.model, identity.seed, identity.query, measure.layer, measure.head, measure.metric
            );
            *sums.entry(group).or_default() += measure.value.unwrap();
        }
    }
    assert!(sums.len() > 60, "only {} groups", sums.len());
    for (group, sum) in sums {
        assert!((sum - 1.0).abs() < 1e-4, "{group} sums to {sum}");
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads_or_the_run() {
    let scratch = Scratch::new();
    let bytes = |out: &str, threads: &str| {
        scratch.needle(&["--out", out, "--threads", threads]).assert().success();
        fs::read(scratch.path(out).join("results.csv")).unwrap()
    };
    let one = bytes("one", "1");
    assert!(one == bytes("two", "2"), "1 and 2 threads");
    assert!(one == bytes("again", "2"), "twice the same");
    assert!(one == bytes("three", "3"), "1 and 3 threads");
}

#[test]
fn a_figure_that_is_too_large_loses_neither_tables_nor_manifest() {
    let scratch = Scratch::new();
    let lengths: Vec<String> = (0..240).map(|i| (256 + i).to_string()).collect();
    let mut command = scratch.needle(&["--ctx", &lengths.join(","), "--depths", "50", "--out", "run"]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the results are complete, but not their figures"), "{stderr}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("more rows: --tables answers"), "the table is printed");
    assert!(scratch.path("run/manifest.json").exists());
}

#[test]
fn a_closed_pipe_is_no_success_of_a_run_that_failed() {
    let scratch = Scratch::new();
    let printed = scratch.needle(&["--fail-if", "accuracy < 2", "--print-experiment"]).assert().success();
    fs::write(scratch.path("x.toml"), &printed.get_output().stdout).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let binary = assert_cmd::cargo::cargo_bin("difftool");
    let mut command = std::process::Command::new(binary);
    let status = command.current_dir(scratch.path("")).args(["run", "x.toml"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn json_is_the_only_thing_on_stdout() {
    let scratch = Scratch::new();
    let output = scratch.needle(&["--out", "run", "--json", "-q"]).assert().success().get_output().clone();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["answers"][0]["N"], 2);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_manifest_describes_the_files_beside_it() {
    let scratch = Scratch::new();
    scratch.needle(&["--out", "run"]).assert().success();
    let manifest = difftool::results::manifest::Manifest::read(&scratch.path("run/manifest.json")).unwrap();
    assert_eq!(manifest.models[0].variant, "transformer");
    assert_eq!(manifest.outputs.len(), 4);
    for output in manifest.outputs {
        let found = base::hash::sha256_file(&scratch.path("run").join(&output.file)).unwrap();
        assert_eq!(found, output.sha256, "{}", output.file);
    }
    let recipe = plot::read_recipe(&scratch.path("run/accuracy.png")).unwrap();
    assert!(recipe.iter().any(|(key, value)| key == "command" && value.contains("--ctx 256")), "{recipe:?}");
}

#[test]
fn a_model_at_a_long_path_that_is_not_ascii_has_figures_tables_and_a_manifest() {
    let scratch = Scratch::new();
    let folder = format!("modèles/models--example--Example-1B/snapshots/{}", "0123456789abcdef".repeat(5));
    fs::create_dir_all(scratch.path(&folder).parent().unwrap()).unwrap();
    fs::rename(scratch.path("model"), scratch.path(&folder)).unwrap();
    let args = ["needle", "--model", &folder, "--needles", "1", "--ctx", "256", "--samples", "1", "--depths", "50"];
    let run = scratch.command(&[]).args(args).args(["--out", "run"]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(!run.stdout.is_empty() && scratch.path("run/manifest.json").is_file());
    let recipe = plot::read_recipe(&scratch.path("run/accuracy.png")).unwrap();
    let models = recipe.iter().find(|(keyword, _)| keyword == "models").map(|(_, text)| text.as_str());
    assert!(models.is_some_and(|text| text.starts_with(&format!("{folder} sha256 "))), "{recipe:?}");
}

#[test]
fn your_own_text_is_a_haystack() {
    let scratch = Scratch::new();
    let text: String = (0..400).map(|i| format!("Line {i} of my own text is here. ")).collect();
    fs::write(scratch.path("text.txt"), text).unwrap();
    scratch.needle(&["--out", "run", "--haystack", "text.txt"]).assert().success();
}

/// Returns what a command printed.
fn printed(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

#[test]
fn a_task_of_ruler_runs_as_it_is_and_refuses_what_would_change_it() {
    let scratch = Scratch::new();
    let run = |args: &[&str]| {
        let mut command = scratch.command(&[]);
        command.args(["needle", "--model", "model", "--samples", "1", "--depths", "50"]).args(args);
        command
    };
    let table = printed(&mut run(&["--task", "niah_multivalue", "--ctx", "512", "--generate", "--out", "run"]));
    assert!(table.contains("generated contains %"), "RULER's score: {table}");
    let records = record::read(&scratch.path("run/results.csv")).unwrap();
    assert!(records.iter().all(|record| record.identity.task == "niah_multivalue"));
    assert_eq!(records.iter().filter_map(|record| record.identity.query).max(), Some(3));
    refuses(&mut run(&["--task", "vt", "--ctx", "512"]), 2, &["512 tokens is too short", "it takes at least"]);
    run(&["--task", "vt", "--distractors", "2%"]).assert().code(2);
    run(&["--task", "nonesuch"]).assert().code(2);
    let file = printed(&mut run(&["--task", "niah_single_1", "--ctx", "512", "--print-experiment"]));
    assert!(file.contains("task = \"niah_single_1\""), "{file}");
    fs::write(scratch.path("x.toml"), file.replace("needles = [1]", "needles = [2]")).unwrap();
    refuses(scratch.command(&[]).args(["run", "x.toml"]), 2, &["--task niah_single_1 has --needles 1"]);
}

#[test]
fn needles_of_a_file_are_measured_and_mistakes_in_it_named_with_their_line() {
    let scratch = Scratch::new();
    let good = r#"{"needle": "Yuki lives beside the opera.", "question": "Who has been there?", "answer": "Yuki"}"#;
    let file = scratch.path("needles.jsonl");
    fs::write(&file, good).unwrap();
    let args = ["--needles-file", "needles.jsonl", "--needles", "1", "--out", "run"];
    let of_file = |args: &[&str]| {
        let mut command = scratch.command(&[]);
        command.args(["needle", "--model", "model", "--ctx", "256", "--samples", "1"]).args(args);
        command
    };
    printed(&mut of_file(&args));
    fs::write(&file, format!("{good}\n\n{}", good.replace("\"Yuki\"", "\"Ann\""))).unwrap();
    refuses(&mut of_file(&args[..4]), 1, &["needles.jsonl: line 3", "does not hold \"Ann\""]);
    of_file(&["--needles-file", "needles.jsonl", "--distractors", "2%"]).assert().code(2);
}

#[test]
fn requests_that_cannot_be_are_usage_errors() {
    let scratch = Scratch::new();
    let usage = |args: &[&str], words: &[&str]| refuses(&mut scratch.needle(args), 2, words);
    usage(&["--model", "nonesuch"], &["nonesuch", "transformer"]);
    usage(&["--model", "model"], &["named twice"]);
    usage(&["--ctx", "300k"], &["307200", "trained for at most"]);
    usage(&["--ctx", "64"], &["64", "tokens"]);
    usage(&["--retrieve", "3"], &["retrieve 3 of 2"]);
    usage(&["--depths", "120"], &["120"]);
    usage(&["--samples", "0"], &["nothing to run"]);
    fs::write(scratch.path("short.txt"), "One line is not enough for a long prompt.").unwrap();
    usage(&["--haystack", "short.txt"], &["short.txt"]);
    assert!(!scratch.path("runs").exists(), "nothing was started");
}

#[test]
fn clap_refuses_what_is_not_a_number() {
    let scratch = Scratch::new();
    for args in [["--ctx", "4q"], ["--ctx", "0"], ["--threads", "0"], ["--samples", "-1"]] {
        scratch.needle(&args).assert().code(2);
    }
}

#[test]
fn damaged_models_are_named() {
    let scratch = Scratch::new();
    let weights = scratch.path("model/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    refuses(&mut scratch.needle(&[]), 1, &["model.safetensors", "complete"]);
    fs::write(&weights, b"not a model").unwrap();
    refuses(&mut scratch.needle(&[]), 1, &["model.safetensors"]);
    fs::remove_file(&weights).unwrap();
    refuses(&mut scratch.needle(&[]), 1, &["neither model.safetensors nor", "index.json"]);
}

#[test]
fn a_wrong_shape_names_file_tensor_expected_and_found() {
    let scratch = Scratch::new();
    let config = scratch.path("model/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"intermediate_size\": 48", "\"intermediate_size\": 40")).unwrap();
    refuses(&mut scratch.needle(&[]), 1, &["model.safetensors", "mlp.gate_proj.weight", "[48, 32]", "[40, 32]"]);
}

#[test]
fn weights_that_are_not_numbers_are_refused() {
    let scratch = Scratch::new();
    crate::common::edit_tensor(&scratch.path("model"), "model.norm.weight", |values| values[3] = f32::NAN);
    refuses(&mut scratch.needle(&[]), 1, &["model.safetensors", "model.norm.weight", "NaN"]);
}

#[test]
fn weights_that_overflow_become_records_with_an_error() {
    let scratch = Scratch::new();
    crate::common::edit_tensor(&scratch.path("model"), "model.norm.weight", |values| values.fill(f32::MAX));
    refuses(&mut scratch.needle(&["--out", "run"]), 1, &["failed", "results.csv"]);
    let records = record::read(&scratch.path("run/results.csv")).unwrap();
    assert!(
        !records.is_empty() && records.iter().all(|r| r.measure.error.as_deref().is_some_and(|e| e.contains("finite")))
    );
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let scratch = Scratch::new();
    refuses(&mut scratch.needle(&["--haystack", "missing.txt"]), 2, &["missing.txt"]);
    fs::write(scratch.path("binary"), [0xff, 0xfe, 0x00]).unwrap();
    refuses(&mut scratch.needle(&["--haystack", "binary"]), 1, &["binary", "UTF-8"]);
    fs::write(scratch.path("file"), "").unwrap();
    refuses(&mut scratch.needle(&["--out", "file"]), 2, &["file", "folder"]);
}

#[test]
fn results_are_never_overwritten() {
    let scratch = Scratch::new();
    scratch.needle(&["--out", "run"]).assert().success();
    let before = fs::read(scratch.path("run/results.csv")).unwrap();
    refuses(&mut scratch.needle(&["--out", "run", "--seed", "9"]), 2, &["run", "never overwritten"]);
    assert!(before == fs::read(scratch.path("run/results.csv")).unwrap());
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_every_finished_record() {
    let scratch = Scratch::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("difftool"));
    command.current_dir(scratch.path("")).args(["needle", "--model", "model", "--ctx", "256", "--samples", "2000"]);
    command.args(["--out", "run", "-q"]).stdout(std::process::Stdio::null());
    let mut child = crate::common::heeding_signals(&mut command).spawn().unwrap();
    let results = scratch.path("run/results.csv");
    while fs::metadata(&results).map_or(0, |m| m.len()) < 20_000 {
        assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
        std::thread::yield_now();
    }
    let signal = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signal.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!record::read(&results).unwrap().is_empty(), "the file is whole");
    assert!(!scratch.path("run/manifest.json").exists(), "it is not finished, and can be resumed");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let scratch = Scratch::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("difftool"));
    command.current_dir(scratch.path("")).args(["needle", "--model", "model", "--ctx", "256", "--samples", "1", "-q"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn train_refuses_a_malformed_spec_and_a_taken_folder() {
    let scratch = Scratch::new();
    fs::write(scratch.path("bad.toml"), "seed = [").unwrap();
    refuses(scratch.command(&[]).args(["train", "bad.toml", "--out", "new"]), 2, &["bad.toml"]);
    assert!(!scratch.path("new").exists());
    refuses(scratch.command(&[]).args(["train", "missing.toml", "--out", "new"]), 2, &["missing.toml"]);
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/study-b-models.toml");
    refuses(scratch.command(&[]).args(["train", spec, "--out", "model"]), 2, &["model", "--resume"]);
}
