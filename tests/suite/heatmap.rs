//! `heatmap`: maps as figures and as data, with what a learned sink takes of the attention (gpt-oss).

use crate::common::{assert_drawn, fixture, refuses, Scratch};
use crate::measuring::Models;
use candle_core::npy::NpzTensors;
use candle_core::Tensor;
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

#[test]
fn heatmap_draws_every_kind_of_map() {
    let scratch = Models::new();
    for map in ["effective", "a1", "a2", "logits1", "logits2", "all"] {
        let figures = ["--figures", "svg,png,pdf", "--figure-width", "170"];
        let args = ["--ctx", "256", "--map", map, "--out", map];
        scratch.stdout("heatmap", &[&args[..], &figures].concat());
        let read = |file: &str| fs::read(scratch.path(map).join(file)).unwrap();
        let svg = String::from_utf8(read("heatmap.svg")).unwrap();
        assert!(svg.contains("width=\"170.000mm\"") && svg.contains("\nseed: 0\n"), "{map}");
        assert!(svg.contains("href=\"data:image/png;base64,") && svg.contains("key token\n</text>"), "{map}");
        assert!(String::from_utf8_lossy(&read("heatmap.pdf")).contains("/Subtype /Image"), "{map}");
        let recipe = plot::read_recipe(&scratch.path(map).join("heatmap.png")).unwrap();
        assert!(recipe.iter().any(|(keyword, text)| keyword == "command" && text.contains(map)), "{recipe:?}");
        let manifest = String::from_utf8(read("manifest.json")).unwrap();
        assert!(["heatmap.pdf", "heatmap.png", "heatmap.svg"].iter().all(|file| manifest.contains(file)), "{map}");
    }
    scratch.stdout("heatmap", &["--ctx", "256", "--grid", "--out", "grid"]);
    assert!(scratch.exists("grid/heatmap-3.png"));
}

#[test]
fn the_whole_map_as_data_has_rows_that_sum_to_one() {
    let scratch = Models::new();
    let args = ["--ctx", "256", "--model", "./transformer", "--layer", "1", "--head", "0", "--full"];
    for (name, out) in [("map.npy", "one"), ("map.csv", "two")] {
        scratch.stdout("heatmap", &[&args[..], &["--data", name, "--out", out]].concat());
    }
    let map: Vec<Vec<f32>> = Tensor::read_npy(scratch.path("map.npy")).unwrap().to_vec2().unwrap();
    for (query, row) in map.iter().enumerate() {
        assert_eq!(row.len(), map.len());
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-4, "query {query}");
        assert!(row[query + 1..].iter().all(|&x| x == 0.0), "query {query} sees the future");
    }
    let csv = scratch.read("map.csv");
    assert_eq!(csv.lines().count(), map.len() + 1);
}

#[test]
fn the_data_of_several_maps_are_named_after_them() {
    let scratch = Models::new();
    let args = ["--ctx", "256", "--map", "all", "--layer", "1", "--data", "map.csv", "--out"];
    scratch.stdout("heatmap", &[&args[..], &["one"]].concat());
    let mut files: Vec<String> =
        fs::read_dir(scratch.path(".")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|name| name.starts_with("map-"));
    files.sort();
    let of_diff: Vec<&String> = files.iter().filter(|name| name.contains("diff-layer1-")).collect();
    let ends = ["a1.csv", "a2.csv", "effective.csv", "lambda-a2.csv"];
    assert!(of_diff.len() == 4 && of_diff.iter().zip(ends).all(|(name, end)| name.ends_with(end)), "{files:?}");
    assert!(files.iter().any(|name| name.contains("transformer-layer1-")), "{files:?}");
    refuses(&mut scratch.run("heatmap", &[&args[..], &["two"]].concat()), 2, &["map-", "never overwritten"]);
}

#[test]
fn a_grid_writes_the_matrix_of_every_head_as_one_head_by_itself() {
    let scratch = Models::new();
    let heatmap = |args: &[&str]| {
        scratch
            .stdout("heatmap", &[&["--ctx", "256", "--full", "--model", "./diff", "--query", "200.."], args].concat());
    };
    for file in ["all.npz", "all.npy", "all.csv"] {
        heatmap(&["--grid", "--data", file, "--out", &file.replace("all.", "grid-")]);
    }
    let packed = NpzTensors::new(scratch.path("all.npz")).unwrap();
    assert_eq!(packed.names().len(), 5, "of four heads, and the tokens");
    let tokens = packed.get("diff-tokens").unwrap().unwrap().to_vec2::<u8>().unwrap();
    let text: Vec<u8> = tokens.into_iter().flatten().filter(|&byte| byte != 0).collect();
    assert!(String::from_utf8(text).unwrap().contains("magic"), "the whole prompt");
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let one = format!("one-{layer}-{head}.npy");
        heatmap(&["--layer", &layer.to_string(), "--head", &head.to_string(), "--data", &one, "--out", &one[..7]]);
        let numbers = |tensor: Tensor| tensor.to_vec2::<f32>().unwrap();
        let one = numbers(Tensor::read_npy(scratch.path(&one)).unwrap());
        let name = format!("diff-layer{layer}-head{head}-effective");
        assert_eq!(numbers(packed.get(&name).unwrap().unwrap()), one);
        assert_eq!(numbers(Tensor::read_npy(scratch.path(format!("all-{name}.npy"))).unwrap()), one);
        assert_eq!(scratch.read(format!("all-{name}.csv")).lines().count(), one.len() + 1);
    }
}

#[test]
fn a_zoomed_text_can_be_drawn_token_by_token() {
    let scratch = Models::new();
    scratch.write("text.txt", "The river is wide here, and a boat goes by.");
    let span = ["--query", "2..8", "--key", "0..8"];
    let args = ["--text", "text.txt", "--ctx", "1k", "--out", "run", "--data", "map.csv", "--model", "./diff"];
    scratch.stdout("heatmap", &[&args[..], &span].concat());
    let csv = scratch.read("map.csv");
    assert!(csv.starts_with("query,0,1,2,3,4,5,6,7\n2,"), "{csv}");
}
