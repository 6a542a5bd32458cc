//! Configurations that are changed in one field: we compute what `transformers` computes, or refuse. What it does with each of
//! them is data (see tests/fixtures/export_mutations.py).

use crate::common::fixture;
use anyhow::{ensure, Result};
use engine::attention::Stream;
use engine::model::{Checkpoint, ModelConfig, Transformer};
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Of the mean NLL in nats, where that exceeds 1: float32 against float32.
const TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Mutation {
    folder: String,
    /// A path (`rope_parameters.factor`); nothing for the folder as it is.
    field: String,
    /// JSON; nothing for a field that was dropped.
    value: String,
    /// What `transformers` does: nats, `refused`, or `random` weights in place of such as are missing.
    outcome: String,
}

impl Mutation {
    fn apply(&self, config: &Value) -> Value {
        let mut config = config.clone();
        if self.field.is_empty() {
            return config;
        }
        let (path, name) = self.field.rsplit_once('.').unwrap_or(("", &self.field));
        let place = path.split('.').filter(|part| !part.is_empty()).fold(&mut config, |place, part| &mut place[part]);
        if self.value.is_empty() {
            place.as_object_mut().unwrap().remove(name).unwrap();
        } else {
            place[name] = serde_json::from_str(&self.value).unwrap();
        }
        config
    }
}

/// A folder of tests/fixtures/transformers.
struct Folder {
    config: Value,
    checkpoint: Checkpoint,
    ids: Vec<u32>,
}

impl Folder {
    fn open(name: &str) -> Self {
        let dir = fixture(&format!("transformers/{name}"));
        let config = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let expected =
            candle_core::safetensors::load(dir.join("expected.safetensors"), &candle_core::Device::Cpu).unwrap();
        let ids = expected["input_ids"].to_dtype(candle_core::DType::U32).unwrap().to_vec2().unwrap().remove(0);
        Self { config, checkpoint: Checkpoint::open(&dir).unwrap(), ids }
    }

    /// The mean NLL of the ids, in nats.
    fn nll(&self, config: &Value) -> Result<f64> {
        let config = ModelConfig::from_json(config, None)?;
        let tied = config.tied && !self.checkpoint.has_untied_head(&config)?;
        let config = ModelConfig { tied, ..config };
        ensure!(self.ids.len() <= config.max_ctx_tok, "max_position_embeddings: {} tokens", self.ids.len());
        let model = Transformer::load(&config, self.checkpoint.load(&config)?)?;
        let hidden = model.hidden(std::slice::from_ref(&self.ids), &mut Stream::new(&[]))?;
        let logits = model.logits(&hidden)?.get(0)?.to_vec2::<f32>()?; // (T, W)
        let nll = logits.iter().zip(&self.ids[1..]).map(|(row, &id)| {
            let most = row.iter().fold(f32::NEG_INFINITY, |most, &x| most.max(x));
            let sum: f64 = row.iter().map(|&x| f64::from(x - most).exp()).sum();
            sum.ln() - f64::from(row[id as usize] - most)
        });
        Ok(nll.sum::<f64>() / (self.ids.len() - 1) as f64)
    }
}

fn agree(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= TOLERANCE * theirs.abs().max(1.0) || ours.is_nan() && theirs.is_nan()
}

/// Why what we do with a configuration is wrong; nothing if it is not. `untouched` is the NLL of the folder as it is, and
/// `fields` are those that a message may name: the one that was changed, or one that contradicts it.
fn wrong(mutation: &Mutation, ours: &Result<f64>, untouched: f64, fields: &BTreeSet<&str>) -> Option<String> {
    match (&*mutation.outcome, ours) {
        (_, Err(error)) => {
            let message = format!("{error:#}");
            let says_where = message.contains("tensor") || fields.iter().any(|field| message.contains(field));
            (!says_where).then(|| format!("names neither a field nor a tensor: {message}"))
        }
        // A whole number is a number, also where `transformers` asks for one with a point.
        ("refused", Ok(_)) if mutation.field.ends_with("softcapping") && mutation.value.parse::<i64>().is_ok() => None,
        // A value that is never used may be one that `transformers` does not take.
        ("refused", Ok(ours)) => (!agree(*ours, untouched)).then(|| format!("is {ours}")),
        ("random", Ok(ours)) => Some(format!("is {ours} without weights that are missing")),
        (theirs, Ok(ours)) => (!agree(*ours, theirs.parse().unwrap())).then(|| format!("is {ours}")),
    }
}

