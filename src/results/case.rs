//! Cases: a model in one setting under one condition.

use super::pick::Pick;
use super::setting::{setting_of, Setting};
use crate::results::metric::Metric;
use crate::results::record::Identity;
use crate::treatments::UNTREATED;

/// A condition, as the columns of records have it; the untreated one by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionKey {
    /// The condition's name; `None` for the untreated passes.
    pub condition: Option<String>,
    /// Bits of quantised logits, or queries and keys; `None` for others.
    pub bits: Option<u32>,
    /// What shares one scale.
    pub scope: Option<String>,
}

impl ConditionKey {
    /// The condition of an identity.
    pub fn of(id: &Identity) -> Self {
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        Self { condition: owned(id.condition.as_deref()), bits: id.bits, scope: owned(id.scope.as_deref()) }
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
    /// The condition.
    pub treated: ConditionKey,
}

impl Case {
    /// The case of an identity.
    pub(super) fn of(id: &Identity) -> Self {
        Self { setting: setting_of(id), model: id.model.clone(), treated: ConditionKey::of(id) }
    }

    /// Picks the numbers of a metric in this case.
    pub fn pick<'a>(&'a self, metric: &'a Metric, region: Option<&'a str>) -> Pick<'a> {
        let pick = Pick::of(&self.model, metric.name).setting(self.setting);
        pick.condition(self.treated.condition.as_deref()).metric(metric, region)
    }
}
