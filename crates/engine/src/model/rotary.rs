//! Frequencies of rotary position embeddings, with the scalings for longer contexts.
//!
//! Formulas as in `modeling_rope_utils.py` of Hugging Face transformers, in `f64`.

use crate::kernels::RopeTable;
use std::f64::consts::TAU;
use std::sync::{Arc, RwLock};

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Base of the wavelengths.
    pub theta: f64,
    /// Number of rotated channels at the start of each head; even.
    pub channels: usize,
    /// Scaling of the frequencies for longer contexts.
    pub scaling: RopeScaling,
}

/// Scaling of rotary frequencies for a context longer than that of the original training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// All frequencies divided by `factor` (position interpolation).
    Linear {
        /// Ratio of the contexts.
        factor: f64,
    },
    /// Llama 3.1: frequencies of long wavelengths are divided by `factor`, of short ones kept, in between interpolated.
    Llama3 {
        /// Ratio of the contexts.
        factor: f64,
        /// Wavelengths above `original_ctx_tok / low` are scaled.
        low: f64,
        /// Wavelengths below `original_ctx_tok / high` are kept.
        high: f64,
        /// Context of the original training, in tokens.
        original_ctx_tok: usize,
    },
    /// Each frequency divided by its own factor (Llama 3.1 in GGUF files).
    Divided {
        /// Divisors: (channels / 2).
        by: Vec<f64>,
    },
    /// YaRN (Peng et al. 2023): a ramp over the channels, with cos and sin multiplied by `amplitude`.
    Yarn {
        /// Ratio of the contexts.
        factor: f64,
        /// Channels with more rotations than this in the original context are kept.
        beta_fast: f64,
        /// Channels with fewer rotations than this are divided by `factor`.
        beta_slow: f64,
        /// Context of the original training, in tokens.
        original_ctx_tok: usize,
        /// Factor on cos and sin.
        amplitude: f64,
        /// `true` if the ends of the ramp are rounded to whole channels.
        truncate: bool,
    },
    /// LongRoPE (Ding et al. 2024): each divided by a number of its own, of which there are two sets.
    LongRope {
        /// Divisors for contexts up to the original one: (channels / 2).
        short: Vec<f64>,
        /// Divisors for longer contexts: (channels / 2).
        long: Vec<f64>,
        /// Context of the first training, in tokens.
        original_ctx_tok: usize,
        /// Factor on cos and sin.
        amplitude: f64,
    },
}

impl RopeScaling {
    /// Description for a layout: empty, or `, linear scaling by 4`.
    pub fn describe(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Linear { factor } => format!(", linear scaling by {factor}"),
            Self::Llama3 { factor, .. } => format!(", Llama 3 scaling by {factor}"),
            Self::Divided { by } => {
                let most = by.iter().copied().fold(1.0, f64::max);
                format!(", frequencies divided by up to {most}")
            }
            Self::Yarn { factor, .. } => format!(", YaRN scaling by {factor}"),
            Self::LongRope { original_ctx_tok, .. } => {
                format!(", LongRoPE with other frequencies beyond {original_ctx_tok} tokens")
            }
        }
    }

    /// The longest context that it was made for, in tokens, where that follows from its numbers.
    pub fn ctx_tok(&self) -> Option<usize> {
        match self {
            Self::Yarn { factor, original_ctx_tok, .. } => Some((factor * *original_ctx_tok as f64) as usize),
            _ => None,
        }
    }
}

impl Rotary {
    /// Frequency of each pair of channels in a context of `ctx_tok` tokens, in radians per token: (channels / 2).
    pub fn frequencies(&self, ctx_tok: usize) -> Vec<f64> {
        let n = self.channels as f64;
        let plain = (0..self.channels / 2).map(|i| self.theta.powf(-2.0 * i as f64 / n));
        match &self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            RopeScaling::Divided { by } => plain.zip(by).map(|(f, by)| f / by).collect(),
            RopeScaling::LongRope { short, long, .. } => {
                let by = if self.is_long(ctx_tok) { long } else { short };
                plain.zip(by).map(|(f, by)| f / by).collect()
            }
            RopeScaling::Llama3 { factor, low, high, original_ctx_tok } => plain
                .map(|f| {
                    let rotations = *original_ctx_tok as f64 * f / TAU;
                    // 0 divides the frequency, 1 keeps it.
                    let keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - keep) * f / factor + keep * f
                })
                .collect(),
            &RopeScaling::Yarn { factor, beta_fast, beta_slow, original_ctx_tok, truncate, .. } => {
                // The pairs of channels at the ends of the ramp.
                let [mut low, mut high] = [beta_fast, beta_slow].map(|beta| {
                    let rotations = (original_ctx_tok as f64 / (beta * TAU)).ln();
                    n * rotations / (2.0 * self.theta.ln())
                });
                if truncate {
                    low = low.floor();
                    high = high.ceil();
                }
                let low = low.max(0.0);
                let high = high.min(n - 1.0);
                let high = if low == high { high + 0.001 } else { high };
                plain
                    .enumerate()
                    .map(|(i, f)| {
                        let divide = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                        divide * f / factor + (1.0 - divide) * f
                    })
                    .collect()
            }
        }
    }

    /// Factor on cos and sin.
    pub fn amplitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { amplitude, .. } | RopeScaling::LongRope { amplitude, .. } => amplitude,
            _ => 1.0,
        }
    }

    /// Returns `true` if a context of `ctx_tok` tokens has other frequencies than shorter ones.
    fn is_long(&self, ctx_tok: usize) -> bool {
        matches!(self.scaling, RopeScaling::LongRope { original_ctx_tok, .. } if ctx_tok > original_ctx_tok)
    }
}

