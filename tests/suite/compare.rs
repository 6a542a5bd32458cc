//! `difftool compare` from outside, on small results with known differences.

mod properties;

use crate::common::{self, printed, refuses, refuses_outright, Outcome};
use assert_cmd::Command;
use difftool::results::compare::{compare, FailIf, Request};
use difftool::results::manifest::{Manifest, OutputFile};
use difftool::results::record::{self, Identity, Measurement, Record};
use difftool::results::{MetricName, Where};
use names::{Column, ModelInfo};
use plot::read_recipe;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{json, Value};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

/// What the small runs are of.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) model: &'static str,
    pub(super) prompts: u64,
    pub(super) seed: u64,
    pub(super) bits: Option<u32>,
    pub(super) scope: Option<&'static str>,
    /// Added to every share.
    pub(super) shift: f64,
}

pub(super) const RUN: Run = Run { model: "transformer", prompts: 30, seed: 0, bits: None, scope: None, shift: 0.0 };

impl Run {
    fn condition(&self) -> Option<String> {
        Some(format!("quantise({}, {})", self.bits?, self.scope?))
    }

    fn identity(&self, prompt: u64, query: usize) -> Identity {
        Identity {
            model: self.model.into(),
            variant: self.model.into(),
            task: "needle".into(),
            ctx_tok: if prompt.is_multiple_of(2) { 512 } else { 1024 },
            needles: Some(2),
            retrieve: Some(2),
            depth_req_pct: Some(50.0),
            depth_real_pct: Some(49.5),
            cities: Some("train".into()),
            sample: Some(prompt / 2),
            seed: Some(self.seed + prompt),
            query: Some(query),
            placed: Some(query == 0),
            rows: Some("answer".into()),
            condition: self.condition().map(Into::into),
            bits: self.bits,
            scope: self.scope.map(Into::into),
            ..Identity::default()
        }
    }

    /// Two questions of every prompt: a hit or miss, and the answer's share of the whole model and of two layers.
    pub(super) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (prompt, query) in (0..self.prompts).flat_map(|prompt| [(prompt, 0), (prompt, 1)]) {
            let identity = Arc::new(self.identity(prompt, query));
            let mut add = |metric: &'static str, region: Option<&'static str>, layer, value| {
                let (region, unit, value) = (region.map(Into::into), Some("fraction".into()), Some(value));
                let measure =
                    Measurement { metric: metric.into(), region, layer, value, unit, ..Measurement::default() };
                records.push(Record { identity: identity.clone(), measure });
            };
            // The transformer misses every third prompt, other models none.
            let hit = self.model != "transformer" || prompt % 3 != 0;
            add("accuracy", None, None, f64::from(u8::from(hit)));
            // Prompts do not all differ alike: that would have no interval.
            let own = if self.model == "diff" { 0.01 * ((prompt % 3) as f64 - 1.0) } else { 0.0 };
            let share = 0.2 + 0.01 * prompt as f64 + self.shift + own;
            add("share_abs", Some("answer"), None, share);
            (0..2).for_each(|layer| add("share_abs", Some("answer"), Some(layer), share + layer as f64));
        }
        records
    }

    pub(super) fn manifest(&self) -> Manifest {
        let info = ModelInfo {
            name: self.model.into(),
            weights_sha256: format!("weights of {}", self.model),
            tokenizer_sha256: "tokenizer".into(),
            ..ModelInfo::default()
        };
        Manifest {
            models: vec![info],
            prompts_sha256: format!("prompts {} from {}", self.prompts, self.seed),
            seeds: [("prompts".to_owned(), self.seed)].into(),
            config: json!({
                "grid": { "seed": self.seed, "samples": self.prompts },
                "conditions": [self.condition()],
            }),
            ..Manifest::default()
        }
    }
}

/// A folder to work in.
pub(super) struct Scratch(common::Scratch);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(common::Scratch::new())
    }

    /// A run folder.
    fn run(&self, name: &str, run: &Run) {
        self.folder(name, &run.records(), &run.manifest());
    }

    pub(super) fn folder(&self, name: &str, records: &[Record], manifest: &Manifest) {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        record::write(&folder.join("results.csv"), records).unwrap();
        let outputs = vec![OutputFile::describe(&folder, "results.csv", Some(records.len() as u64)).unwrap()];
        Manifest { outputs, ..manifest.clone() }.write(&folder.join("manifest.json")).unwrap();
    }

    /// `difftool compare ARGS`, where arguments are separated by blanks.
    pub(super) fn compare(&self, args: &str) -> Command {
        self.command(format!("compare {args}"))
    }

    pub(super) fn stdout(&self, args: &str) -> String {
        printed(&mut self.compare(args))
    }

    pub(super) fn stderr(&self, args: &str) -> String {
        Outcome::of(self.compare(args).output().unwrap()).succeeded().stderr.clone()
    }

    pub(super) fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.stdout(&format!("{args} --format json"))).unwrap()
    }
}

