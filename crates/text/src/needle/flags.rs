//! Needle prompts as flags and as keys of experiment files.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::form::{NeedleCounts, NeedleForm, CITIES, FILE, QUESTION};
use super::question::{OwnText, OWN_TEXT};
use super::NeedleSpec;
use crate::CitySet;
use base::bail_usage;
use base::spec_file::{flag_defaults, is_default};
use base::FileName;
use names::values::TokenRange;
use names::{repeated, serde_as_str};

/// Needle prompts. What is not given depends on the command, which [fills](NeedlePrompts::fill) it in.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Prompts")]
pub struct NeedlePrompts {
    /// Prompt lengths in tokens: a number, a list (1k,4k), or a range with a step (1k..4k:1k)
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", conflicts_with = "question")]
    pub ctx: Vec<TokenRange>,
    /// Needles in the text (N in tables)
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with_all = OWN_TEXT)]
    pub needles: Vec<usize>,
    /// Needles asked for (R in tables): one value for each of --needles, or one for all
    #[arg(long, value_delimiter = ',', value_name = "R", conflicts_with_all = OWN_TEXT, hide_short_help = true)]
    pub retrieve: Vec<usize>,
    /// Depths in the text at which the needle stands, in percent
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,25,50,75,100",
        value_name = "PCT",
        value_parser = names::values::percent,
        conflicts_with_all = OWN_TEXT,
        hide_short_help = true,
    )]
    pub depths: Vec<f64>,
    /// Prompts for each depth, or windows of a text
    #[arg(long, value_name = "N", conflicts_with = "question")]
    pub samples: Option<usize>,
    /// Base seed of the prompts
    #[arg(long, default_value_t = 0, value_parser = names::values::seed, hide_short_help = true)]
    pub seed: u64,
    /// Filler text instead of the embedded prose: a UTF-8 file or a folder of them; `noise`, a few sentences repeated;
    /// `needles`, only distractors
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(
        long,
        value_name = "prose|noise|needles|FILE|DIR",
        value_parser = FileName,
        conflicts_with_all = OWN_TEXT,
        hide_short_help = true,
    )]
    pub haystack: Option<PathBuf>,
    /// Share of the context that further needles fill, which are not asked for (5%); a list measures each value
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_delimiter = ',', value_name = "PCT%", conflicts_with_all = OWN_TEXT, hide_short_help = true)]
    pub distractors: Vec<ContextShare>,
    /// File of JSON objects, or a CSV: `needle`, `question`, `answer` (a part of the needle) and optionally `lead` (the
    /// beginning of the reply, which the answer follows) and `distractor`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(
        long,
        value_name = "FILE.jsonl",
        value_parser = FileName,
        conflicts_with = "distractors",
        conflicts_with_all = OWN_TEXT,
        hide_short_help = true,
    )]
    pub needles_file: Option<PathBuf>,
    /// Task of RULER, with its texts, names, values and haystack
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(
        long,
        value_enum,
        conflicts_with_all = ["needles", "retrieve", "distractors", "needles_file"],
        conflicts_with_all = OWN_TEXT,
        hide_short_help = true,
    )]
    pub task: Option<&'static NeedleForm>,
    #[serde(skip_serializing_if = "is_default")]
    #[command(flatten)]
    pub own: OwnText,
    /// `true` to ask every question besides about other names, which the text does not have.
    #[serde(skip)]
    #[arg(skip)]
    pub unanswerable: bool,
}

impl Default for NeedlePrompts {
    fn default() -> Self {
        flag_defaults()
    }
}

/// The prompts of a command if its flags say nothing else. Where everything or nothing is answered, nothing can be seen: built-in
/// models, which answer all of a few needles, are asked with more than others, of 135M parameters and more.
pub struct PromptDefaults {
    /// Tokens of a prompt, unless a model's context is shorter.
    pub ctx_tok: usize,
    /// Prompts per depth.
    pub samples: usize,
    /// Asks built-in models with each number of [`NEEDLES`](Self::NEEDLES), instead of the largest.
    pub each: bool,
}

impl PromptDefaults {
    /// Numbers of needles in prompts of built-in models, as far as there is room for them.
    pub const NEEDLES: [usize; 4] = [4, 12, 24, 40];

    /// Numbers of needles in prompts of other models, and of those asked for.
    pub const OTHERS: NeedleCounts = NeedleCounts { needles: 4, asked: 2 };

    /// Tokens of a prompt for each of its needles.
    const NEEDLE_TOK: usize = 25;

    /// Those of some numbers of needles that a prompt has room for; the first in any case.
    pub fn with_room(numbers: &[usize], ctx_tok: usize) -> Vec<usize> {
        let has_room = |needles: &usize| *needles == numbers[0] || needles * Self::NEEDLE_TOK <= ctx_tok;
        numbers.iter().copied().filter(has_room).collect()
    }

