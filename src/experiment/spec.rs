//! The experiment file: everything that decides what is measured, as TOML.
//!
//! Every measuring command is such an experiment. A run folder holds its own as `experiment.toml`.

use super::{Expectation, Explore, Grid, Heatmap, Outcome, TextGrid};
use crate::attention::LayersAndHeads;
use crate::bail_usage;
use crate::device::check_alike;
use crate::error::Usage;
use crate::generate::MAX_NEW;
use crate::measure::MeasureName;
use crate::models::{self, LoadOptions};
use crate::quant::{Quantiser, Scope, BITS};
use crate::results::Frame;
use crate::spec_file::{self, is_default, Required};
use crate::treatment::Condition;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// What to measure, on what, and what to make of it. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What is asked, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// How the answer is to be read, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub analysis: String,
    /// Which tables and figures are made of the records.
    pub show: Show,
    /// Built-in names or folders, the baseline first.
    pub models: Vec<String>,
    /// What is measured; nothing for what the tables of `show` need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<MeasureName>,
    /// Own filler text instead of the embedded prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub haystack: Option<PathBuf>,
    /// Own text instead of prose, where text is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PathBuf>,
    /// Own token ids instead of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<PathBuf>,
    /// How often a bigram may occur in the reference prose and still make AR hits, for the measure `nll`; 0 for any
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ar_max_count: Option<u64>,
    /// Tokens at the beginning of every window that the mean negative log-likelihood leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<usize>,
    /// Heads to list, for `show = "ratio"` and `"heads"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// How the models' folders are read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reading: LoadOptions,
    /// The prompts.
    pub grid: Grid,
    /// Layers and heads to measure; all by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub select: LayersAndHeads,
    /// Numbers of bits that the same prompts are measured with besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantise: Option<Quantisation>,
    /// What is done to the attention besides, each on the same prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Which maps are drawn, for `show = "heatmap"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heatmap: Option<Heatmap>,
    /// What the page holds, for `show = "explore"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explore: Option<Explore>,
    /// Leaves the models to answer by themselves too, under every condition: the measure `generation` and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// What has to come out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
}

/// Which tables and figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Show {
    /// Accuracy, answer and noise share.
    Needle,
    /// Accuracy by number of examples, and what their order changes.
    Shots,
    /// Where attention goes.
    Ratio,
    /// What each head is for.
    Heads,
    /// What is left with few bits.
    Quantize,
    /// What is left without some keys and heads.
    Ablate,
    /// The largest logits and hidden states.
    Outliers,
    /// How well text is predicted, by position.
    Nll,
    /// Maps of one prompt.
    Heatmap,
    /// A page to walk around in them.
    Explore,
}

impl Show {
    /// The name of its command.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it shows maps of one prompt, which are no records: there is all of them or nothing.
    pub fn is_of_maps(self) -> bool {
        matches!(self, Self::Heatmap | Self::Explore)
    }

    fn measures(self) -> Vec<MeasureName> {
        match self {
            Self::Needle | Self::Shots => vec![MeasureName::Answer],
            Self::Ratio => vec![MeasureName::AnswerByHead, MeasureName::Shape],
            Self::Heads => vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
            Self::Quantize => vec![MeasureName::Answer, MeasureName::Fidelity],
            Self::Ablate => vec![MeasureName::Answer],
            Self::Outliers => vec![MeasureName::Outliers],
            Self::Nll => vec![MeasureName::Nll],
            Self::Heatmap => vec![MeasureName::AnswerByHead],
            Self::Explore => vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
        }
    }
}

/// Quantisation of the attention logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    /// Bits per logit, each 2 to 16.
    pub bits: Vec<u32>,
    /// What shares one scale.
    pub scope: Scope,
    /// Whether sinks found in the baseline pass keep their logits.
    #[serde(default)]
    pub exempt_sinks: bool,
}

impl Quantisation {
    /// A condition for each number of bits.
    fn conditions(&self) -> Result<Vec<Condition>> {
        for (i, bits) in self.bits.iter().enumerate() {
            if !BITS.contains(bits) {
                bail_usage!("`bits` {bits}: a logit can have {} to {} bits", BITS.start(), BITS.end());
            }
            if self.bits[..i].contains(bits) {
                bail_usage!("`bits` {bits} is named twice");
            }
        }
        if self.bits.is_empty() {
            bail_usage!("`bits` names nothing");
        }
        let condition = |&bits| Condition::quantised(Quantiser { bits, scope: self.scope }, self.exempt_sinks);
        Ok(self.bits.iter().map(condition).collect())
    }
}

