//! The experiment file: everything that decides what is measured, as TOML.
//!
//! Every measuring command builds an experiment. A run folder holds its own as `experiment.toml`.

use super::{Expectation, Grid, Heatmap, Outcome, Quantisation, TextGrid};
use crate::attention::LayersAndHeads;
use crate::bail_usage;
use crate::base::error::Usage;
use crate::base::names::repeated;
use crate::base::spec_file::{self, is_default};
use crate::measures::MeasureName;
use crate::model::generate::MAX_NEW;
use crate::model::open::{self, LoadOptions};
use crate::results::Frame;
use crate::treatments::Condition;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// An experiment: metrics, models, prompts and tables. Unknown keys are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The question, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// How to read the answer, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub analysis: String,
    /// Tables and figures to make of the records.
    pub show: Show,
    /// Names of built-in models, or folders; the baseline first.
    pub models: Vec<String>,
    /// Measures; empty for those that the tables of `show` need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<MeasureName>,
    /// File with filler text, in place of the embedded prose; or `noise`, or `needles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub haystack: Option<PathBuf>,
    /// File with the text to measure, in place of the embedded prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<PathBuf>,
    /// File with token ids to measure, in place of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<PathBuf>,
    /// Tokens at the beginning of every window that the mean negative log-likelihood excludes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skip: usize,
    /// Run folder of `ablate --parts each-head` whose costs the heads can be coloured by, for `show = "explore"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<PathBuf>,
    /// Options for loading the models.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reading: LoadOptions,
    /// The prompts.
    pub grid: Grid,
    /// Layers and heads to measure. Default: all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub select: LayersAndHeads,
    /// Quantisation of attention logits, or of queries and keys, as further conditions on the same prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantise: Option<Quantisation>,
    /// Further conditions, each on the same prompts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Scores treated passes without measuring them: measures observe untreated passes alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub only_score_treated: bool,
    /// Maps to draw, for `show = "heatmap"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heatmap: Option<Heatmap>,
    /// Greedy decoding of an answer under every condition: adds the measure `generation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// Results that are expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
}

/// Tables and figures of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Show {
    /// Accuracy, and shares of attention on the answer and on noise.
    #[default]
    Needle,
    /// Accuracy by number of examples, and the effect of their order.
    Shots,
    /// Shares of attention by region, for each head.
    Ratio,
    /// Roles of heads.
    Heads,
    /// Accuracy and fidelity with quantised logits, or queries and keys.
    Quantize,
    /// Accuracy without some keys or heads.
    Ablate,
    /// Largest logits and hidden states.
    Outliers,
    /// Negative log-likelihood of text, by position.
    Nll,
    /// Attention maps of one prompt.
    Heatmap,
    /// Interactive page with the attention maps of one prompt.
    Explore,
}

impl Show {
    /// Name of the command that shows it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if it shows the maps of one prompt. These are not records, so such a run cannot be resumed or sharded.
    pub fn is_of_maps(self) -> bool {
        matches!(self, Self::Heatmap | Self::Explore)
    }

    /// Measures that its tables need.
    fn measures(self) -> Vec<MeasureName> {
        match self {
            Self::Needle | Self::Shots => vec![MeasureName::Answer],
            Self::Ratio => vec![MeasureName::AnswerByHead, MeasureName::Shape],
            Self::Heads => vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
            Self::Quantize => vec![MeasureName::Answer, MeasureName::Fidelity],
            Self::Ablate => vec![MeasureName::Answer],
            Self::Outliers => vec![MeasureName::Outliers, MeasureName::SinkRate],
            Self::Nll => vec![MeasureName::Nll],
            Self::Heatmap => vec![MeasureName::AnswerByHead],
            Self::Explore => vec![MeasureName::AnswerByHead, MeasureName::Shape, MeasureName::Roles],
        }
    }
}

/// Greedy decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// Largest number of new tokens.
    pub max_new: NonZeroUsize,
}

