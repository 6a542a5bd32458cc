//! The frame: the records of a run, grouped. Every table, figure, expectation and report asks it, so that a number is worked
//! out in one way wherever it stands.
//!
//! Numbers of one prompt are not independent: every mean is over prompts, each the mean of its questions, and every interval is
//! over prompts. Only scored tokens, which are counted one by one, have estimates of their own ([`Tokens`]).

mod case;
mod pick;
mod tokens;

pub use case::{Case, ConditionKey, Quantity};
pub use pick::{Pick, Proportion};
pub use tokens::{Scored, TokenKind, Tokens};

use crate::manifest::ModelInfo;
use crate::measure::{DrawnHead, MassiveAt};
use crate::prompt::shots::order_of;
use crate::record::Record;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Context, needles in the text, needles asked for; no needles for plain text.
pub type Setting = (usize, usize, usize);

/// What is known of a run besides its records: all of it is in its manifest.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// What was asked for, defaults filled in.
    pub config: Value,
    /// The models, in the order they ran.
    pub models: Vec<ModelInfo>,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// What regions and heads are told by: the share of the output. Runs of version 0.1.0 know only that of |attention|.
const HEADLINES: [&str; 2] = ["share_out", "share_abs"];

/// Regions of which numbers of every head are kept, besides those of none, of the untreated passes. Where one prompt is looked
/// at, all are kept.
const OF_HEADS: [&str; 2] = ["answer", "bos"];

/// The records of a run, grouped for lookup.
#[derive(Default)]
pub struct Frame {
    /// What else is known.
    pub about: About,
    models: Vec<String>,
    settings: Vec<Setting>,
    treated: Vec<ConditionKey>,
    regions: Vec<String>,
    cities: Vec<String>,
    metrics: Vec<(String, Option<String>, Option<String>)>,
    /// Means over heads and layers, and what is of the whole model.
    values: BTreeMap<Key, Vec<Number>>,
    /// Numbers of single heads, and whether their cities were held out.
    heads: BTreeMap<OfHead, Vec<(Number, bool)>>,
    /// Seeds of the prompts of a case, by cities and depth.
    prompts: BTreeMap<(Case, String, Option<u64>), BTreeSet<u64>>,
    /// What was pooled over prompts instead of measured on each.
    pub pooled: Vec<Record>,
    /// Records that say why there is no number.
    pub failures: Vec<Record>,
    /// Tokens that were scored one by one; nothing if none were.
    pub tokens: Tokens,
    /// Massive activations, as they are listed in `massive.csv`.
    pub massive: Vec<MassiveAt>,
    /// Heads that were drawn, or kept token by token, as they are listed in `drawn.csv`.
    pub drawn: Vec<DrawnHead>,
}

/// A number of one key, and what tells it from the others.
#[derive(Clone, Copy, Debug)]
struct Number {
    seed: u64,
    /// Which prompt of its kind; of many-shot prompts, which arrangement of which prompt.
    sample: u64,
    /// Whether its question's needle lies at the depth that was asked for; nothing of a whole prompt.
    placed: Option<bool>,
    value: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    model: String,
    setting: Setting,
    condition: Option<String>,
    cities: String,
    /// Missing of what was pooled over depths.
    depth_millipct: Option<u64>,
    metric: String,
    region: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OfHead {
    condition: Option<String>,
    metric: String,
    region: Option<String>,
    model: String,
    layer: usize,
    head: usize,
}

/// Cities whose prompts means leave out unless they are asked for, or there are no others.
const ASIDE: [&str; 2] = ["heldout", "absent"];

/// A depth as a key.
fn millipct(depth_pct: f64) -> u64 {
    (depth_pct * 1000.0).round() as u64
}

fn note<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

impl Frame {
    /// A frame without records.
    pub fn new(about: About) -> Self {
        Self { about, ..Self::default() }
    }

