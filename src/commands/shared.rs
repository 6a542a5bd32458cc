//! Flags that several commands share.

use super::models::{OpenedModels, CTX_TOK};
use super::table_args::TableArgs;
use super::MOST_THREADS;
use crate::results::compare::FailIf;
use crate::results::folder::RunFolder;
use crate::run::{OutputStyle, RunPart, RunShard, RunStart};
use anyhow::Result;
use base::spec_file::{flag_defaults, is_default};
use base::FileName;
use clap::{Args, ValueEnum};
use engine::model::open::{self, LoadOptions};
use names::condition::Condition;
use names::values::{IndexRange, TokenRange};
use names::LayersAndHeads;
use plot::Page;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use strum::IntoStaticStr;
use text::{Grid, NeedlePrompts, OwnText, PromptDefaults, TextWindows, OWN_TEXT};

/// Needle prompts, or as many windows of a text if there is one without a question.
pub(super) fn grid(prompts: &NeedlePrompts) -> Grid {
    if !prompts.own.is_given() || prompts.own.is_asked() {
        return Grid::Needle(prompts.clone());
    }
    Grid::Text(TextWindows {
        ctx_tok: prompts.ctx_tok(),
        samples: prompts.samples(),
        seed: prompts.seed,
        own: prompts.own.clone(),
        ..TextWindows::default()
    })
}

/// The prompt of a command on one prompt.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Prompt")]
pub(super) struct OnePrompt {
    /// Prompt length in tokens [default: 4k, of `explore` 1k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS", conflicts_with = "question")]
    pub ctx: Option<TokenRange>,
    /// Needles in the text, of which one is asked for [default: 1; of `explore` as many as other commands have]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "N", conflicts_with_all = OWN_TEXT)]
    pub needles: Option<usize>,
    /// Depth in the text at which the needle stands, in percent
    #[arg(
        long,
        default_value_t = 50.0,
        value_name = "PCT",
        value_parser = names::values::percent,
        conflicts_with_all = OWN_TEXT,
        hide_short_help = true,
    )]
    pub depth: f64,
    /// Seed of the prompt
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
    #[serde(skip_serializing_if = "is_default")]
    #[command(flatten)]
    pub own: OwnText,
}

impl Default for OnePrompt {
    fn default() -> Self {
        flag_defaults()
    }
}

impl OnePrompt {
    /// Fills in the length, which a text with a question has itself, and the needles: those of the commands on many prompts, or one
    /// where there are no `defaults`.
    pub(super) fn fill(&mut self, models: &OpenedModels, defaults: Option<&PromptDefaults>, why: &str) -> Result<()> {
        if self.own.is_asked() {
            self.needles.get_or_insert(1);
            return Ok(());
        }
        let usual = defaults.map_or(CTX_TOK, |defaults| defaults.ctx_tok);
        let ctx = models.one_ctx_tok(self.ctx, usual, why)?;
        let needles = defaults.map_or(1, |defaults| models.needles(defaults, ctx));
        self.ctx = Some(ctx);
        self.needles.get_or_insert(needles);
        Ok(())
    }

    /// One needle prompt, or the beginning of a text.
    pub(super) fn grid(&self) -> Grid {
        grid(&NeedlePrompts {
            ctx: self.ctx.into_iter().collect(),
            needles: vec![self.needles.unwrap_or(1)],
            retrieve: vec![1],
            depths: vec![self.depth],
            samples: Some(1),
            seed: self.seed,
            haystack: self.haystack.clone(),
            own: self.own.clone(),
            ..NeedlePrompts::default()
        })
    }
}

/// The help of a flag for one model.
pub(super) fn model_help() -> String {
    let built_in = open::built_in_names().join(", ");
    format!("Built-in model ({built_in}), GGUF file, Hugging Face folder, or hf:org/name[/folder] of the Hub")
}

/// The help of a flag for several models.
pub(super) fn models_help() -> String {
    let built_in = open::built_in_names().join(", ");
    let default = open::BY_DEFAULT.join(", ");
    format!(
        "Built-in model ({built_in}), `all` of them, GGUF file, Hugging Face folder, or hf:org/name[/folder] of the Hub; may be \
         repeated [default: {default}]"
    )
}

/// Which models, in which passes, and what is expected of them: the flags that all measuring commands share.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[command(next_help_heading = "Models")]
pub struct RunFlags {
    /// The models; the baseline first.
    #[arg(long, value_name = "NAME|PATH", help = models_help())]
    pub model: Vec<String>,
    /// Layers to measure, counted from 0: a list, or ranges that include both ends (0..3) [default: all]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_delimiter = ',', value_name = "L", hide_short_help = true)]
    pub layers: Option<Vec<IndexRange>>,
    /// Heads of each layer to measure, likewise [default: all]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_delimiter = ',', value_name = "H", hide_short_help = true)]
    pub heads: Option<Vec<IndexRange>>,
    /// Measure the same prompts also under a treatment, as in "mask(noise)" or "ablate(0.3+2.1)"; may be repeated
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<Condition>,
    /// Exit with 3 if a mean meets this condition, as in 'accuracy < 0.9', 'accuracy of diff < 0.9' or 'accuracy under mask(noise)
    /// < 0.9'; may be repeated
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true, hide_short_help = true)]
    pub fail_if: Vec<FailIf>,
    #[serde(skip_serializing_if = "is_default")]
    #[command(flatten)]
    pub reading: LoadOptions,
}

