//! What each region gives: bars of shares stacked by region, after Figure 1 of the Differential Transformer paper. Shares
//! of an output may be negative: those hang below zero.

use super::colour::{self, AXIS, FAINT_INK, GRID};
use super::distinct;
use super::figure::{Anchor, Area, Figure, Type, AXIS_LABEL, TICK};
use anyhow::{ensure, Result};

/// The bars of one model in one setting.
#[derive(Clone, Debug)]
pub struct AllocationPanel {
    /// The model.
    pub model: String,
    /// Needles in the text and asked for, for example `N=4 R=2`.
    pub setting: String,
    /// One bar for each depth.
    pub bars: Vec<Bar>,
}

/// One stacked bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What stands under it, for example the depth.
    pub label: String,
    /// Regions and their share of the output as a fraction, from zero on; they sum to 1.
    pub shares: Vec<(String, f64)>,
}

const WIDTH: f64 = 1600.0;
/// The heading needs this much.
const MIN_WIDTH: f64 = 1040.0;
const LEFT: f64 = 142.0;
/// Room for the legend.
const RIGHT: f64 = 226.0;
const BETWEEN: (f64, f64) = (48.0, 34.0);
const PANEL_TITLE_HEIGHT: f64 = 46.0;
/// Ticks and label below a panel.
const BELOW: f64 = 84.0;
const PANEL_HEIGHT: f64 = 440.0;
const PANEL_MAX_WIDTH: f64 = 600.0;
/// Width of a bar as a fraction of its slot.
const BAR: f64 = 0.8;
/// Between segments.
const SEAM: f64 = 1.0;
/// Segments lower than this part of a panel have no number: it would not fit.
const SMALLEST_NUMBER: f64 = 0.05;
/// Shares beyond this are no parts of a whole that could be drawn.
const LARGEST: f64 = 10.0;
/// A share that is less than a pixel.
const INVISIBLE: f64 = 0.002;
const NUMBER: Type = Type::new(20.0, Anchor::Middle);

/// Draws the panels: models side by side, settings below each other.
/// `subtitle` says what was measured, for example `mean over heads and layers · 20 prompts per bar · seed 0`.
pub fn allocation(panels: &[AllocationPanel], subtitle: &str) -> Result<Figure> {
    check(panels)?;
    let models = distinct(panels.iter().map(|panel| &panel.model));
    let settings = distinct(panels.iter().map(|panel| &panel.setting));
    let gaps = BETWEEN.0 * (models.len() - 1) as f64;
    let panel_width = ((WIDTH - LEFT - RIGHT - gaps) / models.len() as f64).min(PANEL_MAX_WIDTH).floor();
    let row_height = PANEL_TITLE_HEIGHT + PANEL_HEIGHT + BELOW + BETWEEN.1;
    let content = panel_width * models.len() as f64 + gaps;
    let width = (LEFT + content + RIGHT).max(MIN_WIDTH);
    let title = "What each region gives the heads' output while the answer is predicted";
    let range = Range::of(panels);
    let (mut figure, top) = Figure::headed(title, subtitle, width, row_height * settings.len() as f64)?;

    for panel in panels {
        let place = |names: &[String], name: &String| names.iter().position(|other| other == name).unwrap_or(0) as f64;
        let column = place(&models, &panel.model);
        let area = Area {
            x: LEFT + (panel_width + BETWEEN.0) * column,
            y: top + PANEL_TITLE_HEIGHT + row_height * place(&settings, &panel.setting),
            width: panel_width,
            height: PANEL_HEIGHT,
        };
        draw_panel(&mut figure, panel, area, range);
        if column == 0.0 {
            draw_share_axis(&mut figure, area, range);
        }
    }
    draw_legend(&mut figure, (LEFT + content + 44.0, top + PANEL_TITLE_HEIGHT), &regions(panels));
    Ok(figure)
}

