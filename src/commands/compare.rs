//! `difftool compare`: what differs between runs, or within one, on the same prompts?

mod print;
mod screen;

use super::command::{Action, Command};
use super::shared::PageArgs;
use crate::figures::{compared_words, panels_of_rows};
use crate::results::compare::{compare, Comparison, FailIf, PairedSets, Request};
use crate::results::differences::{difference_cell, group_value};
use crate::results::table::plural;
use crate::results::Row;
use anyhow::{Context as _, Result};
use base::bail_usage;
use base::error::{unless_broken_pipe, ExpectationFailed};
use base::files::folder_of;
use base::hash::sha256_file;
use base::terminal::escaped;
use clap::{Args, FromArgMatches as _, ValueEnum};
use names::{distinct, Column, ShortNames};
use plot::{forest, recipe, FigureHeading};
use print::print;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub(super) static COMPARE: Command = Command {
    name: "compare",
    about: "Compare runs, or models or conditions of one run, paired by prompt",
    examples: &[
        ("Compare the models of one run", "difftool compare runs/readme --by model"),
        (
            "Compare two runs; fail if accuracy falls by more than 5 points",
            "difftool compare runs/a runs/b --fail-if 'accuracy < -0.05'",
        ),
        ("Compare any two tables, paired by a column", "difftool compare a.csv b.csv --key id --value score"),
    ],
    defaults: None,
    flags: Compare::augment_args,
    action: Action::Other(|typed| run(&Compare::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Compare {
    #[command(flatten)]
    pub request: Request,
    /// Print all rows, with means, tests and the smallest change that could be seen
    #[arg(long, value_parser = ["all"], value_name = "all")]
    pub tables: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = TableFormat::Table, hide_short_help = true)]
    pub format: TableFormat,
    /// Print the rows as JSON
    #[arg(long, conflicts_with_all = ["format", "tables"])]
    pub json: bool,
    /// Also draw the differences into this new file
    #[arg(long, value_name = "FILE.png|svg|pdf")]
    pub plot: Option<PathBuf>,
    /// Exit with 3 if a difference meets this condition, as in 'accuracy < -0.05'; METRIC.lo and METRIC.hi are the ends of
    /// the interval, METRIC.baseline and METRIC.other the means; may be repeated
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true)]
    pub fail_if: Vec<FailIf>,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub page: PageArgs,
}

/// Output format of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TableFormat {
    /// Aligned text
    Table,
    /// CSV with all digits
    Csv,
    /// JSON with the rows, their pairing, and unpaired records
    Json,
    /// Markdown table
    Markdown,
}

/// Differences in a figure, at most: a page of them.
const MOST_DRAWN: usize = 60;

/// Compares.
///
/// # Errors
/// As [`compare`]; [`ExpectationFailed`] if a condition of `--fail-if` holds.
fn run(args: &Compare) -> Result<()> {
    args.plot.as_deref().map_or(Ok(()), check_plot)?;
    let request = &args.request;
    if let Some(baseline) = request.baseline.as_ref().filter(|_| request.by.is_none() && request.replicates.is_none()) {
        bail_usage!("--baseline {baseline}: of which column? Give --by COLUMN, or --replicates for a recipe");
    }
    let comparison = compare(request)?;
    let failures = failures(&args.fail_if, &comparison)?;
    if args.plot.is_some() && comparison.rows.len() > MOST_DRAWN {
        bail_usage!(
            "--plot: {} differences, and a figure shows up to {MOST_DRAWN}: choose some with --metric and --where, or leave out \
             --group-by",
            comparison.rows.len()
        );
    }
    if !args.quiet {
        // A reader of stderr who has gone away is no reason to stop.
        let _ = std::io::stderr().write_all(talk(&comparison).as_bytes());
    }
    // Nor is one of stdout: `| head` must not hide that a condition holds.
    unless_broken_pipe(print(&comparison, args))?;
    if let Some(path) = &args.plot {
        draw(&comparison, args, path)?;
    }
    match failures.as_slice() {
        [] => Ok(()),
        failures => Err(ExpectationFailed(format!("--fail-if {}", failures.join("; "))).into()),
    }
}

