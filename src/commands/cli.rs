//! The command line of all commands; `difftool completions` and `difftool man`, which are made of it.

use super::command::{Action, Command};
use super::{commands, GROUPS};
use anyhow::{Context as _, Result};
use base::files;
use base::terminal::{quoted, wrapped};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches as _};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

const ABOUT: &str =
    "A research toolkit for attention noise: measures standard and differential transformers on the same prompts";

const FIRST_STEPS: &str =
    "Begin with `difftool needle`, which measures the built-in models in about a minute, or with \
    `difftool needle --model PATH --ctx 512`, which measures a model of yours.";

/// The command line with its help.
pub fn command_line() -> clap::Command {
    clap::Command::new("difftool")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(format!("{ABOUT}\n\n{FIRST_STEPS}"))
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands().map(Command::command_line))
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}",
            listed()
        ))
}

/// The commands by what they are for, as the help lists them.
fn listed() -> String {
    let width = commands().map(|command| command.name.len()).max().unwrap_or_default();
    let mut list = String::new();
    for (heading, commands) in &GROUPS {
        list += &format!("{heading}:\n");
        for Command { name, about, .. } in *commands {
            list += &wrapped(&format!("  {name:<width$}  {about}"), &" ".repeat(width + 4));
            list.push('\n');
        }
        list.push('\n');
    }
    list
}

/// The error with the flag that a word without one is for, in commands that have it: `--text notes.txt`, `--model diff`.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return error;
    }
    let is_text = [".txt", ".md", ".json", ".jsonl"].iter().any(|ending| word.ends_with(ending));
    let flag = if is_text { "text" } else { "model" };
    let command = std::env::args().nth(1).and_then(|name| super::command(&name));
    if command.is_some_and(|command| command.command_line().get_arguments().any(|arg| arg.get_long() == Some(flag))) {
        let tip = format!("it has no flag: did you mean --{flag} {}?", quoted(word));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

pub(super) static COMPLETIONS: Command = Command {
    name: "completions",
    about: "Print a shell completion script",
    examples: &[
        ("For bash: load the file in ~/.bashrc", "difftool completions bash > ~/.difftool.bash"),
        ("For fish", "difftool completions fish > ~/.config/fish/completions/difftool.fish"),
    ],
    defaults: None,
    flags: Completions::augment_args,
    action: Action::Other(|typed| completions(&Completions::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
fn completions(args: &Completions) -> Result<()> {
    let mut script = Vec::new(); // the generator would panic on a closed pipe
    clap_complete::generate(args.shell, &mut command_line(), "difftool", &mut script);
    Ok(base::terminal::stdout().write_all(&script)?)
}

pub(super) static MAN: Command = Command {
    name: "man",
    about: "Write manual pages, one for each command",
    examples: &[("Read them with `man difftool` and `man difftool-needle`", "difftool man ~/.local/share/man/man1")],
    defaults: None,
    flags: ManualPages::augment_args,
    action: Action::Other(|typed| write_manual_pages(&ManualPages::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
struct ManualPages {
    /// Folder of the pages; those of another version there are replaced
    folder: PathBuf,
}

/// Writes the manual pages of difftool and of its commands.
fn write_manual_pages(args: &ManualPages) -> Result<()> {
    let folder = &args.folder;
    // A page leaves out the help of flags that `-h` leaves out.
    let whole = command_line().mut_subcommands(|command| command.mut_args(|arg| arg.hide_short_help(false)));
    let cannot = || format!("cannot write manual pages to {}", folder.display());
    // Written elsewhere first, so that nothing is written through a link with the name of a page.
    let pages = tempfile::tempdir().with_context(cannot)?;
    clap_mangen::generate_to(whole, pages.path()).and_then(|()| fs::create_dir_all(folder)).with_context(cannot)?;
    for page in fs::read_dir(pages.path()).with_context(cannot)? {
        let page = page.with_context(cannot)?;
        let text = fs::read(page.path()).with_context(cannot)?;
        files::replace(&folder.join(page.file_name()), |partial| Ok(fs::write(partial, text)?))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
            flags.map(|flag| flag.trim_end_matches(')').to_owned()).collect()
        };
        let of_prompts = ["--help", "--ctx", "--needles", "--samples", "--text"];
        let others = ["--model", "--condition", "--out", "--report", "--tables", "--json"];
        let in_examples = ["--distractors", "--generate", "--needles-file", "--task", "--unanswerable"];
        let expected: BTreeSet<String> =
            [&of_prompts[..], &others, &in_examples].concat().into_iter().map(str::to_owned).collect();
        assert_eq!(shown("needle").into_iter().collect::<BTreeSet<_>>(), expected);
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
        assert!(help("needle", "samples").ends_with("[default: 2]"), "{}", help("needle", "samples"));
        assert!(help("ablate", "ctx").contains("[default: 1k,") && help("needle", "ctx").contains("[default: 4k,"));
        assert!(help("quantize", "needles").ends_with("[default: 4, of built-in models 40 as far as they have room]"));
        let built_in = engine::model::open::built_in_names().join(", ");
        for command in ["inspect", "needle", "nll"] {
            let help = help(command, "model");
            assert!(help.starts_with(&format!("Built-in model ({built_in})")), "{command}: {help}");
        }
    }
}
