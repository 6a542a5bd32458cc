//! The studies under experiments/: files that run as they are, each with its question and what was expected beforehand.

use difftool::commands::Experiment;
use difftool::train::{LossSpec, OptimizerSpec, Stage, TrainSpec};
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
            spec.configs().unwrap();
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

fn difftool(arguments: &[&str]) -> std::process::Output {
    assert_cmd::Command::cargo_bin("difftool").unwrap().args(arguments).output().unwrap()
}

/// The example that `train` prints.
fn example() -> TrainSpec {
    let printed = difftool(&["train", "--example"]);
    TrainSpec::parse(&String::from_utf8(printed.stdout).unwrap(), "the example").unwrap()
}

/// A spec with one step in each stage, of one sequence.
fn shortened(spec: TrainSpec) -> TrainSpec {
    let mut spec = spec;
    spec.watch.eval_samples = 1;
    for stage in &mut spec.stages {
        (stage.step_tok, stage.tokens) = (stage.ctx_tok, stage.ctx_tok);
    }
    spec
}

/// Trains a spec with these further arguments; returns the folder and the last line.
fn trained(spec: &TrainSpec, folder: &Path, more: &[&str]) -> (String, String) {
    let file = folder.join("spec.toml");
    fs::write(&file, toml::to_string(spec).unwrap()).unwrap();
    let out = folder.join("out").to_str().unwrap().to_owned();
    let trained = difftool(&[&["train", file.to_str().unwrap(), "--out", &out], more].concat());
    let said = String::from_utf8(trained.stderr).unwrap();
    assert!(trained.status.success(), "{said}");
    (out, said.lines().last().unwrap().to_owned())
}

#[test]
fn the_example_is_a_standard_and_a_differential_model_of_which_the_last_line_asks_the_claims() {
    let folder = tempfile::tempdir().unwrap();
    let spec = shortened(example());
    let (out, last) = trained(&spec, folder.path(), &["--only", "diff"]);
    assert!(last.contains("summary.csv"), "one model is no pair: {last}");
    let (_, last) = trained(&spec, folder.path(), &["--resume"]);
    assert_eq!(last, format!("difftool claims --model {out}/diff --baseline {out}/standard"));
    let configs = ["standard", "diff"].map(|name| fs::read_to_string(format!("{out}/{name}/config.json")).unwrap());
    assert!(configs[0].contains("LlamaForCausalLM") && configs[1].contains("DiffLlamaForCausalLM"));
}

#[test]
fn the_example_can_be_trained_with_several_seeds_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = shortened(TrainSpec { seed: None, seeds: Some(vec![1, 2, 3]), ..example() });
    spec.stages.truncate(1);
    for more in [&[][..], &["--resume"]] {
        let (out, last) = trained(&spec, folder.path(), more);
        assert_eq!(last, format!("difftool claims --model {out}/diff --baseline {out}/standard --replicates"));
        assert!(Path::new(&out).join("summary.csv").exists());
    }
}

#[test]
fn a_finished_study_is_extended_and_what_is_trained_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = shortened(TrainSpec { seed: None, seeds: Some(vec![1]), ..example() });
    spec.stages.truncate(1);
    let further = spec.variants.pop().unwrap();
    let (out, _) = trained(&spec, folder.path(), &[]);
    let log = |run: &str| fs::read_to_string(format!("{out}/{run}/log.csv")).unwrap();
    let weights = |run: &str| fs::read(format!("{out}/{run}/model.safetensors")).unwrap();
    let before = (log("standard/seed-1"), weights("standard/seed-1"));

    let mut more = spec.clone();
    more.seeds = Some(vec![1, 2]);
    more.variants.push(further);
    let (_, last) = trained(&more, folder.path(), &["--resume"]);
    assert!(last.contains("--replicates"), "{last}");
    assert_eq!((log("standard/seed-1"), weights("standard/seed-1")), before);
    assert!(log("diff/seed-2").lines().count() == 2);
    assert_eq!(fs::read(format!("{out}/spec.toml")).unwrap(), fs::read(folder.path().join("spec.toml")).unwrap());

    let mut longer = more.clone();
    longer.stages.push(Stage { cycle_rate: Some(1e-3), ..more.stages[0].clone() });
    trained(&longer, folder.path(), &["--resume"]);
    let now = log("standard/seed-1");
    assert!(now.starts_with(&before.0) && now.lines().count() == 3, "{now}");
    assert_ne!(weights("standard/seed-1"), before.1);

    let file = folder.path().join("spec.toml");
    let kept = fs::read_to_string(format!("{out}/spec.toml")).unwrap();
    for (from, to, says) in [
        ("rate = 0.0025", "rate = 0.003", "optimizer.rate differs"),
        ("seeds = [1, 2]", "seeds = [2]", "seed 1 is trained"),
        ("cycle_rate = 0.001", "", "stage[1].cycle_rate differs"),
    ] {
        assert!(kept.contains(from), "{kept}");
        fs::write(&file, kept.replacen(from, to, 1)).unwrap();
        let refused = difftool(&["train", file.to_str().unwrap(), "--out", &out, "--resume"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && said.contains(says), "{said}");
        assert_eq!(fs::read_to_string(format!("{out}/spec.toml")).unwrap(), kept, "the kept spec stays");
    }
}

#[test]
fn what_a_training_spec_leaves_out_is_that_of_the_embedded_models() {
    let spec = files().into_iter().find(|(path, _)| path.ends_with("study-b-models.toml")).unwrap();
    let embedded = TrainSpec::parse(&spec.1, "study b").unwrap();
    let usual = (OptimizerSpec::default(), LossSpec::default());
    let json = |settings: &(OptimizerSpec, LossSpec)| serde_json::to_string(settings).unwrap();
    assert_eq!(json(&usual), json(&(embedded.optimizer, embedded.loss)));
}

#[test]
fn train_without_a_folder_is_refused() {
    let refused = difftool(&["train", "spec.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--out <DIR>"));
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
