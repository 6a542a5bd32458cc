//! The selection of records to compare: metrics, conditions on columns, layers and heads.

use super::cells::Selects;
use super::field::{names, Field, Value};
use super::numbers::Measured;
use crate::bail_usage;
use crate::base::names::{is_short_for, Replicates};
use crate::results::metric::{self, headline_rank};
use crate::results::record::Identity;
use anyhow::Result;
use std::str::FromStr;

/// A metric, or one region of it: `exact`, `share_abs[answer]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// Name of the quantity.
    pub metric: String,
    /// Part of the prompt; nothing for all of them.
    pub region: Option<String>,
}

impl MetricName {
    /// Returns whether it covers a metric and region.
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

/// The metrics to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// The headline metrics that were measured.
    Headline,
    /// Every one.
    All,
    /// These, in this order.
    Named(Vec<MetricName>),
}

impl Metrics {
    /// Parses a list of names; an empty one stands for the headline metrics, `all` for every metric.
    ///
    /// # Errors
    /// Usage errors if one cannot be read.
    pub fn parse(list: &[String]) -> Result<Self> {
        match list {
            [] => Ok(Self::Headline),
            list if list.iter().any(|name| name == "all") => Ok(Self::All),
            list => list
                .iter()
                .map(|name| name.parse().or_else(|e: String| bail_usage!("--metric {name}: {e}")))
                .collect::<Result<_>>()
                .map(Self::Named),
        }
    }

    /// Returns the rank of a metric among those selected; `None` if it is not. With `any_region`, all regions of headline
    /// metrics are.
    pub(crate) fn rank(&self, metric: &str, region: Option<&str>, any_region: bool) -> Option<usize> {
        let headline = headline_rank(metric, region, any_region);
        match self {
            Self::Headline => headline,
            Self::All => Some(headline.unwrap_or(metric::ALL.len())),
            Self::Named(names) => names.iter().position(|name| name.covers(metric, region)),
        }
    }
}

/// `COLUMN=VALUE`: only records with that value. Several of one column let any of their values pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    pub(crate) column: Field,
    pub(crate) value: Option<Value>,
    /// As it was given.
    pub(crate) text: String,
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

/// The selection of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) metrics: Metrics,
    pub(crate) wheres: Vec<Where>,
    pub(crate) by: Option<Field>,
    pub(crate) group_by: Vec<Field>,
    /// How names of models give recipe and training seed, where models are replicates.
    pub(crate) replicates: Option<Replicates>,
}

impl Selection {
    /// Returns whether a column is mentioned anywhere: layers and heads are left out unless they are.
    pub(crate) fn mentions(&self, column: Field) -> bool {
        self.by == Some(column)
            || self.group_by.contains(&column)
            || self.wheres.iter().any(|condition| condition.column == column)
    }

    /// Returns whether a value meets a condition. Recipes may be named by their last folders.
    pub(crate) fn meets(&self, condition: &Where, value: Option<&Value>) -> bool {
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

    /// Returns the rank of a metric and region among those selected.
    pub(crate) fn rank(&self, metric: &str, region: Option<&str>) -> Option<usize> {
        self.metrics.rank(metric, region, self.by == Some(Field::Region))
    }

    /// Checks that columns can be used as they are asked for.
    ///
    /// # Errors
    /// A usage error with those that can.
    pub(crate) fn check_columns(&self) -> Result<()> {
        if self.replicates.is_none() && self.mentions(Field::Replicate) {
            bail_usage!("replicate: models are no replicates unless --replicates says so");
        }
        if let Some(by) = self.by.filter(|by| !by.can_be_compared()) {
            bail_usage!("--by {by}: cells can be compared by {}", names(Field::can_be_compared));
        }
        match self.group_by.iter().find(|column| !column.can_group()) {
            Some(Field::Placed) => bail_usage!("--group-by placed: group by depth_req_pct instead"),
            Some(Field::DepthRealPct) => bail_usage!("--group-by depth_real_pct: group by depth_req_pct instead"),
            Some(column) => bail_usage!("--group-by {column}: metrics and regions have rows of their own anyway"),
            None => Ok(()),
        }
    }
}

impl Selects for &Selection {
    fn identity(&self, identity: &Identity) -> Result<bool> {
        let is_selected = Field::ALL.into_iter().all(|column| match column {
            column if Field::OF_MEASURE.contains(&column) => true,
            // Untreated logits have no scope, and are what a comparison by bits or conditions compares with.
            Field::Scope if self.by == Some(Field::Bits) && identity.bits.is_none() => true,
            Field::Scope | Field::Bits if self.by == Some(Field::Condition) && identity.condition.is_none() => true,
            column => self.passes(column, self.value(column, identity)),
        });
        let no_seed = self.value(Field::Replicate, identity).is_none();
        if let Some(pattern) = self.replicates.as_ref().filter(|_| is_selected && no_seed) {
            bail_usage!(
                "the name of model {} has no training seed (`{pattern}`), so it is no replicate; say where it stands with \
                 --replicates, or leave the model out with --where model=…",
                identity.model
            );
        }
        Ok(is_selected)
    }

