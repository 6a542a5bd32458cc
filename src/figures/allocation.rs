//! Shares by region as stacked bars, models side by side, after Figure 1 of the Differential Transformer paper.
//! Negative shares are stacked below zero.

use super::axis::Axis;
use super::colour::{self, AXIS, FAINT_INK, GRID, INK, PAPER};
use super::figure::{Area, Figure, FigureHeading};
use super::quality::PointEstimate;
use super::text::{Anchor, TextFormat, AXIS_LABEL, TICK};
use crate::base::names::distinct;
use anyhow::{ensure, Result};

/// The bars of one setting.
#[derive(Clone, Debug)]
pub struct AllocationPanel {
    /// Needles in the text and needles asked for, for example `N=4 R=2`.
    pub setting: String,
    /// One bar for each depth and model; bars of one depth are side by side, in the order of the models' first
    /// occurrence.
    pub bars: Vec<Bar>,
}

/// One stacked bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label below the bars of all models, for example the depth.
    pub group: String,
    /// The model.
    pub model: String,
    /// The parts, from the bottom; negative ones are stacked downwards from zero.
    pub parts: Vec<BarPart>,
    /// The total share of noise.
    pub noise: Option<PointEstimate>,
}

/// The share of one region in a bar.
#[derive(Clone, Debug)]
pub struct BarPart {
    /// Name of the region.
    pub region: String,
    /// The share as a fraction of the whole. Its interval is drawn as a whisker at the end of the part.
    pub share: PointEstimate,
    /// Whether the part is noise, which the bracket beside the bar spans.
    pub is_noise: bool,
}

const LEFT: f64 = 142.0;
/// Room for the legend.
const RIGHT: f64 = 226.0;
const TITLE_HEIGHT: f64 = 42.0;
const PANEL_HEIGHT: f64 = 220.0;
/// Names of models and groups below a panel.
const BELOW: f64 = 66.0;
/// The label below the last panel.
const LAST: f64 = 56.0;
/// Gap between groups, as a fraction of the width of a group.
const BETWEEN_GROUPS: f64 = 0.1;
/// Room right of a bar for the bracket with its number, and without.
const BRACKET: (f64, f64) = (46.0, 14.0);
/// Least width of a bar beside a bracket with its number.
const BAR_MIN_WIDTH: f64 = 30.0;
/// Gap between parts.
const SEAM: f64 = 1.0;
/// Largest share that is less than a pixel.
const INVISIBLE: f64 = 0.002;
const NUMBER: TextFormat = TextFormat::new(18.0, Anchor::Middle);
const MODEL: TextFormat = TextFormat::new(17.0, Anchor::Middle);
const NOTE: TextFormat = TextFormat::new(17.0, Anchor::Left).in_colour(FAINT_INK);

/// Draws the panels, settings one below the other. `label` names the quantity, for example `share of |attention| (%)`.
/// Shares are fractions and are drawn in percent.
///
/// # Errors
/// If there is nothing to draw.
pub fn allocation(panels: &[AllocationPanel], heading: &FigureHeading, label: &str) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no shares to draw");
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let models = distinct(bars().map(|bar| &bar.model));
    let axis = share_axis(panels);
    let row_height = TITLE_HEIGHT + PANEL_HEIGHT + BELOW;
    let content = heading.page.room() - LEFT - RIGHT;
    let body = row_height * panels.len() as f64 + LAST;
    let names = ModelNames::new(panels, &models, content);
    let (mut figure, top) = Figure::headed(heading, LEFT + content + RIGHT, body)?;
    let mut y = top;
    for panel in panels {
        let area = Area { x: LEFT, y: y + TITLE_HEIGHT, width: content, height: PANEL_HEIGHT };
        figure.panel_title((area.x, area.y - 24.0), &panel.setting, "", area.width);
        draw_share_axis(&mut figure, area, &axis, label);
        draw_panel(&mut figure, panel, area, &axis, &names);
        y += row_height;
    }
    figure.text((LEFT + content / 2.0, y + 14.0), "depth of the needle (%)", AXIS_LABEL);
    draw_legend(&mut figure, (LEFT + content + 44.0, top + TITLE_HEIGHT), panels, &names);
    Ok(figure)
}