/// How much a model may say by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// New tokens at most.
    pub max_new: NonZeroUsize,
}

/// What has no default; `--print-experiment` of any measuring command prints a file that has it all.
const REQUIRED: [Required; 7] = [
    Required { table: "", with: None, keys: &["show", "models", "grid"] },
    Required { table: "grid", with: None, keys: &["task"] },
    Required {
        table: "grid",
        with: Some(("task", "needle")),
        keys: &["ctx_tok", "settings", "depths_pct", "samples", "heldout_samples", "seed"],
    },
    Required { table: "grid", with: Some(("task", "text")), keys: &["ctx_tok", "samples", "seed"] },
    Required {
        table: "grid",
        with: Some(("task", "shots")),
        keys: &["ctx_tok", "shots", "words", "classes", "orders", "arrangements", "samples", "seed"],
    },
    Required { table: "quantise", with: None, keys: &["bits", "scope"] },
    Required { table: "expect", with: None, keys: &["metric"] },
];

impl Experiment {
    /// An experiment that shows `show` of these models and prompts.
    pub fn new(show: Show, models: Vec<String>, grid: Grid) -> Self {
        Self {
            question: String::new(),
            analysis: String::new(),
            show,
            models,
            measures: Vec::new(),
            haystack: None,
            text: None,
            ids: None,
            ar_max_count: None,
            skip: None,
            top: None,
            reading: LoadOptions::default(),
            grid,
            select: LayersAndHeads::default(),
            quantise: None,
            conditions: Vec::new(),
            heatmap: None,
            explore: None,
            generate: None,
            expect: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read; usage errors with the line if it is not an experiment.
    pub fn read(path: &Path) -> Result<Self> {
        let text = crate::files::input_text(path, crate::files::CONFIG_MAX)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads an experiment; `name` is for messages.
    ///
    /// # Errors
    /// Usage errors with the line.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let experiment: Self = spec_file::parse(name, text, &REQUIRED)?;
        experiment.resolved().map_err(|error| Usage(format!("{name}: {error:#}")).into())
    }

    /// With the models that are meant, and checked.
    fn resolved(mut self) -> Result<Self> {
        if self.models.is_empty() {
            bail_usage!("`models` names nothing");
        }
        self.models = models::resolve(&self.models)?;
        self.check()?;
        Ok(self)
    }

    /// Whether it can be what is meant, as far as the types cannot say: before models and texts are read.
    ///
    /// # Errors
    /// Usage errors with the field.
    pub fn check(&self) -> Result<()> {
        let conditions = self.conditions()?;
        check_alike(self.reading.device, self.reading.dtype, self.reading.precision)?;
        self.check_measures()?;
        self.check_text()?;
        if self.show == Show::Ablate && (self.text_grid().is_some() || conditions.len() < 2) {
            bail_usage!("show = \"ablate\" compares `conditions` on grids of task = \"needle\": name some");
        }
        self.check_task()?;
        self.check_maps()?;
        self.check_pooling()?;
        if self.max_new().is_some() && self.text_grid().is_some() {
            bail_usage!("plain text asks for nothing: `generate` is for grids of task = \"needle\"");
        }
        for expectation in &self.expect {
            expectation.check()?;
            expectation.condition_among(&conditions)?;
            if let Some(model) = expectation.model.as_ref().filter(|model| !self.models.contains(model)) {
                bail_usage!("an expectation is about `{model}`, which is not among the models");
            }
        }
        Ok(())
    }

    fn text_grid(&self) -> Option<&TextGrid> {
        match &self.grid {
            Grid::Text(grid) => Some(grid),
            Grid::Needle(_) | Grid::Shots(_) => None,
        }
    }

    /// Whether what is said of a text goes together, and with a grid of it.
    fn check_text(&self) -> Result<()> {
        let grid = self.text_grid();
        for (key, given) in [("text", self.text.is_some()), ("ids", self.ids.is_some())] {
            if given && grid.is_none() {
                bail_usage!("`{key}` is for grids of task = \"text\"");
            }
        }
        let shortest = grid.and_then(|grid| grid.ctx_tok.iter().min());
        if let (Some(skip), Some(&shortest)) = (self.skip, shortest) {
            if skip >= shortest {
                bail_usage!("`skip` {skip} leaves nothing of windows of {shortest} tokens");
            }
        }
        if self.text.is_some() && self.ids.is_some() {
            bail_usage!("`text` and `ids` are two texts: leave one of them out");
        }
        Ok(())
    }

    /// Whether what is pooled is of one kind.
    fn check_pooling(&self) -> Result<()> {
        if self.show == Show::Nll && self.text_grid().is_none_or(|grid| grid.ctx_tok.len() != 1) {
            bail_usage!("show = \"nll\" pools windows of one length: grids of task = \"text\" with one ctx_tok");
        }
        let settings = match &self.grid {
            Grid::Text(grid) => grid.ctx_tok.len(),
            Grid::Shots(grid) => grid.shots.len() * grid.orders.len(),
            Grid::Needle(grid) => grid.ctx_tok.len() * grid.settings.len(),
        };
        let pools = |measure: &MeasureName| matches!(measure, MeasureName::Outliers | MeasureName::Nll);
        if settings > 1 && self.measure_names().iter().any(pools) {
            bail_usage!("the measures outliers and nll pool prompts of one kind: one ctx_tok, and one of settings");
        }
        Ok(())
    }

    /// Whether what is shown is made of these prompts.
    fn check_task(&self) -> Result<()> {
        let is_shots = matches!(self.grid, Grid::Shots(_));
        if is_shots != (self.show == Show::Shots) {
            bail_usage!("show = \"shots\" and grids of task = \"shots\" belong together");
        }
        if let Grid::Shots(grid) = &self.grid {
            grid.check()?;
        }
        if let Grid::Needle(grid) = &self.grid {
            grid.check()?;
            if grid.absent_samples > 0 && self.max_new().is_none() {
                bail_usage!(
                    "`absent_samples`: whether a model makes a number up shows in what it says: add [generate]"
                );
            }
        }
        Ok(())
    }

    /// Whether what is shown is measured.
    fn check_measures(&self) -> Result<()> {
        let (show, names) = (self.show.name(), self.measure_names());
        let needed: &[MeasureName] = match self.show {
            Show::Outliers => &[MeasureName::Outliers],
            Show::Nll => &[MeasureName::Nll],
            Show::Ratio => &[MeasureName::AnswerByHead],
            Show::Heads => &[MeasureName::Roles, MeasureName::AnswerByHead],
            _ => &[MeasureName::Answer, MeasureName::AnswerByHead],
        };
        match self.show {
            _ if needed.iter().any(|measure| names.contains(measure)) => Ok(()),
            Show::Outliers | Show::Nll => bail_usage!("show = \"{show}\" needs the measure \"{show}\""),
            Show::Ratio => bail_usage!("show = \"ratio\" needs the measure \"answer-by-head\""),
            Show::Heads => bail_usage!("show = \"heads\" needs the measure \"roles\" or \"answer-by-head\""),
            _ => bail_usage!("show = \"{show}\" needs the measure \"answer\" or \"answer-by-head\""),
        }
    }

    /// The file that says the same.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        spec_file::write(self).context("the experiment cannot be written as TOML")
    }

    /// What is measured.
    pub fn measure_names(&self) -> Vec<MeasureName> {
        let mut names = if self.measures.is_empty() { self.show.measures() } else { self.measures.clone() };
        if self.generate.is_some() && !names.contains(&MeasureName::Generation) {
            names.push(MeasureName::Generation);
        }
        names
    }

    /// Tokens that models say by themselves at most; nothing if they are not left to.
    pub fn max_new(&self) -> Option<usize> {
        let generates = self.measure_names().contains(&MeasureName::Generation);
        generates.then(|| self.generate.map_or(MAX_NEW, |generate| generate.max_new).get())
    }

    /// The baseline, one condition for each number of bits, and those that are named.
    ///
    /// # Errors
    /// Usage errors for numbers of bits that cannot be, and conditions that are named twice.
    pub fn conditions(&self) -> Result<Vec<Condition>> {
        let mut conditions = vec![Condition::default()];
        if let Some(quantise) = &self.quantise {
            conditions.extend(quantise.conditions()?);
        }
        for condition in self.conditions.iter().filter(|condition| !condition.is_untreated()) {
            if conditions.contains(condition) {
                bail_usage!("the condition {condition} is named twice");
            }
            conditions.push(condition.clone());
        }
        Ok(conditions)
    }

    /// The same with at most two prompts per depth: to see whether it works at all.
    pub fn small(mut self) -> Self {
        match &mut self.grid {
            Grid::Needle(grid) => {
                grid.samples = grid.samples.min(2);
                grid.heldout_samples = grid.heldout_samples.min(1);
                grid.absent_samples = grid.absent_samples.min(1);
            }
            Grid::Text(grid) => grid.samples = grid.samples.min(2),
            Grid::Shots(grid) => {
                grid.samples = grid.samples.min(2);
                grid.arrangements = grid.arrangements.min(2);
            }
        }
        self
    }

    /// What became of the expectations.
    pub fn outcomes(&self, frame: &Frame) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let conditions = self.conditions().unwrap_or_default();
        for expectation in &self.expect {
            let condition = expectation.condition_among(&conditions).ok().and_then(Condition::column);
            let about = |model: &&String| expectation.model.as_ref().is_none_or(|wanted| wanted == *model);
            outcomes.extend(
                self.models.iter().filter(about).map(|model| expectation.outcome(model, condition.as_deref(), frame)),
            );
        }
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::NeedleGrid;
    use proptest::prelude::*;

    const FILE: &str = r#"
question = "Does it?"
show = "quantize"
models = ["transformer", "diff"]

[grid]
task = "needle"
ctx_tok = [512]
settings = [[2, 2], [4, 2]]
depths_pct = [0.0, 50.0]
samples = 3
heldout_samples = 0
seed = 7

[quantise]
bits = [8, 4]
scope = "head"

[[expect]]
metric = "exact"
model = "diff"
bits = 8
at_least = 0.5
"#;

    fn refusal(from: &str, to: &str) -> String {
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE, "nothing to replace");
        Experiment::parse(&text, "x.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let experiment = Experiment::parse(FILE, "x.toml").unwrap();
        assert_eq!(experiment.conditions().unwrap().len(), 3);
        assert_eq!(experiment.measure_names(), [MeasureName::Answer, MeasureName::Fidelity]);
        let Grid::Needle(grid) = &experiment.grid else { panic!("a needle grid") };
        assert_eq!(grid.settings, [(2, 2), (4, 2)]);
        assert_eq!(Experiment::parse(&experiment.to_toml().unwrap(), "y.toml").unwrap(), experiment);
    }

    #[test]
    fn generating_is_a_measure_and_a_number_of_tokens() {
        let parse = |text: &str| Experiment::parse(text, "x.toml").unwrap();
        let asked = parse(&FILE.replacen("[[expect]]", "[generate]\nmax_new = 7\n\n[[expect]]", 1));
        assert_eq!(asked.max_new(), Some(7));
        assert_eq!(asked.measure_names(), [MeasureName::Answer, MeasureName::Fidelity, MeasureName::Generation]);
        assert_eq!(parse(&asked.to_toml().unwrap()), asked);
        let named = parse(&format!("measures = [\"answer\", \"generation\"]\n{FILE}"));
        assert_eq!(named.max_new(), Some(MAX_NEW.get()));
        assert_eq!(parse(FILE).max_new(), None);
    }

    #[test]
    fn mistakes_name_the_line_and_what_there_is() {
        assert!(refusal("samples = 3", "sample = 3").contains("unknown field `sample`"));
        assert!(refusal("show = \"quantize\"", "show = \"picture\"").starts_with("x.toml, line 3: unknown variant"));
        assert!(refusal("bits = [8, 4]", "bits = [8, 1]").contains("`bits` 1: a logit can have 2 to 16 bits"));
        assert!(
            refusal("bits = 8\n", "bits = 8\ncondition = \"quantise(4, head)\"\n").contains("`condition` and `bits`")
        );
        assert!(refusal("at_least = 0.5\n", "").contains("needs at_least or at_most"));
        assert!(refusal("model = \"diff\"", "model = \"dif\"").contains("`dif`, which is not among the models"));
        assert!(refusal("models = [\"transformer\", \"diff\"]", "models = []").contains("names nothing"));
        assert!(refusal("at_least = 0.5", "at_least = nan").contains("nan is not a finite number"));
        assert!(refusal("at_least = 0.5", "at_least = 0.5\nat_most = 0.4").contains("nothing can be at least"));
        assert!(refusal("bits = 8\n", "bits = 5\n").contains("5 bits, which is not among"));
        assert!(
            refusal("show = \"quantize\"", "show = \"ratio\"\nmeasures = [\"shape\"]").contains("needs the measure")
        );
        assert!(refusal("seed = 7", "seed = seven").starts_with("x.toml, line "));
        for (from, to, expected) in [
            ("seed = 7", "seed = -7", "line 13: a whole number from 0 on is expected here, not the number -7"),
            ("[512]", "[\"512\"]", "line 8: a whole number from 0 on is expected here, not the text \"512\""),
            ("[[2, 2], [4, 2]]", "[[2]]", "line 9: a list of 2 values is expected here, not of 1"),
            ("samples = 3", "sample = 3", "line 11: unknown field `sample`"),
            ("task = \"needle\"", "task = \"pin\"", "line 7: unknown variant `pin`"),
            ("task = \"needle\"\n", "", "missing: `grid.task`"),
            ("[grid]\ntask = \"needle\"\nctx_tok = [512]", "[grid]\nctx_tok = [true]\ntask = \"needle\"", "line 7: "),
        ] {
            let refused = refusal(from, to);
            assert!(refused.contains(expected), "{to}: {refused}");
        }
    }

    #[test]
    fn every_mistake_names_the_file_once() {
        let twice = "conditions = [\"mask(noise)\", \"mask(noise)\"]\nshow = \"quantize\"";
        let shots =
            "[grid]\ntask = \"shots\"\nctx_tok = 512\nshots = []\nwords = 4\nclasses = 2\norders = [\"random\"]\n\
                     arrangements = 1\nsamples = 1\nseed = 1\n";
        let shots = format!("show = \"shots\"\nmodels = [\"diff\"]\n{shots}");
        for error in [
            refusal("[\"transformer\", \"diff\"]", "[\"diff\", \"diff\"]"),
            refusal("[\"transformer\", \"diff\"]", "[]"),
            refusal("bits = [8, 4]", "bits = [8, 8]"),
            refusal("[0.0, 50.0]", "[0.0, 150.0]"),
            refusal("[[2, 2], [4, 2]]", "[[2, 2], [2, 4]]"),
            refusal("show = \"quantize\"", twice),
            refusal("show = \"quantize\"", "show = \"heatmap\""),
            refusal("metric = \"exact\"\nmodel = \"diff\"", "metric = \"exact\"\nmodel = \"dif\""),
            refusal("at_least = 0.5\n", ""),
            Experiment::parse(&shots, "x.toml").unwrap_err().to_string(),
        ] {
            assert!(error.starts_with("x.toml: ") && error.matches("x.toml").count() == 1, "{error}");
        }
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        spec_file::assert_names_what_is_missing::<Experiment>(FILE, &REQUIRED);
        let error = Experiment::parse("models = []\n[grid]\ntask = \"text\"\nseed = 1\n", "x.toml").unwrap_err();
        assert_eq!(error.to_string(), "x.toml: missing: `show`, `grid.ctx_tok`, `grid.samples`");
    }

    #[test]
    fn all_stands_for_the_built_in_models_that_expectations_are_about() {
        let all = FILE.replacen("[\"transformer\", \"diff\"]", "[\"all\"]", 1);
        let experiment = Experiment::parse(&all, "x.toml").unwrap();
        assert_eq!(experiment.models, ["transformer", "diff", "diff-no-norm", "diff-v2"]);
        assert_eq!(experiment.outcomes(&Frame::default()).len(), 1, "of the one model that is named");
    }

    #[test]
    fn the_small_version_differs_in_the_number_of_prompts_only() {
        let experiment = Experiment::parse(FILE, "x.toml").unwrap();
        let small = experiment.clone().small();
        let Grid::Needle(grid) = experiment.grid.clone() else { panic!("a needle grid") };
        let expected = Grid::Needle(NeedleGrid { samples: 2, ..grid });
        assert_eq!(small, Experiment { grid: expected, ..experiment });
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
            let _ = Experiment::parse(&text, "x.toml");
        }

        #[test]
        fn no_damage_to_a_file_makes_the_reader_panic(at in 0..FILE.len(), junk in "\\PC{0,5}") {
            let _ = Experiment::parse(&format!("{}{junk}{}", &FILE[..at], &FILE[at..]), "x.toml");
            let _ = Experiment::parse(&FILE[..at], "x.toml");
        }
    }
}
