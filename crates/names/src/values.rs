//! Values of flags and of the keys of files: numbers of tokens, and ranges of layers and heads.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Implements `Serialize` with the type's `Display` and `Deserialize` with its `FromStr`.
///
/// Like `SerializeDisplay` and `DeserializeFromStr` of the crate `serde_with`, without its procedural macros: few
/// types need it.
#[macro_export]
macro_rules! serde_as_str {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Largest number of tokens of a prompt or a model.
pub const MOST_TOKENS: u64 = 1 << 28;

/// Largest number of lengths in a range.
const MOST_LENGTHS: usize = 10_000;

/// Token counts: `4k`, or a range `1k..4k:1k` with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    first: usize,
    last: usize,
    step: usize,
}

serde_as_str!(TokenRange);

impl TokenRange {
    /// Every count of the range.
    pub fn counts(self) -> impl Iterator<Item = usize> {
        (self.first..=self.last).step_by(self.step)
    }

    /// The only count; `None` if the range has several.
    pub fn single(self) -> Option<usize> {
        (self.first == self.last).then_some(self.first)
    }
}

impl From<usize> for TokenRange {
    fn from(tokens: usize) -> Self {
        Self { first: tokens, last: tokens, step: 1 }
    }
}

impl FromStr for TokenRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((first, rest)) = text.split_once("..") else { return tokens(text).map(Self::from) };
        let (last, step) = rest.split_once(':').ok_or("a range needs a step, as in 1k..4k:1k")?;
        let first = tokens(first)?;
        let last = tokens(last)?;
        let step = tokens(step)?;
        if last < first {
            return Err(format!("{last} is less than {first}"));
        }
        if (last - first) / step >= MOST_LENGTHS {
            return Err(format!("more than {MOST_LENGTHS} lengths"));
        }
        Ok(Self { first, last: last - (last - first) % step, step })
    }
}

impl fmt::Display for TokenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(tokens) => f.write_str(&tokens_name(tokens)),
            None => {
                write!(f, "{}..{}:{}", tokens_name(self.first), tokens_name(self.last), tokens_name(self.step))
            }
        }
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

/// `4k` for 4096, `500` for 500.
pub fn tokens_name(tokens: usize) -> String {
    match tokens {
        n if n > 0 && n % 1024 == 0 => format!("{}k", n / 1024),
        n => n.to_string(),
    }
}

/// Parses a percentage: `50`, or `50%`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    number.parse().map_err(|_| format!("`{text}` is not a percentage such as 50"))
}

/// Parses the seed of random numbers.
pub fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a seed, which is a whole number from 0 on"))
}

/// Parses a layer or a head: `3`, `L3` or `H3`.
pub fn index(text: &str) -> Result<usize, String> {
    let number = text.trim().trim_start_matches(['L', 'l', 'H', 'h']);
    number.parse().map_err(|_| match number.split_once('.').map(|(layer, head)| (index(layer), index(head))) {
        Some((Ok(layer), Ok(head))) => {
            format!("`{text}` is a layer and a head, which have a flag each: layer {layer}, head {head}")
        }
        _ => format!("`{text}` is not a number counted from 0"),
    })
}

/// A range of layers or heads: `3`, or `0..3` with both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange(RangeInclusive<usize>);

serde_as_str!(IndexRange);

/// Largest number of indices in a range.
const MOST_INDICES: usize = 100_000;

impl IndexRange {
    /// The indices of several ranges, in order; `None` without ranges.
    pub fn all(ranges: Option<&[Self]>) -> Option<Vec<usize>> {
        ranges.map(|ranges| ranges.iter().flat_map(|range| range.0.clone()).collect())
    }
}

impl FromStr for IndexRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (index(first), index(last)) {
            (Ok(first), Ok(last)) if first <= last && last - first < MOST_INDICES => Ok(Self(first..=last)),
            _ => Err(format!("`{text}` is not a number counted from 0, or a range such as 0..3")),
        }
    }
}

impl fmt::Display for IndexRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}..{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_written_as_tables_write_them() {
        assert_eq!(["50", "50%", " 12.5 % "].map(|text| percent(text).unwrap()), [50.0, 50.0, 12.5]);
        assert_eq!(["3", "L3", "h3"].map(|text| index(text).unwrap()), [3; 3]);
        assert!(index("18.6").unwrap_err().ends_with("layer 18, head 6"));
        for (refused, why) in [
            (seed("-1").err(), "a whole number from 0 on"),
            (percent("half").err(), "not a percentage"),
            (index("-1").err(), "counted from 0"),
            (index("x.y").err(), "counted from 0"),
        ] {
            assert!(refused.unwrap().contains(why));
        }
    }

    #[test]
    fn layers_and_heads_may_be_ranges_with_both_ends() {
        let ranges = ["5", "L0..L3"].map(|text| text.parse::<IndexRange>().unwrap());
        assert_eq!(IndexRange::all(Some(&ranges)), Some(vec![5, 0, 1, 2, 3]));
        assert_eq!(IndexRange::all(None), None);
        assert_eq!(ranges.map(|range| range.to_string()), ["5", "0..3"]);
        for bad in ["", "-1", "3..0", "0..", "a..b", "0..99999999999"] {
            assert!(bad.parse::<IndexRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn token_counts_may_have_units_and_be_ranges() {
        for (text, counts, printed) in [
            ("4k", vec![4096], "4k"),
            ("512", vec![512], "512"),
            ("1k..3k:1k", vec![1024, 2048, 3072], "1k..3k:1k"),
            ("100..350:100", vec![100, 200, 300], "100..300:100"),
        ] {
            let range: TokenRange = text.parse().unwrap();
            assert_eq!(range.counts().collect::<Vec<_>>(), counts);
            assert_eq!(range.to_string(), printed);
        }
        for bad in ["", "0", "-4k", "4q", "2k..1k:1k", "1k..2k", "99999999999999999m"] {
            assert!(bad.parse::<TokenRange>().is_err(), "{bad}");
        }
    }
}
