//! Files and folders on disk: nothing is lost by signals, full disks or a second process, nothing is written through links,
//! and a pipe is no file.

#[cfg(unix)]
use crate::common::heeding_signals;
use crate::common::{Outcome, Scratch, NEEDLE};
use std::fs;

/// A training run that takes much longer than a test.
fn long_spec() -> String {
    crate::train::SPEC.replace("tokens = 3072", "tokens = 307_200_000")
}

#[cfg(unix)]
#[test]
fn training_that_is_told_to_stop_saves_where_it_is_and_fails_like_every_command() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    for signal in ["INT", "TERM", "HUP"] {
        let bench = Scratch::with_model();
        bench.write("t.toml", long_spec());
        let mut train = bench.process("train t.toml --out out");
        train.stderr(Stdio::piped());
        let mut child = heeding_signals(&mut train).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains(" -> "), "the announcement: {line}");
        assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
        assert!(rest.contains("--resume` continues"), "{rest}");
        for variant in ["transformer", "diff"] {
            assert!(bench.path("out").join(variant).join("checkpoint/state.safetensors").exists(), "{variant}");
        }
    }
}

/// The binary, of which every file may have so many bytes (`ulimit -f`), as on a disk that is full.
#[cfg(target_os = "linux")]
fn on_a_full_disk(bench: &Scratch, args: &str, blocks: usize) -> Outcome {
    let mut limited = bench.limited(&format!("trap '' XFSZ; ulimit -f {blocks}"), args);
    Outcome::of(limited.output().unwrap())
}

#[test]
#[cfg(target_os = "linux")]
fn training_that_goes_on_with_a_full_disk_can_go_on_when_there_is_room_again() {
    let bench = Scratch::with_model();
    bench.write("t.toml", crate::train::SPEC);
    bench.run("train t.toml --out out -q").succeeded();
    let log = bench.read("out/diff/log.csv");
    let weights = bench.bytes("out/diff/model.safetensors");
    on_a_full_disk(&bench, "train t.toml --out out --resume -q", 0).refused(1, &["cannot write", "out/"]);
    assert_eq!(bench.read("out/spec.toml"), crate::train::SPEC);
    bench.run("train t.toml --out out --resume -q").succeeded();
    assert_eq!(bench.read("out/diff/log.csv"), log);
    assert!(bench.bytes("out/diff/model.safetensors") == weights);
    let partial = |folder: &str| {
        let names = fs::read_dir(bench.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().contains("partial") || name.to_string_lossy().starts_with('.'))
            .count()
    };
    assert_eq!((partial("out"), partial("out/diff"), partial("out/diff/checkpoint")), (0, 0, 0));
}

#[test]
#[cfg(unix)]
fn training_that_is_killed_leaves_nothing_that_the_next_attempt_does_not_take_up() {
    let bench = Scratch::with_model();
    bench.write("t.toml", crate::train::SPEC.replace("tokens = 3072", "tokens = 30_720_000"));
    let mut child = bench.process("train t.toml --out out -q").spawn().unwrap();
    while !bench.exists("out/diff/checkpoint/state.safetensors") {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for folder in ["out", "out/diff", "out/diff/checkpoint", "out/transformer", "out/transformer/checkpoint"] {
        for entry in fs::read_dir(bench.path(folder)).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with('.') && !name.contains("tmp"), "{folder}/{name}");
        }
    }
}

#[test]
#[cfg(unix)]
fn what_training_writes_is_as_readable_as_other_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Scratch::with_model();
    bench.write("t.toml", crate::train::SPEC);
    bench.write("other", "");
    bench.run("train t.toml --out out -q").succeeded();
    let mode = |file: &str| fs::metadata(bench.path(file)).unwrap().permissions().mode() & 0o777;
    for file in ["out/spec.toml", "out/diff/log.csv", "out/diff/eval.csv", "out/diff/model.safetensors"] {
        assert_eq!(mode(file), mode("other"), "{file}");
    }
}

