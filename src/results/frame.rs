//! A frame: the records of one run, and what its manifest says. Every table, figure, expectation and report of a run asks it.

use super::config::RunConfig;
use super::difference::Difference;
use super::estimate::Estimate;
use super::findings::Findings;
use super::pair::{differences, pairs, Pair, PromptNumbers};
use super::query::{Query, ResultRow};
use super::record::{Identity, Record};
use super::records::{RecordRef, Records};
use super::setting::Setting;
use names::column::{millipct, Column, Cut, Value};
use names::condition::{Conditions, UNTREATED};
use names::metric::{Kind, Number, ANSWER_REGION, SHARE_OUT};
use names::{HeadPlace, ModelInfo, Replicates, ShortNames};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use text::shots::order_of;

/// The parts of a manifest that tables need.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub config: RunConfig,
    /// The models, in the order they ran.
    pub models: Vec<ModelInfo>,
    /// Seed of what tables draw: resamples of ranks, and permutations.
    pub seed: u64,
    /// `true` if it is about the maps of one prompt, of which the numbers of every head are kept.
    pub of_maps: bool,
    /// The folder of the run; `None` of records from elsewhere.
    pub folder: Option<PathBuf>,
}

/// Regions of which numbers of every head are kept, besides those of none, of the untreated passes. Of a single prompt, all
/// are kept.
const REGIONS_OF_HEADS: [&str; 3] = [ANSWER_REGION, "bos", "first"];

/// The columns in which the two sides of a difference within a run may differ.
pub(crate) const SIDES: &[Column] = &[Column::Model, Column::Variant, Column::Condition, Column::Bits, Column::Scope];

/// The two sides of a difference within a run: the values that their records have.
#[derive(Clone, Debug)]
pub(crate) struct Sides<'a> {
    pub(crate) baseline: Vec<Cut<'a>>,
    pub(crate) other: Vec<Cut<'a>>,
}

/// The model of records.
pub(crate) const fn of_model(model: &str) -> Cut<'_> {
    (Column::Model, Some(Value::Text(model)))
}

/// A head of a model without treatment.
pub(crate) fn of_head(model: &str, at: HeadPlace) -> [Cut<'_>; 4] {
    let place = |n: usize| Some(Value::Int(n as u64));
    [of_model(model), under(None), (Column::Layer, place(at.layer)), (Column::Head, place(at.head))]
}

/// The condition of records; `None` for the untreated passes.
pub(crate) fn under(condition: Option<&str>) -> Cut<'_> {
    (Column::Condition, condition.map(Value::Text))
}

/// Collects the records of a run, which may be too many to hold, into a [`Frame`].
#[derive(Default)]
pub struct FrameBuilder {
    about: About,
    records: Records,
    models: Vec<String>,
    settings: Vec<Setting>,
    treated: Vec<Option<String>>,
    regions: Vec<String>,
    cities: Vec<String>,
    tasks: Vec<String>,
    metrics: Vec<String>,
    /// The pattern of training seeds, where models are replicates: their recipes then stand for them.
    replicates: Option<Replicates>,
    pooled: Vec<Record>,
}

/// The records of a run.
#[derive(Default)]
pub struct Frame {
    /// The parts of its manifest that tables need.
    pub about: About,
    /// The numbers that tables or figures ask for, and the failures.
    pub records: Records,
    /// Models, in the order in which they were named.
    pub models: Vec<String>,
    /// Settings, in the order in which they first appeared, as the lists below are.
    pub settings: Vec<Setting>,
    /// Names of conditions, `None` for the untreated passes.
    pub treated: Vec<Option<String>>,
    /// Regions of attention shares.
    pub regions: Vec<String>,
    /// Sets of names of needles.
    pub cities: Vec<String>,
    pub tasks: Vec<String>,
    metrics: Vec<String>,
    /// Of the models.
    pub short_names: ShortNames,
    /// Numbers that are pooled over prompts instead of measured on each.
    pub pooled: Vec<Record>,
    /// What its conditions are for.
    pub conditions: Conditions,
    replicates: Option<Replicates>,
    /// What it found besides records.
    pub found: Findings,
}

/// The flags that say which models are replicates, of the commands that have them.
#[derive(Deserialize)]
struct ReplicatesFlag {
    replicates: Option<Replicates>,
}

