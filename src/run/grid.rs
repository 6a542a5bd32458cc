//! Grids of prompts. The number and the seed of a prompt depend on the grid alone, not on shards.

use crate::bail_usage;
use crate::base::names::repeated;
use crate::base::rng::{prompt_seed, Purpose};
use crate::base::spec_file::{is_default, pairs};
use crate::prompts::{
    needle, shots, CitySet, Haystack, Length, NeedleForm, NeedleSpec, NeedlesFile, Order, Prompt, RulerTask, ShotsSpec,
    Text, TokenIds, Tokenizer, Windows,
};
use crate::results::record::Identity;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A grid of prompts: the table `[grid.needle]`, `[grid.text]` or `[grid.shots]` of an experiment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "GridTables")]
pub enum Grid {
    /// Needles in haystacks.
    Needle(NeedleGrid),
    /// Plain text.
    Text(TextGrid),
    /// Examples of a classification that is new in every prompt.
    Shots(ShotsGrid),
}

/// The table `[grid]` as it is read. With serde's own enums the error for a wrong key would not name the possible ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridTables {
    needle: Option<NeedleGrid>,
    text: Option<TextGrid>,
    shots: Option<ShotsGrid>,
}

impl TryFrom<GridTables> for Grid {
    type Error = &'static str;

    fn try_from(tables: GridTables) -> Result<Self, Self::Error> {
        match tables {
            GridTables { needle: Some(grid), text: None, shots: None } => Ok(Self::Needle(grid)),
            GridTables { needle: None, text: Some(grid), shots: None } => Ok(Self::Text(grid)),
            GridTables { needle: None, text: None, shots: Some(grid) } => Ok(Self::Shots(grid)),
            _ => Err("expected one of [grid.needle], [grid.text] and [grid.shots]"),
        }
    }
}

impl Default for Grid {
    fn default() -> Self {
        Self::Needle(NeedleGrid::default())
    }
}

/// A grid of needle prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeedleGrid {
    /// Prompt lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Pairs (needles in the text, needles asked for): the paper's N and R.
    #[serde(deserialize_with = "pairs")]
    pub settings: Vec<(usize, usize)>,
    /// Depths of the needle that is asked for, in percent of the filler.
    pub depths_pct: Vec<f64>,
    /// Prompts per depth.
    pub samples: usize,
    /// Prompts per depth whose question has no answer: the text is that of the others, and the question is about other
    /// keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub absent_samples: usize,
    /// Task of RULER whose texts and settings the prompts have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub task: Option<RulerTask>,
    /// Shares of the context that further distractors fill, in percent. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub distractors_pct: Vec<f64>,
    /// File with needles, questions and answers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub needles_file: Option<PathBuf>,
    /// Base seed.
    pub seed: u64,
}

/// A grid of many-shot prompts: every prompt with each number of shots, in each order and arrangement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShotsGrid {
    /// Largest length of a prompt, in tokens.
    pub ctx_tok: usize,
    /// Numbers of examples.
    pub shots: Vec<usize>,
    /// Number of words to classify.
    pub words: usize,
    /// Number of classes.
    pub classes: usize,
    /// Orders of the examples.
    pub orders: Vec<Order>,
    /// Arrangements of the examples of each prompt, in each order.
    pub arrangements: usize,
    /// Number of prompts, each with a mapping and a question of its own.
    pub samples: usize,
    /// Base seed.
    pub seed: u64,
}

/// Windows of plain text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextGrid {
    /// Window lengths, in tokens.
    pub ctx_tok: Vec<usize>,
    /// Largest number of windows of each length; a text may be too short for as many.
    pub samples: usize,
    /// Tokens from the start of a window to that of the next, where windows overlap. Default: windows are side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Base seed.
    pub seed: u64,
}

/// A prompt that is yet to be built.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Global index.
    pub index: u64,
    /// Index from which [`Cell::seed`] is derived: the global index, or that of a prompt with the same seed and another
    /// spec.
    pub seed_index: u64,
    /// Index of the cell whose text this one has, with another question.
    pub twin: Option<u64>,
    /// Index among the prompts of the same spec.
    pub sample: u64,
    /// Contents of the prompt.
    pub spec: CellSpec,
}

/// Contents of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum CellSpec {
    /// A needle prompt.
    Needle(NeedleSpec),
    /// A window of text.
    Text(Windows),
    /// A many-shot prompt.
    Shots(ShotsSpec),
}

