//! Quantisation of an experiment: the table `[quantise]` of its file.

use crate::bail_usage;
use crate::base::names::repeated;
use crate::base::spec_file::is_default;
use crate::kernels::quant::{Format, Quantised, Quantiser, Scope};
use crate::treatments::{Condition, Treatment};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// Quantisation to several numbers of bits: a [`Quantiser`] for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    #[serde(default, skip_serializing_if = "is_default")]
    pub of: Quantised,
    pub bits: Vec<Format>,
    pub scope: Scope,
    #[serde(default)]
    pub exempt_sinks: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub smooth: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub rotate: bool,
}

impl Quantisation {
    /// One condition for each number of bits, in these layers or in all.
    ///
    /// # Errors
    /// Usage errors that name the key.
    pub fn conditions(&self, layers: Option<&[usize]>) -> Result<Vec<Condition>> {
        if let Some(bits) = repeated(&self.bits) {
            bail_usage!("--bits {bits} is named twice");
        }
        if self.bits.is_empty() {
            bail_usage!("--bits names nothing");
        }
        let mut conditions = Vec::new();
        for &format in &self.bits {
            let &Self { of, scope, exempt_sinks, smooth, rotate, .. } = self;
            let layers = layers.map(<[usize]>::to_vec);
            let quantiser = Quantiser { of, format, scope, smooth, rotate, exempt_sinks, layers };
            if let Err(mistake) = quantiser.check() {
                bail_usage!("--{mistake}");
            }
            conditions.push(Treatment::Quantise(quantiser).into());
        }
        Ok(conditions)
    }
}