#[test]
fn a_configuration_that_is_changed_in_one_field_means_what_it_means_to_transformers_or_is_refused() {
    let rows = csv::Reader::from_path(fixture("mutations.csv")).unwrap().into_deserialize::<Mutation>();
    let mutations: Vec<Mutation> = rows.map(Result::unwrap).collect();
    assert!(mutations.len() > 5000, "{}", mutations.len());
    let names: BTreeSet<&str> = mutations.iter().map(|mutation| &*mutation.folder).collect();
    let folders: BTreeMap<&str, Folder> = names.into_iter().map(|name| (name, Folder::open(name))).collect();
    let untouched: BTreeMap<&str, f64> =
        folders.iter().map(|(&name, folder)| (name, folder.nll(&folder.config).unwrap())).collect();
    let names = mutations.iter().flat_map(|mutation| mutation.field.split('.'));
    let fields: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let judged: Vec<(bool, Option<String>)> = mutations
        .par_iter()
        .map(|mutation| {
            let folder = &folders[&*mutation.folder];
            let ours = folder.nll(&mutation.apply(&folder.config));
            let Mutation { folder, field, value, outcome } = mutation;
            let wrong = wrong(mutation, &ours, untouched[&**folder], &fields);
            (ours.is_ok(), wrong.map(|why| format!("{folder}: {field} = {value} ({outcome} to transformers) {why}")))
        })
        .collect();
    let (agreed, wrong): (Vec<bool>, Vec<Option<String>>) = judged.into_iter().unzip();
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    println!(
        "{} of {} configurations computed, the others refused",
        agreed.iter().filter(|x| **x).count(),
        agreed.len()
    );
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Folders whose families have an embedding for each kind of layer, and such as read none.
const BY_KIND: [&str; 3] = ["gemma3", "gemma3_text", "olmo3"];
const WITHOUT: [&str; 8] = ["bloom", "gpt2", "gpt2_inverse_layer", "gpt_neo", "gptj", "mpt", "opt", "opt_post_norm"];

#[test]
fn rotary_embeddings_by_kind_of_layer_are_read_or_refused_in_every_family() {
    let one = serde_json::json!({"rope_type": "default", "rope_theta": 500.0});
    let mut tried = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(fixture("transformers")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Ok(text) = std::fs::read(fixture(&format!("transformers/{name}/config.json"))) else { continue };
        let config: Value = serde_json::from_slice(&text).unwrap();
        for field in ["rope_parameters", "rope_scaling"] {
            for kinds in [["full_attention", "sliding_attention"], ["full_attention", "other"]] {
                let mut changed = config.clone();
                let own = if config["text_config"].is_object() { &mut changed["text_config"] } else { &mut changed };
                own.as_object_mut().unwrap().retain(|key, _| !["rope_parameters", "rope_scaling"].contains(&&**key));
                own[field] = kinds.iter().map(|kind| ((*kind).to_owned(), one.clone())).collect();
                tried += 1;
                let is_known = BY_KIND.contains(&&*name) && field == "rope_parameters" && !kinds.contains(&"other");
                let is_right = match ModelConfig::from_json(&changed, None) {
                    Ok(_) => is_known || WITHOUT.contains(&&*name),
                    Err(error) => !is_known && format!("{error:#}").contains(field),
                };
                if !is_right {
                    wrong.push(format!("{name}: {field} {kinds:?}"));
                }
            }
        }
    }
    assert!(tried > 200 && wrong.is_empty(), "{} of {tried} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
