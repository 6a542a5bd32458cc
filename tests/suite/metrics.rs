//! The catalogue of metrics: the only place of their names, the page of docs/ made from it, and completion.

use crate::common::Scratch;
use difftool::commands::command_line;
use difftool::results::record;
use difftool::results::MetricName;
use names::metric;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Literals that are spelled like a metric and are names of something else: file, literal, and what it names there.
const OTHER_NAMES: &[(&str, &str, &str)] = &[
    ("crates/engine/src/attention/extras.rs", "lambda", "a tensor of checkpoints"),
    ("crates/engine/src/attention/variant.rs", "lambda", "a key of a variant"),
    ("src/commands/cli.rs", "nll", "a command"),
    ("src/commands/context/page.rs", "gives", "a sign"),
    ("src/commands/context/screen.rs", "alone", "a heading"),
    ("src/commands/context/screen.rs", "gives", "a heading"),
    ("src/commands/experiment.rs", "nll", "a command"),
    ("src/commands/inspect.rs", "lambda", "a column of a table of weights"),
    ("src/commands/inspect.rs", "median", "a column of a table of weights"),
    ("src/commands/needle.rs", "accuracy", "a figure's file"),
    ("src/commands/nll.rs", "nll", "a command"),
    ("src/commands/train/draw.rs", "lambda", "a panel of training curves"),
    ("crates/plot/src/forest.rs", "accuracy", "a panel's title"),
    ("src/figures/comparison.rs", "accuracy", "names of rows in a test"),
    ("crates/engine/src/model/families/tests.rs", "lambda", "a key of config.json"),
    ("crates/engine/src/model/names.rs", "lambda", "a tensor of checkpoints"),
    ("src/report/facts.rs", "lambda", "a table"),
    ("src/measures/nll/tables.rs", "nll", "a table"),
    ("src/measures/lambda.rs", "cancelled", "a table"),
    ("src/results/differences.rs", "accuracy", "text of a table"),
];

/// All Rust files of a folder.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn names_of_metrics_are_literals_in_the_catalogue_alone() {
    let mut files = Vec::new();
    for folder in ["src", "crates"] {
        rust_files(&root().join(folder), &mut files);
    }
    let (mut unexpected, mut unused) = (Vec::new(), OTHER_NAMES.iter().collect::<BTreeSet<_>>());
    for path in files {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        if file == "crates/names/src/metric.rs" {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for name in
                metric::ALL.iter().map(|metric| metric.name).filter(|name| line.contains(&format!("\"{name}\"")))
            {
                match OTHER_NAMES.iter().find(|(of, literal, _)| (*of, *literal) == (file.as_str(), name)) {
                    Some(other) => _ = unused.remove(other),
                    None => unexpected.push(format!("{file}:{}: \"{name}\"", number + 1)),
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "use the constants of crates/names/src/metric.rs:\n{}", unexpected.join("\n"));
    assert!(unused.is_empty(), "no longer in the files: {unused:?}");
}

#[test]
fn shells_complete_the_metrics_of_the_catalogue_and_others_are_accepted() {
    let cli = command_line();
    let compare = cli.find_subcommand("compare").unwrap();
    let metric = compare.get_arguments().find(|arg| arg.get_id() == "metric").unwrap();
    let values: Vec<String> = metric.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    assert_eq!(values.len(), metric::ALL.len() + 1);
    assert!(values.contains(&metric::SHARE_OUT.name.to_owned()) && values.contains(&"all".to_owned()));
    let typed =
        ["difftool", "compare", "run", "--metric", "novelty,share_abs[answer],noise in output,answer in output %"];
    let matches = command_line().try_get_matches_from(typed).unwrap();
    let metrics = matches.subcommand_matches("compare").unwrap().get_many::<MetricName>("metric").unwrap();
    assert_eq!(
        metrics.map(|name| name.metric.as_str()).collect::<Vec<_>>(),
        ["novelty", "share_abs", "noise_out", "share_out"]
    );
}

#[test]
fn a_command_knows_before_its_run_every_metric_that_it_records() {
    let scratch = Scratch::with(&["transformer", "diff"]);
    let common = ["--model", "./transformer", "--model", "./diff", "--samples", "1", "-q"];
    let cases: [(&str, &[&str]); 8] = [
        ("needle", &["--ctx", "160", "--unanswerable"]),
        ("ratio", &["--ctx", "160"]),
        ("heads", &["--ctx", "160"]),
        ("quantize", &["--ctx", "160"]),
        ("ablate", &["--ctx", "160", "--parts", "noise,heads"]),
        ("outliers", &["--ctx", "160"]),
        ("nll", &["--ctx", "256"]),
        ("shots", &["--ctx", "512", "--shots", "4,8"]),
    ];
    for (command, flags) in cases {
        let typed = [&[command], &common[..], flags].concat();
        scratch.stdout([&typed[..], &["--out", command]].concat());
        let records = record::read(&scratch.path(command).join("results.csv")).unwrap();
        let recorded: BTreeSet<&str> = records.iter().map(|record| &*record.measure.metric).collect();
        let conditions: Vec<String> = recorded.iter().map(|metric| format!("--fail-if={metric} < -1e9")).collect();
        let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
        assert!(!conditions.is_empty(), "{command}");
        scratch.stdout([&typed[..], &conditions, &["--print-experiment"]].concat());
    }
}
