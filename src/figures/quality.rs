//! Metrics against the bits of quantised attention logits (Figure 8 of the Differential Transformer paper).

use super::axis::{draw_break, draw_tick_below, draw_y_axis, draw_y_label, extent, Axis, BREAK_NOTE};
use super::colour::AXIS;
use super::curve_style::{CurveStyle, CurveStyles};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::LegendSymbol;
use super::panelgrid::{PanelGrid, TICK_LINE};
use super::text::{AXIS_LABEL, TICK};
use crate::base::names::distinct;
use crate::results::{Difference, Estimate};
use anyhow::{ensure, Result};

/// One metric of all models.
#[derive(Clone, Debug)]
pub struct QualityPanel {
    /// The metric, for example `needle retrieval`.
    pub title: String,
    /// The metric with its unit, for example `exact match (%)`.
    pub y_label: String,
    /// Ends of the y axis; `None` to take them from the estimates.
    pub y_range: Option<(f64, f64)>,
    /// One line for each model; a model has the same colour and marker in all panels.
    pub lines: Vec<QualityLine>,
}

/// A metric of one model.
#[derive(Clone, Debug)]
pub struct QualityLine {
    /// The model.
    pub model: String,
    /// One estimate for each category of the x axis; `None` where nothing was measured.
    pub estimates: Vec<Option<PointEstimate>>,
}

/// An estimate with its interval, in the unit of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointEstimate {
    /// The estimate.
    pub value: f64,
    /// 95 % interval, if there is one.
    pub interval: Option<(f64, f64)>,
}

impl PointEstimate {
    /// An estimate of a run, multiplied by a factor.
    pub(crate) fn of(found: &Estimate, factor: f64) -> Self {
        let interval = found.interval.map(|interval| (factor * interval.lo, factor * interval.hi));
        Self { value: factor * found.value, interval }
    }

    /// A difference, multiplied by a factor.
    pub(crate) fn of_difference(found: &Difference, factor: f64) -> Self {
        let interval = found.interval().map(|interval| (factor * interval.lo, factor * interval.hi));
        Self { value: factor * found.diff, interval }
    }
}

const PANELS_ACROSS: usize = 3;
const PANEL: (f64, f64) = (420.0, 330.0);
/// Largest width of a panel whose labels need more room.
const WIDEST: f64 = 1100.0;
/// Least distance of labels of the x axis.
const TICK_GAP: f64 = 8.0;
const LINE: f64 = 3.0;
const MARKER: f64 = 13.0;
const WHISKER: f64 = 2.0;
/// Distance between neighbouring models, and largest distance between the first and the last, as fractions of the width
/// of a category.
const DODGE: (f64, f64) = (0.18, 0.6);

/// Draws the panels, three across. `categories` are the labels along x, for example `none`, `16`, `8`, `6`, `4`;
/// `x_label` is, for example, `bits of attention logits`.
///
/// # Errors
/// If there is nothing to draw.
pub fn quality(
    panels: &[QualityPanel],
    categories: &[String],
    heading: &FigureHeading,
    x_label: &str,
) -> Result<Figure> {
    ensure!(!panels.is_empty() && !categories.is_empty(), "no quality to draw");
    let looks = CurveStyles::new(distinct(panels.iter().flat_map(|panel| &panel.lines).map(|line| &line.model)));
    let ticks = Ticks::new(categories);
    let (width, across) = ticks.panel();
    let grid = PanelGrid::new(panels.len(), across, (width, PANEL.1), heading.page.room()).tick_lines(ticks.lines);
    let whiskers = panels.iter().flat_map(estimates).any(|estimate| estimate.interval.is_some());
    let mut subtitle = vec![heading.subtitle];
    subtitle.extend(whiskers.then_some("whiskers: 95 % intervals"));
    let axes = panels.iter().map(y_axis).collect::<Result<Vec<Axis>>>()?;
    subtitle.extend(axes.iter().any(|axis| !axis.has_zero()).then_some(BREAK_NOTE));
    let subtitle = subtitle.join(" · ");
    let (mut figure, top) =
        grid.sheet(&FigureHeading { subtitle: &subtitle, ..*heading }, &looks, LegendSymbol::MarkedLine)?;
    for (i, (panel, axis)) in panels.iter().zip(&axes).enumerate() {
        let area = grid.area(i, top);
        draw_panel(&mut figure, panel, area, axis, &ticks, &looks);
        let below = 60.0 + TICK_LINE * (ticks.lines - 1) as f64;
        figure.text((area.centre().0, area.bottom() + below), x_label, AXIS_LABEL);
    }
    Ok(figure)
}

