//! Differences between two manifests, found before any number is compared.

use super::{Input, Request};
use crate::results::manifest::Manifest;
use anyhow::{bail, Result};
use base::bail_usage;
use names::column::Column;
use names::ModelInfo;
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

/// Longer values are cut.
const LONGEST: usize = 60;
/// Digits of a hash that tell it apart.
const HASH_DIGITS: usize = 12;
/// What of a manifest can matter for the results, besides its models.
const COMPARED: [&str; 10] = [
    "tool.",
    "haystack_sha256",
    "text_sha256",
    "needles_sha256",
    "prompts_sha256",
    "shard",
    "dtype",
    "device",
    "seeds.",
    "config.",
];
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
        let first_name = &first.name;
        let other_name = &other.name;
        let reason = match (&first.manifest, &other.manifest) {
            (Some(a), Some(b)) => {
                if (&a.tool.version, &a.tool.source) != (&b.tool.version, &b.tool.source) {
                    notes.push(format!(
                        "{first_name} and {other_name} were measured by two builds of difftool: what differs may be theirs"
                    ));
                }
                checked.differences.push((other_name.clone(), differences(a, b)));
                different_prompts(a, b)
            }
            _ if request.allow_different_prompts => Some("nothing is known of them".to_owned()),
            _ => {
                notes.push(format!(
                    "{first_name} and {other_name}: a manifest is missing, so prompts are taken as the same where settings \
                     and seeds are"
                ));
                None
            }
        };
        if let Some(reason) = reason.as_ref().filter(|_| !request.allow_different_prompts) {
            bail_usage!(
                "{first_name} and {other_name} are of different prompts, which cannot be paired by seed: {reason}; \
                 --allow-different-prompts pairs them by setting and sample"
            );
        }
        checked.ignores_seeds |= reason.is_some();
    }
    Ok(checked)
}

/// Everything that differs and can matter for the results. Threads cannot, and times and paths do not.
fn differences(a: &Manifest, b: &Manifest) -> Vec<Mismatch> {
    let first = facts(a);
    let other = facts(b);
    let mut differences = Vec::new();
    for what in first.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
        let sides = [first.get(what), other.get(what)];
        // Of models that only one run has, their names say enough.
        let is_of_one_model = what.starts_with("models.") && sides.contains(&None);
        if sides[0] != sides[1] && !is_of_one_model {
            let [first, other] = sides.map(|side| shortened(what, side.map_or("none", String::as_str)));
            differences.push(Mismatch { what: what.clone(), first, other });
        }
    }
    differences
}

/// What can matter for the results, by its place in the manifest.
fn facts(manifest: &Manifest) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    flatten(String::new(), &serde_json::to_value(manifest).unwrap_or_default(), &mut facts);
    facts.retain(|place, _| {
        let is_compared = COMPARED.iter().any(|compared| place.starts_with(compared));
        is_compared && !SAID.iter().any(|said| place.starts_with(said))
    });
    let models = &manifest.models;
    let machines: Vec<String> = [&manifest.machine]
        .into_iter()
        .chain(&manifest.other_machines)
        .map(|machine| machine.features.join(" "))
        .collect();
    facts.insert("machine.features".to_owned(), machines.join("; "));
    facts.insert("models".to_owned(), models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", "));
    let tokenizers: BTreeSet<String> = models.iter().map(|model| short_hash(&model.tokenizer_sha256)).collect();
    facts.insert("tokenizer_sha256".to_owned(), tokenizers.into_iter().collect::<Vec<_>>().join(", "));
    for model in models {
        let ModelInfo { name, weights_sha256, config_sha256, layout, .. } = model;
        for (what, fact) in [("weights_sha256", weights_sha256), ("config_sha256", config_sha256), ("layout", layout)] {
            facts.insert(format!("models.{name}.{what}"), fact.clone());
        }
    }
    facts
}

/// Collects the leaves of JSON by their dotted places. Missing values are left out; lists of numbers and of words are leaves.
fn flatten(place: String, value: &Value, leaves: &mut BTreeMap<String, String>) {
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, field)| flatten(below(name), field, leaves));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().enumerate().for_each(|(i, item)| flatten(below(&i.to_string()), item, leaves));
        }
        Value::Null => {}
        leaf => {
            leaves.insert(place, leaf.as_str().map_or_else(|| leaf.to_string(), String::from));
        }
    }
}

