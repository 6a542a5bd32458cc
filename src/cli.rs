//! The command line, and nothing else.

pub(crate) mod examples;
mod values;

pub use values::{IndexRange, TokenRange};

use crate::attention::Selection;
use crate::compare::{Correction, FailIf, Field, Replicates, Where, SEED_FOLDERS};
use crate::experiment::Shard;
use crate::experiment::{MapKind, TokenSpan};
use crate::measure::AR_MAX_COUNT;
use crate::model::Layout;
use crate::plot::Page;
use crate::probe::Pooling;
use crate::prompt::{BosChoice, Order};
use crate::quant::Scope;
use crate::treatment::{Ranking, Rows};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// A research toolkit for attention noise: standard and differential transformers, measured side by side.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One per question.
#[derive(Debug, Subcommand, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Command {
    /// Hide needles in long prompts: are they found, and where does the attention go?
    Needle(NeedleArgs),
    /// Many-shot learning: how many examples of a new classification does a model need, and does their order matter?
    Shots(ShotsArgs),
    /// What reaches the output from the answer and from noise: every region, signed and absolute attention, sinks, sparsity
    Ratio(RatioArgs),
    /// What is each head for? Retrieval, induction, previous token, sinks, and what it writes of the answer
    Heads(HeadsArgs),
    /// Draw attention maps: effective, both parts, logits; by layer and head, pooled to any size
    Heatmap(HeatmapArgs),
    /// One HTML file to walk around in attention maps, from all layers and heads to single token pairs
    Explore(ExploreArgs),
    /// Cut attention logits to few bits: what survives?
    Quantize(QuantizeArgs),
    /// The same prompts without noise, and without heads: what do they cost?
    Ablate(AblateArgs),
    /// The largest attention logits and hidden states, and massive activations
    Outliers(OutliersArgs),
    /// Negative log-likelihood of a text by position: does more context help, and with what?
    Nll(NllArgs),
    /// Run an experiment file: any prompts, models and measures together
    Run(ExperimentArgs),
    /// Put the shards of an experiment together, as one run would have left them
    Merge(MergeArgs),
    /// What differs between runs, or within one, on the same prompts?
    Compare(CompareArgs),
    /// Run folders as one page: results with intervals, figures, recipe
    Report(ReportArgs),
    /// What a model is: family, layout, lambda, memory, and whether its tensors fit
    Inspect(InspectArgs),
    /// Show a needle prompt with its regions marked, or write prompts as JSON lines
    Prompt(ShowPromptArgs),
    /// Train matched models from a spec, side by side on the same data
    Train(TrainArgs),
    /// Print a script that completes commands and flags
    Completions(CompletionsArgs),
    /// Print the manual page of a command, or write all of them
    Man(ManArgs),
}

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
    /// Print the experiment file that does the same (`difftool run FILE`), and do nothing
    #[arg(long)]
    pub print_experiment: bool,
}

/// Which models, what of them, and where the results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Models")]
pub struct RunArgs {
    /// A built-in model (transformer, diff, diff-v2), `all` of them, a Hugging Face folder, or hf:org/name with
    /// the feature hub; may be repeated
    /// [default: transformer and diff]
    #[arg(long, value_name = "NAME|DIR")]
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
    pub layout: Option<Layout>,
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
}

/// Where results go, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
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
        let extensions: BTreeSet<&str> = self.formats.iter().map(|format| format.extension()).collect();
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