fn check(panels: &[AllocationPanel]) -> Result<()> {
    ensure!(!panels.is_empty(), "no attention shares to draw");
    for AllocationPanel { model, setting, bars } in panels {
        ensure!(!bars.is_empty(), "no attention shares to draw for {model}, {setting}");
        for Bar { label, shares } in bars {
            let total: f64 = shares.iter().map(|(_, share)| share).sum();
            ensure!(
                shares.iter().all(|(_, share)| share.abs() <= LARGEST) && total <= 1.0 + 1e-3,
                "shares of {model}, {setting}, {label} are no parts of a whole (their sum is {total})"
            );
        }
    }
    Ok(())
}

/// The regions that can be seen, in the order of the stacks.
fn regions(panels: &[AllocationPanel]) -> Vec<String> {
    let shares = || panels.iter().flat_map(|panel| &panel.bars).flat_map(|bar| &bar.shares);
    let mut regions = distinct(shares().map(|(name, _)| name));
    regions.retain(|region| shares().any(|(name, share)| name == region && *share != 0.0));
    regions
}

/// The shares between the lower and the upper end of the axis, in quarters of the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    lowest: i32,
    highest: i32,
}

impl Range {
    /// From 0 to 1, or further where negative shares hang below zero and what is above makes up for them.
    fn of(panels: &[AllocationPanel]) -> Self {
        let mut range = Self { lowest: 0, highest: 4 };
        for bar in panels.iter().flat_map(|panel| &panel.bars) {
            let below: f64 = bar.shares.iter().map(|(_, share)| share.min(0.0)).sum();
            let above: f64 = bar.shares.iter().map(|(_, share)| share.max(0.0)).sum();
            // What rounding leaves and what nobody could see is no reason for another quarter.
            range.lowest = range.lowest.min((4.0 * (below + INVISIBLE)).min(0.0).floor() as i32);
            range.highest = range.highest.max((4.0 * (above - INVISIBLE)).ceil() as i32);
        }
        range
    }

    /// Height of the whole in an area.
    fn whole(self, area: Area) -> f64 {
        area.height * 4.0 / f64::from(self.highest - self.lowest)
    }

    fn y(self, area: Area, share: f64) -> f64 {
        area.bottom() + self.whole(area) * (f64::from(self.lowest) / 4.0 - share)
    }
}

fn draw_panel(figure: &mut Figure, panel: &AllocationPanel, area: Area, range: Range) {
    figure.panel_title((area.x, area.y - 28.0), &panel.model, &panel.setting, area.width);
    for quarter in range.lowest..=range.highest {
        let y = range.y(area, f64::from(quarter) / 4.0);
        figure.fill(Area { y, height: 1.5, ..area }, GRID);
    }
    let slot = area.width / panel.bars.len() as f64;
    for (i, bar) in panel.bars.iter().enumerate() {
        let x = area.x + slot * (i as f64 + (1.0 - BAR) / 2.0);
        draw_bar(figure, bar, Area { x, width: slot * BAR, ..area }, range);
        let middle = area.x + slot * (i as f64 + 0.5);
        figure.text((middle, area.bottom() + 22.0), &TICK.fit(&bar.label, slot), TICK);
    }
    figure.fill(Area { y: range.y(area, 0.0), height: 2.0, ..area }, AXIS);
    let label = AXIS_LABEL.fit("depth of the needle (%)", area.width);
    figure.text((area.centre().0, area.bottom() + 58.0), &label, AXIS_LABEL);
}

/// Positive shares upwards from zero, negative ones downwards.
fn draw_bar(figure: &mut Figure, bar: &Bar, area: Area, range: Range) {
    let (mut above, mut below) = (0.0, 0.0);
    for (region, share) in &bar.shares {
        let end = if *share < 0.0 { &mut below } else { &mut above };
        let from: f64 = *end;
        *end += share;
        let height = range.whole(area) * share.abs();
        let y = range.y(area, from.max(*end));
        let segment = Area { y, height: height - SEAM.min(height / 2.0), ..area };
        let ground = colour::region(region);
        figure.fill(segment, ground);
        let number = format!("{:.0}", 100.0 * share).replace('-', "−");
        if height >= SMALLEST_NUMBER * area.height && NUMBER.width(&number) < segment.width {
            figure.text(segment.centre(), &number, NUMBER.in_colour(colour::text_on(ground)));
        }
    }
}

