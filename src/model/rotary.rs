//! Frequencies of rotary position embeddings, and the ways in which contexts are stretched.
//!
//! Formulas as in Hugging Face `modeling_rope_utils.py`, in `f64`.

use crate::ops::RopeTable;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::{Arc, RwLock};

/// A rotary embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotary {
    /// Base of the wavelengths.
    pub theta: f64,
    /// Channels of each head that are rotated, from the first on; an even number.
    pub channels: usize,
    /// What was done to the frequencies to reach a longer context.
    pub scaling: RopeScaling,
}

/// How frequencies are changed for a context longer than the first training's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All divided by `factor` (position interpolation).
    Linear {
        /// How much longer.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones left alone, those between blended.
    Llama3 {
        /// How much longer.
        factor: f64,
        /// Wavelengths above `original_ctx_tok / low` are divided.
        low: f64,
        /// Wavelengths below `original_ctx_tok / high` are left alone.
        high: f64,
        /// Context of the first training, in tokens.
        original_ctx_tok: usize,
    },
    /// Each divided by a number of its own (Llama 3.1 in GGUF files).
    Divided {
        /// (channels / 2)
        by: Vec<f64>,
    },
    /// YaRN (Peng et al. 2023): a ramp over the channels, and cos and sin multiplied by `amplitude`.
    Yarn {
        /// How much longer.
        factor: f64,
        /// Rotations within the original context above which channels are left alone.
        beta_fast: f64,
        /// Rotations below which they are divided by `factor`.
        beta_slow: f64,
        /// Context of the first training, in tokens.
        original_ctx_tok: usize,
        /// Factor on cos and sin.
        amplitude: f64,
        /// Whether the ends of the ramp are whole channels.
        truncate: bool,
    },
}

impl RopeScaling {
    /// In words, for a layout: nothing, or ` scaled linearly by 4`.
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
                    // 0 divides the frequency, 1 leaves it alone.
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

    /// The pairs of channels between which YaRN's ramp rises.
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

/// cos and sin of as many positions as were asked for so far: long contexts are rarely used to their end.
#[derive(Debug)]
pub(super) struct GrowingTable {
    rotary: Rotary,
    table: RwLock<Arc<RopeTable>>,
}

impl GrowingTable {
    /// A table of no positions yet.
    pub(super) fn new(rotary: &Rotary) -> Self {
        let table = RopeTable::new(0, &rotary.frequencies(), 1.0);
        Self { rotary: rotary.clone(), table: RwLock::new(Arc::new(table)) }
    }

    /// A table of at least `positions` positions.
    ///
    /// # Panics
    /// If a thread panicked while the table grew.
    pub(super) fn reaching(&self, positions: usize) -> Arc<RopeTable> {
        let table = self.table.read().expect("no panic holds this lock").clone();
        if table.positions() >= positions {
            return table;
        }
        let mut table = self.table.write().expect("no panic holds this lock");
        if table.positions() < positions {
            let frequencies = self.rotary.frequencies();
            // Decoding asks for one more each time.
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
        assert!(table.reaching(5).positions() >= 5);
        assert!(table.reaching(3).positions() >= 5);
        assert!(table.reaching(9).positions() >= 9);
    }
}