/// Returns the distance between depths, and between the bars of a depth.
fn pitches(panel: &AllocationPanel, width: f64, models: usize) -> (f64, f64) {
    let groups = distinct(panel.bars.iter().map(|bar| &bar.group));
    let slot = width / groups.len() as f64;
    (slot, slot * (1.0 - BETWEEN_GROUPS) / models as f64)
}

/// The model names, and whether they are replaced by numbers under the bars, because one of them does not fit there.
struct ModelNames<'a> {
    models: &'a [String],
    numbered: bool,
}

impl<'a> ModelNames<'a> {
    fn new(panels: &[AllocationPanel], models: &'a [String], width: f64) -> Self {
        let room = panels.iter().map(|panel| pitches(panel, width, models.len()).1).fold(f64::INFINITY, f64::min);
        Self { models, numbered: models.iter().any(|model| MODEL.width(model) > room - 4.0) }
    }

    fn place(&self, model: &String) -> usize {
        self.models.iter().position(|other| other == model).unwrap_or(0)
    }

    /// Returns the label under a bar.
    fn under(&self, model: &String) -> String {
        if self.numbered {
            (self.place(model) + 1).to_string()
        } else {
            model.clone()
        }
    }

    /// Returns the lines of the legend that explain the numbers.
    fn legend(&self) -> Vec<String> {
        let line = |(i, model): (usize, &String)| format!("{} {model}", i + 1);
        if self.numbered {
            self.models.iter().enumerate().map(line).collect()
        } else {
            Vec::new()
        }
    }
}

/// Returns an axis that contains 0, 1, and all stacks.
fn share_axis(panels: &[AllocationPanel]) -> Axis {
    let (mut lo, mut hi) = (0.0_f64, 1.0_f64);
    for bar in panels.iter().flat_map(|panel| &panel.bars) {
        let shares = || bar.parts.iter().map(|part| part.share.value);
        // Rounding errors and invisible shares do not add a step.
        lo = lo.min(shares().map(|share| share.min(0.0)).sum::<f64>() + INVISIBLE);
        hi = hi.max(shares().map(|share| share.max(0.0)).sum::<f64>() - INVISIBLE);
    }
    Axis::stepped(100.0 * lo, 100.0 * hi, false, 4.0)
}

fn draw_share_axis(figure: &mut Figure, area: Area, axis: &Axis, label: &str) {
    for &tick in &axis.ticks {
        let y = area.bottom() - area.height * axis.place(tick);
        figure.fill(Area { y: y - 0.75, height: 1.5, ..area }, GRID);
        figure.text((area.x - 14.0, y), &axis.number(tick), TICK.at(Anchor::Right));
    }
    let kind = AXIS_LABEL.at(Anchor::Upward);
    for (i, line) in kind.wrap(label, area.height + TITLE_HEIGHT).iter().enumerate() {
        figure.text((50.0 + 26.0 * i as f64, area.centre().1), line, kind);
    }
}

fn draw_panel(figure: &mut Figure, panel: &AllocationPanel, area: Area, axis: &Axis, names: &ModelNames<'_>) {
    let groups = distinct(panel.bars.iter().map(|bar| &bar.group));
    let (slot, pitch) = pitches(panel, area.width, names.models.len());
    let bracket = if pitch - BRACKET.0 >= BAR_MIN_WIDTH { BRACKET.0 } else { BRACKET.1.min(pitch / 2.0) };
    for bar in &panel.bars {
        let group = groups.iter().position(|group| *group == bar.group).unwrap_or(0) as f64;
        let first = area.x + slot * (group + BETWEEN_GROUPS / 2.0);
        let whole = Area { x: first + pitch * names.place(&bar.model) as f64, width: pitch - bracket, ..area };
        draw_bar(figure, bar, whole, axis, bracket == BRACKET.0);
        let middle = whole.x + (pitch - BRACKET.1) / 2.0;
        figure.text((middle, area.bottom() + 18.0), &names.under(&bar.model), MODEL);
    }
    for (i, group) in groups.iter().enumerate() {
        let middle = area.x + slot * (i as f64 + 0.5);
        figure.text((middle, area.bottom() + 44.0), &TICK.fit(group, slot), TICK);
    }
    let zero = area.bottom() - area.height * axis.place(0.0);
    figure.fill(Area { y: zero - 1.0, height: 2.0, ..area }, AXIS);
}

