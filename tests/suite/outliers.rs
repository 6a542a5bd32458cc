//! `outliers`: magnitudes, massive activations and the sink rate; attention to the first token where all tokens are the
//! same, which the theory bounds.

use crate::common::{assert_drawn, edit_tensor, normal, Scratch};
use crate::dense::Dense;
use crate::measuring::Models;
use candle_core::Tensor;
use engine::attention::{Attend, Heads, LogitRule, Wiring};
use engine::kernels::{rope, RopeStyle, RopeTable};
use std::sync::Arc;

const TOKENS: usize = 64;
const D: usize = 16;

/// The map of one head whose queries, and whose keys, are the same vector at every position, rotated if `rotary`; and the
/// largest magnitude that a logit may have.
fn repeated(seed: u64, length: f64, rotary: bool) -> (Vec<f64>, f64) {
    let wiring = Wiring { query: vec![vec![0]], key: vec![vec![0]], value: vec![vec![0]] };
    let same = |seed| (normal(&[1, 1, 1, D], seed) * length).unwrap().repeat((1, TOKENS, 1, 1)).unwrap();
    let (q, k) = (same(seed), same(seed + 1));
    let norm = |x: &Tensor| {
        let square = x.narrow(1, 0, 1).unwrap().sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        f64::from(square).sqrt()
    };
    let rule = LogitRule::plain(D);
    let largest = f64::from(rule.scale) * norm(&q) * norm(&k);
    let frequencies: Vec<f64> = (0..D / 2).map(|i| 10_000_f64.powf(-2.0 * i as f64 / D as f64)).collect();
    let table = Arc::new(RopeTable::new(TOKENS, &frequencies, 1.0));
    let rotated = |x: Tensor| if rotary { rope(&x, &table, RopeStyle::Half, 0).unwrap() } else { x };
    let (q, k) = (rotated(q), rotated(k));
    let v = k.clone();
    let heads = Heads { q, k, v, lambda: None, sink: None, gate: None, wiring: &wiring, rule };
    let mut dense = Dense::default();
    dense.attend(0, &heads).unwrap();
    (dense.kept.remove(0).remove(0).remove(0).maps.remove(0), largest)
}

#[test]
fn without_positions_a_repeated_token_gives_every_key_the_same_weight() {
    let (map, _) = repeated(1, 2.0, false);
    for row in 0..TOKENS {
        let even = 1.0 / (row + 1) as f64;
        assert!(map[row * TOKENS..][..=row].iter().all(|weight| (weight - even).abs() < 1e-9), "row {row}");
    }
}

#[test]
fn with_rotary_positions_a_repeated_token_gives_no_key_more_than_the_bound() {
    for seed in 0..20 {
        let (map, xi) = repeated(10 * seed, 1.0 + seed as f64 / 10.0, true);
        let mut uneven = false;
        for row in 0..TOKENS {
            let bound = (2.0 * xi).exp() / ((2.0 * xi).exp() + row as f64);
            let weights = &map[row * TOKENS..][..=row];
            assert!(weights.iter().all(|&weight| weight <= bound + 1e-12), "seed {seed}, row {row}: {bound}");
            uneven |= weights.iter().any(|weight| (weight - weights[0]).abs() > 1e-3);
        }
        assert!(uneven, "seed {seed}: positions matter");
    }
}

#[test]
fn outliers_gives_the_sink_rate_of_texts_random_tokens_and_one_token_repeated() {
    let scratch = Scratch::new();
    let flags = ["outliers", "--ctx", "256", "--samples", "3", "-q", "--out", "run"];
    let text = scratch.stdout(flags);
    assert!(text.contains("sink rate of repeated %"), "{text}");
    let records = scratch.records("run");
    for kind in ["text", "random", "repeated"] {
        for model in ["transformer", "diff"] {
            let of = |r: &&difftool::results::record::Record| {
                let (id, m) = (&r.identity, &r.measure);
                id.model == model && m.metric == "sink_rate" && m.region.as_deref() == Some(kind)
            };
            let values: Vec<f64> = records.iter().filter(of).filter_map(|r| r.measure.value).collect();
            assert_eq!(values.len(), 3, "{model}, {kind}: one for each window");
            assert!(values.iter().all(|rate| (0.0..=1.0).contains(rate)));
        }
    }
    // A repeated token has no sink: its share of 64 rows is about that of an even spread, sum of 1/t over 64.
    let repeated = |r: &&difftool::results::record::Record| {
        r.measure.metric == "sink_rate" && r.measure.region.as_deref() == Some("repeated")
    };
    assert!(records.iter().filter(repeated).all(|r| r.measure.value.is_some_and(|rate| rate < 0.5)));
}

#[test]
fn outliers_lists_magnitudes_in_the_layout_of_the_papers_table() {
    let scratch = Models::new();
    let stdout = scratch.stdout("outliers", &["--samples", "2", "--ctx", "256", "--out", "run"]);
    let json = scratch.stdout("outliers", &["--samples", "2", "--ctx", "256", "--out", "again", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["outliers"].as_array().unwrap();
    let of = |what: &str| rows.iter().filter(|row| row["of"] == what && row["top_100"].is_number()).count();
    assert_eq!((of("logits"), of("hidden")), (3, 3), "{stdout}");
    // 2 windows x 2 layers x 256 x 257 / 2 visible pairs x 2 maps of 2 heads
    let all = rows.iter().find(|row| row["model"] == "./diff" && row["of"] == "logits").unwrap();
    assert_eq!(all["numbers"], 526_336, "{stdout}");
    assert_drawn(&scratch.path("run/ccdf.png"), "outliers --samples 2");
}

#[test]
fn a_massive_activation_is_found_with_its_token_and_channel() {
    let scratch = Models::new();
    // One channel of one token's embedding; with tied embeddings and pre-norm it stays in the residual stream.
    let tokenizer = text::Tokenizer::embedded();
    let river = tokenizer.encode(" river").unwrap().ids[0] as usize;
    edit_tensor(&scratch.path("transformer"), "model.embed_tokens.weight", |values| values[river * 32 + 5] = 4000.0);
    scratch.write("text.txt", format!("{} river {}", "a boat ".repeat(10), "goes by ".repeat(10)));
    let args = ["--text", "text.txt", "--ctx", "64", "--samples", "1", "--out", "run", "--model", "./transformer"];
    let stdout = scratch.stdout("outliers", &args);
    assert!(stdout.contains("single tokens") && stdout.contains("4000"), "{stdout}");
    let massive = scratch.read("run/massive.csv");
    assert!(massive.lines().skip(1).all(|line| line.contains(" river,5,")), "{massive}");
}
