//! Which numbers of a run are wanted: of which model, setting and condition.

use super::column::millipct;
use super::metric::Metric;
use super::record::{Identity, UNTREATED};
use crate::prompts::shots::order_of;

/// Sizes of prompts that are measured alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Context, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text; 0 for plain text.
    pub needles: usize,
    /// Needles asked for.
    pub asked: usize,
}

impl Setting {
    pub(super) fn of(id: &Identity) -> Self {
        Self { ctx_tok: id.ctx_tok, needles: id.needles.unwrap_or(0), asked: id.retrieve.unwrap_or(0) }
    }

    /// Returns its name, without the context: `N=4 R=2`.
    pub(crate) fn name(&self) -> String {
        format!("N={} R={}", self.needles, self.asked)
    }
}

/// Returns the set that a prompt's cities come from. Many-shot prompts, whose words are the same, have the order of their
/// examples instead.
pub(super) fn cities_of(id: &Identity) -> &str {
    order_of(&id.task).or(id.cities.as_deref()).unwrap_or_default()
}

/// A condition, as the columns of records have it; the untreated one by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionKey {
    /// The condition's name; `None` for the untreated passes.
    pub condition: Option<String>,
    /// Bits of quantised logits, or queries and keys; `None` for others.
    pub bits: Option<u32>,
    /// The numbers that share one scale.
    pub scope: Option<String>,
}

impl ConditionKey {
    pub(crate) fn of(id: &Identity) -> Self {
        let condition = id.condition.as_deref();
        let scope = id.scope.as_deref();
        Self { condition: condition.map(str::to_owned), bits: id.bits, scope: scope.map(str::to_owned) }
    }

    /// Its name, `none` for the untreated passes.
    pub fn name(&self) -> &str {
        self.condition.as_deref().unwrap_or(UNTREATED)
    }
}

/// A model in one setting under one condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub setting: Setting,
    pub model: String,
    pub treated: ConditionKey,
}

impl Case {
    pub(super) fn of(id: &Identity) -> Self {
        Self { setting: Setting::of(id), model: id.model.clone(), treated: ConditionKey::of(id) }
    }

    /// Picks the numbers of a metric in this case.
    pub fn pick<'a>(&'a self, metric: &'a Metric, region: Option<&'a str>) -> Pick<'a> {
        let condition = self.treated.condition.as_deref();
        Pick { region, condition, setting: Some(self.setting), ..Pick::of(&self.model, metric) }
    }
}

/// The numbers of one model and metric, as narrow as is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pick<'a> {
    pub model: &'a str,
    pub metric: &'a str,
    pub region: Option<&'a str>,
    /// `None` for the untreated passes.
    pub condition: Option<&'a str>,
    /// Tokens of the prompts.
    pub ctx_tok: Option<usize>,
    pub setting: Option<Setting>,
    pub cities: Option<&'a str>,
    /// Only questions whose needle was put at this depth: of several needles that a prompt asks for only one was.
    pub depth_pct: Option<f64>,
    pub task: Option<&'a str>,
}

impl<'a> Pick<'a> {
    /// Numbers of a metric of no region, of the untreated passes, in all settings, at all depths, of all cities.
    pub fn of(model: &'a str, metric: &'a Metric) -> Self {
        Self { model, metric: metric.name, ..Self::default() }
    }

    /// Returns `true` if numbers measured on a prompt and a model are picked.
    pub(super) fn matches(&self, id: &Identity) -> bool {
        id.model == self.model
            && id.condition.as_deref() == self.condition
            && self.ctx_tok.is_none_or(|ctx_tok| id.ctx_tok == ctx_tok)
            && self.setting.is_none_or(|setting| Setting::of(id) == setting)
            && self.cities.is_none_or(|cities| cities_of(id) == cities)
            && self.depth_pct.is_none_or(|depth_pct| {
                id.depth_req_pct.map(millipct) == Some(millipct(depth_pct)) && id.placed != Some(false)
            })
            && self.task.is_none_or(|task| id.task == task)
    }
}
