//! Where the attention went: bars of attention share stacked by region (Figure 1 of the Differential Transformer paper).

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
    /// Regions and their share of |attention| as a fraction, from the bottom.
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
/// Shares below this have no number: it would not fit.
const SMALLEST_NUMBER: f64 = 0.05;
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
    let title = "Where the attention goes while the answer is predicted";
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
        draw_panel(&mut figure, panel, area);
        if column == 0.0 {
            draw_share_axis(&mut figure, area);
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
                shares.iter().all(|(_, share)| *share >= 0.0) && total <= 1.0 + 1e-3,
                "attention shares of {model}, {setting}, {label} are no fractions of a whole (their sum is {total})"
            );
        }
    }
    Ok(())
}

/// The regions that can be seen, in the order of the stacks.
fn regions(panels: &[AllocationPanel]) -> Vec<String> {
    let shares = || panels.iter().flat_map(|panel| &panel.bars).flat_map(|bar| &bar.shares);
    let mut regions = distinct(shares().map(|(name, _)| name));
    regions.retain(|region| shares().any(|(name, share)| name == region && *share > 0.0));
    regions
}

fn draw_panel(figure: &mut Figure, panel: &AllocationPanel, area: Area) {
    figure.panel_title((area.x, area.y - 28.0), &panel.model, &panel.setting, area.width);
    for quarter in 0..4 {
        let y = area.y + area.height * f64::from(quarter) / 4.0;
        figure.fill(Area { y, height: 1.5, ..area }, GRID);
    }
    let slot = area.width / panel.bars.len() as f64;
    for (i, bar) in panel.bars.iter().enumerate() {
        let x = area.x + slot * (i as f64 + (1.0 - BAR) / 2.0);
        draw_bar(figure, bar, Area { x, width: slot * BAR, ..area });
        let middle = area.x + slot * (i as f64 + 0.5);
        figure.text((middle, area.bottom() + 22.0), &TICK.fit(&bar.label, slot), TICK);
    }
    figure.fill(Area { y: area.bottom(), height: 2.0, ..area }, AXIS);
    let label = AXIS_LABEL.fit("depth of the needle (%)", area.width);
    figure.text((area.centre().0, area.bottom() + 58.0), &label, AXIS_LABEL);
}

/// A bar in the area that a share of 100 % would fill.
fn draw_bar(figure: &mut Figure, bar: &Bar, whole: Area) {
    let mut y = whole.bottom();
    for (region, share) in &bar.shares {
        let height = whole.height * share;
        y -= height;
        let segment = Area { y, height: height - SEAM.min(height / 2.0), ..whole };
        let ground = colour::region(region);
        figure.fill(segment, ground);
        let number = format!("{:.0}", 100.0 * share);
        if *share >= SMALLEST_NUMBER && NUMBER.width(&number) < segment.width {
            figure.text(segment.centre(), &number, NUMBER.in_colour(colour::text_on(ground)));
        }
    }
}

fn draw_share_axis(figure: &mut Figure, area: Area) {
    for percent in [0, 25, 50, 75, 100] {
        let y = area.bottom() - area.height * f64::from(percent) / 100.0;
        figure.text((area.x - 16.0, y), &percent.to_string(), Type { anchor: Anchor::Right, ..TICK });
    }
    let label = Type { anchor: Anchor::Upward, ..AXIS_LABEL };
    figure.text((50.0, area.centre().1), "share of |attention| (%)", label);
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
    fn the_legend_keeps_the_order_of_the_stacks_and_leaves_out_what_is_empty() {
        let one = panel(&[("bos", 0.5), ("template", 0.0), ("distractor", 0.0), ("answer", 0.5)]);
        let six = panel(&[("bos", 0.4), ("template", 0.0), ("distractor", 0.3), ("answer", 0.3)]);
        assert_eq!(regions(&[one, six]), ["bos", "distractor", "answer"]);
    }

    #[test]
    fn shares_that_are_no_parts_of_a_whole_are_errors() {
        assert!(allocation(&[], "").is_err());
        for shares in
            [[("bos", 0.6), ("answer", 0.6)], [("bos", -0.1), ("answer", 0.6)], [("bos", f64::NAN), ("answer", 0.6)]]
        {
            let error = allocation(&[panel(&shares)], "").err().unwrap();
            assert!(error.to_string().contains("diff, N=1 R=1, 50"), "{error}");
        }
    }
}
