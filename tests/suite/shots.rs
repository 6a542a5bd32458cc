//! `difftool shots` and `needle --unanswerable` from outside.

use crate::common::Scratch;
use difftool::results::record::Record;
use std::collections::{BTreeMap, BTreeSet};

fn of<'a>(records: &'a [Record], metric: &'a str) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| record.measure.metric == metric)
}

const SHOTS: &str =
    "shots -q --model transformer --shots 4,12 --words 4 --classes 2 --samples 2 --arrangements 3 --ctx 512";

#[test]
fn every_prompt_is_asked_with_each_number_of_examples_in_each_order_and_arrangement() {
    let folder = Scratch::new();
    let shown = folder.stdout(format!("{SHOTS} --out run"));
    assert!(shown.contains("Many shots") && shown.contains("by class"), "{shown}");
    assert!(folder.path("run/shots.png").is_file());
    let records = folder.records("run");
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
    let compared = folder.stdout("compare -q run --by task --metric accuracy --format csv");
    let row: Vec<&str> = compared.lines().nth(1).unwrap().split(',').collect();
    let at = |name: &str| compared.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    assert_eq!((row[at("n")], row[at("cases")]), ("2", "12"), "{compared}");
}

#[test]
fn a_run_of_shots_is_an_experiment_file_like_any_other() {
    let folder = Scratch::new();
    let text = folder.stdout(format!("{SHOTS} --print-experiment"));
    assert!(text.contains("command = \"shots\"\n") && text.contains("order = [\"random\", \"by-class\"]"), "{text}");
    folder.write("mine.toml", &text);
    folder.stdout("run mine.toml -q --out run");
    let again = folder.stdout(format!("{SHOTS} --out flags"));
    let read = |run: &str| folder.bytes(format!("{run}/results.csv"));
    assert!(read("run") == read("flags") && !again.is_empty());
    let report = folder.stdout("report run --format markdown");
    assert!(report.contains("best - worst"), "{report}");
}

#[test]
fn questions_without_an_answer_are_asked_of_the_same_texts_and_told_from_the_others() {
    let folder = Scratch::new();
    let needle = "needle -q --model transformer --ctx 400 --needles 2 --retrieve 1 --depths 50 --samples 3";
    let shown = folder.stdout(format!("{needle} --unanswerable --max-new 12 --out run --tables all"));
    assert!(shown.contains("Questions without an answer"), "{shown}");
    let records = folder.records("run");
    let seeds = |metric: &'static str, cities: &'static str| -> Vec<u64> {
        let asked = of(&records, metric).filter(|record| record.identity.cities.as_deref() == Some(cities));
        asked.map(|record| record.identity.seed.unwrap()).collect()
    };
    assert_eq!(seeds("said_number", "absent"), seeds("accuracy", "train"), "the same texts");
    assert_eq!((seeds("accuracy", "absent").len(), seeds("generated_accuracy", "absent").len()), (0, 0));
    assert_eq!(seeds("said_number", "train").len(), 3);
    let absent = of(&records, "said_other_needle").filter(|r| r.identity.cities.as_deref() == Some("absent"));
    let copied: Vec<f64> = absent.filter_map(|record| record.measure.value).collect();
    let said = folder.read("run/generations.jsonl");
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
    folder.stdout(format!("{needle} --generate --max-new 12 --out plain"));
    let plain = folder.records("plain");
    let others: Vec<&Record> = records.iter().filter(|r| r.identity.cities.as_deref() != Some("absent")).collect();
    assert!(others.into_iter().eq(plain.iter()));
}