/// `difftool needle`.
#[derive(Debug, Args)]
pub struct NeedleArgs {
    /// Also let the models answer by themselves, greedily, and score what they say (generations.jsonl)
    #[arg(long)]
    pub generate: bool,
    /// Also ask for cities that are not in the text, each of the same texts: does the model make a number up, and is it one
    /// that it has read? (answers by itself, as with --generate)
    #[arg(long)]
    pub unanswerable: bool,
    /// New tokens that an answer may have [default: 48]
    #[arg(long, value_name = "N")]
    pub max_new: Option<NonZeroUsize>,
    /// Prompts.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool shots`.
#[derive(Debug, Args)]
pub struct ShotsArgs {
    /// Numbers of examples
    #[arg(long, value_delimiter = ',', default_value = "8,16,32,64,128", value_name = "N")]
    pub shots: Vec<usize>,
    /// Words that are classified
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub words: usize,
    /// Classes, each with a label of its own
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub classes: usize,
    /// Orders of the examples
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random,by-class")]
    pub order: Vec<Order>,
    /// Arrangements of each prompt's examples in each order
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub arrangements: usize,
    /// Prompts, each with a mapping of its own
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub samples: usize,
    /// Tokens that a prompt may have [default: 4k, or what all models can take if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed: the seed of a prompt is a hash of it and the prompt's number
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool ratio`.
#[derive(Debug, Args)]
pub struct RatioArgs {
    /// Measure the last rows of this UTF-8 text instead of needle prompts
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Heads to list, by their attention to the answer; 0 for none
    #[arg(long, default_value_t = 8, value_name = "K")]
    pub top: usize,
    /// Prompts.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool heads`.
#[derive(Debug, Args)]
pub struct HeadsArgs {
    /// Heads to list of each role
    #[arg(long, default_value_t = 3, value_name = "K")]
    pub top: usize,
    /// Prompts.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool heatmap`.
#[derive(Debug, Args)]
pub struct HeatmapArgs {
    /// Draw this UTF-8 text, from its beginning, instead of a needle prompt
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Layer, counted from 0 [default: the one with the most attention to the answer; of a text, the last]
    #[arg(long, value_name = "L")]
    pub layer: Option<usize>,
    /// Head of that layer, counted from 0 [default: the mean over heads]
    #[arg(long, value_name = "H")]
    pub head: Option<usize>,
    /// What to draw
    #[arg(long, value_enum, default_value_t = MapKind::Effective)]
    pub map: MapKind,
    /// Every layer and head as small multiples
    #[arg(long, conflicts_with_all = ["layer", "head", "data", "full"])]
    pub grid: bool,
    /// How pairs of tokens share a bin: the one of largest magnitude, their mean, or their sum
    #[arg(long, value_enum, default_value_t = Pooling::Max)]
    pub pool: Pooling,
    /// Longer side of a map, in pixels
    #[arg(long, default_value_t = 560, value_name = "PIXELS")]
    pub size: u32,
    /// Query tokens to draw, as in 4000..4096 [default: all]
    #[arg(long, value_name = "FROM..TO")]
    pub query: Option<TokenSpan>,
    /// Key tokens to draw, as in 0..80 [default: all]
    #[arg(long, value_name = "FROM..TO")]
    pub key: Option<TokenSpan>,
    /// Logarithmic colours
    #[arg(long)]
    pub log: bool,
    /// Also write the matrix of every map drawn, as .npy or .csv; of several maps, model, layer, head and map are put into
    /// the names of their files
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Write --data token by token instead of pooled
    #[arg(long, requires = "data")]
    pub full: bool,
    /// The same prompt once more under a condition, as in "mask(noise)" or "ablate(0.3+2.1)", beside the untreated map; may
    /// be repeated
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// The prompt.
    #[command(flatten)]
    pub prompt: OnePromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `difftool explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Explore this UTF-8 text, from its beginning, instead of a needle prompt
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Heads of each model that are kept token by token: those that owe most of their output to the answer (of a text,
    /// those of the last layer)
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub keep: usize,
    /// The same prompt once more under a condition, as in "mask(noise)" or "ablate(0.3+2.1)", to switch to in the page; may
    /// be repeated
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// Size of the page in MB, at most; token pairs are told more coarsely to fit [default: 15, or 40 beyond 8k tokens]
    #[arg(long, value_name = "MB")]
    pub max_mb: Option<usize>,
    /// The prompt.
    #[command(flatten)]
    pub prompt: OnePromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `difftool quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    /// Bits per logit, 2 to 16
    #[arg(long, value_delimiter = ',', default_value = "16,8,6,4", value_name = "BITS")]
    pub bits: Vec<u32>,
    /// What shares one scale: a layer's logits (our reading of the paper), one map of one head, or a row
    #[arg(long, value_enum, default_value_t = Scope::Tensor)]
    pub scope: Scope,
    /// Leave attention sinks alone: their logits stay exact and do not count for the scale
    #[arg(long)]
    pub exempt_sinks: bool,
    /// Measure windows of this UTF-8 text instead of needle prompts
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Prompts.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool ablate`.
#[derive(Debug, Args)]
pub struct AblateArgs {
    /// What to take away
    #[arg(
        long = "parts",
        value_enum,
        value_delimiter = ',',
        default_value = "noise,layers,heads",
        value_name = "PARTS"
    )]
    pub parts: Vec<AblatePart>,
    /// What the best heads are the best by, on prompts of their own
    #[arg(long, value_enum, default_value_t = Ranking::ShareOut, value_name = "RANKING")]
    pub rank: Ranking,
    /// How many heads to knock out [default: 1,2,4,8, as far as all models have so many]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub knock_out: Vec<usize>,
    /// Draws of random heads from the same layers
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub draws: u64,
    /// Heads that are out write nothing, rather than their mean over reference prompts
    #[arg(long)]
    pub zero: bool,
    /// Rows that are treated
    #[arg(long, value_enum, default_value_t = Rows::Answer, value_name = "ROWS")]
    pub rows: Rows,
    /// Another condition, as in "silence(filler, layers=0+1)" or "ablate(0.3+2.1)"; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// Prompts.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// What `difftool ablate` takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AblatePart {
    /// Noise, masked and silenced; as many random keys; the answer's needle, and as many random keys
    Noise,
    /// Noise in one layer at a time
    Layers,
    /// The best heads, and random ones of the same layers
    Heads,
}

/// `difftool outliers`.
#[derive(Debug, Args)]
pub struct OutliersArgs {
    /// Tokens to pool over, at least; windows of --ctx are added until it is reached
    #[arg(long, default_value = "100k", value_name = "TOKENS")]
    pub tokens: TokenRange,
    /// Windows to pool over, instead of --tokens
    #[arg(long, value_name = "N", conflicts_with = "tokens")]
    pub samples: Option<usize>,
    /// Your own UTF-8 text instead of embedded prose, from its beginning
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Length of a window, in tokens [default: 4k, or what all models can take if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the prose: the same one makes the same windows on every machine
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Models and output.
    #[command(flatten)]
    pub run: RunArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool nll`.
#[derive(Debug, Args)]
pub struct NllArgs {
    /// Your own UTF-8 text instead of embedded prose: windows slide over it to its end, and every token is scored once
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    pub text: Option<PathBuf>,
    /// The same for token ids, whole numbers separated by white space, taken as they are; the model's folder needs no
    /// tokenizer then
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// Length of a window, in tokens [default: 4k, or what all models can take if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Tokens from the beginning of a window to that of the next: a window scores only what the one before has not, so
    /// each token has at least ctx - stride tokens of context but in the first window [default: half of --ctx]
    #[arg(long, value_name = "TOKENS")]
    pub stride: Option<TokenRange>,
    /// Windows, at most [default: 25 of embedded prose, each another prose; of a text all]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// How often a bigram may occur in 200k tokens of embedded prose and still make AR hits (tokens that complete a
    /// bigram seen earlier in the window); 0 for any number
    #[arg(long, value_name = "N", default_value_t = AR_MAX_COUNT)]
    pub ar_max_count: u64,
    /// Tokens at the beginning of every window that means leave out, by position they are shown all the same [default: 64,
    /// of windows shorter than 512 none]
    #[arg(long, value_name = "N")]
    pub skip: Option<usize>,
    /// Base seed of the prose: the same one makes the same windows on every machine
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A built-in model (transformer, diff, diff-v2), `all` of them, a Hugging Face folder, or hf:org/name with
    /// the feature hub; may be repeated
    /// [default: transformer and diff]
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Vec<String>,
    /// How folders are read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool run`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// The experiment, a TOML file (see --print-experiment of needle, ratio, quantize, outliers and nll); with --resume, that
    /// of the folder
    #[arg(required_unless_present = "resume", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// List the prompts with the time and memory they will take, and run nothing
    #[arg(long, conflicts_with_all = ["dry_run", "verify", "resume"])]
    pub list: bool,
    /// Load everything and check whether it can run, and run nothing
    #[arg(long, conflicts_with_all = ["verify", "resume"])]
    pub dry_run: bool,
    /// Run at most two prompts per depth, and check what the file expects
    #[arg(long, conflicts_with_all = ["resume", "shard"])]
    pub verify: bool,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}

/// `difftool merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The run folders of all shards of one experiment, in any order
    #[arg(required = true, value_name = "DIR")]
    pub shards: Vec<PathBuf>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `difftool compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders or results files; all are compared with the first. One alone needs --by
    #[arg(required = true, value_name = "RUN|CSV")]
    pub inputs: Vec<PathBuf>,
    /// Compare the values of this column (model, bits, scope, cities, ctx_tok, …) over all inputs
    #[arg(long, value_name = "COLUMN")]
    pub by: Option<Field>,
    /// Value of the --by column to compare the others with; `none` for a missing one [default: the first]
    #[arg(long, value_name = "VALUE")]
    pub baseline: Option<String>,
    /// Metrics, with a region if only one is wanted, as in `exact,share_abs[answer]`; `all` for every one
    /// [default: the headline ones that were measured]
    #[arg(long, value_delimiter = ',', value_name = "METRIC")]
    pub metric: Vec<String>,
    /// Only records with this value (`none` for a missing one); may be repeated, values of one column are alternatives
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    pub wheres: Vec<Where>,
    /// A row for each value of these columns; layer and head bring in the records of layers and heads
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    pub group_by: Vec<Field>,
    /// Models are replicates: they differ by the training seed that PATTERN finds in their names (`*` is its digits).
    /// Recipes are compared, seed by seed; intervals are over seeds and prompts, and fewer than 3 seeds have none
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = SEED_FOLDERS)]
    pub replicates: Option<Replicates>,
    /// How p-values are corrected for the number of rows
    #[arg(long, value_enum, default_value_t = Correction::Holm)]
    pub correction: Correction,
    /// Also say how many prompts would show a difference of this size with 80 % power, in the unit of the metric
    #[arg(long, value_name = "SIZE")]
    pub detect: Option<f64>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Compare runs of different prompts too, cell by cell
    #[arg(long)]
    pub allow_different_prompts: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also draw the differences: a new PNG, SVG or PDF file
    #[arg(long, value_name = "FILE.png|svg|pdf")]
    pub plot: Option<PathBuf>,
    /// Size of the figure.
    #[command(flatten)]
    pub page: PageArgs,
    /// Exit with 3 if a difference is so, as in 'exact < -0.05'; of METRIC.lo and .hi the ends of its interval, of
    /// METRIC.baseline and .other the means; may be repeated
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true)]
    pub fail_if: Vec<FailIf>,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// How the rows of a comparison are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns
    Table,
    /// All numbers in full, with a header
    Csv,
    /// Rows, what was paired with what, and all cells of one side only
    Json,
    /// A table for a README
    Markdown,
}

/// `difftool report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folders, in the order of the report
    #[arg(required = true, value_name = "DIR")]
    pub runs: Vec<PathBuf>,
    /// A new file, or - for stdout [default: stdout]
    #[arg(short, long, value_name = "FILE", conflicts_with = "splice")]
    pub out: Option<PathBuf>,
    /// What to write [default: html; markdown with --splice]
    #[arg(long, value_enum)]
    pub format: Option<ReportFormat>,
    /// Rewrite what this file, such as README.md, has between `<!-- difftool report DIR -->` and
    /// `<!-- end difftool report -->`: command and main tables, or the tables named as in `DIR: accuracy, heads`
    #[arg(long, value_name = "FILE")]
    pub splice: Option<PathBuf>,
    /// Begin with a comparison: of the runs with each other, or of the models of a single one
    #[arg(long, conflicts_with = "splice")]
    pub compare: bool,
    /// Link the explorers that are in the run folders
    #[arg(long, conflicts_with = "splice")]
    pub explore: bool,
    /// Title of the page [default: what was run]
    #[arg(long, conflicts_with = "splice")]
    pub title: Option<String>,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// What a report is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One self-contained page
    Html,
    /// The tables for a README or an issue
    Markdown,
    /// What the runs printed
    Text,
}

/// `difftool prompt`.
#[derive(Debug, Args)]
pub struct ShowPromptArgs {
    /// Prompts; the same as those of `difftool needle` with the same flags.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Which prompt of the grid to show, counted from 0
    #[arg(long, default_value_t = 0, value_name = "I", conflicts_with = "jsonl")]
    pub index: usize,
    /// Which of its questions the regions are seen from, counted from 0
    #[arg(long, default_value_t = 0, value_name = "Q", conflicts_with = "jsonl")]
    pub query: usize,
    /// Write every prompt of the grid as one line of JSON: text, token ids, offsets, regions, answers; `-` for stdout
    #[arg(long, value_name = "FILE|-")]
    pub jsonl: Option<PathBuf>,
    /// Colour the text by where the rows of this model that predict the answer look, and list the keys with the largest
    /// share; without colours in brackets
    #[arg(long, value_name = "NAME|DIR", conflicts_with_all = ["jsonl", "model"])]
    pub attention: Option<String>,
    /// With --attention: only these layers, counted from 0 [default: the mean over all]
    #[arg(long, value_delimiter = ',', value_name = "L", requires = "attention")]
    pub layers: Option<Vec<IndexRange>>,
    /// With --attention: only these heads of each layer, counted from 0 [default: the mean over all]
    #[arg(long, value_delimiter = ',', value_name = "H", requires = "attention")]
    pub heads: Option<Vec<IndexRange>>,
    /// The model whose tokenizer cuts the text
    #[arg(long, default_value = "transformer", value_name = "NAME|DIR")]
    pub model: String,
    /// How its folder is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
}

/// `difftool inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A built-in model (transformer, diff, diff-v2), a Hugging Face folder, or hf:org/name with the feature hub
    #[arg(value_name = "NAME|DIR")]
    pub model: String,
    /// Prompt length that memory is estimated for, in tokens [default: 4k, or what the model can take if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// How the folder is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `difftool completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `difftool man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command, as in `difftool man needle`; difftool itself if none is named
    pub command: Option<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub out: Option<PathBuf>,
}

/// `difftool train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The training spec, a TOML file (see --example)
    #[arg(required_unless_present = "example")]
    spec: Option<PathBuf>,
    /// Folder for the models, checkpoints and logs; must not exist yet, unless --resume is given
    #[arg(long, value_name = "DIR", required_unless_present = "example")]
    out: Option<PathBuf>,
    /// Print a small spec to begin with
    #[arg(long, exclusive = true)]
    pub example: bool,
    /// Continue from the checkpoints in --out
    #[arg(long)]
    pub resume: bool,
    /// Train these alone: variants, or one seed of a variant (diff/seed-2)
    #[arg(long, value_delimiter = ',', value_name = "RUN")]
    pub only: Vec<String>,
    /// Train nothing: sum up what the runs in --out have come to so far, or their course.csv where the runs are elsewhere
    #[arg(long, conflicts_with_all = ["resume", "only"])]
    pub summary: bool,
    /// No progress bars
    #[arg(short, long)]
    pub quiet: bool,
    /// Figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

impl TrainArgs {
    /// The spec, which is required but for the example.
    pub fn spec(&self) -> &Path {
        self.spec.as_deref().expect("the parser requires it")
    }

    /// The folder, likewise.
    pub fn out(&self) -> &Path {
        self.out.as_deref().expect("the parser requires it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_help() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }
}
