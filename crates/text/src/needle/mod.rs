//! Needle prompts: special magic numbers of cities hidden in a haystack, with questions about some of them.
//!
//! The protocol is that of the paper (multi-needle retrieval after LWM and Gemini 1.5), with needles in the published
//! form. It differs in three ways that make scores more meaningful: cities and values of a prompt are distinct, values
//! have five digits, and the prompt ends with the answers (teacher-forced), so that the rows which predict them can be
//! measured. Other forms of needles are in `form.rs`.

mod corrupted;
mod distractors;
pub mod facts;
pub mod file;
mod filler;
mod fit;
pub mod flags;
pub mod form;
mod layout;
mod place;
pub mod plan;
pub mod question;
#[cfg(test)]
pub(super) mod tests;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{CitySet, Haystack, NeedleForm, NeedlePrompts, NeedlesFile, Prompt, Tokenizer};
use base::bail_usage;
use fit::Builder;
use form::CITIES;
pub(crate) use place::led;
use plan::NeedlePlan;
use stats::Rng;

/// Specification of a needle prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeedleSpec {
    /// Maximum length of the prompt in tokens. The filler ends within a sentence of it.
    pub ctx_tok: usize,
    /// Number of names in the haystack (the paper's N); of chains, in variable tracking.
    pub needles: usize,
    /// Number of names asked for (the paper's R).
    pub retrieve: usize,
    /// Depth of the controlled needle, in percent of the filler's tokens: 0 before all filler, 100 after it.
    pub depth_pct: f64,
    /// Set of the names, where these are cities.
    pub cities: CitySet,
    /// Names and values, and the text around them.
    pub form: &'static NeedleForm,
    /// Share of the context that further distractors fill, in percent.
    pub distractors_pct: f64,
}

impl Default for NeedleSpec {
    /// One number of a training city in the middle of 1024 tokens.
    fn default() -> Self {
        Self {
            ctx_tok: 1024,
            needles: 1,
            retrieve: 1,
            depth_pct: 50.0,
            cities: CitySet::Train,
            form: &CITIES,
            distractors_pct: 0.0,
        }
    }
}

impl NeedleSpec {
    /// Name of the task in records.
    pub fn task(&self) -> String {
        self.form.task(self.distractors_pct)
    }

    /// Returns `true` if records say which set the names are of: cities, or names that are asked for but absent.
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
        if self.needles > self.ctx_tok {
            bail_usage!(
                "{} needles: a prompt of {} tokens (--ctx) has no room for as many",
                self.needles,
                self.ctx_tok
            );
        }
        if !(0.0..=100.0).contains(&self.depth_pct) {
            bail_usage!("a depth of {} percent: it is between 0 and 100", self.depth_pct);
        }
        if !(0.0..100.0).contains(&self.distractors_pct) {
            bail_usage!("--distractors {}: a share of the context is at least 0 and below 100", self.distractors_pct);
        }
        let is_absent = self.cities == CitySet::Absent;
        if self.form.has_cities() {
            let absent = if is_absent { self.retrieve } else { 0 };
            let needles = self.needles;
            let known = self.cities.cities().len();
            if needles.saturating_add(absent) > known {
                let besides = match absent {
                    0 => String::new(),
                    absent => format!(" besides {absent} that are asked for but absent"),
                };
                bail_usage!("{needles} needles need as many cities{besides}; there are {known}");
            }
        }
        if self.form.is_of_file() && self.retrieve > 1 {
            bail_usage!("--needles-file: a prompt asks one question of the file, not {}", self.retrieve);
        }
        if self.form.is_of_file() && is_absent {
            bail_usage!("--unanswerable: questions of --needles-file and --question have answers in the text");
        }
        if self.form.hops > 0 && is_absent {
            bail_usage!("--task {}: a question about a chain always has an answer", self.form.name);
        }
        Ok(())
    }
}

/// Sources of a prompt besides its spec and its seed.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    /// The filler.
    pub haystack: &'a Haystack,
    /// The needles, for specs whose needles are from a file.
    pub file: Option<&'a NeedlesFile>,
    pub tokenizer: &'a Tokenizer,
}

/// Builds the prompt of a seed, determined by spec, seed, tokenizer and haystack.
///
/// # Errors
/// Those of [`build_of`].
pub fn build(spec: &NeedleSpec, seed: u64, tokenizer: &Tokenizer, haystack: &Haystack) -> Result<Prompt> {
    build_of(spec, seed, Texts { haystack, file: None, tokenizer })
}

/// Builds the prompt of a seed, determined by spec, seed and texts.
///
/// # Errors
/// Usage errors if the spec is inconsistent or the haystack too short for the context.
/// [`TooShort`](base::error::TooShort) if the context has no room for the needles. An error with the name and the
/// seed if the tokenizer joins a value with its surroundings.
pub fn build_of(spec: &NeedleSpec, seed: u64, texts: Texts<'_>) -> Result<Prompt> {
    build_from(spec, seed, "needle", "prose", texts)
}

/// Like [`build_of`] with named streams of random numbers for needles and prose, so that training and evaluation never
/// share a prompt.
pub(super) fn build_from(spec: &NeedleSpec, seed: u64, needles: &str, prose: &str, texts: Texts<'_>) -> Result<Prompt> {
    spec.check()?;
    if texts.haystack.is_needles() && (spec.distractors_pct > 0.0 || spec.form.is_of_file()) {
        bail_usage!("--haystack needles: there is nothing but distractors; leave --distractors and --needles-file out");
    }
    let rng = Rng::new(seed, needles);
    let mut plan = match texts.file {
        Some(file) if spec.form.is_of_file() => file.plan(spec, rng)?,
        _ => NeedlePlan::draw(spec, rng),
    };
    if spec.cities == CitySet::Absent {
        plan.ask_for_absent(spec, Rng::new(seed, "absent"));
    }
    plan.example = example(spec, seed, texts)?;
    let reserved_tok = plan.reserved_tok(texts.tokenizer)?;
    let chat = texts.tokenizer.chat();
    let builder = Builder { plan: &plan, spec, texts, chat, reserved_tok };
    let (layout, encoded) = builder.fitted(Rng::new(seed, prose), Rng::new(seed, "distractors"))?;
    layout.prompt(&plan, encoded, texts.tokenizer).with_context(|| format!("prompt of seed {seed}"))
}

/// Writes the worked example before a prompt, with its answers; empty for forms without one.
fn example(spec: &NeedleSpec, seed: u64, texts: Texts<'_>) -> Result<String> {
    let ctx_tok = spec.form.example_tok;
    if ctx_tok == 0 {
        return Ok(String::new());
    }
    let spec = NeedleSpec { ctx_tok, needles: 1, retrieve: 1, ..spec.clone() };
    let plan = NeedlePlan::draw(&spec, Rng::new(seed, "example"));
    let builder = Builder { plan: &plan, spec: &spec, texts, chat: None, reserved_tok: 0 };
    let (layout, _) = builder.fitted(Rng::new(seed, "example prose"), Rng::new(seed, "example distractors"))?;
    Ok(layout.text + "\n\n")
}
