//! The records of a run, grouped so that a table can ask for its cells.

use super::sheet::{Cell, Kind};
use crate::record::Record;
use crate::summary::{Pick, Setting, Summary};
use crate::treatment::UNTREATED;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What was done to the attention; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Condition {
    /// Nothing for the untreated passes.
    pub(super) name: Option<String>,
    /// Nothing for logits left alone.
    pub(super) bits: Option<u32>,
    /// What shares one scale.
    pub(super) scope: Option<String>,
}

/// What one row of a table is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) setting: Setting,
    pub(super) model: String,
    pub(super) condition: Condition,
}

/// A quantity of the records and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity<'a> {
    pub(super) heading: &'a str,
    pub(super) metric: &'a str,
    pub(super) region: Option<&'a str>,
    pub(super) kind: Kind,
}

/// Which prompts: the numbers of a case are narrowed to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prompts<'a> {
    pub(super) cities: Option<&'a str>,
    pub(super) depth_pct: Option<f64>,
}

/// The records of a run. What was pooled over prompts instead of measured on each is kept apart.
#[derive(Default)]
pub(super) struct Data<'a> {
    pub(super) models: Vec<String>,
    pub(super) settings: Vec<Setting>,
    /// In the order they first appeared.
    pub(super) conditions: Vec<Condition>,
    /// Regions of attention shares, in the order they first appeared.
    pub(super) regions: Vec<String>,
    /// Where cities come from, in the order they first appeared.
    pub(super) cities: Vec<String>,
    pub(super) depths_pct: Vec<f64>,
    /// Metrics of single prompts with their unit, in the order they first appeared.
    pub(super) metrics: Vec<(String, Option<String>, Option<String>)>,
    pub(super) pooled: Vec<&'a Record>,
    pub(super) failures: Vec<&'a Record>,
    pub(super) summary: Summary,
    /// Seeds of the prompts of a case, by cities and depth.
    prompts: BTreeMap<(Case, String, u64), BTreeSet<u64>>,
    /// The share that regions and heads are told by.
    pub(super) headline: &'static str,
    /// Seed of the bootstrap.
    pub(super) seed: u64,
}

impl<'a> Data<'a> {
    /// Groups records; `seed` is that of the bootstrap.
    pub(super) fn new(records: &'a [Record], seed: u64) -> Self {
        // Runs of version 0.1.0 know nothing of the output.
        let has_output = records.iter().any(|record| record.measure.metric == "share_out");
        let headline = if has_output { "share_out" } else { "share_abs" };
        let mut data =
            Self { seed, headline, summary: Summary::with_heads(&[(headline, Some("answer"))]), ..Self::default() };
        records.iter().for_each(|record| data.add(record));
        data.depths_pct.sort_by(f64::total_cmp);
        data
    }

    fn add(&mut self, record: &'a Record) {
        let (id, measure) = (&record.identity, &record.measure);
        if measure.error.is_some() {
            self.failures.push(record);
        }
        if measure.value.is_none() {
            return;
        }
        let Some(seed) = id.seed else {
            self.pooled.push(record);
            return;
        };
        let condition = condition(record);
        self.summary.add(record);
        if measure.layer.is_some() {
            return;
        }
        let region = measure.region.as_deref().map(ToOwned::to_owned);
        let setting = (id.ctx_tok, id.needles.unwrap_or(0), id.retrieve.unwrap_or(0));
        note(&mut self.models, &id.model);
        note(&mut self.settings, &setting);
        note(&mut self.conditions, &condition);
        id.depth_req_pct.iter().for_each(|depth| note(&mut self.depths_pct, depth));
        id.cities.iter().for_each(|cities| note(&mut self.cities, &cities.to_string()));
        if measure.metric == self.headline {
            region.iter().for_each(|region| note(&mut self.regions, region));
        }
        note(&mut self.metrics, &(measure.metric.to_string(), region, measure.unit.as_deref().map(ToOwned::to_owned)));
        let case = Case { setting, model: id.model.clone(), condition };
        let cities = id.cities.as_deref().unwrap_or_default().to_owned();
        self.prompts.entry((case, cities, millipct(id.depth_req_pct))).or_default().insert(seed);
    }

