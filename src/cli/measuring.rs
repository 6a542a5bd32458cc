//! Flags of the measuring commands.

use super::shared::models_help;
use super::{OnePromptArgs, OutputArgs, PartArgs, PromptArgs, RunArgs, TokenRange};
use crate::kernels::quant::{Format, Quantised, Scope};
use crate::model::open::LoadOptions;
use crate::prompts::Order;
use crate::run::Heatmap;
use crate::treatments::{Ranking, RowSelection};
use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// `difftool needle`.
#[derive(Debug, Args)]
pub struct NeedleArgs {
    /// Also generate answers greedily and score them (generations.jsonl)
    #[arg(long)]
    pub generate: bool,
    /// Also ask for cities that are not in the text, and count invented and copied numbers (implies --generate)
    #[arg(long)]
    pub unanswerable: bool,
    /// Largest number of generated tokens [default: 48]
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
    /// Number of words that are classified
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub words: usize,
    /// Number of classes, each with its own label
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub classes: usize,
    /// Orders of the examples
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random,by-class")]
    pub order: Vec<Order>,
    /// Arrangements of the examples for each prompt and order
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub arrangements: usize,
    /// Number of prompts, each with its own classification
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub samples: usize,
    /// Largest prompt length in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the prompts
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
    /// Measure windows of this UTF-8 text, at their last rows, instead of needle prompts
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

/// `difftool heads`.
#[derive(Debug, Args)]
pub struct HeadsArgs {
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
    /// Draw the beginning of this UTF-8 text instead of a needle prompt
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Maps.
    #[command(flatten)]
    pub heatmap: Heatmap,
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
    /// Explore the beginning of this UTF-8 text instead of a needle prompt
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Also colour heads by what the answer loses without each, in a run of `ablate --parts each-head`
    #[arg(long, value_name = "RUN")]
    pub costs: Option<PathBuf>,
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
    /// Numbers to quantise
    #[arg(long, value_enum, default_value_t = Quantised::Logits)]
    pub of: Quantised,
    /// Bits per number, 2 to 16; of queries and keys also fp8 (e4m3) and fp4 (e2m1)
    #[arg(long, value_delimiter = ',', default_value = "16,8,6,4", value_name = "BITS")]
    pub bits: Vec<Format>,
    /// Numbers that share one scale [default: tensor for logits, block for queries and keys]
    #[arg(long, value_enum)]
    pub scope: Option<Scope>,
    /// Exempt attention sinks: their logits, or their keys, stay exact and do not affect the scale
    #[arg(long)]
    pub exempt_sinks: bool,
    /// Subtract the mean over the text from keys before rounding, and add it again afterwards (with --of qk)
    #[arg(long)]
    pub smooth: bool,
    /// Multiply queries and keys by a Hadamard matrix before they are rounded (with --of qk)
    #[arg(long)]
    pub rotate: bool,
    /// Also quantise one layer at a time
    #[arg(long)]
    pub each_layer: bool,
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
    /// Parts of the ablation
    #[arg(
        long = "parts",
        value_enum,
        value_delimiter = ',',
        default_value = "noise,layers,heads",
        value_name = "PARTS"
    )]
    pub parts: Vec<AblatePart>,
    /// Ranking of the heads, on separate prompts [default: logit_out; share_out if a model caps its logits]
    #[arg(long, value_enum, value_name = "RANKING")]
    pub rank: Option<Ranking>,
    /// Numbers of best heads to knock out [default: 1,2,4,8, up to the number of heads]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub knock_out: Vec<usize>,
    /// Replace the output of knocked-out heads by zero instead of by its mean over reference prompts
    #[arg(long)]
    pub zero: bool,
    /// Attention rows that are treated
    #[arg(long, value_enum, default_value_t = RowSelection::Answer, value_name = "ROWS")]
    pub rows: RowSelection,
    /// Additional condition, as in "silence(filler, layers=0+1)" or "ablate(0.3+2.1)"; may be repeated
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

/// The parts of `difftool ablate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AblatePart {
    /// Noise masked and silenced, and the answer's needle masked, with as many masked random keys as controls; and the
    /// first token silenced
    Noise,
    /// Noise of one layer at a time
    Layers,
    /// The best heads, and random heads of the same layers as a control
    Heads,
    /// Each head by itself: a map of the cost of each, and its rank correlation with cheaper measurements of heads
    EachHead,
    /// All heads of one layer at a time
    EachLayer,
    /// Activation patching: all heads, and those of one layer at a time, output what they do on the same prompt with
    /// another answer, and the other way round
    Patch,
    /// Activation patching of each head by itself: on the prompt with another answer, it outputs what it does on the prompt
    /// itself
    PatchEachHead,
}

/// `difftool outliers`.
#[derive(Debug, Args)]
pub struct OutliersArgs {
    /// Number of windows to pool over [default: as many as hold 100k tokens]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// UTF-8 text to measure from its beginning, instead of the embedded prose
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Length of a window in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Base seed of the embedded prose
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
    /// UTF-8 text to measure instead of the embedded prose: windows slide over it, and every token is scored once
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    pub text: Option<PathBuf>,
    /// Token ids to measure instead of the embedded prose, separated by white space; the model needs no tokenizer
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// Length of a window in tokens [default: 4k, or the shortest context of the models if that is less]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// Tokens from the start of one window to the next. Each window scores the tokens that the previous one did not,
    /// with at least ctx - stride tokens of context after the first window [default: half of --ctx]
    #[arg(long, value_name = "TOKENS")]
    pub stride: Option<TokenRange>,
    /// Largest number of windows [default: 25 of the embedded prose; all of a text]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Tokens at the beginning of every window that no mean includes, except means by position
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: usize,
    /// Base seed of the embedded prose
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The models.
    #[arg(long, value_name = "NAME|PATH", help = models_help())]
    pub model: Vec<String>,
    /// How folders are read.
    #[command(flatten)]
    pub reading: LoadOptions,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Part.
    #[command(flatten)]
    pub part: PartArgs,
}