/// A fact without the rest of a hash or of a long text.
fn shortened(what: &str, text: &str) -> String {
    let longest = if what.ends_with("_sha256") && !text.contains(", ") { HASH_DIGITS } else { LONGEST };
    match text.char_indices().nth(longest) {
        Some((end, _)) if longest == LONGEST => format!("{}…", &text[..end]),
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

/// Returns `true` if the models of one run cut text into different tokens.
fn mixes_tokenizers(manifest: &Manifest) -> bool {
    manifest.models.windows(2).any(|two| two[0].tokenizer_sha256 != two[1].tokenizer_sha256)
}

/// Compares the prompts of two runs, to the token. Returns why they are different, if they are.
fn different_prompts(a: &Manifest, b: &Manifest) -> Option<String> {
    if a.prompts_sha256 == b.prompts_sha256 {
        return None;
    }
    let reasons: Vec<String> =
        differences(a, b).into_iter().filter(|d| makes_prompts(&d.what)).map(|d| d.to_string()).collect();
    // The hash is over the prompts of all models of a run, so those of one model and of two cannot be compared by it.
    if reasons.is_empty() && a.models.len() != b.models.len() {
        return None;
    }
    let hashes = format!("prompts_sha256 {} and {}", short_hash(&a.prompts_sha256), short_hash(&b.prompts_sha256));
    Some(if reasons.is_empty() {
        format!("{hashes}, though all settings agree: was one of the runs stopped early?")
    } else {
        format!("{} ({hashes})", reasons.join("; "))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(models: &[&str], seed: u64, hash: &str) -> Manifest {
        let model =
            |name: &&str| ModelInfo { name: (*name).into(), weights_sha256: "w".into(), ..ModelInfo::default() };
        Manifest {
            models: models.iter().map(model).collect(),
            prompts_sha256: hash.into(),
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
        assert_eq!(different_prompts(&a, &b), None);
    }

    #[test]
    fn other_seeds_are_other_prompts_and_the_reason_says_so() {
        let a = manifest(&["diff"], 0, "p");
        let b = manifest(&["diff"], 7, "q");
        assert_eq!(whats(&a, &b), ["config.grid.seed", "prompts_sha256", "seeds.prompts"]);
        let reason = different_prompts(&a, &b).unwrap();
        assert!(reason.contains("seeds.prompts: 0 and 7") && reason.contains("p and q"), "{reason}");
    }

    #[test]
    fn conditions_and_weights_may_differ_on_the_same_prompts() {
        let a = manifest(&["diff"], 0, "p");
        let mut b = manifest(&["diff"], 0, "p");
        b.config["conditions"] = json!(["none", "quantise(4, row)"]);
        b.models[0].weights_sha256 = "v".into();
        assert_eq!(whats(&a, &b), ["config.conditions", "models.diff.weights_sha256"]);
        assert_eq!(different_prompts(&a, &b), None);
        let said = differences(&a, &b)[0].to_string();
        assert!(said.starts_with(r#"config.conditions: ["none"] and ["none","quan"#), "{said}");
    }

    #[test]
    fn runs_of_one_and_of_two_models_are_known_to_share_prompts_by_their_settings() {
        let one = manifest(&["diff"], 0, "p");
        let two = manifest(&["diff", "transformer"], 0, "pp");
        assert_eq!(different_prompts(&one, &two), None);
        assert!(different_prompts(&one, &manifest(&["diff", "transformer"], 7, "qq")).is_some());
    }

    #[test]
    fn shards_are_of_different_prompts() {
        let shard = |n: &str, hash| Manifest { shard: Some(n.into()), ..manifest(&["diff"], 0, hash) };
        let reason = different_prompts(&shard("1/2", "p"), &shard("2/2", "q")).unwrap();
        assert!(reason.contains("shard: 1/2 and 2/2"), "{reason}");
    }

    #[test]
    fn what_is_asked_and_expected_of_a_run_does_not_make_it_another() {
        let a = manifest(&["diff"], 0, "p");
        let mut b = manifest(&["diff"], 0, "p");
        b.config["question"] = json!("Why?");
        b.config["fail_if"] = json!(["accuracy < 0.9"]);
        assert_eq!(whats(&a, &b), Vec::<String>::new());
    }

    #[test]
    fn a_run_that_was_stopped_is_suspected() {
        let reason = different_prompts(&manifest(&["diff"], 0, "p"), &manifest(&["diff"], 0, "q")).unwrap();
        assert!(reason.contains("stopped early"), "{reason}");
    }
}
