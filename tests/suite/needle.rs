//! The binary from outside: `difftool needle` on a tiny random model, and everything a user can get wrong.

use crate::common::{assert_drawn, printed, refuses, tiny_model, Outcome, Scratch, NEEDLE};
use assert_cmd::Command;
use difftool::results::record::{self, Record};
use std::collections::BTreeMap;
use std::fs;

/// `difftool needle` on the tiny model with a few short prompts, in the scratch folder.
fn needle(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = scratch.command("needle --model m --needles 2");
    command.args(args);
    // What a test gives itself is not given twice.
    for (flag, value) in [("--ctx", "256"), ("--samples", "1")] {
        if !args.contains(&flag) {
            command.args([flag, value]);
        }
    }
    command
}

#[test]
fn a_run_leaves_results_manifest_and_figures() {
    let scratch = Scratch::with_model();
    printed(&mut needle(&scratch, &["--out", "run"]));
    for file in ["accuracy.png", "regions.png"] {
        assert_drawn(&scratch.path("run").join(file), "needle");
    }
    let manifest = scratch.read("run/manifest.json");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let rows = scratch.read("run/results.csv").lines().count() - 1;
    let results =
        manifest["outputs"].as_array().unwrap().iter().find(|output| output["file"] == "results.csv").unwrap();
    assert_eq!(results["rows"].as_u64(), Some(rows as u64), "{manifest}");
}

#[test]
fn several_lengths_have_a_figure_of_their_own() {
    let scratch = Scratch::new();
    scratch.stdout("needle --model diff --ctx 128,256 --needles 1 --samples 1 --depths 50 --out run -q");
    assert_drawn(&scratch.path("run/length.png"), "needle");
}

