//! Several seeds of a spec: where they go, that they can be stopped and trained one by one, and what variants share.

use crate::common::{printed, train, Scratch, StopAfter};
use difftool::train::*;
use engine::attention::VariantName;
use engine::model::{ModelConfig, Placement, Weights, TENSOR_FILE};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Two small variants, ten steps each.
const SPEC: &str = r#"
question = "Do seeds keep apart?"
seeds = [3, 5]
model = { width = 32, layers = 2, heads = 4, head_dim = 8, ffn = 48, rope_theta = 10000.0, max_ctx_tok = 64 }
loss = { first_digit = 2.0, other_digits = 2.0, new_digits = 0.5 }
watch = { log_every_tok = 512, eval_every_tok = 1024, eval_samples = 1, save_every_tok = 1024 }

[[variant]]
name = "transformer"
attention = "transformer"

[[variant]]
name = "gated-diff"
attention = { preset = "diff", gate = true }
ffn = 38                # pays for the gate

[optimizer]
rate = 1e-2
final_fraction = 0.1
warmup_tok = 512
beta1 = 0.9
beta2 = 0.95
weight_decay = 0.1
clip = 1.0

[[stage]]
ctx_tok = 64
tokens = 2560
step_tok = 256
data = { facts = [1, 3], restate = 2.0, prose = 0.0, wordings = [1.0], exam = 0.0, synthetic = 0.5 }
"#;

const RUNS: [&str; 4] = ["transformer/seed-3", "gated-diff/seed-3", "transformer/seed-5", "gated-diff/seed-5"];

fn spec() -> TrainSpec {
    TrainSpec::parse(SPEC, "spec.toml").unwrap()
}

fn run(runs: &[TrainRun], out: &Path, resume: bool, steps: usize) -> TrainOutcome {
    let stop = AtomicBool::new(false);
    train_runs(&spec().open().unwrap(), runs, out, resume, &Placement::default(), &stop, &StopAfter::new(steps, &stop))
        .unwrap()
}

/// Everything a run leaves, without the column of speeds.
fn left(out: &Path, run: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in [TENSOR_FILE, "config.json", "eval.csv", "layers.csv", "checkpoint/state.safetensors", "log.csv"] {
        let path = out.join(run).join(name);
        let mut bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if name == "log.csv" {
            let text = String::from_utf8(bytes).unwrap();
            bytes = text.lines().map(|line| line.rsplit_once(',').unwrap().0).collect::<Vec<_>>().join("\n").into();
        }
        files.insert(name.to_owned(), bytes);
    }
    files
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    for run in RUNS {
        let (a, b) = (left(a, run), left(b, run));
        a.iter().for_each(|(name, bytes)| assert!(*bytes == b[name], "{run}/{name}"));
    }
}

#[test]
fn seeds_that_are_stopped_and_resumed_or_trained_one_by_one_end_with_the_same_bytes() {
    let folders: Vec<_> = (0..3).map(|_| Scratch::new()).collect();
    let [whole, parts, single] = [0, 1, 2].map(|i| folders[i].folder());
    let runs = spec().runs();
    assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), RUNS);
    assert_eq!(run(&runs, whole, false, usize::MAX), TrainOutcome::Finished);
    // In the middle of the first runs, and of the last ones.
    assert_eq!(run(&runs, parts, false, 7), TrainOutcome::Stopped);
    assert_eq!(run(&runs, parts, true, 23), TrainOutcome::Stopped);
    assert_eq!(run(&runs, parts, true, usize::MAX), TrainOutcome::Finished);
    assert_same(whole, parts);
    for one in runs.iter().rev() {
        assert_eq!(run(std::slice::from_ref(one), single, true, usize::MAX), TrainOutcome::Finished);
    }
    assert_same(whole, single);
    assert_ne!(left(whole, RUNS[0])[TENSOR_FILE], left(whole, RUNS[2])[TENSOR_FILE], "other seeds, other models");

    // A single seed has its folder without a number, and the same bytes.
    let (one, stop) = (Scratch::new(), AtomicBool::new(false));
    let spec = TrainSpec { seed: Some(5), seeds: None, ..spec() };
    let nobody = StopAfter::new(usize::MAX, &stop);
    assert_eq!(train(&spec, one.folder(), false, &stop, &nobody).unwrap(), TrainOutcome::Finished);
    assert!(left(one.folder(), "transformer") == left(whole, "transformer/seed-5"));
}

