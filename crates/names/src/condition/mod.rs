//! Treatments of a model's attention during a measurement, identified by name.
//!
//! A [`Condition`] is a list of [`Treatment`]s, and its name states all of them: the same name is the same condition in
//! any run. Experiment files, the `condition` column and tables use these names:
//!
//! ```text
//! condition  none | TREATMENT; TREATMENT; …
//! treatment  quantise(BITS, SCOPE [, exempt-sinks] [, layers=0+2])         logits; SCOPE tensor, head or row
//!            quantise-qk(BITS|fp8|nvfp4|mxfp4, SCOPE [, smooth] [, rotate] [, exempt-sinks] [, layers=0+2])
//!                                                         queries and keys; SCOPE block, token or head
//!            mask(KEYS [, layers=0+2] [, heads=1] [, rows=ROWS])      logits -inf in every map, rows renormalised
//!            silence(KEYS [, layers=…] [, heads=…] [, rows=ROWS])     weights 0 after the softmax, not renormalised
//!            silence(KEYS, map=2 [, …])                                the same in the second map: they are not subtracted
//!            ablate(HEADS [, layers=…] [, heads=…] [, rows=ROWS] [, zero])   outputs of these heads replaced by means
//!            keep(HEADS [, …])                                               outputs of all other heads replaced
//!            patch(HEADS [, layers=…] [, heads=…] [, rows=ROWS], from=PROMPT)     outputs of these heads taken from a pass
//!                over the other of two prompts that differ in the answer alone
//! keys       regions joined by "+": bos first template filler distractor needle answer question; noise for
//!            template+filler+distractor; random:20 for 20 keys of the context drawn by the prompt's seed, random:noise
//!            for as many as noise has
//! prompt     corrupted: the outputs of these heads on a prompt with another answer, put into the pass over the prompt
//!            itself, the clean one (noising); clean: the other way round (denoising)
//! heads      all | none (of patch) | LAYER.HEAD+LAYER.HEAD+… | best:N:RANKING | random:N:RANKING:DRAW (as many
//!            others, as many per layer as the best N as far as layers have others; no draw comes twice)
//! rows       answer (those that predict an answer; the default) | question (all from the question on) | all; of the answer's
//!            needle: needle (without its value) | value; context (all others before the question) | asking (from the question
//!            on, those that predict no answer)
//! ```
//!
//! `none` is the untreated pass, the baseline of all others. Its value in the column is missing.
//!
//! Regions are those of the question that a row answers. In rows
//! that answer no question, all needles asked for count as the answer's.

mod facts;
mod parse;
mod purpose;
mod quantiser;
mod words;

pub use facts::{ConditionFacts, Conditions, Purpose};
pub use quantiser::{Format, Quantised, Quantiser, Scope};
pub use words::condition_words;

use crate::metric::{Metric, ANSWER_REGION, HEAD_ATTRIBUTION, RETRIEVAL_SCORE, SHARE_ABS, SHARE_OUT};
use crate::{joined, serde_as_str, HeadPlace, LayersAndHeads, Region};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use strum::{IntoStaticStr, VariantArray};

/// The name of the untreated passes, whose records have no condition.
pub const UNTREATED: &str = "none";

/// A treatment as `difftool explain` has it.
pub struct TreatmentForm {
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    pub meaning: &'static str,
}

/// The treatments that conditions are made of, in the order in which errors list them.
pub const TREATMENT_FORMS: [TreatmentForm; 7] = [
    TreatmentForm {
        name: "quantise",
        form: "quantise(BITS, tensor|head|row [, exempt-sinks] [, layers=0+2])",
        meaning: "Attention logits are rounded to so many bits, with one scale for a tensor, a head or a row.",
    },
    TreatmentForm {
        name: "quantise-qk",
        form: "quantise-qk(BITS|fp8|nvfp4|mxfp4, block|token|head [, smooth] [, rotate] [, exempt-sinks] [, layers=0+2])",
        meaning: "Queries and keys are rounded before their product.",
    },
    TreatmentForm {
        name: "mask",
        form: "mask(KEYS [, layers=0+2] [, heads=1] [, rows=answer|question|all])",
        meaning: "Logits of the keys become -inf in every map, and the rest of each row is scaled up: rows do not see them.",
    },
    TreatmentForm {
        name: "silence",
        form: "silence(KEYS [, map=2] [, layers=0+2] [, heads=1] [, rows=answer|question|all])",
        meaning: "Weights of the keys become 0 after the softmax, and nothing is scaled; with map=2 in the second map alone, so that \
                  they are not subtracted.",
    },
    TreatmentForm {
        name: "ablate",
        form: "ablate(HEADS [, layers=0+2] [, rows=answer|question|all] [, zero])",
        meaning: "Outputs of the heads become their means over reference prompts, or 0.",
    },
    TreatmentForm {
        name: "keep",
        form: "keep(HEADS [, layers=0+2] [, rows=answer|question|all] [, zero])",
        meaning: "Outputs of all other heads are replaced.",
    },
    TreatmentForm {
        name: "patch",
        form: "patch(HEADS [, layers=0+2] [, rows=…], from=corrupted|clean)",
        meaning: "Outputs of the heads are taken from a pass over the other of two prompts that differ in the answer alone.",
    },
];

