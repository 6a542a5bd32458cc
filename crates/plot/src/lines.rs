//! Lines with intervals: one panel for each quantity, one line for each model (Figures 4 and 8 of the Differential
//! Transformer paper).

use super::axis::{draw_axes, draw_tick_below, draw_x_label, extent, x_label_room, Axis, CategoryLabels};
use super::colour::{AXIS, FAINT_INK};
use super::figure::{Area, Figure, FigureHeading, MARGIN};
use super::legend::{Legend, LegendSymbol, LineStyle, LineStyles};
use super::panel_grid::{PanelGrid, PanelShape};
use super::panel_title::PanelTitle;
use super::text::{Anchor, TextFormat, TICK};
use anyhow::{ensure, Result};

/// The lines of one quantity.
#[derive(Clone, Debug)]
pub struct LinePanel {
    /// The quantity, for example `needle retrieval`.
    pub title: String,
    /// Label of the x axis, for example `tokens seen`.
    pub x_label: String,
    /// Name and unit of its numbers, for example `accuracy (%)`, drawn after the title.
    pub y_label: String,
    /// Ends of the y axis; `None` to take them from the points.
    pub y_range: Option<(f64, f64)>,
    /// Places along x with their names, where something begins that changes the lines.
    pub marks: Vec<(f64, String)>,
    /// A name has the same colour and marker in all panels.
    pub lines: Vec<Line>,
}

/// A named line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// The series that it is of, whose lines have one colour; often it is the only one.
    pub series: String,
    /// Values by x, in ascending order; those that are not finite are left out.
    pub points: Vec<(f64, PointEstimate)>,
}

impl Line {
    /// A line through points (x, value).
    pub fn new<V: Into<PointEstimate>>(name: String, points: impl IntoIterator<Item = (f64, V)>) -> Self {
        let points = points.into_iter().map(|(x, value)| (x, value.into())).collect();
        Self { series: name.clone(), name, points }
    }

    /// The line as one of several of a series.
    #[must_use]
    pub fn of(self, series: &str) -> Self {
        Self { series: series.to_owned(), ..self }
    }

    /// Returns `true` if its points have markers.
    fn is_marked(&self) -> bool {
        self.points.len() <= MARKED_POINTS
    }

    /// The finite points.
    fn visible(&self) -> impl Iterator<Item = (f64, PointEstimate)> + '_ {
        self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.value.is_finite())
    }
}

/// An estimate with its interval, in the unit of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointEstimate {
    /// The estimate.
    pub value: f64,
    /// Its interval, if there is one, 95 % unless the subtitle says otherwise.
    pub interval: Option<(f64, f64)>,
}

impl PointEstimate {
    /// The value and the ends of the interval.
    pub(super) fn extent(&self) -> [f64; 3] {
        let (lo, hi) = self.interval.unwrap_or((self.value, self.value));
        [self.value, lo, hi]
    }
}

impl From<f64> for PointEstimate {
    fn from(value: f64) -> Self {
        Self { value, interval: None }
    }
}

/// The axes of panels.
#[derive(Clone, Copy, Debug)]
pub enum LineAxes<'a> {
    /// Both linear.
    Linear,
    /// The x axis is of numbers of tokens and logarithmic.
    LogX,
    /// Both are logarithmic, and each panel has its own. Points with a zero are left out.
    LogLog,
    /// Along x are categories with these labels, for example `none`, `16`, `8`; a point's x is its category's index.
    /// Values are drawn as markers and intervals as whiskers, those of the lines side by side.
    Categories(&'a [String]),
}

/// Panels of numbers, and of categories.
const PANEL: PanelShape = PanelShape { most_across: 2, narrowest: 220.0, largest: (616.0, 400.0) };
const CATEGORIES_PANEL: PanelShape = PanelShape { most_across: 3, narrowest: 220.0, largest: (420.0, 330.0) };
/// Least width of a marker among those of the other lines at a category.
const MARKER_SLOT: f64 = 16.0;
/// Largest width of a panel whose labels need more room.
const WIDEST: f64 = 1100.0;
const MARK: TextFormat = TextFormat { em: 18.0, ..TICK.at(Anchor::Left).in_colour(FAINT_INK) };
const MARKER: f64 = 13.0;
const WHISKER: f64 = 2.0;
/// Largest number of points of a line that have markers: those that were measured, not a curve.
const MARKED_POINTS: usize = 12;
/// Largest number of intervals of a line that are whiskers instead of a band where x are numbers.
const WHISKERED_POINTS: usize = 2;
/// Opacity of a band.
const BAND_OPACITY: f64 = 0.2;
/// Distance between neighbouring lines at a category, and largest distance between the first and the last, as fractions
/// of the width of a category.
const DODGE: (f64, f64) = (0.18, 0.6);

