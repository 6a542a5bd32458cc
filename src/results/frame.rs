//! A frame: the records of one run, grouped for lookup, and what its manifest says. Every table, figure, expectation and report
//! of a run asks it.

use super::case::{Case, ConditionKey};
use super::cells::{Cell, Cells, Collector, Mask, Selects};
use super::difference::Difference;
use super::estimate::Estimate;
use super::field::{Field, Value};
use super::numbers::Measured;
use super::pick::Pick;
use super::sample::{differences, join, prompt_means, Joined, Pair};
use super::setting::{cities_of, millipct, setting_of, Setting};
use super::tokens::Tokens;
use crate::base::names::ShortNames;
use crate::measures::{DrawnHead, MassiveAt};
use crate::results::manifest::ModelInfo;
use crate::results::metric::{is_hit, Kind, ANSWER_REGION, SHARE_OUT};
use crate::results::record::{Identity, Record};
use crate::stats::mean;
use anyhow::Result;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Layer and head.
pub type HeadPlace = (usize, usize);

/// The parts of a manifest that tables need.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The configuration, defaults filled in.
    pub config: Json,
    /// The models, in the order they ran.
    pub models: Vec<ModelInfo>,
    /// Seed of what tables draw: resamples of ranks, and permutations.
    pub seed: u64,
}

/// Regions of which numbers of every head are kept, besides those of none, of the untreated passes. Of a single prompt, all
/// are kept.
const REGIONS_OF_HEADS: [&str; 3] = [ANSWER_REGION, "bos", "first"];

/// The records of a run, grouped for lookup.
#[derive(Default)]
pub struct Frame {
    /// The parts of its manifest that tables need.
    pub about: About,
    cells: Cells,
    models: Vec<String>,
    settings: Vec<Setting>,
    treated: Vec<ConditionKey>,
    regions: Vec<String>,
    cities: Vec<String>,
    tasks: Vec<String>,
    metrics: Vec<String>,
    short_names: ShortNames,
    /// Numbers that are pooled over prompts instead of measured on each.
    pub pooled: Vec<Record>,
    /// Records that say why there is no number.
    pub failures: Vec<Record>,
    /// Tokens that were scored one by one; empty if none were.
    pub tokens: Tokens,
    /// Massive activations, as `massive.csv` lists them.
    pub massive: Vec<MassiveAt>,
    /// Heads that were drawn, or kept token by token, as `drawn.csv` lists them.
    pub drawn: Vec<DrawnHead>,
}

/// Builds a [`Frame`] from records, one by one.
pub struct FrameBuilder {
    frame: Frame,
    collector: Collector<RunRecords>,
    /// The first record that could not be added.
    error: Option<anyhow::Error>,
}

/// The records of a run that its frame keeps.
struct RunRecords {
    /// Whether the run is about the maps of one prompt, of which everything is kept.
    is_of_maps: bool,
}

impl Selects for RunRecords {
    fn identity(&self, _: &Identity) -> Result<bool> {
        Ok(true)
    }

    fn quantity(&self, identity: &Identity, measured: &Measured) -> bool {
        let region = measured.region.as_deref();
        let is_kept = identity.condition.is_none() && region.is_none_or(|region| REGIONS_OF_HEADS.contains(&region));
        let of_head = measured.head.is_some() && identity.seed.is_some() && (is_kept || self.is_of_maps);
        measured.layer.is_none() || of_head
    }

    fn value(&self, column: Field, identity: &Identity) -> Option<Value> {
        column.of_identity(identity)
    }
}

fn push_new<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

impl FrameBuilder {
    /// A builder without records.
    pub fn new(about: About) -> Self {
        let frame = Frame { about, ..Frame::default() };
        let is_of_maps = frame.is_of_maps();
        Self { collector: Collector::new(RunRecords { is_of_maps }), frame, error: None }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let (id, measure, frame) = (&record.identity, &record.measure, &mut self.frame);
        if measure.error.is_some() {
            frame.failures.push(record.clone());
        }
        if measure.value.is_none() {
            return;
        }
        if id.seed.is_none() {
            frame.pooled.push(record.clone());
        }
        let added = self.collector.add(0, record);
        self.error = self.error.take().or(added.err());
        if measure.layer.is_none() {
            push_new(&mut frame.models, &id.model);
            push_new(&mut frame.settings, &setting_of(id));
            if id.seed.is_some() {
                frame.note_prompt(record);
            }
        }
    }

