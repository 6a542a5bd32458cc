//! Flags that several commands share.

use super::{IndexRange, TokenRange};
use crate::attention::Selection;
use crate::device::{DeviceName, Precision};
use crate::experiment::Shard;
use crate::model::HeadLayout;
use crate::models::{self, WeightsLocation};
use crate::ops::Products;
use crate::plot::Page;
use crate::prompt::BosChoice;
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Which prompts. What is filled in for a flag that is not given depends on the command, whose help says it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prompts")]
pub struct PromptArgs {
    /// Prompt lengths in tokens: a number, a list (1k,4k), or a range with a step (1k..4k:1k)
    #[arg(long, value_delimiter = ',', value_name = "TOKENS")]
    pub ctx: Vec<TokenRange>,
    /// Needles in the text (the paper's N)
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub needles: Vec<usize>,
    /// Needles asked for (the paper's R), one for each value of --needles or one for all
    #[arg(long, value_delimiter = ',', value_name = "R")]
    pub retrieve: Vec<usize>,
    /// Depths of the answer in the text, in percent
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,75,100", value_name = "PCT")]
    pub depths: Vec<f64>,
    /// Prompts per depth, or windows of text
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Prompts per depth with cities that were held out of training
    #[arg(long, value_name = "N")]
    pub heldout: Option<usize>,
    /// Base seed: the same one makes the same prompts on every machine
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Your own filler text instead of the embedded prose: a UTF-8 file, or a folder of them
    #[arg(long, value_name = "FILE|DIR")]
    pub haystack: Option<PathBuf>,
}

/// The one prompt that a command looks at.
#[derive(Clone, Debug, Args)]
pub struct OnePromptArgs {
    /// Prompt length in tokens [default: 4k, or what all models can take if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Needles in the text
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub needles: usize,
    /// Depth of the answer in the text, in percent
    #[arg(long, default_value_t = 50.0, value_name = "PCT")]
    pub depth: f64,
    /// Seed of the prompt
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Your own filler text instead of the embedded prose: a UTF-8 file, or a folder of them
    #[arg(long, value_name = "FILE|DIR")]
    pub haystack: Option<PathBuf>,
    /// The same prompt once more under a condition, as in "mask(noise)" or "ablate(0.3+2.1)", beside the untreated pass; may
    /// be repeated
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// Print the experiment file that does the same (`difftool run FILE`), and do nothing
    #[arg(long)]
    pub print_experiment: bool,
}

/// What one model may be.
pub(super) fn model_help() -> String {
    let built_in = models::built_in_names().join(", ");
    format!("A built-in model ({built_in}), a Hugging Face folder, or hf:org/name with the feature hub")
}

/// What the models of a command may be.
pub(super) fn models_help() -> String {
    let (built_in, default) = (models::built_in_names().join(", "), models::BY_DEFAULT.join(", "));
    format!(
        "A built-in model ({built_in}), `all` of them, a Hugging Face folder, or hf:org/name with the feature hub; may be \
         repeated [default: {default}]"
    )
}

/// Which models, what of them, and where the results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models")]
pub struct RunArgs {
    /// The models.
    #[arg(long, value_name = "NAME|DIR", help = models_help())]
    pub model: Vec<String>,
    /// How folders are read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Measure only these layers, counted from 0: a list, or ranges with both ends (0..3) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "L")]
    pub layers: Option<Vec<IndexRange>>,
    /// Measure only these heads of each layer, counted from 0, likewise [default: all]
    #[arg(long, value_delimiter = ',', value_name = "H")]
    pub heads: Option<Vec<IndexRange>>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How model folders are read.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Models")]
pub struct ReadingArgs {
    /// Which heads make a map, instead of what config.json says
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub layout: Option<HeadLayout>,
    /// Put needle prompts into the model's chat template, the answer at the beginning of its reply
    #[arg(long)]
    pub chat_template: bool,
    /// The begin-of-sequence token: as the model's files say, put before every prompt, or left out (what a chat template
    /// writes stays)
    #[arg(long, value_name = "auto|add|omit", default_value = "auto")]
    pub bos: BosChoice,
    /// Allow prompts that begin with two begin-of-sequence tokens
    #[arg(long)]
    pub allow_double_bos: bool,
    /// Where weights are while a model runs; results do not depend on it
    #[arg(long, value_enum, value_name = "PLACE", default_value_t = WeightsLocation::Auto)]
    pub weights: WeightsLocation,
    /// What computes: cpu, or with a program that was built for it cuda, cuda:1 and so on, or metal
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu)]
    pub device: DeviceName,
    /// Number type of weights and activations; the CPU is fast with f32 alone
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Precision::F32)]
    pub dtype: Precision,
    /// What the kernels of the CPU multiply in layers and attention, with sums in f32; bf16 is faster and rounds
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Products::F32)]
    pub precision: Products,
}

