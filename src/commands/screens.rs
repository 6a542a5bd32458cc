//! What commands print: the screen of each, or tables in the format that is asked for.

use super::ablate::OF_CONDITIONS;
use super::command::{Command, Measuring};
use super::needle::NEEDLE;
use super::{command, COMMANDS};
use crate::bail_usage;
use crate::base::names::{distinct, hint, ShortNames};
use crate::measures::MeasureName;
use crate::results::differences::DIFFERENCES;
use crate::results::print::{chosen_text, json_of, latex_table, screen_text, Tables};
use crate::results::run_table::RunTable;
use crate::results::screen::Screen;
use crate::results::table::Table;
use crate::results::Frame;
use crate::train::tables::TABLES as TRAINING_TABLES;
use anyhow::Result;
use clap::Args;
use std::io::Write as _;
use strum::VariantArray as _;

/// Which tables are printed, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct TableArgs {
    /// Tables to print: `all`, or names of some of these, separated by commas [default: one screen]
    #[arg(long, value_name = "NAMES", value_parser = wanted_tables, conflicts_with = "json")]
    pub tables: Option<Tables>,
    /// Print all tables as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the tables as LaTeX (booktabs)
    #[arg(long, conflicts_with = "json", hide_short_help = true)]
    pub latex: bool,
}

impl TableArgs {
    /// Prints the screen, or the tables that are asked for.
    pub(super) fn print(
        &self,
        screen: impl FnOnce() -> Screen,
        tables: impl FnOnce() -> Vec<Table>,
        names: &ShortNames,
    ) -> Result<()> {
        let mut out = crate::base::terminal::stdout();
        match &self.tables {
            _ if self.json => writeln!(out, "{:#}", json_of(&tables()))?,
            _ if self.latex => {
                let chosen = match &self.tables {
                    Some(wanted) => chosen(tables(), wanted)?,
                    None => screen().into_tables(&tables()),
                };
                let texts = chosen.into_iter().map(|table| latex_table(&table.with_names(names)));
                out.write_all(texts.collect::<Vec<_>>().join("\n").as_bytes())?;
            }
            Some(wanted) => write!(out, "{}", chosen_text(&tables(), wanted, names))?,
            None => write!(out, "{}", screen_text(screen(), names))?,
        }
        Ok(())
    }
}

/// The tables that are wanted.
///
/// # Errors
/// A usage error if one is not there.
pub(super) fn chosen(mut tables: Vec<Table>, wanted: &Tables) -> Result<Vec<Table>> {
    let Tables::Named(names) = wanted else { return Ok(tables) };
    let known: Vec<&str> = tables.iter().map(|table| table.id).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail_usage!("--tables {name}: the run has no such table; there are {}", known.join(", "));
    }
    tables.retain(|table| names.iter().any(|name| name == table.id));
    Ok(tables)
}

/// Parses names of tables, or the titles that they are printed under.
fn wanted_tables(text: &str) -> Result<Tables, String> {
    if text == "all" {
        return Ok(Tables::All);
    }
    text.split(',')
        .map(|typed| table_name(typed.trim()).map(str::to_owned))
        .collect::<Result<_, _>>()
        .map(Tables::Named)
}

fn table_name(typed: &str) -> Result<&'static str, String> {
    let of_training = TRAINING_TABLES.iter().map(|table| (table.id, table.title));
    let known: Vec<(&str, &str)> = run_tables().map(|table| (table.id, table.title)).chain(of_training).collect();
    let found = known.iter().find(|(id, title)| *id == typed || title.eq_ignore_ascii_case(typed));
    found.map(|(id, _)| *id).ok_or_else(|| {
        let ids = distinct(known.iter().map(|(id, _)| (*id).to_owned()));
        format!(
            "there is no table `{typed}`{}; there are {}",
            hint(typed, ids.iter().map(String::as_str)),
            ids.join(", ")
        )
    })
}

/// All tables of runs.
fn run_tables() -> impl Iterator<Item = &'static RunTable> {
    let of_commands = COMMANDS.into_iter().filter_map(Command::measuring).flat_map(|measuring| measuring.tables);
    of_commands.copied().chain(of_all_runs())
}

/// The tables of conditions, of differences, and of measures.
fn of_all_runs() -> impl Iterator<Item = &'static RunTable> {
    let of_measures = MeasureName::VARIANTS.iter().flat_map(|measure| measure.tables());
    OF_CONDITIONS.iter().chain(&[&DIFFERENCES]).chain(of_measures).copied()
}

/// Returns every table that a run has numbers for: first those of its command. Of one that does not say its command, those of
/// all are tried.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    let Some(command) = of_command(frame) else {
        return run_tables().filter_map(|table| table.filled(frame)).collect();
    };
    command.tables.iter().copied().chain(of_all_runs()).filter_map(|table| table.filled(frame)).collect()
}

/// The command that measured a run, if its configuration says so.
fn of_command(frame: &Frame) -> Option<&'static Measuring> {
    command(frame.config_text("command")).and_then(Command::measuring)
}

/// Prints the screen of a run, or the tables that are asked for.
pub(super) fn print_tables(frame: &Frame, args: &TableArgs) -> Result<()> {
    args.print(|| screen(frame), || tables(frame), &frame.short_names)
}

/// The screen of a run: that of its command, or of `needle` if it does not say its command.
pub(super) fn screen(frame: &Frame) -> Screen {
    let command = of_command(frame).or_else(|| NEEDLE.measuring()).expect("needle measures");
    Screen { next: command.next, ..(command.screen)(frame) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::manifest::ModelInfo;
    use crate::results::About;
    use std::collections::BTreeSet;

    #[test]
    fn tables_are_chosen_by_name_or_title() {
        let named = |names: &[&str]| Ok(Tables::Named(names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(wanted_tables("all"), Ok(Tables::All));
        assert_eq!(wanted_tables("depth, shape"), named(&["depth", "shape"]));
        assert_eq!(wanted_tables("Costs of conditions,answers"), named(&["conditions", "answers"]));
        assert!(wanted_tables("dephts").unwrap_err().contains("`depth`") && wanted_tables("depth,,").is_err());
    }

    #[test]
    fn a_run_without_records_has_a_screen_and_tables_in_every_command() {
        let commands = COMMANDS.into_iter().filter(|command| command.measuring().is_some());
        for command in commands {
            for names in [&[][..], &["transformer"], &["transformer", "diff"]] {
                let model = |name: &&str| ModelInfo { name: (*name).to_owned(), ..ModelInfo::default() };
                let config = serde_json::json!({ "command": command.name });
                let about = About { config, models: names.iter().map(model).collect(), ..About::default() };
                let frame = Frame::new(about).finish();
                let names = &frame.short_names;
                let text = screen_text(screen(&frame), names) + &chosen_text(&tables(&frame), &Tables::All, names);
                assert!(!text.contains("NaN"), "{}: {text}", command.name);
            }
        }
    }

    #[test]
    fn every_table_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = run_tables().map(|table| table.id).collect();
        // The maps of one prompt are listed by layer, or by head.
        assert_eq!(names.len() + 1, run_tables().count());
    }
}
