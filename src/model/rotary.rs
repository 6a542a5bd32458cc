//! Frequencies of rotary position embeddings, with the scalings for longer contexts.
//!
//! Formulas as in `modeling_rope_utils.py` of Hugging Face transformers, in `f64`.

use crate::ops::RopeTable;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::{Arc, RwLock};

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotary {
    /// Base of the wavelengths.
    pub theta: f64,
    /// Number of rotated channels at the start of each head; even.
    pub channels: usize,
    /// Scaling of the frequencies for longer contexts.
    pub scaling: RopeScaling,
}

/// Scaling of rotary frequencies for a context longer than that of the original training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RopeScaling {
    /// No scaling.
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
        /// Whether the ends of the ramp are rounded to whole channels.
        truncate: bool,
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
        }
    }
}

impl Rotary {
    /// Frequency of each pair of channels, in radians per token: (channels / 2).
    pub fn frequencies(&self) -> Vec<f64> {
        let n = self.channels as f64;
        let plain = (0..self.channels / 2).map(|i| self.theta.powf(-2.0 * i as f64 / n));
        match &self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            RopeScaling::Divided { by } => plain.zip(by).map(|(f, by)| f / by).collect(),
            RopeScaling::Llama3 { factor, low, high, original_ctx_tok } => plain
                .map(|f| {
                    let rotations = *original_ctx_tok as f64 * f / TAU;
                    // 0 divides the frequency, 1 keeps it.
                    let keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - keep) * f / factor + keep * f
                })
                .collect(),
            RopeScaling::Yarn { factor, .. } => {
                let (low, high) = self.yarn_ramp();
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

    /// The pairs of channels at the ends of YaRN's ramp.
    fn yarn_ramp(&self) -> (f64, f64) {
        let RopeScaling::Yarn { beta_fast, beta_slow, original_ctx_tok, truncate, .. } = self.scaling else {
            return (0.0, 1.0);
        };
        let n = self.channels as f64;
        let pair_of = |rotations: f64| n * (original_ctx_tok as f64 / (rotations * TAU)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(n - 1.0));
        (low, if low == high { high + 0.001 } else { high })
    }

    /// Factor on cos and sin.
    pub fn amplitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { amplitude, .. } => amplitude,
            _ => 1.0,
        }
    }
}

/// cos and sin of the positions needed so far. Long contexts are rarely used in full.
#[derive(Debug)]
pub(super) struct GrowingTable {
    rotary: Rotary,
    table: RwLock<Arc<RopeTable>>,
}

impl GrowingTable {
    /// Creates an empty table.
    pub(super) fn new(rotary: &Rotary) -> Self {
        let table = RopeTable::new(0, &rotary.frequencies(), 1.0);
        Self { rotary: rotary.clone(), table: RwLock::new(Arc::new(table)) }
    }

    /// Returns a table of at least `positions` positions.
    pub(super) fn with_positions(&self, positions: usize) -> Arc<RopeTable> {
        let table = self.table.read().expect("no panic holds this lock").clone();
        if table.positions() >= positions {
            return table;
        }
        let mut table = self.table.write().expect("no panic holds this lock");
        if table.positions() < positions {
            let frequencies = self.rotary.frequencies();
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
        let plain = rotary(RopeScaling::None).frequencies();
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
            let scaled = rotary(scaling).frequencies();
            assert!(scaled.iter().zip(&plain).all(|(s, p)| *s <= *p && *s >= p / 8.0 - 1e-15));
            assert_eq!(scaled[0], 1.0, "the fastest channels are left alone");
            assert!((scaled[3] - plain[3] / 8.0).abs() < 1e-12, "the slowest are divided");
        }
    }

    #[test]
    fn a_table_grows_when_it_is_asked_for_more() {
        let table = GrowingTable::new(&rotary(RopeScaling::None));
        assert!(table.with_positions(5).positions() >= 5);
        assert!(table.with_positions(3).positions() >= 5);
        assert!(table.with_positions(9).positions() >= 9);
    }
}
