//! Flags that several commands share.

use super::{Distractors, IndexRange, TokenRange};
use crate::attention::LayersAndHeads;
use crate::figures::Page;
use crate::model::open::{self, LoadOptions};
use crate::prompts::RulerTask;
use crate::results::print::Tables;
use crate::run::RunShard;
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use strum::IntoStaticStr;

/// Which prompts. The defaults depend on the command, which adds them to the help.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prompts")]
pub struct PromptArgs {
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
    #[arg(long, value_name = "prose|noise|needles|FILE|DIR")]
    pub haystack: Option<PathBuf>,
    /// Needles that are not asked for: a number, or a share of the context with `%`; a list to compare
    #[arg(long, value_delimiter = ',', value_name = "N|PCT%")]
    pub distractors: Vec<Distractors>,
    /// File with one JSON object on each line: `needle`, `question`, `answer` (a part of the needle) and, if wanted,
    /// `distractor`
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "distractors")]
    pub needles_file: Option<PathBuf>,
    /// Task of RULER, with its texts, keys, values and haystack
    #[arg(long, value_enum, conflicts_with_all = ["needles", "retrieve", "distractors", "needles_file"])]
    pub task: Option<RulerTask>,
}

/// The prompt of a command on one prompt.
#[derive(Clone, Debug, Args)]
pub struct OnePromptArgs {
    /// Prompt length in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Needles in the text
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub needles: usize,
    /// Depth of the needle in the text, in percent
    #[arg(long, default_value_t = 50.0, value_name = "PCT")]
    pub depth: f64,
    /// Seed of the prompt
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Filler text instead of the embedded prose: a UTF-8 file or a folder of them; `noise`, a few sentences repeated;
    /// `needles`, only distractors
    #[arg(long, value_name = "prose|noise|needles|FILE|DIR")]
    pub haystack: Option<PathBuf>,
    /// Additional pass under a condition, as in "mask(noise)" or "ablate(0.3+2.1)"; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// Print the experiment file of this command, for `difftool run`, without running it
    #[arg(long)]
    pub print_experiment: bool,
}

/// Returns the help of a flag for one model.
pub(super) fn model_help() -> String {
    let built_in = open::built_in_names().join(", ");
    format!("Built-in model ({built_in}), GGUF file, Hugging Face folder, or hf:org/name of the Hub")
}

/// Returns the help of a flag for several models.
pub(super) fn models_help() -> String {
    let (built_in, default) = (open::built_in_names().join(", "), open::BY_DEFAULT.join(", "));
    format!(
        "Built-in model ({built_in}), `all` of them, GGUF file, Hugging Face folder, or hf:org/name of the Hub; may be \
         repeated [default: {default}]"
    )
}

/// Which models, which layers and heads, and the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models")]
pub struct RunArgs {
    /// The models.
    #[arg(long, value_name = "NAME|PATH", help = models_help())]
    pub model: Vec<String>,
    /// How folders are read.
    #[command(flatten)]
    pub reading: LoadOptions,
    /// Layers to measure, counted from 0: a list, or ranges with both ends (0..3) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "L")]
    pub layers: Option<Vec<IndexRange>>,
    /// Heads of each layer to measure, counted from 0: a list, or ranges with both ends (0..3) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "H")]
    pub heads: Option<Vec<IndexRange>>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where results are written, and in which format.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Number of threads; does not change results [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Run folder, new or empty [default: runs/<command>-<UTC time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the report of the run, with its explorer if it has one, as one HTML page into this new file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print these tables: `all`, or names separated by commas, as in `depth,shape` [default: the main table and
    /// differences]
    #[arg(long, value_name = "NAMES", conflicts_with = "json")]
    pub tables: Option<Tables>,
    /// Print all tables as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
    /// Figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

/// Formats and size of figures.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub struct FigureArgs {
    /// Formats of figures, as in `png,pdf`; reports show PNGs
    #[arg(long = "figures", value_enum, value_delimiter = ',', default_value = "png", value_name = "FORMATS")]
    pub formats: Vec<FigureFormat>,
    /// Their size.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Size of figures.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub struct PageArgs {
    /// Width of figures on paper, with PNGs at 300 dpi [default: the width that they need]
    #[arg(long, value_name = "MM", value_parser = paper_width)]
    pub figure_width: Option<f64>,
}

/// Parses a width in millimetres.
fn paper_width(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (20.0..=2000.0).contains(number));
    number.ok_or_else(|| "give it a number from 20 to 2000".to_owned())
}

impl RunArgs {
    /// Returns the layers and heads to measure.
    pub fn select(&self) -> LayersAndHeads {
        LayersAndHeads {
            layers: IndexRange::all(self.layers.as_deref()),
            heads: IndexRange::all(self.heads.as_deref()),
        }
    }
}

impl PageArgs {
    /// Returns the page size of figures.
    pub fn page(&self) -> Page {
        Page { width_mm: self.figure_width }
    }
}

impl FigureArgs {
    /// Returns the file names of a figure, one for each format.
    pub fn files(&self, name: &str) -> Vec<String> {
        let extensions: BTreeSet<&str> = self.formats.iter().map(Into::into).collect();
        extensions.into_iter().map(|extension| format!("{name}.{extension}")).collect()
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

/// The part of an experiment that is run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Parts of a run")]
pub struct PartArgs {
    /// Continue the unfinished run in this folder, with the same other flags
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Run only shard I of N, for `difftool merge`; `auto` reads the variables of SLURM or Kubernetes
    #[arg(long, value_name = "I/N|auto")]
    pub shard: Option<RunShard>,
    /// Print the experiment file of this command, for `difftool run`, without running it
    #[arg(long)]
    pub print_experiment: bool,
}
