//! README.md and docs/: commands that work as typed, links that lead somewhere, numbers that the commands print, lists that are
//! whole.

use crate::common::{Scratch, Words as _};
use difftool::commands::command_line;
use difftool::train::{LossSpec, OptimizerSpec, TrainSpec, WatchSpec, SPEC_TABLES};
use engine::attention::Variant;
use engine::model::ModelConfig;
use names::metric;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use text::DocumentSpec;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md, CONTRIBUTING.md and every page of docs/, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut paths: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md"].map(|page| root().join(page)).into_iter().chain(pages).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// The lines of all blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}");
    let mut inside = false;
    let lines = page.lines().filter(move |line| {
        let edge = line.starts_with("```");
        if edge {
            inside = !inside && **line == fence;
        }
        inside && !edge
    });
    lines.collect()
}

/// What a page tells the reader to type to difftool: the words after its name, without comment and redirection.
fn commands(page: &str) -> Vec<Vec<String>> {
    let words = |line: &&str| {
        let line = line.split(" #").next().unwrap_or_default().split(" > ").next().unwrap_or_default().trim();
        let rest = line.strip_prefix("difftool ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
        Some(rest.words())
    };
    blocks(page, "sh").iter().filter_map(words).collect()
}

#[test]
fn every_command_of_the_pages_can_be_typed() {
    let mut count = 0;
    for (path, page) in pages() {
        for words in commands(&page) {
            let typed = std::iter::once("difftool".to_owned()).chain(words.iter().cloned());
            if let Err(error) = command_line().try_get_matches_from(typed) {
                assert!(!error.use_stderr(), "{}: difftool {}\n{error}", path.display(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} commands were found");
}

/// These pages, the findings, and the page of the embedded models: texts with links to files.
fn linked_pages() -> Vec<(PathBuf, String)> {
    let others = ["experiments/FINDINGS.md", "crates/engine/assets/models/README.md"].map(|page| root().join(page));
    let others = others.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap()));
    pages().into_iter().chain(others).collect()
}

#[test]
fn every_link_of_the_pages_leads_to_a_file() {
    for (path, page) in linked_pages() {
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = path.parent().unwrap().join(target.split('#').next().unwrap());
            assert!(file.exists(), "{} links to {target}, which is not there", path.display());
        }
    }
}

/// The anchors of a page's headings, as forges make them.
fn anchors(page: &str) -> Vec<String> {
    let anchor = |heading: &str| -> String {
        let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        heading.to_lowercase().chars().filter(|&c| kept(c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn every_link_to_a_heading_leads_to_one() {
    for (path, page) in linked_pages() {
        for target in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, anchor)) = target.split_once('#').filter(|_| !target.contains("://")) else { continue };
            let other = path.parent().unwrap().join(file);
            let of = if file.is_empty() { page.clone() } else { fs::read_to_string(&other).unwrap() };
            assert!(anchors(&of).iter().any(|found| found == anchor), "{}: no heading for {target}", path.display());
        }
    }
}

#[test]
fn the_readme_is_for_a_reader_with_three_minutes() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= 130, "{lines} lines; more belongs in docs/");
}

/// The cells of all rows of a page's tables.
fn table_rows(page: &str) -> Vec<Vec<&str>> {
    let lines = page.lines().filter(|line| line.starts_with("| "));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Whether a text has a name between backticks.
fn names(text: &str, name: &str) -> bool {
    text.contains(&format!("`{name}`"))
}

/// The `model_type` of every configuration among fixtures, by paths relative to their folder.
fn model_types(folder: &str, config_of: impl Fn(&Path) -> Option<PathBuf>) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("tests/fixtures").join(folder)).unwrap();
    let configs = entries.filter_map(|entry| config_of(&entry.unwrap().path()));
    let config = |path: PathBuf| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    configs.filter_map(|path| config(path)["model_type"].as_str().map(str::to_owned)).collect()
}

