//! Curves: one panel per metric, one line per model, with bands for intervals.

use super::axis::{draw_axes, draw_break, draw_y_label, extent, Axis, BREAK_NOTE};
use super::curve_style::{CurveStyle, CurveStyles};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::LegendSymbol;
use super::panelgrid::PanelGrid;
use super::quality::PointEstimate;
use super::text::AXIS_LABEL;
use crate::base::names::distinct;
use anyhow::{ensure, Result};

/// The curves of one metric.
#[derive(Clone, Debug)]
pub struct CurvePanel {
    /// Title of the panel, for example `loss`.
    pub title: String,
    /// The metric with its unit, for example `loss (nats per token)`.
    pub y_label: String,
    /// Ends of the y axis; `None` to take them from the points.
    pub y_range: Option<(f64, f64)>,
    /// The curves; a name has the same colour in all panels.
    pub curves: Vec<Curve>,
}

/// A named curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Points (x, y), joined in order; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// Intervals (x, lower end, upper end), drawn as a band; may be empty.
    pub band: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// A curve through estimates at some x, with a band of their intervals.
    pub fn of(name: String, estimates: impl IntoIterator<Item = (f64, PointEstimate)>) -> Self {
        let mut curve = Self { name, points: Vec::new(), band: Vec::new() };
        for (x, y) in estimates {
            curve.points.push((x, y.value));
            curve.band.extend(y.interval.map(|(lo, hi)| (x, lo, hi)));
        }
        curve
    }
}

const PANELS_ACROSS: usize = 2;
const PANEL: (f64, f64) = (616.0, 400.0);
/// Line width of the interval of a single point.
const LINE: f64 = 3.5;
/// Largest number of points of a curve that are also drawn as markers.
const MARKED_POINTS: usize = 2;
const MARK_SIZE: f64 = 9.0;
/// Opacity of a band.
const BAND_OPACITY: f64 = 0.2;

/// Draws the panels, two across, with the same x axis. `x_label` is, for example, `tokens seen`; `log_x` makes the axis
/// logarithmic.
///
/// # Errors
/// If there is no panel, a panel has no points, or the figure would be too large.
pub fn curves(panels: &[CurvePanel], heading: &FigureHeading, x_label: &str, log_x: bool) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no curves to draw");
    let looks = CurveStyles::new(distinct(panels.iter().flat_map(|panel| &panel.curves).map(|curve| &curve.name)));
    let x_axis = x_axis(panels, log_x)?;
    let y_axes = panels.iter().map(y_axis).collect::<Result<Vec<Axis>>>()?;
    let note = if y_axes.iter().all(Axis::has_zero) { "" } else { BREAK_NOTE };
    let subtitle = [heading.subtitle, note].join(if note.is_empty() { "" } else { " · " });
    let grid = PanelGrid::new(panels.len(), PANELS_ACROSS, PANEL, heading.page.room());
    let marked = panels.iter().flat_map(|panel| &panel.curves).all(|curve| curve.points.len() <= MARKED_POINTS);
    let symbol: fn(CurveStyle) -> LegendSymbol = if marked { LegendSymbol::MarkedLine } else { LegendSymbol::Line };
    let (mut figure, top) = grid.sheet(&FigureHeading { subtitle: &subtitle, ..*heading }, &looks, symbol)?;
    for (i, (panel, y_axis)) in panels.iter().zip(&y_axes).enumerate() {
        let area = grid.area(i, top);
        draw_panel(&mut figure, panel, area, (&x_axis, y_axis), &looks);
        figure.text((area.centre().0, area.bottom() + 60.0), x_label, AXIS_LABEL);
    }
    Ok(figure)
}

