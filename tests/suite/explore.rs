//! `difftool explore` from outside, on tiny random models. What the page looks like and
//! says is tested in a browser: `tests/browser/explore.py`.

use crate::common::{tiny_model, Scratch};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use std::fs;
use std::io::Read as _;

/// The JSON of a page.
fn contents(page: &str) -> serde_json::Value {
    let json = page.split(r#"id="contents">"#).nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(json).unwrap()
}

/// The deflated maps of a page, as text.
fn blobs(page: &str) -> Vec<&str> {
    page.split(r#"<script type="text/plain" id=""#).skip(1).map(|rest| rest.split('<').next().unwrap()).collect()
}

#[test]
fn explore_writes_one_page_with_every_head_and_the_best_ones_token_by_token() {
    let dir = Scratch::with(&["transformer", "diff"]);
    let said = dir.stdout("explore --model ./transformer --model ./diff --ctx 256 --out explored -q");
    assert!(said.contains("explore.html") && said.contains("token by token"), "{said}");
    for file in ["explored/results.csv", "explored/manifest.json"] {
        assert!(dir.exists(file), "{file}");
    }
    let page = dir.read("explored/explore.html");
    assert!(page.contains(r#"content="default-src 'none'; img-src data:; style-src 'sha256-"#));
    let contents = contents(&page);
    assert_eq!(contents["prompts"].as_array().unwrap().len(), 1, "both models have the same prompt");
    for model in contents["models"].as_array().unwrap() {
        assert_eq!(model["heads"].as_array().unwrap().len(), 4);
        let details = model["details"].as_array().unwrap();
        let numbers = model["numbers"].as_object().unwrap();
        assert_eq!(details.len(), 4);
        for name in ["retrieval_score", "induction"] {
            assert!(numbers["0.0"][name].is_number(), "{name}");
        }
        let kinds: Vec<&str> =
            details[0]["index"]["grids"].as_array().unwrap().iter().map(|grid| grid[0].as_str().unwrap()).collect();
        assert!(kinds.contains(&"contribution"), "{kinds:?}");
    }
    // What is seen first in two parts, and four heads with their token pairs apart, of each model.
    assert_eq!(blobs(&page).len(), 2 * (2 + 4 * 2));
}

#[test]
fn what_is_seen_first_stands_before_the_script_and_is_small() {
    let dir = Scratch::with(&["transformer", "diff"]);
    dir.stdout("explore --model ./transformer --model ./diff --ctx 1024 --out explored -q");
    let page = dir.read("explored/explore.html");
    let (first, rest) = page.split_once("<script>\"use strict\"").unwrap();
    for id in ["contents", "thumbs-0", "thumbs-1", "first-0", "first-1"] {
        assert!(first.contains(&format!("id=\"{id}\"")), "{id}");
    }
    for id in ["texts-0", "blob-0-0", "pairs-0-0", "blob-1-2"] {
        assert!(rest.contains(&format!("id=\"{id}\"")), "{id}");
    }
    // 256 x 257 / 2 bins of each model and their steps, as base64, and what is said of four heads.
    assert!(first.len() < 200_000 && first.len() < page.len() / 3, "{} of {}", first.len(), page.len());
}

#[test]
fn the_page_does_not_depend_on_the_number_of_threads() {
    let dir = Scratch::with(&["transformer", "diff"]);
    let args = "explore --model ./transformer --model ./diff --ctx 700 -q";
    for threads in [1, 3] {
        dir.stdout(format!("{args} --threads {threads} --out threads-{threads}"));
    }
    let page = |threads| dir.read(format!("threads-{threads}/explore.html"));
    let (one, three) = (page(1), page(3));
    assert_eq!(blobs(&one), blobs(&three));
    assert_eq!(contents(&one)["models"], contents(&three)["models"]);
}

#[test]
fn treatments_are_passes_of_the_same_heads_with_what_they_change() {
    let dir = Scratch::with(&["transformer", "diff"]);
    let args = "explore --model ./diff --ctx 256 --out treated -q --condition";
    dir.command(args).args(["mask(noise)", "--condition", "ablate(0.1)"]).assert().success();
    let contents = contents(&dir.read("treated/explore.html"));
    let models = contents["models"].as_array().unwrap();
    let conditions: Vec<Option<&str>> = models.iter().map(|model| model["condition"].as_str()).collect();
    assert_eq!(conditions, [None, Some("mask(noise)"), Some("ablate(0.1)")]);
    let heads = |model: &serde_json::Value| -> Vec<String> {
        model["details"].as_array().unwrap().iter().map(|d| format!("{}.{}", d["layer"], d["head"])).collect()
    };
    let of = |model: &serde_json::Value, name: &str| model["answers"][name].as_f64().unwrap();
    for treated in &models[1..] {
        assert_eq!(heads(treated), heads(&models[0]));
        assert_ne!(of(treated, "answer_log_prob"), of(&models[0], "answer_log_prob"));
        assert_eq!(treated["details"][0]["index"]["maps"].as_array().unwrap().len(), 0, "only rows that answer");
        assert_eq!(treated["details"][0]["index"]["answers"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_text_is_explored_too_and_its_tokens_cannot_leave_their_element() {
    let dir = Scratch::with(&["transformer", "diff"]);
    let hostile = "</script><script>alert(1)</script> \u{202e}\u{0} & <!-- ".repeat(30);
    dir.write("text.txt", &hostile);
    dir.stdout("explore --model ./diff --text text.txt --ctx 300 --out explored -q --json");
    let page = dir.read("explored/explore.html");
    let contents = contents(&page);
    assert_eq!(contents["prompts"][0]["rows"].as_array().unwrap().len(), 1);
    let texts = page.split(r#"id="texts-0">"#).nth(1).unwrap().split("</script>").next().unwrap();
    let texts: Vec<String> = serde_json::from_str(texts).unwrap();
    assert!(texts.concat().contains("</script><script>alert(1)</script>"), "{texts:?}");
    // Contents, two parts that are seen first, the script of the page, the text, four heads in two parts each.
    assert_eq!(page.matches("<script").count(), 1 + 2 + 1 + 1 + 8);
    assert!(!page.contains("alert(1)<"));
}

/// A part of a blob of a page, inflated.
fn part(page: &str, id: &str, place: &serde_json::Value) -> Vec<u8> {
    let text = page.split(&format!("id=\"{id}\">")).nth(1).unwrap().split('<').next().unwrap();
    let [start, length] = [0, 1].map(|i| place[i].as_u64().unwrap() as usize);
    let mut bytes = Vec::new();
    let deflated = &STANDARD.decode(text).unwrap()[start..start + length];
    flate2::read::DeflateDecoder::new(deflated).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_a_sink_takes_of_a_row_is_what_its_tokens_leave() {
    let dir = Scratch::with(&["transformer", "diff"]);
    tiny_model(&dir.path("sink"), "sink");
    dir.stdout("explore --model ./sink --ctx 256 --out explored -q");
    let page = dir.read("explored/explore.html");
    let model = &contents(&page)["models"][0];
    let index = &model["details"][0]["index"];
    let taken = part(&page, "blob-0-0", &index["taken"][0]);
    let taken: Vec<f32> = taken.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(taken.len(), model["keep"]["tokens"].as_u64().unwrap() as usize);
    let rows = &model["keep"]["answer_rows"][0];
    let rows = rows["start"].as_u64().unwrap() as usize..rows["end"].as_u64().unwrap() as usize;
    let answers = part(&page, "blob-0-0", &index["answers"][0]);
    // Exponents of runs of 64 keys, then the low bytes of all steps, then the high ones.
    let runs = rows.clone().map(|row| row / 64 + 1).sum::<usize>();
    let codes = (answers.len() - runs) / 2;
    let (mut run, mut code) = (0, 0);
    for row in rows {
        let mut sum = 0.0;
        for key in 0..=row {
            let step = f32::from(answers[run + key / 64] as i8).exp2();
            sum += step * f32::from(i16::from_le_bytes([answers[runs + code], answers[runs + codes + code]]));
            code += 1;
        }
        run += row / 64 + 1;
        assert!(taken[row] > 1e-4 && (sum + taken[row] - 1.0).abs() < 1e-3, "{row}: {sum} and {}", taken[row]);
    }
    assert!(model["numbers"]["0.0"]["share_abs sink"].as_f64().unwrap() > 1e-4);
}

#[test]
fn explore_overwrites_nothing() {
    let dir = Scratch::with(&["transformer", "diff"]);
    dir.write("taken/explore.html", "mine");
    dir.refuses("explore --model ./diff --out taken", &["never overwritten"]);
    assert_eq!(dir.read("taken/explore.html"), "mine");
}

#[test]
fn one_command_writes_the_report_with_its_figure_and_the_explorer() {
    let dir = Scratch::with(&["transformer", "diff"]);
    fs::create_dir(dir.path("far")).unwrap();
    let explore = "explore --model ./transformer --ctx 256 --out explored --report far/page.html -q";
    dir.stdout(explore);
    let page = dir.read("far/page.html");
    assert!(page.contains("<h1><bdi>difftool explore: transformer</bdi></h1>"));
    let figure = page.find(r#"<code>maps.png</code>"#).unwrap();
    let explorer = page.find(r#"<details class="framed explorer""#).unwrap();
    assert!(figure < explorer && explorer < page.find("<table").unwrap(), "the figure is first");
    assert!(page.contains("layer") && dir.exists("explored/maps.png"));
    // The page of a report is replaced; of a finished run it is written anew.
    fs::remove_file(dir.path("far/page.html")).unwrap();
    dir.stdout("needle --model ./transformer --ctx 256 --needles 1 --samples 1 --out needles -q");
    dir.stdout("run --resume needles --report far/page.html -q");
    assert!(dir.read("far/page.html").contains("accuracy.png"));
}
