//! What has to come out of an experiment: bounds of means, and whether they hold.

use crate::bail_usage;
use crate::record::metric_name;
use crate::results::{Frame, Pick};
use crate::treatment::Condition;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Something that has to come out: the mean of a metric within bounds, for every model that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Name of the quantity.
    pub metric: String,
    /// Region of the prompt that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// One model; nothing for each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Bits of logits that are quantised; short for a condition that does nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// What is done to the attention; nothing for the untreated passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Least value of the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Largest value of the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// What became of an expectation for one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// `exact of diff at least 0.9`.
    pub expected: String,
    /// The mean, if there is one.
    pub found: Option<f64>,
    /// Whether it is within the bounds.
    pub holds: bool,
}

impl Expectation {
    /// Whether it says one thing, which anything can meet.
    pub(super) fn check(&self) -> Result<()> {
        let metric = &self.metric;
        if let (Some(condition), Some(bits)) = (&self.condition, self.bits) {
            bail_usage!(
                "the expectation of `{metric}` has both `condition` and `bits`, {condition} and {bits}: leave one of them out"
            );
        }
        let (least, most) = match (self.at_least, self.at_most) {
            (None, None) => bail_usage!("the expectation of `{metric}` needs at_least or at_most"),
            (least, most) => (least.unwrap_or(f64::NEG_INFINITY), most.unwrap_or(f64::INFINITY)),
        };
        if least.is_nan() || most.is_nan() || least > most {
            bail_usage!("nothing can be at least {least} and at most {most}, as `{metric}` is expected to be");
        }
        Ok(())
    }

    /// The condition that it is about: the one it names, or that of its bits.
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
        bail_usage!("an expectation is about {wanted}, which is not among the conditions: {}", names.join(", "))
    }

    /// What became of it for a model, under the condition that the frame's column names.
    pub(super) fn outcome(&self, model: &str, condition: Option<&str>, frame: &Frame) -> Outcome {
        let pick = Pick::of(model, &self.metric).condition(condition);
        let found = frame.mean(self.region.as_deref().map_or(pick, |region| pick.region(region)));
        let within = |x: f64| self.at_least.is_none_or(|least| x >= least) && self.at_most.is_none_or(|most| x <= most);
        let mut expected = metric_name(&self.metric, self.region.as_deref());
        let mut add = |text: std::fmt::Arguments<'_>| expected.write_fmt(text).expect("a string takes everything");
        add(format_args!(" of {model}"));
        if let Some(condition) = condition {
            add(format_args!(" under {condition}"));
        }
        if let Some(least) = self.at_least {
            add(format_args!(" at least {least}"));
        }
        if let Some(most) = self.at_most {
            add(format_args!(" at most {most}"));
        }
        Outcome { expected, found, holds: found.is_some_and(within) }
    }
}
