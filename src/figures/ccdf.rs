//! Complementary cumulative distributions of magnitudes on logarithmic axes.

use super::axis::{draw_axes, draw_y_label, extent, Axis};
use super::curve_style::{CurveStyle, CurveStyles};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::LegendSymbol;
use super::panelgrid::PanelGrid;
use super::text::AXIS_LABEL;
use crate::base::names::distinct;
use anyhow::{ensure, Result};

/// The distributions of one quantity.
#[derive(Clone, Debug)]
pub struct CcdfPanel {
    /// The quantity, for example `attention logits`.
    pub title: String,
    /// Label of its magnitude with the unit, for example `|logit|`.
    pub x_label: String,
    /// One line for each model; a model has the same colour in all panels.
    pub lines: Vec<CcdfLine>,
}

/// The complementary cumulative distribution function of one model.
#[derive(Clone, Debug)]
pub struct CcdfLine {
    /// The model.
    pub model: String,
    /// Magnitudes in ascending order, each with the fraction (0 to 1) of all magnitudes that are larger. Points with a
    /// zero cannot be drawn on logarithmic axes and are left out.
    pub points: Vec<(f64, f64)>,
    /// Median, drawn as a vertical line.
    pub median: Option<f64>,
}

const PANELS_ACROSS: usize = 2;
const PANEL: (f64, f64) = (560.0, 420.0);
/// Length of a dash.
const DASH: f64 = 7.0;
/// Largest number of models whose dashes alternate. With more, dashes of some models coincide, because otherwise the
/// dashes of one model would be too far apart.
const MOST_TURNS: usize = 4;
/// The x axis begins where the first line falls to this fraction.
const ALMOST_ALL: f64 = 0.9;

/// Draws the panels, two across.
///
/// # Errors
/// If there is nothing to draw.
pub fn ccdf(panels: &[CcdfPanel], heading: &FigureHeading) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no distributions to draw");
    let lines = || panels.iter().flat_map(|panel| &panel.lines);
    let looks = CurveStyles::new(distinct(lines().map(|line| &line.model)));
    let medians = lines().any(|line| line.median.is_some());
    let subtitle = [heading.subtitle, if medians { " · thin verticals: medians" } else { "" }].concat();
    let grid = PanelGrid::new(panels.len(), PANELS_ACROSS, PANEL, heading.page.room());
    let (mut sheet, top) =
        grid.sheet(&FigureHeading { subtitle: &subtitle, ..*heading }, &looks, LegendSymbol::Line)?;
    for (i, panel) in panels.iter().enumerate() {
        let area = grid.area(i, top);
        draw_panel(&mut sheet, panel, area, &looks)?;
        sheet.text((area.centre().0, area.bottom() + 60.0), &panel.x_label, AXIS_LABEL);
    }
    Ok(sheet)
}

/// Returns the points of a line that can be drawn on logarithmic axes.
fn visible(line: &CcdfLine) -> impl Iterator<Item = (f64, f64)> + '_ {
    line.points.iter().copied().filter(|&(magnitude, fraction)| magnitude > 0.0 && fraction > 0.0)
}

/// Returns the x axis, from where the lines begin to fall, and the y axis with all fractions.
fn axes(panel: &CcdfPanel) -> Result<(Axis, Axis)> {
    let (magnitudes, fractions): (Vec<f64>, Vec<f64>) = panel.lines.iter().flat_map(visible).unzip();
    let (smallest, largest) = extent(&magnitudes)?;
    let falls = |line: &CcdfLine| visible(line).take_while(|(_, fraction)| *fraction > ALMOST_ALL).last();
    let first = panel.lines.iter().filter_map(falls).map(|(magnitude, _)| magnitude).fold(f64::MAX, f64::min);
    let first = first.clamp(smallest, largest);
    Ok((Axis::log_between(first, largest), Axis::decades(extent(&fractions)?.0, 1.0)))
}

fn draw_panel(figure: &mut Figure, panel: &CcdfPanel, area: Area, looks: &CurveStyles) -> Result<()> {
    let (x_axis, y_axis) = axes(panel)?;
    figure.panel_title((area.x, area.y - 28.0), &panel.title, "", area.width);
    draw_axes(figure, area, &x_axis, &y_axis);
    draw_y_label(figure, area, "fraction above");
    for line in &panel.lines {
        let (model, look) = looks.of(&line.model);
        let inside = visible(line).filter(|(magnitude, _)| *magnitude >= x_axis.lo);
        let places: Vec<(f64, f64)> = inside
            .map(|(x, y)| (area.x + area.width * x_axis.place(x), area.bottom() - area.height * y_axis.place(y)))
            .collect();
        if let Some(median) = line.median.filter(|median| (x_axis.lo..=x_axis.hi).contains(median)) {
            draw_median(figure, area, x_axis.place(median), look, (model, looks.names().len()));
        }
        look.draw(figure, &places);
    }
    Ok(())
}

/// Draws a dashed vertical line. The dashes of different models alternate, so that equal medians are all visible.
fn draw_median(figure: &mut Figure, area: Area, place: f64, look: CurveStyle, (model, models): (usize, usize)) {
    let x = area.x + area.width * place;
    let turns = models.clamp(2, MOST_TURNS);
    let ends = [(x, area.y + DASH * (model % turns) as f64), (x, area.bottom())];
    figure.dashed_line(&ends, look.colour, 2.0, &[DASH, DASH * (turns - 1) as f64]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: &[(f64, f64)]) -> CcdfPanel {
        let line = CcdfLine { model: "diff".into(), points: points.to_vec(), median: Some(1.0) };
        CcdfPanel { title: "logits".into(), x_label: "|logit|".into(), lines: vec![line] }
    }

    #[test]
    fn zeros_are_left_out() {
        let zeros = panel(&[(0.0, 1.0), (0.5, 0.7), (20.0, 1e-6), (40.0, 0.0)]);
        assert_eq!(visible(&zeros.lines[0]).count(), 2);
        assert!(ccdf(&[zeros], &FigureHeading::default()).is_ok());
    }

    #[test]
    fn the_axis_begins_where_the_lines_begin_to_fall() {
        let falling = panel(&[(1e-6, 1.0), (0.3, 0.95), (0.7, 0.8), (20.0, 1e-6), (42.0, 1e-7)]);
        let (x_axis, y_axis) = axes(&falling).unwrap();
        assert_eq!((x_axis.lo, x_axis.hi, y_axis.lo), (0.2, 50.0, 1e-7));
    }

    #[test]
    fn one_point_can_be_drawn() {
        assert!(ccdf(&[panel(&[(1.0, 1.0)])], &FigureHeading::default()).is_ok());
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        assert!(ccdf(&[], &FigureHeading::default()).is_err());
        assert!(ccdf(&[panel(&[(0.0, 1.0)])], &FigureHeading::default()).is_err());
    }
}
