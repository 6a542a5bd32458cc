//! The frame: the records of a run, grouped. Every table, figure, expectation and report asks it, so that a number is worked
//! out in one way wherever it stands.
//!
//! Numbers of one prompt are not independent: every mean is over prompts, each the mean of its questions, and every interval is
//! over prompts. Only scored tokens, which are counted one by one, have estimates of their own ([`Tokens`]).

mod case;
mod numbers;
mod pick;
mod tokens;

pub use case::{Case, ConditionKey, Quantity};
pub use numbers::{Measured, Number, Numbers};
pub use pick::{Pick, Proportion};
pub use tokens::{Scored, TokenKind, Tokens};

use crate::manifest::ModelInfo;
use crate::measure::{DrawnHead, MassiveAt};
use crate::prompt::shots::order_of;
use crate::record::{Identity, Record};
use serde_json::Value;
use std::collections::BTreeSet;

/// Context, needles in the text, needles asked for; no needles for plain text.
pub type Setting = (usize, usize, usize);

/// `N=4 R=2`.
pub(crate) fn setting_name(needles: usize, retrieve: usize) -> String {
    format!("N={needles} R={retrieve}")
}

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
    /// Means over heads and layers, what is of the whole model, and of single heads what is kept.
    numbers: Numbers,
    /// Whether held-out and absent cities count only where they are asked for: not where there are no others.
    usual: bool,
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

/// Cities whose prompts means leave out unless they are asked for, or there are no others.
const ASIDE: [&str; 2] = ["heldout", "absent"];

/// A depth as a key.
fn millipct(depth_pct: f64) -> u64 {
    (depth_pct * 1000.0).round() as u64
}

/// Context, needles and questions of a prompt.
fn setting_of(id: &Identity) -> Setting {
    (id.ctx_tok, id.needles.unwrap_or(0), id.retrieve.unwrap_or(0))
}

/// Where its cities come from. Many-shot prompts are told apart by the order of their examples; their words are the same.
fn cities_of(id: &Identity) -> &str {
    order_of(&id.task).or(id.cities.as_deref()).unwrap_or_default()
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
        if measure.layer.is_none() || self.keeps(record) {
            self.numbers.add(Measured::of(measure), id, 0, value);
        }
        if measure.layer.is_some() {
            return;
        }
        note(&mut self.models, &id.model);
        note(&mut self.settings, &setting_of(id));
        if id.seed.is_some() {
            self.note_prompt(record);
        }
    }

    /// Whether a number of a layer is of a head that is asked for.
    fn keeps(&self, Record { identity, measure }: &Record) -> bool {
        let usual = identity.condition.is_none() && measure.region.as_deref().is_none_or(|of| OF_HEADS.contains(&of));
        measure.head.is_some() && identity.seed.is_some() && (usual || self.is_of_maps())
    }

    /// Takes note of what a record of a single prompt is about.
    fn note_prompt(&mut self, Record { identity, measure }: &Record) {
        let region = measure.region.as_deref().map(ToOwned::to_owned);
        note(&mut self.treated, &ConditionKey::of(identity));
        let cities = cities_of(identity);
        self.usual |= !ASIDE.contains(&cities);
        if !cities.is_empty() {
            note(&mut self.cities, &cities.to_owned());
        }
        if HEADLINES.contains(&&*measure.metric) {
            region.iter().for_each(|region| note(&mut self.regions, region));
        }
        note(&mut self.metrics, &(measure.metric.to_string(), region, measure.unit.as_deref().map(ToOwned::to_owned)));
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
        let depths = self.numbers.identities().iter().filter_map(|id| id.depth_req_pct);
        let depths: BTreeSet<_> = depths.map(millipct).collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Measurement};
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
        let measure = Measurement { metric: "exact".into(), value: Some(exact), ..Measurement::default() };
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
