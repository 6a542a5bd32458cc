//! The figure `curves`: loss, recall, needle accuracy and measurements inside the layers against tokens; mean and range
//! over seeds.

use crate::commands::shared::FigureArgs;
use crate::train::metrics::{
    CONTEXT_RMS, FIRST_DIGITS, GRAD_NORM_QK, HELDOUT_NLL, LAMBDA, MOST_NEEDLES, ONE_NEEDLE, TEXT_NLL, TWO_NEEDLES,
};
use crate::train::{CurvePoint, Stage, Study};
use anyhow::{Context, Result};
use base::files;
use names::metric::Metric;
use names::values::tokens_name;
use names::{Column, Value};
use plot::{lines, FigureHeading, Line, LineAxes, LinePanel, PointEstimate};
use std::path::Path;

/// The panels: a metric, the title, and the label of the y axis.
const PANELS: [(&Metric, &str, &str); 9] = [
    (&TEXT_NLL, "prose and templates", "NLL (nats per token)"),
    (&FIRST_DIGITS, "first digit of a stated number", "predicted (fraction)"),
    (&ONE_NEEDLE, "unseen prompts, one needle", "accuracy (fraction)"),
    (&TWO_NEEDLES, "unseen prompts, N=2 R=2", "accuracy (fraction)"),
    (&MOST_NEEDLES, "unseen prompts, the most needles", "accuracy (fraction)"),
    (&HELDOUT_NLL, "held-out documents", "NLL (nats per token)"),
    (&CONTEXT_RMS, "context before the head norm", "root mean square"),
    (&GRAD_NORM_QK, "gradient of queries and keys", "norm"),
    (&LAMBDA, "lambda", "mean over heads"),
];

/// Draws the curves of the runs that have begun.
pub(super) fn curves(study: &Study, out: &Path, figures: &FigureArgs) -> Result<()> {
    let spec = &study.spec;
    let mut panels = Vec::new();
    for (metric, title, y_label) in PANELS {
        let mut lines = Vec::new();
        for (i, variant) in spec.variants.iter().enumerate() {
            let runs: Vec<_> = study.curves(i, metric).into_values().collect();
            if !runs.is_empty() {
                lines.push(line(&variant.name, runs));
            }
        }
        if !lines.is_empty() {
            panels.push(LinePanel {
                title: title.to_owned(),
                x_label: "tokens".to_owned(),
                y_label: y_label.to_owned(),
                y_range: metric.kind.most().map(|most| (0.0, most)),
                marks: contexts(&spec.stages),
                lines,
            });
        }
    }
    let seeds = seeds(study);
    let subtitle = format!("ctx: length of the texts from here on · {}", in_words(&seeds));
    let heading =
        FigureHeading { title: "Training", subtitle: &subtitle, page: figures.page.page(), ..FigureHeading::default() };
    let figure = lines(&panels, LineAxes::Linear, &heading)?;
    let recipe = plot::recipe(&base::terminal::arguments(), seeds.join(", "), "of several seeds mean and range");
    for path in figures.files("curves").iter().map(|file| out.join(file)) {
        if files::is_there(&path) {
            std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        figure.save(&path, &recipe)?;
    }
    Ok(())
}

/// Where stages begin whose contexts are others than before, in tokens, and these contexts.
fn contexts(stages: &[Stage]) -> Vec<(f64, String)> {
    let mut begins = 0;
    let mut contexts: Vec<(f64, String)> = Vec::new();
    for stage in stages {
        let name = format!("ctx {}", tokens_name(stage.ctx_tok));
        if contexts.last().is_none_or(|(_, before)| *before != name) {
            contexts.push((begins as f64, name));
        }
        begins += stage.tokens;
    }
    contexts
}

/// The seeds of the runs that have begun.
fn seeds(study: &Study) -> Vec<String> {
    let begun = study.records.values(Column::Replicate);
    study.spec.seeds().iter().filter(|&&seed| begun.contains(&Value::Int(seed))).map(u64::to_string).collect()
}

/// Formats seeds as `seeds 1, 2: mean and range`.
fn in_words(seeds: &[String]) -> String {
    match seeds {
        [seed] => format!("seed {seed}"),
        seeds => format!("seeds {}: mean and range", seeds.join(", ")),
    }
}

/// The mean of the runs that have got furthest, with a band from the lowest to the highest; for one run, its
/// points.
fn line(name: &str, mut runs: Vec<Vec<CurvePoint>>) -> Line {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    runs.retain(|points| points.len() == longest);
    let mut points = Vec::new();
    for i in 0..longest {
        let values = runs.iter().map(|points| points[i].value);
        let range = (values.clone().fold(f64::INFINITY, f64::min), values.clone().fold(f64::NEG_INFINITY, f64::max));
        let interval = (runs.len() > 1).then_some(range);
        let mean = PointEstimate { value: values.sum::<f64>() / runs.len() as f64, interval };
        points.push((runs[0][i].tokens as f64, mean));
    }
    Line::new(name.to_owned(), points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::DocumentSpec;

    #[test]
    fn contexts_are_marked_where_they_change() {
        let data = DocumentSpec::default;
        let stage = |ctx_tok, tokens| Stage { ctx_tok, tokens, step_tok: ctx_tok, cycle_rate: None, data: data() };
        let marks = contexts(&[stage(512, 10), stage(512, 20), stage(4096, 30)]);
        assert_eq!(marks, [(0.0, "ctx 512".into()), (30.0, "ctx 4k".into())]);
    }

    #[test]
    fn a_line_of_several_seeds_is_their_mean_in_their_range() {
        let estimate = |value: f64, lo: f64, hi: f64| PointEstimate { value, interval: Some((lo, hi)) };
        let run = |values: &[f64]| -> Vec<CurvePoint> {
            let points = values.iter().zip(1..);
            points.map(|(&value, tokens)| CurvePoint { tokens, ctx_tok: 128, value }).collect()
        };
        let one = line("a", vec![run(&[0.2, 0.4])]);
        assert_eq!(one.points, [(1.0, 0.2.into()), (2.0, 0.4.into())]);
        let two = line("a", vec![run(&[0.25, 0.5]), run(&[0.75, 1.0])]);
        assert_eq!(two.points, [(1.0, estimate(0.5, 0.25, 0.75)), (2.0, estimate(0.75, 0.5, 1.0))]);
        let begun = line("a", vec![run(&[0.2, 0.4]), run(&[0.9])]);
        assert_eq!(begun.points, [(1.0, 0.2.into()), (2.0, 0.4.into())], "a shorter run would make a jump in the mean");
    }
}
