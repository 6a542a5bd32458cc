//! What a command says it will take is what it takes.

use super::Bench;
use crate::common::preset;
use candle_core::quantized::GgmlDType;
use candle_core::DType;
use difftool::model::{DecoderSizes, ModelConfig, Weights};
use difftool::ops::RopeStyle;
use difftool::prompt::Tokenizer;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// What every command says is measured by. The models: `m` is tiny, `deep` has 48 layers of 16 heads, `wide` 27 M
/// parameters in bf16, `llama.gguf` an embedding of 20 M in Q8_0.
const COMMANDS: [&str; 27] = [
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
    "nll --ids ids.txt --ctx 64 --samples 1 --model llama.gguf --weights packed",
    "nll --ids ids.txt --ctx 64 --samples 1 --model llama.gguf --weights disk",
    "train t.toml",
];

/// Real GGUF files of `tests/real_models.sh`, by the names that they have here.
const REAL_MODELS: [(&str, &str); 2] =
    [("smollm2.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("gemma3.gguf", "gemma-3-270m-q4_k_m.gguf")];

/// Commands of real models, where these are.
const COMMANDS_OF_REAL_MODELS: [&str; 12] = [
    "nll --ctx 1k --samples 1 --model smollm2.gguf --weights memory",
    "nll --ctx 1k --samples 1 --model smollm2.gguf --weights packed",
    "nll --ctx 1k --samples 1 --model smollm2.gguf --weights disk",
    "heads --ctx 1k --samples 1 --model smollm2.gguf --weights packed",
    "heads --ctx 1k --samples 1 --model smollm2.gguf --weights disk",
    "needle --ctx 1k --samples 1 --needles 1 --depths 50 --heldout 0 --model smollm2.gguf",
    "ratio --ctx 2k --samples 1 --depths 50 --heldout 0 --model smollm2.gguf --weights memory",
    "ratio --ctx 2k --samples 1 --depths 50 --heldout 0 --model smollm2.gguf --weights packed",
    "ratio --ctx 2k --samples 1 --depths 50 --heldout 0 --model smollm2.gguf --weights disk",
    "ratio --ctx 1k --samples 1 --depths 50 --heldout 0 --model gemma3.gguf --weights memory",
    "ratio --ctx 1k --samples 1 --depths 50 --heldout 0 --model gemma3.gguf --weights packed",
    "ratio --ctx 1k --samples 1 --depths 50 --heldout 0 --model gemma3.gguf --weights disk",
];

/// Those that are fast enough to be checked with every change.
const FAST_COMMANDS: [&str; 10] = [
    "needle --ctx 256 --samples 1 --needles 1 --depths 50 --heldout 0 --model m",
    "needle --ctx 1k --samples 1 --needles 1 --depths 50 --heldout 0",
    "ratio --ctx 512 --samples 2 --depths 50 --model deep",
    "nll --ctx 1k --samples 1 --model wide --weights memory",
    "nll --ctx 1k --samples 1 --model wide --weights packed",
    "nll --ctx 1k --samples 1 --model wide --weights disk",
    "nll --ids ids.txt --ctx 64 --samples 1 --model llama.gguf --weights packed",
    "nll --ids ids.txt --ctx 64 --samples 1 --model llama.gguf --weights disk",
    "ratio --ctx 512 --samples 1 --depths 50 --heldout 0 --model smollm2.gguf --weights disk",
    "train t.toml",
];

/// What a run said on stderr and what it took, in MiB.
fn said_and_taken(bench: &Bench, args: &str) -> (f64, f64) {
    let is_run = !args.starts_with("train");
    let threads = if is_run { " --threads 2" } else { "" };
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
    write_large_vocabulary(&bench);
    link_real_models(&bench);
    let mut wrong = Vec::new();
    for args in commands {
        let real = REAL_MODELS.iter().find(|(name, _)| args.contains(name));
        if let Some((name, file)) = real.filter(|(name, _)| !bench.path(name).exists()) {
            eprintln!("not tested: {name} stands for {file}, which tests/real_models.sh gets");
            continue;
        }
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
    assert_said_is_taken(&[&COMMANDS[..], &COMMANDS_OF_REAL_MODELS].concat());
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

/// Writes `llama.gguf`, of which rows of the embedding and parts of the output head are all that is large, and `ids.txt`,
/// which it can measure without a tokenizer.
fn write_large_vocabulary(bench: &Bench) {
    crate::gguf::write_both(&bench.path(""), "llama", GgmlDType::Q8_0, |config| {
        (config["vocab_size"], config["hidden_size"]) = (10_000.into(), 2048.into());
        config["tie_word_embeddings"] = true.into();
    });
    bench.write("ids.txt", (1..=70).map(|id| format!("{} ", 140 * id)).collect::<String>());
}

/// Makes the real models that are there known by their names here.
fn link_real_models(bench: &Bench) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-models");
    for (name, file) in REAL_MODELS.iter().filter(|(_, file)| folder.join(file).is_file()) {
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder.join(file), bench.path(name)).unwrap();
    }
}

/// The binary with so many KiB of addresses (`ulimit -v`), and two threads.
#[cfg(target_os = "linux")]
fn with_addresses(bench: &Bench, kib: u64, args: &str) -> super::Outcome {
    let program = assert_cmd::cargo::cargo_bin("difftool");
    let script = format!("ulimit -v {kib}; exec '{}' {args}", program.display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(bench.path("")).env("RAYON_NUM_THREADS", "2");
    super::Outcome::of(shell.output().unwrap())
}

#[test]
#[cfg(target_os = "linux")]
fn what_runs_with_few_addresses_runs_with_more_and_the_rest_is_refused() {
    let bench = Bench::new();
    bench.write("t.toml", crate::train::SPEC);
    write_large_vocabulary(&bench);
    let needle = format!("{} --model m", super::NEEDLE);
    let nll = "nll --ids ids.txt --ctx 64 --samples 1 --model llama.gguf";
    for args in [&needle, nll, "train t.toml"] {
        let mut least = None;
        for kib in (40_000..280_000).step_by(12_000) {
            if with_addresses(&bench, kib, "--version").code != Some(0) {
                continue; // the program itself has no room
            }
            let outcome = with_addresses(&bench, kib, &format!("{args} --out out -q"));
            let _ = std::fs::remove_dir_all(bench.path("out"));
            if outcome.code == Some(0) {
                least = least.or(Some(kib));
                continue;
            }
            let message = outcome.stderr.lines().last().unwrap_or_default();
            let is_refusal = matches!(outcome.code, Some(1 | 2)) && message.starts_with("difftool: ");
            assert!(is_refusal, "{args} with {kib} KiB: {:?}, {}", outcome.code, outcome.stderr);
            // What is taken differs a little from run to run.
            let is_near = least.is_none_or(|least| kib < least * 11 / 10);
            assert!(is_near, "{args} runs with {least:?} KiB and not with {kib}: {message}");
        }
        assert!(least.is_some(), "{args} runs with none of the limits");
    }
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