common::is_scratch!(Scratch);

/// The row of a metric.
pub(super) fn row<'a>(json: &'a Value, metric: &str) -> &'a Value {
    json["rows"].as_array().unwrap().iter().find(|row| row["metric"] == metric).unwrap()
}

pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn the_same_run_twice_differs_by_nothing() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &RUN);
    for pair in ["a a", "a b", "a/results.csv b"] {
        let json = scratch.json(pair);
        assert_eq!(json["manifests_differ"][0]["in"], json!([]));
        assert_eq!(json["rows"].as_array().unwrap().len(), 2);
        for row in json["rows"].as_array().unwrap() {
            assert_eq!((row["n"].as_u64(), row["cases"].as_u64()), (Some(30), Some(60)), "{row}");
            assert_eq!((number(&row["diff"]), &row["mean_baseline"]), (0.0, &row["mean_other"]), "{row}");
            assert_eq!((row["wins"].as_u64(), row["losses"].as_u64()), (Some(0), Some(0)), "{row}");
        }
        // Hits that all agree may differ on other prompts; of numbers that all agree nothing is known.
        let (exact, share) = (row(&json, "accuracy"), row(&json, "share_abs"));
        assert!(number(&exact["lo"]) < -0.1 && number(&exact["hi"]) > 0.1 && number(&exact["p"]) == 1.0, "{exact}");
        for name in ["lo", "hi", "p", "test"] {
            assert!(share[name].is_null(), "{share}");
        }
        assert_eq!(json["pairings"][0]["pairs"], 120);
    }
    assert!(scratch.stderr("a b").contains("a and b: the manifests agree"));
}

#[test]
fn differences_are_those_that_were_put_in() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.125, ..RUN });
    let json = scratch.json("a b");
    let (exact, share) = (row(&json, "accuracy"), row(&json, "share_abs"));
    // Ten of thirty prompts are missed, with both questions.
    assert!((number(&exact["diff"]) - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!([&exact["wins"], &exact["ties"], &exact["losses"]], [10, 20, 0]);
    // Two questions of a prompt are no two trials: ten wins of ten have a chance of 2 / 2¹⁰.
    assert_eq!((&exact["test"], &share["test"]), (&json!("mcnemar"), &json!("t")));
    assert!((number(&exact["p"]) - 0.001_953).abs() < 1e-6, "{exact}");
    assert_eq!(number(&exact["p_adjusted"]), number(&exact["p"]));
    assert_eq!(number(&share["p_adjusted"]), 2.0 * number(&share["p"]));
    // Student's interval of -0.01, 0 and 0.01, ten times each: t of 29 degrees of freedom is 2.045230.
    let [diff, lo, hi] = ["diff", "lo", "hi"].map(|name| number(&share[name]));
    let half = 2.045_230 * (0.002 / 29.0 / 30.0_f64).sqrt();
    assert!((diff - 0.125).abs() < 1e-9 && (lo - 0.125 + half).abs() < 1e-8, "{share} {half}");
    assert!((hi - 0.125 - half).abs() < 1e-8 && number(&share["p"]) < 1e-20, "{share}");
    assert_eq!([&share["wins"], &share["ties"], &share["losses"]], [30, 0, 0]);
    let (lo, hi) = (number(&exact["lo"]), number(&exact["hi"]));
    assert!(0.1 < lo && lo < 1.0 / 3.0 && 1.0 / 3.0 < hi && hi < 0.6, "{exact}");
}

#[test]
fn runs_of_other_prompts_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { seed: 7, ..RUN });
    let reason = ["a and b are of different prompts", "seeds.prompts: 0 and 7", "--allow-different-prompts"];
    refuses_outright(&mut scratch.compare("a b"), 2, &reason);
    let stderr = scratch.stderr("a b --allow-different-prompts");
    assert!(stderr.contains("different prompts: the pairing is by setting and sample only"), "{stderr}");
}

