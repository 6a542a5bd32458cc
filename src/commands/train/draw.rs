//! The figure `curves`: loss, recall, needle accuracy and measurements inside the layers against tokens; mean and range
//! over seeds.

use crate::base::files;
use crate::commands::shared::FigureArgs;
use crate::figures::{lines, FigureHeading, Line, LineAxes, LinePanel, PointEstimate};
use crate::train::{CurveRow, TrainSpec, TrainingCurves};
use anyhow::{Context, Result};
use std::path::Path;

/// Points (tokens, number) of one run.
type Points = Vec<(f64, f64)>;

/// Returns a number that is drawn, if the row has it.
type CurveValue = fn(&CurveRow) -> Option<f64>;

/// Draws the curves of the runs that have begun.
pub(super) fn curves(spec: &TrainSpec, curves: &TrainingCurves, out: &Path, figures: &FigureArgs) -> Result<()> {
    let nll = "NLL (nats per token)";
    let fraction = "predicted (fraction)";
    let accuracy = "accuracy (fraction)";
    let share = Some((0.0, 1.0));
    let quantities: [(&str, &str, _, CurveValue); 7] = [
        ("prose and templates", nll, None, |row| Some(row.text_nats)),
        ("first digit of a stated number", fraction, share, |row| Some(row.digit1_hit)),
        ("unseen prompts, one needle", accuracy, share, |row| row.one_needle),
        ("unseen prompts, N=2 R=2", accuracy, share, |row| row.two_needles),
        ("context before the head norm", "root mean square", None, |row| row.context_rms),
        ("gradient of queries and keys", "norm", None, |row| row.grad_norm_qk),
        ("lambda", "mean over heads", None, |row| row.lambda),
    ];
    let mut panels = Vec::new();
    for (title, y_label, y_range, quantity) in quantities {
        let mut lines = Vec::new();
        for (i, variant) in spec.variants.iter().enumerate() {
            let mut runs: Vec<Points> = Vec::new();
            for (_, rows) in curves.of(i) {
                runs.push(rows.iter().filter_map(|row| Some((row.tokens as f64, quantity(row)?))).collect());
            }
            runs.retain(|run| !run.is_empty());
            if !runs.is_empty() {
                lines.push(line(&variant.name, runs));
            }
        }
        if !lines.is_empty() {
            panels.push(LinePanel {
                title: title.to_owned(),
                x_label: "tokens".to_owned(),
                y_label: y_label.to_owned(),
                y_range,
                lines,
            });
        }
    }
    let stages: Vec<String> = spec.stages.iter().map(|stage| stage.ctx_tok.to_string()).collect();
    let seeds = seeds(spec, curves);
    let subtitle = format!("contexts of {} tokens in turn · {}", stages.join(", "), in_words(&seeds));
    let heading = FigureHeading { title: "Training", subtitle: &subtitle, page: figures.page.page() };
    let figure = lines(&panels, LineAxes::Linear, &heading)?;
    let recipe = crate::figures::recipe(
        &crate::base::terminal::arguments(),
        seeds.join(", "),
        "of several seeds mean and range",
    );
    for path in figures.files("curves").iter().map(|file| out.join(file)) {
        if files::is_there(&path) {
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
fn line(name: &str, mut runs: Vec<Points>) -> Line {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    runs.retain(|points| points.len() == longest);
    let mut points = Vec::new();
    for i in 0..longest {
        let values = runs.iter().map(|points| points[i].1);
        let interval = (values.clone().fold(f64::INFINITY, f64::min), values.clone().fold(f64::NEG_INFINITY, f64::max));
        let value = values.sum::<f64>() / runs.len() as f64;
        points.push((runs[0][i].0, PointEstimate { value, interval: (runs.len() > 1).then_some(interval) }));
    }
    Line::new(name.to_owned(), points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_several_seeds_is_their_mean_in_their_range() {
        let estimate = |value: f64, lo: f64, hi: f64| PointEstimate { value, interval: Some((lo, hi)) };
        let one = line("a", vec![vec![(1.0, 0.2), (2.0, 0.4)]]);
        assert_eq!(one.points, [(1.0, 0.2.into()), (2.0, 0.4.into())]);
        let two = line("a", vec![vec![(1.0, 0.25), (2.0, 0.5)], vec![(1.0, 0.75), (2.0, 1.0)]]);
        assert_eq!(two.points, [(1.0, estimate(0.5, 0.25, 0.75)), (2.0, estimate(0.75, 0.5, 1.0))]);
        let begun = line("a", vec![vec![(1.0, 0.2), (2.0, 0.4)], vec![(1.0, 0.9)]]);
        assert_eq!(begun.points, [(1.0, 0.2.into()), (2.0, 0.4.into())], "a shorter run would make a jump in the mean");
    }
}
