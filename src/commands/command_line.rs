//! The complete command line with its help; `difftool completions`.

use super::{ablate, flags, heads, needle, quantize, ratio};
use crate::cli::{examples, Cli, CompletionsArgs};
use anyhow::Result;
use clap::{Command, CommandFactory};
use std::io::Write as _;

/// Returns the command line with the complete help: examples, and the defaults of each command.
pub fn command_line() -> Command {
    let presets = [
        ("needle", needle::DEFAULTS),
        ("ratio", ratio::DEFAULTS),
        ("heads", heads::DEFAULTS),
        ("quantize", quantize::DEFAULTS),
        ("ablate", ablate::DEFAULTS),
        ("prompt", needle::DEFAULTS),
    ];
    let with_defaults =
        |cli: Command, (name, defaults)| cli.mut_subcommand(name, |command| flags::with_defaults(command, &defaults));
    let cli = presets.into_iter().fold(Cli::command(), with_defaults);
    let cli = OF_TEXT.iter().fold(cli, |cli, name| cli.mut_subcommand(name, without_needles));
    examples::EXAMPLES
        .iter()
        .fold(cli, |cli, (name, list)| cli.mut_subcommand(name, |command| command.after_help(examples::text(list))))
}

/// Commands that take either needle prompts or `--text`.
const OF_TEXT: [&str; 4] = ["ratio", "quantize", "heatmap", "explore"];

/// Makes `--text` conflict with the flags of needle prompts.
fn without_needles(command: Command) -> Command {
    let of_prompts = ["needles", "retrieve", "depth", "depths", "haystack"];
    let of_forms = ["distractors", "needles_file", "task"];
    let of_needles = of_prompts.into_iter().chain(of_forms);
    let taken: Vec<&str> = of_needles.filter(|flag| command.get_arguments().any(|arg| arg.get_id() == flag)).collect();
    command.mut_arg("text", |arg| arg.conflicts_with_all(taken))
}

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<()> {
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
    fn help_has_the_defaults_of_its_command() {
        let cli = command_line();
        let help = |command: &str, flag: &str| {
            let command = cli.find_subcommand(command).unwrap();
            let arg = command.get_arguments().find(|arg| arg.get_id() == flag).unwrap();
            arg.get_help().unwrap().to_string()
        };
        assert!(help("needle", "samples").ends_with("[default: 4]"), "{}", help("needle", "samples"));
        assert!(help("ablate", "ctx").contains("[default: 1k,") && help("ratio", "ctx").contains("[default: 4k,"));
        assert!(help("quantize", "needles").ends_with("[default: 2]"));
        let built_in = crate::model::open::built_in_names().join(", ");
        for command in ["inspect", "needle", "nll"] {
            let help = help(command, "model");
            assert!(help.starts_with(&format!("Built-in model ({built_in})")), "{command}: {help}");
        }
    }
}
