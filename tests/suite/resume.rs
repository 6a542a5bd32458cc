//! The binary from outside: runs that are killed, cut into shards, resumed and merged leave the bytes of one run.

use crate::common::{self, tiny_model};
use crate::context::questions;
use assert_cmd::Command;
use difftool::results::manifest::Manifest;
use proptest::prelude::*;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Needle prompts: 2 settings x 2 depths x 2 samples = 8 prompts.
const NEEDLE: [&str; 9] = ["needle", "--ctx", "256", "--needles", "1,2", "--depths", "0,100", "--samples", "2"];
/// 5 windows, of which something is pooled.
const OUTLIERS: [&str; 5] = ["outliers", "--ctx", "100", "--samples", "5"];
/// 6 windows that slide over a text, all tokens of which are pooled.
const NLL: [&str; 7] = ["nll", "--text", "text.txt", "--ctx", "100", "--stride", "30"];
/// 4 needle prompts, of which generated text is pooled.
const GENERATE: [&str; 10] =
    ["needle", "--ctx", "256", "--needles", "2", "--depths", "0,100", "--samples=2", "--generate", "--max-new=5"];
/// 15 prompts of three series, two of which pool something.
const CLAIMS: [&str; 7] = ["claims", "--only", "F3,T5,P", "--ctx", "256", "--samples", "1"];
/// 100 questions with three passages each.
const CONTEXT: [&str; 3] = ["context", "--questions-file", "questions.jsonl"];
/// One that pools nothing, three that do, one of several series, and one of other people's questions.
const PRESETS: [&[&str]; 6] = [&NEEDLE, &OUTLIERS, &NLL, &GENERATE, &CLAIMS, &CONTEXT];

/// A scratch folder with two tiny models.
struct Scratch(common::Scratch);

impl Scratch {
    fn new() -> Self {
        let scratch = common::Scratch::with(&["transformer", "diff"]);
        scratch.write("text.txt", "The river is wide here, and a boat goes by. ".repeat(17));
        scratch.write("questions.jsonl", questions(100));
        Self(scratch)
    }

    /// With a finished run of a preset in `whole`, which is measured once for all tests.
    fn finished(preset: &[&str]) -> Self {
        type Files = Vec<(OsString, Vec<u8>)>;
        static RUNS: [OnceLock<Files>; PRESETS.len()] = [const { OnceLock::new() }; PRESETS.len()];
        let scratch = Self::new();
        let run = RUNS[PRESETS.iter().position(|known| *known == preset).unwrap()].get_or_init(|| {
            scratch.run(preset, &["--out", "whole"]);
            let entries = fs::read_dir(scratch.path("whole")).unwrap().map(Result::unwrap);
            entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
        });
        fs::create_dir_all(scratch.path("whole")).unwrap();
        run.iter().for_each(|(name, bytes)| fs::write(scratch.path("whole").join(name), bytes).unwrap());
        scratch
    }

    /// A measuring command on both models.
    fn measure(&self, preset: &[&str], args: &[&str]) -> Command {
        let mut command = self.command(preset);
        command.args(["--model", "./transformer", "--model", "./diff", "-q"]).args(args);
        command
    }

    fn run(&self, preset: &[&str], args: &[&str]) {
        self.measure(preset, args).assert().success();
    }

    /// Whether the data of two run folders are the same bytes.
    #[track_caller]
    fn same(&self, a: &str, b: &str) {
        for file in ["results.csv", "cells.csv", "experiment.toml", "begun.json"] {
            assert!(self.read(format!("{a}/{file}")) == self.read(format!("{b}/{file}")), "{file} of {a} and {b}");
        }
        let tokens = |run: &str| fs::read(self.path(run).join("tokens.csv")).ok();
        assert!(tokens(a) == tokens(b), "tokens.csv of {a} and {b}");
        let generated = |run: &str| fs::read(self.path(run).join("generations.jsonl")).ok();
        assert!(generated(a) == generated(b), "generations.jsonl of {a} and {b}");
        let prompts = |run: &str| Manifest::read(&self.path(run).join("manifest.json")).unwrap().prompts_sha256;
        assert_eq!(prompts(a), prompts(b));
    }
}

common::is_scratch!(Scratch);

