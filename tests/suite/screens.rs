//! Whole screens of the commands, as a terminal of 80 columns shows them. To look at changed ones and to take them over:
//! `INSTA_UPDATE=always cargo test --test suite screens`, and then `git diff`.
//!
//! Models are measured in double precision, in which the digits that are printed are the same on every processor.

use crate::common::{difftool, tiny_model, Outcome, Scratch, Words};
use insta::assert_snapshot;

/// The two built-in models on one short prompt.
const SHORT: &str = "--model transformer --model diff --ctx 256 --samples 1 --dtype f64 -q";
const NUMBERS: &str = "The special magic Oslo number is: 48213. The harbour is old. \
                       The special magic Rome number is: 17040. It rains in spring.";

/// A command and all that it prints: its data, what it says, and its exit code unless that is 0.
fn screen(scratch: &Scratch, args: impl Words) -> String {
    let words = args.words();
    let mut command = difftool(scratch.folder(), &words);
    let run = Outcome::of(command.env("COLUMNS", "80").output().unwrap());
    let mut screen = format!("$ difftool {}\n{}", words.join(" "), run.stdout);
    if !run.stderr.is_empty() {
        screen += &format!("\n--- stderr\n{}", run.stderr);
    }
    if run.code != Some(0) {
        screen += &format!("\n--- exit code {}\n", run.code.unwrap());
    }
    screen
}

/// Compares a screen with the snapshot of this name, without what differs from run to run or from machine to machine.
macro_rules! assert_screen {
    ($name:expr, $screen:expr) => {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.add_filter(r"\(\d+ s\)", "([time])");
        settings.add_filter(r"[-+]?\d\.\d+e-\d+", "[small]"); // sums in single precision that nearly cancel
        settings.add_filter(r"to see them: .*", "to see them: [viewer]");
        settings.add_filter(r"up to \d+ [KMG]iB", "up to [memory]");
        settings.add_filter(r"-\d{8}-\d{6}\b", "-[time]");
        settings.bind(|| assert_snapshot!($name, $screen));
    };
}

#[test]
fn of_needle() {
    assert_screen!("needle", screen(&Scratch::new(), format!("needle {SHORT} --depths 50")));
}

#[test]
fn of_a_run_that_talks() {
    let args = "needle --model transformer --ctx 256 --samples 1 --depths 50 --dtype f64 --out run";
    assert_screen!("needle-talk", screen(&Scratch::new(), args));
}

#[test]
fn of_ratio_and_of_all_tables_of_its_run() {
    let scratch = Scratch::new();
    assert_screen!("ratio", screen(&scratch, format!("ratio {SHORT} --depths 50 --needles 1 --out run")));
    assert_screen!("show", screen(&scratch, "show run --tables all"));
    assert_screen!("compare", screen(&scratch, "compare run --by model"));
}

#[test]
fn of_quantize() {
    let args = format!("quantize {SHORT} --depths 50 --needles 1 --bits 8,4");
    assert_screen!("quantize", screen(&Scratch::new(), args));
}

#[test]
fn of_heads() {
    assert_screen!("heads", screen(&Scratch::new(), format!("heads {SHORT} --depths 50 --needles 1")));
}

#[test]
fn of_outliers() {
    assert_screen!("outliers", screen(&Scratch::new(), format!("outliers {SHORT}")));
}

/// In single precision: a tenth of a nat and whole points are the same on every processor, and tests are not optimised.
#[test]
fn of_ablate() {
    let args = "ablate --model diff --ctx 256 --samples 1 --depths 50 --needles 1 --parts noise -q";
    assert_screen!("ablate", screen(&Scratch::new(), args));
}

#[test]
fn of_nll() {
    assert_screen!("nll", screen(&Scratch::new(), format!("nll {SHORT}")));
}