#[test]
fn regions_of_every_head_are_a_partition() {
    let scratch = Scratch::with_model();
    tiny_model(&scratch.path("other"), "diff");
    scratch.stdout([
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
    let records = scratch.records("run");
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
    let scratch = Scratch::with_model();
    let bytes = |out: &str, threads: &str| {
        needle(&scratch, &["--out", out, "--threads", threads]).assert().success();
        scratch.bytes(format!("{out}/results.csv"))
    };
    let one = bytes("one", "1");
    assert!(one == bytes("two", "2"), "1 and 2 threads");
    assert!(one == bytes("again", "2"), "twice the same");
    assert!(one == bytes("three", "3"), "1 and 3 threads");
}

#[test]
fn a_figure_that_is_too_large_loses_neither_tables_nor_manifest() {
    let scratch = Scratch::with_model();
    let lengths: Vec<String> = (0..240).map(|i| (256 + i).to_string()).collect();
    let mut command = needle(&scratch, &["--ctx", &lengths.join(","), "--depths", "50", "--out", "run"]);
    let outcome = Outcome::of(command.output().unwrap());
    outcome.refused(1, &["the results are complete, but not their figures"]);
    assert!(outcome.stdout.contains("more rows: --tables answers"), "the table is printed");
    assert!(scratch.exists("run/manifest.json"));
}

#[test]
fn a_closed_pipe_is_no_success_of_a_run_that_failed() {
    let scratch = Scratch::with_model();
    let printed = needle(&scratch, &["--fail-if", "accuracy < 2", "--print-experiment"]).assert().success();
    scratch.write("x.toml", &printed.get_output().stdout);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = scratch.process("run x.toml").stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn json_is_the_only_thing_on_stdout() {
    let scratch = Scratch::with_model();
    let outcome = Outcome::of(needle(&scratch, &["--out", "run", "--json", "-q"]).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["answers"][0]["N"], 2);
    assert_eq!(outcome.stderr, "");
}

#[test]
fn the_manifest_describes_the_files_beside_it() {
    let scratch = Scratch::with_model();
    needle(&scratch, &["--out", "run"]).assert().success();
    let manifest = difftool::results::manifest::Manifest::read(&scratch.path("run/manifest.json")).unwrap();
    assert_eq!(manifest.models[0].variant, "transformer");
    assert_eq!(manifest.outputs.len(), 5);
    for output in manifest.outputs {
        let found = base::hash::sha256_file(&scratch.path("run").join(&output.file)).unwrap();
        assert_eq!(found, output.sha256, "{}", output.file);
    }
    let recipe = plot::read_recipe(&scratch.path("run/accuracy.png")).unwrap();
    assert!(recipe.iter().any(|(key, value)| key == "command" && value.contains("--ctx 256")), "{recipe:?}");
}

#[test]
fn a_model_at_a_long_path_that_is_not_ascii_has_figures_tables_and_a_manifest() {
    let scratch = Scratch::with_model();
    let folder = format!("modèles/models--example--Example-1B/snapshots/{}", "0123456789abcdef".repeat(5));
    fs::create_dir_all(scratch.path(&folder).parent().unwrap()).unwrap();
    fs::rename(scratch.path("m"), scratch.path(&folder)).unwrap();
    let printed = scratch.stdout(format!("{NEEDLE} --model {folder} --out run"));
    assert!(!printed.is_empty() && scratch.exists("run/manifest.json"));
    let recipe = plot::read_recipe(&scratch.path("run/accuracy.png")).unwrap();
    let models = recipe.iter().find(|(keyword, _)| keyword == "models").map(|(_, text)| text.as_str());
    assert!(models.is_some_and(|text| text.starts_with(&format!("{folder} sha256 "))), "{recipe:?}");
}

#[test]
fn your_own_text_is_a_haystack() {
    let scratch = Scratch::with_model();
    let text: String = (0..400).map(|i| format!("Line {i} of my own text is here. ")).collect();
    scratch.write("text.txt", text);
    needle(&scratch, &["--out", "run", "--haystack", "text.txt"]).assert().success();
}

#[test]
fn a_task_of_ruler_runs_as_it_is_and_refuses_what_would_change_it() {
    let scratch = Scratch::with_model();
    let run = |args: &[&str]| {
        let mut command = scratch.command("");
        command.args(["needle", "--model", "m", "--samples", "1", "--depths", "50"]).args(args);
        command
    };
    let table = printed(&mut run(&["--task", "niah_multivalue", "--ctx", "512", "--generate", "--out", "run"]));
    assert!(table.contains("generated contains %"), "RULER's score: {table}");
    let records = scratch.records("run");
    assert!(records.iter().all(|record| record.identity.task == "niah_multivalue"));
    assert_eq!(records.iter().filter_map(|record| record.identity.query).max(), Some(3));
    let file = printed(&mut run(&["--task", "niah_single_1", "--ctx", "512", "--print-experiment"]));
    assert!(file.contains("task = \"niah_single_1\""), "{file}");
    scratch.write("x.toml", file.replace("needles = [1]", "needles = [2]"));
    refuses(scratch.command("").args(["run", "x.toml"]), 2, &["--task niah_single_1 has --needles 1"]);
}

#[test]
fn needles_of_a_file_are_measured_and_mistakes_in_it_named_with_their_line() {
    let scratch = Scratch::with_model();
    let good = r#"{"needle": "Yuki lives beside the opera.", "question": "Who has been there?", "answer": "Yuki"}"#;
    let file = scratch.path("needles.jsonl");
    fs::write(&file, good).unwrap();
    let args = ["--needles-file", "needles.jsonl", "--needles", "1", "--out", "run"];
    let of_file = |args: &[&str]| {
        let mut command = scratch.command("");
        command.args(["needle", "--model", "m", "--ctx", "256", "--samples", "1"]).args(args);
        command
    };
    printed(&mut of_file(&args));
    fs::write(&file, format!("{good}\n\n{}", good.replace("\"Yuki\"", "\"Ann\""))).unwrap();
    refuses(&mut of_file(&args[..4]), 1, &["needles.jsonl: line 3", "does not hold \"Ann\""]);
}

#[test]
fn damaged_models_are_named() {
    let scratch = Scratch::with_model();
    let weights = scratch.path("m/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    refuses(&mut needle(&scratch, &[]), 1, &["model.safetensors", "complete"]);
    fs::write(&weights, b"not a model").unwrap();
    refuses(&mut needle(&scratch, &[]), 1, &["model.safetensors"]);
    fs::remove_file(&weights).unwrap();
    refuses(&mut needle(&scratch, &[]), 1, &["neither model.safetensors nor", "index.json"]);
}

#[test]
fn a_wrong_shape_names_file_tensor_expected_and_found() {
    let scratch = Scratch::with_model();
    let config = scratch.path("m/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"intermediate_size\": 48", "\"intermediate_size\": 40")).unwrap();
    refuses(&mut needle(&scratch, &[]), 1, &["model.safetensors", "mlp.gate_proj.weight", "[48, 32]", "[40, 32]"]);
}

#[test]
fn weights_that_are_not_numbers_are_refused() {
    let scratch = Scratch::with_model();
    crate::common::edit_tensor(&scratch.path("m"), "model.norm.weight", |values| values[3] = f32::NAN);
    refuses(&mut needle(&scratch, &[]), 1, &["model.safetensors", "model.norm.weight", "NaN"]);
}

#[test]
fn weights_that_overflow_become_records_with_an_error() {
    let scratch = Scratch::with_model();
    crate::common::edit_tensor(&scratch.path("m"), "model.norm.weight", |values| values.fill(f32::MAX));
    refuses(&mut needle(&scratch, &["--out", "run"]), 1, &["failed", "results.csv"]);
    let records = scratch.records("run");
    assert!(
        !records.is_empty() && records.iter().all(|r| r.measure.error.as_deref().is_some_and(|e| e.contains("finite")))
    );
}

#[test]
fn results_are_never_overwritten() {
    let scratch = Scratch::with_model();
    needle(&scratch, &["--out", "run"]).assert().success();
    let before = scratch.bytes("run/results.csv");
    refuses(&mut needle(&scratch, &["--out", "run", "--seed", "9"]), 2, &["run", "never overwritten"]);
    assert!(before == scratch.bytes("run/results.csv"));
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_every_finished_record() {
    let scratch = Scratch::with_model();
    let mut command = scratch.process("needle --model m --ctx 256 --samples 2000 --out run -q");
    command.stdout(std::process::Stdio::null());
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
    assert!(!scratch.exists("run/manifest.json"), "it is not finished, and can be resumed");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let scratch = Scratch::with_model();
    let mut command = scratch.process("needle --model m --ctx 256 --samples 1 -q");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
