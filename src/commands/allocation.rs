//! The figure of the regions' shares in the output, which several commands draw.

use super::session::Session;
use crate::figures::{allocation, AllocationPanel, Bar, BarPart, PointEstimate};
use crate::prompts::Region;
use crate::results::metric::{NOISE_OUT, SHARE_OUT};
use crate::results::{setting_name, Frame, Pick, Setting};
use anyhow::Result;

/// Draws the share of each region in the output of the rows that predict the answer, by depth.
pub(super) fn draw_allocation(session: &mut Session, frame: &Frame) -> Result<()> {
    let rows = "rows that predict the answer";
    let subtitle = format!("{rows}, all heads of all layers · {}", session.setup.caption());
    let heading = session.heading("Shares of the regions in the output", &subtitle);
    let panels = attention_panels(frame, session.setup.grid.ctx_tok().len() > 1);
    let figure = allocation(&panels, &heading, "share of the output (%)")?;
    session.save(&figure, "allocation", &format!("all heads of all layers, mean over the {rows}; share of the output"))
}

/// Stacked regions by depth and model, one panel for each setting; `with_ctx` names the length too.
fn attention_panels(frame: &Frame, with_ctx: bool) -> Vec<AllocationPanel> {
    let estimate = |pick: Pick<'_>| Some(PointEstimate::of(&frame.estimate(pick)?, 1.0));
    let bar = |setting: Setting, model: &String, depth: f64| {
        let pick = |metric| Pick::of(model, metric).setting(setting).depth_pct(depth);
        let part = |region: Region| {
            let share = estimate(pick(SHARE_OUT.name).region(region.name()))?;
            // More whiskers could not be told apart.
            let interval = share.interval.filter(|_| region == Region::Answer);
            let share = PointEstimate { interval, ..share };
            Some(BarPart { region: region.name().to_owned(), share, is_noise: Region::NOISE.contains(&region) })
        };
        let parts: Vec<BarPart> = Region::ALL.into_iter().filter_map(part).collect();
        let (group, noise) = (format!("{depth:.0}"), estimate(pick(NOISE_OUT.name)));
        let bar = Bar { group, model: frame.short_name(model), parts, noise };
        (!bar.parts.is_empty()).then_some(bar)
    };
    let panel = |&setting: &Setting| {
        let (ctx, needles, retrieve) = setting;
        let name = setting_name(needles, retrieve);
        let depths = frame.depths_pct().into_iter();
        let of_depth = |depth| frame.models().iter().filter_map(move |model| bar(setting, model, depth));
        let bars: Vec<Bar> = depths.flat_map(of_depth).collect();
        AllocationPanel { setting: if with_ctx { format!("{name} · {ctx} tokens") } else { name }, bars }
    };
    frame.settings().iter().map(panel).filter(|panel| !panel.bars.is_empty()).collect()
}