#[test]
fn of_shots() {
    let args = "shots --shots 4 --words 4 --classes 2 --arrangements 1 --ctx 512 --samples 1 --dtype f64 -q";
    assert_screen!("shots", screen(&Scratch::new(), format!("{args} --model transformer")));
}

#[test]
fn of_claims() {
    let pair = "--model ./diff --baseline ./transformer --ctx 256 --samples 1 --dtype f64 -q";
    let scratch = Scratch::with(&["transformer", "diff"]);
    assert_screen!("claims", screen(&scratch, format!("claims {pair} --only T2,F4,P")));
}

#[test]
fn of_context() {
    let asked = "--question 'What is the special magic Rome number?' --lead 'The special magic Rome number is:'";
    let args = format!("context --model transformer --prompt '{NUMBERS}' {asked} --answer 17040 --dtype f64 -q");
    assert_screen!("context", screen(&Scratch::new(), args));
}

/// The first cells of rows with numbers, in the screen of a snapshot.
fn rows_of_screen(name: &str) -> Vec<String> {
    let path = format!("{}/tests/suite/snapshots/{name}.snap", env!("CARGO_MANIFEST_DIR"));
    let mut rows = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let Some((row, cells)) = line.trim_start().split_once("  ") else { continue };
        if cells.trim_start().starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)) {
            rows.push(row.to_owned());
        }
    }
    assert!(!rows.is_empty(), "{name}");
    rows
}

#[test]
fn every_row_is_explained() {
    let scratch = Scratch::new();
    for name in ["needle", "ratio", "quantize", "heads", "outliers", "ablate", "nll", "shots", "claims", "compare"] {
        for row in rows_of_screen(name) {
            let explained = scratch.run(["explain", &row]);
            assert_eq!(explained.code, Some(0), "{name}: {row}: {}", explained.stderr);
        }
    }
    for heading_of_context in ["nats", "alone", "through", "output %", "part"] {
        assert_eq!(scratch.run(["explain", heading_of_context]).code, Some(0), "{heading_of_context}");
    }
}

#[test]
fn of_inspect() {
    let scratch = Scratch::with(&["diff-v2"]);
    assert_screen!("inspect", screen(&scratch, "inspect diff"));
    tiny_model(&scratch.path("sink"), "sink");
    assert_screen!("inspect-folder", screen(&scratch, "inspect ./sink"));
}

#[test]
fn of_a_prompt() {
    assert_screen!("prompt", screen(&Scratch::new(), "prompt --ctx 256 --needles 2 --retrieve 1 --depths 50"));
}

/// Of the program, and of two commands.
#[test]
fn of_help() {
    for command in ["", "quantize", "claims"] {
        let name = ["help", command].join("-");
        assert_screen!(name.trim_end_matches('-'), screen(&Scratch::new(), format!("{command} --help")));
    }
}

/// One of each kind. What else is refused: `refusals.rs`.
#[test]
fn of_errors() {
    let scratch = Scratch::with_model();
    scratch.write("bad.toml", "command = \"needle\"\nsed = 0\n");
    scratch.write("m/config.json", "{\"model_type\": \"mamba\"}");
    for (kind, args) in [
        ("command", "neddle --ctx 256"),
        ("flag", "needle --dephts 0"),
        ("value", "quantize --bits 1 --ctx 256"),
        ("combination", "needle --max-new 5"),
        ("model", "needle --model transfomer"),
        ("family", "inspect m"),
        ("file", "run bad.toml"),
        ("missing", "report nowhere"),
        ("length", "needle --model transformer --ctx 300k"),
    ] {
        assert_screen!(format!("error-{kind}"), screen(&scratch, args));
    }
}

#[test]
fn of_a_condition_that_holds() {
    let args = "needle --model transformer --ctx 256 --samples 1 --depths 50 --needles 1 --dtype f64 -q";
    assert_screen!("fail-if", screen(&Scratch::new(), format!("{args} --fail-if 'accuracy > 0.5'")));
}
