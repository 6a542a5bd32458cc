//! The binary from outside: `difftool report` on run folders made here, and everything a user can get wrong.

mod explorers;

use crate::common::{self, printed, refuses_outright, tiny_model};
use assert_cmd::Command;
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use difftool::results::manifest::{Manifest, OutputFile};
use difftool::results::record::{self, Identity, Measurement, Record};
use names::ModelInfo;
use serde_json::json;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

const HOSTILE: &str = "<script>alert('x')</script>|`a`\" & <!-- x -->";

/// A run to be.
struct Fixture {
    models: [&'static str; 2],
    config: serde_json::Value,
    records: Vec<Record>,
}

impl Fixture {
    /// Two models on ten prompts each: the first finds 8 of 10 needles, the second all.
    fn needle() -> Self {
        let mut fixture = Self { models: ["transformer", "diff"], config: json!({}), records: Vec::new() };
        fixture.add(None, [8, 10], [0.25, 0.4]);
        fixture
    }

    /// The same, and with 4 bits.
    fn quantised() -> Self {
        let mut fixture = Self::needle();
        fixture.add(Some(4), [2, 9], [0.125, 0.375]);
        fixture
    }

    fn add(&mut self, bits: Option<u32>, hits: [u64; 2], shares: [f64; 2]) {
        for (model, (hits, share)) in self.models.into_iter().zip(hits.into_iter().zip(shares)) {
            for seed in 0..10 {
                let identity = Arc::new(identity(model, seed, bits));
                let record = |metric: &'static str, region: Option<&'static str>, value: f64| Record {
                    identity: identity.clone(),
                    measure: Measurement { region: region.map(Into::into), ..measure(metric, value) },
                };
                self.records.push(record("accuracy", None, f64::from(u8::from(seed < hits))));
                self.records.push(record("share_abs", Some("answer"), share));
                self.records.push(record("noise_abs", None, 1.0 - share));
            }
        }
    }

    /// Writes the run folder.
    fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        record::write(&folder.join("results.csv"), &self.records).unwrap();
        figure(&folder.join("accuracy.png"));
        let model = |(i, name): (usize, &&str)| ModelInfo {
            name: (*name).into(),
            variant: ["transformer", "diff"][i].into(),
            parameters: 922_752,
            weights_sha256: format!("{i}").repeat(64),
            layout: "DIFF V1".into(),
            lambda: if i == 0 { Vec::new() } else { vec![0.25, 0.3555090675909693] },
            ..ModelInfo::default()
        };
        let output = |file: &str| OutputFile::describe(folder, file, None).unwrap();
        let manifest = Manifest {
            argv: ["/opt/bin/difftool", "needle", "--out", "runs/a b"].map(String::from).to_vec(),
            config: self.config.clone(),
            models: self.models.iter().enumerate().map(model).collect(),
            prompts_sha256: "ab".repeat(32),
            device: "cpu".into(),
            dtype: "f32".into(),
            threads: 2,
            seeds: [("bootstrap".to_owned(), 7)].into(),
            wall_s: 725.0,
            peak_rss_bytes: Some(130 << 20),
            outputs: vec![output("results.csv"), output("accuracy.png")],
            ..Manifest::default()
        };
        manifest.write(&folder.join("manifest.json")).unwrap();
    }
}

fn identity(model: &str, seed: u64, bits: Option<u32>) -> Identity {
    Identity {
        model: model.into(),
        variant: "diff".into(),
        task: "needle".into(),
        ctx_tok: 4096,
        needles: Some(1),
        retrieve: Some(1),
        depth_req_pct: Some([0.0, 50.0][(seed % 2) as usize]),
        cities: Some("train".into()),
        sample: Some(seed),
        seed: Some(seed),
        query: Some(0),
        condition: bits.map(|bits| format!("quantise({bits}, tensor)").into()),
        bits,
        scope: bits.map(|_| "tensor".into()),
        ..Identity::default()
    }
}

fn measure(metric: &'static str, value: f64) -> Measurement {
    Measurement { metric: metric.into(), value: Some(value), n: Some(1), ..Measurement::default() }
}

