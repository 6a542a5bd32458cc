//! What a command says it will take is what it takes.

use super::Bench;
use serde_json::Value;

/// What a run said on stderr and what its manifest says it took, in MiB.
fn said_and_taken(bench: &Bench, args: &str) -> (f64, f64) {
    let run = bench.run(&format!("{args} --threads 2 --out out"));
    run.succeeded();
    let said = run.stderr.split(" MiB of memory").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    let manifest: Value = serde_json::from_str(&bench.read("out/manifest.json")).unwrap();
    let taken = manifest["peak_rss_bytes"].as_f64().unwrap() / f64::from(1 << 20);
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    let _ = std::fs::remove_file(bench.path("map.npy"));
    (said, taken)
}

#[test]
#[ignore = "minutes, and alone on the machine: cargo test --release -- --ignored every_command_says"]
#[cfg(target_os = "linux")]
fn every_command_says_how_much_memory_it_will_take() {
    let bench = Bench::new();
    let mut wrong = Vec::new();
    for args in [
        "needle --ctx 1k --samples 1 --needles 1 --heldout 0",
        "needle --ctx 4k --samples 1 --needles 1 --depths 50 --heldout 0",
        "ratio --ctx 4k --samples 1 --depths 50",
        "quantize --ctx 1k --samples 1 --depths 50",
        "outliers --tokens 4k --ctx 2k",
        "nll --ctx 4k --samples 2",
        "heatmap --ctx 4k",
        "heatmap --ctx 4k --grid",
        "heatmap --ctx 1k --full --data map.npy",
        "heatmap --ctx 2k --size 3000 --model diff",
    ] {
        let (said, taken) = said_and_taken(&bench, args);
        println!("{args}: {said:.0} MiB said, {taken:.0} MiB taken");
        if (said / taken - 1.0).abs() > 0.2 {
            wrong.push(format!("{args}: {said:.0} MiB said, {taken:.0} MiB taken"));
        }
    }
    assert!(wrong.is_empty(), "more than 20 % off:\n{}", wrong.join("\n"));
}

#[test]
#[cfg(target_os = "linux")]
fn what_does_not_fit_under_the_limits_of_the_process_is_refused_before_it_is_tried() {
    let bench = Bench::new();
    let spec = crate::train::SPEC.replace("width = 32", "width = 8192").replace("layers = 2", "layers = 40");
    bench.write("t.toml", spec.replace("ffn = 48", "ffn = 24576"));
    bench.run("train t.toml --out out -q").refused(2, &["training takes about", "GiB are free", "width"]);
    assert!(!bench.path("out").exists());
    let program = assert_cmd::cargo::cargo_bin("difftool");
    let script = format!("ulimit -d 200000; exec '{}' needle --ctx 4k --out out", program.display());
    let output = std::process::Command::new("bash").args(["-c", &script]).current_dir(bench.path("")).output().unwrap();
    super::Outcome::of(output).refused(2, &["--ctx 4096 needs about", "GiB are free"]);
}

#[test]
fn maps_that_make_too_large_a_figure_are_refused_before_they_are_measured() {
    let bench = Bench::new();
    bench.run("heatmap --ctx 256 --size 4096 --out out").refused(2, &["--size 4096", "2 maps", "at most"]);
    assert!(!bench.path("out").exists());
}

#[test]
fn a_context_that_does_not_fit_is_refused_before_its_prompt_is_made() {
    let bench = Bench::new();
    super::edit_json(&bench.path("m/config.json"), |config| config["max_position_embeddings"] = (1 << 27).into());
    for command in ["needle", "ratio", "quantize", "outliers", "nll", "heatmap", "heads", "ablate", "explore"] {
        let args = format!("{command} --ctx 64m --model m --out out");
        // A prompt of that length takes 4 GB and half a minute.
        let started = std::time::Instant::now();
        bench.run(&args).refused(2, &["GiB are free", "67108864"]);
        assert!(started.elapsed().as_secs() < 10, "{command}");
        assert!(!bench.path("out").exists(), "{command}");
    }
}