    /// The frame of these records.
    pub fn of(about: About, records: &[Record]) -> Self {
        let mut frame = Self::new(about);
        records.iter().for_each(|record| frame.add(record));
        frame
    }

    /// Takes note of a record.
    pub fn add(&mut self, record: &Record) {
        let (id, measure) = (&record.identity, &record.measure);
        if measure.error.is_some() {
            self.failures.push(record.clone());
        }
        let Some(value) = measure.value else { return };
        if id.seed.is_none() {
            self.pooled.push(record.clone());
        }
        let number = Number { seed: id.seed.unwrap_or(0), sample: id.sample.unwrap_or(0), placed: id.placed, value };
        let region = measure.region.as_deref();
        if let (Some(layer), Some(head)) = (measure.layer, measure.head) {
            let kept = id.condition.is_none() && region.is_none_or(|region| OF_HEADS.contains(&region));
            if (kept || self.is_of_maps()) && id.seed.is_some() {
                let held_out = id.cities.as_deref().is_some_and(|cities| ASIDE.contains(&cities));
                let (metric, region) = (measure.metric.to_string(), region.map(ToOwned::to_owned));
                let condition = id.condition.as_deref().map(ToOwned::to_owned);
                let key = OfHead { condition, metric, region, model: id.model.clone(), layer, head };
                self.heads.entry(key).or_default().push((number, held_out));
            }
        }
        if measure.layer.is_some() {
            return;
        }
        let setting = (id.ctx_tok, id.needles.unwrap_or(0), id.retrieve.unwrap_or(0));
        note(&mut self.models, &id.model);
        note(&mut self.settings, &setting);
        let region = region.map(ToOwned::to_owned);
        // Many-shot prompts are told apart by the order of their examples; their words are the same.
        let cities = order_of(&id.task).or(id.cities.as_deref()).unwrap_or_default().to_owned();
        if let Some(seed) = id.seed {
            self.note_prompt(record, setting, &cities, seed);
        }
        let key = Key {
            model: id.model.clone(),
            setting,
            condition: id.condition.as_deref().map(ToOwned::to_owned),
            cities,
            depth_millipct: id.depth_req_pct.map(millipct),
            metric: measure.metric.to_string(),
            region,
        };
        self.values.entry(key).or_default().push(number);
    }

    /// Takes note of what a record of a single prompt is about.
    fn note_prompt(&mut self, record: &Record, setting: Setting, cities: &str, seed: u64) {
        let (id, measure) = (&record.identity, &record.measure);
        let (treated, region) = (ConditionKey::of(id), measure.region.as_deref().map(ToOwned::to_owned));
        note(&mut self.treated, &treated);
        if !cities.is_empty() {
            note(&mut self.cities, &cities.to_owned());
        }
        if HEADLINES.contains(&&*measure.metric) {
            region.iter().for_each(|region| note(&mut self.regions, region));
        }
        note(&mut self.metrics, &(measure.metric.to_string(), region, measure.unit.as_deref().map(ToOwned::to_owned)));
        let case = Case { setting, model: id.model.clone(), treated };
        let depth = id.depth_req_pct.map(millipct);
        self.prompts.entry((case, cities.to_owned(), depth)).or_default().insert(seed);
    }

    /// Models in the order they first appeared.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// Settings (context, needles, asked) in the order they first appeared.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// What was done to the attention, in the order it first appeared.
    pub fn treated(&self) -> &[ConditionKey] {
        &self.treated
    }

    /// Regions of attention shares, in the order they first appeared.
    pub fn regions(&self) -> &[String] {
        &self.regions
    }

    /// Where cities come from, in the order they first appeared; of many-shot prompts, the orders of the examples.
    pub fn cities(&self) -> &[String] {
        &self.cities
    }

    /// Metrics of single prompts with region and unit, in the order they first appeared.
    pub fn metrics(&self) -> &[(String, Option<String>, Option<String>)] {
        &self.metrics
    }

