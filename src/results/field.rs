//! The columns of a record that identify a measurement, and their values.

use super::numbers::Measured;
use crate::results::record::Identity;
use std::fmt;
use std::str::FromStr;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// A column that takes part in identifying a cell. Cells are sorted in the order of the declaration: the prompt first, then
/// its question and its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Field {
    /// Name of the model.
    Model,
    /// Training seed of the model, where models are replicates; missing otherwise.
    Replicate,
    /// Attention variant.
    Variant,
    /// Task of the prompt.
    Task,
    /// Prompt length in tokens.
    CtxTok,
    /// Needles in the text.
    Needles,
    /// Needles asked for.
    Retrieve,
    /// Depth asked for, in percent.
    DepthReqPct,
    /// Set that the cities come from.
    Cities,
    /// Global index of the sample.
    Sample,
    /// Seed of the prompt.
    Seed,
    /// Index of the question among the needles asked for.
    Query,
    /// Query rows that were measured.
    Rows,
    /// Treatments of the attention.
    Condition,
    /// Bits of the logits.
    Bits,
    /// Set of logits that shares one scale.
    Scope,
    /// Layer.
    Layer,
    /// Head.
    Head,
    /// Name of the metric.
    Metric,
    /// Part of the prompt.
    Region,
    /// Realised depth, in percent: a result, which never tells cells apart.
    DepthRealPct,
    /// Whether the question's needle was put at the depth asked for: a result as well.
    Placed,
}

use Field::{
    Bits, Cities, Condition, CtxTok, DepthRealPct, DepthReqPct, Head, Layer, Metric, Model, Needles, Placed, Query,
    Region, Replicate, Retrieve, Rows, Sample, Scope, Seed, Task, Variant,
};

/// How many columns there are.
pub(crate) const COLUMNS: usize = Field::COUNT;

impl Field {
    /// All columns, in order.
    pub const ALL: [Self; COLUMNS] = *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The columns of the measurement rather than of the prompt and the condition.
    pub(crate) const OF_MEASURE: [Self; 4] = [Layer, Head, Metric, Region];

    /// Number of the columns that identify the prompt, and the model, which is the same for all cells of a row.
    pub(crate) const PROMPT: usize = Seed as usize + 1;

    /// Its name in `results.csv`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether the cells of a pair may differ in `other` when this column is compared.
    pub(crate) fn frees(self, other: Self) -> bool {
        match other {
            // The variant is a property of the model.
            Model | Variant => matches!(self, Model | Variant),
            // Bits and scope are properties of the condition, and unquantised logits have neither.
            Condition => matches!(self, Condition | Bits | Scope),
            Bits => matches!(self, Condition | Bits),
            Scope => matches!(self, Condition | Bits | Scope),
            Seed => self.makes_prompts(),
            // Which question asks for the needle at the depth asked for is left to chance.
            Query => matches!(self, Query | DepthReqPct),
            other => self == other,
        }
    }

    /// Returns whether two values of it are two prompts, which have two seeds.
    pub(crate) fn makes_prompts(self) -> bool {
        matches!(self, Task | CtxTok | Needles | Retrieve | DepthReqPct | Cities)
    }

    /// Returns whether a missing value is a value like others: untreated attention.
    pub(crate) fn missing_counts(self) -> bool {
        matches!(self, Condition | Bits)
    }

    /// Returns whether it is a property of the realised prompt rather than of the request, and so never tells cells apart.
    pub(crate) fn is_finding(self) -> bool {
        matches!(self, DepthRealPct | Placed)
    }

    /// Returns whether its values can be compared. Samples and seeds tell prompts of one kind apart, replicates models of one
    /// recipe: these cannot.
    pub fn can_be_compared(self) -> bool {
        !matches!(self, Metric | Sample | Seed | Replicate) && !self.is_finding()
    }

    /// Returns whether there can be a row for each of its values.
    pub fn can_group(self) -> bool {
        !matches!(self, Metric | Region) && !self.is_finding()
    }

    /// Returns whether its values are words rather than numbers.
    pub fn is_text(self) -> bool {
        matches!(self, Model | Variant | Task | Cities | Rows | Condition | Scope | Metric | Region | Placed)
    }

