//! Figures of several commands: shares of the regions in the output, and metrics over an axis.

use super::session::Session;
use crate::figures::{bars, Bar, BarPanel, BarPart, Bins, Line, LinePanel, PointEstimate};
use crate::measures::PooledMap;
use crate::prompts::Region;
use crate::results::metric::{Kind, Label, Metric, NOISE_OUT, SHARE_OUT};
use crate::results::{setting_name, Frame, Pick, Setting};
use anyhow::Result;

/// Draws the share of each region in the output of the rows that predict the answer, by depth.
pub(super) fn draw_allocation(session: &mut Session, frame: &Frame) -> Result<()> {
    let rows = "rows that predict the answer";
    let subtitle = format!("{rows}, all heads of all layers · {}", session.setup.caption());
    let heading = session.heading("Shares of the regions in the output", &subtitle);
    let panels = attention_panels(frame, session.setup.grid.ctx_tok().len() > 1);
    let figure = bars(&panels, &heading, "depth of the needle (%)", "share of the output (%)")?;
    session.save(&figure, "allocation", &format!("all heads of all layers, mean over the {rows}; share of the output"))
}

/// Stacked regions by depth and model, one panel for each setting; `with_ctx` names the length too.
fn attention_panels(frame: &Frame, with_ctx: bool) -> Vec<BarPanel> {
    let mut panels = Vec::new();
    for &setting in &frame.settings {
        let mut bars = Vec::new();
        for depth in frame.depths_pct() {
            for model in &frame.models {
                bars.extend(bar(frame, setting, model, depth));
            }
        }
        if !bars.is_empty() {
            let (ctx, needles, retrieve) = setting;
            let name = setting_name(needles, retrieve);
            panels.push(BarPanel { title: if with_ctx { format!("{name} · {ctx} tokens") } else { name }, bars });
        }
    }
    panels
}

/// The shares of the regions in the output of a model on the prompts of a setting and depth.
fn bar(frame: &Frame, setting: Setting, model: &str, depth: f64) -> Option<Bar> {
    let (setting, depth_pct) = (Some(setting), Some(depth));
    let mut parts = Vec::new();
    for region in Region::ALL {
        let pick = Pick { region: Some(region.name()), setting, depth_pct, ..Pick::of(model, &SHARE_OUT) };
        if let Some(share) = frame.estimate(pick) {
            let mut share = PointEstimate::scaled(&share, 1.0);
            // More whiskers could not be told apart.
            share.interval = share.interval.filter(|_| region == Region::Answer);
            parts.push(BarPart { region: region.name().to_owned(), share, is_noise: Region::NOISE.contains(&region) });
        }
    }
    let noise = frame.estimate(Pick { setting, depth_pct, ..Pick::of(model, &NOISE_OUT) });
    let noise = noise.map(|noise| PointEstimate::scaled(&noise, 1.0));
    (!parts.is_empty()).then(|| Bar { group: format!("{depth:.0}"), model: frame.short_name(model), parts, noise })
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
