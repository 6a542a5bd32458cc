//! What is done to a model's attention while it is measured, by name.
//!
//! A [`Condition`] is a list of [`Treatment`]s, and its name says all of them: the same name is the same condition in any
//! run. Names are written like this, in experiment files, in the `condition` column and in tables:
//!
//! ```text
//! condition  none | TREATMENT; TREATMENT; …
//! treatment  quantise(BITS, SCOPE [, exempt-sinks])
//!            mask(KEYS [, layers=0+2] [, heads=1] [, rows=ROWS])      logits -inf in every map: rows are renormalised
//!            silence(KEYS [, layers=…] [, heads=…] [, rows=ROWS])     weights 0 after the softmax: rows are not
//!            ablate(HEADS [, layers=…] [, heads=…] [, rows=ROWS] [, zero])   what these heads write becomes its mean
//!            keep(HEADS [, …])                                               what all the others write
//! keys       regions with "+" between them: bos template filler distractor needle answer question; noise for
//!            template+filler+distractor; random:20 for 20 keys of the context drawn by the prompt's seed, random:noise for
//!            as many as there are of noise
//! heads      all | LAYER.HEAD+LAYER.HEAD+… | best:N:RANKING | random:N:RANKING:DRAW (as many of each layer as the best N)
//! rows       answer (those that predict an answer; the default) | question (all from the question on) | all
//! ```
//!
//! `none` is the untreated pass, the baseline of all others; in the column it is a missing value.
//!
//! Regions are those of the question that a row answers ([`Prompt::targets`](crate::prompt::Prompt::targets)). Rows that
//! answer none count every needle that is asked for as the answer's.

mod parse;
mod resolve;

pub use resolve::{Reference, Resolver};

use crate::attention::{Removal, Selection};
use crate::prompt::Region;
use crate::quant::Quantiser;
use crate::spelled::spelled;
use serde::{Deserialize, Serialize};
use std::fmt;
use strum::{IntoStaticStr, VariantArray};

/// The name of the untreated pass.
pub const UNTREATED: &str = "none";

/// One thing that is done to the attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The logits of every map are rounded before its softmax.
    Quantise {
        /// Bits and scope.
        quantiser: Quantiser,
        /// Whether sinks found in the baseline pass keep their logits.
        exempt_sinks: bool,
    },
    /// Rows lose keys.
    Remove {
        /// Whether what is left is renormalised.
        how: Removal,
        /// Which keys.
        keys: Keys,
        /// Of which layers and heads.
        of: Selection,
        /// Which rows.
        rows: Rows,
    },
    /// What heads write is replaced: their contribution to the layer's output, after their norm.
    Replace {
        /// Whether it is that of the others.
        others: bool,
        /// Which heads.
        heads: Heads,
        /// Of these only those of these layers and indices.
        of: Selection,
        /// Which rows.
        rows: Rows,
        /// Whether by zeros, rather than by the mean over reference prompts.
        zero: bool,
    },
}

/// Keys of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All of these regions, in the order of [`Region::ALL`].
    Regions(Vec<Region>),
    /// So many of the context, which is all before the question but BOS.
    Random(usize),
    /// As many of the context as these regions have.
    RandomLike(Vec<Region>),
}

/// Rows that are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Rows {
    /// Those that predict the tokens of an answer; of plain text those that are measured.
    #[default]
    Answer,
    /// All from the beginning of the question on.
    Question,
    /// All.
    All,
}

/// Heads of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heads {
    /// All of them.
    All,
    /// These, as (layer, head).
    Named(Vec<(usize, usize)>),
    /// The best of a ranking.
    Best {
        /// How many.
        n: usize,
        /// By what.
        by: Ranking,
    },
    /// Drawn at random from the layers of the best: as many of each.
    Random {
        /// How many.
        n: usize,
        /// By what the others are the best.
        by: Ranking,
        /// Which draw.
        draw: u64,
    },
}

/// What heads are ranked by, on reference prompts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Ranking {
    /// The answer's share of what the head writes.
    ShareOut,
    /// The answer's share of |attention|.
    ShareAbs,
    /// What the head writes of the answer, as it moves the right token's logit.
    LogitOut,
    /// How often the key with the largest weight is the needle's token that is copied.
    Retrieval,
}

impl Rows {
    /// Their name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Ranking {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The metric and region of the records that it reads.
    pub fn metric(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::ShareOut | Self::ShareAbs | Self::LogitOut => (self.name(), Some("answer")),
            Self::Retrieval => ("retrieval_score", None),
        }
    }
}

/// A list of treatments, none of them for the baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    treatments: Vec<Treatment>,
}

impl From<Treatment> for Condition {
    fn from(treatment: Treatment) -> Self {
        Self { treatments: vec![treatment] }
    }
}

impl Condition {
    /// Quantised logits and nothing else.
    pub fn quantised(quantiser: Quantiser, exempt_sinks: bool) -> Self {
        Treatment::Quantise { quantiser, exempt_sinks }.into()
    }

    /// What is done, in order.
    pub fn treatments(&self) -> &[Treatment] {
        &self.treatments
    }

