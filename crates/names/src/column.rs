//! The columns of a record that identify what was measured, and their values.

use crate::hint;
use std::fmt;
use std::str::FromStr;
use strum::{IntoStaticStr, VariantArray};

/// A column that says what a record is of. Records are sorted in the order of the declaration: by prompt first, then by question
/// and condition, then by quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Column {
    Model,
    /// Training seed of the model, where models are replicates; missing otherwise.
    Replicate,
    Variant,
    Task,
    CtxTok,
    Needles,
    Retrieve,
    DepthReqPct,
    Cities,
    Sample,
    Seed,
    Query,
    Rows,
    Condition,
    Bits,
    Scope,
    Layer,
    Head,
    Metric,
    Region,
    /// A result: it never tells measurements apart.
    DepthRealPct,
    /// A result as well.
    Placed,
    /// No column of any file: the place of the file that a record was read from, among those that are compared.
    Input,
    /// No column of results: the tokens that a model had been trained on, of records of training.
    Tokens,
}

use Column::{
    Bits, Cities, Condition, CtxTok, DepthRealPct, DepthReqPct, Head, Input, Layer, Metric, Model, Needles, Placed,
    Query, Region, Replicate, Retrieve, Rows, Sample, Scope, Seed, Task, Variant,
};

/// The number of columns that tell prompts and models apart: those up to the seed.
pub const PROMPT_COLUMNS: usize = Seed as usize + 1;

impl Column {
    /// All columns of results, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS.split_at(Input as usize).0;

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Its heading in tables, short where there is a short one.
    pub fn heading(self) -> &'static str {
        match self {
            Self::CtxTok => "tokens",
            Self::Needles => "N",
            Self::Retrieve => "R",
            Self::DepthReqPct => "depth %",
            _ => self.name(),
        }
    }

    /// What its values say, in a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Model => "The model, as it was named.",
            Self::Replicate => "The training seed of the model, where models are replicates of one recipe.",
            Self::Variant => "The kind of the model's attention, a preset where there is one.",
            Self::Task => {
                "The kind of prompt: `needle`, with what differs from the default (`needle(distractors=5%)`), a task of RULER, \
                 `context`, or the order of many-shot examples."
            }
            Self::CtxTok => "Length of the prompt in tokens (tokens, in tables).",
            Self::Needles => "Needles in the text, by their names or chains (N, in tables); of many-shot prompts, the examples.",
            Self::Retrieve => "Needles that are asked for (R, in tables).",
            Self::DepthReqPct => {
                "Depth in the text that was asked for, in percent: 0 is its beginning. By depth, only the needle counts that was \
                 put there."
            }
            Self::Cities => {
                "Where the names of the needles come from: `train`, `held-out`, or `absent` if the text does not hold the one that \
                 is asked for."
            }
            Self::Sample => "Number of the prompt among those of its setting and depth.",
            Self::Seed => "Seed that the prompt was made from. What is made of one seed is no more evidence than one prompt.",
            Self::Query => "Number of the question in its prompt, from 0.",
            Self::Rows => {
                "The rows that were measured: `answer`, those that predict the answer; `last32`, the last 32 of a plain text; \
                 `filler` and `scored`, tokens of prose; `repeats`, random tokens that come twice; `generated`, the model's \
                 continuation; `all`, everything in all prompts."
            }
            Self::Condition => "The treatments of the pass; empty for the untreated pass.",
            Self::Bits => "Bits of the numbers that a condition rounds.",
            Self::Scope => "The numbers that share one scale when they are rounded: of a tensor, a head, a row, a token or a block.",
            Self::Layer => "The layer, from 0; empty for all of them.",
            Self::Head => "The head of the layer, from 0; empty for all of them.",
            Self::Metric => "The quantity that was measured.",
            Self::Region => "The part of the prompt, or the site of the model, that the number is of; empty for all of it.",
            Self::DepthRealPct => "Depth at which the needle really is, in percent of the tokens of prose.",
            Self::Placed => "Whether the needle of this question is the one at the depth that was asked for.",
            Self::Input => "The file that a record was read from.",
            Self::Tokens => "Tokens that a model had been trained on.",
        }
    }

    /// Returns `true` if the records of a pair may differ in `other` when this column is compared.
    pub fn frees(self, other: Self) -> bool {
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

    /// Returns `true` if two values of it are two prompts, which have two seeds.
    pub fn makes_prompts(self) -> bool {
        matches!(self, Task | CtxTok | Needles | Retrieve | DepthReqPct | Cities)
    }

    /// Returns `true` if a missing value is a value like others: untreated attention.
    pub fn missing_counts(self) -> bool {
        matches!(self, Condition | Bits)
    }

    /// Returns `true` if it is a property of the realised prompt rather than of the request, and so never tells measurements apart.
    pub fn is_finding(self) -> bool {
        matches!(self, DepthRealPct | Placed)
    }

    /// Returns `true` if its values can be compared. Samples and seeds tell prompts of one kind apart, replicates models of one
    /// recipe: these cannot.
    pub fn can_be_compared(self) -> bool {
        !matches!(self, Metric | Sample | Seed | Replicate) && !self.is_finding()
    }

    /// Returns `true` if there can be a row for each of its values.
    pub fn can_group(self) -> bool {
        !matches!(self, Metric | Region) && !self.is_finding()
    }

    /// Returns `true` if its values are words rather than numbers.
    pub fn is_text(self) -> bool {
        matches!(self, Model | Variant | Task | Cities | Rows | Condition | Scope | Metric | Region | Placed)
    }

    /// Returns `true` if it belongs to the measurement rather than to the identity, which many records share.
    pub fn is_of_measurement(self) -> bool {
        matches!(self, Layer | Head | Metric | Region)
    }

    /// The columns in which the records of a pair may differ when this one is compared.
    pub fn freed(self) -> Vec<Self> {
        Self::ALL.iter().copied().filter(|&column| self.frees(column)).collect()
    }

    /// Parses a value of this column; `None` for `none`, a missing value.
    pub fn parse(self, text: &str) -> Result<Option<Value<'_>>, String> {
        let text = text.trim();
        if text.is_empty() || text == "none" {
            return Ok(None);
        }
        let value = match self {
            _ if self.is_text() => Some(Value::Text(text)),
            DepthReqPct | DepthRealPct => depth(text.parse().ok().filter(|&depth_pct| depth_pct >= 0.0)),
            _ => text.parse().ok().map(Value::Int),
        };
        value.map(Some).ok_or_else(|| format!("`{text}` is not a number, as {} is", self.name()))
    }
}

