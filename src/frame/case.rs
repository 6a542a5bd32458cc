//! What one row of a table is about, and what stands in its columns.

use super::{cities_of, millipct, setting_of, Frame, Pick, Setting};
use crate::record::Identity;
use crate::stats::Interval;
use crate::treatment::UNTREATED;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What was done to the attention, as its columns say; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionKey {
    /// The condition's name; nothing for the untreated passes.
    pub condition: Option<String>,
    /// Nothing for logits left alone.
    pub bits: Option<u32>,
    /// What shares one scale.
    pub scope: Option<String>,
}

impl ConditionKey {
    /// What an identity says.
    pub fn of(id: &Identity) -> Self {
        let owned = |text: &Option<Cow<'static, str>>| text.as_deref().map(ToOwned::to_owned);
        Self { condition: owned(&id.condition), bits: id.bits, scope: owned(&id.scope) }
    }

    /// Its name, `none` for the untreated passes.
    pub fn name(&self) -> &str {
        self.condition.as_deref().unwrap_or(UNTREATED)
    }
}

/// A model in one setting under one condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// Context, needles, asked.
    pub setting: Setting,
    /// Name of the model.
    pub model: String,
    /// Under which condition.
    pub treated: ConditionKey,
}

/// A quantity of the records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity<'a> {
    /// Its name.
    pub metric: &'a str,
    /// Part of the prompt.
    pub region: Option<&'a str>,
    /// Whether its numbers are hits and misses.
    pub hits: bool,
}

impl Quantity<'_> {
    /// Whether it means anything in a setting: plain text has no answer, and so no noise.
    fn applies(&self, setting: Setting) -> bool {
        setting.1 > 0 || !(self.region == Some("answer") || self.metric.starts_with("noise_"))
    }
}

impl Case {
    /// What a question was asked of.
    fn of(id: &Identity) -> Self {
        Self { setting: setting_of(id), model: id.model.clone(), treated: ConditionKey::of(id) }
    }

    fn is_of(&self, id: &Identity) -> bool {
        let ConditionKey { condition, bits, scope } = &self.treated;
        id.model == self.model
            && setting_of(id) == self.setting
            && id.condition.as_deref() == condition.as_deref()
            && id.bits == *bits
            && id.scope.as_deref() == scope.as_deref()
    }

    /// The numbers of a quantity in this case.
    pub fn pick<'a>(&'a self, quantity: Quantity<'a>) -> Pick<'a> {
        let pick =
            Pick::of(&self.model, quantity.metric).setting(self.setting).condition(self.treated.condition.as_deref());
        quantity.region.map_or(pick, |region| pick.region(region))
    }
}

impl Frame {
    /// What was measured on prompts: settings in order, models within, conditions within.
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

    /// What was measured on prompts, question by question.
    fn asked(&self) -> impl Iterator<Item = &Identity> {
        self.numbers.identities().iter().map(|id| &**id).filter(|id| id.seed.is_some())
    }

    /// Prompts of a case, narrowed to cities and a depth.
    pub fn count(&self, case: &Case, cities: Option<&str>, depth_pct: Option<f64>) -> usize {
        let depth_of = |id: &Identity| id.depth_req_pct.map(millipct);
        let counts = |id: &&Identity| {
            case.is_of(id)
                && cities.is_none_or(|wanted| wanted == cities_of(id))
                && depth_pct.is_none_or(|wanted| Some(millipct(wanted)) == depth_of(id))
        };
        let prompts = self.asked().filter(counts).map(|id| (cities_of(id), depth_of(id), id.seed));
        prompts.collect::<BTreeSet<_>>().len()
    }

    /// Prompts that any model was measured on.
    pub fn prompts(&self) -> usize {
        self.asked().map(|id| id.seed).collect::<BTreeSet<_>>().len()
    }

    /// The cities that means are over: those of training where both were asked for.
    pub fn usual_cities(&self) -> Option<&str> {
        let train = || self.cities.iter().find(|cities| *cities == "train").map(String::as_str);
        (self.cities.len() > 1).then(train).flatten()
    }

    /// A quantity in a case, with its 95 % interval: Wilson for hits, bootstrap over prompts otherwise. Of one prompt the
    /// bootstrap knows nothing: it would show an interval without width.
    pub fn estimate(
        &self,
        case: &Case,
        quantity: Quantity<'_>,
        cities: Option<&str>,
        depth_pct: Option<f64>,
    ) -> Option<(f64, Option<Interval>)> {
        if !quantity.applies(case.setting) {
            return None;
        }
        let pick = case.pick(quantity);
        let pick = cities.map_or(pick, |cities| pick.cities(cities));
        let pick = depth_pct.map_or(pick, |depth| pick.depth_pct(depth));
        if quantity.hits {
            let found = self.proportion(pick);
            return found.fraction.map(|x| (x, Some(found.interval())));
        }
        let (mean, interval) = self.mean_in(pick)?;
        Some((mean, (self.count(case, cities, depth_pct) > 1).then_some(interval)))
    }

    /// The mean over prompts that both cases have of b - a.
    pub fn difference(&self, a: &Case, b: &Case, quantity: Quantity<'_>) -> Option<crate::stats::Paired> {
        quantity.applies(a.setting).then(|| self.paired(a.pick(quantity), b.pick(quantity)))?
    }
}
