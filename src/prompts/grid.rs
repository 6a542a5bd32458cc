//! The prompts of a run, as flags and as keys of experiment files. The number and the seed of a prompt depend on these
//! alone, not on shards.

use super::{
    needle, shots, CitySet, Haystack, Length, NeedleForm, NeedleSpec, NeedlesFile, Order, Prompt, RulerTask, ShotsSpec,
    Text, TokenIds, Tokenizer, Windows,
};
use crate::bail_usage;
use crate::base::names::repeated;
use crate::base::rng::{prompt_seed, Purpose};
use crate::base::serde_as_str::serde_as_str;
use crate::base::spec_file::flag_defaults;
use crate::base::values::{FileName, TokenRange};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The prompts of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Grid {
    /// Needles in haystacks.
    Needle(NeedlePrompts),
    /// Plain text.
    Text(TextWindows),
    /// Examples of a classification that is new in every prompt.
    Shots(ShotsPrompts),
}

/// Needle prompts. What is not given depends on the command, which [fills](NeedlePrompts::fill) it in.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Prompts")]
pub struct NeedlePrompts {
    /// Prompt lengths in tokens: a number, a list (1k,4k), or a range with a step (1k..4k:1k)
    #[arg(long, value_delimiter = ',', value_name = "TOKENS")]
    pub ctx: Vec<TokenRange>,
    /// Needles in the text (the paper's N)
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub needles: Vec<usize>,
    /// Needles asked for (the paper's R): one value for each of --needles, or one for all
    #[arg(long, value_delimiter = ',', value_name = "R")]
    pub retrieve: Vec<usize>,
    /// Depths of the needle in the text, in percent
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,75,100", value_name = "PCT")]
    pub depths: Vec<f64>,
    /// Number of prompts per depth, or of windows of text
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Base seed of the prompts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Filler text instead of the embedded prose: a UTF-8 file or a folder of them; `noise`, a few sentences repeated;
    /// `needles`, only distractors
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "prose|noise|needles|FILE|DIR", value_parser = FileName)]
    pub haystack: Option<PathBuf>,
    /// Needles that are not asked for: a number, or a share of the context with `%`; a list to compare
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_delimiter = ',', value_name = "N|PCT%")]
    pub distractors: Vec<Distractors>,
    /// File with one JSON object on each line: `needle`, `question`, `answer` (a part of the needle) and, if wanted,
    /// `distractor`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FILE.jsonl", value_parser = FileName, conflicts_with = "distractors")]
    pub needles_file: Option<PathBuf>,
    /// Task of RULER, with its texts, keys, values and haystack
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_enum, conflicts_with_all = ["needles", "retrieve", "distractors", "needles_file"])]
    pub task: Option<RulerTask>,
    /// `true` to ask every question besides about other keys, which the text does not have.
    #[serde(skip)]
    #[arg(skip)]
    pub unanswerable: bool,
}

impl Default for NeedlePrompts {
    fn default() -> Self {
        flag_defaults()
    }
}

/// What a command measures if nothing else is asked for.
pub struct PromptDefaults {
    /// Tokens of a prompt, unless a model's context is shorter.
    pub ctx_tok: usize,
    /// Pairs (needles in the text, needles asked for).
    pub settings: &'static [(usize, usize)],
    /// Prompts per depth.
    pub samples: usize,
}

/// Needles that are not asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distractors {
    /// So many.
    Needles(usize),
    /// As many as fill this share of the context, in percent.
    Percent(f64),
}

serde_as_str!(Distractors);

impl FromStr for Distractors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_suffix('%') {
            Some(share) => share.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Needles),
        };
        match parsed {
            Some(Self::Percent(share)) if !(0.0..100.0).contains(&share) => {
                Err(format!("{text}: a share of the context is at least 0% and below 100%"))
            }
            parsed => parsed.ok_or_else(|| format!("`{text}` is neither a number nor a share such as 5%")),
        }
    }
}

impl fmt::Display for Distractors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needles(n) => write!(f, "{n}"),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

/// Many-shot prompts: every prompt with each number of shots, in each order and arrangement.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ShotsPrompts {
    /// Numbers of examples
    #[arg(long, value_delimiter = ',', default_value = "8,16,32,64,128", value_name = "N")]
    pub shots: Vec<usize>,
    /// Number of words that are classified
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub words: usize,
    /// Number of classes, each with its own label
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub classes: usize,
    /// Orders of the examples
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random,by-class")]
    pub order: Vec<Order>,
    /// Arrangements of the examples for each prompt and order
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub arrangements: usize,
    /// Number of prompts, each with its own classification
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub samples: usize,
    /// Largest prompt length in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the prompts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl Default for ShotsPrompts {
    fn default() -> Self {
        flag_defaults()
    }
}