/// The styles of all lines by name.
fn styles_of(panels: &[LinePanel], models: &[String]) -> LineStyles {
    let mut names: Vec<String> = Vec::new();
    let mut series = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.contains(&line.name) {
            names.push(line.name.clone());
            series.push(line.series.clone());
        }
    }
    LineStyles::new(names, &series, models)
}

/// Draws the panels, as many side by side as fit.
///
/// # Errors
/// If there is no panel, a panel has no points, or the figure would be too large.
pub fn lines(panels: &[LinePanel], axes: LineAxes<'_>, heading: &FigureHeading) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no lines to draw");
    let styles = styles_of(panels, heading.models);
    let labels = match axes {
        LineAxes::Categories(labels) => Some(CategoryLabels::new(labels)),
        _ => None,
    };
    let mut all = panels.iter().flat_map(|panel| &panel.lines);
    let is_marked = labels.is_some() || all.clone().any(Line::is_marked);
    let x_axis = axes.x_axis(panels)?;
    let x_axis = if is_marked && labels.is_none() { x_axis.with_margin() } else { x_axis };
    let mut scales = Vec::new();
    for panel in panels {
        scales.push(match axes {
            LineAxes::LogLog => logarithmic_axes(panel)?,
            _ if is_marked => (x_axis.clone(), y_axis(panel)?.with_margin()),
            _ => (x_axis.clone(), y_axis(panel)?),
        });
    }
    let mut shape = labels.as_ref().map_or(PANEL, |labels| categories_panel(labels, styles.names.len()));
    if labels.is_some() && heading.page.width_mm.is_some() {
        // Labels may be slanted.
        shape.most_across = CATEGORIES_PANEL.most_across;
    }
    let room = heading.page.room();
    let grid = PanelGrid::new(panels.len(), shape, room);
    let grid = if heading.page.width_mm.is_some() { grid.filling(room) } else { grid };
    let width = grid.panel.0;
    let label_room = labels.as_ref().map_or(0.0, |labels| labels.room(width));
    let x_label_rooms = panels.iter().map(|panel| x_label_room(&panel.x_label, width));
    let below = label_room + x_label_rooms.fold(f64::NEG_INFINITY, f64::max);

    let symbol: fn(LineStyle) -> LegendSymbol = match is_marked {
        _ if labels.is_some() || all.clone().all(|line| line.points.len() <= 1) => LegendSymbol::Marker,
        true => LegendSymbol::MarkedLine,
        false => LegendSymbol::Line,
    };
    let has_whiskers = labels.is_some() && all.any(|line| line.visible().any(|(_, y)| y.interval.is_some()));
    let subtitle = heading.subtitle_with(&[if has_whiskers { "whiskers: 95 % intervals" } else { "" }]);
    let heading = FigureHeading { subtitle: &subtitle, ..*heading };
    let legend_room = heading.page.width_mm.map_or(grid.width(), |_| heading.page.room()) - 2.0 * MARGIN;
    let legend = Legend::of_lines(&styles, symbol, legend_room);
    let titles: Vec<_> = panels.iter().map(|panel| PanelTitle::new(&panel.title, &panel.y_label, width)).collect();
    let room = heading.room_below(grid.width()) - legend.height();
    let grid = grid.between(&titles, below, room);
    let (mut figure, top) = grid.figure(&heading, &legend)?;
    for (i, (panel, (x_axis, y_axis))) in panels.iter().zip(&scales).enumerate() {
        let area = grid.area(i, top);
        titles[i].draw(&mut figure, (area.x, area.y));
        PanelDrawing { panel, area, x_axis, y_axis, labels: labels.as_ref(), styles: &styles }.draw(&mut figure);
        draw_x_label(&mut figure, area, &panel.x_label, label_room);
    }
    Ok(figure)
}

/// A panel that has room for all labels, if it is not too wide, and on a narrow page for the markers of so many lines.
fn categories_panel(labels: &CategoryLabels<'_>, lines: usize) -> PanelShape {
    let PanelShape { most_across, narrowest, largest: (width, height) } = CATEGORIES_PANEL;
    // The grid has panels of whole pixels.
    let wide = (labels.pitch * labels.len() as f64).ceil().clamp(width, WIDEST);
    let narrowest = narrowest.max(MARKER_SLOT * (lines * labels.len()) as f64);
    PanelShape { most_across: (most_across as f64 * width / wide) as usize, narrowest, largest: (wide, height) }
}