    /// Whether nothing is done.
    pub fn is_untreated(&self) -> bool {
        self.treatments.is_empty()
    }

    /// The value of the `condition` column: its name; nothing for the untreated pass.
    pub fn column(&self) -> Option<String> {
        (!self.is_untreated()).then(|| self.to_string())
    }

    /// Its quantiser, and whether sinks are exempt from it.
    pub fn quantiser(&self) -> Option<(Quantiser, bool)> {
        self.treatments.iter().find_map(|treatment| match treatment {
            Treatment::Quantise { quantiser, exempt_sinks } => Some((*quantiser, *exempt_sinks)),
            _ => None,
        })
    }

    /// The value of the `bits` column; nothing without quantisation.
    pub fn bits(&self) -> Option<u32> {
        self.quantiser().map(|(quantiser, _)| quantiser.bits)
    }

    /// The value of the `scope` column; nothing without quantisation.
    pub fn scope(&self) -> Option<String> {
        let (quantiser, exempt_sinks) = self.quantiser()?;
        let scope = quantiser.scope.name();
        Some(if exempt_sinks { format!("{scope}{EXEMPT}") } else { scope.to_owned() })
    }

    /// What its heads are ranked by.
    pub fn rankings(&self) -> impl Iterator<Item = Ranking> + '_ {
        self.treatments.iter().filter_map(|treatment| match treatment {
            Treatment::Replace { heads: Heads::Best { by, .. } | Heads::Random { by, .. }, .. } => Some(*by),
            _ => None,
        })
    }

    /// Whether it needs to know what heads write on reference prompts, or how they rank there.
    pub fn needs_reference(&self) -> bool {
        let means = |treatment: &Treatment| matches!(treatment, Treatment::Replace { zero: false, .. });
        self.treatments.iter().any(means) || self.rankings().next().is_some()
    }
}

/// What the `scope` column says besides where sinks are exempt.
const EXEMPT: &str = "-exempt-sinks";

/// The condition of records written before there was a column for it: all it could be was quantised.
pub fn of_columns(bits: Option<u32>, scope: Option<&str>) -> Option<String> {
    let (bits, scope) = (bits?, scope?);
    let (scope, exempt) = scope.strip_suffix(EXEMPT).map_or((scope, ""), |scope| (scope, ", exempt-sinks"));
    Some(format!("quantise({bits}, {scope}{exempt})"))
}

/// Regions as names write them.
fn regions_name(regions: &[Region]) -> String {
    if regions == Region::NOISE {
        return "noise".to_owned();
    }
    regions.iter().map(|region| region.name()).collect::<Vec<_>>().join("+")
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regions(regions) => f.write_str(&regions_name(regions)),
            Self::Random(n) => write!(f, "random:{n}"),
            Self::RandomLike(regions) => write!(f, "random:{}", regions_name(regions)),
        }
    }
}

impl fmt::Display for Heads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(heads) => {
                let names: Vec<String> = heads.iter().map(|(layer, head)| format!("{layer}.{head}")).collect();
                f.write_str(&names.join("+"))
            }
            Self::Best { n, by } => write!(f, "best:{n}:{}", by.name()),
            Self::Random { n, by, draw } => write!(f, "random:{n}:{}:{draw}", by.name()),
        }
    }
}

/// `, layers=0+2, heads=1, rows=all`, as far as it is not what it is by default.
fn scope_name(of: &Selection, rows: Rows) -> String {
    let list = |name: &str, numbers: &Option<Vec<usize>>| {
        let joined = |numbers: &Vec<usize>| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        numbers.as_ref().map_or_else(String::new, |numbers| format!(", {name}={}", joined(numbers)))
    };
    let rows = if rows == Rows::default() { String::new() } else { format!(", rows={}", rows.name()) };
    format!("{}{}{rows}", list("layers", &of.layers), list("heads", &of.heads))
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantise { quantiser, exempt_sinks } => {
                let exempt = if *exempt_sinks { ", exempt-sinks" } else { "" };
                write!(f, "quantise({}, {}{exempt})", quantiser.bits, quantiser.scope.name())
            }
            Self::Remove { how, keys, of, rows } => {
                let kind = if *how == Removal::Mask { "mask" } else { "silence" };
                write!(f, "{kind}({keys}{})", scope_name(of, *rows))
            }
            Self::Replace { others, heads, of, rows, zero } => {
                let kind = if *others { "keep" } else { "ablate" };
                let zero = if *zero { ", zero" } else { "" };
                write!(f, "{kind}({heads}{}{zero})", scope_name(of, *rows))
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.treatments.iter().map(ToString::to_string).collect();
        f.write_str(if names.is_empty() { UNTREATED } else { "" })?;
        f.write_str(&names.join("; "))
    }
}

spelled!(Condition);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_old_files_give_the_name_that_is_written_today() {
        for name in ["quantise(4, tensor)", "quantise(8, head, exempt-sinks)"] {
            let condition: Condition = name.parse().unwrap();
            assert_eq!(of_columns(condition.bits(), condition.scope().as_deref()).as_deref(), Some(name));
        }
        assert_eq!(of_columns(None, None), None);
    }
}