    fn quantity(&self, _: &Identity, measured: &Measured) -> bool {
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

    /// Of replicates, the model is the recipe.
    fn value(&self, column: Field, identity: &Identity) -> Option<Value> {
        let split = || self.replicates.as_ref()?.split(&identity.model);
        match column {
            Field::Model => split().map(|(recipe, _)| Value::Text(recipe)).or_else(|| column.of_identity(identity)),
            Field::Replicate => split().map(|(_, seed)| Value::Int(seed)),
            column => column.of_identity(identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::metric::SHARE_ABS;

    fn selection(wheres: &[&str], group_by: &[Field]) -> Selection {
        Selection {
            metrics: Metrics::Headline,
            wheres: wheres.iter().map(|text| text.parse().unwrap()).collect(),
            by: None,
            group_by: group_by.to_vec(),
            replicates: None,
        }
    }

    fn share(layer: Option<usize>, head: Option<usize>, region: &'static str) -> Measured {
        Measured { layer, head, metric: SHARE_ABS.name.into(), region: Some(region.into()) }
    }

    fn selects(selection: &Selection, identity: &Identity) -> bool {
        selection.identity(identity).unwrap()
    }

    #[test]
    fn layers_and_heads_are_left_out_unless_somebody_speaks_of_them() {
        let (all, layer, head) = ((None, None), (Some(2), None), (Some(2), Some(1)));
        let passes =
            |choice: &Selection, (layer, head)| choice.quantity(&Identity::default(), &share(layer, head, "answer"));
        let chosen = |choice: &Selection| [all, layer, head].map(|level| passes(choice, level));
        assert_eq!(chosen(&selection(&[], &[])), [true, false, false]);
        assert_eq!(chosen(&selection(&["layer=2"], &[])), [false, true, true]);
        assert_eq!(chosen(&selection(&["layer=3"], &[])), [false, false, false]);
        assert_eq!(chosen(&selection(&[], &[Field::Layer, Field::Head])), [false, false, true]);
    }

    #[test]
    fn conditions_on_one_column_are_alternatives_and_on_several_all_hold() {
        let id = |ctx_tok, bits| Identity { ctx_tok, bits, ..Identity::default() };
        let choice = selection(&["ctx_tok=512", "ctx_tok=1024", "bits=none"], &[]);
        assert!(selects(&choice, &id(512, None)) && selects(&choice, &id(1024, None)));
        assert!(!selects(&choice, &id(2048, None)) && !selects(&choice, &id(512, Some(8))));
    }

    #[test]
    fn a_scope_spares_the_unquantised_baseline_when_bits_are_compared() {
        let choice = Selection { by: Some(Field::Bits), ..selection(&["scope=row"], &[]) };
        let id =
            |bits, scope: Option<&'static str>| Identity { bits, scope: scope.map(Into::into), ..Identity::default() };
        assert!(selects(&choice, &id(None, None)) && selects(&choice, &id(Some(4), Some("row"))));
        assert!(!selects(&choice, &id(Some(4), Some("tensor"))));
    }

    #[test]
    fn the_headline_of_attention_is_the_answer() {
        let choice = selection(&[], &[]);
        assert!(
            (&choice).quantity(&Identity::default(), &share(None, None, "answer"))
                && !(&choice).quantity(&Identity::default(), &share(None, None, "filler"))
        );
    }

    #[test]
    fn metrics_may_name_a_region() {
        let name: MetricName = " share_abs [answer] ".parse().unwrap();
        assert!(name.covers(SHARE_ABS.name, Some("answer")) && !name.covers(SHARE_ABS.name, None));
        assert!("share_abs[answer".parse::<MetricName>().is_err() && "[answer]".parse::<MetricName>().is_err());
    }
}
