//! The studies under experiments/: files that run as they are, each with its question and what was expected beforehand.

use difftool::commands::Experiment;
use difftool::prompts::Tokenizer;
use difftool::train::TrainSpec;
use std::fs;
use std::path::{Path, PathBuf};

fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn is_training(text: &str) -> bool {
    text.contains("[[stage]]")
}

#[test]
fn every_file_is_a_spec_or_an_experiment_and_says_how_it_is_run() {
    let mut studies = 0;
    for (path, text) in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let command = if is_training(&text) { "train" } else { "run" };
        assert!(text.contains(&format!("difftool {command} experiments/{name}")), "{name}: no command");
        if is_training(&text) {
            let spec = TrainSpec::read(&path).unwrap();
            assert!(!spec.question.trim().is_empty() && !spec.runs().is_empty(), "{name}");
            spec.configs(Tokenizer::embedded().vocab_size()).unwrap();
        } else {
            let experiment = Experiment::parse(&text, name).unwrap();
            assert!(!experiment.question.trim().is_empty() && !experiment.analysis.is_empty(), "{name}");
            let again = Experiment::parse(&experiment.to_toml().unwrap(), name).unwrap();
            assert_eq!(format!("{again:?}"), format!("{experiment:?}"), "{name}");
        }
        if name.starts_with("study-") {
            let lower = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(lower.contains("written before the run") || lower.contains("expected before the run"), "{name}");
            studies += 1;
        }
    }
    assert!(studies > 0);
}

#[test]
fn the_example_that_train_prints_is_a_spec_and_what_it_leaves_out_is_that_of_the_embedded_models() {
    let folder = tempfile::tempdir().unwrap();
    let difftool = || assert_cmd::Command::cargo_bin("difftool").unwrap();
    let example = difftool().args(["train", "--example"]).assert().success().get_output().stdout.clone();
    let path = folder.path().join("example.toml");
    std::fs::write(&path, example).unwrap();
    let spec = TrainSpec::read(&path).unwrap();
    assert!(spec.variants.len() == 2 && spec.total_tokens() < 1_000_000);
    let embedded =
        TrainSpec::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/study-b-models.toml")).unwrap();
    let shared = |spec: &TrainSpec| serde_json::to_string(&(&spec.optimizer, &spec.loss)).unwrap();
    assert_eq!(shared(&spec), shared(&embedded));
    let without_out = difftool().arg("train").arg(&path).assert().code(2).get_output().stderr.clone();
    assert!(String::from_utf8(without_out).unwrap().contains("--out <DIR>"));
}

#[test]
fn a_file_for_the_other_command_is_told_from_one_with_mistakes() {
    for (command, file, expected) in [
        (
            "run",
            "experiments/example.toml",
            "experiments/example.toml is for `difftool train experiments/example.toml`",
        ),
        (
            "train",
            "experiments/noise-4k.toml",
            "experiments/noise-4k.toml is for `difftool run experiments/noise-4k.toml`",
        ),
        ("run", "Cargo.toml", "Cargo.toml, line 1: missing field `command`"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut difftool = assert_cmd::Command::cargo_bin("difftool").unwrap();
        difftool.current_dir(env!("CARGO_MANIFEST_DIR")).args([command, file, "--out"]).arg(folder.path().join("out"));
        let refused = difftool.assert().code(2).get_output().stderr.clone();
        assert!(String::from_utf8(refused).unwrap().contains(expected), "{command} {file}");
    }
}