impl LineAxes<'_> {
    fn x_axis(&self, panels: &[LinePanel]) -> Result<Axis> {
        if let Self::Categories(labels) = self {
            ensure!(!labels.is_empty(), "no categories to draw");
            return Ok(Axis::categories(labels.len()));
        }
        let is_log = !matches!(self, Self::Linear);
        let points = panels.iter().flat_map(|panel| &panel.lines).flat_map(Line::visible);
        let (lo, hi) = extent(points.map(|(x, _)| x).filter(|x| !is_log || *x > 0.0))?;
        Ok(if is_log { Axis::log_tokens(lo, hi) } else { Axis::linear(lo.min(0.0), hi, false) })
    }
}

fn y_axis(panel: &LinePanel) -> Result<Axis> {
    if let Some((lo, hi)) = panel.y_range {
        return Ok(Axis::linear(lo, hi, false));
    }
    let (lo, hi) = extent(panel.lines.iter().flat_map(Line::visible).flat_map(|(_, y)| y.extent()))?;
    Ok(Axis::linear(lo, hi, true))
}

/// Two logarithmic axes that hold all points.
fn logarithmic_axes(panel: &LinePanel) -> Result<(Axis, Axis)> {
    let points = panel.lines.iter().flat_map(Line::visible).map(|(x, y)| (x, y.value));
    let positive: Vec<(f64, f64)> = points.filter(|(x, y)| *x > 0.0 && *y > 0.0).collect();
    let (left, right) = extent(positive.iter().map(|(x, _)| *x))?;
    let (bottom, top) = extent(positive.iter().map(|(_, y)| *y))?;
    Ok((Axis::log(left, right), Axis::log(bottom, top)))
}

/// A panel, and where it is drawn.
struct PanelDrawing<'a> {
    panel: &'a LinePanel,
    area: Area,
    x_axis: &'a Axis,
    y_axis: &'a Axis,
    /// The labels of categories.
    labels: Option<&'a CategoryLabels<'a>>,
    styles: &'a LineStyles,
}

/// A point of a line in the figure.
#[derive(Clone, Copy)]
struct PlottedPoint {
    x: f64,
    y: f64,
    /// Lower and upper end of the interval.
    interval: Option<(f64, f64)>,
}

impl PanelDrawing<'_> {
    fn draw(&self, figure: &mut Figure) {
        let Self { panel, area, x_axis, y_axis, .. } = self;
        draw_axes(figure, *area, x_axis, y_axis);
        for (x, name) in &panel.marks {
            let x = self.x(*x);
            figure.dashed_line(&[(x, area.y), (x, area.bottom())], AXIS, 2.0, &[8.0, 6.0]);
            figure.text((x + 6.0, area.y + 14.0), name, MARK);
        }
        if let Some(labels) = self.labels {
            labels.draw(figure, *area);
            (0..labels.len()).for_each(|i| draw_tick_below(figure, *area, self.x(i as f64)));
        }
        let mut plotted = Vec::new();
        for line in &panel.lines {
            let (place, style) = self.styles.style(&line.name);
            plotted.push((line, style, self.points(line, place)));
        }
        // Bands, then lines, then whiskers, then markers, so that none hides the other. Categories have no line.
        let (whiskered, banded): (Vec<_>, Vec<_>) = plotted.iter().partition(|(_, _, points)| {
            self.labels.is_some() || points.iter().filter_map(|point| point.interval).count() <= WHISKERED_POINTS
        });
        for (_, style, points) in banded {
            draw_band(figure, *style, points);
        }
        for (_, style, points) in plotted.iter().filter(|_| self.labels.is_none()) {
            style.draw(figure, &points.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>());
        }
        for (_, style, points) in whiskered {
            for (x, ends) in points.iter().filter_map(|point| Some((point.x, point.interval?))) {
                figure.whisker(x, ends, style.colour, WHISKER);
            }
        }
        for (_, style, points) in plotted.iter().filter(|(line, ..)| self.labels.is_some() || line.is_marked()) {
            points.iter().for_each(|point| figure.marker((point.x, point.y), style.marker, MARKER, style.colour));
        }
    }

    fn x(&self, x: f64) -> f64 {
        self.area.x + self.area.width * self.x_axis.place(x)
    }

    /// The position of a value; one outside the axis is at its end.
    fn y(&self, value: f64) -> f64 {
        self.area.bottom() - self.area.height * self.y_axis.place(value).clamp(0.0, 1.0)
    }

    /// The points of a line that have a place on the axes and are not left of them; at categories they are beside
    /// those of other lines.
    fn points(&self, line: &Line, place: usize) -> Vec<PlottedPoint> {
        let aside = self.labels.map_or(0.0, |labels| {
            let others = self.styles.names.len() as f64 - 1.0;
            let step = DODGE.0.min(DODGE.1 / others.max(1.0));
            self.area.width / labels.len() as f64 * step * (place as f64 - others / 2.0)
        });
        let inside = line.visible().filter(|(x, y)| *x >= self.x_axis.lo && self.y_axis.place(y.value).is_finite());
        let points = inside.map(|(x, y)| PlottedPoint {
            x: self.x(x) + aside,
            y: self.y(y.value),
            interval: y.interval.map(|(lo, hi)| (self.y(lo), self.y(hi))),
        });
        points.collect()
    }
}