/// The record of a replicate as one of its recipe; `None` if its model is none.
fn of_recipe(record: &Record, replicates: &Replicates) -> Option<Record> {
    let (model, seed) = replicates.split(&record.identity.model)?;
    let identity = Identity { model, replicate: Some(seed), ..(*record.identity).clone() };
    Some(Record { identity: Arc::new(identity), measure: record.measure.clone() })
}

/// The recipe of a model where models are replicates, otherwise its name.
fn recipe_or_name(replicates: Option<&Replicates>, model: &str) -> String {
    replicates.map_or_else(|| model.to_owned(), |replicates| replicates.recipe(model))
}

fn push_new<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

impl FrameBuilder {
    /// Begins without records.
    pub fn new(about: About) -> Self {
        let replicates = about.config.own().and_then(|flags: ReplicatesFlag| flags.replicates);
        Self { about, replicates, ..Self::default() }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let of_recipe = self.replicates.as_ref().and_then(|replicates| of_recipe(record, replicates));
        let record = of_recipe.as_ref().unwrap_or(record);
        let Record { identity: id, measure } = record;
        if measure.error.is_some() {
            self.records.add(record);
            return;
        }
        if measure.value.is_none() {
            return;
        }
        if id.seed.is_none() {
            self.pooled.push(record.clone());
        }
        if record.number().is_some() && self.keeps(record) {
            self.records.add(record);
        }
        if measure.layer.is_none() {
            push_new(&mut self.models, &id.model);
            push_new(&mut self.settings, &Setting::of(id));
            if id.seed.is_some() {
                self.note_prompt(record);
            }
        }
    }

    /// Returns `true` if tables or figures ask for a record's number: one of the whole model, or of a head.
    fn keeps(&self, Record { identity, measure }: &Record) -> bool {
        let is_of_every_head = measure.region.as_deref().is_none_or(|region| REGIONS_OF_HEADS.contains(&region));
        let is_kept = self.about.of_maps || (identity.condition.is_none() && is_of_every_head);
        measure.layer.is_none() || (measure.head.is_some() && identity.seed.is_some() && is_kept)
    }

    /// Notes what a record of a single prompt is about.
    fn note_prompt(&mut self, Record { identity, measure }: &Record) {
        push_new(&mut self.treated, &identity.condition.as_ref().map(ToString::to_string));
        push_new(&mut self.tasks, &identity.task);
        identity.cities.iter().for_each(|cities| push_new(&mut self.cities, &cities.to_string()));
        if measure.metric == SHARE_OUT.name {
            measure.region.iter().for_each(|region| push_new(&mut self.regions, &region.to_string()));
        }
        push_new(&mut self.metrics, &measure.metric.to_string());
    }

    /// The frame of the records, and of what else the run found. Models are in the order in which they were named, also where the
    /// first prompt of one failed.
    pub fn finish(self, found: Findings) -> Frame {
        let Self { about, records, mut models, settings, treated, regions, cities, tasks, metrics, replicates, pooled } =
            self;
        let named: Vec<String> =
            about.models.iter().map(|model| recipe_or_name(replicates.as_ref(), &model.name)).collect();
        models.sort_by_key(|model| named.iter().position(|name| name == model).unwrap_or(usize::MAX));
        let conditions = Conditions::of_names(names_of(&treated));
        let short_names = ShortNames::of(&models);
        Frame {
            about,
            records,
            models,
            settings,
            treated,
            regions,
            cities,
            tasks,
            metrics,
            short_names,
            pooled,
            conditions,
            replicates,
            found,
        }
    }
}

/// The names of conditions, `none` for the untreated passes.
fn names_of(treated: &[Option<String>]) -> impl Iterator<Item = &str> {
    treated.iter().map(|condition| condition.as_deref().unwrap_or(UNTREATED))
}

impl Frame {
    /// The frame of these records.
    pub fn new(about: About, records: &[Record]) -> Self {
        let mut frame = FrameBuilder::new(about);
        records.iter().for_each(|record| frame.add(record));
        frame.finish(Findings::default())
    }

