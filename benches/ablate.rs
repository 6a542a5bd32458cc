//! Passes of one prompt under many conditions, and over a text without each of its sentences: whole passes against passes that
//! share the keys and values before the first row that changes.
//!
//! `cargo bench --bench ablate` prints medians and extremes and writes `target/bench/ablate.csv`; `--rounds N` sets the
//! rounds. Both sides measure accuracy under conditions that take out one head in the rows of the answer, on a prompt of
//! 1,024 tokens, in turn and in CPU time. Before anything is timed, their records must be equal.

mod common;

use anyhow::{ensure, Result};
use common::{cpu_model, cpu_seconds, is_real, number, random_model, spread, write};
use difftool::commands::Experiment;
use difftool::results::record::Record;
use difftool::run::{check, measure_prompts, Setup};
use engine::model::DecoderSizes;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// As in `main.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CTX_TOK: usize = 1024;

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    model: String,
    /// Conditions, or sentences.
    of: &'static str,
    count: usize,
    ctx_tok: usize,
    rounds: usize,
    cpu: String,
    /// CPU seconds of the untreated pass, of whole passes, and of passes that share.
    untreated_s: f64,
    whole_s: f64,
    shared_s: f64,
    /// Whole passes as a multiple of shared ones in the same round: median, least and most.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
    /// Shared passes as a multiple of an untreated one.
    untreated_passes: f64,
}

fn main() -> Result<()> {
    std::env::set_var("CANDLE_NUM_THREADS", "1"); // as in `main.rs`
    let rounds = number("--rounds", if is_real() { 5 } else { 1 })?;
    println!("{}, {} threads; {CTX_TOK} tokens; {rounds} rounds; CPU time", cpu_model(), rayon::current_num_threads());
    let mut models = vec![("transformer".to_owned(), 4, 4), ("diff".to_owned(), 4, 2)];
    if is_real() {
        models.push((model_of_30_layers()?, 30, 9));
    }
    let counts = if is_real() { vec![1, 10, 60] } else { vec![2] };
    let mut rows = Vec::new();
    for (model, layers, heads) in models {
        for &conditions in &counts {
            let conditions = conditions.min(layers * heads);
            let setup = |whole_passes| setup(&model, (layers, heads), conditions, whole_passes);
            rows.push(measure(&model, "conditions", conditions, [setup(true)?, setup(false)?], rounds)?);
        }
        let sentences = if is_real() { 24 } else { 4 };
        let setup = |whole_passes| context(&model, sentences, whole_passes);
        rows.push(measure(&model, "sentences", sentences, [setup(true)?, setup(false)?], rounds)?);
    }
    write("ablate.csv", &rows)
}

/// Writes a random model of the shape of SmolLM2-135M, with the embedded tokenizer. Returns its folder.
fn model_of_30_layers() -> Result<String> {
    let sizes = DecoderSizes {
        vocab: 8192,
        width: 576,
        layers: 30,
        ffn: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        max_ctx_tok: CTX_TOK,
    };
    let (folder, _) = random_model("llama-30-layers", "transformer", sizes)?;
    Ok(folder.to_string_lossy().into_owned())
}

fn setup(model: &str, (layers, heads): (usize, usize), conditions: usize, whole_passes: bool) -> Result<Setup> {
    // Heads of all layers.
    let head = |i: usize| format!("\"ablate({}.{}, zero)\"", i % layers, i / layers % heads);
    let conditions: Vec<String> = (0..conditions).map(head).collect();
    let text = format!(
        "command = \"ablate\"\nparts = []\n[run]\nmodel = [{model:?}]\ncondition = [{}]\n[prompts]\n\
         ctx = [\"{CTX_TOK}\"]\ndepths = [50.0]\nsamples = 1",
        conditions.join(", ")
    );
    let mut setup = Experiment::parse(&text, "bench")?.setups()?.each.remove(0);
    setup.whole_passes = whole_passes;
    Ok(setup)
}

/// A text of so many sentences, of which each is taken out.
fn context(model: &str, sentences: usize, whole_passes: bool) -> Result<Setup> {
    let sentence = "The boats of the old harbour come home at night, and nobody counts them before the morning. ";
    let text = format!(
        "command = \"context\"\n[run]\nmodel = [{model:?}]\n[texts]\nsplit = \"sentences\"\nprompt = \"{}\"\n\
         question = \"How many boats are there?\"\nanswer = [\"17\"]",
        sentence.repeat(sentences)
    );
    let mut setup = Experiment::parse(&text, "bench")?.setups()?.each.remove(0);
    setup.whole_passes = whole_passes;
    Ok(setup)
}

/// Runs the prompt under all conditions. Returns the records and the CPU seconds.
fn run(setup: &Setup) -> Result<(Vec<Record>, f64)> {
    let prompts = setup.grid.prompts();
    let mut measures = setup.measures()?;
    check(setup, &prompts)?;
    let mut records = Vec::new();
    let start = cpu_seconds();
    measure_prompts(setup, &prompts, &mut measures.list(), &AtomicBool::new(false), &mut |_, found| {
        records.extend_from_slice(found.records);
        Ok(())
    })?;
    Ok((records, cpu_seconds() - start))
}

fn measure(model: &str, of: &'static str, count: usize, [whole, shared]: [Setup; 2], rounds: usize) -> Result<Row> {
    let untreated = {
        let mut untreated = shared.clone();
        untreated.conditions.truncate(1);
        if of == "sentences" {
            untreated.plan.measures.clear(); // nothing is taken out
        }
        untreated
    };
    let [a, b] = [&whole, &shared].map(|setup| run(setup).map(|(records, _)| format!("{records:?}")));
    ensure!(a? == b?, "{model}: records differ");
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        seconds.push([run(&untreated)?.1, run(&whole)?.1, run(&shared)?.1]);
    }
    let spread_of = |value: fn(&[f64; 3]) -> f64| spread(seconds.iter().map(value));
    let (ratio, passes) = (spread_of(|s| s[1] / s[2]), spread_of(|s| s[2] / s[0]));
    let name = model.rsplit('/').next().unwrap_or(model).to_owned();
    println!(
        "{name:16} {count:3} {of}: whole {:.2} s, shared {:.2} s, {:.1} times ({:.1} to {:.1}); {:.2} untreated passes",
        spread_of(|s| s[1])[0],
        spread_of(|s| s[2])[0],
        ratio[0],
        ratio[1],
        ratio[2],
        passes[0]
    );
    Ok(Row {
        model: name,
        of,
        count,
        ctx_tok: shared.grid.ctx_tok()[0],
        rounds,
        cpu: cpu_model(),
        untreated_s: spread_of(|s| s[0])[0],
        whole_s: spread_of(|s| s[1])[0],
        shared_s: spread_of(|s| s[2])[0],
        ratio: ratio[0],
        ratio_min: ratio[1],
        ratio_max: ratio[2],
        untreated_passes: passes[0],
    })
}