#[test]
fn files_without_manifests_are_refused_if_their_seeds_differ() {
    let scratch = Scratch::new();
    for (name, seed) in [("a.csv", 0), ("b.csv", 100)] {
        record::write(&scratch.path(name), &Run { seed, ..RUN }.records()).unwrap();
    }
    refuses_outright(
        &mut scratch.compare("a.csv b.csv"),
        2,
        &["no measurement in common", "seed", "--allow-different-prompts"],
    );
    assert_eq!(scratch.json("a.csv b.csv --allow-different-prompts")["pairings"][0]["pairs"], 120);
    assert!(scratch.stderr("a.csv a.csv").contains("a.csv has no manifest.json"));
}

#[test]
fn what_the_manifests_differ_in_is_said_first() {
    let scratch = Scratch::new();
    let (a, b) =
        (Run { bits: Some(4), scope: Some("tensor"), ..RUN }, Run { bits: Some(4), scope: Some("row"), ..RUN });
    scratch.run("a", &a);
    let mut manifest = b.manifest();
    manifest.models[0].weights_sha256 = "other weights".into();
    manifest.tool.version = "99.0.0".into();
    manifest.seeds.insert("bootstrap".into(), 5);
    scratch.folder("b", &b.records(), &manifest);
    let stderr = scratch.stderr("a b");
    let version = format!("tool.version: {} and 99.0.0", env!("CARGO_PKG_VERSION"));
    let differences = [
        "a and b differ in",
        &version,
        "models.transformer.weights_sha256: weights of t and other weight",
        "seeds.bootstrap: none and 5",
        "config.conditions: [\"quantise(4, ",
    ];
    assert!(stderr.starts_with(differences[0]), "{stderr}");
    assert!(differences.iter().all(|difference| stderr.contains(difference)), "{stderr}");
    assert_eq!(scratch.json("a b")["manifests_differ"][0]["in"].as_array().unwrap().len(), 4);
    assert!(scratch.compare("a b --quiet").output().unwrap().stderr.is_empty());
}

#[test]
fn results_that_were_edited_are_refused() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let path = scratch.path("a/results.csv");
    let edited = fs::read_to_string(&path).unwrap().replace("accuracy,0.0", "accuracy,1.0");
    fs::write(&path, edited).unwrap();
    for args in ["a a", "a a -q", "a a -q --fail-if accuracy<-0.05"] {
        refuses_outright(&mut scratch.compare(args), 1, &["a/results.csv is not the file that its manifest describes"]);
    }
}

#[test]
fn models_of_one_file_are_compared_by_name() {
    let scratch = Scratch::new();
    let records = [RUN.records(), Run { model: "diff", shift: 0.125, ..RUN }.records()].concat();
    record::write(&scratch.path("both.csv"), &records).unwrap();
    let json = scratch.json("both.csv --by model");
    assert_eq!((&json["rows"][0]["baseline"], &json["rows"][0]["other"]), (&json!("transformer"), &json!("diff")));
    assert!(number(&row(&json, "share_abs")["diff"]) > 0.0);
    let turned = scratch.json("both.csv --by model --baseline diff");
    assert_eq!(number(&row(&turned, "share_abs")["diff"]), -number(&row(&json, "share_abs")["diff"]));
    refuses_outright(
        &mut scratch.compare("both.csv"),
        2,
        &["both.csv is the only input", "--by", "model (diff, transformer)"],
    );
    refuses_outright(&mut scratch.compare("both.csv --by model --baseline gpt"), 2, &["gpt", "transformer, diff"]);
}

#[test]
fn bits_are_compared_with_logits_that_were_left_alone() {
    let scratch = Scratch::new();
    let quantised = |bits, shift| Run { bits: Some(bits), scope: Some("row"), shift, ..RUN }.records();
    let records = [RUN.records(), quantised(8, -0.01), quantised(4, -0.1)].concat();
    record::write(&scratch.path("bits.csv"), &records).unwrap();
    let json = scratch.json("bits.csv --by bits --metric share_abs --where scope=row");
    let rows = json["rows"].as_array().unwrap();
    let named: Vec<_> = rows.iter().map(|row| (row["baseline"].as_str(), row["other"].as_str())).collect();
    assert_eq!(named, [(Some("bits=none"), Some("bits=8")), (Some("bits=none"), Some("bits=4"))]);
    assert!((number(&rows[1]["diff"]) + 0.1).abs() < 1e-9);
}

