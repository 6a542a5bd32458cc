//! The flags that say which tables are printed, and how.

use super::{table_name, table_names};
use crate::results::print::{chosen_text, json_of, latex_table, screen_text, Tables};
use crate::results::screen::Screen;
use crate::results::table::Table;
use anyhow::Result;
use base::{bail_usage, KnownNames};
use clap::builder::PossibleValue;
use clap::Args;
use names::ShortNames;
use std::io::Write as _;

/// Which tables are printed, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct TableArgs {
    /// Tables to print: `all`, or names of some of these, separated by commas [default: one screen]
    #[arg(long, value_name = "NAMES", value_parser = TABLES, hide_possible_values = true, conflicts_with = "json")]
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
        let text = self.text(screen, tables, names)?;
        Ok(base::terminal::stdout().write_all(text.as_bytes())?)
    }

    /// The screen, or the tables that are asked for, as text.
    ///
    /// # Errors
    /// A usage error if a table is not there.
    pub(super) fn text(
        &self,
        screen: impl FnOnce() -> Screen,
        tables: impl FnOnce() -> Vec<Table>,
        names: &ShortNames,
    ) -> Result<String> {
        if self.json {
            return Ok(format!("{:#}\n", json_of(&tables())));
        }
        if self.latex {
            let chosen = match &self.tables {
                Some(wanted) => chosen(tables(), wanted)?,
                None => screen().into_tables(&tables()),
            };
            let texts = chosen.into_iter().map(|table| latex_table(&table.with_names(names)));
            return Ok(texts.collect::<Vec<_>>().join("\n"));
        }
        Ok(match &self.tables {
            Some(wanted) => chosen_text(&tables(), wanted, names),
            None => screen_text(screen(), names),
        })
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

/// Names of tables.
const TABLES: KnownNames<Tables> = KnownNames { parse: wanted_tables, names: tables };

fn tables() -> Vec<PossibleValue> {
    ["all"].into_iter().chain(table_names()).map(PossibleValue::new).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_chosen_by_name_or_title() {
        let named = |names: &[&str]| Ok(Tables::Named(names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(wanted_tables("all"), Ok(Tables::All));
        assert_eq!(wanted_tables("depth, shape"), named(&["depth", "shape"]));
        assert_eq!(wanted_tables("Costs of conditions,answers"), named(&["conditions", "answers"]));
        assert!(wanted_tables("dephts").unwrap_err().contains("`depth`") && wanted_tables("depth,,").is_err());
    }
}
