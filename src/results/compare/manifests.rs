//! Differences between two manifests, found before any number is compared.

use super::super::column::Column;
use super::{Input, Request};
use crate::bail_usage;
use crate::results::manifest::{Manifest, ModelInfo};
use anyhow::{bail, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Something that two runs do not share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Name, by its place in the manifest.
    pub what: String,
    /// In the first input.
    pub first: String,
    /// In the other one.
    pub other: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} and {}", self.what, self.first, self.other)
    }
}

/// The relation of the prompts of two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prompts {
    Same,
    /// And why that is known.
    Different(String),
    /// And why nothing is known.
    Unknown(&'static str),
}

/// Longer values are cut.
const LONGEST: usize = 60;
/// Digits of a hash that tell it apart.
const HASH_DIGITS: usize = 12;
/// Keys of the configuration that describe a run, or choose tables and figures.
const SAID: [&str; 4] = ["config.question", "config.analysis", "config.command", "config.fail_if"];

/// Differences between the manifests.
pub(super) struct Checked {
    pub(super) differences: Vec<(String, Vec<Mismatch>)>,
    /// `true` if seeds do not tell prompts apart, as those of a pair are not the same anyway.
    pub(super) ignores_seeds: bool,
}

/// Compares the manifest of every input with that of the first.
pub(super) fn check_manifests(inputs: &[Input], request: &Request, notes: &mut Vec<String>) -> Result<Checked> {
    for input in inputs {
        if input.manifest.is_none() && inputs.len() > 1 {
            notes.push(format!("{} has no manifest.json: what its run differed in is not known", input.name));
        }
        if input.was_edited()? {
            bail!(
                "{} is not the file that its manifest describes (its SHA-256 differs): it was changed after the run, or \
                 the run goes on; copy it elsewhere to compare it without its manifest",
                input.results.display()
            );
        }
        let by_model = request.by == Some(Column::Model) || request.replicates.is_some();
        if by_model && input.manifest.as_ref().is_some_and(mixes_tokenizers) {
            notes.push(format!("{}: its models cut the same text into different tokens", input.name));
        }
    }
    let mut checked = Checked { differences: Vec::new(), ignores_seeds: false };
    let Some((first, others)) = inputs.split_first() else { bail_usage!("nothing to compare: name runs or results") };
    for other in others {
        let prompts = match (&first.manifest, &other.manifest) {
            (Some(a), Some(b)) => {
                if (&a.tool.version, &a.tool.source) != (&b.tool.version, &b.tool.source) {
                    notes.push(format!(
                        "{} and {} were measured by two builds of difftool: what differs may be theirs",
                        first.name, other.name
                    ));
                }
                checked.differences.push((other.name.clone(), differences(a, b)));
                prompts(a, b)
            }
            _ => Prompts::Unknown("a manifest is missing"),
        };
        match prompts {
            Prompts::Same => {}
            Prompts::Different(reason) if !request.allow_different_prompts => bail_usage!(
                "{} and {} are of different prompts, which cannot be paired by seed: {reason}; \
                 --allow-different-prompts pairs them by setting and sample",
                first.name,
                other.name
            ),
            Prompts::Different(_) => checked.ignores_seeds = true,
            Prompts::Unknown(_) if request.allow_different_prompts => checked.ignores_seeds = true,
            Prompts::Unknown(why) => notes.push(format!(
                "{} and {}: {why}, so prompts are taken as the same where settings and seeds are",
                first.name, other.name
            )),
        }
    }
    Ok(checked)
}