/// Windows of plain text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextWindows {
    /// Window lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Largest number of windows of each length; a text may be too short for as many.
    pub samples: usize,
    /// Tokens from the start of a window to that of the next, where windows overlap. Default: windows are side by side.
    pub stride: Option<usize>,
    /// Base seed.
    pub seed: u64,
    /// File with the text, in place of the embedded prose.
    #[serde(skip)]
    pub text: Option<PathBuf>,
    /// File with token ids, in place of a text.
    #[serde(skip)]
    pub ids: Option<PathBuf>,
}

/// A prompt of a grid that is yet to be built.
#[derive(Clone, Debug)]
pub struct GridPrompt {
    /// Number within the grid.
    pub index: u64,
    /// Number from which [`GridPrompt::seed`] is derived: the index, or that of a prompt with the same seed and another
    /// spec.
    pub seed_index: u64,
    /// Index of the prompt whose text this one has, with another question.
    pub twin: Option<u64>,
    /// Number among the prompts of the same spec.
    pub sample: u64,
    /// Contents of the prompt.
    pub spec: PromptSpec,
}

/// Contents of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PromptSpec {
    /// A needle prompt.
    Needle(NeedleSpec),
    /// A window of text.
    Text(Windows),
    /// A many-shot prompt.
    Shots(ShotsSpec),
}

impl PromptSpec {
    /// Length of the prompt, in tokens.
    pub fn ctx_tok(&self) -> usize {
        match self {
            Self::Needle(spec) => spec.ctx_tok,
            Self::Text(windows) => windows.ctx_tok,
            Self::Shots(spec) => spec.ctx_tok,
        }
    }
}

/// Sources of the text of prompts.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Filler between needles.
    pub haystack: Haystack,
    /// Plain text.
    pub text: Text,
    /// Needles of a file.
    pub needles: Option<NeedlesFile>,
}

impl Sources {
    /// Reads the sources of a grid.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(grid: &Grid) -> Result<Self> {
        let mut sources = Self { haystack: Haystack::named(None)?, text: Text::Prose, needles: None };
        match grid {
            Grid::Needle(prompts) => {
                let of_task = prompts.task.and_then(|task| task.settings().haystack).map(Path::new);
                sources.haystack = Haystack::named(prompts.haystack.as_deref().or(of_task))?;
                sources.needles = prompts.needles_file.as_deref().map(NeedlesFile::read).transpose()?;
            }
            Grid::Text(TextWindows { text: Some(path), .. }) => sources.text = Text::from_path(path)?,
            Grid::Text(TextWindows { ids: Some(path), .. }) => sources.text = Text::Ids(TokenIds::read(path)?),
            Grid::Text(_) | Grid::Shots(_) => {}
        }
        Ok(sources)
    }
}

impl Grid {
    /// All prompts, in the order of their index.
    pub fn prompts(&self) -> Vec<GridPrompt> {
        match self {
            Self::Text(windows) => {
                let mut prompts = Vec::new();
                windows.windows().for_each(|window| push(&mut prompts, PromptSpec::Text(window), windows.samples));
                prompts
            }
            Self::Needle(needles) => needles.prompts(),
            Self::Shots(shots) => shots.prompts(),
        }
    }

    /// Number of prompts; `None` if it overflows.
    pub fn count(&self) -> Option<usize> {
        let factors = match self {
            Self::Text(windows) => vec![windows.ctx_tok.len(), windows.samples],
            Self::Shots(shots) => vec![shots.samples, shots.arrangements, shots.order.len(), shots.shots.len()],
            Self::Needle(needles) => vec![
                needles.samples().checked_mul(if needles.unanswerable { 2 } else { 1 })?,
                needles.depths.len(),
                needles.ctx_tok().len(),
                needles.needles.len(),
                needles.forms().len(),
            ],
        };
        factors.into_iter().try_fold(1, usize::checked_mul)
    }

    /// Base seed.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Needle(needles) => needles.seed,
            Self::Text(windows) => windows.seed,
            Self::Shots(shots) => shots.seed,
        }
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> Vec<usize> {
        match self {
            Self::Needle(needles) => needles.ctx_tok(),
            Self::Text(windows) => windows.ctx_tok.clone(),
            Self::Shots(shots) => vec![shots.ctx_tok()],
        }
    }

    /// Checks that every prompt is possible.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Needle(needles) => needles.check(),
            Self::Shots(shots) => shots.check(),
            Self::Text(_) => Ok(()),
        }
    }
}