/// The labels of the x axis, each word in a line of its own.
struct Ticks<'a> {
    labels: Vec<Vec<&'a str>>,
    lines: usize,
    /// Width of the widest label with the space around it.
    widest: f64,
}

impl<'a> Ticks<'a> {
    fn new(categories: &'a [String]) -> Self {
        let labels: Vec<Vec<&str>> = categories.iter().map(|label| label.split(' ').collect()).collect();
        let widest = labels.iter().map(|words| width(words)).fold(0.0, f64::max) + 2.0 * TICK_GAP;
        Self { lines: labels.iter().map(Vec::len).max().unwrap_or(1), labels, widest }
    }

    /// The width of a panel that has room for all labels, if it is not too wide, and the panels side by side.
    fn panel(&self) -> (f64, usize) {
        let width = (self.widest * self.labels.len() as f64).clamp(PANEL.0, WIDEST);
        (width, (PANELS_ACROSS as f64 * PANEL.0 / width).round() as usize)
    }

    /// Draws the ticks of a panel. A label that would overlap the one before is left out.
    fn draw(&self, figure: &mut Figure, area: Area) {
        let slot = area.width / self.labels.len() as f64;
        let mut free = f64::NEG_INFINITY;
        for (i, words) in self.labels.iter().enumerate() {
            let (x, half) = (area.x + slot * (i as f64 + 0.5), width(words) / 2.0);
            draw_tick_below(figure, area, x);
            if x - half < free {
                continue;
            }
            free = x + half + TICK_GAP;
            for (line, word) in words.iter().enumerate() {
                figure.text((x, area.bottom() + 24.0 + TICK_LINE * line as f64), word, TICK);
            }
        }
    }
}

/// Width of the widest of these words.
fn width(words: &[&str]) -> f64 {
    words.iter().map(|word| TICK.width(word)).fold(0.0, f64::max)
}

/// Returns the finite estimates of a panel.
fn estimates(panel: &QualityPanel) -> impl Iterator<Item = &PointEstimate> {
    let all = panel.lines.iter().flat_map(|line| &line.estimates).flatten();
    all.filter(|estimate| estimate.value.is_finite())
}

fn y_axis(panel: &QualityPanel) -> Result<Axis> {
    if let Some((lo, hi)) = panel.y_range {
        return Ok(Axis::linear(lo, hi, false));
    }
    let ends = |estimate: &PointEstimate| {
        let (low, high) = estimate.interval.unwrap_or((estimate.value, estimate.value));
        [low, high]
    };
    let (lo, hi) = extent(&estimates(panel).flat_map(ends).collect::<Vec<f64>>())?;
    Ok(Axis::linear(lo, hi, true))
}

fn draw_panel(
    figure: &mut Figure,
    panel: &QualityPanel,
    area: Area,
    axis: &Axis,
    ticks: &Ticks<'_>,
    looks: &CurveStyles,
) {
    figure.panel_title((area.x, area.y - 28.0), &panel.title, "", area.width);
    draw_y_axis(figure, area, axis);
    draw_y_label(figure, area, &panel.y_label);
    figure.frame(area, AXIS, 1.5);
    draw_break(figure, area, axis);
    ticks.draw(figure, area);
    let slot = area.width / ticks.labels.len() as f64;
    let others = looks.names().len() as f64 - 1.0;
    let line = |line: &QualityLine| {
        let (model, look) = looks.of(&line.model);
        let aside = slot * DODGE.0.min(DODGE.1 / others.max(1.0)) * (model as f64 - others / 2.0);
        (look, places(line, Area { x: area.x + aside, ..area }, axis))
    };
    draw_lines(figure, &panel.lines.iter().map(line).collect::<Vec<_>>());
}

