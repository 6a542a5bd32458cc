//! Rows as a table, CSV, JSON or Markdown.

use super::screen::screen;
use super::{in_short, Compare, TableFormat};
use crate::results::compare::Comparison;
use crate::results::differences::{differences, Detail};
use crate::results::print::{markdown_table, screen_text, write_rows, TextTable};
use crate::results::table::Table;
use anyhow::Result;
use names::ShortNames;
use serde_json::json;
use stats::LEVEL;
use std::io::Write;

/// Prints the rows on stdout.
pub(super) fn print(comparison: &Comparison, args: &Compare) -> Result<()> {
    let mut out = base::terminal::stdout();
    let format = if args.json { TableFormat::Json } else { args.format };
    match format {
        TableFormat::Table => write!(out, "{}", text_of(comparison, args))?,
        TableFormat::Csv => write_rows(&comparison.rows, &comparison.groups, &mut out)?,
        TableFormat::Json => writeln!(out, "{:#}", json_of(comparison, args))?,
        TableFormat::Markdown => {
            let table = table(comparison, args, Detail::Full);
            write!(out, "{}", table.map_or_else(String::new, |table| markdown_table(&table)))?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The table of differences with short names; `None` without rows.
fn table(comparison: &Comparison, args: &Compare, detail: Detail) -> Option<Table> {
    let mut table = differences(&in_short(&comparison.rows), &comparison.groups, detail)?;
    // The rows of tables of others are of anything.
    let counts = table.columns.iter_mut().filter(|column| column.name == "n" && !args.request.key.is_empty());
    counts.for_each(|column| column.heading = "pairs".to_owned());
    Some(table)
}

/// The screen, or all rows with means, power and test.
fn text_of(comparison: &Comparison, args: &Compare) -> String {
    let table = || table(comparison, args, Detail::Full);
    match &args.tables {
        Some(_) => table().map_or_else(|| NOTHING.to_owned(), |table| TextTable::new(&table).to_string() + "\n"),
        None => {
            let pairs = if args.request.key.is_empty() { "prompt" } else { "pair" };
            screen_text(screen(comparison, pairs, !args.request.metric.is_empty()), &ShortNames::default())
        }
    }
}

/// The text of a comparison without rows.
const NOTHING: &str = "There is nothing to compare.\n";

fn json_of(comparison: &Comparison, args: &Compare) -> serde_json::Value {
    let inputs: Vec<_> = comparison
        .inputs
        .iter()
        .map(|(input, counts)| {
            json!({
                "name": input.name,
                "results": input.results.display().to_string(),
                "has_manifest": input.manifest.is_some(),
                "records": counts.records,
                "compared": counts.kept,
                "errors": counts.errors,
                "missing": counts.missing,
            })
        })
        .collect();
    let differ: Vec<_> =
        comparison.differences.iter().map(|(other, list)| json!({ "other": other, "in": list })).collect();
    json!({
        "inputs": inputs,
        "manifests_differ": differ,
        "pairings": comparison.pairings,
        "notes": comparison.notes,
        "level": LEVEL,
        "replicates": args.request.replicates.as_ref().map(ToString::to_string),
        "rows": comparison.rows,
    })
}