impl CellSpec {
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
    /// Reads the sources of a grid: the haystack of this name, a text, or token ids.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(grid: &Grid, haystack: Option<&Path>, text: Option<&Path>, ids: Option<&Path>) -> Result<Self> {
        let of_task = |task: RulerTask| task.settings().haystack.map(Path::new);
        let (haystack, needles) = match grid {
            Grid::Needle(grid) => (haystack.or(grid.task.and_then(of_task)), grid.needles_file.as_deref()),
            Grid::Text(_) | Grid::Shots(_) => (haystack, None),
        };
        let text = match (text, ids) {
            (Some(path), _) => Text::from_path(path)?,
            (None, Some(path)) => Text::Ids(TokenIds::read(path)?),
            (None, None) => Text::Prose,
        };
        Ok(Self { haystack: Haystack::named(haystack)?, text, needles: needles.map(NeedlesFile::read).transpose()? })
    }
}

impl Grid {
    /// All cells, in the order of their index.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut push = |spec: CellSpec, samples: usize| {
            for sample in 0..samples as u64 {
                let index = cells.len() as u64;
                cells.push(Cell { index, seed_index: index, twin: None, sample, spec: spec.clone() });
            }
        };
        match self {
            Self::Text(grid) => grid.windows().for_each(|windows| push(CellSpec::Text(windows), grid.samples)),
            Self::Needle(grid) => {
                grid.specs(&mut |spec| push(CellSpec::Needle(spec), grid.samples));
                // Prompts that differ only in their distractors share a seed, and so their needles.
                let of_form = (cells.len() / grid.forms().len()) as u64;
                cells.iter_mut().for_each(|cell| cell.seed_index %= of_form);
                grid.add_absent(&mut cells);
            }
            Self::Shots(grid) => cells = grid.cells(),
        }
        cells
    }

    /// Number of cells; `None` if it overflows.
    pub fn count(&self) -> Option<usize> {
        let factors = match self {
            Self::Text(grid) => vec![grid.ctx_tok.len(), grid.samples],
            Self::Shots(grid) => vec![grid.samples, grid.arrangements, grid.orders.len(), grid.shots.len()],
            Self::Needle(grid) => vec![
                grid.samples.checked_add(grid.absent_samples)?,
                grid.depths_pct.len(),
                grid.ctx_tok.len(),
                grid.settings.len(),
                grid.forms().len(),
            ],
        };
        factors.into_iter().try_fold(1, usize::checked_mul)
    }

    /// The grid as manifests hold it: the fields of its table, and the name of the table as `task` unless that is a field.
    pub(super) fn manifest(&self) -> Value {
        let (task, mut fields) = match self {
            Self::Needle(grid) => ("needle", json!(grid)),
            Self::Text(grid) => ("text", json!(grid)),
            Self::Shots(grid) => ("shots", json!(grid)),
        };
        if fields.get("task").is_none() {
            fields["task"] = task.into();
        }
        fields
    }

    /// Base seed.
    pub fn seed(&self) -> u64 {
        match self {
            Self::Needle(grid) => grid.seed,
            Self::Text(grid) => grid.seed,
            Self::Shots(grid) => grid.seed,
        }
    }

    /// Prompt lengths, in tokens.
    pub fn ctx_tok(&self) -> &[usize] {
        match self {
            Self::Needle(grid) => &grid.ctx_tok,
            Self::Text(grid) => &grid.ctx_tok,
            Self::Shots(grid) => std::slice::from_ref(&grid.ctx_tok),
        }
    }
}

impl NeedleGrid {
    /// Forms of the needles, one for each share of distractors.
    pub fn forms(&self) -> Vec<NeedleForm> {
        match (self.task, &self.needles_file) {
            (Some(task), _) => vec![NeedleForm::Ruler(task)],
            (None, Some(_)) => vec![NeedleForm::File],
            (None, None) if self.distractors_pct.is_empty() => vec![NeedleForm::default()],
            (None, None) => {
                self.distractors_pct.iter().map(|&distractors_pct| NeedleForm::Cities { distractors_pct }).collect()
            }
        }
    }

    /// Every kind of prompt that has an answer, in order.
    fn specs(&self, push: &mut dyn FnMut(NeedleSpec)) {
        for form in self.forms() {
            for &(needles, retrieve) in &self.settings {
                for &ctx_tok in &self.ctx_tok {
                    for &depth_pct in &self.depths_pct {
                        push(NeedleSpec { ctx_tok, needles, retrieve, depth_pct, cities: CitySet::Train, form });
                    }
                }
            }
        }
    }

