//! The figure `curves`: loss, recall, needle accuracy and measurements inside the layers against tokens; mean and range
//! over seeds.

use crate::cli::FigureArgs;
use crate::figures::{self, Curve, CurvePanel, FigureHeading};
use crate::train::{CurveRow, TrainSpec, TrainingCurves};
use anyhow::{Context, Result};
use std::path::Path;

/// Points (tokens, number) of one run.
type Points = Vec<(f64, f64)>;

/// Draws the curves of the runs that have begun.
pub(super) fn curves(spec: &TrainSpec, curves: &TrainingCurves, out: &Path, figures: &FigureArgs) -> Result<()> {
    let curves_of = |y: fn(&CurveRow) -> Option<f64>| -> Vec<Curve> {
        let points =
            |lines: &[CurveRow]| lines.iter().filter_map(|line| Some((line.tokens as f64, y(line)?))).collect();
        let of = |variant: usize| curves.of(variant).map(|(_, lines)| points(lines)).collect::<Vec<Points>>();
        let all = spec.variants.iter().enumerate().map(|(i, variant)| (&variant.name, of(i)));
        let drawn = all.map(|(name, runs)| (name, runs.into_iter().filter(|run| !run.is_empty()).collect::<Vec<_>>()));
        drawn.filter(|(_, runs)| !runs.is_empty()).map(|(name, runs)| curve(name, runs)).collect()
    };
    let panel = |title: &str, y_label: &str, y_range, curves| CurvePanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range,
        curves,
    };
    let share = Some((0.0, 1.0));
    let panels = [
        panel("prose and templates", "NLL (nats per token)", None, curves_of(|line| Some(line.text_nats))),
        panel("first digit of a stated number", "predicted (fraction)", share, curves_of(|line| Some(line.digit1_hit))),
        panel("unseen prompts, one needle", "exact match (fraction)", share, curves_of(|line| line.one_needle)),
        panel("unseen prompts, N=2 R=2", "exact match (fraction)", share, curves_of(|line| line.two_needles)),
        panel("context before the head norm", "root mean square", None, curves_of(|line| line.context_rms)),
        panel("gradient of queries and keys", "norm", None, curves_of(|line| line.grad_norm_qk)),
        panel("lambda", "mean over heads", None, curves_of(|line| line.lambda)),
    ];
    let panels: Vec<CurvePanel> = panels.into_iter().filter(|panel| !panel.curves.is_empty()).collect();
    let stages: Vec<String> = spec.stages.iter().map(|stage| stage.ctx_tok.to_string()).collect();
    let seeds = seeds(spec, curves);
    let subtitle = format!("contexts of {} tokens in turn · {}", stages.join(", "), in_words(&seeds));
    let heading = FigureHeading { title: "Training", subtitle: &subtitle, page: figures.page.page() };
    let figure = figures::curves(&panels, &heading, "tokens", false)?;
    let recipe = crate::commands::session::recipe(
        &crate::base::terminal::arguments(),
        seeds.join(", "),
        "of several seeds mean and range",
    );
    for path in figures.files("curves").iter().map(|file| out.join(file)) {
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        figure.save(&path, &recipe)?;
    }
    Ok(())
}

/// Returns the seeds of the runs that have begun.
fn seeds(spec: &TrainSpec, curves: &TrainingCurves) -> Vec<String> {
    let begun = spec.seeds().iter().filter(|seed| curves.lines().any(|line| line.seed == **seed));
    begun.map(u64::to_string).collect()
}

/// Formats seeds as `seeds 1, 2: mean and range`.
fn in_words(seeds: &[String]) -> String {
    match seeds {
        [seed] => format!("seed {seed}"),
        seeds => format!("seeds {}: mean and range", seeds.join(", ")),
    }
}

/// Returns the mean of the runs that have got furthest, with a band from the lowest to the highest; for one run, its
/// points.
fn curve(name: &str, runs: Vec<Points>) -> Curve {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    let runs: Vec<Points> = runs.into_iter().filter(|points| points.len() == longest).collect();
    let at = |i: usize| runs.iter().map(move |points| points[i].1);
    let x = |i: usize| runs[0][i].0;
    let mean = |i: usize| (x(i), at(i).sum::<f64>() / runs.len() as f64);
    let range = |i: usize| (x(i), at(i).fold(f64::INFINITY, f64::min), at(i).fold(f64::NEG_INFINITY, f64::max));
    let band = if runs.len() > 1 { (0..longest).map(range).collect() } else { Vec::new() };
    Curve { name: name.to_owned(), points: (0..longest).map(mean).collect(), band }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_several_seeds_is_their_mean_in_their_range() {
        let one = curve("a", vec![vec![(1.0, 0.2), (2.0, 0.4)]]);
        assert_eq!((one.points, one.band), (vec![(1.0, 0.2), (2.0, 0.4)], vec![]));
        let two = curve("a", vec![vec![(1.0, 0.25), (2.0, 0.5)], vec![(1.0, 0.75), (2.0, 1.0)]]);
        assert_eq!(two.points, vec![(1.0, 0.5), (2.0, 0.75)]);
        assert_eq!(two.band, vec![(1.0, 0.25, 0.75), (2.0, 0.5, 1.0)]);
        let begun = curve("a", vec![vec![(1.0, 0.2), (2.0, 0.4)], vec![(1.0, 0.9)]]);
        assert_eq!(begun.points, vec![(1.0, 0.2), (2.0, 0.4)], "a shorter run would make a jump in the mean");
    }
}