/// A finished run, as it was on disk when it was killed: the journal cut at `journal` of its bytes, the records somewhere
/// between what it says and their end. Of a run without a finished prompt there are the records of at most one.
fn kill(finished: &Path, killed: &Path, journal: f64, records: f64) {
    fs::create_dir(killed).unwrap();
    for file in ["experiment.toml", "begun.json"] {
        fs::copy(finished.join(file), killed.join(file)).unwrap();
    }
    let text = fs::read_to_string(finished.join("cells.csv")).unwrap();
    let cut = &text[..(journal * text.len() as f64) as usize];
    fs::write(killed.join("cells.csv"), cut).unwrap();
    let end = |line: &str| line.split(',').nth(4).and_then(|end| end.parse().ok()).unwrap_or(0);
    let written = end(cut.split_inclusive('\n').rfind(|line| line.ends_with('\n')).unwrap_or_default());
    let bytes = fs::read(finished.join("results.csv")).unwrap();
    let longest = if written == 0 { end(text.lines().nth(1).unwrap()) } else { bytes.len() };
    let length = written + (records * (longest - written) as f64) as usize;
    fs::write(killed.join("results.csv"), &bytes[..length]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_run_killed_anywhere_and_resumed_leaves_the_bytes_of_one_run(
        journal in 0.0..=1.0f64, others in 0.0..=1.0f64, preset in 0..PRESETS.len(), threads in 1..4usize
    ) {
        let preset = PRESETS[preset];
        let scratch = Scratch::finished(preset);
        kill(&scratch.path("whole"), &scratch.path("killed"), journal, others);
        scratch.run(preset, &["--resume", "killed", "--threads", &threads.to_string()]);
        scratch.same("whole", "killed");
    }

    #[test]
    fn a_run_killed_while_it_began_is_begun_again(bytes in 0..60usize) {
        let scratch = Scratch::finished(&NEEDLE);
        kill(&scratch.path("whole"), &scratch.path("killed"), 0.0, 0.0);
        scratch.write("killed/cells.csv",  &scratch.read("whole/cells.csv")[..bytes]);
        scratch.run(&NEEDLE, &["--resume", "killed"]);
        scratch.same("whole", "killed");
    }

    #[test]
    fn any_split_into_shards_merges_to_the_bytes_of_one_run(shards in 1..6usize, preset in 0..PRESETS.len()) {
        let preset = PRESETS[preset];
        let scratch = Scratch::finished(preset);
        let folders: Vec<String> = (1..=shards).map(|i| format!("part{i}")).collect();
        for (i, folder) in folders.iter().enumerate() {
            let shard = format!("{}/{shards}", i + 1);
            scratch.run(preset, &["--out", folder, "--shard", &shard]);
        }
        let mut args = vec!["merge", "-q", "--out", "merged"];
        args.extend(folders.iter().rev().map(String::as_str));
        scratch.command(&args).assert().success();
        scratch.same("whole", "merged");
    }
}

#[test]
fn a_run_that_is_killed_for_real_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let many = ["needle", "--ctx", "1k", "--needles", "1", "--samples", "24"];
    scratch.run(&many, &["--out", "whole"]);
    let mut child = scratch
        .process(many)
        .args(["--model", "./transformer", "--model", "./diff", "-q", "--out", "killed", "--threads", "1"])
        .spawn()
        .unwrap();
    let journal = scratch.path("killed/cells.csv");
    while fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 3 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::yield_now();
    }
    scratch.fails(["run", "--resume", "killed"], 1, &["another process is writing into killed"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!scratch.exists("killed/manifest.json"), "it was too quick to be killed");
    scratch.run(&many, &["--resume", "killed"]);
    scratch.same("whole", "killed");
    let recipe = plot::read_recipe(&scratch.path("killed/accuracy.png")).unwrap();
    let command = &recipe.iter().find(|(keyword, _)| keyword == "command").unwrap().1;
    assert!(command.contains("needle --ctx 1k") && command.ends_with("--out killed --threads 1"), "{command}");
    let manifest = Manifest::read(&scratch.path("killed/manifest.json")).unwrap();
    assert_eq!(manifest.argv[1], "needle");
    assert!((2..=120).contains(&manifest.resumed_cells), "{}", manifest.resumed_cells);
}

