//! Prefill and decoding speed of the built-in models with a prompt of 4,096 tokens.
//!
//! `cargo bench --bench decoding` prints medians and extremes and writes `target/bench/decoding.csv`. Prefill and
//! decoding are timed in turn, in wall time on all threads. Before that, decoding must give the logits of a pass over
//! the whole prompt.

mod sides;

use anyhow::{ensure, Result};
use difftool::attention::Stream;
use difftool::generate::Decoder;
use difftool::model::Transformer;
use difftool::models;
use serde::Serialize;
use sides::{cpu_model, spread, write};
use std::time::Instant;

/// As in `main.rs`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens of the prompt. With the new tokens they fill the models' context of 4,096.
const PROMPT_TOK: usize = 4096 - NEW_TOK;
const NEW_TOK: usize = 48;
const ROUNDS: usize = 9;

/// A line of the table and of the CSV.
#[derive(Serialize)]
struct Row {
    model: &'static str,
    prompt_tok: usize,
    new_tok: usize,
    threads: usize,
    rounds: usize,
    cpu: String,
    prompt_s: f64,
    tokens_per_s: f64,
    /// Prompt tokens in the time of one new token.
    prompt_tok_per_new: f64,
    prompt_tok_per_new_min: f64,
    prompt_tok_per_new_max: f64,
}

fn main() -> Result<()> {
    std::env::set_var("CANDLE_NUM_THREADS", "1"); // as in `main.rs`

    // `cargo test --benches` passes no `--bench`: one round shows that it works.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 1 };
    println!(
        "{}, {} threads; {rounds} rounds; cargo bench --bench decoding",
        cpu_model(),
        rayon::current_num_threads()
    );
    println!("a prompt of {PROMPT_TOK} tokens, then {NEW_TOK} new tokens, one at a time");
    let rows = models::built_in_names().into_iter().map(|name| measure(name, rounds)).collect::<Result<Vec<_>>>()?;
    write("decoding.csv", &rows)
}

fn measure(name: &'static str, rounds: usize) -> Result<Row> {
    let model = models::load(name, models::LoadOptions::default())?.transformer;
    let ids: Vec<u32> = (0..PROMPT_TOK as u32).map(|i| 3 + i * 131 % 1021).collect();
    agree(&model, &ids[..256])?;
    let (mut prompt_s, mut new_s, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut decoder = Decoder::new(&model, PROMPT_TOK + NEW_TOK);
        let start = Instant::now();
        decoder.read(&ids)?;
        let read = start.elapsed().as_secs_f64();
        let start = Instant::now();
        for id in 0..NEW_TOK as u32 {
            std::hint::black_box(decoder.read(&[3 + id])?);
        }
        let decoded_s = start.elapsed().as_secs_f64();
        ratios.push(decoded_s / NEW_TOK as f64 / (read / PROMPT_TOK as f64));
        prompt_s.push(read);
        new_s.push(decoded_s);
    }
    let (prompt_s, new_s, ratio) =
        (spread(prompt_s.into_iter()), spread(new_s.into_iter()), spread(ratios.into_iter()));
    let tokens_per_s = NEW_TOK as f64 / new_s[0];
    println!(
        "{name:12} prompt {:.3} s ({:.3} to {:.3}), then {tokens_per_s:.0} tokens/s: one in the time of {:.1} prompt tokens \
         ({:.1} to {:.1})",
        prompt_s[0], prompt_s[1], prompt_s[2], ratio[0], ratio[1], ratio[2]
    );
    Ok(Row {
        model: name,
        prompt_tok: PROMPT_TOK,
        new_tok: NEW_TOK,
        threads: rayon::current_num_threads(),
        rounds,
        cpu: cpu_model(),
        prompt_s: prompt_s[0],
        tokens_per_s,
        prompt_tok_per_new: ratio[0],
        prompt_tok_per_new_min: ratio[1],
        prompt_tok_per_new_max: ratio[2],
    })
}

/// Checks that decoding in two pieces gives the logits of one pass.
fn agree(model: &Transformer, ids: &[u32]) -> Result<()> {
    let (first, last) = ids.split_at(ids.len() - 1);
    let mut decoder = Decoder::new(model, ids.len());
    decoder.read(first)?;
    let decoded = decoder.read(last)?;
    let hidden = model.hidden(&[ids.to_vec()], &mut Stream::new(&[]))?.narrow(1, ids.len() - 1, 1)?; // 1,1,E
    let whole = model.logits(&hidden.flatten_to(1)?)?.flatten_all()?.to_vec1::<f32>()?; // W
    let difference = decoded.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    ensure!(difference < 1e-3, "logits differ by {difference}");
    Ok(())
}
