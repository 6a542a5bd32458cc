//! Values of flags: parsing, and their help.

use crate::kernels::quant::{Quantised, Scope};
use crate::model::device::Dtype;
use crate::model::{HeadLayout, MOST_TOKENS};
use crate::prompts::{Order, RulerTask};
use crate::results::metric::{self, Metric, LOGIT_OUT, SHARE_ABS, SHARE_OUT};
use crate::run::MapKind;
use crate::treatments::{Ranking, RowSelection};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Implements [`ValueEnum`] for a library type: the name and help of each variant.
macro_rules! value_enum {
    ($type:ident { $($variant:ident: $name:expr, $help:literal;)* }) => {
        impl ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(match self {
                    $(Self::$variant => PossibleValue::new($name).help($help),)*
                })
            }
        }
    };
}

value_enum!(Quantised {
    Logits: "logits", "Attention logits, before the softmax";
    Qk: "qk", "Queries and keys, before their product";
});

value_enum!(Scope {
    Tensor: "tensor", "All logits of a layer in a forward pass: every head and map (our reading of the paper)";
    Head: "head", "All logits of one map of one head; all queries, or all keys, of one head";
    Row: "row", "The logits of each row of each map";
    Block: "block", "128 queries, and 64 keys, of one head";
    Token: "token", "The query, and the key, of each token of one head";
});

value_enum!(Ranking {
    ShareOut: SHARE_OUT.name, "Share of the head's output from the answer";
    ShareAbs: SHARE_ABS.name, "Share of |attention| on the answer";
    LogitOut: LOGIT_OUT.name, "Direct effect of the head's output from the answer on the right token's logit";
    Retrieval: "retrieval", "How often the key with the largest weight is the needle's token to be copied";
    Causal: "causal", "Loss of the answer's log-probability without the head";
});

value_enum!(RowSelection {
    Answer: "answer", "Rows that predict the tokens of an answer";
    Question: "question", "Rows from the beginning of the question on";
    All: "all", "All rows";
});

value_enum!(RulerTask {
    NiahSingle1: "niah_single_1", "A number in noise";
    NiahSingle2: "niah_single_2", "A number in prose";
    NiahSingle3: "niah_single_3", "A UUID in prose";
    NiahMultikey1: "niah_multikey_1", "One of four numbers in prose";
    NiahMultikey2: "niah_multikey_2", "A number among nothing but others";
    NiahMultikey3: "niah_multikey_3", "A UUID of a UUID among nothing but others";
    NiahMultivalue: "niah_multivalue", "Four numbers of one key in prose";
    NiahMultiquery: "niah_multiquery", "The numbers of four keys in prose";
    Vt: "vt", "Variable tracking: five variables of one chain in noise";
});

/// Needles that are not asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distractors {
    /// So many.
    Needles(usize),
    /// As many as fill this share of the context, in percent.
    Percent(f64),
}

impl FromStr for Distractors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a number nor a share such as 5%");
        match text.strip_suffix('%') {
            Some(share) => match share.parse() {
                Ok(share) if (0.0..100.0).contains(&share) => Ok(Self::Percent(share)),
                Ok(_) => Err(format!("{text}: a share of the context is at least 0% and below 100%")),
                Err(_) => Err(wrong()),
            },
            None => text.parse().map(Self::Needles).map_err(|_| wrong()),
        }
    }
}

value_enum!(Order {
    Random: "random", "Random order";
    ByClass: "by-class", "One class after the other";
    Alternating: "alternating", "One example of each class in turn";
});

value_enum!(MapKind {
    Effective: "effective", "Weights of the values: A1 - lambda A2, or the only map";
    A1: "a1", "The first softmax map";
    A2: "a2", "The second softmax map";
    Logits1: "logits1", "Scaled logits of the first map";
    Logits2: "logits2", "Scaled logits of the second map";
    All: "all", "A1, A2, lambda A2 and A1 - lambda A2 in one figure";
});

value_enum!(Dtype {
    F32: "f32", "32 bits";
    Bf16: "bf16", "On the CPU, products of numbers with 8 significant bits, if the processor has instructions for it, and the rest in f32; on other devices, weights and activations of 16 bits";
    F64: "f64", "64 bits, to rule out rounding";
});