#[test]
fn runs_that_were_finished_before_count_when_the_study_goes_on() {
    let scratch = Scratch::new();
    scratch.write("spec.toml", SPEC);
    let told = |args: &[&str]| {
        let output = scratch.run([&["train", "spec.toml", "--out", "study"], args].concat());
        output.stderr
    };
    let first = told(&["--only", "transformer"]);
    assert!(first.contains("; 2 of 2 runs\n"), "{first}");
    let rest = told(&["--resume"]);
    assert!(rest.contains("; 4 of 4 runs\n") && !rest.contains("; 2 of 4 runs"), "{rest}");
}

/// A configuration as it would be without what a variant says.
fn without(config: &ModelConfig, base: &ModelConfig, said: &VariantSpec) -> ModelConfig {
    let mut config = config.clone();
    if said.attention != VariantName::from("transformer") {
        (config.variant, config.model_type) = (base.variant, base.model_type.clone());
    }
    // How many output heads a variant has follows from its attention.
    (config.heads, config.kv_heads) = (base.heads, base.kv_heads);
    if said.ffn.is_some() {
        config.ffn = base.ffn;
    }
    if said.head_dim.is_some() {
        (config.head_dim, config.positions, config.layers) =
            (base.head_dim, base.positions.clone(), base.layers.clone());
    }
    config
}

#[test]
fn variants_of_a_spec_differ_only_in_what_they_name() {
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/study-a-norm.toml");
    let spec = TrainSpec::read(&study).unwrap();
    let configs = spec.configs().unwrap();
    assert_eq!(spec.runs().len(), spec.variants.len() * 5);
    let weights = |i: usize| Weights::init_with(&configs[i], 1, &spec.variants[i].init()).unwrap();
    let base: BTreeMap<String, Vec<f32>> =
        weights(0).iter().map(|(name, x)| (name.clone(), x.flatten_all().unwrap().to_vec1().unwrap())).collect();
    for (i, said) in spec.variants.iter().enumerate() {
        assert_eq!(without(&configs[i], &configs[0], said), configs[0], "{}", said.name);
        for (name, tensor) in weights(i).iter() {
            let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let Some(base) = base.get(name).filter(|base| base.len() == values.len()) else { continue };
            let named = (said.zero_output && name.ends_with("o_proj.weight"))
                || (said.embedding_deviation.is_some() && name.contains("embed_tokens"));
            assert_eq!(*base != values, named, "{}: {name}", said.name);
        }
    }
}

#[test]
fn what_runs_came_to_is_summed_up_without_training_from_logs_or_from_their_course_alone() {
    let folder = Scratch::new();
    let out = folder.path("study");
    let with_contrast =
        format!("{SPEC}\n[[contrast]]\nname = \"the gate\"\nof = [\"gated-diff\"]\nless = [\"transformer\"]\n");
    folder.write("spec.toml", &with_contrast);
    assert_eq!(run(&spec().runs()[..3], &out, false, usize::MAX), TrainOutcome::Finished);
    let summary = |tables: &[&str]| printed(folder.command("train spec.toml --out study --summary").args(tables));
    let printed = summary(&[]);
    assert!(printed.contains("3 of 4 runs are finished.") && printed.contains("Fewer than three"), "{printed}");
    assert!(printed.contains("Undecided: ") && summary(&["--tables", "differences"]).contains("the gate"), "{printed}");
    assert!(printed.lines().count() <= 24 && !printed.contains("context RMS"), "{printed}");
    assert!(summary(&["--tables", "inside"]).contains("context RMS"));
    let course = std::fs::read_to_string(out.join("course.csv")).unwrap();
    assert_eq!(course.lines().count(), 1 + 3 * 5, "a line for each line of the three logs");
    let recipe = plot::read_recipe(&out.join("curves.png")).unwrap();
    let keywords: Vec<&str> = recipe.iter().map(|(keyword, _)| keyword.as_str()).collect();
    assert_eq!(keywords, ["Software", "command", "seed", "pooling"], "as of every other figure");
    assert!(out.join("summary.csv").is_file());
    // Of what is left when the models are gone, the same comes out.
    ["transformer", "gated-diff"].iter().for_each(|variant| std::fs::remove_dir_all(out.join(variant)).unwrap());
    assert_eq!(summary(&[]), printed);
    assert_eq!(std::fs::read_to_string(out.join("course.csv")).unwrap(), course);
    std::fs::remove_file(out.join("course.csv")).unwrap();
    let words = ["it has no log of a run of spec.toml"];
    folder.fails("train spec.toml --out study --summary", 2, &words);
}