    /// Returns the value of a record's identity; `None` for the columns of its measurement.
    pub(crate) fn of_identity(self, id: &Identity) -> Option<Value> {
        match self {
            Model => Some(Value::text(&id.model)),
            Variant => Some(Value::text(&id.variant)),
            Task => Some(Value::text(&id.task)),
            CtxTok => Some(Value::Int(id.ctx_tok as u64)),
            Needles => id.needles.map(|n| Value::Int(n as u64)),
            Retrieve => id.retrieve.map(|n| Value::Int(n as u64)),
            DepthReqPct => id.depth_req_pct.map(Value::real),
            DepthRealPct => id.depth_real_pct.map(Value::real),
            Cities => id.cities.as_deref().map(Value::text),
            Sample => id.sample.map(Value::Int),
            Seed => id.seed.map(Value::Int),
            Query => id.query.map(|n| Value::Int(n as u64)),
            Rows => id.rows.as_deref().map(Value::text),
            Condition => id.condition.as_deref().map(Value::text),
            Placed => id.placed.map(|placed| Value::text(if placed { "true" } else { "false" })),
            Bits => id.bits.map(|n| Value::Int(n.into())),
            Scope => id.scope.as_deref().map(Value::text),
            // Read off the model's name by `Selection::value`.
            Replicate | Layer | Head | Metric | Region => None,
        }
    }

    /// Returns the value of a measurement; `None` for the columns of its identity.
    pub(crate) fn of_measured(self, measured: &Measured) -> Option<Value> {
        match self {
            Layer => measured.layer.map(|n| Value::Int(n as u64)),
            Head => measured.head.map(|n| Value::Int(n as u64)),
            Metric => Some(Value::text(&measured.metric)),
            Region => measured.region.as_deref().map(Value::text),
            _ => None,
        }
    }

    /// Parses a value of this column; `None` for `none`, a missing value.
    pub(crate) fn parse(self, text: &str) -> Result<Option<Value>, String> {
        let text = text.trim();
        if text.is_empty() || text == "none" {
            return Ok(None);
        }
        let bad = || format!("`{text}` is not a number, as {} is", self.name());
        match self {
            _ if self.is_text() => Ok(Some(Value::text(text))),
            DepthReqPct | DepthRealPct => text.parse().map(|x| Some(Value::real(x))).map_err(|_| bad()),
            _ => text.parse().map(|n| Some(Value::Int(n))).map_err(|_| bad()),
        }
    }
}

/// Names of the columns that pass a test, separated by commas.
pub(crate) fn names(test: impl Fn(Field) -> bool) -> String {
    let names: Vec<&str> = Field::ALL.into_iter().filter(|&column| test(column)).map(Field::name).collect();
    names.join(", ")
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|column| column.name() == text.trim());
        found.ok_or_else(|| format!("`{text}` is not a column; there are {}", names(|_| true)))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of a column: sorts like what it means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Value {
    Int(u64),
    /// A real number by [`real_order`].
    Real(u64),
    Text(String),
}

impl Value {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn real(x: f64) -> Self {
        Self::Real(real_order(x))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Real(order) => write!(f, "{}", from_real_order(*order)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The sign bit of an `f64`.
const SIGN: u64 = 1 << 63;

/// Maps a number to bits that sort like it (as `f64::total_cmp` does). Both zeros are one.
fn real_order(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits & SIGN == 0 {
        bits | SIGN
    } else {
        !bits
    }
}

fn from_real_order(order: u64) -> f64 {
    f64::from_bits(if order & SIGN == 0 { !order } else { order ^ SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_record_that_are_not_findings() {
        let findings = ["schema", "value", "unit", "n", "error"];
        let of_names = "replicate".to_owned();
        let mut expected: Vec<String> =
            crate::results::record::columns().into_iter().filter(|name| !findings.contains(&name.as_str())).collect();
        let mut found: Vec<String> =
            Field::ALL.iter().map(ToString::to_string).filter(|name| *name != of_names).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert!(Field::ALL.iter().enumerate().all(|(i, &column)| column as usize == i));
    }

    #[test]
    fn numbers_sort_by_size_and_read_back() {
        let numbers = [f64::NEG_INFINITY, -2.5, -0.0, 1e-300, 24.813, 100.0];
        let values = numbers.map(Value::real);
        assert!(values.is_sorted());
        assert_eq!(values[4].to_string(), "24.813");
        assert_eq!(values[1].to_string(), "-2.5");
        assert_eq!(Value::real(0.0), Value::real(-0.0));
    }

    #[test]
    fn values_are_read_as_the_column_writes_them() {
        assert_eq!(DepthReqPct.parse("25"), Ok(Some(Value::real(25.0))));
        assert_eq!(Bits.parse("none"), Ok(None));
        assert_eq!(Seed.parse("18446744073709551615"), Ok(Some(Value::Int(u64::MAX))));
        assert_eq!(CtxTok.parse("long"), Err("`long` is not a number, as ctx_tok is".into()));
        assert!("depth".parse::<Field>().unwrap_err().contains("depth_req_pct"));
    }
}
