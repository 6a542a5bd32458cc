//! Specification of needle prompts.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::CitySet;
use crate::bail_usage;

/// Specification of a needle prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeedleSpec {
    /// Maximum length of the prompt in tokens. The filler ends within a sentence of it.
    pub ctx_tok: usize,
    /// Number of needles in the haystack (the paper's N).
    pub needles: usize,
    /// Number of needles asked for (the paper's R).
    pub retrieve: usize,
    /// Depth of the controlled needle, in percent of the filler's tokens: 0 before all filler, 100 after it.
    pub depth_pct: f64,
    /// Set of the keys.
    pub cities: CitySet,
}

impl NeedleSpec {
    /// Checks what does not need a tokenizer. Inconsistencies are usage errors.
    pub fn check(&self) -> Result<()> {
        let known = self.cities.cities().len();
        if self.needles == 0 || self.retrieve == 0 {
            bail_usage!("a needle prompt needs at least one needle and one question");
        }
        if self.retrieve > self.needles {
            bail_usage!("cannot retrieve {} of {} needles", self.retrieve, self.needles);
        }
        let absent = if self.cities == CitySet::Absent { self.retrieve } else { 0 };
        if self.needles.saturating_add(absent) > known {
            let besides =
                if absent > 0 { format!(" besides {absent} that are asked for but absent") } else { String::new() };
            bail_usage!("{} needles need as many cities{besides}; there are {known}", self.needles);
        }
        if !(0.0..=100.0).contains(&self.depth_pct) {
            bail_usage!("`depths_pct` {}: a depth is between 0 and 100 percent", self.depth_pct);
        }
        Ok(())
    }
}