/// Where results go, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// What the records are left as when the run is finished; compare and report read all of them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RecordFormat::Csv)]
    pub records: RecordFormat,
    /// Threads; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Run folder, which must not hold files yet [default: runs/<command>-<UTC time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
    /// Figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

/// In which formats figures are drawn.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub struct FigureArgs {
    /// Formats of the figures, which look alike, as in `png,pdf`; `report` shows PNGs
    #[arg(long = "figures", value_enum, value_delimiter = ',', default_value = "png", value_name = "FORMATS")]
    pub formats: Vec<FigureFormat>,
    /// Their size.
    #[command(flatten)]
    pub page: PageArgs,
}

/// How large figures are drawn.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Figures")]
pub struct PageArgs {
    /// Width of figures on paper; PNGs then have 300 dpi [default: what they need]
    #[arg(long, value_name = "MM", value_parser = in_range::<20, 2000>)]
    pub figure_width: Option<f64>,
    /// Size of the numbers along axes, in points; smaller where a figure needs more room than its width leaves [default: 9]
    #[arg(long, value_name = "PT", value_parser = in_range::<3, 72>)]
    pub figure_font: Option<f64>,
}

/// A number between two others.
fn in_range<const LO: u32, const HI: u32>(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (f64::from(LO)..=f64::from(HI)).contains(number));
    number.ok_or_else(|| format!("give it a number from {LO} to {HI}"))
}

impl RunArgs {
    /// The layers and heads that are measured.
    pub fn select(&self) -> Selection {
        Selection { layers: IndexRange::all(self.layers.as_deref()), heads: IndexRange::all(self.heads.as_deref()) }
    }
}

impl PageArgs {
    /// The page that figures are drawn for.
    pub fn page(&self) -> Page {
        Page { width_mm: self.figure_width, font_pt: self.figure_font }
    }
}

impl FigureArgs {
    /// The names of a figure's files, one for each format.
    pub fn files(&self, name: &str) -> Vec<String> {
        let extensions: BTreeSet<_> = self.formats.iter().map(|format| format.extension()).collect();
        extensions.into_iter().map(|extension| format!("{name}.{extension}")).collect()
    }
}

/// A format of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FigureFormat {
    /// Pixels
    Png,
    /// Vectors, for the web and for editing
    Svg,
    /// Vectors, for papers
    Pdf,
}

impl FigureFormat {
    /// What the names of such files end in.
    fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Pdf => "pdf",
        }
    }
}

/// A format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RecordFormat {
    /// results.csv
    #[default]
    Csv,
    /// results.csv.gz, a fifteenth of it
    Gzip,
    /// results.parquet, with the feature parquet
    Parquet,
}

/// Which part of an experiment is run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Parts of a run")]
pub struct PartArgs {
    /// Continue the unfinished run in this folder, given the same flags; a finished one is left as it is
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Run only part I of N, to be put together by `difftool merge`; `auto` asks SLURM's or Kubernetes' variables
    #[arg(long, value_name = "I/N|auto")]
    pub shard: Option<Shard>,
    /// Print the experiment file that does the same (`difftool run FILE`), and do nothing
    #[arg(long)]
    pub print_experiment: bool,
}