/// Everything that differs and can matter for the results. Threads cannot, and times and paths do not.
fn differences(a: &Manifest, b: &Manifest) -> Vec<Mismatch> {
    let mut list = MismatchList::default();
    list.add("tool.version", &a.tool.version, &b.tool.version);
    list.optional("tool.git", a.tool.git.as_deref(), b.tool.git.as_deref());
    list.add("tool.source", &a.tool.source, &b.tool.source);
    list.add("machine.features", &a.machine.features.join(" "), &b.machine.features.join(" "));
    list.add("models", &names(a), &names(b));
    for (first, other) in common_models(a, b) {
        let of_model = format!("models.{}", first.name);
        list.hash(&format!("{of_model}.weights_sha256"), Some(&first.weights_sha256), Some(&other.weights_sha256));
        list.hash(&format!("{of_model}.config_sha256"), Some(&first.config_sha256), Some(&other.config_sha256));
        list.add(&format!("{of_model}.layout"), &first.layout, &other.layout);
    }
    list.add("tokenizer_sha256", &tokenizers(a), &tokenizers(b));
    list.hash("haystack_sha256", a.haystack_sha256.as_deref(), b.haystack_sha256.as_deref());
    list.hash("text_sha256", a.text_sha256.as_deref(), b.text_sha256.as_deref());
    list.hash("needles_sha256", a.needles_sha256.as_deref(), b.needles_sha256.as_deref());
    list.hash("prompts_sha256", a.prompts_sha256.as_deref(), b.prompts_sha256.as_deref());
    list.optional("shard", a.shard.as_deref(), b.shard.as_deref());
    list.add("dtype", &a.dtype, &b.dtype);
    list.add("device", &a.device, &b.device);
    for name in a.seeds.keys().chain(b.seeds.keys()).collect::<BTreeSet<_>>() {
        let [first, other] = [a, b].map(|manifest| manifest.seeds.get(name).map(ToString::to_string));
        list.optional(&format!("seeds.{name}"), first.as_deref(), other.as_deref());
    }
    let (first, other) = (flattened(&a.config), flattened(&b.config));
    for key in first.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
        if !SAID.iter().any(|place| key.starts_with(place)) {
            list.optional(key, first.get(key).map(String::as_str), other.get(key).map(String::as_str));
        }
    }
    list.0
}

fn names(manifest: &Manifest) -> String {
    manifest.models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Models of one name.
fn common_models<'a>(a: &'a Manifest, b: &'a Manifest) -> impl Iterator<Item = (&'a ModelInfo, &'a ModelInfo)> {
    a.models.iter().filter_map(|first| Some((first, b.models.iter().find(|other| other.name == first.name)?)))
}

/// The distinct tokenizers of a run, in short.
fn tokenizers(manifest: &Manifest) -> String {
    let hashes: BTreeSet<&str> = manifest.models.iter().map(|model| model.tokenizer_sha256.as_str()).collect();
    hashes.into_iter().map(short_hash).collect::<Vec<_>>().join(", ")
}

/// Returns `true` if the models of one run cut text into different tokens.
fn mixes_tokenizers(manifest: &Manifest) -> bool {
    manifest.models.windows(2).any(|two| two[0].tokenizer_sha256 != two[1].tokenizer_sha256)
}

/// Compares the prompts of two runs, to the token.
fn prompts(a: &Manifest, b: &Manifest) -> Prompts {
    let (Some(first), Some(other)) = (&a.prompts_sha256, &b.prompts_sha256) else {
        return Prompts::Unknown("a manifest has no prompts_sha256");
    };
    if first == other {
        return Prompts::Same;
    }
    let reasons: Vec<String> =
        differences(a, b).into_iter().filter(|d| makes_prompts(&d.what)).map(|d| d.to_string()).collect();
    // The hash is over the prompts of all models of a run, so those of one model and of two cannot be compared by it.
    if reasons.is_empty() && a.models.len() != b.models.len() {
        return Prompts::Same;
    }
    let hashes = format!("prompts_sha256 {} and {}", short_hash(first), short_hash(other));
    if reasons.is_empty() {
        return Prompts::Different(format!("{hashes}, though all settings agree: was one of the runs stopped early?"));
    }
    Prompts::Different(format!("{} ({hashes})", reasons.join("; ")))
}

/// Returns `true` if something by its place in the manifest decides what prompts there are.
fn makes_prompts(what: &str) -> bool {
    let sources = ["haystack_sha256", "text_sha256", "needles_sha256"];
    let places = ["config.grid", "tokenizer_sha256", "seeds.prompts", "tool.version"];
    what == "shard" || places.iter().chain(&sources).any(|place| what.starts_with(place))
}

fn short_hash(hash: &str) -> String {
    hash.chars().take(HASH_DIGITS).collect()
}

/// The leaves of a configuration by their dotted places; lists of numbers and of words are leaves.
fn flattened(config: &Value) -> BTreeMap<String, String> {
    fn walk(place: String, value: &Value, leaves: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                fields.iter().for_each(|(name, field)| walk(format!("{place}.{name}"), field, leaves));
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                items.iter().enumerate().for_each(|(i, item)| walk(format!("{place}.{i}"), item, leaves));
            }
            leaf => {
                leaves.insert(place, leaf.as_str().map_or_else(|| leaf.to_string(), String::from));
            }
        }
    }
    let mut leaves = BTreeMap::new();
    walk("config".into(), config, &mut leaves);
    leaves
}

/// Differences found so far.
#[derive(Default)]
struct MismatchList(Vec<Mismatch>);

impl MismatchList {
    fn add(&mut self, what: &str, first: &str, other: &str) {
        if first != other {
            self.0.push(Mismatch { what: what.into(), first: shortened(first), other: shortened(other) });
        }
    }