/// Appends prompts of one kind, each with a seed of its own.
fn push(prompts: &mut Vec<GridPrompt>, spec: PromptSpec, samples: usize) {
    for sample in 0..samples as u64 {
        let index = prompts.len() as u64;
        prompts.push(GridPrompt { index, seed_index: index, twin: None, sample, spec: spec.clone() });
    }
}

impl NeedlePrompts {
    /// Fills in the numbers of needles and of prompts that were not given. Numbers of distractors become numbers of needles.
    ///
    /// # Errors
    /// Usage errors if numbers do not go together.
    pub fn fill(&mut self, defaults: &PromptDefaults) -> Result<()> {
        self.samples.get_or_insert(defaults.samples);
        (self.needles, self.retrieve) = self.pairs(defaults.settings)?.into_iter().unzip();
        self.distractors.retain(|distractors| matches!(distractors, Distractors::Percent(_)));
        Ok(())
    }

    /// The pairs (needles in the text, needles asked for) that the flags mean.
    fn pairs(&self, default: &[(usize, usize)]) -> Result<Vec<(usize, usize)>> {
        let mut numbers = Vec::new();
        for distractors in &self.distractors {
            if let Distractors::Needles(n) = distractors {
                numbers.push(*n);
            }
        }
        if !numbers.is_empty() && numbers.len() < self.distractors.len() {
            bail_usage!("--distractors: give numbers or shares, not both");
        }
        Ok(match (&*self.needles, &*self.retrieve) {
            ([], []) if !numbers.is_empty() => numbers.into_iter().map(|n| (1 + n, 1)).collect(),
            ([], &[retrieve]) if !numbers.is_empty() => numbers.into_iter().map(|n| (retrieve + n, retrieve)).collect(),
            ([], _) if !numbers.is_empty() => {
                bail_usage!("--retrieve: give one value with a number of --distractors")
            }
            _ if !numbers.is_empty() => {
                bail_usage!("--needles and a number of --distractors say the same: give one of them")
            }
            ([], []) => match self.task {
                Some(task) => vec![task.settings().setting],
                None if self.needles_file.is_some() || !self.distractors.is_empty() => vec![(1, 1)],
                None => default.to_vec(),
            },
            (needles, []) if self.needles_file.is_some() => needles.iter().map(|&n| (n, 1)).collect(),
            (needles, []) => needles.iter().map(|&n| (n, n.min(2))).collect(),
            ([], _) => bail_usage!("--retrieve needs --needles"),
            (needles, &[retrieve]) => needles.iter().map(|&n| (n, retrieve)).collect(),
            (needles, retrieve) if needles.len() == retrieve.len() => {
                needles.iter().copied().zip(retrieve.iter().copied()).collect()
            }
            (needles, retrieve) => bail_usage!(
                "--needles has {} values and --retrieve {}; they go in pairs",
                needles.len(),
                retrieve.len()
            ),
        })
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> Vec<usize> {
        self.ctx.iter().flat_map(|range| range.counts()).collect()
    }

    /// Prompts per depth.
    pub fn samples(&self) -> usize {
        self.samples.unwrap_or(1)
    }

    /// Pairs (needles in the text, needles asked for): the paper's N and R.
    pub fn settings(&self) -> Vec<(usize, usize)> {
        self.needles.iter().copied().zip(self.retrieve.iter().copied()).collect()
    }

    /// Forms of the needles, one for each share of distractors.
    pub fn forms(&self) -> Vec<NeedleForm> {
        match (self.task, &self.needles_file) {
            (Some(task), _) => vec![NeedleForm::Ruler(task)],
            (None, Some(_)) => vec![NeedleForm::File],
            (None, None) if self.distractors.is_empty() => vec![NeedleForm::default()],
            (None, None) => {
                self.shares().into_iter().map(|distractors_pct| NeedleForm::Cities { distractors_pct }).collect()
            }
        }
    }

    /// Shares of the context that distractors fill, in percent.
    fn shares(&self) -> Vec<f64> {
        let mut shares = Vec::new();
        for distractors in &self.distractors {
            if let Distractors::Percent(share) = distractors {
                shares.push(*share);
            }
        }
        shares
    }

    /// Every kind of prompt that has an answer, in order.
    fn specs(&self) -> Vec<NeedleSpec> {
        let mut specs = Vec::new();
        for form in self.forms() {
            for (needles, retrieve) in self.settings() {
                for ctx_tok in self.ctx_tok() {
                    for &depth_pct in &self.depths {
                        specs.push(NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities: CitySet::Train, form });
                    }
                }
            }
        }
        specs
    }

