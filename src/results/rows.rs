//! Rows of differences: one for each metric, region, group and pair of sides.

use super::difference::{correct, Difference};
use super::pair::{pairs, Pair, Pairs};
use super::records::{Quantity, RecordRef};
use anyhow::{Context, Result};
use names::column::{shown, Column, Value};
use names::metric::{kind_of, metric_name, Label};
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use strum::IntoStaticStr;

/// The difference of `other` from `baseline` in one metric of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub baseline: Compared,
    pub other: Compared,
    /// Columns and their values, in the order of the groups; a missing value is `none`.
    pub group: BTreeMap<String, String>,
    pub metric: String,
    pub region: Option<String>,
    pub level: Level,
    /// Unit of the means and of the difference.
    pub unit: Option<String>,
    /// The difference, with its interval and test.
    #[serde(flatten)]
    pub difference: Difference,
}

/// What stands on a side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// An input or a model.
    Named(String),
    /// A value of a column; `none` for a missing one.
    Value(Column, String),
}

impl Default for Compared {
    fn default() -> Self {
        Self::Named(String::new())
    }
}

impl From<&str> for Compared {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

/// Formats as in files: `diff`, `ctx_tok=4096`.
impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Value(column, value) => write!(f, "{column}={value}"),
        }
    }
}

impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Row {
    /// Metric and region: `share_abs[answer]`.
    pub fn name(&self) -> String {
        metric_name(&self.metric, self.region.as_deref())
    }

    /// The metric as tables name it.
    pub fn label(&self) -> Label {
        Label::named(&self.metric, self.region.as_deref(), self.unit.as_deref())
    }
}

/// The level of numbers: the whole model, layers or heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// Means over layers and heads, or quantities that know of neither.
    #[default]
    Model,
    Layer,
    Head,
}

impl Level {
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn of(quantity: &Quantity) -> Self {
        match (quantity.layer, quantity.head) {
            (None, None) => Self::Model,
            (_, None) => Self::Layer,
            _ => Self::Head,
        }
    }
}

/// Two sides, paired.
pub(crate) struct Pairing<'a> {
    pub(crate) baseline: Compared,
    pub(crate) other: Compared,
    /// Columns in which the two records of a pair may differ.
    pub(crate) free: Vec<Column>,
    pub(crate) joined: Pairs<'a>,
}

impl<'a> Pairing<'a> {
    /// Pairs two sides by their names.
    pub(crate) fn of([baseline, other]: [Compared; 2], sides: [Vec<RecordRef<'a>>; 2], free: Vec<Column>) -> Self {
        let joined = pairs(sides, &free);
        Self { baseline, other, free, joined }
    }

    /// The value that both records of a pair have; `None` where it is missing, or what is compared.
    pub(crate) fn shared(&self, pair: &Pair<'a>, column: Column) -> Option<Value<'a>> {
        pair.record.value(column).filter(|_| !self.free.contains(&column))
    }
}

/// What pairs make a row; rows are in its order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RowKey<'a> {
    /// Rank among the metrics that are wanted.
    rank: usize,
    metric: &'a str,
    region: Option<&'a str>,
    level: Level,
    /// Values of the columns that there are rows for.
    group: Vec<Option<Value<'a>>>,
    /// Place among the pairings.
    pairing: usize,
}

/// How pairs become rows.
pub(crate) struct Rows<'r> {
    pub(crate) pairings: &'r [Pairing<'r>],
    /// The columns that there is a row for each value of.
    pub(crate) groups: &'r [Column],
    /// `true` if models are replicates.
    pub(crate) of_seeds: bool,
}

impl<'r> Rows<'r> {
    /// Makes the rows, with p-values corrected for all of them, each with the place of its pairing. They are in the order of
    /// `rank`, the place of a quantity among those that are wanted. Numbers so large that their mean overflows are an error.
    pub(crate) fn make(&self, rank: impl Fn(&Quantity) -> usize) -> Vec<Result<(usize, Row)>> {
        let mut pairs: BTreeMap<RowKey<'r>, Vec<Pair<'r>>> = BTreeMap::new();
        for (place, pairing) in self.pairings.iter().enumerate() {
            for pair in &pairing.joined.pairs {
                let quantity = pair.record.quantity;
                let key = RowKey {
                    rank: rank(quantity),
                    metric: &quantity.metric,
                    region: quantity.region.as_deref().filter(|_| !pairing.free.contains(&Column::Region)),
                    level: Level::of(quantity),
                    group: self.groups.iter().map(|&column| pairing.shared(pair, column)).collect(),
                    pairing: place,
                };
                pairs.entry(key).or_default().push(*pair);
            }
        }
        let mut rows: Vec<_> = pairs.par_iter().map(|(key, pairs)| self.row(key, pairs)).collect();
        correct(rows.iter_mut().flatten().map(|(_, row)| &mut row.difference));
        rows
    }

    fn row(&self, key: &RowKey<'_>, pairs: &[Pair<'_>]) -> Result<(usize, Row)> {
        let Pairing { baseline, other, free, .. } = &self.pairings[key.pairing];
        let kind = kind_of(key.metric);
        let difference = if self.of_seeds {
            Difference::of_seeds(pairs, free, kind)
        } else {
            Difference::of_prompts(pairs, free, kind)
        };
        let group = self.groups.iter().zip(&key.group).map(|(column, value)| (column.to_string(), shown(*value)));
        let row = Row {
            baseline: baseline.clone(),
            other: other.clone(),
            group: group.collect(),
            metric: key.metric.to_owned(),
            region: key.region.map(str::to_owned),
            level: key.level,
            unit: pairs[0].record.quantity.unit.as_deref().map(str::to_owned),
            difference: difference
                .with_context(|| format!("{}: its numbers are too large to be averaged", key.metric))?,
        };
        Ok((key.pairing, row))
    }
}
