//! `difftool shots` and `needle --unanswerable` from outside.

use crate::common::{printed, refuses_outright, typed};
use difftool::results::record::{read, Record};
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

fn of<'a>(records: &'a [Record], metric: &'a str) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| record.measure.metric == metric)
}

const SHOTS: &str =
    "shots -q --model transformer --shots 4,12 --words 4 --classes 2 --samples 2 --arrangements 3 --ctx 512";

#[test]
fn every_prompt_is_asked_with_each_number_of_examples_in_each_order_and_arrangement() {
    let folder = TempDir::new().unwrap();
    let shown = printed(&mut typed(&folder, &format!("{SHOTS} --out run")));
    assert!(shown.contains("Many shots") && shown.contains("by class"), "{shown}");
    assert!(folder.path().join("run/shots.png").is_file());
    let records = read(&folder.path().join("run/results.csv")).unwrap();
    type Prompts = BTreeSet<(u64, u64)>;
    let mut prompts: BTreeMap<(String, Option<usize>), Prompts> = BTreeMap::new();
    for record in of(&records, "accuracy") {
        let id = &record.identity;
        let known = prompts.entry((id.task.clone(), id.needles)).or_default();
        assert!(known.insert((id.seed.unwrap(), id.sample.unwrap())));
    }
    assert_eq!(prompts.len(), 4, "two orders, two numbers of examples");
    let first = prompts.values().next().unwrap().clone();
    assert!(prompts.values().all(|seeds| *seeds == first), "the same prompts in all of them");
    assert_eq!((first.len(), first.iter().map(|(seed, _)| seed).collect::<BTreeSet<_>>().len()), (6, 2));
    // Neither arrangements nor numbers of examples are prompts: two mappings, three arrangements of 4 and of 12 each.
    let compared = printed(&mut typed(&folder, "compare -q run --by task --metric accuracy --format csv"));
    let row: Vec<&str> = compared.lines().nth(1).unwrap().split(',').collect();
    let at = |name: &str| compared.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    assert_eq!((row[at("n")], row[at("cases")]), ("2", "12"), "{compared}");
}

#[test]
fn a_run_of_shots_is_an_experiment_file_like_any_other() {
    let folder = TempDir::new().unwrap();
    let text = printed(&mut typed(&folder, &format!("{SHOTS} --print-experiment")));
    assert!(text.contains("command = \"shots\"\n") && text.contains("order = [\"random\", \"by-class\"]"), "{text}");
    std::fs::write(folder.path().join("mine.toml"), &text).unwrap();
    printed(&mut typed(&folder, "run mine.toml -q --out run"));
    let again = printed(&mut typed(&folder, &format!("{SHOTS} --out flags")));
    let read = |run: &str| std::fs::read(folder.path().join(run).join("results.csv")).unwrap();
    assert!(read("run") == read("flags") && !again.is_empty());
    let report = printed(&mut typed(&folder, "report run --format markdown"));
    assert!(report.contains("best - worst"), "{report}");
}

#[test]
fn shots_that_cannot_be_are_refused_in_one_line_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    let shots = |rest: &str| format!("shots -q --model transformer --ctx 512 --out run {rest}");
    refuses_outright(&mut typed(&folder, &shots("--shots 0")), 2, &["--shots 0"]);
    refuses_outright(&mut typed(&folder, &shots("--shots 4,4")), 2, &["--shots 4 is named twice"]);
    refuses_outright(&mut typed(&folder, &shots("--shots 400")), 2, &["--shots 400: these examples take"]);
    refuses_outright(&mut typed(&folder, &shots("--words 1")), 2, &["--words 1"]);
    refuses_outright(&mut typed(&folder, &shots("--words 8 --classes 9")), 2, &["--classes 9"]);
    refuses_outright(&mut typed(&folder, &shots("--arrangements 0")), 2, &["--arrangements"]);
    refuses_outright(&mut typed(&folder, &shots("--samples 0")), 2, &["nothing to run"]);
    refuses_outright(&mut typed(&folder, "needle --ctx 100k --model transformer"), 2, &["trained for at most"]);
    assert!(!folder.path().join("run").exists());
}

#[test]
fn questions_without_an_answer_are_asked_of_the_same_texts_and_told_from_the_others() {
    let folder = TempDir::new().unwrap();
    let needle = "needle -q --model transformer --ctx 400 --needles 2 --retrieve 1 --depths 50 --samples 3";
    let shown = printed(&mut typed(&folder, &format!("{needle} --unanswerable --max-new 12 --out run --tables all")));
    assert!(shown.contains("Questions without an answer"), "{shown}");
    let records = read(&folder.path().join("run/results.csv")).unwrap();
    let seeds = |metric: &'static str, cities: &'static str| -> Vec<u64> {
        let asked = of(&records, metric).filter(|record| record.identity.cities.as_deref() == Some(cities));
        asked.map(|record| record.identity.seed.unwrap()).collect()
    };
    assert_eq!(seeds("said_number", "absent"), seeds("accuracy", "train"), "the same texts");
    assert_eq!((seeds("accuracy", "absent").len(), seeds("generated_accuracy", "absent").len()), (0, 0));
    assert_eq!(seeds("said_number", "train").len(), 3);
    let absent = of(&records, "said_other_needle").filter(|r| r.identity.cities.as_deref() == Some("absent"));
    let copied: Vec<f64> = absent.filter_map(|record| record.measure.value).collect();
    let said = std::fs::read_to_string(folder.path().join("run/generations.jsonl")).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let absent: Vec<serde_json::Value> = lines.filter(|line| line["cities"] == "absent").collect();
    assert_eq!(absent.len(), 3);
    for (line, copied) in absent.iter().zip(copied) {
        assert_eq!(line["copied"][0].as_bool().unwrap(), copied == 1.0);
        assert_eq!(line["exact"][0], false, "nobody can know the number");
    }
    // Nor is attention measured on rows that predict a number that nobody can know.
    let of_rows = |cities: &str| -> BTreeSet<String> {
        let of_rows = records
            .iter()
            .filter(|r| r.identity.cities.as_deref() == Some(cities) && r.identity.rows.as_deref() == Some("answer"));
        of_rows.map(|record| record.measure.metric.to_string()).collect()
    };
    assert!(of_rows("train").contains("share_out"));
    assert_eq!(of_rows("absent"), BTreeSet::from([]));
    // Without the flag the answerable prompts are the ones that they are with it.
    printed(&mut typed(&folder, &format!("{needle} --generate --max-new 12 --out plain")));
    let plain = read(&folder.path().join("plain/results.csv")).unwrap();
    let others: Vec<&Record> = records.iter().filter(|r| r.identity.cities.as_deref() != Some("absent")).collect();
    assert!(others.into_iter().eq(plain.iter()));
}