    /// The numbers of needles in prompts of this length, for built-in models or others.
    pub fn settings(&self, are_built_in: bool, ctx_tok: usize) -> Vec<NeedleCounts> {
        if !are_built_in {
            return vec![Self::OTHERS];
        }
        let mut counts = Self::with_room(&Self::NEEDLES, ctx_tok);
        if !self.each {
            counts.drain(..counts.len() - 1);
        }
        counts.into_iter().map(|needles| NeedleCounts { needles, asked: 2 }).collect()
    }
}

/// A share of the context, in percent: `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextShare(f64);

serde_as_str!(ContextShare);

impl FromStr for ContextShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.strip_suffix('%').and_then(|share| share.parse().ok());
        share
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a share such as 5%; numbers of needles are for --needles"))
    }
}

impl fmt::Display for ContextShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl NeedlePrompts {
    /// Fills in the numbers of needles and of prompts that were not given.
    ///
    /// # Errors
    /// Usage errors if numbers do not go together.
    pub fn fill(&mut self, defaults: &PromptDefaults, are_built_in: bool) -> Result<()> {
        self.samples.get_or_insert(if self.own.is_asked() { 1 } else { defaults.samples });
        self.depths.retain(|_| !self.own.is_asked()); // the answer is where it is
        let shortest = self.ctx_tok().into_iter().min().unwrap_or(defaults.ctx_tok);
        let settings = self.pairs(&defaults.settings(are_built_in, shortest))?;
        self.needles = settings.iter().map(|counts| counts.needles).collect();
        self.retrieve = settings.iter().map(|counts| counts.asked).collect();
        Ok(())
    }

    /// The numbers of needles that the flags mean.
    fn pairs(&self, default: &[NeedleCounts]) -> Result<Vec<NeedleCounts>> {
        let asked = match (&*self.needles, &*self.retrieve) {
            ([], []) => {
                return Ok(match self.task {
                    Some(task) => vec![task.setting],
                    None if self.needles_file.is_some() || !self.distractors.is_empty() || self.own.is_asked() => {
                        vec![NeedleCounts { needles: 1, asked: 1 }]
                    }
                    None => default.to_vec(),
                })
            }
            (needles, []) if self.needles_file.is_some() => vec![1; needles.len()],
            (needles, []) => needles.iter().map(|&n| n.min(2)).collect(),
            ([], _) => bail_usage!("--retrieve needs --needles"),
            (needles, &[asked]) => vec![asked; needles.len()],
            (needles, asked) if needles.len() == asked.len() => asked.to_vec(),
            (needles, retrieve) => bail_usage!(
                "--needles has {} values and --retrieve {}; they go in pairs: give as many of both, or one of --retrieve",
                needles.len(),
                retrieve.len()
            ),
        };
        Ok(counts(&self.needles, &asked))
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> Vec<usize> {
        self.ctx.iter().flat_map(|range| range.counts()).collect()
    }

    /// Prompts per depth.
    pub fn samples(&self) -> usize {
        self.samples.unwrap_or(1)
    }

    /// Numbers of needles.
    pub fn settings(&self) -> Vec<NeedleCounts> {
        counts(&self.needles, &self.retrieve)
    }

    /// Form of the needles.
    pub fn form(&self) -> &'static NeedleForm {
        match (self.task, &self.needles_file) {
            (Some(task), _) => task,
            (None, Some(_)) => &FILE,
            (None, None) if self.own.is_asked() => &QUESTION,
            (None, None) => &CITIES,
        }
    }

    /// Shares of the context that distractors fill, in percent; 0 if none is given.
    pub fn shares(&self) -> Vec<f64> {
        match self.distractors[..] {
            [] => vec![0.0],
            ref shares => shares.iter().map(|share| share.0).collect(),
        }
    }

    /// The spec of every prompt that has an answer, in order.
    pub fn specs(&self) -> Vec<NeedleSpec> {
        let form = self.form();
        let cities = CitySet::Train;
        let mut specs = Vec::new();
        for distractors_pct in self.shares() {
            for NeedleCounts { needles, asked: retrieve } in self.settings() {
                for ctx_tok in self.ctx_tok() {
                    for &depth_pct in &self.depths {
                        specs.push(NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities, form, distractors_pct });
                    }
                }
            }
        }
        specs
    }

    pub fn check(&self) -> Result<()> {
        self.own.check()?;
        if !self.distractors.is_empty() && !self.form().has_cities() {
            bail_usage!("--distractors adds needles about cities; leave --task and --needles-file out");
        }
        if let Some(NeedleForm { name, setting, .. }) = self.task {
            if self.settings() != [*setting] || self.needles_file.is_some() {
                let NeedleCounts { needles, asked } = setting;
                bail_usage!("--task {name} has --needles {needles}, --retrieve {asked} and its own needles; leave these flags out");
            }
        }
        if let Some(share) = repeated(&self.shares()) {
            bail_usage!("--distractors {share}% is named twice");
        }
        for spec in self.specs().into_iter().filter(|_| self.samples() > 0) {
            spec.check()?;
            if self.unanswerable {
                NeedleSpec { cities: CitySet::Absent, ..spec }.check()?;
            }
        }
        Ok(())
    }
}