    fn prompts(&self) -> Vec<GridPrompt> {
        let mut prompts = Vec::new();
        self.specs().into_iter().for_each(|spec| push(&mut prompts, PromptSpec::Needle(spec), self.samples()));
        // Prompts that differ only in their distractors share a seed, and so their needles.
        let of_form = (prompts.len() / self.forms().len()).max(1) as u64;
        prompts.iter_mut().for_each(|prompt| prompt.seed_index %= of_form);
        if self.unanswerable {
            self.add_unanswerable(&mut prompts);
        }
        prompts
    }

    /// Appends the prompts without an answer: each has the text and the seed of one with an answer, its twin.
    fn add_unanswerable(&self, prompts: &mut Vec<GridPrompt>) {
        for twin in 0..prompts.len() {
            let index = prompts.len() as u64;
            let mut prompt = GridPrompt { index, twin: Some(twin as u64), ..prompts[twin].clone() };
            if let PromptSpec::Needle(spec) = &mut prompt.spec {
                spec.cities = CitySet::Absent;
            }
            prompts.push(prompt);
        }
    }

    fn check(&self) -> Result<()> {
        if !self.distractors.is_empty() && (self.task.is_some() || self.needles_file.is_some()) {
            bail_usage!("--distractors is for numbers of cities, without --task or --needles-file");
        }
        if let Some(task) = self.task {
            let (name, (needles, retrieve)) = (task.name(), task.settings().setting);
            if self.settings() != [(needles, retrieve)] || self.needles_file.is_some() {
                bail_usage!("--task {name} has --needles {needles}, --retrieve {retrieve} and needles of its own");
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

impl ShotsPrompts {
    /// Largest prompt length, in tokens.
    pub fn ctx_tok(&self) -> usize {
        self.ctx.and_then(TokenRange::single).unwrap_or(0)
    }

    /// The arrangements of a prompt follow each other: `sample` is prompt · arrangements + arrangement.
    fn prompts(&self) -> Vec<GridPrompt> {
        let mut prompts = Vec::new();
        let arrangements = self.arrangements as u64;
        for &shots in &self.shots {
            for &order in &self.order {
                for sample in 0..self.samples as u64 * arrangements {
                    let spec = PromptSpec::Shots(self.spec(shots, order, sample % arrangements));
                    let index = prompts.len() as u64;
                    prompts.push(GridPrompt { index, seed_index: sample / arrangements, twin: None, sample, spec });
                }
            }
        }
        prompts
    }

    fn spec(&self, shots: usize, order: Order, arrangement: u64) -> ShotsSpec {
        let Self { words, classes, .. } = *self;
        ShotsSpec { ctx_tok: self.ctx_tok(), shots, words, classes, order, arrangement }
    }

    fn check(&self) -> Result<()> {
        if self.arrangements == 0 || self.order.is_empty() || self.shots.is_empty() {
            bail_usage!("--arrangements, --order and --shots each name at least one");
        }
        if let Some(shots) = repeated(&self.shots) {
            bail_usage!("--shots {shots} is named twice");
        }
        if let Some(order) = repeated(&self.order) {
            bail_usage!("--order {} is named twice", order.name());
        }
        self.shots.iter().try_for_each(|&shots| self.spec(shots, Order::Random, 0).check())
    }
}

impl TextWindows {
    /// The kinds of windows, one for each length.
    fn windows(&self) -> impl Iterator<Item = Windows> + '_ {
        self.ctx_tok.iter().map(|&ctx_tok| Windows { ctx_tok, stride: self.stride })
    }

    /// Limits the number and the length of the windows to what the text has with each of the tokenizers. Windows side by
    /// side are full; a shorter one at the end of the text counts only with `to_its_end`.
    ///
    /// # Errors
    /// Usage errors if lengths, strides or the text are too short; errors of the tokenizers.
    pub(crate) fn limit<'a>(
        &mut self,
        text: &Text,
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
        to_its_end: bool,
    ) -> Result<()> {
        self.check(text)?;
        let mut lengths: Vec<Length> = Vec::new();
        for tokenizer in tokenizers {
            lengths.extend(text.length(tokenizer)?);
        }
        for length in &lengths {
            if length.tokens < 2 {
                let name = text.name();
                bail_usage!("{name} has {} token; it takes 2 to predict one from another", length.tokens);
            }
            self.ctx_tok.iter_mut().for_each(|ctx_tok| *ctx_tok = (length.tokens + length.bos).min(*ctx_tok));
        }
        let mut seen = BTreeSet::new();
        self.ctx_tok.retain(|&ctx_tok| seen.insert(ctx_tok));
        for length in lengths {
            let to_its_end = to_its_end || self.stride.is_some();
            let count = |windows: Windows| if to_its_end { windows.count(length) } else { windows.full_count(length) };
            let most = self.windows().map(count).min();
            self.samples = most.map_or(self.samples, |most| self.samples.min(most));
        }
        Ok(())
    }

    /// Checks the lengths and the stride of the windows.
    fn check(&self, text: &Text) -> Result<()> {
        let shortest = self.ctx_tok.iter().copied().min().unwrap_or(0);
        if shortest < 2 {
            bail_usage!("--ctx {shortest}: a window of text needs at least 2 tokens");
        }
        let Some(stride) = self.stride else { return Ok(()) };
        if matches!(text, Text::Prose) {
            bail_usage!("--stride {stride}: only a text of yours can have overlapping windows, not the embedded prose");
        }
        if stride == 0 || stride >= shortest {
            bail_usage!("--stride {stride}: windows of {shortest} tokens can slide by 1 to {}", shortest - 1);
        }
        Ok(())
    }
}

impl GridPrompt {
    /// Seed of the prompt.
    pub fn seed(&self, base_seed: u64) -> u64 {
        prompt_seed(Purpose::Test, base_seed, self.seed_index)
    }

    /// Builds the prompt. Only windows of token ids need no tokenizer.
    ///
    /// # Errors
    /// See [`needle::build_of`], [`shots::build`] and [`Text::window`].
    pub fn build(&self, base_seed: u64, sources: &Sources, tokenizer: Result<&Tokenizer>) -> Result<Prompt> {
        let seed = self.seed(base_seed);
        match &self.spec {
            PromptSpec::Needle(spec) => {
                let Sources { haystack, needles, .. } = sources;
                needle::build_of(spec, seed, needle::Texts { haystack, file: needles.as_ref(), tokenizer: tokenizer? })
            }
            PromptSpec::Shots(spec) => shots::build(spec, seed, tokenizer?),
            PromptSpec::Text(windows) => sources.text.window(self.sample as usize, *windows, seed, tokenizer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
        let defaults = PromptDefaults { ctx_tok: 4096, settings: &[(1, 1), (4, 2)], samples: 7 };
        let filled = |needles: &[usize], retrieve: &[usize], distractors: &[&str]| {
            let mut prompts =
                NeedlePrompts { retrieve: retrieve.to_vec(), samples: None, ..self::needles(needles, distractors) };
            prompts.fill(&defaults)?;
            let once = prompts.clone();
            prompts.fill(&defaults)?;
            assert_eq!(prompts, once, "filled in once more, nothing changes");
            assert_eq!(prompts.samples(), 7);
            anyhow::Ok(prompts.settings())
        };
        assert_eq!(filled(&[], &[], &[]).unwrap(), [(1, 1), (4, 2)]);
        assert_eq!(filled(&[1, 4], &[], &[]).unwrap(), [(1, 1), (4, 2)]);
        assert_eq!(filled(&[4, 6], &[3], &[]).unwrap(), [(4, 3), (6, 3)]);
        assert_eq!(filled(&[], &[2], &["1", "3"]).unwrap(), [(3, 2), (5, 2)]);
        assert_eq!(filled(&[], &[], &["1%", "3%"]).unwrap(), [(1, 1)]);
        for (needles, retrieve, distractors, words) in [
            (vec![], vec![2], vec![], "--retrieve needs --needles"),
            (vec![1, 2, 3], vec![1, 2], vec![], "they go in pairs"),
            (vec![2], vec![], vec!["1"], "say the same"),
            (vec![], vec![], vec!["1", "5%"], "not both"),
        ] {
            let error = filled(&needles, &retrieve, &distractors).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn orders_shots_and_arrangements_of_a_prompt_share_its_seed() {
        let grid = Grid::Shots(ShotsPrompts {
            shots: vec![4, 8],
            arrangements: 3,
            samples: 5,
            ctx: Some(1024.into()),
            ..ShotsPrompts::default()
        });
        let prompts = grid.prompts();
        assert_eq!((prompts.len(), grid.count()), (60, Some(60)));
        let mut by_seed: BTreeMap<u64, usize> = BTreeMap::new();
        prompts.iter().for_each(|prompt| *by_seed.entry(prompt.seed(1)).or_default() += 1);
        assert_eq!(by_seed.into_values().collect::<Vec<_>>(), [12; 5]);
        assert!(prompts.iter().enumerate().all(|(i, prompt)| prompt.index == i as u64));
    }
}
