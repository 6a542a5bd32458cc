//! The figures of `difftool ablate`: what conditions change, and what is left with fewer heads.

use crate::base::names::distinct;
use crate::figures::{
    cells, forest, lines, CellGrid, CellScale, Figure, FigureHeading, ForestPanel, ForestRow, Line, LineAxes,
    LinePanel, PointEstimate,
};
use crate::results::metric::{Label, Metric, ACCURACY, ANSWER_LOG_PROB};
use crate::results::table::short;
use crate::results::view::ablate::{condition_changes, heads_out_changes, recovered, Change, HeadsOut};
use crate::results::view::each_head::costs;
use crate::results::{Frame, Setting};
use crate::run::Run;
use anyhow::Result;
use std::collections::BTreeSet;

const POOLING: &str = "mean over prompts, paired with the untreated passes, 95 % intervals";

const RECOVERY_POOLING: &str =
    "ratio of means over prompts: (treated - corrupted) / (clean - corrupted), 95 % intervals of the ratio";

const EACH_POOLING: &str = "mean over prompts, paired with the untreated passes";

/// Draws a figure of the conditions and one of the heads, as far as there are any.
pub(in crate::commands) fn draw(run: &Run) -> Result<()> {
    let (changes, heads_out) = (condition_changes(&run.frame), heads_out_changes(&run.frame));
    if let Some(figure) = each_head(run)? {
        run.save_figure(&figure, "each-head", EACH_POOLING)?;
    }
    let several = run.frame.settings.len() > 1;
    for (i, &setting) in run.frame.settings.iter().enumerate() {
        let number = if i == 0 { String::new() } else { format!("-{}", i + 1) };
        let asked = if several { setting.name() + " · " } else { String::new() };
        let subtitle = format!("{asked}{}", run.setup.caption_of(&[setting.ctx_tok]));
        let paired = format!("paired differences, whiskers: 95 % intervals · {subtitle}");
        if let Some(figure) = conditions(&run.frame, &changes, setting, run.heading("Cost of conditions", &paired))? {
            run.save_figure(&figure, &format!("conditions{number}"), POOLING)?;
        }
        let subtitle_of_patches = format!("0 as in the corrupted prompt, 1 as in the clean one · {subtitle}");
        let heading = run.heading("Share of the answer's log-probability that is recovered", &subtitle_of_patches);
        if let Some(figure) = recovery(&run.frame, &changes, setting, heading)? {
            run.save_figure(&figure, &format!("recovery{number}"), RECOVERY_POOLING)?;
        }
        if let Some(figure) = heads(&run.frame, &heads_out, setting, run, &subtitle)? {
            run.save_figure(&figure, &format!("heads-out{number}"), POOLING)?;
        }
    }
    Ok(())
}

/// The cost of each head as a map of layers and heads.
fn each_head(run: &Run) -> Result<Option<Figure>> {
    let mut grids = Vec::new();
    for model in &run.frame.models {
        let costs = costs(&run.frame, model);
        if !costs.is_empty() {
            let changes = costs.iter().map(|cost| (cost.at, Some(cost.change())));
            grids.push(CellGrid::of_heads(run.frame.short_name(model), changes));
        }
    }
    if grids.is_empty() {
        return Ok(None);
    }
    let label = format!("change of {} (nats)", Label::of(&ANSWER_LOG_PROB, None).text);
    let scale = CellScale::of_heads(&label);
    let title = if run.frame.conditions.restores() { "Answer carried by each head" } else { "Cost of each head" };
    cells(&[grids], &run.heading(title, &run.setup.caption()), &scale).map(Some)
}

/// Differences of every condition and model that patches nothing, those of one condition next to each other.
fn conditions(
    frame: &Frame,
    changes: &[Change],
    setting: Setting,
    heading: FigureHeading<'_>,
) -> Result<Option<Figure>> {
    let of_setting = of_setting(frame, changes, setting, false);
    if of_setting.is_empty() {
        return Ok(None);
    }
    let quantities: [(&Metric, &str, ChangeOf); 2] = [
        (&ANSWER_LOG_PROB, "nats", |change| PointEstimate::scaled_difference(&change.log_prob_nats, 1.0)),
        (&ACCURACY, "points", |change| PointEstimate::scaled_difference(&change.exact, 100.0)),
    ];
    let mut panels = Vec::new();
    for (metric, unit, change_of) in quantities {
        let rows = rows(frame, &of_setting, |change| Some(change_of(change)));
        panels.push(ForestPanel { title: Label::of(metric, None).text, unit: unit.to_owned(), rows });
    }
    forest(&panels, &heading, "difference from the untreated passes").map(Some)
}

