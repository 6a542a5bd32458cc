//! `difftool claims` from outside.

use crate::common::{tiny_model_of_seed, Scratch};
use difftool::results::record::Record;
use serde_json::Value;
use std::collections::BTreeMap;

const PAIR: [&str; 5] = ["claims", "--model", "./diff", "--baseline", "./transformer"];

/// The claims of tiny models.
fn claims(scratch: &Scratch, flags: &[&str]) -> String {
    scratch.stdout([&PAIR[..], &["-q", "--ctx", "512", "--samples", "1"], flags].concat())
}

/// The rows of a table in JSON.
fn rows(json: &str, id: &str) -> Vec<Value> {
    let tables: Value = serde_json::from_str(json).unwrap();
    tables[id].as_array().unwrap().clone()
}

/// Records by all that identifies them.
fn by_identity(records: Vec<Record>) -> BTreeMap<String, Option<f64>> {
    let mut found = BTreeMap::new();
    for Record { identity, measure } in records {
        let key = (&identity, &measure.metric, &measure.region, measure.layer, measure.head);
        assert!(found.insert(format!("{key:?}"), measure.value).is_none(), "{key:?} twice");
    }
    found
}

#[test]
fn the_numbers_of_a_claim_are_those_of_the_command_that_measures_it_by_itself() {
    let scratch = Scratch::with(&["transformer", "diff"]);
    let json = claims(&scratch, &["--json", "--out", "all"]);
    let all = by_identity(scratch.records("all"));
    let mut lines: Vec<String> =
        rows(&json, "readings").iter().map(|row| row["command"].as_str().unwrap().to_owned()).collect();
    assert_eq!(lines.len(), 24);
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 8, "{lines:?}");
    let mut alone = 0;
    for (i, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let run = format!("alone-{i}");
        scratch.stdout([&words[..], &["-q", "--out", &run]].concat());
        for (identity, value) in by_identity(scratch.records(&run)) {
            assert_eq!(all.get(&identity), Some(&value), "{line}: {identity}");
            alone += 1;
        }
    }
    assert_eq!(alone, all.len());
}

#[test]
fn the_screen_of_one_model_or_two_is_one_screen_with_a_verdict_on_every_claim() {
    let scratch = Scratch::with_models();
    for models in [&["./diff"][..], &["./diff", "./diff-v2"]] {
        let models = models.iter().flat_map(|model| ["--model", model]);
        let flags: Vec<&str> = ["claims", "-q", "--baseline", "./transformer", "--ctx", "512", "--samples", "1"]
            .into_iter()
            .chain(models)
            .collect();
        let screen = scratch.stdout(&flags);
        let claims = ["T2 ", "T3 ", "N ", "F5 ", "F4 ", "F8 ", "T5 ", "F6 ", "F7 ", "T4 ", "F3 ", "P "];
        for claim in claims {
            assert!(screen.lines().any(|line| line.starts_with(claim)), "{claim}: {screen}");
        }
        assert!(
            screen.contains("Yes, no, neither of T2, T3, F3 (capitals): diff 0, 0, 3")
                && screen.contains("One training each."),
            "{screen}"
        );
        assert!(screen.lines().count() <= 24 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    }
}

#[test]
fn a_claim_that_cannot_be_measured_says_why() {
    let scratch = Scratch::with(&["transformer"]);
    tiny_model_of_seed(&scratch.path("other"), "transformer", 2);
    let pair = ["claims", "-q", "--model", "./other", "--baseline", "./transformer", "--samples", "1"];
    let screen = scratch.stdout([&pair[..], &["--only", "P,F3", "--ctx", "192"]].concat());
    assert!(screen.contains("P: not measurable, the model has one attention map."), "{screen}");
    assert!(screen.contains("not known"), "what they were trained on: {screen}");
    // Six needles do not fit, windows of text do.
    let needles = ["--needles", "6", "--ctx", "64"];
    let screen = scratch.stdout([&pair[..], &["--only", "T3,F3"], &needles].concat());
    assert!(screen.contains("T3") && screen.contains("not measurable") && screen.contains("tokens"), "{screen}");
    scratch.refuses([&pair[..], &["--only", "T3"], &needles].concat(), &["64 tokens is too short", "needles: 6"]);
}

#[test]
fn intervals_over_training_seeds_need_three_of_them_and_what_is_no_pair_is_said_once() {
    let scratch = Scratch::new();
    for seed in 1..=3 {
        for variant in ["transformer", "diff"] {
            let folder = scratch.path(variant).join(format!("seed-{seed}"));
            std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
            tiny_model_of_seed(&folder, variant, seed);
        }
        let tokenizer = scratch.path(format!("diff/seed-{seed}/tokenizer.json"));
        let text = std::fs::read_to_string(&tokenizer).unwrap();
        std::fs::write(&tokenizer, text + "\n").unwrap();
    }
    let flags = ["-q", "--only", "F3,T5", "--ctx", "64", "--samples", "2", "--replicates", "--json", "--out", "run"];
    let json = scratch.stdout([&PAIR[..], &flags].concat());
    for row in rows(&json, "claims") {
        assert_eq!(row["model"], "diff");
        assert!(row["p"].is_number() && row["change"]["lo"].is_number(), "{row}");
    }
    let screen = scratch.stdout(["show", "run"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("No pair: diff and transformer have different tokenizers."), "{screen}");
    assert_eq!(screen.matches("different tokenizers").count(), 1, "{screen}");
    let pair = ["claims", "--model", "./diff/seed-1", "--baseline", "./transformer"];
    scratch.refuses(pair, &["3 seeds", "--replicates"]);
}

#[test]
fn the_page_of_claims_has_a_chapter_with_a_figure_and_a_command_for_each() {
    let scratch = Scratch::with(&["transformer", "diff"]);
    claims(&scratch, &["--report", "page.html", "--out", "run", "--only", "T2,T5,P", "--needles", "6"]);
    let page = scratch.read("page.html");
    for words in ["T2: more answers", "T5: smaller logits", "P: agree on noise", "The verdict does not say"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("difftool needle --needles 6 --retrieve 2 --ctx 512 --samples 1 --model"));
    for figure in ["answers.png", "ccdf.png", "maps.png"] {
        assert!(page.contains(figure), "{figure}");
    }
    let latex = scratch.stdout(["show", "run", "--latex"]);
    assert!(latex.contains("\\toprule") && latex.contains("more answers"), "{latex}");
}