#[test]
fn of_two_processes_that_resume_a_run_one_finishes_it_and_the_other_says_so() {
    let scratch = Scratch::finished(&NEEDLE);
    for journal in [0.3, 1.0] {
        let _ = fs::remove_dir_all(scratch.path("killed"));
        kill(&scratch.path("whole"), &scratch.path("killed"), journal, 1.0);
        let resume = || {
            let mut command = scratch.process("run -q --resume killed");
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let both = [resume(), resume()].map(|child| child.wait_with_output().unwrap());
        let failed: Vec<_> = both.iter().filter(|output| !output.status.success()).collect();
        assert!(failed.len() < 2, "{both:?}");
        for output in failed {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("another process is writing into killed"), "{stderr}");
        }
        scratch.same("whole", "killed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_tail_that_a_power_cut_cut_or_zeroed_is_put_aside_and_measured_again(
        file in 0..2usize, back in 1..65_536usize, zeroed: bool, preset in 0..PRESETS.len()
    ) {
        let preset = PRESETS[preset];
        let scratch = Scratch::finished(preset);
        kill(&scratch.path("whole"), &scratch.path("killed"), 0.99, 0.0);
        let file = ["results.csv", "cells.csv"][file];
        let bytes = scratch.bytes(format!("killed/{file}"));
        let mut damaged = bytes[..bytes.len().saturating_sub(back)].to_vec();
        damaged.resize(if zeroed { bytes.len() } else { damaged.len() }, 0);
        fs::write(scratch.path("killed").join(file), &damaged).unwrap();
        scratch.command(["run", "-q", "--resume", "killed"]).assert().success();
        scratch.same("whole", "killed");
        // A journal that ends between two lines is not damaged.
        let copy = fs::read(scratch.path("killed").join(format!("{file}.cut-1")));
        prop_assert!(copy.map_or(true, |copy| copy == damaged), "{}", file);
    }
}

#[test]
fn a_journal_that_was_emptied_beside_full_results_keeps_them_aside() {
    let scratch = Scratch::finished(&NEEDLE);
    scratch.run(&NEEDLE, &["--out", "run"]);
    fs::remove_file(scratch.path("run/manifest.json")).unwrap();
    scratch.write("run/cells.csv", "");
    let outcome = common::Scratch::run(&scratch, "run --resume run");
    assert!(outcome.succeeded().stderr.contains("run/cells.csv.cut-1"), "{}", outcome.stderr);
    scratch.same("whole", "run");
    assert!(scratch.read("run/results.csv.cut-1") == scratch.read("whole/results.csv"));
}

#[test]
fn a_file_of_a_finished_run_that_is_missing_is_made_again() {
    let scratch = Scratch::new();
    scratch.run(&NLL, &["--out", "run"]);
    let names = || fs::read_dir(scratch.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let listed = Manifest::read(&scratch.path("run/manifest.json")).unwrap().outputs;
    let made: Vec<_> = names().filter(|name| listed.iter().any(|output| *name == *output.file)).collect();
    for name in &made {
        let path = scratch.path("run").join(name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        scratch.command(["run", "-q", "--resume", "run"]).assert().success();
        assert!(fs::read(&path).unwrap() == bytes, "{name:?}");
    }
    assert!(made.len() > 2, "{made:?}");
}

#[test]
fn a_finished_run_is_left_as_it_is() {
    let scratch = Scratch::new();
    scratch.run(&NEEDLE, &["--out", "run"]);
    let before = scratch.read("run/manifest.json");
    scratch.run(&NEEDLE, &["--resume", "run"]);
    scratch.command(["run", "-q", "--resume", "run"]).assert().success();
    scratch.fails(["run", "--resume", "run", "--shard", "1/2"], 2, &["holds all of the run, shard 1/2 is asked for"]);
    assert_eq!(scratch.read("run/manifest.json"), before);
}

#[test]
fn a_run_is_resumed_only_as_what_it_was() {
    let scratch = Scratch::finished(&NEEDLE);
    kill(&scratch.path("whole"), &scratch.path("killed"), 0.5, 0.5);
    let models = ["--model", "./transformer", "--model", "./diff", "-q", "--resume", "killed"];
    let other_seed: Vec<&str> = NEEDLE.iter().chain(&models).copied().chain(["--seed", "3"]).collect();
    scratch.fails(&other_seed, 2, &["has `seed = 0` where `seed = 3` is asked for"]);
    let shard: Vec<&str> = NEEDLE.iter().chain(&models).copied().chain(["--shard", "2/2"]).collect();
    scratch.fails(&shard, 2, &["is not the next one of this run"]);
    tiny_model(&scratch.path("diff"), "diff-v2");
    let same: Vec<&str> = NEEDLE.iter().chain(&models).copied().collect();
    scratch.fails(&same, 2, &["other weights"]);
    scratch.fails(["run", "--resume", "nowhere"], 2, &["nowhere"]);
}

/// A folder whose records were measured on a processor without features.
fn moved(folder: &Path) {
    let path = folder.join("begun.json");
    let mut begun: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    begun["machines"][0]["features"] = serde_json::json!([]);
    fs::write(&path, begun.to_string()).unwrap();
}

#[test]
fn shards_are_merged_on_any_machine_and_a_run_goes_on_only_on_its_own() {
    let scratch = Scratch::finished(&NEEDLE);
    for (folder, shard) in [("a", "1/2"), ("b", "2/2")] {
        scratch.run(&NEEDLE, &["--shard", shard, "--out", folder]);
    }
    // All shards are from machines of another kind than this one.
    moved(&scratch.path("a"));
    moved(&scratch.path("b"));
    let merge = |out: &str| {
        let outcome = common::Scratch::run(&scratch, ["merge", "a", "b", "--out", out]);
        outcome.succeeded();
        outcome.stderr
    };
    assert!(!merge("same").contains("processors"));
    assert!(scratch.read("same/results.csv") == scratch.read("whole/results.csv"));
    let manifest = Manifest::read(&scratch.path("same/manifest.json")).unwrap();
    assert!(manifest.machine.features.is_empty() && manifest.other_machines.is_empty());
    // Of two kinds.
    fs::copy(scratch.path("whole/begun.json"), scratch.path("b/begun.json")).unwrap();
    assert!(merge("mixed").contains("processors of several kinds"));
    assert_eq!(Manifest::read(&scratch.path("mixed/manifest.json")).unwrap().other_machines.len(), 1);
    kill(&scratch.path("whole"), &scratch.path("killed"), 0.5, 0.5);
    moved(&scratch.path("killed"));
    scratch.fails(["run", "--resume", "killed"], 2, &["another kind of processor", "last bits"]);
}

#[test]
fn shards_that_are_not_one_experiment_are_not_merged() {
    let scratch = Scratch::new();
    for (folder, args) in [
        ("a", ["--shard", "1/3", "--seed", "0"]),
        ("b", ["--shard", "2/3", "--seed", "0"]),
        ("other", ["--shard", "3/3", "--seed", "1"]),
    ] {
        scratch.run(&NEEDLE, &[&args[..], &["--out", folder]].concat());
    }
    scratch.fails(["merge", "a", "b", "--out", "m1"], 2, &["2 of 8 prompts are missing, the first is 2"]);
    scratch.fails(["merge", "a", "b", "a", "--out", "m2"], 2, &["both hold prompt 0"]);
    scratch.fails(["merge", "a", "b", "other", "--out", "m3"], 2, &["is another experiment"]);
    scratch.fails(["merge", "a", "nowhere", "--out", "m4"], 2, &["nowhere"]);
    assert!(!scratch.exists("m1/results.csv"));
}

#[test]
fn data_that_were_changed_are_measured_again_and_not_merged() {
    for (preset, file) in [(&NEEDLE[..], "results.csv"), (&OUTLIERS, "cells.csv")] {
        let scratch = Scratch::finished(preset);
        scratch.run(preset, &["--out", "a", "--shard", "1/2"]);
        scratch.run(preset, &["--out", "b", "--shard", "2/2"]);
        kill(&scratch.path("whole"), &scratch.path("killed"), 0.99, 0.0);
        for run in ["killed", "a"] {
            let path = scratch.path(run).join(file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[400] ^= 1;
            fs::write(path, bytes).unwrap();
        }
        scratch.command(["run", "-q", "--resume", "killed"]).assert().success();
        scratch.same("whole", "killed");
        scratch.fails(["merge", "a", "b", "--out", "merged"], 1, &["is not what was written"]);
        assert!(!scratch.exists("merged"));
    }
}

#[test]
fn a_preset_printed_as_an_experiment_gives_the_same_results() {
    let scratch = Scratch::new();
    for (i, preset) in [
        &NEEDLE[..],
        &OUTLIERS,
        &NLL,
        &GENERATE,
        &["ratio", "--ctx", "256", "--samples", "1", "--layers", "1"],
        &["quantize", "--ctx", "256", "--samples", "1", "--bits", "8,3", "--scope", "row", "--exempt-sinks"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{}-{i}", preset[0]);
        scratch.run(preset, &["--out", &format!("{name}-flags")]);
        let printed = scratch.measure(preset, &["--print-experiment"]).output().unwrap();
        assert!(printed.status.success());
        scratch.write("x.toml", &printed.stdout);
        let out = format!("{name}-file");
        scratch.command(["run", "x.toml", "-q", "--out", &out]).assert().success();
        scratch.same(&format!("{name}-flags"), &out);
        let (flags, file) = (scratch.path(format!("{name}-flags")), scratch.path(&out));
        let count = |folder: PathBuf| fs::read_dir(folder).unwrap().count();
        assert_eq!(count(flags), count(file), "{name}: the same figures");
    }
}

const EXPERIMENT: &str = r#"
command = "ratio"
question = "Do tiny random models find anything?"

[prompts]
ctx = ["256"]
depths = [0.0, 100.0]
samples = 4
seed = 0

[run]
model = ["./transformer", "./diff"]
fail-if = ["accuracy > 0.5"]
"#;

#[test]
fn an_experiment_file_says_which_results_fail_it() {
    let scratch = Scratch::new();
    scratch.write("x.toml", EXPERIMENT);
    scratch.command(["run", "x.toml", "-q", "--out", "run"]).assert().success();
    let results = scratch.read("run/results.csv");
    for metric in [",accuracy,", ",entropy,"] {
        assert!(results.contains(metric), "{metric}");
    }
    scratch.write("y.toml", EXPERIMENT.replace("accuracy > 0.5", "accuracy of ./diff < 0.5"));
    scratch.fails(["run", "y.toml", "--out", "small"], 3, &["'accuracy of ./diff < 0.5' holds for ./diff: 0.0000"]);
    scratch.fails(["run", "--resume", "small"], 3, &["'accuracy of ./diff < 0.5' holds for ./diff: 0.0000"]);
    for (fail_if, words) in [
        ("accuracy of ./dif < 0.5", "./dif is not among the models ./transformer, ./diff"),
        ("accuracy under mask(noise) < 0.5", "mask(noise) is not among the conditions none"),
        ("accuracy.lo < 0.5", "a run has means"),
        ("accuracy = 0.5", "has none of < <= > >="),
        ("nll > 9", "nll is not measured here; there are accuracy"),
    ] {
        scratch.write("z.toml", EXPERIMENT.replace("accuracy > 0.5", fail_if));
        scratch.fails(["run", "z.toml", "--out", "none"], 2, &[words]);
    }
    scratch.write("z.toml", EXPERIMENT.replace("accuracy > 0.5", "cancelled > 9"));
    scratch.fails(["run", "z.toml", "--out", "none"], 2, &["./transformer has no such number"]);
}

#[test]
fn an_experiment_is_tried_without_running() {
    let scratch = Scratch::new();
    scratch.write("x.toml", EXPERIMENT);
    assert!(scratch.stdout(["run", "x.toml", "--dry-run"]).starts_with("can run: 8 prompts on ./transformer, ./diff"));
    let json = scratch.stdout(["run", "x.toml", "--dry-run", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["prompts"], 8);
    assert!(!scratch.exists("runs"));
    let typo = EXPERIMENT.replace("seed = 0", "sed = 0");
    scratch.write("typo.toml", typo);
    scratch.fails(["run", "typo.toml"], 2, &["typo.toml, line"]);
}

#[test]
#[cfg(unix)]
fn the_script_for_gnu_parallel_runs_resumes_and_merges_shards() {
    let scratch = Scratch::new();
    scratch.write("x.toml", EXPERIMENT);
    scratch.command(["run", "x.toml", "-q", "--out", "whole"]).assert().success();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/shards/parallel.sh");
    let run = || {
        std::process::Command::new("sh")
            .args([script, "x.toml", "sharded", "3"])
            .current_dir(scratch.path(""))
            .env("DIFFTOOL", assert_cmd::cargo::cargo_bin("difftool"))
            .output()
            .unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    scratch.same("whole", "sharded/merged");
    // As after a crash of one shard: the others are finished, and the whole is merged anew.
    fs::remove_dir_all(scratch.path("sharded/merged")).unwrap();
    fs::remove_dir_all(scratch.path("sharded/part-2")).unwrap();
    assert!(run().status.success());
    scratch.same("whole", "sharded/merged");
}

#[test]
fn the_experiment_that_comes_with_it_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/noise-4k.toml");
    difftool::commands::Experiment::read(&path).unwrap();
}