#[test]
fn two_processes_do_not_train_into_one_folder() {
    let bench = Scratch::with_model();
    bench.write("t.toml", crate::train::SPEC);
    fs::create_dir_all(bench.path("out/diff")).unwrap();
    bench.write("out/spec.toml", crate::train::SPEC);
    let other = fs::File::open(bench.path("out/diff")).unwrap();
    other.lock().unwrap();
    bench.run("train t.toml --out out --resume -q").refused(1, &["another process is training into out/diff"]);
    other.unlock().unwrap(); // dropped, it could stay locked by a child that another test is about to start
    bench.run("train t.toml --out out --resume -q").succeeded();
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_cannot_be_written_names_the_file() {
    let bench = Scratch::with_model();
    let failed = on_a_full_disk(&bench, "nll --ctx 64 --samples 2 --model m --out out -q", 0);
    failed.refused(1, &["out/", "File too large"]);
    let failed = on_a_full_disk(&bench, "prompt --ctx 256 --model m --jsonl p.jsonl", 1);
    failed.refused(1, &["p.jsonl", "File too large"]);
    assert!(!bench.exists("p.jsonl"), "it is there whole or not at all");
}

#[test]
fn matrices_are_written_beside_the_results() {
    let bench = Scratch::with_model();
    bench.run("heatmap --ctx 256 --model m --data map.npy --out out -q").succeeded();
    assert!(bench.exists("map.npy") && bench.exists("out/manifest.json"));
}

/// Commands that read a file of each kind. The folder `run` is an unfinished run.
#[cfg(unix)]
const READERS: [(&str, &str); 18] = [
    ("nll --text FILE --ctx 64 --model m --out out", "strange"),
    ("nll --ids FILE --ctx 64 --model m --out out", "strange"),
    ("outliers --text FILE --ctx 64 --model m --out out", "strange"),
    ("needle --haystack FILE --ctx 256 --model m --out out", "strange"),
    ("needle --needles-file FILE --ctx 256 --model m --out out", "strange"),
    ("run FILE", "strange"),
    ("train FILE --out out", "strange"),
    ("inspect m", "m/model.safetensors"),
    ("inspect m", "m/tokenizer.json"),
    ("inspect m", "m/tokenizer_config.json"),
    ("inspect m", "m/config.json"),
    ("run --resume run", "run/cells.csv"),
    ("run --resume run", "run/results.csv"),
    ("run --resume run", "run/experiment.toml"),
    ("run --resume run", "run/begun.json"),
    ("compare whole run", "run/results.csv"),
    ("report whole", "whole/manifest.json"),
    ("report whole -o FILE", "strange"),
];

#[test]
#[cfg(unix)]
fn a_pipe_or_a_device_is_refused_before_anybody_waits_for_its_end() {
    for device in [None, Some("/dev/zero"), Some("/dev/full")] {
        for (args, file) in READERS {
            let bench = unfinished();
            let path = bench.path(file);
            let _ = fs::remove_file(&path);
            match device {
                Some(device) => std::os::unix::fs::symlink(device, &path).unwrap(),
                None => assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
            }
            let mut command = bench.command(args.replace("FILE", file));
            let outcome = Outcome::of(command.timeout(std::time::Duration::from_secs(20)).output().unwrap());
            let name = file.rsplit('/').next().unwrap();
            let named = matches!(outcome.code, Some(1 | 2)) && outcome.stderr.contains(name);
            assert!(named, "{args}, {file}, {device:?}: {}", outcome.stderr);
        }
    }
}

/// A bench with a finished run `whole`, and a copy `run` of it that was killed after the first of two prompts.
#[cfg(unix)]
fn unfinished() -> Scratch {
    let bench = Scratch::with_model();
    bench.run("needle --ctx 256 --samples 1 --needles 1 --depths 0,100 --model m --out whole -q").succeeded();
    fs::create_dir(bench.path("run")).unwrap();
    for file in ["results.csv", "experiment.toml", "begun.json", "command.json"] {
        fs::copy(bench.path("whole").join(file), bench.path("run").join(file)).unwrap();
    }
    let journal: Vec<String> = bench.read("whole/cells.csv").lines().take(2).map(|line| format!("{line}\n")).collect();
    bench.write("run/cells.csv", journal.concat());
    bench
}

#[test]
#[cfg(unix)]
fn nothing_is_written_through_a_link() {
    use std::os::unix::fs::symlink;
    let link = |bench: &Scratch, to: &str, link: &str| {
        let _ = fs::remove_file(bench.path(link));
        symlink(bench.path(to), bench.path(link)).unwrap();
    };
    for (args, file) in [
        ("run --resume run -q", "run/cells.csv"),
        ("run --resume run -q", "run/results.csv"),
        ("run --resume run -q", "run/manifest.json"),
        ("run --resume run -q", "run/manifest.json.partial"),
        ("run --resume run -q", "run/accuracy.png"),
        ("run --resume run -q --figures svg", "run/accuracy.svg"),
        ("report whole -o r.html -q", "r.html.partial"),
        ("prompt --ctx 256 --jsonl p.jsonl", "p.jsonl.partial"),
        ("heatmap --ctx 64 --model m --out out -q --data map.npy", "map.npy"),
    ] {
        // Of a file that is there, and of none.
        for victim in [Some("precious"), None] {
            let bench = unfinished();
            if let Some(text) = victim {
                bench.write("victim", text);
            }
            link(&bench, "victim", file);
            let outcome = bench.run(args);
            let after = fs::read_to_string(bench.path("victim")).ok();
            assert_eq!(after.as_deref(), victim, "{args}, {file}: {}", outcome.stderr);
        }
    }
    let damaged = unfinished();
    damaged.write("run/cells.csv", damaged.read("run/cells.csv") + "damage");
    link(&damaged, "victim", "run/cells.csv.cut-1");
    damaged.run("run --resume run -q").succeeded();
    assert!(!damaged.path("victim").exists() && damaged.path("run/cells.csv.cut-2").exists());
    for folder in ["out/diff", "out/diff/checkpoint"] {
        let bench = Scratch::with_model();
        bench.write("t.toml", crate::train::SPEC);
        fs::create_dir_all(bench.path("elsewhere")).unwrap();
        fs::create_dir_all(bench.path(folder).parent().unwrap()).unwrap();
        bench.write("out/spec.toml", crate::train::SPEC);
        link(&bench, "elsewhere", folder);
        bench.run("train t.toml --out out --resume --only diff -q").refused(1, &[folder, "is a link"]);
        assert!(fs::read_dir(bench.path("elsewhere")).unwrap().next().is_none(), "{folder}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn on_a_full_disk_the_message_says_how_to_go_on() {
    let bench = Scratch::with_model();
    bench.write("t.toml", crate::train::SPEC);
    let needle = "needle --ctx 256 --samples 40 --needles 1 --model m -q";
    for (args, remedy) in [
        (format!("{needle} --out run"), "`difftool run --resume run`"),
        (format!("{needle} --out shard --shard 1/2"), "`difftool run --resume shard --shard 1/2`"),
        (format!("{} --model m -q --figures svg --out drawn", NEEDLE), "`difftool run --resume drawn`"),
        ("explore --ctx 256 --model m --out maps -q".to_owned(), "maps"),
        ("train t.toml --out out -q".to_owned(), "`difftool train t.toml --out out --resume`"),
    ] {
        on_a_full_disk(&bench, &args, if args.contains("svg") { 64 } else { 20 }).refused(1, &["cannot ", remedy]);
        let left = fs::read_dir(bench.path("")).unwrap().flat_map(|entry| fs::read_dir(entry.unwrap().path()).ok());
        let left: Vec<_> = left.flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!left.iter().any(|name| name.ends_with(".partial") || name.starts_with(".tmp")), "{args}: {left:?}");
    }
    bench.run("run --resume run -q").succeeded();
    bench.run(format!("{needle} --out whole")).succeeded();
    assert_eq!(bench.read("run/results.csv"), bench.read("whole/results.csv"));
    bench.run("run --resume drawn -q --figures svg").succeeded();
    assert!(bench.exists("drawn/accuracy.svg"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_figure_that_cannot_be_written_costs_neither_tables_nor_manifest() {
    let bench = Scratch::with_model();
    let run = "needle --model transformer --ctx 256 --samples 1 --needles 1 --depths 50 --out run";
    // Records fit into 64 KiB; an SVG, which holds its fonts, does not.
    let outcome = on_a_full_disk(&bench, &format!("{run} --figures svg"), 64);
    outcome.refused(1, &["accuracy.svg", "the results are complete"]);
    let manifest = difftool::results::manifest::Manifest::read(&bench.path("run/manifest.json")).unwrap();
    let files: Vec<&str> = manifest.outputs.iter().map(|output| output.file.as_str()).collect();
    assert_eq!(files.first(), Some(&"results.csv"));
    assert!(files.contains(&"accuracy.svg") && !bench.exists("run/accuracy.svg"), "{files:?}");
    bench.run("run --resume run -q --figures svg").succeeded();
    assert!(bench.exists("run/accuracy.svg"));
}

#[test]
fn train_refuses_a_taken_folder() {
    let scratch = Scratch::with_model();
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/study-b-models.toml");
    scratch.refuses(["train", spec, "--out", "m"], &["m", "--resume"]);
}
