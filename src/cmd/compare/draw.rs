//! The forest plot of a comparison.

use super::in_short;
use crate::cli::CompareArgs;
use crate::hash::sha256_file;
use crate::names::distinct;
use crate::plot::{forest, panels_of, FigureHeading};
use crate::results::compare::Comparison;
use anyhow::Result;
use std::path::Path;

/// Draws the rows, one panel for each metric and region, and saves them with their recipe.
pub(super) fn draw(comparison: &Comparison, args: &CompareArgs, path: &Path) -> Result<()> {
    let rows = in_short(&comparison.rows);
    let panels = panels_of(&rows, &comparison.groups);
    let baselines = distinct(rows.iter().map(|row| &row.baseline));
    let others = distinct(rows.iter().map(|row| &row.other));
    let title = match others.as_slice() {
        [other] => format!("{other} − {}", baselines.join(", ")),
        _ => format!("Differences from {}", baselines.join(", ")),
    };
    let subtitle = match rows.iter().filter_map(|row| row.difference.seeds).max() {
        Some(seeds) => format!("paired differences · means over up to {seeds} training seeds and prompts · whiskers: 95 % intervals over both"),
        None => "paired differences · means over prompts · whiskers: 95 % intervals".to_owned(),
    };
    let x_label = format!("difference from {}", baselines.join(", "));
    forest(&panels, &FigureHeading { title: &title, subtitle: &subtitle, page: args.page.page() }, &x_label)?
        .save(path, &recipe(comparison)?)
}

/// The command that draws the figure.
fn recipe(comparison: &Comparison) -> Result<Vec<(String, String)>> {
    let mut recipe = crate::cmd::session::recipe(&crate::terminal::arguments(), "none", "means over prompts");
    for (place, (input, _)) in comparison.inputs.iter().enumerate() {
        let hash = sha256_file(&input.results)?;
        recipe.push((format!("input {}", place + 1), format!("{} sha256 {hash}", input.name)));
    }
    Ok(recipe)
}
