//! How fast the built-in models read a prompt of 4,096 tokens, and how fast they speak after it.
//!
//! `cargo bench --bench decoding` prints medians; both are timed in turn, on all threads.

use difftool::generate::Decoder;
use difftool::models;
use std::time::Instant;

/// The models' context is 4,096 tokens: what they say has to fit behind the prompt.
const PROMPT_TOK: usize = 4096 - NEW_TOK;
const NEW_TOK: usize = 48;
const TIMES: usize = 9;

fn main() {
    println!("{:>12}  {:>14}  {:>16}  {:>7}", "model", "prompt, s", "speech, tokens/s", "prompt");
    for name in models::built_in_names() {
        let model = models::load(name, models::Reading::default()).expect("it is built in").transformer;
        let ids: Vec<u32> = (0..PROMPT_TOK as u32).map(|i| 3 + i * 131 % 1021).collect();
        let (mut prompt_s, mut speech_s) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let mut decoder = Decoder::new(&model, PROMPT_TOK + NEW_TOK);
            let start = Instant::now();
            decoder.read(&ids).expect("it fits");
            prompt_s.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            (0..NEW_TOK as u32).for_each(|id| drop(decoder.read(&[3 + id]).expect("it fits")));
            speech_s.push(start.elapsed().as_secs_f64());
        }
        let (prompt_s, speech_s) = (median(prompt_s), median(speech_s));
        let share = 100.0 * prompt_s / (prompt_s + speech_s);
        println!("{name:>12}  {prompt_s:>14.3}  {:>16.0}  {share:>5.0} %", NEW_TOK as f64 / speech_s);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