#[test]
fn the_table_of_families_says_of_each_how_it_was_checked() {
    let page = fs::read_to_string(root().join("docs/models.md")).unwrap();
    let (_, table) = page.split_once("### How each was checked").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let refusal = ModelConfig::from_json(&json!({"model_type": "mamba"}), None).unwrap_err().to_string();
    let (_, known) = refusal.split_once("; ").unwrap();
    let known: BTreeSet<&str> =
        known.trim_end_matches(" are").split([',', ' ']).filter(|word| !["", "and"].contains(word)).collect();
    let folders = model_types("transformers", |path| Some(path.join("config.json")));
    let layouts = model_types("layouts", |path| Some(path.join("config.json")));
    let files = model_types("gguf", |path| path.extension().is_some_and(|end| end == "json").then(|| path.to_owned()));
    let rows = table_rows(table).into_iter().filter(|row| row[0].starts_with('`') && row[0] != "`model_type`");
    // Families that were checked alike share a row.
    let rows: Vec<(&str, &str, &str)> =
        rows.flat_map(|row| row[0].split(", ").map(move |name| (name.trim_matches('`'), row[1], row[2]))).collect();
    let listed: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
    assert_eq!((listed, rows.len()), (known.clone(), known.len()));
    for (name, folder, file) in rows {
        let says = |cell: &str, word: &str| cell.split(", ").any(|said| said == word);
        assert_eq!(says(folder, "transformers"), folders.contains(name), "{name}: {folder}");
        assert!(says(folder, "formula") || !layouts.contains(name), "{name}: {folder}");
        assert_eq!(says(file, "package"), files.contains(name), "{name}: {file}");
        assert!(!folder.is_empty() && !file.is_empty(), "{name}");
    }
}

/// The keys of a file, as in `stage.data.facts`, with what they are.
fn keys(path: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                keys(&path, value, found);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            list.iter().for_each(|value| keys(path, value, found));
        }
        _ => found.push((path.to_owned(), value.to_string())),
    }
}

/// A training spec with every key that is not written where it is as usual.
const SPEC: &str = r#"
seed = 1

[start]
from = "transformer"

[model]
width = 64
layers = 2
heads = 4
head_dim = 16
ffn = 172
rope_theta = 10000.0
max_ctx_tok = 128

[[variant]]
name = "one"
attention = "transformer"

[[stage]]
ctx_tok = 128
tokens = 4096
step_tok = 4096
data = {}

[[contrast]]
name = "nothing"
of = ["one"]
less = ["one"]
"#;

#[test]
fn every_key_of_a_training_spec_is_explained_with_its_default() {
    let said: BTreeMap<String, Option<&str>> =
        SPEC_TABLES.iter().flat_map(|table| table.keys.iter().map(|key| (table.key_name(key), key.default))).collect();
    let (mut of_spec, mut usual) = (Vec::new(), Vec::new());
    keys("", &serde_json::to_value(TrainSpec::parse(SPEC, "a spec").unwrap()).unwrap(), &mut of_spec);
    assert!(of_spec.len() > 45, "{} keys were found", of_spec.len());
    of_spec.iter().for_each(|(key, _)| assert!(said.contains_key(key), "{key}"));
    let defaults = json!({
        "optimizer": OptimizerSpec::default(),
        "loss": LossSpec::default(),
        "watch": WatchSpec::default(),
        "stage": { "data": DocumentSpec::default() },
    });
    keys("", &defaults, &mut usual);
    for (key, default) in usual {
        let said: String = said[&key]
            .unwrap_or_else(|| panic!("{key} has a default"))
            .chars()
            .filter(|c| !['_', ' '].contains(c))
            .collect();
        assert_eq!(said, default, "{key}");
    }
}

#[test]
fn every_choice_of_a_variant_is_on_its_page() {
    let page = fs::read_to_string(root().join("docs/training.md")).unwrap();
    let rows = table_rows(&page);
    let mut of_variant = Vec::new();
    keys("", &serde_json::to_value(Variant::preset("diff").unwrap()).unwrap(), &mut of_variant);
    for (key, _) in of_variant {
        assert!(rows.iter().any(|row| row[0] == format!("`{key}`") && row.len() == 2), "{key}");
    }
}