/// Way in which keys are removed from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Logits become -inf in every map, so that each map is renormalised as if the keys did not exist. They do not count
    /// for scales of quantised logits. A row keeps its own key.
    Mask,
    /// Weights become 0 in every map after its softmax, and in the mixture, without renormalisation.
    Silence,
    /// Weights of the second map become 0 after its softmax, without renormalisation: the first map is not reduced there.
    SilenceSecond,
}

/// The selection of no heads in `patch`.
const NO_HEADS: &str = "none";

/// One treatment of the attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Rounds numbers of every map.
    Quantise(Quantiser),
    /// Removes keys from rows.
    Remove {
        how: Removal,
        /// The removed keys.
        keys: KeySelection,
        /// Affected layers and heads.
        of: LayersAndHeads,
        /// Affected rows.
        rows: RowSelection,
    },
    /// Replaces the outputs of heads, after their norm.
    Replace {
        /// `true` if the selected heads are kept and all others replaced.
        others: bool,
        /// The selected heads.
        heads: HeadSelection,
        /// Restriction of the replaced heads to these layers and indices.
        of: LayersAndHeads,
        /// Affected rows.
        rows: RowSelection,
        with: Replacement,
    },
}

impl Treatment {
    /// Its name, one of [`TREATMENT_FORMS`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::Quantise(Quantiser { of: Quantised::Logits, .. }) => "quantise",
            Self::Quantise(Quantiser { of: Quantised::Qk, .. }) => "quantise-qk",
            Self::Remove { how: Removal::Mask, .. } => "mask",
            Self::Remove { how: Removal::Silence | Removal::SilenceSecond, .. } => "silence",
            Self::Replace { with: Replacement::Patch(_), .. } => "patch",
            Self::Replace { others: true, .. } => "keep",
            Self::Replace { others: false, .. } => "ablate",
        }
    }

    /// Removes keys from rows of all heads.
    pub fn remove(how: Removal, keys: KeySelection, rows: RowSelection) -> Self {
        Self::Remove { how, keys, of: LayersAndHeads::default(), rows }
    }

    /// Replaces the outputs of heads in rows.
    pub fn replace(heads: HeadSelection, rows: RowSelection, with: Replacement) -> Self {
        Self::Replace { others: false, heads, of: LayersAndHeads::default(), rows, with }
    }

    fn patches_no_head(&self) -> bool {
        match self {
            Self::Replace { with: Replacement::Patch(_), heads: HeadSelection::Named(heads), .. } => heads.is_empty(),
            _ => false,
        }
    }

    /// This treatment, restricted to one layer.
    pub fn in_layer(mut self, layer: usize) -> Self {
        let (Self::Quantise(Quantiser { layers, .. })
        | Self::Remove { of: LayersAndHeads { layers, .. }, .. }
        | Self::Replace { of: LayersAndHeads { layers, .. }, .. }) = &mut self;
        *layers = Some(vec![layer]);
        self
    }
}

/// Replacement of the output of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Its mean over reference prompts.
    Mean,
    /// Zero.
    Zero,
    /// The head's output in the same row of an untreated pass over this prompt. The treated pass reads the other one
    /// (activation patching).
    Patch(PairedPrompt),
}

/// One of two prompts that differ in the answer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum PairedPrompt {
    /// The prompt itself.
    Clean,
    /// The prompt with another answer.
    Corrupted,
}

