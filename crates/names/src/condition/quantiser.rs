//! Quantisation, as it is named: which numbers, how many bits, which of them share a scale.

use crate::joined;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use strum::{IntoStaticStr, VariantArray};

/// Quantisation of some numbers in some layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantiser {
    pub of: Quantised,
    pub format: Format,
    pub scope: Scope,
    /// `true` if keys are rounded less their mean over the text, of [`Quantised::Qk`].
    pub smooth: bool,
    /// `true` if queries and keys are multiplied by a Hadamard matrix before they are rounded, of [`Quantised::Qk`].
    pub rotate: bool,
    /// `true` if attention sinks keep their logits, or their keys, and do not count for scales.
    pub exempt_sinks: bool,
    /// Quantised layers; `None` for all.
    pub layers: Option<Vec<usize>>,
}

/// Numbers that are quantised.
#[derive(Clone, Copy, Debug, ValueEnum, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantised {
    /// Attention logits, before the softmax
    #[default]
    Logits,
    /// Queries and keys, before their product
    Qk,
}

/// Number format of codes: a number of bits, `"fp8"`, `"nvfp4"` or `"mxfp4"` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "neither a number of bits nor \"fp8\", \"nvfp4\" or \"mxfp4\"")]
pub enum Format {
    /// Floating-point numbers of 8 bits: 4 of the exponent, 3 of the mantissa, up to 448 (e4m3).
    Fp8,
    /// Floating-point numbers of 4 bits: 2 of the exponent, 1 of the mantissa, up to 6 (e2m1). 16 channels of a row share a
    /// scale, which is an `Fp8` times the scale that more numbers share (NVIDIA).
    Nvfp4,
    /// Floating-point numbers of 4 bits (e2m1). 32 channels of a row share a scale, which is a power of two (OCP Microscaling
    /// Formats 1.0).
    Mxfp4,
    /// Integers of b bits, from -(2^(b-1) - 1) to 2^(b-1) - 1.
    #[serde(untagged)]
    Int(u32),
}

/// Numbers that share one scale.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Scope {
    /// All logits of a layer in a forward pass: every head and map (our reading of the paper)
    Tensor,
    /// All logits of one map of one head; all queries, or all keys, of one head
    Head,
    /// The logits of each row of each map
    Row,
    /// 128 queries, and 64 keys, of one head
    Block,
    /// The query, and the key, of each token of one head
    Token,
}

/// Valid numbers of bits of integers.
const BITS: RangeInclusive<u32> = 2..=16;

impl Quantiser {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// If one does not fit; the message begins with its name.
    pub fn check(&self) -> Result<(), String> {
        let format = self.format;
        let scope = self.scope.name();
        let (of_logits, number) = match self.of {
            Quantised::Logits => (true, "a logit"),
            Quantised::Qk => (false, "a query or key"),
        };
        if let Format::Int(bits) = format {
            if !BITS.contains(&bits) {
                return Err(format!("bits {bits}: {number} can have {} to {} bits", BITS.start(), BITS.end()));
            }
        } else if of_logits {
            return Err(format!("bits {format} is for queries and keys; logits have 2 to 16 bits"));
        }
        match (self.scope, of_logits) {
            (Scope::Block | Scope::Token, true) => {
                return Err(format!("scope {scope} is for queries and keys; logits have tensor, head and row"));
            }
            (Scope::Tensor | Scope::Row, false) => {
                return Err(format!("scope {scope} is for logits; queries and keys have block, token and head"));
            }
            _ => {}
        }
        for (setting, given) in [("smooth", self.smooth), ("rotate", self.rotate)] {
            if given && of_logits {
                return Err(format!("{setting} is for queries and keys, and logits are quantised"));
            }
        }
        Ok(())
    }

    /// Words for everything but the number of bits.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.of == Quantised::Qk {
            words.push("qk".to_owned());
        }
        words.push(self.scope.name().to_owned());
        words.extend(match self.format {
            Format::Int(_) => None,
            Format::Fp8 => Some("fp".to_owned()),
            Format::Nvfp4 | Format::Mxfp4 => Some(self.format.to_string()),
        });
        for (given, word) in [(self.smooth, "smooth"), (self.rotate, "rotate"), (self.exempt_sinks, "exempt-sinks")] {
            if given {
                words.push(word.to_owned());
            }
        }
        words.extend(self.layers.as_ref().map(|layers| format!("layers-{}", joined(layers))));
        words
    }

    /// Returns `true` if a layer is quantised.
    pub fn has(&self, layer: usize) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(&layer))
    }
}

/// Name in conditions: `quantise(4, row)`, `quantise-qk(fp8, block, smooth, layers=0+2)`.
impl fmt::Display for Quantiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.of == Quantised::Qk { "quantise-qk" } else { "quantise" };
        write!(f, "{kind}({}, {}", self.format, self.scope.name())?;
        for (given, word) in [(self.smooth, "smooth"), (self.rotate, "rotate"), (self.exempt_sinks, "exempt-sinks")] {
            if given {
                write!(f, ", {word}")?;
            }
        }
        if let Some(layers) = &self.layers {
            write!(f, ", layers={}", joined(layers))?;
        }
        f.write_str(")")
    }
}

impl Format {
    /// Bits of a code.
    pub fn bits(self) -> u32 {
        match self {
            Self::Int(bits) => bits,
            Self::Fp8 => 8,
            Self::Nvfp4 | Self::Mxfp4 => 4,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(bits) => write!(f, "{bits}"),
            Self::Fp8 => f.write_str("fp8"),
            Self::Nvfp4 => f.write_str("nvfp4"),
            Self::Mxfp4 => f.write_str("mxfp4"),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fp8" => Ok(Self::Fp8),
            "nvfp4" => Ok(Self::Nvfp4),
            "mxfp4" => Ok(Self::Mxfp4),
            _ => text
                .parse()
                .map(Self::Int)
                .map_err(|_| format!("`{text}` is not a number of bits, fp8, nvfp4 or mxfp4")),
        }
    }
}

impl Scope {
    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scope = Self::VARIANTS.iter().find(|scope| scope.name() == text);
        scope.copied().ok_or_else(|| format!("`{text}` is not a scope, expected tensor, head, row, block or token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_as_they_are_written() {
        for format in [Format::Int(8), Format::Fp8, Format::Nvfp4, Format::Mxfp4] {
            assert_eq!(format.to_string().parse(), Ok(format));
            assert_eq!(serde_json::from_str::<Format>(&serde_json::to_string(&format).unwrap()).unwrap(), format);
        }
        assert!("fp6".parse::<Format>().unwrap_err().contains("fp8, nvfp4 or mxfp4"));
        assert!(serde_json::from_str::<Format>("\"8\"").is_err());
    }
}