    /// Depths that occur, in percent, from the top.
    pub fn depths_pct(&self) -> Vec<f64> {
        let depths: BTreeSet<u64> = self.values.keys().filter_map(|key| key.depth_millipct).collect();
        depths.into_iter().map(|depth| depth as f64 / 1000.0).collect()
    }

    /// The share that regions and heads are told by.
    pub fn headline(&self) -> &'static str {
        let known = |headline: &&str| self.metrics.iter().any(|(metric, ..)| metric == *headline);
        HEADLINES.into_iter().find(known).unwrap_or(HEADLINES[0])
    }

    /// Whether anything was asked for.
    pub fn asks(&self) -> bool {
        self.settings.iter().any(|setting| setting.1 > 0)
    }

    /// What a command of the manifest's configuration says under a key.
    pub fn config(&self, key: &str) -> Option<&Value> {
        self.about.config.get(key).filter(|value| !value.is_null())
    }

    /// The same, of words.
    pub fn config_text(&self, key: &str) -> &str {
        self.config(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether maps of one prompt are shown.
    fn is_of_maps(&self) -> bool {
        ["heatmap", "explore"].contains(&self.config_text("show"))
    }

    /// Whether held-out and absent cities count only where they are asked for: not where there are no others.
    fn usual(&self) -> bool {
        self.prompts.keys().any(|(_, cities, _)| !ASIDE.contains(&cities.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Found, Identity};
    use std::sync::Arc;

    fn record(seed: u64, query: usize, (depth_req_pct, placed): (f64, bool), exact: f64) -> Record {
        let identity = Identity {
            model: "m".into(),
            ctx_tok: 256,
            needles: Some(2),
            retrieve: Some(2),
            depth_req_pct: Some(depth_req_pct),
            cities: Some("train".into()),
            seed: Some(seed),
            query: Some(query),
            placed: Some(placed),
            ..Identity::default()
        };
        let measure = Found { metric: "exact".into(), value: Some(exact), ..Found::default() };
        Record { identity: Arc::new(identity), measure }
    }

    #[test]
    fn at_a_depth_only_the_needle_counts_that_was_put_there() {
        let mut frame = Frame::default();
        // Found where it was put at 25 %, missed where it was put at 75 %; the other needles are anywhere.
        let found = [
            (0, 0, (25.0, true), 1.0),
            (0, 1, (25.0, false), 0.0),
            (1, 0, (75.0, false), 1.0),
            (1, 1, (75.0, true), 0.0),
        ];
        found.iter().for_each(|&(seed, query, depth, exact)| frame.add(&record(seed, query, depth, exact)));
        let at = |depth| frame.proportion(Pick::of("m", "exact").depth_pct(depth));
        assert_eq!((at(25.0).hits, at(25.0).n, at(75.0).hits, at(75.0).n), (1, 1, 0, 1));
        assert_eq!(frame.proportion(Pick::of("m", "exact")).n, 4, "without a depth all questions count");
        assert_eq!(frame.depths_pct(), [25.0, 75.0]);
    }

    #[test]
    fn what_is_pooled_over_all_prompts_has_no_depth_and_no_cities() {
        let mut frame = Frame::default();
        let of = |identity| Record { identity: Arc::new(identity), ..record(0, 0, (50.0, true), 1.0) };
        let held_out =
            Identity { cities: Some("heldout".into()), ..(*record(0, 0, (50.0, true), 1.0).identity).clone() };
        let pooled = Identity { seed: None, cities: None, depth_req_pct: None, ..held_out.clone() };
        [of(held_out), of(pooled)].iter().for_each(|record| frame.add(record));
        assert_eq!((frame.depths_pct(), frame.pooled.len()), (vec![50.0], 1));
        assert_eq!(frame.proportion(Pick::of("m", "exact").cities("heldout")).n, 1);
        assert!(frame.mean(Pick::of("m", "exact")).is_some(), "held-out cities count where there are no others");
    }
}
