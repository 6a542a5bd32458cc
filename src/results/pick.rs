//! Picks: which numbers of a run are wanted.

use super::setting::{cities_of, millipct, setting_of, Setting};
use crate::results::metric::Metric;
use crate::results::record::Identity;

/// The numbers of one model and metric, as narrow as is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a> {
    pub(super) model: &'a str,
    pub(super) metric: &'a str,
    pub(super) region: Option<&'a str>,
    ctx_tok: Option<usize>,
    setting: Option<Setting>,
    condition: Option<&'a str>,
    cities: Option<&'a str>,
    depth_pct: Option<f64>,
    task: Option<&'a str>,
}

impl<'a> Pick<'a> {
    /// Numbers of a metric of no region, of the untreated passes, in all settings, at all depths, of all cities.
    pub fn of(model: &'a str, metric: &'a str) -> Self {
        Self {
            model,
            metric,
            region: None,
            ctx_tok: None,
            setting: None,
            condition: None,
            cities: None,
            depth_pct: None,
            task: None,
        }
    }

    /// Narrows to another metric and region.
    pub fn metric(self, metric: &'a Metric, region: Option<&'a str>) -> Self {
        Self { metric: metric.name, region, ..self }
    }

    /// Narrows to a region.
    pub fn region(self, region: &'a str) -> Self {
        Self { region: Some(region), ..self }
    }

    /// Narrows to prompts of one length, in tokens.
    pub fn ctx_tok(self, ctx_tok: usize) -> Self {
        Self { ctx_tok: Some(ctx_tok), ..self }
    }

    /// Narrows to one setting.
    pub fn setting(self, setting: Setting) -> Self {
        Self { setting: Some(setting), ..self }
    }

    /// Picks a condition; `None` for the untreated passes.
    pub fn condition(self, condition: Option<&'a str>) -> Self {
        Self { condition, ..self }
    }

    /// Narrows to one set of cities.
    pub fn cities(self, cities: &'a str) -> Self {
        Self { cities: Some(cities), ..self }
    }

    /// Narrows to questions whose needle was put at one depth: of several needles that a prompt asks for only one was.
    pub fn depth_pct(self, depth_pct: f64) -> Self {
        Self { depth_pct: Some(depth_pct), ..self }
    }

    /// Narrows to one task.
    pub fn task(self, task: &'a str) -> Self {
        Self { task: Some(task), ..self }
    }

    /// Returns whether an identity is picked.
    pub(super) fn matches(&self, id: &Identity) -> bool {
        let depth = |wanted| id.depth_req_pct.map(millipct) == Some(millipct(wanted)) && id.placed != Some(false);
        id.model == self.model
            && id.condition.as_deref() == self.condition
            && self.ctx_tok.is_none_or(|ctx_tok| setting_of(id).0 == ctx_tok)
            && self.setting.is_none_or(|setting| setting_of(id) == setting)
            && self.cities.is_none_or(|cities| cities_of(id) == cities)
            && self.depth_pct.is_none_or(depth)
            && self.task.is_none_or(|task| id.task == task)
    }
}
