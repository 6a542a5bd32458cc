//! `curves`: loss, recall and needle accuracy against tokens, from the logs; of several seeds mean and range.

use crate::cli::FigureArgs;
use crate::plot::{self, Curve, CurvePanel, Heading};
use crate::train::{EvalLine, LogLine, TrainSpec, EVAL_FILE, LOG_FILE};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Points (tokens, number) of one run.
type Points = Vec<(f64, f64)>;

/// Draws the runs that have logs.
pub(super) fn curves(spec: &TrainSpec, out: &Path, figures: &FigureArgs) -> Result<()> {
    let logs = of_variants::<LogLine>(spec, out, LOG_FILE)?;
    let evals = of_variants::<EvalLine>(spec, out, EVAL_FILE)?;
    let logged = |y: fn(&LogLine) -> f64| {
        let points = |lines: &Vec<LogLine>| lines.iter().map(|line| (line.tokens as f64, y(line))).collect();
        logs.iter().map(|(name, runs)| curve(name, runs.iter().map(points).collect())).collect()
    };
    let evaluated = |needles: usize| {
        let wanted = move |line: &&EvalLine| line.needles == needles && line.cities == "train";
        let points = |lines: &Vec<EvalLine>| lines.iter().filter(wanted).map(|l| (l.tokens as f64, l.exact)).collect();
        evals.iter().map(|(name, runs)| curve(name, runs.iter().map(points).collect())).collect()
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

/// The lines of every run of every variant that has some.
fn of_variants<L: DeserializeOwned>(spec: &TrainSpec, out: &Path, file: &str) -> Result<Vec<(String, Vec<Vec<L>>)>> {
    let runs = spec.runs();
    let mut found = Vec::new();
    for (index, variant) in spec.variants.iter().enumerate() {
        let paths = runs.iter().filter(|run| run.variant == index).map(|run| out.join(&run.name).join(file));
        let lines = paths.filter(|path| path.exists()).map(|path| read(&path)).collect::<Result<Vec<Vec<L>>>>()?;
        found.push((variant.name.clone(), lines));
    }
    found.retain(|(_, lines)| !lines.is_empty());
    Ok(found)
}

fn read<L: DeserializeOwned>(path: &Path) -> Result<Vec<L>> {
    let context = || format!("cannot read {}", path.display());
    let reader = csv::Reader::from_path(path).with_context(context)?;
    reader.into_deserialize().collect::<Result<_, _>>().with_context(context)
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
