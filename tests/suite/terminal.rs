//! What reaches the terminal, what happens if nobody reads it, and what the shell completes.

use crate::common::{commands, Outcome, Scratch, NEEDLE};
use std::fs::OpenOptions;
use std::process::Stdio;

#[test]
fn names_of_others_do_not_reach_the_terminal_raw() {
    let bench = Scratch::with_model();
    let evil = "e\u{1b}[31mRED\u{1b}]0;pwn\u{7}";
    std::fs::rename(bench.path("m"), bench.path(evil)).unwrap();
    let inspect = Outcome::of(bench.command("inspect").arg(evil).output().unwrap());
    inspect.succeeded();
    std::fs::remove_file(bench.path(evil).join("config.json")).unwrap();
    let failed = Outcome::of(bench.command("inspect").arg(evil).output().unwrap());
    for shown in [&inspect.stdout, &failed.stderr] {
        assert!(!shown.contains(['\u{1b}', '\u{7}']) && shown.contains("\\u{1b}[31mRED"), "{shown:?}");
    }
}

#[test]
fn a_message_is_no_longer_than_a_screen() {
    let bench = Scratch::with_model();
    bench.write("m/config.json", format!(r#"{{"model_type": "{}"}}"#, "x".repeat(1 << 20)));
    let refused = bench.run("inspect m");
    refused.refused(1, &["m/config.json", "model_type", "characters ..."]);
    assert!(refused.stderr.len() < 3000, "{}", refused.stderr.len());
}

#[test]
fn a_name_that_spreadsheets_take_for_a_formula_is_refused_with_one_that_they_do_not() {
    let bench = Scratch::with_model();
    std::fs::rename(bench.path("m"), bench.path("=1+1")).unwrap();
    bench.run("inspect ./=1+1").succeeded();
}

#[test]
#[cfg(target_os = "linux")]
fn losing_a_line_on_stderr_never_ends_a_measurement() {
    let bench = Scratch::with_model();
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for (name, stderr) in [("full", full()), ("closed", closed())] {
        let status = bench
            .process(NEEDLE)
            .args(["--model", "m", "--out", name])
            .stdout(Stdio::null())
            .stderr(stderr)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(0), "{name}");
        assert!(bench.path(name).join("manifest.json").exists(), "{name}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_stdout_is_an_error_that_says_so() {
    let bench = Scratch::with_model();
    let output =
        bench.process("inspect m").stdout(OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
    Outcome::of(output).refused(1, &["standard output", "No space left on device"]);
}

#[test]
#[cfg(unix)]
fn a_folder_whose_name_is_no_utf8_is_as_good_as_any() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let bench = Scratch::with_model();
    let out = OsStr::from_bytes(b"out\xff");
    let run = bench.command(format!("{NEEDLE} --model m -q --out")).arg(out).output().unwrap();
    Outcome::of(run).succeeded();
    assert!(bench.path("").join(out).join("manifest.json").exists());
    Outcome::of(bench.command("run -q --resume").arg(out).output().unwrap()).succeeded();
}

#[test]
fn more_threads_than_any_machine_has_are_refused_by_the_name_of_the_variable() {
    let bench = Scratch::with_model();
    for command in [&format!("{NEEDLE} --model m --out out"), "inspect m"] {
        let refused = Outcome::of(bench.command(command).env("RAYON_NUM_THREADS", "100000").output().unwrap());
        refused.refused(2, &["RAYON_NUM_THREADS is 100000", "at most 4096"]);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_printed_is_an_error() {
    let bench = Scratch::with_model();
    for args in ["--help", "--version", "help needle", "needle -h"] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.process(args).stdout(full).output().unwrap();
        Outcome::of(output).refused(1, &["standard output", "No space left"]);
    }
}

#[test]
#[cfg(unix)]
fn a_haystack_whose_name_is_no_utf8_is_refused_by_its_flag() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = Scratch::with_model();
    let name = std::ffi::OsStr::from_bytes(b"h\xff.txt");
    std::fs::write(bench.path("").join(name), "A sentence. ".repeat(100)).unwrap();
    let mut command = bench.command("needle --ctx 256 --samples 1 --model m --out out --haystack");
    Outcome::of(command.arg(name).output().unwrap()).refused(2, &["--haystack", "is not UTF-8"]);
    assert!(!bench.exists("out"));
}

#[test]
fn completions_name_every_command_and_tables_metrics_and_claims_where_shells_can() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Scratch::new().stdout(["completions", shell]);
        assert!(commands.iter().all(|command| script.contains(command.as_str())), "{shell}");
        let names = ["heads-out", "share_out", "depth_req_pct", "T5"];
        assert!(!["bash", "zsh"].contains(&shell) || names.iter().all(|name| script.contains(name)), "{shell}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [&["completions", "bash"][..], &["prompt", "--ctx", "1k", "--jsonl", "-"]] {
        let mut child = Scratch::new().process(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}