fn draw_share_axis(figure: &mut Figure, area: Area, range: Range) {
    for quarter in range.lowest..=range.highest {
        let (y, percent) = (range.y(area, f64::from(quarter) / 4.0), (25 * quarter).to_string().replace('-', "−"));
        figure.text((area.x - 16.0, y), &percent, Type { anchor: Anchor::Right, ..TICK });
    }
    let label = Type { anchor: Anchor::Upward, ..AXIS_LABEL };
    figure.text((50.0, area.centre().1), "share of the output (%)", label);
}

/// The regions, the topmost of the bars on top.
fn draw_legend(figure: &mut Figure, (x, y): (f64, f64), regions: &[String]) {
    const STEP: f64 = 40.0;
    for (i, region) in regions.iter().rev().enumerate() {
        let y = y + STEP * i as f64;
        figure.fill(Area { x, y, width: 26.0, height: 26.0 }, colour::region(region));
        let kind = Type { anchor: Anchor::Left, ..TICK };
        let name = if region == "bos" { "BOS" } else { region };
        figure.text((x + 38.0, y + 13.0), &kind.fit(name, RIGHT - 90.0), kind);
    }
    let note = Type { em: 18.0, anchor: Anchor::Left, ..TICK }.in_colour(FAINT_INK);
    figure.text((x, y + STEP * regions.len() as f64 + 16.0), "numbers in %", note);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(shares: &[(&str, f64)]) -> AllocationPanel {
        let shares = shares.iter().map(|&(region, share)| (region.to_string(), share)).collect();
        AllocationPanel {
            model: "diff".into(),
            setting: "N=1 R=1".into(),
            bars: vec![Bar { label: "50".into(), shares }],
        }
    }

    #[test]
    fn a_whole_bar_is_drawn() {
        assert!(allocation(&[panel(&[("bos", 0.3), ("filler", 0.45), ("answer", 0.25)])], "").is_ok());
    }

    #[test]
    fn negative_shares_hang_below_zero_and_the_axis_reaches_what_makes_up_for_them() {
        let range = |shares| Range::of(&[panel(shares)]);
        assert_eq!(range(&[("bos", 0.4), ("answer", 0.6)]), Range { lowest: 0, highest: 4 });
        assert_eq!(range(&[("bos", -0.3), ("answer", 1.3)]), Range { lowest: -2, highest: 6 });
        assert_eq!(range(&[("bos", -0.001), ("answer", 1.001)]), Range { lowest: 0, highest: 4 });
        let area = Area { x: 0.0, y: 0.0, width: 10.0, height: 80.0 };
        let range = Range { lowest: -2, highest: 6 };
        assert_eq!([range.y(area, 1.5), range.y(area, 0.0), range.y(area, -0.5)], [0.0, 60.0, 80.0]);
        assert!(allocation(&[panel(&[("bos", -0.3), ("filler", 0.7), ("answer", 0.6)])], "").is_ok());
    }

    #[test]
    fn the_legend_keeps_the_order_of_the_stacks_and_leaves_out_what_is_empty() {
        let one = panel(&[("bos", 0.5), ("template", 0.0), ("distractor", 0.0), ("answer", 0.5)]);
        let six = panel(&[("bos", 0.4), ("template", 0.0), ("distractor", 0.3), ("answer", 0.3)]);
        assert_eq!(regions(&[one, six]), ["bos", "distractor", "answer"]);
    }

    #[test]
    fn shares_that_are_no_parts_of_a_whole_are_errors() {
        assert!(allocation(&[], "").is_err());
        for shares in
            [[("bos", 0.6), ("answer", 0.6)], [("bos", -11.0), ("answer", 0.6)], [("bos", f64::NAN), ("answer", 0.6)]]
        {
            let error = allocation(&[panel(&shares)], "").err().unwrap();
            assert!(error.to_string().contains("diff, N=1 R=1, 50"), "{error}");
        }
    }
}
