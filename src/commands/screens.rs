//! What commands print: the screen of each, or tables in the format that is asked for.

use super::command::{Command, Measuring};
use super::needle::NEEDLE;
use super::table_args::TableArgs;
use super::{command, of_all_runs, run_tables};
use crate::results::screen::Screen;
use crate::results::table::Table;
use crate::results::Frame;
use anyhow::Result;

/// Every table that a run has numbers for: first those of its command. Of one that does not say its command, those of
/// all are tried.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let Some(command) = of_command(frame) else {
        return run_tables().filter_map(|table| table.filled(frame)).collect();
    };
    command.tables.iter().copied().chain(of_all_runs()).filter_map(|table| table.filled(frame)).collect()
}

/// The command that measured a run, if its configuration says so.
pub(super) fn of_command(frame: &Frame) -> Option<&'static Measuring> {
    command(&frame.about.config.command).and_then(Command::measuring)
}

/// The screen of a run, or the tables that are asked for, as text.
///
/// # Errors
/// A usage error if a table is not there.
pub(super) fn text_of_tables(frame: &Frame, args: &TableArgs) -> Result<String> {
    args.text(|| screen(frame), || tables(frame), &frame.short_names)
}

/// Prints the screen of a run, or the tables that are asked for.
pub(super) fn print_tables(frame: &Frame, args: &TableArgs) -> Result<()> {
    args.print(|| screen(frame), || tables(frame), &frame.short_names)
}

/// The screen of a run: that of its command, or of `needle` if it does not say its command.
pub(super) fn screen(frame: &Frame) -> Screen {
    let command = of_command(frame).or_else(|| NEEDLE.measuring()).expect("needle measures");
    Screen { next: command.next.words(&frame.models, frame.about.folder.as_deref()), ..(command.screen)(frame) }
}

#[cfg(test)]
mod tests {
    use super::super::{command_line, commands};
    use super::*;
    use crate::results::print::{chosen_text, screen_text, Tables};
    use crate::results::{About, RunConfig};
    use engine::model::open::BY_DEFAULT;
    use names::ModelInfo;
    use std::path::Path;

    #[test]
    fn what_is_next_is_a_command_for_the_models_of_the_run() {
        for command in commands().filter_map(|command| command.measuring().map(|measuring| (command, measuring))) {
            let (command, measuring) = command;
            let models = ["runs/a b/diff".to_owned(), "diff".to_owned()];
            let next = measuring.next.words(&models, Some(Path::new("runs/a b")));
            let line = next.split(", ").next().unwrap();
            let words = line.replace("'runs/a b/diff'", "runs/x").replace("'runs/a b'", "runs/a");
            command_line().try_get_matches_from(words.split(' ')).unwrap_or_else(|error| panic!("{next}: {error}"));
            let is_of_run = ["difftool show", "difftool report"].iter().any(|start| next.starts_with(start));
            assert_eq!(line.contains("--model 'runs/a b/diff' --model diff"), !is_of_run, "{}: {next}", command.name);
            assert!(!measuring.next.words(&BY_DEFAULT.map(str::to_owned), None).contains("--model"));
        }
    }

    #[test]
    fn a_run_without_records_has_a_screen_and_tables_in_every_command() {
        let commands = commands().filter(|command| command.measuring().is_some());
        for command in commands {
            for names in [&[][..], &["transformer"], &["transformer", "diff"]] {
                let model = |name: &&str| ModelInfo { name: (*name).to_owned(), ..ModelInfo::default() };
                let config = RunConfig { command: command.name.to_owned(), ..RunConfig::default() };
                let about = About { config, models: names.iter().map(model).collect(), ..About::default() };
                let frame = Frame::new(about, &[]);
                let names = &frame.short_names;
                let text = screen_text(screen(&frame), names) + &chosen_text(&tables(&frame), &Tables::All, names);
                assert!(!text.contains("NaN"), "{}: {text}", command.name);
            }
        }
    }
}
