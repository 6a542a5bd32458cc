//! The flags of the commands that measure.

use super::shared::models_help;
use super::{OnePromptArgs, OutputArgs, PartArgs, PromptArgs, ReadingArgs, RunArgs, TokenRange};
use crate::experiment::MapKind;
use crate::measure::{TokenSpan, AR_MAX_COUNT};
use crate::probe::Pooling;
use crate::prompt::Order;
use crate::quant::Scope;
use crate::treatment::{Ranking, RowSelection};
use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

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
    /// Also write the numbers of every head, which neither tables nor figures show: five times as many rows
    #[arg(long)]
    pub every_head: bool,
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
    #[arg(long, value_enum, default_value_t = RowSelection::Answer, value_name = "ROWS")]
    pub rows: RowSelection,
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
    /// The models.
    #[arg(long, value_name = "NAME|DIR", help = models_help())]
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
