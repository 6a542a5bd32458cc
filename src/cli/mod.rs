//! The definition of the command line.

pub(crate) mod examples;
mod measuring;
mod shared;
mod values;

pub use measuring::{
    AblateArgs, AblatePart, ExploreArgs, HeadsArgs, HeatmapArgs, NeedleArgs, NllArgs, OutliersArgs, QuantizeArgs,
    RatioArgs, ShotsArgs,
};
pub use shared::{FigureArgs, FigureFormat, OnePromptArgs, OutputArgs, PageArgs, PartArgs, PromptArgs, RunArgs};
use values::MetricParser;
pub use values::{Distractors, IndexRange, TokenRange};

use crate::base::names::{Replicates, SEED_FOLDERS};
use crate::model::device::{DeviceName, Dtype};
use crate::model::open::LoadOptions;
use crate::results::compare::FailIf;
use crate::results::print::Tables;
use crate::results::{Column, Where};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// A research toolkit for attention noise: measures standard and differential transformers on the same prompts
///
/// Begin with `difftool needle`, which measures the built-in models in about a minute, or with `difftool needle --model PATH
/// --ctx 512`, which measures a model of yours.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Command {
    /// Needle-in-a-haystack prompts: accuracy, and attention by region of the prompt
    Needle(NeedleArgs),
    /// Many-shot classification: accuracy by number and order of the examples
    Shots(ShotsArgs),
    /// Share of attention and output by region of the prompt, sinks, and entropy
    Ratio(RatioArgs),
    /// Roles of heads: retrieval, induction, previous token, sinks, and output from the answer
    Heads(HeadsArgs),
    /// Draw attention maps of one prompt: effective map, single maps or logits, by layer and head
    Heatmap(HeatmapArgs),
    /// Write an interactive HTML page of attention maps, from all layers and heads to single token pairs
    Explore(ExploreArgs),
    /// Quantise attention logits, or queries and keys, to few bits, and measure the loss of quality
    Quantize(QuantizeArgs),
    /// Mask noise or knock out heads on the same prompts, and measure the effect
    Ablate(AblateArgs),
    /// The largest attention logits and hidden states, and massive activations
    Outliers(OutliersArgs),
    /// Negative log-likelihood of a text, by position and for tokens that can be recalled from the context
    Nll(NllArgs),
    /// Run an experiment file
    Run(ExperimentArgs),
    /// Merge the shards of an experiment into one run
    Merge(MergeArgs),
    /// Compare runs, or models or conditions of one run, paired by prompt
    Compare(CompareArgs),
    /// Write a page with the results and figures of run folders
    Report(ReportArgs),
    /// Show the architecture, lambda and memory of a model, and check its tensors
    Inspect(InspectArgs),
    /// Show a needle prompt with its regions, or write prompts as JSON lines
    Prompt(ShowPromptArgs),
    /// Train the models of a spec on the same data
    Train(TrainArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
}

/// `difftool run`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// Experiment, a TOML file as printed by --print-experiment [default with --resume: that of the folder]
    #[arg(required_unless_present = "resume", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Load and check everything, without running it
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
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
    /// Run folders of all shards of one experiment, in any order
    #[arg(required = true, value_name = "DIR")]
    pub shards: Vec<PathBuf>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `difftool compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders or results files; the others are compared with the first. A single one needs --by
    #[arg(required = true, value_name = "RUN|CSV")]
    pub inputs: Vec<PathBuf>,
    /// Compare the values of this column (model, bits, scope, cities, ctx_tok, …) instead of the inputs
    #[arg(long, value_name = "COLUMN")]
    pub by: Option<Column>,
    /// Value of the --by column that the others are compared with; `none` for a missing value [default: the first]
    #[arg(long, value_name = "VALUE")]
    pub baseline: Option<String>,
    /// Metrics, with a region for only that region, as in `exact,share_abs[answer]`; `all` for every metric [default: the
    /// headline metrics that were measured]
    #[arg(long, value_delimiter = ',', value_name = "METRIC", value_parser = MetricParser, hide_possible_values = true)]
    pub metric: Vec<String>,
    /// Only records with this value, `none` for a missing one; may be repeated, several values of a column are
    /// alternatives
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    pub wheres: Vec<Where>,
    /// One row for each value of these columns; `layer` and `head` select the records of layers and heads
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    pub group_by: Vec<Column>,
    /// Treat models whose names differ only by the training seed as replicates and compare recipes seed by seed; `*` in
    /// PATTERN stands for the digits of the seed. Intervals are over seeds and prompts, and need 3 seeds
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = SEED_FOLDERS)]
    pub replicates: Option<Replicates>,
    /// Also compare runs with different prompts, cell by cell
    #[arg(long)]
    pub allow_different_prompts: bool,
    /// Print all rows with means, power and tests, instead of the verdicts on the first ones
    #[arg(long, value_parser = ["all"], value_name = "all")]
    pub tables: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also draw the differences into a new PNG, SVG or PDF file
    #[arg(long, value_name = "FILE.png|svg|pdf")]
    pub plot: Option<PathBuf>,
    /// Exit with 3 if a difference meets this condition, as in 'exact < -0.05'; METRIC.lo and METRIC.hi are the ends of
    /// the interval, METRIC.baseline and METRIC.other the means; may be repeated
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true)]
    pub fail_if: Vec<FailIf>,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
    /// Size of the figure.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Output format of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned text
    Table,
    /// CSV with all digits
    Csv,
    /// JSON with the rows, their pairing, and unpaired cells
    Json,
    /// Markdown table
    Markdown,
}

/// `difftool report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folders, in the order of the report
    #[arg(required = true, value_name = "DIR")]
    pub runs: Vec<PathBuf>,
    /// A new file, or - for stdout [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Html)]
    pub format: ReportFormat,
    /// Begin with a comparison of the runs, or of the models of a single run
    #[arg(long)]
    pub compare: bool,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One self-contained HTML page
    Html,
    /// Markdown tables
    Markdown,
}