#[test]
fn conditions_are_compared_with_the_untreated_passes_by_name() {
    let scratch = Scratch::new();
    let quantised = |bits, shift| Run { bits: Some(bits), scope: Some("row"), shift, ..RUN }.records();
    // The baseline comes last, and is the baseline all the same.
    let treated = [quantised(8, -0.01), quantised(4, -0.1)].concat();
    record::write(&scratch.path("c.csv"), &[treated.clone(), RUN.records()].concat()).unwrap();
    let json = scratch.json("c.csv --by condition --metric share_abs");
    let rows = json["rows"].as_array().unwrap();
    let named: Vec<_> = rows.iter().map(|row| (row["baseline"].as_str(), row["other"].as_str())).collect();
    let none = Some("condition=none");
    assert_eq!(named, [(none, Some("condition=quantise(8, row)")), (none, Some("condition=quantise(4, row)"))]);
    assert!((number(&rows[1]["diff"]) + 0.1).abs() < 1e-9);
    record::write(&scratch.path("treated.csv"), &treated).unwrap();
    let words = ["no untreated records", "--baseline", "quantise(8, row), quantise(4, row)"];
    refuses_outright(&mut scratch.compare("treated.csv --by condition"), 2, &words);
}

#[test]
fn every_input_is_compared_with_the_first() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.1, ..RUN });
    scratch.run("c", &Run { model: "diff-v2", shift: 0.2, ..RUN });
    let json = scratch.json("a b c --metric share_abs");
    let rows = json["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row["baseline"].as_str(), row["other"].as_str())).collect();
    assert_eq!(found, [(Some("transformer"), Some("diff")), (Some("transformer"), Some("diff-v2"))]);
    assert!((number(&rows[1]["diff"]) - 0.2).abs() < 1e-9);
}

#[test]
fn records_of_one_side_only_are_counted_and_listed_in_json() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let (run, mut records) = (Run { model: "diff", ..RUN }, Run { model: "diff", ..RUN }.records());
    records.retain(|record| record.identity.seed != Some(5) && record.measure.layer.is_none());
    scratch.folder("b", &records, &run.manifest());
    let json = scratch.json("a b");
    let cases = json["pairings"][0]["only_baseline"]["cases"].as_array().unwrap();
    assert_eq!((cases.len(), row(&json, "accuracy")["n"].as_u64()), (4, Some(29)));
    assert!(cases.iter().all(|case| case.as_str().unwrap().contains("seed=5")), "{cases:?}");
    assert!(
        cases.iter().any(|case| case.as_str().unwrap().starts_with("accuracy · task=needle ctx_tok=1024")),
        "{cases:?}"
    );
    assert_eq!(json["pairings"][0]["only_other"]["cases"], json!([]));
    let stderr = scratch.stderr("a b");
    assert!(stderr.contains("4 records of transformer without a partner (2 accuracy, 2 share_abs)"), "{stderr}");
    assert!(stderr.contains("; --json lists them"), "{stderr}");
}

#[test]
fn failures_and_missing_numbers_are_left_out_and_counted() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let mut records = RUN.records();
    records[0].measure.value = None;
    records[0].measure.error = Some("no room\nfor it".into());
    records[1].measure.value = None;
    scratch.folder("b", &records, &RUN.manifest());
    assert!(scratch.stderr("a b").contains("left out: 1 that failed, 1 without a number"));
    assert_eq!(row(&scratch.json("a b"), "accuracy")["cases"], 59);
}

#[test]
fn a_measurement_that_is_there_twice_is_an_error_that_says_where() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let records = [RUN.records(), vec![RUN.records()[4].clone()]].concat();
    record::write(&scratch.path("b.csv"), &records).unwrap();
    refuses_outright(
        &mut scratch.compare("a b.csv"),
        1,
        &["the same measurement twice", "record 5 of b.csv and record 241 of b.csv"],
    );
    fs::copy(scratch.path("a/results.csv"), scratch.path("again.csv")).unwrap();
    refuses_outright(
        &mut scratch.compare("a again.csv --by ctx_tok"),
        1,
        &["the same measurement twice", "a file given twice?"],
    );
    refuses_outright(&mut scratch.compare("a a --by ctx_tok"), 2, &["a is named twice"]);
    let scopes = ["row", "head"].map(|scope| Run { bits: Some(4), scope: Some(scope), ..RUN }.records()).concat();
    record::write(&scratch.path("c.csv"), &[RUN.records(), scopes].concat()).unwrap();
    refuses_outright(&mut scratch.compare("c.csv --by bits"), 1, &["differ in condition", "--where condition="]);
}

