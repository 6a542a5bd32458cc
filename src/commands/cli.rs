//! The definition of the command line, with its help; `difftool completions`.

use super::ablate::{self, AblateFlags};
use super::compare::{self, Compare};
use super::explore::{self, ExploreFlags};
use super::heads::{self, HeadsFlags};
use super::heatmap::{self, HeatmapFlags};
use super::inspect::{self, Inspect};
use super::needle::{self, NeedleFlags};
use super::nll::{self, NllFlags};
use super::outliers::{self, OutliersFlags};
use super::prompt::{self, ShowPrompt};
use super::quantize::{self, QuantizeFlags};
use super::ratio::{self, RatioFlags};
use super::report::{self, ReportFlags};
use super::run::{self, Merge, Run};
use super::shared::{Examples, Measured};
use super::shots::{self, ShotsFlags};
use super::show::{self, Show};
use super::train::{self, Train};
use crate::base::values::tokens_name;
use crate::prompts::PromptDefaults;
use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::io::Write as _;

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
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Needle-in-a-haystack prompts: accuracy, and attention by region of the prompt
    #[command(after_help = help(needle::EXAMPLES))]
    Needle(Measured<NeedleFlags>),
    /// Many-shot classification: accuracy by number and order of the examples
    #[command(after_help = help(shots::EXAMPLES))]
    Shots(Measured<ShotsFlags>),
    /// Share of attention and output by region of the prompt, sinks, and entropy
    #[command(after_help = help(ratio::EXAMPLES))]
    Ratio(Measured<RatioFlags>),
    /// Roles of heads: retrieval, induction, previous token, sinks, and output from the answer
    #[command(after_help = help(heads::EXAMPLES))]
    Heads(Measured<HeadsFlags>),
    /// Draw the attention maps of one prompt, by layer and head
    #[command(after_help = help(heatmap::EXAMPLES))]
    Heatmap(Measured<HeatmapFlags>),
    /// Write an interactive HTML page of attention maps, from all heads to single pairs of tokens
    #[command(after_help = help(explore::EXAMPLES))]
    Explore(Measured<ExploreFlags>),
    /// Round attention logits, or queries and keys, to few bits, and measure what is lost
    #[command(after_help = help(quantize::EXAMPLES))]
    Quantize(Measured<QuantizeFlags>),
    /// Hide noise or take out heads on the same prompts, and measure what that costs
    #[command(after_help = help(ablate::EXAMPLES))]
    Ablate(Measured<AblateFlags>),
    /// The largest attention logits and hidden states, and massive activations
    #[command(after_help = help(outliers::EXAMPLES))]
    Outliers(Measured<OutliersFlags>),
    /// Negative log-likelihood of a text, by position, and of tokens that can be recalled from the context
    #[command(after_help = help(nll::EXAMPLES))]
    Nll(Measured<NllFlags>),
    /// Run an experiment file
    #[command(after_help = help(run::RUN_EXAMPLES))]
    Run(Run),
    /// Merge the shards of an experiment into one run
    #[command(after_help = help(run::MERGE_EXAMPLES))]
    Merge(Merge),
    /// Compare runs, or models or conditions of one run, paired by prompt
    #[command(after_help = help(compare::EXAMPLES))]
    Compare(Compare),
    /// Print the tables of a finished run
    #[command(after_help = help(show::EXAMPLES))]
    Show(Show),
    /// Write a page with the results and figures of run folders
    #[command(after_help = help(report::EXAMPLES))]
    Report(ReportFlags),
    /// Show the architecture, lambda and memory of a model, and check its tensors
    #[command(after_help = help(inspect::EXAMPLES))]
    Inspect(Inspect),
    /// Show a needle prompt with its regions, or write prompts as JSON lines
    #[command(after_help = help(prompt::EXAMPLES))]
    Prompt(ShowPrompt),
    /// Train the models of a spec on the same data
    #[command(after_help = help(train::EXAMPLES))]
    Train(Train),
    /// Print a shell completion script
    #[command(after_help = help(COMPLETIONS))]
    Completions(Completions),
}

/// Formats examples for the end of a help.
fn help(examples: Examples) -> String {
    let lines: String = examples.iter().map(|(what, line)| format!("  # {what}\n  {line}\n")).collect();
    format!("Examples:\n{lines}")
}

/// Default prompts of commands, for their help.
const DEFAULTS: [(&str, PromptDefaults); 6] = [
    ("needle", needle::DEFAULTS),
    ("ratio", ratio::DEFAULTS),
    ("heads", heads::DEFAULTS),
    ("quantize", quantize::DEFAULTS),
    ("ablate", ablate::DEFAULTS),
    ("prompt", needle::DEFAULTS),
];

/// The command line with its complete help: examples, and the defaults of each command.
pub fn command_line() -> clap::Command {
    let mut cli = Cli::command();
    for (name, defaults) in &DEFAULTS {
        cli = cli.mut_subcommand(name, |command| with_defaults(command, defaults));
    }
    for name in OF_TEXT {
        cli = cli.mut_subcommand(name, without_needles);
    }
    for name in ["heatmap", "explore"] {
        // Their one prompt cannot be done in parts.
        cli = cli.mut_subcommand(name, |command| {
            command
                .mut_args(|arg| if ["resume", "shard"].contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg })
        });
    }
    let reading_models =
        cli.get_subcommands().filter(|command| command.get_arguments().any(|arg| arg.get_id() == "bos"));
    for name in reading_models.map(|command| command.get_name().to_owned()).collect::<Vec<_>>() {
        cli = cli.mut_subcommand(name, |command| {
            command.mut_args(
                |arg| if EVERY_DAY.contains(&arg.get_id().as_str()) { arg } else { arg.hide_short_help(true) },
            )
        });
    }
    cli
}

