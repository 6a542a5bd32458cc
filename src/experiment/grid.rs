//! What is run: prompts by their settings, each with a number that never depends on what else is run.

use crate::bail_usage;
use crate::prompt::{needle, CitySet, Haystack, Length, NeedleSpec, Prompt, Text, Tokenizer, Windows};
use crate::rng::{prompt_seed, Purpose};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A grid of prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "lowercase")]
pub enum Grid {
    /// Needles in haystacks.
    Needle(NeedleGrid),
    /// Plain text.
    Text(TextGrid),
}

/// A grid of needle prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeedleGrid {
    /// Prompt lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Pairs (needles in the text, needles asked for): the paper's N and R.
    pub settings: Vec<(usize, usize)>,
    /// Depths of the controlled needle, in percent of the filler.
    pub depths_pct: Vec<f64>,
    /// Prompts per depth with training cities.
    pub samples: usize,
    /// Prompts per depth with cities held out of training.
    pub heldout_samples: usize,
    /// Base seed.
    pub seed: u64,
}

/// Windows of plain text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextGrid {
    /// Window lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Windows of each length, at most: a text has no more than it has.
    pub samples: usize,
    /// Tokens from the beginning of a window to that of the next, where windows slide over a text; side by side without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Base seed.
    pub seed: u64,
}

/// One prompt to be.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Global index, of which the prompt's seed is made: see [`Cell::seed`].
    pub index: u64,
    /// Index among the prompts of the same spec.
    pub sample: u64,
    /// What the prompt holds.
    pub spec: CellSpec,
}

/// What a prompt holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum CellSpec {
    /// A needle prompt.
    Needle(NeedleSpec),
    /// A window of text.
    Text(Windows),
}

impl CellSpec {
    /// Length of the prompt, in tokens.
    pub fn ctx_tok(&self) -> usize {
        match self {
            Self::Needle(spec) => spec.ctx_tok,
            Self::Text(windows) => windows.ctx_tok,
        }
    }
}

/// Where the words of prompts come from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Filler between needles.
    pub haystack: Haystack,
    /// Plain text.
    pub text: Text,
}

impl Grid {
    /// All cells, in the order they run.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut push = |spec: CellSpec, samples: usize| {
            for sample in 0..samples as u64 {
                cells.push(Cell { index: cells.len() as u64, sample, spec: spec.clone() });
            }
        };
        match self {
            Self::Text(grid) => grid.windows().for_each(|windows| push(CellSpec::Text(windows), grid.samples)),
            Self::Needle(grid) => grid.specs(&mut |spec, samples| push(CellSpec::Needle(spec), samples)),
        }
        cells
    }

    /// Number of cells; nothing if it is too large for a number.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Text(grid) => grid.ctx_tok.len().checked_mul(grid.samples),
            Self::Needle(grid) => grid
                .samples
                .checked_add(grid.heldout_samples)?
                .checked_mul(grid.depths_pct.len())?
                .checked_mul(grid.ctx_tok.len())?
                .checked_mul(grid.settings.len()),
        }
    }

    /// Base seed.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Needle(grid) => grid.seed,
            Self::Text(grid) => grid.seed,
        }
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> &[usize] {
        match self {
            Self::Needle(grid) => &grid.ctx_tok,
            Self::Text(grid) => &grid.ctx_tok,
        }
    }
}

impl NeedleGrid {
    /// Every kind of prompt, in order, with the number of prompts.
    fn specs(&self, push: &mut dyn FnMut(NeedleSpec, usize)) {
        for &(needles, retrieve) in &self.settings {
            for &ctx_tok in &self.ctx_tok {
                for (cities, samples) in [(CitySet::Train, self.samples), (CitySet::HeldOut, self.heldout_samples)] {
                    for &depth_pct in &self.depths_pct {
                        push(NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities }, samples);
                    }
                }
            }
        }
    }
}

impl TextGrid {
    /// A kind of windows for each length.
    fn windows(&self) -> impl Iterator<Item = Windows> + '_ {
        self.ctx_tok.iter().map(|&ctx_tok| Windows { ctx_tok, stride: self.stride })
    }

    /// The grid with no more and no longer windows than the text has with any of the tokenizers. Side by side they are whole
    /// ones, and what is left of the text is a window only if it is to be read `to_its_end`.
    ///
    /// # Errors
    /// Usage errors if lengths, strides or the text are too short; whatever a tokenizer meets.
    pub fn within<'a>(
        mut self,
        text: &Text,
        tokenizers: impl Iterator<Item = Result<&'a Tokenizer>>,
        to_its_end: bool,
    ) -> Result<Self> {
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
            let count = |windows: Windows| if to_its_end { windows.count(length) } else { windows.filled(length) };
            let most = self.windows().map(count).min();
            self.samples = most.map_or(self.samples, |most| self.samples.min(most));
        }
        Ok(self)
    }

    /// Whether windows of these lengths can be cut.
    fn check(&self, text: &Text) -> Result<()> {
        let shortest = self.ctx_tok.iter().copied().min().unwrap_or(0);
        if shortest < 2 {
            bail_usage!("`ctx_tok` {shortest}: a window of text needs at least 2 tokens");
        }
        let Some(stride) = self.stride else { return Ok(()) };
        if matches!(text, Text::Prose) {
            bail_usage!("`stride` {stride}: only a text of yours is slid over, embedded prose is new in every window");
        }
        if stride == 0 || stride >= shortest {
            bail_usage!("`stride` {stride}: windows of {shortest} tokens can slide by 1 to {}", shortest - 1);
        }
        Ok(())
    }
}

impl Cell {
    /// The seed of its prompt.
    pub fn seed(&self, base_seed: u64) -> u64 {
        prompt_seed(Purpose::Test, base_seed, self.index)
    }

    /// The cell's prompt. Without a tokenizer only one of token ids can be built.
    ///
    /// # Errors
    /// If it cannot be built; see [`needle::build`] and [`Text::window`].
    pub fn prompt(&self, base_seed: u64, sources: &Sources, tokenizer: Result<&Tokenizer>) -> Result<Prompt> {
        let seed = self.seed(base_seed);
        match &self.spec {
            CellSpec::Needle(spec) => needle::build(spec, seed, tokenizer?, &sources.haystack),
            CellSpec::Text(windows) => sources.text.window(self.sample as usize, *windows, seed, tokenizer),
        }
    }
}
