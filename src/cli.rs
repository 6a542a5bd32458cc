//! The command line, and nothing else.

pub(crate) mod examples;
mod measuring;
mod shared;
mod values;

pub use measuring::{
    AblateArgs, AblatePart, ExploreArgs, HeadsArgs, HeatmapArgs, NeedleArgs, NllArgs, OutliersArgs, QuantizeArgs,
    RatioArgs, ShotsArgs,
};
pub use shared::{
    FigureArgs, FigureFormat, OnePromptArgs, OutputArgs, PageArgs, PartArgs, PromptArgs, ReadingArgs, RecordFormat,
    RunArgs,
};
pub use values::{IndexRange, TokenRange};

use crate::compare::{Correction, FailIf, Field, Where};
use crate::device::{DeviceName, Precision};
use crate::names::{Replicates, SEED_FOLDERS};
use clap::{Args, Parser, Subcommand, ValueEnum};
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

/// `difftool run`.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// The experiment, a TOML file (--print-experiment of the commands that measure prints one); with --resume, that
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
    /// Exit with 3 if a difference is so, as in 'exact < -0.05'; of METRIC.lo and .hi the ends of its interval, of
    /// METRIC.baseline and .other the means; may be repeated
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true)]
    pub fail_if: Vec<FailIf>,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
    /// Size of the figure.
    #[command(flatten)]
    pub page: PageArgs,
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
    /// Put the explorers that the runs have made into the page, each to be opened there; --explore=link leaves them beside it
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "include",
          conflicts_with = "splice")]
    pub explore: Option<ExplorerArg>,
    /// Title of the page [default: what was run]
    #[arg(long, conflicts_with = "splice")]
    pub title: Option<String>,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// How a report has the explorers of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExplorerArg {
    /// In the page: one file, larger by theirs
    Include,
    /// By links: their pages stay in the run folders
    Link,
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
    /// The model.
    #[arg(value_name = "NAME|DIR", help = shared::model_help())]
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
    /// With --summary: the same study at another size, in the folder of its runs, or one with its spec.toml and course.csv; a line
    /// is fitted over all sizes; may be repeated
    #[arg(long, value_name = "DIR", requires = "summary")]
    pub beside: Vec<PathBuf>,
    /// What computes: cpu, or with a program that was built for it cuda, cuda:1 and so on, or metal
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Cpu)]
    pub device: DeviceName,
    /// Number type of weights and activations; the parameters that are updated have f32, and so has what is measured on the way
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Precision::F32)]
    pub dtype: Precision,
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
