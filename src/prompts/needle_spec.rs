//! Specification of needle prompts.

use anyhow::Result;
use serde::Serialize;

use super::facts::{FactKinds, KeyKind, ValueKind};
use super::ruler::RulerTask;
use super::CitySet;
use crate::bail_usage;

/// Specification of a needle prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeedleSpec {
    /// Maximum length of the prompt in tokens. The filler ends within a sentence of it.
    pub ctx_tok: usize,
    /// Number of keys in the haystack (the paper's N); of chains, in variable tracking.
    pub needles: usize,
    /// Number of keys asked for (the paper's R).
    pub retrieve: usize,
    /// Depth of the controlled needle, in percent of the filler's tokens: 0 before all filler, 100 after it.
    pub depth_pct: f64,
    /// Set of the keys, where these are cities.
    pub cities: CitySet,
    /// Keys and values, and the text around them.
    pub form: NeedleForm,
}

/// Form of the needles of a prompt: keys and values, and the text around them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum NeedleForm {
    /// Special magic numbers of cities.
    Cities {
        /// Share of the context that further distractors fill, in percent.
        distractors_pct: f64,
    },
    /// Needles and questions of a file.
    File,
    /// A task of RULER, with its texts, keys and values.
    Ruler(RulerTask),
}

impl Default for NeedleForm {
    fn default() -> Self {
        Self::NUMBERS_OF_CITIES
    }
}

impl NeedleForm {
    /// The default: numbers of cities, without further distractors.
    pub const NUMBERS_OF_CITIES: Self = Self::Cities { distractors_pct: 0.0 };

    /// Returns whether keys are names of cities.
    pub fn has_cities(&self) -> bool {
        matches!(self, Self::Cities { .. })
    }

    /// Share of the context that further distractors fill, in percent.
    pub fn distractors_pct(&self) -> f64 {
        match *self {
            Self::Cities { distractors_pct } => distractors_pct,
            Self::File | Self::Ruler(_) => 0.0,
        }
    }

    /// Kinds of the keys and values.
    pub(super) fn kinds(&self) -> FactKinds {
        match self {
            Self::Ruler(task) => task.settings().kinds,
            Self::Cities { .. } | Self::File => {
                FactKinds { keys: KeyKind::Cities, values: ValueKind::Digits, values_per_key: 1, hops: 0 }
            }
        }
    }

    /// Name of the task in records: `needle`, `needle(distractors=5%)`, `niah_single_1`.
    pub fn name(&self) -> String {
        match *self {
            Self::Ruler(task) => task.name().to_owned(),
            Self::File => "needle(file)".to_owned(),
            Self::NUMBERS_OF_CITIES => "needle".to_owned(),
            Self::Cities { distractors_pct } => format!("needle(distractors={distractors_pct}%)"),
        }
    }
}

impl NeedleSpec {
    /// Returns whether records name the set of the keys: cities, or keys that are asked for but absent.
    pub fn names_cities(&self) -> bool {
        self.form.has_cities() || self.cities == CitySet::Absent
    }

    /// Checks what does not need a tokenizer. Inconsistencies are usage errors.
    pub fn check(&self) -> Result<()> {
        if self.needles == 0 || self.retrieve == 0 {
            bail_usage!("a needle prompt needs at least one needle and one question");
        }
        if self.retrieve > self.needles {
            bail_usage!("cannot retrieve {} of {} needles", self.retrieve, self.needles);
        }
        if !(0.0..=100.0).contains(&self.depth_pct) {
            bail_usage!("a depth of {} percent: it is between 0 and 100", self.depth_pct);
        }
        let is_absent = self.cities == CitySet::Absent;
        match self.form {
            NeedleForm::Cities { distractors_pct } => {
                let absent = if is_absent { self.retrieve } else { 0 };
                let (needles, known) = (self.needles, self.cities.cities().len());
                if needles.saturating_add(absent) > known {
                    let besides = match absent {
                        0 => String::new(),
                        absent => format!(" besides {absent} that are asked for but absent"),
                    };
                    bail_usage!("{needles} needles need as many cities{besides}; there are {known}");
                }
                if !(0.0..100.0).contains(&distractors_pct) {
                    bail_usage!("--distractors {distractors_pct}: a share of the context is at least 0 and below 100");
                }
            }
            NeedleForm::File if self.retrieve > 1 => {
                bail_usage!("--needles-file: a prompt asks one question of the file, not {}", self.retrieve)
            }
            NeedleForm::File if is_absent => {
                bail_usage!("--needles-file: every question of the file has an answer in its needle")
            }
            NeedleForm::Ruler(RulerTask::Vt) if is_absent => {
                bail_usage!("--task vt: a question about a chain always has an answer")
            }
            NeedleForm::File | NeedleForm::Ruler(_) => {}
        }
        Ok(())
    }
}