/// Numbers of needles in the text, each with the number of those asked for.
fn counts(needles: &[usize], asked: &[usize]) -> Vec<NeedleCounts> {
    needles.iter().zip(asked).map(|(&needles, &asked)| NeedleCounts { needles, asked }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grid, PromptSpec};

    fn needles(needles: &[usize], distractors: &[&str]) -> NeedlePrompts {
        NeedlePrompts {
            ctx: vec![512.into()],
            needles: needles.to_vec(),
            retrieve: vec![1; needles.len()],
            depths: vec![0.0, 50.0],
            samples: Some(3),
            distractors: distractors.iter().map(|text| text.parse().unwrap()).collect(),
            seed: 5,
            ..NeedlePrompts::default()
        }
    }

    #[test]
    fn prompts_without_an_answer_come_last_and_have_the_seeds_of_their_twins() {
        let answerable = Grid::Needle(needles(&[2], &[])).prompts();
        let grid = Grid::Needle(NeedlePrompts { unanswerable: true, ..needles(&[2], &[]) });
        let prompts = grid.prompts();
        assert_eq!((prompts.len(), grid.count()), (12, Some(12)));
        for (prompt, there) in prompts.iter().zip(&answerable) {
            assert_eq!((prompt.index, &prompt.spec, prompt.seed(5)), (there.index, &there.spec, there.seed(5)));
        }
        for (prompt, twin) in prompts[6..].iter().zip(&prompts) {
            let PromptSpec::Needle(spec) = &prompt.spec else { panic!("a needle") };
            let PromptSpec::Needle(other) = &twin.spec else { panic!("a needle") };
            assert_eq!((spec.cities, spec.depth_pct, prompt.seed(5)), (CitySet::Absent, other.depth_pct, twin.seed(5)));
            assert_eq!((prompt.twin, prompt.sample), (Some(twin.index), twin.sample));
        }
        assert!(prompts.iter().enumerate().all(|(i, prompt)| prompt.index == i as u64));
    }

    #[test]
    fn shares_of_distractors_are_compared_on_prompts_of_the_same_seeds() {
        let seeds = |distractors: &[&str]| -> Vec<u64> {
            let prompts = Grid::Needle(needles(&[1, 2], distractors)).prompts();
            prompts.iter().map(|prompt| prompt.seed(5)).collect()
        };
        assert_eq!(seeds(&["0%", "5%"]), [seeds(&[]), seeds(&[])].concat());
    }

    #[test]
    fn filled_in_prompts_are_what_flags_mean() {
        const ONE: NeedleCounts = NeedleCounts { needles: 1, asked: 1 };
        const FOUR: NeedleCounts = NeedleCounts { needles: 4, asked: 2 };
        let defaults = PromptDefaults { ctx_tok: 4096, samples: 7, each: true };
        let filled = |needles: &[usize], retrieve: &[usize], distractors: &[&str]| {
            let mut prompts =
                NeedlePrompts { retrieve: retrieve.to_vec(), samples: None, ..self::needles(needles, distractors) };
            prompts.fill(&defaults, false)?;
            let once = prompts.clone();
            prompts.fill(&defaults, false)?;
            assert_eq!(prompts, once, "filled in once more, nothing changes");
            assert_eq!(prompts.samples(), 7);
            anyhow::Ok(prompts.settings())
        };
        assert_eq!(filled(&[], &[], &[]).unwrap(), [FOUR]);
        assert_eq!(filled(&[1, 4], &[], &[]).unwrap(), [ONE, FOUR]);
        assert_eq!(filled(&[4, 6], &[3], &[]).unwrap(), [4, 6].map(|needles| NeedleCounts { needles, asked: 3 }));
        assert_eq!(filled(&[], &[], &["1%", "3%"]).unwrap(), [ONE]);
        for (needles, retrieve, words) in
            [(vec![], vec![2], "--retrieve needs --needles"), (vec![1, 2, 3], vec![1, 2], "they go in pairs")]
        {
            let error = filled(&needles, &retrieve, &[]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn built_in_models_are_asked_with_as_many_needles_as_there_is_room_for() {
        let needles = |each, ctx_tok| {
            let defaults = PromptDefaults { ctx_tok: 1024, samples: 1, each };
            let settings = defaults.settings(true, ctx_tok).into_iter();
            settings.map(|counts| (counts.needles, counts.asked)).collect::<Vec<_>>()
        };
        assert_eq!(needles(true, 4096), [(4, 2), (12, 2), (24, 2), (40, 2)]);
        assert_eq!(
            (needles(false, 1024), needles(false, 512), needles(false, 128)),
            (vec![(40, 2)], vec![(12, 2)], vec![(4, 2)])
        );
    }
}
