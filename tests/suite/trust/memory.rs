//! What a command says it will take is what it takes.

use super::Bench;
use crate::common::preset;
use candle_core::DType;
use difftool::model::{DecoderSizes, ModelConfig, Weights};
use difftool::ops::RopeStyle;
use difftool::prompt::Tokenizer;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// What every command says is measured by. The models: `m` is tiny, `deep` has 48 layers of 16 heads, `wide` 27 M
/// parameters in bf16.
const COMMANDS: [&str; 25] = [
    "needle --ctx 256 --samples 1 --needles 1 --depths 50 --heldout 0 --model m",
    "needle --ctx 1k --samples 1 --needles 1 --heldout 0",
    "needle --ctx 4k --samples 1 --needles 1 --depths 50 --heldout 0",
    "needle --ctx 1k --samples 2 --needles 1 --depths 50 --generate",
    "ratio --ctx 4k --samples 1 --depths 50",
    "ratio --ctx 512 --samples 2 --depths 50 --model deep",
    "quantize --ctx 1k --samples 1 --depths 50",
    "outliers --tokens 4k --ctx 2k",
    "outliers --tokens 1k --ctx 512 --model deep",
    "nll --ctx 4k --samples 2",
    "nll --ctx 1k --samples 2 --text long.txt",
    "heads --ctx 512 --samples 1 --model deep",
    "heatmap --ctx 4k",
    "heatmap --ctx 4k --grid",
    "heatmap --ctx 1k --full --data map.npy",
    "heatmap --ctx 1k --size 4096 --model diff --map effective",
    "heatmap --ctx 2k --size 3000 --model diff",
    "explore --ctx 2k",
    "nll --ctx 1k --samples 1 --model wide --weights memory",
    "nll --ctx 1k --samples 1 --model wide --weights packed",
    "nll --ctx 1k --samples 1 --model wide --weights disk",
    "ratio --ctx 1k --samples 1 --depths 50 --model wide --weights packed",
    "ratio --ctx 1k --samples 2 --depths 50 --model wide --weights packed",
    "needle --ctx 512 --samples 1 --needles 1 --depths 50 --heldout 0 --generate --model wide --weights disk",
    "train t.toml",
];

/// Those of a real GGUF file, `SmolLM2-135M-Instruct.Q4_1.gguf` of `tests/real_models.sh`, where it is.
const OF_REAL_MODEL: [&str; 6] = [
    "nll --ctx 2k --samples 1 --model real --weights memory",
    "nll --ctx 2k --samples 1 --model real --weights packed",
    "nll --ctx 2k --samples 1 --model real --weights disk",
    "heads --ctx 1k --samples 1 --model real --weights packed",
    "heads --ctx 1k --samples 1 --model real --weights disk",
    "needle --ctx 1k --samples 1 --needles 1 --depths 50 --heldout 0 --model real",
];

/// Those that are fast enough to be checked with every change.
const FAST_COMMANDS: [&str; 7] = [
    "needle --ctx 256 --samples 1 --needles 1 --depths 50 --heldout 0 --model m",
    "needle --ctx 1k --samples 1 --needles 1 --depths 50 --heldout 0",
    "ratio --ctx 512 --samples 2 --depths 50 --model deep",
    "nll --ctx 1k --samples 1 --model wide --weights memory",
    "nll --ctx 1k --samples 1 --model wide --weights packed",
    "nll --ctx 1k --samples 1 --model wide --weights disk",
    "train t.toml",
];

/// What a run said on stderr and what it took, in MiB.
fn said_and_taken(bench: &Bench, args: &str) -> (f64, f64) {
    let is_run = !args.starts_with("train");
    let threads = if is_run { " --threads 2" } else { "" };
    let args = args.replace("--model real", &format!("--model {}", real_model().display()));
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("difftool"));
    command.current_dir(bench.path("")).args(format!("{args}{threads} --out out").split_whitespace());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.split(" MiB of memory").next()?.rsplit(' ').next()?.parse().ok());
    // The rest of what it says goes to a thread, so that it never waits for a reader.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let status = format!("/proc/{}/status", child.id());
    let mut taken = 0.0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        taken = peak.unwrap_or(taken);
        std::thread::sleep(Duration::from_millis(2)); // until it ends: the peak only rises
    }
    assert!(child.wait().unwrap().success(), "{args}: {:?}", rest.join());
    let said: f64 = said.unwrap_or_else(|| panic!("{args} says nothing"));
    if is_run {
        let manifest: serde_json::Value = serde_json::from_str(&bench.read("out/manifest.json")).unwrap();
        let mib = |field: &str| manifest[field].as_f64().unwrap() / f64::from(1 << 20);
        assert_eq!(mib("expected_rss_bytes").floor(), said, "{args}");
        assert!(mib("peak_rss_bytes") <= taken / 1024.0 + 1.0, "{args}");
    }
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    (said, taken / 1024.0)
}

