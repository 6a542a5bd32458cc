//! What does not fit into memory is refused before it is tried.

use crate::common::{commands_with, refuses, tiny_model, Scratch};

#[test]
fn training_that_does_not_fit_is_refused() {
    let bench = Scratch::with_model();
    let spec = crate::train::SPEC.replace("width = 32", "width = 8192").replace("layers = 2", "layers = 40");
    bench.write("t.toml", spec.replace("ffn = 48", "ffn = 24576"));
    bench.run("train t.toml --out out -q").refused(2, &["training needs", "GiB are free", "width"]);
    assert!(!bench.exists("out"));
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_limit_of_addresses_leaves_is_what_is_free() {
    let bench = Scratch::with_model();
    bench.edit_json("m/config.json", |config| config["max_position_embeddings"] = (1 << 27).into());
    let mut limited = bench.limited("ulimit -v 1500000", "needle --ctx 64m --model m --out out");
    refuses(&mut limited, 2, &["--ctx 67108864 needs up to", "MiB are free"]);
}

#[test]
fn a_context_that_does_not_fit_is_refused_before_its_prompt_is_made() {
    let bench = Scratch::with_model();
    bench.edit_json("m/config.json", |config| config["max_position_embeddings"] = (1 << 27).into());
    tiny_model(&bench.path("n"), "transformer");
    bench.edit_json("n/config.json", |config| config["max_position_embeddings"] = (1 << 27).into());
    let commands = commands_with(&["--ctx", "--model", "--out"]);
    assert!(commands.len() >= 11, "{commands:?}");
    for command in commands {
        let baseline = if command == "claims" { "--baseline n" } else { "" };
        let args = format!("{command} --ctx 64m --model m {baseline} --out out");
        // A prompt of that length takes 4 GB and half a minute.
        let started = std::time::Instant::now();
        bench.run(&args).refused(2, &["GiB are free", "67108864"]);
        assert!(started.elapsed().as_secs() < 10, "{command}");
        assert!(!bench.exists("out"), "{command}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_whose_memory_is_that_of_its_passes_takes_at_most_what_is_said_before_it() {
    let bench = Scratch::with_model();
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
        let printed = bench.run(format!("{args} --model diff --print-experiment"));
        bench.write(&file, &printed.succeeded().stdout);
        let said = bench.run(format!("run {file} --dry-run --json"));
        let said: serde_json::Value = serde_json::from_str(&said.succeeded().stdout).unwrap();
        bench.run(format!("run {file} --out {out} -q")).succeeded();
        let manifest = difftool::results::manifest::Manifest::read(&bench.path(&out).join("manifest.json")).unwrap();
        let (said, taken) = (said["memory_bytes"].as_u64().unwrap() >> 20, manifest.peak_rss_bytes.unwrap() >> 20);
        assert!(taken <= said, "{args}: {said} MiB said, {taken} MiB taken");
    }
}