    /// What was measured on prompts: settings in order, models within, conditions within.
    pub(super) fn cases(&self) -> Vec<Case> {
        let known: BTreeSet<&Case> = self.prompts.keys().map(|(case, ..)| case).collect();
        let mut cases = Vec::new();
        for &setting in &self.settings {
            for model in &self.models {
                for condition in &self.conditions {
                    let case = Case { setting, model: model.clone(), condition: condition.clone() };
                    cases.extend(known.contains(&case).then_some(case));
                }
            }
        }
        cases
    }

    /// Prompts of a case.
    pub(super) fn count(&self, case: &Case, of: Prompts<'_>) -> usize {
        let counts = |cities: &str, depth: u64| {
            of.cities.is_none_or(|wanted| wanted == cities)
                && of.depth_pct.is_none_or(|wanted| millipct(Some(wanted)) == depth)
        };
        let found = self.prompts.iter().filter(|((at, cities, depth), _)| at == case && counts(cities, *depth));
        found.map(|(_, seeds)| seeds.len()).sum()
    }

    /// Prompts that any model was measured on.
    pub(super) fn prompts(&self) -> usize {
        self.prompts.values().flatten().collect::<BTreeSet<_>>().len()
    }

    /// The cities that means are over: those of training where both were asked for, as in `difftool needle`.
    pub(super) fn usual_cities(&self) -> Option<&str> {
        (self.cities.len() > 1)
            .then(|| self.cities.iter().find(|cities| *cities == "train"))
            .flatten()
            .map(String::as_str)
    }

    /// The pick of a quantity in a case.
    pub(super) fn pick<'p>(case: &'p Case, quantity: Quantity<'p>, of: Prompts<'p>) -> Pick<'p> {
        let pick =
            Pick::of(&case.model, quantity.metric).setting(case.setting).condition(case.condition.name.as_deref());
        let pick = quantity.region.map_or(pick, |region| pick.region(region));
        let pick = of.cities.map_or(pick, |cities| pick.cities(cities));
        of.depth_pct.map_or(pick, |depth| pick.depth_pct(depth))
    }

    /// Whether a quantity means anything in a setting: plain text has no answer, and so no noise.
    pub(super) fn applies(setting: Setting, quantity: Quantity<'_>) -> bool {
        setting.1 > 0 || !(quantity.region == Some("answer") || quantity.metric.starts_with("noise_"))
    }

    /// A quantity in a case, with its 95 % interval: Wilson for hits, bootstrap over prompts otherwise.
    pub(super) fn estimate(&self, case: &Case, quantity: Quantity<'_>, of: Prompts<'_>) -> Cell {
        if !Self::applies(case.setting, quantity) {
            return Cell::none();
        }
        let (summary, pick) = (&self.summary, Self::pick(case, quantity, of));
        if quantity.kind == Kind::Hits {
            let p = summary.proportion(pick);
            return p.fraction.map_or_else(Cell::none, |x| Cell::estimate(quantity.kind, x, Some(p.interval())));
        }
        let Some((mean, interval)) = summary.mean_in(pick, self.seed) else { return Cell::none() };
        // Of one prompt the bootstrap knows nothing: it would show an interval without width.
        let several = self.count(case, of) > 1;
        Cell::estimate(quantity.kind, mean, several.then_some(interval))
    }
}

/// The condition of a record.
pub(super) fn condition(record: &Record) -> Condition {
    let id = &record.identity;
    let owned = |text: &Option<Cow<'static, str>>| text.as_deref().map(ToOwned::to_owned);
    Condition { name: owned(&id.condition), bits: id.bits, scope: owned(&id.scope) }
}

impl Condition {
    /// Its name, `none` for the untreated passes.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(UNTREATED)
    }
}

/// The record's word for a set of cities, for people.
pub(super) fn cities_name(cities: &str) -> &str {
    match cities {
        "train" => "training",
        "heldout" => "held-out",
        other => other,
    }
}

/// Depth as a key, in thousandths of a percent.
fn millipct(depth_pct: Option<f64>) -> u64 {
    depth_pct.map_or(u64::MAX, |depth| (depth * 1000.0).round() as u64)
}

fn note<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}
