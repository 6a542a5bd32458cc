//! Which records are compared: metrics, conditions on columns, layers and heads.

use super::field::{names, Field, Value};
use crate::bail_usage;
use crate::frame::Measured;
use crate::names::{is_short_for, Replicates};
use crate::record::Identity;
use anyhow::Result;
use std::str::FromStr;

/// What is compared unless something else is asked for, as far as it was measured.
const HEADLINE: [(&str, Option<&str>); 19] = [
    ("exact", None),
    ("generated_exact", None),
    ("answer_log_prob", None),
    ("share_out", Some("answer")),
    ("noise_out", None),
    ("share_signed", Some("answer")),
    ("noise_signed", None),
    ("share_abs", Some("answer")),
    ("noise_abs", None),
    ("noise_abs_no_sinks", None),
    ("entropy", None),
    ("sink_share_detected", None),
    ("nll", None),
    ("nll_ar_hit", None),
    ("nll_other", None),
    ("top_token_flips", None),
    ("total_variation", None),
    ("top_1_over_median", None),
    ("kurtosis", None),
];

/// A metric, or one region of it: `exact`, `share_abs[answer]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// Name of the quantity.
    pub metric: String,
    /// Part of the prompt; nothing for all of them.
    pub region: Option<String>,
}

impl MetricName {
    /// Whether a metric and region are meant.
    pub fn covers(&self, metric: &str, region: Option<&str>) -> bool {
        self.metric == metric && self.region.as_deref().is_none_or(|wanted| region == Some(wanted))
    }
}

impl FromStr for MetricName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (metric, region) = match text.split_once('[') {
            None => (text, None),
            Some((metric, rest)) => {
                let region = rest.strip_suffix(']').ok_or_else(|| format!("`{text}` lacks its `]`"))?;
                (metric.trim_end(), Some(region.trim().to_owned()))
            }
        };
        if metric.is_empty() {
            return Err(format!("`{text}` does not name a metric, as exact or share_abs[answer] do"));
        }
        Ok(Self { metric: metric.to_owned(), region })
    }
}

/// Which metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// The headline ones that were measured.
    Headline,
    /// Every one.
    All,
    /// These, in this order.
    Named(Vec<MetricName>),
}

impl Metrics {
    /// The metrics of a list; nothing for the headline ones, `all` for every one.
    ///
    /// # Errors
    /// Usage errors if one cannot be read.
    pub fn parse(list: &[String]) -> Result<Self> {
        match list {
            [] => Ok(Self::Headline),
            list if list.iter().any(|name| name == "all") => Ok(Self::All),
            list => list
                .iter()
                .map(|name| name.parse().or_else(|e: String| bail_usage!("`metrics` {name}: {e}")))
                .collect::<Result<_>>()
                .map(Self::Named),
        }
    }

    /// The place of a metric among those chosen; nothing if it is not. `any_region` takes all regions of the headline.
    pub(super) fn rank(&self, metric: &str, region: Option<&str>, any_region: bool) -> Option<usize> {
        let headline = HEADLINE.iter().position(|(name, part)| {
            *name == metric && (any_region || part.is_none_or(|wanted| region == Some(wanted)))
        });
        match self {
            Self::Headline => headline,
            Self::All => Some(headline.unwrap_or(HEADLINE.len())),
            Self::Named(names) => names.iter().position(|name| name.covers(metric, region)),
        }
    }
}

/// `COLUMN=VALUE`: only records with that value. Several of one column let any of their values pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    pub(super) column: Field,
    pub(super) value: Option<Value>,
    /// As it was given.
    pub(super) text: String,
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not COLUMN=VALUE"))?;
        let column: Field = column.parse()?;
        if column == Field::Metric {
            return Err("metrics are chosen by their names, not by a column".into());
        }
        Ok(Self { column, value: column.parse(value)?, text: text.to_owned() })
    }
}

/// Everything that decides whether a record is compared.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) metrics: Metrics,
    pub(super) wheres: Vec<Where>,
    pub(super) by: Option<Field>,
    pub(super) group_by: Vec<Field>,
    /// How models tell recipe and training seed, where they are replicates.
    pub(super) replicates: Option<Replicates>,
}

impl Choice {
    /// Whether a column is spoken of anywhere: layers and heads are left out unless they are.
    pub(super) fn mentions(&self, column: Field) -> bool {
        self.by == Some(column)
            || self.group_by.contains(&column)
            || self.wheres.iter().any(|condition| condition.column == column)
    }

    /// An identity's value in a column: of replicates, the model is the recipe.
    pub(super) fn value(&self, column: Field, identity: &Identity) -> Option<Value> {
        let told = || self.replicates.as_ref()?.split(&identity.model);
        match column {
            Field::Model => told().map(|(recipe, _)| Value::Text(recipe)).or_else(|| column.of_identity(identity)),
            Field::Replicate => told().map(|(_, seed)| Value::Int(seed)),
            column => column.of_identity(identity),
        }
    }

    /// Whether a value is the one that a condition asks for. Recipes may be named by their last folders.
    pub(super) fn meets(&self, condition: &Where, value: Option<&Value>) -> bool {
        let by_its_end = || match (&condition.value, value) {
            (Some(Value::Text(typed)), Some(Value::Text(recipe))) => is_short_for(typed, recipe),
            _ => false,
        };
        condition.value.as_ref() == value
            || (condition.column == Field::Model && self.replicates.is_some() && by_its_end())
    }