    /// The manifest's entries for a model: one, or those of the replicates of a recipe.
    pub(crate) fn infos_of<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a ModelInfo> {
        let infos = self.about.models.iter();
        infos.filter(move |info| recipe_or_name(self.replicates.as_ref(), &info.name) == model)
    }

    /// Short name of a model, for figures.
    pub fn short_name(&self, model: &str) -> String {
        self.short_names.name(model).to_owned()
    }

    /// Returns `true` if prompts are many-shot prompts, whose tasks are the orders of their examples.
    pub(crate) fn is_of_shots(&self) -> bool {
        self.tasks.iter().any(|task| order_of(task).is_some())
    }

    pub(crate) fn condition_words(&self, name: &str) -> String {
        self.conditions.get(name).map_or(name, |condition| &condition.words).to_owned()
    }

    /// Returns `true` if there are passes under a condition.
    pub(crate) fn has_conditions(&self) -> bool {
        self.treated.iter().any(Option::is_some)
    }

    /// Returns `true` if a metric was measured on single prompts.
    pub fn has(&self, metric: &str) -> bool {
        self.metrics.iter().any(|known| known == metric)
    }

    /// Depths that occur, in percent, from the top.
    pub fn depths_pct(&self) -> Vec<f64> {
        let depths = self.records.identities().filter_map(|id| id.depth_req_pct);
        let depths: BTreeSet<u64> = depths.map(millipct).collect();
        depths.into_iter().map(|depth| depth as f64 / 1000.0).collect()
    }

    /// Returns `true` if prompts ask for anything.
    pub fn asks(&self) -> bool {
        self.settings.iter().any(|setting| setting.needles > 0)
    }

    /// Answers a query.
    pub(crate) fn query(&self, query: &Query<'_>) -> Vec<ResultRow<'_>> {
        self.records.query(query)
    }

    /// Estimates a number where records have some values, with its interval.
    pub(crate) fn estimate(&self, number: Number<'_>, only: &[Cut<'_>]) -> Option<Estimate> {
        let estimate = Estimate::of(&self.records.of_number(number, only, &[]), number.metric.kind)?;
        Some(estimate.within(number.metric.range()))
    }

    /// The mean over prompts of a metric by its name, in a model under a condition, `None` for the untreated passes.
    pub fn mean(&self, model: &str, condition: Option<&str>, metric: &str, region: Option<&str>) -> Option<f64> {
        let records = self.records.select(
            |quantity| quantity.is_of_model() && quantity.metric == metric && quantity.region.as_deref() == region,
            |id| id.model == model && id.condition.as_deref() == condition,
        );
        PromptNumbers::of(&records).mean()
    }

