//! The figures of `difftool ablate`: what conditions change, and what is left with fewer heads.

use crate::base::names::distinct;
use crate::commands::session::{RunResults, Session};
use crate::figures::{
    forest, head_grid, quality, Figure, FigureHeading, ForestPanel, ForestRow, HeadGrid, HeadScale, PointEstimate,
    QualityLine, QualityPanel,
};
use crate::results::metric::{Label, ANSWER_LOG_PROB, EXACT};
use crate::results::table::short;
use crate::results::view::ablate::{self as view, condition_changes, heads_out_changes, Change, HeadsOut};
use crate::results::view::each_head::costs;
use crate::results::{setting_name, Difference, Frame, Setting};
use anyhow::Result;
use std::collections::BTreeSet;

const POOLING: &str = "mean over prompts, paired with the untreated passes, 95 % intervals";

const EACH_POOLING: &str = "mean over prompts, paired with the untreated passes";

/// Draws a figure of the conditions and one of the heads, as far as there are any.
pub(in crate::commands) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let (changes, heads_out) = (condition_changes(&found.frame), heads_out_changes(&found.frame));
    if let Some(figure) = each_head(session, found)? {
        session.save(&figure, "each-head", EACH_POOLING)?;
    }
    let several = found.frame.settings().len() > 1;
    for (i, &setting) in found.frame.settings().iter().enumerate() {
        let number = if i == 0 { String::new() } else { format!("-{}", i + 1) };
        let asked = if several { setting_name(setting.1, setting.2) + " · " } else { String::new() };
        let subtitle = format!("{asked}{}", session.setup.caption_of(&[setting.0]));
        if let Some(figure) =
            conditions(&found.frame, &changes, setting, session.heading("Cost of conditions", &subtitle))?
        {
            session.save(&figure, &format!("conditions{number}"), POOLING)?;
        }
        if let Some(figure) = heads(&found.frame, &heads_out, setting, session, &subtitle)? {
            session.save(&figure, &format!("heads-out{number}"), POOLING)?;
        }
    }
    Ok(())
}

/// The cost of each head as a map of layers and heads.
fn each_head(session: &Session, found: &RunResults) -> Result<Option<Figure>> {
    let grid = |model: &String| {
        let costs = costs(&found.frame, model);
        (!costs.is_empty()).then(|| {
            HeadGrid::of(&found.frame.short_name(model), costs.iter().map(|cost| (cost.at, Some(cost.change()))))
        })
    };
    let grids: Vec<HeadGrid> = found.frame.models().iter().filter_map(grid).collect();
    if grids.is_empty() {
        return Ok(None);
    }
    let label = format!("change of {} (nats)", Label::of(&ANSWER_LOG_PROB, None).text);
    let scale = HeadScale { label: &label, end: None };
    let title =
        if view::each_head(&found.frame).restores { "Answer carried by each head" } else { "Cost of each head" };
    head_grid(&grids, &session.heading(title, &session.setup.caption()), &scale).map(Some)
}

/// Differences of every condition and model, those of one condition next to each other.
fn conditions(
    frame: &Frame,
    changes: &[Change],
    setting: Setting,
    heading: FigureHeading<'_>,
) -> Result<Option<Figure>> {
    let of_setting: Vec<&Change> = changes.iter().filter(|change| change.setting == setting).collect();
    let names = distinct(of_setting.iter().map(|effect| &effect.condition));
    if names.is_empty() {
        return Ok(None);
    }
    let rows = |delta: fn(&Change) -> &Difference, factor: f64| -> Vec<ForestRow> {
        let of_name = |name: &String| of_setting.iter().filter(|effect| effect.condition == *name).collect::<Vec<_>>();
        let row = |(i, effect): (usize, &&&Change)| {
            let difference = PointEstimate::of_difference(delta(effect), factor);
            ForestRow {
                label: if i == 0 { effect.condition.clone() } else { String::new() },
                series: frame.short_name(&effect.model),
                text: short(Some(difference.value)),
                difference,
            }
        };
        names.iter().flat_map(|name| of_name(name).iter().enumerate().map(row).collect::<Vec<_>>()).collect()
    };
    let panel = |title: &str, unit: &str, rows| ForestPanel { title: title.to_owned(), unit: unit.to_owned(), rows };
    let panels = [
        panel(&Label::of(&ANSWER_LOG_PROB, None).text, "nats", rows(|change| &change.log_prob_nats, 1.0)),
        panel(&Label::of(&EXACT, None).text, "points", rows(|change| &change.exact, 100.0)),
    ];
    forest(&panels, &heading, "difference from the untreated passes").map(Some)
}

/// Accuracy and log-probability by the number of heads that are out.
fn heads(
    frame: &Frame,
    heads_out: &[HeadsOut],
    setting: Setting,
    session: &Session,
    subtitle: &str,
) -> Result<Option<Figure>> {
    let mut of_setting: Vec<&HeadsOut> = heads_out.iter().filter(|out| out.best.setting == setting).collect();
    let Some(&first) = of_setting.first() else { return Ok(None) };
    // Another ranking is another figure's; the tables have all.
    of_setting.retain(|out| out.by == first.by);
    let counts: BTreeSet<usize> = of_setting.iter().map(|out| out.n).collect();
    let models = distinct(of_setting.iter().map(|out| &out.best.model));
    let line = |model: &str, best: bool, delta: fn(&Change) -> PointEstimate| {
        let at = |n: &usize| {
            let out = of_setting.iter().find(|out| out.best.model == model && out.n == *n)?;
            if best { Some(&out.best) } else { out.random.as_ref() }.map(delta)
        };
        let name = format!("{}, {}", frame.short_name(model), if best { "best" } else { "random" });
        QualityLine { model: name, estimates: counts.iter().map(at).collect() }
    };
    let panel = |title: &str, y_label: &str, delta: fn(&Change) -> PointEstimate| QualityPanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range: None,
        lines: models.iter().flat_map(|model| [line(model, true, delta), line(model, false, delta)]).collect(),
    };
    let panels = [
        panel(&Label::of(&ANSWER_LOG_PROB, None).text, "change in nats", |change| {
            PointEstimate::of_difference(&change.log_prob_nats, 1.0)
        }),
        panel(&Label::of(&EXACT, None).text, "change in points", |change| {
            PointEstimate::of_difference(&change.exact, 100.0)
        }),
    ];
    let categories: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let title = format!("Without the best heads by {}, and without others of the same layers", first.by);
    quality(&panels, &categories, &session.heading(&title, subtitle), "heads out").map(Some)
}
