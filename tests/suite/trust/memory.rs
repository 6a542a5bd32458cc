//! What does not fit into memory is refused before it is tried.

use super::Bench;

#[test]
fn training_that_does_not_fit_is_refused() {
    let bench = Bench::new();
    let spec = crate::train::SPEC.replace("width = 32", "width = 8192").replace("layers = 2", "layers = 40");
    bench.write("t.toml", spec.replace("ffn = 48", "ffn = 24576"));
    bench.run("train t.toml --out out -q").refused(2, &["training needs", "GiB are free", "width"]);
    assert!(!bench.path("out").exists());
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_limit_of_addresses_leaves_is_what_is_free() {
    let bench = Bench::new();
    super::edit_json(&bench.path("m/config.json"), |config| config["max_position_embeddings"] = (1 << 27).into());
    let program = assert_cmd::cargo::cargo_bin("difftool");
    let script = format!("ulimit -v 1500000; exec '{}' needle --ctx 64m --model m --out out", program.display());
    let output = std::process::Command::new("bash").args(["-c", &script]).current_dir(bench.path("")).output().unwrap();
    super::Outcome::of(output).refused(2, &["--ctx 67108864 needs up to", "MiB are free"]);
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

#[test]
#[cfg(target_os = "linux")]
fn a_run_whose_memory_is_that_of_its_passes_takes_at_most_what_is_said_before_it() {
    let bench = Bench::new();
    for (i, args) in [
        "outliers --ctx 256 --samples 4",
        "heatmap --ctx 1k --grid",
        "heatmap --ctx 512 --grid --full --data all.npz",
        "needle --ctx 128 --samples 400 --needles 1 --depths 50",
        "ratio --ctx 128 --needles 1 --samples 100 --depths 50",
        "heads --ctx 128 --needles 1 --samples 40 --depths 50 --condition mask(noise)",
        "quantize --ctx 128 --needles 1 --samples 20 --depths 50 --each-layer",
        "ablate --ctx 128 --needles 1 --samples 4 --depths 50 --parts each-head",
        "nll --ctx 128 --samples 100",
    ]
    .into_iter()
    .enumerate()
    {
        let (file, out) = (format!("{i}.toml"), format!("run-{i}"));
        let printed = bench.run(&format!("{args} --model diff --print-experiment"));
        bench.write(&file, &printed.succeeded().stdout);
        let said = bench.run(&format!("run {file} --dry-run --json"));
        let said: serde_json::Value = serde_json::from_str(&said.succeeded().stdout).unwrap();
        bench.run(&format!("run {file} --out {out} -q")).succeeded();
        let manifest = difftool::results::manifest::Manifest::read(&bench.path(&out).join("manifest.json")).unwrap();
        let (said, taken) = (said["memory_bytes"].as_u64().unwrap() >> 20, manifest.peak_rss_bytes.unwrap() >> 20);
        assert!(taken <= said, "{args}: {said} MiB said, {taken} MiB taken");
    }
}