/// Draws a bar with its whiskers and bracket; `whole` is the area of the whole axis.
fn draw_bar(figure: &mut Figure, bar: &Bar, whole: Area, axis: &Axis, numbered: bool) {
    let y = |share: f64| whole.bottom() - whole.height * axis.place(100.0 * share);
    let (mut above, mut below) = (0.0, 0.0);
    let mut whiskers = Vec::new();
    let mut noise: Option<(f64, f64)> = None;
    for BarPart { region, share, is_noise } in &bar.parts {
        let start = if share.value < 0.0 { &mut below } else { &mut above };
        let (from, to) = (*start, *start + share.value);
        *start = to;
        let (high, low) = (y(from.max(to)), y(from.min(to)));
        let segment = Area { y: high, height: low - high - SEAM.min((low - high) / 2.0), ..whole };
        let ground = colour::region(region);
        figure.fill(segment, ground);
        let number = percent(share.value);
        if segment.height >= NUMBER.em && NUMBER.width(&number) + 26.0 < segment.width {
            let middle = (segment.x + (segment.width - 16.0) / 2.0, segment.centre().1);
            figure.text(middle, &number, NUMBER.in_colour(colour::text_on(ground)));
        }
        whiskers.extend(share.interval.map(|(lo, hi)| (y(from + lo), y(from + hi))));
        if *is_noise && share.value > 0.0 {
            noise = Some(noise.map_or((from, to), |(first, _)| (first, to)));
        }
    }
    for ends in whiskers {
        figure.whisker(whole.right() - 11.0, ends, PAPER, 5.0);
        figure.whisker(whole.right() - 11.0, ends, INK, 2.0);
    }
    if let (Some(share), Some((from, to))) = (bar.noise, noise) {
        draw_bracket(figure, whole.right() + 3.0, (y(from), y(to)), numbered.then(|| percent(share.value)));
        if let Some((lo, hi)) = share.interval {
            // The bracket spans only the parts above zero, so the interval is moved to its end.
            let shift = to - share.value;
            figure.whisker(whole.right() + 8.0, (y(lo + shift), y(hi + shift)), INK, 1.5);
        }
    }
}

/// Draws a bracket that opens to the left, from `low` up to `high`.
fn draw_bracket(figure: &mut Figure, x: f64, (low, high): (f64, f64), number: Option<String>) {
    let (low, high) = (low - 1.5, high + 1.5);
    figure.line(&[(x, low), (x + 5.0, low), (x + 5.0, high), (x, high)], INK, 1.5);
    if let Some(number) = number {
        figure.text((x + 13.0, (low + high) / 2.0), &number, NUMBER.at(Anchor::Left));
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}", 100.0 * share).replace('-', "−")
}

/// Returns the regions with a share other than 0, in the order of the stacks.
fn regions(panels: &[AllocationPanel]) -> Vec<String> {
    let parts = || panels.iter().flat_map(|panel| &panel.bars).flat_map(|bar| &bar.parts);
    let mut regions = distinct(parts().map(|part| &part.region));
    regions.retain(|region| parts().any(|part| part.region == *region && part.share.value != 0.0));
    regions
}

