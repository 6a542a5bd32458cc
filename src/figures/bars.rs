//! Shares by region as stacked bars, models side by side, after Figure 1 of the Differential Transformer paper.
//! Negative shares are stacked below zero.

use super::axis::{draw_x_label, draw_y_axis, draw_y_label, Axis};
use super::colour::{self, AXIS, INK, PAPER};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::{Legend, LegendSymbol};
use super::lines::PointEstimate;
use super::panel_grid::PanelGrid;
use super::text::{Anchor, TextFormat, TICK};
use crate::base::names::distinct;
use anyhow::{ensure, Result};

/// The bars of one setting.
#[derive(Clone, Debug)]
pub struct BarPanel {
    /// For example the setting, `N=4 R=2`.
    pub title: String,
    /// One bar for each group and model; bars of one group are side by side, in the order of the models' first
    /// occurrence.
    pub bars: Vec<Bar>,
}

/// One stacked bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label below the bars of all models, for example the depth.
    pub group: String,
    pub model: String,
    /// The parts, from the bottom; negative ones are stacked downwards from zero.
    pub parts: Vec<BarPart>,
    /// The total share of noise.
    pub noise: Option<PointEstimate>,
}

/// The share of one region in a bar.
#[derive(Clone, Debug)]
pub struct BarPart {
    pub region: String,
    /// The share as a fraction of the whole. Its interval is drawn as a whisker at the end of the part.
    pub share: PointEstimate,
    /// `true` if the part is noise, which the bracket beside the bar spans.
    pub is_noise: bool,
}

const PANEL_HEIGHT: f64 = 220.0;
/// Names of models and groups below a panel.
const LABEL_LINES: usize = 2;
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

/// Draws the panels one below the other. `y_label` names the quantity, for example `share of |attention| (%)`. Shares
/// are fractions and are drawn in percent.
///
/// # Errors
/// If there is nothing to draw.
pub fn bars(panels: &[BarPanel], heading: &FigureHeading, x_label: &str, y_label: &str) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no shares to draw");
    let models = distinct(all_bars(panels).map(|bar| &bar.model));
    let axis = share_axis(panels);
    let grid = PanelGrid::column(panels.len(), PANEL_HEIGHT, heading.page.room()).label_lines(LABEL_LINES);
    let names = ModelNames::new(panels, &models, grid.width());
    let regions = regions(panels);
    let legend = Legend::new(Legend::regions(&regions).chain(names.legend()), grid.width());
    let subtitle = heading.subtitle_with(&[&notes(panels)]);
    let (mut figure, top) = grid.figure(&FigureHeading { subtitle: &subtitle, ..*heading }, &legend)?;
    for (i, panel) in panels.iter().enumerate() {
        let area = grid.area(i, top);
        figure.panel_title((area.x, area.y - 28.0), &panel.title, "", area.width);
        draw_y_axis(&mut figure, area, &axis);
        draw_y_label(&mut figure, area, y_label);
        draw_panel(&mut figure, panel, area, &axis, &names);
        draw_x_label(&mut figure, area, x_label, LABEL_LINES);
    }
    Ok(figure)
}

fn all_bars(panels: &[BarPanel]) -> impl Iterator<Item = &Bar> {
    panels.iter().flat_map(|panel| &panel.bars)
}

/// Explains numbers, brackets and whiskers, as far as there are any.
fn notes(panels: &[BarPanel]) -> String {
    let mut notes = vec!["numbers in %"];
    if all_bars(panels).any(|bar| bar.noise.is_some()) {
        notes.push("brackets: noise");
    }
    let mut estimates =
        all_bars(panels).flat_map(|bar| bar.noise.iter().chain(bar.parts.iter().map(|part| &part.share)));
    if estimates.any(|estimate| estimate.interval.is_some()) {
        notes.push("whiskers: 95 % intervals");
    }
    notes.join(", ")
}

/// Returns the distance between groups, and between the bars of a group.
fn pitches(panel: &BarPanel, width: f64, models: usize) -> (f64, f64) {
    let groups = distinct(panel.bars.iter().map(|bar| &bar.group));
    let slot = width / groups.len() as f64;
    (slot, slot * (1.0 - BETWEEN_GROUPS) / models as f64)
}

/// The names of models under the bars; numbers, which the legend explains, if one of them does not fit there.
struct ModelNames<'a> {
    models: &'a [String],
    are_numbers: bool,
}

impl<'a> ModelNames<'a> {
    fn new(panels: &[BarPanel], models: &'a [String], width: f64) -> Self {
        let room = panels.iter().map(|panel| pitches(panel, width, models.len()).1).fold(f64::INFINITY, f64::min);
        Self { models, are_numbers: models.iter().any(|model| MODEL.width(model) > room - 4.0) }
    }

    fn place(&self, model: &String) -> usize {
        self.models.iter().position(|other| other == model).unwrap_or(0)
    }

    /// Returns the label under a bar.
    fn under(&self, model: &String) -> String {
        if self.are_numbers {
            (self.place(model) + 1).to_string()
        } else {
            model.clone()
        }
    }

    /// Returns the entries of the legend that explain the numbers.
    fn legend(&self) -> impl Iterator<Item = (String, LegendSymbol)> + '_ {
        let numbered = self.models.iter().enumerate().filter(|_| self.are_numbers);
        numbered.map(|(i, model)| (format!("{}: {model}", i + 1), LegendSymbol::Nothing))
    }
}