/// Returns the x axis of all panels.
fn x_axis(panels: &[CurvePanel], log: bool) -> Result<Axis> {
    let points = panels.iter().flat_map(|panel| &panel.curves).flat_map(visible);
    let xs: Vec<f64> = points.map(|(x, _)| x).filter(|x| !log || *x > 0.0).collect();
    let (lo, hi) = extent(&xs)?;
    Ok(if log { Axis::log(lo, hi) } else { Axis::linear(lo.min(0.0), hi, false) })
}

fn y_axis(panel: &CurvePanel) -> Result<Axis> {
    if let Some((lo, hi)) = panel.y_range {
        return Ok(Axis::linear(lo, hi, false));
    }
    let points = panel.curves.iter().flat_map(visible).map(|(_, y)| y);
    let ends = panel.curves.iter().flat_map(|curve| &curve.band).flat_map(|&(_, lo, hi)| [lo, hi]);
    let (lo, hi) = extent(&points.chain(ends).collect::<Vec<f64>>())?;
    Ok(Axis::linear(lo, hi, true))
}

fn draw_panel(
    figure: &mut Figure,
    panel: &CurvePanel,
    area: Area,
    (x_axis, y_axis): (&Axis, &Axis),
    looks: &CurveStyles,
) {
    figure.panel_title((area.x, area.y - 28.0), &panel.title, "", area.width);
    draw_axes(figure, area, x_axis, y_axis);
    draw_break(figure, area, y_axis);
    draw_y_label(figure, area, &panel.y_label);
    let place = |x: f64, y: f64| {
        let up = y_axis.place(y).clamp(0.0, 1.0);
        (area.x + area.width * x_axis.place(x), area.bottom() - area.height * up)
    };
    // All bands are drawn before all lines.
    for curve in &panel.curves {
        let inside = || curve.band.iter().filter(|(x, ..)| *x >= x_axis.lo);
        let upper = inside().map(|&(x, _, hi)| place(x, hi));
        let lower = inside().rev().map(|&(x, lo, _)| place(x, lo));
        figure.tint(&upper.chain(lower).collect::<Vec<_>>(), looks.of(&curve.name).1.colour, BAND_OPACITY);
    }
    for curve in &panel.curves {
        let inside = visible(curve).filter(|(x, _)| *x >= x_axis.lo);
        let points: Vec<(f64, f64)> = inside.map(|(x, y)| place(x, y)).collect();
        let (_, look) = looks.of(&curve.name);
        look.draw(figure, &points);
        if points.len() <= MARKED_POINTS {
            draw_marks(figure, curve, &points, look, place);
        }
    }
}

/// Draws points with their intervals, if they are too few for a line with a band.
fn draw_marks(
    figure: &mut Figure,
    curve: &Curve,
    points: &[(f64, f64)],
    look: CurveStyle,
    place: impl Fn(f64, f64) -> (f64, f64),
) {
    for &(x, lo, hi) in &curve.band {
        figure.line(&[place(x, lo), place(x, hi)], look.colour, LINE);
    }
    points.iter().for_each(|&point| figure.marker(point, look.marker, MARK_SIZE, look.colour));
}

/// Returns the finite points of a curve.
fn visible(curve: &Curve) -> impl Iterator<Item = (f64, f64)> + '_ {
    curve.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_curve_and_gaps_can_be_drawn() {
        let flat = Curve {
            name: "flat".into(),
            points: vec![(0.0, 2.0), (5.0, 2.0), (6.0, f64::NAN), (7.0, 2.0)],
            band: vec![],
        };
        let panel = CurvePanel { title: "loss".into(), y_label: "nats".into(), y_range: None, curves: vec![flat] };
        for log_x in [false, true] {
            assert!(curves(std::slice::from_ref(&panel), &FigureHeading::default(), "tokens", log_x).is_ok());
        }
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let panel = CurvePanel { title: "loss".into(), y_label: "nats".into(), y_range: None, curves: vec![] };
        assert!(curves(&[], &FigureHeading::default(), "", false).is_err());
        assert!(curves(&[panel], &FigureHeading::default(), "", false).is_err());
    }
}