/// Draws the legend: the regions from top to bottom, the models if they are numbered, and the meaning of brackets and
/// whiskers.
fn draw_legend(figure: &mut Figure, (x, y): (f64, f64), panels: &[AllocationPanel], names: &ModelNames<'_>) {
    const STEP: f64 = 34.0;
    const LINE: f64 = 25.0;
    let kind = TICK.at(Anchor::Left);
    let mut y = y;
    for region in regions(panels).iter().rev() {
        figure.fill(Area { x, y, width: 24.0, height: 24.0 }, colour::region(region));
        figure.text((x + 38.0, y + 12.0), &kind.fit(colour::region_name(region), RIGHT - 90.0), kind);
        y += STEP;
    }
    for (i, name) in names.legend().iter().enumerate() {
        figure.text((x, y + 12.0), &kind.fit(name, RIGHT - 52.0), kind);
        // More space before the notes.
        y += if i + 1 == names.models.len() { STEP } else { LINE };
    }
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let brackets = bars().any(|bar| bar.noise.is_some());
    let mut estimates = bars().flat_map(|bar| bar.noise.iter().chain(bar.parts.iter().map(|part| &part.share)));
    let whiskers = estimates.any(|estimate| estimate.interval.is_some());
    let notes = [("numbers in %", true), ("bracket: noise", brackets), ("whiskers: 95 %", whiskers)];
    for (i, (note, _)) in notes.iter().filter(|(_, shown)| *shown).enumerate() {
        figure.text((x, y + 12.0 + LINE * i as f64), note, NOTE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(shares: &[(&str, f64)]) -> AllocationPanel {
        let part = |&(region, value): &(&str, f64)| BarPart {
            region: region.to_string(),
            share: PointEstimate { value, interval: None },
            is_noise: region == "filler",
        };
        let parts = shares.iter().map(part).collect();
        let bar = Bar { group: "50".into(), model: "diff".into(), parts, noise: None };
        AllocationPanel { setting: "N=1 R=1".into(), bars: vec![bar] }
    }

    fn draw(panel: AllocationPanel) -> Result<Figure> {
        allocation(&[panel], &FigureHeading::default(), "share of |attention| (%)")
    }

    #[test]
    fn a_whole_bar_and_signed_shares_are_drawn() {
        assert!(draw(panel(&[("bos", 0.3), ("filler", 0.45), ("answer", 0.25)])).is_ok());
        let signed = [("filler", -0.3), ("answer", 1.5), ("question", -0.2)];
        let ends = |shares: &[(&str, f64)]| {
            let axis = share_axis(&[panel(shares)]);
            (axis.lo.round(), axis.hi.round())
        };
        assert_eq!(ends(&signed), (-50.0, 150.0));
        assert_eq!(ends(&[("bos", -0.001), ("answer", 1.001)]), (0.0, 100.0));
        assert!(draw(panel(&signed)).is_ok());
    }

    #[test]
    fn the_legend_keeps_the_order_of_the_stacks_and_leaves_out_what_is_empty() {
        let one = panel(&[("bos", 0.5), ("template", 0.0), ("distractor", 0.0), ("answer", 0.5)]);
        let six = panel(&[("bos", 0.4), ("template", 0.0), ("distractor", 0.3), ("answer", 0.3)]);
        assert_eq!(regions(&[one, six]), ["bos", "distractor", "answer"]);
    }

    #[test]
    fn models_whose_names_have_no_room_under_their_bars_are_numbered() {
        let one = |model: &str| {
            let mut panel = panel(&[("answer", 1.0)]);
            panel.bars[0].model = model.into();
            panel
        };
        let panels = [one("transformer"), one("diff")];
        let models = ["transformer", "diff"].map(String::from);
        let under = |width: f64| {
            let names = ModelNames::new(&panels, &models, width);
            (models.each_ref().map(|model| names.under(model)), names.legend())
        };
        assert_eq!(under(1000.0), (models.clone(), vec![]));
        let (bars, legend) = under(100.0);
        assert_eq!((bars, legend), (["1", "2"].map(String::from), vec!["1 transformer".into(), "2 diff".into()]));
    }
}
