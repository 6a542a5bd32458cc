//! What a learned sink takes of the attention (gpt-oss) is in every picture and file that shows attention.

use crate::common::{assert_drawn, fixture, Scratch};
use serde_json::json;
use std::fs;

/// The random gpt-oss of the fixtures, with a word for each of its 61 tokens, and a text of them.
fn gpt_oss(dir: &Scratch) {
    let folder = dir.path("m");
    fs::create_dir_all(&folder).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("transformers/gpt_oss").join(file), folder.join(file)).unwrap();
    }
    let vocab: serde_json::Map<_, _> = (0..61).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let words: Vec<String> = (0..200).map(|i| format!("w{}", (i * 7 + i / 9) % 61)).collect();
    dir.write("t.txt", words.join(" "));
}

fn heatmap(dir: &Scratch, args: &str) {
    dir.stdout(format!("heatmap --model m --text t.txt --ctx 48 -q {args}"));
}

#[test]
fn rows_and_what_the_sink_takes_of_them_are_one() {
    let dir = Scratch::new();
    gpt_oss(&dir);
    heatmap(&dir, "--layer 1 --head 2 --full --data map.csv --out csv");
    let csv = dir.read("map.csv");
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().ends_with(",47,sink"));
    let rows: Vec<Vec<f32>> = lines.map(|line| line.split(',').skip(1).map(|x| x.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), 48);
    for row in &rows {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{row:?}");
    }
    let sinks: Vec<f32> = rows.iter().map(|row| row[48]).collect();
    assert!(sinks.iter().all(|&share| share > 0.0 && share < 1.0));
    // The same as a matrix of its own.
    heatmap(&dir, "--layer 1 --head 2 --full --data map.npy --out npy");
    let npy = |name: &str| candle_core::Tensor::read_npy(dir.path(name)).unwrap();
    assert_eq!(npy("map.npy").dims(), [48, 48]);
    assert_eq!(npy("map-sink.npy").to_vec1::<f32>().unwrap(), sinks);
    // Models without sinks have neither.
    let diff = "heatmap --model diff --ctx 256 --layer 1 --head 0 --full -q --out plain --data plain.npy";
    dir.stdout(diff);
    assert!(!dir.exists("plain-sink.npy"));
}

#[test]
fn small_multiples_have_a_strip_for_what_sinks_take() {
    let dir = Scratch::new();
    gpt_oss(&dir);
    heatmap(&dir, "--grid --figures svg --out svg");
    let svg = dir.read("svg/heatmap-1.svg");
    assert!(svg.contains("what its sink takes"));
    heatmap(&dir, "--grid --out png");
    assert_drawn(&dir.path("png/heatmap-1.png"), "heatmap");
    heatmap(&dir, "--out one --figures svg");
    let svg = dir.read("one/heatmap.svg");
    assert!(svg.contains(">\nsink\n<"), "{}", &svg[..600]);
}
