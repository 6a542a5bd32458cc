//! Fake quantisation of attention logits, or of queries and keys before their product (`qk.rs`): dynamic symmetric absmax, as
//! in the paper's section 3.6.
//!
//! With b bits a number x becomes `s * round(x / s)`, s = absmax / (2^(b-1) - 1), so codes are between -(2^(b-1) - 1)
//! and 2^(b-1) - 1, and the error is at most s / 2. The [`Scope`] says which numbers share an absmax; the paper does not
//! say which it used. Of logits, only visible keys count.

mod qk;

pub use qk::HeadRows;

use clap::ValueEnum;
use names::joined;
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

    /// Distance of two neighbouring quantised integers. 0 if the step would not be a normal number, because there is
    /// nothing to quantise, or it is zero or tiny.
    pub fn step(&self, absmax: f32) -> f32 {
        let step = absmax / self.format.largest_code();
        if step.is_normal() {
            step
        } else {
            0.0
        }
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

    /// The largest code, of formats with scales of their own times the largest such scale.
    fn largest_code(self) -> f32 {
        match self {
            Self::Int(bits) => ((1u32 << (bits - 1)) - 1) as f32,
            Self::Fp8 => 448.0,
            Self::Nvfp4 => 6.0 * 448.0,
            Self::Mxfp4 => 6.0,
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

/// The largest magnitude; 0 of an empty slice. NaNs are ignored.
#[pulp::with_simd(absmax = pulp::Arch::new())]
#[inline(always)]
pub fn absmax_simd<S: pulp::Simd>(_simd: S, logits: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (chunks, tail) = logits.as_chunks::<16>();
    for chunk in chunks {
        for i in 0..16 {
            let magnitude = chunk[i].abs();
            lanes[i] = if magnitude > lanes[i] { magnitude } else { lanes[i] };
        }
    }
    lanes.iter().chain(tail).fold(0.0, |largest: f32, x| largest.max(x.abs()))
}

/// Rounds every logit to the nearest multiple of `step`, ties to even. With a step of 0 nothing changes.
#[pulp::with_simd(quantise = pulp::Arch::new())]
#[inline(always)]
pub fn quantise_simd<S: pulp::Simd>(_simd: S, logits: &mut [f32], step: f32) {
    /// 1.5 * 2^23: adding it rounds a number below 2^22 to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    if step == 0.0 {
        return;
    }
    for x in logits {
        // A product with 1 / step could give a code beyond the largest.
        *x = ((*x / step + ROUND) - ROUND) * step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn integers(bits: u32) -> Quantiser {
        let of = Quantised::Logits;
        let format = Format::Int(bits);
        let scope = Scope::Row;
        Quantiser { of, format, scope, smooth: false, rotate: false, exempt_sinks: false, layers: None }
    }

    fn quantised(logits: &[f32], bits: u32) -> Vec<f32> {
        let quantiser = integers(bits);
        let mut result = logits.to_vec();
        quantise(&mut result, quantiser.step(absmax(logits)));
        result
    }

    #[test]
    fn four_bits_have_seven_codes_on_either_side() {
        assert_eq!(quantised(&[7.0, -7.0, 3.4, -3.6, 0.5, 1.5, 0.2], 4), [7.0, -7.0, 3.0, -4.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn two_bits_keep_a_sign_at_most() {
        assert_eq!(quantised(&[8.0, -5.0, 3.9, 0.0], 2), [8.0, -8.0, 0.0, 0.0]);
    }

    #[test]
    fn constant_empty_and_zero_rows_are_left_as_they_are() {
        for bits in BITS {
            assert!(quantised(&[], bits).is_empty());
            assert_eq!(quantised(&[0.0; 5], bits), [0.0; 5]);
            let constant = quantised(&[2.5; 5], bits);
            assert!(constant.iter().all(|x| (x - 2.5).abs() < 1e-6), "{bits} bits: {constant:?}");
            assert_eq!(quantised(&[1e-44; 5], bits), [1e-44; 5], "too small for a scale");
        }
    }

    #[test]
    fn formats_read_back_as_they_are_written() {
        for format in [Format::Int(8), Format::Fp8, Format::Nvfp4, Format::Mxfp4] {
            assert_eq!(format.to_string().parse(), Ok(format));
            assert_eq!(serde_json::from_str::<Format>(&serde_json::to_string(&format).unwrap()).unwrap(), format);
        }
        assert!("fp6".parse::<Format>().unwrap_err().contains("fp8, nvfp4 or mxfp4"));
        assert!(serde_json::from_str::<Format>("\"8\"").is_err());
    }

    proptest! {
        #[test]
        fn the_error_is_at_most_half_a_step(
            logits in prop::collection::vec(-400.0f32..400.0, 1..200),
            bits in BITS,
        ) {
            let quantiser = integers(bits);
            let largest = absmax(&logits);
            let step = quantiser.step(largest);
            for (x, y) in logits.iter().zip(quantised(&logits, bits)) {
                // Half a step, and the rounding of f32 on the way.
                prop_assert!((x - y).abs() <= 0.5 * step + largest * 2e-7, "{x} became {y} with step {step}");
                prop_assert!(y.abs() <= largest * (1.0 + 1e-6));
                prop_assert!((y / step - (y / step).round()).abs() < 0.01, "{y} is no multiple of {step}");
            }
        }

        #[test]
        fn absmax_is_that_of_plain_code(logits in prop::collection::vec(-400.0f32..400.0, 0..100)) {
            prop_assert_eq!(absmax(&logits), logits.iter().fold(0.0f32, |a, x| a.max(x.abs())));
        }
    }
}