impl Experiment {
    /// An experiment on these models and prompts, with defaults for the rest.
    pub fn new(show: Show, models: Vec<String>, grid: Grid) -> Self {
        Self { show, models, grid, ..Self::default() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read; usage errors with the line and the key if it is not an experiment.
    pub fn read(path: &Path) -> Result<Self> {
        let text = crate::base::files::input_text(path, crate::base::files::CONFIG_MAX)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads an experiment; `name` is for messages.
    ///
    /// # Errors
    /// Usage errors with the line and the key.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let experiment: Self = spec_file::parse(name, text)?;
        experiment.resolved().map_err(|error| Usage(format!("{name}: {error:#}")).into())
    }

    /// Expands names of models, and checks the result.
    fn resolved(mut self) -> Result<Self> {
        if self.models.is_empty() {
            bail_usage!("`models` names nothing");
        }
        self.models = open::resolve(&self.models)?;
        self.check()?;
        Ok(self)
    }

    /// Checks what the types cannot express, before models and texts are read.
    ///
    /// # Errors
    /// Usage errors that name the key.
    pub fn check(&self) -> Result<()> {
        let needles_file = match &self.grid {
            Grid::Needle(grid) => &grid.needles_file,
            Grid::Text(_) | Grid::Shots(_) => &None,
        };
        let [haystack, text, ids] = [&self.haystack, &self.text, &self.ids];
        for (field, path) in [("haystack", haystack), ("text", text), ("ids", ids), ("needles-file", needles_file)] {
            if let Some(path) = path.as_ref().filter(|path| path.to_str().is_none()) {
                bail_usage!("--{field} {}: the name is not UTF-8, which an experiment file needs", path.display());
            }
        }
        let conditions = self.conditions()?;
        self.check_measures()?;
        self.check_text()?;
        if self.show == Show::Ablate && (self.text_grid().is_some() || conditions.len() < 2) {
            bail_usage!(
                "show = \"ablate\" compares conditions on needle prompts: it needs `conditions` and [grid.needle]"
            );
        }
        self.check_task()?;
        self.check_maps()?;
        self.check_pooling()?;
        if self.max_new().is_some() && self.text_grid().is_some() {
            bail_usage!("`generate` needs prompts with a question, and plain text has none");
        }
        for expectation in &self.expect {
            expectation.check()?;
            expectation.condition_among(&conditions)?;
            if let Some(model) = expectation.model.as_ref().filter(|model| !self.models.contains(model)) {
                bail_usage!("[[expect]] names the model `{model}`, which is not among the models");
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

    /// Checks the keys about a text against each other and against the grid.
    fn check_text(&self) -> Result<()> {
        let grid = self.text_grid();
        for (key, given) in [("text", self.text.is_some()), ("ids", self.ids.is_some())] {
            if given && grid.is_none() {
                bail_usage!("--{key} is for windows of text: it needs [grid.text]");
            }
        }
        if let Some(shortest) = grid.and_then(|grid| grid.ctx_tok.iter().min()).filter(|&&ctx_tok| self.skip >= ctx_tok)
        {
            bail_usage!("--skip {} leaves nothing of windows of {shortest} tokens", self.skip);
        }
        if self.text.is_some() && self.ids.is_some() {
            bail_usage!("--text and --ids exclude each other: leave one of them out");
        }
        Ok(())
    }

    /// Checks that prompts whose results are pooled are of one kind.
    fn check_pooling(&self) -> Result<()> {
        if self.show == Show::Nll && self.text_grid().is_none_or(|grid| grid.ctx_tok.len() != 1) {
            bail_usage!("show = \"nll\" pools windows of one length: it needs [grid.text] with one ctx_tok");
        }
        let settings = match &self.grid {
            Grid::Text(grid) => grid.ctx_tok.len(),
            Grid::Shots(grid) => grid.shots.len() * grid.orders.len(),
            Grid::Needle(grid) => grid.ctx_tok.len() * grid.settings.len() * grid.forms().len(),
        };
        let pools = |measure: &MeasureName| matches!(measure, MeasureName::Outliers | MeasureName::Nll);
        if settings > 1 && self.measure_names().iter().any(pools) {
            bail_usage!(
                "the measures outliers and nll pool prompts of one kind: give one ctx_tok and one of `settings`"
            );
        }
        Ok(())
    }

    /// Checks the grid, and that `show` fits it.
    fn check_task(&self) -> Result<()> {
        let is_shots = matches!(self.grid, Grid::Shots(_));
        if is_shots != (self.show == Show::Shots) {
            bail_usage!("show = \"shots\" and [grid.shots] need each other");
        }
        if let Grid::Shots(grid) = &self.grid {
            grid.check()?;
        }
        if let Grid::Needle(grid) = &self.grid {
            grid.check()?;
            if grid.absent_samples > 0 && self.max_new().is_none() {
                bail_usage!("--unanswerable measures generated answers: add [generate]");
            }
        }
        Ok(())
    }

    /// Checks that `show` has the measures it needs.
    fn check_measures(&self) -> Result<()> {
        let (show, names) = (self.show.name(), self.measure_names());
        let needed: &[MeasureName] = match self.show {
            Show::Outliers => &[MeasureName::Outliers],
            Show::Nll => &[MeasureName::Nll],
            Show::Ratio => &[MeasureName::AnswerByHead],
            Show::Heads => &[MeasureName::Roles, MeasureName::AnswerByHead],
            _ => &[MeasureName::Answer, MeasureName::AnswerByHead],
        };
        let of_predictions =
            |name: &&MeasureName| matches!(name, MeasureName::Fidelity | MeasureName::Nll | MeasureName::Outliers);
        if let (true, Some(name)) = (self.only_score_treated, names.iter().find(of_predictions)) {
            bail_usage!("`only_score_treated`: the measure {name:?} observes all passes");
        }
        if !needed.iter().any(|measure| names.contains(measure)) {
            let needed: Vec<String> = needed.iter().map(|measure| json!(measure).to_string()).collect();
            bail_usage!("show = \"{show}\" needs the measure {}", needed.join(" or "));
        }
        Ok(())
    }

    /// The experiment as a file, which [`parse`](Self::parse) reads to the same value.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).context("the experiment cannot be written as TOML")
    }

    /// Names of the measures.
    pub fn measure_names(&self) -> Vec<MeasureName> {
        let mut names = if self.measures.is_empty() { self.show.measures() } else { self.measures.clone() };
        if self.generate.is_some() && !names.contains(&MeasureName::Generation) {
            names.push(MeasureName::Generation);
        }
        names
    }

    /// Largest number of new tokens; `None` if nothing is generated.
    pub fn max_new(&self) -> Option<usize> {
        let generates = self.measure_names().contains(&MeasureName::Generation);
        generates.then(|| self.generate.map_or(MAX_NEW, |generate| generate.max_new).get())
    }

    /// The untreated condition, one for each number of bits, and those of `conditions`.
    ///
    /// # Errors
    /// Usage errors for impossible numbers of bits, and for conditions that are named twice.
    pub fn conditions(&self) -> Result<Vec<Condition>> {
        let mut conditions = vec![Condition::default()];
        if let Some(quantise) = &self.quantise {
            conditions.extend(quantise.conditions(None)?);
        }
        conditions.extend(self.conditions.iter().filter(|condition| !condition.is_untreated()).cloned());
        if let Some(condition) = repeated(&conditions) {
            bail_usage!("the condition {condition} is named twice");
        }
        Ok(conditions)
    }

    /// Results of the expectations, one for each model that one is about.
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
    use crate::kernels::quant::{Format, Quantised, Scope};
    use crate::prompts::Order;
    use crate::run::{NeedleGrid, ShotsGrid};
    use proptest::prelude::*;

    const FILE: &str = r#"
question = "Does it?"
show = "quantize"
models = ["transformer", "diff"]

[grid.needle]
ctx_tok = [512]
settings = [[2, 2], [4, 2]]
depths_pct = [0.0, 50.0]
samples = 3
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
    fn generate_adds_a_measure_and_limits_its_tokens() {
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
    fn mistakes_name_the_line_and_the_key() {
        assert!(refusal("bits = [8, 4]", "bits = [8, 1]").contains("--bits 1: a logit can have 2 to 16 bits"));
        assert!(
            refusal("bits = 8\n", "bits = 8\ncondition = \"quantise(4, head)\"\n").contains("`condition` and `bits`")
        );
        for (from, to, words) in [
            ("[8, 4]", "[8, \"fp8\"]", "--bits fp8 is for queries and keys"),
            ("scope = \"head\"", "scope = \"block\"", "--scope block is for queries and keys; logits have tensor"),
            ("scope = \"head\"", "scope = \"head\"\nrotate = true", "--rotate is for queries and keys"),
            ("scope = \"head\"", "scope = \"row\"\nof = \"qk\"", "queries and keys have block, token and head"),
            ("[8, 4]", "[8, \"fp5\"]", "neither a number of bits nor \"fp8\" nor \"fp4\""),
        ] {
            assert!(refusal(from, to).contains(words), "{to}: {}", refusal(from, to));
        }
        assert!(refusal("at_least = 0.5\n", "").contains("needs at_least or at_most"));
        assert!(refusal("model = \"diff\"", "model = \"dif\"").contains("`dif`, which is not among the models"));
        assert!(refusal("models = [\"transformer\", \"diff\"]", "models = []").contains("names nothing"));
        assert!(refusal("at_least = 0.5", "at_least = nan").contains("NaN, which is not a finite number"));
        assert!(refusal("at_least = 0.5", "at_most = inf").contains("inf, which is not a finite number"));
        assert!(
            refusal("at_least = 0.5", "at_least = 0.5\nat_most = 0.4").contains("at_least 0.5 is larger than at_most")
        );
        assert!(refusal("bits = 8\n", "bits = 5\n").contains("5 bits, which is not among"));
        assert!(
            refusal("show = \"quantize\"", "show = \"ratio\"\nmeasures = [\"shape\"]").contains("needs the measure")
        );
        for (from, to, expected) in [
            ("show = \"quantize\"", "show = \"picture\"", "line 3: unknown variant `picture`"),
            ("show = \"quantize\"\n", "", "line 1: missing field `show`"),
            ("seed = 7", "seed = seven", "line 11: "),
            ("seed = 7", "seed = -7", "line 11: invalid value: integer `-7`, expected u64 in `grid.needle.seed`"),
            ("seed = 7\n", "", "line 6: missing field `seed` in `grid.needle`"),
            ("[512]", "[\"512\"]", "line 7: invalid type: string \"512\", expected usize in `grid.needle.ctx_tok`"),
            ("[4, 2]]", "[4, 2, 2]]", "line 8: invalid length 3, expected a list of 2 numbers"),
            ("samples = 3", "sample = 3", "line 10: unknown field `sample`"),
            ("grid.needle", "grid.pin", "line 6: unknown field `pin`, expected one of `needle`, `text`, `shots`"),
            ("grid.needle", "grid", "line 7: unknown field `ctx_tok`, expected one of `needle`, `text`, `shots`"),
            (
                "[quantise]",
                "[grid.text]\nctx_tok = [8]\nsamples = 1\nseed = 0\n[quantise]",
                "expected one of [grid.needle]",
            ),
            ("bits = [8, 4]\n", "", "line 13: missing field `bits` in `quantise`"),
            ("metric = \"exact\"\n", "", "line 17: missing field `metric` in `expect`"),
        ] {
            let refused = refusal(from, to);
            assert!(refused.starts_with("x.toml, line ") && refused.contains(expected), "{to}: {refused}");
        }
    }

    #[test]
    fn every_mistake_names_the_file_once() {
        let twice = "conditions = [\"mask(noise)\", \"mask(noise)\"]\nshow = \"quantize\"";
        let shots = "[grid.shots]\nctx_tok = 512\nshots = []\nwords = 4\nclasses = 2\norders = [\"random\"]\n\
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
    fn the_name_all_expands_to_the_built_in_models() {
        let all = FILE.replacen("[\"transformer\", \"diff\"]", "[\"all\"]", 1);
        let experiment = Experiment::parse(&all, "x.toml").unwrap();
        assert_eq!(experiment.models, ["transformer", "diff", "diff-v2", "diff-no-norm"]);
        assert_eq!(experiment.outcomes(&Frame::default()).len(), 1, "of the one model that is named");
    }

    fn grids() -> impl Strategy<Value = Grid> {
        let numbers = || prop::collection::vec(0..1_000_000_usize, 0..3);
        let needle = (
            numbers(),
            prop::collection::vec((0..99_usize, 0..99_usize), 0..3),
            prop::collection::vec(-1e300..1e300, 0..3),
            [0..99_usize, 0..99],
            prop::collection::vec(-1e300..1e300, 0..3),
            any::<u64>(),
        );
        let needle =
            needle.prop_map(|(ctx_tok, settings, depths_pct, [samples, absent_samples], distractors_pct, seed)| {
                Grid::Needle(NeedleGrid {
                    ctx_tok,
                    settings,
                    depths_pct,
                    samples,
                    absent_samples,
                    distractors_pct,
                    seed,
                    ..NeedleGrid::default()
                })
            });
        let text = (numbers(), 0..99_usize, prop::option::of(0..99_usize), any::<u64>());
        let text =
            text.prop_map(|(ctx_tok, samples, stride, seed)| Grid::Text(TextGrid { ctx_tok, samples, stride, seed }));
        let orders = prop::sample::subsequence(vec![Order::Random, Order::ByClass, Order::Alternating], 0..3);
        let shots = (numbers(), orders, [0..99_usize, 0..99, 0..99, 0..99, 0..99], any::<u64>());
        let shots = shots.prop_map(|(shots, orders, [ctx_tok, words, classes, arrangements, samples], seed)| {
            Grid::Shots(ShotsGrid { ctx_tok, shots, words, classes, orders, arrangements, samples, seed })
        });
        prop_oneof![needle, text, shots]
    }

    fn experiments() -> impl Strategy<Value = Experiment> {
        let condition =
            prop_oneof![Just("mask(noise)"), Just("quantise(4, head)")].prop_map(|text| text.parse().unwrap());
        let bound = || prop::option::of(-1e300..1e300);
        let expect = ("\\PC{0,9}", prop::option::of("\\PC{0,9}"), bound(), bound()).prop_map(
            |(metric, region, at_least, at_most)| Expectation {
                metric,
                region,
                model: None,
                bits: Some(8),
                condition: None,
                at_least,
                at_most,
            },
        );
        let words = ("[^\\[]{0,30}", prop::collection::vec("[^\\[]{0,9}", 0..3));
        let lists = (prop::collection::vec(condition, 0..2), prop::collection::vec(expect, 0..3));
        let formats = prop_oneof![(2..17_u32).prop_map(Format::Int), Just(Format::Fp8), Just(Format::Fp4)];
        let options = (prop::option::of(0..99_usize), prop::option::of(prop::collection::vec(formats, 0..3)));
        (grids(), words, lists, options).prop_map(|(grid, (question, models), (conditions, expect), (layer, bits))| {
            let of = if layer.is_some() { Quantised::Qk } else { Quantised::Logits };
            let (scope, exempt_sinks, smooth) = (Scope::Head, true, layer.is_some());
            let quantise = bits.map(|bits| Quantisation { of, bits, scope, exempt_sinks, smooth, rotate: smooth });
            let heatmap = layer.map(|layer| Heatmap { layer: Some(layer), ..Heatmap::default() });
            Experiment {
                question,
                quantise,
                conditions,
                heatmap,
                expect,
                ..Experiment::new(Show::Needle, models, grid)
            }
        })
    }

    proptest! {
        #[test]
        fn a_printed_experiment_reads_back_as_itself(experiment in experiments()) {
            let text = experiment.to_toml().unwrap();
            let read: Experiment = spec_file::parse("x.toml", &text).unwrap();
            prop_assert_eq!(&read, &experiment, "{}", text);
        }

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
