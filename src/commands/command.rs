//! A command as a value, which its file declares: all that the command line, experiment files and screens know of it.

use super::measuring::MeasuringFlags;
use super::shared::{Measured, OutputArgs, PartArgs, RunFlags};
use crate::figures::RunFigure;
use crate::results::run_table::RunTable;
use crate::results::screen::Screen;
use crate::results::Frame;
use anyhow::{Context as _, Result};
use base::terminal::{quoted, quoted_path};
use clap::{ArgMatches, Args, FromArgMatches as _};
use engine::model::open::BY_DEFAULT;
use names::values::tokens_name;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;
use text::PromptDefaults;
use toml::de::ValueDeserializer;

/// Examples of a command: (description, command line).
pub(super) type Examples = &'static [(&'static str, &'static str)];

/// A command.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// The first line of its help.
    pub(super) about: &'static str,
    pub(super) examples: Examples,
    /// Its needle prompts if flags say nothing else, for its help.
    pub(super) defaults: Option<&'static PromptDefaults>,
    /// Adds its flags to its command line.
    pub(super) flags: fn(clap::Command) -> clap::Command,
    pub(super) action: Action,
}

/// What a command does.
pub(super) enum Action {
    Measure(Measuring),
    /// Whatever is to be done with what was typed.
    Other(fn(&ArgMatches) -> Result<()>),
}

/// What is special about a command that measures.
pub(super) struct Measuring {
    /// Its flags as they were typed: [`typed`].
    pub(super) typed: fn(&ArgMatches) -> Result<Typed, clap::Error>,
    /// Its flags in an experiment file: [`read`].
    pub(super) read: fn(ValueDeserializer<'_>) -> Result<Box<dyn MeasuringFlags>, toml::de::Error>,
    /// What it prints.
    pub(super) screen: fn(&Frame) -> Screen,
    /// Tables that only its runs have, beside those of its measures.
    pub(super) tables: &'static [&'static RunTable],
    /// Its figures; others are drawn by its flags.
    pub(super) figures: &'static [RunFigure],
    /// What to look at next.
    pub(super) next: Next,
}

/// A command to look at next, and what it shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    command: &'static str,
    /// Its arguments behind the folder of the run; `None` for a command that measures the models of the run.
    of_run: Option<&'static str>,
    what: &'static str,
}

impl Next {
    /// A command that measures the same models.
    pub(super) const fn measuring(command: &'static str, what: &'static str) -> Self {
        Self { command, of_run: None, what }
    }

    /// A command that reads the run.
    pub(super) const fn of_run(command: &'static str, args: &'static str, what: &'static str) -> Self {
        Self { command, of_run: Some(args), what }
    }

    /// The command line for models, or for the folder of a run, with what it shows: `difftool ablate --model ./x, what noise costs`.
    pub(super) fn words(self, models: &[String], folder: Option<&Path>) -> String {
        let Self { command, of_run, what } = self;
        let mut words = format!("difftool {command}");
        match of_run {
            Some(args) => words += &format!(" {} {args}", folder.map_or_else(|| "RUN".to_owned(), quoted_path)),
            None if models == BY_DEFAULT => {}
            None => words.extend(models.iter().map(|model| format!(" --model {}", quoted(model)))),
        }
        if what.is_empty() {
            words
        } else {
            format!("{words}, {what}")
        }
    }
}

/// What was typed for a command that measures.
pub(super) struct Typed {
    pub(super) flags: Box<dyn MeasuringFlags>,
    pub(super) run: RunFlags,
    pub(super) output: OutputArgs,
    pub(super) part: PartArgs,
}

/// The flags of a command that measures as they were typed.
///
/// # Errors
/// If the command line that was parsed does not have them.
pub(super) fn typed<S: MeasuringFlags + Args + 'static>(typed: &ArgMatches) -> Result<Typed, clap::Error> {
    let Measured { flags, run, output, part } = Measured::<S>::from_arg_matches(typed)?;
    Ok(Typed { flags: Box::new(flags), run, output, part })
}

/// Reads the flags of a command that measures from an experiment file.
///
/// # Errors
/// With the place in the file.
pub(super) fn read<S: MeasuringFlags + DeserializeOwned + 'static>(
    table: ValueDeserializer<'_>,
) -> Result<Box<dyn MeasuringFlags>, toml::de::Error> {
    Ok(Box::new(S::deserialize(table)?))
}

impl Command {
    /// Its command line, with its help.
    pub(super) fn command_line(&self) -> clap::Command {
        let examples: String = self.examples.iter().map(|(what, line)| format!("  # {what}\n  {line}\n")).collect();
        let command = (self.flags)(clap::Command::new(self.name));
        let command = command.mut_args(|arg| eased(arg, &examples));
        let command = command.about(self.about).long_about(None).after_help(format!("Examples:\n{examples}"));
        match self.defaults {
            Some(defaults) => with_defaults(command, defaults),
            None => command,
        }
    }

    /// The flags of words that follow the program's name, of a command that measures.
    ///
    /// # Errors
    /// If they are not those of the command.
    pub(super) fn typed(&self, words: &[String]) -> Result<Typed> {
        let measuring = self.measuring().with_context(|| format!("{} measures nothing", self.name))?;
        let typed = self.command_line().try_get_matches_from(words)?;
        Ok((measuring.typed)(&typed)?)
    }

    /// What is special about it if it measures.
    pub(super) fn measuring(&self) -> Option<&Measuring> {
        match &self.action {
            Action::Measure(measuring) => Some(measuring),
            Action::Other(_) => None,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Flags for texts of people, which may begin with a dash: a list, a dialogue.
const TEXTS: [&str; 4] = ["prompt", "question", "lead", "answer"];

/// Shows a flag in the help of `-h` if the examples have it, and takes what begins with a minus for its value: the error is then about
/// the number. `--context` is `--ctx`.
fn eased(arg: clap::Arg, examples: &str) -> clap::Arg {
    let mut words = examples.split_whitespace();
    let is_shown = arg.get_long().is_some_and(|long| words.any(|word| word.strip_prefix("--") == Some(long)));
    let arg = if is_shown { arg.hide_short_help(false) } else { arg };
    let arg = if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    let arg =
        if arg.get_long().is_some_and(|long| TEXTS.contains(&long)) { arg.allow_hyphen_values(true) } else { arg };
    if arg.get_long() == Some("ctx") {
        return arg.alias("context");
    }
    arg
}

/// Adds the prompts that a command has by default to the help of its flags.
fn with_defaults(mut command: clap::Command, defaults: &PromptDefaults) -> clap::Command {
    let built_in: Vec<String> =
        defaults.settings(true, defaults.ctx_tok).iter().map(|counts| counts.needles.to_string()).collect();
    let others = PromptDefaults::OTHERS;
    let ctx = tokens_name(defaults.ctx_tok);
    let filled_in = [
        ("ctx", format!("{ctx}, or the shortest context of the models if that is less")),
        ("needles", format!("{}, of built-in models {} as far as they have room", others.needles, built_in.join(","))),
        ("retrieve", format!("at most {}", others.asked)),
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