    /// Returns the frame of the records.
    ///
    /// # Errors
    /// If a metric of the records has several units.
    pub fn finish(self) -> Result<Frame> {
        match self.error {
            Some(error) => Err(error),
            None => {
                let short_names = ShortNames::of(&self.frame.models);
                Ok(Frame { cells: self.collector.finish(), short_names, ..self.frame })
            }
        }
    }
}

impl Frame {
    /// The frame of these records.
    ///
    /// # Errors
    /// If a metric of the records has several units.
    pub fn of(about: About, records: &[Record]) -> Result<Self> {
        let mut builder = FrameBuilder::new(about);
        records.iter().for_each(|record| builder.add(record));
        builder.finish()
    }

    /// Notes what a record of a single prompt is about.
    fn note_prompt(&mut self, Record { identity, measure }: &Record) {
        push_new(&mut self.treated, &ConditionKey::of(identity));
        push_new(&mut self.tasks, &identity.task);
        let cities = cities_of(identity);
        if !cities.is_empty() {
            push_new(&mut self.cities, &cities.to_owned());
        }
        if measure.metric == SHARE_OUT.name {
            measure.region.iter().for_each(|region| push_new(&mut self.regions, &region.to_string()));
        }
        push_new(&mut self.metrics, &measure.metric.to_string());
    }

    /// Models in the order they first appeared.
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// The short names of the models.
    pub fn short_names(&self) -> &ShortNames {
        &self.short_names
    }

    /// Short name of a model, for figures.
    pub fn short_name(&self, model: &str) -> String {
        self.short_names.name(model).to_owned()
    }

    /// Settings (context, needles, asked) in the order they first appeared.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Conditions, in the order they first appeared.
    pub fn treated(&self) -> &[ConditionKey] {
        &self.treated
    }

    /// Regions of attention shares, in the order they first appeared.
    pub fn regions(&self) -> &[String] {
        &self.regions
    }

    /// Sets of cities, in the order they first appeared; of many-shot prompts, the orders of the examples.
    pub fn cities(&self) -> &[String] {
        &self.cities
    }

    /// Tasks, in the order they first appeared.
    pub fn tasks(&self) -> &[String] {
        &self.tasks
    }

    /// Returns whether a metric was measured on single prompts.
    pub fn has(&self, metric: &str) -> bool {
        self.metrics.iter().any(|known| known == metric)
    }

    /// Depths that occur, in percent, from the top.
    pub fn depths_pct(&self) -> Vec<f64> {
        let depths = self.identities().filter_map(|id| id.depth_req_pct);
        let depths: BTreeSet<u64> = depths.map(millipct).collect();
        depths.into_iter().map(|depth| depth as f64 / 1000.0).collect()
    }

    /// Returns whether prompts ask for anything.
    pub fn asks(&self) -> bool {
        self.settings.iter().any(|setting| setting.1 > 0)
    }

    /// Returns the configuration's value under a key.
    pub fn config(&self, key: &str) -> Option<&Json> {
        self.about.config.get(key).filter(|value| !value.is_null())
    }

    /// Returns the configuration's text under a key; empty if there is none.
    pub fn config_text(&self, key: &str) -> &str {
        self.config(key).and_then(Json::as_str).unwrap_or_default()
    }

    /// Returns whether the run is about the maps of one prompt.
    pub fn is_of_maps(&self) -> bool {
        ["heatmap", "explore"].contains(&self.config_text("show"))
    }

    /// The identities of the run's numbers.
    pub(super) fn identities(&self) -> impl Iterator<Item = &Identity> {
        self.cells.numbers().identities().iter().map(|id| &**id)
    }

    /// Returns the cells that are picked, as means over heads and layers.
    pub(crate) fn cells(&self, pick: Pick<'_>) -> Vec<Cell> {
        self.cells.of(&Measured::mean(pick.metric, pick.region), |id| pick.matches(id))
    }

    /// Estimates what is picked, with its interval.
    pub(crate) fn estimate(&self, pick: Pick<'_>) -> Option<Estimate> {
        let kind = if is_hit(pick.metric) { Kind::Hit } else { Kind::Number };
        Estimate::of(&self.cells(pick), kind)
    }

    /// Returns the mean over prompts of what is picked.
    pub fn mean(&self, pick: Pick<'_>) -> Option<f64> {
        mean(&prompt_means(&self.cells(pick)))
    }

    /// Joins two picks, cell by cell, whatever their models and conditions.
    pub(crate) fn joined(&self, baseline: Pick<'_>, other: Pick<'_>) -> Joined {
        join(self.cells(baseline), self.cells(other), &sides())
    }

