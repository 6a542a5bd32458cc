//! The command line, and nothing else.

use clap::{Args, Parser, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

/// A research toolkit for attention noise: standard and differential transformers, measured side by side.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One per question.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Hide needles in long prompts: are they found, and where does the attention go?
    Needle(NeedleArgs),
    /// Train matched models from a spec, side by side on the same data
    Train(TrainArgs),
}

/// `difftool needle`.
#[derive(Debug, Args)]
pub struct NeedleArgs {
    /// Prompt lengths in tokens: a number, a list (1k,4k), or a range with a step (1k..4k:1k)
    #[arg(long, value_delimiter = ',', default_value = "4k", value_name = "TOKENS")]
    pub ctx: Vec<TokenRange>,
    /// Needles in the text (the paper's N) [default: 1,2,4,6 with 1,2,2,2 asked for]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub needles: Vec<usize>,
    /// Needles asked for (the paper's R), one for each value of --needles or one for all
    #[arg(long, value_delimiter = ',', value_name = "R")]
    pub retrieve: Vec<usize>,
    /// Depths of the answer in the text, in percent
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,75,100", value_name = "PCT")]
    pub depths: Vec<f64>,
    /// Prompts per depth
    #[arg(long, default_value_t = 15, value_name = "N")]
    pub samples: usize,
    /// Prompts per depth with cities that were held out of training [default: a third of --samples]
    #[arg(long, value_name = "N")]
    pub heldout: Option<usize>,
    /// Base seed: prompt i of the grid has seed SEED + i
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A built-in model (transformer, diff, diff-v2), `all` of them, or a Hugging Face folder; may be repeated
    /// [default: transformer and diff]
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Vec<String>,
    /// Your own filler text instead of the embedded prose: a UTF-8 file, or a folder of them
    #[arg(long, value_name = "FILE|DIR")]
    pub haystack: Option<PathBuf>,
    /// Threads; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Run folder, which must not hold files yet [default: runs/needle-<UTC time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
}

/// `difftool train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The training spec, a TOML file (see experiments/pair-4k.toml)
    pub spec: PathBuf,
    /// Folder for the models, checkpoints and logs; must not exist yet, unless --resume is given
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Continue from the checkpoints in --out
    #[arg(long)]
    pub resume: bool,
    /// No progress bars
    #[arg(short, long)]
    pub quiet: bool,
}

/// Token counts: `4k`, or `1k..4k:1k` with both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRange(pub Vec<usize>);

impl FromStr for TokenRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((from, rest)) = text.split_once("..") else { return Ok(Self(vec![tokens(text)?])) };
        let (to, step) = rest.split_once(':').ok_or("a range needs a step, as in 1k..4k:1k")?;
        let (from, to, step) = (tokens(from)?, tokens(to)?, tokens(step)?);
        if to < from {
            return Err(format!("{to} is less than {from}"));
        }
        Ok(Self((from..=to).step_by(step).collect()))
    }
}

/// `512`, `4k` (4,096) or `1m`.
fn tokens(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_lowercase();
    let (digits, unit) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (lower.as_str(), 1),
    };
    match digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)) {
        Some(0) | None => Err(format!("`{text}` is not a number of tokens such as 512, 4k or 1k..4k:1k")),
        Some(n) => Ok(n),
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

    #[test]
    fn token_counts_may_be_lists_with_units_and_ranges() {
        let parse = |text: &str| text.parse::<TokenRange>().map(|r| r.0);
        assert_eq!(parse("4k"), Ok(vec![4096]));
        assert_eq!(parse("512"), Ok(vec![512]));
        assert_eq!(parse("1k..3k:1k"), Ok(vec![1024, 2048, 3072]));
        for bad in ["", "0", "-4k", "4q", "2k..1k:1k", "1k..2k", "99999999999999999m"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
