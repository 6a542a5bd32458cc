//! `curves`: loss, recall and needle accuracy against tokens, from the logs; of several seeds mean and range.

use crate::cli::FigureArgs;
use crate::plot::{self, Curve, CurvePanel, Heading};
use crate::train::{EvalLine, LogLine, Logs, TrainSpec};
use anyhow::{Context, Result};
use std::path::Path;

/// Points (tokens, number) of one run.
type Points = Vec<(f64, f64)>;

/// Draws the runs that have logs.
pub(super) fn curves(spec: &TrainSpec, logs: &Logs, out: &Path, figures: &FigureArgs) -> Result<()> {
    let curves_of = |points: &dyn Fn(&[LogLine], &[EvalLine]) -> Points| -> Vec<Curve> {
        let of = |variant: usize| logs.of(variant).map(|(_, log, evals)| points(log, evals)).collect::<Vec<_>>();
        let all = spec.variants.iter().enumerate().map(|(i, variant)| (&variant.name, of(i)));
        all.filter(|(_, runs)| !runs.is_empty()).map(|(name, runs)| curve(name, runs)).collect()
    };
    let logged =
        |y: fn(&LogLine) -> f64| curves_of(&|log, _| log.iter().map(|line| (line.tokens as f64, y(line))).collect());
    let evaluated = |needles: usize| {
        let wanted = move |line: &&EvalLine| line.needles == needles && line.cities == "train";
        curves_of(&|_, evals| evals.iter().filter(wanted).map(|line| (line.tokens as f64, line.exact)).collect())
    };
    let panel = |title: &str, y_label: &str, y_range, curves| CurvePanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range,
        curves,
    };
    let share = Some((0.0, 1.0));
    let panels = [
        panel("prose and templates", "NLL (nats per token)", None, logged(|line| line.text_nats)),
        panel("first digit of a stated number", "predicted (fraction)", share, logged(|line| line.digit1_hit)),
        panel("unseen prompts, one needle", "exact match (fraction)", share, evaluated(1)),
        panel("unseen prompts, N=2 R=2", "exact match (fraction)", share, evaluated(2)),
    ];
    let stages: Vec<String> = spec.stages.iter().map(|stage| stage.ctx_tok.to_string()).collect();
    let seeds: Vec<String> = spec.seeds().iter().map(u64::to_string).collect();
    let seeds = match seeds.as_slice() {
        [seed] => format!("seed {seed}"),
        seeds => format!("seeds {}: mean and range", seeds.join(", ")),
    };
    let subtitle = format!("contexts of {} tokens in turn · {seeds}", stages.join(", "));
    let heading = Heading { title: "Training", subtitle: &subtitle, page: figures.page.page() };
    let figure = plot::curves(&panels, &heading, "tokens", false)?;
    let recipe = [("command".to_owned(), crate::terminal::arguments().join(" ")), ("seed".to_owned(), seeds)];
    for path in figures.files("curves").iter().map(|file| out.join(file)) {
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        figure.save(&path, &recipe)?;
    }
    Ok(())
}

/// The mean of several runs, as far as all of them have got, with a band from the lowest to the highest; of one run its
/// points.
fn curve(name: &str, runs: Vec<Points>) -> Curve {
    let shortest = runs.iter().map(Vec::len).min().unwrap_or(0);
    let at = |i: usize| runs.iter().map(move |points| points[i].1);
    let x = |i: usize| runs[0][i].0;
    let mean = |i: usize| (x(i), at(i).sum::<f64>() / runs.len() as f64);
    let range = |i: usize| (x(i), at(i).fold(f64::INFINITY, f64::min), at(i).fold(f64::NEG_INFINITY, f64::max));
    let band = if runs.len() > 1 { (0..shortest).map(range).collect() } else { Vec::new() };
    Curve { name: name.to_owned(), points: (0..shortest).map(mean).collect(), band }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_several_seeds_is_their_mean_in_their_range() {
        let one = curve("a", vec![vec![(1.0, 0.2), (2.0, 0.4)]]);
        assert_eq!((one.points, one.band), (vec![(1.0, 0.2), (2.0, 0.4)], vec![]));
        let two = curve("a", vec![vec![(1.0, 0.25), (2.0, 0.5)], vec![(1.0, 0.75)]]);
        assert_eq!((two.points, two.band), (vec![(1.0, 0.5)], vec![(1.0, 0.25, 0.75)]));
    }
}