/// Returns an axis that contains 0, 1, and all stacks.
fn share_axis(panels: &[BarPanel]) -> Axis {
    let (mut lo, mut hi) = (0.0_f64, 1.0_f64);
    for bar in all_bars(panels) {
        let (mut below, mut above) = (0.0, 0.0);
        for part in &bar.parts {
            below += part.share.value.min(0.0);
            above += part.share.value.max(0.0);
        }
        // Rounding errors and invisible shares do not add a step.
        (lo, hi) = (lo.min(below + INVISIBLE), hi.max(above - INVISIBLE));
    }
    Axis::stepped(100.0 * lo, 100.0 * hi, false, 4.0)
}

fn draw_panel(figure: &mut Figure, panel: &BarPanel, area: Area, axis: &Axis, names: &ModelNames<'_>) {
    let groups = distinct(panel.bars.iter().map(|bar| &bar.group));
    let (slot, pitch) = pitches(panel, area.width, names.models.len());
    let bracket = if pitch - BRACKET.0 >= BAR_MIN_WIDTH { BRACKET.0 } else { BRACKET.1.min(pitch / 2.0) };
    for bar in &panel.bars {
        let group = groups.iter().position(|group| *group == bar.group).unwrap_or(0) as f64;
        let first = area.x + slot * (group + BETWEEN_GROUPS / 2.0);
        let whole = Area { x: first + pitch * names.place(&bar.model) as f64, width: pitch - bracket, ..area };
        draw_bar(figure, bar, whole, axis, bracket == BRACKET.0);
        let middle = whole.x + (pitch - BRACKET.1) / 2.0;
        figure.text((middle, area.bottom() + 20.0), &names.under(&bar.model), MODEL);
    }
    for (i, group) in groups.iter().enumerate() {
        let middle = area.x + slot * (i as f64 + 0.5);
        figure.text((middle, area.bottom() + 48.0), &TICK.fit(group, slot), TICK);
    }
    let zero = area.bottom() - area.height * axis.place(0.0);
    figure.fill(Area { y: zero - 1.0, height: 2.0, ..area }, AXIS);
}

/// Returns the y coordinate of a share; `whole` is the area of the whole axis.
fn y_of(share: f64, whole: Area, axis: &Axis) -> f64 {
    whole.bottom() - whole.height * axis.place(100.0 * share)
}

/// Draws a bar with its whiskers and bracket; `whole` is the area of the whole axis.
fn draw_bar(figure: &mut Figure, bar: &Bar, whole: Area, axis: &Axis, numbered: bool) {
    let (mut above, mut below) = (0.0, 0.0);
    let mut whiskers = Vec::new();
    let mut noise: Option<(f64, f64)> = None;
    for BarPart { region, share, is_noise } in &bar.parts {
        let start = if share.value < 0.0 { &mut below } else { &mut above };
        let (from, to) = (*start, *start + share.value);
        *start = to;
        let [high, low] = [from.max(to), from.min(to)].map(|share| y_of(share, whole, axis));
        let segment = Area { y: high, height: low - high - SEAM.min((low - high) / 2.0), ..whole };
        let ground = colour::region(region);
        figure.fill(segment, ground);
        let number = percent(share.value);
        if segment.height >= NUMBER.em && NUMBER.width(&number) + 26.0 < segment.width {
            let middle = (segment.x + (segment.width - 16.0) / 2.0, segment.centre().1);
            figure.text(middle, &number, NUMBER.in_colour(colour::text_on(ground)));
        }
        whiskers.extend(share.interval.map(|(lo, hi)| (y_of(from + lo, whole, axis), y_of(from + hi, whole, axis))));
        if *is_noise && share.value > 0.0 {
            noise = Some(noise.map_or((from, to), |(first, _)| (first, to)));
        }
    }
    for ends in whiskers {
        figure.whisker(whole.right() - 11.0, ends, PAPER, 5.0);
        figure.whisker(whole.right() - 11.0, ends, INK, 2.0);
    }
    if let (Some(share), Some((from, to))) = (bar.noise, noise) {
        let number = numbered.then(|| percent(share.value));
        draw_bracket(figure, whole.right() + 3.0, (y_of(from, whole, axis), y_of(to, whole, axis)), number);
        if let Some((lo, hi)) = share.interval {
            // The bracket spans only the parts above zero, so the interval is moved to its end.
            let ends = [lo, hi].map(|share_end| y_of(share_end + to - share.value, whole, axis));
            figure.whisker(whole.right() + 8.0, ends.into(), INK, 1.5);
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
fn regions(panels: &[BarPanel]) -> Vec<String> {
    let parts: Vec<&BarPart> = all_bars(panels).flat_map(|bar| &bar.parts).collect();
    let mut regions = distinct(parts.iter().map(|part| &part.region));
    regions.retain(|region| parts.iter().any(|part| part.region == *region && part.share.value != 0.0));
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(shares: &[(&str, f64)]) -> BarPanel {
        let parts = shares.iter().map(|&(region, value)| BarPart {
            region: region.to_string(),
            share: value.into(),
            is_noise: region == "filler",
        });
        let parts = parts.collect();
        let bar = Bar { group: "50".into(), model: "diff".into(), parts, noise: None };
        BarPanel { title: "N=1 R=1".into(), bars: vec![bar] }
    }

    fn draw(panel: BarPanel) -> Result<Figure> {
        bars(&[panel], &FigureHeading::default(), "depth", "share of |attention| (%)")
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
            let legend: Vec<String> = names.legend().map(|(name, _)| name).collect();
            (models.each_ref().map(|model| names.under(model)), legend)
        };
        assert_eq!(under(1000.0), (models.clone(), vec![]));
        let (bars, legend) = under(100.0);
        assert_eq!((bars, legend), (["1", "2"].map(String::from), vec!["1: transformer".into(), "2: diff".into()]));
    }
}