fn draw_band(figure: &mut Figure, style: LineStyle, points: &[PlottedPoint]) {
    let intervals: Vec<_> = points.iter().filter_map(|point| Some((point.x, point.interval?))).collect();
    let upper = intervals.iter().map(|&(x, (_, upper))| (x, upper));
    let lower = intervals.iter().rev().map(|&(x, (lower, _))| (x, lower));
    figure.tint(&upper.chain(lower).collect::<Vec<_>>(), style.colour, BAND_OPACITY);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel<V: Into<PointEstimate>>(points: impl IntoIterator<Item = (f64, V)>) -> LinePanel {
        LinePanel {
            title: "loss".into(),
            x_label: "tokens".into(),
            y_label: "nats".into(),
            y_range: None,
            marks: Vec::new(),
            lines: vec![Line::new("diff".into(), points)],
        }
    }

    fn draw(panel: LinePanel, axes: LineAxes<'_>) -> Result<Figure> {
        lines(&[panel], axes, &FigureHeading::default())
    }

    fn estimate(value: f64, low: f64, high: f64) -> PointEstimate {
        PointEstimate { value, interval: Some((low, high)) }
    }

    #[test]
    fn a_constant_line_gaps_and_a_single_point_can_be_drawn() {
        let labels = ["none", "8", "6", "4"].map(String::from);
        for axes in [LineAxes::Linear, LineAxes::LogX, LineAxes::LogLog, LineAxes::Categories(&labels)] {
            assert!(draw(panel([(0.0, 2.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 2.0)]), axes).is_ok());
            assert!(draw(panel([(1.0, 1.0)]), axes).is_ok());
        }
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        for axes in [LineAxes::Linear, LineAxes::LogX, LineAxes::LogLog, LineAxes::Categories(&["8".into()])] {
            assert!(lines(&[], axes, &FigureHeading::default()).is_err());
            assert!(draw(panel([] as [(f64, f64); 0]), axes).is_err());
        }
        assert!(draw(panel([(0.0, 1.0)]), LineAxes::LogLog).is_err());
        assert!(draw(panel([(0.0, 1.0)]), LineAxes::Categories(&[])).is_err());
    }

    #[test]
    fn an_axis_holds_the_intervals() {
        let axis = y_axis(&panel([(0.0, estimate(80.0, 41.0, 88.0))])).unwrap();
        assert_eq!((axis.lo, axis.hi), (40.0, 90.0));
    }

    #[test]
    fn logarithmic_axes_leave_out_zeros() {
        let falling = panel([(0.0, 0.9), (0.5, 0.9), (20.0, 1e-6), (50.0, 0.0)]);
        let (x_axis, y_axis) = logarithmic_axes(&falling).unwrap();
        assert_eq!((x_axis.lo, x_axis.hi, y_axis.lo, y_axis.hi), (0.5, 20.0, 1e-6, 0.9));
    }

    #[test]
    fn panels_of_categories_have_room_for_their_labels() {
        let shape = |n: usize| categories_panel(&CategoryLabels::new(&vec!["4 smooth rotate".to_owned(); n]), 2);
        assert_eq!(shape(2), CATEGORIES_PANEL);
        let PanelShape { most_across, largest: (width, _), .. } = shape(9);
        assert!(width > CATEGORIES_PANEL.largest.0 && width < WIDEST && most_across == 1, "{width}, {most_across}");
        assert_eq!(width, width.floor(), "or the grid takes a part of the room for the labels away");
        assert_eq!((shape(40).largest.0, shape(40).most_across), (WIDEST, 1));
        assert_eq!(shape(20).narrowest, 40.0 * MARKER_SLOT, "for two lines");
    }
}