    /// Checks that every prompt is possible.
    ///
    /// # Errors
    /// Usage errors that name the key.
    pub fn check(&self) -> Result<()> {
        if !self.distractors_pct.is_empty() && (self.task.is_some() || self.needles_file.is_some()) {
            bail_usage!("--distractors is for numbers of cities, without --task or --needles-file");
        }
        if let Some(task) = self.task {
            let (name, (needles, retrieve)) = (task.name(), task.settings().setting);
            if self.settings != [(needles, retrieve)] || self.needles_file.is_some() {
                bail_usage!("--task {name} has `settings` [[{needles}, {retrieve}]] and needles of its own");
            }
        }
        if let Some(share) = repeated(&self.distractors_pct) {
            bail_usage!("--distractors {share} is named twice");
        }
        let mut checked = Ok(());
        self.specs(&mut |spec| {
            let absent = NeedleSpec { cities: CitySet::Absent, ..spec.clone() };
            for (spec, samples) in [(spec, self.samples), (absent, self.absent_samples)] {
                if checked.is_ok() && samples > 0 {
                    checked = spec.check();
                }
            }
        });
        checked
    }

    /// Appends the prompts without an answer. The i-th of a kind has the seed of its twin, the i-th prompt of that kind with
    /// an answer, as far as there are that many.
    fn add_absent(&self, cells: &mut Vec<Cell>) {
        let answerable = cells.clone();
        self.specs(&mut |spec| {
            // Prompts of one kind follow each other.
            let of_twins = CellSpec::Needle(spec.clone());
            let mut twins = answerable.iter().skip_while(|cell| cell.spec != of_twins).take(self.samples);
            for sample in 0..self.absent_samples as u64 {
                let (index, twin) = (cells.len() as u64, twins.next());
                let seed_index = twin.map_or(index, |twin| twin.seed_index);
                let spec = CellSpec::Needle(NeedleSpec { cities: CitySet::Absent, ..spec.clone() });
                cells.push(Cell { index, seed_index, twin: twin.map(|twin| twin.index), sample, spec });
            }
        });
    }
}

impl ShotsGrid {
    /// The arrangements of a prompt follow each other: `sample` is prompt · arrangements + arrangement.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &shots in &self.shots {
            for &order in &self.orders {
                for sample in 0..(self.samples * self.arrangements) as u64 {
                    let arrangements = self.arrangements as u64;
                    let arrangement = sample % arrangements;
                    let Self { ctx_tok, words, classes, .. } = *self;
                    let spec = CellSpec::Shots(ShotsSpec { ctx_tok, shots, words, classes, order, arrangement });
                    let index = cells.len() as u64;
                    cells.push(Cell { index, seed_index: sample / arrangements, twin: None, sample, spec });
                }
            }
        }
        cells
    }

    /// Checks that every prompt is possible.
    ///
    /// # Errors
    /// Usage errors that name the key.
    pub fn check(&self) -> Result<()> {
        if self.arrangements == 0 || self.orders.is_empty() || self.shots.is_empty() {
            bail_usage!("--arrangements, --order and --shots each name at least one");
        }
        let Self { ctx_tok, words, classes, .. } = *self;
        if let Some(shots) = repeated(&self.shots) {
            bail_usage!("--shots {shots} is named twice");
        }
        if let Some(order) = repeated(&self.orders) {
            bail_usage!("--order {} is named twice", order.name());
        }
        self.shots.iter().try_for_each(|&shots| {
            ShotsSpec { ctx_tok, shots, words, classes, order: Order::Random, arrangement: 0 }.check()
        })
    }
}

impl TextGrid {
    /// The kinds of windows, one for each length.
    fn windows(&self) -> impl Iterator<Item = Windows> + '_ {
        self.ctx_tok.iter().map(|&ctx_tok| Windows { ctx_tok, stride: self.stride })
    }

    /// Limits the number and the length of the windows to what the text has with each of the tokenizers. Windows side by
    /// side are full; a shorter one at the end of the text counts only with `to_its_end`.
    ///
    /// # Errors
    /// Usage errors if lengths, strides or the text are too short; errors of the tokenizers.
    pub(super) fn limit<'a>(
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

impl Cell {
    /// Seed of the prompt.
    pub fn seed(&self, base_seed: u64) -> u64 {
        prompt_seed(Purpose::Test, base_seed, self.seed_index)
    }

    /// Fields of the prompt's records that do not depend on the model, the condition or the question.
    pub fn identity(&self, base_seed: u64) -> Identity {
        let identity = Identity { sample: Some(self.sample), seed: Some(self.seed(base_seed)), ..Identity::default() };
        match &self.spec {
            CellSpec::Text(windows) => Identity { task: "text".into(), ctx_tok: windows.ctx_tok, ..identity },
            CellSpec::Shots(spec) => Identity {
                task: spec.task(),
                ctx_tok: spec.ctx_tok,
                needles: Some(spec.shots),
                retrieve: Some(1),
                cities: Some(CitySet::Train.name().into()),
                ..identity
            },
            CellSpec::Needle(spec) => Identity {
                task: spec.form.name(),
                ctx_tok: spec.ctx_tok,
                needles: Some(spec.needles),
                retrieve: Some(spec.retrieve),
                depth_req_pct: Some(spec.depth_pct),
                cities: spec.names_cities().then(|| spec.cities.name().into()),
                ..identity
            },
        }
    }