/// `difftool prompt`.
#[derive(Debug, Args)]
pub struct ShowPromptArgs {
    /// Prompts; the same as those of `difftool needle` with the same flags.
    #[command(flatten)]
    pub prompts: PromptArgs,
    /// Number of the prompt to show, counted from 0
    #[arg(long, default_value_t = 0, value_name = "I", conflicts_with = "jsonl")]
    pub index: usize,
    /// Question that the regions are for, counted from 0
    #[arg(long, default_value_t = 0, value_name = "Q", conflicts_with = "jsonl")]
    pub query: usize,
    /// Write all prompts as JSON lines with text, token ids, offsets, regions and answers; `-` for stdout
    #[arg(long, value_name = "FILE|-")]
    pub jsonl: Option<PathBuf>,
    /// Model whose tokenizer is used
    #[arg(long, default_value = "transformer", value_name = "NAME|PATH")]
    pub model: String,
    /// How the model folder is read.
    #[command(flatten)]
    pub reading: LoadOptions,
}

/// `difftool inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The model.
    #[arg(value_name = "NAME|PATH", help = shared::model_help())]
    pub model: String,
    /// Prompt length for the memory estimate, in tokens [default: 4k, or the model's context if that is shorter]
    #[arg(long, value_name = "TOKENS")]
    pub ctx: Option<TokenRange>,
    /// How the folder is read.
    #[command(flatten)]
    pub reading: LoadOptions,
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

/// `difftool train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Training spec, a TOML file (see --example)
    #[arg(required_unless_present = "example")]
    spec: Option<PathBuf>,
    /// Folder for models, checkpoints and logs; must be new or empty without --resume
    #[arg(long, value_name = "DIR", required_unless_present = "example")]
    out: Option<PathBuf>,
    /// Print a small example spec
    #[arg(long, exclusive = true)]
    pub example: bool,
    /// Continue from the checkpoints in --out
    #[arg(long)]
    pub resume: bool,
    /// Train only these variants, or single seeds of variants (diff/seed-2)
    #[arg(long, value_delimiter = ',', value_name = "RUN")]
    pub only: Vec<String>,
    /// Summarise the runs in --out so far, or their course.csv, without training
    #[arg(long, conflicts_with_all = ["resume", "only"])]
    pub summary: bool,
    /// Print these tables of the summary: `all`, or names separated by commas, as in `inside` [default: the main table and
    /// differences]
    #[arg(long, value_name = "NAMES")]
    pub tables: Option<Tables>,
    /// Device: cpu; or cuda, cuda:1, … or metal in a build for it
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu)]
    pub device: DeviceName,
    /// Number type of weights and activations in training steps; parameters and evaluations have f32
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Figures.
    #[command(flatten)]
    pub figures: FigureArgs,
}

impl TrainArgs {
    /// Returns the spec, which is required without `--example`.
    pub fn spec(&self) -> &Path {
        self.spec.as_deref().expect("the parser requires it")
    }

    /// Returns the output folder, which is required without `--example`.
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