    fn optional(&mut self, what: &str, first: Option<&str>, other: Option<&str>) {
        self.add(what, first.unwrap_or("none"), other.unwrap_or("none"));
    }

    fn hash(&mut self, what: &str, first: Option<&str>, other: Option<&str>) {
        if first != other {
            self.optional(what, first.map(short_hash).as_deref(), other.map(short_hash).as_deref());
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(models: &[&str], seed: u64, hash: &str) -> Manifest {
        let model =
            |name: &&str| ModelInfo { name: (*name).into(), weights_sha256: "w".into(), ..ModelInfo::default() };
        Manifest {
            models: models.iter().map(model).collect(),
            prompts_sha256: Some(hash.into()),
            seeds: [("prompts".to_owned(), seed)].into(),
            config: json!({ "grid": { "seed": seed, "samples": 15 }, "conditions": ["none"] }),
            ..Manifest::default()
        }
    }

    fn whats(a: &Manifest, b: &Manifest) -> Vec<String> {
        differences(a, b).into_iter().map(|difference| difference.what).collect()
    }

    #[test]
    fn a_run_does_not_differ_from_itself_run_elsewhere_with_more_threads() {
        let a = manifest(&["diff"], 0, "p");
        let b = Manifest { threads: 64, wall_s: 3.0, started_utc: "later".into(), ..a.clone() };
        assert_eq!(whats(&a, &b), Vec::<String>::new());
        assert_eq!(prompts(&a, &b), Prompts::Same);
    }

    #[test]
    fn other_seeds_are_other_prompts_and_the_reason_says_so() {
        let (a, b) = (manifest(&["diff"], 0, "p"), manifest(&["diff"], 7, "q"));
        assert_eq!(whats(&a, &b), ["prompts_sha256", "seeds.prompts", "config.grid.seed"]);
        let Prompts::Different(reason) = prompts(&a, &b) else { panic!("they differ") };
        assert!(reason.contains("seeds.prompts: 0 and 7") && reason.contains("p and q"), "{reason}");
    }

    #[test]
    fn conditions_and_weights_may_differ_on_the_same_prompts() {
        let (a, mut b) = (manifest(&["diff"], 0, "p"), manifest(&["diff"], 0, "p"));
        b.config["conditions"] = json!(["none", "quantise(4, row)"]);
        b.models[0].weights_sha256 = "v".into();
        assert_eq!(whats(&a, &b), ["models.diff.weights_sha256", "config.conditions"]);
        assert_eq!(prompts(&a, &b), Prompts::Same);
        let said = differences(&a, &b).last().unwrap().to_string();
        assert!(said.starts_with(r#"config.conditions: ["none"] and ["none","quan"#), "{said}");
    }

    #[test]
    fn runs_of_one_and_of_two_models_are_known_to_share_prompts_by_their_settings() {
        let (one, two) = (manifest(&["diff"], 0, "p"), manifest(&["diff", "transformer"], 0, "pp"));
        assert_eq!(prompts(&one, &two), Prompts::Same);
        assert!(matches!(prompts(&one, &manifest(&["diff", "transformer"], 7, "qq")), Prompts::Different(_)));
    }

    #[test]
    fn shards_are_of_different_prompts() {
        let shard = |n: &str, hash| Manifest { shard: Some(n.into()), ..manifest(&["diff"], 0, hash) };
        let Prompts::Different(reason) = prompts(&shard("1/2", "p"), &shard("2/2", "q")) else { panic!("they differ") };
        assert!(reason.contains("shard: 1/2 and 2/2"), "{reason}");
    }

    #[test]
    fn what_is_asked_and_expected_of_a_run_does_not_make_it_another() {
        let (a, mut b) = (manifest(&["diff"], 0, "p"), manifest(&["diff"], 0, "p"));
        b.config["question"] = json!("Why?");
        b.config["fail_if"] = json!(["exact < 0.9"]);
        assert_eq!(whats(&a, &b), Vec::<String>::new());
    }

    #[test]
    fn a_run_that_was_stopped_is_suspected() {
        let Prompts::Different(reason) = prompts(&manifest(&["diff"], 0, "p"), &manifest(&["diff"], 0, "q")) else {
            panic!("they differ")
        };
        assert!(reason.contains("stopped early"), "{reason}");
    }

    #[test]
    fn nothing_is_known_without_hashes() {
        let without = Manifest { prompts_sha256: None, ..manifest(&["diff"], 0, "") };
        assert!(matches!(prompts(&without, &without), Prompts::Unknown(_)));
    }
}
