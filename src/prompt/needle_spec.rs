//! Specification of needle prompts.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::ruler::RulerTask;
use super::CitySet;
use crate::bail_usage;
use crate::spec_file::is_default;

/// Specification of a needle prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeedleSpec {
    /// Maximum length of the prompt in tokens. The filler ends within a sentence of it.
    pub ctx_tok: usize,
    /// Number of keys in the haystack (the paper's N); of chains, with `hops`.
    pub needles: usize,
    /// Number of keys asked for (the paper's R).
    pub retrieve: usize,
    /// Depth of the controlled needle, in percent of the filler's tokens: 0 before all filler, 100 after it.
    pub depth_pct: f64,
    /// Set of the keys, where these are cities.
    pub cities: CitySet,
    /// What needles say. Left out of the identity of a prompt where it is the default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub form: NeedleForm,
}

/// What the needles of a prompt say: special magic numbers of cities by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NeedleForm {
    /// The task of RULER whose texts and settings the prompt has.
    pub task: Option<RulerTask>,
    /// Kind of the keys.
    pub keys: KeyKind,
    /// Kind of the values.
    pub values: ValueKind,
    /// Needles of each key, each with another value.
    pub values_per_key: usize,
    /// Links of a chain: needles that give the value of another key to theirs. 0 for needles without chains.
    pub hops: usize,
    /// Share of the context that further distractors fill, in percent.
    pub distractors_pct: f64,
    /// Whether needles and questions are from a file.
    pub from_file: bool,
}

/// Kind of the keys of needles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum KeyKind {
    /// Names of cities.
    #[default]
    Cities,
    /// An adjective and a noun: `quiet-harbor`.
    Words,
    /// Random UUIDs.
    Uuid,
    /// Five capital letters: `QXVBA`.
    Variables,
}

/// Kind of the values of needles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ValueKind {
    /// Numbers of five digits; of seven in RULER's tasks.
    #[default]
    Digits,
    /// Random UUIDs.
    Uuid,
    /// An adjective and a noun: `quiet-harbor`.
    Words,
}

impl KeyKind {
    /// Name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl ValueKind {
    /// Name in files and flags.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Default for NeedleForm {
    fn default() -> Self {
        Self::NUMBERS_OF_CITIES
    }
}

/// Name of the task in records.
const TASK: &str = "needle";

impl NeedleForm {
    /// The default.
    pub const NUMBERS_OF_CITIES: Self = Self {
        task: None,
        keys: KeyKind::Cities,
        values: ValueKind::Digits,
        values_per_key: 1,
        hops: 0,
        distractors_pct: 0.0,
        from_file: false,
    };

    /// Returns whether keys are names of cities, which the embedded models have seen in training or not.
    pub fn has_cities(&self) -> bool {
        self.keys == KeyKind::Cities && !self.from_file
    }

    /// Number of answers to a question about one key.
    pub fn answers_per_key(&self) -> usize {
        self.values_per_key.max(self.hops + 1)
    }

    /// Name of the task in records: `needle`, `needle(keys=words, values=uuid)`, `niah_single_1`.
    pub fn name(&self) -> String {
        if let Some(task) = self.task {
            return task.name().to_owned();
        }
        let usual = Self::default();
        let mut settings = Vec::new();
        let mut note = |differs: bool, setting: String| settings.extend(differs.then_some(setting));
        note(self.from_file, "file".to_owned());
        note(self.keys != usual.keys, format!("keys={}", self.keys.name()));
        note(self.values != usual.values, format!("values={}", self.values.name()));
        note(self.values_per_key != 1, format!("values_per_key={}", self.values_per_key));
        note(self.hops > 0, format!("hops={}", self.hops));
        note(self.distractors_pct > 0.0, format!("distractors={}%", self.distractors_pct));
        if settings.is_empty() {
            TASK.to_owned()
        } else {
            format!("{TASK}({})", settings.join(", "))
        }
    }

    /// Checks the settings against each other.
    fn check(&self, spec: &NeedleSpec) -> Result<()> {
        if self.values_per_key == 0 {
            bail_usage!("`values_per_key` 0: every key needs a value");
        }
        if self.hops > 0 && self.values_per_key > 1 {
            bail_usage!("`values_per_key` {}: the keys of a chain (`hops`) have one value", self.values_per_key);
        }
        if self.hops > 0 && spec.retrieve > 1 {
            bail_usage!("`hops` {}: a question is about one chain, not {}", self.hops, spec.retrieve);
        }
        if self.hops > 0 && spec.cities == CitySet::Absent {
            bail_usage!("`hops` {}: a question about a chain always has an answer", self.hops);
        }
        if !(0.0..100.0).contains(&self.distractors_pct) {
            bail_usage!(
                "`distractors_pct` {}: a share of the context is at least 0 and below 100",
                self.distractors_pct
            );
        }
        if self.from_file && spec.retrieve > 1 {
            bail_usage!("`needles_file`: a prompt asks one question of the file, not {}", spec.retrieve);
        }
        let usual = Self { from_file: true, ..Self::default() };
        if self.from_file && *self != usual {
            bail_usage!("`needles_file`: keys, values and distractors are those of the file");
        }
        if self.from_file && spec.cities == CitySet::Absent {
            bail_usage!("`needles_file`: every question of the file has an answer in its needle");
        }
        Ok(())
    }
}

impl NeedleSpec {
    /// Returns whether records name the set of the keys: cities, or keys that are asked for but absent.
    pub fn names_cities(&self) -> bool {
        self.form.has_cities() || self.cities == CitySet::Absent
    }

    /// Checks what does not need a tokenizer. Inconsistencies are usage errors.
    pub fn check(&self) -> Result<()> {
        let known = self.cities.cities().len();
        if self.needles == 0 || self.retrieve == 0 {
            bail_usage!("a needle prompt needs at least one needle and one question");
        }
        if self.retrieve > self.needles {
            bail_usage!("cannot retrieve {} of {} needles", self.retrieve, self.needles);
        }
        self.form.check(self)?;
        let absent = if self.cities == CitySet::Absent { self.retrieve } else { 0 };
        let keys = self.needles.saturating_mul(self.form.hops + 1);
        if self.form.has_cities() && keys.saturating_add(absent) > known {
            let besides =
                if absent > 0 { format!(" besides {absent} that are asked for but absent") } else { String::new() };
            bail_usage!("{keys} needles need as many cities{besides}; there are {known}");
        }
        if !(0.0..=100.0).contains(&self.depth_pct) {
            bail_usage!("`depths_pct` {}: a depth is between 0 and 100 percent", self.depth_pct);
        }
        Ok(())
    }
}