/// Where the patched passes of every condition and model lie between the corrupted and the clean prompt.
fn recovery(frame: &Frame, changes: &[Change], setting: Setting, heading: FigureHeading<'_>) -> Result<Option<Figure>> {
    let rows = rows(frame, &of_setting(frame, changes, setting, true), |change| {
        let (value, interval) = recovered(frame, change)?;
        Some(PointEstimate { value, interval: interval.map(|interval| (interval.lo, interval.hi)) })
    });
    if rows.is_empty() {
        return Ok(None);
    }
    let panel = ForestPanel { title: Label::of(&ANSWER_LOG_PROB, None).text, unit: String::new(), rows };
    forest(&[panel], &heading, "share recovered").map(Some)
}

/// The changes of a setting that patch outputs, or those that do not.
fn of_setting<'a>(frame: &Frame, changes: &'a [Change<'a>], setting: Setting, patching: bool) -> Vec<&'a Change<'a>> {
    let of_setting = changes.iter().filter(|change| change.setting == setting);
    of_setting.filter(|change| frame.conditions.recovers(change.condition) == patching).collect()
}

/// A row for each change that has an estimate; the models of one condition next to each other.
fn rows(frame: &Frame, changes: &[&Change], estimate: impl Fn(&Change) -> Option<PointEstimate>) -> Vec<ForestRow> {
    let mut rows = Vec::new();
    for name in distinct(changes.iter().map(|change| &change.condition.name)) {
        for change in changes.iter().filter(|change| change.condition.name == name) {
            let Some(difference) = estimate(change) else { continue };
            rows.push(ForestRow {
                label: change.condition.words.clone(),
                series: frame.short_name(change.model),
                text: short(Some(difference.value)).replace('-', "−"),
                difference,
            });
        }
    }
    rows
}

/// Returns the change of one metric.
type ChangeOf = fn(&Change) -> PointEstimate;

/// Accuracy and log-probability by the number of heads that are out.
fn heads(frame: &Frame, heads_out: &[HeadsOut], setting: Setting, run: &Run, subtitle: &str) -> Result<Option<Figure>> {
    let mut of_setting: Vec<&HeadsOut> = heads_out.iter().filter(|out| out.best.setting == setting).collect();
    let Some(&first) = of_setting.first() else { return Ok(None) };
    // Another ranking is another figure's; the tables have all.
    of_setting.retain(|out| out.by == first.by);
    let counts: BTreeSet<usize> = of_setting.iter().map(|out| out.n).collect();
    let models = distinct(of_setting.iter().map(|out| out.best.model));
    let quantities: [(&Metric, &str, ChangeOf); 2] = [
        (&ANSWER_LOG_PROB, "change in nats", |change| PointEstimate::scaled_difference(&change.log_prob_nats, 1.0)),
        (&ACCURACY, "change in points", |change| PointEstimate::scaled_difference(&change.exact, 100.0)),
    ];
    let mut panels = Vec::new();
    for (metric, y_label, quantity) in quantities {
        let mut lines = Vec::new();
        for model in &models {
            let (mut best, mut random) = (Vec::new(), Vec::new());
            for (i, n) in counts.iter().enumerate() {
                if let Some(out) = of_setting.iter().find(|out| out.best.model == *model && out.n == *n) {
                    best.push((i as f64, quantity(&out.best)));
                    random.extend(out.random.as_ref().map(|change| (i as f64, quantity(change))));
                }
            }
            let name = frame.short_name(model);
            lines.extend([Line::new(format!("{name}, best"), best), Line::new(format!("{name}, random"), random)]);
        }
        panels.push(LinePanel {
            title: Label::of(metric, None).text,
            x_label: "heads out".to_owned(),
            y_label: y_label.to_owned(),
            y_range: None,
            lines,
        });
    }
    let labels: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let title = format!("Without the best heads by {}, and without others of the same layers", first.by);
    lines(&panels, LineAxes::Categories(&labels), &run.heading(&title, subtitle)).map(Some)
}
