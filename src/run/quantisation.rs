//! Quantisation of an experiment: the table `[quantise]` of its file.

use crate::bail_usage;
use crate::base::names::repeated;
use crate::base::spec_file::is_default;
use crate::kernels::quant::{Format, QkQuantiser, QkScope, Quantiser, Scope, BITS};
use crate::treatments::{Condition, Rounding, Treatment};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// Quantisation of attention logits, or of queries and keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    /// The numbers that are quantised.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of: Quantised,
    /// Bits per number, each 2 to 16; of queries and keys also `"fp8"` and `"fp4"`.
    pub bits: Vec<Format>,
    /// Numbers that share one scale.
    pub scope: ScaleScope,
    /// `true` to leave out attention sinks, found in the baseline pass: their logits, or their keys.
    #[serde(default)]
    pub exempt_sinks: bool,
    /// Whether keys are rounded less their mean over the text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub smooth: bool,
    /// Whether queries and keys are multiplied by a Hadamard matrix before they are rounded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rotate: bool,
}

/// Numbers that can be quantised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantised {
    /// Attention logits, before the softmax.
    #[default]
    Logits,
    /// Queries and keys, before their product.
    Qk,
}

/// Numbers that share one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ScaleScope {
    /// All logits of a layer.
    Tensor,
    /// Logits of one map of a head; queries or keys of a head.
    Head,
    /// Logits of one row of a map.
    Row,
    /// Blocks of 128 queries and of 64 keys of a head.
    Block,
    /// The query or key of one token and head.
    Token,
}

impl ScaleScope {
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }
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
        let of_layers = || layers.map(<[usize]>::to_vec);
        self.bits.iter().map(|&format| Ok(self.treatment(format, of_layers())?.into())).collect()
    }

    fn treatment(&self, format: Format, layers: Option<Vec<usize>>) -> Result<Treatment> {
        let scope = self.scope.name();
        if let Format::Int(bits) = format {
            if !BITS.contains(&bits) {
                let what = if self.of == Quantised::Qk { "a query or key" } else { "a logit" };
                bail_usage!("--bits {bits}: {what} can have {} to {} bits", BITS.start(), BITS.end());
            }
        }
        if self.of == Quantised::Qk {
            let Some(scope) = QkScope::ALL.into_iter().find(|known| known.name() == scope) else {
                bail_usage!("--scope {scope} is for logits; queries and keys have block, token and head");
            };
            let by = Rounding::Qk(QkQuantiser { format, scope, smooth: self.smooth, rotate: self.rotate });
            return Ok(Treatment::Quantise { by, exempt_sinks: self.exempt_sinks, layers });
        }
        let Some(scope) = Scope::ALL.into_iter().find(|known| known.name() == scope) else {
            bail_usage!("--scope {scope} is for queries and keys; logits have tensor, head and row");
        };
        let Format::Int(bits) = format else {
            bail_usage!("--bits {format} is for queries and keys; logits have 2 to 16 bits");
        };
        for (key, given) in [("smooth", self.smooth), ("rotate", self.rotate)] {
            if given {
                bail_usage!("--{key} is for queries and keys, and logits are quantised");
            }
        }
        let by = Rounding::Logits(Quantiser { bits, scope });
        Ok(Treatment::Quantise { by, exempt_sinks: self.exempt_sinks, layers })
    }
}