    /// Returns how one pick differs from another of the same metric.
    pub(crate) fn difference(&self, baseline: Pick<'_>, other: Pick<'_>) -> Option<Difference> {
        Difference::of_prompts(&self.joined(baseline, other).pairs, is_hit(baseline.metric))
    }

    /// Returns how one pick differs from another of the same metric, by prompt: the mean over the prompt's questions.
    pub(crate) fn prompt_differences(&self, baseline: Pick<'_>, other: Pick<'_>) -> Vec<f64> {
        prompt_means(&differences(&self.joined(baseline, other).pairs))
    }

    /// Returns the mean difference over draws, each given as (baseline, other): an interval is over draws and prompts.
    pub(crate) fn difference_of_draws(&self, draws: &[(Pick<'_>, Pick<'_>)]) -> Option<Difference> {
        let metric = draws.first()?.0.metric;
        let pairs: Vec<Vec<Pair>> = draws.iter().map(|&(baseline, other)| self.joined(baseline, other).pairs).collect();
        Difference::of_draws(&pairs, is_hit(metric))
    }

    /// Returns a contrast: the second pair's difference less that of the first, prompt by prompt.
    pub(crate) fn contrast(&self, first: (Pick<'_>, Pick<'_>), second: (Pick<'_>, Pick<'_>)) -> Option<Difference> {
        let [a, b] = [first, second].map(|(baseline, other)| differences(&self.joined(baseline, other).pairs));
        Difference::of_prompts(&join(a, b, &sides()).pairs, false)
    }

    /// Returns the numbers of single heads of a model under a condition, as means of each prompt, in the order of layers and
    /// heads.
    pub(crate) fn heads(
        &self,
        model: &str,
        condition: Option<&str>,
        metric: &str,
        region: Option<&str>,
    ) -> Vec<(HeadPlace, Vec<f64>)> {
        let places = self.cells.numbers().heads(metric, region).map(|(at, _)| at);
        let of_heads = places.map(|at| (at, self.head(model, condition, metric, region, at)));
        of_heads.filter(|(_, means)| !means.is_empty()).collect()
    }

    /// Returns the numbers of one head, as means of each prompt; none if it has none.
    pub(crate) fn head(
        &self,
        model: &str,
        condition: Option<&str>,
        metric: &str,
        region: Option<&str>,
        (layer, head): HeadPlace,
    ) -> Vec<f64> {
        let of_model = |id: &Identity| id.model == model && id.condition.as_deref() == condition;
        let measured = Measured { layer: Some(layer), head: Some(head), ..Measured::mean(metric, region) };
        prompt_means(&self.cells.of(&measured, of_model))
    }

    /// Returns all numbers of every head in one pass over one prompt, by layer and head: `share_out answer`. Of several, the
    /// first.
    pub(crate) fn numbers_of_heads(
        &self,
        model: &str,
        condition: Option<&str>,
    ) -> BTreeMap<HeadPlace, BTreeMap<String, f64>> {
        let mut heads: BTreeMap<HeadPlace, BTreeMap<String, f64>> = BTreeMap::new();
        let numbers = self.cells.numbers();
        for (of, list) in numbers.groups() {
            let (Some(layer), Some(head)) = (of.layer, of.head) else { continue };
            let of_pass = |id: &Identity| id.model == model && id.condition.as_deref() == condition;
            if let Some(number) = list.iter().find(|number| of_pass(numbers.identity(number))) {
                let region = of.region.as_ref().map_or(String::new(), |region| format!(" {region}"));
                heads.entry((layer, head)).or_default().insert(format!("{}{region}", of.metric), number.value);
            }
        }
        heads
    }

    /// Returns the numbers of each many-shot prompt, arrangement by arrangement. Prompts that lack one are left out.
    pub(crate) fn arrangements(&self, pick: Pick<'_>) -> Vec<Vec<f64>> {
        let cells = self.cells(pick);
        let mut prompts: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
        for cell in cells {
            let of = |column: Field| cell.key[column as usize];
            prompts.entry(of(Field::Seed)).or_default().insert(of(Field::Sample), cell.value);
        }
        let most = prompts.values().map(BTreeMap::len).max().unwrap_or(0);
        let whole = prompts.into_values().filter(|of_prompt| of_prompt.len() == most);
        whole.map(|of_prompt| of_prompt.into_values().collect()).collect()
    }