/// Selection of keys in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySelection {
    /// All keys of these regions, in the order of [`Region::ALL`].
    Regions(Vec<Region>),
    /// A number of random keys of the context, which is everything before the question except the first token.
    Random(usize),
    /// As many random keys of the context as these regions have.
    RandomLike(Vec<Region>),
}

/// Selection of the treated rows.
#[derive(
    Clone,
    Copy,
    Debug,
    ValueEnum,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RowSelection {
    /// Rows that predict the tokens of an answer
    #[default]
    Answer,
    /// Rows from the beginning of the question on
    Question,
    /// All rows
    All,
    /// Rows of the answer's needle but its value
    Needle,
    /// Rows of the value in the answer's needle
    Value,
    /// All other rows before the question
    Context,
    /// Rows from the beginning of the question on that predict no answer
    Asking,
}

/// Selection of heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadSelection {
    /// All heads.
    All,
    /// These.
    Named(Vec<HeadPlace>),
    /// The best heads of a ranking.
    Best {
        /// Number of heads.
        n: usize,
        /// Ranking.
        by: Ranking,
    },
    /// Random heads other than the best of a ranking, as many in each layer as far as it has others; no draw comes twice.
    Random {
        /// Number of heads.
        n: usize,
        /// Ranking of the best heads.
        by: Ranking,
        /// Index of the draw.
        draw: u64,
    },
}

/// Ranking of heads, measured on reference prompts.
#[derive(
    Clone,
    Copy,
    Debug,
    ValueEnum,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Ranking {
    /// What the answer's log-probability loses with the head's mean output, in nats: exactly, by a pass for each head
    Cost,
    /// Share of the head's output from the answer
    ShareOut,
    /// Share of |attention| on the answer
    ShareAbs,
    /// Estimate of what the answer's log-probability loses with the head's mean output, in nats
    Attribution,
    /// How often the key with the largest weight is the needle's token to be copied
    Retrieval,
}

impl PairedPrompt {
    /// Name in conditions.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl RowSelection {
    /// Name in conditions.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Ranking {
    /// Name in conditions.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Metric and region of the records with these scores; `None` for costs, which take passes of their own.
    pub fn metric(self) -> Option<(Metric, Option<&'static str>)> {
        match self {
            Self::Cost => None,
            Self::ShareOut => Some((SHARE_OUT, Some(ANSWER_REGION))),
            Self::ShareAbs => Some((SHARE_ABS, Some(ANSWER_REGION))),
            Self::Attribution => Some((HEAD_ATTRIBUTION, None)),
            Self::Retrieval => Some((RETRIEVAL_SCORE, None)),
        }
    }
}

/// A list of treatments, empty for the baseline.
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
    /// The treatments, in order.
    pub fn treatments(&self) -> &[Treatment] {
        &self.treatments
    }

    pub fn is_untreated(&self) -> bool {
        self.treatments.is_empty()
    }

    /// Value of the `condition` column: the name, or `None` for the untreated pass.
    pub fn column(&self) -> Option<String> {
        (!self.is_untreated()).then(|| self.to_string())
    }

    /// The first quantiser.
    pub fn quantiser(&self) -> Option<&Quantiser> {
        self.treatments.iter().find_map(|treatment| match treatment {
            Treatment::Quantise(quantiser) => Some(quantiser),
            _ => None,
        })
    }

    /// Returns `true` if a quantiser exempts sinks.
    pub fn exempts_sinks(&self) -> bool {
        self.treatments.iter().any(|treatment| matches!(treatment, Treatment::Quantise(by) if by.exempt_sinks))
    }

    /// Value of the `bits` column; `None` without quantisation.
    pub fn bits(&self) -> Option<u32> {
        self.quantiser().map(|quantiser| quantiser.format.bits())
    }

    /// Value of the `scope` column; `None` without quantisation.
    pub fn scope(&self) -> Option<String> {
        self.quantiser().map(|quantiser| quantiser.words().join("-"))
    }

    /// The rankings of the selected heads.
    pub fn rankings(&self) -> impl Iterator<Item = Ranking> + '_ {
        use HeadSelection::{Best, Random};
        self.treatments.iter().filter_map(|treatment| match treatment {
            Treatment::Replace { heads: Best { by, .. } | Random { by, .. }, .. } => Some(*by),
            _ => None,
        })
    }

    /// The prompts from which outputs of heads are taken, with the rows.
    pub fn patched_rows(&self) -> impl Iterator<Item = (PairedPrompt, RowSelection)> + '_ {
        self.treatments.iter().filter_map(|treatment| match treatment {
            Treatment::Replace { with: Replacement::Patch(from), rows, .. } => Some((*from, *rows)),
            _ => None,
        })
    }

    /// The prompt that the pass reads: the corrupted one if outputs are taken from the clean one.
    pub fn prompt(&self) -> PairedPrompt {
        match self.patched_rows().next() {
            Some((PairedPrompt::Clean, _)) => PairedPrompt::Corrupted,
            _ => PairedPrompt::Clean,
        }
    }

    /// Returns `true` if it is an untreated pass over the corrupted prompt: `patch(none, from=clean)`.
    pub fn only_corrupts(&self) -> bool {
        self.prompt() == PairedPrompt::Corrupted && self.treatments.iter().all(Treatment::patches_no_head)
    }

    /// Returns `true` if it needs mean outputs or rankings of heads from reference prompts.
    pub fn needs_reference(&self) -> bool {
        self.rankings().next().is_some()
            || self.treatments.iter().any(|by| matches!(by, Treatment::Replace { with: Replacement::Mean, .. }))
    }
}