#[test]
fn other_schemas_and_other_files_are_refused() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let text = scratch.read("a/results.csv");
    scratch.write("newer.csv", text.replace("\n4,", "\n5,"));
    scratch.write("mixed.csv", text.clone() + &text.lines().nth(1).unwrap().replacen('4', "1", 1));
    scratch.write("other.csv", "x,y\n1,2\n");
    for (name, words) in [
        ("newer.csv", ["line 2", "schema 5"]),
        ("mixed.csv", ["line 242", "schema 1"]),
        ("other.csv", ["not a results file", "schema"]),
    ] {
        refuses_outright(&mut scratch.compare(&format!("a {name}")), 1, &[name, words[0], words[1]]);
    }
    refuses_outright(&mut scratch.compare("a nonesuch"), 2, &["nonesuch", "no such file or run folder"]);
    scratch.write("a/manifest.json", "{\"tool\": 3");
    refuses_outright(&mut scratch.compare("a a"), 1, &["manifest.json is not a manifest"]);
}

#[test]
fn two_units_of_one_metric_are_refused() {
    let scratch = Scratch::new();
    let mut records = RUN.records();
    records[4].measure.unit = Some("percent".into());
    record::write(&scratch.path("a.csv"), &records).unwrap();
    refuses_outright(
        &mut scratch.compare("a.csv a.csv"),
        1,
        &["a.csv, record 5", "accuracy is in percent here, but in fraction"],
    );
}

#[test]
fn rows_are_made_for_groups_and_of_what_meets_the_conditions() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.1, ..RUN });
    let json = scratch.json("a b --metric share_abs --group-by layer,ctx_tok --where ctx_tok=512 --where ctx_tok=1024");
    let groups: Vec<_> = json["rows"].as_array().unwrap().iter().map(|row| row["group"].clone()).collect();
    let group = |layer: &str, ctx: &str| json!({ "layer": layer, "ctx_tok": ctx });
    assert_eq!(groups, [group("0", "512"), group("0", "1024"), group("1", "512"), group("1", "1024")]);
    assert_eq!(json["rows"][0]["level"], "layer");
    assert_eq!(json["rows"][0]["n"], 15);
    let one = scratch.json("a b --where ctx_tok=512 --where query=1 --metric accuracy");
    assert_eq!((one["rows"][0]["n"].as_u64(), one["rows"][0]["cases"].as_u64()), (Some(15), Some(15)));
}

#[test]
fn all_formats_show_the_same_rows() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.125, ..RUN });
    let table = scratch.stdout("a b");
    assert!(table.starts_with("Change from transformer: ") && table.contains("[95 %]"), "{table}");
    assert!(table.contains("accuracy points"), "{table}");
    let full = scratch.stdout("a b --tables all");
    for heading in ["detectable", "wins/ties/losses", "p (holm)"] {
        assert!(full.contains(heading) && !table.contains(heading), "{heading}: {full}");
    }
    let csv = scratch.stdout("a b --format csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let field = |row: &csv::StringRecord, name: &str| {
        let place = header.iter().position(|heading| heading == name).unwrap();
        row[place].to_owned()
    };
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let json = scratch.json("a b");
    for row in json["rows"].as_array().unwrap() {
        let same = rows.iter().find(|found| row["metric"] == field(found, "metric")).unwrap();
        for name in ["mean_baseline", "mean_other", "diff", "lo", "hi", "p", "p_adjusted"] {
            // serde_json reads numbers to their last digit but one.
            let found = field(same, name).parse::<f64>().unwrap();
            assert!((found - number(&row[name])).abs() <= 1e-12 * found.abs(), "{name}: {found}");
        }
    }
    let markdown = scratch.stdout("a b --format markdown");
    assert!(markdown.starts_with("| metric | difference |") && markdown.contains("\n| --- |"), "{markdown}");
    assert_eq!(markdown.lines().count(), 4);
}

#[test]
fn a_comparison_says_what_it_could_have_shown() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.125, ..RUN });
    let json = scratch.json("a b --metric accuracy");
    assert!(number(&json["rows"][0]["detectable"]) > 0.05, "{json}");
}

