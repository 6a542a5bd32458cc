//! The forest plot of a comparison.

use super::print::difference;
use super::{group_value, in_short};
use crate::cli::CompareArgs;
use crate::compare::{Comparison, Field, Row};
use crate::hash::sha256_file;
use crate::plot::{distinct, forest, Estimate, ForestPanel, ForestRow, Heading};
use crate::stats::RESAMPLES;
use anyhow::Result;
use std::path::Path;

/// Draws the rows, one panel for each metric and region, and saves them with their recipe.
pub(super) fn draw(comparison: &Comparison, args: &CompareArgs, path: &Path) -> Result<()> {
    let rows = in_short(&comparison.rows);
    let panels: Vec<ForestPanel> =
        rows.chunk_by(|a, b| a.name() == b.name()).map(|rows| panel(rows, &comparison.groups)).collect();
    let baselines = distinct(rows.iter().map(|row| &row.baseline));
    let others = distinct(rows.iter().map(|row| &row.other));
    let title = match others.as_slice() {
        [other] => format!("{other} − {}", baselines.join(", ")),
        _ => format!("Differences from {}", baselines.join(", ")),
    };
    let seed = args.seed;
    let subtitle = match rows.iter().filter_map(|row| row.seeds).max() {
        Some(seeds) => format!("paired differences · means over up to {seeds} training seeds and prompts · whiskers: 95 % intervals over both"),
        None => format!("paired differences · means over prompts · whiskers: 95 % bootstrap intervals · seed {seed}"),
    };
    let x_label = format!("difference from {}", baselines.join(", "));
    forest(&panels, &Heading { title: &title, subtitle: &subtitle, page: args.page.page() }, &x_label)?
        .save(path, &recipe(comparison, args)?)
}

/// Rows of one metric and region, labelled with the groups that tell them apart.
fn panel(rows: &[Row], groups: &[Field]) -> ForestPanel {
    let first = &rows[0];
    let differs =
        |column: &Field| rows.iter().any(|row| row.group.get(column.name()) != first.group.get(column.name()));
    let groups: Vec<Field> = groups.iter().copied().filter(differs).collect();
    ForestPanel {
        title: first.name(),
        unit: first.unit.clone().unwrap_or_default(),
        rows: rows.iter().map(|row| forest_row(row, &groups)).collect(),
    }
}

fn forest_row(row: &Row, groups: &[Field]) -> ForestRow {
    // The mean of resampled means may lie a rounding error outside when all differences are equal.
    let interval = row.lo.zip(row.hi).map(|(lo, hi)| (lo.min(row.diff), hi.max(row.diff)));
    let values: Vec<String> = groups.iter().filter_map(|column| group_value(row, *column)).collect();
    ForestRow {
        label: if values.is_empty() { row.other.clone() } else { values.join(" · ") },
        series: row.other.clone(),
        difference: Estimate { value: row.diff, interval },
        text: difference(row).replace('-', "−"),
    }
}

/// What was run to get the figure.
fn recipe(comparison: &Comparison, args: &CompareArgs) -> Result<Vec<(String, String)>> {
    let pooling = format!("means over prompts; bootstrap of {RESAMPLES} resamples");
    let mut recipe = crate::cmd::session::recipe(args.seed, &pooling);
    for (place, (input, _)) in comparison.inputs.iter().enumerate() {
        let hash = sha256_file(&input.results)?;
        recipe.push((format!("input {}", place + 1), format!("{} sha256 {hash}", input.name)));
    }
    Ok(recipe)
}