/// A PNG of one pixel with a recipe.
fn figure(path: &Path) {
    let mut encoder = png::Encoder::new(fs::File::create_new(path).unwrap(), 1, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.add_itxt_chunk("pooling".into(), "mean over <prompts>".into()).unwrap();
    encoder.write_header().unwrap().write_image_data(&[1, 2, 3]).unwrap();
}

/// A scratch folder with a run in `run/`.
struct Scratch(common::Scratch);

impl Scratch {
    fn new(fixture: &Fixture) -> Self {
        let scratch = common::Scratch::new();
        fixture.write(&scratch.path("run"));
        Self(scratch)
    }

    fn report(&self, args: &[&str]) -> Command {
        self.command([&["report"], args].concat())
    }

    /// What it prints.
    fn stdout(&self, args: &[&str]) -> String {
        printed(&mut self.report(args))
    }

    /// Fails with this exit code and one line on stderr that contains all of `words`.
    #[track_caller]
    fn refuses(&self, args: &[&str], code: i32, words: &[&str]) {
        refuses_outright(&mut self.report(args), code, words);
    }
}

common::is_scratch!(Scratch);

/// The rows of a Markdown table under a heading, without head and rule.
fn rows<'a>(markdown: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, after) = markdown.split_once(&format!("### {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let table = after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).collect()
}

#[test]
fn a_finished_run_is_written_as_the_ending_of_a_file_says() {
    let scratch = Scratch::new(&Fixture::needle());
    for (file, more, begins) in [
        ("a.html", &[][..], "<!DOCTYPE html>"),
        ("a.md", &[], "# difftool needle: transformer, diff"),
        ("a.csv", &["--tables", "answers"], "model,"),
        ("a.tex", &["--tables", "answers"], "% Answers"),
        ("a.json", &[], "{"),
    ] {
        scratch.0.stdout([&["show", "run", "--out", file], more].concat());
        let text = scratch.read(file);
        assert!(text.starts_with(begins), "{file}: {}", text.lines().next().unwrap_or_default());
        scratch.0.refuses([&["show", "run", "--out", file], more].concat(), &["it exists"]);
    }
    assert_eq!(scratch.0.stdout(["show", "run", "--tables", "answers", "--csv"]), scratch.read("a.csv"));
    assert_eq!(scratch.0.stdout(["show", "run", "--json"]), scratch.read("a.json"));
    for (file, words) in [("b.pdf", ".html, .md, .csv, .tex or .json"), ("b.csv", "name it with --tables")] {
        scratch.0.refuses(["show", "run", "--out", file], &[words]);
    }
    scratch.0.stdout(["report", "run", "--out", "b.md"]);
    assert_eq!(scratch.read("b.md"), scratch.read("a.md"));
    scratch.0.refuses(["report", "run", "--out", "b.pdf"], &["FILE.html, or FILE.md"]);
}