/// Where results are written, and in which format.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Threads; results are the same for any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = threads, hide_short_help = true)]
    pub threads: Option<NonZeroUsize>,
    /// Run folder, new or empty [default: runs/<command>-<UTC time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write tables, figures and explorer as one HTML page into this new file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub tables: TableArgs,
    /// Print only the result
    #[arg(short, long, hide_short_help = true)]
    pub quiet: bool,
    #[command(flatten)]
    pub figures: FigureArgs,
}

/// Formats and size of figures.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub(super) struct FigureArgs {
    /// Formats of figures, as in `png,pdf`; reports show PNGs
    #[arg(
        long = "figures",
        value_enum,
        value_delimiter = ',',
        default_value = "png",
        value_name = "FORMATS",
        hide_short_help = true
    )]
    pub formats: Vec<FigureFormat>,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Size of figures.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub(super) struct PageArgs {
    /// Width of figures on paper, with PNGs at 300 dpi [default: the width that they need]
    #[arg(long, value_name = "MM", value_parser = paper_width, hide_short_help = true)]
    pub figure_width: Option<f64>,
    /// Draw figures without title and subtitle
    #[arg(long, hide_short_help = true)]
    pub no_title: bool,
}

/// Parses a number of threads.
fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MOST_THREADS);
    number.ok_or_else(|| format!("give it a number from 1 to {MOST_THREADS}, or leave it out for all cores"))
}

/// Parses a width in millimetres.
fn paper_width(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (20.0..=2000.0).contains(number));
    number.ok_or_else(|| "give it a number from 20 to 2000".to_owned())
}

impl PartArgs {
    /// The part of the run that is asked for.
    ///
    /// # Errors
    /// A usage error if there is no folder to resume.
    pub(super) fn of_run(&self, output: &OutputArgs) -> Result<RunPart> {
        let start = match &self.resume {
            Some(folder) => RunStart::Resume(RunFolder::reopen(folder)?),
            None => RunStart::New(output.out.clone()),
        };
        Ok(RunPart { start, shard: self.shard })
    }
}

impl RunFlags {
    /// The layers and heads to measure.
    pub(super) fn layers_and_heads(&self) -> LayersAndHeads {
        LayersAndHeads {
            layers: IndexRange::all(self.layers.as_deref()),
            heads: IndexRange::all(self.heads.as_deref()),
        }
    }
}

impl PageArgs {
    /// The page size of figures.
    pub(super) fn page(&self) -> Page {
        Page { width_mm: self.figure_width, no_title: self.no_title }
    }
}

impl FigureArgs {
    /// The extensions of the files of a figure, one for each format.
    fn extensions(&self) -> Vec<&'static str> {
        extensions(&self.formats)
    }

    /// The file names of a figure, one for each format.
    pub(super) fn files(&self, name: &str) -> Vec<String> {
        self.extensions().iter().map(|extension| format!("{name}.{extension}")).collect()
    }
}

/// The extensions of the files of these formats, each once.
pub(super) fn extensions(formats: &[FigureFormat]) -> Vec<&'static str> {
    let extensions: BTreeSet<&'static str> = formats.iter().map(Into::into).collect();
    extensions.into_iter().collect()
}

impl OutputArgs {
    /// How a run shows what came out.
    pub(super) fn style(&self) -> OutputStyle {
        OutputStyle { quiet: self.quiet, page: self.figures.page.page(), figures: self.figures.extensions() }
    }
}

/// A format of figures, named like the extension of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum FigureFormat {
    /// Bitmap
    Png,
    /// Vector graphics for the web and for editing
    Svg,
    /// Vector graphics for papers
    Pdf,
}

/// The flags of a measuring command: its own, and those that all share.
#[derive(Clone, Debug, Args)]
pub(super) struct Measured<S: Args> {
    #[command(flatten)]
    pub flags: S,
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub part: PartArgs,
}

/// The part of an experiment that is run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Parts of a run")]
pub(super) struct PartArgs {
    /// Continue the unfinished run in this folder, with the same other flags
    #[arg(long, value_name = "DIR", conflicts_with = "out", hide_short_help = true)]
    pub resume: Option<PathBuf>,
    /// Run only shard I of N, for `difftool merge`; `auto` reads the variables of SLURM's array jobs
    #[arg(long, value_name = "I/N|auto", hide_short_help = true)]
    pub shard: Option<RunShard>,
    /// Print the experiment file of this command, for `difftool run`, without running it
    #[arg(long, hide_short_help = true)]
    pub print_experiment: bool,
}

/// Hides the flags for parts of a run: a single prompt cannot be done in parts.
pub(super) fn without_parts(command: clap::Command) -> clap::Command {
    command.mut_arg("resume", |arg| arg.hide(true)).mut_arg("shard", |arg| arg.hide(true))
}

/// Shows all flags but those of figures in the help of `-h` too.
pub(super) fn all_in_short_help(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let is_of_figures = arg.get_help_heading() == Some("Figures");
        arg.hide_short_help(is_of_figures)
    })
}