    fn passes(&self, column: Field, value: Option<Value>) -> bool {
        let mut conditions = self.wheres.iter().filter(|condition| condition.column == column).peekable();
        conditions.peek().is_none() || conditions.any(|condition| self.meets(condition, value.as_ref()))
    }

    /// Whether an identity meets the conditions.
    pub(super) fn identity(&self, identity: &Identity) -> bool {
        Field::ALL.into_iter().all(|column| match column {
            column if Field::OF_MEASURE.contains(&column) => true,
            // Logits that were left alone have no scope, and are what a comparison by bits or conditions compares with.
            Field::Scope if self.by == Some(Field::Bits) && identity.bits.is_none() => true,
            Field::Scope | Field::Bits if self.by == Some(Field::Condition) && identity.condition.is_none() => true,
            column => self.passes(column, self.value(column, identity)),
        })
    }

    /// Whether a measure is one of those asked for.
    pub(super) fn measure(&self, measured: &Measured) -> bool {
        let (layer, head) = (measured.layer, measured.head);
        let level = match (self.mentions(Field::Layer), self.mentions(Field::Head)) {
            (false, false) => layer.is_none() && head.is_none(),
            (true, false) => layer.is_some(),
            (_, true) => layer.is_some() && head.is_some(),
        };
        level
            && self.rank(&measured.metric, measured.region.as_deref()).is_some()
            && [Field::Layer, Field::Head, Field::Region].iter().all(|c| self.passes(*c, c.of_measured(measured)))
    }

    /// The place of a metric and region among those chosen.
    pub(super) fn rank(&self, metric: &str, region: Option<&str>) -> Option<usize> {
        self.metrics.rank(metric, region, self.by == Some(Field::Region))
    }

    /// Refuses columns that cannot be used as they are asked for.
    ///
    /// # Errors
    /// A usage error with those that can.
    pub(super) fn check_columns(&self) -> Result<()> {
        if self.replicates.is_none() && self.mentions(Field::Replicate) {
            bail_usage!("replicate: models are no replicates unless `replicates` says so");
        }
        if let Some(by) = self.by.filter(|by| !by.can_be_compared()) {
            bail_usage!("`by` {by}: cells can be compared by {}", names(Field::can_be_compared));
        }
        match self.group_by.iter().find(|column| !column.can_group()) {
            Some(Field::Placed) => bail_usage!("`group_by` placed: group by depth_req_pct instead"),
            Some(Field::DepthRealPct) => bail_usage!("`group_by` depth_real_pct: group by depth_req_pct instead"),
            Some(column) => bail_usage!("`group_by` {column}: metrics and regions have rows of their own anyway"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wheres: &[&str], group_by: &[Field]) -> Choice {
        Choice {
            metrics: Metrics::Headline,
            wheres: wheres.iter().map(|text| text.parse().unwrap()).collect(),
            by: None,
            group_by: group_by.to_vec(),
            replicates: None,
        }
    }

    fn share(layer: Option<usize>, head: Option<usize>, region: &'static str) -> Measured {
        Measured { layer, head, metric: "share_abs".into(), region: Some(region.into()) }
    }

    #[test]
    fn layers_and_heads_are_left_out_unless_somebody_speaks_of_them() {
        let (all, layer, head) = ((None, None), (Some(2), None), (Some(2), Some(1)));
        let passes = |choice: &Choice, (layer, head)| choice.measure(&share(layer, head, "answer"));
        let chosen = |choice: &Choice| [all, layer, head].map(|level| passes(choice, level));
        assert_eq!(chosen(&choice(&[], &[])), [true, false, false]);
        assert_eq!(chosen(&choice(&["layer=2"], &[])), [false, true, true]);
        assert_eq!(chosen(&choice(&["layer=3"], &[])), [false, false, false]);
        assert_eq!(chosen(&choice(&[], &[Field::Layer, Field::Head])), [false, false, true]);
    }

    #[test]
    fn conditions_on_one_column_are_alternatives_and_on_several_all_hold() {
        let id = |ctx_tok, bits| Identity { ctx_tok, bits, ..Identity::default() };
        let choice = choice(&["ctx_tok=512", "ctx_tok=1024", "bits=none"], &[]);
        assert!(choice.identity(&id(512, None)) && choice.identity(&id(1024, None)));
        assert!(!choice.identity(&id(2048, None)) && !choice.identity(&id(512, Some(8))));
    }

    #[test]
    fn a_scope_spares_the_unquantised_baseline_when_bits_are_compared() {
        let choice = Choice { by: Some(Field::Bits), ..choice(&["scope=row"], &[]) };
        let id =
            |bits, scope: Option<&'static str>| Identity { bits, scope: scope.map(Into::into), ..Identity::default() };
        assert!(choice.identity(&id(None, None)) && choice.identity(&id(Some(4), Some("row"))));
        assert!(!choice.identity(&id(Some(4), Some("tensor"))));
    }

    #[test]
    fn the_headline_of_attention_is_the_answer() {
        let choice = choice(&[], &[]);
        assert!(choice.measure(&share(None, None, "answer")) && !choice.measure(&share(None, None, "filler")));
    }

    #[test]
    fn metrics_may_name_a_region() {
        let name: MetricName = " share_abs [answer] ".parse().unwrap();
        assert!(name.covers("share_abs", Some("answer")) && !name.covers("share_abs", None));
        assert!("share_abs[answer".parse::<MetricName>().is_err() && "[answer]".parse::<MetricName>().is_err());
    }
}