#[test]
fn p_values_are_corrected_for_the_number_of_rows() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.125, ..RUN });
    let json = scratch.json("a b");
    let row = row(&json, "share_abs");
    assert_eq!(number(&row["p_adjusted"]), 2.0 * number(&row["p"]));
}

#[test]
fn conditions_that_hold_exit_with_3_behind_the_table() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: -0.125, ..RUN });
    let fail_if = |condition: &str| {
        let mut command = scratch.compare("a b --quiet --fail-if");
        Outcome::of(command.arg(condition).output().unwrap())
    };
    for holds in ["share_abs[answer] < -0.1", "share_abs.hi<0", "accuracy > 0", "accuracy.baseline < 0.9"] {
        let outcome = fail_if(holds);
        outcome.refused(3, &["holds for", "diff - transformer"]);
        assert!(!outcome.stdout.is_empty());
    }
    for not in ["share_abs < -0.2", "accuracy.lo < 0", "accuracy.other < 1"] {
        assert_eq!(fail_if(not).code, Some(0), "{not}");
    }
    for wrong in ["nll < 0", "accuracy", "accuracy < much", "share_abs[filler] < 0"] {
        assert_eq!(fail_if(wrong).code, Some(2), "{wrong}");
    }
}

#[test]
fn a_figure_is_a_new_file_with_its_recipe() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", shift: 0.125, ..RUN });
    scratch.stdout("a b --plot forest.png");
    let recipe = read_recipe(&scratch.path("forest.png")).unwrap();
    let of = |keyword: &str| &recipe.iter().find(|(name, _)| name == keyword).unwrap().1;
    assert!(of("command").ends_with("compare a b --plot forest.png"));
    assert!(of("input 1").starts_with("a sha256 ") && of("input 2").starts_with("b sha256 "));
    let before = scratch.bytes("forest.png");
    refuses_outright(&mut scratch.compare("a b --plot forest.png"), 2, &["forest.png", "never overwritten"]);
    assert_eq!(scratch.bytes("forest.png"), before);
    refuses_outright(&mut scratch.compare("a b --plot forest.gif"), 2, &["forest.gif", "PNG, SVG or PDF"]);
    refuses_outright(&mut scratch.compare("a b --plot nowhere/forest.png"), 2, &["there is no folder nowhere"]);
}

#[test]
fn mistakes_are_answered_with_what_there_is() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    for (args, words) in [
        ("a a --metric nll", ["--metric nll", "accuracy, share_abs"]),
        ("a a --metric share_abs[filler]", ["regions are", "answer"]),
        ("a a --where ctx_tok=99", ["--where ctx_tok=99", "512, 1024"]),
        ("a a --by seed", ["--by seed", "model"]),
        ("a a --group-by metric", ["--group-by metric", "rows for each model"]),
        ("a --baseline diff --by model", ["--baseline diff", "transformer"]),
        ("a --by model", ["nothing to compare transformer with", "ctx_tok (512, 1024)"]),
        ("a a --metric accuracy --group-by layer", ["no records left", "--group-by"]),
        ("a a --metric accuracy --group-by head", ["no records of single heads", "`ratio`"]),
    ] {
        refuses_outright(&mut scratch.compare(args), 2, &words);
    }
    for (args, word) in
        [("a a --where ctx", "COLUMN=VALUE"), ("a a --by depth", "depth_req_pct"), ("a a --where bits=few", "bits")]
    {
        refuses(&mut scratch.compare(args), 2, &[word]);
    }
}

#[test]
fn a_reader_who_has_enough_is_no_error_but_hides_no_condition_either() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    scratch.run("b", &Run { model: "diff", ..RUN });
    for (args, code) in [(&[][..], 0), (&["--fail-if", "accuracy > 0"], 3)] {
        for format in ["table", "csv", "json", "markdown"] {
            let mut command = scratch.process(["compare", "a", "b", "--format", format]);
            command.args(args);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(code), "{format}: {stderr}");
            assert!(!stderr.contains("panicked"), "{stderr}");
        }
    }
}

#[test]
fn nothing_is_coloured_with_or_without_no_color() {
    let scratch = Scratch::new();
    scratch.run("a", &RUN);
    let printed = |set: bool| {
        let mut command = scratch.compare("a a");
        let command = if set { command.env("NO_COLOR", "1") } else { command.env_remove("NO_COLOR") };
        let output = command.output().unwrap();
        [output.stdout, output.stderr].concat()
    };
    assert_eq!(printed(true), printed(false));
    assert!(!printed(false).contains(&0x1b));
}
