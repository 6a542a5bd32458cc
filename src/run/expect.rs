//! Expected results of an experiment: bounds of means, and whether they hold.

use crate::bail_usage;
use crate::results::record::metric_name;
use crate::results::{Frame, Pick};
use crate::treatments::Condition;
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// Bounds of the mean of a metric, for one model or for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Name of the metric.
    pub metric: String,
    /// Region of the prompt, for metrics by region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// One of the models; `None` for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Bits of quantised logits: short for the condition that does nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Condition; `None` for the untreated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Smallest value of the mean that is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest value of the mean that is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// Result of an expectation for one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Description: `exact of diff at least 0.9`.
    pub expected: String,
    /// The mean; `None` if nothing was measured.
    pub found: Option<f64>,
    /// Whether it is within the bounds.
    pub holds: bool,
}

impl Expectation {
    /// Checks that it names one condition, and bounds that a number can meet.
    pub(super) fn check(&self) -> Result<()> {
        let metric = &self.metric;
        if let (Some(condition), Some(bits)) = (&self.condition, self.bits) {
            bail_usage!(
                "[[expect]] of `{metric}` has both `condition` and `bits`, {condition} and {bits}: leave one of them out"
            );
        }
        let bounds = || [self.at_least, self.at_most].into_iter().flatten();
        if let Some(bound) = bounds().find(|bound| !bound.is_finite()) {
            bail_usage!("[[expect]] of `{metric}` has the bound {bound}, which is not a finite number");
        }
        match (self.at_least, self.at_most) {
            (None, None) => bail_usage!("[[expect]] of `{metric}` needs at_least or at_most"),
            (Some(least), Some(most)) if least > most => {
                bail_usage!("[[expect]] of `{metric}`: at_least {least} is larger than at_most {most}")
            }
            _ => Ok(()),
        }
    }

    /// The condition it names, or that of its bits, among those of the experiment.
    pub(super) fn condition_among<'a>(&self, conditions: &'a [Condition]) -> Result<&'a Condition> {
        let meant = |condition: &&Condition| match (&self.condition, self.bits) {
            (Some(wanted), _) => *condition == wanted,
            (None, Some(bits)) => condition.bits() == Some(bits) && condition.treatments().len() == 1,
            (None, None) => condition.is_untreated(),
        };
        if let Some(found) = conditions.iter().find(meant) {
            return Ok(found);
        }
        let wanted = self.bits.map_or_else(String::new, |bits| format!("{bits} bits"));
        let wanted = self.condition.as_ref().map_or(wanted, ToString::to_string);
        let names: Vec<String> = conditions.iter().map(ToString::to_string).collect();
        bail_usage!("[[expect]] names {wanted}, which is not among the conditions: {}", names.join(", "))
    }

    /// Its result for a model, under the condition of that name in the frame.
    pub(super) fn outcome(&self, model: &str, condition: Option<&str>, frame: &Frame) -> Outcome {
        let pick = Pick::of(model, &self.metric).condition(condition);
        let found = frame.mean(self.region.as_deref().map_or(pick, |region| pick.region(region)));
        let within = |x: f64| self.at_least.is_none_or(|least| x >= least) && self.at_most.is_none_or(|most| x <= most);
        let mut expected = format!("{} of {model}", metric_name(&self.metric, self.region.as_deref()));
        expected.extend(condition.map(|condition| format!(" under {condition}")));
        expected.extend(self.at_least.map(|least| format!(" at least {least}")));
        expected.extend(self.at_most.map(|most| format!(" at most {most}")));
        Outcome { expected, found, holds: found.is_some_and(within) }
    }
}
