//! The prompts of a run. The number and the seed of a prompt depend on its flags alone, not on shards.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;

use super::{
    context, needle, shots, CitySet, Context, ContextPrompts, Haystack, Kept, NeedlePrompts, NeedleSpec, NeedlesFile,
    Prompt, Question, ShotsPrompts, ShotsSpec, Text, TextWindows, TokenIds, Tokenizer, Windows,
};
use base::bail_usage;
use base::seed::{prompt_seed, Purpose};

/// Most prompts of a run; each takes some memory before the run begins.
const MOST_PROMPTS: usize = 10_000_000;

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
    /// Questions about texts, parts of which are left out.
    Context(ContextPrompts),
}

/// A prompt of a grid before it is built.
#[derive(Clone, Debug)]
pub struct PlannedPrompt {
    /// Number within the grid.
    pub index: u64,
    /// Number from which [`PlannedPrompt::seed`] is derived: the index, or that of a prompt with the same seed and another
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
    /// A question about a text.
    Context(ContextSpec),
}

/// A question about a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ContextSpec {
    /// Its index among those of the run.
    pub index: usize,
    /// Length of the longest prompt of the run, in tokens.
    pub ctx_tok: usize,
    /// Orders of its segments, the first as they are.
    pub orders: usize,
}

impl PromptSpec {
    /// Length of the prompt, in tokens.
    pub fn ctx_tok(&self) -> usize {
        match self {
            Self::Needle(spec) => spec.ctx_tok,
            Self::Text(windows) => windows.ctx_tok,
            Self::Shots(spec) => spec.ctx_tok,
            Self::Context(spec) => spec.ctx_tok,
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
    /// The question about a text of the user.
    pub question: Option<Question>,
    /// Questions about texts, parts of which are left out.
    pub contexts: Arc<[Context]>,
    /// SHA-256 of their file or text.
    pub contexts_sha256: Option<String>,
}

impl Sources {
    /// Reads the sources of a grid.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(grid: &Grid) -> Result<Self> {
        let mut sources = Self {
            haystack: Haystack::named(None)?,
            text: Text::Prose,
            needles: None,
            question: None,
            contexts: [].into(),
            contexts_sha256: None,
        };
        match grid {
            Grid::Needle(NeedlePrompts { own, .. }) if own.is_asked() => {
                sources.text = own.read()?.unwrap_or(Text::Prose);
                sources.question = Some(Question::new(own, &sources.text)?);
            }
            Grid::Needle(prompts) => {
                let haystack_of_task = prompts.form().haystack.map(Path::new);
                sources.haystack = Haystack::named(prompts.haystack.as_deref().or(haystack_of_task))?;
                sources.needles = prompts.needles_file.as_deref().map(NeedlesFile::read).transpose()?;
            }
            Grid::Text(TextWindows { ids: Some(path), .. }) => sources.text = Text::Ids(TokenIds::read(path)?),
            Grid::Text(TextWindows { own, .. }) => sources.text = own.read()?.unwrap_or(Text::Prose),
            Grid::Shots(_) => {}
            Grid::Context(flags) => {
                let (contexts, sha256) = flags.read()?;
                sources.contexts = contexts.into();
                sources.contexts_sha256 = Some(sha256);
            }
        }
        Ok(sources)
    }

    /// `true` for questions of the user, to which a reply may begin in any words.
    pub fn ask_without_lead(&self) -> bool {
        self.needles.as_ref().is_some_and(|needles| !needles.has_leads())
            || self.question.as_ref().is_some_and(|question| question.lead.is_none())
    }
}

impl Grid {
    /// All prompts, in the order of their index.
    pub fn prompts(&self) -> Vec<PlannedPrompt> {
        match self {
            Self::Text(windows) => {
                let mut prompts = Vec::new();
                for window in windows.windows() {
                    PlannedPrompt::push(&mut prompts, &PromptSpec::Text(window), windows.samples);
                }
                prompts
            }
            Self::Needle(needles) => needle_prompts(needles),
            Self::Shots(shots) => shots_prompts(shots),
            Self::Context(flags) => context_prompts(flags),
        }
    }

    /// Number of prompts; `None` if it overflows.
    pub fn count(&self) -> Option<usize> {
        let factors = match self {
            Self::Text(windows) => vec![windows.ctx_tok.len(), windows.samples],
            Self::Context(flags) => vec![flags.first_of_document.len()],
            Self::Shots(shots) => vec![shots.samples, shots.arrangements, shots.order.len(), shots.shots.len()],
            Self::Needle(needles) => vec![
                needles.samples().checked_mul(if needles.unanswerable { 2 } else { 1 })?,
                needles.depths.len(),
                needles.ctx_tok().len(),
                needles.needles.len(),
                needles.shares().len(),
            ],
        };
        factors.into_iter().try_fold(1, usize::checked_mul)
    }