value_enum!(HeadLayout {
    Standard: "standard", "One map per head";
    Diffllama: "diffllama", "DIFF V1 as in Hugging Face: pairs (i, i+H), half-rotation RoPE, head norm without gain";
    MicrosoftV1: "microsoft-v1", "DIFF V1 as in Microsoft's flash files: pairs (2i, 2i+1), interleaved RoPE, head norm with gain";
    MicrosoftV1Naive: "microsoft-v1-naive", "The same with the key order of Microsoft's naive file, which differs with grouped heads";
    MicrosoftV2: "microsoft-v2", "DIFF V2 as in Microsoft's file: pairs (2i, 2i+1) on one key head, lambda per token and head";
    Scalar: "scalar", "One scalar lambda per layer, pairs (i, i+H), one norm over all heads";
});

/// Parser of a metric's name. It accepts any, as files of other versions have other metrics; the names of the catalogue are its
/// possible values, which shells complete.
#[derive(Clone)]
pub(super) struct MetricParser;

impl TypedValueParser for MetricParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let of_metric = |metric: &Metric| PossibleValue::new(metric.name).help(metric.meaning);
        let all = PossibleValue::new("all").help("Every metric");
        Some(Box::new(metric::ALL.iter().map(of_metric).chain([all])))
    }
}

/// A range of layers or heads: `3`, or `0..3` with both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange(pub RangeInclusive<usize>);

/// Largest number of indices in a range.
const MOST_INDICES: usize = 100_000;

impl IndexRange {
    /// Returns the indices of several ranges, in order; `None` without ranges.
    pub fn all(ranges: Option<&[Self]>) -> Option<Vec<usize>> {
        ranges.map(|ranges| ranges.iter().flat_map(|range| range.0.clone()).collect())
    }
}

impl FromStr for IndexRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a number counted from 0, or a range such as 0..3");
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if last < first || last - first >= MOST_INDICES {
            return Err(bad());
        }
        Ok(Self(first..=last))
    }
}

/// Largest number of lengths in a range.
const MOST_LENGTHS: usize = 10_000;

/// Token counts: `4k`, or a range `1k..4k:1k` with both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRange(pub Vec<usize>);

impl FromStr for TokenRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((from, rest)) = text.split_once("..") else { return Ok(Self(vec![tokens(text)?])) };
        let (to, step) = rest.split_once(':').ok_or("a range needs a step, as in 1k..4k:1k")?;
        let (from, to, step) = (tokens(from)?, tokens(to)?, tokens(step)?);
        if to < from {
            return Err(format!("{to} is less than {from}"));
        }
        if (to - from) / step >= MOST_LENGTHS {
            return Err(format!("more than {MOST_LENGTHS} lengths"));
        }
        Ok(Self((from..=to).step_by(step).collect()))
    }
}

/// Parses `512`, `4k` (4096) or `1m`.
fn tokens(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let (digits, unit) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (lower.as_str(), 1),
    };
    match digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)) {
        Some(0) | None => Err(format!("`{text}` is not a number of tokens such as 512, 4k or 1k..4k:1k")),
        Some(n) if n as u64 > MOST_TOKENS => {
            Err(format!("`{text}` is more than the {MOST_TOKENS} tokens of any model"))
        }
        Some(n) => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_names_of_files() {
        fn agree<T: ValueEnum + serde::Serialize>() {
            for value in T::value_variants() {
                let name = value.to_possible_value().unwrap().get_name().to_owned();
                assert_eq!(serde_json::json!(name), serde_json::to_value(value).unwrap());
            }
        }
        agree::<Quantised>();
        agree::<Scope>();
        agree::<HeadLayout>();
        agree::<MapKind>();
        agree::<Dtype>();
    }

    #[test]
    fn layers_and_heads_may_be_ranges_with_both_ends() {
        let parse = |text: &str| text.parse::<IndexRange>();
        let ranges = [parse("5").unwrap(), parse("0..3").unwrap()];
        assert_eq!(IndexRange::all(Some(&ranges)), Some(vec![5, 0, 1, 2, 3]));
        assert_eq!(IndexRange::all(None), None);
        for bad in ["", "-1", "3..0", "0..", "a..b", "0..99999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_counts_may_be_lists_with_units_and_ranges() {
        let parse = |text: &str| text.parse::<TokenRange>().map(|r| r.0);
        assert_eq!(parse("4k"), Ok(vec![4096]));
        assert_eq!(parse("512"), Ok(vec![512]));
        assert_eq!(parse("1k..3k:1k"), Ok(vec![1024, 2048, 3072]));
        for bad in ["", "0", "-4k", "4q", "2k..1k:1k", "1k..2k", "99999999999999999m"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