#[test]
fn a_page_asks_for_nothing_outside_itself() {
    let scratch = Scratch::new(&Fixture::needle());
    let page = scratch.stdout(&["run", "-o", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(
        !page.contains("http:") && !page.contains("https:") && !page.contains("<link") && !page.contains("@import")
    );
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("<script>") && !page.contains(" onclick"));
    for attribute in ["src=\"", "href=\""] {
        for value in page.split(attribute).skip(1) {
            assert!(value.starts_with("data:image/png;base64,") || value.starts_with('#'), "{value:.60}");
        }
    }
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
}

#[test]
fn a_page_shows_tables_figures_lambda_recipe_and_environment() {
    let mut fixture = Fixture::needle();
    fixture.config = json!({ "question": "Is it found?", "analysis": "First.\n\nSecond.", "command": "ratio" });
    let scratch = Scratch::new(&fixture);
    let page = scratch.stdout(&["run"]);
    let figure = STANDARD.encode(scratch.bytes("run/accuracy.png"));
    let weights = "1".repeat(64);
    for shown in [
        "<h1><bdi>difftool ratio: transformer, diff</bdi></h1>",
        "Is it found?",
        "<p>First.</p>",
        "<p>Second.</p>",
        "transformer and diff on 10 prompts of 4096 tokens.",
        "difftool needle --out &#x27;runs&#x2f;a b&#x27;",
        "data-value=\"0.8\">80 <span class=\"interval\">[49, 94]</span>",
        figure.as_str(),
        "mean over &lt;prompts&gt;",
        "data-value=\"0.3555090675909693\">0.356<",
        weights.as_str(),
        "12 min 5 s",
        "130 MiB",
        "<dt>seed of bootstrap</dt><dd>7</dd>",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn the_experiment_file_and_what_is_partial_about_a_run_are_shown() {
    let scratch = Scratch::new(&Fixture::needle());
    scratch.write("run/experiment.toml", "command = \"<b>\"\n");
    edit(&scratch, |manifest| {
        manifest["shard"] = json!("1/2");
        manifest["resumed_cells"] = json!(4);
    });
    let page = scratch.stdout(&["run"]);
    for shown in ["command = &quot;&lt;b&gt;&quot;", "; only shard 1&#x2f;2 of the experiment.", "<dd>4</dd>"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn what_the_inputs_do_not_say_is_not_on_the_page() {
    let scratch = Scratch::new(&Fixture::needle());
    let page = scratch.stdout(&["run"]);
    for absent in [
        "class=\"question\"",
        "class=\"failures\"",
        "haystack, SHA-256",
        "quantisation",
        "Outliers",
        "held-out",
        "Experiment file",
        "shard",
        "resuming",
    ] {
        assert!(!page.contains(absent), "{absent}");
    }
}

#[test]
fn tables_hold_the_numbers_of_the_records() {
    let scratch = Scratch::new(&Fixture::needle());
    let markdown = scratch.stdout(&["run", "--format", "markdown"]);
    // scipy.stats.binomtest(8, 10).proportion_ci(0.95, "wilson") = (0.4902, 0.9433); of (10, 10) = (0.7225, 1).
    assert_eq!(
        rows(&markdown, "Answers in full"),
        ["| transformer | 4096 | 1 | 1 | 10 | 80 [49, 94] |", "| diff | 4096 | 1 | 1 | 10 | 100 [72, 100] |"]
    );
    assert_eq!(
        rows(&markdown, "Where the attention goes"),
        [
            "| transformer | 4096 | 1 | 1 | 10 | 25.0 [-] | 75.0 [-] |",
            "| diff | 4096 | 1 | 1 | 10 | 40.0 [-] | 60.0 [-] |"
        ]
    );
    // Two of ten are won, none lost: Tango's interval.
    let differences = rows(&markdown, "Differences");
    let accuracy = "| accuracy | diff - transformer | 4096 | 1 | 1 | 10 | 80.0 | 100.0 | +20 [-13, +51] | undecided |";
    assert!(differences[0].starts_with(accuracy), "{differences:?}");
    assert!(
        differences[1].contains("| +15.0 [-] | undecided |") && differences[2].contains("| -15.0 [-] |"),
        "{differences:?}"
    );
    assert_eq!(rows(&markdown, "λ by layer"), ["| 0 | 0.250 |", "| 1 | 0.356 |"]);
    assert_eq!(rows(&markdown, "By depth").len(), 4);
    assert!(rows(&markdown, "By depth")[0].starts_with("| transformer | 4096 | 1 | 1 | 0 | 5 | 80 "));
}

#[test]
fn numbers_of_bits_have_rows_and_differences_of_their_own() {
    let scratch = Scratch::new(&Fixture::quantised());
    let markdown = scratch.stdout(&["run", "--format", "markdown"]);
    let answers = rows(&markdown, "Answers in full");
    assert_eq!(answers.len(), 4);
    assert!(answers[0].starts_with("| transformer | 4096 | 1 | 1 | none | 10 | 80 "), "{}", answers[0]);
    assert!(answers[3].starts_with("| diff | 4096 | 1 | 1 | quantise(4, tensor) | 10 | 90 "), "{}", answers[3]);
    let differences = rows(&markdown, "Differences");
    let names: Vec<&str> = differences.iter().take(4).map(|row| row.split(" | ").nth(1).unwrap()).collect();
    let expected = [
        "transformer quantise(4, tensor) - transformer none",
        "diff quantise(4, tensor) - diff none",
        "diff none - transformer none",
        "diff quantise(4, tensor) - transformer quantise(4, tensor)",
    ];
    assert_eq!(names, expected);
    assert!(differences[0].contains("| -60 ["), "{}", differences[0]);
}

#[test]
fn scopes_are_told_apart() {
    let mut fixture = Fixture::quantised();
    let by_row = |record: &Record| {
        let condition = Some("quantise(4, row)".into());
        let identity = Identity { condition, scope: Some("row".into()), ..(*record.identity).clone() };
        let value = if record.measure.metric == "accuracy" { Some(1.0) } else { record.measure.value };
        Record { identity: Arc::new(identity), measure: Measurement { value, ..record.measure.clone() } }
    };
    let records: Vec<Record> = fixture.records.iter().filter(|r| r.identity.bits.is_some()).map(by_row).collect();
    fixture.records.extend(records);
    let markdown = Scratch::new(&fixture).stdout(&["run", "--format", "markdown"]);
    let answers = rows(&markdown, "Answers in full");
    assert_eq!(answers.len(), 6);
    assert!(answers[1].starts_with("| transformer | 4096 | 1 | 1 | quantise(4, tensor) | 10 | 20 "), "{}", answers[1]);
    assert!(answers[2].starts_with("| transformer | 4096 | 1 | 1 | quantise(4, row) | 10 | 100 "), "{}", answers[2]);
    assert!(markdown.contains("| transformer quantise(4, row) - transformer none |"));
}

#[test]
fn what_was_pooled_over_prompts_is_a_table_without_intervals() {
    let mut fixture = Fixture::needle();
    fixture.records.clear();
    for (layer, metric, value) in [(None, "top_1", 38.8), (None, "median", 2.12), (Some(0), "top_1", 36.9)] {
        let identity = Identity { sample: None, seed: None, task: "text".into(), ..identity("diff", 0, None) };
        let measure = Measurement { layer, region: Some("logits".into()), ..measure(metric, value) };
        fixture.records.push(Record { identity: Arc::new(identity), measure });
    }
    let markdown = Scratch::new(&fixture).stdout(&["run", "--format", "markdown"]);
    assert_eq!(rows(&markdown, "Outliers"), ["| diff | 4096 | logits | 1 | 38.8 | 2.12 |"]);
    assert!(!markdown.contains("36.9"), "numbers of layers are in results.csv");
}

#[test]
fn failures_are_listed() {
    let mut fixture = Fixture::needle();
    let identity = Arc::new(identity("diff", 3, None));
    let error = Some("no room\nfor <6> needles".into());
    fixture
        .records
        .push(Record { identity, measure: Measurement { metric: "cell".into(), error, ..Measurement::default() } });
    let scratch = Scratch::new(&fixture);
    let page = scratch.stdout(&["run"]);
    assert!(page.contains("1 of the measurements failed.") && page.contains("for &lt;6&gt; needles"));
    let markdown = scratch.stdout(&["run", "--format", "markdown"]);
    assert_eq!(
        rows(&markdown, "Failures"),
        ["| diff | 4096 | 1 | 1 | 50 | 3 | cell | no room for &lt;6&gt; needles |"]
    );
}

#[test]
fn hostile_names_and_prose_stay_text() {
    let mut fixture =
        Fixture { models: [HOSTILE, "diff"], config: json!({ "question": HOSTILE }), records: Vec::new() };
    fixture.add(None, [8, 10], [0.25, 0.4]);
    let scratch = Scratch::new(&fixture);
    let page = scratch.stdout(&["run"]);
    assert_eq!(page.matches("<script").count(), 1, "only ours");
    assert!(!page.contains("alert('x')") && page.contains("&lt;script&gt;alert"));
    let markdown = scratch.stdout(&["run", "--format", "markdown"]);
    assert!(!markdown.contains("<script>") && markdown.contains(r"&lt;/script&gt;\|\`a\`"));
}

#[test]
fn several_runs_are_sections_in_the_order_given() {
    let scratch = Scratch::new(&Fixture::needle());
    Fixture::quantised().write(&scratch.path("again"));
    let page = scratch.stdout(&["run", "again"]);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("id=\"run-1\"") < place("id=\"run-2\""));
    assert!(place("<bdi>run</bdi></span></h2>") < place("<bdi>again</bdi></span></h2>"));
    assert!(page.contains("href=\"#run-2\""));
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "ids are unique");
}

#[test]
fn a_report_begins_with_what_was_found_and_names_what_is_undecided() {
    let mut fixture = Fixture::needle();
    // Shares of the answer that differ by about as much as they vary: undecided. Noise is lower in every prompt.
    for (i, record) in fixture.records.iter_mut().enumerate() {
        let of_diff = record.identity.model == "diff";
        let seed = record.identity.seed.unwrap() as f64;
        match &*record.measure.metric {
            "share_abs" => record.measure.value = Some(0.3 + if of_diff { 0.02 * (seed - 4.4) } else { 0.0 }),
            "noise_abs" => record.measure.value = Some(if of_diff { 0.4 + 0.01 * seed } else { 0.7 }),
            _ => assert!(i < 60),
        }
    }
    let scratch = Scratch::new(&fixture);
    let page = scratch.stdout(&["run"]);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("alt=\"Differences on the same prompts") < place("<table"), "the forest plot comes first");
    let markdown = scratch.stdout(&["run", "--format", "markdown"]);
    let verdict = |metric: &str| {
        let row =
            rows(&markdown, "Differences").into_iter().find(|row| row.starts_with(&format!("| {metric} "))).unwrap();
        ["higher", "lower", "undecided"].into_iter().find(|word| row.contains(&format!("| {word} |"))).unwrap()
    };
    assert_eq!(verdict("accuracy"), "undecided");
    assert_eq!(verdict(r"answer in \|a\|"), "undecided");
    assert_eq!(verdict(r"noise in \|a\|"), "lower");
}

#[test]
fn every_table_is_in_the_contents_and_has_a_caption() {
    let scratch = Scratch::new(&Fixture::quantised());
    let page = scratch.stdout(&["run"]);
    let tables = page.matches("<table").count();
    assert!(tables > 4 && page.contains(&format!("Contents: {tables} tables")), "{tables}");
    assert_eq!(page.matches("<caption>").count(), tables);
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(page.contains(&format!("id=\"{link}\"")), "{link} leads nowhere");
    }
    assert!(page.contains("class=\"skip\" href=\"#main\"") && page.contains("Back to the contents"));
    assert!(!page.contains("scope=\"col\"></th>"), "every heading has words");
    let alt = page.split(" alt=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(alt.contains("transformer and diff"), "{alt}");
}

#[test]
fn runs_are_compared_in_words_that_a_reader_understands() {
    let scratch = Scratch::new(&Fixture::needle());
    let mut again = Fixture::needle();
    again.records.iter_mut().filter(|r| r.measure.metric == "share_abs").for_each(|r| {
        let seed = r.identity.seed.unwrap() as f64;
        r.measure.value = r.measure.value.map(|x| x + 0.1 + 0.001 * seed);
    });
    again.write(&scratch.path("an other"));
    let page = scratch.stdout(&["run", "an other", "--compare"]);
    let comparison = page.split("id=\"comparison\"").nth(1).unwrap().split("</section>").next().unwrap();
    let (forest, table) = comparison.split_once("<table").unwrap();
    assert!(
        forest.contains("<img src=\"data:image&#x2f;png") || forest.contains("<img src=\"data:image/png"),
        "no forest plot"
    );
    for words in ["<caption>Differences", "answer in |a|", "+10.4", "higher", "undecided", "diff"] {
        assert!(table.contains(words), "{words} is not in {table}");
    }
    // The models of one run.
    let one = scratch.stdout(&["run", "--compare", "--format", "markdown"]);
    assert!(one.contains("## Comparison") && one.contains("| diff - transformer |"), "{one}");
}

#[test]
fn a_report_is_the_same_twice() {
    let scratch = Scratch::new(&Fixture::quantised());
    assert_eq!(scratch.stdout(&["run"]), scratch.stdout(&["run"]));
}

#[test]
fn a_file_that_exists_is_not_overwritten() {
    let scratch = Scratch::new(&Fixture::needle());
    scratch.report(&["run", "-o", "report.html"]).assert().success().stdout("");
    let page = scratch.read("report.html");
    assert!(page.ends_with("</html>\n"));
    scratch.write("notes.html", "mine");
    scratch.refuses(&["run", "-o", "notes.html"], 2, &["notes.html"]);
    assert_eq!(scratch.read("notes.html"), "mine");
    scratch.refuses(
        &["run", "-o", "nowhere/report.html"],
        2,
        &["--out nowhere/report.html: there is no folder nowhere"],
    );
}

#[test]
fn folders_that_are_no_runs_are_refused_with_a_reason() {
    let scratch = Scratch::new(&Fixture::needle());
    fs::create_dir(scratch.path("empty")).unwrap();
    scratch.refuses(&["nope"], 2, &["there is no run folder nope"]);
    scratch.refuses(&["run/results.csv"], 2, &["is a file", "run folder"]);
    scratch.refuses(&["empty"], 2, &["empty has no manifest.json"]);
    scratch.refuses(&["run", "run"], 2, &["run is named twice"]);
}

#[test]
fn broken_runs_are_errors_that_name_the_file() {
    let breaks: [(&str, &str, &[&str]); 4] = [
        ("manifest.json", "{}", &["manifest.json is not a manifest"]),
        ("manifest.json", "\u{0}", &["manifest.json is not a manifest"]),
        ("results.csv", "schema,model\n", &["results.csv is not the file that", "was changed after the run"]),
        ("accuracy.png", "no PNG", &["accuracy.png is not the file that"]),
    ];
    for (file, text, words) in breaks {
        let scratch = Scratch::new(&Fixture::needle());
        fs::write(scratch.path("run").join(file), text).unwrap();
        scratch.refuses(&["run"], 1, words);
    }
    let scratch = Scratch::new(&Fixture::needle());
    fs::remove_file(scratch.path("run/results.csv")).unwrap();
    scratch.refuses(&["run"], 1, &["cannot read run/results.csv"]);
}

/// Rewrites the manifest's JSON.
fn edit(scratch: &Scratch, change: impl FnOnce(&mut serde_json::Value)) {
    edit_manifest(scratch, "run", change);
}

fn edit_manifest(scratch: &Scratch, run: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let path = scratch.path(run).join("manifest.json");
    let mut manifest = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn runs_of_two_builds_meet_only_with_a_message() {
    let scratch = Scratch::new(&Fixture::needle());
    Fixture::quantised().write(&scratch.path("again"));
    let said = |args: &[&str]| {
        let outcome = scratch.run([&["report", "--format", "markdown"], args].concat());
        outcome.succeeded();
        outcome.stderr
    };
    assert_eq!(said(&["run", "again"]), "");
    edit(&scratch, |manifest| manifest["tool"]["source"] = json!("0123456789abcdef"));
    let stderr = said(&["run", "again"]);
    assert!(stderr.contains("sources 0123456789ab)") && stderr.contains("their numbers may differ"), "{stderr}");
    assert_eq!(said(&["run", "again", "-q"]), "");
}

#[test]
fn files_outside_the_run_folder_are_not_read() {
    let scratch = Scratch::new(&Fixture::needle());
    figure(&scratch.path("secret.png"));
    let outside = OutputFile::describe(&scratch.path("run"), "../secret.png", None).unwrap();
    edit(&scratch, |manifest| manifest["outputs"] = json!([outside]));
    scratch.refuses(&["run"], 1, &["`../secret.png` is not a file of this folder"]);
}

#[test]
fn a_png_that_cannot_be_read_is_an_error_even_if_the_manifest_knows_it() {
    let scratch = Scratch::new(&Fixture::needle());
    scratch.write("run/accuracy.png", "no PNG");
    let output = OutputFile::describe(&scratch.path("run"), "accuracy.png", None).unwrap();
    edit(&scratch, |manifest| manifest["outputs"] = json!([output]));
    scratch.refuses(&["run"], 1, &["accuracy.png is not a PNG that can be read"]);
}

#[test]
fn a_manifest_that_says_little_gives_a_short_page_and_nonsense_is_refused() {
    let run = |config| {
        let scratch = Scratch::new(&Fixture { models: ["a", "b"], config, records: Vec::new() });
        edit(&scratch, |manifest| {
            manifest["argv"] = json!([]);
            manifest["models"] = json!([]);
            manifest["wall_s"] = json!(-1.0);
        });
        scratch
    };
    for config in [json!(null), json!({ "grid": { "samples": -1 } })] {
        let scratch = run(config);
        assert!(scratch.stdout(&["run"]).contains("The results hold no numbers."));
        assert!(scratch.stdout(&["run", "--format", "markdown"]).starts_with("# difftool run\n"));
    }
    for config in [json!({ "question": 5 }), json!({ "left_out": "all" })] {
        run(config).refuses(&["run"], 1, &["manifest.json", "the configuration is not that of a run"]);
    }
}