    /// Checks that there are not too many prompts to make a list of them.
    ///
    /// # Errors
    /// A usage error.
    pub fn check_count(&self) -> Result<()> {
        if self.count().is_none_or(|count| count > MOST_PROMPTS) {
            bail_usage!(
                "more than {MOST_PROMPTS} prompts: lower --samples, or take the lengths of --ctx one after the other"
            );
        }
        Ok(())
    }

    /// Base seed.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Needle(needles) => needles.seed,
            Self::Text(windows) => windows.seed,
            Self::Shots(shots) => shots.seed,
            Self::Context(flags) => flags.seed,
        }
    }

    /// The same, to be changed.
    pub fn seed_mut(&mut self) -> &mut u64 {
        match self {
            Self::Needle(needles) => &mut needles.seed,
            Self::Text(windows) => &mut windows.seed,
            Self::Shots(shots) => &mut shots.seed,
            Self::Context(flags) => &mut flags.seed,
        }
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> Vec<usize> {
        match self {
            Self::Needle(needles) => needles.ctx_tok(),
            Self::Text(windows) => windows.ctx_tok.clone(),
            Self::Shots(shots) => vec![shots.ctx_tok()],
            Self::Context(flags) => vec![flags.ctx_tok],
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
            Self::Context(flags) => flags.check(),
            Self::Text(_) => Ok(()),
        }
    }
}

/// All needle prompts, those without an answer last.
fn needle_prompts(flags: &NeedlePrompts) -> Vec<PlannedPrompt> {
    let mut prompts = Vec::new();
    for spec in flags.specs() {
        PlannedPrompt::push(&mut prompts, &PromptSpec::Needle(spec), flags.samples());
    }
    // Prompts that differ only in their distractors share a seed, and so their needles.
    let per_share = (prompts.len() / flags.shares().len()).max(1) as u64;
    prompts.iter_mut().for_each(|prompt| prompt.seed_index %= per_share);
    if flags.unanswerable {
        add_unanswerable(&mut prompts);
    }
    prompts
}

/// Appends the prompts without an answer: each has the text and the seed of one with an answer, its twin.
fn add_unanswerable(prompts: &mut Vec<PlannedPrompt>) {
    for twin in 0..prompts.len() {
        let index = prompts.len() as u64;
        let mut prompt = PlannedPrompt { index, twin: Some(twin as u64), ..prompts[twin].clone() };
        if let PromptSpec::Needle(spec) = &mut prompt.spec {
            spec.cities = CitySet::Absent;
        }
        prompts.push(prompt);
    }
}

/// All prompts of many shots. The arrangements of a prompt follow each other: its sample is prompt · arrangements +
/// arrangement.
fn shots_prompts(flags: &ShotsPrompts) -> Vec<PlannedPrompt> {
    let mut prompts = Vec::new();
    let arrangements = flags.arrangements as u64;
    for &shots in &flags.shots {
        for &order in &flags.order {
            for sample in 0..flags.samples as u64 * arrangements {
                let spec = PromptSpec::Shots(flags.spec(shots, order, sample % arrangements));
                let index = prompts.len() as u64;
                prompts.push(PlannedPrompt { index, seed_index: sample / arrangements, twin: None, sample, spec });
            }
        }
    }
    prompts
}

/// A prompt for each context; those of one document share a seed.
fn context_prompts(flags: &ContextPrompts) -> Vec<PlannedPrompt> {
    let mut prompts = Vec::new();
    for (index, &first) in flags.first_of_document.iter().enumerate() {
        let spec = ContextSpec { index, ctx_tok: flags.ctx_tok, orders: flags.orders() };
        let sample = index as u64;
        let spec = PromptSpec::Context(spec);
        prompts.push(PlannedPrompt { index: sample, seed_index: first, twin: None, sample, spec });
    }
    prompts
}

impl PlannedPrompt {
    /// Appends prompts of one spec, each with a seed of its own.
    pub(super) fn push(prompts: &mut Vec<Self>, spec: &PromptSpec, samples: usize) {
        for sample in 0..samples as u64 {
            let index = prompts.len() as u64;
            prompts.push(Self { index, seed_index: index, twin: None, sample, spec: spec.clone() });
        }
    }

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
                let Sources { haystack, needles, question, .. } = sources;
                let file = needles.as_ref();
                let tokenizer = tokenizer?;
                match question {
                    Some(question) => question.prompt(spec.depth_pct, tokenizer),
                    None => needle::build_of(spec, seed, needle::Texts { haystack, file, tokenizer }),
                }
            }
            PromptSpec::Shots(spec) => shots::build(spec, seed, tokenizer?),
            PromptSpec::Context(spec) => {
                let context = &sources.contexts[spec.index];
                let all: Vec<usize> = (0..context.segments.len()).collect();
                let answer = context.answers.first().map_or(context::OWN_ANSWER, String::as_str);
                context.prompt(Kept { segments: &all, answer }, tokenizer?)
            }
            PromptSpec::Text(windows) => sources.text.window(self.sample as usize, *windows, seed, tokenizer),
        }
    }
}