    /// Returns what was measured on prompts: settings in order, models within, conditions within.
    pub fn cases(&self) -> Vec<Case> {
        let known: BTreeSet<Case> = self.asked().map(Case::of).collect();
        let mut cases = Vec::new();
        for &setting in &self.settings {
            for model in &self.models {
                for treated in &self.treated {
                    let case = Case { setting, model: model.clone(), treated: treated.clone() };
                    cases.extend(known.contains(&case).then_some(case));
                }
            }
        }
        cases
    }

    /// The identities of single prompts.
    fn asked(&self) -> impl Iterator<Item = &Identity> {
        self.identities().filter(|id| id.seed.is_some())
    }

    /// Number of prompts that any model was measured on.
    pub fn prompts(&self) -> usize {
        self.asked().map(|id| id.seed).collect::<BTreeSet<_>>().len()
    }
}

/// Returns the columns in which the two sides of a difference within a run may differ.
fn sides() -> Mask {
    let of_side =
        |column: Field| matches!(column, Field::Model | Field::Variant | Field::Condition | Field::Bits | Field::Scope);
    Field::ALL.map(|column| of_side(column) || column.is_finding())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::metric::{ANSWER_LOG_PROB, EXACT};
    use crate::results::record::Measurement;
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
        let measure = Measurement { metric: EXACT.name.into(), value: Some(exact), ..Measurement::default() };
        Record { identity: Arc::new(identity), measure }
    }

    #[test]
    fn at_a_depth_only_the_needle_counts_that_was_put_there() {
        // Measurement where it was put at 25 %, missed where it was put at 75 %; the other needles are anywhere.
        let found = [
            (0, 0, (25.0, true), 1.0),
            (0, 1, (25.0, false), 0.0),
            (1, 0, (75.0, false), 1.0),
            (1, 1, (75.0, true), 0.0),
        ];
        let records: Vec<Record> =
            found.iter().map(|&(seed, query, depth, exact)| record(seed, query, depth, exact)).collect();
        let frame = Frame::of(About::default(), &records).unwrap();
        let at = |depth| frame.estimate(Pick::of("m", EXACT.name).depth_pct(depth)).unwrap();
        assert_eq!((at(25.0).value, at(25.0).trials, at(75.0).value, at(75.0).trials), (1.0, 1, 0.0, 1));
        assert!(frame.estimate(Pick::of("m", ANSWER_LOG_PROB.name)).is_none(), "what was not measured has no estimate");
        let all = frame.estimate(Pick::of("m", EXACT.name)).unwrap();
        assert_eq!((all.trials, all.prompts), (4, 2), "without a depth all questions count");
        assert_eq!(frame.depths_pct(), [25.0, 75.0]);
    }

    fn treated(seed: u64, condition: Option<&'static str>, log_prob: f64) -> Record {
        let identity = Identity {
            model: "m".into(),
            ctx_tok: 8,
            seed: Some(seed),
            condition: condition.map(Into::into),
            ..Identity::default()
        };
        let measure =
            Measurement { metric: ANSWER_LOG_PROB.name.into(), value: Some(log_prob), ..Measurement::default() };
        Record { identity: Arc::new(identity), measure }
    }

    #[test]
    fn differences_of_draws_are_averaged_and_contrasts_are_differences_of_differences() {
        let records = [
            treated(0, None, -0.5),
            treated(1, None, -0.5),
            treated(0, Some("best"), -3.0),
            treated(1, Some("best"), -5.0),
            treated(0, Some("a"), -0.5),
            treated(1, Some("a"), -1.5),
            treated(0, Some("b"), -1.5),
            treated(1, Some("b"), -2.5),
        ];
        let frame = Frame::of(About::default(), &records).unwrap();
        let pick = |condition| Pick::of("m", ANSWER_LOG_PROB.name).condition(condition);
        let best = frame.difference(pick(None), pick(Some("best"))).unwrap();
        assert_eq!((best.diff, best.n), (-3.5, 2));
        let draws = [Some("a"), Some("b")].map(pick);
        assert_eq!(frame.difference_of_draws(&draws.map(|draw| (pick(None), draw))).unwrap().diff, -1.0);
        assert_eq!(frame.difference_of_draws(&draws.map(|draw| (draw, pick(Some("best"))))).unwrap().diff, -2.5);
        let contrast = frame.contrast((pick(None), pick(Some("a"))), (pick(None), pick(Some("best")))).unwrap();
        assert_eq!(contrast.diff, -3.0);
    }
}