/// Position of an estimate in the figure.
#[derive(Clone, Copy)]
struct PlottedEstimate {
    x: f64,
    y: f64,
    /// Lower and upper end of the whisker.
    whisker: Option<(f64, f64)>,
}

/// Returns the positions of a line's estimates; those outside the axis are at its ends.
fn places(line: &QualityLine, area: Area, axis: &Axis) -> Vec<Option<PlottedEstimate>> {
    let slot = area.width / line.estimates.len() as f64;
    let y = |number: f64| area.bottom() - area.height * axis.place(number).clamp(0.0, 1.0);
    let place = |(i, estimate): (usize, &Option<PointEstimate>)| {
        let estimate = estimate.filter(|estimate| estimate.value.is_finite())?;
        let whisker = estimate.interval.map(|(low, high)| (y(low), y(high)));
        Some(PlottedEstimate { x: area.x + slot * (i as f64 + 0.5), y: y(estimate.value), whisker })
    };
    line.estimates.iter().enumerate().map(place).collect()
}

/// Draws all lines, then all whiskers, then all markers, so that no line hides a marker.
fn draw_lines(figure: &mut Figure, lines: &[(CurveStyle, Vec<Option<PlottedEstimate>>)]) {
    for (look, places) in lines {
        for run in places.split(Option::is_none) {
            let points: Vec<(f64, f64)> = run.iter().flatten().map(|place| (place.x, place.y)).collect();
            figure.line(&points, look.colour, LINE);
        }
    }
    let all = || lines.iter().flat_map(|(look, places)| places.iter().flatten().map(move |place| (look, place)));
    for (look, place) in all() {
        if let Some(ends) = place.whisker {
            figure.whisker(place.x, ends, look.colour, WHISKER);
        }
    }
    for (look, place) in all() {
        figure.marker((place.x, place.y), look.marker, MARKER, look.colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(estimates: Vec<Option<PointEstimate>>) -> QualityPanel {
        QualityPanel {
            title: "needle".into(),
            y_label: "exact match (%)".into(),
            y_range: None,
            lines: vec![QualityLine { model: "diff".into(), estimates }],
        }
    }

    fn draw(panel: QualityPanel) -> Result<Figure> {
        quality(&[panel], &["none".into(), "4".into()], &FigureHeading::default(), "bits")
    }

    fn estimate(value: f64, low: f64, high: f64) -> Option<PointEstimate> {
        Some(PointEstimate { value, interval: Some((low, high)) })
    }

    #[test]
    fn missing_estimates_are_gaps() {
        assert!(draw(panel(vec![estimate(80.0, 70.0, 88.0), None])).is_ok());
        let unsure = Some(PointEstimate { value: 3.0, interval: None });
        assert!(draw(panel(vec![Some(PointEstimate { value: f64::NAN, interval: None }), unsure])).is_ok());
    }

    #[test]
    fn labels_have_a_line_for_each_word_and_panels_room_for_them() {
        let labels = |n: usize| vec!["4 smooth rotate".to_owned(); n];
        let (few, some, many) = (labels(2), labels(7), labels(40));
        assert_eq!(Ticks::new(&few).lines, 3);
        assert_eq!(Ticks::new(&few).panel(), (PANEL.0, PANELS_ACROSS));
        let (width, across) = Ticks::new(&some).panel();
        assert!(width > PANEL.0 && width < WIDEST && across == 2, "{width}, {across}");
        assert_eq!(Ticks::new(&many).panel(), (WIDEST, 1));
    }

    #[test]
    fn the_axis_holds_the_whiskers() {
        let axis = y_axis(&panel(vec![estimate(80.0, 41.0, 88.0), None])).unwrap();
        assert_eq!((axis.lo, axis.hi), (40.0, 90.0));
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        assert!(quality(&[], &["none".into()], &FigureHeading::default(), "").is_err());
        assert!(draw(panel(vec![None, None])).is_err());
    }
}
