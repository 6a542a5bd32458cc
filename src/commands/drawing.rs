//! Figures of several commands: shares of the regions in the output, and metrics over an axis.

use crate::base::values::tokens_name;
use crate::figures::{lines, region_name, Bins, Line, LineAxes, LinePanel, PointEstimate};
use crate::measures::PooledMap;
use crate::prompts::Region;
use crate::results::metric::{Kind, Label, Metric, SHARE_OUT};
use crate::results::{Frame, Pick};
use crate::run::Run;
use anyhow::Result;

/// Draws the share of each region in the output of the rows that predict the answer, with a panel for each setting.
pub(super) fn draw_regions(run: &Run, frame: &Frame) -> Result<()> {
    let mut regions = Region::ALL.to_vec();
    regions.retain(|region| {
        let picks =
            frame.models.iter().map(|model| Pick { region: Some(region.name()), ..Pick::of(model, &SHARE_OUT) });
        picks.filter_map(|pick| frame.mean(pick)).any(|share| share != 0.0)
    });
    let places: Vec<f64> = (0..regions.len()).map(|i| i as f64).collect();
    let mut panels = Vec::new();
    for setting in &frame.settings {
        let panel = metric_panel(frame, (&SHARE_OUT, None), ("region of the prompt", &places), |pick, i| Pick {
            region: Some(regions[i].name()),
            setting: Some(*setting),
            ..pick
        });
        let title = format!("{} · {} tokens", setting.name(), tokens_name(setting.ctx_tok));
        panels.push(LinePanel { title, y_label: "share of the output (%)".to_owned(), ..panel });
    }
    let labels: Vec<String> = regions.iter().map(|region| region_name(region.name()).to_owned()).collect();
    let rows = "rows that predict the answer";
    let subtitle = format!("{rows}, all heads of all layers · {}", run.setup.caption());
    let heading = run.heading("Shares of the regions in the output", &subtitle);
    let figure = lines(&panels, LineAxes::Categories(&labels), &heading)?;
    run.save_figure(&figure, "regions", &format!("all heads of all layers, mean over the {rows}; share of the output"))
}

/// The bins of a map to draw.
pub(super) fn bins(map: &PooledMap) -> Bins {
    Bins { rows: map.rows, columns: map.columns, values: map.values.clone(), sink: map.sinks.clone() }
}

/// A metric with a line for each model that has it. `narrow` picks its numbers at the place of an index on the x axis.
pub(super) fn metric_panel<'a>(
    frame: &'a Frame,
    (metric, region): (&'static Metric, Option<&'static str>),
    (x_label, places): (&str, &[f64]),
    narrow: impl Fn(Pick<'a>, usize) -> Pick<'a>,
) -> LinePanel {
    let mut lines = Vec::new();
    for model in &frame.models {
        let mut points = Vec::new();
        for (i, &x) in places.iter().enumerate() {
            let estimate = frame.estimate(narrow(Pick { region, ..Pick::of(model, metric) }, i));
            points.extend(estimate.map(|estimate| (x, PointEstimate::scaled(&estimate, metric.kind.factor()))));
        }
        if !points.is_empty() {
            lines.push(Line::new(frame.short_name(model), points));
        }
    }
    let label = Label::of(metric, region);
    LinePanel {
        title: label.text.clone(),
        x_label: x_label.to_owned(),
        y_label: label.heading(),
        y_range: (metric.kind == Kind::Hit).then_some((0.0, 100.0)),
        lines,
    }
}
