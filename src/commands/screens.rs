//! What commands print: the screen of each, or tables in the format that is asked for.

use super::{ablate, heads, heatmap, needle, nll, outliers, quantize, ratio, shots};
use crate::base::names::hint;
use crate::measures::{ANSWERS, ATTENTION, CANCELLING, DEPTH, FIDELITY, REGIONS, SHAPE, SINK_RATES, UNANSWERABLE};
use crate::results::print::{chosen_text, json_of, screen_text, Tables};
use crate::results::run_table::RunTable;
use crate::results::screen::Screen;
use crate::results::table::Table;
use crate::results::view::nll::{NLL, NLL_DIFFERENCES, NLL_POSITIONS};
use crate::results::view::{
    ANSWER_HEADS, CHANNELS, CONDITIONS, CONTRASTS, DIFFERENCES, DRAWN, EACH_HEAD, EXPECTED, HEADS_OUT, OUTLIERS,
    PREDICTORS, ROLES, SHOTS, SINKS, STRONGEST,
};
use crate::results::{CommandName, Frame};
use crate::train::tables::TABLES as TRAINING_TABLES;
use anyhow::Result;
use clap::Args;
use std::io::Write as _;

/// The tables of runs, in the order in which they are printed.
const TABLES: [&RunTable; 27] = [
    &SHOTS,
    &CONDITIONS,
    &EXPECTED,
    &HEADS_OUT,
    &EACH_HEAD,
    &PREDICTORS,
    &CONTRASTS,
    &DIFFERENCES,
    &ANSWERS,
    &UNANSWERABLE,
    &ATTENTION,
    &REGIONS,
    &FIDELITY,
    &DEPTH,
    &CANCELLING,
    &SHAPE,
    &SINK_RATES,
    &NLL,
    &NLL_DIFFERENCES,
    &NLL_POSITIONS,
    &OUTLIERS,
    &CHANNELS,
    &DRAWN,
    &STRONGEST,
    &ANSWER_HEADS,
    &ROLES,
    &SINKS,
];

/// Which tables are printed, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct TableArgs {
    /// Tables to print: `all`, or names, as in `depth,shape` [default: one screen]
    #[arg(long, value_name = "NAMES", value_parser = wanted_tables, conflicts_with = "json")]
    pub tables: Option<Tables>,
    /// Print all tables as JSON
    #[arg(long)]
    pub json: bool,
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
    let of_runs = TABLES.iter().map(|table| (table.id, table.title));
    let known: Vec<(&str, &str)> = of_runs.chain(TRAINING_TABLES).collect();
    let found = known.iter().find(|(id, title)| *id == typed || title.eq_ignore_ascii_case(typed));
    found.map(|(id, _)| *id).ok_or_else(|| {
        let ids: Vec<&str> = known.iter().map(|(id, _)| *id).collect();
        format!("there is no table `{typed}`{}; there are {}", hint(typed, ids.iter().copied()), ids.join(", "))
    })
}

/// Returns every table that a run has numbers for.
pub(super) fn tables(frame: &Frame) -> Vec<Table> {
    TABLES.iter().filter_map(|table| table.filled(frame)).collect()
}

/// Prints a screen, or the tables that are asked for.
pub(super) fn print_tables(frame: &Frame, args: &TableArgs) -> Result<()> {
    let mut out = crate::base::terminal::stdout();
    match &args.tables {
        _ if args.json => writeln!(out, "{:#}", json_of(&tables(frame)))?,
        Some(wanted) => write!(out, "{}", chosen_text(&tables(frame), wanted, &frame.short_names))?,
        None => write!(out, "{}", screen_text(screen(frame), &frame.short_names))?,
    }
    Ok(())
}

/// The screen of a run, by the command that measured it.
pub(super) fn screen(frame: &Frame) -> Screen {
    match frame.command() {
        Some(CommandName::Ablate) => ablate::screen(frame),
        Some(CommandName::Ratio) => ratio::screen(frame),
        Some(CommandName::Quantize) => quantize::screen(frame),
        Some(CommandName::Shots) => shots::screen(frame),
        Some(CommandName::Heads) => heads::screen(frame),
        Some(CommandName::Outliers) => outliers::screen(frame),
        Some(CommandName::Nll) => nll::screen(frame),
        Some(CommandName::Heatmap | CommandName::Explore) => heatmap::screen(frame),
        _ => needle::screen(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn every_table_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = TABLES.iter().map(|table| table.id).collect();
        assert_eq!(names.len(), TABLES.len());
    }
}