/// Refuses a figure that could not be saved before anything is worked out.
fn check_plot(path: &Path) -> Result<()> {
    let shown = path.display();
    if path.exists() {
        bail_usage!("--plot {shown}: it exists, and figures are never overwritten; name a new file");
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    if !matches!(extension, Some("png" | "svg" | "pdf")) {
        bail_usage!("--plot {shown}: figures are PNG, SVG or PDF files; name it FILE.png, FILE.svg or FILE.pdf");
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        bail_usage!("--plot {shown}: there is no folder {}", folder.display());
    }
    Ok(())
}

/// Draws the rows, one panel for each metric and region, and saves them with their recipe.
fn draw(comparison: &Comparison, args: &Compare, path: &Path) -> Result<()> {
    let rows = in_short(&comparison.rows);
    let panels = panels_of_rows(&rows, &comparison.groups);
    let baselines = distinct(rows.iter().map(|row| compared_words(&row.baseline)));
    let others = distinct(rows.iter().map(|row| compared_words(&row.other)));
    let title = match others.as_slice() {
        [other] => format!("{other} − {}", baselines.join(", ")),
        _ => format!("Differences from {}", baselines.join(", ")),
    };
    let subtitle = match rows.iter().filter_map(|row| row.difference.seeds).max() {
        Some(seeds) => format!("paired differences · means over up to {seeds} training seeds and prompts · whiskers: 95 % intervals over both"),
        None => "paired differences · means over prompts · whiskers: 95 % intervals".to_owned(),
    };
    let x_label = format!("difference from {}", baselines.join(", "));
    forest(
        &panels,
        &FigureHeading { title: &title, subtitle: &subtitle, page: args.page.page(), ..FigureHeading::default() },
        &x_label,
    )?
    .save(path, &figure_recipe(comparison)?)
}

/// The command that draws the figure.
fn figure_recipe(comparison: &Comparison) -> Result<Vec<(String, String)>> {
    let mut recipe = recipe(&base::terminal::arguments(), "none", "means over prompts");
    for (place, (input, _)) in comparison.inputs.iter().enumerate() {
        let hash = sha256_file(&input.results)?;
        recipe.push((format!("input {}", place + 1), format!("{} sha256 {hash}", input.name)));
    }
    Ok(recipe)
}

/// One line for each condition and row that it holds for.
fn failures(conditions: &[FailIf], comparison: &Comparison) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    let rows = in_short(&comparison.rows);
    for condition in conditions {
        for row in condition.met(&rows).context("--fail-if")? {
            let name = row.name();
            let of = subject(row, &comparison.groups);
            failures.push(format!("'{condition}' holds for {name} of {of}: {}", difference_cell(row).line()));
        }
    }
    Ok(failures)
}

/// `diff - transformer (ctx_tok=4096)`.
fn subject(row: &Row, groups: &[Column]) -> String {
    let values: Vec<String> =
        groups.iter().filter_map(|&column| group_value(row, column)).map(|value| value.to_string()).collect();
    let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(" ")) };
    format!("{} - {}{values}", row.other, row.baseline)
}

/// The rows with short names of models.
pub(super) fn in_short(rows: &[Row]) -> Vec<Row> {
    let model = Column::Model.name();
    let models: BTreeSet<&String> = rows.iter().filter_map(|row| row.group.get(model)).collect();
    let models: Vec<String> = models.into_iter().cloned().collect();
    let short = ShortNames::of(&models);
    let mut rows = rows.to_vec();
    rows.iter_mut().filter_map(|row| row.group.get_mut(model)).for_each(|name| *name = short.name(name).to_owned());
    rows
}

/// Notes on a comparison: differences between the runs, pairs, and the rest.
pub(super) fn talk(comparison: &Comparison) -> String {
    let mut lines = Vec::new();
    let first = comparison.inputs.first().map_or("", |(input, _)| &input.name);
    for (name, differences) in &comparison.differences {
        if differences.is_empty() {
            lines.push(format!("{first} and {name}: the manifests agree"));
        } else {
            lines.push(format!("{first} and {name} differ in"));
            lines.extend(differences.iter().map(|difference| format!("  {difference}")));
        }
    }
    for (input, counts) in &comparison.inputs {
        let left_out = match (counts.errors, counts.missing) {
            (0, 0) => String::new(),
            (0, missing) => format!("; left out: {missing} without a number"),
            (errors, 0) => format!("; left out: {errors} that failed"),
            (errors, missing) => format!("; left out: {errors} that failed, {missing} without a number"),
        };
        lines.push(format!("{}: {} of {} records compared{left_out}", input.name, counts.kept, counts.records));
    }
    let of_pairings = distinct(comparison.pairings.iter().flat_map(talk_of_pairing));
    lines.extend(of_pairings);
    lines.extend(comparison.notes.iter().map(|note| format!("note: {note}")));
    let lines: Vec<_> = lines.iter().map(|line| escaped(line)).collect();
    lines.join("\n") + "\n"
}

/// The number of pairs, and of records without a partner.
fn talk_of_pairing(pairing: &PairedSets) -> Vec<String> {
    let PairedSets { baseline, other, pairs, .. } = pairing;
    let mut lines = vec![format!("{other} is compared with {baseline}: {} of records", plural(*pairs, "pair"))];
    for (name, unpaired) in [(baseline, &pairing.only_baseline), (other, &pairing.only_other)] {
        let count = unpaired.cases.len();
        if count > 0 {
            let metrics: Vec<String> = unpaired.by_metric.iter().map(|(metric, n)| format!("{n} {metric}")).collect();
            let records = plural(count, "record");
            lines.push(format!("{records} of {name} without a partner ({}); --json lists them", metrics.join(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_a_model_by_its_short_name() {
        let row = |model: &str| {
            let group = [("model", model), ("needles", "4")].map(|(column, value)| (column.into(), value.into()));
            Row { group: group.into(), ..Row::default() }
        };
        let groups = [Column::Model, Column::Needles];
        let rows = [row("runs/a/diff"), row("runs/a/diff-v2")];
        let of = |rows: &[Row]| groups.map(|column| group_value(&in_short(rows)[0], column).unwrap().to_string());
        assert_eq!(of(&rows), ["diff", "needles=4"]);
        assert_eq!(of(&rows[..1]), ["diff", "needles=4"]);
    }
}