/// Names of the columns that pass a test, separated by commas.
pub fn names(test: impl Fn(Column) -> bool) -> String {
    let names: Vec<&str> = Column::ALL.iter().filter(|&&column| test(column)).map(|column| column.name()).collect();
    names.join(", ")
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let column = Self::ALL.iter().copied().find(|column| column.name() == text.trim());
        column.ok_or_else(|| {
            let hint = hint(text, Self::ALL.iter().map(|column| column.name()));
            format!("`{text}` is not a column{hint}; there are {}", names(|_| true))
        })
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A depth in percent.
pub fn depth<'a>(depth_pct: Option<f64>) -> Option<Value<'a>> {
    depth_pct.map(|depth_pct| Value::Depth(millipct(depth_pct)))
}

/// A count.
pub fn int<'a>(n: Option<usize>) -> Option<Value<'a>> {
    n.map(|n| Value::Int(n as u64))
}

/// A value of a column: sorts like what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value<'a> {
    Int(u64),
    /// A depth by [`millipct`].
    Depth(u64),
    Text(&'a str),
}

/// A column with a value, or without one.
pub type Cut<'a> = (Column, Option<Value<'a>>);

/// A value in words, `none` for a missing one.
pub fn shown(value: Option<Value<'_>>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Depth(depth) => write!(f, "{}", *depth as f64 / 1000.0),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A depth in thousandths of a percent, in which depths are the same.
pub fn millipct(depth_pct: f64) -> u64 {
    (depth_pct * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_column_writes_them() {
        let depth = DepthReqPct.parse("24.813").unwrap().unwrap();
        assert_eq!((depth, depth.to_string()), (Value::Depth(24_813), "24.813".into()));
        assert_eq!(Bits.parse("none"), Ok(None));
        assert_eq!(Seed.parse("18446744073709551615"), Ok(Some(Value::Int(u64::MAX))));
        assert_eq!(CtxTok.parse("long"), Err("`long` is not a number, as ctx_tok is".into()));
        assert!("depth".parse::<Column>().unwrap_err().contains("depth_req_pct"));
    }
}