/// The flags in the help of `-h` of commands that read models; `--help` has all.
const EVERY_DAY: [&str; 18] = [
    "model",
    "ctx",
    "needles",
    "samples",
    "text",
    "condition",
    "tables",
    "out",
    "report",
    "json", // of all
    "parts",
    "bits",
    "shots",
    "layer",
    "head",
    "map",
    "index",
    "jsonl",
];

/// Adds the defaults of a command to the help of its flags.
fn with_defaults(mut command: clap::Command, defaults: &PromptDefaults) -> clap::Command {
    let needles: Vec<String> = defaults.settings.iter().map(|counts| counts.needles.to_string()).collect();
    let asked: Vec<String> = defaults.settings.iter().map(|counts| counts.asked.to_string()).collect();
    let ctx = tokens_name(defaults.ctx_tok);
    let filled_in = [
        ("ctx", format!("{ctx}, or the shortest context of the models if that is less")),
        ("needles", needles.join(",")),
        ("retrieve", format!("{}; at most 2 with other --needles", asked.join(","))),
        ("samples", defaults.samples.to_string()),
    ];
    for (flag, value) in filled_in {
        command = command.mut_arg(flag, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} [default: {value}]"))
        });
    }
    command
}

/// Commands that take either needle prompts or a text.
const OF_TEXT: [&str; 8] = ["needle", "ratio", "heads", "quantize", "ablate", "heatmap", "explore", "prompt"];

/// Makes `--text` conflict with the flags of needle prompts, and `--question`, whose text is as long as it is, with sizes.
fn without_needles(command: clap::Command) -> clap::Command {
    let of_needles = ["needles", "retrieve", "depth", "depths", "haystack", "distractors", "needles_file", "task"];
    let flags: Vec<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    let [needles, sizes] = [&of_needles[..], &["ctx", "samples", "unanswerable"]]
        .map(|names| names.iter().copied().filter(|name| flags.iter().any(|flag| flag == name)).collect::<Vec<_>>());
    let command = command.mut_arg("text", |arg| arg.conflicts_with_all(&needles));
    command
        .mut_arg("prompt", |arg| arg.conflicts_with_all(needles))
        .mut_arg("question", |arg| arg.conflicts_with_all(sizes))
}

const COMPLETIONS: Examples = &[
    ("For bash: load the file in ~/.bashrc", "difftool completions bash > ~/.difftool.bash"),
    ("For fish", "difftool completions fish > ~/.config/fish/completions/difftool.fish"),
];

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub(super) fn completions(args: &Completions) -> Result<()> {
    let mut script = Vec::new(); // the generator would panic on a closed pipe
    clap_complete::generate(args.shell, &mut command_line(), "difftool", &mut script);
    Ok(crate::base::terminal::stdout().write_all(&script)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        for command in command_line().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.lines().all(|line| line.len() <= 80), "a terminal would break a line of\n{help}");
            let lines: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  difftool ")).collect();
            let own = |line: &&str| line.starts_with(command.get_name());
            assert!(lines.iter().any(own), "{} has no example", command.get_name());
            for line in lines {
                let line = line.split(" > ").next().unwrap_or_default();
                let words = shell_words(line);
                let typed = std::iter::once("difftool".to_owned()).chain(words);
                command_line().try_get_matches_from(typed).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    /// Splits a line at blanks, except in single quotes.
    fn shell_words(line: &str) -> Vec<String> {
        let split = |(i, part): (usize, &str)| match i % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        };
        line.split('\'').enumerate().flat_map(split).collect()
    }

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_help() {
        let mut cli = command_line();
        cli.build();
        for command in cli.get_subcommands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
        cli.debug_assert();
    }

    #[test]
    fn short_help_of_a_measuring_command_has_the_flags_of_every_day() {
        let shown = |command: &str| -> Vec<String> {
            let help = command_line().find_subcommand_mut(command).unwrap().render_help().to_string();
            let flags =
                help.split("Examples:").next().unwrap().split_whitespace().filter(|word| word.starts_with("--"));
            flags.map(str::to_owned).collect()
        };
        let of_prompts = ["--help", "--ctx", "--needles", "--samples", "--text"];
        let others = ["--model", "--condition", "--out", "--report", "--tables", "--json"];
        assert_eq!(shown("needle"), [&of_prompts[..], &others].concat());
        assert!(shown("ablate").contains(&"--parts".to_owned()) && shown("compare").contains(&"--where".to_owned()));
    }

    #[test]
    fn help_has_the_defaults_of_its_command() {
        let cli = command_line();
        let help = |command: &str, flag: &str| {
            let command = cli.find_subcommand(command).unwrap();
            let arg = command.get_arguments().find(|arg| arg.get_id() == flag).unwrap();
            arg.get_help().unwrap().to_string()
        };
        assert!(help("needle", "samples").ends_with("[default: 8]"), "{}", help("needle", "samples"));
        assert!(help("ablate", "ctx").contains("[default: 1k,") && help("needle", "ctx").contains("[default: 4k,"));
        assert!(help("quantize", "needles").ends_with("[default: 2]"));
        let built_in = crate::model::open::built_in_names().join(", ");
        for command in ["inspect", "needle", "nll"] {
            let help = help(command, "model");
            assert!(help.starts_with(&format!("Built-in model ({built_in})")), "{command}: {help}");
        }
    }
}