/// cos and sin of the positions needed so far. Long contexts are rarely used in full.
#[derive(Debug)]
pub(super) struct GrowingTable {
    rotary: Rotary,
    short: RwLock<Arc<RopeTable>>,
    /// Of contexts that have other frequencies.
    long: RwLock<Arc<RopeTable>>,
}

impl GrowingTable {
    pub(super) fn new(rotary: &Rotary) -> Self {
        let empty = Arc::new(RopeTable::new(0, &rotary.frequencies(0), 1.0));
        Self { rotary: rotary.clone(), short: RwLock::new(empty.clone()), long: RwLock::new(empty) }
    }

    /// A table of at least `positions` positions, with the frequencies of a context of that length.
    pub(super) fn with_positions(&self, positions: usize) -> Arc<RopeTable> {
        let table = if self.rotary.is_long(positions) { &self.long } else { &self.short };
        let current = table.read().expect("no panic holds this lock").clone();
        if current.positions() >= positions {
            return current;
        }
        let mut table = table.write().expect("no panic holds this lock");
        if table.positions() < positions {
            let frequencies = self.rotary.frequencies(positions);
            // Rounded up, because decoding asks for one more position each time.
            let positions = positions.next_power_of_two();
            *table = Arc::new(RopeTable::new(positions, &frequencies, self.rotary.amplitude()));
        }
        table.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotary(scaling: RopeScaling) -> Rotary {
        Rotary { theta: 10_000.0, channels: 8, scaling }
    }

    #[test]
    fn scaled_frequencies_lie_between_the_plain_and_the_divided_ones() {
        let plain = rotary(RopeScaling::None).frequencies(1);
        assert_eq!(plain[0], 1.0);
        assert!((plain[2] - 0.01).abs() < 1e-15);
        let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_ctx_tok: 64 };
        let yarn = RopeScaling::Yarn {
            factor: 8.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_ctx_tok: 64,
            amplitude: 1.2,
            truncate: true,
        };
        for scaling in [llama3, yarn] {
            let scaled = rotary(scaling).frequencies(1);
            assert!(scaled.iter().zip(&plain).all(|(s, p)| *s <= *p && *s >= p / 8.0 - 1e-15));
            assert_eq!(scaled[0], 1.0, "the fastest channels are left alone");
            assert!((scaled[3] - plain[3] / 8.0).abs() < 1e-12, "the slowest are divided");
        }
    }

    #[test]
    fn a_context_beyond_the_original_one_has_the_long_frequencies() {
        let short = vec![1.0; 4];
        let long = vec![1.0, 2.0, 4.0, 8.0];
        let rotary = rotary(RopeScaling::LongRope { short, long, original_ctx_tok: 16, amplitude: 1.2 });
        let plain = Rotary { scaling: RopeScaling::None, ..rotary.clone() }.frequencies(1);
        assert_eq!(rotary.frequencies(16), plain);
        assert_eq!(rotary.frequencies(17)[3], plain[3] / 8.0);
        let table = GrowingTable::new(&rotary);
        let long = table.with_positions(17);
        let short = table.with_positions(16);
        assert!(!Arc::ptr_eq(&long, &short) && Arc::ptr_eq(&short, &table.with_positions(9)));
    }

    #[test]
    fn a_table_grows_when_it_is_asked_for_more() {
        let table = GrowingTable::new(&rotary(RopeScaling::None));
        assert!(table.with_positions(5).positions() >= 5);
        assert!(table.with_positions(3).positions() >= 5);
        assert!(table.with_positions(9).positions() >= 9);
    }
}