    /// A number by prompt, where records have some values.
    pub(crate) fn by_prompt(&self, number: Number<'_>, only: &[Cut<'_>]) -> PromptNumbers {
        PromptNumbers::of(&self.records.of_number(number, only, &[]))
    }

    fn paired(&self, number: Number<'_>, sides: &Sides<'_>) -> Vec<Pair<'_>> {
        let both = [&sides.baseline, &sides.other].map(|only| self.records.of_number(number, only, &[]));
        pairs(both, SIDES).pairs
    }

    /// How the two sides differ in a number, by prompt: the mean over the prompt's questions.
    pub(crate) fn differences_by_prompt(&self, number: Number<'_>, sides: &Sides<'_>) -> PromptNumbers {
        PromptNumbers::of(&differences(&self.paired(number, sides)))
    }

    /// The mean difference over draws: an interval is over draws and prompts.
    pub(crate) fn difference_of_draws(&self, number: Number<'_>, draws: &[Sides<'_>]) -> Option<Difference> {
        let pairs: Vec<Vec<Pair<'_>>> = draws.iter().map(|sides| self.paired(number, sides)).collect();
        (!pairs.is_empty()).then(|| Difference::of_draws(&pairs, SIDES, number.metric.kind))?
    }

    /// A contrast: the second difference less the first, prompt by prompt.
    pub(crate) fn contrast(&self, number: Number<'_>, both: [&Sides<'_>; 2]) -> Option<Difference> {
        let both = both.map(|sides| differences(&self.paired(number, sides)));
        Difference::of_prompts(&pairs(both, SIDES).pairs, SIDES, Kind::Number)
    }

    /// A number of single heads, in the order of layers and heads.
    pub(crate) fn heads(&self, number: Number<'_>, only: &[Cut<'_>]) -> Vec<(HeadPlace, PromptNumbers)> {
        let mut heads: BTreeMap<HeadPlace, Vec<RecordRef<'_>>> = BTreeMap::new();
        for record in self.records.of_number(number, only, &[Column::Layer, Column::Head]) {
            if let Some(at) = record.quantity.at() {
                heads.entry(at).or_default().push(record);
            }
        }
        heads.into_iter().map(|(at, records)| (at, PromptNumbers::of(&records))).collect()
    }

    /// All numbers of every head in one pass over one prompt: `share_out answer`. Of several, the first.
    pub(crate) fn numbers_of_heads(
        &self,
        model: &str,
        condition: Option<&str>,
    ) -> BTreeMap<HeadPlace, BTreeMap<String, f64>> {
        let mut heads: BTreeMap<HeadPlace, BTreeMap<String, f64>> = BTreeMap::new();
        let records = self.records.select(|_| true, |id| id.model == model && id.condition.as_deref() == condition);
        for RecordRef { quantity, value, .. } in records {
            if let Some(at) = quantity.at() {
                let region = quantity.region.as_ref().map_or(String::new(), |region| format!(" {region}"));
                heads.entry(at).or_default().entry(format!("{}{region}", quantity.metric)).or_insert(value);
            }
        }
        heads
    }

    /// A number of each many-shot prompt, arrangement by arrangement. Prompts that lack one are left out.
    pub(crate) fn arrangements(&self, number: Number<'_>, only: &[Cut<'_>]) -> Vec<Vec<f64>> {
        let mut prompts: BTreeMap<Option<u64>, BTreeMap<Option<u64>, f64>> = BTreeMap::new();
        for RecordRef { identity, value, .. } in self.records.of_number(number, only, &[]) {
            prompts.entry(identity.seed).or_default().insert(identity.sample, value);
        }
        let most = prompts.values().map(BTreeMap::len).max().unwrap_or(0);
        let whole = prompts.into_values().filter(|numbers| numbers.len() == most);
        whole.map(|numbers| numbers.into_values().collect()).collect()
    }

    /// The identities of single prompts.
    fn asked(&self) -> impl Iterator<Item = &Identity> {
        self.records.identities().filter(|id| id.seed.is_some())
    }

    /// Number of prompts that any model was measured on.
    pub fn prompts(&self) -> usize {
        self.asked().map(|id| id.seed).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::Measurement;
    use names::metric::{ACCURACY, ANSWER_LOG_PROB};
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
        let measure = Measurement { metric: ACCURACY.name.into(), value: Some(exact), ..Measurement::default() };
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
        let frame = Frame::new(About::default(), &records);
        let at = |depth| {
            let depth = (Column::DepthReqPct, Some(Value::Depth(millipct(depth))));
            frame.estimate(ACCURACY.overall(), &[depth]).unwrap()
        };
        assert_eq!((at(25.0).value, at(25.0).trials, at(75.0).value, at(75.0).trials), (1.0, 1, 0.0, 1));
        assert!(frame.estimate(ANSWER_LOG_PROB.overall(), &[]).is_none(), "what was not measured has no estimate");
        let all = frame.estimate(ACCURACY.overall(), &[of_model("m")]).unwrap();
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
        let frame = Frame::new(About::default(), &records);
        let number = ANSWER_LOG_PROB.overall();
        let sides = |baseline, other| Sides { baseline: vec![under(baseline)], other: vec![under(other)] };
        let best = frame.difference_of_draws(number, &[sides(None, Some("best"))]).unwrap();
        assert_eq!((best.diff, best.n), (-3.5, 2));
        let draws = [Some("a"), Some("b")];
        let from = |baseline| draws.map(|draw| sides(baseline, draw));
        assert_eq!(frame.difference_of_draws(number, &from(None)).unwrap().diff, -1.0);
        let to_best = draws.map(|draw| sides(draw, Some("best")));
        assert_eq!(frame.difference_of_draws(number, &to_best).unwrap().diff, -2.5);
        let contrast = frame.contrast(number, [&sides(None, Some("a")), &sides(None, Some("best"))]).unwrap();
        assert_eq!(contrast.diff, -3.0);
    }
}