    /// Builds the prompt. Only windows of token ids need no tokenizer.
    ///
    /// # Errors
    /// See [`needle::build_of`], [`shots::build`] and [`Text::window`].
    pub fn prompt(&self, base_seed: u64, sources: &Sources, tokenizer: Result<&Tokenizer>) -> Result<Prompt> {
        let seed = self.seed(base_seed);
        match &self.spec {
            CellSpec::Needle(spec) => {
                let Sources { haystack, needles, .. } = sources;
                needle::build_of(spec, seed, needle::Texts { haystack, file: needles.as_ref(), tokenizer: tokenizer? })
            }
            CellSpec::Shots(spec) => shots::build(spec, seed, tokenizer?),
            CellSpec::Text(windows) => sources.text.window(self.sample as usize, *windows, seed, tokenizer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn needles() -> NeedleGrid {
        NeedleGrid { samples: 3, absent_samples: 2, seed: 5, ..NeedleGrid::default() }
    }

    #[test]
    fn prompts_without_an_answer_come_last_and_have_the_seeds_of_their_twins() {
        let grid = NeedleGrid { ctx_tok: vec![512], settings: vec![(2, 1)], depths_pct: vec![0.0, 50.0], ..needles() };
        let without = Grid::Needle(NeedleGrid { absent_samples: 0, ..grid.clone() }).cells();
        let with = Grid::Needle(grid.clone());
        let cells = with.cells();
        assert_eq!((cells.len(), with.count()), (10, Some(10)));
        let same = |(a, b): (&Cell, &Cell)| (a.index, &a.spec) == (b.index, &b.spec) && a.seed(5) == b.seed(5);
        assert!(cells.iter().zip(&without).all(same), "what was there has the prompts that it had");
        for (cell, twin) in cells[6..].iter().zip([0, 1, 3, 4]) {
            let CellSpec::Needle(spec) = &cell.spec else { panic!("a needle") };
            let CellSpec::Needle(other) = &cells[twin].spec else { panic!("a needle") };
            assert_eq!(
                (spec.cities, spec.depth_pct, cell.seed(5)),
                (CitySet::Absent, other.depth_pct, cells[twin].seed(5))
            );
            assert_eq!(cell.twin, Some(twin as u64));
        }
        let alone = Grid::Needle(NeedleGrid { samples: 0, ..grid }).cells();
        let seeds: BTreeSet<u64> = alone.iter().map(|cell| cell.seed(5)).collect();
        assert_eq!((alone.len(), seeds.len()), (4, 4), "without twins they have seeds of their own");
        assert!(alone.iter().all(|cell| cell.twin.is_none()));
    }

    #[test]
    fn shares_of_distractors_are_compared_on_prompts_of_the_same_seeds() {
        let shares = vec![0.0, 5.0];
        let (settings, depths_pct) = (vec![(1, 1), (2, 1)], vec![0.0, 50.0]);
        let grid = NeedleGrid { ctx_tok: vec![512], settings, depths_pct, distractors_pct: shares, ..needles() };
        let without = Grid::Needle(NeedleGrid { distractors_pct: Vec::new(), ..grid.clone() }).cells();
        let cells = Grid::Needle(grid).cells();
        let answerable = |cells: &[Cell]| -> Vec<u64> {
            let is_answerable =
                |cell: &&Cell| !matches!(&cell.spec, CellSpec::Needle(spec) if spec.cities == CitySet::Absent);
            cells.iter().filter(is_answerable).map(|cell| cell.seed(5)).collect()
        };
        let (with, once) = (answerable(&cells), answerable(&without));
        assert_eq!(with, [once.clone(), once].concat());
        assert!(cells.iter().enumerate().all(|(i, cell)| cell.index == i as u64));
    }

    #[test]
    fn orders_shots_and_arrangements_of_a_prompt_share_its_seed() {
        let grid = Grid::Shots(ShotsGrid {
            ctx_tok: 1024,
            shots: vec![4, 8],
            words: 4,
            classes: 2,
            orders: vec![Order::Random, Order::ByClass],
            arrangements: 3,
            samples: 5,
            seed: 1,
        });
        let cells = grid.cells();
        assert_eq!((cells.len(), grid.count()), (60, Some(60)));
        let mut by_seed: BTreeMap<u64, usize> = BTreeMap::new();
        cells.iter().for_each(|cell| *by_seed.entry(cell.seed(1)).or_default() += 1);
        assert_eq!(by_seed.into_values().collect::<Vec<_>>(), [12; 5]);
        assert!(cells.iter().enumerate().all(|(i, cell)| cell.index == i as u64));
    }
}