/// Name of a list of regions.
fn regions_name(regions: &[Region]) -> String {
    match regions {
        noise if noise == Region::NOISE => return "noise".to_owned(),
        [Region::First, noise @ ..] if noise == Region::NOISE => return "first+noise".to_owned(),
        _ => {}
    }
    regions.iter().map(|region| region.name()).collect::<Vec<_>>().join("+")
}

impl fmt::Display for KeySelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regions(regions) => f.write_str(&regions_name(regions)),
            Self::Random(n) => write!(f, "random:{n}"),
            Self::RandomLike(regions) => write!(f, "random:{}", regions_name(regions)),
        }
    }
}

impl fmt::Display for HeadSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(heads) if heads.is_empty() => f.write_str(NO_HEADS),
            Self::Named(heads) => {
                let names: Vec<String> = heads.iter().map(ToString::to_string).collect();
                f.write_str(&names.join("+"))
            }
            Self::Best { n, by } => write!(f, "best:{n}:{}", by.name()),
            Self::Random { n, by, draw } => write!(f, "random:{n}:{}:{draw}", by.name()),
        }
    }
}

/// A setting if it is given: `, layers=0+2`.
fn list_name(name: &str, numbers: &Option<Vec<usize>>) -> String {
    numbers.as_ref().map_or_else(String::new, |numbers| format!(", {name}={}", joined(numbers)))
}

/// The settings that differ from the defaults: `, layers=0+2, heads=1, rows=all`.
fn scope_name(of: &LayersAndHeads, rows: RowSelection) -> String {
    let rows = if rows == RowSelection::default() { String::new() } else { format!(", rows={}", rows.name()) };
    format!("{}{}{rows}", list_name("layers", &of.layers), list_name("heads", &of.heads))
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantise(quantiser) => quantiser.fmt(f),
            Self::Remove { how, keys, of, rows } => {
                let map = if *how == Removal::SilenceSecond { ", map=2" } else { "" };
                write!(f, "{}({keys}{map}{})", self.name(), scope_name(of, *rows))
            }
            Self::Replace { heads, of, rows, with, .. } => {
                let with = match with {
                    Replacement::Mean => String::new(),
                    Replacement::Zero => ", zero".to_owned(),
                    Replacement::Patch(from) => format!(", from={}", from.name()),
                };
                write!(f, "{}({heads}{}{with})", self.name(), scope_name(of, *rows))
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

serde_as_str!(Condition);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_tell_quantised_logits_from_quantised_queries_and_keys() {
        for (name, bits, scope) in [
            ("quantise(4, row, layers=1+3)", 4, "row-layers-1+3"),
            ("quantise-qk(4, block)", 4, "qk-block"),
            ("quantise-qk(nvfp4, block)", 4, "qk-block-nvfp4"),
            (
                "mask(noise); quantise-qk(fp8, head, smooth, rotate, exempt-sinks, layers=0)",
                8,
                "qk-head-fp-smooth-rotate-exempt-sinks-layers-0",
            ),
        ] {
            let condition: Condition = name.parse().unwrap();
            assert_eq!((condition.bits(), condition.scope().as_deref()), (Some(bits), Some(scope)), "{name}");
        }
    }
}