/// Path of a real model, which need not be there.
fn real_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-models/SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// What small processes differ by from run to run and from build to build, in MiB.
const SLACK_MIB: f64 = 16.0;

/// Runs commands, prints a table of what they said and took, and fails if that differs by more than 20 % and 16 MiB.
#[track_caller]
fn assert_said_is_taken(commands: &[&str]) {
    let bench = Bench::new();
    random_model(&bench.path("deep"), [64, 48, 96, 16, 4], DType::F32);
    random_model(&bench.path("wide"), [512, 8, 1536, 8, 64], DType::BF16);
    let spec = crate::train::SPEC.replace("width = 32", "width = 128").replace("ffn = 48", "ffn = 512");
    bench.write("t.toml", spec);
    bench.write("long.txt", "The river went past the old house, and nobody counted the days. ".repeat(160_000));
    let mut wrong = Vec::new();
    for args in commands {
        let (said, mut taken) = said_and_taken(&bench, args);
        // What is said is the most there can be: passes side by side come to it only when they are at their widest together.
        for _ in 0..3 {
            if said > 1.2 * taken {
                taken = said_and_taken(&bench, args).1.max(taken);
            }
        }
        println!("| `{args}` | {said:.0} | {taken:.0} | {:+.0} % |", 100.0 * (said / taken - 1.0));
        if (said - taken).abs() > (0.2 * taken).max(SLACK_MIB) {
            wrong.push(format!("{args}: {said:.0} MiB said, {taken:.0} MiB taken"));
        }
        for entry in std::fs::read_dir(bench.path("")).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|extension| extension == "npy") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "more than 20 % off:\n{}", wrong.join("\n"));
}

#[test]
#[ignore = "minutes: cargo test --release -- --ignored --nocapture every_command_says"]
#[cfg(target_os = "linux")]
fn every_command_says_how_much_memory_it_will_take() {
    let of_real_model = if real_model().is_file() { &OF_REAL_MODEL[..] } else { &[] };
    assert_said_is_taken(&[&COMMANDS, of_real_model].concat());
}

#[test]
#[cfg(target_os = "linux")]
fn commands_say_how_much_memory_they_will_take_wherever_weights_are() {
    assert_said_is_taken(&FAST_COMMANDS);
}

/// A random model with these sizes: width, layers, width of the MLP, heads and width of a head.
fn random_model(dir: &Path, [width, layers, ffn, heads, head_dim]: [usize; 5], dtype: DType) {
    let sizes = DecoderSizes {
        vocab: Tokenizer::embedded().vocab_size(),
        width,
        layers,
        ffn,
        heads,
        kv_heads: heads,
        head_dim,
        max_ctx_tok: 4096,
    };
    let config = ModelConfig::llama(preset("transformer"), sizes, 10_000.0, RopeStyle::Half);
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), format!("{:#}", config.to_json())).unwrap();
    std::fs::write(dir.join("tokenizer.json"), Tokenizer::embedded().json()).unwrap();
    Weights::init(&config, 1).unwrap().write(&dir.join("model.safetensors"), dtype, &[]).unwrap();
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
    super::Outcome::of(output).refused(2, &["--ctx 4096 needs about", "MiB are free"]);
}

#[test]
fn maps_that_make_too_large_a_figure_are_refused_before_they_are_measured() {
    let bench = Bench::new();
    bench.run("heatmap --ctx 256 --size 4096 --out out").refused(2, &["--size 4096", "3 maps", "at most"]);
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