/// Runs that have every measure, and heads that are ranked: folder, command.
const EVERYTHING: [(&str, &str); 6] = [
    ("run", "needle --unanswerable --max-new 8 --condition ablate(best:1:share_out) --ctx 256 --depths 50 --samples 1"),
    ("heads", "heads --ctx 256 --depths 50 --samples 1"),
    ("bits", "quantize --bits 4 --ctx 256 --depths 50 --samples 1"),
    ("prose", "quantize --text text.txt --bits 4 --ctx 256 --samples 1"),
    ("outliers", "outliers --ctx 256 --samples 1"),
    ("nll", "nll --ctx 256 --samples 1"),
];

#[test]
fn every_metric_of_a_run_is_in_the_catalogue_and_every_file_on_the_page_about_results() {
    let page = fs::read_to_string(root().join("docs/results.md")).unwrap();
    let rows = table_rows(&page);
    let scratch = Scratch::new();
    scratch.write("text.txt", "A text of a few words, and of a few more words. ".repeat(40));
    let mut measured = BTreeSet::new();
    for (folder, command) in EVERYTHING {
        let flags: Vec<&str> = command.split(' ').chain(["--quiet", "--out", folder]).collect();
        scratch.stdout(&flags);
        measured.extend(scratch.records(folder).into_iter().map(|record| (record.measure.metric, record.measure.unit)));
    }
    assert!(measured.len() > 45, "{} metrics were found", measured.len());
    for (metric, unit) in &measured {
        let known =
            metric::find(metric).unwrap_or_else(|| panic!("{metric} is not in the catalogue, src/results/metric.rs"));
        assert_eq!(known.unit, unit.as_deref(), "{metric}");
    }

    let source = fs::read_to_string(root().join("src/results/folder.rs")).unwrap();
    let constants = source.lines().filter(|line| line.starts_with("pub const "));
    let files: Vec<&str> = constants.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(files.len() > 10, "{files:?}");
    files.iter().for_each(|file| assert!(names(&page, file), "docs/results.md does not say what {file} is"));
    let row = |file: &str| rows.iter().find(|row| names(row[0], file)).unwrap()[1];
    let first_line = |file: &str| {
        let text =
            fs::read_to_string(scratch.path(if file == "tokens.csv" { "nll" } else { "run" }).join(file)).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    for file in ["tokens.csv", "rankings.csv"] {
        first_line(file).split(',').for_each(|column| assert!(names(row(file), column), "{file}: {column}"));
    }
    let generated: Value = serde_json::from_str(&first_line("generations.jsonl")).unwrap();
    for key in generated.as_object().unwrap().keys() {
        assert!(names(row("generations.jsonl"), key), "generations.jsonl: {key}");
    }
}

/// What stands in a page as printed by `command`.
fn printed(page: &str, command: &str) -> String {
    let begin = page.find(&format!("<!-- printed by: {command}")).unwrap_or_else(|| panic!("no block of {command}"));
    let block = page[begin..].split("```\n").nth(1).unwrap();
    block.to_owned()
}

#[test]
fn the_cheap_commands_print_what_the_pages_show() {
    let models = fs::read_to_string(root().join("docs/models.md")).unwrap();
    let scratch = Scratch::new();
    assert_eq!(scratch.stdout("inspect diff"), printed(&models, "difftool inspect diff"));
}

#[test]
#[ignore = "minutes on two cores: cargo test --release -- --ignored"]
fn the_first_command_of_the_readme_prints_what_its_page_shows() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let command = "difftool needle --ctx 4k --out runs/readme";
    assert!(readme.contains("cargo run --release -- needle --ctx 4k "), "the first command is another one");
    let scratch = Scratch::new();
    let page = fs::read_to_string(root().join("docs/questions.md")).unwrap();
    let stdout = scratch.stdout(command.strip_prefix("difftool ").unwrap());
    let shown = printed(&page, command);
    // The page may show some of the tables.
    let blocks: Vec<&str> = shown.trim().split("\n\n").collect();
    assert!(blocks.len() >= 2, "{shown}");
    for block in blocks {
        assert!(stdout.contains(block), "{block}\nis not in\n{stdout}");
    }
}
